//! Logins, whatever the protocol: the limits that hold before accounts are asked, what accounts are told, what follows from
//! a failure, and what becomes of an account that is looked at again while its user is here.
//!
//! In which order these are asked, and what the client hears, is up to the protocol.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use millrace_accounts::{Account, Attempt, Authenticator, Decision, Protocol};
use millrace_limits::{AccountLimits, Failed, GroupLimits, LimitKey, LoginLimit, Reached};
use millrace_log::{self as log, Subject};

use crate::services::Services;
use crate::worker::Core;

impl Services {
    /// Checks whether the processors have time for a login.
    pub fn check_load(&self) -> Result<(), LoginLimit> {
        let most = self.cpu_limit.value();
        if most == 0 || u64::from(self.load.percent()) <= most {
            return Ok(());
        }
        let reason = "The server is too busy; try again later.";
        Err(LoginLimit { reason, reached: Reached::new(LimitKey::CpuLimit, most), wait: None })
    }

    /// Counts an attempt to log in from an address, whatever comes of it.
    pub fn count_attempt(&self, from: IpAddr, now: Instant) -> Result<(), LoginLimit> {
        Ok(self.logins_rated.attempt(from, now, self.limits.wall())?)
    }

    /// Counts a login of a user that the accounts have granted.
    pub fn count_login(&self, user: &[u8], now: Instant) -> Result<(), LoginLimit> {
        Ok(self.logins_rated.log_in(user, now, self.limits.wall())?)
    }

    /// Counts a wrong name or password. `log` is told of it, and of the bans that it leads to.
    pub fn count_login_failure(
        &self,
        (from, user): (IpAddr, &[u8]),
        now: Instant,
        tried: log::Tried,
        mut log: impl FnMut(log::Event<'_>),
    ) -> Failed {
        log(log::Event::LoginFailed { user, tried });
        let failed = self.bans.failed(from, user, now);
        failed.bans(user).for_each(|user| log(log::Event::Banned { user }));
        failed
    }

    /// Returns what a decision is worth that the accounts have taken a while for. A user who was banned meanwhile is denied as
    /// for a wrong password: else a client that guesses on many connections at once would have them all looked at.
    pub fn decision_now(&self, from: IpAddr, user: &[u8], decision: Decision, now: Instant) -> Decision {
        match decision {
            Decision::Granted(_) | Decision::NeedsCode | Decision::Limited(_)
                if self.bans.is_banned(from, user, now) =>
            {
                Decision::Denied
            }
            decision => decision,
        }
    }

    /// Has the accounts look again at the account of a user who is logged in. `tell` gets the user and what was decided;
    /// it is not called where the account stays as it is.
    pub fn review(
        &self,
        attempt: LoginAttempt,
        account: Account,
        tell: impl FnOnce(Vec<u8>, Decision) + Send + 'static,
    ) {
        let accounts = self.accounts();
        self.logins.run(move || {
            if let Some(decision) = accounts.look_again(&account, &attempt.now()) {
                tell(attempt.user, decision.keeping_place(&account));
            }
        });
    }
}

impl Core {
    /// Counts a wrong name or password. The log hears of it, and of the bans that it leads to.
    pub fn count_login_failure(&mut self, subject: &Subject<'_>, user: &[u8], tried: log::Tried) -> Failed {
        let (services, now) = (Arc::clone(&self.services), self.now.instant);
        services.count_login_failure((subject.peer.ip(), user), now, tried, |event| self.log(subject, event))
    }
}

/// A login as the accounts are told of it, kept until a thread asks them.
#[derive(Clone)]
pub struct LoginAttempt {
    /// The name, as the client sent it.
    pub user: Vec<u8>,
    /// The password; empty where it is not known here.
    pub password: Vec<u8>,
    /// The client's address.
    pub from: IpAddr,
    /// The client's protocol.
    pub protocol: Protocol,
    /// Whether the connection is encrypted.
    pub encrypted: bool,
    /// Whether the client has shown a good certificate with this name in it.
    pub certified: bool,
    /// The host that the client asked for, in its plain form.
    pub host: String,
    /// The address of this machine that the client came to.
    pub local: Option<SocketAddr>,
    /// The address that the listener is bound to which the client came to, where the session counts as one of that.
    pub listener: Option<SocketAddr>,
    /// What counts the sessions of the session's class, where it is in one.
    pub class: Option<Box<GroupLimits>>,
    /// The number of the session that it is for; 0 where it is for none.
    pub session: u64,
}

impl fmt::Debug for LoginAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the password.
        self.now().fmt(f)
    }
}

impl LoginAttempt {
    /// As it is made now.
    pub fn now(&self) -> Attempt<'_> {
        let Self { ref user, ref password, from, protocol, encrypted, certified, ref host, local, .. } =
            *self;
        Attempt { user, password, from, protocol, encrypted, certified, host, local, now: SystemTime::now() }
    }

    /// Returns the account that the client's certificate alone is enough for, if it is. May wait.
    pub fn by_certificate(&self, accounts: &dyn Authenticator) -> Option<Decision> {
        let decision = self.certified.then(|| accounts.current(&self.now()))??;
        match &decision {
            Decision::Granted(account) if account.certificate_suffices => Some(decision),
            _ => None,
        }
    }
}

/// Returns the first name or address of the virtual host that an account was granted at.
pub fn host_of(account: &Account) -> Option<Arc<str>> {
    Some(Arc::clone(&account.limits.as_ref()?.host.as_ref()?.name))
}

/// Returns the limits of an account.
pub fn limits_of(account: &Account) -> Cow<'_, AccountLimits> {
    account.limits.as_deref().map_or_else(Cow::default, Cow::Borrowed)
}

/// Why the sessions of a user end.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Expelled(pub String);

/// Returns what has become of an account that was looked at again: as it is now, or why its user's sessions end. `None`
/// while the accounts are out of reach: sessions stay.
pub fn present_account(decision: Decision) -> Option<Result<Account, Expelled>> {
    match decision {
        Decision::Granted(account) => Some(Ok(account)),
        Decision::Unavailable(_) | Decision::Limited(_) => None,
        Decision::Denied | Decision::NeedsCode | Decision::NeedsPassword => {
            Some(Err(Expelled("the account is no longer there".to_owned())))
        }
        Decision::Refused(reason) => Some(Err(Expelled(reason))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use millrace_accounts::Permissions;
    use millrace_storage::MemoryStorage;

    /// Accounts that grant everything but a password, of a user whose certificate may be enough.
    #[derive(Debug)]
    struct Certified {
        suffices: bool,
    }

    fn account() -> Account {
        Account::new(Arc::new(MemoryStorage::new()), Permissions::READ_WRITE)
    }

    impl Authenticator for Certified {
        fn authenticate(&self, _: &Attempt<'_>) -> Decision {
            Decision::Denied
        }

        fn current(&self, attempt: &Attempt<'_>) -> Option<Decision> {
            assert!(attempt.certified, "without a certificate they are not asked");
            Some(Decision::Granted(Account { certificate_suffices: self.suffices, ..account() }))
        }
    }

    fn attempt(certified: bool) -> LoginAttempt {
        LoginAttempt {
            user: b"ann".to_vec(),
            password: b"secret".to_vec(),
            from: IpAddr::from([192, 0, 2, 1]),
            protocol: Protocol::Http,
            encrypted: true,
            certified,
            host: String::new(),
            local: None,
            listener: None,
            class: None,
            session: 0,
        }
    }

    #[test]
    fn a_certificate_is_enough_only_where_it_was_shown_and_the_account_says_so() {
        for (certified, suffices) in [(false, true), (true, false), (true, true)] {
            let decision = attempt(certified).by_certificate(&Certified { suffices });
            assert_eq!(decision.is_some(), certified && suffices, "{certified} {suffices}");
        }
    }

    #[test]
    fn an_attempt_does_not_show_its_password() {
        let shown = format!("{:?}", attempt(true));
        assert!(shown.contains("ann") && !shown.contains("secret"), "{shown}");
    }

    #[test]
    fn a_session_ends_with_its_account_and_not_while_the_accounts_are_out_of_reach() {
        let reason =
            |decision| present_account(decision).map(|present| present.err().map(|Expelled(reason)| reason));
        assert_eq!(reason(Decision::Granted(account())), Some(None));
        assert_eq!(reason(Decision::Unavailable("no answer".to_owned())), None);
        for gone in [Decision::Denied, Decision::NeedsCode, Decision::NeedsPassword] {
            assert_eq!(reason(gone), Some(Some("the account is no longer there".to_owned())));
        }
        let refused = Decision::Refused("outside of the hours".to_owned());
        assert_eq!(reason(refused), Some(Some("outside of the hours".to_owned())));
    }
}
