//! Logins on a control connection: checks before the accounts are asked, the effect of their decision, and checks of
//! the account during the session.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use millrace_accounts::{Account, Decision, Protocol, plain_host};
use millrace_ftp::Session;
use millrace_ftp::session::{Credentials, Grant, Occupancy, Verdict};
use millrace_limits::{Class, LimitHandle, LoginLimit, Reached, Refused, Scope};
use millrace_log::{self as log, Proved, Subject, Tried, Within};
use millrace_runtime::login::{Expelled, LoginAttempt, limits_of, present_account};
use millrace_runtime::slab::Key;
use millrace_runtime::worker::{Core, Promise};

use super::door::Door;
use super::hosts::SettingsByHost;
use super::message::Message;
use super::question::Question;
use super::reviews::{Reviewed, Reviews};
use super::scene::Identity;
use super::session_class::{ClassFinder, is_anonymous, with_class};
use super::session_hooks::SessionHooks;
use super::wire::Wire;

/// Who a client is, and what holds for it because of that.
#[derive(Debug)]
pub(super) struct Login {
    pub(super) account: Option<Account>,
    reviews: Reviews,
    /// When the login that is decided was begun.
    began: Instant,
    /// Its part in the tree of limits.
    pub(super) member: LimitHandle,
    /// Names of hosts. Apart from the connection, since few have any.
    names: Option<Box<HostNames>>,
}

/// The names of the hosts at both ends.
#[derive(Debug, Default)]
struct HostNames {
    /// What `HOST` said.
    own: Option<Box<str>>,
    /// The client's, where a class depends on it and it is known.
    client: Option<Arc<str>>,
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

    /// Opens a question about a login, for this edition of the accounts. Returns what answers it, with `otherwise` where that
    /// is dropped.
    fn open_question(
        &mut self,
        user: &[u8],
        edition: u64,
        is_let_in: bool,
        otherwise: Decision,
    ) -> impl FnOnce(Decision) + Send + use<> {
        let mut question = Question::new(self.core);
        question.user = user.to_vec();
        question.edition = edition;
        question.is_let_in = is_let_in;
        let serial = question.serial;
        *self.question = Some(question);
        let promise = Promise::new(self.door.post.clone(), self.key, Message::Login(serial, otherwise));
        move |decision| promise.keep(Message::Login(serial, decision))
    }

    /// The part that asks hooks, and what that needs of the others.
    fn hook_parts<'a>(
        &'a mut self,
        account: Option<&'a Account>,
    ) -> (&'a mut SessionHooks, &'a mut Core, Identity<'a>) {
        let (key, number, door, session) = (self.key, self.number, self.door, &*self.session);
        (self.hooks, self.core, Identity { key, number, door, session, account, way: None })
    }

    /// Returns true if the client's certificate has this user's name in it.
    fn is_certified(&self, user: &[u8]) -> bool {
        let names = self.wire.secure.as_ref().map_or(&[][..], |secure| &secure.names);
        self.session.is_encrypted() && names.iter().any(|name| name.as_bytes() == user)
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
    pub(super) fn new(member: LimitHandle, now: Instant) -> Self {
        Self { account: None, reviews: Reviews::default(), began: now, member, names: None }
    }

    /// The user is logged in no longer.
    pub(super) fn log_out(&mut self) {
        self.account = None;
        self.member.log_out();
    }

    /// The session is over, and its places among others are free. Who it was of is still known.
    pub(super) fn leave(&mut self) {
        self.reviews.overtake();
        self.member.log_out();
        if let Some(account) = &mut self.account {
            account.place = None;
        }
    }

    /// Decides a login. Returns nothing where the accounts have to be asked.
    pub(super) fn log_in(&mut self, scene: &mut LoginScene<'_>, credentials: Credentials) -> Option<Verdict> {
        self.began = scene.core.now.instant;
        if let Some(verdict) = self.turned_away(scene, &credentials.user) {
            return Some(verdict);
        }
        let (edition, accounts) = scene.core.services.accounts_for_login();
        let mut attempt = self.attempt(scene, credentials);
        let finder = self.class_finder(scene);
        if !finder.as_ref().is_some_and(ClassFinder::has_to_wait) {
            attempt = with_class(attempt, finder.as_ref());
            if let Some(decision) = scene.core.services.quick(&*accounts, &attempt) {
                return self.verdict(scene, &attempt.user, decision, edition);
            }
        }
        let unavailable = Decision::Unavailable("The accounts are out of order.".to_owned());
        let answer = scene.open_question(&attempt.user, edition, false, unavailable);
        let services = Arc::clone(&scene.core.services);
        scene.core.services.logins.run(move || {
            let attempt = with_class(attempt, finder.as_ref());
            answer(services.take_place(&attempt, accounts.authenticate(&attempt.now())));
        });
        None
    }

    /// Asks the accounts whether a user with a client certificate needs no password.
    pub(super) fn recognize(&mut self, scene: &mut LoginScene<'_>, user: Vec<u8>) -> Option<Verdict> {
        self.began = scene.core.now.instant;
        if !scene.is_certified(&user) {
            return Some(Verdict::NeedsPassword);
        }
        if let Some(verdict) = self.turned_away(scene, &user) {
            return Some(verdict);
        }
        let (edition, accounts) = scene.core.services.accounts_for_login();
        let attempt = self.attempt(scene, Credentials { user, password: Vec::new() });
        let answer = scene.open_question(&attempt.user, edition, false, Decision::NeedsPassword);
        let finder = self.class_finder(scene);
        let services = Arc::clone(&scene.core.services);
        scene.core.services.logins.run(move || {
            let attempt = with_class(attempt, finder.as_ref());
            // Whatever else they say is said to the password.
            if let Some(granted) = attempt.by_certificate(&*accounts) {
                answer(services.take_place(&attempt, granted));
            }
        });
        None
    }

    /// Returns what traces tell of the login that is decided now.
    fn tried(&self, scene: &LoginScene<'_>) -> Tried {
        let took = scene.core.now.instant.saturating_duration_since(self.began);
        Tried { took, within: Within::Session }
    }

    /// Returns what is decided without asking the accounts.
    fn turned_away(&self, scene: &mut LoginScene<'_>, user: &[u8]) -> Option<Verdict> {
        let (services, now) = (&scene.core.services, scene.core.now.instant);
        if let Err(limit) = services.check_load() {
            return Some(limited(scene, &limit));
        }
        if let Some(block) = services.bans.login_block(scene.from(), user, now) {
            let tried = self.tried(scene);
            scene.log(log::Event::LoginRefused { user, reason: block.reason(), tried });
            return Some(Verdict::Denied);
        }
        services.count_attempt(scene.from(), now).err().map(|limit| limited(scene, &limit))
    }

    /// The accounts have decided. Returns what the session hears, unless hooks or the accounts are asked first.
    pub(super) fn decided(
        &mut self,
        scene: &mut LoginScene<'_>,
        question: Question,
        decision: Decision,
    ) -> Option<Verdict> {
        let Question { user, edition, is_let_in, .. } = question;
        let now = scene.core.now.instant;
        let decision = scene.core.services.decision_now(scene.from(), &user, decision, now);
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
        let attempt = self.attempt(scene, Credentials { user: user.to_vec(), password: Vec::new() });
        let unavailable = Decision::Unavailable("The accounts are out of order.".to_owned());
        let answer = scene.open_question(user, edition, is_let_in, unavailable);
        scene.core.services.logins.run(move || {
            let was_enough = attempt.certified && account.certificate_suffices;
            answer(match accounts.look_again(&account, &attempt.now()) {
                Some(Decision::Granted(now)) if was_enough && !now.certificate_suffices => {
                    Decision::Refused("the certificate is no longer enough".to_owned())
                }
                Some(Decision::Denied | Decision::NeedsCode | Decision::NeedsPassword) => {
                    Decision::Refused("the account is no longer there".to_owned())
                }
                Some(decision) => decision.keeping_place(&account),
                None => Decision::Granted(account),
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
        let tried = self.tried(scene);
        Some(match decision {
            Decision::Granted(account) if edition != scene.core.services.edition() => {
                self.ask_again(scene, user, account, false);
                return None;
            }
            Decision::Granted(account) => {
                let (hooks, core, me) = scene.hook_parts(self.account.as_ref());
                if hooks.ask_about_login(core, me, user, &account, edition) {
                    return None;
                }
                self.admit(scene, user, account)
            }
            Decision::NeedsCode => Verdict::NeedsCode,
            Decision::NeedsPassword => Verdict::NeedsPassword,
            Decision::Denied => {
                count_failure(scene, user, tried);
                Verdict::Denied
            }
            Decision::Limited(limit) => {
                scene.log_as(user, log::Event::Limited { reached: &limit.reached, reason: None });
                self.note_client_name(scene);
                Verdict::Limited {
                    reason: limit.reason.to_owned(),
                    lines: self.limit_message(scene, user, &limit.reached),
                    most: limit.reached.value.number().unwrap_or(0),
                }
            }
            Decision::Refused(reason) => {
                scene.log(log::Event::LoginRefused { user, reason: &reason, tried });
                Verdict::Denied
            }
            Decision::Unavailable(reason) => {
                scene.log(log::Event::LoginRefused { user, reason: &reason, tried });
                Verdict::Unavailable("Logins are not possible at the moment; try again later.".to_owned())
            }
        })
    }

    /// Keeps the account of a login that succeeded. Returns what the session has to know of it.
    fn admit(&mut self, scene: &mut LoginScene<'_>, user: &[u8], account: Account) -> Verdict {
        let now = scene.core.now.instant;
        if let Err(limit) = scene.core.services.count_login(&limits_of(&account).counted_by(user), now) {
            return limited(scene, &limit);
        }
        if let Err(refused) = self.enter(scene, user, &account) {
            return Verdict::Limited {
                reason: refused.for_the_client().to_owned(),
                lines: self.limit_message(scene, user, &refused.reached()),
                most: refused.value,
            };
        }
        scene.core.services.bans.succeeded(scene.from(), user, now);
        let grant = self.grant(scene, user, &account);
        // The session learns of it only now.
        let by = match &account.told {
            None if is_anonymous(user) => Proved::Nothing,
            _ if account.certificate_suffices && scene.is_certified(user) => Proved::Certificate,
            _ => Proved::Password,
        };
        let source = account.told.as_ref().map(|told| &*told.source);
        let tls = scene.wire.tls_version();
        let tried = self.tried(scene);
        scene.log_as(user, log::Event::LoggedIn { protocol: Protocol::Ftp, tls, by, source, tried });
        self.account = Some(account);
        self.reviews.overtake();
        scene.hooks.note_login(user);
        Verdict::Granted(grant)
    }

    /// Takes its place among its user's and groups' sessions, if there is one.
    fn enter(&mut self, scene: &mut LoginScene<'_>, user: &[u8], account: &Account) -> Result<(), Refused> {
        let (tree, now) = (&scene.core.services.limits, scene.core.now.instant);
        let mut limits = limits_of(account);
        self.note_client_name(scene);
        let classes = scene.door.ftp.classes();
        if let Some(class) = self.class_of(classes.as_deref(), scene, user) {
            limits.to_mut().groups.push(class.group());
        }
        let entered = tree.log_in(&mut self.member, user, &limits, now);
        entered.inspect_err(|refused| {
            scene.log_as(user, log::Event::Limited { reached: &refused.reached(), reason: None });
        })
    }

    /// Accounts were changed, or time has passed: has the user's account looked at again, where it is one of
    /// those. Commands go on meanwhile.
    pub(super) fn review(&mut self, scene: &mut LoginScene<'_>, concerned: impl Fn(&[u8], &Account) -> bool) {
        self.adopt_settings(scene);
        let (Some(user), Some(account)) = (scene.session.user(), &self.account) else { return };
        if scene.wire.closing.is_some() || !concerned(user, account) {
            return;
        }
        let attempt = self.attempt(scene, Credentials { user: user.to_vec(), password: Vec::new() });
        let (key, post, number) = (scene.key, scene.door.post.clone(), self.reviews.begin());
        scene.core.services.review(attempt, account.clone(), move |user, decision| {
            post.send(key, Message::Reviewed(Box::new(Reviewed { user, decision, number })));
        });
    }

    /// The user's account was looked at again.
    pub(super) fn reviewed(&mut self, scene: &mut LoginScene<'_>, reviewed: Reviewed) -> Option<Review> {
        // Another user may have logged in meanwhile.
        if scene.session.user() != Some(&reviewed.user) || !self.reviews.is_news(reviewed.number) {
            return None;
        }
        let present = present_account(reviewed.decision)?.and_then(|account| {
            let entered = self.enter(scene, &reviewed.user, &account);
            entered.map(|()| account).map_err(|refused| Expelled(refused.for_the_client().to_owned()))
        });
        Some(match present {
            Ok(account) => {
                let grant = self.grant(scene, &reviewed.user, &account);
                self.account = Some(account);
                Review::Granted(grant)
            }
            Err(Expelled(reason)) => {
                scene.log(log::Event::Expelled { reason: &reason });
                Review::Expelled
            }
        })
    }

    /// Returns a login of this client as the accounts are told of it.
    fn attempt(&self, scene: &LoginScene<'_>, credentials: Credentials) -> LoginAttempt {
        let Credentials { user, password } = credentials;
        LoginAttempt {
            from: scene.from(),
            protocol: Protocol::Ftp,
            encrypted: scene.session.is_encrypted(),
            certified: scene.is_certified(&user),
            host: self.asked_host(scene.wire),
            local: Some(scene.session.local()),
            listener: self.member.listener(),
            class: None,
            session: scene.number,
            user,
            password,
        }
    }

    /// Returns what finds the class of the session, where there are classes.
    fn class_finder(&self, scene: &LoginScene<'_>) -> Option<ClassFinder> {
        Some(ClassFinder {
            classes: scene.door.ftp.classes()?,
            names: Arc::clone(&scene.door.ftp.client_names),
            from: scene.from(),
            host: self.names.as_ref().and_then(|names| names.client.clone()),
        })
    }

    /// Keeps the name of the client's host, where a class may depend on it and it was looked up.
    fn note_client_name(&mut self, scene: &LoginScene<'_>) {
        if scene.door.ftp.classes().is_some()
            && self.client_name().is_none()
            && let Some(name) = scene.door.ftp.client_names.known(scene.from()).flatten()
        {
            self.names.get_or_insert_default().client = Some(name);
        }
    }

    /// Returns the class of a session that a user has logged in to.
    fn class_of<'a>(
        &self,
        classes: Option<&'a [Class]>,
        scene: &LoginScene<'_>,
        user: &[u8],
    ) -> Option<&'a Class> {
        Class::of(classes?, scene.from(), self.client_name(), is_anonymous(user))
    }

    /// Returns what a client is told, besides the reason, that a limit on sessions turns away: what its class says, or else its
    /// host.
    fn limit_message(&self, scene: &LoginScene<'_>, user: &[u8], reached: &Reached) -> Arc<[Vec<u8>]> {
        let classes = scene.door.ftp.classes();
        let class = self.class_of(classes.as_deref(), scene, user);
        let is_limit_of = |class: &Class| reached.of == Some(Scope::Group(class.group().name).to_string());
        let class = class.filter(|class| is_limit_of(class));
        match class.map(|class| Arc::clone(&class.message)) {
            Some(message) if !message.is_empty() => message,
            _ => scene.session.settings.texts.limit.as_slice().into(),
        }
    }

    /// Returns what the session has to know of an account that has its place.
    fn grant(&self, scene: &LoginScene<'_>, user: &[u8], account: &Account) -> Grant {
        let classes = scene.door.ftp.classes();
        let class = self.class_of(classes.as_deref(), scene, user).map(Class::group);
        let headcount = class.and_then(|class| self.member.headcount(&class.name));
        Grant {
            permissions: account.permissions,
            rules: account.rules.clone(),
            home: account.home.clone(),
            encrypted_data: account.data.encrypted,
            class: headcount.map(|headcount| Arc::new(headcount) as Arc<dyn Occupancy>),
        }
    }

    /// Returns what `HOST` said.
    pub(super) fn host(&self) -> Option<&str> {
        self.names.as_ref()?.own.as_deref()
    }

    /// Returns the name of the client's host, where a class depends on it and it is known.
    fn client_name(&self) -> Option<&str> {
        self.names.as_ref()?.client.as_deref()
    }

    /// Returns the name that the client came by: that of `HOST`, else of SNI.
    fn asked_host(&self, wire: &Wire) -> String {
        // A `HOST` in clear may come from an attacker; after the handshake it can name nothing else.
        let by_sni = wire.secure.as_ref().and_then(|secure| secure.server_name.as_deref());
        by_sni.or(self.host()).map(|name| plain_host(name.as_bytes())).unwrap_or_default()
    }

    /// Gives the session the settings of the host that the client came by.
    pub(super) fn adopt_settings(&self, scene: &mut LoginScene<'_>) {
        let name = self.asked_host(scene.wire);
        let settings = scene.door.ftp.settings().of_client(&name, scene.session.local());
        scene.session.settings = settings;
    }

    /// Returns whether a name may be served: one for which there is a certificate or a tree, and the one given by SNI if
    /// there was one. Where nothing tells names apart there is one host, which all of them mean.
    pub(super) fn serves_host(&mut self, scene: &mut LoginScene<'_>, name: String) -> bool {
        let hosts = scene.door.ftp.settings();
        let named = scene.wire.secure.as_ref().and_then(|secure| secure.server_name.as_deref());
        let is_served = match (named, &scene.core.services.tls) {
            (Some(named), _) => named.eq_ignore_ascii_case(&name),
            (None, _) if hosts.have(&name) => true,
            (None, Some(security)) => security.acceptor.serves(&name) || is_own_address(&hosts, scene, &name),
            (None, None) => !hosts.have_names() || is_own_address(&hosts, scene, &name),
        };
        drop(hosts);
        if is_served {
            self.names.get_or_insert_default().own = Some(name.into());
            self.adopt_settings(scene);
        }
        is_served
    }
}

/// Returns true if it is an address of this server, as far as it knows them.
fn is_own_address(hosts: &SettingsByHost, scene: &LoginScene<'_>, name: &str) -> bool {
    name.parse::<IpAddr>().is_ok_and(|address| {
        let public = hosts.of_client("", scene.session.local()).public_ip.map(IpAddr::V4);
        public == Some(address) || [scene.session.local().ip(), scene.local.ip()].contains(&address)
    })
}

fn limited(scene: &mut LoginScene<'_>, limit: &LoginLimit) -> Verdict {
    scene.log(log::Event::Limited { reached: &limit.reached, reason: None });
    Verdict::Unavailable(limit.reason.to_owned())
}

/// A wrong password, or a name that is not there: the address is held to it, on other connections too.
fn count_failure(scene: &mut LoginScene<'_>, user: &[u8], tried: Tried) {
    let subject = Subject { session: scene.number, peer: scene.session.peer(), user: scene.session.user() };
    let failed = scene.core.count_login_failure(&subject, user, tried);
    scene.session.has_failed_before(failed.count.saturating_sub(1));
    for user in failed.bans(user) {
        let (hooks, core, me) = scene.hook_parts(None);
        hooks.note_ban(core, me, user);
    }
}
