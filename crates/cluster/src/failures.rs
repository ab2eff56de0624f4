//! What nodes tell one another of failed logins, and of networks from which users have logged in.
//!
//! Each node counts by itself, and adds what the others tell. So a node without the database counts on with what it has,
//! and no login waits. What is told is told once: where the answer of the database is lost, it may be told to none.
//!
//! The invariant: each exchange takes and gives a bounded number of rows, whatever happens at the doors.

use std::time::Instant;

use crate::member::Member;
use crate::table::{Epoch, FailureEditions, Renewal, Table, TableError};

/// Tallies of failures that an exchange tells at most: the closest to a limit.
const TALLIES: usize = 256;

/// Familiar networks that an exchange tells at most.
const FAMILIAR: usize = 256;

/// How far this process has read, and who it is there.
#[derive(Debug, Default)]
pub(crate) struct FailureSync {
    /// The first registration of this process: what it has told under any of its registrations is not to come back.
    origin: Option<Epoch>,
    read: FailureEditions,
}

impl FailureSync {
    /// Counts what others have told, and tells what was counted here.
    pub(crate) fn exchange(
        &mut self,
        table: &dyn Table,
        member: &dyn Member,
        epoch: Epoch,
        now: Instant,
    ) -> Result<Renewal, TableError> {
        let (bans, origin) = (member.bans(), *self.origin.get_or_insert(epoch));
        let pulled = table.pull_failures(origin, self.read)?;
        self.read = pulled.editions;
        pulled.familiar.iter().for_each(|familiar| bans.learn_familiar(familiar, now));
        let led_to = pulled.tallies.iter().filter_map(|tally| bans.learn_failures(tally, now));
        led_to.for_each(|ban| member.note_ban(&ban));
        let (tallies, familiar) = (bans.take_tallies(TALLIES, now), bans.take_familiar(FAMILIAR, now));
        if tallies.is_empty() && familiar.is_empty() {
            return Ok(Renewal::Kept);
        }
        table.push_failures(epoch, origin, &tallies, &familiar)
    }
}
