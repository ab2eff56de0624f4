//! Limits of logins: temporary refusals, and when to retry.

use std::time::Duration;

use millrace_accounts::Account;
use millrace_http::Status;
use millrace_limits::{AccountLimits, LimitKey, Reached, Refused, TooMany};

use crate::answer::Answers;
use crate::authentication::Logins;
use crate::authentication::asking::Visitor;
use crate::connection::exchange::Exchange;
use crate::identity::Means;
use millrace_log as log;

/// When to retry after a refusal of unknown duration.
const A_WHILE: Duration = Duration::from_secs(10);

/// A limit that refuses logins for now.
#[derive(Debug)]
pub(crate) struct NotNow {
    status: Status,
    reason: &'static str,
    /// When it may be tried again.
    wait: Duration,
    pub(crate) reached: Reached,
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

impl Logins<'_> {
    /// Checks whether the accounts may be asked about these credentials, unless that was just answered.
    pub(crate) fn may_try(&mut self, said: &[u8], means: Means) -> Result<(), NotNow> {
        let most = self.core.server.cpu_limit.value();
        let (from, wall) = (self.connection.peer.ip(), self.core.server.limits.wall());
        let not_now = if !means.is_login() || Visitor::of(self.connection).is_known(said) {
            return Ok(());
        } else if most > 0 && u64::from(self.core.server.load.percent()) > most {
            let reached = Reached::new(LimitKey::CpuLimit, most);
            let reason = "The server is too busy; try again later.";
            NotNow { status: Status::SERVICE_UNAVAILABLE, reason, wait: A_WHILE, reached }
        } else if let Err(too_many) = self.core.server.logins_rated.attempt(from, self.core.now.instant, wall)
        {
            too_many.into()
        } else {
            return Ok(());
        };
        self.core
            .log(&self.connection.subject(), log::Event::Limited { reached: &not_now.reached, reason: None });
        Err(not_now)
    }

    /// Takes a place among the sessions of the user and the user's groups, if there is one.
    pub(crate) fn enter(&mut self, means: Means, user: &[u8], account: &Account) -> Result<(), NotNow> {
        let (server, now) = (&self.core.server, self.core.now.instant);
        if means.is_login() {
            server.logins_rated.log_in(user, now, server.limits.wall())?;
        }
        let nothing = AccountLimits::default();
        let limits = account.limits.as_deref().unwrap_or(&nothing);
        if means == Means::Link {
            server.limits.visit(&mut self.connection.member, user, limits, now);
            return Ok(());
        }
        match &mut self.connection.stream {
            None => server.limits.log_in(&mut self.connection.member, user, limits, now)?,
            Some(stream) => {
                stream.enter(server, user, limits, now)?;
                server.limits.visit(&mut self.connection.member, user, limits, now);
            }
        }
        Ok(())
    }

    /// Applies the account's present limits to a user; fails if there is no slot any more.
    pub(crate) fn join_again(&mut self, user: &[u8], account: &Account) -> Result<(), Refused> {
        let nothing = AccountLimits::default();
        let limits = account.limits.as_deref().unwrap_or(&nothing);
        let (tree, now) = (&self.core.server.limits, self.core.now.instant);
        let is_guest = self.connection.stream.is_some()
            || self.connection.who.as_ref().is_some_and(|who| who.is_by_link());
        match is_guest {
            true => tree.visit(&mut self.connection.member, user, limits, now),
            false => tree.log_in(&mut self.connection.member, user, limits, now)?,
        }
        Ok(())
    }
}

impl Exchange<'_> {
    pub(crate) fn answer_not_now<T>(&mut self, not_now: &NotNow) -> Option<T> {
        let record = self.record();
        let wait = not_now.wait.as_secs().max(1).to_string();
        Answers::new(self.connection, self.core).answer_page(
            record,
            not_now.status,
            not_now.reason,
            &[("Retry-After", &wait)],
        );
        None
    }
}
