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
//! `http/` drives requests. The reactor is `runtime`, control sessions are driven by `ftp-server`. Accounts, limits, hooks, logs, transfers and
//! passive ports are crates of their own; those that embedders need are re-exported here.

mod certificates;
mod client;
pub mod config;
mod doors;
mod housekeeping;
mod http;
mod kept_bans;
mod running;
mod state;
mod streams;
mod upgrade;
pub mod web;
mod worker;

// By the names that the modules here know them by.
pub use millrace_accounts as auth;
use millrace_blocking as blocking;
use millrace_blocking as turns;
pub use millrace_hooks as hooks;
pub use millrace_limits as limits;
pub use millrace_limits::{BanReport, BanRules, Network, NetworkError};
use millrace_log as log;
use millrace_process as program;
pub use millrace_runtime::report::{SessionReport, TransferReport};
use millrace_runtime::{passive, slab, tls, transfer};

pub use auth::{Account, Accounts, Attempt, Authenticator, Decision, Protocol};
pub use config::Config;
pub use hooks::Hooks;
pub use millrace_ftp::session::{Permission, Permissions, Rules};
/// Back ends for files: memory, folders, databases, and layers over them.
pub use millrace_storage as storage;
/// What a back end of your own implements.
pub use millrace_vfs as vfs;
pub use running::{Prepared, ReloadError, Running, Server, StartError};
pub use upgrade::{HandOverError, Predecessor};
