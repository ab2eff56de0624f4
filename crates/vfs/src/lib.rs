//! The vocabulary of files: what protocols ask for and what storage back ends answer.
//!
//! A protocol knows paths, metadata, handles and errors; a back end implements [`Storage`]. Neither
//! knows the other. This crate imports nothing of ours and does no I/O itself.
//!
//! Two ideas run through it:
//!
//! - **Zero-copy is data.** A [`ReadHandle`] *says* whether it is a file, which the kernel can send by
//!   itself, or a stream of buffers; the transfer engine has the only `match`.
//! - **Waiting is asked for.** Every operation is called with a [`Wait`]: a reactor thread passes
//!   [`Wait::Never`] and gets [`FileError::WouldWait`] where the answer is not in memory; the same call
//!   is then repeated on a blocking pool with [`Wait::Allowed`].

mod civil;
pub mod conformance;
mod error;
mod handle;
pub mod hash;
pub mod hex;
mod layer;
mod metadata;
mod partial;
mod path;
mod permission;
mod quota;
mod storage;

pub use civil::Civil;
pub use error::FileError;
pub use handle::{
    Committed, Conversion, DirEntry, Directory, FileRange, Link, ReadHandle, ReadStream, Readiness, Upload,
    WriteMode,
};
pub use layer::{Call, Layer};
pub use metadata::{Change, FileKind, Metadata, Owner, Special, Timestamp};
pub use partial::{Partial, PartialKey, PartialMode, PartialState, Resting};
pub use path::{PathError, VirtualPath};
pub use permission::{Permission, Permissions};
pub use quota::{Counted, Held, OverQuota, QuotaScope};
pub use storage::{Space, Storage, Wait};
