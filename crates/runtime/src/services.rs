//! What the workers of a server share, whatever protocols it speaks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use millrace_accounts::Authenticator;
use millrace_blocking::BlockingPool;
use millrace_cluster::Cluster;
use millrace_hooks::{Hooks, Pools};
use millrace_limits::{Bans, Load, Logins, Timed, Tree};
use millrace_log::Log;

use crate::clock::Clock;
use crate::proxies::Proxies;
use crate::sessions::Sessions;
use crate::tls::Security;

/// Pools of threads, accounts, limits, bans, hooks, TLS and the log.
#[derive(Debug)]
pub struct Services {
    /// What time it is.
    pub clock: Clock,
    /// Accounts and hooks, which a reload replaces.
    pub policy: Policy,
    /// `None` where there is no certificate.
    pub tls: Option<Security>,
    /// Disks: names, files, bodies.
    pub pool: BlockingPool,
    /// What takes long though no disk is slow: hashes, copies, walks over trees. A client that may read may ask for
    /// any number of them, so they have threads of their own, a quarter as many.
    pub long: BlockingPool,
    /// Logins: a burst of wrong passwords must not keep disks from being read.
    pub logins: BlockingPool,
    /// Hooks, which may hang.
    pub hook_pools: Pools,
    /// Where events and requests are written.
    pub log: Log,
    /// How many connections there are, and may be.
    pub sessions: Arc<Sessions>,
    /// The percentage of the processors above which logins are refused.
    pub cpu_limit: Timed,
    /// How busy the processors are, where a limit asks for it.
    pub load: Load,
    /// How often a user, and an address, may log in.
    pub logins_rated: Arc<Logins>,
    /// The proxies whose PROXY headers are believed.
    pub proxies: Arc<Proxies>,
    /// Addresses that are refused.
    pub bans: Arc<Bans>,
    /// The cluster that this server is a node of, if it is one.
    pub cluster: Option<Arc<Cluster>>,
    /// Bandwidth and sessions by scope.
    pub limits: Tree,
    /// Whether the server accepts no more clients.
    pub is_ending: AtomicBool,
    /// Numbers sessions in the log.
    pub next_session: CachePadded<AtomicU64>,
    /// How long connecting may take: a PROXY header, a data connection.
    pub connect_timeout: Duration,
}

impl Services {
    /// Returns true if single transfers are logged, or told to hooks.
    pub fn tells_of_transfers(&self) -> bool {
        self.log.has_transfers() || self.policy.has_hooks.load(Ordering::Acquire)
    }

    /// Returns the accounts that are in force.
    pub fn accounts(&self) -> Arc<dyn Authenticator> {
        self.policy.accounts()
    }

    /// Returns the accounts for a login, with their edition. Their decision holds only if that is still the
    /// [edition](Self::edition) when it comes: a session hears of changes from its login on.
    pub fn accounts_for_login(&self) -> (u64, Arc<dyn Authenticator>) {
        // In this order: a login may be taken for older than it is, never for newer.
        let edition = self.edition();
        (edition, self.accounts())
    }

    /// Returns how often the accounts were replaced or changed.
    pub fn edition(&self) -> u64 {
        self.policy.edition.load(Ordering::Acquire)
    }

    /// Returns the hooks that are in force.
    pub fn hooks(&self) -> Option<Arc<dyn Hooks>> {
        self.policy.hooks()
    }
}

/// Accounts and hooks, which a reload replaces.
#[derive(Debug)]
pub struct Policy {
    /// Written by each login, beside what each command reads.
    accounts: CachePadded<RwLock<Arc<dyn Authenticator>>>,
    edition: AtomicU64,
    hooks: RwLock<Option<Arc<dyn Hooks>>>,
    /// Whether there are hooks: read for each command, so without a lock.
    has_hooks: AtomicBool,
}

impl Policy {
    /// Puts accounts and hooks in force.
    pub fn new(accounts: Arc<dyn Authenticator>, hooks: Option<Arc<dyn Hooks>>) -> Self {
        Self {
            accounts: CachePadded::new(RwLock::new(accounts)),
            edition: AtomicU64::new(0),
            has_hooks: AtomicBool::new(hooks.is_some()),
            hooks: RwLock::new(hooks),
        }
    }

    /// Replaces the accounts. [`begin_edition`](Self::begin_edition) has to follow.
    pub fn replace_accounts(&self, accounts: Arc<dyn Authenticator>) {
        *self.accounts.write().unwrap_or_else(PoisonError::into_inner) = accounts;
    }

    /// Marks the accounts as changed. Sessions are to be told after this.
    pub fn begin_edition(&self) {
        self.edition.fetch_add(1, Ordering::Release);
    }

    /// Replaces the hooks.
    pub fn replace_hooks(&self, hooks: Option<Arc<dyn Hooks>>) {
        let has_hooks = hooks.is_some();
        *self.hooks.write().unwrap_or_else(PoisonError::into_inner) = hooks;
        self.has_hooks.store(has_hooks, Ordering::Release);
    }

    fn accounts(&self) -> Arc<dyn Authenticator> {
        Arc::clone(&self.accounts.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn hooks(&self) -> Option<Arc<dyn Hooks>> {
        match self.has_hooks.load(Ordering::Acquire) {
            true => self.hooks.read().unwrap_or_else(PoisonError::into_inner).clone(),
            false => None,
        }
    }
}
