//! Logins of administrators with the accounts of the server: the limits, counts and bans are those of all logins.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_runtime::login::{LoginAttempt, present_account};

use super::Running;
use crate::auth::{Account, Authenticator, Decision, Protocol};
use crate::log::{Event, Live, Proved, Subject, TraceFilter, Tried, Within};
use crate::state::ServerState;

/// How a login of an administrator was decided.
#[derive(Debug)]
pub enum AdminLogin {
    /// The account, and the edition of the accounts that it is of.
    Granted(Box<Account>, u64),
    /// The one-time code is missing.
    NeedsCode,
    /// Wrong, or not permitted: the client is told no more. The answer is to be held back for so long.
    Denied(Duration),
    /// A limit, a ban or an unreachable store refuses it for now; when it may be tried again, where that is known.
    Limited(&'static str, Option<Duration>),
}

/// Finds the account of a user whom the source of this name has let in at another server with the same accounts. `tell` gets it
/// with the edition of the accounts; `None` where there is none that may be used, or the source cannot tell without a password.
pub fn find_account(
    running: &Running,
    (source, attempt): (String, LoginAttempt),
    tell: impl FnOnce(Option<(Account, u64)>) + Send + 'static,
) {
    let (edition, accounts) = running.state.accounts_for_login();
    running.state.logins.run(move || {
        let decision = accounts.chain().and_then(|chain| chain.current_of(&source, &attempt.now()));
        tell(match decision {
            Some(Decision::Granted(account)) => Some((account, edition)),
            _ => None,
        });
    });
}

/// Tells the log of a call with a token that is unknown or has expired. It counts as a failed login.
pub fn note_wrong_token(running: &Running, peer: SocketAddr) {
    let subject = Subject { session: 0, peer, user: None };
    let tried = Tried { took: Duration::ZERO, within: Within::Nothing };
    running.state.log.note_of(&subject, Event::LoginFailed { user: b"token of the admin API", tried });
}

impl Running {
    /// Has the pool of logins decide about a name and a password. `tell` is called there, or at once.
    pub fn log_in(
        &self,
        attempt: LoginAttempt,
        peer: SocketAddr,
        tell: impl FnOnce(AdminLogin) + Send + 'static,
    ) {
        match self.state.admit_login(&attempt) {
            Err(limited) => tell(limited),
            Ok(()) => {
                let state = Arc::clone(&self.state);
                self.state.logins.run(move || tell(state.decide_login(&attempt, peer)));
            }
        }
    }

    /// Has the accounts look again at an account that was granted. `tell` gets the account as it is now; `None` where it
    /// may not be used any more.
    pub fn look_again(
        &self,
        attempt: LoginAttempt,
        account: Account,
        tell: impl FnOnce(Option<Account>) + Send + 'static,
    ) {
        let accounts = self.state.accounts();
        self.state.logins.run(move || {
            let decision = accounts.look_again(&account, &attempt.now());
            tell(match decision.and_then(present_account) {
                None => Some(account),
                Some(present) => present.ok(),
            });
        });
    }

    /// Returns the accounts as they are now.
    pub fn accounts(&self) -> Arc<dyn Authenticator> {
        self.state.accounts()
    }

    /// Returns how often the accounts were replaced or changed.
    pub fn edition(&self) -> u64 {
        self.state.edition()
    }

    /// Returns the lines of the log from now on, and the last `lines` before; `wake` is called, on any thread, when there are
    /// some.
    pub fn watch_log(&self, lines: usize, wake: Box<dyn Fn() + Send + Sync>) -> Live {
        self.state.log.watch(lines, wake)
    }

    /// Returns the commands and replies of some sessions from now on, unless there are as many traces as there may be;
    /// `wake` is called, on any thread, when there are some.
    pub fn trace(&self, filter: TraceFilter, wake: Box<dyn Fn() + Send + Sync>) -> Option<Live> {
        self.state.log.traces().begin(filter, wake)
    }
}

impl ServerState {
    /// Checks the limits that hold before the accounts are asked.
    fn admit_login(&self, attempt: &LoginAttempt) -> Result<(), AdminLogin> {
        let now = Instant::now();
        self.bans
            .admit(attempt.from, now)
            .map_err(|turned| AdminLogin::Limited(turned.for_the_client(), None))?;
        if self.bans.login_block(attempt.from, &attempt.user, now).is_some() {
            return Err(AdminLogin::Denied(self.config.login_delay));
        }
        self.check_load()
            .and_then(|()| self.count_attempt(attempt.from, now))
            .map_err(|limit| AdminLogin::Limited(limit.reason, limit.wait))
    }

    fn decide_login(&self, attempt: &LoginAttempt, peer: SocketAddr) -> AdminLogin {
        let (began, (edition, accounts)) = (Instant::now(), self.accounts_for_login());
        let subject = Subject { session: 0, peer, user: None };
        let decision = accounts.authenticate(&attempt.now());
        let (user, now) = (&attempt.user[..], Instant::now());
        let tried = Tried { took: now.saturating_duration_since(began), within: Within::Nothing };
        match self.decision_now(attempt.from, user, decision, now) {
            Decision::Granted(account) => {
                self.bans.succeeded(attempt.from, user, now);
                if let Err(limit) = self.count_login(user, now) {
                    return AdminLogin::Limited(limit.reason, limit.wait);
                }
                let source = account.told.as_ref().map(|told| &*told.source);
                let by = Proved::Password;
                let event = Event::LoggedIn { protocol: Protocol::Http, tls: None, by, source, tried };
                self.log.note_of(&Subject { user: Some(user), ..subject }, event);
                AdminLogin::Granted(Box::new(account), edition)
            }
            Decision::NeedsCode => AdminLogin::NeedsCode,
            Decision::Denied | Decision::NeedsPassword => {
                let log = |event: Event<'_>| self.log.note_of(&subject, event);
                let failed = self.count_login_failure((attempt.from, user), now, tried, log);
                AdminLogin::Denied(self.config.login_delay * (1 << failed.count.saturating_sub(1).min(6)))
            }
            Decision::Limited(limit) => AdminLogin::Limited(limit.reason, limit.wait),
            Decision::Refused(reason) => {
                self.log.note_of(&subject, Event::LoginRefused { user, reason: &reason, tried });
                AdminLogin::Denied(self.config.login_delay)
            }
            Decision::Unavailable(reason) => {
                self.log.note_of(&subject, Event::LoginRefused { user, reason: &reason, tried });
                AdminLogin::Limited("The accounts are out of reach; try again later.", None)
            }
        }
    }
}
