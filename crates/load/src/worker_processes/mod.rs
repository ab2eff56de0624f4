//! Workers in processes of their own, for more users than one process has descriptors for.
//!
//! A worker is the same whether it is a thread or a process: it has its [`WorkerTask`](crate::driver::WorkerTask), meets the others
//! at the gate, and hands over its tally. Of a process the gate, the live counts and the tally go through its standard
//! input and output, a line each:
//!
//! ```text
//! coordinator (a thread of the run)                worker (the process)
//!   order: target, cell, which share   ----->    opens the driver, begins
//!                                      <-----    live: counts, ten times a second and before each meeting
//!   meets the others                   <-----    here: it has come to the gate
//!   go                                 ----->    goes on
//!   stop: the run was cancelled        ----->    ends, and reports what it has
//!   snapshot: who lives elsewhere        ----->    where a death rule holds
//!                                      <-----    tally, or why there is none
//! ```
//!
//! A worker process whose coordinator has ended reads the end of its input, stops, and ends, too. The order is sent
//! through a pipe, so that the password is in no command line.

mod coordinator;
mod worker;

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

pub(crate) use self::coordinator::work;
pub use self::worker::serve;
use crate::plan::Cell;
use crate::plan::Script;
use crate::ramp_up::RampSnapshot;
use crate::tally::{Counts, Tally};
use crate::target::Target;

/// The argument that has the program be a worker.
pub const COMMAND: &str = "bench-worker";

/// The order to a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) target: Target,
    pub(crate) address: SocketAddr,
    pub(crate) cell: Cell,
    /// Which worker it is, of how many.
    pub(crate) index: usize,
    pub(crate) workers: usize,
    /// The jobs of its users in a replayed log.
    pub(crate) script: Option<Script>,
}

/// A message from the coordinator, after the order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Word {
    Go,
    Stop,
    RampSnapshot(RampSnapshot),
}

/// A message from a worker.
#[derive(Debug, Serialize, Deserialize)]
enum Report {
    Live(Counts, RampSnapshot),
    Here,
    Tally(Box<Tally>),
    Failed(String),
}

/// A message as a line.
pub(crate) fn line(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("a message has no map with keys that are no text");
    line.push(b'\n');
    line
}
