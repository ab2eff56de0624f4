//! What several servers share that name one database: the nodes with their leases, the places of sessions, bans and
//! failed logins, the counts of quotas.
//!
//! ```text
//!  logins (pool)   places.rs ──┐                            ┌──► table.rs (trait), postgres/ (tables and functions)
//!  keeper (thread) keeper.rs ──┼─► book.rs: places held here ┘
//!  quotas (pool)   quotas.rs ──┘   lease.rs: may this node grant?   ban_sync.rs: which bans do both know?
//! ```
//!
//! The invariants:
//!
//! - The database's clock decides which leases hold. A node trusts its own clock only to stop earlier.
//! - Each write has the epoch of the node that makes it, which the same statement checks: the writes of a node whose lease
//!   was taken away are refused.
//! - The database counts a place from before its session begins until after the session has ended.
//!
//! No part of this knows what a session is, or which protocol it speaks.

mod asking;
mod ban_sync;
mod book;
mod browser_logins;
mod cluster;
mod errands;
mod failures;
mod keeper;
mod lease;
mod lock;
mod login_store;
mod member;
mod places;
#[cfg(feature = "postgres")]
mod postgres;
mod quotas;
mod scope;
mod secrets;
mod shared_secret;
#[cfg(test)]
mod simulation;
mod table;
mod trees;

pub use asking::NodeAnswer;
pub use browser_logins::{BrowserLogin, LoginEnd, LoginLifetime, LoginUse};
pub use cluster::Cluster;
pub use member::Member;
pub use places::{Place, PlaceError, Timing};
#[cfg(feature = "postgres")]
pub use postgres::PostgresTable;
pub use scope::{Claim, SharedScope};
pub use shared_secret::SharedSecret;
pub use table::{
    BanChange, Epoch, FailureEditions, Locking, NodeEntry, NodeReport, NodeState, Pulled, PulledFailures,
    Renewal, SharedBan, Table, TableError, Taking, Told,
};
