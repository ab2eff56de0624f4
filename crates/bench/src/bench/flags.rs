//! The flags of `millrace bench`: those of the command itself, and one for each setting of the benchmark.

use std::path::PathBuf;

use clap::builder::{ArgAction, PossibleValuesParser};
use clap::error::Error;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use millrace_generators::fleet::Fleet;
use millrace_generators::planning::Need;
use millrace_generators::source::Source;
use millrace_load::limits::users_a_process;
use millrace_load::plan::{KEYS, Plan};

const EXAMPLES: &str = "\
Examples:
  millrace bench ftp://me:secret@127.0.0.1:2121/       half a minute: logins, files, memory
  millrace bench ftp://... --server-pid PID            of a server whose process is not found by its port
  millrace bench ftp://... --ops retr,stor --size 1k,1m --users 1..1000 --mode pasv,port
  millrace bench ftp://... --ops retr --rate 500 --users 50 --duration 30s
  millrace bench ftp://... --search users --think 100ms --duration 2s
  millrace bench ftp://... --search rate --slo p99=10ms --ops retr --duration 2s
  millrace bench ftp://... waarp-1k --html waarp.html  a published experiment, beside its numbers
  millrace bench ftp://... --from ssh://a --from ssh://b from two other machines
  millrace bench --list                                all of those

  millrace bench ftp://... --ops retr --repeat 5 --fail-if 'retr.p99 > 20ms' --baseline old.json
  millrace bench new/millrace --baseline-server old/millrace --ops retr --size 1k

Exit status: 0 when all is well; 1 when operations failed that no --fail-if of errors allows,
a threshold failed, a figure is worse than its baseline, bytes were wrong, or the server was not
there; 2 for usage; 3 when it cannot be told, because a figure shows the limit of this client or
what other programs left, varies too much, or the run was interrupted; of a --fail-if against a
baseline ('server-us > 1.03x') 4 when it is slower, 5 when that cannot be told.

Ctrl-C ends a run early and reports what there is; while test files are removed, it leaves them
on the server; a second one ends it at once.

A load is bounded in users, rate and time, and goes to this machine unless --allow names
another. docs/benchmarks.md says how to read the figures, and when to believe them.";

/// `millrace bench`.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Bench {
    /// The server to load: ftp://user:password@host:port/folder
    ///
    /// Test files are made in the folder, and removed afterwards. Or ftpes:// and ftps:// for FTP in TLS; http://
    /// and https://, whose path is the document that is asked for.
    #[arg(value_name = "TARGET", required_unless_present_any = ["list", "read", "from_log", "plan"])]
    pub(crate) target: Option<String>,

    /// What to measure: a preset's name, or a file of your own that ends in .toml
    ///
    /// Without one, and without --ops, --size or --file, it is "default": half a minute.
    #[arg(value_name = "PRESET")]
    pub(crate) preset: Option<String>,

    /// Shorten it, to see that all works: well under a minute, and its figures are worth little
    ///
    /// Of a preset, its own short form; with --ops and the like, ten users for 200 ms where no flag says otherwise.
    #[arg(long)]
    pub(crate) quick: bool,

    /// Run the preset as its document was published, flaws and all, rather than corrected
    #[arg(long)]
    pub(crate) as_published: bool,

    /// Say each preset in a line
    #[arg(long, conflicts_with = "target")]
    pub(crate) list: bool,

    /// Show a run that --json has written, rather than run one
    #[arg(long, value_name = "FILE",
          conflicts_with_all = ["target", "list", "quick", "as_published", "search", "fail_if", "baseline"])]
    pub(crate) read: Option<PathBuf>,

    /// Compute from --json FILEs of loads and searches how many servers --users take, rather than run a load
    ///
    /// Of each load that --need names there must be figures with which the server was at its limit, three at least, or
    /// the answer of a --search rate. The answer of a --search users is how many a server holds.
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "need",
          conflicts_with_all = ["target", "list", "read", "from_log", "quick", "as_published", "search", "fail_if", "baseline", "from"])]
    pub(crate) plan: Vec<PathBuf>,

    /// What each user asks for in a --plan: a load and how often a second, such as 'retr 1k=0.5'
    ///
    /// May be given more than once.
    #[arg(long, value_name = "LOAD=RATE", requires = "plan")]
    pub(crate) need: Vec<Need>,

    /// Which share of each server stays free in a --plan
    #[arg(long, value_name = "PERCENT", default_value = "30%", requires = "plan")]
    pub(crate) headroom: String,

    /// Compute the rates of transfers from a server's log, rather than run a load
    ///
    /// A log in JSON, or an xferlog with times (xferlog-times): transfers that overlap are one experiment. --json writes
    /// the rates to a file.
    #[arg(long, value_name = "FILE",
          conflicts_with_all = ["target", "list", "read", "quick", "as_published", "search", "fail_if", "baseline", "html", "csv",
              "markdown", "compat"])]
    pub(crate) from_log: Option<PathBuf>,

    /// Load this server too, though it is not this machine: one of your own
    ///
    /// May be given more than once.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) allow: Vec<String>,

    /// Put the load on from here: ssh://HOST, ssh://USER@HOST:PORT, or local:N for N processes of this machine
    ///
    /// May be given more than once. The users and the rate are divided among the generators, which begin at one moment; what
    /// they count is merged. On other machines OpenSSH's client starts them, without a password, and copies this program
    /// into ~/.cache/millrace there where it is missing. A result is invalid where a generator was the limit, or was lost.
    #[arg(long, value_name = "PLACE", help_heading = "Generators",
          conflicts_with_all = ["baseline_server", "read", "from_log", "list"])]
    pub(crate) from: Vec<Source>,

    /// The SSH client that starts generators, with its options
    #[arg(long, value_name = "COMMAND", default_value = "ssh", help_heading = "Generators")]
    pub(crate) ssh: String,

    /// Search for the most users, or the highest rate, that the load supports
    ///
    /// Doubles, then bisects, up to the most that --users or --rate names, or this machine allows; an answer must
    /// stand up three times and once for five times as long, and is tried once more right after a load
    /// beyond it. It goes well where nothing fails, users get at least 75 % of --read-rate, or else of the
    /// pace that one alone gets, on average and all but 1 % of them each, and at most 1 % get less than
    /// half of the median; with --slo where nothing fails and the latency stays within that. A rate is of the --users
    /// given, and takes --slo.
    #[arg(long, value_name = "users|rate", value_parser = PossibleValuesParser::new(["users", "rate"]))]
    pub(crate) search: Option<String>,

    /// The limit of a search for a percentile of the latency: p99=10ms; p50, p90, p99, p999 or max
    #[arg(long, value_name = "PERCENTILE=TIME", requires = "search")]
    pub(crate) slo: Option<String>,

    #[command(flatten)]
    settings: Flags,

    /// Fail if this is true, such as 'retr.p99 > 20ms'
    ///
    /// May be given more than once. Words before the metric select figures: an operation, a size, a mode, a number of
    /// users (retr.1k.pasv.100users.p99). A wrong one names the metrics. 'ops < 0.97x' is held against a baseline.
    #[arg(long, value_name = "EXPR", help_heading = "Thresholds")]
    pub(crate) fail_if: Vec<String>,

    /// Fail where a figure is worse than in an earlier --json FILE
    ///
    /// Says better, same, worse or cannot tell. Give both runs --repeat 5: what single runs differ by says
    /// little.
    #[arg(long, value_name = "FILE", help_heading = "Thresholds")]
    pub(crate) baseline: Option<PathBuf>,

    /// Hold the target against this server, both under load at the same time: for machines that are not quiet
    ///
    /// A server as "millrace race" names it: a program, with flags in the same (quoted) word, or a URL; so may the
    /// target be. Needs no figures of another day. Without --fail-if it is 'server-us > 1.03x'. Takes slices
    /// of 300 ms (--duration), 6 in a block, and 6 blocks, or 12 where 6 do not tell.
    #[arg(long, value_name = "SERVER", help_heading = "Thresholds", conflicts_with_all = ["baseline", "search"])]
    pub(crate) baseline_server: Option<String>,

    /// Write everything that was noted to a file; "-" is standard output
    #[arg(long, value_name = "FILE", help_heading = "Reports")]
    pub(crate) json: Option<PathBuf>,

    /// Write one page with plots, that opens in any browser without a network; "-" is standard output
    #[arg(long, value_name = "FILE", help_heading = "Reports")]
    pub(crate) html: Option<PathBuf>,

    /// Write a line a figure, for other programs; "-" is standard output
    #[arg(long, value_name = "FILE", help_heading = "Reports")]
    pub(crate) csv: Option<PathBuf>,

    /// Print what another program would: zb (ZeusBench of 2000) for figures over HTTP
    #[arg(long, value_name = "PROGRAM", value_parser = PossibleValuesParser::new(["zb"]), help_heading = "Reports")]
    pub(crate) compat: Option<String>,

    /// Write a table for a page, in Markdown; "-" is standard output
    #[arg(long, value_name = "FILE", help_heading = "Reports")]
    pub(crate) markdown: Option<PathBuf>,
}

impl Bench {
    /// Every setting that a flag changes, as [`Plan::new`] takes them.
    pub(crate) fn settings(&self) -> Vec<(&str, &str)> {
        self.settings.pairs().chain(self.allow.iter().map(|address| ("allow", address.as_str()))).collect()
    }

    /// Returns true if it is said how far a search goes.
    fn names_users(&self) -> bool {
        self.settings.pairs().any(|(name, _)| name == "users")
    }

    /// Why a search stops at this number of users, where no limit was given.
    pub(crate) fn ceiling(&self, fleet: Option<&Fleet>) -> Option<String> {
        let descriptors = millrace_load::limits::descriptors();
        (!self.names_users()).then(|| {
            if fleet.is_some() {
                return "the generators' own descriptors are for no more, and the limit is theirs".to_owned();
            }
            format!("this client's own {descriptors} descriptors are for no more, and the limit is its own")
        })
    }

    /// How far a search for a rate goes.
    pub(crate) fn highest_rate(&self, plan: &Plan) -> u32 {
        const BEYOND_ANY: f64 = 1e6;
        let asked = plan.steps.iter().filter_map(|step| step.rate).reduce(f64::max);
        asked.unwrap_or(BEYOND_ANY).max(1.0) as u32
    }

    /// How far a search goes, by this many users that generators have room for.
    pub(crate) fn most_users(&self, plan: &Plan, fleet: Option<&Fleet>) -> u32 {
        let asked = plan.cells().iter().map(|cell| cell.users).max().filter(|_| self.names_users());
        asked.or(fleet.map(|fleet| fleet.most_users(true))).unwrap_or_else(|| {
            let descriptors = millrace_load::limits::descriptors();
            u32::try_from(users_a_process(descriptors, true)).unwrap_or(u32::MAX)
        })
    }
}

/// Kinds of values that are numbers.
const COUNTED: [&str; 4] = ["N", "TIME", "SIZE", "PERCENT"];

/// Flags that say something without a value, and what.
const ALONE: [(&str, &str); 2] = [("tls", "on"), ("chaos", "10%")];

/// The word after such a flag is its value, not the target.
fn no_target(text: &str) -> Result<String, &'static str> {
    if text.contains("://") { Err("the target goes before it") } else { Ok(text.to_owned()) }
}

/// A flag for each row of [`KEYS`]: pairs of a name and a value.
#[derive(Debug, Default)]
pub(crate) struct Flags(Vec<(&'static str, String)>);

impl Flags {
    /// As [`Plan::new`] takes them.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str()))
    }
}

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        KEYS.iter().fold(command, |command, key| {
            let mut flag = Arg::new(key.name).long(key.name).help(key.help).help_heading("What is measured");
            if let Some((_, alone)) = ALONE.iter().find(|(name, _)| *name == key.name) {
                flag = flag.num_args(0..=1).default_missing_value(*alone).value_parser(no_target);
            }
            command.arg(match key.value {
                "" => flag.action(ArgAction::SetTrue),
                // A value that begins with a sign is wrong, and the setting's error is better than "unexpected
                // argument".
                value if COUNTED.iter().any(|kind| value.starts_with(kind)) => {
                    flag.value_name(value).allow_hyphen_values(true)
                }
                value => flag.value_name(value),
            })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        for key in &KEYS {
            let value = match key.value {
                "" => matches.get_flag(key.name).then(|| "on".to_owned()),
                _ => matches.get_one::<String>(key.name).cloned(),
            };
            self.0.extend(value.map(|value| (key.name, value)));
        }
        Ok(())
    }
}
