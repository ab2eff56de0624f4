//! Room for the heads of requests, which many connections share: a request that is answered at once costs no allocation.

use std::sync::Arc;

use crate::Head;

/// How many spare heads are kept: further ones are allocated.
const MAX_SPARE: usize = 8;

/// Room for heads that nothing refers to any more.
#[derive(Debug, Default)]
pub struct Heads(Vec<Arc<Head>>);

impl Heads {
    /// Returns room for a head, which nothing else refers to.
    pub fn take(&mut self) -> Arc<Head> {
        self.0.pop().unwrap_or_default()
    }

    /// Keeps the room of a head for another one, where nothing else refers to it: otherwise it is dropped with what does.
    pub fn put_back(&mut self, mut head: Arc<Head>) {
        if self.0.len() < MAX_SPARE && Arc::get_mut(&mut head).is_some() {
            self.0.push(head);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nothing_refers_to_is_used_again() {
        let mut heads = Heads::default();
        let head = heads.take();
        let held = Arc::clone(&head);
        heads.put_back(head);
        assert!(!Arc::ptr_eq(&heads.take(), &held));
        let address = Arc::as_ptr(&held);
        heads.put_back(held);
        assert_eq!(Arc::as_ptr(&heads.take()), address);
    }
}
