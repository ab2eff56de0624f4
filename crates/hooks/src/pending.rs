//! An upload that is whole and has not taken its name yet, while hooks look at it.
//!
//! The invariant: it is committed once or abandoned once, by the rules that it has passed, by a rule that moves it, or
//! by its client's `ABOR`, whichever is first. Until then its name keeps the old file.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_vfs::{ReadHandle, Upload};

/// Why an upload could not take its name, as the log tells it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CommitError(pub String);

/// How it takes its name.
type Commit = Box<dyn FnOnce(Box<dyn Upload>) -> Result<(), CommitError> + Send>;

/// An upload that waits for its name.
pub struct Pending(Mutex<State>);

enum State {
    Waiting(Box<dyn Upload>, Commit),
    /// It is being read or committed.
    Busy,
    Named,
    /// A hook has moved the file away.
    Taken,
    /// It could not take its name.
    Failed(CommitError),
    GivenUp,
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &*self.lock() {
            State::Waiting(..) => "Waiting",
            State::Busy => "Busy",
            State::Named => "Named",
            State::Taken => "Taken",
            State::Failed(_) => "Failed",
            State::GivenUp => "GivenUp",
        })
    }
}

impl Pending {
    /// Creates an upload that has come and waits for a verdict.
    pub fn new(
        upload: Box<dyn Upload>,
        commit: impl FnOnce(Box<dyn Upload>) -> Result<(), CommitError> + Send + 'static,
    ) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State::Waiting(upload, Box::new(commit)))))
    }

    /// Returns true if it has not taken its name, nor been given up.
    pub fn is_waiting(&self) -> bool {
        matches!(&*self.lock(), State::Waiting(..) | State::Busy)
    }

    /// Its content, if it can be opened.
    pub fn preview(&self) -> Option<ReadHandle> {
        let State::Waiting(mut upload, commit) = self.begin()? else { return None };
        let preview = upload.preview();
        *self.lock() = State::Waiting(upload, commit);
        preview.ok().flatten()
    }

    /// Commits it, if it is not yet; returns true if it has its name, or needs none.
    pub fn commit(&self) -> bool {
        if let Some(State::Waiting(upload, commit)) = self.begin() {
            let ended = match commit(upload) {
                Ok(()) => State::Named,
                Err(why) => State::Failed(why),
            };
            *self.lock() = ended;
        }
        matches!(*self.lock(), State::Named | State::Taken)
    }

    /// A hook has moved the file away, so that it needs no name.
    pub(crate) fn note_taken(&self) {
        if let Some(waiting) = self.begin() {
            *self.lock() = State::Taken;
            drop(waiting);
        }
    }

    /// Returns true if a hook has moved the file away: a file of that name is another one.
    pub fn is_taken(&self) -> bool {
        matches!(*self.lock(), State::Taken)
    }

    /// Returns true if it never was a file: it was given up, or could not take its name.
    pub(crate) fn has_vanished(&self) -> bool {
        matches!(*self.lock(), State::GivenUp | State::Failed(_))
    }

    /// Abandons it, if it is not in use; the caller must drop it where that may block.
    pub fn give_up(&self) -> Option<Box<dyn Upload>> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::GivenUp) {
            State::Waiting(upload, _) => Some(upload),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Why it has no name, where it should have.
    pub fn failure(&self) -> Option<CommitError> {
        match &*self.lock() {
            State::Failed(why) => Some(why.clone()),
            _ => None,
        }
    }

    /// Takes it out, where it waits: the work on it may take long, and must not hold the lock.
    fn begin(&self) -> Option<State> {
        let mut state = self.lock();
        matches!(*state, State::Waiting(..)).then(|| std::mem::replace(&mut *state, State::Busy))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
