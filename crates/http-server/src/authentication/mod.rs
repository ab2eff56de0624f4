//! Authenticates requests, with a cache of recent decisions.

pub(crate) mod asking;
pub(crate) mod decided;
pub(crate) mod login_limits;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use millrace_accounts::{Account, Protocol, plain_host};
use millrace_ftp::session::{Permission, Permissions};
use millrace_http::target::{self, Target};
use millrace_http::{Field, Head, Status, authorization};
use millrace_limits::LoginLimit;
use millrace_log::{self as log, Proved};

use crate::answer::Answers;
use crate::authentication::asking::Visitor;
use crate::connection::Connection;
use crate::connection::exchange::Exchange;
use crate::identity::{ANONYMOUS, LINK, Means, Who};
use crate::web::{Bad, Link};
use crate::worker::Core;

/// How long a connection goes on with what it was granted before the accounts are asked again.
pub(crate) const TRUST: Duration = Duration::from_secs(1);

/// A login on a connection, while the worker decides about it.
pub(crate) struct Logins<'a> {
    pub(crate) connection: &'a mut Connection,
    pub(crate) core: &'a mut Core,
}

impl<'a> Logins<'a> {
    pub(crate) fn new(connection: &'a mut Connection, core: &'a mut Core) -> Self {
        Self { connection, core }
    }
}

impl Visitor<'_> {
    /// The user of an earlier request with the same credentials, as long as the decision is valid.
    fn still_known(&self, core: &Core, said: &[u8], host: &[u8]) -> Option<Arc<Who>> {
        let who = self.connection.who.as_ref()?;
        let holds = who.authorization == said
            && who.host == host
            && core.now.instant < who.until
            && who.edition == core.server.edition();
        holds.then(|| Arc::clone(who))
    }

    /// Returns true if this address is banned.
    fn is_banned(&self, core: &Core) -> bool {
        core.server.bans.is_banned(self.connection.peer.ip(), ANONYMOUS, core.now.instant)
    }

    /// Passwords cross no network in clear; nor this computer, where all logins have to be encrypted.
    fn takes_passwords(&self, core: &Core) -> bool {
        let requires_tls = || core.server.tls.as_ref().is_some_and(|tls| tls.policy().login_required);
        self.connection.is_encrypted() || (self.connection.is_local() && !requires_tls())
    }

    /// Returns true if the user's files may be sent over this connection.
    fn may_carry_files(&self, core: &Core, account: &Account) -> bool {
        let requires_tls = || core.server.tls.as_ref().is_some_and(|tls| tls.policy().data_required);
        self.connection.is_encrypted() || !(account.data.encrypted || requires_tls())
    }

    /// Returns true if the user is the one that was admitted.
    fn is_known(&self, said: &[u8]) -> bool {
        self.connection.who.as_ref().is_some_and(|who| who.authorization == said)
    }
}

impl Logins<'_> {
    /// Admits a user, unless there are too many sessions.
    fn let_in(
        &mut self,
        (said, host): (&[u8], &[u8]),
        user: &[u8],
        account: Account,
        edition: u64,
    ) -> Result<Arc<Who>, LoginLimit> {
        // A known user already has a slot.
        let is_login = !Visitor::of(self.connection).is_known(said);
        let known = self.connection.who.as_ref().filter(|_| Visitor::of(self.connection).is_known(said));
        let entered = match known.map(|who| who.account.limits == account.limits) {
            None => self.enter(Means::of(said, user), user, &account),
            Some(true) => Ok(()),
            Some(false) => self.join_again(user, &account).map_err(LoginLimit::from),
        };
        if let Err(limit) = entered {
            let event = log::Event::Limited { reached: &limit.reached, reason: None };
            self.core.log(&self.connection.subject_of(Some(user)), event);
            self.connection.who = None;
            return Err(limit);
        }
        if is_login {
            self.log_login(Means::of(said, user), user, &account);
        }
        let user = (!said.is_empty() || user != ANONYMOUS).then(|| user.to_owned());
        let is_barred = !Visitor::of(self.connection).may_carry_files(self.core, &account);
        let until = self.core.now.instant + TRUST;
        let (authorization, host) = (said.to_owned(), host.to_owned());
        let who = Arc::new(Who { authorization, host, user, account, is_barred, until, edition });
        self.connection.who = Some(Arc::clone(&who));
        Ok(who)
    }

    /// Of a login, once for each user of a connection of the client's.
    fn log_login(&mut self, means: Means, user: &[u8], account: &Account) {
        let by = match means {
            Means::Nothing | Means::Link => return,
            Means::Certificate => Proved::Certificate,
            Means::Password => Proved::Password,
        };
        if self.connection.stream.as_ref().is_some_and(|stream| !stream.is_new(user)) {
            return;
        }
        let tls = match &self.connection.stream {
            Some(stream) => stream.tls_version(),
            None => self.connection.link.channel().and_then(|channel| channel.tls().version()),
        };
        let source = account.told.as_ref().map(|told| &*told.source);
        let tried = self.connection.tried(self.core.now.instant);
        let event = log::Event::LoggedIn { protocol: Protocol::Http, tls, by, source, tried };
        self.core.log(&self.connection.subject_of(Some(user)), event);
    }
}

impl Exchange<'_> {
    /// The user; `None` if the accounts must be asked, or the request was refused.
    pub(crate) fn know_who(&mut self, target: &Target<'_>) -> Option<Arc<Who>> {
        let head = self.head;
        let link = self.link(target);
        let (said, host) = (&*said(head, link.is_some()), host_of(self.core, head, target));
        if !matches!(link, Some(Err(_)))
            && let Some(who) = Visitor::of(self.connection).still_known(self.core, said, host)
        {
            return Some(who);
        }
        if let Some(link) = link {
            self.try_link(link, host);
            return None;
        }
        let login = self.login_of(said, host)?;
        self.try_login((said, host), login)
    }

    /// Returns what a link lets the request do; `None` where it came by none.
    pub(crate) fn link(&self, target: &Target<'_>) -> Option<Result<Link, Bad>> {
        let links = &self.core.http.web.links;
        if !links.is_link(target.query) {
            return None;
        }
        let (now, host) = (self.core.now.wall.seconds, self.virtual_host(target));
        links.verify(&target.path, target.query, self.head.method, now, host.as_deref())
    }

    /// Returns the virtual host that the client belongs to.
    pub(crate) fn virtual_host(&self, target: &Target<'_>) -> Option<String> {
        let name = plain_host(host_of(self.core, self.head, target));
        self.core.server.accounts().virtual_host(&name, self.connection.reached())
    }

    /// Has the accounts asked about a link, where it is good.
    fn try_link(&mut self, link: Result<Link, Bad>, host: &[u8]) {
        let reason = match link {
            Ok(link) => return self.follow_link(link, plain_host(host)),
            Err(Bad::Expired) => "The time of this link is over.",
            Err(Bad::Forged) => "This link is not good, or not for this.",
        };
        self.fail(Status::FORBIDDEN, reason);
    }

    /// The name and the password that a request says, where it may say them here; otherwise it is answered, or the
    /// accounts are asked about the client's certificate.
    fn login_of(&mut self, said: &[u8], host: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        match (said, authorization::basic(said)) {
            (b"", _)
                if Visitor::of(self.connection).shows_certificate()
                    && !Visitor::of(self.connection).is_banned(self.core) =>
            {
                if let Err(limit) = Logins::new(self.connection, self.core).may_try(said, Means::Certificate)
                {
                    return self.answer_limit(&limit);
                }
                self.recognize(plain_host(host));
            }
            (b"", _) if !self.core.server.is_open() => {
                self.challenge("Sign in to continue.");
            }
            (b"", _) => return Some((ANONYMOUS.to_vec(), Vec::new())),
            (_, None) => self.challenge("The only way to log in here is Basic."),
            (_, Some(_)) if !Visitor::of(self.connection).takes_passwords(self.core) => {
                let reason = "A password is taken over HTTPS only.";
                self.fail(Status::FORBIDDEN, reason);
            }
            (_, Some(login)) => return Some(login),
        }
        None
    }

    /// 401, or where a password would not be taken 403.
    pub(crate) fn challenge(&mut self, reason: &'static str) {
        let record = self.record();
        match Visitor::of(self.connection).takes_passwords(self.core) {
            true => {
                let fields = [("WWW-Authenticate", authorization::CHALLENGE)];
                Answers::new(self.connection, self.core).answer_page(
                    record,
                    Status::UNAUTHORIZED,
                    reason,
                    &fields,
                );
            }
            false => Answers::new(self.connection, self.core).answer_page(
                record,
                Status::FORBIDDEN,
                "This is for users, whose passwords are taken over HTTPS only.",
                &[],
            ),
        }
    }

    /// Returns whether an account may do this; answers the request where it may not.
    pub(crate) fn permits(&mut self, who: &Who, permission: Permission) -> bool {
        self.permits_within(who, who.account.permissions, permission)
    }

    /// The same where these are the permissions.
    pub(crate) fn permits_within(
        &mut self,
        who: &Who,
        permissions: Permissions,
        permission: Permission,
    ) -> bool {
        let permits = permissions.allows(permission);
        if !permits {
            match who.user {
                None => self.challenge("Sign in to continue."),
                Some(_) => self.fail(Status::FORBIDDEN, "You may not do that."),
            }
        }
        permits
    }
}

/// The credentials of a request: its field, or the request itself if it is a link.
pub(crate) fn said<'a>(head: &'a Head, is_link: bool) -> Cow<'a, [u8]> {
    match is_link {
        true => Cow::Owned([LINK, head.method_text().as_bytes(), b" ", head.target()].concat()),
        false => Cow::Borrowed(head.get(Field::Authorization).unwrap_or_default()),
    }
}

/// The host that a request is for, where that makes a difference.
pub(crate) fn host_of<'a>(core: &Core, head: &'a Head, target: &Target<'a>) -> &'a [u8] {
    match core.http.web.hosts.is_empty() {
        true => b"",
        false => target.authority.or(head.get(Field::Host)).unwrap_or_default(),
    }
}

/// The credentials and the host of a stored head.
pub(crate) fn said_of(core: &Core, head: &Head) -> (Vec<u8>, Vec<u8>) {
    let Ok(target) = target::parse_for_others(head.target()) else { return Default::default() };
    let is_link = core.http.web.links.is_link(target.query);
    (said(head, is_link).into_owned(), host_of(core, head, &target).to_owned())
}
