//! `millrace log`: looks for changes in audit logs.

use std::io::{self, Write};
use std::path::PathBuf;
use std::str::FromStr;

use clap::Subcommand;
use millrace_log::Sha256;
use millrace_log::audit::verify::{Torn, Verified, VerifyError, verify};

use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Look for records of an audit log that were removed, changed, moved or inserted
    ///
    /// Files that were moved away (logrotate) come first, the oldest before the others. The exit code is 1 where a
    /// record is not as it was written: the first such line is named, and why.
    ///
    /// A program that can write to the file can also make a new chain of all its records. To find that, note the SHA-256 of
    /// a record elsewhere ("millrace ctl audit" tells the last), and give it with --last; or send the records away (syslog).
    Verify {
        /// The files
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
        /// The SHA-256 of a record that has to be there
        #[arg(long, value_name = "SHA256")]
        last: Option<Noted>,
    },
}

/// A SHA-256 that was noted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Noted(Sha256);

/// A text that is no SHA-256.
#[derive(Debug, thiserror::Error)]
#[error("a SHA-256 is 64 hexadecimal digits")]
pub(crate) struct NotedError;

impl FromStr for Noted {
    type Err = NotedError;

    fn from_str(text: &str) -> Result<Self, NotedError> {
        Sha256::parse(text).map(Self).ok_or(NotedError)
    }
}

pub(crate) fn run(command: &LogCommand) -> Result<(), Failure> {
    let LogCommand::Verify { files, last } = command;
    match verify(files, last.map(|Noted(sha256)| sha256)) {
        Ok(verified) => {
            let _ = io::stdout().write_all(told(&verified).as_bytes());
            Ok(())
        }
        Err(error @ VerifyError::Broken { .. }) => Err(Failure::Running(format!("{error}."))),
        Err(error @ VerifyError::Io { .. }) => Err(Failure::Configuration(format!("{error}."))),
    }
}

fn told(verified: &Verified) -> String {
    let Verified { records, first, last, torn } = verified;
    let mut text = String::new();
    for Torn { file, line, is_noted } in torn {
        let behind = match is_noted {
            true => "the record behind it says so",
            false => "the next start of the server goes on behind it",
        };
        text += &format!("{}:{line}: a record was not written whole; {behind}.\n", file.display());
    }
    if *first > 1 {
        text += &format!("Records 1 to {} are not in these files.\n", first - 1);
    }
    match records {
        0 => text + "There is no record.\n",
        1 => text + &format!("Record {first} is as it was written: SHA-256 {}.\n", last.sha256),
        _ => {
            let last_seq = last.seq;
            text + &format!(
                "Records {first} to {last_seq} are as they were written; the last has the SHA-256 {}.\n",
                last.sha256
            )
        }
    }
}
