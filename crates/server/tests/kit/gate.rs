//! Somewhere for a server to be stopped by a test.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use millrace_server::hooks::{Event, EventContext, HookVerdict, Hooks};

use super::PATIENCE;

/// Says that it was reached, and lets through when it may.
#[derive(Debug)]
pub(crate) struct Gate(Mutex<(Sender<()>, Receiver<()>)>);

impl Gate {
    /// The gate, what says that it was reached, and what lets through.
    pub(crate) fn new() -> (Arc<Self>, Receiver<()>, Sender<()>) {
        let (arrived, at_it) = channel();
        let (go, may_go) = channel();
        (Arc::new(Self(Mutex::new((arrived, may_go)))), at_it, go)
    }

    pub(crate) fn pass(&self) {
        let both = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = both.0.send(());
        let _ = both.1.recv_timeout(PATIENCE);
    }
}

/// Stops logins there.
#[derive(Debug)]
pub(crate) struct AtLogin(pub(crate) Arc<Gate>);

impl Hooks for AtLogin {
    fn concerns(&self, event: Event, _: &str) -> bool {
        event == Event::Login
    }

    fn call(&self, _: &EventContext) -> HookVerdict {
        self.0.pass();
        HookVerdict::Pass
    }
}
