//! A limit that refuses a login for now.

use std::time::Duration;

use crate::{Reached, Refused, TooMany, TooManyConnections};

/// A limit that refuses logins for now.
#[derive(Debug, Clone)]
pub struct LoginLimit {
    /// For the client: it names the limit, without a number or a name.
    pub reason: &'static str,
    /// For the log.
    pub reached: Reached,
    /// When it may be tried again, where that is known: logins are too frequent.
    pub wait: Option<Duration>,
}

impl From<Refused> for LoginLimit {
    fn from(refused: Refused) -> Self {
        Self { reason: refused.for_the_client(), reached: refused.reached(), wait: None }
    }
}

impl From<TooManyConnections> for LoginLimit {
    fn from(too_many: TooManyConnections) -> Self {
        Self { reason: too_many.for_the_client(), reached: too_many.reached(), wait: None }
    }
}

impl From<TooMany> for LoginLimit {
    fn from(too_many: TooMany) -> Self {
        let (reason, reached) = (too_many.for_the_client(), too_many.reached());
        Self { reason, reached, wait: Some(too_many.wait) }
    }
}
