//! Who asks: the accounts are asked, and what they said holds for a while.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use millrace_ftp::session::{Permission, Permissions};
use millrace_http::target::{self, Target};
use millrace_http::{Field, Head, Slots, Status, authorization, request};
use millrace_net::tls::{Channel, client_names};

use super::Message;
use super::connection::{Asked, Connection, Work};
use crate::auth::{Account, Attempt, Authenticator, Decision, Protocol, plain_host};
use crate::limits::{AccountLimits, LimitKey, Reached, Refused, TooMany};
use crate::log::{self, Subject};
use crate::web::{Bad, Gives, Link};
use crate::worker::{self, Core};

/// Who says nothing.
pub(super) const ANONYMOUS: &[u8] = b"anonymous";

/// How long a connection goes on with what it was granted before the accounts are asked again.
const TRUST: Duration = Duration::from_secs(1);

/// When to try again what nobody knows the end of.
const A_WHILE: Duration = Duration::from_secs(10);

/// What stands before a link among what clients have said: no field can hold it.
const LINK: &[u8] = b"\0link ";

/// How it came to be known who asks: each with its own part in the rates of logins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Means {
    /// They said nothing.
    Nothing,
    /// They hold a link: whoever made that has logged in, and is not to be locked out by those who have it.
    Link,
    Certificate,
    Password,
}

impl Means {
    /// How `user` came to be known by what was said.
    fn of(said: &[u8], user: &[u8]) -> Self {
        match said {
            b"" if user == ANONYMOUS => Self::Nothing,
            b"" => Self::Certificate,
            _ if said.starts_with(LINK) => Self::Link,
            _ => Self::Password,
        }
    }

    /// Claims that it is a login, of which there may be too many.
    fn is_login(self) -> bool {
        matches!(self, Self::Certificate | Self::Password)
    }
}

/// Somebody who asks.
#[derive(Debug)]
pub(super) struct Who {
    /// As the field said it, or the link; empty for somebody who said nothing.
    authorization: Vec<u8>,
    /// The host that they came by, as they wrote it; empty where no host has a tree of its own.
    pub(super) host: Vec<u8>,
    /// `None` for anonymous.
    pub(super) user: Option<Vec<u8>>,
    pub(super) account: Account,
    /// What this connection is not encrypted for.
    pub(super) is_barred: bool,
    until: Instant,
    /// The edition of the accounts that said so: another one is asked anew.
    edition: u64,
}

impl Who {
    /// Claims that it is somebody's link that was followed.
    pub(super) fn is_by_link(&self) -> bool {
        self.authorization.starts_with(LINK)
    }

    /// The same, to a folder.
    pub(super) fn may_list_by_link(&self) -> bool {
        self.is_by_link() && self.account.permissions.allows(Permission::List)
    }
}

impl Connection {
    /// Who asks; `None` where that has to be found out, or was answered with a refusal.
    pub(super) fn know_who(
        &mut self,
        core: &mut Core,
        head: &Head<'_, '_>,
        bytes: &[u8],
        target: &Target<'_>,
    ) -> Option<Arc<Who>> {
        let links = core.http.web.links.clone();
        let link = links.verify(&target.path, target.query, head.method, core.now.wall.seconds);
        let (said, host) = (&*said(head, link.is_some()), host_of(core, head, target));
        if !matches!(link, Some(Err(_)))
            && let Some(who) = self.still_known(core, said, host)
        {
            return Some(who);
        }
        if let Some(link) = link {
            self.try_link(core, head, bytes, link, host);
            return None;
        }
        let login = self.login_of(core, head, bytes, said, host)?;
        self.try_login(core, head, bytes, (said, host), login)
    }

    /// Whoever was let in and says the same again, for as long as that holds.
    fn still_known(&self, core: &Core, said: &[u8], host: &[u8]) -> Option<Arc<Who>> {
        let who = self.who.as_ref()?;
        let holds = who.authorization == said
            && who.host == host
            && core.now.instant < who.until
            && who.edition == core.server.edition();
        holds.then(|| Arc::clone(who))
    }

    /// Has the accounts asked about a link, where it is good.
    fn try_link(
        &mut self,
        core: &mut Core,
        head: &Head<'_, '_>,
        bytes: &[u8],
        link: Result<Link, Bad>,
        host: &[u8],
    ) {
        let reason = match link {
            Ok(link) => return self.follow_link(core, bytes, link, plain_host(host)),
            Err(Bad::Expired) => "The time of this link is over.",
            Err(Bad::Forged) => "This link is not good, or not for this.",
        };
        self.fail(core, head, Status::FORBIDDEN, reason);
    }

    /// The name and the password that a request says, where it may say them here; otherwise it is answered, or the
    /// accounts are asked about the client's certificate.
    fn login_of(
        &mut self,
        core: &mut Core,
        head: &Head<'_, '_>,
        bytes: &[u8],
        said: &[u8],
        host: &[u8],
    ) -> Option<(Vec<u8>, Vec<u8>)> {
        match (said, authorization::basic(said)) {
            (b"", _) if self.shows_certificate() && !self.is_banned(core) => {
                if let Err(not_now) = self.may_try(core, said, Means::Certificate) {
                    return self.answer_not_now(core, head, &not_now);
                }
                self.recognize(core, bytes, plain_host(host));
            }
            (b"", _) if !core.server.config.anonymous => {
                self.challenge(core, head, "This is for users: say who you are.");
            }
            (b"", _) => return Some((ANONYMOUS.to_vec(), Vec::new())),
            (_, None) => self.challenge(core, head, "The only way to log in here is Basic."),
            (_, Some(_)) if !self.takes_passwords(core) => {
                let reason = "A password is taken over HTTPS only.";
                self.fail(core, head, Status::FORBIDDEN, reason);
            }
            (_, Some(login)) => return Some(login),
        }
        None
    }

    /// Has the accounts decide about a name and a password: at once where they can, else by the pool.
    fn try_login(
        &mut self,
        core: &mut Core,
        head: &Head<'_, '_>,
        bytes: &[u8],
        (said, host): (&[u8], &[u8]),
        (user, password): (Vec<u8>, Vec<u8>),
    ) -> Option<Arc<Who>> {
        let (from, encrypted) = (self.peer.ip(), self.is_encrypted());
        if core.server.bans.is_banned(from, &user, core.now.instant) {
            let asked = Asked::of(bytes);
            let reason = "banned at this address for a while".to_owned();
            self.login_decided(core, asked, &user, Decision::Refused(reason), core.server.edition());
            return None;
        }
        if let Err(not_now) = self.may_try(core, said, Means::of(said, &user)) {
            return self.answer_not_now(core, head, &not_now);
        }
        let (edition, accounts) = core.server.accounts_for_login();
        let certified = self.certificate_names().iter().any(|name| name.as_bytes() == user);
        let attempt = Tried { user, password, from, encrypted, certified, host: plain_host(host) };
        let quick = if certified { None } else { accounts.quick(&attempt.now()) };
        match quick {
            Some(Decision::Granted(account)) => {
                match self.let_in(core, (said, host), &attempt.user, account, edition) {
                    Ok(who) => return Some(who),
                    Err(not_now) => return self.answer_not_now(core, head, &not_now),
                }
            }
            Some(decision) => {
                let asked = Asked::of(bytes);
                self.login_decided(core, asked, &attempt.user, decision, edition);
            }
            None => self.have_decided(core, bytes, accounts, attempt, edition),
        }
        None
    }

    /// Has the accounts decide, however long that takes.
    fn have_decided(
        &mut self,
        core: &mut Core,
        bytes: &[u8],
        accounts: Arc<dyn Authenticator>,
        attempt: Tried,
        edition: u64,
    ) {
        let serial = self.ask(core, bytes);
        let (key, inbox) = (self.key, core.sender.clone());
        core.server.logins.run(move || {
            let by_certificate = by_certificate(&*accounts, &attempt);
            let decision = by_certificate.unwrap_or_else(|| accounts.authenticate(&attempt.now()));
            inbox.send(worker::Message::Http(key, Message::Login(serial, attempt.user, decision, edition)));
        });
    }

    /// Asks the accounts whether a client who says nothing is somebody by the certificate alone: the first of its
    /// names that is a user's for whom it is enough.
    fn recognize(&mut self, core: &mut Core, bytes: &[u8], host: String) {
        let ((edition, accounts), from) = (core.server.accounts_for_login(), self.peer.ip());
        let now = core.now.instant;
        let mut names: Vec<_> =
            self.certificate_names().iter().map(|name| name.as_bytes().to_vec()).collect();
        names.retain(|name| !core.server.bans.is_banned(from, name, now));
        let is_open = core.server.config.anonymous;
        let serial = self.ask(core, bytes);
        let (key, inbox) = (self.key, core.sender.clone());
        core.server.logins.run(move || {
            let certified = |user| {
                let host = host.clone();
                Tried { user, password: Vec::new(), from, encrypted: true, certified: true, host }
            };
            let known = names.into_iter().map(certified).find_map(|tried| {
                let granted = by_certificate(&*accounts, &tried)?;
                Some((tried.user, granted))
            });
            let (user, decision) = known.unwrap_or_else(|| {
                let nobody = Tried { certified: false, ..certified(ANONYMOUS.to_vec()) };
                let decision = match is_open {
                    true => accounts.authenticate(&nobody.now()),
                    false => Decision::NeedsPassword,
                };
                (nobody.user, decision)
            });
            inbox.send(worker::Message::Http(key, Message::Login(serial, user, decision, edition)));
        });
    }

    /// Claims that nobody comes in from this address for a while.
    fn is_banned(&self, core: &Core) -> bool {
        core.server.bans.is_banned(self.peer.ip(), ANONYMOUS, core.now.instant)
    }

    /// The names in the client's certificate, where it has shown one.
    pub(super) fn certificate_names(&self) -> Arc<[String]> {
        match (&self.socket.tls, &self.carries) {
            (Some(channel), _) => names_of(channel),
            (None, Some(carried)) => carried.names(),
            (None, None) => Arc::default(),
        }
    }

    /// This client, as a user whose password is not known here.
    pub(super) fn tried(&self, user: Vec<u8>, certified: bool, host: String) -> Tried {
        let (from, encrypted) = (self.peer.ip(), self.is_encrypted());
        Tried { user, password: Vec::new(), from, encrypted, certified, host }
    }

    fn shows_certificate(&self) -> bool {
        match (&self.socket.tls, &self.carries) {
            (Some(channel), _) => channel.tls().peer_certificate().is_some(),
            (None, Some(carried)) => !carried.names().is_empty(),
            (None, None) => false,
        }
    }

    /// Asks for the account that a link acts for, and keeps it to what the link is for.
    fn follow_link(&mut self, core: &mut Core, bytes: &[u8], link: Link, host: String) {
        let (from, encrypted) = (self.peer.ip(), self.is_encrypted());
        let (edition, accounts) = core.server.accounts_for_login();
        let serial = self.ask(core, bytes);
        let (key, inbox) = (self.key, core.sender.clone());
        core.server.logins.run(move || {
            let Link { user, gives, .. } = link;
            let asked = Tried { user, password: Vec::new(), from, encrypted, certified: true, host };
            let decision = match accounts.current(&asked.now()) {
                Some(Decision::Granted(account)) => {
                    let allowed = match gives {
                        Gives::File => Permissions::only(Permission::Read),
                        Gives::Folder => Permissions::only(Permission::Read).with(Permission::List),
                        Gives::Upload => Permissions::only(Permission::Write).with(Permission::Overwrite),
                    };
                    let permissions = account.permissions.intersection(allowed);
                    Decision::Granted(Account { permissions, ..account })
                }
                Some(decision) => decision,
                None => Decision::Unavailable("the accounts cannot tell without a password".to_owned()),
            };
            inbox.send(worker::Message::Http(key, Message::Login(serial, asked.user, decision, edition)));
        });
    }

    /// Passwords cross no network in clear; nor this computer, where all logins have to be encrypted.
    fn takes_passwords(&self, core: &Core) -> bool {
        let requires_tls = || core.server.tls.as_ref().is_some_and(|tls| tls.policy().login_required);
        self.is_encrypted() || (self.peer.ip().is_loopback() && !requires_tls())
    }

    /// Claims that somebody's files may go over this connection.
    fn may_carry_files(&self, core: &Core, account: &Account) -> bool {
        let requires_tls = || core.server.tls.as_ref().is_some_and(|tls| tls.policy().data_required);
        self.is_encrypted() || !(account.data.encrypted || requires_tls())
    }

    /// Takes somebody in, unless there are too many of them already.
    fn let_in(
        &mut self,
        core: &mut Core,
        (said, host): (&[u8], &[u8]),
        user: &[u8],
        account: Account,
        edition: u64,
    ) -> Result<Arc<Who>, NotNow> {
        // Who is known already has its place.
        if !self.is_known(said)
            && let Err(not_now) = self.enter(core, Means::of(said, user), user, &account)
        {
            let subject = Subject { session: self.number, peer: self.peer, user: Some(user) };
            core.log(&subject, log::Event::Limited { reached: &not_now.reached, reason: None });
            self.who = None;
            return Err(not_now);
        }
        let user = (!said.is_empty() || user != ANONYMOUS).then(|| user.to_owned());
        let is_barred = !self.may_carry_files(core, &account);
        let until = core.now.instant + TRUST;
        let (authorization, host) = (said.to_owned(), host.to_owned());
        let who = Arc::new(Who { authorization, host, user, account, is_barred, until, edition });
        self.who = Some(Arc::clone(&who));
        Ok(who)
    }

    /// Claims that it is still the one who was let in.
    fn is_known(&self, said: &[u8]) -> bool {
        self.who.as_ref().is_some_and(|who| who.authorization == said)
    }

    /// Claims that the accounts may be asked about somebody who says this, unless that was just answered.
    fn may_try(&mut self, core: &mut Core, said: &[u8], means: Means) -> Result<(), NotNow> {
        let most = core.server.cpu_limit.value();
        let (from, wall) = (self.peer.ip(), core.server.limits.wall());
        let not_now = if !means.is_login() || self.is_known(said) {
            return Ok(());
        } else if most > 0 && u64::from(core.server.load.percent()) > most {
            let reached = Reached::new(LimitKey::CpuLimit, most);
            let reason = "The server is too busy; try again later.";
            NotNow { status: Status::SERVICE_UNAVAILABLE, reason, wait: A_WHILE, reached }
        } else if let Err(too_many) = core.server.logins_rated.attempt(from, core.now.instant, wall) {
            too_many.into()
        } else {
            return Ok(());
        };
        core.log(&self.subject(), log::Event::Limited { reached: &not_now.reached, reason: None });
        Err(not_now)
    }

    /// Takes a place among the sessions of the user and the user's groups, if there is one.
    fn enter(&mut self, core: &Core, means: Means, user: &[u8], account: &Account) -> Result<(), NotNow> {
        let (server, now) = (&core.server, core.now.instant);
        if means.is_login() {
            server.logins_rated.log_in(user, now, server.limits.wall())?;
        }
        let nothing = AccountLimits::default();
        let limits = account.limits.as_deref().unwrap_or(&nothing);
        if means == Means::Link {
            server.limits.visit(&mut self.member, user, limits, now);
            return Ok(());
        }
        match &mut self.carries {
            None => server.limits.log_in(&mut self.member, user, limits, now)?,
            Some(carried) => {
                carried.enter(server, user, limits, now)?;
                server.limits.visit(&mut self.member, user, limits, now);
            }
        }
        Ok(())
    }

    fn answer_not_now<T>(&mut self, core: &mut Core, head: &Head<'_, '_>, not_now: &NotNow) -> Option<T> {
        let record = self.record(core, head);
        let wait = not_now.wait.as_secs().max(1).to_string();
        self.answer_page(core, record, not_now.status, not_now.reason, &[("Retry-After", &wait)]);
        None
    }

    /// The accounts have decided about the request that waits.
    pub(super) fn login_decided(
        &mut self,
        core: &mut Core,
        asked: Asked,
        user: &[u8],
        decision: Decision,
        edition: u64,
    ) {
        let subject = Subject { session: self.number, peer: self.peer, user: None };
        let (said, host) = said_of(core, &asked.head);
        match decision {
            Decision::Granted(account) => {
                if Means::of(&said, user) == Means::Password {
                    self.wrong_passwords = 0;
                    core.server.bans.succeeded(self.peer.ip(), user, core.now.instant);
                }
                if let Err(not_now) = self.let_in(core, (&said, &host), user, account, edition) {
                    // One too many. Who asked the accounts again would hear the same, without end.
                    let mut slots = Slots::new();
                    if let Ok(Some((head, _))) = request::parse(&asked.head, &mut slots) {
                        self.answer_not_now::<()>(core, &head, &not_now);
                    }
                    return;
                }
                return self.again(core, &asked.head, None);
            }
            // Whoever holds a link has guessed nothing.
            decision if Means::of(&said, user) == Means::Link => {
                return self.refuse_link(core, &asked, user, decision);
            }
            Decision::NeedsPassword if said.is_empty() => {
                let mut slots = Slots::new();
                self.work = Work::Idle;
                if let Ok(Some((head, _))) = request::parse(&asked.head, &mut slots) {
                    self.challenge(core, &head, "This is for users: say who you are.");
                }
                return;
            }
            // By HTTP a code comes with the password, or not at all.
            Decision::Denied | Decision::NeedsCode | Decision::NeedsPassword => {
                core.log(&subject, log::Event::LoginFailed { user });
                let failed = core.server.bans.failed(self.peer.ip(), user, core.now.instant);
                if failed.user_banned {
                    core.log(&subject, log::Event::Banned { user: Some(user) });
                    self.note_ban(core, Some(user));
                }
                if failed.address_banned {
                    core.log(&subject, log::Event::Banned { user: None });
                    self.note_ban(core, None);
                }
            }
            Decision::Refused(reason) | Decision::Unavailable(reason) => {
                core.log(&subject, log::Event::LoginRefused { user, reason: &reason });
            }
        }
        self.who = None;
        self.wrong_passwords += 1;
        let delay = core.server.config.login_delay * (1 << (self.wrong_passwords - 1).min(6));
        self.work = Work::Held(core.now.instant + delay, Box::new(asked));
    }

    /// The user of a link is let in no more, so nobody is by it.
    fn refuse_link(&mut self, core: &mut Core, asked: &Asked, user: &[u8], decision: Decision) {
        let reason = match &decision {
            Decision::Refused(reason) | Decision::Unavailable(reason) => reason,
            _ => "who made the link may not log in any more",
        };
        let subject = Subject { session: self.number, peer: self.peer, user: None };
        core.log(&subject, log::Event::LoginRefused { user, reason });
        self.who = None;
        let mut slots = Slots::new();
        if let Ok(Some((head, _))) = request::parse(&asked.head, &mut slots) {
            self.fail(core, &head, Status::FORBIDDEN, "This link is no longer good.");
        }
    }

    /// Answers a wrong password, once it was held back for long enough.
    pub(super) fn deny(&mut self, core: &mut Core, bytes: &[u8]) {
        let mut slots = Slots::new();
        if let Ok(Some((head, _))) = request::parse(bytes, &mut slots) {
            if self.wrong_passwords >= core.server.config.login_attempts {
                self.close_behind(core);
            }
            self.challenge(core, &head, "The name or the password is wrong.");
        }
    }

    /// 401, or where a password would not be taken 403.
    pub(super) fn challenge(&mut self, core: &mut Core, head: &Head<'_, '_>, reason: &'static str) {
        let record = self.record(core, head);
        match self.takes_passwords(core) {
            true => {
                let fields = [("WWW-Authenticate", authorization::CHALLENGE)];
                self.answer_page(core, record, Status::UNAUTHORIZED, reason, &fields);
            }
            false => self.answer_page(
                core,
                record,
                Status::FORBIDDEN,
                "This is for users, whose passwords are taken over HTTPS only.",
                &[],
            ),
        }
    }

    /// Claims that an account may do this; answers the request where it may not.
    pub(super) fn permits(
        &mut self,
        core: &mut Core,
        head: &Head<'_, '_>,
        who: &Who,
        permission: Permission,
    ) -> bool {
        self.permits_within(core, head, who, who.account.permissions, permission)
    }

    /// The same where these are the permissions.
    pub(super) fn permits_within(
        &mut self,
        core: &mut Core,
        head: &Head<'_, '_>,
        who: &Who,
        permissions: Permissions,
        permission: Permission,
    ) -> bool {
        let permits = permissions.allows(permission);
        if !permits {
            match who.user {
                None => self.challenge(core, head, "This is for users: say who you are."),
                Some(_) => self.fail(core, head, Status::FORBIDDEN, "You may not do that."),
            }
        }
        permits
    }
}

/// A limit is reached that lets nobody in for now.
#[derive(Debug)]
struct NotNow {
    status: Status,
    reason: &'static str,
    /// When it may be tried again.
    wait: Duration,
    reached: Reached,
}

impl From<Refused> for NotNow {
    fn from(refused: Refused) -> Self {
        let (reason, reached) = (refused.for_the_client(), refused.reached());
        Self { status: Status::SERVICE_UNAVAILABLE, reason, wait: A_WHILE, reached }
    }
}

impl From<TooMany> for NotNow {
    fn from(too_many: TooMany) -> Self {
        let (reason, reached) = (too_many.for_the_client(), too_many.reached());
        Self { status: Status::TOO_MANY_REQUESTS, reason, wait: too_many.wait, reached }
    }
}

/// A login that may be tried on another thread.
pub(super) struct Tried {
    pub(super) user: Vec<u8>,
    password: Vec<u8>,
    from: IpAddr,
    encrypted: bool,
    certified: bool,
    host: String,
}

impl Tried {
    pub(super) fn now(&self) -> Attempt<'_> {
        let Self { ref user, ref password, from, encrypted, certified, ref host } = *self;
        Attempt {
            user,
            password,
            from,
            protocol: Protocol::Http,
            encrypted,
            certified,
            host,
            now: SystemTime::now(),
        }
    }
}

/// What the certificate alone comes to, where it is enough. May wait.
fn by_certificate(accounts: &dyn Authenticator, tried: &Tried) -> Option<Decision> {
    let decision = tried.certified.then(|| accounts.current(&tried.now()))??;
    match &decision {
        Decision::Granted(account) if account.certificate_suffices => Some(decision),
        _ => None,
    }
}

/// The names in the certificate that a client has shown.
pub(super) fn names_of(channel: &Channel) -> Arc<[String]> {
    channel.tls().peer_certificate().map(|certificate| client_names(certificate)).unwrap_or_default().into()
}

/// What a request says of who asks: its field, or itself where it is a link.
fn said<'a>(head: &Head<'a, '_>, is_link: bool) -> Cow<'a, [u8]> {
    match is_link {
        true => Cow::Owned([LINK, head.method_text.as_bytes(), b" ", head.target].concat()),
        false => Cow::Borrowed(head.get(Field::Authorization).unwrap_or_default()),
    }
}

/// The host that a request is for, where that makes a difference.
fn host_of<'a>(core: &Core, head: &Head<'a, '_>, target: &Target<'a>) -> &'a [u8] {
    match core.http.web.hosts.is_empty() {
        true => b"",
        false => target.authority.or(head.get(Field::Host)).unwrap_or_default(),
    }
}

/// What a head that was kept says of who asks, and of which host.
fn said_of(core: &Core, bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut slots = Slots::new();
    let parsed = request::parse(bytes, &mut slots);
    let Ok(Some((head, _))) = parsed else { return Default::default() };
    let Ok(target) = target::parse_for_others(head.target) else { return Default::default() };
    let is_link = core.http.web.links.is_link(target.query);
    (said(&head, is_link).into_owned(), host_of(core, &head, &target).to_owned())
}
