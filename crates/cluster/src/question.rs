//! What every question to the database has: the epoch under which it is asked, and the error where there is no answer.

use std::time::Duration;

use thiserror::Error;

/// The number of a registration, greater than all before it: the fencing token of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub i64);

/// Who waits for an answer: the keeper of the lease waits for no administrator, nor among logins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// The keeper.
    Keeper,
    /// An order of an administrator.
    Order,
}

/// Why the database gives no answer.
#[derive(Debug, Error)]
pub enum TableError {
    /// Too many logins wait for it. Nothing was asked.
    #[error("too many logins wait for the database of the cluster")]
    Busy,
    /// It has not answered, so that what was asked may have been done or not.
    #[error("the database of the cluster has not answered within {0:?}")]
    TimedOut(Duration),
    /// The connection, or an error of the database.
    #[error("the database of the cluster: {0}")]
    Backend(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The database refuses what it was given, and will another time.
    #[error("the database of the cluster refuses it: {0}")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Something else in the database holds a lock for too long. Nothing was done.
    #[error("the database of the cluster waits too long for a lock that another client holds: {0}")]
    Locked(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It was away when it was asked last, for this reason. Nothing was asked.
    #[error("{0}")]
    Away(String),
    /// The tables are newer than this program.
    #[error("the tables of the cluster are of a later version of Millrace")]
    LaterTables,
}

impl TableError {
    /// Returns whether it is about what was asked alone: other questions have answers.
    pub(crate) fn is_of_one_question(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Locked(_))
    }

    /// Returns whether what was asked is not done, and will not be.
    pub(crate) fn is_undone(&self) -> bool {
        matches!(self, Self::Busy | Self::Away(_) | Self::Refused(_) | Self::Locked(_) | Self::LaterTables)
    }
}
