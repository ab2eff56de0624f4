//! The clock of workers: the system's, or one that a simulation sets.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use millrace_ftp::session::Now;
use millrace_vfs::Timestamp;

/// The clock that workers and their connections look at.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// The system's.
    #[default]
    System,
    /// One that stands still until it is set again.
    Set(Arc<Mutex<Now>>),
}

impl Clock {
    /// Returns the time.
    pub fn now(&self) -> Now {
        match self {
            Self::System => {
                let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                let wall = Timestamp { seconds: wall.as_secs() as i64, nanoseconds: wall.subsec_nanos() };
                Now { instant: Instant::now(), wall }
            }
            Self::Set(now) => *now.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Returns the time for deadlines.
    pub fn instant(&self) -> Instant {
        match self {
            Self::System => Instant::now(),
            Self::Set(_) => self.now().instant,
        }
    }
}
