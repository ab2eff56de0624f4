//! A thread that does something once a second, until it is dropped.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often.
const PERIOD: Duration = Duration::from_secs(1);

/// Which turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// A second has passed.
    Usual,
    /// The thread ends behind this one.
    Last,
}

/// The thread. Dropping it waits for its last turn.
#[derive(Debug)]
pub(crate) struct Periodic {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Periodic {
    /// Begins a thread of this name. It also ends where a turn answers `false`.
    pub(crate) fn start(name: &str, mut turn: impl FnMut(Turn) -> bool + Send + 'static) -> io::Result<Self> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let signal = Arc::clone(&stop);
        let run = move || {
            loop {
                let now = if is_stopped(&signal) { Turn::Last } else { Turn::Usual };
                if !turn(now) || now == Turn::Last {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Periodic {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits for the end of the period, or the end.
fn is_stopped((stopped, change): &(Mutex<bool>, Condvar)) -> bool {
    let guard = stopped.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = change.wait_timeout_while(guard, PERIOD, |stopped| !*stopped);
    *waited.unwrap_or_else(PoisonError::into_inner).0
}
