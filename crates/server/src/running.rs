//! Starting and stopping a server.

mod admin;
pub(crate) mod assembling;
pub(crate) mod connection;
mod doors;
pub(crate) mod logins;
pub(crate) mod readings;
mod reloading;
pub(crate) mod upgrade;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use millrace_net::limits;
use millrace_net::tls::LoadError;
use thiserror::Error;

pub use self::admin::{cluster_of, perform_errands, set_limits_of_cluster, share_tokens};
use self::assembling::{Machine, look_at_ports, state};
use self::doors::Doors;
pub use self::reloading::ReloadError;
use self::upgrade::{AdminListener, Predecessor, TakeOverError};
use crate::audit_copies;
use crate::blocking::BlockingPool;
use crate::certificates;
use crate::config::Config;
use crate::data_relay::{self, DataRelay, RelayLimits, RelayParts};
use crate::hooks::{HookError, Pools};
use crate::housekeeping::{self, keep_bans, keep_dav, keep_quotas};
use crate::log::{self, Log};
use crate::membership;
use crate::periodic::Periodic;
use crate::state::{ServerState, WeakServer};
use crate::worker::{Sender, Worker, WorkerMessage, worker};

/// How long hooks are waited for at the end.
const HOOKS_TIME: Duration = Duration::from_secs(10);

/// Where servers are started.
#[derive(Debug)]
pub struct Server;

/// A server that runs. Dropping it ends it at once.
#[derive(Debug)]
pub struct Running {
    ftp: Vec<SocketAddr>,
    ftps: Vec<SocketAddr>,
    http: Vec<SocketAddr>,
    https: Vec<SocketAddr>,
    pub(crate) workers: Vec<Sender>,
    /// Taken by the caller that joins them.
    threads: Mutex<Vec<JoinHandle<()>>>,
    grace: Duration,
    /// Written out at the end.
    log: Log,
    /// Closed at the end.
    pools: [BlockingPool; 4],
    /// Waited for at the end: what has happened must be heard of.
    hook_pools: Pools,
    pub(crate) state: Arc<ServerState>,
    /// Ends before the workers do.
    housekeeping: Mutex<Option<Periodic>>,
    /// The copies of the audit log that a cluster has.
    audit_copies: Mutex<Option<Periodic>>,
    /// The way to the server that has taken over; it is told of the end.
    pub(crate) successor: Mutex<Option<OwnedFd>>,
    /// Whether one has, also when it has been told.
    is_handed_over: AtomicBool,
    /// Sockets beside its own, which a successor gets, too.
    admin: Mutex<Vec<AdminListener>>,
}

/// A server that is ready, but does not accept clients yet.
pub struct Prepared {
    running: Running,
    workers: Vec<Worker>,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("running", &self.running).finish_non_exhaustive()
    }
}

/// Why a server did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address as it was configured.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// A log file cannot be opened.
    #[error("cannot open the log {}: {source}", path.display())]
    Log {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The certificates cannot be used.
    #[error("TLS: {0}")]
    Tls(#[source] LoadError),
    /// Certificates that are fetched cannot be kept.
    #[error("cannot keep certificates in {}: {source}", folder.display())]
    Acme {
        /// Where.
        folder: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The hooks cannot begin.
    #[error("cannot begin with the hooks: {0}")]
    Hooks(#[source] HookError),
    /// The server that was to be relieved does not let go.
    #[error("the server that runs goes on: {0}")]
    Relief(#[source] TakeOverError),
    /// Threads or descriptors are not to be had.
    #[error("cannot start a worker: {0}")]
    Worker(#[source] io::Error),
}

impl Server {
    /// Starts a server: when this returns it accepts connections.
    pub fn start(config: Config) -> Result<Running, StartError> {
        Self::prepare(config, None)?.begin(None)
    }

    /// Has everything there that a server needs; at the addresses of one that is to be relieved, its listeners.
    pub fn prepare(mut config: Config, before: Option<&Predecessor>) -> Result<Prepared, StartError> {
        millrace_metrics::process_start();
        let descriptors = limits::raise_descriptors();
        if config.workers == 0 {
            config.workers = thread::available_parallelism().map_or(1, usize::from);
        }
        let Doors { listeners, bound } = Doors::open(&config, before)?;
        let state = Arc::new(state(config, &bound, descriptors, &Machine::default())?);
        look_at_ports(&state, &bound);
        let mut running = Running::new(state, bound);
        let mut workers = Vec::new();
        for listeners in listeners {
            let (worker, sender) = worker(&running.state.shared, listeners).map_err(StartError::Worker)?;
            running.workers.push(sender);
            workers.push(worker);
        }
        let _ = running.state.workers.set(running.workers.clone());
        running.state.shared.ftp.set_administration(WeakServer(Arc::downgrade(&running.state)));
        Ok(Prepared { running, workers })
    }
}

impl Prepared {
    /// Accepts clients. A predecessor has stopped accepting by then, and resumes if this fails.
    pub fn begin(self, before: Option<&mut Predecessor>) -> Result<Running, StartError> {
        let Self { mut running, workers } = self;
        let state = Arc::clone(&running.state);
        millrace_process::limit_programs(state.config.program_limits);
        relay_data_connections(&running)?;
        // While the predecessor accepts yet: the database may take its time.
        membership::join(&state).map_err(StartError::Worker)?;
        if before.is_some() && state.data_relay.get().is_some() {
            // Otherwise data connections of the first sessions here would find only the predecessor.
            thread::sleep(data_relay::FOLLOWED);
        }
        let replaces =
            before.map(|before| before.take_over(&state)).transpose().map_err(StartError::Relief)?;
        if let Some(hooks) = &state.config.hooks {
            state.cluster.iter().for_each(|cluster| hooks.join(cluster));
            let log = state.log.clone();
            hooks.begin(Arc::new(move |text| log.warn(text))).map_err(StartError::Hooks)?;
        }
        let copies = audit_copies::start(state.cluster.as_ref(), &state.log).map_err(StartError::Worker)?;
        running.audit_copies = Mutex::new(copies);
        running.note_start(replaces);
        running.start_workers(workers)?;
        certificates::configure(&state, state.config.acme.as_ref());
        let housekeeping = housekeeping::start(state, running.workers.clone()).map_err(StartError::Worker)?;
        running.housekeeping = Mutex::new(Some(housekeeping));
        Ok(running)
    }
}

impl Running {
    /// A server that does not accept clients yet.
    pub(crate) fn new(state: Arc<ServerState>, [ftp, ftps, http, https]: [Vec<SocketAddr>; 4]) -> Self {
        Self {
            ftp,
            ftps,
            http,
            https,
            workers: Vec::new(),
            threads: Mutex::default(),
            grace: state.config.grace,
            log: state.log.clone(),
            pools: [&state.pool, &state.long, &state.shared.ftp.listings, &state.logins].map(Clone::clone),
            hook_pools: state.hook_pools.clone(),
            state,
            housekeeping: Mutex::default(),
            audit_copies: Mutex::default(),
            successor: Mutex::default(),
            is_handed_over: AtomicBool::new(false),
            admin: Mutex::default(),
        }
    }

    /// Logs the start, and the predecessor.
    pub(crate) fn note_start(&self, replaces: Option<u32>) {
        self.state.is_on_record.store(true, Ordering::Release);
        let doors = [("ftp", &self.ftp), ("ftps", &self.ftps), ("http", &self.http), ("https", &self.https)];
        self.state.log.note(log::Event::Started {
            version: env!("CARGO_PKG_VERSION"),
            pid: process::id(),
            doors: &doors.map(|(door, addresses)| (door, &addresses[..])),
            replaces,
            sandbox: self.state.config.confinement.as_deref(),
        });
    }

    /// Where FTP is served, with the real ports.
    pub fn ftp_addresses(&self) -> &[SocketAddr] {
        &self.ftp
    }

    /// Where FTP that begins with TLS is served, with the real ports.
    pub fn ftps_addresses(&self) -> &[SocketAddr] {
        &self.ftps
    }

    /// Where HTTP is served, with the real ports.
    pub fn http_addresses(&self) -> &[SocketAddr] {
        &self.http
    }

    /// Where HTTP is served that begins with TLS, with the real ports.
    pub fn https_addresses(&self) -> &[SocketAddr] {
        &self.https
    }

    /// The present certificates, and which clients' are taken, where there is a certificate.
    pub fn tls_config(&self) -> Option<Arc<millrace_net::tls::ServerConfig>> {
        self.state.tls.as_ref().map(|tls| tls.acceptor.config())
    }

    /// The SHA-256 fingerprints of the certificates.
    pub fn fingerprints(&self) -> Vec<String> {
        self.state.tls.as_ref().map_or(Vec::new(), |tls| tls.acceptor.fingerprints())
    }

    /// Writes a warning to the log.
    pub fn warn(&self, text: &str) {
        self.state.log.warn(text);
    }

    /// Writes a warning to the log, if that is of JSON objects; answers whether it is. People who read text want
    /// it as the program says such things.
    pub fn warn_in_json(&self, text: &str) -> bool {
        let is_json = self.state.log.is_json();
        if is_json {
            self.state.log.warn(text);
        }
        is_json
    }

    /// Stops accepting and tells idle sessions 421; transfers may go on for the configured grace.
    pub fn request_shutdown(&self) {
        self.state.begin_shutdown(self.grace);
    }

    /// Notes why the server ends, for the log; the first reason counts.
    pub fn note_why_it_ends(&self, why: &str) {
        self.state.note_why_it_ends(why);
    }

    /// Waits until the server has ended.
    pub fn wait(&self) {
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // A worker that panicked has ended as well.
            let _ = thread.join();
        }
        // Clients of other nodes have as long as its own had.
        self.state.data_relay.get().iter().for_each(|relay| relay.finish());
        self.housekeeping.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.state.shared.side.close();
        self.pools.iter().for_each(BlockingPool::close);
        keep_quotas(&self.state, true);
        keep_dav(&self.state);
        keep_bans(&self.state);
        self.hook_pools.finish(HOOKS_TIME);
        self.state.hooks().iter().for_each(|hooks| hooks.close());
        // What this node delivers is no other's before that.
        membership::leave(&self.state);
        upgrade::say_farewell(self);
        self.note_end();
        self.log.close();
        self.audit_copies.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Writes to the log that it has ended, and why; once.
    fn note_end(&self) {
        if self.state.is_on_record.swap(false, Ordering::AcqRel) {
            let why = self.state.end.lock().unwrap_or_else(PoisonError::into_inner);
            let reason = why.as_deref().unwrap_or("the program that it is in wants it");
            self.state.log.note(log::Event::Ended { reason, pid: process::id() });
        }
    }

    /// Ends gracefully: [`Running::request_shutdown`], then [`Running::wait`].
    pub fn shut_down(self) {
        self.request_shutdown();
        self.wait();
    }

    /// Ends at once: running transfers are aborted.
    pub fn stop_now(&self) {
        self.workers.iter().for_each(|worker| worker.send(WorkerMessage::Stop));
        self.state.data_relay.get().iter().for_each(|relay| relay.end_by(Instant::now()));
    }

    /// Has workers serve.
    fn start_workers(&mut self, workers: Vec<Worker>) -> Result<(), StartError> {
        for (index, worker) in workers.into_iter().enumerate() {
            let thread = thread::Builder::new()
                .name(format!("millrace-{index}"))
                .spawn(move || worker.run())
                .map_err(StartError::Worker)?;
            self.threads.get_mut().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(())
    }
}

/// Begins to hand on data connections between nodes, where the cluster does that.
fn relay_data_connections(running: &Running) -> Result<(), StartError> {
    let cluster = running.state.config.cluster.as_ref();
    let Some((cluster, address)) = cluster.and_then(|cluster| Some((cluster, cluster.data_address()?)))
    else {
        return Ok(());
    };
    let log = running.log.clone();
    let relay = DataRelay::start(RelayParts {
        node: cluster.name().to_owned(),
        address,
        places: running.ftp.iter().chain(&running.ftps).map(SocketAddr::ip).collect(),
        doors: [&running.ftp, &running.ftps, &running.http, &running.https]
            .into_iter()
            .flatten()
            .map(SocketAddr::port)
            .collect(),
        pool: running.state.shared.ftp.passive.clone(),
        proxies: Arc::clone(&running.state.proxies),
        warn: Box::new(move |text| log.warn(text)),
        limits: RelayLimits::of(running.state.sessions.descriptors().most),
    });
    let listen = |source| StartError::Listen { address: SocketAddr::new(address, 0), source };
    let _ = running.state.data_relay.set(relay.map_err(listen)?);
    Ok(())
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop_now();
        self.wait();
    }
}
