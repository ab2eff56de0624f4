//! The tables of resumable uploads.

use std::fmt::Debug;
use std::net::IpAddr;
use std::time::Duration;

use crate::question::TableError;

/// The key of an upload.
pub type UploadKey = [u8; 16];

/// What addresses of uploads are sealed with.
pub type UploadSecret = [u8; 32];

/// An upload that begins.
#[derive(Debug, Clone, Copy)]
pub struct NewUpload<'a> {
    /// Its key.
    pub key: UploadKey,
    /// The user as part of whose share it counts.
    pub user: Option<&'a [u8]>,
    /// The address.
    pub address: Option<IpAddr>,
    /// How long it waits for more.
    pub age: Duration,
    /// How many of one user wait at a time, and of one address.
    pub most: u64,
}

/// What is known of an upload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownUpload {
    /// Bytes of the whole, where that was said late, or it is a file.
    pub length: Option<u64>,
    /// It has become a file.
    pub is_finished: bool,
    /// Nothing forbids that any more.
    pub is_settled: bool,
    /// What a client said of the parts that it was joined from.
    pub parts: Option<Vec<u8>>,
}

/// What came of an upload, for its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UploadVerdict {
    /// Nothing forbids the file any more.
    Passed,
    /// It is no more, or was refused.
    Gone,
    /// It could not become the file that the record has it for which was made under this lock. It waits for so long.
    Unfinished {
        /// Its number.
        lock: u64,
        /// How long it waits for more.
        age: Duration,
    },
}

/// The tables of uploads. All functions wait.
pub trait UploadTable: Debug + Send + Sync {
    /// Returns the secret of all nodes: this one, where there is none yet.
    fn secret(&self, candidate: &UploadSecret) -> Result<UploadSecret, TableError>;

    /// Counts an upload. `false`: its user or its address has a whole share.
    fn begin_upload(&self, upload: &NewUpload<'_>) -> Result<bool, TableError>;

    /// Returns what is known of an upload, and remembers it for as long from now.
    fn find_upload(&self, key: &UploadKey, age: Duration) -> Result<Option<KnownUpload>, TableError>;

    /// The length of an upload was said. `false`: another one was said before.
    fn say_length(&self, key: &UploadKey, length: u64, age: Duration) -> Result<bool, TableError>;

    /// An upload becomes a file, which is remembered for so long. `false`: the node that says so has not its lock any more;
    /// or it has none, and the file is known already.
    fn finish_upload(
        &self,
        key: &UploadKey,
        lock: Option<u64>,
        known: &KnownUpload,
        age: Duration,
    ) -> Result<bool, TableError>;

    /// Something came of an upload. To be told twice changes nothing.
    fn settle_upload(&self, key: &UploadKey, verdict: UploadVerdict) -> Result<(), TableError>;

    /// Returns whether the lock of an upload still has this number.
    fn holds_lock(&self, key: &UploadKey, number: u64) -> Result<bool, TableError>;

    /// Ends a lock.
    fn release_upload(&self, key: &UploadKey, number: u64) -> Result<(), TableError>;
}
