//! Counts that several servers share: what a server tells of its part of a tree, and what it learns of the others'.
//!
//! A server has a [`Share`] of a tree while it changes something there. Its numbers are absolute, so that telling them twice
//! does no harm. A tree holds what was counted, and the sum of all shares; what shares have reserved is added before any
//! server gets more.

use std::fmt;

use millrace_vfs::Counted;
use thiserror::Error;

use super::Allowance;

/// What a server has of a tree, since its share began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// By how many bytes its changes have made the tree larger.
    pub bytes: i64,
    /// By how many files.
    pub files: i64,
    /// Bytes that it may add without a question.
    pub reserved_bytes: u64,
    /// Files that it may add.
    pub reserved_files: u64,
    /// Changes that have ended.
    pub changes: u64,
}

/// What is told with a share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Telling {
    /// The share.
    pub share: Share,
    /// It begins with this.
    pub is_new: bool,
    /// It ends with this: nothing is under way.
    pub is_last: bool,
    /// Something was changed that it does not say, or may not: the tree has to be counted.
    pub is_doubtful: bool,
}

/// More room that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// At least this many bytes.
    pub bytes: u64,
    /// At least this many files.
    pub files: u64,
    /// What the tree may hold.
    pub most: Allowance,
    /// This many bytes may be had in advance, if that leaves enough to others.
    pub ahead: u64,
}

/// How a tree is, by all shares.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TreeState {
    /// What the wish has brought, beside what the share had reserved.
    pub granted_bytes: u64,
    /// Files, likewise.
    pub granted_files: u64,
    /// What there is too much of for the wish; then nothing is granted.
    pub over: Option<Counted>,
    /// The bytes that it holds.
    pub bytes: i64,
    /// The files.
    pub files: i64,
    /// Bytes that others have reserved.
    pub others_bytes: u64,
    /// Files, likewise.
    pub others_files: u64,
    /// Changes of all shares that ever were.
    pub changes: u64,
    /// Whether other servers have a share.
    pub has_others: bool,
    /// Whether it was counted.
    pub is_counted: bool,
    /// Whether it has to be counted again.
    pub is_doubtful: bool,
}

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SharedCountError {
    /// The database cannot be asked now.
    #[error("the counts of quotas cannot be shared now")]
    Away,
    /// The database has not answered: what was asked may have been done.
    #[error("the database of the counts of quotas has not answered")]
    Unanswered,
    /// This server was taken for dead, and its share has ended.
    #[error("the share of this server has ended")]
    Ended,
}

/// The counts of trees of all servers. The functions that return errors may wait.
pub trait SharedCounts: fmt::Debug + Send + Sync {
    /// Returns whether this server takes part.
    fn is_in_use(&self) -> bool;

    /// Tells a share, and asks for more room. The share has it reserved from now on.
    fn tell(&self, tree: &str, telling: Telling, wish: Option<Wish>) -> Result<TreeState, SharedCountError>;

    /// Locks a name on all servers: what it stands for is changed by the caller alone. Returns the number of the lock; `None`
    /// while another server has it.
    fn lock(&self, tree: &str, name: &[u8]) -> Result<Option<u64>, SharedCountError>;

    /// Gives a lock back, soon.
    fn unlock(&self, lock: u64);

    /// Takes what a walk has found, which began after this many changes. Returns whether it counts: not where the tree was being
    /// changed.
    fn counted(&self, tree: &str, found: (u64, u64), changes: u64) -> Result<bool, SharedCountError>;

    /// Returns whether the tree was ever counted for a quota, as far as is known.
    fn knows(&self, tree: &str) -> bool;
}
