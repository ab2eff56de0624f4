//! Things of which each is lent to one at a time, and comes back when that one drops it.

use std::sync::PoisonError;

use crate::sync::{Mutex, MutexGuard};

/// What is done to a thing before it can be lent again.
pub(crate) trait Reset {
    /// Returns false where that fails: then the thing is not lent any more.
    fn reset(&mut self) -> bool;
}

/// The things that are not lent. Locked for a push or a pop, never while a thing is reset.
#[derive(Debug)]
pub(crate) struct Spare<T> {
    free: Mutex<Vec<T>>,
}

impl<T> Default for Spare<T> {
    fn default() -> Self {
        Self { free: Mutex::new(Vec::new()) }
    }
}

impl<T> Spare<T> {
    fn free(&self) -> MutexGuard<'_, Vec<T>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts things there, unless there are some.
    pub(crate) fn fill<E>(&self, make: impl FnOnce() -> Result<Vec<T>, E>) -> Result<(), E> {
        let mut free = self.free();
        if free.is_empty() {
            *free = make()?;
        }
        Ok(())
    }
}

impl<T: Reset> Spare<T> {
    /// A thing that is not lent; `None` where all are.
    pub(crate) fn lend(&self) -> Option<Lent<'_, T>> {
        let thing = self.free().pop()?;
        Some(Lent { thing: Some(thing), spare: self })
    }
}

/// A thing, until this is dropped.
#[derive(Debug)]
pub(crate) struct Lent<'a, T: Reset> {
    /// Empty only while it is dropped.
    thing: Option<T>,
    spare: &'a Spare<T>,
}

impl<T: Reset> Lent<'_, T> {
    pub(crate) fn get(&self) -> Option<&T> {
        self.thing.as_ref()
    }

    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        self.thing.as_mut()
    }
}

impl<T: Reset> Drop for Lent<'_, T> {
    fn drop(&mut self) {
        let Some(mut thing) = self.thing.take() else { return };
        if thing.reset() {
            self.spare.free().push(thing);
        }
    }
}
