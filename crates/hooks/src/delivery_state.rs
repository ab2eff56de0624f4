//! What the threads that deliver share: whether they may, what receivers are shown, how far each is.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::delivery::{Recipient, Warn};
use super::webhook::{Credentials, Keyring};

/// Before a second try; doubled each time.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// Between tries at most.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A program that fails so often for the same event is not asked again.
pub(super) const PROGRAM_TRIES: u32 = 5;

/// The state shared by the threads.
pub(super) struct Shared {
    pub(super) path: PathBuf,
    /// The prefix of event ids.
    pub(super) origin: String,
    pub(super) warn: Warn,
    /// Guarded for a look.
    state: Mutex<Deliveries>,
    pub(super) change: Condvar,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Queue({})", self.path.display())
    }
}

/// Which threads there are, and what they may do.
#[derive(Default)]
pub(super) struct Deliveries {
    /// The receivers that have a thread.
    pub(super) workers: HashMap<String, ReceiverProgress>,
    /// How often an administrator asked to retry now.
    hurries: u64,
    /// The credentials for receivers; replaced by a reload.
    keys: Keyring,
    /// Threads that have not ended.
    running: usize,
    /// Another process delivers.
    resting: bool,
    stopped: bool,
}

impl Deliveries {
    /// Returns true if nothing is delivered here any more.
    pub(super) fn is_over(&self) -> bool {
        self.stopped || self.resting
    }
}

/// How far a receiver's events are.
#[derive(Default)]
pub(super) struct ReceiverProgress {
    /// The last event that was put.
    pub(super) last: i64,
    /// Older ones are to be delivered, too.
    pub(super) begins_again: bool,
    /// Why the receiver has not taken the one that was tried.
    pub(super) trouble: Option<String>,
}

impl Shared {
    pub(super) fn new(path: &Path, origin: String, keys: Keyring, warn: Warn) -> Self {
        let state = Mutex::new(Deliveries { keys, ..Deliveries::default() });
        Self { path: path.to_owned(), origin, warn, state, change: Condvar::new() }
    }

    /// Receivers are shown these from now on.
    pub(super) fn take_keys(&self, keys: Keyring) {
        self.state().keys = keys;
    }

    /// What a receiver is shown.
    pub(super) fn credentials(&self, to: &Recipient) -> Credentials {
        self.state().keys.of(to)
    }

    /// Returns whether a rule of this server tells this receiver.
    pub(super) fn knows(&self, to: &Recipient) -> bool {
        self.state().keys.knows(to)
    }

    /// Returns whether a rule of this server has a program run with such words.
    pub(super) fn may_run(&self, words: &[OsString]) -> bool {
        self.state().keys.has_words(words)
    }

    /// Why the events of a receiver still wait.
    pub(super) fn trouble_of(&self, receiver: &str) -> Option<String> {
        self.state().workers.get(receiver)?.trouble.clone()
    }

    /// Ends the threads.
    pub(super) fn stop(&self) {
        self.state().stopped = true;
        self.change.notify_all();
    }

    /// Ends the threads because another process delivers, and waits for them for at most this time.
    pub(super) fn rest(&self, most: Duration) {
        let mut state = self.state();
        state.resting = true;
        self.change.notify_all();
        let waited = self.change.wait_timeout_while(state, most, |state| state.running > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.workers.clear();
    }

    /// Resumes deliveries, beginning with events announced from now on.
    pub(super) fn resume(&self) {
        self.state().resting = false;
        self.change.notify_all();
    }

    /// Ends pauses: an administrator asks to try now.
    pub(super) fn hurry(&self) {
        self.state().hurries += 1;
        self.change.notify_all();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state().stopped
    }

    /// Returns true if nothing is delivered here any more, or for now.
    pub(super) fn is_over(&self) -> bool {
        self.state().is_over()
    }

    /// Waits while another process delivers; returns true if the queue is closed.
    pub(super) fn wait_for_right(&self) -> bool {
        let waited = self.change.wait_while(self.state(), |state| state.resting && !state.stopped);
        waited.unwrap_or_else(PoisonError::into_inner).stopped
    }

    /// A thread delivers from now on, until the guard is dropped.
    pub(super) fn count_in(self: &Arc<Self>, state: &mut Deliveries) -> End {
        state.running += 1;
        End(Arc::clone(self))
    }

    /// Waits for the threads that deliver, for at most this time.
    pub(super) fn wait_for_ends(&self, most: Duration) {
        drop(self.change.wait_timeout_while(self.state(), most, |state| state.running > 0));
    }

    pub(super) fn state(&self) -> MutexGuard<'_, Deliveries> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits, also while another process delivers; returns true if the queue is closed.
    pub(super) fn pause_until_stopped(&self, time: Duration) -> bool {
        let waited = self.change.wait_timeout_while(self.state(), time, |state| !state.stopped);
        waited.unwrap_or_else(PoisonError::into_inner).0.stopped
    }

    /// Waits, unless an administrator asks to retry now; returns true if the queue is closed.
    pub(super) fn pause(&self, time: Duration) -> bool {
        let state = self.state();
        let hurries = state.hurries;
        let waits = |state: &mut Deliveries| !state.is_over() && state.hurries == hurries;
        let waited = self.change.wait_timeout_while(state, time, waits);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_over()
    }
}

/// Notes the end of a thread, also after a panic or if it did not start.
pub(super) struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.state().running -= 1;
        self.0.change.notify_all();
    }
}
