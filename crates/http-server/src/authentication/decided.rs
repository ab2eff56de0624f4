//! What the accounts have decided about the request that waits: it goes on, or is refused, a wrong password not at once.

use millrace_accounts::Decision;
use millrace_http::Status;
use millrace_log as log;

use crate::authentication::{Logins, said_of};
use crate::connection::exchange::Exchange;
use crate::connection::{Asked, Work};
use crate::identity::Means;
use crate::notices::Notices;

impl Logins<'_> {
    /// The accounts have decided about the request that waits.
    pub(crate) fn login_decided(&mut self, asked: Asked, user: &[u8], decision: Decision, edition: u64) {
        let (said, host) = said_of(self.core, &asked.head);
        let mut elsewhere = 0;
        let (from, now) = (self.connection.peer.ip(), self.core.now.instant);
        let tried = self.connection.tried(now);
        let decision = match Means::of(&said, user) {
            Means::Password => self.core.server.decision_now(from, user, decision, now),
            _ => decision,
        };
        match decision {
            Decision::Granted(account) => {
                if Means::of(&said, user) == Means::Password {
                    self.connection.wrong_passwords = 0;
                    self.core.server.bans.succeeded(from, user, now);
                }
                if let Err(limit) = self.let_in((&said, &host), user, account, edition) {
                    // One too many. Who asked the accounts again would hear the same, without end.
                    self.connection.exchange(self.core, &asked.head).answer_limit::<()>(&limit);
                    return;
                }
                return self.connection.resume(asked.head, None);
            }
            // A client with a link has not guessed a password.
            decision if Means::of(&said, user) == Means::Link => {
                return self.refuse_link(&asked, user, decision);
            }
            Decision::NeedsPassword if said.is_empty() => {
                self.connection.work = Work::Idle;
                return self.connection.exchange(self.core, &asked.head).challenge("Sign in to continue.");
            }
            Decision::Limited(limit) => {
                let event = log::Event::Limited { reached: &limit.reached, reason: None };
                self.core.log(&self.connection.subject_of(Some(user)), event);
                self.connection.who = None;
                self.connection.exchange(self.core, &asked.head).answer_limit::<()>(&limit);
                return;
            }
            // By HTTP a code comes with the password, or not at all.
            Decision::Denied | Decision::NeedsCode | Decision::NeedsPassword => {
                elsewhere = self.count_failure(user).saturating_sub(1);
            }
            Decision::Unavailable(reason) => {
                let refused = log::Event::LoginRefused { user, reason: &reason, tried };
                self.core.log(&self.connection.subject_of(None), refused);
                self.connection.who = None;
                self.connection
                    .exchange(self.core, &asked.head)
                    .refuse_for_a_while("Logins are not possible at the moment; try again later.");
                return;
            }
            Decision::Refused(reason) => {
                let refused = log::Event::LoginRefused { user, reason: &reason, tried };
                self.core.log(&self.connection.subject_of(None), refused);
            }
        }
        self.connection.who = None;
        self.connection.wrong_passwords += 1;
        // Also those on other connections: a client may have another for each guess.
        let before = (self.connection.wrong_passwords - 1).max(elsewhere).min(6);
        let delay = self.core.server.config.login_delay * (1 << before);
        self.connection.work = Work::Held(self.core.now.instant + delay, Box::new(asked));
    }

    /// Counts a wrong name or password, which may lead to a ban, and returns how many there were of this user from this
    /// address.
    fn count_failure(&mut self, user: &[u8]) -> u32 {
        let (subject, tried) =
            (self.connection.subject_of(None), self.connection.tried(self.core.now.instant));
        let failed = self.core.count_login_failure(&subject, user, tried);
        failed.bans(user).for_each(|user| Notices::of(self.connection).note_ban(self.core, user));
        failed.count
    }

    /// The link's user is no longer admitted, so the link is refused.
    fn refuse_link(&mut self, asked: &Asked, user: &[u8], decision: Decision) {
        let reason = match &decision {
            Decision::Refused(reason) | Decision::Unavailable(reason) => reason,
            _ => "who made the link may not log in any more",
        };
        let tried = self.connection.tried(self.core.now.instant);
        let refused = log::Event::LoginRefused { user, reason, tried };
        self.core.log(&self.connection.subject_of(None), refused);
        self.connection.who = None;
        self.connection
            .exchange(self.core, &asked.head)
            .fail(Status::FORBIDDEN, "This link is no longer good.");
    }
}

impl Exchange<'_> {
    /// Answers a wrong password, once it was held back for long enough.
    pub(crate) fn deny(&mut self) {
        if self.connection.wrong_passwords >= self.core.server.config.login_attempts {
            self.connection.close_behind(self.core);
        }
        self.challenge("The name or the password is wrong.");
    }
}
