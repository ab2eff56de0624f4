//! What nodes tell one another of logins, for the limits on their rates.
//!
//! Each node counts by itself, and adds what the others tell, so that no login waits. What is told is told once: where the answer of
//! the database is lost, it may be told to none.

use std::time::Instant;

use crate::member::Member;
use crate::table::{Epoch, Renewal, Table, TableError};

/// Buckets that an exchange tells of at most: the closest to a limit.
const TALLIES: usize = 256;

/// How far this process has read.
#[derive(Debug, Default)]
pub(crate) struct LoginSync {
    read: i64,
}

impl LoginSync {
    /// Tells of logins here, and learns of those that all nodes have told. Asks nothing where there is no rate.
    pub(crate) fn exchange(
        &mut self,
        table: &dyn Table,
        member: &dyn Member,
        epoch: Epoch,
    ) -> Result<Renewal, TableError> {
        let logins = member.logins();
        if !logins.is_any() {
            return Ok(Renewal::Kept);
        }
        let told = logins.take_tallies(TALLIES, Instant::now());
        if !told.is_empty() && table.push_logins(epoch, &told)? == Renewal::Fenced {
            return Ok(Renewal::Fenced);
        }
        let (tallies, edition) = table.pull_logins(self.read)?;
        self.read = edition;
        let now = Instant::now();
        tallies.iter().for_each(|tally| logins.learn(tally, now));
        Ok(Renewal::Kept)
    }
}
