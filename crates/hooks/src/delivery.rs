//! The messages between the queue and the threads that deliver: recipients, events, orders.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use serde::{Deserialize, Serialize};

use super::queue_error::QueueError;

/// The receiver of an event. It is stored with each event, so that a queued event is delivered even after a change of
/// the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Recipient {
    /// It is posted to this address: one at a time, or arrays of this many. Which of the credentials for that are shown is
    /// written down, and not what they are.
    Webhook {
        url: String,
        batch: usize,
        milliseconds: u64,
        #[serde(default)]
        shows: usize,
    },
    /// This program is run; its arguments are kept with each event.
    Program { name: String, milliseconds: u64 },
}

impl Recipient {
    /// The name of a stored receiver for users.
    pub(super) fn name_of(receiver: &str) -> String {
        serde_json::from_str::<Self>(receiver).map_or_else(|_| receiver.to_owned(), |to| to.name().to_owned())
    }

    /// Its name for users.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Webhook { url, .. } => url,
            Self::Program { name, .. } => name,
        }
    }
}

/// An event to be put.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) to: Recipient,
    /// A JSON object, not yet with its `id`.
    pub(super) body: String,
    /// A program's words and variables, packed.
    pub(super) words: Vec<u8>,
    pub(super) variables: Vec<u8>,
}

/// The messages to the writing thread.
pub(super) enum Order {
    /// Put these; a session's intention, if it had one, is carried out.
    Put { deliveries: Vec<Delivery>, session: u64, done: Sender<Result<(), QueueError>> },
    /// A session intends this.
    Intend { deliveries: Vec<Delivery>, session: u64, done: Sender<Result<(), QueueError>> },
    /// Nothing came of it.
    Drop { session: u64 },
    /// These were delivered.
    Delivered(Vec<i64>),
    /// These never will be: why.
    Parked(Vec<i64>, String),
    /// Say when all of that is done.
    Settle(Sender<Result<(), QueueError>>),
}

/// Reports a warning for the operator.
pub(super) type Warn = Arc<dyn Fn(&str) + Send + Sync>;
