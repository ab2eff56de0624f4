//! How other threads reach a reactor: put something into its inbox, and it wakes.
//!
//! The kernel is told only when the inbox was empty, so a burst of answers costs one wake-up.

mod queue;

use std::io;
use std::sync::Arc;

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
}

impl<T> Drop for Inbox<T> {
    fn drop(&mut self) {
        self.close();
    }
}

/// Makes an inbox whose arrivals show as `token` in the reactor of `registry`.
pub fn inbox<T>(registry: &Registry, token: Token) -> io::Result<(Sender<T>, Inbox<T>)> {
    let shared = Arc::new(Shared { queue: Queue::new(), waker: Waker::new(registry, token)? });
    Ok((Sender { shared: Arc::clone(&shared) }, Inbox { shared }))
}

impl<T> Sender<T> {
    /// Puts an item in. It is dropped where the reactor has ended.
    pub fn send(&self, item: T) {
        if self.shared.queue.push(item) {
            // If the waker fails, the reactor has ended, and with it the receiver.
            let _ = self.shared.waker.wake();
        }
    }

    /// Returns whether the reactor has ended, and takes nothing out any more.
    pub fn is_closed(&self) -> bool {
        self.shared.queue.is_closed()
    }
}

impl<T> Inbox<T> {
    /// Takes out everything that has come, by swapping it with the empty `items`.
    pub fn take(&self, items: &mut Vec<T>) {
        self.shared.queue.swap(items);
    }

    /// Ends it before the reactor does: drops what has come, and what comes from now on.
    pub fn close(&self) {
        self.shared.queue.close();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn what_is_sent_to_a_reactor_that_has_ended_is_dropped() {
        let poll = mio::Poll::new().unwrap();
        let (sender, inbox) = inbox(poll.registry(), Token(0)).unwrap();
        let (held, freed) = mpsc::channel::<()>();
        sender.send(held.clone());
        inbox.close();
        sender.send(held);
        assert!(sender.is_closed());
        assert_eq!(freed.try_recv(), Err(mpsc::TryRecvError::Disconnected));
    }
}
