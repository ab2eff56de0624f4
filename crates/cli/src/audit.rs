//! Records in the audit log what commands change without a server: accounts of a database, and links.

use std::path::{Path, PathBuf};

use millrace_log::audit::chain::ChainedFile;
use millrace_log::audit::record;
use millrace_log::{Actor, Event};
use millrace_terminal::Failure;

/// The audit log of the server that is concerned, where it has one.
pub(crate) struct Audit {
    log: Option<(PathBuf, ChainedFile)>,
    by: Actor,
}

impl Audit {
    /// Opens the log before anything is changed: a change that cannot be recorded is not made.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let open = |path: &Path| match ChainedFile::open(path) {
            Ok(file) => Ok((path.to_owned(), file)),
            Err(error) => Err(Failure::Running(format!(
                "the audit log {} cannot be written to: {error}; nothing was changed.",
                path.display()
            ))),
        };
        Ok(Self { log: path.map(open).transpose()?, by: Actor::present() })
    }

    /// Records what was done by the user of this process.
    pub(crate) fn record<'a>(&mut self, events: impl IntoIterator<Item = Event<'a>>) -> Result<(), Failure> {
        let Some((path, file)) = &mut self.log else { return Ok(()) };
        record(file, events).map_err(|error| {
            let path = path.display();
            Failure::Running(format!("it was done, but the audit log {path} does not say so: {error}."))
        })
    }

    /// The user of this process.
    pub(crate) fn by(&self) -> Actor {
        self.by
    }
}
