//! Starting and stopping a server.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use millrace_ftp::Settings;
use millrace_net::inbox::Sender;
use millrace_net::limits;
use millrace_net::tls::LoadError;
use millrace_storage::{LedgerError, TallyReport};
use thiserror::Error;

use crate::acme::{self, Acme};
use crate::auth::Protocol;
use crate::bans::{BanReport, Bans};
use crate::blocking::BlockingPool;
use crate::client::Client;
use crate::config::{Config, Tls};
use crate::doors::Doors;
use crate::ftp::{Lore, Promises};
use crate::hooks::{Backlog, Pools};
use crate::housekeeping::{Housekeeping, keep_dav, keep_quotas, wall_seconds};
use crate::http::{Dav, Kept, Side, Tus};
use crate::limits::{
    Crowd, Limit, Limits, Logins, NetworkBits, Scope, ScopeReport, ServerLimits, Timed, Tree,
};
use crate::load::Load;
use crate::log::{self, Log};
use crate::network::Network;
use crate::passive::PassivePool;
use crate::proxied::Proxies;
use crate::state::Server as State;
use crate::tls::Security;
use crate::web::{InForce, Web};
use crate::worker::{Core, Errand, Listener, Message, Worker};

/// Logins that may be decided at once: more than cores, for accounts that are asked over a network.
const LOGIN_THREADS: usize = 64;

/// How long workers are waited for that were asked something.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// How long hooks are waited for at the end.
const HOOKS_TIME: Duration = Duration::from_secs(10);

/// As good as without an end.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A session as an administrator sees it.
#[derive(Debug, Clone)]
pub struct SessionReport {
    /// As the log numbers it.
    pub number: u64,
    /// What it speaks.
    pub protocol: Protocol,
    /// The client.
    pub peer: SocketAddr,
    /// Where it connected to.
    pub local: SocketAddr,
    /// The user, once logged in.
    pub user: Option<Vec<u8>>,
    /// What is being transferred.
    pub transfer: Option<TransferReport>,
}

/// A transfer that runs.
#[derive(Debug, Clone)]
pub struct TransferReport {
    /// `download`, `upload` or `listing`.
    pub kind: &'static str,
    /// The file.
    pub path: Vec<u8>,
    /// Bytes so far.
    pub bytes: u64,
    /// Bytes in all, where that is known.
    pub total: Option<u64>,
    /// For how long.
    pub elapsed: Duration,
    /// Whether a limit holds it back just now.
    pub held_back: bool,
}

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
    workers: Vec<Sender<Message>>,
    /// Taken by whoever waits.
    threads: Mutex<Vec<JoinHandle<()>>>,
    grace: Duration,
    /// Written out at the end.
    log: Log,
    /// Closed at the end.
    pools: [BlockingPool; 4],
    /// Waited for at the end: what has happened must be heard of.
    hook_pools: Pools,
    pub(crate) state: Arc<State>,
    /// Ends before the workers do.
    housekeeping: Mutex<Option<Housekeeping>>,
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
    Hooks(String),
    /// Threads or descriptors are not to be had.
    #[error("cannot start a worker: {0}")]
    Worker(#[source] io::Error),
}

/// Why what was read again is not in force.
#[derive(Debug, Error)]
pub enum ReloadError {
    /// The certificates cannot be used.
    #[error("TLS: {0}")]
    Tls(#[from] LoadError),
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
    Hooks(String),
}

impl Server {
    /// Starts a server: when this returns it accepts connections.
    pub fn start(mut config: Config) -> Result<Running, StartError> {
        let descriptors = limits::raise_descriptors();
        if config.workers == 0 {
            config.workers = thread::available_parallelism().map_or(1, usize::from);
        }
        let Doors { listeners, bound } = Doors::open(&config)?;
        let state = Arc::new(state(config, &bound, descriptors)?);
        look_at_ports(&state, &bound);
        let [ftp, ftps, http, https] = bound;
        let mut running = Running {
            ftp,
            ftps,
            http,
            https,
            workers: Vec::new(),
            threads: Mutex::default(),
            grace: state.config.grace,
            log: state.log.clone(),
            pools: [&state.pool, &state.long, &state.listings, &state.logins].map(Clone::clone),
            hook_pools: state.hook_pools.clone(),
            state: Arc::clone(&state),
            housekeeping: Mutex::default(),
        };
        running.start_workers(listeners)?;
        let _ = state.workers.set(running.workers.clone());
        acme::configure(&state, state.config.acme.as_ref());
        let housekeeping = Housekeeping::start(state, running.workers.clone()).map_err(StartError::Worker)?;
        running.housekeeping = Mutex::new(Some(housekeeping));
        Ok(running)
    }
}

impl Running {
    /// Starts a worker with each of these.
    fn start_workers(&mut self, listeners: Vec<Vec<Listener>>) -> Result<(), StartError> {
        for (index, listeners) in listeners.into_iter().enumerate() {
            let (worker, sender) =
                Worker::new(Arc::clone(&self.state), listeners).map_err(StartError::Worker)?;
            self.workers.push(sender);
            let thread = thread::Builder::new()
                .name(format!("millrace-{index}"))
                .spawn(move || worker.run())
                .map_err(StartError::Worker)?;
            self.threads.get_mut().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(())
    }
}

/// Warns where no passive port can be had: every other sign would be a client's that hears 425.
fn look_at_ports(state: &State, [ftp, ftps, ..]: &[Vec<SocketAddr>; 4]) {
    let mut hosts: Vec<_> = ftp.iter().chain(ftps).map(SocketAddr::ip).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let range = state.passive.range();
    for host in hosts {
        if let Some(error) = state.passive.trouble(host) {
            state.log.warn(&format!(
                "none of the passive-ports {}-{} can be bound at {host} now ({}): until one can be, passive transfers \
                 get 425",
                range.start(),
                range.end(),
                error.kind()
            ));
        }
    }
}

/// The mask of this process: what `umask(2)` would answer, which can only be asked by setting another.
fn umask() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(mask.trim(), 8).ok()
}

fn state(mut config: Config, bound: &[Vec<SocketAddr>; 4], descriptors: u64) -> Result<State, StartError> {
    let proxies = Arc::new(Proxies::new(config.proxy_from.clone()));
    let asked = config.ftp.iter().chain(&config.ftps).chain(&config.http).chain(&config.https);
    let https_port = bound[3].first().map(SocketAddr::port);
    let bound: Vec<_> = asked.copied().zip(bound.iter().flatten().copied()).collect();
    for (address, _) in &mut config.limits.listeners {
        if let Some((_, bound)) = bound.iter().find(|(asked, _)| asked == address) {
            *address = *bound;
        }
    }
    let log = Log::open(config.log, config.xferlog.as_deref(), config.access_log.as_deref())
        .map_err(|(path, source)| StartError::Log { path, source })?;
    let lore = Arc::new(Lore::default());
    let settings = Settings {
        greeting: config.greeting.clone(),
        login_timeout: config.login_timeout,
        idle_timeout: config.idle_timeout,
        // Nobody holds a place for longer than the operator wants.
        idle_timeout_max: config.idle_timeout,
        login_delay: config.login_delay,
        login_attempts: config.login_attempts,
        public_ip: config.public_ip,
        foreign_data: config.foreign_data,
        mode_z: config.mode_z,
        anonymous: config.anonymous,
        tls: config.tls.as_ref().map(Tls::of_sessions),
        keeps_addresses: config.xferlog.is_some(),
        notes: config.messages,
        umask: umask(),
        lore: Arc::clone(&lore) as _,
    };
    if let Some(acme) = &config.acme {
        let folder = acme.folder.clone();
        let warning = acme.prepare().map_err(|source| StartError::Acme { folder, source })?;
        warning.iter().for_each(|text| log.warn(text));
    }
    let tls = config.tls.as_ref().map(Security::new).transpose().map_err(StartError::Tls)?;
    tls.iter().flat_map(|tls| tls.doubts(SystemTime::now())).for_each(|text| log.warn(&text));
    if let Some(hooks) = &config.hooks {
        let log = log.clone();
        hooks.begin(Arc::new(move |text| log.warn(text))).map_err(StartError::Hooks)?;
    }
    let (dav, trouble) = Dav::open(config.dav.clone());
    if let Some(text) = trouble {
        log.warn(&text);
    }
    let timed = |limit: &Limit| Timed::new(limit.clone(), wall_seconds());
    Ok(State {
        settings: RwLock::new(Arc::new(settings)),
        https_port,
        tls,
        acme: Acme::default(),
        promises: Promises::default(),
        lore,
        pool: BlockingPool::new(config.blocking_threads),
        long: BlockingPool::new(config.blocking_threads / 4),
        listings: BlockingPool::new(config.blocking_threads / 4),
        is_ending: AtomicBool::new(false),
        logins: BlockingPool::new(LOGIN_THREADS.max(thread::available_parallelism().map_or(1, usize::from))),
        hook_pools: Pools::new(config.hook_threads, config.blocking_threads),
        passive: PassivePool::new(config.passive_ports.clone(), Arc::clone(&proxies)),
        proxies,
        log,
        sessions: AtomicUsize::new(0),
        session_limit: timed(&config.sessions),
        session_room: session_room(descriptors),
        cpu_limit: timed(&config.cpu_limit),
        descriptors,
        descriptor_reserve: descriptor_reserve(descriptors),
        addresses: Crowd::new(timed(&config.sessions_per_address), NetworkBits::ADDRESS),
        networks: Crowd::new(timed(&config.sessions_per_network), config.network_bits),
        logins_rated: Logins::new(config.logins.clone(), config.network_bits, Instant::now()),
        bans: Bans::new(config.bans.clone()),
        load: Load::default(),
        accounts: RwLock::new(Arc::clone(&config.accounts)),
        edition: AtomicU64::new(0),
        hooks: RwLock::new(config.hooks.clone()),
        has_hooks: AtomicBool::new(config.hooks.is_some()),
        web: RwLock::new(InForce::new(config.web.clone(), config.programs.withheld(&config.passes))),
        workers: OnceLock::new(),
        limits: Tree::new(config.limits.clone(), Instant::now(), wall_seconds()),
        dav,
        forwards: config.passes.iter().map(|_| Kept::default()).collect(),
        tus: Tus::new(config.resumable.clone()),
        side: Side::default(),
        next_session: AtomicU64::new(1),
        config,
    })
}

/// Where a listener is that was asked for at an address: the port may have been 0.
fn really(asked: SocketAddr, doors: &[(&Vec<SocketAddr>, &[SocketAddr])]) -> SocketAddr {
    let found = doors.iter().find_map(|(wanted, bound)| {
        wanted.iter().position(|address| *address == asked).and_then(|index| bound.get(index))
    });
    found.copied().unwrap_or(asked)
}

/// Sessions at most: those asked for, but no more than leave descriptors for data connections and files.
fn session_room(descriptors: u64) -> usize {
    let reserve = descriptor_reserve(descriptors);
    usize::try_from(descriptors.saturating_sub(reserve)).unwrap_or(usize::MAX).max(1)
}

/// Descriptors that sessions leave to others.
fn descriptor_reserve(descriptors: u64) -> u64 {
    (descriptors / 16).clamp(24, 1024)
}

impl Running {
    /// Where FTP is served, with the real ports.
    pub fn ftp_addresses(&self) -> &[SocketAddr] {
        &self.ftp
    }

    /// Where FTP that begins with TLS is served, with the real ports.
    pub fn ftps_addresses(&self) -> &[SocketAddr] {
        &self.ftps
    }

    /// The SHA-256 fingerprints of the certificates.
    pub fn fingerprints(&self) -> Vec<String> {
        self.state.tls.as_ref().map_or(Vec::new(), |tls| tls.acceptor.fingerprints())
    }

    /// Reads the certificates again: new connections get the new ones, sessions keep theirs. Where one cannot
    /// be used, all stays as it was.
    pub fn reload_certificates(&self) -> Result<(), LoadError> {
        self.state.tls.as_ref().map_or(Ok(()), Security::reload)
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

    /// Writes to the log what an administrator has told the server, and why it failed if it did.
    pub fn note_administered(&self, what: &str, failed: Option<&str>) {
        self.state.log.note(log::Event::Administered { what, failed });
    }

    /// Where HTTP is served, with the real ports.
    pub fn http_addresses(&self) -> &[SocketAddr] {
        &self.http
    }

    /// Where HTTP is served that begins with TLS, with the real ports.
    pub fn https_addresses(&self) -> &[SocketAddr] {
        &self.https
    }

    /// Stops accepting and tells idle sessions 421; transfers may go on for the configured grace.
    pub fn request_shutdown(&self) {
        self.state.begin_shutdown(self.grace);
    }

    /// Sets limits, in running transfers too, until they are set again or [restored](Running::restore_limits).
    /// What is `None` stays as it is. Of a user or group that is not there they hold when it comes. Answers
    /// whether there is such a scope.
    pub fn set_limits(&self, scope: &Scope, limits: &Limits) -> bool {
        match scope {
            Scope::Session(number) => {
                let (number, limits) = (*number, limits.clone());
                self.any(move |client, core| client.set_limits(core, number, Some(&limits)))
            }
            _ => self.state.limits.set(scope, limits, Instant::now()),
        }
    }

    /// Forgets what was set: the configured limits hold again. Answers whether there is such a scope.
    pub fn restore_limits(&self, scope: &Scope) -> bool {
        match *scope {
            Scope::Session(number) => self.any(move |client, core| client.set_limits(core, number, None)),
            _ => self.state.limits.restore(scope, Instant::now()),
        }
    }

    /// Takes over what can change while it runs: the accounts, the limits, the hooks, who may connect, what HTTP adds to
    /// files, names of hosts, the certificates and what data connections have to do under them. What was
    /// [set](Running::set_limits) stays set. Accounts of sessions that run are looked at again, and what they say now
    /// holds. Logs that are files are opened anew. Where a certificate cannot be used, or hooks cannot begin, all stays as it was.
    pub fn reload(&self, config: Config) -> Result<(), ReloadError> {
        if let Some(hooks) = &config.hooks {
            let log = self.log.clone();
            hooks.begin(Arc::new(move |text| log.warn(text))).map_err(ReloadError::Hooks)?;
        }
        if let Some(acme) = &config.acme {
            let folder = acme.folder.clone();
            let warning = acme.prepare().map_err(|source| ReloadError::Acme { folder, source })?;
            warning.iter().for_each(|text| self.log.warn(text));
        }
        if self.state.tls.is_none() && config.tls.is_some() {
            self.log.warn("TLS begins with the next start: there was no certificate at this one");
        }
        if let (Some(tls), Some(policy)) = (&self.state.tls, &config.tls) {
            tls.replace(policy)?;
            tls.doubts(SystemTime::now()).iter().for_each(|text| self.log.warn(text));
            {
                let mut settings = self.state.settings.write().unwrap_or_else(PoisonError::into_inner);
                *settings =
                    Arc::new(Settings { tls: Some(policy.of_sessions()), ..Settings::clone(&settings) });
            }
            acme::configure(&self.state, config.acme.as_ref());
        }
        let has_hooks = config.hooks.is_some();
        *self.state.hooks.write().unwrap_or_else(PoisonError::into_inner) = config.hooks;
        self.state.has_hooks.store(has_hooks, Ordering::Release);
        self.state.log.reopen();
        self.replace_web(config.web);
        let old = &self.state.config;
        let doors = [
            (&old.ftp, &self.ftp[..]),
            (&old.ftps, &self.ftps[..]),
            (&old.http, &self.http[..]),
            (&old.https, &self.https[..]),
        ];
        let ServerLimits { listeners, .. } = &config.limits;
        let listeners =
            listeners.iter().map(|(asked, limits)| (really(*asked, &doors), limits.clone())).collect();
        self.state.limits.configure(ServerLimits { listeners, ..config.limits }, Instant::now());
        self.state.logins_rated.configure(config.logins);
        self.state.bans.configure(config.bans);
        self.state.proxies.configure(config.proxy_from);
        *self.state.accounts.write().unwrap_or_else(PoisonError::into_inner) = config.accounts;
        self.state.begin_edition();
        let errand = Errand::new(|client, core| client.review(core, |_, _| true));
        self.workers.iter().for_each(|worker| worker.send(Message::Each(errand.clone())));
        Ok(())
    }

    /// What HTTP adds to files is this from now on; answers under way are as they were begun.
    fn replace_web(&self, web: Web) {
        let mut now = self.state.web.write().unwrap_or_else(PoisonError::into_inner);
        // Links that are taken back are so at once.
        self.state.config.web.links.replace(&web.links);
        now.links.replace(&web.links);
        *now = now.next(web);
        self.workers.iter().for_each(|worker| worker.send(Message::Web(Arc::clone(&now))));
    }

    /// Turns away whoever comes from a network, for this time or until it is lifted; sessions that run go on.
    /// `false` where too many are banned already.
    pub fn ban(&self, network: Network, time: Option<Duration>) -> bool {
        self.state.bans.ban(network, time.map(|time| Instant::now() + time))
    }

    /// Lifts a ban, also those of users there; answers whether there was one.
    pub fn lift_ban(&self, network: Network) -> bool {
        self.state.bans.lift(network)
    }

    /// Networks that are banned, altogether or for some users, and for how long yet.
    pub fn bans(&self) -> Vec<BanReport> {
        self.state.bans.list(Instant::now())
    }

    /// Who is connected: by FTP everybody, by HTTP who has a user or something under way.
    pub fn sessions(&self) -> Vec<SessionReport> {
        let reports = self.each(|client, core| client.report(core.now.instant));
        let mut sessions: Vec<_> = reports.into_iter().flatten().collect();
        sessions.sort_by_key(|session| session.number);
        sessions
    }

    /// Ends the sessions that are meant, by FTP with 421; answers how many.
    pub fn kick(&self, meant: impl Fn(&SessionReport) -> bool + Send + Sync + 'static) -> usize {
        let kicked = self.each(move |client, core| {
            let is_meant = client.report(core.now.instant).is_some_and(|report| meant(&report));
            if is_meant {
                client.kick(core);
            }
            is_meant
        });
        kicked.into_iter().filter(|kicked| *kicked).count()
    }

    /// Stops accepting, and waits for running transfers however long they take; idle sessions are told 421.
    pub fn drain(&self) {
        self.state.begin_shutdown(FOREVER);
    }

    /// Claims that it lets nobody in any more, and ends when what is under way has.
    pub fn is_ending(&self) -> bool {
        self.state.is_ending.load(Ordering::Acquire)
    }

    /// What is in force now; of sessions only where that was [set](Running::set_limits).
    pub fn limits(&self) -> Vec<ScopeReport> {
        let mut reports = self.state.limits.report();
        let mut sessions: Vec<_> = self.each(|client, _| client.limits()).into_iter().flatten().collect();
        sessions.sort_by_key(|report| match report.scope {
            Scope::Session(number) => number,
            _ => 0,
        });
        reports.append(&mut sessions);
        reports
    }

    /// Events that hooks are to be told and were not yet, where there are such hooks.
    pub fn backlog(&self) -> Option<Backlog> {
        self.state.hooks()?.backlog()
    }

    /// What is held where there are quotas and something was done of late.
    pub fn quotas(&self) -> Vec<TallyReport> {
        self.state.config.quotas.as_ref().map_or(Vec::new(), |quotas| quotas.ledger().report())
    }

    /// Counts anew what is held where there are quotas: in one tree, as [`Running::quotas`] names it, or in all.
    pub fn recount_quotas(&self, tree: Option<&str>) -> Result<Vec<TallyReport>, LedgerError> {
        self.state.config.quotas.as_ref().map_or(Ok(Vec::new()), |quotas| quotas.ledger().recount(tree))
    }

    /// Has every worker ask each of its connections that is of note; a worker that does not answer soon is left out.
    fn each<T: Send + 'static>(
        &self,
        ask: impl Fn(&mut Client, &mut Core) -> T + Send + Sync + 'static,
    ) -> Vec<T> {
        let (sender, answers) = mpsc::channel();
        let errand = Errand::new(move |client, core| {
            let _ = sender.send(ask(client, core));
        });
        self.workers.iter().for_each(|worker| worker.send(Message::Each(errand.clone())));
        drop(errand);
        let end = Instant::now() + ANSWER_TIME;
        let next = || answers.recv_timeout(end.saturating_duration_since(Instant::now())).ok();
        std::iter::from_fn(next).collect()
    }

    /// As `each`, where one is looked for.
    fn any(&self, is_it: impl Fn(&mut Client, &mut Core) -> bool + Send + Sync + 'static) -> bool {
        self.each(is_it).into_iter().any(|found| found)
    }

    /// Waits until the server has ended.
    pub fn wait(&self) {
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // A worker that panicked has ended as well.
            let _ = thread.join();
        }
        self.housekeeping.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.state.side.close();
        self.pools.iter().for_each(BlockingPool::close);
        keep_quotas(&self.state, true);
        keep_dav(&self.state);
        self.hook_pools.finish(HOOKS_TIME);
        self.state.hooks().iter().for_each(|hooks| hooks.close());
        self.log.close();
    }

    /// Ends gracefully: [`Running::request_shutdown`], then [`Running::wait`].
    pub fn shut_down(self) {
        self.request_shutdown();
        self.wait();
    }

    /// Ends at once: running transfers are aborted.
    pub fn stop_now(&self) {
        self.workers.iter().for_each(|worker| worker.send(Message::Stop));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop_now();
        self.wait();
    }
}
