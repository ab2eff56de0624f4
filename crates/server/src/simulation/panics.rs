//! Panics of this thread: the worker survives them, and a simulation must not.

use std::cell::RefCell;
use std::panic;
use std::sync::Once;

thread_local! {
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Has panics noted, of every thread for itself.
pub(super) fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            LAST.with_borrow_mut(|last| *last = Some(info.to_string()));
            before(info);
        }));
    });
}

/// Takes the panic that there was since the last call, if any.
pub(super) fn taken() -> Option<String> {
    LAST.with_borrow_mut(Option::take)
}
