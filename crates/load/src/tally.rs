//! The counts of a worker during the load, and their sum.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::fault::Faults;
use crate::histogram::Latencies;
use crate::moment;
use crate::payload::UploadCheck;
use crate::ramp_up::RampOutcome;

/// The counts of one worker, or of all.
#[derive(Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs)] // Fields in a row share their first one's words.
pub struct Tally {
    /// Of whole operations: from the beginning, or at a fixed rate from the intended one.
    pub latency: Latencies,
    /// At a fixed rate: from the real beginning.
    pub raw: Latencies,
    /// From the transfer command to the first byte of data.
    pub first_byte: Latencies,
    /// By how much the last byte of a download came after its 226.
    pub lead: Latencies,
    /// Of downloads: from the first byte to the last.
    pub flow: Latencies,
    /// Of transfers that came in more than one piece: the longest time between two.
    pub gap: Latencies,
    /// Of connections over HTTP.
    pub connect: Latencies,
    /// Of them, those that took a second or more: a lost SYN.
    pub slow_connects: u64,
    /// Responses after which the connection went on.
    pub kept_alive: u64,
    /// Bytes of responses with their heads.
    pub wire_bytes: u64,
    /// The server's name, and the length of the first document.
    pub http_server: Option<String>,
    pub document: Option<u64>,
    /// Of a replay: by how much operations began later than the log says, and how many there were at once.
    pub late: Latencies,
    pub most_at_once: u32,
    /// The cipher suite of control connections, or of HTTP connections.
    pub suite: Option<String>,
    /// Handshakes of data connections, or of those of HTTP, and of them those that resumed.
    pub data_handshakes: u64,
    pub data_resumed: u64,
    /// Of logins: from the connect to the 230.
    pub login: Latencies,
    pub faults: Faults,
    /// Of the logins before the load.
    pub login_faults: Faults,
    pub bytes: u64,
    /// How uploads were compared with what was sent, once they were.
    pub upload_check: Option<UploadCheck>,
    /// When operations could begin: where a barrier holds them back, when it fell.
    #[serde(with = "moment")]
    pub opened: Option<Instant>,
    /// When the last operation ended.
    #[serde(with = "moment")]
    pub ended: Option<Instant>,
    /// Where a death rule held.
    pub standing: Option<RampOutcome>,
    pub users: Vec<UserTally>,
}

/// The counts of one user.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
#[allow(missing_docs)] // The names are the documentation.
pub struct UserTally {
    pub number: u32,
    pub ops: u64,
    pub bytes: u64,
    /// Its longest operation.
    pub longest: Duration,
    /// The longest time in which a transfer of its own moved nothing, between its first byte and its last.
    pub longest_gap: Duration,
    /// When its first operation began, and its last ended.
    #[serde(with = "moment")]
    pub began: Option<Instant>,
    #[serde(with = "moment")]
    pub ended: Option<Instant>,
    /// How many downloads of test files it began.
    pub downloads: u32,
    /// How many uploads it began.
    pub uploads: u32,
    /// The serial number of its last upload, if that was confirmed.
    pub confirmed: Option<u32>,
}

impl Tally {
    /// All users that can have logged in.
    pub(crate) fn end_logins(&mut self) {
        self.login_faults = std::mem::take(&mut self.faults);
    }

    /// Forgets what the warm-up counted.
    pub(crate) fn clear_warm_up(&mut self) {
        let Self { latency, raw, first_byte, lead, flow, gap, connect, .. } = self;
        [latency, raw, first_byte, lead, flow, gap, connect].into_iter().for_each(Latencies::clear);
        self.faults.clear();
        (self.slow_connects, self.kept_alive, self.wire_bytes) = (0, 0, 0);
        (self.data_handshakes, self.data_resumed) = (0, 0);
        self.bytes = 0;
        (self.opened, self.ended) = (None, None);
    }

    /// Moves every moment by this many nanoseconds, to follow another machine's clock.
    pub fn shift(&mut self, by_ns: i64) {
        let users = self.users.iter_mut().flat_map(|user| [&mut user.began, &mut user.ended]);
        for moment in users.chain([&mut self.opened, &mut self.ended]) {
            *moment = moment.and_then(|moment| moment::moved(moment, by_ns));
        }
    }

    /// Adds the counts of another worker.
    pub fn add(&mut self, other: Self) {
        self.latency.add(&other.latency);
        self.raw.add(&other.raw);
        self.first_byte.add(&other.first_byte);
        self.lead.add(&other.lead);
        self.flow.add(&other.flow);
        self.gap.add(&other.gap);
        self.connect.add(&other.connect);
        self.slow_connects += other.slow_connects;
        self.kept_alive += other.kept_alive;
        self.wire_bytes += other.wire_bytes;
        self.http_server = self.http_server.take().or(other.http_server);
        self.document = self.document.or(other.document);
        self.late.add(&other.late);
        self.most_at_once += other.most_at_once;
        self.suite = self.suite.take().or(other.suite);
        self.data_handshakes += other.data_handshakes;
        self.data_resumed += other.data_resumed;
        self.login.add(&other.login);
        self.faults.add(&other.faults);
        self.login_faults.add(&other.login_faults);
        self.bytes += other.bytes;
        self.upload_check = self.upload_check.take().or(other.upload_check);
        self.opened = match (self.opened, other.opened) {
            (Some(own), Some(other)) => Some(own.min(other)),
            (own, other) => own.or(other),
        };
        self.ended = self.ended.max(other.ended);
        self.standing = match (self.standing.take(), other.standing) {
            (Some(own), Some(other)) => Some(own.and(other)),
            (own, other) => own.or(other),
        };
        self.users.extend(other.users);
    }
}

/// The live counts of a worker, readable by others.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub(crate) ops: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) faults: AtomicU64,
    /// The sum of the latencies of `ops`, in microseconds.
    pub(crate) waited_us: AtomicU64,
    /// Users that are logged in.
    pub(crate) sessions: AtomicU64,
    /// The kernel's name of the thread; 0 before it runs.
    pub(crate) thread: AtomicU64,
    /// Set when every operation has ended.
    pub(crate) finished: AtomicU64,
}

impl Live {
    /// Adds without a locked instruction: only the worker itself writes.
    pub(crate) fn bump(counter: &AtomicU64, by: u64) {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }
}

/// The content of a worker's live counts at a moment, as it passes between processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // `Live` has the words.
pub struct Counts {
    pub ops: u64,
    pub bytes: u64,
    pub faults: u64,
    pub waited_us: u64,
    pub sessions: u64,
    /// 0 where it runs on another machine.
    pub thread: u64,
    pub finished: u64,
}

impl Counts {
    /// Returns the counts of this moment.
    pub(crate) fn of(live: &Live) -> Self {
        Self {
            finished: live.finished.load(Ordering::Acquire),
            ops: live.ops.load(Ordering::Relaxed),
            bytes: live.bytes.load(Ordering::Relaxed),
            faults: live.faults.load(Ordering::Relaxed),
            waited_us: live.waited_us.load(Ordering::Relaxed),
            sessions: live.sessions.load(Ordering::Relaxed),
            thread: live.thread.load(Ordering::Relaxed),
        }
    }

    /// Shows them in place of a worker that is elsewhere.
    pub(crate) fn show(self, live: &Live) {
        let Self { ops, bytes, faults, waited_us, sessions, thread, finished } = self;
        live.ops.store(ops, Ordering::Relaxed);
        live.bytes.store(bytes, Ordering::Relaxed);
        live.faults.store(faults, Ordering::Relaxed);
        live.waited_us.store(waited_us, Ordering::Relaxed);
        live.sessions.store(sessions, Ordering::Relaxed);
        live.thread.store(thread, Ordering::Relaxed);
        live.finished.store(finished, Ordering::Release);
    }
}
