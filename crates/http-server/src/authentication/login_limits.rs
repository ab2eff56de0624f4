//! Limits of logins: temporary refusals, and when to retry.

use std::time::Duration;

use millrace_accounts::Account;
use millrace_http::Status;
use millrace_limits::{LoginLimit, Refused};
use millrace_log as log;
use millrace_runtime::login::limits_of;

use crate::answer::Answers;
use crate::authentication::Logins;
use crate::authentication::asking::Visitor;
use crate::connection::exchange::Exchange;
use crate::identity::Means;

/// When to retry after a refusal of unknown duration.
const A_WHILE: Duration = Duration::from_secs(10);

impl Logins<'_> {
    /// Checks whether the accounts may be asked about these credentials, unless that was just answered.
    pub(crate) fn may_try(&mut self, said: &[u8], means: Means) -> Result<(), LoginLimit> {
        if !means.is_login() || Visitor::of(self.connection).is_known(said) {
            return Ok(());
        }
        let (server, now) = (&self.core.server, self.core.now.instant);
        let from = self.connection.peer.ip();
        let checked = server.check_load().and_then(|()| server.count_attempt(from, now));
        checked.inspect_err(|limit| {
            let event = log::Event::Limited { reached: &limit.reached, reason: None };
            self.core.log(&self.connection.subject(), event);
        })
    }

    /// Takes a place among the sessions of the user and the user's groups, if there is one.
    pub(crate) fn enter(&mut self, means: Means, user: &[u8], account: &Account) -> Result<(), LoginLimit> {
        let (server, now) = (&self.core.server, self.core.now.instant);
        let limits = &limits_of(account);
        if means.is_login() {
            server.count_login(&limits.counted_by(user), now)?;
        }
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
        let limits = &limits_of(account);
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
    pub(crate) fn answer_limit<T>(&mut self, limit: &LoginLimit) -> Option<T> {
        match limit.wait {
            Some(wait) => self.answer_later(Status::TOO_MANY_REQUESTS, limit.reason, wait),
            None => self.refuse_for_a_while(limit.reason),
        }
        None
    }

    /// Answers 503: what is refused now may go well soon.
    pub(crate) fn refuse_for_a_while(&mut self, reason: &'static str) {
        self.answer_later(Status::SERVICE_UNAVAILABLE, reason, A_WHILE);
    }

    fn answer_later(&mut self, status: Status, reason: &'static str, wait: Duration) {
        let record = self.record();
        let fields = [("Retry-After", &*wait.as_secs().max(1).to_string())];
        Answers::new(self.connection, self.core).answer_page(record, status, reason, &fields);
    }
}
