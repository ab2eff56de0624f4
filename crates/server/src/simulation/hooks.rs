//! Hooks that refuse, or end in a panic, as is drawn. How long they take is up to the scheduler of their jobs.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};

use crate::hooks::{Event, EventContext, HookVerdict, Hooks, Refusal};

use super::draw::Draw;

/// The hooks of a simulation, and what they have heard.
#[derive(Debug)]
pub(super) struct SimulatedHooks {
    draw: Draw,
    /// Whether uploads are looked at before they have their name.
    asks_beforehand: bool,
    /// How often there was which event.
    heard: Mutex<BTreeMap<&'static str, usize>>,
    /// The paths of uploads, by user, that hooks have let pass or refused.
    uploads: Mutex<Vec<(Vec<u8>, String)>>,
}

impl SimulatedHooks {
    pub(super) fn new(draw: &Draw) -> Self {
        let (heard, uploads) = (Mutex::default(), Mutex::default());
        Self { draw: draw.clone(), asks_beforehand: draw.chance(50), heard, uploads }
    }

    /// Returns whether uploads are looked at before they have their name.
    pub(super) fn looks_first(&self) -> bool {
        self.asks_beforehand
    }

    /// Returns how often there was an event.
    pub(super) fn count(&self, event: Event) -> usize {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.get(event.name()).copied().unwrap_or(0)
    }

    /// Returns how many uploads of a user to a path were told.
    pub(super) fn uploads(&self, user: &str, path: &str) -> usize {
        let uploads = self.uploads.lock().unwrap_or_else(PoisonError::into_inner);
        uploads.iter().filter(|(of, at)| of == user.as_bytes() && at == path).count()
    }
}

impl Hooks for SimulatedHooks {
    fn concerns(&self, event: Event, verb: &str) -> bool {
        event != Event::Command || matches!(verb, "" | "STOR" | "RETR" | "DELE" | "PWD")
    }

    fn may_take_long(&self, context: &EventContext) -> bool {
        context.event.asks()
    }

    fn asks_beforehand(&self) -> bool {
        self.asks_beforehand
    }

    fn call(&self, context: &EventContext) -> HookVerdict {
        *self
            .heard
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(context.event.name())
            .or_default() += 1;
        if let (Event::Upload, Some(user), Some(path)) = (context.event, &context.user, &context.path) {
            let upload = (user.to_vec(), path.to_string());
            self.uploads.lock().unwrap_or_else(PoisonError::into_inner).push(upload);
        }
        if context.event.asks() && self.draw.fault(4) {
            return HookVerdict::Refuse(Refusal::new("Refused by the simulation."));
        }
        if self.draw.fault(1) {
            resume_unwind(Box::new("a hook that vanishes"));
        }
        HookVerdict::Pass
    }
}
