//! Errands of other nodes, which come by the database. A node looks for them once a second, and four times a second for a
//! while after it had one.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::lock::lock;
use crate::member::Member;
use crate::places::Shared;
use crate::table::TableError;

/// How long after an errand the next one is looked for more often.
const HASTE: Duration = Duration::from_secs(10);

/// The errands of this node.
#[derive(Debug, Default)]
pub(crate) struct Errands {
    hasty_until: Option<Instant>,
    /// Performs those that were taken.
    worker: Option<JoinHandle<()>>,
}

impl Errands {
    /// Takes errands, if it is time, and has a thread perform them: it may take as long as it likes.
    pub(crate) fn turn(
        &mut self,
        shared: &Arc<Shared>,
        member: &Arc<dyn Member>,
        is_time: bool,
    ) -> Result<(), TableError> {
        let now = Instant::now();
        let is_busy = self.worker.as_ref().is_some_and(|worker| !worker.is_finished());
        if is_busy || !(is_time || self.hasty_until.is_some_and(|until| now < until)) {
            return Ok(());
        }
        let Some(epoch) = lock(&shared.book).lease.epoch() else { return Ok(()) };
        let errands = shared.table.take_errands(epoch)?;
        if errands.is_empty() {
            return Ok(());
        }
        self.hasty_until = Some(now + HASTE);
        let (shared, member) = (Arc::clone(shared), Arc::clone(member));
        let work = move || {
            for (number, errand) in errands {
                // Who does not hear it, waits no longer.
                let _ = shared.table.answer_errand(number, &member.perform(&errand));
            }
        };
        self.worker = thread::Builder::new().name("millrace-errand".to_owned()).spawn(work).ok();
        Ok(())
    }
}
