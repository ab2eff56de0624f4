//! What several servers share that name one database: the nodes with their leases, the places of sessions, bans.
//!
//! ```text
//!  logins (pool)        the keeper (a thread)            the database
//!  cluster.rs  take ──►  keeper.rs: renew, free, bans ──► table.rs (trait), postgres/ (tables and functions)
//!                  └──►  book.rs: places held here, lease.rs: may this node grant?
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

mod ban_sync;
mod book;
mod cluster;
mod keeper;
mod lease;
mod lock;
#[cfg(feature = "postgres")]
mod postgres;
mod scope;
mod table;

pub use cluster::{Cluster, Place, PlaceError, Timing};
pub use keeper::Member;
#[cfg(feature = "postgres")]
pub use postgres::PostgresTable;
pub use scope::{Claim, SharedScope};
pub use table::{
    BanChange, Epoch, NodeEntry, NodeReport, NodeState, Pulled, Renewal, SharedBan, Table, TableError, Taking,
};
