//! The command line: what may be written after `millrace`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use millrace_admin::client::Ctl;
use millrace_bench::bench::Bench;
use millrace_bench::poller_bench::PollerBench;
use millrace_bench::race::Race;
use millrace_generators::protocol::COMMAND as GENERATOR;
use millrace_load::worker_processes::COMMAND;
use millrace_manual::Shell;
use millrace_server::Door;

use crate::config::{Period, Reference, Said, Written};
use crate::confine::{HELPER, SPAWNER, USER_FILES};
use crate::explain::Explain;
use crate::log::LogCommand;
use crate::user::Users;
use crate::verify::Verify;

/// Millrace: a file server for FTP, FTPS and HTTP, and the benchmark that measures any of them.
///
/// Try it:  millrace serve ./somewhere
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a folder by FTP and HTTP until told to stop
    ///
    /// Without flags, everyone on this computer may read the current folder, at ftp://127.0.0.1:2121/ and
    /// http://127.0.0.1:8080/. The addresses, their users and the URLs to paste are printed to standard output; the
    /// line that begins with "Ready" comes last, when connections are accepted. Events are logged to standard error.
    ///
    /// Ctrl-C or SIGTERM stops: no new connections, running transfers may end within the grace time, then
    /// the exit code is 0. A second signal ends at once.
    #[command(after_long_help = EXAMPLES)]
    Serve(Box<Serve>),
    /// Load a server, ours or anyone's, and say what it can do and what the figures are worth
    Bench(Box<Bench>),
    /// Ask or tell a running server: status, sessions, kick, limits, reload, upgrade, drain, stop
    Ctl(Box<Ctl>),
    /// Put several servers under the same loads, in random order, and say which differ
    Race(Box<Race>),
    /// Say what this machine allows, and what that means in users
    Limits,
    /// Say what waiting for many sockets costs: by poll, epoll and io_uring
    PollerBench(PollerBench),
    /// Show what a configuration file means, or its errors
    Check(Check),
    /// Print what a configuration file may have: an example, or a JSON Schema
    #[command(subcommand)]
    Config(Reference),
    /// Write a configuration file to begin with: every key, commented out, with its default
    Init {
        /// The file, which must not be there yet
        #[arg(value_name = "FILE", default_value = "millrace.toml")]
        file: PathBuf,
    },
    /// Say what holds for a user, where it comes from, and whether a login would be let in
    Explain(Explain),
    /// Make a link to a file that expires, for those who have no account
    ///
    /// Anyone with the link may get the file, or with --put send it, until the link expires, within the permissions of
    /// its user. It is signed with the first key of http-link-keys; removing that key from the file, and a reload,
    /// revoke all links that were signed with it.
    Link(MakeLink),
    /// Look for changes in audit logs, and show binary logs as text
    #[command(subcommand)]
    Log(LogCommand),
    /// Keep accounts in a database: add, change, list, import
    User(Users),
    /// Look for files that have decayed since they were uploaded
    ///
    /// Reads every file beneath a folder with which an upload has stored its hash (upload-hash), and says which have
    /// another content than came although nothing says that they were changed: their length and time are as they were.
    /// Files that were changed since by other programs are told apart, and those without a hash are counted. Links are
    /// not followed. Run it as a user who may read the files; a server may use them meanwhile.
    ///
    /// The exit code is 0 where no file is damaged and all could be read, else 1.
    Verify(Verify),
    /// A part of a load: `bench` starts it where its users need more than one process
    #[command(name = COMMAND, hide = true)]
    BenchWorker,
    /// A load generator: `bench --from` starts it, here or on another machine
    #[command(name = GENERATOR, hide = true)]
    BenchGenerator,
    /// Starts programs for a server in a sandbox, which runs this command
    #[command(name = SPAWNER, hide = true)]
    StartPrograms,
    /// Keeps the rights of root for a server that gives them up, which runs this command
    #[command(name = HELPER, hide = true)]
    PrivilegedHelper,
    /// Opens files with the rights of a user, for a helper, which runs this command
    #[command(name = USER_FILES, hide = true)]
    UserFiles,
    /// Make the hash of a password, for a configuration file
    ///
    /// Asks for the password on a terminal; otherwise reads one line from standard input.
    HashPassword,
    /// Print the completion script of a shell: `source <(millrace completions bash)`
    Completions { shell: Shell },
    /// Write the man pages of all commands into a folder
    #[command(hide = true)]
    Man { folder: PathBuf },
}

const EXAMPLES: &str = "\
Examples:
  millrace serve                                         this folder, to read, on this computer only
  millrace serve /srv/files --ftp 0.0.0.0:2121 --http 0.0.0.0:8080
                                                         to read, for everyone on the network
  millrace serve /srv/drop --user cam:s3cret --ftp 0.0.0.0:2121
                                                         to read and write, for a camera
  millrace serve --config /etc/millrace.toml             as the file says; flags go before it

Every flag is also a key of the configuration file, spelt the same, and an environment variable: --passive-ports is
MILLRACE_PASSIVE_PORTS. See `millrace config example` and docs/configuration.md.";

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Read a configuration file in TOML; flags and environment variables go before it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Write where the server is open to FILE, as JSON, once connections are accepted
    ///
    /// For tests and scripts that start a server on free ports (--ftp 127.0.0.1:0). The file appears whole or not at
    /// all. docs/testing.md has recipes.
    #[arg(long, value_name = "FILE")]
    pub(crate) ready_file: Option<PathBuf>,

    /// Print the same JSON to standard output, as one line in place of the announcement
    #[arg(long)]
    pub(crate) ready_json: bool,

    /// Serve one connection, which is standard input and output, and end with it
    ///
    /// For a super-server: inetd, xinetd, or systemd with Accept=yes. Nothing is listened on. Each session is a process,
    /// and counts limits for itself. The guide has configurations.
    #[arg(long, value_name = "PROTOCOL", num_args = 0..=1, default_missing_value = "ftp", require_equals = true)]
    pub(crate) inetd: Option<Given>,

    /// Relieve the server that standard input leads to: "ctl upgrade" starts its successor so
    #[arg(long, hide = true)]
    pub(crate) take_over: bool,

    #[command(flatten)]
    pub(crate) written: Written,
}

/// The protocol of a connection that a super-server has accepted.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Given {
    Ftp,
    /// FTP that begins with TLS
    Ftps,
    Http,
    Https,
}

impl From<Given> for Door {
    fn from(given: Given) -> Self {
        match given {
            Given::Ftp => Self::Ftp,
            Given::Ftps => Self::Ftps,
            Given::Http => Self::Http,
            Given::Https => Self::Https,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The configuration file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// List all settings, with the defaults of those that are not set
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MakeLink {
    /// The file, or the folder with all beneath it, as the user sees it
    #[arg(value_name = "PATH")]
    pub(crate) path: String,

    /// The configuration file, which names the file of keys
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,

    /// The user in whose name the link acts [default: anonymous]
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,

    /// How long it is good: 30m, 24h, 7d
    #[arg(long = "for", value_name = "TIME", default_value = "24h")]
    pub(crate) valid: Said<Period>,

    /// To send the file, in place of getting it
    #[arg(long)]
    pub(crate) put: bool,

    /// Make it though there is no such user or file, or the user has no right to it, as far as the
    /// configuration tells
    #[arg(long)]
    pub(crate) force: bool,

    /// The beginning of the link, before the path [default: the address of HTTPS in the configuration, or else of HTTP]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
}
