//! What was measured, and the forms in which it is shown.
//!
//! A [`Report`] is data; [`text`], [`csv`], [`markdown`] and [`Report::json`] are renderings of the same numbers.

pub mod csv;
pub mod html;
pub(crate) mod lines;
pub(crate) mod load;
pub mod markdown;
pub mod summary;
pub mod table;
pub mod text;
mod users;
pub mod zb;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::chaos::{ChaosReport, Mischief};
use crate::colony::Standing;
use crate::fairness::Fairness;
use crate::fault::{Fault, Faults, is_behind};
use crate::histogram::Percentiles;
use crate::host::Audit;
use crate::host::verdict::{Load, Verdict, judge};
use crate::limits::{Limit, limits};
use crate::payload::UploadCheck;
use crate::plan::{Cache, Cell, Dataset, Op, Plan};
use crate::poller::Selector;
use crate::replay::Fidelity;
use crate::schedule::Pace;
use crate::tally::{Tally, UserTally};
use crate::timeline::Moment;

/// Changes when the meaning of a field does.
pub(crate) const FORMAT: u32 = 1;
/// Levels of the JSON that have a line for each field: down to those of a figure.
const LINES: usize = 3;

/// All figures of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Of the JSON.
    pub format: u32,
    /// This program's.
    pub version: String,
    /// The preset.
    pub plan: String,
    /// What it is.
    pub summary: String,
    /// What the quick form of the preset shortened, in words; nothing in the full one.
    #[serde(default)]
    pub quick: Vec<String>,
    /// The preset was in the form that its document had, flaws and all.
    #[serde(default)]
    pub as_published: bool,
    /// The server, without its password.
    pub target: String,
    /// Where it was found.
    pub address: SocketAddr,
    /// The command line of its process, where that is known.
    pub server: Option<String>,
    /// When the run began, in seconds since 1970.
    pub began: u64,
    /// The client's machine.
    pub machine: Machine,
    /// The document's tables, with its numbers and these.
    pub tables: Vec<table::Table>,
    /// What a reader of them must know.
    pub notes: Vec<String>,
    /// One a cell of the plan.
    pub cells: Vec<CellReport>,
    /// What should be known before a figure is believed.
    pub warnings: Vec<String>,
    /// Whether it is all there.
    #[serde(default)]
    pub ending: Ending,
}

/// Settings, as flags.
pub(crate) struct Set {
    /// Whose they are; nothing for those of every figure.
    pub(crate) load: Option<String>,
    pub(crate) said: String,
}

/// How a run ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// Everything was measured.
    #[default]
    Complete,
    /// Somebody would not wait: what is there is right, and not all.
    Interrupted,
    /// The server, or this machine, could not go on.
    Failed(String),
}

/// The machine that this client runs on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // The names are the documentation.
pub struct Machine {
    pub kernel: String,
    pub processor: String,
    pub cores: usize,
    pub memory_mib: u64,
    pub limits: Vec<Limit>,
}

/// What a cell was, in the report's words.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // `plan::KEYS` documents them.
pub struct Measured {
    pub label: Option<String>,
    pub op: String,
    pub size: Option<u64>,
    pub mode: Option<String>,
    pub users: u32,
    pub idlers: u32,
    pub files: u32,
    pub dataset: Option<Dataset>,
    pub rate: Option<f64>,
    pub think_ms: f64,
    pub bad_users: u32,
    pub repetition: u32,
    pub threads: u32,
    /// `None` for epoll, as usual.
    pub selector: Option<Selector>,
    pub verified: bool,
    pub seed: u64,
    /// Where something was done about it.
    pub cache: Option<String>,
}

/// One figure with everything that belongs to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellReport {
    /// What it is of.
    #[serde(flatten)]
    pub measured: Measured,
    /// How it was taken: settings by their flags' names.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// From the beginning to the end of the last operation.
    pub seconds: f64,
    /// By how much that is longer than operations were begun: stragglers.
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
    /// How long all of these took together, as many at once as `connecting` says.
    pub login_seconds: f64,
    /// Where a user that fails is out: who was left.
    pub standing: Option<Standing>,
    /// Of a log that was replayed: how faithfully.
    pub replay: Option<Fidelity>,
    /// Where it was encrypted.
    pub tls: Option<TlsFigures>,
    /// Where they were to be verified: how uploads were.
    #[serde(default)]
    pub upload_check: Option<UploadCheck>,
    /// Amid bad users: what they did, and what leaked.
    pub chaos: Option<ChaosReport>,
    /// Of HTTP.
    pub http: Option<zb::HttpFigures>,
    /// How well the users kept in step, where each has one operation.
    pub step: Option<InStep>,
    /// What went wrong.
    pub faults: Faults,
    /// And in the logins before the load: so many users fewer.
    pub login_faults: Faults,
    /// How evenly users were served.
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
    /// What bounded it.
    pub verdict: Verdict,
    /// What should be known before it is believed.
    pub warnings: Vec<String>,
    /// Over time.
    pub timeline: Vec<Moment>,
    /// The whole curve: (latency in microseconds, count).
    pub histogram: Vec<(u64, u64)>,
}

/// How a figure was encrypted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TlsFigures {
    /// Version and cipher suite of control connections.
    pub suite: String,
    /// Handshakes of data connections.
    pub data_handshakes: u64,
    /// Of them, those that resumed the session of their control connection.
    pub data_resumed: u64,
}

impl TlsFigures {
    fn of(tally: &Tally) -> Option<Self> {
        let Tally { suite, data_handshakes, data_resumed, .. } = tally;
        let (data_handshakes, data_resumed) = (*data_handshakes, *data_resumed);
        Some(Self { suite: suite.clone()?, data_handshakes, data_resumed })
    }
}

/// How well users kept in step who each have one operation, as the thesis of 1996 judges it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct InStep {
    /// From the first user's beginning to the last one's.
    pub skew_ms: f64,
    /// All bytes, over the time from the first beginning to the last end, in units of 1,000,000 a second.
    pub overall_mb_per_s: f64,
    /// The mean over users of each one's bytes over its own time.
    pub user_mb_per_s: f64,
    /// The users' number times the latter, over the former: 1 where all were there all the time.
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

/// What a cell's run hands over.
pub(crate) struct Figures {
    pub(crate) tally: Tally,
    pub(crate) audit: Audit,
    pub(crate) login_seconds: f64,
    pub(crate) timeline: Vec<Moment>,
    pub(crate) chaos: Option<ChaosReport>,
}

impl Report {
    pub(crate) fn new(
        plan: &Plan,
        address: SocketAddr,
        began: SystemTime,
        mut cells: Vec<CellReport>,
    ) -> Self {
        compare_with_calm(&mut cells);
        let mut report = Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            plan: plan.name.clone(),
            summary: plan.summary.clone(),
            as_published: plan.as_published,
            quick: plan.quick.clone(),
            target: plan.target.to_string(),
            address,
            server: plan.base.server_pid.and_then(crate::host::command_line),
            began: began.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            machine: Machine::this(),
            tables: table::Table::all(plan, &cells),
            notes: plan.notes.clone(),
            cells,
            warnings: Vec::new(),
            ending: Ending::Complete,
        };
        report.warnings = report.unsteady();
        report
    }

    /// Claims that repetitions of a figure differ so much that they have no mean to speak of.
    pub fn is_unsteady(&self) -> bool {
        !self.unsteady().is_empty()
    }

    /// What a quick form repeats says nothing anyway.
    fn unsteady(&self) -> Vec<String> {
        let loads = if self.quick.is_empty() { load::loads(self) } else { Vec::new() };
        loads.iter().flat_map(load::Load::unsteady).collect()
    }

    /// How it was measured: what holds for every figure, then what single loads have besides. What a figure's name says
    /// is not said again.
    pub(crate) fn settings(&self) -> Vec<Set> {
        const NAMED: [&str; 6] = ["ops", "size", "users", "mode", "label", "server-pid"];
        let is_shared = |setting: &(&String, &String)| {
            self.cells.iter().all(|cell| cell.settings.get(setting.0) == Some(setting.1))
        };
        let of = |cell: &CellReport, shared: bool| {
            let said = cell.settings.iter().filter(|setting| !NAMED.contains(&setting.0.as_str()));
            let some = said.filter(|setting| is_shared(setting) == shared);
            some.map(|(name, value)| format!("--{name} {value}")).collect::<Vec<_>>().join(" ")
        };
        let Some(first) = self.cells.first() else { return Vec::new() };
        let mut told = vec![Set { load: None, said: of(first, true) }];
        for load in load::loads(self) {
            let own = load.cells.first().map(|cell| of(cell, false)).unwrap_or_default();
            if !own.is_empty() {
                told.push(Set { load: Some(load.title), said: own });
            }
        }
        told
    }

    /// The preset, and in which form it ran.
    pub fn titled(&self) -> String {
        titled(&self.plan, self.as_published, &self.quick)
    }

    /// As JSON, in lines for people.
    pub fn json(&self) -> String {
        lines::render(&self.value(), LINES)
    }

    /// What [`Report::json`] says, for those who read it.
    pub(crate) fn value(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("a report has no map with keys that are no text")
    }

    /// Claims that bytes were wrong somewhere.
    pub fn has_wrong_data(&self) -> bool {
        self.cells.iter().any(|cell| cell.faults.kinds().any(|kind| kind.fault.is_wrong_data()))
    }
}

impl CellReport {
    /// Claims that there is nothing to measure a rate by: no operation ended well, and none moved anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.ops == 0 && self.bytes == 0
    }

    /// Claims that something was asked for, and nothing ended well.
    pub fn is_barren(&self) -> bool {
        self.held().unwrap_or(self.ops) == 0 && self.failures() > 0
    }

    /// Claims that the server let operations or logins fail. Where users die of that, it is what the figure is about.
    pub fn has_failures(&self) -> bool {
        self.standing.is_none() && self.faults.of_server() + self.login_faults.of_server() > 0
    }

    /// Claims that it is not of what was asked for: a fixed rate was not reached, or a log not followed. Its latencies are
    /// those of another load.
    pub fn misses_its_load(&self) -> bool {
        is_behind(self.faults.of(Fault::Missed), self.ops)
            || self.replay.as_ref().is_some_and(|replay| !replay.is_faithful())
    }

    /// How many operations and logins failed.
    pub fn failures(&self) -> u64 {
        self.faults.count() + self.login_faults.count()
    }

    /// Of users who only hold a session: how many of these there were to the end.
    pub fn held(&self) -> Option<u64> {
        let users = u64::from(self.measured.users);
        (self.measured.op == "idle").then(|| users.saturating_sub(self.failures()))
    }
}

impl CellReport {
    /// Claims that sessions were held, and the server's memory shows nothing of them.
    pub fn hides_its_memory(&self) -> bool {
        self.measured.op == "idle" && self.audit.server.is_some() && self.pss_kib_per_session.is_none()
    }
}

impl Machine {
    pub(crate) fn this() -> Self {
        let uname = rustix::system::uname();
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let processors = text("/proc/cpuinfo");
        let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let memory = text("/proc/meminfo");
        let kib = memory
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok());
        Self {
            kernel: format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy()),
            processor: model
                .map_or_else(|| uname.machine().to_string_lossy().into_owned(), |model| model.1.to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: kib.unwrap_or(0u64) / 1024,
            limits: limits(),
        }
    }
}

impl Measured {
    /// `retr 1k pasv`, without the users.
    pub(crate) fn name(&self) -> String {
        let mut name = self.op.clone();
        if let Some(size) = self.size {
            let _ = write!(name, " {}", short_size(size));
        }
        if let Some(mode) = &self.mode {
            let _ = write!(name, " {mode}");
        }
        if let Some(rate) = self.rate {
            let _ = write!(name, " @{rate}");
        }
        if self.bad_users > 0 {
            let _ = write!(name, " +{}bad", self.bad_users);
        }
        if let Some(selector) = self.selector {
            let _ = write!(name, " {}", selector.name());
        }
        name
    }

    pub(crate) fn of(cell: &Cell) -> Self {
        let think = match cell.pace() {
            Pace::Closed { think } => think.as_secs_f64() * 1e3,
            Pace::Rate(_) => 0.0,
        };
        Self {
            label: cell.settings.label.clone(),
            op: cell.op.to_string(),
            size: cell.size,
            mode: cell.mode.map(|mode| mode.to_string()),
            users: cell.users,
            idlers: cell.settings.idlers,
            files: cell.files(),
            dataset: cell.settings.dataset.filter(|_| cell.op == Op::Retr),
            rate: cell.settings.rate,
            think_ms: think,
            bad_users: cell.bad_users(),
            repetition: cell.repetition,
            threads: cell.settings.threads,
            verified: cell.settings.verify,
            cache: Some(cell.settings.cache)
                .filter(|&cache| cache != Cache::Any)
                .map(|cache| cache.to_string()),
            selector: Some(cell.settings.selector).filter(|&selector| selector != Selector::Epoll),
            seed: cell.settings.seed,
        }
    }
}

/// Whom the server had to serve: where a death ends the growth, those who never began got nothing of anybody.
fn served(tally: &Tally) -> Cow<'_, [UserTally]> {
    match &tally.standing {
        Some(_) => tally.users.iter().filter(|user| user.began.is_some()).cloned().collect(),
        None => Cow::Borrowed(&tally.users),
    }
}

impl CellReport {
    pub(crate) fn new(cell: &Cell, figures: Figures) -> Self {
        let Figures { tally, audit, login_seconds, timeline, chaos } = figures;
        let ops = tally.latency.count();
        let planned = cell.settings.duration.as_secs_f64();
        // Not from when this machine was looked at: what a barrier and a full machine cost before is no operation's.
        let took = tally.opened.zip(tally.ended);
        let ended = took.map(|(opened, ended)| ended.saturating_duration_since(opened).as_secs_f64());
        let seconds = if cell.op == Op::Idle { planned } else { ended.unwrap_or(planned).max(1e-6) };
        let per_op = |cpu_seconds: f64| if ops == 0 { 0.0 } else { cpu_seconds * 1e6 / ops as f64 };
        let load = Load {
            op: cell.op,
            has_black_holes: cell.bad_users() > 0
                && cell
                    .settings
                    .chaos
                    .as_ref()
                    .is_some_and(|chaos| chaos.kinds.contains(&Mischief::BlackHole)),
            ops,
            client_faults: tally.faults.of(Fault::Client),
            missed: tally.faults.of(Fault::Missed),
        };
        let some = |latencies: &crate::histogram::Latencies| {
            (latencies.count() > 0).then(|| latencies.percentiles())
        };
        let mut report = Self {
            measured: Measured::of(cell),
            settings: cell.settings.told(),
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
            http: zb::HttpFigures::of(cell, &tally, &audit),
            replay: cell
                .settings
                .replay
                .as_ref()
                .map(|script| Fidelity::of(script, cell.settings.speed, &tally)),
            tls: TlsFigures::of(&tally),
            upload_check: tally.upload_check.clone(),
            chaos,
            standing: tally.standing.clone(),
            fairness: Fairness::of(&served(&tally), seconds),
            little: little(cell, &tally, seconds),
            client_us_per_op: per_op(audit.client.cpu_seconds),
            server_us_per_op: audit.server.as_ref().map(|server| per_op(server.cpu_seconds)),
            pss_kib_per_session: pss_per_session(cell, &audit),
            client_pss_kib_per_session: (cell.op == Op::Idle).then(|| {
                let grown = audit.client.pss_kib_logged_in.saturating_sub(audit.client.pss_kib_before);
                grown as f64 / f64::from(cell.users)
            }),
            verdict: judge(&audit, load),
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

    /// What should be known before the figure is believed.
    fn doubts(&self, planned: f64) -> Vec<String> {
        let mut doubts = Vec::new();
        if let Some(kind) = self.login_faults.kinds().next() {
            let (count, users) = (self.login_faults.count(), self.measured.users);
            doubts.push(format!(
                "{count} of {users} users could not log in at first: {}",
                kind.first.join("; ")
            ));
        }
        let tried = self.ops + self.faults.count();
        match (self.faults.count(), self.measured.op.as_str()) {
            (0, _) => {}
            (lost, "idle") => doubts.push(format!("{lost} sessions were lost")),
            (failed, _) => doubts.push(format!("{failed} of {tried} operations failed")),
        }
        if let Some(little) = self.little
            && self.faults.count() == 0
            && !(0.85..=1.05).contains(&little)
        {
            doubts.push(format!(
                "Little's ratio is {little:.2}: time is missing from the latencies, or users stood idle"
            ));
        }
        if let Some(step) = self.step
            && (step.sync - 1.0).abs() > 0.1
            && self.measured.users > 1
        {
            doubts.push(format!(
                "the users did not keep in step: their speeds add up to {:.2} of the whole's, within {:.1} ms of each other's start",
                step.sync, step.skew_ms
            ));
        }
        if let Some(standing) = &self.standing
            && self.ops < u64::from(standing.started)
        {
            doubts.push(format!("only {} downloads were complete when it was over", self.ops));
        }
        if self.straggled_seconds > planned * 0.2 {
            doubts.push(format!(
                "the last operation ended {:.1} s after the time was over",
                self.straggled_seconds
            ));
        }
        if let Some(replay) = self.replay.as_ref().filter(|replay| !replay.is_faithful()) {
            doubts.push(format!(
                "the replay is not faithful: {} of {} transfers, begun late by up to {:.0} ms",
                replay.transfers, replay.logged.transfers, replay.late.max_ms
            ));
        }
        if let Some((descriptors, processes)) = self.chaos.as_ref().and_then(ChaosReport::leaked)
            && descriptors + processes > 0
        {
            doubts.push(format!(
                "{descriptors} descriptors and {processes} processes of the server are left of the bad users"
            ));
        }
        let is_counted = self.step.is_some() || self.measured.op == "quit";
        if self.ops > 0 && self.ops < 100 && self.measured.op != "idle" && !is_counted {
            doubts.push(format!("only {} operations: percentiles mean little", self.ops));
        }
        doubts
    }
}

/// Sets beside each figure amid bad users what the same was without them.
fn compare_with_calm(cells: &mut [CellReport]) {
    for at in 0..cells.len() {
        let calm = Measured { bad_users: 0, ..cells[at].measured.clone() };
        let p99_ms = cells.iter().find(|cell| cell.measured == calm).map(|cell| cell.latency.p99_ms);
        if let Some(chaos) = &mut cells[at].chaos {
            chaos.calm_p99_ms = p99_ms;
        }
    }
}

/// Throughput times latency over users: Little's law says 1 where users do nothing but wait.
fn little(cell: &Cell, tally: &Tally, seconds: f64) -> Option<f64> {
    let Pace::Closed { think } = cell.pace() else { return None };
    // A login's user is busy until its QUIT is answered, which is no part of the latency.
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

/// Nothing where the server's memory grew by less than any session needs: it uses what earlier ones have left.
fn pss_per_session(cell: &Cell, audit: &Audit) -> Option<f64> {
    /// No server keeps a connection, a user and a folder in less.
    const LEAST_KIB: f64 = 0.25;
    let server = audit.server.as_ref().filter(|_| cell.op == Op::Idle)?;
    let grown = server.pss_kib_after.saturating_sub(server.pss_kib_before);
    Some(grown as f64 / f64::from(cell.users)).filter(|&kib| kib >= LEAST_KIB)
}

/// A preset's name; of its quick form, that it was no more.
pub(crate) fn titled(plan: &str, as_published: bool, quick: &[String]) -> String {
    let published = if as_published { ", as published" } else { "" };
    format!("{plan}{}{published}", if quick.is_empty() { "" } else { ", QUICK FORM" })
}

/// For other programs: `quick`, or `full`.
pub(crate) fn form(quick: &[String]) -> &'static str {
    if quick.is_empty() { "full" } else { "quick" }
}

/// What the quick form was, in a sentence: nothing of the full one.
pub(crate) fn quick_sentence(quick: &[String]) -> Option<String> {
    let all = quick.join("; ");
    (!quick.is_empty()).then(|| {
        format!("This was the quick form, which shows that all works: its figures are no answer ({all}).")
    })
}

/// Bytes as people write them: `1k`, `16m`.
pub(crate) fn short_size(bytes: u64) -> String {
    let units = [(30, "g"), (20, "m"), (10, "k")];
    let unit = units.iter().find(|(bits, _)| bytes >= 1 << bits && bytes.is_multiple_of(1 << bits));
    unit.map_or_else(|| bytes.to_string(), |(bits, name)| format!("{}{name}", bytes >> bits))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn figures(tally: Tally) -> Figures {
        Figures { tally, audit: Audit::default(), login_seconds: 0.0, timeline: Vec::new(), chaos: None }
    }

    fn cell(flags: &[(&str, &str)]) -> Cell {
        Plan::new("ftp://127.0.0.1:2121/", None, flags).unwrap().cells().remove(0)
    }

    #[test]
    fn the_clock_of_a_figure_begins_when_operations_could() {
        let (released, took) = (Instant::now(), Duration::from_millis(10));
        let mut tally = Tally { opened: Some(released), ended: Some(released + took), ..Tally::default() };
        // Another worker was let go, and done, a little earlier.
        let (opened, ended) = (Some(released - took), Some(released));
        tally.add(Tally { opened, ended, bytes: 1_000_000, ..Tally::default() });
        (0..2).for_each(|_| tally.latency.record(took));
        let flags = [("ops", "retr"), ("users", "2"), ("count", "1"), ("barrier", "on")];
        let report = CellReport::new(&cell(&flags), figures(tally));
        assert_eq!((report.seconds, report.ops_per_s, report.mb_per_s), (0.02, 100.0, 50.0));
    }

    #[test]
    fn memory_that_did_not_grow_is_no_figure_of_a_session() {
        let row = |grown: u64| {
            let pss_kib_before = 9000;
            let server = crate::host::ServerAudit {
                pss_kib_before,
                pss_kib_after: pss_kib_before + grown,
                ..Default::default()
            };
            let audit = Audit { server: Some(server), ..Audit::default() };
            let flags = [("ops", "idle"), ("users", "100")];
            let report = CellReport::new(&cell(&flags), Figures { audit, ..figures(Tally::default()) });
            (report.pss_kib_per_session, text::row(&report, false))
        };
        assert_eq!(row(800).0, Some(8.0));
        for grown in [0, 4, 24] {
            let (kib, row) = row(grown);
            assert_eq!(kib, None, "{grown}");
            assert!(row.contains("memory cannot be seen: start the server afresh"), "{row}");
        }
    }

    #[test]
    fn sizes_are_short_where_they_are_round() {
        assert_eq!(
            ["0", "1000", "1k", "1536", "16m", "2g"].map(String::from),
            [0, 1000, 1024, 1536, 16 << 20, 2 << 30].map(short_size)
        );
    }
}
