//! What the objects need beside requests: word of those that are pending here, and the removal of garbage.
//!
//! A thread does this once a minute for as long as the storage is used. All servers of a tree do it, each for what any of them
//! has left; what two of them remove at once is gone once.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use millrace_vfs::FileError;

use crate::Shared;
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

/// Begins it. It ends with the sender of `stop`.
pub(crate) fn begin(shared: &Arc<Shared>, stop: Receiver<()>, has_probed: bool) {
    let weak = Arc::downgrade(shared);
    let spawned = std::thread::Builder::new()
        .name("millrace-sweep".to_owned())
        .spawn(move || run(&weak, &stop, has_probed));
    // Without the thread nothing is swept here; the next start, or another server, does it.
    drop(spawned);
}

fn run(shared: &Weak<Shared>, stop: &Receiver<()>, mut has_probed: bool) {
    let (mut steady, mut round) = (Instant::now(), 0_u32);
    while let Err(RecvTimeoutError::Timeout) = stop.recv_timeout(EVERY) {
        let Some(shared) = shared.upgrade() else { return };
        round = round.wrapping_add(1);
        if round % ROUNDS == 0 {
            // Not every store lists uploads; then its own rules have to remove them.
            let _ = shared.store.sweep(LEFT_AFTER);
        }
        has_probed = has_probed || shared.store.probe().is_ok();
        if shared.tree.hear(&shared.pending.all()).is_err() {
            // Where the database was away from all, silence says nothing of a server.
            steady = Instant::now();
        } else {
            let is_steady = steady.elapsed() >= SILENT;
            let _ = shared.sweep(if is_steady { SILENT } else { FOREVER });
        }
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
