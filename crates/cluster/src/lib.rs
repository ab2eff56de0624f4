//! What several servers share that name one database: the nodes with their leases, the places of sessions, bans and
//! failed logins, the counts of quotas, locks and properties of WebDAV, resumable uploads, ways for data connections,
//! tokens of the admin API, limits that are set while nodes run.
//!
//! ```text
//!  logins (pool)   places.rs ──┐                            ┌──► table.rs (trait), postgres/ (tables and functions)
//!  keeper (thread) keeper.rs ──┼─► book.rs: places held here ┘
//!  quotas (pool)   quotas.rs ──┤   lease.rs: may this node grant?   ban_sync.rs: which bans do both know?
//!  WebDAV (pool)   dav.rs ─────┤
//!  tus (pool)      uploads.rs ─┘
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
mod browser_logins;
mod cluster;
mod data_route;
mod dav;
mod dav_table;
mod errands;
mod events;
mod failures;
mod keeper;
mod known_locks;
mod lease;
mod limit_sync;
mod lock;
mod locked_upload;
mod login_rates;
mod login_store;
mod member;
mod namesakes;
mod open_uploads;
mod places;
#[cfg(feature = "postgres")]
mod postgres;
mod question;
mod quotas;
mod scope;
mod secrets;
mod set_limits;
mod shared_secret;
#[cfg(test)]
mod simulation;
mod table;
mod tokens;
mod transfers;
mod trees;
mod upload_table;
mod uploads;

pub use asking::NodeAnswer;
pub use audit::{ArrivedRecord, AuditChain, AuditCopy, AuditTable};
pub use browser_logins::{BrowserLogin, LoginEnd, LoginLifetime, LoginUse};
pub use cluster::Cluster;
pub use data_route::{DataRoute, NONCE, SEAL, nonce};
pub use dav_table::{
    Changing, DavTable, FoundDav, Granting, LockBounds, NewLocks, PlaceDigest, SharedLock, SharedProperties,
    Wanted,
};
pub use events::{EventTable, Failure, MeantEvents, ReceiverCount, Settlement, SharedEvent, TakenReceiver};
pub use locked_upload::{Holding, LockedUpload};
pub use member::Member;
pub use places::{Place, PlaceError, Timing};
#[cfg(feature = "postgres")]
pub use postgres::{PostgresAudit, PostgresEvents, PostgresTable};
pub use scope::{Claim, SharedScope};
pub use set_limits::{LimitTable, SetLimits};
pub use shared_secret::SharedSecret;
pub use table::{
    Asker, BanChange, Epoch, FailureEditions, Locking, NodeEntry, NodeReport, NodeState, Pulled,
    PulledFailures, Renewal, SharedBan, Table, TableError, Taking, Told, TrafficTurn,
};
pub use tokens::{SharedToken, TokenEdition, TokenKeeping, TokenStore, TokenTable};
pub use upload_table::{KnownUpload, NewUpload, UploadKey, UploadSecret, UploadTable, UploadVerdict};
pub use uploads::{UploadDenied, UploadLock};
