//! Users that have logged in by name and password, or by a provider, each known by a cookie. They are forgotten with the
//! process, unless other nodes of a cluster know them (`shared_logins.rs`).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use millrace_admin::random_number;
use millrace_oidc::Identity;
use millrace_server::{Account, LoginAttempt};

use super::reply::Problem;

/// The name of the cookie.
pub(crate) const COOKIE: &str = "millrace-admin";

/// Users at a time; the next takes the place of the one that idles longest.
const MOST: usize = 256;

/// How long a cookie is good without a request.
pub(crate) const IDLE: Duration = Duration::from_secs(30 * 60);

/// How long it is good at most.
pub(crate) const LONGEST: Duration = Duration::from_secs(12 * 3600);

/// How long what other nodes know of a login is taken for true.
const FRESH: Duration = Duration::from_secs(1);

/// A user that has logged in.
#[derive(Debug, Clone)]
pub(crate) struct Login {
    pub(crate) user: User,
    pub(crate) begun: Instant,
    pub(crate) used: Instant,
    /// When all nodes of the cluster were last known to know it; `None` while they have not been told.
    pub(crate) shared: Option<Instant>,
}

/// What this node knows of what the others know of a login.
#[derive(Debug)]
pub(crate) enum SharedState {
    /// This node does not know the login, or has seen no request of it for too long: then another may have.
    Unknown,
    /// They have not been told.
    Untold(Box<Login>),
    /// They knew it within the last second.
    Lately,
    /// They knew it before that. This node has seen a request so long ago.
    Before(Duration),
}

/// Who it is, by those who have said so.
#[derive(Debug, Clone)]
pub(crate) enum User {
    /// The accounts of the server.
    OfAccounts {
        /// As the accounts were told, without the password.
        attempt: LoginAttempt,
        /// The account as it was looked at last.
        account: Account,
        /// The edition of the accounts that it is of.
        edition: u64,
    },
    /// A provider of OpenID Connect.
    OfProvider(Identity),
}

impl Login {
    pub(crate) fn new(user: User, now: Instant) -> Self {
        Self { user, begun: now, used: now, shared: None }
    }

    fn has_ended(&self, now: Instant) -> bool {
        now.duration_since(self.used) >= IDLE || now.duration_since(self.begun) >= LONGEST
    }
}

impl User {
    /// A user that the accounts have granted.
    pub(crate) fn of_accounts(attempt: LoginAttempt, account: Account, edition: u64) -> Self {
        Self::OfAccounts { attempt: LoginAttempt { password: Vec::new(), ..attempt }, account, edition }
    }
}

/// Returns the name that a user has logged in by.
pub(crate) fn name_of(attempt: &LoginAttempt) -> String {
    String::from_utf8_lossy(&attempt.user).into_owned()
}

/// Returns the names of the groups of an account.
pub(crate) fn groups(account: &Account) -> Vec<String> {
    let limits = account.limits.iter();
    limits.flat_map(|limits| &limits.groups).map(|group| group.name.to_string()).collect()
}

/// All of them, by their cookies.
#[derive(Debug, Default)]
pub(crate) struct Logins {
    /// Locked for a look.
    open: Mutex<HashMap<String, Login>>,
}

impl Logins {
    /// Adds one, and returns its cookie's value.
    pub(crate) fn add(&self, login: Login, now: Instant) -> Result<String, Problem> {
        let cookie = random_number().map_err(|error| Problem::failed(error.to_string()))?;
        self.insert(cookie.clone(), login, now);
        Ok(cookie)
    }

    /// Adds the one of this cookie.
    pub(crate) fn insert(&self, cookie: String, login: Login, now: Instant) {
        let mut open = self.open();
        open.retain(|_, login| !login.has_ended(now));
        if open.len() >= MOST {
            let oldest = open.iter().min_by_key(|(_, login)| login.used).map(|(cookie, _)| cookie.clone());
            oldest.iter().for_each(|cookie| drop(open.remove(cookie)));
        }
        open.insert(cookie, login);
    }

    /// Returns what is known of what the others know of a cookie.
    pub(crate) fn shared_state(&self, cookie: &str, now: Instant) -> SharedState {
        match self.open().get(cookie) {
            None => SharedState::Unknown,
            Some(login) if login.has_ended(now) => SharedState::Unknown,
            Some(login) => match login.shared {
                None => SharedState::Untold(Box::new(login.clone())),
                Some(then) if now.saturating_duration_since(then) < FRESH => SharedState::Lately,
                Some(_) => SharedState::Before(now.saturating_duration_since(login.used)),
            },
        }
    }

    /// All nodes know the login of this cookie.
    pub(crate) fn note_shared(&self, cookie: &str, now: Instant) {
        self.open().get_mut(cookie).into_iter().for_each(|login| login.shared = Some(now));
    }

    /// Returns the user of a cookie, who is active now.
    pub(crate) fn find(&self, cookie: &str, now: Instant) -> Option<Login> {
        let mut open = self.open();
        if open.get(cookie)?.has_ended(now) {
            open.remove(cookie);
        }
        let login = open.get_mut(cookie)?;
        login.used = now;
        Some(login.clone())
    }

    /// Looks at the user of a cookie that is still good, without a request of the user.
    pub(crate) fn look<T>(&self, cookie: &str, now: Instant, look: impl FnOnce(&User) -> T) -> Option<T> {
        self.open().get(cookie).filter(|login| !login.has_ended(now)).map(|login| look(&login.user))
    }

    /// Notes what the accounts say now.
    pub(crate) fn renew(&self, cookie: &str, account: Account, edition: u64) {
        if let Some(Login { user: User::OfAccounts { account: own, edition: of, .. }, .. }) =
            self.open().get_mut(cookie)
        {
            (*own, *of) = (account, edition);
        }
    }

    /// Forgets one.
    pub(crate) fn remove(&self, cookie: &str) {
        self.open().remove(cookie);
    }

    /// Forgets those of a user of the accounts.
    pub(crate) fn remove_user(&self, user: &str) {
        self.open().retain(|_, login| match &login.user {
            User::OfAccounts { attempt, .. } => attempt.user != user.as_bytes(),
            User::OfProvider(_) => true,
        });
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, Login>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::Arc;

    use millrace_server::storage::MemoryStorage;
    use millrace_server::{Permissions, Protocol};

    use super::*;

    fn login(user: &str, now: Instant) -> Login {
        let attempt = LoginAttempt {
            user: user.into(),
            password: b"secret".to_vec(),
            from: IpAddr::from([127, 0, 0, 1]),
            protocol: Protocol::Http,
            encrypted: false,
            certified: false,
            host: String::new(),
            local: None,
            listener: None,
            class: None,
            session: 0,
        };
        let account = Account::new(Arc::new(MemoryStorage::new()), Permissions::NONE);
        Login::new(User::of_accounts(attempt, account, 0), now)
    }

    #[test]
    fn a_cookie_ends_when_its_user_idles_and_after_half_a_day() {
        let (logins, begun) = (Logins::default(), Instant::now());
        let cookie = logins.add(login("ann", begun), begun).unwrap();
        assert_eq!(cookie.len(), 64);
        let User::OfAccounts { attempt, .. } = logins.find(&cookie, begun).unwrap().user else { panic!() };
        assert!(attempt.password.is_empty());
        assert!(logins.find(&format!("{cookie}0"), begun).is_none());
        assert!(logins.find(&cookie, begun + IDLE).is_none(), "it has idled");
        let cookie = logins.add(login("ann", begun), begun).unwrap();
        let step = IDLE / 2;
        for number in 1..LONGEST.as_secs() / step.as_secs() {
            assert!(logins.find(&cookie, begun + step * number as u32).is_some(), "{number}");
        }
        assert!(logins.find(&cookie, begun + LONGEST).is_none(), "it has lasted long enough");
    }

    #[test]
    fn what_other_nodes_say_is_no_use_of_a_login_and_one_that_has_idled_is_not_told() {
        let (logins, begun) = (Logins::default(), Instant::now());
        let cookie = logins.add(login("ann", begun), begun).unwrap();
        assert!(matches!(logins.shared_state(&cookie, begun), SharedState::Untold(_)));
        assert!(matches!(logins.shared_state(&cookie, begun + IDLE), SharedState::Unknown));
        let later = begun + IDLE / 2;
        logins.note_shared(&cookie, later);
        assert!(matches!(logins.shared_state(&cookie, later), SharedState::Lately));
        let SharedState::Before(unused) = logins.shared_state(&cookie, later + FRESH) else { panic!() };
        assert_eq!(unused, IDLE / 2 + FRESH);
        assert!(logins.look(&cookie, begun + IDLE, |_| ()).is_none(), "it has idled");
    }

    #[test]
    fn there_are_so_many_at_most_and_one_can_be_forgotten() {
        let (logins, begun) = (Logins::default(), Instant::now());
        let later = begun + Duration::from_secs(1);
        let first = logins.add(login("first", begun), begun).unwrap();
        let second = logins.add(login("second", later), later).unwrap();
        (1..MOST).for_each(|_| drop(logins.add(login("other", later), later).unwrap()));
        assert!(logins.find(&first, later).is_none() && logins.open().len() == MOST);
        logins.remove(&second);
        assert!(logins.find(&second, later).is_none());
    }
}
