//! The metrics of a server: what is counted, where it is counted, and the text that Prometheus reads.
//!
//! Each worker counts in a [`Shard`] of its own, so that no two cores write to one cache line. A [`Registry`] adds the
//! shards up when it is scraped. A metric is a row of [`ROWS`]; the text and `docs/metrics.md` are written from the rows.
//!
//! The invariant: the values of a counted metric's labels stand in its row, so that no client can make another series.

mod page;
mod process;
mod registry;
mod rows;
mod snapshot;
mod text;
mod waits;

pub use page::page;
pub use process::{process_readings, process_start};
pub use registry::{Registry, Shard, Verb};
pub use rows::{BUCKETS, Kind, Label, METHODS, Metric, ROWS, Row, Source, Unit};
pub use snapshot::Snapshot;
pub use text::{Format, Reading, write};
pub use waits::{Cause, Waited, Waits};

/// The protocol of a transfer: the values of the label `protocol`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// FTP, in clear or under TLS.
    Ftp,
    /// HTTP, in clear or under TLS.
    Http,
}

/// The values of the label `direction`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// A file to the client.
    Download,
    /// A file from the client.
    Upload,
    /// A listing to the client.
    Listing,
}

/// The result of a login: the values of the label `result`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginResult {
    /// The user is logged in.
    Success,
    /// The name or the password was wrong.
    Failed,
    /// A ban, a hook or the account itself refused it.
    Refused,
}

/// The result of a TLS handshake: the values of the label `result`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeResult {
    /// Both sides proved who they are.
    Full,
    /// An earlier session was resumed.
    Resumed,
    /// There is no session.
    Failed,
}
