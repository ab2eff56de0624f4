//! Limits of logins: who may not come in for now, and when to try again.

use std::time::Duration;

use millrace_http::Status;

use super::Means;
use crate::auth::Account;
use crate::http::connection::Connection;
use crate::http::exchange::Exchange;
use crate::limits::{AccountLimits, LimitKey, Reached, Refused, TooMany};
use crate::log;
use crate::worker::Core;

/// When to try again what nobody knows the end of.
const A_WHILE: Duration = Duration::from_secs(10);

/// A limit is reached that lets nobody in for now.
#[derive(Debug)]
pub(super) struct NotNow {
    status: Status,
    reason: &'static str,
    /// When it may be tried again.
    wait: Duration,
    pub(super) reached: Reached,
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

impl Connection {
    /// Claims that the accounts may be asked about somebody who says this, unless that was just answered.
    pub(super) fn may_try(&mut self, core: &mut Core, said: &[u8], means: Means) -> Result<(), NotNow> {
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
    pub(super) fn enter(
        &mut self,
        core: &Core,
        means: Means,
        user: &[u8],
        account: &Account,
    ) -> Result<(), NotNow> {
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

    /// Holds a user who is in to what the account now says of limits; or there is no place any more.
    pub(in crate::http) fn join_again(
        &mut self,
        core: &Core,
        user: &[u8],
        account: &Account,
    ) -> Result<(), Refused> {
        let nothing = AccountLimits::default();
        let limits = account.limits.as_deref().unwrap_or(&nothing);
        let (tree, now) = (&core.server.limits, core.now.instant);
        let is_guest = self.carries.is_some() || self.who.as_ref().is_some_and(|who| who.is_by_link());
        match is_guest {
            true => tree.visit(&mut self.member, user, limits, now),
            false => tree.log_in(&mut self.member, user, limits, now)?,
        }
        Ok(())
    }
}

impl Exchange<'_> {
    pub(super) fn answer_not_now<T>(&mut self, not_now: &NotNow) -> Option<T> {
        let record = self.record();
        let wait = not_now.wait.as_secs().max(1).to_string();
        self.connection.answer_page(
            self.core,
            record,
            not_now.status,
            not_now.reason,
            &[("Retry-After", &wait)],
        );
        None
    }
}
