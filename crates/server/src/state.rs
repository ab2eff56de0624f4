//! A server that runs: what its workers share, and what its programs of either protocol do.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak, mpsc};
use std::time::{Duration, Instant};

use millrace_acme::Renewal;
use millrace_cluster::{SetLimits, TokenStore};
use millrace_ftp_server::Administration;
use millrace_runtime::report::SessionReport;
use millrace_runtime::services::Services;
use millrace_runtime::worker::Client as _;

use crate::config::Config;
use crate::data_relay::DataRelay;
use crate::disks::Disks;
use crate::kept_bans::BanFile;
use crate::worker::{Client, Core, Errand, Sender, SharedByWorkers, Worker, WorkerMessage};

/// How long workers are waited for that were asked something.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Performs an errand of another node, and returns the answer.
pub(crate) type Errands = Box<dyn Fn(&str) -> String + Send + Sync>;

/// The shared part of a running server.
pub(crate) struct ServerState {
    pub(crate) config: Config,
    /// What the workers share.
    pub(crate) shared: SharedByWorkers,
    /// The ways to the workers, once they run.
    pub(crate) workers: OnceLock<Vec<Sender>>,
    /// The renewal of the server's own certificate (ACME).
    pub(crate) acme: Arc<Renewal>,
    pub(crate) ban_file: BanFile,
    /// The free space of the folders that are watched.
    pub(crate) disks: Disks,
    /// The log has its start and not yet its end.
    pub(crate) is_on_record: AtomicBool,
    /// It accepts clients, and is about to drain.
    pub(crate) is_leaving: AtomicBool,
    /// It starts a successor, which has its name in a cluster, too.
    pub(crate) is_handing_over: AtomicBool,
    /// Hands on data connections between nodes of a cluster, where they do that.
    pub(crate) data_relay: OnceLock<DataRelay>,
    /// Performs what other nodes of the cluster ask of this one.
    pub(crate) errands: OnceLock<Errands>,
    /// The tokens of the admin API, where the nodes of a cluster share them.
    pub(crate) tokens: OnceLock<Arc<dyn TokenStore>>,
    /// Why the server ends, for the log: what was said first. Guarded for a look.
    pub(crate) end: Mutex<Option<String>>,
}

impl Deref for ServerState {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.shared.services
    }
}

impl ServerState {
    /// Has every worker do something.
    pub(crate) fn tell_workers<F: FnOnce(&mut Worker) + Send + 'static>(&self, work: impl Fn() -> F) {
        let workers = self.workers.get().into_iter().flatten();
        workers.for_each(|worker| worker.send(WorkerMessage::Worker(Box::new(work()))));
    }

    /// Has every worker ask each of its connections that is of note; a worker that does not answer soon is left out.
    pub(crate) fn each<T: Send + 'static>(
        &self,
        ask: impl Fn(&mut Client, &mut Core) -> T + Send + Sync + 'static,
    ) -> Vec<T> {
        let (sender, answers) = mpsc::channel();
        let errand = Errand::new(move |client, core| {
            let _ = sender.send(ask(client, core));
        });
        let workers = self.workers.get().into_iter().flatten();
        workers.for_each(|worker| worker.send(WorkerMessage::Each(errand.clone())));
        drop(errand);
        let end = Instant::now() + ANSWER_TIME;
        let next = || answers.recv_timeout(end.saturating_duration_since(Instant::now())).ok();
        std::iter::from_fn(next).collect()
    }

    /// Returns the sessions of all workers, in the order in which they began.
    pub(crate) fn sessions(&self) -> Vec<SessionReport> {
        let reports = self.each(|client, core| client.report(core.now.instant));
        let mut sessions: Vec<_> = reports.into_iter().flatten().collect();
        sessions.sort_by_key(|session| session.number);
        sessions
    }

    /// Holds to the limits that are set for all nodes of its cluster, and to no others.
    pub(crate) fn use_limits(&self, set: &SetLimits) {
        self.limits.set_all(&set.limits, Instant::now());
        set.unread.iter().for_each(|why| self.log.warn(why));
    }

    /// Says why the server ends. What was said first counts.
    pub(crate) fn note_why_it_ends(&self, why: &str) {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        end.get_or_insert_with(|| why.to_owned());
    }

    /// Another server accepts. Connections stay for this time; what is under way goes to its end.
    pub(crate) fn retire(&self, grace: Duration) {
        self.is_ending.store(true, Ordering::Release);
        let end = Instant::now() + grace;
        self.shared.ftp.passive.share_with_others(true);
        // What it hands on goes to its end, as its own transfers do.
        self.data_relay.get().iter().for_each(|relay| relay.retire());
        self.config.quotas.iter().for_each(|quotas| quotas.leave());
        self.tell_workers(|| move |worker: &mut Worker| worker.retire(end));
    }

    /// Stops accepting; transfers may go on for this time.
    pub(crate) fn begin_shutdown(&self, grace: Duration) {
        self.is_ending.store(true, Ordering::Release);
        let end = Instant::now() + grace;
        self.shared.side.begin_shutdown();
        self.data_relay.get().iter().for_each(|relay| relay.end_by(end));
        self.tell_workers(|| move |worker: &mut Worker| worker.shut_down(end));
    }
}

/// A server that sessions may administer, and do not keep alive.
#[derive(Debug)]
pub(crate) struct WeakServer(pub(crate) Weak<ServerState>);

impl Administration for WeakServer {
    fn sessions(&self) -> Vec<SessionReport> {
        self.0.upgrade().map_or(Vec::new(), |server| server.sessions())
    }

    fn shut_down(&self, why: &str) {
        if let Some(server) = self.0.upgrade() {
            server.note_why_it_ends(why);
            server.begin_shutdown(server.config.grace);
        }
    }
}

impl std::fmt::Debug for ServerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerState").field("config", &self.config).finish_non_exhaustive()
    }
}
