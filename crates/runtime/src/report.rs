//! Sessions and transfers as an administrator sees them.

use std::net::SocketAddr;
use std::time::Duration;

use millrace_limits::Protocol;

/// A session as an administrator sees it.
#[derive(Debug, Clone)]
pub struct SessionReport {
    /// As the log numbers it.
    pub number: u64,
    /// What it speaks.
    pub protocol: Protocol,
    /// The client.
    pub peer: SocketAddr,
    /// Where it connected to.
    pub local: SocketAddr,
    /// The user, once logged in.
    pub user: Option<Vec<u8>>,
    /// The running transfer.
    pub transfer: Option<TransferReport>,
}

/// A transfer that runs.
#[derive(Debug, Clone)]
pub struct TransferReport {
    /// `download`, `upload` or `listing`.
    pub kind: &'static str,
    /// The file.
    pub path: Vec<u8>,
    /// Bytes so far.
    pub bytes: u64,
    /// Bytes in all, where that is known.
    pub total: Option<u64>,
    /// For how long.
    pub elapsed: Duration,
    /// Whether a limit holds it back just now.
    pub held_back: bool,
}
