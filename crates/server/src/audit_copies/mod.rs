//! Copies the records of the audit log to the database of the cluster, on a thread of its own.
//!
//! It reads them from the file, so that nothing waits for the database, and whatever has been written while that was away is
//! copied later. Before it goes on it compares: where the file is not the one whose records were copied, it says so, and copies
//! nothing more, lest forged records come among the others.

mod verifying;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_cluster::{AuditCopy, AuditTable, Cluster, TableError};
use millrace_log::Position;
use millrace_log::audit::follow::{Followed, Follower};
use millrace_log::audit::{chain, name};

pub use self::verifying::{
    Compared, CopiesError, CopyFault, Difference, compare_with_copies, verify_copies, write_copies,
};
use crate::log::Log;
use crate::periodic::Periodic;

/// Records that are copied at a time.
const TOGETHER: usize = 500;

/// This many turns in which records are written, and none is found to copy, are worth a warning.
const IDLE_TURNS: u32 = 10;

/// Begins, where the nodes have copies of one another's audit logs and this server has one. When it is dropped, it copies what
/// there is and ends.
pub(crate) fn start(cluster: Option<&Arc<Cluster>>, log: &Log) -> io::Result<Option<Periodic>> {
    let Some(cluster) = cluster else { return Ok(None) };
    let (Some(table), Some(position)) = (cluster.audit(), log.audit_position()) else { return Ok(None) };
    let (path, _) = position?;
    let mut copier = Copier {
        table: Arc::clone(table),
        chain: name::read_or_draw(&path)?,
        node: cluster.name().to_owned(),
        path,
        log: log.clone(),
        reader: None,
        is_away: false,
        idle_turns: 0,
    };
    Periodic::start("millrace-copies", move |_| copier.turn()).map(Some)
}

/// Why nothing was copied.
#[derive(Debug, thiserror::Error)]
enum CopyError {
    /// The database has no answer.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The file cannot be read.
    #[error("the audit log cannot be read: {0}")]
    File(#[from] io::Error),
    /// The file is not the one whose records were copied.
    #[error("{0}")]
    Forged(String),
}

struct Copier {
    table: Arc<dyn AuditTable>,
    chain: String,
    node: String,
    path: PathBuf,
    log: Log,
    /// Once the database has said how far it is: the last record there, and the reader behind it.
    reader: Option<(Option<Last>, Follower)>,
    is_away: bool,
    /// How many turns have found nothing, though the head says that more is written.
    idle_turns: u32,
}

/// The last record that was copied.
struct Last {
    seq: u64,
    sha256: String,
}

impl Copier {
    /// Copies what is new; false: never again.
    fn turn(&mut self) -> bool {
        let was_away = self.is_away;
        match self.copy() {
            Ok(()) => {
                self.is_away = false;
                if was_away {
                    self.log.warn("the cluster has copies of all records of the audit log again");
                }
            }
            Err(CopyError::Forged(why)) => {
                let (path, chain) = (self.path.display(), name::file_of(&self.path));
                self.log.warn(&format!(
                    "the audit log {path} was cut or changed: {why}; nothing more is copied to the cluster until {} is \
                     removed, and the server started again",
                    chain.display()
                ));
                return false;
            }
            Err(error) => {
                self.is_away = true;
                // What was put without an answer is asked about.
                self.reader = None;
                if !was_away {
                    self.log.warn(&format!(
                        "{error}; records of the audit log are copied to the cluster when that is possible again"
                    ));
                }
            }
        }
        true
    }

    fn copy(&mut self) -> Result<(), CopyError> {
        let (last, reader) = match &mut self.reader {
            Some(known) => known,
            none => {
                let last = self.table.last(&self.chain)?;
                let behind = last.as_ref().map_or(0, |last| last.seq);
                let last = last.map(|AuditCopy { seq, sha256, .. }| Last { seq, sha256 });
                none.insert((last, Follower::behind(&self.path, behind)))
            }
        };
        let written = chain::last_written(&self.path)?;
        compare_end(&self.path, last.as_ref(), written)?;
        // What is not on disk yet may be another record after a power cut: the head is written when it is. Without a head
        // that cannot be known.
        let on_disk = written.map_or(u64::MAX, |written| written.seq);
        loop {
            let records = reader.read_to(on_disk, TOGETHER)?;
            let (Some(first), Some(newest)) = (records.first(), records.last()) else { break };
            compare_begin(last.as_ref(), first)?;
            let before = last.as_ref().map_or(0, |last| last.seq);
            if before > 0 && first.position.seq > before + 1 {
                self.log.warn(&format!(
                    "the cluster has no copies of the records {} to {} of the audit log: no file here has them",
                    before + 1,
                    first.position.seq - 1
                ));
            }
            let copies: Vec<AuditCopy> = records.iter().map(copy_of).collect();
            if let Some(other) = self.table.put(&self.chain, &self.node, &copies)? {
                return Err(CopyError::Forged(format!("the cluster has another record {other}")));
            }
            *last = Some(Last { seq: newest.position.seq, sha256: newest.position.sha256.to_string() });
        }
        let copied = last.as_ref().map_or(0, |last| last.seq);
        self.note_idle_turn(written.filter(|written| written.seq > copied).map(|_| copied + 1));
        Ok(())
    }

    /// Says when a record that was written, as the head says, has been in no file for a while.
    fn note_idle_turn(&mut self, missing: Option<u64>) {
        self.idle_turns = missing.map_or(0, |_| self.idle_turns.saturating_add(1));
        if let Some(missing) = missing.filter(|_| self.idle_turns == IDLE_TURNS) {
            self.log.warn(&format!(
                "the records of the audit log from {missing} on are not copied to the cluster: no file here has them, though                  they were written"
            ));
        }
    }
}

fn copy_of(record: &Followed) -> AuditCopy {
    AuditCopy {
        seq: record.position.seq,
        sha256: record.position.sha256.to_string(),
        line: record.line.clone(),
    }
}

/// The log has to have the last record that was copied: by its head, or where that is older, in a file.
fn compare_end(path: &Path, last: Option<&Last>, written: Option<Position>) -> Result<(), CopyError> {
    let Some(last) = last else { return Ok(()) };
    let is_last = |found: Position| found.seq == last.seq && found.sha256.to_string() == last.sha256;
    if written.is_some_and(|written| written.seq > last.seq || is_last(written)) {
        return Ok(());
    }
    let found =
        Follower::behind(path, last.seq.saturating_sub(1)).read(1)?.first().map(|found| found.position);
    match found {
        Some(found) if is_last(found) => Ok(()),
        Some(found) if found.seq == last.seq => {
            Err(CopyError::Forged(format!("the cluster has another record {}", last.seq)))
        }
        _ => Err(CopyError::Forged(format!("it has no record {}, which the cluster has", last.seq))),
    }
}

/// A record that follows the last one that was copied has to say so.
fn compare_begin(last: Option<&Last>, first: &Followed) -> Result<(), CopyError> {
    match last {
        Some(last) if first.position.seq == last.seq + 1 && first.prev.to_string() != last.sha256 => {
            Err(CopyError::Forged(format!("the cluster has another record {}", last.seq)))
        }
        _ => Ok(()),
    }
}
