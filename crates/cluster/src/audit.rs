//! Copies of the nodes' audit logs, kept where a node alone cannot make them undone without its database.
//!
//! Each node has a chain of records in files of its own. A copy is a record with its number and its SHA-256; of which chain, a
//! name says that was drawn when the chain was first copied. A copy is never replaced.

use std::fmt::Debug;

use crate::table::TableError;

/// A record of an audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditCopy {
    /// Its number in its chain.
    pub seq: u64,
    /// The SHA-256 of its line, in hexadecimal digits.
    pub sha256: String,
    /// The line as the file has it, without its end.
    pub line: String,
}

/// What there is of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditChain {
    /// Its name.
    pub chain: String,
    /// The node that has written it, by the name that it had last.
    pub node: String,
    /// The number of its first record.
    pub first: u64,
    /// The number of its last record.
    pub last: u64,
}

/// A record as it came among those of all nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrivedRecord {
    /// Its place among all.
    pub number: i64,
    /// The name of the node.
    pub node: String,
    /// The line.
    pub line: String,
}

/// The table of copies. Every function waits for the database.
pub trait AuditTable: Debug + Send + Sync {
    /// Returns the last record of a chain.
    fn last(&self, chain: &str) -> Result<Option<AuditCopy>, TableError>;

    /// Keeps records. Returns the number of one that is there already and is another.
    fn put(&self, chain: &str, node: &str, records: &[AuditCopy]) -> Result<Option<u64>, TableError>;

    /// Lists the chains.
    fn chains(&self) -> Result<Vec<AuditChain>, TableError>;

    /// Reads the records of a chain behind a number, in their order.
    fn read(&self, chain: &str, behind: u64, most: usize) -> Result<Vec<AuditCopy>, TableError>;

    /// Reads the records of all nodes behind a number, in the order in which they came.
    fn arrived(&self, behind: i64, most: usize) -> Result<Vec<ArrivedRecord>, TableError>;
}
