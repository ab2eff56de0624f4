//! Administration of the queue of all nodes, at any of them.

use millrace_cluster::{MeantEvents, ReceiverCount, SharedEvent};

use super::{Meant, Undeliverables, Undelivered};
use crate::delivery::Recipient;
use crate::queue_error::QueueError;
use crate::shared_queue::SharedQueue;

/// The queue of all nodes, as an administrator sees it.
pub(super) struct OfAll<'a>(pub(super) &'a SharedQueue);

impl OfAll<'_> {
    /// Adds the events of all nodes to those that wait in the file of this one, and this many of them at most.
    pub(super) fn list(
        &self,
        found: &mut Undeliverables,
        to: Option<&str>,
        most: usize,
    ) -> Result<(), QueueError> {
        let mut counts = self.counts(to)?;
        counts.sort_by_key(|count| !count.is_parked);
        for ReceiverCount { receiver, is_parked, count, trouble } in counts {
            match is_parked {
                true => found.parked += count,
                false => found.waiting += count,
            }
            let left = most.saturating_sub(found.events.len());
            if left == 0 {
                continue;
            }
            let name = Recipient::name_of(&receiver);
            let shown = |event: SharedEvent| Undelivered {
                id: event.id,
                to: name.clone(),
                is_parked,
                error: event.parked.or_else(|| trouble.clone()),
                body: serde_json::from_str(&event.body).unwrap_or_default(),
            };
            found.events.extend(self.0.table().read(&receiver, is_parked, left)?.into_iter().map(shown));
        }
        Ok(())
    }

    /// Has events delivered that were put aside, and those that wait tried now; answers how many there are.
    pub(super) fn retry(&self, meant: &Meant) -> Result<u64, QueueError> {
        let count = match meant {
            Meant::These(ids) => {
                self.find(ids)?;
                self.0.table().put_back(&MeantEvents::These(ids))?;
                ids.len() as u64
            }
            Meant::All { to, .. } => {
                let mut count = 0;
                for parked in self.counts(to.as_deref())?.iter().filter(|count| count.is_parked) {
                    let meant = MeantEvents::Of { receiver: &parked.receiver, is_parked: true };
                    count += self.0.table().put_back(&meant)?;
                }
                count
            }
        };
        self.0.table().hurry()?;
        self.0.call();
        Ok(count)
    }

    /// Removes events; returns how many.
    pub(super) fn forget(&self, meant: &Meant) -> Result<u64, QueueError> {
        match meant {
            Meant::These(ids) => {
                self.find(ids)?;
                Ok(self.0.table().forget(&MeantEvents::These(ids))?)
            }
            Meant::All { to, waiting } => {
                let counts = self.counts(to.as_deref())?;
                let mut count = 0;
                for of in counts.iter().filter(|of| of.is_parked || *waiting) {
                    let meant = MeantEvents::Of { receiver: &of.receiver, is_parked: of.is_parked };
                    count += self.0.table().forget(&meant)?;
                }
                Ok(count)
            }
        }
    }

    /// Fails where one of these is not there.
    fn find(&self, ids: &[String]) -> Result<(), QueueError> {
        self.0.table().missing(ids)?.map_or(Ok(()), |id| Err(QueueError::NoEvent(id)))
    }

    /// The receivers with events, or those of one name.
    fn counts(&self, to: Option<&str>) -> Result<Vec<ReceiverCount>, QueueError> {
        let mut counts = self.0.table().counts()?;
        counts.retain(|count| to.is_none_or(|to| Recipient::name_of(&count.receiver) == to));
        Ok(counts)
    }
}
