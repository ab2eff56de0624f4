//! The plan of a run: a target, and steps of settings, each of which is a few cells.
//!
//! Flags and presets are said in the same words ([`KEYS`]); a [`Plan`] is what they mean together. A [`Cell`]
//! is one figure: an operation of one size, by a number of users, in one mode.

mod dataset;
mod keys;
mod preset;
mod published;
mod script;
mod sense;
mod settings;
mod shortened;
mod value;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::dataset::Dataset;
pub(crate) use self::dataset::MOST_FILES;
pub use self::keys::{KEYS, Key};
pub use self::preset::{BUILT_IN, Form, Preset};
pub use self::published::{Line, Published, Value};
pub use self::script::{Job, Logged, Script, ScriptError};
pub use self::settings::Settings;
pub use self::value::size as parse_size;
pub use self::value::some_time as parse_time;
pub use self::value::{
    Cache, Clock, Download, HttpVersion, MODES, Mode, Names, OPS, OnDeath, Op, Prot, ReceiveBuffer,
    SourceRange, TlsVersion, ValueError,
};
use crate::chaos::Chaos;
use crate::schedule::Pace;
use crate::target::{Scheme, Target, TargetError};

/// Why there is no plan.
#[derive(Debug, Error)]
pub enum PlanError {
    /// The URL.
    #[error("{0}")]
    Target(TargetError),
    /// A flag.
    #[error("--{name}: {wrong}")]
    Flag {
        /// Its name.
        name: String,
        /// A sentence.
        wrong: String,
    },
    /// A preset's text.
    #[error("{file}:{line}: {wrong}")]
    Preset {
        /// Its file.
        file: String,
        /// Counted from 1.
        line: usize,
        /// A sentence.
        wrong: String,
    },
    /// A preset's name.
    #[error("there is no preset {0:?}")]
    NoPreset(String),
    /// A form of a preset that was published, where none is named.
    #[error("--{0} is a form of a preset, and none is named")]
    NoForm(&'static str),
}

/// The plan of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The server.
    pub target: Target,
    /// The preset's name, or `custom`.
    pub name: String,
    /// A description in a line.
    pub summary: String,
    /// Notes for the reader: ambiguities and how they were settled, and limits of comparison.
    pub notes: Vec<String>,
    /// The settings of the whole run.
    pub base: Settings,
    /// One after the other.
    pub steps: Vec<Settings>,
    /// The preset is in the form that its document had, flaws and all.
    pub as_published: bool,
    /// The settings that the quick form of the preset shortened, in words; empty in the full form.
    pub quick: Vec<String>,
    /// The document's tables.
    pub tables: Vec<Published>,
    /// Servers that are not on this machine, and may be measured all the same.
    pub allowed: Vec<IpAddr>,
    /// A program that calls [`worker_processes::serve`](crate::worker_processes::serve) where its argument says so
    /// ([`worker_processes::COMMAND`](crate::worker_processes::COMMAND)): more users than one process has descriptors for need it.
    pub helper: Option<PathBuf>,
}

/// Flags that select the load: without a preset's name they make a plan of their own.
const CHOOSING: [&str; 4] = ["ops", "size", "file", "replay"];

/// Returns true if the flags make a plan of their own.
pub(crate) fn is_chosen(flags: &[(&str, &str)]) -> bool {
    flags.iter().any(|(name, _)| CHOOSING.contains(name))
}

/// The preset of who names none, in a form; `None` where the flags make a plan of their own, which was nowhere published.
pub fn usual(name: &str, flags: &[(&str, &str)], form: Form) -> Result<Option<Preset>, PlanError> {
    match is_chosen(flags) {
        _ if form.as_published => Err(PlanError::NoForm("as-published")),
        true if form.quick => Ok(Some(Preset::of_flags(form))),
        true => Ok(None),
        false => Preset::built_in_as(name, form).map(Some),
    }
}

impl Plan {
    /// The preset of a run that names none, in a form; `None` where the flags make a plan of their own.
    pub fn usual(target: &str, flags: &[(&str, &str)], form: Form) -> Result<Option<Preset>, PlanError> {
        let target = Target::parse(target).map_err(PlanError::Target)?;
        usual(if target.scheme.is_http() { "http" } else { "default" }, flags, form)
    }

    /// Puts a target, a preset and flags together; flags override every step of the preset.
    ///
    /// `flags` are pairs of a name in [`KEYS`] and a value; `allow` may be among them, with an address.
    pub fn new(target: &str, preset: Option<&Preset>, flags: &[(&str, &str)]) -> Result<Self, PlanError> {
        let has_preset = preset.is_some();
        let target = Target::parse(target).map_err(PlanError::Target)?;
        let preset = match preset {
            Some(preset) => preset.clone(),
            None if is_chosen(flags) => Preset::of_flags(Form::default()),
            None if target.scheme.is_http() => Preset::built_in("http")?,
            None => Preset::built_in("default")?,
        };
        let Preset { name, summary, notes, base, steps, tables, mut full, as_published } = preset;
        let (quick, allowed, helper) = (Vec::new(), Vec::new(), None);
        let mut plan =
            Self { target, name, summary, notes, base, steps, as_published, quick, tables, allowed, helper };
        for &(name, value) in flags {
            let wrong =
                |wrong: ValueError| PlanError::Flag { name: name.to_owned(), wrong: wrong.to_string() };
            plan.set(name, value).map_err(wrong)?;
            if name != "allow" {
                full.iter_mut().try_for_each(|step| step.set(name, value)).map_err(wrong)?;
            }
        }
        plan.quick = shortened::shortened(&plan.steps, &full);
        sense::check(&plan, has_preset, flags)?;
        let followed = plan.steps.iter_mut().try_for_each(Settings::follow_script);
        followed.map_err(|wrong| PlanError::Flag { name: "replay".to_owned(), wrong: wrong.to_string() })?;
        plan.steps.iter_mut().chain([&mut plan.base]).for_each(Settings::find_memory);
        if plan.target.host.parse::<std::net::Ipv6Addr>().is_ok() {
            // PASV and PORT can name IPv4 ports only (RFC 2428).
            let extended = |mode: &mut Mode| match mode {
                Mode::Pasv | Mode::Epsv => *mode = Mode::Epsv,
                Mode::Port | Mode::Eprt => *mode = Mode::Eprt,
            };
            plan.steps.iter_mut().flat_map(|step| &mut step.modes).for_each(extended);
        }
        if plan.base.tls != TlsVersion::Off && plan.target.scheme == Scheme::Ftp {
            plan.target.scheme = Scheme::Ftpes;
        }
        Ok(plan)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), ValueError> {
        if name == "allow" {
            self.allowed.push(value.parse().map_err(|_| value::wrong(value, "is no address"))?);
            return Ok(());
        }
        self.base.set(name, value)?;
        self.steps.iter_mut().try_for_each(|step| step.set(name, value))
    }

    /// Every figure to measure, in order. Equal cells of two steps are measured once.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells: Vec<Cell> = Vec::new();
        for cell in self.steps.iter().flat_map(Cell::of) {
            if !cells.contains(&cell) {
                cells.push(cell);
            }
        }
        if self.base.cycle {
            cells.sort_by_key(|cell| cell.repetition); // stable: each cycle has the plan's order
        }
        cells
    }

    /// How long it takes, without logins, stragglers and the making of test files.
    pub fn time(&self) -> Duration {
        self.cells().iter().map(|cell| cell.warm_up() + cell.settings.duration).sum()
    }
}

/// One figure to take.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The users' operation.
    pub op: Op,
    /// How large its files are, where it has files.
    pub size: Option<u64>,
    /// How many users.
    pub users: u32,
    /// How data connections are made, where it has any.
    pub mode: Option<Mode>,
    /// Which of the repetitions this is, from 0.
    pub repetition: u32,
    /// Everything else.
    pub settings: Settings,
}

impl Cell {
    fn of(step: &Settings) -> Vec<Self> {
        let mut cells = Vec::new();
        for &op in &step.ops {
            let is_any_file = op == Op::Retr && step.downloads_own_file();
            let sizes = choices(op.has_size() && !is_any_file, &step.sizes_of(op));
            let name = step.file.as_ref().filter(|_| is_any_file);
            let label = step.label.as_ref().or(name);
            let modes = choices(op.has_data(), &step.modes);
            for &size in &sizes {
                for &mode in &modes {
                    for &users in &step.users {
                        for repetition in 0..step.repeat {
                            for chaos in calm_first(&step.chaos) {
                                let label = label.cloned();
                                let settings = Settings { chaos, label, ..step.clone() };
                                cells.push(Self { op, size, users, mode, repetition, settings });
                            }
                        }
                    }
                }
            }
        }
        cells
    }

    /// How its operations are paced.
    pub fn pace(&self) -> Pace {
        match self.settings.rate {
            Some(rate) => Pace::Rate(rate),
            None => Pace::Closed { think: self.settings.think },
        }
    }

    /// Its users, and those who only keep sessions open.
    pub fn sessions(&self) -> u32 {
        self.users.saturating_add(self.settings.idlers)
    }

    /// Its bad users.
    pub fn bad_users(&self) -> u32 {
        self.settings.chaos.as_ref().map_or(0, |chaos| chaos.users(self.users))
    }

    /// Returns true if users begin one after the other, and may die.
    pub fn grows(&self) -> bool {
        self.settings.on_death != OnDeath::Off
    }

    /// The warm-up: load that does not count. A load whose users begin one after the other, or all at once, or act only
    /// once, has none.
    pub fn warm_up(&self) -> Duration {
        let once = matches!(self.op, Op::Quit | Op::Replay)
            || self.settings.barrier
            || self.grows()
            || self.settings.endless;
        if once { Duration::ZERO } else { self.settings.warm_up }
    }

    /// How many test files its downloads are spread over.
    pub fn files(&self) -> u32 {
        const BUDGET: u64 = 256 << 20;
        // Only downloads are of files that are there before.
        if let Some(dataset) = self.settings.dataset.filter(|_| self.op == Op::Retr) {
            let as_many = dataset.bytes().div_ceil(self.size.unwrap_or(0).max(1)).max(1);
            return self.settings.files.unwrap_or_else(|| u32::try_from(as_many).unwrap_or(u32::MAX));
        }
        let affordable = BUDGET / self.size.unwrap_or(0).max(1);
        let files = self.settings.files.unwrap_or_else(|| affordable.clamp(1, 1000) as u32);
        files.min(self.users)
    }
}

impl Cell {
    /// The test file that a user downloads after this many others: its own, or the next of all.
    pub(crate) fn file_of(&self, user: u32, others: u32) -> u32 {
        let files = u64::from(self.files()).max(1);
        let turn = match self.settings.dataset {
            Some(_) => u64::from(others) + u64::from(self.repetition),
            None => 0,
        };
        ((u64::from(user) + turn * u64::from(self.users)) % files) as u32
    }
}

/// Puts the reference without misbehaving users before the figure with them.
fn calm_first(chaos: &Option<Chaos>) -> Vec<Option<Chaos>> {
    if chaos.is_some() { vec![None, chaos.clone()] } else { vec![None] }
}

fn choices<T: Copy>(apply: bool, values: &[T]) -> Vec<Option<T>> {
    if apply { values.iter().copied().map(Some).collect() } else { vec![None] }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "ftp://127.0.0.1:2121/";

    #[test]
    fn without_a_word_it_is_thirty_seconds() {
        let plan = Plan::new(URL, None, &[("server-pid", "1")]).unwrap();
        assert_eq!(plan.name, "default");
        assert_eq!(plan.time().as_secs(), 30);
        assert!(plan.steps.iter().all(|step| step.server_pid == Some(1)));
    }

    #[test]
    fn cells_cross_what_applies_and_nothing_else() {
        let flags = [
            ("ops", "retr,login"),
            ("size", "1k,1m"),
            ("mode", "pasv,port"),
            ("users", "1,10"),
            ("repeat", "2"),
        ];
        let cells = Plan::new(URL, None, &flags).unwrap().cells();
        assert_eq!(cells.iter().filter(|cell| cell.op == Op::Retr).count(), 2 * 2 * 2 * 2);
        assert_eq!(cells.iter().filter(|cell| cell.op == Op::Login).count(), 2 * 2);
    }

    #[test]
    fn flags_override_every_step_of_a_preset() {
        let preset = Preset::built_in("default").unwrap();
        let plan = Plan::new(URL, Some(&preset), &[("users", "3"), ("duration", "1s")]).unwrap();
        assert!(plan.cells().iter().all(|cell| cell.users == 3 && cell.settings.duration.as_secs() == 1));
    }

    #[test]
    fn a_dataset_is_as_many_files_or_as_large_ones() {
        let cell = |flags: &[(&str, &str)]| {
            let flags = [&[("ops", "retr"), ("users", "3"), ("size", "1m"), ("repeat", "2")], flags].concat();
            let mut plan = Plan::new(URL, None, &flags).unwrap();
            for step in &mut plan.steps {
                step.dataset = step.dataset.map(|dataset| Dataset { memory: 10 << 20, ..dataset });
            }
            plan.cells()
        };
        let many = &cell(&[("dataset-vs-ram", "0.75")])[0];
        assert_eq!((many.files(), many.size), (8, Some(1 << 20)));
        // Three users go round eight files, and meet each.
        let mut met: Vec<u32> = (0..8)
            .flat_map(|turn| (0..3).map(move |user| (user, turn)))
            .map(|(user, turn)| many.file_of(user, turn))
            .collect();
        assert_eq!(met[..4], [0, 1, 2, 3]);
        met.sort_unstable();
        met.dedup();
        assert_eq!(met, [0, 1, 2, 3, 4, 5, 6, 7]);
        let large = cell(&[("dataset-vs-ram", "2"), ("files", "4")]);
        assert_eq!((large[0].files(), large[0].size), (4, Some(5 << 20)));
        assert_eq!([0, 1].map(|repetition: usize| large[repetition].file_of(0, 0)), [0, 3]);
        let flags = [("ops", "idle,login,noop"), ("dataset-vs-ram", "2"), ("users", "5")];
        let others = Plan::new(URL, None, &flags).unwrap().cells();
        assert!(others.iter().all(|cell| cell.files() <= 5), "they have no files");
        let plain = &cell(&[])[0];
        assert_eq!((plain.files(), plain.file_of(2, 7)), (3, 2));
    }

    #[test]
    fn a_wrong_flag_is_named() {
        let error = Plan::new(URL, None, &[("users", "x")]).unwrap_err();
        assert!(error.to_string().starts_with("--users: "), "{error}");
        assert!(Plan::new(URL, None, &[("allow", "10.0.0.1")]).unwrap().allowed.len() == 1);
    }
}
