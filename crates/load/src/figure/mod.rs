//! One figure: its counts, its rates, and the doubts about it.
//!
//! A value that was not measured is absent.

mod doubts;
mod fidelity;
mod generators;
mod http;
mod measured;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::fidelity::Fidelity;
pub use self::generators::GeneratorShare;
pub use self::http::HttpFigures;
pub use self::measured::Measured;
use crate::chaos::{ChaosReport, Mischief};
use crate::fairness::{Due, Fairness};
use crate::fault::{Fault, Faults, is_behind};
use crate::histogram::Percentiles;
use crate::host::Audit;
use crate::payload::UploadCheck;
use crate::plan::{Cell, Op};
use crate::ramp_up::RampOutcome;
use crate::schedule::Pace;
use crate::tally::{Tally, UserTally};
use crate::threads::ThreadChoice;
use crate::timeline::Moment;
use crate::verdict::{LoadSummary, Verdict, is_too_short, judge};

/// From this size on a transfer is reported in bytes rather than as an operation.
const LARGE: u64 = 1 << 20;

/// One figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellReport {
    /// What it measures.
    #[serde(flatten)]
    pub measured: Measured,
    /// Its settings by their flags' names.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// How many threads of this client did it, and why; unknown of earlier reports.
    #[serde(default)]
    pub thread_choice: Option<ThreadChoice>,
    /// From the beginning to the end of the last operation.
    pub seconds: f64,
    /// How much longer that is than the time in which operations began.
    pub straggled_seconds: f64,
    /// Operations that ended well.
    pub ops: u64,
    /// A second.
    pub ops_per_s: f64,
    /// A second, in units of 1,000,000 bytes.
    pub mb_per_s: f64,
    /// Bytes of data connections.
    pub bytes: u64,
    /// Of whole operations; at a fixed rate from the intended beginning.
    pub latency: Percentiles,
    /// At a fixed rate: from the real beginning, which hides what coordinated omission hides.
    pub raw_latency: Option<Percentiles>,
    /// From the transfer command to the first byte.
    pub first_byte: Option<Percentiles>,
    /// By how much the last byte of a download came after its 226.
    pub lead_226: Option<Percentiles>,
    /// Of downloads, from the first byte to the last.
    pub flow: Option<Percentiles>,
    /// Of transfers that came in more than one piece: for how long at most they moved nothing, between their first byte
    /// and their last.
    #[serde(default)]
    pub gap: Option<Percentiles>,
    /// Of the logins before the load.
    pub login: Percentiles,
    /// How long all logins took together, as many at once as `connecting` allows.
    pub login_seconds: f64,
    /// Where a user that fails is out: how many were left.
    pub standing: Option<RampOutcome>,
    /// For a replayed log: its fidelity.
    pub replay: Option<Fidelity>,
    /// For encrypted loads.
    pub tls: Option<TlsFigures>,
    /// For verified uploads: the result.
    #[serde(default)]
    pub upload_check: Option<UploadCheck>,
    /// With misbehaving users: what they did, and what leaked.
    pub chaos: Option<ChaosReport>,
    /// Where the server runs a command for each operation, and a file counts them.
    #[serde(default)]
    pub commands: Option<Commands>,
    /// For HTTP.
    pub http: Option<HttpFigures>,
    /// The parts of the generators, where these put the load on.
    #[serde(default)]
    pub generators: Vec<GeneratorShare>,
    /// How well the users kept in step, where each has one operation.
    pub step: Option<InStep>,
    /// The failures.
    pub faults: Faults,
    /// Failures in the logins before the load, each of which is a user less.
    pub login_faults: Faults,
    /// How evenly the users were served.
    pub fairness: Fairness,
    /// In a closed loop: throughput times latency, over users. Outside 0.85 to 1.05 the measurement is broken.
    pub little: Option<f64>,
    /// CPU of this client for an operation, in microseconds.
    pub client_us_per_op: f64,
    /// CPU of the server for an operation, where its process is known.
    pub server_us_per_op: Option<f64>,
    /// Memory of the server for a session, without the kernel's; of `idle`, where its process is known.
    pub pss_kib_per_session: Option<f64>,
    /// Memory of this client for a session, without the kernel's; of `idle`.
    pub client_pss_kib_per_session: Option<f64>,
    /// The self-audit.
    pub audit: Audit,
    /// Its limit.
    pub verdict: Verdict,
    /// The doubts about it.
    pub warnings: Vec<String>,
    /// The course over time.
    pub timeline: Vec<Moment>,
    /// The whole curve: (latency in microseconds, count).
    pub histogram: Vec<(u64, u64)>,
}

/// The commands that the server ran for operations, as counted by `--ran`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Commands {
    /// The number of commands.
    pub ran: u64,
    /// The number of operations.
    pub of: u64,
    /// How long after the last operation the last command ended.
    pub behind_s: f64,
}

/// How a figure was encrypted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TlsFigures {
    /// Version and cipher suite of control connections, or of those of HTTP.
    pub suite: String,
    /// Handshakes of data connections, or of all over HTTP.
    pub data_handshakes: u64,
    /// Of them, those that resumed the session of their control connection, or over HTTP of the user's last one.
    pub data_resumed: u64,
}

impl TlsFigures {
    fn of(tally: &Tally) -> Option<Self> {
        let Tally { suite, data_handshakes, data_resumed, .. } = tally;
        let (data_handshakes, data_resumed) = (*data_handshakes, *data_resumed);
        Some(Self { suite: suite.clone()?, data_handshakes, data_resumed })
    }
}

/// How well users that each have one operation kept in step, as defined by the thesis of 1996.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct InStep {
    /// From the first user's beginning to the last one's.
    pub skew_ms: f64,
    /// All bytes, over the time from the first beginning to the last end, in units of 1,000,000 a second.
    pub overall_mb_per_s: f64,
    /// The mean over users of each one's bytes over its own time.
    pub user_mb_per_s: f64,
    /// The number of users times the latter, over the former: 1 if all were active all the time.
    pub sync: f64,
}

impl InStep {
    fn of(users: &[UserTally]) -> Option<Self> {
        let spans: Vec<_> =
            users.iter().filter_map(|user| Some((user.began?, user.ended?, user.bytes))).collect();
        let first = spans.iter().map(|span| span.0).min()?;
        let last = spans.iter().map(|span| span.0).max()?;
        let end = spans.iter().map(|span| span.1).max()?;
        let rate = |bytes: u64, time: std::time::Duration| bytes as f64 / time.as_secs_f64().max(1e-9) / 1e6;
        let overall = rate(spans.iter().map(|span| span.2).sum(), end - first);
        let each: f64 = spans.iter().map(|&(began, ended, bytes)| rate(bytes, ended - began)).sum();
        Some(Self {
            skew_ms: (last - first).as_secs_f64() * 1e3,
            overall_mb_per_s: overall,
            user_mb_per_s: each / spans.len() as f64,
            sync: if overall > 0.0 { each / overall } else { 0.0 },
        })
    }
}

/// The results of a cell's run.
#[derive(Default)]
pub struct Figures {
    /// The sum of the workers' counts.
    pub tally: Tally,
    /// The audit of server, client and machine.
    pub audit: Audit,
    /// How long the logins before the load took together, in seconds.
    pub login_seconds: f64,
    /// Over time.
    pub timeline: Vec<Moment>,
    /// Amid bad users: what they did.
    pub chaos: Option<ChaosReport>,
    /// Where a file tells of the commands that the server ran.
    pub commands: Option<Commands>,
    /// Where generators put the load on: their parts.
    pub generators: Vec<GeneratorShare>,
}

impl CellReport {
    /// The rate: bytes in units of 1,000,000 for a transfer that is cut off; else operations.
    pub fn achieved(&self) -> f64 {
        if self.measured.endless { self.mb_per_s } else { self.ops_per_s }
    }

    /// Returns true if the number of operations is meaningful, rather than their bytes.
    pub fn has_operations(&self) -> bool {
        self.ops > 0 && !self.measured.endless && self.measured.op != "idle"
    }

    /// Returns true if it is reported in bytes: files are large, or of any size.
    pub fn is_of_bytes(&self) -> bool {
        self.measured.endless || self.measured.size.is_some_and(|size| size >= LARGE)
    }

    /// Returns true if it was too short to show a limit.
    pub fn is_too_short(&self) -> bool {
        is_too_short(&self.audit)
    }

    /// Returns true if there is nothing to measure a rate by: no operation ended well, and none moved anything.
    pub fn is_empty(&self) -> bool {
        self.ops == 0 && self.bytes == 0
    }

    /// Returns true if operations were attempted, and none ended well.
    pub fn is_barren(&self) -> bool {
        self.held().unwrap_or(self.ops) == 0 && self.failures() > 0
    }

    /// Returns true if the server let operations or logins fail. With a death rule that is the subject of the figure.
    pub fn has_failures(&self) -> bool {
        self.standing.is_none() && self.faults.of_server() + self.login_faults.of_server() > 0
    }

    /// Returns true if it is not of the requested load: a fixed rate was not reached, or a log not followed. Its
    /// latencies are those of another load.
    pub fn misses_its_load(&self) -> bool {
        is_behind(self.faults.of(Fault::Missed), self.ops)
            || self.replay.as_ref().is_some_and(|replay| !replay.is_faithful())
    }

    /// How many operations and logins failed.
    pub fn failures(&self) -> u64 {
        self.faults.count() + self.login_faults.count()
    }

    /// For users that only hold a session: how many lasted to the end.
    pub fn held(&self) -> Option<u64> {
        let users = u64::from(self.measured.users);
        (self.measured.op == "idle").then(|| users.saturating_sub(self.failures()))
    }
}

impl CellReport {
    /// Returns true if sessions were held, and the server's memory shows nothing of them.
    pub fn hides_its_memory(&self) -> bool {
        self.measured.op == "idle" && self.audit.server.is_some() && self.pss_kib_per_session.is_none()
    }
}

/// The users that the server had to serve: where a death ends the growth, those that never began are left out.
fn served(tally: &Tally) -> Cow<'_, [UserTally]> {
    match &tally.standing {
        Some(_) => tally.users.iter().filter(|user| user.began.is_some()).cloned().collect(),
        None => Cow::Borrowed(&tally.users),
    }
}

fn due(cell: &Cell) -> Due {
    match cell.op {
        Op::Replay => Due::Different,
        Op::Quit => Due::SoMuch,
        _ if cell.settings.count.is_some() => Due::SoMuch,
        _ => Due::All,
    }
}

impl CellReport {
    /// Computes a figure from the counts of its run, and judges it.
    pub fn new(cell: &Cell, figures: Figures) -> Self {
        let Figures { tally, audit, login_seconds, timeline, chaos, commands, generators } = figures;
        let ops = tally.latency.count();
        let planned = cell.settings.duration.as_secs_f64();
        // Not from the machine's audit: a barrier or a full machine may cost time before the operations.
        let took = tally.opened.zip(tally.ended);
        let ended = took.map(|(opened, ended)| ended.saturating_duration_since(opened).as_secs_f64());
        let seconds = if cell.op == Op::Idle { planned } else { ended.unwrap_or(planned).max(1e-6) };
        let per_op = |cpu_seconds: f64| if ops == 0 { 0.0 } else { cpu_seconds * 1e6 / ops as f64 };
        let load = LoadSummary {
            op: cell.op,
            has_black_holes: cell.bad_users() > 0
                && cell
                    .settings
                    .chaos
                    .as_ref()
                    .is_some_and(|chaos| chaos.kinds.contains(&Mischief::BlackHole)),
            ops,
            failed: if tally.standing.is_some() { 0 } else { tally.faults.of_server() },
            slowest_ms: tally.latency.percentiles().max_ms,
            client_faults: tally.faults.of(Fault::Client),
            missed: tally.faults.of(Fault::Missed),
        };
        let some = |latencies: &crate::histogram::Latencies| {
            (latencies.count() > 0).then(|| latencies.percentiles())
        };
        let elsewhere =
            generators.iter().filter(|share| !share.is_here).map(|share| share.cpu_seconds).sum::<f64>();
        let mut report = Self {
            measured: Measured::of(cell),
            settings: cell.settings.told(),
            thread_choice: None, // the run knows it
            seconds,
            straggled_seconds: (seconds - planned).max(0.0),
            ops,
            ops_per_s: ops as f64 / seconds,
            mb_per_s: tally.bytes as f64 / seconds / 1e6,
            bytes: tally.bytes,
            latency: tally.latency.percentiles(),
            raw_latency: some(&tally.raw),
            first_byte: some(&tally.first_byte),
            lead_226: some(&tally.lead),
            flow: some(&tally.flow),
            gap: some(&tally.gap),
            login: tally.login.percentiles(),
            login_seconds,
            step: (cell.settings.count == Some(1)).then(|| InStep::of(&tally.users)).flatten(),
            http: HttpFigures::of(cell, &tally, &audit),
            replay: cell
                .settings
                .replay
                .as_ref()
                .map(|script| Fidelity::of(script, cell.settings.speed, &tally)),
            tls: TlsFigures::of(&tally),
            upload_check: tally.upload_check.clone(),
            chaos,
            commands,
            standing: tally.standing.clone(),
            fairness: Fairness::of(&served(&tally), due(cell), seconds),
            little: little(cell, &tally, seconds),
            client_us_per_op: per_op(audit.client.cpu_seconds + elsewhere),
            // An endless transfer costs more, the faster it is.
            server_us_per_op: audit
                .server
                .as_ref()
                .filter(|_| !cell.settings.endless)
                .map(|server| per_op(server.cpu_seconds)),
            pss_kib_per_session: pss_per_session(cell, &audit),
            client_pss_kib_per_session: (cell.op == Op::Idle).then(|| {
                let grown = audit.client.pss_kib_logged_in.saturating_sub(audit.client.pss_kib_before);
                grown as f64 / f64::from(cell.users)
            }),
            verdict: generators::judged(judge(&audit, load), &generators),
            generators,
            audit,
            warnings: Vec::new(),
            timeline,
            histogram: tally.latency.buckets(),
            faults: tally.faults,
            login_faults: tally.login_faults,
        };
        report.warnings = report.doubts(planned);
        report
    }
}

/// Throughput times latency over users: Little's law says 1 where users do nothing but wait.
fn little(cell: &Cell, tally: &Tally, seconds: f64) -> Option<f64> {
    let Pace::Closed { think } = cell.pace() else { return None };
    // A login's user is busy until QUIT is answered, which is not part of the latency.
    let does_not_loop = matches!(cell.op, Op::Login | Op::Idle | Op::Quit | Op::Replay)
        || cell.grows()
        || cell.settings.endless
        || cell.settings.count == Some(1);
    if tally.latency.count() == 0 || does_not_loop {
        return None;
    }
    let cycle = tally.latency.mean_ms() / 1e3 + think.as_secs_f64();
    Some(tally.latency.count() as f64 / seconds * cycle / f64::from(cell.users))
}

/// `None` where the server's memory grew by less than any session needs: it reuses memory of earlier ones.
fn pss_per_session(cell: &Cell, audit: &Audit) -> Option<f64> {
    /// No server keeps a connection, a user and a folder in less.
    const LEAST_KIB: f64 = 0.25;
    let server = audit.server.as_ref().filter(|_| cell.op == Op::Idle)?;
    let grown = server.pss_kib_after.saturating_sub(server.pss_kib_before);
    Some(grown as f64 / f64::from(cell.users)).filter(|&kib| kib >= LEAST_KIB)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::plan::Plan;

    fn figures(tally: Tally) -> Figures {
        Figures {
            tally,
            audit: Audit::default(),
            login_seconds: 0.0,
            timeline: Vec::new(),
            chaos: None,
            commands: None,
            generators: Vec::new(),
        }
    }

    fn cell(flags: &[(&str, &str)]) -> Cell {
        Plan::new("ftp://127.0.0.1:2121/", None, flags).unwrap().cells().remove(0)
    }

    #[test]
    fn the_clock_of_a_figure_begins_when_operations_could() {
        let (released, took) = (Instant::now(), Duration::from_millis(10));
        let mut tally = Tally { opened: Some(released), ended: Some(released + took), ..Tally::default() };
        // Another worker began and ended a little earlier.
        let (opened, ended) = (Some(released - took), Some(released));
        tally.add(Tally { opened, ended, bytes: 1_000_000, ..Tally::default() });
        (0..2).for_each(|_| tally.latency.record(took));
        let flags = [("ops", "retr"), ("users", "2"), ("count", "1"), ("barrier", "on")];
        let report = CellReport::new(&cell(&flags), figures(tally));
        assert_eq!((report.seconds, report.ops_per_s, report.mb_per_s), (0.02, 100.0, 50.0));
    }
}
