//! What has come and was not taken yet.

use std::sync::PoisonError;

use crate::sync::{Mutex, MutexGuard};

/// The items between a burst of senders and one receiver.
#[derive(Debug)]
pub(super) struct Queue<T> {
    /// Locked for a push or a swap. None once the receiver has ended.
    items: Mutex<Option<Vec<T>>>,
}

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        Self { items: Mutex::new(Some(Vec::new())) }
    }

    /// Puts an item in; returns whether the receiver has to be woken, because it was empty. Where the receiver has ended,
    /// the item is dropped, without the lock: that may send something here again.
    pub(super) fn push(&self, item: T) -> bool {
        let mut guard = self.lock();
        let Some(items) = &mut *guard else {
            drop(guard);
            drop(item);
            return false;
        };
        let was_empty = items.is_empty();
        items.push(item);
        was_empty
    }

    /// Takes out all items, by swapping them with `others`, which are none.
    pub(super) fn swap(&self, others: &mut Vec<T>) {
        debug_assert!(others.is_empty());
        if let Some(items) = &mut *self.lock() {
            std::mem::swap(items, others);
        }
    }

    /// The receiver ends: drops what has come, and what comes from now on.
    pub(super) fn close(&self) {
        let left = self.lock().take();
        drop(left);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_none()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<T>>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
