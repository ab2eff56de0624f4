//! The `millrace` command.
//!
//! Exit codes: 0 when all went well, 1 when something failed while running, 2 when what was asked for makes
//! no sense (flags, configuration file), 130 or 143 when a second signal ended the server at once.

mod announce;
mod args;
mod check;
mod config;
mod failure;
mod hash_password;
mod serve;

use std::process::ExitCode;

use args::{Cli, Command};
use clap::Parser;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(arguments) => serve::run(*arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::HashPassword => hash_password::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("millrace: {failure}");
            failure.exit_code()
        }
    }
}
