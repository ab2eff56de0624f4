//! The `millrace` command.
//!
//! Exit codes: 0 when all went well, 1 when something failed while running, 2 when what was asked for makes
//! no sense (flags, configuration file), 3 when a measurement tells nothing, 130 or 143 when a second signal ended
//! the server at once.

mod activation;
mod announce;
mod args;
mod audit;
mod check;
mod config;
mod confine;
mod explain;
mod hash_password;
mod inetd;
mod link;
mod log;
mod notices;
mod notify;
mod qr_code;
mod ready;
mod serve;
mod user;
mod verify;
mod who;

use std::ffi::OsString;
use std::process::ExitCode;

use args::{Cli, Command};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use millrace_admin::client::{self, ClientError};
use millrace_bench::{bench, limits, poller_bench, race};
use millrace_manual as manual;
use millrace_terminal::{Failure, print};

fn main() -> ExitCode {
    let result = match parse(std::env::args_os()).unwrap_or_else(|error| error.exit()).command {
        Command::Serve(arguments) => done(serve::run(*arguments)),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::BenchWorker => done(bench::work()),
        Command::BenchGenerator => done(bench::generate()),
        Command::StartPrograms => done(confine::run()),
        Command::PrivilegedHelper => done(confine::run_helper()),
        Command::UserFiles => done(confine::run_user_files()),
        Command::Ctl(arguments) => done(client::run(*arguments).map_err(of_client)),
        Command::Race(arguments) => race::run(&arguments),
        Command::Limits => limits::run(),
        Command::PollerBench(arguments) => poller_bench::run(&arguments),
        Command::Check(arguments) => done(check::run(&arguments)),
        Command::Config(what) => done(config::show(what)),
        Command::Init { file } => done(config::init(&file)),
        Command::Explain(arguments) => done(explain::run(&arguments)),
        Command::Log(command) => done(log::run(&command)),
        Command::Link(arguments) => done(link::run(&arguments)),
        Command::User(arguments) => done(user::run(arguments)),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::HashPassword => done(hash_password::run()),
        Command::Completions { shell } => done(print(&manual::completions(&Cli::command(), shell))),
        Command::Man { folder } => done(manual::write_man_pages(Cli::command(), &folder).map_err(|error| {
            Failure::Running(format!("{} cannot be written to: {error}.", folder.display()))
        })),
    };
    result.unwrap_or_else(|failure| {
        eprintln!("millrace: {failure}");
        failure.exit_code()
    })
}

/// Reads the command line.
///
/// The parser advises to write `-- --port` for a flag that it does not know, wherever a value may stand. That is hardly ever
/// meant; what is meant is said here.
fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    lead_with_ctl(&mut arguments);
    let command = arguments.get(1).cloned().unwrap_or_default();
    Cli::try_parse_from(arguments).map_err(|mut error| {
        if error.kind() == ErrorKind::UnknownArgument {
            error.remove(ContextKind::Suggested);
            let flag = match error.get(ContextKind::InvalidArg) {
                Some(ContextValue::String(flag)) => flag.as_str(),
                _ => "",
            };
            if let Some(meant) = meant(&command.to_string_lossy(), flag) {
                error.remove(ContextKind::SuggestedArg);
                error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![meant.into()]));
            }
        }
        error
    })
}

/// Puts `ctl` before its flags: they may stand anywhere on the line.
fn lead_with_ctl(arguments: &mut [OsString]) {
    let is_flag = |argument: &OsString| {
        let argument = argument.as_encoded_bytes();
        argument == b"--json" || argument == b"--control" || argument.starts_with(b"--control=")
    };
    if arguments.get(1).is_some_and(is_flag)
        && let Some(at) = arguments.iter().position(|argument| argument == "ctl")
    {
        arguments[1..=at].rotate_right(1);
    }
}

/// Returns what takes the place of a flag that other programs have, or that a key of the configuration file seems to promise.
fn meant(command: &str, flag: &str) -> Option<String> {
    let meant = match (command, flag) {
        ("serve", "--port" | "-p") => "ports are part of addresses, as in '--ftp 127.0.0.1:2121'",
        ("serve", "--bind" | "--host" | "--address") => {
            "each protocol has its addresses, as in '--ftp 0.0.0.0:2121 --http 0.0.0.0:8080'"
        }
        ("serve", flag) => return flag.strip_prefix("--").and_then(config::instead_of_flag),
        ("user", _) => "what holds for a user follows its name as KEY=VALUE, as in 'groups=staff'",
        _ => return None,
    };
    Some(meant.to_owned())
}

/// Returns the exit code of a command whose only result is that it succeeded.
fn done(result: Result<(), Failure>) -> Result<ExitCode, Failure> {
    result.map(|()| ExitCode::SUCCESS)
}

/// Converts an error of `millrace ctl`.
fn of_client(error: ClientError) -> Failure {
    match error {
        ClientError::Usage(_) => Failure::Configuration(error.to_string()),
        error => Failure::Running(error.to_string()),
    }
}
