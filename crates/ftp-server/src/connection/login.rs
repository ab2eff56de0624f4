//! Logging in on a control connection: what is decided before the accounts are asked, what their decision means
//! here, and looking at an account again while its user is here.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use millrace_accounts::{Account, Attempt, Decision, Protocol};
use millrace_ftp::session::{Answer, Credentials, Grant, Input, Verdict};
use millrace_limits::{AccountLimits, LimitKey, Reached, Refused, TooMany};
use millrace_log::{self as log, Proved, Subject};
use millrace_runtime::slab::Key;
use millrace_runtime::worker::Post;
use millrace_runtime::worker::{Core, Promise};

use super::Connection;
use super::message::Message;
use super::question::Question;

impl Connection {
    pub(super) fn log_in(&mut self, core: &mut Core, credentials: Credentials) -> Option<Answer> {
        if let Some(verdict) = self.turned_away(core, &credentials.user) {
            return Some(Answer::Login(verdict));
        }
        let (edition, accounts) = core.services.accounts_for_login();
        let from = self.session.peer().ip();
        let encrypted = self.session.is_encrypted();
        let certified = self.is_certified(&credentials.user);
        let host = self.asked_host();
        let asked = attempt(&credentials, from, encrypted, certified, &host);
        if let Some(decision) = accounts.quick(&asked) {
            return self.verdict(core, &credentials.user, decision, edition).map(Answer::Login);
        }
        let (key, post, serial) = self.login_question(core, &credentials.user, edition);
        core.services.logins.run(move || {
            let unavailable = Decision::Unavailable("The accounts are out of order.".to_owned());
            let reply = Promise::new(post, key, Message::Login(serial, unavailable));
            let decision = accounts.authenticate(&attempt(&credentials, from, encrypted, certified, &host));
            reply.keep(Message::Login(serial, decision));
        });
        None
    }

    /// Asks the accounts whether a user who has shown a certificate needs no password.
    pub(super) fn recognize(&mut self, core: &mut Core, user: Vec<u8>) -> Option<Answer> {
        if !self.is_certified(&user) {
            return Some(Answer::Login(Verdict::NeedsPassword));
        }
        if let Some(verdict) = self.turned_away(core, &user) {
            return Some(Answer::Login(verdict));
        }
        let (edition, accounts) = core.services.accounts_for_login();
        let (from, encrypted) = (self.session.peer().ip(), self.session.is_encrypted());
        let host = self.asked_host();
        let (key, post, serial) = self.login_question(core, &user, edition);
        core.services.logins.run(move || {
            let reply = Promise::new(post, key, Message::Login(serial, Decision::NeedsPassword));
            let credentials = Credentials { user, password: Vec::new() };
            // Whatever else they say is said to the password.
            if let Some(Decision::Granted(account)) =
                accounts.current(&attempt(&credentials, from, encrypted, true, &host))
                && account.certificate_suffices
            {
                reply.keep(Message::Login(serial, Decision::Granted(account)));
            }
        });
        None
    }

    /// Opens a question about somebody who logs in, for this edition of the accounts.
    fn login_question(&mut self, core: &mut Core, user: &[u8], edition: u64) -> (Key, Post<Message>, u64) {
        let (key, post, serial, _) = self.question(core);
        if let Some(question) = &mut self.question {
            question.user = user.to_vec();
            question.edition = edition;
        }
        (key, post, serial)
    }

    /// Claims that the client's certificate has this user's name in it.
    fn is_certified(&self, user: &[u8]) -> bool {
        let names = self.secure.as_ref().map_or(&[][..], |secure| &secure.names);
        self.session.is_encrypted() && names.iter().any(|name| name.as_bytes() == user)
    }

    /// What is decided without asking the accounts.
    fn turned_away(&mut self, core: &mut Core, user: &[u8]) -> Option<Verdict> {
        let most = core.services.cpu_limit.value();
        if most > 0 && u64::from(core.services.load.percent()) > most {
            let reached = Reached::new(LimitKey::CpuLimit, most);
            self.log(core, log::Event::Limited { reached: &reached, reason: None });
            return Some(Verdict::Unavailable("The server is too busy; try again later.".to_owned()));
        }
        if core.services.bans.is_banned(self.session.peer().ip(), user, core.now.instant) {
            self.log(core, log::Event::LoginRefused { user, reason: "banned at this address for a while" });
            return Some(Verdict::Denied);
        }
        let (from, wall) = (self.session.peer().ip(), core.services.limits.wall());
        let attempt = core.services.logins_rated.attempt(from, core.now.instant, wall);
        attempt.err().map(|too_many| self.too_often(core, &too_many))
    }

    fn too_often(&self, core: &mut Core, too_many: &TooMany) -> Verdict {
        self.log(core, log::Event::Limited { reached: &too_many.reached(), reason: None });
        Verdict::Unavailable(too_many.for_the_client().to_owned())
    }

    /// The accounts have decided.
    pub(super) fn login_decided(&mut self, core: &mut Core, serial: u64, decision: Decision) {
        let Some(question) = self.question.take_if(|question| question.serial == serial) else { return };
        let Question { user, edition, is_let_in, .. } = *question;
        match decision {
            Decision::Granted(account) if is_let_in => self.let_in(core, user, account, edition),
            decision => {
                if let Some(verdict) = self.verdict(core, &user, decision, edition) {
                    self.feed(core, Input::Answer(Answer::Login(verdict)));
                }
            }
        }
    }

    /// Hooks have let somebody in whom this edition of the accounts has granted a login.
    pub(super) fn let_in(&mut self, core: &mut Core, user: Vec<u8>, account: Account, edition: u64) {
        if edition != core.services.edition() {
            return self.ask_again(core, user, account, true);
        }
        let verdict = self.admit(core, &user, account);
        self.feed(core, Input::Answer(Answer::Login(verdict)));
    }

    /// The accounts were changed while they let somebody in: asks those that hold now, as of a session that runs. The
    /// password was right.
    fn ask_again(&mut self, core: &mut Core, user: Vec<u8>, account: Account, is_let_in: bool) {
        let (edition, accounts) = core.services.accounts_for_login();
        let (certified, host) = (self.is_certified(&user), self.asked_host());
        let (from, encrypted) = (self.session.peer().ip(), self.session.is_encrypted());
        let (key, post, serial) = self.login_question(core, &user, edition);
        if let Some(question) = &mut self.question {
            question.is_let_in = is_let_in;
        }
        core.services.logins.run(move || {
            let unavailable = Decision::Unavailable("The accounts are out of order.".to_owned());
            let reply = Promise::new(post, key, Message::Login(serial, unavailable));
            let credentials = Credentials { user, password: Vec::new() };
            let attempt = attempt(&credentials, from, encrypted, certified, &host);
            let was_enough = certified && account.certificate_suffices;
            let decision = match accounts.look_again(&account, &attempt) {
                Some(Decision::Granted(now)) if was_enough && !now.certificate_suffices => {
                    Decision::Refused("the certificate is no longer enough".to_owned())
                }
                Some(Decision::Denied | Decision::NeedsCode | Decision::NeedsPassword) => {
                    Decision::Refused("the account is no longer there".to_owned())
                }
                decision => decision.unwrap_or(Decision::Granted(account)),
            };
            reply.keep(Message::Login(serial, decision));
        });
    }

    /// What the session has to know of what an edition of the accounts has decided; nothing yet where somebody else is
    /// asked first.
    fn verdict(&mut self, core: &mut Core, user: &[u8], decision: Decision, edition: u64) -> Option<Verdict> {
        Some(match decision {
            Decision::Granted(account) if edition != core.services.edition() => {
                self.ask_again(core, user.to_vec(), account, false);
                return None;
            }
            Decision::Granted(account) if self.asks_about_login(core, user, &account, edition) => {
                return None;
            }
            Decision::Granted(account) => self.admit(core, user, account),
            Decision::NeedsCode => Verdict::NeedsCode,
            Decision::NeedsPassword => Verdict::NeedsPassword,
            Decision::Denied => {
                self.log(core, log::Event::LoginFailed { user });
                self.count_failure(core, user);
                Verdict::Denied
            }
            Decision::Refused(reason) => {
                self.log(core, log::Event::LoginRefused { user, reason: &reason });
                Verdict::Denied
            }
            Decision::Unavailable(reason) => {
                self.log(core, log::Event::LoginRefused { user, reason: &reason });
                Verdict::Unavailable("Nobody can be let in at the moment; try again later.".to_owned())
            }
        })
    }

    /// Keeps the account of a login that succeeded, and says what the session has to know of it.
    pub(super) fn admit(&mut self, core: &mut Core, user: &[u8], account: Account) -> Verdict {
        let wall = core.services.limits.wall();
        if let Err(too_many) = core.services.logins_rated.log_in(user, core.now.instant, wall) {
            return self.too_often(core, &too_many);
        }
        if let Err(refused) = self.enter(core, user, &account) {
            return Verdict::Unavailable(refused.for_the_client().to_owned());
        }
        core.services.bans.succeeded(self.session.peer().ip(), user, core.now.instant);
        let grant = grant(&account);
        // The session learns of it only now.
        let subject = Subject { session: self.number, peer: self.session.peer(), user: Some(user) };
        let by = match &account.told {
            None if matches!(user, b"anonymous" | b"ftp") => Proved::Nothing,
            _ if account.certificate_suffices && self.is_certified(user) => Proved::Certificate,
            _ => Proved::Password,
        };
        let source = account.told.as_ref().map(|told| &*told.source);
        let (protocol, tls) = (Protocol::Ftp, self.tls_version());
        core.log(&subject, log::Event::LoggedIn { protocol, tls, by, source });
        self.account = Some(account);
        self.reviews.overtake();
        self.note_login(user);
        Verdict::Granted(grant)
    }

    /// Takes its place among its user's and groups' sessions, if there is one.
    fn enter(&mut self, core: &mut Core, user: &[u8], account: &Account) -> Result<(), Refused> {
        let nothing = AccountLimits::default();
        let limits = account.limits.as_deref().unwrap_or(&nothing);
        let services = Arc::clone(&core.services);
        services.limits.log_in(&mut self.member, user, limits, core.now.instant).inspect_err(|refused| {
            let subject = Subject { session: self.number, peer: self.session.peer(), user: Some(user) };
            core.log(&subject, log::Event::Limited { reached: &refused.reached(), reason: None });
        })
    }

    /// A wrong password, or a name that is not there: the address is held to it, on other connections too.
    fn count_failure(&mut self, core: &mut Core, user: &[u8]) {
        let failed = core.services.bans.failed(self.session.peer().ip(), user, core.now.instant);
        self.session.has_failed_before(failed.count.saturating_sub(1));
        if failed.user_banned {
            self.log(core, log::Event::Banned { user: Some(user) });
            self.note_ban(core, Some(user));
        }
        if failed.address_banned {
            self.log(core, log::Event::Banned { user: None });
            self.note_ban(core, None);
        }
    }

    /// Accounts were changed, or time has passed: has the user's account looked at again, where it is one of
    /// those. Commands go on meanwhile.
    pub fn review(&mut self, core: &mut Core, concerned: impl Fn(&[u8], &Account) -> bool) {
        self.session.adopt(self.door.ftp.settings());
        let (Some(user), Some(account)) = (self.session.user(), &self.account) else { return };
        if self.state.closing.is_some() || !concerned(user, account) {
            return;
        }
        let (certified, host) = (self.is_certified(user), self.asked_host());
        let credentials = Credentials { user: user.to_vec(), password: Vec::new() };
        let from = self.session.peer().ip();
        let encrypted = self.session.is_encrypted();
        let accounts = core.services.accounts();
        let (key, post) = (self.key, self.door.post.clone());
        let account = account.clone();
        let number = self.reviews.begin();
        core.services.logins.run(move || {
            let attempt = attempt(&credentials, from, encrypted, certified, &host);
            if let Some(decision) = accounts.look_again(&account, &attempt) {
                let reviewed = Reviewed { user: credentials.user, decision, number };
                post.send(key, Message::Reviewed(Box::new(reviewed)));
            }
        });
    }

    /// The user's account was looked at again.
    pub(super) fn reviewed(&mut self, core: &mut Core, reviewed: Reviewed) {
        // Somebody else may have logged in meanwhile.
        if self.session.user() != Some(&reviewed.user) || !self.reviews.is_news(reviewed.number) {
            return;
        }
        let reason = match reviewed.decision {
            Decision::Granted(account) => match self.enter(core, &reviewed.user, &account) {
                Ok(()) => {
                    let grant = grant(&account);
                    self.account = Some(account);
                    return self.feed(core, Input::Regranted(grant));
                }
                Err(refused) => refused.for_the_client().to_owned(),
            },
            // Who is in stays in while the accounts are out of reach.
            Decision::Unavailable(_) => return,
            Decision::Denied | Decision::NeedsCode | Decision::NeedsPassword => {
                "the account is no longer there".to_owned()
            }
            Decision::Refused(reason) => reason,
        };
        self.log(core, log::Event::Expelled { reason: &reason });
        self.feed(core, Input::Expelled);
    }
}

/// What accounts say of somebody who is logged in.
#[derive(Debug)]
pub struct Reviewed {
    user: Vec<u8>,
    decision: Decision,
    number: u32,
}

/// Numbers the looks at an account. They are had on several threads, and one may take longer than the next: what it
/// comes to is then no longer so.
#[derive(Debug, Default)]
pub(super) struct Reviews {
    begun: u32,
    /// The last one that counted.
    heard: u32,
}

impl Reviews {
    fn begin(&mut self) -> u32 {
        self.begun += 1;
        self.begun
    }

    /// Claims that no later one was heard of.
    fn is_news(&mut self, number: u32) -> bool {
        let is_news = number > self.heard;
        self.heard = self.heard.max(number);
        is_news
    }

    /// What is known now is newer than all that was begun.
    fn overtake(&mut self) {
        self.heard = self.begun;
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

/// A login as the accounts are asked about it.
fn attempt<'a>(
    credentials: &'a Credentials,
    from: IpAddr,
    encrypted: bool,
    certified: bool,
    host: &'a str,
) -> Attempt<'a> {
    Attempt {
        user: &credentials.user,
        password: &credentials.password,
        from,
        protocol: Protocol::Ftp,
        encrypted,
        certified,
        host,
        now: SystemTime::now(),
    }
}
