//! Limits slow queries about logins: a number of them run at once, some more wait, the rest are refused.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Questions at a time.
const RUNNING: usize = 16;

/// Logins that wait for their turn; of the threads that logins have, some are left for other sources.
const WAITING: usize = 32;

/// Limits how many queries run at once.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Guarded for a count.
    taken: Mutex<Taken>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct Taken {
    running: usize,
    waiting: usize,
}

impl Turns {
    /// Waits for a turn; `None` where too many wait already, or this one did for too long.
    pub(super) fn wait(self: &Arc<Self>, end: Instant) -> Option<Turn> {
        let mut taken = self.taken();
        if taken.running >= RUNNING {
            if taken.waiting >= WAITING {
                return None;
            }
            taken.waiting += 1;
            let left = end.saturating_duration_since(Instant::now());
            let waited = self.freed.wait_timeout_while(taken, left, |taken| taken.running >= RUNNING);
            taken = waited.unwrap_or_else(PoisonError::into_inner).0;
            taken.waiting -= 1;
        }
        let is_free = taken.running < RUNNING;
        taken.running += usize::from(is_free);
        // Not `then_some`: a turn that is not given must not be given back.
        is_free.then(|| Turn(Arc::clone(self)))
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to ask now.
#[derive(Debug)]
pub(super) struct Turn(Arc<Turns>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.taken().running -= 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn turns_are_given_until_there_are_none() {
        let turns = Arc::<Turns>::default();
        let end = Instant::now() + Duration::from_secs(30);
        let mut held: Vec<_> = (0..RUNNING).map(|_| turns.wait(end).unwrap()).collect();
        assert!(turns.wait(Instant::now()).is_none(), "it has waited long enough");
        held.pop();
        assert!(turns.wait(Instant::now()).is_some());
        assert_eq!(turns.taken().waiting, 0);
    }
}
