//! Looks at the copies of audit logs that a cluster has: whether their chains are whole, and whether a log is as they are.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use millrace_cluster::{AuditChain, AuditCopy, AuditTable, TableError};
use millrace_log::Sha256;
use millrace_log::audit::follow::{Followed, Follower};
use millrace_log::audit::name;
use thiserror::Error;

/// Records that are read at a time.
const TOGETHER: usize = 500;

/// Why copies do not say that all is as it was written.
#[derive(Debug, Error)]
pub enum CopiesError {
    /// The database has no answer.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A file cannot be read.
    #[error("{} cannot be read: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It is not known which copies are those of a log.
    #[error("{} is missing: it has the name by which the cluster knows the log", file.display())]
    NoName {
        /// The file that has the name.
        file: PathBuf,
    },
    /// A log is not as its copies are.
    #[error("{}: {difference}", log.display())]
    Differs {
        /// The log.
        log: PathBuf,
        /// What is different.
        difference: Difference,
    },
    /// The copies of a chain are not whole.
    #[error("{node}, chain {chain} in the database: {fault}")]
    Broken {
        /// The node that has written it.
        node: String,
        /// The name of the chain.
        chain: String,
        /// What is wrong.
        fault: CopyFault,
    },
}

/// What of a log is not as its copies are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Difference {
    /// A record is another.
    #[error("record {0} is not the one that the cluster has")]
    Other(u64),
    /// Copies were removed.
    #[error("the cluster has no record {0}, but later ones")]
    NoCopy(u64),
    /// Records were cut off.
    #[error("records {first} to {last} are missing at the end: the cluster has them")]
    EndMissing {
        /// The first of them.
        first: u64,
        /// The last of them.
        last: u64,
    },
}

/// What is wrong with the copies of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CopyFault {
    /// A record is not what its SHA-256 says, or what the next one says of it.
    #[error("record {0} was changed")]
    Changed(u64),
    /// Some were removed.
    #[error("records {first} to {last} are missing")]
    Missing {
        /// The first of them.
        first: u64,
        /// The last of them.
        last: u64,
    },
}

/// How a log compares with its copies, where none differs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Compared {
    /// Records of which there is a copy.
    pub equal: u64,
    /// Records at the end that have no copy yet.
    pub without: u64,
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "The cluster has the same of {} of them.", self.equal)?;
        match self.without {
            0 => Ok(()),
            without => writeln!(f, "It has no copies of the last {without} yet."),
        }
    }
}

/// Verifies the chains of all nodes, each by itself, and tells of those that are whole. The error is of the first that is not;
/// others are told, too.
pub fn verify_copies(table: &dyn AuditTable, out: &mut dyn Write) -> Result<(), CopiesError> {
    let (chains, mut verified) = (table.chains()?, Ok(()));
    if chains.is_empty() {
        let _ = writeln!(out, "There is no copy.");
    }
    for chain in chains {
        let AuditChain { chain: name, node, first, last } = &chain;
        let of_chain = format!("{node}, chain {name}: records {first} to {last}");
        let _ = match verify_chain(table, &chain) {
            Ok(sha256) => {
                writeln!(out, "{of_chain} are as they were written; the last has the SHA-256 {sha256}.")
            }
            Err(error @ CopiesError::Table(_)) => return Err(error),
            Err(error) if verified.is_ok() => {
                verified = Err(error);
                Ok(())
            }
            Err(error) => writeln!(out, "{error}."),
        };
    }
    verified
}

fn verify_chain(table: &dyn AuditTable, chain: &AuditChain) -> Result<String, CopiesError> {
    let mut before: Option<AuditCopy> = None;
    let mut copies = Copies::of(table, &chain.chain, chain.first.saturating_sub(1));
    while let Some(copy) = copies.next()? {
        if let Some(fault) = fault(before.as_ref(), &copy) {
            let AuditChain { chain, node, .. } = chain.clone();
            return Err(CopiesError::Broken { node, chain, fault });
        }
        before = Some(copy);
    }
    Ok(before.map_or_else(String::new, |copy| copy.sha256))
}

fn fault(before: Option<&AuditCopy>, copy: &AuditCopy) -> Option<CopyFault> {
    let seq = copy.seq;
    if Sha256::of(copy.line.as_bytes()).to_string() != copy.sha256 {
        return Some(CopyFault::Changed(seq));
    }
    let before = before?;
    let says = format!(",\"seq\":{seq},\"prev\":\"{}\"}}", before.sha256);
    match seq == before.seq + 1 {
        false => Some(CopyFault::Missing { first: before.seq + 1, last: seq - 1 }),
        true => (!copy.line.ends_with(&says)).then_some(CopyFault::Changed(before.seq)),
    }
}

/// Compares a log with the copies of it: the file of this path, and those that were moved away from there.
pub fn compare_with_copies(table: &dyn AuditTable, log: &Path) -> Result<Compared, CopiesError> {
    let failed = |source| CopiesError::Io { file: log.to_owned(), source };
    let chain = name::read(log).map_err(failed)?;
    let chain = chain.ok_or_else(|| CopiesError::NoName { file: name::file_of(log) })?;
    let differs = |difference| Err(CopiesError::Differs { log: log.to_owned(), difference });
    let (mut copies, mut copy) = (Copies::of(table, &chain, 0), None);
    let (mut compared, mut has_more, mut last) = (Compared::default(), true, 0);
    let mut records = Records { follower: Follower::behind(log, 0), read: Vec::new().into_iter() };
    while let Some(Followed { position, .. }) = records.next().map_err(failed)? {
        last = position.seq;
        while has_more && copy.as_ref().is_none_or(|copy: &AuditCopy| copy.seq < last) {
            copy = copies.next()?;
            has_more = copy.is_some();
        }
        match copy.as_ref().filter(|copy| copy.seq == last) {
            Some(copy) if copy.sha256 != position.sha256.to_string() => {
                return differs(Difference::Other(last));
            }
            Some(_) if compared.without > 0 => return differs(Difference::NoCopy(last - 1)),
            Some(_) => compared.equal += 1,
            None if compared.equal > 0 || !has_more => compared.without += 1,
            // Older than what is kept in the database.
            None => {}
        }
    }
    match table.last(&chain)?.map_or(0, |copy| copy.seq) {
        newest if newest > last => differs(Difference::EndMissing { first: last + 1, last: newest }),
        _ => Ok(compared),
    }
}

/// Writes the records of all nodes in the order in which they came, or those of one; each with its node. A reader that has gone is
/// no error.
pub fn write_copies(
    table: &dyn AuditTable,
    of: Option<&str>,
    out: &mut dyn Write,
) -> Result<(), CopiesError> {
    let mut behind = 0;
    loop {
        let some = table.arrived(behind, TOGETHER)?;
        let Some(last) = some.last() else { return Ok(()) };
        behind = last.number;
        for record in some.iter().filter(|record| of.is_none_or(|of| record.node == of)) {
            let node = serde_json::Value::from(&*record.node);
            let rest = record.line.strip_prefix('{').unwrap_or("}");
            if writeln!(out, "{{\"node\":{node},{rest}").is_err() {
                return Ok(());
            }
        }
    }
}

/// The copies of a chain, in their order.
struct Copies<'a> {
    table: &'a dyn AuditTable,
    chain: &'a str,
    last: u64,
    read: std::vec::IntoIter<AuditCopy>,
}

impl<'a> Copies<'a> {
    fn of(table: &'a dyn AuditTable, chain: &'a str, behind: u64) -> Self {
        Self { table, chain, last: behind, read: Vec::new().into_iter() }
    }

    fn next(&mut self) -> Result<Option<AuditCopy>, TableError> {
        if self.read.len() == 0 {
            self.read = self.table.read(self.chain, self.last, TOGETHER)?.into_iter();
        }
        let copy = self.read.next();
        self.last = copy.as_ref().map_or(self.last, |copy| copy.seq);
        Ok(copy)
    }
}

/// The records of a log, in their order, through its files.
struct Records {
    follower: Follower,
    read: std::vec::IntoIter<Followed>,
}

impl Records {
    fn next(&mut self) -> io::Result<Option<Followed>> {
        if self.read.len() == 0 {
            self.read = self.follower.read(TOGETHER)?.into_iter();
        }
        Ok(self.read.next())
    }
}
