//! What a span tells.

use std::net::SocketAddr;

use millrace_metrics::{LoginResult, Waited};

use super::event::Measured;
use super::within::Within;

/// An operation that has ended.
#[derive(Debug, Clone)]
pub struct Span {
    /// What it was.
    pub operation: Operation,
    /// What it was a part of.
    pub within: Within,
    /// The number of its session in the log.
    pub session: u64,
    /// The address of the client.
    pub peer: SocketAddr,
    /// The user, once there is one.
    pub user: Option<String>,
    /// When it started, in microseconds since 1970.
    pub started: u64,
    /// When it ended.
    pub ended: u64,
    /// What it has waited for.
    pub waited: Waited,
    /// The transfer of a file or a listing, where it was one.
    pub transfer: Option<Measured>,
}

/// What an operation was.
#[derive(Debug, Clone)]
pub enum Operation {
    /// A session of FTP.
    Session {
        /// Why it has ended.
        reason: String,
    },
    /// A login.
    Login {
        /// What came of it.
        result: LoginResult,
        /// Why it was refused.
        reason: Option<String>,
    },
    /// A transfer of FTP.
    Transfer {
        /// The file or directory, as clients see it.
        path: String,
        /// Why not every byte arrived.
        failure: Option<String>,
    },
    /// A request of HTTP.
    Request {
        /// Empty where the request could not be understood.
        method: String,
        /// The requested target, as the log shows it.
        target: String,
        /// `HTTP/1.1`, or what else was spoken.
        protocol: &'static str,
        /// The host that was asked for.
        host: Option<String>,
        /// The field `User-Agent`.
        agent: Option<String>,
        /// The status of the answer.
        status: u16,
        /// Bytes of the body that went out.
        bytes: u64,
    },
}

impl Span {
    /// Returns the bytes of its texts.
    pub(super) fn text_bytes(&self) -> usize {
        let of = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let operation = match &self.operation {
            Operation::Session { reason } => reason.len(),
            Operation::Login { reason, .. } => of(reason),
            Operation::Transfer { path, failure } => path.len() + of(failure),
            Operation::Request { method, target, host, agent, .. } => {
                method.len() + target.len() + of(host) + of(agent)
            }
        };
        operation + of(&self.user)
    }
}
