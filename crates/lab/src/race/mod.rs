//! Races: several servers under the same loads, in random order, so that the machine's moods cancel out.
//!
//! A race is made of **blocks**. In each, every server is started afresh, and every load is put on all of them, one
//! after the other in an order that is drawn anew. A comparison is of two figures of the same load and block, so what
//! moved both drops out; a [`sentinel`] between the blocks says how much the machine moved. Everything that is drawn
//! follows from the seed.

mod comparison;
mod conclusions;
mod entrant;
mod report;
mod scenario;
mod sentinel;
mod slices;
pub mod text;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use thiserror::Error;

pub use self::comparison::{Comparison, METRICS, Metric, Outcome};
pub(crate) use self::conclusions::in_a_row;
pub use self::entrant::Entrant;
use self::entrant::Started;
pub use self::report::{Contestant, RaceReport, ReportError, SentinelReport};
pub use self::scenario::{Scenario, Standing};
pub use self::slices::{SLICE, SlicedLoad, mean_ratio};
use crate::peers::{PeerError, Ports};
use millrace_load::driver;
use millrace_load::figure::CellReport;
use millrace_load::fixture::FixtureStep;
use millrace_load::plan::{Cell, Form, Op, Plan, PlanError, Preset, usual};
use millrace_load::progress::{Progress, Silent, Snapshot};
use millrace_load::run::Ending;
use millrace_load::run::{RunError, Station, address_of};
use millrace_load::stop::Stop;
use millrace_load::target::TargetError;
use millrace_stats::Random;

/// Blocks, where no number is given: fewer leave intervals too wide to be useful.
const BLOCKS: u32 = 5;

/// Settings of a single server, known for those that a race starts.
const FOUND: [&str; 2] = ["server-pid", "server-root"];

/// Why there is no race.
#[derive(Debug, Error)]
pub enum RaceError {
    /// A URL.
    #[error("{0}")]
    Target(TargetError),
    /// Fewer than two servers, or no server of the reference's name.
    #[error("{0}")]
    Usage(String),
    /// The settings.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A server.
    #[error(transparent)]
    Peer(PeerError),
    /// The measurement.
    #[error(transparent)]
    Run(#[from] RunError),
    /// This machine.
    #[error("this machine: {0}")]
    Machine(#[from] std::io::Error),
}

impl From<PeerError> for RaceError {
    fn from(error: PeerError) -> Self {
        match error {
            PeerError::Left => Self::Run(RunError::Interrupted),
            error => Self::Peer(error),
        }
    }
}

impl RaceError {
    /// Returns true if what was asked for cannot be, whatever server and machine do.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Target(_) | Self::Usage(_) | Self::Plan(_) => true,
            Self::Peer(error) => error.is_usage(),
            Self::Run(error) => error.is_usage(),
            Self::Machine(_) => false,
        }
    }
}

/// A race: the servers and the loads.
#[derive(Debug, Clone)]
pub struct Race {
    entrants: Vec<Entrant>,
    /// The reference server's index.
    against: usize,
    preset: Option<Preset>,
    flags: Vec<(String, String)>,
    /// The loads of every server.
    cells: Vec<Cell>,
    blocks: u32,
    seed: u64,
    place: PathBuf,
    helper: Option<PathBuf>,
    warnings: Vec<String>,
}

/// Settings of a race besides the servers and the loads.
#[derive(Debug, Clone, Default)]
pub struct Settings<'a> {
    /// The reference that the others are compared with; the first server by default.
    pub against: Option<&'a str>,
    /// How many times each figure is taken; else what the plan repeats, or five.
    pub blocks: Option<u32>,
    /// Of every order that is drawn.
    pub seed: u64,
    /// A folder on the disk to measure; else the system's for temporary files.
    pub place: Option<PathBuf>,
    /// As a [`Plan`]'s: more users than one process has descriptors for need it.
    pub helper: Option<PathBuf>,
    /// Of the race without a preset.
    pub form: Form,
}

/// One figure's place in a race.
#[derive(Debug, Clone, Copy)]
pub struct Turn<'a> {
    /// From 0, and of how many.
    pub block: (u32, u32),
    /// Over all blocks: from 0, and of how many.
    pub figure: (usize, usize),
    /// The server.
    pub entrant: &'a str,
    /// Of what.
    pub cell: &'a Cell,
}

/// Receives progress of a race.
pub trait Watcher {
    /// A figure is about to be taken.
    fn begins(&self, turn: &Turn<'_>);
    /// Called often while there is work between the figures: how many are done, and of how many.
    fn between(&self, _: FixtureStep, _done: usize, _all: usize) {}
    /// The request to end the race, with the figures so far.
    fn stop(&self) -> &Stop {
        Stop::never()
    }
}

impl Watcher for Silent {
    fn begins(&self, _: &Turn<'_>) {}
}

impl Race {
    /// Puts a race together; `flags` are those of a [`Plan`].
    pub fn new(
        mut entrants: Vec<Entrant>,
        preset: Option<&Preset>,
        flags: &[(&str, &str)],
        settings: Settings<'_>,
    ) -> Result<Self, RaceError> {
        if entrants.len() < 2 {
            return Err(RaceError::Usage("a race needs at least two servers".to_owned()));
        }
        Entrant::tell_apart(&mut entrants);
        Entrant::agree(&mut entrants)?;
        if entrants.iter().any(Entrant::is_over_tls)
            || flags.iter().any(|flag| flag.0 == "tls" && flag.1 != "off")
        {
            Entrant::encrypt(&mut entrants)?;
        }
        let found = flags.iter().find(|flag| FOUND.contains(&flag.0));
        if let Some((name, _)) = found.filter(|_| entrants.iter().any(Entrant::is_started)) {
            return Err(RaceError::Usage(format!(
                "--{name}: a race finds that out itself of the servers that it starts, and one flag cannot be of several"
            )));
        }
        let against = match settings.against {
            None => 0,
            Some(name) => entrants.iter().position(|entrant| entrant.label == name).ok_or_else(|| {
                let labels: Vec<_> = entrants.iter().map(|entrant| entrant.label.as_str()).collect();
                RaceError::Usage(format!("--against {name:?} takes no part, only {}", labels.join(", ")))
            })?,
        };
        let preset = match preset {
            Some(preset) => Some(preset.clone()),
            None if entrants[0].is_over_http() => usual("http", &[], settings.form)?,
            None => usual("race", flags, settings.form)?,
        };
        let mut race = Self {
            entrants,
            against,
            preset,
            flags: flags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            cells: Vec::new(),
            blocks: 0,
            seed: settings.seed,
            place: settings.place.unwrap_or_else(std::env::temp_dir),
            helper: settings.helper,
            warnings: Vec::new(),
        };
        let plan = race.plan(Entrant::anyone(&race.entrants), None)?;
        let repeated = plan.cells().iter().map(|cell| cell.repetition + 1).max().unwrap_or(1);
        race.blocks = settings.blocks.unwrap_or(if repeated > 1 { repeated } else { BLOCKS });
        race.cells = plan.cells().into_iter().filter(|cell| cell.repetition == 0).collect();
        for cell in &race.cells {
            driver::permits(plan.target.scheme, cell).map_err(RunError::from)?;
        }
        for url in race.entrants.iter().filter_map(Entrant::url) {
            address_of(&race.plan(url, None)?)?;
        }
        race.leave_out_listings();
        Ok(race)
    }

    /// How long it takes, without starts, logins, stragglers and the making of test files.
    pub fn time(&self) -> Duration {
        let once: Duration =
            self.cells.iter().map(|cell| cell.settings.warm_up + cell.settings.duration).sum();
        once * self.blocks * self.entrants.len() as u32
    }

    /// Runs it.
    ///
    /// An early end (a server that does not come up again, or an interrupt) stands in the report ([`Ending`]); it is an
    /// error only where nothing was measured.
    pub fn run(&self, watcher: &dyn Watcher) -> Result<RaceReport, RaceError> {
        let began = SystemTime::now();
        let plan = self.plan(Entrant::anyone(&self.entrants), None)?;
        let mut draws = Random::new(self.seed);
        let mut course = Course::new(self, watcher);
        let mut readings = vec![sentinel::reading()?];
        let mut ending = Ending::Complete;
        for block in 0..self.blocks {
            match course.block(block, &mut draws).and_then(|()| Ok(sentinel::reading()?)) {
                Ok(reading) => readings.push(reading),
                Err(error) if course.figures.is_empty() => return Err(error),
                Err(RaceError::Run(RunError::Interrupted)) => ending = Ending::Interrupted,
                Err(error) => ending = Ending::Failed(error.to_string()),
            }
            if ending != Ending::Complete {
                break;
            }
        }
        let Course { figures, contestants, .. } = course;
        Ok(RaceReport::new(self, &plan, began, contestants, figures, readings, ending))
    }

    /// The plan for one of them.
    fn plan(&self, url: &str, pid: Option<i32>) -> Result<Plan, PlanError> {
        let mut flags: Vec<(&str, &str)> =
            self.flags.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let pid = pid.map(|pid| pid.to_string());
        if let Some(pid) = &pid {
            flags.push(("server-pid", pid));
        }
        let plan = Plan::new(url, self.preset.as_ref(), &flags)?;
        Ok(Plan { helper: self.helper.clone(), ..plan })
    }

    /// A server that runs already lists what it has, which is not what the others list.
    fn leave_out_listings(&mut self) {
        if self.entrants.iter().all(Entrant::is_started) {
            return;
        }
        let before = self.cells.len();
        self.cells.retain(|cell| !entrant::is_of_listed(cell));
        if self.cells.len() < before {
            self.warnings.push(
                "the listing was left out: a server that was not started for the race lists a folder of its own"
                    .to_owned(),
            );
        }
    }
}

/// A figure, or why it is missing.
struct Figure {
    cell: usize,
    entrant: usize,
    block: u32,
    outcome: Result<CellReport, FigureError>,
}

/// Why a figure is missing.
#[derive(Debug, thiserror::Error)]
#[error("{error}{}", output.as_ref().map_or_else(String::new, |output| format!("; the server said: {output}")))]
struct FigureError {
    error: RunError,
    /// What the server that was started for the race has printed.
    output: Option<String>,
}

/// A race that is being run.
struct Course<'a> {
    race: &'a Race,
    watcher: &'a dyn Watcher,
    taken: usize,
    /// How many threads of this client each load has, on every server: the most that any of them takes.
    threads: Vec<Option<u32>>,
    figures: Vec<Figure>,
    contestants: Vec<Contestant>,
}

/// A server that is ready to be loaded, in this block.
struct Ready {
    started: Started,
    station: Station<'static>,
    /// As the race's, with its process.
    cells: Vec<Cell>,
}

impl<'a> Course<'a> {
    fn new(race: &'a Race, watcher: &'a dyn Watcher) -> Self {
        let threads = vec![None; race.cells.len()];
        Self { race, watcher, taken: 0, threads, figures: Vec::new(), contestants: Vec::new() }
    }
}

impl Course<'_> {
    fn block(&mut self, block: u32, draws: &mut Random) -> Result<(), RaceError> {
        let race = self.race;
        let ready = (0..race.entrants.len()).map(|at| self.start(at)).collect::<Result<Vec<_>, _>>()?;
        if self.contestants.is_empty() {
            let entrants = race.entrants.iter().zip(&ready);
            self.contestants =
                entrants.map(|(entrant, ready)| Contestant::new(entrant, &ready.started)).collect();
        }
        let mut turns: Vec<usize> = (0..race.cells.len()).collect();
        draws.shuffle(&mut turns);
        // The cost of an idle session is measured on a server that has not done anything else yet.
        turns.sort_by_key(|&cell| race.cells[cell].op != Op::Idle);
        for cell in turns {
            let mut order: Vec<usize> = (0..race.entrants.len()).collect();
            draws.shuffle(&mut order);
            if self.threads[cell].is_none() {
                self.threads[cell] = self.choose_threads(cell, &ready)?;
            }
            for entrant in order {
                self.take(block, cell, entrant, &ready[entrant])?;
            }
        }
        self.end(ready)
    }

    /// Removes the test files on servers that go on: one that was started for the race ends with its folder.
    fn end(&self, ready: Vec<Ready>) -> Result<(), RaceError> {
        for Ready { started, station, .. } in ready {
            if started.process.is_none() {
                station.close(&Figures(self.watcher)).map_err(RunError::from)?;
            }
        }
        Ok(())
    }

    fn start(&self, at: usize) -> Result<Ready, RaceError> {
        let race = self.race;
        self.go_on()?;
        let ports = Ports::free(at, race.entrants.len())?;
        let started = race.entrants[at].start(ports, &race.place, &race.cells, self.watcher.stop())?;
        let pid = started.process.as_ref().map(|process| process.pid());
        let plan = race.plan(&started.url, pid)?;
        let mut cells = race.cells.clone();
        if let Some(process) = &started.process {
            let root = process.files();
            for settings in cells.iter_mut().map(|cell| &mut cell.settings) {
                settings.server_pid = pid;
                settings.server_root.get_or_insert_with(|| root.to_string_lossy().into_owned());
            }
        }
        Ok(Ready { station: Station::open(&plan, &Figures(self.watcher))?, started, cells })
    }

    /// Chooses the number of threads for a load of all servers: with different ones they would not be compared.
    fn choose_threads(&self, cell: usize, ready: &[Ready]) -> Result<Option<u32>, RaceError> {
        let mut most = None;
        for Ready { station, cells, .. } in ready {
            let choice = station.choose_threads(&cells[cell], &Figures(self.watcher));
            most = most.max(Some(choice.map_err(RaceError::from)?.count));
        }
        Ok(most)
    }

    /// Fails where the user has asked to end it.
    fn go_on(&self) -> Result<(), RaceError> {
        if self.watcher.stop().is_asked() { Err(RunError::Interrupted.into()) } else { Ok(()) }
    }

    /// Measures a figure, unless the user asks to end it: a partial figure would be compared with whole ones.
    fn take(&mut self, block: u32, cell: usize, entrant: usize, ready: &Ready) -> Result<(), RaceError> {
        let race = self.race;
        self.go_on()?;
        let all = race.blocks as usize * race.entrants.len() * race.cells.len();
        let mut what = Cell { repetition: block, ..ready.cells[cell].clone() };
        what.settings.threads = self.threads[cell];
        self.watcher.begins(&Turn {
            block: (block, race.blocks),
            figure: (self.taken, all),
            entrant: &race.entrants[entrant].label,
            cell: &what,
        });
        let outcome = ready.station.take(&what, (self.taken, all), &Figures(self.watcher));
        self.go_on()?;
        let outcome = outcome.map_err(|error| {
            let output = ready.started.process.as_ref().map(|process| process.said());
            FigureError { error, output }
        });
        self.taken += 1;
        self.figures.push(Figure { cell, entrant, block, outcome });
        Ok(())
    }
}

/// Of a figure's progress the watcher hears what comes between figures, and when it is to end.
struct Figures<'a>(&'a dyn Watcher);

impl Progress for Figures<'_> {
    fn tell(&self, _: &Snapshot<'_>) {}
    fn cell_done(&self, _: &CellReport) {}
    fn between(&self, step: FixtureStep, done: usize, all: usize) {
        self.0.between(step, done, all);
    }
    fn stop(&self) -> &Stop {
        self.0.stop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "ftp://a:b@127.0.0.1:2121/";

    fn race(flags: &[(&str, &str)], settings: Settings<'_>) -> Result<Race, RaceError> {
        Race::new(vec![Entrant::parse(URL)?, Entrant::parse(URL)?], None, flags, settings)
    }

    #[test]
    fn a_race_for_two_takes_about_two_minutes() {
        let time = race(&[], Settings::default()).unwrap().time();
        assert!((50..=120).contains(&time.as_secs()), "{time:?}");
    }

    #[test]
    fn blocks_are_what_the_plan_repeats() {
        let flags = [("ops", "noop"), ("repeat", "9")];
        let nine = race(&flags, Settings::default()).unwrap();
        assert_eq!((nine.blocks, nine.cells.len()), (9, 1));
        assert_eq!(race(&flags[..1], Settings::default()).unwrap().blocks, BLOCKS);
        assert_eq!(race(&flags, Settings { blocks: Some(2), ..Settings::default() }).unwrap().blocks, 2);
    }

    #[test]
    fn one_server_is_no_race_and_a_stranger_no_reference() {
        let alone = Race::new(vec![Entrant::parse(URL).unwrap()], None, &[], Settings::default());
        assert!(alone.unwrap_err().is_usage());
        let error = race(&[], Settings { against: Some("proftpd"), ..Settings::default() }).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("#2"), "{error}");
    }

    #[test]
    fn unsupported_operations_are_refused_before_servers_start() {
        let entrants = ["http://127.0.0.1:1/", "http://127.0.0.1:2/"].map(|url| Entrant::parse(url).unwrap());
        let race = Race::new(entrants.to_vec(), None, &[("ops", "noop")], Settings::default());
        let error = race.unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("noop cannot be measured"), "{error}");
    }

    #[test]
    fn a_server_that_may_not_be_loaded_is_refused_before_anybody_starts() {
        let start = |flags: &[(&str, &str)]| {
            let entrants = [URL, "ftp://192.0.2.9/"].map(|url| Entrant::parse(url).unwrap());
            Race::new(entrants.to_vec(), None, flags, Settings::default())
        };
        let error = start(&[]).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("--allow 192.0.2.9"), "{error}");
        assert!(start(&[("allow", "192.0.2.9")]).is_ok());
    }

    #[test]
    fn tls_flags_are_allowed_in_a_race_over_tls() {
        let start = |url: &str| {
            let entrants = [url, url].map(|url| Entrant::parse(url).unwrap());
            Race::new(entrants.to_vec(), None, &[("prot", "clear")], Settings::default()).map(drop)
        };
        assert!(start("ftpes://a:b@127.0.0.1:2121/").is_ok());
        assert!(start(URL).unwrap_err().to_string().starts_with("--prot: "));
    }

    #[test]
    fn servers_of_others_are_not_made_to_list_what_they_have() {
        let race = race(&[], Settings::default()).unwrap();
        assert!(race.cells.iter().all(|cell| cell.op != Op::List) && race.warnings.len() == 1);
    }
}
