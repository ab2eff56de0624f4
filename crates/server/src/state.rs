//! What all workers of a server share.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use std::time::{Duration, Instant};

use millrace_acme::Renewal;
use millrace_ftp::Settings;
use millrace_net::inbox::Sender;

use crate::auth::Authenticator;
use crate::blocking::BlockingPool;
use crate::config::Config;
use crate::ftp::{DigestCache, Promises};
use crate::hooks::{Hooks, Pools};
use crate::http::{Dav, Kept, Side, Tus};
use crate::kept_bans::BanFile;
use crate::limits::Bans;
use crate::limits::Load;
use crate::limits::{ConnectionLimit, Logins, Timed, Tree};
use crate::log::Log;
use crate::passive::PassivePool;
use crate::tls::Security;
use crate::web::InForce;
use crate::worker::Message;
use millrace_runtime::proxies::Proxies;

/// The shared part of a running server.
pub(crate) struct Server {
    pub(crate) config: Config,
    /// Who may log in now: those of `config`, until it is read again.
    pub(crate) accounts: RwLock<Arc<dyn Authenticator>>,
    /// Whoever says nothing is `anonymous` now, likewise.
    pub(crate) is_open: AtomicBool,
    /// Who has a word in what sessions do now, likewise.
    pub(crate) hooks: RwLock<Option<Arc<dyn Hooks>>>,
    /// There are some: asked with each command, so no lock is for it.
    pub(crate) has_hooks: AtomicBool,
    /// What HTTP adds to files now, likewise. Workers have it of their own.
    pub(crate) web: RwLock<Arc<InForce>>,
    /// How often the accounts were replaced or changed.
    pub(crate) edition: AtomicU64,
    /// The ways to the workers, once they run.
    pub(crate) workers: OnceLock<Vec<Sender<Message>>>,
    /// What sessions are told of the configuration; of it a reload changes what has to be encrypted.
    pub(crate) settings: RwLock<Arc<Settings>>,
    /// The port of the first listener of HTTPS.
    pub(crate) https_port: Option<u16>,
    /// `None` where there is no certificate.
    pub(crate) tls: Option<Security>,
    /// What is done about a certificate that the server fetches itself.
    pub(crate) acme: Renewal,
    /// Names of uploads that take them at their end.
    pub(crate) promises: Promises,
    /// What is known of files.
    pub(crate) digests: Arc<DigestCache>,
    pub(crate) pool: BlockingPool,
    /// For what takes long though no disk is slow: hashes, copies, walks over trees. Whoever may read may ask for as
    /// many as they like, so these have threads of their own, a quarter as many, and others keep theirs.
    pub(crate) long: BlockingPool,
    /// And for listings, by FTP: of a disk that is slow or stuck there may be very many, and uploads have to go on.
    pub(crate) listings: BlockingPool,
    /// Nobody is let in any more.
    pub(crate) is_ending: AtomicBool,
    /// Threads of their own for logins: a burst of wrong passwords must not keep disks from being read.
    pub(crate) logins: BlockingPool,
    /// And for hooks, which may hang.
    pub(crate) hook_pools: Pools,
    pub(crate) passive: PassivePool,
    pub(crate) log: Log,
    /// Control connections now.
    pub(crate) sessions: AtomicUsize,
    /// How many there may be, and how many descriptors are enough for.
    pub(crate) session_limit: Timed,
    pub(crate) session_room: usize,
    /// Percent of the processors above which nobody may log in.
    pub(crate) cpu_limit: Timed,
    /// Descriptors that there may be.
    pub(crate) descriptors: u64,
    /// Descriptors that sessions leave to others.
    pub(crate) descriptor_reserve: u64,
    /// Sessions of each address, and of each network.
    pub(crate) addresses: ConnectionLimit,
    pub(crate) networks: ConnectionLimit,
    /// How often somebody may log in.
    pub(crate) logins_rated: Logins,
    /// Who connects for others.
    pub(crate) proxies: Arc<Proxies>,
    /// Who is turned away.
    pub(crate) bans: Bans,
    pub(crate) ban_file: BanFile,
    /// How busy the machine is, where somebody wants to know.
    pub(crate) load: Load,
    /// Buckets, and who shares them.
    pub(crate) limits: Tree,
    /// Locks and properties of WebDAV.
    pub(crate) dav: Dav,
    /// Connections to servers that requests are forwarded to, as many as there are passes.
    pub(crate) forwards: Vec<Kept>,
    /// Uploads that go on where they were cut.
    pub(crate) tus: Tus,
    /// What has a runtime of its own beside the workers.
    pub(crate) side: Side,
    /// The log has its start and not yet its end.
    pub(crate) is_on_record: AtomicBool,
    /// Why the server ends, for the log: what was said first. Guarded for a look.
    pub(crate) end: Mutex<Option<String>>,
    /// Numbers sessions in the log.
    pub(crate) next_session: AtomicU64,
}

impl Server {
    /// Who may log in now.
    pub(crate) fn accounts(&self) -> Arc<dyn Authenticator> {
        Arc::clone(&self.accounts.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What sessions are told of the configuration now.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The same for a login, with their edition. What they say takes time, and holds only if that is still the
    /// [edition](Self::edition) then: a session is told of changes from its login on.
    pub(crate) fn accounts_for_login(&self) -> (u64, Arc<dyn Authenticator>) {
        // In this order: a login may be taken for older than it is, never for newer.
        let edition = self.edition();
        (edition, self.accounts())
    }

    /// The edition of the accounts that hold now.
    pub(crate) fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }

    /// The accounts are no longer what they were; sessions are to hear of it after this.
    pub(crate) fn begin_edition(&self) {
        self.edition.fetch_add(1, Ordering::Release);
    }

    /// Who has a word in what sessions do now.
    pub(crate) fn hooks(&self) -> Option<Arc<dyn Hooks>> {
        match self.has_hooks.load(Ordering::Acquire) {
            true => self.hooks.read().unwrap_or_else(PoisonError::into_inner).clone(),
            false => None,
        }
    }

    /// What HTTP adds to files now.
    pub(crate) fn web(&self) -> Arc<InForce> {
        Arc::clone(&self.web.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Claims that somebody wants to hear of single transfers.
    pub(crate) fn tells_of_transfers(&self) -> bool {
        self.log.has_transfers() || self.has_hooks.load(Ordering::Acquire)
    }

    /// Tells every worker something.
    pub(crate) fn tell_workers(&self, message: impl Fn() -> Message) {
        self.workers.get().into_iter().flatten().for_each(|worker| worker.send(message()));
    }

    /// Says why the server ends, where nobody has yet.
    pub(crate) fn note_why_it_ends(&self, why: &str) {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        end.get_or_insert_with(|| why.to_owned());
    }

    /// Another server accepts. Who is here stays for this time; what is under way goes to its end.
    pub(crate) fn retire(&self, grace: Duration) {
        self.is_ending.store(true, Ordering::Release);
        let end = Instant::now() + grace;
        self.passive.share_with_others(true);
        self.config.quotas.iter().for_each(|quotas| quotas.leave());
        self.tell_workers(|| Message::Retire(end));
    }

    /// Stops accepting; transfers may go on for this time.
    pub(crate) fn begin_shutdown(&self, grace: Duration) {
        self.is_ending.store(true, Ordering::Release);
        let end = Instant::now() + grace;
        self.side.begin_shutdown();
        self.tell_workers(|| Message::ShutDown(end));
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("config", &self.config).finish_non_exhaustive()
    }
}

/// A place among the sessions; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Admission {
    server: Arc<Server>,
    /// `None`: nobody knows yet.
    from: Option<IpAddr>,
}

impl Admission {
    /// Somebody of this address was counted in.
    pub(crate) fn new(server: &Arc<Server>, from: IpAddr) -> Self {
        Self { server: Arc::clone(server), from: Some(from) }
    }

    /// Somebody was counted in whose address is not known yet.
    pub(crate) fn of_somebody(server: &Arc<Server>) -> Self {
        Self { server: Arc::clone(server), from: None }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        match self.from {
            Some(from) => self.server.release(from),
            None => _ = self.server.sessions.fetch_sub(1, Ordering::Relaxed),
        }
    }
}
