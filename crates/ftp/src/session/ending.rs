//! When a session has to end, and how: deadlines, failed logins, a server that closes, an account that is no more.
//!
//! The invariant: a command that is under way has its reply before the 221 or 421 that ends the session. In a handshake
//! of TLS nothing can be said: such a session ends in silence.

use std::time::{Duration, Instant};

use super::{Access, Act, Bound, Phase, Session, Step, gate};
use crate::reply::{Reply, code};

/// Why the connection closes after the operation under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closing {
    /// `QUIT` waits for its 221.
    Quit,
    /// The server is closing: 421.
    Shutdown,
    /// The account may not be used any more: 421.
    Expelled,
    /// An administrator has disconnected it: 421.
    Kicked,
}

impl Session {
    /// Performs the steps that waited for the reply to the command in progress.
    pub(super) fn finish(&mut self, mut step: Step) -> Step {
        if matches!(self.phase, Phase::Closed | Phase::Penalty) {
            return step;
        }
        if std::mem::take(&mut self.aborting) {
            step = step.and(Reply::new(code::CLOSING_DATA, "ABOR successful."));
        }
        let last = match self.closing.take() {
            None => return step,
            Some(Closing::Quit) => gate::GOODBYE,
            Some(Closing::Shutdown) => gate::SHUTTING_DOWN,
            Some(Closing::Expelled) => gate::EXPELLED,
            Some(Closing::Kicked) => gate::KICKED,
        };
        self.phase = Phase::Closed;
        step.and(last).then(Act::Close)
    }

    pub(super) fn expired(&mut self) -> Step {
        // A timer that was armed before the deadline moved.
        if self.deadline.is_none_or(|deadline| self.now.instant < deadline) {
            return Step::NOTHING;
        }
        match (&self.phase, &self.access) {
            (Phase::Securing, _) => self.close_silently(),
            (Phase::Penalty, _) => denied(self),
            (Phase::Ready, Access::User(_)) => {
                let last =
                    Reply::new(code::SERVICE_CLOSING, "Idle for too long: closing the control connection.");
                let bound = Bound::Idle(idle_timeout(self));
                self.close(last).because(bound)
            }
            (Phase::Ready, _) => {
                let last =
                    Reply::new(code::SERVICE_CLOSING, "No login in time: closing the control connection.");
                let bound = Bound::Login(self.settings.login_timeout);
                self.close(last).because(bound)
            }
            _ => Step::NOTHING,
        }
    }

    pub(super) fn shut_down(&mut self) -> Step {
        match self.phase {
            Phase::Transferring(_) | Phase::Reporting | Phase::Asking(_) => {
                self.closing.get_or_insert(Closing::Shutdown);
                Step::NOTHING
            }
            Phase::Closed => Step::NOTHING,
            Phase::Securing => self.close_silently(),
            Phase::Penalty => {
                self.closing.get_or_insert(Closing::Shutdown);
                denied(self)
            }
            Phase::Ready => self.close(gate::SHUTTING_DOWN),
        }
    }

    /// Ends the operation under way, then the session: the account was removed, no longer permits this client, or an
    /// administrator disconnects it.
    pub(super) fn expel(&mut self, why: Closing) -> Step {
        match self.phase {
            _ if why == Closing::Expelled && !matches!(self.access, Access::User(_)) => Step::NOTHING,
            Phase::Transferring(_) | Phase::Reporting | Phase::Asking(_) => {
                self.closing.get_or_insert(why);
                Step::act(Act::Abort)
            }
            Phase::Closed => Step::NOTHING,
            Phase::Securing => self.close_silently(),
            Phase::Penalty | Phase::Ready if why == Closing::Expelled => self.close(gate::EXPELLED),
            Phase::Penalty | Phase::Ready => self.close(gate::KICKED),
        }
    }

    /// This client has failed to log in so often on other connections: the next delay is as long as if it had
    /// been on this one. It does not bring the end of the connection nearer.
    pub fn has_failed_before(&mut self, failures: u32) {
        self.failed_elsewhere = u8::try_from(failures).unwrap_or(u8::MAX);
    }

    /// After a wrong name or password: the reply is held back, longer each time.
    pub(crate) fn punish(&mut self) -> Step {
        self.access = Access::Stranger;
        self.failed_logins = self.failed_logins.saturating_add(1);
        let doublings = u32::from((self.failed_logins - 1).max(self.failed_elsewhere)).min(6);
        self.phase = Phase::Penalty;
        self.deadline = Some(self.now.instant + self.settings.login_delay * 2u32.pow(doublings));
        Step::NOTHING
    }

    /// Sets the deadline that belongs to the phase.
    pub(super) fn rearm(&mut self, now: Instant) {
        match (&self.phase, &self.access) {
            (Phase::Ready, Access::User(_)) => {
                self.deadline = Some(now + idle_timeout(self));
            }
            // A stranger's deadline was set when the connection came, and after each penalty anew.
            (Phase::Ready | Phase::Securing, _) => {
                self.deadline.get_or_insert(now + self.settings.login_timeout);
            }
            (Phase::Penalty, _) => {}
            (Phase::Asking(_) | Phase::Transferring(_) | Phase::Reporting | Phase::Closed, _) => {
                self.deadline = None
            }
        }
    }
}

/// The end of the delay: the reply that it held back, and then what was asked meanwhile (`QUIT`, `ABOR`).
fn denied(session: &mut Session) -> Step {
    session.phase = Phase::Ready;
    session.deadline = None;
    if session.closing.is_none() && u32::from(session.failed_logins) >= session.settings.login_attempts {
        let last =
            Reply::new(code::SERVICE_CLOSING, "Too many failed logins: closing the control connection.");
        let bound = Bound::Attempts(session.settings.login_attempts);
        return session.close(last).because(bound);
    }
    session.finish(Reply::new(code::NOT_LOGGED_IN, "Login incorrect.").into())
}

/// For how long nothing may be said: as configured, or as `SITE IDLE` has it.
fn idle_timeout(session: &Session) -> Duration {
    let idle = session.extras.as_ref().and_then(|extras| extras.idle);
    idle.map_or(session.settings.idle_timeout, |seconds| Duration::from_secs(seconds.into()))
}
