//! `millrace bench`: loads a server, and says what it can do and what the figures are worth.

mod flags;
mod gate;
mod live;
pub(crate) mod output;
pub(crate) mod progress;

use std::fmt::Display;
use std::io::{Write, stderr, stdin, stdout};
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use millrace_generators::fleet::Fleet;
use millrace_generators::generator;
use millrace_generators::planning::{self, Measurements};
use millrace_lab::from_log::LogRates;
use millrace_lab::gate::GateOutcome;
use millrace_lab::race::RaceError;
use millrace_lab::report::{Report, command};
use millrace_lab::run::run_from as measure;
use millrace_lab::search::{Capacity, Criterion, Slo, Sought, search_from};
use millrace_load::elsewhere::{GeneratorError, Generators};
use millrace_load::figure::CellReport;
use millrace_load::host::server_at;
use millrace_load::plan::{BUILT_IN, Form, Op, Plan, PlanError, Preset};
use millrace_load::progress::Progress;
use millrace_load::run::Ending;
use millrace_load::run::{RunError, address_of, caution};
use millrace_load::stop::{Asked, Stop};
use millrace_load::verdict::Bound;
use millrace_terminal::{Failure, print};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

pub use self::flags::Bench;
pub(crate) use self::flags::Flags;
use self::gate::Gate;
use self::live::Live;
use self::output::Output;
use self::progress::Line;

/// Exit status: a threshold or an operation failed, or bytes were wrong.
pub(crate) const FAILED: u8 = 1;
/// Exit status: the figures tell nothing of the server.
pub(crate) const INCONCLUSIVE: u8 = 3;

/// The setting that names the server's process.
const SERVER_PID: &str = "server-pid";

/// Two signals within this time are one.
const ECHO: Duration = Duration::from_millis(500);

/// The request to end a run.
static STOP: Stop = Stop::new();

/// Runs the command.
pub fn run(arguments: &Bench) -> Result<ExitCode, Failure> {
    if let Some(path) = &arguments.read {
        return show(path, arguments);
    }
    if let Some(path) = &arguments.from_log {
        return show_log(path, arguments);
    }
    if !arguments.plan.is_empty() {
        return plan_site(arguments);
    }
    let Some(target) = &arguments.target else { return list() };
    if let Some(baseline) = &arguments.baseline_server {
        return gate::interleaved(arguments, baseline, target);
    }
    let form = Form { as_published: arguments.as_published, quick: arguments.quick };
    let mut settings = arguments.settings();
    let preset = match &arguments.preset {
        Some(name) => Some(preset(name, form)?),
        None if form == Form::default() => None,
        None => Plan::usual(target, &settings, form).map_err(advise_plan)?,
    };
    let mut plan = Plan::new(target, preset.as_ref(), &settings).map_err(advise_plan)?;
    let pid = server_of(&plan).map(|pid| pid.to_string());
    if let Some(pid) = &pid {
        settings.push((SERVER_PID, pid.as_str()));
        plan = Plan::new(target, preset.as_ref(), &settings).map_err(advise_plan)?;
    }
    plan.helper = std::env::current_exe().ok();
    report_on_signals(&STOP, say_what_is_left)?;
    if let Some(caution) = caution(&plan) {
        let _ = writeln!(stderr(), "warning: {caution}.");
    }
    let fleet = generators(&plan, arguments)?;
    match arguments.search {
        // A search is many runs, and a line is enough for each.
        Some(_) => find(&plan, fleet.as_ref(), arguments, &Line::new(plan.cells().len())),
        None => figures(&plan, fleet.as_ref(), arguments),
    }
}

/// The process of a server on this machine, where the plan names none: the one that listens there.
fn server_of(plan: &Plan) -> Option<i32> {
    let is_named = plan.steps.iter().chain([&plan.base]).any(|step| step.server_pid.is_some());
    let address = plan.target.address().ok().filter(|address| address.ip().is_loopback() && !is_named)?;
    server_at(address)
}

/// Runs a part of another process's load, by that process's order.
pub fn work() -> Result<(), Failure> {
    millrace_load::worker_processes::serve(stdin(), stdout()).map_err(|error| {
        Failure::Running(format!("this is a part of \"millrace bench\", which starts it: {error}."))
    })
}

/// Is a generator of another process's load, by that process's orders.
pub fn generate() -> Result<(), Failure> {
    generator::serve(stdin(), stdout()).map_err(|error| {
        Failure::Running(format!("this is a generator of \"millrace bench\", which starts it: {error}."))
    })
}

/// Starts the generators that `--from` names, if it names any.
fn generators(plan: &Plan, arguments: &Bench) -> Result<Option<Fleet>, Failure> {
    if arguments.from.is_empty() {
        return Ok(None);
    }
    let address = address_of(plan).map_err(advise_run)?;
    let program = std::env::current_exe()
        .map_err(|error| Failure::Running(format!("this program cannot be found: {error}.")))?;
    let threads = plan.base.threads;
    let fleet = Fleet::start(&arguments.from, (&program, &arguments.ssh), threads, address);
    fleet.map(Some).map_err(|error| Failure::Configuration(sentence(&error)))
}

fn figures(plan: &Plan, fleet: Option<&Fleet>, arguments: &Bench) -> Result<ExitCode, Failure> {
    if arguments.compat.is_some() && plan.cells().iter().all(|cell| cell.op != Op::Get) {
        return Err(no_compat());
    }
    let (gate, output) = (Gate::open(arguments, plan)?, Output::open(arguments)?);
    let elsewhere = fleet.map(|fleet| fleet as &dyn Generators);
    let report = match Live::open(plan) {
        Some(live) => measure(plan, elsewhere, &live),
        None => measure(plan, elsewhere, &Line::new(plan.cells().len())),
    };
    let Some(report) = unless_interrupted(report)? else { return Ok(ExitCode::from(INCONCLUSIVE)) };
    let report = Report { command: command::of_this_process(), ..report };
    let judgement = gate.judge(&report);
    output.write(&report, &judgement.text)?;
    let otherwise = match (judgement.outcome, judgement.relative) {
        // What was asked is decided by ratios, which know of a figure's limit.
        (None, Some(_)) => Some(GateOutcome::Passed),
        (outcome, _) => outcome,
    };
    Ok(ExitCode::from(judgement.status(status(&report, otherwise, &|cell| gate.allows_failures(cell)))))
}

/// `--read`.
fn show(path: &Path, arguments: &Bench) -> Result<ExitCode, Failure> {
    let wrong = |what: String| Failure::Configuration(format!("--read {}: {what}.", path.display()));
    if let Some((name, _)) = arguments.settings().first() {
        return Err(wrong(format!("it was measured already, and --{name} comes too late")));
    }
    let output = Output::open(arguments)?;
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let report = Report::parse(&text).map_err(wrong)?;
    if arguments.compat.is_some() && report.cells.iter().all(|cell| cell.http.is_none()) {
        return Err(no_compat());
    }
    output.write(&report, "")?;
    Ok(ExitCode::from(status(&report, None, &|_| false)))
}

/// `--from-log`.
fn show_log(path: &Path, arguments: &Bench) -> Result<ExitCode, Failure> {
    let wrong = |what: String| Failure::Configuration(format!("--from-log {}: {what}.", path.display()));
    let text = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let rates = LogRates::parse(&String::from_utf8_lossy(&text)).map_err(|error| wrong(error.to_string()))?;
    Output::open(arguments)?.write_rates(&rates)?;
    Ok(ExitCode::SUCCESS)
}

/// `--plan`.
fn plan_site(arguments: &Bench) -> Result<ExitCode, Failure> {
    let wrong = |what: String| Failure::Configuration(format!("--plan: {what}."));
    let mut measured = Measurements::new();
    for path in &arguments.plan {
        let wrong = |error: &dyn Display| wrong(format!("{}: {error}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
        planning::read(&text, &mut measured).map_err(|error| wrong(&error))?;
    }
    let settings = arguments.settings();
    let [("users", users)] = settings[..] else {
        return Err(wrong("it takes --users, and no other setting of a load".to_owned()));
    };
    let users = users.parse().map_err(|_| wrong(format!("--users {users:?} is no number")))?;
    let percent = arguments.headroom.trim_end_matches('%').parse::<f64>();
    let headroom =
        percent.map_err(|_| wrong(format!("--headroom {:?} is no share", arguments.headroom)))? / 100.0;
    let plan = planning::plan(&measured, &arguments.need, users, headroom);
    print(&plan.map_err(|error| wrong(error.to_string()))?.to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn no_compat() -> Failure {
    Failure::Configuration("--compat zb is for figures over HTTP.".to_owned())
}

/// `None`, and a message, if the user interrupted, or a generator was lost, before the first figure.
fn unless_interrupted<T>(found: Result<T, RunError>) -> Result<Option<T>, Failure> {
    match found {
        Err(error @ (RunError::Interrupted | RunError::Generator(GeneratorError::Lost { .. }))) => {
            eprintln!("millrace: {error}.");
            Ok(None)
        }
        found => found.map(Some).map_err(advise_run),
    }
}

/// Of a run that was ended at once.
fn say_what_is_left() {
    let _ = writeln!(
        stderr(),
        "\nmillrace: ended at once; test files (millrace-bench-*) may be left on the server."
    );
}

/// Ctrl-C ends a run with what it has, and leaves test files where they are if it comes while they are removed; one
/// more ends it at once, after `leave`.
pub(crate) fn report_on_signals(stop: &'static Stop, leave: fn()) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|error| Failure::Running(format!("no signals can be received: {error}.")))?;
    thread::spawn(move || {
        let mut heard = None;
        for signal in signals.forever() {
            if is_echo(&mut heard, Instant::now()) {
                continue;
            }
            if stop.ask() == Asked::Again {
                leave();
                std::process::exit(128 + signal);
            }
        }
    });
    Ok(())
}

/// Returns true if a signal came right after one that was handled: `timeout` sends its signal to the child and to the
/// group, so one request arrives twice.
fn is_echo(heard: &mut Option<Instant>, now: Instant) -> bool {
    let is_echo = heard.is_some_and(|heard| now.saturating_duration_since(heard) < ECHO);
    if !is_echo {
        *heard = Some(now);
    }
    is_echo
}

/// A lost generator, or one that was the limit, makes all invalid. With thresholds, their outcome decides; otherwise a limit that hides the server's. Wrong bytes, failures that no
/// threshold allows, and a server that does nothing or has gone come before both.
fn status(report: &Report, asked: Option<GateOutcome>, allows_failures: &dyn Fn(&CellReport) -> bool) -> u8 {
    let is_hidden = || report.cells.iter().any(|cell| cell.verdict.bound.hides_the_server());
    let is_dead = report.cells.iter().any(|cell| cell.is_barren() && cell.verdict.bound != Bound::Client);
    match asked {
        _ if matches!(report.ending, Ending::Invalid(_)) => INCONCLUSIVE,
        _ if is_dead || report.has_wrong_data() => FAILED,
        _ if report.cells.iter().any(|cell| cell.has_failures() && !allows_failures(cell)) => FAILED,
        _ if matches!(report.ending, Ending::Failed(_)) => FAILED,
        _ if report.cells.iter().any(CellReport::is_of_its_generators) => INCONCLUSIVE,
        Some(GateOutcome::Failed) => FAILED,
        _ if report.ending == Ending::Interrupted => INCONCLUSIVE,
        Some(GateOutcome::Inconclusive) => INCONCLUSIVE,
        Some(GateOutcome::Passed) => 0,
        None => {
            let misses = report.cells.iter().any(CellReport::misses_its_load);
            if is_hidden() || misses || report.is_unsteady() { INCONCLUSIVE } else { 0 }
        }
    }
}

fn find(
    plan: &Plan,
    fleet: Option<&Fleet>,
    arguments: &Bench,
    progress: &dyn Progress,
) -> Result<ExitCode, Failure> {
    if !arguments.fail_if.is_empty() || arguments.baseline.is_some() {
        return Err(Failure::Configuration(
            "a search has no figures for --fail-if and --baseline.".to_owned(),
        ));
    }
    if arguments.markdown.is_some() || arguments.compat.is_some() {
        return Err(Failure::Configuration(
            "a search has no table for --markdown and --compat; it has --json, --html and --csv.".to_owned(),
        ));
    }
    if plan.steps.iter().any(|step| step.replay.is_some()) {
        return Err(Failure::Configuration(
            "a log says how many users it has: --replay has no --search.".to_owned(),
        ));
    }
    let sought = if arguments.search.as_deref() == Some("rate") { Sought::Rate } else { Sought::Users };
    let slo = arguments.slo.as_deref().map(Slo::parse).transpose();
    let slo = slo.map_err(|error| Failure::Configuration(format!("--slo: {error}.")))?;
    if sought == Sought::Rate && (slo.is_none() || plan.steps.iter().any(|step| !step.think.is_zero())) {
        return Err(Failure::Configuration(
            "--search rate takes a limit, such as --slo p99=10ms, and no --think.".to_owned(),
        ));
    }
    if sought == Sought::Users && plan.steps.iter().any(|step| step.rate.is_some()) {
        return Err(Failure::Configuration(
            "--rate is shared by all users, so that with more of them each gets less: a search takes --think.".to_owned(),
        ));
    }
    let output = Output::open(arguments)?;
    let (most, ceiling) = match sought {
        Sought::Users => (arguments.most_users(plan, fleet), arguments.ceiling(fleet)),
        Sought::Rate => (arguments.highest_rate(plan), None),
    };
    let criterion = Criterion { slo, ..Criterion::default() };
    let elsewhere = fleet.map(|fleet| fleet as &dyn Generators);
    let found = unless_interrupted(search_from(plan, elsewhere, sought, most, criterion, progress))?;
    let Some(found) = found else { return Ok(ExitCode::from(INCONCLUSIVE)) };
    let command = command::of_this_process();
    let capacity = Capacity { ceiling, command, ..found };
    output.write_capacity(&capacity)?;
    Ok(match capacity.ending {
        Ending::Complete if capacity.is_of_this_client() => ExitCode::from(INCONCLUSIVE),
        Ending::Complete => ExitCode::SUCCESS,
        Ending::Interrupted | Ending::Invalid(_) => ExitCode::from(INCONCLUSIVE),
        Ending::Failed(_) => ExitCode::from(FAILED),
    })
}

/// `--list`.
fn list() -> Result<ExitCode, Failure> {
    for (name, _) in BUILT_IN {
        let preset = Preset::built_in(name).map_err(advise_plan)?;
        print(&format!("{name:<20} {}\n", preset.summary))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A built-in preset, or one in a file.
pub(crate) fn preset(name: &str, form: Form) -> Result<Preset, Failure> {
    if !name.ends_with(".toml") {
        return Preset::built_in_as(name, form).map_err(advise_plan);
    }
    let text = std::fs::read_to_string(name)
        .map_err(|error| Failure::Configuration(format!("{name} cannot be read: {error}.")))?;
    let stem = Path::new(name).file_stem().unwrap_or_default().to_string_lossy();
    Preset::parse(&stem, name, &text, form).map_err(advise_plan)
}

pub(crate) fn advise_plan(error: PlanError) -> Failure {
    let hint = match error {
        PlanError::NoPreset(_) | PlanError::NoForm(_) => {
            "; millrace bench --list names them, and one of your own ends in .toml"
        }
        _ => "",
    };
    Failure::Configuration(format!("{error}{hint}."))
}

/// With its full stop, which a server's reply may bring along.
fn sentence(error: &dyn std::fmt::Display) -> String {
    let text = error.to_string();
    if text.ends_with('.') { text } else { text + "." }
}

/// Exit code 2 for an impossible request, 1 for a failure of the server or this machine.
fn advise_run(error: RunError) -> Failure {
    let text = sentence(&error);
    if error.is_usage() { Failure::Configuration(text) } else { Failure::Running(text) }
}

/// The same of a race.
pub(crate) fn advise_race(error: RaceError) -> Failure {
    match error {
        RaceError::Plan(error) => advise_plan(error),
        error if error.is_usage() => Failure::Configuration(sentence(&error)),
        error => Failure::Running(sentence(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_signals_at_once_are_one() {
        let (mut heard, first) = (None, Instant::now());
        let after = |ms| first + Duration::from_millis(ms);
        assert!(
            !is_echo(&mut heard, first) && is_echo(&mut heard, after(2)) && is_echo(&mut heard, after(499))
        );
        assert!(!is_echo(&mut heard, after(500)), "a second interrupt of the user");
        assert!(is_echo(&mut heard, after(600)) && !is_echo(&mut heard, after(1001)));
    }
}
