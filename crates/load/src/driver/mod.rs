//! The door for protocols: whoever can load a server is a [`Driver`].
//!
//! A cell runs in phases that all workers enter together ([`Gate`]); the coordinator meets them at each, and looks
//! at the machine meanwhile.

mod files;
mod ftp;
mod gap;
mod heed;
mod http;
mod life;
mod pipe;
mod security;
mod selector;
mod worker;

use std::net::SocketAddr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thiserror::Error;

use self::ftp::FtpDriver;
use self::http::HttpDriver;
use crate::chaos::{Deeds, Mischief};
use crate::colony::Commune;
use crate::plan::{Cell, Op, Settings};
use crate::progress::{Chores, Left};
use crate::stop::Stop;
use crate::tally::{Live, Tally};
use crate::target::{Scheme, Target};

/// Why a cell cannot be measured at all.
#[derive(Debug, Error)]
pub enum DriverError {
    /// The protocol has no such thing.
    #[error(
        "{op} cannot be measured so over {scheme}://: ftp:// has retr, stor and the others, http:// has get"
    )]
    NoOperation {
        /// What was asked for.
        op: Op,
        /// As in the target.
        scheme: Scheme,
    },
    /// The server cannot be reached.
    #[error("{address}: {error}")]
    Unreachable {
        /// Where it should have been.
        address: SocketAddr,
        /// What the system says.
        error: std::io::Error,
    },
    /// It is there and says nothing, or nothing more.
    #[error("{address} {how} where {what} was expected")]
    Silent {
        /// Where it is.
        address: SocketAddr,
        /// What it did instead.
        how: String,
        /// A reply.
        what: String,
    },
    /// It speaks first, and in the clear.
    #[error("{address} does not begin with TLS, as {scheme}:// does: {remedy} does without")]
    NotTls {
        /// Where it is.
        address: SocketAddr,
        /// As in the target.
        scheme: Scheme,
        /// What may have been meant.
        remedy: &'static str,
    },
    /// It agrees on no HTTP/2.
    #[error("{address} does not agree on HTTP/2 (ALPN): --http 1.1 does without")]
    NoHttp2 {
        /// Where it is.
        address: SocketAddr,
    },
    /// The server refused what the test needs, for example to store its files.
    #[error("the server refused {what}: {reply}")]
    Refused {
        /// The command.
        what: String,
        /// Its reply.
        reply: String,
    },
    /// The account may not write, and the load needs files.
    #[error(
        "the server refused {what}: {reply} (the load takes an account that may write there; or download what is there \
         already, with --ops retr --file NAME)"
    )]
    NotStored {
        /// The command.
        what: String,
        /// Its reply.
        reply: String,
    },
    /// The target's folder is not there, or not for this account.
    #[error("there is no folder {folder:?} for test files, make it first: the server says {reply}")]
    NoFolder {
        /// As in the target.
        folder: String,
        /// What the server says of it.
        reply: String,
    },
    /// The server's replies cannot be followed.
    #[error("{address}: {error}; is it a server for {scheme}://?")]
    Protocol {
        /// Where it is.
        address: SocketAddr,
        /// As in the target.
        scheme: Scheme,
        /// What cannot be followed.
        error: millrace_ftp::client::ClientError,
    },
    /// A file was sent where a program was to be run.
    #[error(
        "{target} is answered out of a file (the answer has {field}), and the load is for a program that runs for each \
         request: name one, such as http://127.0.0.1:8080/cgi-bin/program"
    )]
    NoProgram {
        /// What was asked for.
        target: String,
        /// The field that only files' answers have.
        field: &'static str,
    },
    /// The files cannot be dropped from the server's page cache.
    #[error("the cache cannot be made cold: {0}")]
    Cache(String),
    /// The test files would fill the server's disk.
    #[error(
        "--dataset-vs-ram: {needed} MiB of test files do not fit into the {free} MiB that are free there, of which a \
         tenth is to stay so"
    )]
    NoRoom {
        /// What they take.
        needed: u64,
        /// What there is.
        free: u64,
    },
    /// Whether they would, nobody says.
    #[error(
        "--dataset-vs-ram: the server does not say how much room it has (AVBL); --server-root DIRECTORY names its folder"
    )]
    UnknownRoom,
    /// Somebody did not want to wait; so many test files are left.
    #[error("nobody waited for their removal, and {0} are there")]
    Left(usize),
    /// This machine cannot.
    #[error("this machine: {0}")]
    Client(std::io::Error),
}

impl DriverError {
    /// Claims that what was asked for cannot be.
    pub(crate) fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::NoOperation { .. }
                | Self::NoRoom { .. }
                | Self::UnknownRoom
                | Self::NoProgram { .. }
                | Self::NoFolder { .. }
        )
    }
}

impl From<Left> for DriverError {
    fn from(_: Left) -> Self {
        Self::Left(0)
    }
}

/// The driver for a target: each scheme has its row here.
///
/// `patience` is how long what is not measured may take to be answered.
pub(crate) fn open(target: &Target, address: SocketAddr, patience: Duration) -> Box<dyn Driver> {
    match target.scheme {
        Scheme::Ftp | Scheme::Ftps | Scheme::Ftpes => {
            Box::new(FtpDriver::new(target.clone(), address, patience))
        }
        Scheme::Http | Scheme::Https => Box::new(HttpDriver::new(target.clone(), address, patience)),
    }
}

/// Whether a cell can be measured over a scheme at all.
pub fn permits(scheme: Scheme, cell: &Cell) -> Result<(), DriverError> {
    let is_plain = !cell.grows() && !cell.settings.barrier && cell.settings.chaos.is_none();
    let permits = match scheme {
        Scheme::Ftp | Scheme::Ftps | Scheme::Ftpes => cell.op != Op::Get,
        Scheme::Http | Scheme::Https => cell.op == Op::Get && is_plain,
    };
    if permits { Ok(()) } else { Err(DriverError::NoOperation { op: cell.op, scheme }) }
}

/// A way to load a server.
pub(crate) trait Driver: Sync {
    /// Claims that the server is there and lets the account in, asked as the load will ask: half an hour of failures
    /// would say the same.
    fn reach(&self, settings: &Settings, chores: Chores<'_>) -> Result<(), DriverError>;

    /// Puts there what the cell needs.
    fn prepare(&self, cell: &Cell, chores: Chores<'_>) -> Result<(), DriverError>;

    /// Does one worker's share of a cell, on its own thread.
    fn work(&self, post: &Post<'_>) -> Result<Tally, DriverError>;

    /// Behaves badly beside the workers, until that is over.
    fn misbehave(&self, kind: Mischief, deeds: &Deeds);

    /// Looks at what the cell left on the server; faults go into the tally.
    fn check(&self, cell: &Cell, tally: &mut Tally, chores: Chores<'_>) -> Result<(), DriverError>;

    /// Removes from the server what was put there.
    fn clean(&self, chores: Chores<'_>) -> Result<(), DriverError>;
}

/// A worker's place in a cell.
#[derive(Clone, Copy)]
pub(crate) struct Post<'a> {
    pub(crate) cell: &'a Cell,
    pub(crate) index: usize,
    pub(crate) workers: usize,
    pub(crate) gate: &'a Gate<'a>,
    pub(crate) live: &'a Live,
    /// Where a death rule holds: what is known of the others' users.
    pub(crate) commune: &'a Commune,
    pub(crate) stop: &'a Stop,
}

impl Post<'_> {
    /// Goes through the phases without doing anything, so that nobody waits in vain.
    pub(crate) fn sit_out(&self) {
        self.sit_out_after(0);
    }

    /// The same, of who has met the others so many times already.
    pub(crate) fn sit_out_after(&self, met: usize) {
        for phase in met..PHASES {
            if phase == PHASES - 1 {
                self.live.finished.store(1, Ordering::Release);
            }
            self.gate.meet();
        }
    }

    /// How many of a cell's operations this worker may begin.
    pub(crate) fn share(&self) -> u64 {
        let (index, workers) = (self.index as u64, self.workers as u64);
        let total = self.cell.settings.total.map(u64::from);
        total.map_or(u64::MAX, |total| (total + workers - 1 - index) / workers)
    }

    /// This worker's users, the idle ones included: every `workers`-th, or where they begin one after the other, a row.
    pub(crate) fn users(&self) -> impl Iterator<Item = u32> + use<> {
        let (index, workers, all) = (self.index as u32, self.workers as u32, self.cell.sessions());
        let row = all.div_ceil(workers);
        let (begin, end, step) = match self.cell.grows() {
            true => ((index * row).min(all), ((index + 1) * row).min(all), 1),
            false => (index, all, self.workers),
        };
        (begin..end).step_by(step)
    }
}

/// How often a worker meets the others: nobody has connected, everyone has logged in, the warm-up has ended, the
/// coordinator has looked at the machine, the last operation has ended.
pub(crate) const PHASES: usize = 5;

/// Where the workers of a cell and the coordinator wait for each other.
pub(crate) struct Gate<'a> {
    way: Way<'a>,
    /// A worker is lost: what the others would still do is for nothing.
    is_spoilt: AtomicBool,
}

/// How one gets there.
enum Way<'a> {
    /// All are threads of this process.
    Here(Barrier),
    /// The others are in another process.
    Through(&'a dyn Meeting),
}

/// A way to meet those of another process.
pub(crate) trait Meeting: Sync {
    /// Waits until all have come.
    fn meet(&self);
}

impl<'a> Gate<'a> {
    /// For so many workers and the coordinator.
    pub(crate) fn new(workers: usize) -> Self {
        Self { way: Way::Here(Barrier::new(workers + 1)), is_spoilt: AtomicBool::new(false) }
    }

    /// For the one worker of a process.
    pub(crate) fn through(meeting: &'a dyn Meeting) -> Self {
        Self { way: Way::Through(meeting), is_spoilt: AtomicBool::new(false) }
    }

    /// A worker is lost, and with it the figure.
    pub(crate) fn spoil(&self) {
        self.is_spoilt.store(true, Ordering::Relaxed);
    }

    /// Claims that a worker is lost.
    pub(crate) fn is_spoilt(&self) -> bool {
        self.is_spoilt.load(Ordering::Relaxed)
    }

    /// Waits until all have come.
    pub(crate) fn meet(&self) {
        match &self.way {
            Way::Here(barrier) => drop(barrier.wait()),
            Way::Through(meeting) => meeting.meet(),
        }
    }
}
