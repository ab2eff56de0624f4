//! Sessions and transfers as an administrator sees them.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use millrace_limits::Protocol;
use millrace_metrics::{Cause, Waited};
use millrace_net::stream;

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
    /// The first name or address of the user's virtual host.
    pub host: Option<Arc<str>>,
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
    /// What was sent is to arrive at the client, which has room for more.
    Network,
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
    /// Other connections have their turn.
    Processor,
    /// A program or another server answers.
    Upstream,
}

impl WaitsFor {
    /// Returns it in words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Client => "client",
            Self::Network => "network",
            Self::DataConnection => "data connection",
            Self::PassivePort => "passive port",
            Self::Handshake => "handshake",
            Self::Login => "login",
            Self::Hook => "hook",
            Self::Storage => "storage",
            Self::Limit => "limit",
            Self::Processor => "processor",
            Self::Upstream => "upstream",
        }
    }

    /// Returns what a transfer waits for whose session waits for this.
    pub fn cause(self) -> Option<Cause> {
        match self {
            Self::DataConnection | Self::PassivePort => Some(Cause::Connection),
            Self::Handshake => Some(Cause::Handshake),
            Self::Client => Some(Cause::Client),
            Self::Network => Some(Cause::Network),
            Self::Limit => Some(Cause::Limit),
            Self::Storage => Some(Cause::Storage),
            Self::Processor => Some(Cause::Processor),
            Self::Command | Self::Login | Self::Hook | Self::Upstream => None,
        }
    }

    /// Returns what a download waits for that waits for its client, where its connection says that this is the network.
    #[must_use]
    pub fn or_network(self, socket: Option<&OwnedFd>) -> Self {
        match socket {
            Some(socket) if self == Self::Client && network_share(socket) > 0.5 => Self::Network,
            _ => self,
        }
    }
}

/// Returns how much of the time in which bytes were on their way the client had room for more: then it was the network
/// that they waited for. 0 where that is not known.
pub fn network_share(socket: &OwnedFd) -> f64 {
    match stream::busy(socket) {
        Ok((busy, held_up)) if !busy.is_zero() => 1.0 - held_up.as_secs_f64() / busy.as_secs_f64(),
        _ => 0.0,
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
    /// What it has waited for.
    pub waited: Waited,
}
