//! The questions of simulated nodes to their database, and the answers.

use std::time::Duration;

use millrace_limits::FailureTally;

use crate::dav_table::NewLocks;
use crate::scope::{Claim, SharedScope};
use crate::table::{BanChange, Epoch, Locking, Pulled, Renewal, Taking};

/// A question to the database.
#[derive(Debug, Clone)]
pub(super) enum Question {
    Register(Option<Epoch>, Vec<(SharedScope, u64)>),
    Renew(Epoch, Vec<(SharedScope, u64)>),
    Take(Epoch, Vec<Claim>),
    Pull(i64),
    Push(Epoch, Vec<BanChange>),
    /// Ends locks of names by their numbers.
    Unlock(Epoch, Vec<u64>),
    /// Locks of WebDAV that were given since an edition.
    PullLocks(i64),
    /// Failed logins that other processes than this one have told since an edition.
    PullFailures(Epoch, i64),
    /// Under an epoch, and as the process of this first registration.
    PushFailures(Epoch, Epoch, Vec<FailureTally>),
    /// What is wanted of the one rate, and by how many transfers; `None` where it is not needed.
    ShareRate(Epoch, Option<(u64, u64)>),
    TakeErrands(Epoch),
    AnswerErrand(u64),
    SendErrand(Epoch),
    Answers(Vec<u64>),
    EndErrands(Vec<u64>),
    /// Locks an upload, by a number.
    LockUpload(Epoch, u64, u64),
    HoldsUpload(u64, u64),
    FinishUpload(u64, u64),
    ReleaseUpload(u64, u64),
    /// Gives a lock of WebDAV on a place, by its token.
    GiveLock(u8, u64, Duration),
    ReleaseLock(u64),
}

impl Question {
    pub(super) fn is_of_bans(&self) -> bool {
        matches!(self, Self::Pull(_) | Self::Push(..))
    }

    /// Returns the epoch under which it writes. What that has to do with a row of its own alone needs none.
    pub(super) fn epoch(&self) -> Option<Epoch> {
        match self {
            Self::Renew(epoch, _)
            | Self::Take(epoch, _)
            | Self::Push(epoch, _)
            | Self::Unlock(epoch, _)
            | Self::PushFailures(epoch, ..)
            | Self::ShareRate(epoch, _)
            | Self::TakeErrands(epoch)
            | Self::LockUpload(epoch, ..) => Some(*epoch),
            _ => None,
        }
    }
}

/// An answer of the database.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    Registered(Epoch),
    Renewed(Renewal),
    Taken(Taking),
    Pulled(Pulled),
    Pushed(Renewal),
    NewLocks(NewLocks),
    Failures(Vec<FailureTally>, i64),
    /// The part of the rate; `None`: the epoch has ended.
    Part(Option<u64>),
    /// Errands, by their numbers; or those among some that are answered.
    Errands(Vec<u64>),
    Locked(Locking),
    /// Whether it is so, or was done.
    Whether(bool),
    Done,
}
