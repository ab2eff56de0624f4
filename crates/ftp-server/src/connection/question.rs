//! The question that a session has put to the pool: hashes, copies, listings in replies, whatever may wait for a disk.
//!
//! At most one question is open on a connection. Its answer comes back as a message with the question's serial,
//! so that the answer to one that was given up is dropped.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use millrace_ftp::session::{Answer, Progress};
use millrace_runtime::transfer::Shared;
use millrace_runtime::worker::Core;
use millrace_vfs::FileError;

use crate::files::Changed;

/// How long an aborted transfer or question waits for the job that has its file, before it is answered all
/// the same.
pub(super) const JOB_GRACE: Duration = Duration::from_secs(2);

/// How long the question of a client that has hung up is waited for: what it asked for last is still done.
const LEFT_GRACE: Duration = Duration::from_secs(2);

/// The open question.
#[derive(Debug)]
pub(super) struct Question {
    /// Told from those before it by this.
    pub(super) serial: u64,
    /// By which the pool says how far it is, and hears that it is cancelled.
    pub(super) shared: Arc<Shared>,
    asked: Instant,
    /// When the client, which said `ABOR`, is told that it is cancelled, whether or not the pool has answered.
    give_up: Option<Instant>,
    /// The user who wants to log in; empty for other questions.
    pub(super) user: Vec<u8>,
    /// The edition of the accounts that are asked.
    pub(super) edition: u64,
    /// Hooks have permitted the login: they are not asked again.
    pub(super) is_let_in: bool,
    /// The command that asks it, as the log shows it.
    pub(super) line: Box<[u8]>,
    /// What the log and the hooks are to be told where it is done.
    pub(super) change: Option<Changed>,
}

impl Question {
    /// A question that is asked now.
    pub(super) fn new(core: &mut Core) -> Box<Self> {
        Box::new(Self {
            serial: core.next_serial(),
            shared: Arc::new(Shared::default()),
            asked: core.now.instant,
            give_up: None,
            user: Vec::new(),
            edition: 0,
            is_let_in: false,
            line: Box::default(),
            change: None,
        })
    }

    /// Returns true if `ABOR` would end it, and has not yet.
    pub(super) fn can_be_aborted(&self) -> bool {
        self.give_up.is_none() && self.user.is_empty()
    }

    /// Has the pool hear that it is cancelled.
    pub(super) fn cancel(&self) {
        self.shared.cancelled.store(true, Ordering::Relaxed);
    }

    /// `ABOR`: cancels it, and waits for the pool a while.
    pub(super) fn abort(&mut self, now: Instant) {
        self.cancel();
        self.give_up = Some(now + JOB_GRACE);
    }

    /// Returns how far it is.
    pub(super) fn progress(&self, now: Instant) -> Progress {
        Progress {
            bytes: self.shared.bytes(),
            total: None,
            elapsed: now.saturating_duration_since(self.asked),
            is_checked: false,
        }
    }

    /// Returns when it, which may be put to a stuck disk, is not waited for any longer.
    pub(super) fn due(&self, has_hung_up: bool) -> Option<Instant> {
        let left = has_hung_up.then(|| self.asked + LEFT_GRACE);
        self.give_up.into_iter().chain(left).min()
    }
}

pub(super) fn internal_error() -> Answer {
    Answer::Failed(FileError::Io(io::Error::other("internal error")))
}
