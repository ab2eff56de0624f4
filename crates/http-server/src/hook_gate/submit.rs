//! A batch of events for hooks: in the connection's line, on the hooks' threads, with a receiver for the verdict.

use std::sync::Arc;

use millrace_hooks::{Event, EventContext, HookVerdict, Hooks, Refusal};
use millrace_process::Recall;

use crate::connection::Work;
use crate::hook_gate::HookGate;
use crate::hook_state::{Ruled, Then};
use crate::message::Message;
use crate::notices::batch::{Batch, Heed, put};

impl HookGate<'_> {
    /// Asks, and goes on with `then` when there is an answer.
    pub(crate) fn submit(
        &mut self,
        hooks: Arc<dyn Hooks>,
        mut contexts: Vec<EventContext>,
        then: Then,
        heed: Option<Heed>,
    ) {
        let serial = self.core.next_serial();
        // What becomes a file behind their word may fail as no hook does.
        let failed = HookVerdict::Refuse(Refusal::for_now("451 Internal error."));
        let failed = Ruled { event: Event::Command, about: None, verdict: failed };
        let reply = self.connection.promise(self.core, Message::Ruled(serial, failed));
        let answer: Box<dyn FnOnce(Ruled) + Send> = Box::new(move |ruled| {
            if let Some(heed) = heed {
                heed(&ruled.verdict);
            }
            reply.keep(Message::Ruled(serial, ruled));
        });
        let line = Arc::clone(&self.connection.hooked.state().line);
        // Processed events count for any client; waiting ones are dropped with their client.
        if matches!(then, Then::Begin(_) | Then::Request(_)) {
            let recall = Recall::default();
            contexts.iter_mut().for_each(|context| context.recall = recall.clone());
            self.connection.hooked.state_mut().recall = recall;
        }
        self.connection.work = Work::Ruled(serial, Box::new(then));
        // What a client that has ended its side waits for begins now.
        self.connection.http.moved(self.core.now.instant);
        put(&self.core.server, &line, Batch { hooks, contexts, answer: Some(answer) });
    }
}
