//! What a server begins with: all that its workers share, and what an operator should know of it before anybody comes.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::thread;
use std::time::{Instant, SystemTime};

use millrace_acme::Renewal;
use millrace_ftp::Settings;
use millrace_limits::wall_seconds;

use super::StartError;
use crate::blocking::BlockingPool;
use crate::config::{Config, Tls};
use crate::ftp::{DigestCache, Promises};
use crate::hooks::Pools;
use crate::http::{Dav, Kept, Side, Tus};
use crate::kept_bans::BanFile;
use crate::limits::Bans;
use crate::limits::Load;
use crate::limits::{ConnectionLimit, Limit, Logins, NetworkBits, Timed, Tree};
use crate::log::Log;
use crate::passive::{self, PassivePool};
use crate::state::Server as State;
use crate::tls::Security;
use crate::web::InForce;
use millrace_runtime::proxies::Proxies;

/// Logins that may be decided at once: more than cores, for accounts that are asked over a network.
const LOGIN_THREADS: usize = 64;

/// All that the workers share, from what is configured, what the listeners are `bound` to, and so many descriptors.
pub(super) fn state(
    mut config: Config,
    bound: &[Vec<SocketAddr>; 4],
    descriptors: u64,
) -> Result<State, StartError> {
    let proxies = Arc::new(Proxies::new(config.proxy_from.clone()));
    place_limits(&mut config, bound);
    let log = Log::open(config.log, config.xferlog.as_deref(), config.access_log.as_deref())
        .map_err(|(path, source)| StartError::Log { path, source })?;
    let digests = Arc::new(DigestCache::default());
    let settings = settings(&config, &digests);
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
    let (dav, trouble) = Dav::open(config.dav.clone());
    if let Some(text) = trouble {
        log.warn(&text);
    }
    let bans = Bans::new(config.bans.clone());
    let (ban_file, read) = BanFile::open(config.ban_file.clone(), &bans);
    if let Err(error) = read {
        log.warn(&error.to_string());
    }
    let timed = |limit: &Limit| Timed::new(limit.clone(), wall_seconds());
    Ok(State {
        settings: RwLock::new(Arc::new(settings)),
        https_port: bound[3].first().map(SocketAddr::port),
        tls,
        acme: Renewal::default(),
        promises: Promises::default(),
        digests,
        pool: BlockingPool::new(config.blocking_threads),
        long: BlockingPool::new(config.blocking_threads / 4),
        listings: BlockingPool::new(config.blocking_threads / 4),
        is_ending: AtomicBool::new(false),
        logins: BlockingPool::new(LOGIN_THREADS.max(thread::available_parallelism().map_or(1, usize::from))),
        hook_pools: Pools::new(config.hook_threads, config.blocking_threads),
        passive: PassivePool::new(
            config.passive_ports.clone(),
            passive::kept(descriptors),
            Arc::clone(&proxies),
        ),
        proxies,
        log,
        sessions: AtomicUsize::new(0),
        session_limit: timed(&config.sessions),
        session_room: session_room(descriptors),
        cpu_limit: timed(&config.cpu_limit),
        descriptors,
        descriptor_reserve: descriptor_reserve(descriptors),
        addresses: addresses(&config, session_room(descriptors)),
        networks: ConnectionLimit::new(timed(&config.sessions_per_network), config.network_bits),
        logins_rated: Logins::new(config.logins.clone(), config.network_bits, Instant::now()),
        bans,
        ban_file,
        load: Load::default(),
        accounts: RwLock::new(Arc::clone(&config.accounts)),
        is_open: AtomicBool::new(config.anonymous),
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
        is_on_record: AtomicBool::new(false),
        end: Mutex::default(),
        next_session: AtomicU64::new(1),
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
fn settings(config: &Config, digests: &Arc<DigestCache>) -> Settings {
    Settings {
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
        lore: Arc::clone(digests) as _,
    }
}

/// The mask of this process: what `umask(2)` would answer, which can only be asked by setting another.
fn umask() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(mask.trim(), 8).ok()
}

/// Sessions at most: those asked for, but no more than leave descriptors for data connections and files.
fn session_room(descriptors: u64) -> usize {
    let reserve = descriptor_reserve(descriptors);
    usize::try_from(descriptors.saturating_sub(reserve)).unwrap_or(usize::MAX).max(1)
}

/// Sessions of addresses, each of which may have what is set, or a share.
fn addresses(config: &Config, room: usize) -> ConnectionLimit {
    let crowd =
        |limit: &Limit| ConnectionLimit::new(Timed::new(limit.clone(), wall_seconds()), NetworkBits::ADDRESS);
    match &config.sessions_per_address {
        Some(limit) => crowd(limit),
        None => {
            let all = Some(config.sessions.most()).filter(|&most| most > 0).unwrap_or(u64::MAX);
            crowd(&Limit::none()).sharing(all.min(room as u64))
        }
    }
}

/// Descriptors that sessions leave to others.
fn descriptor_reserve(descriptors: u64) -> u64 {
    (descriptors / 16).clamp(24, 1024) + passive::kept(descriptors) as u64
}

/// Warns where no passive port can be had: every other sign would be a client's that hears 425.
pub(super) fn look_at_ports(state: &State, [ftp, ftps, ..]: &[Vec<SocketAddr>; 4]) {
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
