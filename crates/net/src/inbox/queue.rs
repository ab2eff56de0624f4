//! What has come and was not taken yet.

use std::sync::PoisonError;

use crate::sync::{Mutex, MutexGuard};

/// The items between a burst of senders and one receiver.
#[derive(Debug)]
pub(super) struct Queue<T> {
    /// Locked for a push or a swap.
    items: Mutex<Vec<T>>,
}

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        Self { items: Mutex::new(Vec::new()) }
    }

    /// Puts an item in; returns whether the receiver has to be woken, because it was empty.
    pub(super) fn push(&self, item: T) -> bool {
        let mut items = self.lock();
        let was_empty = items.is_empty();
        items.push(item);
        was_empty
    }

    /// Takes out all items, by swapping them with `others`, which are none.
    pub(super) fn swap(&self, others: &mut Vec<T>) {
        debug_assert!(others.is_empty());
        std::mem::swap(&mut *self.lock(), others);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
