//! A batch of events for hooks: in the connection's line, on the hooks' threads, with a receiver for the verdict.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millrace_vfs::VirtualPath;

use super::{MOST_UNHEARD, Then};
use crate::blocking::Line;
use crate::hooks::{self, Event, Hooks, Moment, Refusal, Ruling};
use crate::http::Message;
use crate::http::connection::Work;
use crate::http::hooking::HookGate;
use crate::http::hooking::Notices;
use crate::program::Recall;
use crate::state::Server;
use crate::worker::Core;

/// Events that happened together, and the receiver of their verdict.
struct Batch {
    hooks: Arc<dyn Hooks>,
    moments: Vec<Moment>,
    answer: Option<Box<dyn FnOnce(Ruled) + Send>>,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batch({:?})", self.moments)
    }
}

/// What hooks say, and of which event.
#[derive(Debug)]
pub(crate) struct Ruled {
    pub(super) event: Event,
    /// What a refusal is about.
    pub(super) about: Option<VirtualPath>,
    pub(super) ruling: Ruling,
}

/// What else is done when hooks have said something, on their thread, whether or not the client is still there.
pub(super) type Heed = Box<dyn FnOnce(&Ruling) + Send>;

/// Tells hooks that a connection has ended, when it is dropped: for one that leaves its worker.
#[derive(Debug)]
pub(in crate::http) struct Parting {
    said: Option<(Arc<Line>, Batch)>,
    server: Arc<Server>,
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
    pub(in crate::http) fn parting(&self, core: &Core) -> Option<Parting> {
        let hooks = core.server.hooks().filter(|hooks| hooks.concerns(Event::Disconnect, ""))?;
        let line = Arc::clone(&self.connection.hooked.state().line);
        let moments = vec![Moment { user: None, ..self.moment(core, Event::Disconnect, None) }];
        let said = Some((line, Batch { hooks, moments, answer: None }));
        Some(Parting { said, server: Arc::clone(&core.server) })
    }

    /// Tells of something that is not waited for.
    pub(super) fn tell(&self, core: &Core, moment: Moment) {
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

impl HookGate<'_> {
    /// Asks, and goes on with `then` when there is an answer.
    pub(super) fn submit(
        &mut self,
        hooks: Arc<dyn Hooks>,
        mut moments: Vec<Moment>,
        then: Then,
        heed: Option<Heed>,
    ) {
        let serial = self.core.next_serial();
        // What becomes a file behind their word may fail as no hook does.
        let failed = Ruling::Refuse(Refusal::for_now("451 Internal error."));
        let failed = Ruled { event: Event::Command, about: None, ruling: failed };
        let reply = self.connection.promise(self.core, Message::Ruled(serial, failed));
        let answer: Box<dyn FnOnce(Ruled) + Send> = Box::new(move |ruled| {
            if let Some(heed) = heed {
                heed(&ruled.ruling);
            }
            reply.keep(Message::Ruled(serial, ruled));
        });
        let line = Arc::clone(&self.connection.hooked.state().line);
        // Processed events count for any client; waiting ones are dropped with their client.
        if matches!(then, Then::Begin(_) | Then::Request(_)) {
            let recall = Recall::default();
            moments.iter_mut().for_each(|moment| moment.recall = recall.clone());
            self.connection.hooked.state_mut().recall = recall;
        }
        self.connection.work = Work::Ruled(serial, Box::new(then));
        // What a client that has ended its side waits for begins now.
        self.connection.http.moved(self.core.now.instant);
        put(&self.core.server, &line, Batch { hooks, moments, answer: Some(answer) });
    }
}

fn put(server: &Server, line: &Arc<Line>, batch: Batch) {
    line.put(server.hook_pools.of(&*batch.hooks, &batch.moments), || batch.call());
}
