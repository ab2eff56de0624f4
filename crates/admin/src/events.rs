//! Requests about events that hooks are to be told and were not yet.

use serde_json::{Value, json};

use super::error::AdminError;
use millrace_hooks::{Backlog, Meant, Undelivered};
use millrace_server::Running;

/// Events that are shown where nothing is said.
const SHOWN: usize = 100;

/// Events that are shown at most: an answer is one line.
const MOST: usize = 10_000;

/// Which events a client means.
pub(super) fn meant(
    events: Vec<String>,
    to: Option<String>,
    all: bool,
    waiting: bool,
) -> Result<Meant, AdminError> {
    match (events.is_empty(), all) {
        (false, false) if to.is_none() && !waiting => Ok(Meant::These(events)),
        (true, true) => Ok(Meant::All { to, waiting }),
        _ => Err(AdminError::WhichEvents),
    }
}

/// The events in the queue.
pub(super) fn list(running: &Running, to: Option<&str>, most: Option<usize>) -> Result<Value, AdminError> {
    let found = backlog(running)?.list(to, most.unwrap_or(SHOWN).min(MOST))?;
    let events: Vec<Value> = found.events.iter().map(event).collect();
    let not_shown = (found.waiting + found.parked).saturating_sub(events.len() as u64);
    let mut told = json!({ "events": events, "waiting": found.waiting, "parked": found.parked });
    if not_shown > 0 {
        told["not-shown"] = not_shown.into();
    }
    Ok(told)
}

/// Has them tried again.
pub(super) fn retry(running: &Running, meant: &Meant) -> Result<Value, AdminError> {
    Ok(json!({ "retried": backlog(running)?.retry(meant)? }))
}

/// Has them forgotten.
pub(super) fn forget(running: &Running, meant: &Meant) -> Result<Value, AdminError> {
    Ok(json!({ "dropped": backlog(running)?.forget(meant)? }))
}

fn backlog(running: &Running) -> Result<Backlog, AdminError> {
    running.backlog().ok_or(AdminError::NoQueue)
}

/// The fields that identify an event; receivers get more.
fn event(event: &Undelivered) -> Value {
    let Undelivered { id, to, is_parked, error, body } = event;
    let state = if *is_parked { "parked" } else { "waiting" };
    json!({
        "id": id, "to": to, "state": state, "error": error,
        "event": body["event"], "time": body["time"], "user": body["user"], "path": body["path"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_events_are_meant_or_all_and_never_both_or_none() {
        let some = || vec!["17".to_owned()];
        let to = || Some("http://a/".to_owned());
        assert_eq!(meant(some(), None, false, false).unwrap(), Meant::These(some()));
        assert_eq!(meant(Vec::new(), to(), true, true).unwrap(), Meant::All { to: to(), waiting: true });
        for (events, to, all, waiting) in [
            (Vec::new(), None, false, false),
            (Vec::new(), to(), false, false),
            (some(), None, true, false),
            (some(), to(), false, false),
            (some(), None, false, true),
        ] {
            assert!(meant(events, to, all, waiting).is_err());
        }
    }
}
