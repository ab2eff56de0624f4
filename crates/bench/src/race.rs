//! `millrace race`: puts several servers side by side, and says where they differ and where that cannot be told.

use std::io::{IsTerminal, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use millrace_lab::html;
use millrace_lab::peers::{PEERS, PeerError, end_all};
use millrace_lab::race::{self, Entrant, RaceError, RaceReport, Settings, Turn, Watcher, text};
use millrace_lab::report::command::of_this_process;
use millrace_load::fixture::FixtureStep;
use millrace_load::plan::Form;
use millrace_load::run::Ending;
use millrace_load::run::RunError;
use millrace_load::stop::Stop;
use millrace_load::units::users;
use millrace_terminal::{Failure, has_color, print};

use crate::bench::output::{Sink, write};
use crate::bench::progress::Between;
use crate::bench::{FAILED, Flags, INCONCLUSIVE, advise_race as advise, preset, report_on_signals};

const EXAMPLES: &str = "\
Examples:
  millrace race millrace pure-ftpd                       two minutes: logins, files, a listing
  millrace race millrace vsftpd proftpd --preset waarp-1k --html race.html
  millrace race millrace pure-ftpd --ops retr --size 1k --users 100 --blocks 10
  millrace race millrace 'millrace --coalesce off'       flags for one of them
  millrace race /old/millrace millrace                   two builds
  millrace race millrace ftp://user:password@127.0.0.1:2121/
  millrace race millrace nginx --tls                     over HTTP in TLS
  millrace race millrace vsftpd proftpd --tls            over FTP in TLS
  millrace race millrace millrace                        an A/A race: what does noise do?
  millrace race --list                                   the servers that are known by name

Exit status: 0 when all is well; 1 when operations of anybody failed, bytes were wrong, or a
server or this machine failed; 2 for usage; 3 when the figures vary too much for any comparison to
say anything, or the race was interrupted.

Ctrl-C ends a race early and reports what there is; a second one ends it at once.

peers/install gets the servers. docs/benchmarks.md says how to read the intervals.";

/// The request to end a race.
static STOP: Stop = Stop::new();

/// `millrace race`.
#[derive(Debug, Args)]
// A race starts its servers, and so knows their processes and folders itself.
#[command(
    after_long_help = EXAMPLES,
    mut_arg("server-pid", |flag| flag.hide(true)),
    mut_arg("server-root", |flag| flag.hide(true))
)]
pub struct Race {
    /// The servers to compare: a known server's name, the path of its program, or a URL
    ///
    /// A known server is started for the race in a fresh folder, on ports of its own; flags for it may
    /// follow its name in the same (quoted) word.
    #[arg(value_name = "SERVER", required_unless_present_any = ["list", "read"])]
    servers: Vec<String>,

    /// Say each server that is known by name, and where it was found
    #[arg(long, conflicts_with = "servers")]
    list: bool,

    /// Show a race that --json has written, rather than run one
    #[arg(long, value_name = "FILE", conflicts_with = "servers")]
    read: Option<PathBuf>,

    /// What to measure: a preset of "millrace bench --list", or a file of your own that ends in .toml
    ///
    /// Without one, and without --ops, --size or --file, it is "race": a minute for each server.
    #[arg(long, value_name = "PRESET")]
    preset: Option<String>,

    /// Run the preset as its document had it, flaws and all, rather than corrected
    #[arg(long)]
    as_published: bool,

    /// Run it shortened: it shows that all works, and its figures are worth little
    ///
    /// Of a preset, its own short form; with --ops and the like, ten users for 200 ms where no flag says otherwise.
    #[arg(long)]
    quick: bool,

    /// The server that the others are compared with [default: the first]
    #[arg(long, value_name = "SERVER")]
    against: Option<String>,

    /// How many times each figure is taken, of every server [default: 5, or as the preset repeats]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1000))]
    blocks: Option<u32>,

    /// Seed of the random order of servers and loads
    #[arg(long, value_name = "N", default_value_t = 1)]
    order_seed: u64,

    /// A folder on the disk to measure, that any user may enter [default: the system's temporary one]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,

    /// Load this server too, though it is not this machine: one of your own
    #[arg(long, value_name = "ADDRESS")]
    allow: Vec<String>,

    #[command(flatten)]
    flags: Flags,

    /// Write everything that was noted to a file; "-" is standard output
    #[arg(long, value_name = "FILE", help_heading = "Reports")]
    json: Option<PathBuf>,

    /// Write one page with plots, that opens in any browser without a network; "-" is standard output
    #[arg(long, value_name = "FILE", help_heading = "Reports")]
    html: Option<PathBuf>,

    /// Write a line a comparison, for other programs; "-" is standard output
    #[arg(long, value_name = "FILE", help_heading = "Reports")]
    csv: Option<PathBuf>,

    /// Write a table for a page, in Markdown; "-" is standard output
    #[arg(long, value_name = "FILE", help_heading = "Reports")]
    markdown: Option<PathBuf>,
}

/// Runs the command.
pub fn run(arguments: &Race) -> Result<ExitCode, Failure> {
    if arguments.list {
        return list();
    }
    let Race { json, html: page, csv, markdown, .. } = arguments;
    let [json, page, csv, markdown] = Sink::open_all([json, page, csv, markdown])?;
    if let (Some(path), Some((name, _))) = (&arguments.read, arguments.flags.pairs().next()) {
        return Err(Failure::Configuration(format!(
            "--read {}: it was measured already, and --{name} comes too late.",
            path.display()
        )));
    }
    let report = match &arguments.read {
        Some(path) => read(path)?,
        None => match arguments.measure()? {
            Some(report) => report,
            None => return Ok(ExitCode::from(INCONCLUSIVE)),
        },
    };
    if ![&json, &page, &csv, &markdown].into_iter().flatten().any(Sink::is_stdout) {
        print(&text::render(&report, has_color(&stdout())))?;
    }
    write(json, || report.json())?;
    write(page, || html::race(&report))?;
    write(csv, || text::csv(&report))?;
    write(markdown, || text::markdown(&report))?;
    Ok(ExitCode::from(status(&report)))
}

fn read(path: &Path) -> Result<RaceReport, Failure> {
    let wrong = |what: String| Failure::Configuration(format!("--read {}: {what}.", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    RaceReport::parse(&text).map_err(|error| wrong(error.to_string()))
}

impl Race {
    /// `None` if the user interrupted before the first figure.
    fn measure(&self) -> Result<Option<RaceReport>, Failure> {
        let race = self.race()?;
        // The servers of a race are in process groups of their own: a Ctrl-C in the terminal does not reach them.
        report_on_signals(&STOP, end_all)?;
        let _ = writeln!(
            stderr(),
            "This takes at most about {}, where no load is done before its time is over.",
            about(race.time())
        );
        let report = race.run(&Line::new());
        clear_line();
        match report {
            Err(RaceError::Run(error @ RunError::Interrupted)) => {
                eprintln!("millrace: {error}.");
                Ok(None)
            }
            Ok(report) => Ok(Some(RaceReport { command: of_this_process(), ..report })),
            Err(error) => Err(advise(error)),
        }
    }

    fn race(&self) -> Result<race::Race, Failure> {
        let form = Form { as_published: self.as_published, quick: self.quick };
        let preset = self.preset.as_deref().map(|name| preset(name, form)).transpose()?;
        let entrants = self.servers.iter().map(|words| Entrant::parse(words)).collect::<Result<_, _>>();
        let allowed = self.allow.iter().map(|address| ("allow", address.as_str()));
        let flags: Vec<_> = self.flags.pairs().chain(allowed).collect();
        let settings = Settings {
            against: self.against.as_deref(),
            blocks: self.blocks,
            seed: self.order_seed,
            place: self.dir.clone(),
            helper: std::env::current_exe().ok(),
            form,
        };
        race::Race::new(entrants.map_err(advise)?, preset.as_ref(), &flags, settings).map_err(advise)
    }
}

/// Adds an estimate for starting servers, logging in and making files.
fn about(time: Duration) -> String {
    match 1 + time.as_secs() * 6 / 5 / 60 {
        1 => "a minute".to_owned(),
        minutes => format!("{minutes} minutes"),
    }
}

/// As of a run: operations that failed, and bytes that were wrong, outweigh what the comparison says.
fn status(report: &RaceReport) -> u8 {
    match () {
        () if report.has_wrong_data() || report.has_gaps() || report.has_failures() => FAILED,
        () if matches!(report.ending, Ending::Failed(_)) => FAILED,
        () if report.ending == Ending::Interrupted => INCONCLUSIVE,
        () if report.is_inconclusive() => INCONCLUSIVE,
        () => 0,
    }
}

/// `--list`.
fn list() -> Result<ExitCode, Failure> {
    for peer in &PEERS {
        let found = match peer.installed(None) {
            Ok(installed) => format!("{} ({})", installed.version, installed.program.display()),
            Err(PeerError::NotInstalled { remedy, .. }) => format!("not installed: {remedy}"),
            Err(error) => error.to_string(),
        };
        print(&format!("{:<11} {:<5} {found}\n", peer.name, peer.scheme))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A line that is written over, where a person looks at it; else a line a block.
struct Line {
    is_terminal: bool,
    between: Between,
}

impl Line {
    fn new() -> Self {
        Self { is_terminal: stderr().is_terminal(), between: Between::default() }
    }
}

impl Watcher for Line {
    fn stop(&self) -> &Stop {
        &STOP
    }

    fn between(&self, step: FixtureStep, done: usize, all: usize) {
        self.between.tell(step, done, all);
    }

    fn begins(&self, turn: &Turn<'_>) {
        let (figure, figures) = turn.figure;
        let (block, blocks) = turn.block;
        if self.is_terminal {
            let line = format!(
                "block {}/{blocks}, figure {}/{figures}: {} by {} at {}",
                block + 1,
                figure + 1,
                turn.cell.op,
                users(turn.cell.users),
                turn.entrant
            );
            let _ = write!(stderr(), "\r{}\x1b[K", line.chars().take(99).collect::<String>());
        } else if figure % (figures / blocks as usize).max(1) == 0 {
            let _ = writeln!(stderr(), "block {}/{blocks}", block + 1);
        }
    }
}

fn clear_line() {
    if stderr().is_terminal() {
        let _ = write!(stderr(), "\r\x1b[K");
    }
}
