//! `millrace log`: looks for changes in audit logs, and makes text of binary logs.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use clap::Subcommand;
use millrace_log::Sha256;
use millrace_log::audit::verify::{Torn, Verified, VerifyError, verify};
use millrace_log::binary::{ConvertError, Converted, Form, convert};
use millrace_server::cluster::AuditTable;
use millrace_server::{CopiesError, compare_with_copies, verify_copies, write_copies};
use millrace_terminal::Failure;

use crate::config::{self, Written};

#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Look for records of an audit log that were removed, changed, moved or inserted
    ///
    /// Files that were moved away (logrotate) come first, the oldest before the others. The exit code is 1 where a
    /// record is not as it was written: the first such line is named, and why.
    ///
    /// A program that can write to the file can also make a new chain of all its records. To find that, note the SHA-256 of
    /// a record elsewhere ("millrace ctl audit" tells the last), and give it with --last; or send the records away (syslog).
    ///
    /// Where the nodes of a cluster have copies of their records (share-audit), --config compares the last file, and those that were
    /// moved away from it, with them. Without a file it verifies the copies of all nodes.
    Verify {
        /// The files
        #[arg(value_name = "FILE", required_unless_present = "config")]
        files: Vec<PathBuf>,
        /// The configuration file with the cluster that has copies of the records
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// The SHA-256 of a record that has to be there
        #[arg(long, value_name = "SHA256")]
        last: Option<Noted>,
    },
    /// Write the records of the audit logs of all nodes of a cluster (share-audit), in the order in which they came
    ///
    /// Each is a line of JSON, with its node first.
    Records {
        /// The configuration file with the cluster
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Those of one node, by its name
        #[arg(long, value_name = "NAME")]
        node: Option<String>,
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
    let (files, config, last) = match command {
        LogCommand::Verify { files, config, last } => (files, config, last),
        LogCommand::Records { config, node } => {
            let mut out = io::stdout().lock();
            return write_copies(&*copies(config)?, node.as_deref(), &mut out).map_err(failed);
        }
        LogCommand::Convert { file, form } => return convert_binary(file, *form),
    };
    let table = config.as_deref().map(copies).transpose()?;
    let Some(log) = files.last() else {
        let mut out = io::stdout().lock();
        return table.map_or(Ok(()), |table| verify_copies(&*table, &mut out)).map_err(failed);
    };
    match verify(files, last.map(|Noted(sha256)| sha256)) {
        Ok(verified) => {
            let compared =
                table.map(|table| compare_with_copies(&*table, log)).transpose().map_err(failed)?;
            let text = told(&verified) + &compared.map_or_else(String::new, |compared| compared.to_string());
            let _ = io::stdout().write_all(text.as_bytes());
            Ok(())
        }
        Err(error @ VerifyError::Broken { .. }) => Err(Failure::Running(format!("{error}."))),
        Err(error @ VerifyError::Io { .. }) => Err(Failure::Configuration(format!("{error}."))),
    }
}

/// The copies that the servers of this configuration have.
fn copies(config: &Path) -> Result<Arc<dyn AuditTable>, Failure> {
    let site = config::load(Written::default(), Some(config))?;
    let cluster = site.config.cluster.as_ref();
    cluster.and_then(|cluster| cluster.audit()).cloned().ok_or_else(|| {
        let config = config.display();
        Failure::Configuration(format!(
            "{config} has no [cluster] with share-audit = true: there are no copies."
        ))
    })
}

fn failed(error: CopiesError) -> Failure {
    match error {
        CopiesError::Io { .. } => Failure::Configuration(format!("{error}.")),
        error => Failure::Running(format!("{error}.")),
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
