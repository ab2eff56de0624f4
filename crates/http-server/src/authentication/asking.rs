//! Asks the accounts: about a name and a password, a client certificate, or the author of a link. If they cannot answer
//! at once, the request waits.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use millrace_accounts::{Account, Attempt, Authenticator, Decision, Protocol, plain_host};
use millrace_ftp::session::{Permission, Permissions};
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
    pub(crate) fn tried(&self, user: Vec<u8>, certified: bool, host: String) -> Tried {
        let (from, encrypted) = (self.connection.peer.ip(), self.connection.is_encrypted());
        Tried { user, password: Vec::new(), from, encrypted, certified, host }
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
        let head = self.head;
        let (from, encrypted) = (self.connection.peer.ip(), self.connection.is_encrypted());
        if let Some(block) = self.core.server.bans.login_block(from, &user, self.core.now.instant) {
            let asked = Asked::of(head);
            let reason = block.reason().to_owned();
            let edition = self.core.server.edition();
            Logins::new(self.connection, self.core).login_decided(
                asked,
                &user,
                Decision::Refused(reason),
                edition,
            );
            return None;
        }
        if let Err(not_now) = Logins::new(self.connection, self.core).may_try(said, Means::of(said, &user)) {
            return self.answer_not_now(&not_now);
        }
        let (edition, accounts) = self.core.server.accounts_for_login();
        let certified =
            Visitor::of(self.connection).certificate_names().iter().any(|name| name.as_bytes() == user);
        let attempt = Tried { user, password, from, encrypted, certified, host: plain_host(host) };
        let quick = if certified { None } else { accounts.quick(&attempt.now()) };
        match quick {
            Some(Decision::Granted(account)) => {
                match Logins::new(self.connection, self.core).let_in(
                    (said, host),
                    &attempt.user,
                    account,
                    edition,
                ) {
                    Ok(who) => return Some(who),
                    Err(not_now) => return self.answer_not_now(&not_now),
                }
            }
            Some(decision) => {
                let asked = Asked::of(head);
                Logins::new(self.connection, self.core).login_decided(
                    asked,
                    &attempt.user,
                    decision,
                    edition,
                );
            }
            None => self.have_decided(accounts, attempt, edition),
        }
        None
    }

    /// Has the accounts decide, however long that takes.
    fn have_decided(&mut self, accounts: Arc<dyn Authenticator>, attempt: Tried, edition: u64) {
        let serial = self.ask();
        let reply =
            Visitor::of(self.connection).login_promise(self.core, serial, attempt.user.clone(), edition);
        self.core.server.logins.run(move || {
            let by_certificate = by_certificate(&*accounts, &attempt);
            let decision = by_certificate.unwrap_or_else(|| accounts.authenticate(&attempt.now()));
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
        let reply =
            Visitor::of(self.connection).login_promise(self.core, serial, ANONYMOUS.to_vec(), edition);
        self.core.server.logins.run(move || {
            let certified = |user| {
                let host = host.clone();
                Tried { user, password: Vec::new(), from, encrypted: true, certified: true, host }
            };
            let known = names.into_iter().map(certified).find_map(|tried| {
                let granted = by_certificate(&*accounts, &tried)?;
                Some((tried.user, granted))
            });
            let (user, decision) = known.unwrap_or_else(|| {
                let anonymous = Tried { certified: false, ..certified(ANONYMOUS.to_vec()) };
                let decision = match is_open {
                    true => accounts.authenticate(&anonymous.now()),
                    false => Decision::NeedsPassword,
                };
                (anonymous.user, decision)
            });
            reply.keep(Message::Login(serial, user, decision, edition));
        });
    }

    /// Asks for the account that a link acts for, and keeps it to what the link is for.
    pub(crate) fn follow_link(&mut self, link: Link, host: String) {
        let (from, encrypted) = (self.connection.peer.ip(), self.connection.is_encrypted());
        let (edition, accounts) = self.core.server.accounts_for_login();
        let serial = self.ask();
        let reply = Visitor::of(self.connection).login_promise(self.core, serial, link.user.clone(), edition);
        self.core.server.logins.run(move || {
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
            reply.keep(Message::Login(serial, asked.user, decision, edition));
        });
    }
}

/// A login that may be tried on another thread.
pub(crate) struct Tried {
    pub(crate) user: Vec<u8>,
    password: Vec<u8>,
    from: IpAddr,
    encrypted: bool,
    certified: bool,
    host: String,
}

impl Tried {
    pub(crate) fn now(&self) -> Attempt<'_> {
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
