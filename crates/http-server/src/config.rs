//! Settings of connections of HTTP.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use millrace_accounts::KnownBy;
use millrace_gateway::settings::ProgramSettings;
use millrace_gateway::upstream::ProxyRoute;
use millrace_http::forwarded::ForwardingField;
use millrace_limits::Network;

/// Settings of connections of HTTP.
#[derive(Debug, Clone)]
pub struct HttpConfig {
    /// Programs that answer requests (CGI).
    pub programs: ProgramSettings,
    /// Paths that others answer. The first that takes a path has it.
    pub proxy_routes: Vec<Arc<ProxyRoute>>,
    /// Virtual hosts, and the files that tell of their transfers.
    pub hosts: Vec<(KnownBy, Option<Arc<Path>>)>,
    /// Proxies that pass requests on, and name their client.
    pub trusted_proxies: TrustedProxies,
    /// Worker threads: limits on what runs at once are shared out among them.
    pub workers: usize,
    /// Silence while data is transferred.
    pub stall_timeout: Duration,
    /// From a request's first byte, or the connection, to the end of its head.
    pub head_timeout: Duration,
    /// Silence between two requests.
    pub idle_timeout: Duration,
    /// After how long a silent HTTP/2 client gets a `PING`, and how long it may take to answer.
    pub http2_ping: Duration,
    /// How long the answer to a first wrong password is held back; doubled each time.
    pub login_delay: Duration,
    /// Wrong passwords until the connection is closed.
    pub login_attempts: u32,
    /// Entries up to which listings are sorted.
    pub sort_entries: usize,
}

#[cfg(test)]
impl HttpConfig {
    /// Settings with which nothing is passed on, and nothing ends soon.
    pub(crate) fn for_tests() -> Self {
        let long = Duration::from_secs(60);
        Self {
            programs: ProgramSettings::default(),
            proxy_routes: Vec::new(),
            hosts: Vec::new(),
            trusted_proxies: TrustedProxies::default(),
            workers: 1,
            stall_timeout: long,
            head_timeout: long,
            idle_timeout: long,
            http2_ping: long,
            login_delay: long,
            login_attempts: 5,
            sort_entries: 1000,
        }
    }
}

/// Proxies that are believed who their client is.
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies {
    /// Where they connect from.
    pub networks: Vec<Network>,
    /// How they name their client.
    pub field: ForwardingField,
}

/// Uploads by HTTP that go on where they were cut (tus 1.0).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resumable {
    /// Whether there are such.
    pub is_on: bool,
    /// For how long one waits for more. The storage has to keep them for as long.
    pub age: Duration,
    /// Where the secret is kept that their addresses are sealed with, so that they hold behind a restart; it is made
    /// where it is not there.
    pub secret: Option<PathBuf>,
}

impl Default for Resumable {
    fn default() -> Self {
        Self { is_on: true, age: Duration::from_secs(24 * 3600), secret: None }
    }
}
