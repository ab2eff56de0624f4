//! The Millrace server as a library.
//!
//! ```no_run
//! use std::sync::Arc;
//! use millrace_server::storage::MemoryStorage;
//! use millrace_server::{Accounts, Config, Permissions, Server};
//!
//! let tree = Arc::new(MemoryStorage::new());
//! let accounts = Accounts::new().user("alice", "secret", Permissions::READ_WRITE, tree);
//! let config = Config { ftp: vec!["127.0.0.1:0".parse()?], ..Config::new(Arc::new(accounts)) };
//! let running = Server::start(config)?;
//! println!("ftp://{}", running.ftp_addresses()[0]);
//! running.shut_down();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Where to look: [`Config`] is everything that can be set; [`Authenticator`],
//! [`Storage`](millrace_vfs::Storage) and [`Hooks`] are the doors for accounts, files and actions of your own.
//! The reactor is `runtime`; control sessions are driven by `ftp-server`, requests by `http-server`. Accounts, limits, hooks, logs, transfers and
//! passive ports are crates of their own; those that embedders need are re-exported here.

mod audit_copies;
mod certificates;
pub mod config;
mod data_relay;
mod disks;
mod housekeeping;
mod kept_bans;
mod links;
mod membership;
mod periodic;
mod running;
#[cfg(test)]
mod simulation;
mod state;
pub use millrace_http_server::web;
mod worker;
pub use worker::Door;

// By the names that the modules here know them by.
/// Who tells a server something, and where its audit log is.
pub use log::{Actor, Administrator, Live, Position, TraceFilter};
pub use millrace_accounts as auth;
use millrace_blocking as blocking;
pub use millrace_cluster as cluster;
pub use millrace_hooks as hooks;
pub use millrace_limits as limits;
pub use millrace_limits::{BanReport, BanRules, Network, NetworkError};
use millrace_log as log;
pub use millrace_runtime::report::{SessionReport, TransferReport, WaitsFor};
use millrace_runtime::{passive, tls};

pub use audit_copies::{
    Compared, CopiesError, CopyFault, Difference, compare_with_copies, verify_copies, write_copies,
};
pub use auth::{Account, Accounts, Attempt, Authenticator, Decision, Protocol};
pub use config::{Config, Inherited};
pub use hooks::Hooks;
pub use links::{LinkMaker, LinkRefused, MadeLink, NewLink, issue_link};
pub use millrace_ftp::session::{Permission, Permissions, Rules};
pub use millrace_metrics as metrics;
pub use millrace_runtime::login::LoginAttempt;
/// Back ends for files: memory, folders, databases, and layers over them.
pub use millrace_storage as storage;
/// What a back end of your own implements.
pub use millrace_vfs as vfs;
pub use running::connection::ConnectionError;
pub use running::logins::{AdminLogin, find_account, note_wrong_token};
pub use running::readings::{Readiness, readings_of, spans_of};
pub use running::upgrade::{AdminListener, HandOverError, Predecessor, TakeOverError, hand_over_also};
pub use running::{
    Prepared, ReloadError, Running, Server, StartError, cluster_of, perform_errands, set_limits_of_cluster,
    share_tokens,
};
