//! What connections of FTP share: on a server ([`Ftp`]), and on a worker ([`Door`]).

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use millrace_accounts::Password;
use millrace_blocking::BlockingPool;
use millrace_ftp::Settings;
use millrace_ftp::reply::{Reply, code};
use millrace_limits::Class;
use millrace_runtime::client_names::ClientNames;
use millrace_runtime::passive::PassivePool;
use millrace_runtime::report::SessionReport;
use millrace_runtime::worker::Post;
use millrace_vfs::Timestamp;

use super::hosts::{FtpHost, SettingsByHost};
use super::message::Message;
use crate::files::DigestCache;
use crate::files::Promises;

/// Settings of connections, besides those that sessions know.
#[derive(Debug, Clone)]
pub struct FtpConfig {
    /// From the transfer command to the data connection; also how long a passive port is waited for, and kept for a
    /// client that begins no transfer.
    pub connect_timeout: Duration,
    /// Silence on a data connection.
    pub stall_timeout: Duration,
    /// What an administrator proves with `INTERNALSHUTDOWN`; `None`: the server cannot be stopped so.
    pub shutdown_password: Option<Password>,
    /// Whether a small file's data may be sent before the 150 that announces it.
    pub coalesce: bool,
    /// Entries up to which listings are sorted.
    pub sort_entries: usize,
}

/// What all connections of FTP share.
#[derive(Debug)]
pub struct Ftp {
    /// Settings of connections.
    pub config: FtpConfig,
    /// What sessions are told of the configuration, by virtual host; a reload changes some of it.
    settings: RwLock<SettingsByHost>,
    /// Classes of sessions.
    classes: RwLock<Arc<[Class]>>,
    /// Whether there is one: a login without takes no lock that all workers share.
    has_classes: AtomicBool,
    /// Names of clients' hosts, for classes.
    pub(super) client_names: Arc<ClientNames>,
    /// Ports for passive data connections.
    pub passive: PassivePool,
    /// Listings have threads of their own: of a disk that is slow or stuck there may be very many, and uploads have to
    /// go on.
    pub listings: BlockingPool,
    /// Names of uploads that take them at their end.
    pub(super) promises: Promises,
    /// Hashes of files that were asked for.
    pub(super) digests: Arc<DigestCache>,
    /// See [`Ftp::set_administration`].
    administration: OnceLock<Box<dyn Administration>>,
}

/// What sessions ask of the whole server, and tell it.
pub trait Administration: std::fmt::Debug + Send + Sync {
    /// Returns the sessions of all workers, but of one that does not answer soon. May block.
    fn sessions(&self) -> Vec<SessionReport>;
    /// Ends the server, for this reason.
    fn shut_down(&self, why: &str);
}

impl Ftp {
    /// Puts settings in force.
    pub fn new(
        config: FtpConfig,
        settings: Settings,
        hosts: &[FtpHost],
        classes: &[Class],
        passive: PassivePool,
        listings: BlockingPool,
    ) -> Self {
        let digests = Arc::new(DigestCache::default());
        let settings = Settings { fact_source: Arc::clone(&digests) as _, ..settings };
        Self {
            config,
            settings: RwLock::new(SettingsByHost::new(settings, hosts)),
            classes: RwLock::new(classes.into()),
            has_classes: AtomicBool::new(!classes.is_empty()),
            client_names: Arc::default(),
            passive,
            listings,
            promises: Promises::default(),
            digests,
            administration: OnceLock::new(),
        }
    }

    /// Sets what `SITE WHO` and `INTERNALSHUTDOWN` use. The first call counts.
    pub fn set_administration(&self, administration: impl Administration + 'static) {
        let _ = self.administration.set(Box::new(administration));
    }

    /// Returns the server, as far as it can be administered.
    pub(super) fn administration(&self) -> Option<&dyn Administration> {
        self.administration.get().map(|administration| &**administration)
    }

    /// Returns what sessions are told of the configuration now.
    pub(super) fn settings(&self) -> RwLockReadGuard<'_, SettingsByHost> {
        self.settings.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what sessions are told from now on.
    pub fn change_settings(&self, change: impl FnOnce(&mut Settings)) {
        let mut settings = self.settings.write().unwrap_or_else(PoisonError::into_inner);
        *settings = settings.changed(change);
    }

    /// Returns the classes of sessions, where there are any.
    pub(super) fn classes(&self) -> Option<Arc<[Class]>> {
        let has_classes = self.has_classes.load(Ordering::Acquire);
        has_classes.then(|| Arc::clone(&self.classes.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Replaces them: they hold from the next logins on.
    pub fn replace_classes(&self, classes: &[Class]) {
        *self.classes.write().unwrap_or_else(PoisonError::into_inner) = classes.into();
        self.has_classes.store(!classes.is_empty(), Ordering::Release);
    }

    /// Replaces the virtual hosts.
    pub fn replace_hosts(&self, hosts: &[FtpHost]) {
        let mut settings = self.settings.write().unwrap_or_else(PoisonError::into_inner);
        *settings = settings.with_hosts(hosts);
    }
}

/// What connections of FTP share on one worker.
#[derive(Debug)]
pub struct Door {
    /// What they share with those of other workers.
    pub(super) ftp: Arc<Ftp>,
    /// The way back from other threads.
    pub(super) post: Post<Message>,
}

impl Door {
    /// Writes what a client is told that is not admitted. `is_full`: there are as many sessions as may be.
    pub fn refuse(
        &self,
        peer: SocketAddr,
        wall: Timestamp,
        reason: &'static str,
        is_full: bool,
        out: &mut Vec<u8>,
    ) {
        let settings = self.ftp.settings().of_server();
        let lines = match is_full {
            true => {
                let (peer, local) = (peer.ip().to_canonical(), IpAddr::from([0, 0, 0, 0]));
                settings.cookies(peer, local, wall).fill_all(&settings.texts.limit)
            }
            false => Vec::new(),
        };
        Reply::owned(code::SERVICE_CLOSING, reason).behind(lines).write(out);
    }

    /// For one worker, which is sent messages so.
    pub fn new(ftp: Arc<Ftp>, post: Post<Message>) -> Arc<Self> {
        Arc::new(Self { ftp, post })
    }
}
