//! The settings of one step: what each of [`KEYS`](super::KEYS) sets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::dataset::Dataset;
use super::script::Script;
use super::value::{
    Cache, Clock, Download, HttpVersion, LONGEST, Mode, Names, OnDeath, Op, Prot, ReceiveBuffer, SourceRange,
    TlsVersion,
};
use crate::chaos::Chaos;
use crate::selector::Selector;

/// The load of one step of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // `KEYS` documents each field.
pub struct Settings {
    pub label: Option<String>,
    pub ops: Vec<Op>,
    pub sizes: Vec<u64>,
    pub users: Vec<u32>,
    pub modes: Vec<Mode>,
    pub rate: Option<f64>,
    pub think: Duration,
    pub duration: Duration,
    pub warm_up: Duration,
    pub repeat: u32,
    pub cycle: bool,
    pub gap: Duration,
    pub count: Option<u32>,
    pub total: Option<u32>,
    pub verify: bool,
    pub file: Option<String>,
    pub files: Option<u32>,
    pub dataset: Option<Dataset>,
    pub names: Names,
    pub download: Download,
    pub source: Option<SourceRange>,
    pub ports: Vec<u16>,
    pub threads: Option<u32>,
    pub selector: Selector,
    pub connecting: u32,
    pub idlers: u32,
    pub read_rate: Option<u64>,
    pub least_rate: u32,
    pub clock: Clock,
    pub on_death: OnDeath,
    pub quiet: Duration,
    pub chunk: Option<u64>,
    pub rcvbuf: ReceiveBuffer,
    pub endless: bool,
    pub barrier: bool,
    pub tls: TlsVersion,
    pub prot: Prot,
    pub resume: bool,
    pub http: HttpVersion,
    pub keep_alive: bool,
    pub raw_target: Option<String>,
    pub cgi: bool,
    pub chaos: Option<Chaos>,
    #[serde(skip)]
    pub replay: Option<Arc<Script>>,
    pub speed: f64,
    pub cache: Cache,
    pub server_root: Option<String>,
    pub ran: Option<String>,
    pub server_pid: Option<i32>,
    pub patience: Duration,
    pub seed: u64,
    pub keep: bool,
    pub handicap: Duration,
    pub said: Said,
}

/// The explicit settings of a step, by name, for readers of a report. They do not affect the load.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Said(BTreeMap<String, String>);

impl PartialEq for Said {
    /// `1k` and `1024` are the same load.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// The replay of a log would take longer than a run may.
#[derive(Debug, Error)]
#[error(
    "the log is of {:.0} hours, and a run takes at most 24: --speed {:.0} or more",
    .0.as_secs_f64() / 3600.0,
    (.0.as_secs_f64() / LONGEST.as_secs_f64()).ceil()
)]
pub(super) struct LogTooLong(Duration);

impl Settings {
    /// A replayed log also determines the number of users and the duration.
    pub(super) fn follow_script(&mut self) -> Result<(), LogTooLong> {
        /// The last transfer begins before the end.
        const AFTER_THE_LAST: Duration = Duration::from_secs(1);
        match &self.replay {
            Some(script) => {
                self.ops = vec![Op::Replay];
                self.users = vec![script.users()];
                let seconds = script.length().as_secs_f64() / self.speed;
                if seconds > LONGEST.as_secs_f64() {
                    return Err(LogTooLong(script.length()));
                }
                self.duration = Duration::from_secs_f64(seconds) + AFTER_THE_LAST;
            }
            // There is nothing to be replayed.
            None => self.ops.retain(|&op| op != Op::Replay),
        }
        Ok(())
    }

    /// A setting was said, and taken.
    pub(super) fn note(&mut self, name: &str, value: &str) {
        let value = if value.is_empty() { "on" } else { value };
        self.said.0.insert(name.to_owned(), value.to_owned());
    }

    /// The explicit settings, and the defaults of those that bound every figure.
    pub fn told(&self) -> BTreeMap<String, String> {
        let mut told = self.said.0.clone();
        let time = |time: Duration| format!("{}s", time.as_secs_f64());
        for (name, value) in [
            ("duration", time(self.duration)),
            ("warm-up", time(self.warm_up)),
            ("timeout", time(self.patience)),
            ("threads", self.threads.map_or_else(|| "auto".to_owned(), |threads| threads.to_string())),
            ("rcvbuf", self.rcvbuf.to_string()),
        ] {
            told.entry(name.to_owned()).or_insert(value);
        }
        told
    }

    /// How large files are; where their total size is given, the size of each.
    pub(super) fn sizes_of(&self, op: Op) -> Vec<u64> {
        match (&self.dataset, self.files) {
            (Some(dataset), Some(files)) if op == Op::Retr => vec![dataset.bytes() / u64::from(files)],
            _ => self.sizes.clone(),
        }
    }

    /// The memory of the server's process, where that is known by now.
    pub(super) fn find_memory(&mut self) {
        self.dataset = self.dataset.map(|dataset| Dataset::of(dataset.times, self.server_pid));
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            label: None,
            ops: vec![Op::Retr],
            sizes: vec![1024],
            users: vec![100],
            modes: vec![Mode::Pasv],
            rate: None,
            think: Duration::ZERO,
            duration: Duration::from_secs(5),
            warm_up: Duration::from_millis(500),
            repeat: 1,
            cycle: false,
            gap: Duration::ZERO,
            count: None,
            total: None,
            verify: false,
            file: None,
            files: None,
            dataset: None,
            names: Names::Same,
            download: Download::Made,
            source: None,
            ports: Vec::new(),
            threads: None,
            selector: Selector::Epoll,
            // The server's backlog is not the subject of the measurement.
            connecting: 32,
            idlers: 0,
            read_rate: None,
            least_rate: 0,
            clock: Clock::FirstByte,
            on_death: OnDeath::Off,
            quiet: Duration::from_secs(10),
            chunk: None,
            rcvbuf: ReceiveBuffer::Auto,
            endless: false,
            barrier: false,
            tls: TlsVersion::Off,
            prot: Prot::Private,
            resume: true,
            http: HttpVersion::Http11,
            keep_alive: true,
            raw_target: None,
            cgi: false,
            chaos: None,
            replay: None,
            speed: 1.0,
            cache: Cache::Any,
            server_root: None,
            ran: None,
            server_pid: None,
            patience: Duration::from_secs(60),
            seed: 1,
            keep: false,
            handicap: Duration::ZERO,
            said: Said::default(),
        }
    }
}
