//! TLS as a server has it: the acceptor, the connector for copies between servers, the policies.
//!
//! Certificates and policies can be replaced while sessions run. A reload is atomic: if one file cannot be used,
//! everything stays as it was.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use millrace_accounts::Resumption;
use millrace_ftp::session::TlsPolicy;
use millrace_net::tls::{
    Acceptor, CertificateDiagnostics, Clients, Connector, LoadError, Plan, Trust, Versions,
};

/// TLS, and what has to use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The certificates.
    pub plan: Plan,
    /// Names and passwords are taken on encrypted connections only.
    pub login_required: bool,
    /// Files and listings go over encrypted connections only.
    pub data_required: bool,
    /// Whether a data connection has to resume its control connection's session.
    pub resumption: Resumption,
    /// Whether an upload has to end with close_notify.
    pub close_notify: CloseNotify,
    /// Whether `CCC` may end the encryption of the control connection.
    pub clear_command_channel: bool,
}

impl Tls {
    /// The defaults, with these certificates.
    pub fn new(plan: Plan) -> Self {
        Self {
            plan,
            login_required: false,
            data_required: false,
            resumption: Resumption::Prefer,
            close_notify: CloseNotify::default(),
            clear_command_channel: false,
        }
    }
}

impl Tls {
    /// The parts that concern FTP sessions.
    pub fn of_sessions(&self) -> TlsPolicy {
        TlsPolicy {
            login: self.login_required,
            data: self.data_required,
            clear_command_channel: self.clear_command_channel,
        }
    }

    /// Returns true if clients may show certificates.
    pub fn asks_for_certificates(&self) -> bool {
        self.plan.clients != Clients::Anybody
    }
}

/// Whether an upload has to end with close_notify, which proves that it is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloseNotify {
    /// An upload without it gets 426.
    pub required: bool,
    /// Clients that are excused, by the beginning of what they say of themselves with `CLNT` or `CSID`. The
    /// log names them each time.
    pub excused: Vec<String>,
}

impl Default for CloseNotify {
    fn default() -> Self {
        Self { required: true, excused: Vec::new() }
    }
}

/// The TLS state shared by all workers.
#[derive(Debug)]
pub struct Security {
    /// For control connections, data connections and HTTPS: the server side of each handshake.
    pub acceptor: Acceptor,
    /// For data connections to another server, as the TLS client. FTP does not name that server, so its certificate is
    /// not verified.
    pub connector: Connector,
    /// Locked for a clone or a swap.
    policy: RwLock<Arc<Tls>>,
    /// Locked by the check for changed files.
    seen: Mutex<Seen>,
    /// Where tickets do not tell sessions apart.
    pub mixers: Mixers,
}

/// Networks of clients that show one session's tickets in another (rclone and curl do, with several sessions at once).
/// There a ticket does not tell whose a data connection is.
#[derive(Debug, Default)]
pub struct Mixers {
    /// Whether the list has entries, readable without a lock.
    some: AtomicBool,
    /// By the last time that it was seen. Locked for a look, while there are some.
    seen: Mutex<HashMap<IpAddr, Instant>>,
}

impl Mixers {
    /// The number of networks that are remembered; beyond it, the oldest is forgotten.
    const MOST: usize = 1024;

    /// How long a network is remembered.
    const MEMORY: Duration = Duration::from_secs(86_400);

    /// Remembers a client whose sessions show tickets of one another.
    pub fn note(&self, address: IpAddr, now: Instant) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let network = network(address);
        if seen.len() == Self::MOST && !seen.contains_key(&network) {
            let oldest = seen.iter().min_by_key(|(_, since)| **since).map(|(network, _)| *network);
            oldest.map(|network| seen.remove(&network));
        }
        seen.insert(network, now);
        self.some.store(true, Ordering::Relaxed);
    }

    /// Returns whether such a client was seen in this network recently.
    pub fn has(&self, address: IpAddr, now: Instant) -> bool {
        self.some.load(Ordering::Relaxed) && {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            let since = seen.get(&network(address));
            since.is_some_and(|since| now.saturating_duration_since(*since) < Self::MEMORY)
        }
    }
}

/// The network of one client: with IPv6 it has 2^64 addresses.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

/// The state of the files at the last check.
#[derive(Debug)]
struct Seen {
    /// The files in use, or those that were found unusable.
    judged: Vec<Stamp>,
    /// Those of the last check: files that are being written now wait for the next one.
    last: Vec<Stamp>,
    /// The problems expected with the current certificates.
    outlook: CertificateDiagnostics,
    /// The problems that were logged.
    told: Vec<String>,
    /// Why a file cannot be read, as it was logged.
    unread: Option<String>,
}

impl Seen {
    fn new(plan: &Plan, stamps: Vec<Stamp>) -> Self {
        Self { judged: stamps.clone(), last: stamps, outlook: plan.outlook(), told: Vec::new(), unread: None }
    }

    /// Remembers what came of files, and returns whether that is news. Files that cannot be read may be readable at the
    /// next check, and look the same then: there is no judgement of them.
    fn judge(&mut self, stamps: Vec<Stamp>, reloaded: &Result<(), LoadError>) -> bool {
        let unread = match reloaded {
            Err(error @ LoadError::Unread(..)) => Some(error.to_string()),
            _ => None,
        };
        if unread.is_none() {
            self.judged = stamps;
        }
        let is_news = unread.is_none() || unread != self.unread;
        self.unread = unread;
        is_news
    }
}

/// Enough of a file to see that it is another: its time, its size, its number.
type Stamp = Option<(SystemTime, u64, u64)>;

impl Security {
    /// Reads the certificates and takes over the policy.
    pub fn new(policy: &Tls) -> Result<Self, LoadError> {
        let stamps = stamps(&policy.plan);
        Ok(Self {
            acceptor: Acceptor::new(&policy.plan)?,
            connector: Connector::new(Trust::Anybody, Versions::All, None)?.without_resumption(),
            policy: RwLock::new(Arc::new(policy.clone())),
            seen: Mutex::new(Seen::new(&policy.plan, stamps)),
            mixers: Mixers::default(),
        })
    }

    /// The present policy.
    pub fn policy(&self) -> Arc<Tls> {
        Arc::clone(&self.policy.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes over another policy, with what its files hold now.
    pub fn replace(&self, policy: &Tls) -> Result<(), LoadError> {
        self.put_in_force(policy, &mut self.seen())
    }

    fn put_in_force(&self, policy: &Tls, seen: &mut Seen) -> Result<(), LoadError> {
        let stamps = stamps(&policy.plan);
        self.acceptor.reload(&policy.plan)?;
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy.clone());
        *seen = Seen::new(&policy.plan, stamps);
        Ok(())
    }

    /// Reads the certificates again.
    pub fn reload(&self) -> Result<(), LoadError> {
        // The earlier policy would undo a concurrent change.
        let mut seen = self.seen();
        self.put_in_force(&self.policy(), &mut seen)
    }

    /// Locked while certificates are replaced, before the policy is read.
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reloads the certificates if the files have changed and are stable. `None` if there was nothing to do; unusable
    /// files are reported once.
    pub fn follow(&self) -> Option<Result<(), LoadError>> {
        let mut seen = self.seen();
        let policy = self.policy();
        let now = stamps(&policy.plan);
        let is_stable = now == std::mem::replace(&mut seen.last, now.clone());
        if !is_stable || now == seen.judged {
            return None;
        }
        let reloaded = self.acceptor.reload(&policy.plan);
        if reloaded.is_ok() {
            (seen.outlook, seen.told) = (policy.plan.outlook(), Vec::new());
        }
        seen.judge(now, &reloaded).then_some(reloaded)
    }

    /// Returns when each certificate that is in force expires, by its file.
    pub fn expiries(&self) -> Vec<(PathBuf, SystemTime)> {
        self.seen().outlook.expiries()
    }

    /// New problems that clients will find with the present certificates and lists.
    pub fn doubts(&self, now: SystemTime) -> Vec<String> {
        let mut seen = self.seen();
        let doubts = seen.outlook.doubts(now);
        let told = std::mem::replace(&mut seen.told, doubts);
        seen.told.iter().filter(|doubt| !told.contains(doubt)).cloned().collect()
    }

    /// Returns true if a client that calls itself this may end an upload without close_notify.
    pub fn excuses(&self, client: Option<&[u8]>) -> bool {
        let policy = self.policy();
        let is_excused = |client: &[u8]| {
            policy.close_notify.excused.iter().any(|name| client.starts_with(name.as_bytes()))
        };
        !policy.close_notify.required || client.is_some_and(is_excused)
    }
}

fn stamps(plan: &Plan) -> Vec<Stamp> {
    use std::os::unix::fs::MetadataExt;
    let stamp = |metadata: fs::Metadata| Some((metadata.modified().ok()?, metadata.len(), metadata.ino()));
    plan.files().into_iter().map(|file| fs::metadata(file).ok().and_then(stamp)).collect()
}

#[cfg(test)]
mod tests;
