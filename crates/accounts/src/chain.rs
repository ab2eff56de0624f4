//! The accounts of a server: sources, asked in order, and one way to decide with what they know.
//!
//! The first source that knows a name decides about it; one that cannot be reached ends the search, because a later one
//! may have another user of that name. The settings of every source go through [`Effective`](super::Effective), so that
//! a rule of the configuration file means the same for a user of a database.
//!
//! A wrong password and an unknown name take the same time and get the same answer (`chain/proving.rs`).

mod explaining;
mod granting;
mod proving;
mod roster;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use millrace_ftp::session::Permissions;
use millrace_storage::Ledger;
use millrace_vfs::Storage;

pub use self::explaining::Explained;
pub use self::roster::RosterSource;
use super::decoys::Decoys;
use super::effective::{Effective, resolve};
use super::hash::Hash;
use super::hashing::Hashing;
use super::homes::Homes;
use super::hosts::{KnownBy, VirtualHost};
use super::mounts::Mounts;
use super::password::{Kept, Mac, Password, hash_password};
use super::profile::{Access, Group, User};
use super::source::{Found, Needs, Proof, Source};
use super::source_error::{SourceError, SourceUnavailable};
use super::totp::Used;
use super::{Account, Accounts, Attempt, Authenticator, Changed, Decision, Protocol, Told};
use millrace_limits::Quotas;

/// The user that accepts any password, and the group whose settings apply to it.
const ANONYMOUS: &str = "anonymous";

/// A source, and the place of the host whose users it has; `None` for those of the server.
#[derive(Debug)]
struct Placed {
    source: Box<dyn Source>,
    host: Option<usize>,
}

/// Sources in order, with what belongs to all of them.
#[derive(Debug)]
pub struct Chain {
    sources: Vec<Placed>,
    /// The sources of users whose further data need not be kept. They are shared, so that a session is small.
    names: Vec<Arc<Told>>,
    groups: HashMap<String, Group>,
    homes: Arc<Homes>,
    /// Other folders, for clients of a host.
    hosts: Vec<VirtualHost>,
    mounts: Arc<Mounts>,
    quotas: Arc<Quotas>,
    anonymous: Option<Account>,
    hides_dotfiles: bool,
    /// The accounts of the anonymous user, one for each tree: HTTP knows the files that it keeps open by their storage.
    shared: Mutex<Vec<Account>>,
    hashing: Hashing,
    decoys: Decoys,
    codes: Used,
}

impl Chain {
    /// Makes a chain without sources: every login is refused.
    pub fn new(homes: Arc<Homes>) -> Self {
        Self {
            sources: Vec::new(),
            names: Vec::new(),
            groups: HashMap::new(),
            homes,
            hosts: Vec::new(),
            mounts: Arc::default(),
            quotas: Arc::new(Quotas::new(Ledger::new(None))),
            anonymous: None,
            hides_dotfiles: false,
            shared: Mutex::default(),
            hashing: Hashing::new(),
            decoys: Decoys::default(),
            codes: Used::default(),
        }
    }

    /// With one more source, asked after those before it.
    pub fn source(self, source: impl Source + 'static) -> Self {
        self.placed(source, None)
    }

    /// With a source of the users of the host that was added last. They are unknown elsewhere, and others are unknown there.
    pub fn source_of_host(self, source: impl Source + 'static) -> Self {
        let host = self.hosts.len().checked_sub(1);
        self.placed(source, host)
    }

    fn placed(mut self, source: impl Source + 'static, host: Option<usize>) -> Self {
        let is_told = source.tell_passwords(&mut |password| self.decoys.meet(password));
        if !is_told && source.holds_hashes() {
            self.decoys.meet_hash(&Hash::parse(&hash_password(b"")).expect("it was made just now"));
        }
        let told = Told { source: source.name().into(), mark: source.mark(), user: None, effective: None };
        self.names.push(Arc::new(told));
        self.sources.push(Placed { source: Box::new(source), host });
        self
    }

    /// With a group, for users of any source.
    pub fn group(mut self, group: Group) -> Self {
        self.groups.insert(group.name.clone(), group);
        self
    }

    /// Adds a host with a tree of its own; of those that a client may belong to, the first has it.
    pub fn host(mut self, host: VirtualHost) -> Self {
        self.hosts.push(host);
        self
    }

    /// With virtual folders, for users of any source.
    pub fn mounts(mut self, mounts: Arc<Mounts>) -> Self {
        self.mounts = mounts;
        self
    }

    /// Sets the counts of quotas; without them each chain counts anew. The server's limits must share the same value.
    pub fn quotas(mut self, quotas: Arc<Quotas>) -> Self {
        self.quotas = quotas;
        self
    }

    /// Adds `anonymous`, also called `ftp`, which accepts any password, before any source is asked.
    pub fn anonymous(mut self, permissions: Permissions, storage: Arc<dyn Storage>) -> Self {
        self.anonymous = Some(Account::new(storage, permissions));
        self
    }

    /// Hides names that begin with a dot from the anonymous user: they were seldom meant for everyone.
    pub fn without_dotfiles(mut self) -> Self {
        self.hides_dotfiles = true;
        self
    }

    /// Checks that the sources can be reached; returns those that cannot.
    pub fn begin(&self) -> Vec<SourceUnavailable> {
        let begun = self.sources().map(|source| (source, source.begin()));
        begun.filter_map(|(source, begun)| Some(unavailable(source, begun.err()?))).collect()
    }

    /// The folders of the host that a client came by.
    fn homes(&self, attempt: &Attempt<'_>) -> &Homes {
        self.host_of(attempt).map_or(&self.homes, |host| &host.homes)
    }

    /// The host that a client came by, if that is one.
    fn host_of(&self, attempt: &Attempt<'_>) -> Option<&VirtualHost> {
        KnownBy::choose(&self.hosts, |host| &host.known_by, attempt.host, attempt.local)
    }

    /// All sources.
    fn sources(&self) -> impl Iterator<Item = &dyn Source> {
        self.sources.iter().map(|placed| &*placed.source)
    }

    /// The sources that are asked about a client: those of its host, where that has its own, or else of the server.
    fn sources_for(&self, attempt: &Attempt<'_>) -> impl Iterator<Item = &dyn Source> {
        let own = self.host_of(attempt).and_then(|host| self.place_of_own_sources(host));
        self.sources.iter().filter(move |placed| placed.host == own).map(|placed| &*placed.source)
    }

    /// The place of a host that has sources of its own.
    fn place_of_own_sources(&self, host: &VirtualHost) -> Option<usize> {
        let place = self.hosts.iter().position(|other| std::ptr::eq(other, host));
        place.filter(|_| self.sources.iter().any(|placed| placed.host == place))
    }

    /// The source that told this, whose settings may be others by now if no other has its name.
    fn source_of(&self, told: &Told) -> Option<&dyn Source> {
        let named = || self.sources().filter(|it| it.name() == &*told.source);
        let only = || named().next().filter(|_| named().count() == 1);
        named().find(|source| told.is_by(*source)).or_else(only)
    }

    fn effective(&self, user: &User) -> Effective {
        resolve(user, |name| self.groups.get(name).cloned())
    }

    /// Decides about a user that was found.
    fn decide(&self, source: &dyn Source, user: &User, proof: &Proof, attempt: &Attempt<'_>) -> Decision {
        let effective = self.effective(user);
        let proved = match (proof, &effective.said.totp) {
            (Proof::Wrong, _) => {
                self.pretend(attempt.password);
                Err(Decision::Denied)
            }
            (Proof::Refused(why), _) => Err(Decision::Refused(why.clone())),
            (Proof::Right, None) => Ok(()),
            (Proof::Right, Some(_)) => {
                let why =
                    "totp is set, of a user whose password is known elsewhere: that has to ask for codes";
                Err(Decision::Unavailable(why.to_owned()))
            }
            (Proof::Password(password), None) => match self.check(attempt, password) {
                true => Ok(()),
                false => Err(Decision::Denied),
            },
            (Proof::Password(password), Some(secret)) => self.check_code(attempt, password, secret),
        };
        match proved {
            Ok(()) => self.admit(source, user, effective, attempt),
            // No password would have been right. The client is told the same.
            Err(Decision::Denied) if effective.wants_certificate_alone() => match effective.admit(attempt) {
                Err(why) => Decision::Refused(why.to_string()),
                Ok(()) => Decision::Denied,
            },
            Err(decision) => decision,
        }
    }

    /// Decides about a user whose password was right, or is not asked for.
    fn admit(
        &self,
        source: &dyn Source,
        user: &User,
        effective: Effective,
        attempt: &Attempt<'_>,
    ) -> Decision {
        if let Some(decision) = refusal(source, &effective, attempt) {
            return decision;
        }
        match self.account(&effective, attempt, false) {
            Ok(Some(account)) => Decision::Granted(self.remembering(account, source, user, effective)),
            Ok(None) => Decision::Unavailable("the folder is not open".to_owned()),
            Err(why) => Decision::Unavailable(format!("{}, of {}", why, source.name())),
        }
    }

    /// Asks a source about a user that it has accepted before; `None` where it cannot answer.
    fn ask_once_more(&self, source: &dyn Source, told: &Told, attempt: &Attempt<'_>) -> Option<Decision> {
        match &told.user {
            _ if source.needs().are_met_without_password(attempt) => {
                // A user with a session stays while a database is unreachable.
                let decision = self.of_source(source, attempt).ok()?;
                Some(decision.unwrap_or(Decision::Denied))
            }
            Some(user) => Some(self.admit(source, user, self.effective(user), attempt)),
            None => None,
        }
    }

    /// The present account of a user whom the source of this name has accepted at another server with the same accounts. `None`
    /// where there is no such source, or it cannot tell without the password: another may have a different user of that name.
    /// A file may be in another folder there.
    pub fn current_of(&self, source: &str, attempt: &Attempt<'_>) -> Option<Decision> {
        let last = |name: &str| name.rsplit('/').next().map(str::to_owned);
        let mut named = self.sources_for(attempt).filter(|it| last(it.name()) == last(source));
        let (only, None) = (named.next()?, named.next()) else { return None };
        let can_tell = only.needs().are_met_without_password(attempt);
        can_tell.then(|| self.of_source(only, attempt).ok()?).flatten()
    }

    /// Returns a source's decision about a user, without the password; `None` if it does not know the name.
    fn of_source(&self, source: &dyn Source, attempt: &Attempt<'_>) -> Result<Option<Decision>, SourceError> {
        Ok(match source.find(attempt)? {
            Found::Unknown => None,
            Found::User(_, Proof::Wrong | Proof::Refused(_)) if source.needs() != Needs::Name => {
                Some(Decision::Denied)
            }
            Found::User(user, _) => Some(self.admit(source, &user, self.effective(&user), attempt)),
        })
    }

    fn is_anonymous(&self, attempt: &Attempt<'_>) -> bool {
        Accounts::is_anonymous_name(attempt.user) && self.anonymous_permissions(attempt).is_some()
    }

    /// What the anonymous user may do, if it is enabled where the client came to.
    fn anonymous_permissions(&self, attempt: &Attempt<'_>) -> Option<Permissions> {
        let of_server = self.anonymous.as_ref().map(|account| account.permissions);
        match self.host_of(attempt).and_then(|host| host.anonymous) {
            Some(true) => of_server.or(Some(Permissions::READ_ONLY)),
            Some(false) => None,
            None => of_server,
        }
    }

    /// Returns whether this is a request without credentials, where the anonymous user is not enabled.
    fn lacks_credentials(&self, attempt: &Attempt<'_>) -> bool {
        let says_nothing = attempt.protocol == Protocol::Http && attempt.password.is_empty();
        says_nothing && attempt.user == ANONYMOUS.as_bytes() && !self.is_anonymous(attempt)
    }

    /// The settings of the anonymous user, if it is enabled and there is a group of that name.
    pub fn anonymous_settings(&self) -> Option<Effective> {
        self.anonymous_settings_with(self.anonymous.as_ref()?.permissions)
    }

    fn anonymous_settings_with(&self, permissions: Permissions) -> Option<Effective> {
        let group = self.groups.get(ANONYMOUS)?;
        let mut user = User { name: ANONYMOUS.to_owned(), ..User::default() };
        user.groups.push(ANONYMOUS.to_owned());
        if group.profile.access.is_none() {
            user.profile.access = Some(Access(permissions));
        }
        Some(self.effective_of_anonymous(&user))
    }

    fn effective_of_anonymous(&self, user: &User) -> Effective {
        let mut effective = self.effective(user);
        effective.hides_dotfiles = self.hides_dotfiles;
        effective
    }

    /// The decision about the anonymous user; `None` where it would block but must not.
    fn decide_anonymous(&self, attempt: &Attempt<'_>, at_once: bool) -> Option<Decision> {
        let permissions = self.anonymous_permissions(attempt)?;
        let Some(effective) = self.anonymous_settings_with(permissions) else {
            return self.anonymous_account(permissions, attempt, at_once).map(Decision::Granted);
        };
        if let Err(why) = effective.admit(attempt) {
            return Some(Decision::Refused(why.to_string()));
        }
        match self.account(&effective, attempt, at_once) {
            Ok(account) => account.map(Decision::Granted),
            Err(why) => Some(Decision::Unavailable(format!("{why}, of the anonymous user"))),
        }
    }

    /// A name or password that no client sends by mistake: what lies behind a source may take the NUL for the end.
    fn is_unsound(attempt: &Attempt<'_>) -> bool {
        attempt.user.contains(&0) || attempt.password.contains(&0)
    }
}

fn unavailable(source: &dyn Source, why: SourceError) -> SourceUnavailable {
    SourceUnavailable { name: source.name().to_owned(), source: why }
}

/// Returns the refusal of a user, if one does not depend on the password.
fn refusal(source: &dyn Source, effective: &Effective, attempt: &Attempt<'_>) -> Option<Decision> {
    match effective.admit(attempt) {
        Err(why) => Some(Decision::Refused(why.to_string())),
        Ok(()) => without_group(source, effective),
    }
}

/// Refuses a member of an unknown group: without its settings the user might be allowed more than intended.
fn without_group(source: &dyn Source, effective: &Effective) -> Option<Decision> {
    let group = effective.unknown_groups.first().filter(|_| !source.has_groups_of_its_own())?;
    let (user, source) = (&effective.user, source.name());
    Some(Decision::Unavailable(format!(
        "{user} is of the group {group} in {source}, and there is no [[group]] table of that name"
    )))
}

impl Authenticator for Chain {
    fn virtual_host(&self, name: &str, local: Option<SocketAddr>) -> Option<String> {
        let host = KnownBy::choose(&self.hosts, |host| &host.known_by, name, local);
        host.map(|host| host.known_by.first())
    }

    /// Answers where the first source to know the name has it in memory, and the password needs no hash now.
    fn quick(&self, attempt: &Attempt<'_>) -> Option<Decision> {
        if Self::is_unsound(attempt) {
            return None;
        }
        if self.is_anonymous(attempt) {
            return self.decide_anonymous(attempt, true);
        }
        if self.lacks_credentials(attempt) {
            return Some(Decision::NeedsPassword);
        }
        for source in self.sources_for(attempt) {
            let (user, proof) = match source.find_at_once(attempt)? {
                Found::Unknown => continue,
                Found::User(user, proof) => (user, proof),
            };
            let is_right = match &proof {
                Proof::Password(Password(Kept::Plain(right))) => Mac::of(b"", attempt.password) == *right,
                Proof::Password(Password(Kept::Hashed(hash))) => {
                    self.hashing.remembers(Mac::with_hash(attempt.user, attempt.password, hash))
                }
                Proof::Right => true,
                Proof::Wrong | Proof::Refused(_) | Proof::Password(Password(Kept::Nothing)) => false,
            };
            let effective =
                is_right.then(|| self.effective(&user)).filter(|effective| effective.said.totp.is_none())?;
            if let Some(decision) = refusal(source, &effective, attempt) {
                return Some(decision);
            }
            let account = self.account(&effective, attempt, true).ok()??;
            return Some(Decision::Granted(self.remembering(account, source, &user, effective)));
        }
        None
    }

    fn authenticate(&self, attempt: &Attempt<'_>) -> Decision {
        if Self::is_unsound(attempt) {
            self.pretend(attempt.password);
            return Decision::Denied;
        }
        if self.is_anonymous(attempt)
            && let Some(decision) = self.decide_anonymous(attempt, false)
        {
            return decision;
        }
        if self.lacks_credentials(attempt) {
            return Decision::NeedsPassword;
        }
        for source in self.sources_for(attempt) {
            match source.find(attempt) {
                Ok(Found::Unknown) => {}
                Ok(Found::User(user, proof)) => return self.decide(source, &user, &proof, attempt),
                Err(why) => {
                    return Decision::Unavailable(unavailable(source, why).to_string());
                }
            }
        }
        self.pretend(attempt.password);
        Decision::Denied
    }

    fn current(&self, attempt: &Attempt<'_>) -> Option<Decision> {
        if self.is_anonymous(attempt) {
            return self.decide_anonymous(attempt, false);
        }
        let mut may_be_known_elsewhere = false;
        for source in self.sources_for(attempt) {
            if !source.needs().are_met_without_password(attempt) {
                may_be_known_elsewhere = true;
                continue;
            }
            match self.of_source(source, attempt) {
                Ok(None) => {}
                Ok(decision) => return decision,
                // A user with a session stays while a database is unreachable.
                Err(_) => return None,
            }
        }
        (!may_be_known_elsewhere).then_some(Decision::Denied)
    }

    /// Only the source that accepted the user is asked, because another may have a different user of that name. If it
    /// cannot answer without the password, its answer at the login is combined with the present groups and limits.
    fn look_again(&self, account: &Account, attempt: &Attempt<'_>) -> Option<Decision> {
        let decision = account.told.as_ref().map_or_else(
            || self.current(attempt),
            |told| {
                self.source_of(told)
                    .map_or(Some(Decision::Denied), |source| self.ask_once_more(source, told, attempt))
            },
        );
        decision.or_else(|| account.by_clock(attempt))
    }

    fn chain(&self) -> Option<&Chain> {
        Some(self)
    }

    fn changed(&self, present: &dyn Fn() -> Vec<Vec<u8>>) -> Changed {
        self.sources().map(|source| source.changed(present)).fold(Changed::Nothing, Changed::and)
    }
}
