//! What is sent, and where.

use std::time::Duration;

use millrace_hooks::{Credentials, SettingError};
use millrace_metrics::{Reading, Snapshot};
use thiserror::Error;

/// A collector, and what it is sent.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where it is: `http://127.0.0.1:4318`.
    pub endpoint: String,
    /// Header fields of each post.
    pub headers: Credentials,
    /// Attributes of the resource, besides or instead of those that are always there.
    pub attributes: Vec<(String, String)>,
    /// How posts of metrics are compressed.
    pub metrics_compression: Compression,
    /// How posts of spans are compressed.
    pub traces_compression: Compression,
    /// How often metrics are sent.
    pub interval: Duration,
    /// One in so many sessions of FTP and requests of HTTP is traced; 0: none.
    pub one_in: u64,
    /// Certificates in PEM that the collector's has to be signed by, instead of those that browsers trust.
    pub roots: Option<Vec<u8>>,
}

/// How the body of a post is compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// By gzip.
    Gzip,
}

/// Why a collector cannot be used.
#[derive(Debug, Error)]
pub enum SetupError {
    /// The address is malformed, or has a password in it.
    #[error("{0}")]
    Url(#[from] SettingError),
    /// The address has what `/v1/metrics` cannot stand behind.
    #[error("it has a query; write the address that /v1/metrics and /v1/traces stand behind")]
    Query,
    /// The file of certificates has none.
    #[error("there is no certificate in PEM")]
    NoCertificate,
    /// The program was built without it.
    #[error(
        "this program was built without OTLP; build it with the feature otlp: cargo build --release --features otlp"
    )]
    NotBuilt,
}

/// The server that is told of.
pub trait Observed: Send + Sync {
    /// Reads all metrics, and may wait for a disk. Returns nothing where the server has ended.
    fn read(&self) -> Option<(Snapshot, Vec<Reading>)>;

    /// Writes a warning to the log.
    fn warn(&self, text: &str);

    /// Counts spans that the collector has not taken.
    fn count_dropped(&self, spans: u64);
}
