//! `millrace log`: looks for changes in audit logs, and makes text of binary logs.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Subcommand;
use millrace_log::Sha256;
use millrace_log::audit::verify::{Torn, Verified, VerifyError, verify};
use millrace_log::binary::{ConvertError, Converted, Form, convert};

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
    /// Write the entries of a binary log (access-log-format = "binary") as text, the oldest first
    ///
    /// The server may be running, or may have been killed: records that were not written whole are left out, and counted.
    Convert {
        /// The file
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// text or json: lines as of the log; combined or w3c: of requests; xferlog: of transfers of FTP, and downloads by HTTP
        #[arg(long = "to", value_name = "FORM", default_value = "text")]
        form: Form,
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
    let (files, last) = match command {
        LogCommand::Verify { files, last } => (files, last),
        LogCommand::Convert { file, form } => return convert_binary(file, *form),
    };
    match verify(files, last.map(|Noted(sha256)| sha256)) {
        Ok(verified) => {
            let _ = io::stdout().write_all(told(&verified).as_bytes());
            Ok(())
        }
        Err(error @ VerifyError::Broken { .. }) => Err(Failure::Running(format!("{error}."))),
        Err(error @ VerifyError::Io { .. }) => Err(Failure::Configuration(format!("{error}."))),
    }
}

/// Writes a binary log to standard output. A reader that has gone is no error.
fn convert_binary(file: &Path, form: Form) -> Result<(), Failure> {
    match convert(file, form, &mut io::stdout().lock()) {
        Ok(Converted { torn: 0, .. }) => Ok(()),
        Ok(Converted { torn, .. }) => {
            eprintln!("{}: records that are not whole, and are left out: {torn}.", file.display());
            Ok(())
        }
        Err(ConvertError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::Configuration(format!("{error}."))),
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
