//! Assembles a server's shared state, with warnings for the operator before the first client.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::SystemTime;

use millrace_acme::Renewal;
use millrace_ftp::Settings;
use millrace_ftp_server::{Ftp, FtpConfig};
use millrace_gateway::runtime::Side;
use millrace_http_server::{Dav, Http, HttpConfig, HttpParts};
use millrace_limits::wall_seconds;
use millrace_runtime::clock::Clock;
use millrace_runtime::proxies::Proxies;
use millrace_runtime::services::{Policy, Services};
use millrace_runtime::sessions::{Descriptors, Sessions};

use super::StartError;
use crate::blocking::BlockingPool;
use crate::config::{Config, Tls};
use crate::data_relay::RelayLimits;
use crate::disks::Disks;
use crate::hooks::Pools;
use crate::kept_bans::BanFile;
use crate::limits::Bans;
use crate::limits::Load;
use crate::limits::{ConnectionLimit, Limit, Logins, NetworkBits, Timed, Tree};
use crate::log::{Log, LogSettings};
use crate::passive::{self, DataSockets, KernelSockets, PassivePool};
use crate::state::ServerState;
use crate::tls::Security;
use crate::worker::SharedByWorkers;

/// Logins that may be decided at once: more than cores, for accounts that are asked over a network.
const LOGIN_THREADS: usize = 64;

/// What a server takes from its machine: time, threads and data connections.
pub(crate) struct Machine {
    /// What its workers look at.
    pub(crate) clock: Clock,
    /// Makes a pool of this many threads at most.
    pub(crate) pool: Box<dyn Fn(usize) -> BlockingPool>,
    /// Ports for data connections.
    pub(crate) data_sockets: Arc<dyn DataSockets>,
}

impl Default for Machine {
    fn default() -> Self {
        let data_sockets = Arc::<KernelSockets>::default();
        Self { clock: Clock::System, pool: Box::new(BlockingPool::new), data_sockets }
    }
}

/// The state shared by the workers, from the configuration, the addresses that the listeners are `bound` to, and the
/// number of descriptors.
pub(crate) fn state(
    mut config: Config,
    bound: &[Vec<SocketAddr>; 4],
    descriptors: u64,
    machine: &Machine,
) -> Result<ServerState, StartError> {
    let proxies = Arc::new(Proxies::new(config.proxy_from.clone()));
    place_limits(&mut config, bound);
    let log = Log::open(&LogSettings {
        format: config.log,
        xferlog: config.xferlog.as_deref(),
        transfers_have_times: config.xferlog_times,
        hosts: &config.hosts.iter().filter_map(|host| host.transfer_log.clone()).collect::<Vec<_>>(),
        rotation: config.log_rotation,
        journal: config.log_to_journal,
        access: config.access_log.as_deref(),
        access_format: config.access_log_format,
        access_size: config.access_log_size,
        audit: config.audit.as_ref(),
        syslog: config.syslog.as_ref(),
    })
    .map_err(|(path, source)| StartError::Log { path, source })?;
    if let Some(acme) = &config.acme {
        let folder = acme.folder.clone();
        let warning = acme.prepare().map_err(|source| StartError::Acme { folder, source })?;
        warning.iter().for_each(|text| log.warn(text));
    }
    let tls = config.tls.as_ref().map(Security::new).transpose().map_err(StartError::Tls)?;
    tls.iter().flat_map(|tls| tls.doubts(SystemTime::now())).for_each(|text| log.warn(&text));
    if !config.programs.folders.is_empty() || config.hooks.is_some() {
        // Without them programs start all the same, if slower.
        let _ = millrace_process::keep_descriptors();
    }
    let (dav, trouble) = match &config.cluster {
        Some(cluster) => (Dav::of_cluster(Arc::clone(cluster)), None),
        None => Dav::open(config.dav.clone()),
    };
    if let Some(text) = trouble {
        log.warn(&text);
    }
    let bans = Arc::new(Bans::new(config.bans.clone()));
    let (ban_file, read) = BanFile::open(config.ban_file.clone(), &bans);
    if let Err(error) = read {
        log.warn(&error.to_string());
    }
    let relays = config.cluster.as_ref().is_some_and(|cluster| cluster.data_address().is_some());
    let for_relay = if relays { RelayLimits::of(descriptors).descriptors() } else { 0 };
    let reserve = descriptor_reserve(descriptors) + for_relay;
    let descriptors = Descriptors { most: descriptors, reserve, workers: config.workers };
    let threads = config.blocking_threads;
    let sessions = Arc::new(sessions(&config, descriptors));
    let now = machine.clock.instant();
    let ftp = Ftp::new(
        FtpConfig {
            connect_timeout: config.connect_timeout,
            stall_timeout: config.stall_timeout,
            shutdown_password: config.shutdown_password.clone(),
            coalesce: config.coalesce,
            sort_entries: config.sort_entries,
        },
        Settings { occupancy: Arc::clone(&sessions) as _, ..settings(&config) },
        &config.hosts,
        &config.classes,
        PassivePool::with_sockets(
            config.passive_ports.clone(),
            passive::kept(descriptors.most),
            Arc::clone(&proxies),
            Arc::clone(&machine.data_sockets),
        ),
        (machine.pool)(threads / 4),
    );
    let login_threads = LOGIN_THREADS.max(thread::available_parallelism().map_or(1, usize::from));
    let services = Services {
        clock: machine.clock.clone(),
        policy: Policy::new(Arc::clone(&config.accounts), config.hooks.clone()),
        tls,
        pool: (machine.pool)(threads),
        long: (machine.pool)(threads / 4),
        logins: (machine.pool)(login_threads),
        hook_pools: Pools::new(&machine.pool, config.hook_threads, threads),
        log,
        sessions,
        cpu_limit: timed(&config.cpu_limit),
        load: Load::default(),
        logins_rated: Arc::new(Logins::new(config.logins.clone(), config.network_bits, now)),
        proxies,
        bans,
        cluster: config.cluster.clone(),
        limits: Tree::new(config.limits.clone(), now, wall_seconds()),
        is_ending: AtomicBool::new(false),
        next_session: AtomicU64::new(1).into(),
        connect_timeout: config.connect_timeout,
    };
    let (services, side, acme) =
        (Arc::new(services), Arc::new(Side::default()), Arc::new(Renewal::default()));
    let renewal = Arc::clone(&acme);
    let http = Http::new(HttpParts {
        config: http_config(&config),
        services: Arc::clone(&services),
        anonymous: config.is_open_to_anonymous(),
        web: config.web.clone(),
        https_port: bound[3].first().map(SocketAddr::port),
        challenges: Box::new(move |target| renewal.tokens.answer(target)),
        dav,
        resumable: config.resumable.clone(),
        side: Arc::clone(&side),
    });
    Ok(ServerState {
        shared: SharedByWorkers { services, ftp: Arc::new(ftp), http: Arc::new(http), side },
        acme,
        ban_file,
        disks: Disks::new(&config.disks),
        workers: OnceLock::new(),
        is_on_record: AtomicBool::new(false),
        is_leaving: AtomicBool::new(false),
        is_handing_over: AtomicBool::new(false),
        data_relay: OnceLock::new(),
        errands: OnceLock::new(),
        tokens: OnceLock::new(),
        end: Mutex::default(),
        config,
    })
}

/// Limits of listeners hold where these really are: the port may have been 0.
fn place_limits(config: &mut Config, bound: &[Vec<SocketAddr>; 4]) {
    let asked = config.ftp.iter().chain(&config.ftps).chain(&config.http).chain(&config.https);
    let bound: Vec<_> = asked.copied().zip(bound.iter().flatten().copied()).collect();
    for (address, _) in &mut config.limits.listeners {
        if let Some((_, bound)) = bound.iter().find(|(asked, _)| asked == address) {
            *address = *bound;
        }
    }
}

/// What holds for sessions of FTP.
fn settings(config: &Config) -> Settings {
    Settings {
        greeting: config.greeting.clone(),
        texts: Arc::clone(&config.texts),
        login_timeout: config.login_timeout,
        idle_timeout: config.idle_timeout,
        // No client holds a connection for longer than configured.
        idle_timeout_max: config.idle_timeout,
        login_delay: config.login_delay,
        login_attempts: config.login_attempts,
        public_ip: config.public_ip,
        foreign_data: config.foreign_data,
        mode_z: config.mode_z,
        anonymous: config.anonymous,
        tls: config.tls.as_ref().map(Tls::of_sessions),
        keeps_addresses: config.xferlog.is_some()
            || config.hosts.iter().any(|host| host.transfer_log.is_some()),
        notes: config.messages,
        umask: umask(),
        ..Settings::default()
    }
}

/// What holds for connections of HTTP.
fn http_config(config: &Config) -> HttpConfig {
    HttpConfig {
        hosts: config.hosts.iter().map(|host| (host.known_by.clone(), host.transfer_log.clone())).collect(),
        trusted_proxies: config.trusted_proxies.clone(),
        programs: config.programs.clone(),
        proxy_routes: config.proxy_routes.iter().cloned().map(Arc::new).collect(),
        workers: config.workers,
        stall_timeout: config.stall_timeout,
        head_timeout: config.http_head_timeout,
        idle_timeout: config.http_idle_timeout,
        http2_ping: config.http2_ping,
        login_delay: config.login_delay,
        login_attempts: config.login_attempts,
        sort_entries: config.sort_entries,
    }
}

/// The mask of this process: what `umask(2)` would answer, which can only be asked by setting another.
fn umask() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(mask.trim(), 8).ok()
}

fn timed(limit: &Limit) -> Timed {
    Timed::new(limit.clone(), wall_seconds())
}

/// How many connections there may be: those asked for, but no more than leave descriptors for data connections and
/// files.
fn sessions(config: &Config, descriptors: Descriptors) -> Sessions {
    let networks = ConnectionLimit::new(timed(&config.sessions_per_network), config.network_bits);
    let addresses = addresses(config, descriptors.room()).without(&config.trusted_proxies.networks);
    let networks = networks.without(&config.trusted_proxies.networks);
    Sessions::new(timed(&config.sessions), descriptors, addresses, networks)
}

/// The limits on sessions of one address: the configured one, or a share.
fn addresses(config: &Config, room: usize) -> ConnectionLimit {
    let limits = |limit: &Limit| ConnectionLimit::new(timed(limit), NetworkBits::ADDRESS);
    match &config.sessions_per_address {
        Some(limit) => limits(limit),
        None => {
            let all = Some(config.sessions.most()).filter(|&most| most > 0).unwrap_or(u64::MAX);
            limits(&Limit::none()).sharing(all.min(room as u64))
        }
    }
}

/// Descriptors that sessions leave to others.
fn descriptor_reserve(descriptors: u64) -> u64 {
    (descriptors / 16).clamp(24, 1024) + passive::kept(descriptors) as u64
}

/// Warns where no passive port can be had: every other sign would be a client's that hears 425.
pub(super) fn look_at_ports(state: &ServerState, [ftp, ftps, ..]: &[Vec<SocketAddr>; 4]) {
    let mut hosts: Vec<_> = ftp.iter().chain(ftps).map(SocketAddr::ip).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let range = state.shared.ftp.passive.range();
    for host in hosts {
        if let Some(error) = state.shared.ftp.passive.trouble(host) {
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
