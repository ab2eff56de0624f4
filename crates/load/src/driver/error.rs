//! Why a cell cannot be measured.

use std::net::SocketAddr;

use thiserror::Error;

use super::files::CacheError;
use crate::plan::Op;
use crate::progress::Left;
use crate::target::Scheme;

/// Why a cell cannot be measured at all.
#[derive(Debug, Error)]
pub enum DriverError {
    /// The protocol does not have this operation.
    #[error(
        "{op} cannot be measured so over {scheme}://: ftp:// has retr, stor and the others, http:// has get"
    )]
    NoOperation {
        /// The operation.
        op: Op,
        /// As in the target.
        scheme: Scheme,
    },
    /// The server cannot be reached.
    #[error("{address}: {error}")]
    Unreachable {
        /// Where it should have been.
        address: SocketAddr,
        /// The system's error.
        error: std::io::Error,
    },
    /// It accepted the connection and is silent.
    #[error("{address} {how} where {what} was expected")]
    Silent {
        /// Where it is.
        address: SocketAddr,
        /// What happened instead.
        how: String,
        /// A reply.
        what: String,
    },
    /// It speaks first, unencrypted.
    #[error("{address} does not begin with TLS, as {scheme}:// does: {remedy} does without")]
    NotTls {
        /// Where it is.
        address: SocketAddr,
        /// As in the target.
        scheme: Scheme,
        /// The scheme that may have been meant.
        remedy: &'static str,
    },
    /// It does not negotiate HTTP/2.
    #[error("{address} does not agree on HTTP/2 (ALPN): --http 1.1 does without")]
    NoHttp2 {
        /// Where it is.
        address: SocketAddr,
    },
    /// The server refused something that the load needs, for example to store its files.
    #[error("the server refused {what}: {reply}")]
    Refused {
        /// The command.
        what: String,
        /// Its reply.
        reply: String,
    },
    /// The account may not write, and the load needs files.
    #[error(
        "the server refused {what}: {reply} (the load takes an account that may write there; or download what is there \
         already, with --ops retr --file NAME)"
    )]
    NotStored {
        /// The command.
        what: String,
        /// Its reply.
        reply: String,
    },
    /// The target's folder is not there, or not for this account.
    #[error("there is no folder {folder:?} for test files, make it first: the server says {reply}")]
    NoFolder {
        /// As in the target.
        folder: String,
        /// The server's reply.
        reply: String,
    },
    /// The server violates the protocol.
    #[error("{address}: {error}; is it a server for {scheme}://?")]
    Protocol {
        /// Where it is.
        address: SocketAddr,
        /// As in the target.
        scheme: Scheme,
        /// The violation.
        error: millrace_ftp::client::ClientError,
    },
    /// A file was sent where a program was to be run.
    #[error(
        "{target} is answered out of a file (the answer has {field}), and the load is for a program that runs for each \
         request: name one, such as http://127.0.0.1:8080/cgi-bin/program"
    )]
    NoProgram {
        /// The path.
        target: String,
        /// The field that only files' answers have.
        field: &'static str,
    },
    /// The files cannot be dropped from the server's page cache.
    #[error("the cache cannot be made cold: {0}")]
    Cache(CacheError),
    /// The test files would fill the server's disk.
    #[error(
        "--dataset-vs-ram: {needed} MiB of test files do not fit into the {free} MiB that are free there, of which a \
         tenth is to stay so"
    )]
    NoRoom {
        /// Their size.
        needed: u64,
        /// The free space.
        free: u64,
    },
    /// The room on the server is unknown.
    #[error(
        "--dataset-vs-ram: the server does not say how much room it has (AVBL); --server-root DIRECTORY names its folder"
    )]
    UnknownRoom,
    /// The user cancelled the removal; this many test files are left.
    #[error("the removal of test files was cancelled; {0} are left")]
    Left(usize),
    /// This machine failed.
    #[error("this machine: {0}")]
    Client(std::io::Error),
}

impl DriverError {
    /// Returns true if the request itself was impossible.
    pub(crate) fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::NoOperation { .. }
                | Self::NoRoom { .. }
                | Self::UnknownRoom
                | Self::NoProgram { .. }
                | Self::NoFolder { .. }
        )
    }
}

impl From<Left> for DriverError {
    fn from(_: Left) -> Self {
        Self::Left(0)
    }
}
