//! Setting limits for all nodes, and learning what others have set.

use std::sync::TryLockError;

use millrace_limits::{Limits, Scope};

use crate::cluster::Cluster;
use crate::lock::lock;
use crate::member::Member;
use crate::places::Shared;
use crate::set_limits::SetLimits;
use crate::table::{Asker, TableError};

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
