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
    /// How long ago it began.
    pub age: Duration,
    /// For how long nothing has come from the client, and no byte of a transfer moved.
    pub idle: Duration,
    /// The last command of FTP, or the method of the running request.
    pub command: Option<String>,
    /// The working directory of FTP, or the target of the running request.
    pub place: Option<Vec<u8>>,
    /// What it waits for.
    pub waits_for: WaitsFor,
    /// The running transfer.
    pub transfer: Option<TransferReport>,
}

/// What a session waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitsFor {
    /// The next command or request.
    Command,
    /// The client is to take, or to send, bytes.
    Client,
    /// The client is to connect for data, or to be connected to.
    DataConnection,
    /// A passive port is to become free.
    PassivePort,
    /// TLS is being agreed on.
    Handshake,
    /// A login is decided, or its answer is held back.
    Login,
    /// A hook decides.
    Hook,
    /// A disk or a database.
    Storage,
    /// A limit on bandwidth.
    Limit,
    /// A program or another server answers.
    Upstream,
}

impl WaitsFor {
    /// Returns it in words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Client => "client",
            Self::DataConnection => "data connection",
            Self::PassivePort => "passive port",
            Self::Handshake => "handshake",
            Self::Login => "login",
            Self::Hook => "hook",
            Self::Storage => "storage",
            Self::Limit => "limit",
            Self::Upstream => "upstream",
        }
    }
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
