//! What several servers share that name one database: the nodes with their leases, the places of sessions, bans, the
//! counts of quotas.
//!
//! ```text
//!  logins (pool)   places.rs ──┐                            ┌──► table.rs (trait), postgres/ (tables and functions)
//!  keeper (thread) keeper.rs ──┼─► book.rs: places held here ┘
//!  quotas (pool)   quotas.rs ──┘   lease.rs: may this node grant?   ban_sync.rs: which bans do both know?
//!  hooks           events.rs (trait) ──► postgres/events.rs
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
mod audit;
mod ban_sync;
mod book;
mod cluster;
mod errands;
mod events;
mod keeper;
mod lease;
mod lock;
mod member;
mod places;
#[cfg(feature = "postgres")]
mod postgres;
mod quotas;
mod scope;
#[cfg(test)]
mod simulation;
mod table;
mod trees;

pub use asking::NodeAnswer;
pub use audit::{ArrivedRecord, AuditChain, AuditCopy, AuditTable};
pub use cluster::Cluster;
pub use events::{EventTable, Failure, MeantEvents, ReceiverCount, Settlement, SharedEvent, TakenReceiver};
pub use member::Member;
pub use places::{Place, PlaceError, Timing};
#[cfg(feature = "postgres")]
pub use postgres::{PostgresAudit, PostgresEvents, PostgresTable};
pub use scope::{Claim, SharedScope};
pub use table::{
    BanChange, Epoch, Locking, NodeEntry, NodeReport, NodeState, Pulled, Renewal, SharedBan, Table,
    TableError, Taking, Told,
};
