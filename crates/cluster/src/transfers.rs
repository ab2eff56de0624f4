//! What nodes tell one another of what users have moved, and the room for more that each of them has.
//!
//! What is told has a number, and is told with it until there is an answer; the database counts what it has a number of once.
//! So nothing is lost or counted twice where an answer is, whichever registration of the process it was told under.

use std::sync::Arc;

use millrace_limits::{Quotas, TrafficTelling};

use crate::places::Shared;
use crate::table::{Epoch, Renewal, Table, TableError, TrafficTurn};

/// Users that are told of in one question.
const USERS: usize = 1000;

/// What this process has told, and is to tell.
#[derive(Debug)]
pub(crate) struct TransferSync {
    quotas: Option<Arc<Quotas>>,
    /// The number of this process, by which the database knows what it has told. Epochs would not do: one that was put back to
    /// an earlier state gives them again.
    origin: i64,
    /// The registration under which there is room.
    epoch: Option<Epoch>,
    turn: i64,
    /// Whether there were more users than are told of at once.
    has_more: bool,
    /// Without an answer yet.
    told: Vec<TrafficTelling>,
}

impl TransferSync {
    /// Has these quotas shared, if there are any.
    pub(crate) fn new(quotas: Option<Arc<Quotas>>, shared: &Arc<Shared>) -> Self {
        if let Some(quotas) = &quotas {
            let shared = Arc::clone(shared);
            quotas.share(move || shared.call(|call| call.is_urgent = true));
        }
        Self { quotas, origin: random_number(), epoch: None, turn: 0, has_more: false, told: Vec::new() }
    }

    /// Returns whether a transfer waits, or soon will.
    pub(crate) fn is_urgent(&self) -> bool {
        self.quotas.as_ref().is_some_and(|quotas| quotas.is_traffic_urgent())
    }

    /// Returns whether something was left out of the last telling.
    pub(crate) fn has_more(&self) -> bool {
        self.has_more
    }

    /// The database does not answer: transfers wait for nothing.
    pub(crate) fn go_alone(&self) {
        self.quotas.iter().for_each(|quotas| quotas.note_answers(false));
    }

    /// Tells what users have moved, and learns what they may. Asks nothing where there is nothing to tell.
    pub(crate) fn exchange(&mut self, table: &dyn Table, epoch: Epoch) -> Result<Renewal, TableError> {
        let Some(quotas) = &self.quotas else { return Ok(Renewal::Kept) };
        if self.epoch.replace(epoch) != Some(epoch) {
            // It was counted for the one before.
            quotas.give_up_room();
        }
        if self.told.is_empty() {
            self.told = quotas.tell_traffic(USERS);
            self.has_more = self.told.len() == USERS;
            if self.told.is_empty() {
                quotas.note_answers(true);
                return Ok(Renewal::Kept);
            }
            self.turn += 1;
        }
        let turn = TrafficTurn { epoch, origin: self.origin, number: self.turn };
        let Some(answers) = table.share_traffic(turn, &self.told)? else { return Ok(Renewal::Fenced) };
        quotas.learn_traffic(&self.told, &answers);
        self.told.clear();
        Ok(Renewal::Kept)
    }
}

fn random_number() -> i64 {
    let mut bytes = [0; 8];
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    i64::from_ne_bytes(bytes) & i64::MAX
}
