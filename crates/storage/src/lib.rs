//! Storage back ends: where the files are.
//!
//! Every back end implements [`millrace_vfs::Storage`] and passes [`millrace_vfs::conformance::run`]; a
//! protocol never learns which one it speaks to.
//!
//! | back end          | what it serves                                              | where waiting is needed |
//! |-------------------|-------------------------------------------------------------|-------------------------|
//! | [`LocalStorage`]  | a directory of this machine, beneath one descriptor          | when not in the caches  |
//! | [`UserStorage`]   | the same with the rights of a user of the system            | always                  |
//! | [`MemoryStorage`] | a tree in memory, for tests and for embedding                | never                   |
//! | [`ReadOnly`]      | any other back end, without its changes                      | as the other            |
//! | [`SqlStorage`]    | a tree in an SQLite or PostgreSQL database                    | always                  |
//! | [`Folders`]       | a back end with others mounted in it                         | as theirs               |
//! | [`Encrypted`]     | any other back end, its files' content encrypted              | always                  |
//! | [`Archives`]      | any other back end; a folder is also `folder.tar`, `.zip` ... | as the other            |
//! | [`Conversions`]   | any other back end; a file is also `file.gz`, and the reverse  | as the other            |
//! | [`Quota`]         | any other back end, bytes and files counted, and bounded      | as the other            |
//! | [`FaultStorage`]  | any other back end, failing or hanging on chosen calls: tests | as the other            |
//!
//! A new back end is one file beside these, a row here, and a test that calls the conformance suite.

mod archive;
mod conversion;
mod encrypted;
mod fault;
mod folders;
mod hashed;
mod identity;
mod local;
mod memory;
mod quota;
mod read_only;
mod sql;
mod through;
mod user;
mod verify;
mod withheld;

/// Synchronisation, which loom's tests of the same modules replace.
mod sync {
    pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
    pub(crate) use std::sync::{Arc, Mutex, MutexGuard};
}

pub use archive::Archives;
pub use conversion::Conversions;
pub use encrypted::{Encrypted, Key, KeyError};
pub use fault::{Fault, FaultStorage, Faults};
pub use folders::Folders;
pub use hashed::Hashed;
pub use identity::number as identity_of;
pub use local::{
    Durability, FoundDirectory, LocalError, LocalOptions, LocalStorage, RootDirectory, SweepReport, Uploads,
    as_user,
};
pub use memory::MemoryStorage;
pub use quota::{Allowance, Allowances, Ledger, LedgerError, Quota, Tally, TallyReport};
pub use quota::{Share, SharedCountError, SharedCounts, Telling, TreeState, Wish};
pub use read_only::ReadOnly;
#[cfg(feature = "postgres")]
pub use sql::{Connecting, PostgresError, PostgresServer};
pub use sql::{SqlError, SqlStorage};
pub use user::UserStorage;
pub use verify::{FileState, verify};
pub use withheld::Withheld;
