//! The connections that are open. A new one takes the place of the oldest that has no request under way, so that idle
//! connections keep no health check out.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::{AbortHandle, JoinHandle};

/// Connections at a time.
pub(crate) const MOST: usize = 64;

/// How often the end looks whether all is answered.
const LOOK: Duration = Duration::from_millis(10);

/// The connections that are open, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    /// Locked to add one.
    open: Mutex<VecDeque<Open>>,
}

#[derive(Debug)]
struct Open {
    task: AbortHandle,
    busy: Busy,
}

/// Whether a request is being answered.
#[derive(Debug, Default, Clone)]
pub(crate) struct Busy(Arc<AtomicBool>);

impl Busy {
    /// Notes that a request is being answered, until the answer of this is dropped.
    pub(crate) fn begin(&self) -> Answering {
        self.0.store(true, Ordering::Relaxed);
        Answering(self.clone())
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct Answering(Busy);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Relaxed);
    }
}

impl Connections {
    /// Adds the connection that `spawn` begins. Where all others are busy it is not begun.
    pub(crate) fn add(&self, spawn: impl FnOnce(Busy) -> JoinHandle<()>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|open| !open.task.is_finished());
        if open.len() >= MOST {
            let idle = open.iter().position(|open| !open.busy.0.load(Ordering::Relaxed));
            let Some(idle) = idle.and_then(|idle| open.remove(idle)) else { return };
            idle.task.abort();
        }
        let busy = Busy::default();
        let task = spawn(busy.clone()).abort_handle();
        open.push_back(Open { task, busy });
    }

    /// Waits, for so long at most, until no request is being answered and what was answered is sent.
    pub(crate) async fn finish(&self, most: Duration) {
        let are_busy = || {
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.iter().any(|open| !open.task.is_finished() && open.busy.0.load(Ordering::Relaxed))
        };
        let end = Instant::now() + most;
        while are_busy() && Instant::now() < end {
            tokio::time::sleep(LOOK).await;
        }
        // The answer is made; its connection sends it in its next turn.
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_new_connection_takes_the_place_of_the_oldest_idle_one() {
        let connections = Connections::default();
        let first = Mutex::new(Vec::new());
        let add = |is_busy: bool| {
            connections.add(|busy| {
                let answering = is_busy.then(|| busy.begin());
                let task = tokio::spawn(async move {
                    std::future::pending::<()>().await;
                    drop(answering);
                });
                first.lock().unwrap().push(task.abort_handle());
                task
            });
        };
        add(true);
        (1..MOST).for_each(|_| add(false));
        add(false);
        tokio::task::yield_now().await;
        let tasks = first.lock().unwrap();
        assert_eq!(tasks.len(), MOST + 1);
        assert!(!tasks[0].is_finished(), "a request is being answered");
        assert!(tasks[1].is_finished());
        assert!(!tasks[2..].iter().any(AbortHandle::is_finished));
    }

    #[tokio::test]
    async fn where_all_are_busy_no_more_are_begun() {
        let connections = Connections::default();
        let begin = |busy: Busy| {
            let answering = busy.begin();
            tokio::spawn(async move {
                std::future::pending::<()>().await;
                drop(answering);
            })
        };
        (0..MOST).for_each(|_| connections.add(begin));
        connections.add(|_| panic!("one too many"));
    }
}
