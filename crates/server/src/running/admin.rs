//! What an administrator asks of a server that runs, and tells it: sessions, limits, bans, quotas, a slow end.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use millrace_cluster::{Cluster, TableError, TokenStore};
use millrace_runtime::login::limits_of;
use millrace_runtime::report::SessionReport;
use millrace_runtime::worker::Client as _;
use millrace_storage::{LedgerError, TallyReport};

use super::Running;
use crate::auth::{Attempt, Decision};
use crate::hooks::Backlog;
use crate::limits::BanReport;
use crate::limits::Network;
use crate::limits::{Limits, Scope, ScopeReport};
use crate::log::{self, Administrator, Position};
use crate::state::Errands;
use crate::worker::Client;
use crate::worker::{AS_LONG_AS_IT_TAKES, Core};

/// The cluster that a server is a node of, if it is one.
pub fn cluster_of(running: &Running) -> Option<&Arc<Cluster>> {
    running.state.cluster.as_ref()
}

/// Has errands of other nodes performed by this. The first that is said holds.
pub fn perform_errands(running: &Running, errands: Errands) {
    let _ = running.state.errands.set(errands);
}

/// Has the nodes of the cluster share the tokens of the admin API that are kept there. The first that is said holds.
pub fn share_tokens(running: &Running, tokens: Arc<dyn TokenStore>) {
    let _ = running.state.tokens.set(tokens);
}

/// Sets limits for all nodes of the cluster, of which the server is one, until they are restored; of sessions the server alone has
/// them. False: there are limits of as many scopes as there may be.
pub fn set_limits_of_cluster(
    running: &Running,
    cluster: &Cluster,
    scope: &Scope,
    limits: &Limits,
    restores: bool,
) -> Result<bool, TableError> {
    cluster.set_limits(scope, limits, restores, |set| running.state.use_limits(set))
}

impl Running {
    /// The sessions: all FTP connections, and HTTP connections with a user or a request under way.
    pub fn sessions(&self) -> Vec<SessionReport> {
        self.state.sessions()
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

    /// Sets limits, in running transfers too, until they are set again or [restored](Running::restore_limits). `None`
    /// leaves a limit unchanged. For a user or group without sessions they apply from the next login. Returns true if
    /// the scope exists.
    pub fn set_limits(&self, scope: &Scope, limits: &Limits) -> bool {
        match scope {
            Scope::Session(number) => {
                let (number, limits) = (*number, limits.clone());
                self.any(move |client, core| client.set_limits(core, number, Some(&limits)))
            }
            _ => self.state.limits.set(scope, limits, Instant::now()),
        }
    }

    /// Returns true if a name may be what a user is counted by: the accounts know it, or cannot tell without a password. May
    /// block.
    pub fn may_know(&self, user: &[u8]) -> bool {
        let attempt = Attempt { encrypted: true, ..Attempt::new(user, b"") };
        let is_here = |session: &SessionReport| session.user.as_deref() == Some(user);
        !matches!(self.state.accounts().current(&attempt), Some(Decision::Denied))
            || self.is_known_to_host(user)
            || self.sessions().iter().any(is_here)
    }

    /// Returns whether this is `files.example.org/zoe`, with a host that has such a user of its own.
    fn is_known_to_host(&self, user: &[u8]) -> bool {
        let Some(at) = user.iter().position(|&byte| byte == b'/') else { return false };
        let host = String::from_utf8_lossy(&user[..at]);
        let ip = || host.parse().ok().map(|ip| SocketAddr::new(ip, 0));
        let local = host.parse::<SocketAddr>().ok().or_else(ip);
        let attempt = Attempt { encrypted: true, host: &host, local, ..Attempt::new(&user[at + 1..], b"") };
        match self.state.accounts().current(&attempt) {
            Some(Decision::Granted(account)) => *limits_of(&account).counted_by(attempt.user) == *user,
            _ => false,
        }
    }

    /// Forgets what was set: the configured limits hold again. Answers whether there is such a scope.
    pub fn restore_limits(&self, scope: &Scope) -> bool {
        match *scope {
            Scope::Session(number) => self.any(move |client, core| client.set_limits(core, number, None)),
            _ => self.state.limits.restore(scope, Instant::now()),
        }
    }

    /// The effective limits; of sessions only those that were [set](Running::set_limits).
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

    /// Refuses connections from a network, for this time or until the ban is lifted; running sessions continue. `false`
    /// if there are too many bans.
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

    /// The use of quotas, where there was recent activity.
    pub fn quotas(&self) -> Vec<TallyReport> {
        self.state.config.quotas.as_ref().map_or(Vec::new(), |quotas| quotas.ledger().report())
    }

    /// Counts quotas again: in one tree, as [`Running::quotas`] names it, or in all.
    pub fn recount_quotas(&self, tree: Option<&str>) -> Result<Vec<TallyReport>, LedgerError> {
        self.state.config.quotas.as_ref().map_or(Ok(Vec::new()), |quotas| quotas.ledger().recount(tree))
    }

    /// Events that hooks are to be told and were not yet, where there are such hooks.
    pub fn backlog(&self) -> Option<Backlog> {
        self.state.hooks()?.backlog()
    }

    /// Writes to the log what an administrator has told the server, and why it failed if it did.
    pub fn note_administered(&self, what: &str, failed: Option<&str>, by: Option<Administrator<'_>>) {
        self.state.log.note(log::Event::Administered { what, failed, by });
    }

    /// Writes to the log that an account of the database was changed.
    pub fn note_account_changed(
        &self,
        action: &str,
        account: &str,
        settings: Option<&str>,
        by: Administrator<'_>,
    ) {
        self.state.log.note(log::Event::AccountChanged { action, account, settings, by });
    }

    /// Writes to the log which keys a reload has changed.
    pub fn note_reloaded(&self, changed: &[&'static str], next_start: &[&'static str]) {
        self.state.log.note(log::Event::Reloaded { changed, next_start });
    }

    /// The file of the audit log and its last record, where there is such a log.
    pub fn audit_position(&self) -> Option<io::Result<(PathBuf, Position)>> {
        self.state.log.audit_position()
    }

    /// Stops accepting, and waits for running transfers however long they take; idle sessions are told 421.
    pub fn drain(&self) {
        self.state.begin_shutdown(AS_LONG_AS_IT_TAKES);
    }

    /// Calls itself no longer ready, and drains after this time: until then those before it, which ask for that, can
    /// lead new clients elsewhere, and sessions can end by themselves.
    ///
    /// # Errors
    ///
    /// No thread that waits can be had; then nothing has changed.
    pub fn drain_after(&self, notice: Duration) -> io::Result<()> {
        let state = Arc::downgrade(&self.state);
        let drain = move || {
            thread::sleep(notice);
            if let Some(state) = state.upgrade() {
                state.begin_shutdown(AS_LONG_AS_IT_TAKES);
            }
        };
        thread::Builder::new().name("millrace-drain".to_owned()).spawn(drain)?;
        self.state.is_leaving.store(true, Ordering::Release);
        Ok(())
    }

    /// Returns true if it no longer accepts clients, and ends after the running operations.
    pub fn is_ending(&self) -> bool {
        self.state.is_ending.load(Ordering::Acquire)
    }

    fn each<T: Send + 'static>(
        &self,
        ask: impl Fn(&mut Client, &mut Core) -> T + Send + Sync + 'static,
    ) -> Vec<T> {
        self.state.each(ask)
    }

    /// As `each`, where one is looked for.
    fn any(&self, is_it: impl Fn(&mut Client, &mut Core) -> bool + Send + Sync + 'static) -> bool {
        self.each(is_it).into_iter().any(|found| found)
    }
}
