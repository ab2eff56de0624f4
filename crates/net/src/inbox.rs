//! How other threads reach a reactor: put something into its inbox, and it wakes.
//!
//! The kernel is told only when the inbox was empty, so a burst of answers costs one wake-up.

mod queue;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mio::{Registry, Token, Waker};

use self::queue::Queue;

/// The reactor's end.
#[derive(Debug)]
pub struct Inbox<T> {
    shared: Arc<Shared<T>>,
}

/// The sending end.
#[derive(Debug)]
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

#[derive(Debug)]
struct Shared<T> {
    queue: Queue<T>,
    waker: Waker,
    /// The reactor's end is gone.
    is_closed: AtomicBool,
}

impl<T> Drop for Inbox<T> {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::Release);
    }
}

/// Makes an inbox whose arrivals show as `token` in the reactor of `registry`.
pub fn inbox<T>(registry: &Registry, token: Token) -> io::Result<(Sender<T>, Inbox<T>)> {
    let (waker, is_closed) = (Waker::new(registry, token)?, AtomicBool::new(false));
    let shared = Arc::new(Shared { queue: Queue::new(), waker, is_closed });
    Ok((Sender { shared: Arc::clone(&shared) }, Inbox { shared }))
}

impl<T> Sender<T> {
    /// Puts an item in.
    pub fn send(&self, item: T) {
        if self.shared.queue.push(item) {
            // If the waker fails, the reactor has ended, and with it the receiver.
            let _ = self.shared.waker.wake();
        }
    }

    /// Returns whether the reactor has ended, and takes nothing out any more.
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed.load(Ordering::Acquire)
    }
}

impl<T> Inbox<T> {
    /// Takes out everything that has come, by swapping it with the empty `items`.
    pub fn take(&self, items: &mut Vec<T>) {
        self.shared.queue.swap(items);
    }
}
