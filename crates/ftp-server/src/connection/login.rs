//! Logins on a control connection: checks before the accounts are asked, the effect of their decision, and checks of
//! the account during the session.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::SystemTime;

use millrace_accounts::{Account, Attempt, Decision, Protocol, plain_host};
use millrace_ftp::Session;
use millrace_ftp::session::{Credentials, Grant, Verdict};
use millrace_limits::{AccountLimits, LimitKey, Member, Reached, Refused, TooMany};
use millrace_log::{self as log, Proved, Subject};
use millrace_runtime::slab::Key;
use millrace_runtime::worker::{Core, Promise};

use super::door::Door;
use super::message::Message;
use super::question::Question;
use super::reviews::{Reviewed, Reviews};
use super::scene::Identity;
use super::session_hooks::SessionHooks;
use super::wire::Wire;

/// Who a client is, and what holds for it because of that.
#[derive(Debug)]
pub(super) struct Login {
    pub(super) account: Option<Account>,
    reviews: Reviews,
    /// Its part in the tree of limits.
    pub(super) member: Member,
    /// What `HOST` said.
    pub(super) host: Option<Box<str>>,
}

/// What a login needs of its connection.
pub(super) struct LoginScene<'a> {
    pub(super) core: &'a mut Core,
    pub(super) key: Key,
    pub(super) number: u64,
    pub(super) door: &'a Arc<Door>,
    pub(super) session: &'a mut Session,
    pub(super) wire: &'a Wire,
    pub(super) hooks: &'a mut SessionHooks,
    pub(super) question: &'a mut Option<Box<Question>>,
    /// The address of this machine that the connection is on.
    pub(super) local: SocketAddr,
}

impl LoginScene<'_> {
    fn from(&self) -> IpAddr {
        self.session.peer().ip()
    }

    fn log(&mut self, event: log::Event<'_>) {
        let subject = Subject { session: self.number, peer: self.session.peer(), user: self.session.user() };
        self.core.log(&subject, event);
    }

    /// Writes an event to the log that is about a user who is not logged in yet.
    fn log_as(&mut self, user: &[u8], event: log::Event<'_>) {
        let subject = Subject { session: self.number, peer: self.session.peer(), user: Some(user) };
        self.core.log(&subject, event);
    }

    /// Opens a question about a login, for this edition of the accounts. Returns the promise of its answer.
    fn open_question(&mut self, user: &[u8], edition: u64, is_let_in: bool, otherwise: Decision) -> Pending {
        let mut question = Question::new(self.core);
        question.user = user.to_vec();
        question.edition = edition;
        question.is_let_in = is_let_in;
        let serial = question.serial;
        *self.question = Some(question);
        let promise = Promise::new(self.door.post.clone(), self.key, Message::Login(serial, otherwise));
        Pending { promise, serial }
    }

    /// Returns true if the client's certificate has this user's name in it.
    fn is_certified(&self, user: &[u8]) -> bool {
        let names = self.wire.secure.as_ref().map_or(&[][..], |secure| &secure.names);
        self.session.is_encrypted() && names.iter().any(|name| name.as_bytes() == user)
    }
}

/// The answer to a question about a login, as the pool gives it.
struct Pending {
    promise: Promise<Message>,
    serial: u64,
}

impl Pending {
    fn keep(self, decision: Decision) {
        self.promise.keep(Message::Login(self.serial, decision));
    }
}

/// What comes of an account that was looked at again.
pub(super) enum Review {
    /// It holds, as it is now.
    Granted(Grant),
    /// The session ends.
    Expelled,
}

impl Login {
    pub(super) fn new(member: Member) -> Self {
        Self { account: None, reviews: Reviews::default(), member, host: None }
    }

    /// The user is logged in no longer.
    pub(super) fn log_out(&mut self) {
        self.account = None;
        self.member.log_out();
    }

    /// Decides a login. Returns nothing where the accounts have to be asked.
    pub(super) fn log_in(&mut self, scene: &mut LoginScene<'_>, credentials: Credentials) -> Option<Verdict> {
        if let Some(verdict) = self.turned_away(scene, &credentials.user) {
            return Some(verdict);
        }
        let (edition, accounts) = scene.core.services.accounts_for_login();
        let certified = scene.is_certified(&credentials.user);
        let tried = Tried::new(scene, self.asked_host(scene.wire), certified);
        if let Some(decision) = accounts.quick(&tried.with(&credentials)) {
            return self.verdict(scene, &credentials.user, decision, edition);
        }
        let unavailable = Decision::Unavailable("The accounts are out of order.".to_owned());
        let pending = scene.open_question(&credentials.user, edition, false, unavailable);
        scene.core.services.logins.run(move || {
            pending.keep(accounts.authenticate(&tried.with(&credentials)));
        });
        None
    }

    /// Asks the accounts whether a user with a client certificate needs no password.
    pub(super) fn recognize(&mut self, scene: &mut LoginScene<'_>, user: Vec<u8>) -> Option<Verdict> {
        if !scene.is_certified(&user) {
            return Some(Verdict::NeedsPassword);
        }
        if let Some(verdict) = self.turned_away(scene, &user) {
            return Some(verdict);
        }
        let (edition, accounts) = scene.core.services.accounts_for_login();
        let tried = Tried::new(scene, self.asked_host(scene.wire), true);
        let pending = scene.open_question(&user, edition, false, Decision::NeedsPassword);
        scene.core.services.logins.run(move || {
            let credentials = Credentials { user, password: Vec::new() };
            // Whatever else they say is said to the password.
            if let Some(Decision::Granted(account)) = accounts.current(&tried.with(&credentials))
                && account.certificate_suffices
            {
                pending.keep(Decision::Granted(account));
            }
        });
        None
    }

    /// Returns what is decided without asking the accounts.
    fn turned_away(&self, scene: &mut LoginScene<'_>, user: &[u8]) -> Option<Verdict> {
        let (services, now) = (Arc::clone(&scene.core.services), scene.core.now.instant);
        let most = services.cpu_limit.value();
        if most > 0 && u64::from(services.load.percent()) > most {
            let reached = Reached::new(LimitKey::CpuLimit, most);
            scene.log(log::Event::Limited { reached: &reached, reason: None });
            return Some(Verdict::Unavailable("The server is too busy; try again later.".to_owned()));
        }
        if let Some(block) = services.bans.login_block(scene.from(), user, now) {
            scene.log(log::Event::LoginRefused { user, reason: block.reason() });
            return Some(Verdict::Denied);
        }
        let attempt = services.logins_rated.attempt(scene.from(), now, services.limits.wall());
        attempt.err().map(|too_many| too_often(scene, &too_many))
    }

    /// The accounts have decided. Returns what the session hears, unless hooks or the accounts are asked first.
    pub(super) fn decided(
        &mut self,
        scene: &mut LoginScene<'_>,
        question: Question,
        decision: Decision,
    ) -> Option<Verdict> {
        let Question { user, edition, is_let_in, .. } = question;
        match decision {
            Decision::Granted(account) if is_let_in => self.let_in(scene, &user, account, edition),
            decision => self.verdict(scene, &user, decision, edition),
        }
    }

    /// Hooks have permitted the login that this edition of the accounts has granted.
    pub(super) fn let_in(
        &mut self,
        scene: &mut LoginScene<'_>,
        user: &[u8],
        account: Account,
        edition: u64,
    ) -> Option<Verdict> {
        if edition != scene.core.services.edition() {
            self.ask_again(scene, user, account, true);
            return None;
        }
        Some(self.admit(scene, user, account))
    }

    /// The accounts were changed while they granted a login: asks those that hold now, as of a session that runs. The
    /// password was right.
    fn ask_again(&mut self, scene: &mut LoginScene<'_>, user: &[u8], account: Account, is_let_in: bool) {
        let (edition, accounts) = scene.core.services.accounts_for_login();
        let certified = scene.is_certified(user);
        let tried = Tried::new(scene, self.asked_host(scene.wire), certified);
        let unavailable = Decision::Unavailable("The accounts are out of order.".to_owned());
        let pending = scene.open_question(user, edition, is_let_in, unavailable);
        let user = user.to_vec();
        scene.core.services.logins.run(move || {
            let credentials = Credentials { user, password: Vec::new() };
            let was_enough = certified && account.certificate_suffices;
            pending.keep(match accounts.look_again(&account, &tried.with(&credentials)) {
                Some(Decision::Granted(now)) if was_enough && !now.certificate_suffices => {
                    Decision::Refused("the certificate is no longer enough".to_owned())
                }
                Some(Decision::Denied | Decision::NeedsCode | Decision::NeedsPassword) => {
                    Decision::Refused("the account is no longer there".to_owned())
                }
                decision => decision.unwrap_or(Decision::Granted(account)),
            });
        });
    }

    /// Returns what the session has to know of what an edition of the accounts has decided; nothing yet where hooks are
    /// asked first.
    fn verdict(
        &mut self,
        scene: &mut LoginScene<'_>,
        user: &[u8],
        decision: Decision,
        edition: u64,
    ) -> Option<Verdict> {
        Some(match decision {
            Decision::Granted(account) if edition != scene.core.services.edition() => {
                self.ask_again(scene, user, account, false);
                return None;
            }
            Decision::Granted(account) => {
                let me = Identity {
                    key: scene.key,
                    number: scene.number,
                    door: scene.door,
                    session: scene.session,
                    account: self.account.as_ref(),
                    way: None,
                };
                if scene.hooks.ask_about_login(scene.core, me, user, &account, edition) {
                    return None;
                }
                self.admit(scene, user, account)
            }
            Decision::NeedsCode => Verdict::NeedsCode,
            Decision::NeedsPassword => Verdict::NeedsPassword,
            Decision::Denied => {
                scene.log(log::Event::LoginFailed { user });
                count_failure(scene, user);
                Verdict::Denied
            }
            Decision::Refused(reason) => {
                scene.log(log::Event::LoginRefused { user, reason: &reason });
                Verdict::Denied
            }
            Decision::Unavailable(reason) => {
                scene.log(log::Event::LoginRefused { user, reason: &reason });
                Verdict::Unavailable("Logins are not possible at the moment; try again later.".to_owned())
            }
        })
    }

    /// Keeps the account of a login that succeeded. Returns what the session has to know of it.
    fn admit(&mut self, scene: &mut LoginScene<'_>, user: &[u8], account: Account) -> Verdict {
        let (services, now) = (Arc::clone(&scene.core.services), scene.core.now.instant);
        if let Err(too_many) = services.logins_rated.log_in(user, now, services.limits.wall()) {
            return too_often(scene, &too_many);
        }
        if let Err(refused) = self.enter(scene, user, &account) {
            return Verdict::Unavailable(refused.for_the_client().to_owned());
        }
        services.bans.succeeded(scene.from(), user, now);
        let grant = grant(&account);
        // The session learns of it only now.
        let by = match &account.told {
            None if matches!(user, b"anonymous" | b"ftp") => Proved::Nothing,
            _ if account.certificate_suffices && scene.is_certified(user) => Proved::Certificate,
            _ => Proved::Password,
        };
        let source = account.told.as_ref().map(|told| &*told.source);
        let tls = scene.wire.tls_version();
        scene.log_as(user, log::Event::LoggedIn { protocol: Protocol::Ftp, tls, by, source });
        self.account = Some(account);
        self.reviews.overtake();
        scene.hooks.note_login(user);
        Verdict::Granted(grant)
    }

    /// Takes its place among its user's and groups' sessions, if there is one.
    fn enter(&mut self, scene: &mut LoginScene<'_>, user: &[u8], account: &Account) -> Result<(), Refused> {
        let nothing = AccountLimits::default();
        let limits = account.limits.as_deref().unwrap_or(&nothing);
        let now = scene.core.now.instant;
        let entered = scene.core.services.limits.log_in(&mut self.member, user, limits, now);
        entered.inspect_err(|refused| {
            scene.log_as(user, log::Event::Limited { reached: &refused.reached(), reason: None });
        })
    }

    /// Accounts were changed, or time has passed: has the user's account looked at again, where it is one of
    /// those. Commands go on meanwhile.
    pub(super) fn review(&mut self, scene: &mut LoginScene<'_>, concerned: impl Fn(&[u8], &Account) -> bool) {
        scene.session.adopt(scene.door.ftp.settings());
        let (Some(user), Some(account)) = (scene.session.user(), &self.account) else { return };
        if scene.wire.closing.is_some() || !concerned(user, account) {
            return;
        }
        let tried = Tried::new(scene, self.asked_host(scene.wire), scene.is_certified(user));
        let credentials = Credentials { user: user.to_vec(), password: Vec::new() };
        let accounts = scene.core.services.accounts();
        let (key, post) = (scene.key, scene.door.post.clone());
        let account = account.clone();
        let number = self.reviews.begin();
        scene.core.services.logins.run(move || {
            if let Some(decision) = accounts.look_again(&account, &tried.with(&credentials)) {
                let reviewed = Reviewed { user: credentials.user, decision, number };
                post.send(key, Message::Reviewed(Box::new(reviewed)));
            }
        });
    }

    /// The user's account was looked at again.
    pub(super) fn reviewed(&mut self, scene: &mut LoginScene<'_>, reviewed: Reviewed) -> Option<Review> {
        // Another user may have logged in meanwhile.
        if scene.session.user() != Some(&reviewed.user) || !self.reviews.is_news(reviewed.number) {
            return None;
        }
        let reason = match reviewed.decision {
            Decision::Granted(account) => match self.enter(scene, &reviewed.user, &account) {
                Ok(()) => {
                    let grant = grant(&account);
                    self.account = Some(account);
                    return Some(Review::Granted(grant));
                }
                Err(refused) => refused.for_the_client().to_owned(),
            },
            // A session stays while the accounts are out of reach.
            Decision::Unavailable(_) => return None,
            Decision::Denied | Decision::NeedsCode | Decision::NeedsPassword => {
                "the account is no longer there".to_owned()
            }
            Decision::Refused(reason) => reason,
        };
        scene.log(log::Event::Expelled { reason: &reason });
        Some(Review::Expelled)
    }

    /// Returns the name that the client came by: that of `HOST`, else of SNI.
    fn asked_host(&self, wire: &Wire) -> String {
        // A `HOST` in clear may come from an attacker; after the handshake it can name nothing else.
        let by_sni = wire.secure.as_ref().and_then(|secure| secure.server_name.as_deref());
        by_sni.or(self.host.as_deref()).map(|name| plain_host(name.as_bytes())).unwrap_or_default()
    }

    /// Returns whether a name may be served: one for which there is a certificate or a tree, and the one given by SNI if
    /// there was one. Where nothing tells names apart there is one host, which all of them mean.
    pub(super) fn serves_host(&mut self, scene: &LoginScene<'_>, name: String) -> bool {
        let hosts = scene.door.ftp.hosts();
        let named = scene.wire.secure.as_ref().and_then(|secure| secure.server_name.as_deref());
        let is_served = match (named, &scene.core.services.tls) {
            (Some(named), _) => named.eq_ignore_ascii_case(&name),
            (None, _) if hosts.iter().any(|host| host.covers(&plain_host(name.as_bytes()))) => true,
            (None, Some(security)) => security.acceptor.serves(&name),
            (None, None) => hosts.is_empty() || is_own_address(scene, &name),
        };
        if is_served {
            self.host = Some(name.into());
        }
        is_served
    }
}

/// Returns true if it is an address of this server, as far as it knows them.
fn is_own_address(scene: &LoginScene<'_>, name: &str) -> bool {
    name.parse::<IpAddr>().is_ok_and(|address| {
        let public = scene.door.ftp.config.public_ip.map(IpAddr::V4);
        public == Some(address) || [scene.session.local().ip(), scene.local.ip()].contains(&address)
    })
}

fn too_often(scene: &mut LoginScene<'_>, too_many: &TooMany) -> Verdict {
    scene.log(log::Event::Limited { reached: &too_many.reached(), reason: None });
    Verdict::Unavailable(too_many.for_the_client().to_owned())
}

/// A wrong password, or a name that is not there: the address is held to it, on other connections too.
fn count_failure(scene: &mut LoginScene<'_>, user: &[u8]) {
    let failed = scene.core.services.bans.failed(scene.from(), user, scene.core.now.instant);
    scene.session.has_failed_before(failed.count.saturating_sub(1));
    let bans = [failed.user_banned.then_some(Some(user)), failed.address_banned.then_some(None)];
    for user in bans.into_iter().flatten() {
        scene.log(log::Event::Banned { user });
        let me = Identity {
            key: scene.key,
            number: scene.number,
            door: scene.door,
            session: scene.session,
            account: None,
            way: None,
        };
        scene.hooks.note_ban(scene.core, me, user);
    }
}

/// What the session has to know of an account.
fn grant(account: &Account) -> Grant {
    Grant {
        permissions: account.permissions,
        rules: account.rules.clone(),
        home: account.home.clone(),
        encrypted_data: account.data.encrypted,
    }
}

/// What the accounts are told of a login besides its credentials.
struct Tried {
    from: IpAddr,
    encrypted: bool,
    certified: bool,
    host: String,
}

impl Tried {
    fn new(scene: &LoginScene<'_>, host: String, certified: bool) -> Self {
        Self { from: scene.from(), encrypted: scene.session.is_encrypted(), certified, host }
    }

    fn with<'a>(&'a self, credentials: &'a Credentials) -> Attempt<'a> {
        Attempt {
            user: &credentials.user,
            password: &credentials.password,
            from: self.from,
            protocol: Protocol::Ftp,
            encrypted: self.encrypted,
            certified: self.certified,
            host: &self.host,
            now: SystemTime::now(),
        }
    }
}
