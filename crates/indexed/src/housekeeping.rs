//! What the objects need beside requests: word of those that are pending here, and the removal of garbage.
//!
//! Two threads do this once a minute for as long as the storage is used. All servers of a tree do it, each for what any of them
//! has left; what two of them remove at once is gone once.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use millrace_vfs::FileError;

use crate::Shared;
use crate::database::lock;
use crate::tree::ObjectId;

/// How often.
const EVERY: Duration = Duration::from_secs(60);

/// How long a server is silent before what it has pending is given up.
const SILENT: Duration = Duration::from_secs(300);

/// How long, while that is not known: only those that were given up are swept.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// After how many rounds, and how old, unfinished uploads are ended that are known to the store alone: those whose end it
/// has not taken.
const ROUNDS: u32 = 60;
const LEFT_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Objects that one request removes.
const AT_ONCE: usize = 1_000;

/// What a sweep has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Uploads that were given up, or whose servers were not heard of any more.
    pub abandoned: usize,
    /// Objects that were garbage.
    pub removed: usize,
}

/// Begins it, on two threads, which end with their senders. Sweeping may wait for the store for long, and what is pending is
/// told of meanwhile.
pub(crate) fn begin(shared: &Arc<Shared>, has_probed: bool) -> Vec<Sender<()>> {
    let (for_hearing, for_sweeping) = (Arc::downgrade(shared), Arc::downgrade(shared));
    let steady = Arc::new(Mutex::new(Instant::now()));
    let of_hearing = Arc::clone(&steady);
    let hearing = spawn("millrace-pending", move |stop| hear(&for_hearing, &stop, &of_hearing));
    let sweeping = spawn("millrace-sweep", move |stop| run(&for_sweeping, &stop, &steady, has_probed));
    vec![hearing, sweeping]
}

fn spawn(name: &str, work: impl FnOnce(Receiver<()>) + Send + 'static) -> Sender<()> {
    let (sender, stop) = mpsc::channel();
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(move || work(stop));
    // Without the threads nothing is swept here; the next start, or another server, does it.
    drop(spawned);
    sender
}

/// Tells the database what is pending here. Where it was away from all, silence says nothing of a server: it is steady from
/// the moment that it was heard again.
fn hear(shared: &Weak<Shared>, stop: &Receiver<()>, steady: &Mutex<Instant>) {
    while let Err(RecvTimeoutError::Timeout) = stop.recv_timeout(EVERY) {
        let Some(shared) = shared.upgrade() else { return };
        if shared.tree.hear(&shared.pending.all()).is_err() {
            *lock(steady) = Instant::now();
        }
    }
}

fn run(shared: &Weak<Shared>, stop: &Receiver<()>, steady: &Mutex<Instant>, mut has_probed: bool) {
    let mut round = 0_u32;
    while let Err(RecvTimeoutError::Timeout) = stop.recv_timeout(EVERY) {
        let Some(shared) = shared.upgrade() else { return };
        round = round.wrapping_add(1);
        if round.is_multiple_of(ROUNDS) {
            // Not every store lists uploads; then its own rules have to remove them.
            let _ = shared.store.sweep(LEFT_AFTER);
        }
        has_probed = has_probed || shared.store.probe().is_ok();
        let is_steady = lock(steady).elapsed() >= SILENT;
        let _ = shared.sweep(if is_steady { SILENT } else { FOREVER });
    }
}

impl Shared {
    /// Gives up what was not heard of for so long, and removes garbage.
    pub(crate) fn sweep(&self, silent: Duration) -> Result<Swept, FileError> {
        let abandoned = self.tree.abandon(silent)?;
        for objects in abandoned.chunks(AT_ONCE) {
            let names: Vec<String> = objects.iter().map(ObjectId::name).collect();
            names.iter().try_for_each(|name| self.store.give_up(name))?;
            self.store.remove(&names)?;
        }
        let mut swept = Swept { abandoned: abandoned.len(), removed: 0 };
        loop {
            let garbage = self.tree.garbage(AT_ONCE)?;
            if garbage.is_empty() {
                return Ok(swept);
            }
            let names: Vec<String> = garbage.iter().map(ObjectId::name).collect();
            self.store.remove(&names)?;
            self.tree.removed(&garbage)?;
            swept.removed += garbage.len();
        }
    }
}
