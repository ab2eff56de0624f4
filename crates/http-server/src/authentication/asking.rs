//! Asks the accounts: about a name and a password, a client certificate, or the author of a link. If they cannot answer
//! at once, the request waits.

use std::sync::Arc;

use millrace_accounts::{Account, Authenticator, Decision, Protocol, plain_host};
use millrace_ftp::session::{Permission, Permissions};
use millrace_runtime::login::LoginAttempt;
use millrace_runtime::worker::Promise;

use crate::authentication::Logins;
use crate::connection::exchange::Exchange;
use crate::connection::{Asked, Connection};
use crate::identity::{ANONYMOUS, Means, Who};
use crate::link::names_of;
use crate::message::Message;
use crate::web::{Gives, Link};
use crate::worker::Core;

/// The connection's part in a login attempt.
pub(crate) struct Visitor<'a> {
    pub(crate) connection: &'a Connection,
}

impl<'a> Visitor<'a> {
    pub(crate) fn of(connection: &'a Connection) -> Self {
        Self { connection }
    }
}

impl Visitor<'_> {
    fn login_promise(&self, core: &Core, serial: u64, user: Vec<u8>, edition: u64) -> Promise<Message> {
        let unavailable = Decision::Unavailable("the accounts are out of order".to_owned());
        self.connection.promise(core, Message::Login(serial, user, unavailable, edition))
    }

    /// The names in the client's certificate, where it has shown one.
    pub(crate) fn certificate_names(&self) -> Arc<[String]> {
        match &self.connection.stream {
            Some(stream) => stream.names(),
            None => self.connection.link.channel().map(names_of).unwrap_or_default(),
        }
    }

    /// This client, as a user whose password is not known here.
    pub(crate) fn attempt(&self, user: Vec<u8>, certified: bool, host: String) -> LoginAttempt {
        LoginAttempt {
            user,
            password: Vec::new(),
            from: self.connection.peer.ip(),
            protocol: Protocol::Http,
            encrypted: self.connection.is_encrypted(),
            certified,
            host,
            local: self.connection.reached(),
            listener: self.connection.member.listener(),
            class: None,
            session: self.connection.session(),
        }
    }

    pub(crate) fn shows_certificate(&self) -> bool {
        match &self.connection.stream {
            Some(stream) => !stream.names().is_empty(),
            None => {
                let channel = self.connection.link.channel();
                channel.is_some_and(|channel| channel.tls().peer_certificate().is_some())
            }
        }
    }
}

impl Exchange<'_> {
    /// Has the accounts decide about a name and a password: at once where they can, else by the pool.
    pub(crate) fn try_login(
        &mut self,
        (said, host): (&[u8], &[u8]),
        (user, password): (Vec<u8>, Vec<u8>),
    ) -> Option<Arc<Who>> {
        let from = self.connection.peer.ip();
        if let Some(block) = self.core.server.bans.login_block(from, &user, self.core.now.instant) {
            let refused = Decision::Refused(block.reason().to_owned());
            let edition = self.core.server.edition();
            self.decided(&user, refused, edition);
            return None;
        }
        if let Err(limit) = Logins::new(self.connection, self.core).may_try(said, Means::of(said, &user)) {
            return self.answer_limit(&limit);
        }
        let (edition, accounts) = self.core.server.accounts_for_login();
        let certified =
            Visitor::of(self.connection).certificate_names().iter().any(|name| name.as_bytes() == user);
        let attempt = Visitor::of(self.connection).attempt(user, certified, plain_host(host));
        let attempt = LoginAttempt { password, ..attempt };
        let quick = if certified { None } else { self.core.server.quick(&*accounts, &attempt) };
        match quick {
            Some(Decision::Granted(account)) => {
                let mut logins = Logins::new(self.connection, self.core);
                match logins.let_in((said, host), &attempt.user, account, edition) {
                    Ok(who) => return Some(who),
                    Err(limit) => return self.answer_limit(&limit),
                }
            }
            Some(decision) => self.decided(&attempt.user, decision, edition),
            None => self.have_decided(accounts, attempt, edition),
        }
        None
    }

    /// Goes on with what is decided about a login at once.
    fn decided(&mut self, user: &[u8], decision: Decision, edition: u64) {
        let asked = Asked::of(self.head);
        Logins::new(self.connection, self.core).login_decided(asked, user, decision, edition);
    }

    /// Has the accounts decide, however long that takes.
    fn have_decided(&mut self, accounts: Arc<dyn Authenticator>, attempt: LoginAttempt, edition: u64) {
        let serial = self.ask();
        let reply =
            Visitor::of(self.connection).login_promise(self.core, serial, attempt.user.clone(), edition);
        let services = Arc::clone(&self.core.services);
        self.core.server.logins.run(move || {
            let by_certificate = attempt.by_certificate(&*accounts);
            let decision = by_certificate.unwrap_or_else(|| accounts.authenticate(&attempt.now()));
            let decision = services.take_place(&attempt, decision);
            reply.keep(Message::Login(serial, attempt.user, decision, edition));
        });
    }

    /// Asks the accounts whether a request without credentials is authenticated by the client's certificate alone: as
    /// the first of its names whose user needs no password.
    pub(crate) fn recognize(&mut self, host: String) {
        let ((edition, accounts), from) = (self.core.server.accounts_for_login(), self.connection.peer.ip());
        let now = self.core.now.instant;
        let mut names: Vec<_> = Visitor::of(self.connection)
            .certificate_names()
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        names.retain(|name| !self.core.server.bans.is_banned(from, name, now));
        let is_open = self.core.server.is_open();
        let serial = self.ask();
        let visitor = Visitor::of(self.connection);
        let reply = visitor.login_promise(self.core, serial, ANONYMOUS.to_vec(), edition);
        let anonymous = visitor.attempt(ANONYMOUS.to_vec(), false, host);
        let services = Arc::clone(&self.core.services);
        self.core.server.logins.run(move || {
            let certified = |user| LoginAttempt { user, certified: true, ..anonymous.clone() };
            let known = names.into_iter().map(certified).find_map(|attempt| {
                let granted = attempt.by_certificate(&*accounts)?;
                Some((attempt, granted))
            });
            let (attempt, decision) = known.unwrap_or_else(|| {
                let decision = match is_open {
                    true => accounts.authenticate(&anonymous.now()),
                    false => Decision::NeedsPassword,
                };
                (anonymous.clone(), decision)
            });
            let decision = services.take_place(&attempt, decision);
            reply.keep(Message::Login(serial, attempt.user, decision, edition));
        });
    }

    /// Asks for the account that a link acts for, and keeps it to what the link is for.
    pub(crate) fn follow_link(&mut self, link: Link, host: String) {
        let (edition, accounts) = self.core.server.accounts_for_login();
        let serial = self.ask();
        let Link { user, gives, .. } = link;
        let visitor = Visitor::of(self.connection);
        let reply = visitor.login_promise(self.core, serial, user.clone(), edition);
        let attempt = visitor.attempt(user, true, host);
        self.core.server.logins.run(move || {
            let decision = match accounts.current(&attempt.now()) {
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
            reply.keep(Message::Login(serial, attempt.user, decision, edition));
        });
    }
}
