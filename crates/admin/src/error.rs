//! Why a request of an administrator is not carried out.

use std::io;

use millrace_hooks::QueueError;
use millrace_limits::{LimitError, NetworkError, Scope, ScopeError};
use millrace_server::HandOverError;
use millrace_server::cluster::TableError;
use millrace_storage::LedgerError;

use super::tokens::TokenError;

/// Why a reload changed nothing: the program around the server has errors of its own.
pub type ReloadFailure = Box<dyn std::error::Error + Send + Sync>;

/// Why a request is not carried out: a sentence without its full stop.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The line is no request.
    #[error("not a request: {0}")]
    NotARequest(#[from] serde_json::Error),
    /// A kick of all sessions.
    #[error("say whom: a session, a user, a host, an address or a node")]
    KickWhom,
    /// A trace of all sessions.
    #[error("say whom: a user, an address or a session")]
    TraceWhom,
    /// There are as many traces as there may be.
    #[error("there are as many traces as there may be; end another")]
    TooManyTraces,
    /// An order whose answer is a stream, where none can be sent.
    #[error("this is followed live: at the control socket, or by GET /api/v1/trace and /api/v1/log")]
    Live,
    /// An order that has one answer.
    #[error("this has one answer, and is not followed")]
    NotLive,
    /// Limits without a scope.
    #[error("say whose: server, user NAME, session NUMBER")]
    LimitsWhose,
    /// A text that names no scope.
    #[error(transparent)]
    NotAScope(#[from] ScopeError),
    /// The scope and its limits are too long for the table of the cluster.
    #[error(
        "the scope and its limits have {0} bytes, and no more than 2048 can be set for all nodes of a cluster"
    )]
    LongLimits(usize),
    /// The table of the cluster has no room.
    #[error(
        "limits of 256 scopes are set for the nodes of the cluster already; restore those of others first"
    )]
    TooManyLimits,
    /// No account source knows the user.
    #[error("no account has the name {0}")]
    UnknownUser(String),
    /// A scope that does not exist now.
    #[error("there is no {0}")]
    UnknownScope(Scope),
    /// A text that is no limit.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// A text that is no network.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The list of bans is full.
    #[error("too many networks are banned already; deny a larger one")]
    TooManyBans,
    /// There is no ban to lift.
    #[error("{0} is not banned")]
    NotBanned(String),
    /// Quotas cannot be counted.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A contradictory choice of events.
    #[error("say which: their ids, or all, and then of one receiver if not of all")]
    WhichEvents,
    /// No hook stores events.
    #[error("there is no queue: no [[hook]] needs one, or hooks-queue names none")]
    NoQueue,
    /// The queue of events fails, or has no such event.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The server is no node.
    #[error("this server is no node of a cluster: there is no [cluster] table")]
    NoCluster,
    /// The cluster has no such node, or its lease is over.
    #[error("the cluster has no node {0} that serves")]
    UnknownNode(String),
    /// A node has not answered.
    #[error("no answer of the node {0}, which has the session")]
    SilentNode(String),
    /// Several nodes serve under the name.
    #[error(
        "{1} nodes that serve are called {0}: end sessions by their numbers, and give each node a name of its own, by node in \
         [cluster]"
    )]
    AmbiguousNode(String, usize),
    /// The database of the cluster has no answer.
    #[error("{0}")]
    Cluster(TableError),
    /// No notices are configured.
    #[error("there is no receiver of notices: no [[notice]] table names one")]
    NoNotices,
    /// No audit log is configured.
    #[error("there is no audit log: audit-log names its file")]
    NoAuditLog,
    /// The audit log cannot be read.
    #[error("the audit log cannot be read: {0}")]
    AuditLog(io::Error),
    /// The new configuration is not in force.
    #[error("{0}")]
    Reload(ReloadFailure),
    /// The server ends.
    #[error("this server is shutting down and accepts no more clients")]
    Ending,
    /// What is to be done later cannot wait for its time.
    #[error("no thread can be started: {0}")]
    NoThread(io::Error),
    /// An upgrade is under way.
    #[error("another server is being started already")]
    Upgrading,
    /// The new server did not take over.
    #[error("the server that runs goes on as it was: {0}")]
    Upgrade(#[from] HandOverError),
    /// A token is not made or removed.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The control socket is not given to another server yet.
    #[error("this server lets clients in")]
    Serving,
}

/// Whose fault it is that a request is not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// What it names is not there.
    Missing,
    /// The server is in no state for it.
    State,
    /// It makes no sense.
    Request,
    /// The system does not do its part.
    System,
    /// The database of the cluster has no answer now.
    Away,
}

impl AdminError {
    /// Returns whose fault it is.
    pub fn blame(&self) -> Blame {
        match self {
            Self::UnknownUser(_)
            | Self::UnknownScope(_)
            | Self::NotBanned(_)
            | Self::NoQueue
            | Self::NoAuditLog
            | Self::NoNotices
            | Self::NoCluster
            | Self::UnknownNode(_)
            | Self::Queue(QueueError::NoEvent(_))
            | Self::Token(TokenError::Unknown(_)) => Blame::Missing,
            Self::TooManyBans
            | Self::TooManyTraces
            | Self::TooManyLimits
            | Self::AmbiguousNode(..)
            | Self::Ending
            | Self::Upgrading
            | Self::Upgrade(_)
            | Self::Serving
            | Self::Token(TokenError::Taken(_) | TokenError::TooMany | TokenError::NoFolder) => Blame::State,
            Self::NotARequest(_)
            | Self::KickWhom
            | Self::TraceWhom
            | Self::Live
            | Self::NotLive
            | Self::LimitsWhose
            | Self::NotAScope(_)
            | Self::LongLimits(_)
            | Self::Limit(_)
            | Self::Network(_)
            | Self::WhichEvents
            | Self::Reload(_)
            | Self::Token(TokenError::Name) => Blame::Request,
            Self::Cluster(_) | Self::SilentNode(_) | Self::Token(TokenError::Cluster(_)) => Blame::Away,
            Self::Ledger(_) | Self::Queue(_) | Self::AuditLog(_) | Self::NoThread(_) | Self::Token(_) => {
                Blame::System
            }
        }
    }
}
