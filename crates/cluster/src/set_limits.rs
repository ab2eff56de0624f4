//! Limits that administrators set while nodes run: all nodes hold to them, those that start later as well, until they are
//! restored.
//!
//! ```text
//!  order of an administrator ──► set_limits ──► the table
//!  keeper, once a second     ──► pull_limits: all that are set, of which the server hears where they have changed
//! ```

use std::fmt::Debug;
use std::sync::TryLockError;

use millrace_limits::{Limits, Scope};

use crate::cluster::Cluster;
use crate::lock::lock;
use crate::member::Member;
use crate::places::Shared;
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

impl Cluster {
    /// Sets limits, and has this node use what is set now; the others learn it within a second or two.
    pub fn set_limits(
        &self,
        scope: &Scope,
        limits: &Limits,
        restores: bool,
        apply: impl FnOnce(&SetLimits),
    ) -> Result<bool, TableError> {
        self.check_answers()?;
        // The keeper does not come with what it has read before.
        let mut known = lock(&self.shared().set_limits);
        let is_set = self.shared().table.set_limits(scope, limits, restores)?;
        self.shared().follow_limits(&mut known, Asker::Order, apply)?;
        Ok(is_set)
    }

    /// Returns whether limits of a scope are set, as far as this node has heard.
    pub fn has_limits(&self, scope: &Scope) -> bool {
        lock(&self.shared().set_limits).limits.iter().any(|(set, _)| set == scope)
    }
}

impl Shared {
    /// Has the server use what others have set. While an order asks the database, it does nothing: the order does it.
    pub(crate) fn learn_limits(&self, member: &dyn Member) -> Result<(), TableError> {
        let mut known = match self.set_limits.try_lock() {
            Ok(known) => known,
            Err(TryLockError::Poisoned(known)) => known.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        self.follow_limits(&mut known, Asker::Keeper, |set| member.use_limits(set))
    }

    fn follow_limits(
        &self,
        known: &mut SetLimits,
        by: Asker,
        apply: impl FnOnce(&SetLimits),
    ) -> Result<(), TableError> {
        let set = self.table.pull_limits(by)?;
        if set != *known {
            apply(&set);
            *known = set;
        }
        Ok(())
    }
}
