//! Limits that administrators set while nodes run: all nodes hold to them, those that start later as well, until they are
//! restored.
//!
//! ```text
//!  order of an administrator ──► set_limits ──► the table
//!  keeper, once a second     ──► pull_limits: all that are set, of which the server hears where they have changed
//! ```

use std::fmt::Debug;

use millrace_limits::{Limits, Scope};

use crate::question::{Asker, TableError};

/// The limits that are set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetLimits {
    /// Of each scope; none of them is a session.
    pub limits: Vec<(Scope, Limits)>,
    /// What this node cannot read, for its operator: it may be of a later version, or of a time zone that is not known here.
    pub unread: Vec<String>,
}

/// The limits of all nodes. All functions wait.
pub trait LimitTable: Debug + Send + Sync {
    /// Sets limits; a part that is `None` stays as it is, or as it is configured where what was set is restored first. False: there
    /// are limits of as many scopes as there may be.
    fn set_limits(&self, scope: &Scope, limits: &Limits, restores: bool) -> Result<bool, TableError>;

    /// Returns all that are set.
    fn pull_limits(&self, by: Asker) -> Result<SetLimits, TableError>;
}
