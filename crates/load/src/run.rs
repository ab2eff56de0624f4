//! Takes the figures of a plan, one after the other.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, SystemTime};

use thiserror::Error;

use crate::attendance::{Attended, Coordinator};
use crate::chaos::{ChaosReport, Deeds};
use crate::driver::{self, Driver, DriverError, Gate, WorkerTask};
use crate::elsewhere::{Generated, GeneratorError, Generators, Share, StandIn};
use crate::figure::{CellReport, Figures, GeneratorShare, Measured};
pub use crate::fixture::FixtureStep;
use crate::host::{holdings, stranger};
use crate::limits::{ephemeral_ports, users_a_process};
use crate::plan::{Cache, Cell, Dataset, MOST_FILES, Op, Plan, Settings};
use crate::progress::{FixtureProgress, Progress, Snapshot, Untold};
use crate::ramp_up::RampState;
use crate::series::{compare_with_calm, compare_with_fewer};
use crate::stop::Stop;
use crate::tally::{Live, Tally};
use crate::target::{Target, is_own_machine};
use crate::threads::{self, Look, ThreadChoice};
use crate::timeline::{self, Timeline};
use crate::worker_processes::{self, Order};
use serde::{Deserialize, Serialize};

/// Why nothing could be measured.
#[derive(Debug, Error)]
pub enum RunError {
    /// The host has no address.
    #[error("{host}: {error}")]
    Host {
        /// The host as given.
        host: String,
        /// The system's error.
        error: io::Error,
    },
    /// The address may belong to a third party: only loopback is loaded without `--allow`.
    #[error(
        "{0} is no loopback address, so the server may not be yours; to load one of your own there, say so with \
         --allow {0}"
    )]
    NotAllowed(IpAddr),
    /// The users need more descriptors than there are.
    #[error(
        "{users} users need more than the {descriptors} descriptors of this process; {most} are possible"
    )]
    TooManyUsers {
        /// How many were asked for.
        users: u32,
        /// How many are possible.
        most: u64,
        /// Why.
        descriptors: u64,
    },
    /// The bad users, all of which this process has, need more descriptors than there are.
    #[error(
        "{users} bad users need more than the {descriptors} descriptors of this process, which has all of them; {most} are \
         possible"
    )]
    TooManyBadUsers {
        /// How many were asked for.
        users: u32,
        /// How many are possible.
        most: u64,
        /// Why.
        descriptors: u64,
    },
    /// The users' control connections need more ports than there are.
    #[error(
        "{users} users need more than the {ports} ports that connections to one port can come from; --source 127.0.0.0/8 \
         takes more addresses"
    )]
    TooFewPorts {
        /// How many were asked for.
        users: u32,
        /// How many are possible.
        ports: u64,
    },
    /// The selector cannot be used.
    #[error("--selector {selector} is not permitted here: {error}; epoll always is")]
    Selector {
        /// Its name.
        selector: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// Where users were to connect from.
    #[error("--source: nothing can be sent from {address}: {error}")]
    Source {
        /// The first or the last of them.
        address: IpAddr,
        /// The system's error.
        error: io::Error,
    },
    /// The test files that were asked for.
    #[error(
        "--dataset-vs-ram: {dataset} in files of {size} bytes are {files} of them, and {most} are possible: take a larger --size, \
         or --files"
    )]
    TooManyFiles {
        /// How large all of them are.
        dataset: Dataset,
        /// How large one is.
        size: u64,
        /// How many that makes.
        files: u64,
        /// How many are possible.
        most: u64,
    },
    /// No served folder is known whose files could be dropped from the page cache.
    #[error("--cache cold: --server-root DIRECTORY must say where the target's folder is on this machine")]
    NoRoot,
    /// The server's process.
    #[error("--server-pid {0}: there is no such process")]
    NoProcess(i32),
    /// It was asked to end before there was anything to report.
    #[error("interrupted, before anything was measured")]
    Interrupted,
    /// The server, or this machine, in a cell.
    #[error(transparent)]
    Driver(DriverError),
    /// The generators that put the load on.
    #[error(transparent)]
    Generator(#[from] GeneratorError),
}

impl From<DriverError> for RunError {
    fn from(error: DriverError) -> Self {
        match error {
            DriverError::Left(_) => Self::Interrupted,
            error => Self::Driver(error),
        }
    }
}

impl RunError {
    /// Returns true if what was asked for cannot be, whatever the server does.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Interrupted | Self::Generator(GeneratorError::Lost { .. }) => false,
            Self::Driver(error) => error.is_usage(),
            _ => true,
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// Everything was measured.
    #[default]
    Complete,
    /// The user ended the run: the results are right, but incomplete.
    Interrupted,
    /// The server, or this machine, could not go on.
    Failed(String),
    /// A generator was lost: no figure counts.
    Invalid(String),
}

/// Everything that was measured of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// Where the server was found.
    pub address: SocketAddr,
    /// When the run began.
    pub began: SystemTime,
    /// One a cell of the plan, in its order.
    pub cells: Vec<CellReport>,
    /// Whether it is all there.
    pub ending: Ending,
    /// The doubts about the figures.
    pub warnings: Vec<String>,
}

/// Takes every figure of a plan.
///
/// An early end (a server that has gone, or the user's interrupt) stands in the report ([`Ending`]); it is an error
/// only where nothing was measured.
pub fn run(plan: &Plan, progress: &dyn Progress) -> Result<Measurement, RunError> {
    run_from(plan, None, progress)
}

/// Takes every figure of a plan by the load of generators, or of this process where there are none.
pub fn run_from(
    plan: &Plan,
    generators: Option<&dyn Generators>,
    progress: &dyn Progress,
) -> Result<Measurement, RunError> {
    let (cells, left_out) = permitted(plan.cells())?;
    let is_lost = |cell: &Cell| cell.settings.cache == Cache::Cold && cell.settings.server_root.is_none();
    if cells.iter().any(is_lost) {
        return Err(RunError::NoRoot);
    }
    let station = Station::open_from(plan, generators, progress)?;
    let began = SystemTime::now();
    let (mut measured, mut ended) = (Vec::new(), None);
    for (index, cell) in cells.iter().enumerate() {
        if index > 0 {
            progress.stop().pause(cell.settings.gap);
        }
        match station.take(cell, (index, cells.len()), progress) {
            Ok(report) => {
                measured.push(report);
                compare_with_fewer(&mut measured);
                measured.last().into_iter().for_each(|report| progress.cell_done(report));
            }
            Err(error) => {
                ended = Some(error);
                break;
            }
        }
    }
    let (address, caution) = (station.address, station.caution.clone());
    let was_interrupted = progress.stop().is_asked();
    let cleaned = if plan.base.keep { Ok(()) } else { station.close(progress) };
    if let Some(error) = ended.take_if(|_| measured.is_empty()) {
        return Err(error);
    }
    let mut ending = match ended {
        Some(RunError::Interrupted) => Ending::Interrupted,
        Some(error @ RunError::Generator(_)) => Ending::Invalid(error.to_string()),
        Some(error) => Ending::Failed(error.to_string()),
        None if was_interrupted => Ending::Interrupted, // in the last cell
        None => Ending::Complete,
    };
    let mut warnings: Vec<String> = caution.into_iter().collect();
    warnings.extend(left_out.map(|error| format!("figures were left out: {error}")));
    if let Err(error) = cleaned {
        let left = format!("test files were left on the server: {error}");
        match ending {
            Ending::Complete if !matches!(error, DriverError::Left(_)) => ending = Ending::Failed(left),
            _ => warnings.push(left),
        }
    }
    compare_with_calm(&mut measured);
    Ok(Measurement { address, began, cells: measured, ending, warnings })
}

/// The cells whose selector the system permits; and why there are fewer. It fails where none is left.
fn permitted(cells: Vec<Cell>) -> Result<(Vec<Cell>, Option<RunError>), RunError> {
    let (mut left_out, all) = (None, cells.len());
    let mut permits = |cell: &Cell| {
        let selector = cell.settings.selector;
        let refused =
            selector.permitted().map_err(|error| RunError::Selector { selector: selector.name(), error });
        refused.map_err(|error| left_out = Some(error)).is_ok()
    };
    let cells: Vec<Cell> = cells.into_iter().filter(|cell| permits(cell)).collect();
    match left_out {
        Some(error) if cells.is_empty() && all > 0 => Err(error),
        left_out => Ok((cells, left_out)),
    }
}

/// A server that figures are taken of, in any order.
pub struct Station<'a> {
    generators: Option<&'a dyn Generators>,
    address: SocketAddr,
    driver: Box<dyn Driver>,
    target: Target,
    helper: Option<PathBuf>,
    /// Of loads that were looked at, for their repetitions.
    chosen: Mutex<Vec<(Measured, ThreadChoice)>>,
    /// The doubt about the process that is given as the server's.
    caution: Option<String>,
}

impl<'a> Station<'a> {
    /// Checks that the plan is permitted and possible, and that a server answers.
    pub fn open(plan: &Plan, progress: &dyn Progress) -> Result<Self, RunError> {
        Self::open_from(plan, None, progress)
    }

    /// Does the same for a load of generators.
    pub fn open_from(
        plan: &Plan,
        generators: Option<&'a dyn Generators>,
        progress: &dyn Progress,
    ) -> Result<Self, RunError> {
        let address = check(plan, generators)?;
        let driver = driver::open(&plan.target, address, plan.base.patience);
        driver.reach(plan.steps.first().unwrap_or(&plan.base), FixtureProgress(progress))?;
        let (target, helper) = (plan.target.clone(), plan.helper.clone());
        let (chosen, caution) = (Mutex::default(), caution(plan));
        Ok(Self { generators, address, driver, target, helper, chosen, caution })
    }

    /// Measures one figure: cell `at` of the plan.
    pub fn take(
        &self,
        cell: &Cell,
        place: (usize, usize),
        progress: &dyn Progress,
    ) -> Result<CellReport, RunError> {
        let choice = self.choose_threads(cell, progress)?;
        let figures = self.measure(&with_threads(cell, choice.count), place, progress)?;
        let mut report = CellReport { thread_choice: Some(choice), ..CellReport::new(cell, figures) };
        if progress.stop().is_asked() {
            report.warnings.push("it was interrupted, and is of a part of its time".to_owned());
        }
        Ok(report)
    }

    /// Chooses how many threads load the server, where the cell does not say it; equal loads have equal numbers.
    pub fn choose_threads(&self, cell: &Cell, progress: &dyn Progress) -> Result<ThreadChoice, RunError> {
        if let Some(last) = self.shares(cell)?.last() {
            return Ok(ThreadChoice::known(last.all as u32, "of all generators"));
        }
        if let (workers, Some(_)) = self.workers(cell) {
            return Ok(ThreadChoice::known(
                workers as u32,
                "processes, since one has too few descriptors for all users",
            ));
        }
        // Amid bad users a load has as many as without them.
        let what = Measured { repetition: 0, seed: 0, bad_users: 0, ..Measured::of(cell) };
        let known =
            |chosen: &[(Measured, ThreadChoice)]| Some(chosen.iter().find(|one| one.0 == what)?.1.clone());
        if let Some(choice) = known(&self.chosen.lock().expect("nothing panics with it")) {
            return Ok(choice);
        }
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let choice = threads::choose(cell, cores, is_own_machine(self.address.ip()), |short| {
            let figures = self.measure(short, (0, 1), &Untold(progress))?;
            Ok::<_, RunError>(Look::of(&figures.audit, figures.tally.latency.count()))
        })?;
        self.chosen.lock().expect("nothing panics with it").push((what, choice.clone()));
        Ok(choice)
    }

    /// The shares of the generators; none where this process puts the load on.
    fn shares(&self, cell: &Cell) -> Result<Vec<Share>, RunError> {
        Ok(self.generators.map_or(Ok(Vec::new()), |generators| generators.shares(cell))?)
    }

    /// How many workers there are, and the program whose processes they are, where they are no threads.
    fn workers(&self, cell: &Cell) -> (usize, Option<&Path>) {
        let processes = worker_processes(cell, self.helper.is_some());
        let workers =
            u64::from(cell.settings.threads.unwrap_or(1)).max(processes).min(u64::from(cell.users)) as usize;
        (workers, self.helper.as_deref().filter(|_| processes > 0))
    }

    /// Takes one figure.
    fn measure(
        &self,
        cell: &Cell,
        place: (usize, usize),
        progress: &dyn Progress,
    ) -> Result<Figures, RunError> {
        let (driver, stop, fixtures) = (self.driver.as_ref(), progress.stop(), FixtureProgress(progress));
        if stop.is_asked() {
            return Err(RunError::Interrupted);
        }
        driver.prepare(cell, fixtures)?;
        let shares = self.shares(cell)?;
        let (workers, program) = self.workers(cell);
        let workers = shares.last().map_or(workers, |share| share.all);
        let parties = if shares.is_empty() { workers } else { shares.len() };
        let (gate, ramp_state) = (Gate::new(parties), RampState::new(workers));
        let lives: Vec<Live> = (0..workers).map(|_| Live::default()).collect();
        let results = Mutex::new(Vec::new());
        let (chaos, deeds) = (cell.settings.chaos.as_ref(), Deeds::default());
        let before = chaos.and(cell.settings.server_pid).and_then(holdings);
        let report = |result| results.lock().expect("no worker panics with it").push(result);
        let outcome = thread::scope(|scope| {
            let (report, gate, lives) = (&report, &gate, &lives);
            for (index, &share) in shares.iter().enumerate() {
                scope.spawn(move || report(self.stand_in(cell, (index, share), gate, lives, stop)));
            }
            for (index, live) in lives.iter().enumerate().filter(|_| self.generators.is_none()) {
                let task = WorkerTask { cell, index, workers, gate, live, ramp_state: &ramp_state, stop };
                scope.spawn(move || {
                    let tally = self.work(&task, program);
                    report(tally.map(Generated::of).map_err(RunError::from));
                });
            }
            let let_them_in = || {
                for number in 0..cell.bad_users() {
                    let (kind, deeds) = (chaos.map(|chaos| chaos.kind(number)), &deeds);
                    scope.spawn(move || kind.map(|kind| driver.misbehave(kind, deeds)));
                }
            };
            let tell = |snapshot: Snapshot<'_>| progress.tell(&Snapshot { cell: place, ..snapshot });
            let timeline = Timeline::new();
            let coordinator = Coordinator { cell, gate, lives, tell: &tell, timeline };
            let outcome = coordinator.attend(stop, let_them_in);
            deeds.end();
            outcome
        });
        let Attended { mut audit, begun, login_seconds, timeline, ran, was_in_time } = outcome;
        let (mut sum, mut courses, mut generators) = (Tally::default(), Vec::new(), Vec::new());
        for generated in results.into_inner().expect("no worker panics with it") {
            let Generated { tally, timeline, share } = generated?;
            sum.add(tally);
            courses.push(timeline);
            generators.extend(share);
        }
        generators.sort_by_key(|share: &GeneratorShare| share.number);
        audit.server.iter_mut().for_each(|server| server.is_stranger = self.caution.is_some());
        let commands = ran.map(|ran| ran.told(sum.latency.count(), sum.ended));
        if let Some(ran) = ran {
            sum.ended = sum.ended.max(Some(ran.last));
        }
        driver.check(cell, &mut sum, fixtures)?;
        if !was_in_time {
            return Err(RunError::Interrupted);
        }
        let chaos = chaos.map(|chaos| {
            let (users, server) = ([cell.users, cell.bad_users()], cell.settings.server_pid);
            ChaosReport::settle(chaos, users, &deeds, server, before)
        });
        let later = sum.opened.map_or(Duration::ZERO, |opened| opened.saturating_duration_since(begun));
        let timeline = match generators.is_empty() {
            true => timeline::since(later, timeline),
            false => timeline::merged(&courses),
        };
        Ok(Figures { tally: sum, audit, login_seconds, timeline, chaos, commands, generators })
    }

    /// Stands in for a generator.
    fn stand_in(
        &self,
        cell: &Cell,
        (index, share): (usize, Share),
        gate: &Gate<'_>,
        lives: &[Live],
        stop: &Stop,
    ) -> Result<Generated, RunError> {
        let stand_in = StandIn::new((&self.target, self.address), cell, share, gate, lives, stop);
        let generated = self.generators.map(|generators| stand_in.attend(generators, index));
        Ok(generated.unwrap_or_else(|| Ok(Generated::default()))?)
    }

    /// Runs a worker's share, on this thread or in a process.
    fn work(&self, task: &WorkerTask<'_>, program: Option<&Path>) -> Result<Tally, DriverError> {
        let Some(program) = program else { return self.driver.work(task) };
        let WorkerTask { cell, index, workers, .. } = *task;
        let (target, address) = (self.target.clone(), self.address);
        let script = cell.settings.replay.as_ref().map(|script| script.of_users(task.users()));
        worker_processes::work(
            task,
            program,
            &Order { target, address, cell: cell.clone(), index, workers, script },
        )
    }

    /// Removes the test files.
    pub fn close(self, progress: &dyn Progress) -> Result<(), DriverError> {
        progress.stop().cleans();
        let cleaned = self.driver.clean(FixtureProgress(progress));
        progress.stop().has_cleaned();
        cleaned
    }
}

/// The same cell, by this many threads.
fn with_threads(cell: &Cell, count: u32) -> Cell {
    Cell { settings: Settings { threads: Some(count), ..cell.settings.clone() }, ..cell.clone() }
}

/// A doubt before the load: the process given as the server's does not listen there.
pub fn caution(plan: &Plan) -> Option<String> {
    let settings = plan.steps.first().unwrap_or(&plan.base);
    let (pid, address) = (settings.server_pid?, plan.target.address().ok()?);
    let own = [address.port()];
    let ports = if settings.ports.is_empty() { &own[..] } else { &settings.ports[..] };
    ports.iter().find_map(|&port| stranger(pid, SocketAddr::new(address.ip(), port)))
}

/// Where the server is, if it may be loaded.
pub fn address_of(plan: &Plan) -> Result<SocketAddr, RunError> {
    let address =
        plan.target.address().map_err(|error| RunError::Host { host: plan.target.host.clone(), error })?;
    let is_allowed = is_own_machine(address.ip()) || plan.allowed.contains(&address.ip());
    if is_allowed { Ok(address) } else { Err(RunError::NotAllowed(address.ip())) }
}

/// Whether the plan may and can be run; answers where the server is.
fn check(plan: &Plan, generators: Option<&dyn Generators>) -> Result<SocketAddr, RunError> {
    let address = address_of(plan)?;
    let descriptors = millrace_net::limits::raise_descriptors();
    for cell in plan.cells() {
        driver::permits(plan.target.scheme, &cell)?;
        check_machine(&cell)?;
        check_files(&cell)?;
        if let Some(generators) = generators {
            generators.shares(&cell)?;
            continue; // each has descriptors and ports of its own
        }
        check_ports(&cell)?;
        let most = users_a_process(descriptors, cell.op.has_data());
        let users = sessions(&cell);
        let is_spread = worker_processes(&cell, plan.helper.is_some()) > 0;
        if !is_spread && u64::from(users) > most {
            return Err(RunError::TooManyUsers { users, most, descriptors });
        }
        let (users, most) = (cell.bad_users(), most / 2);
        if is_spread && u64::from(users) > most {
            return Err(RunError::TooManyBadUsers { users, most, descriptors });
        }
    }
    Ok(address)
}

/// Whether there are ports for all: connections to one port of a server differ in where they come from.
fn check_ports(cell: &Cell) -> Result<(), RunError> {
    let settings = &cell.settings;
    let sources = settings.source.map_or(1, |source| source.count());
    let ports = ephemeral_ports() * u64::from(sources) * settings.ports.len().max(1) as u64;
    let users = sessions(cell);
    if u64::from(users) > ports { Err(RunError::TooFewPorts { users, ports }) } else { Ok(()) }
}

/// Whether the files can be made at all; whether they fit on the server's disk is the driver's to find out.
fn check_files(cell: &Cell) -> Result<(), RunError> {
    let Some(dataset) = cell.settings.dataset.filter(|_| cell.op == Op::Retr) else { return Ok(()) };
    let (files, size, most) = (u64::from(cell.files()), cell.size.unwrap_or(0), MOST_FILES);
    if files > most { Err(RunError::TooManyFiles { dataset, size, files, most }) } else { Ok(()) }
}

/// The sessions that one process would have to hold.
fn sessions(cell: &Cell) -> u32 {
    // A bad user has a control connection, a data connection, and a hole.
    cell.sessions().saturating_add(cell.bad_users() * 2)
}

/// How many processes of a helper the users need; none where this process has descriptors for all.
fn worker_processes(cell: &Cell, has_helper: bool) -> u64 {
    let most = users_a_process(millrace_net::limits::raise_descriptors(), cell.op.has_data()).max(1);
    let is_enough = u64::from(sessions(cell)) <= most;
    if is_enough || !has_helper { 0 } else { u64::from(cell.sessions()).div_ceil(most) }
}

/// Whether a cell names what there is on this machine.
fn check_machine(cell: &Cell) -> Result<(), RunError> {
    if let Some(pid) = cell.settings.server_pid
        && !Path::new(&format!("/proc/{pid}")).exists()
    {
        return Err(RunError::NoProcess(pid));
    }
    let Some(source) = &cell.settings.source else { return Ok(()) };
    for user in [0, cell.sessions().saturating_sub(1)] {
        let address = source.address(user);
        TcpListener::bind((address, 0)).map_err(|error| RunError::Source { address, error })?;
    }
    Ok(())
}
