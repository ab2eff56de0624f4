//! The events of hooks that all nodes deliver together: what a node asks of the database about them.
//!
//! An event is a row until its receiver has taken it. The nodes do not divide events but *receivers*: one node at a time
//! delivers the events of one receiver, in their order. It has the receiver under its epoch, and what it says of events is
//! refused where another node has the receiver by then.

use std::fmt::Debug;

use crate::table::{Epoch, TableError};

/// An event in the database, or on its way there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedEvent {
    /// By which receivers know it again. No other event of any node has it.
    pub id: String,
    /// Who is told, in words that mean nothing to the cluster.
    pub receiver: String,
    /// What is told.
    pub body: String,
    /// The words of a program, packed.
    pub words: Vec<u8>,
    /// The variables of a program, packed.
    pub variables: Vec<u8>,
    /// Why it was put aside, if it was.
    pub parked: Option<String>,
}

/// A receiver that this node has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenReceiver {
    /// Who it is.
    pub receiver: String,
    /// How often its first event was tried in vain, by whatever node.
    pub tries: u32,
}

/// What came of events that were to be delivered.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settlement {
    /// The receiver has these.
    pub delivered: Vec<String>,
    /// It never will have these, and why.
    pub parked: Vec<(String, String)>,
    /// It has not taken the next one.
    pub failure: Option<Failure>,
    /// Whether the node goes on with the receiver.
    pub keeps: bool,
}

/// Why a receiver has not taken an event, and what follows.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// What it said.
    pub trouble: String,
    /// How often that event was tried.
    pub tries: u32,
    /// For how many seconds it is not tried again.
    pub pause: f64,
}

/// The events of a receiver, in numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiverCount {
    /// Who it is.
    pub receiver: String,
    /// Whether these were put aside.
    pub is_parked: bool,
    /// How many there are.
    pub count: u64,
    /// Why the others wait.
    pub trouble: Option<String>,
}

/// Which events an administrator means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MeantEvents<'a> {
    /// Those of these ids.
    These(&'a [String]),
    /// Those of a receiver that wait, or that were put aside.
    Of {
        /// The receiver.
        receiver: &'a str,
        /// Whether those are meant that were put aside.
        is_parked: bool,
    },
}

/// The tables of events. Every function waits for the database.
pub trait EventTable: Debug + Send + Sync {
    /// Keeps events, in this order. One that is there already, by its id, is not kept twice.
    fn put(&self, events: &[SharedEvent]) -> Result<(), TableError>;

    /// Takes a receiver whose events are due, and which no living node has. Those of `busy` this node has.
    fn take(&self, epoch: Epoch, busy: &[String]) -> Result<Option<TakenReceiver>, TableError>;

    /// Reads the first events of a receiver that wait, or that were put aside.
    fn read(&self, receiver: &str, is_parked: bool, most: usize) -> Result<Vec<SharedEvent>, TableError>;

    /// Says what came of events. False: another node has the receiver, and nothing was written.
    fn settle(&self, epoch: Epoch, receiver: &str, settlement: &Settlement) -> Result<bool, TableError>;

    /// Counts the events of each receiver.
    fn counts(&self) -> Result<Vec<ReceiverCount>, TableError>;

    /// Returns one of these ids that no event has.
    fn missing(&self, ids: &[String]) -> Result<Option<String>, TableError>;

    /// Has events delivered that were put aside; returns how many.
    fn put_back(&self, meant: &MeantEvents<'_>) -> Result<u64, TableError>;

    /// Forgets events; returns how many.
    fn forget(&self, meant: &MeantEvents<'_>) -> Result<u64, TableError>;

    /// Has all that waits tried now.
    fn hurry(&self) -> Result<(), TableError>;
}
