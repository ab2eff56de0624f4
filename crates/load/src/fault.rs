//! Failures of operations: classified and counted, with the messages of the first of each kind.

use std::fmt;

use millrace_ftp::reply::code;
use serde::{Deserialize, Serialize};

use crate::payload::Flaw;

/// How many messages of each kind are kept.
const KEPT: usize = 3;

/// A kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The control connection could not be made.
    Connect,
    /// The login was refused.
    Login,
    /// The server turned the session away (421).
    TurnedAway,
    /// No TLS could be agreed on.
    Tls,
    /// No data connection could be arranged or made.
    DataConnection,
    /// The command was refused for now (4xx).
    Temporary,
    /// The command was refused (5xx).
    Permanent,
    /// The control connection broke off.
    ControlLost,
    /// The data connection broke off, and yet the transfer was confirmed.
    DataLost,
    /// A document over HTTP had another length than the first.
    OtherLength,
    /// A file ended early.
    Truncated,
    /// A file went on beyond its end.
    TooLong,
    /// A part of a file came twice.
    Doubled,
    /// A part of a file was left out.
    Skipped,
    /// The bytes of another file came.
    CrossedOver,
    /// Bytes came that are of no test file.
    Corrupt,
    /// No answer came in time.
    Timeout,
    /// A download was slower than it had to be.
    TooSlow,
    /// The server violated the protocol.
    Protocol,
    /// This machine could not: no port, no descriptor, no memory.
    Client,
    /// At a fixed rate, no user was free to begin the operation at all.
    Missed,
}

impl Fault {
    /// The kind of a refused command's reply.
    pub(crate) fn of_reply(reply_code: u16) -> Self {
        match reply_code {
            code::SERVICE_CLOSING => Self::TurnedAway,
            code::NO_DATA_CONNECTION => Self::DataConnection,
            400..=499 => Self::Temporary,
            _ => Self::Permanent,
        }
    }

    /// A description: `3 x truncated`.
    pub fn words(self) -> &'static str {
        match self {
            Self::Connect => "no connection",
            Self::Login => "login refused",
            Self::TurnedAway => "turned away",
            Self::Tls => "no TLS",
            Self::DataConnection => "no data connection",
            Self::Temporary => "refused for now",
            Self::Permanent => "refused",
            Self::ControlLost => "connection lost",
            Self::DataLost => "lost, though confirmed",
            Self::OtherLength => "another length than the first",
            Self::Truncated => "truncated",
            Self::TooLong => "too long",
            Self::Doubled => "doubled",
            Self::Skipped => "bytes left out",
            Self::CrossedOver => "bytes of another file",
            Self::Corrupt => "corrupt",
            Self::Timeout => "no answer in time",
            Self::TooSlow => "too slow",
            Self::Protocol => "an answer that cannot be followed",
            Self::Client => "this machine could not",
            Self::Missed => "not begun, as no user was free",
        }
    }

    /// Returns true if wrong bytes arrived: a failure at any speed.
    pub fn is_wrong_data(self) -> bool {
        use Fault::{Corrupt, CrossedOver, DataLost, Doubled, Skipped, TooLong, Truncated};
        matches!(self, DataLost | Truncated | TooLong | Doubled | Skipped | CrossedOver | Corrupt)
    }
}

impl From<Flaw> for Fault {
    fn from(flaw: Flaw) -> Self {
        match flaw {
            Flaw::Truncated { .. } => Self::Truncated,
            Flaw::TooLong { .. } => Self::TooLong,
            Flaw::Doubled { .. } => Self::Doubled,
            Flaw::Skipped { .. } => Self::Skipped,
            Flaw::Crossed { .. } => Self::CrossedOver,
            Flaw::Foreign { .. } => Self::Corrupt,
        }
    }
}

/// Returns true if so much of a fixed rate was missed that it was not reached.
pub fn is_behind(missed: u64, ops: u64) -> bool {
    missed > (missed + ops) / 100
}

/// All failures of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failures {
    /// The kind.
    pub fault: Fault,
    /// How many.
    pub count: u64,
    /// The first of them, each with its user.
    pub first: Vec<String>,
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}", self.count, self.fault.words())?;
        self.first.first().map_or(Ok(()), |first| write!(f, ": {first}"))
    }
}

/// The failures of a worker, or of all.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Faults {
    kinds: Vec<Failures>,
}

impl Faults {
    /// Adds one; `text` is only made when it is kept.
    pub fn record(&mut self, fault: Fault, user: u32, text: impl FnOnce() -> String) {
        let kind = self.kind(fault);
        kind.count += 1;
        if kind.first.len() < KEPT {
            kind.first.push(format!("user {user}: {}", text()));
        }
    }

    /// Adds many without messages.
    pub fn record_many(&mut self, fault: Fault, count: u64) {
        if count > 0 {
            self.kind(fault).count += count;
        }
    }

    /// Adds all of another.
    pub fn add(&mut self, other: &Self) {
        for failures in &other.kinds {
            let kind = self.kind(failures.fault);
            kind.count += failures.count;
            let room = KEPT - kind.first.len();
            kind.first.extend(failures.first.iter().take(room).cloned());
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.kinds.clear();
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.count).sum()
    }

    /// How many operations or logins the server failed: this excludes what this machine could not begin, and operations
    /// of a fixed rate for which no user was free.
    pub fn of_server(&self) -> u64 {
        self.count() - self.of(Fault::Client) - self.of(Fault::Missed)
    }

    /// How many there are of one kind.
    pub fn of(&self, fault: Fault) -> u64 {
        self.kinds.iter().find(|kind| kind.fault == fault).map_or(0, |kind| kind.count)
    }

    /// Each kind that there is, in the order of [`Fault`].
    pub fn kinds(&self) -> impl Iterator<Item = &Failures> {
        self.kinds.iter()
    }

    fn kind(&mut self, fault: Fault) -> &mut Failures {
        let at = self.kinds.binary_search_by_key(&fault, |kind| kind.fault).unwrap_or_else(|at| {
            self.kinds.insert(at, Failures { fault, count: 0, first: Vec::new() });
            at
        });
        &mut self.kinds[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_counted_and_the_first_kept() {
        let (mut one, mut two) = (Faults::default(), Faults::default());
        for user in 0..5 {
            one.record(Fault::Timeout, user, || "slow".to_owned());
            two.record(Fault::Connect, user, || "refused".to_owned());
        }
        one.add(&two);
        one.add(&two);
        assert_eq!((one.count(), one.of(Fault::Connect), one.of(Fault::Login)), (15, 10, 0));
        let kinds: Vec<_> = one.kinds().map(|kind| (kind.fault, kind.first.len())).collect();
        assert_eq!(kinds, [(Fault::Connect, 3), (Fault::Timeout, 3)]);
        assert_eq!(one.kinds().next().unwrap().to_string(), "10 x no connection: user 0: refused");
    }
}
