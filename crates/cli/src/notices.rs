//! The notices of a server that runs: what they are read from, and where their own troubles go.

use std::sync::{Arc, Weak};

use millrace_notices::{Look, Notices, Rule, Warn};
use millrace_server::{Running, readings_of};
use millrace_terminal::Failure;

/// Begins to watch a server, until it ends or hands over.
pub(crate) fn watch(rules: Vec<Rule>, running: &Arc<Running>) -> Result<Notices, Failure> {
    let (watched, warned) = (Arc::downgrade(running), Arc::downgrade(running));
    let warn: Warn = Arc::new(move |text| warned.upgrade().iter().for_each(|running| running.warn(text)));
    let name = rustix::system::uname();
    Notices::start(rules, &name.nodename().to_string_lossy(), Box::new(move || look(&watched)), &warn)
        .map_err(|error| Failure::Running(format!("cannot start a thread for notices: {error}.")))
}

fn look(running: &Weak<Running>) -> Option<Look> {
    let (running, readings) = readings_of(running).filter(|(running, _)| !running.is_ending())?;
    Some(Look::now(running.metrics(), readings))
}
