//! A batch of events for hooks: in the line of its connection, on the threads of hooks, with a receiver for the verdict.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millrace_blocking::Line;
use millrace_hooks::{self as hooks, Event, EventContext, HookVerdict, Hooks};

use crate::hook_state::{MOST_UNHEARD, Ruled};
use crate::message::Message;
use crate::notices::Notices;
use crate::shared::Http;
use crate::worker::Core;

/// Events that happened together, and the receiver of their verdict.
pub(crate) struct Batch {
    pub(crate) hooks: Arc<dyn Hooks>,
    pub(crate) contexts: Vec<EventContext>,
    pub(crate) answer: Option<Box<dyn FnOnce(Ruled) + Send>>,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batch({:?})", self.contexts)
    }
}

/// What else is done when hooks have said something, on their thread, whether or not the client is still there.
pub(crate) type Heed = Box<dyn FnOnce(&HookVerdict) + Send>;

/// Tells hooks that a connection has ended, when it is dropped: for one that leaves its worker.
#[derive(Debug)]
pub(crate) struct Parting {
    said: Option<(Arc<Line>, Batch)>,
    server: Arc<Http>,
}

impl Drop for Parting {
    fn drop(&mut self) {
        if let Some((line, batch)) = self.said.take() {
            put(&self.server, &line, batch);
        }
    }
}

impl Batch {
    fn call(self) {
        let mut ruled = Ruled { event: Event::Command, about: None, verdict: HookVerdict::Pass };
        for context in &self.contexts {
            match hooks::call(&*self.hooks, context) {
                HookVerdict::Refuse(refusal) if context.event.asks() => {
                    let (event, about) = (context.event, context.path.clone());
                    ruled = Ruled { event, about, verdict: HookVerdict::Refuse(refusal) };
                    break;
                }
                verdict @ HookVerdict::Rewrite(_) => {
                    ruled = Ruled { event: context.event, about: None, verdict }
                }
                HookVerdict::Pass | HookVerdict::Refuse(_) => {}
            }
        }
        if let Some(answer) = self.answer {
            answer(ruled);
        }
    }
}

impl Notices<'_> {
    /// The remaining events when the connection has ended.
    pub(crate) fn parting(&self, core: &Core) -> Option<Parting> {
        let hooks = core.server.hooks().filter(|hooks| hooks.concerns(Event::Disconnect, ""))?;
        let line = Arc::clone(&self.connection.hooked.state().line);
        let contexts = vec![EventContext { user: None, ..self.context(core, Event::Disconnect, None) }];
        let said = Some((line, Batch { hooks, contexts, answer: None }));
        Some(Parting { said, server: Arc::clone(&core.server) })
    }

    /// Tells of something that is not waited for.
    pub(crate) fn tell(&self, core: &Core, context: EventContext) {
        let Some(hooks) = core.server.hooks().filter(|hooks| hooks.concerns(context.event, &context.verb))
        else {
            return;
        };
        let hooked = self.connection.hooked.state();
        hooked.unheard.fetch_add(1, Ordering::Relaxed);
        // A stream may have ended when this is heard.
        let key = self.connection.parent().unwrap_or(self.connection.key);
        let (post, unheard) = (core.post.clone(), Arc::clone(&hooked.unheard));
        let heard = move |_| {
            if unheard.fetch_sub(1, Ordering::Relaxed) == MOST_UNHEARD {
                post.send(key, Message::Heard);
            }
        };
        put(
            &core.server,
            &hooked.line,
            Batch { hooks, contexts: vec![context], answer: Some(Box::new(heard)) },
        );
    }
}

pub(crate) fn put(server: &Http, line: &Arc<Line>, batch: Batch) {
    line.put(server.hook_pools.of(&*batch.hooks, &batch.contexts), || batch.call());
}
