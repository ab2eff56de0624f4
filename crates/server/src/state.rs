//! A server that runs: what its workers share, and what its programs of either protocol do.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use millrace_acme::Renewal;
use millrace_runtime::services::Services;

use crate::config::Config;
use crate::kept_bans::BanFile;
use crate::worker::{Sender, SharedByWorkers, Worker, WorkerMessage};

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
    /// The log has its start and not yet its end.
    pub(crate) is_on_record: AtomicBool,
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
        self.config.quotas.iter().for_each(|quotas| quotas.leave());
        self.tell_workers(|| move |worker: &mut Worker| worker.retire(end));
    }

    /// Stops accepting; transfers may go on for this time.
    pub(crate) fn begin_shutdown(&self, grace: Duration) {
        self.is_ending.store(true, Ordering::Release);
        let end = Instant::now() + grace;
        self.shared.side.begin_shutdown();
        self.tell_workers(|| move |worker: &mut Worker| worker.shut_down(end));
    }
}

impl std::fmt::Debug for ServerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerState").field("config", &self.config).finish_non_exhaustive()
    }
}
