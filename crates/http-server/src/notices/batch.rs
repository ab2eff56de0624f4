//! A batch of events for hooks: in the line of its connection, on the threads of hooks, with a receiver for the verdict.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millrace_blocking::Line;
use millrace_hooks::{self as hooks, Event, Hooks, Moment, Ruling};

use crate::hook_state::{MOST_UNHEARD, Ruled};
use crate::message::Message;
use crate::notices::Notices;
use crate::shared::Http;
use crate::worker::Core;

/// Events that happened together, and the receiver of their verdict.
pub(crate) struct Batch {
    pub(crate) hooks: Arc<dyn Hooks>,
    pub(crate) moments: Vec<Moment>,
    pub(crate) answer: Option<Box<dyn FnOnce(Ruled) + Send>>,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batch({:?})", self.moments)
    }
}

/// What else is done when hooks have said something, on their thread, whether or not the client is still there.
pub(crate) type Heed = Box<dyn FnOnce(&Ruling) + Send>;

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
        let mut ruled = Ruled { event: Event::Command, about: None, ruling: Ruling::Pass };
        for moment in &self.moments {
            match hooks::call(&*self.hooks, moment) {
                Ruling::Refuse(refusal) if moment.event.asks() => {
                    let (event, about) = (moment.event, moment.path.clone());
                    ruled = Ruled { event, about, ruling: Ruling::Refuse(refusal) };
                    break;
                }
                ruling @ Ruling::Rewrite(_) => ruled = Ruled { event: moment.event, about: None, ruling },
                Ruling::Pass | Ruling::Refuse(_) => {}
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
        let moments = vec![Moment { user: None, ..self.moment(core, Event::Disconnect, None) }];
        let said = Some((line, Batch { hooks, moments, answer: None }));
        Some(Parting { said, server: Arc::clone(&core.server) })
    }

    /// Tells of something that is not waited for.
    pub(crate) fn tell(&self, core: &Core, moment: Moment) {
        let Some(hooks) = core.server.hooks().filter(|hooks| hooks.concerns(moment.event, &moment.verb))
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
            Batch { hooks, moments: vec![moment], answer: Some(Box::new(heard)) },
        );
    }
}

pub(crate) fn put(server: &Http, line: &Arc<Line>, batch: Batch) {
    line.put(server.hook_pools.of(&*batch.hooks, &batch.moments), || batch.call());
}
