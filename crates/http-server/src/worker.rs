//! What connections of HTTP use of their worker: its core, and what they share there.

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

use millrace_gateway::connections::RouteConnections;
use millrace_gateway::programs::{Lane, Line, Programs};
use millrace_http::h1::Heads;
use millrace_log::Subject;
use millrace_runtime::slab::Key;
use millrace_runtime::worker::{self, Post};

use crate::cache::Cache;
use crate::common_headers::CommonHeaders;
use crate::message::Message;
use crate::shared::Http;
use crate::web::CompiledWebConfig;

/// The core of a worker, with what connections of HTTP share on it. Drivers of other protocols use the core within.
pub struct Core {
    /// What connections have of the worker, whatever they speak.
    pub kernel: worker::Core,
    /// What the workers share.
    pub(crate) server: Arc<Http>,
    pub(crate) http: Shared,
    /// The way from other threads to connections.
    pub(crate) post: Post<Message>,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("http", &self.http).finish_non_exhaustive()
    }
}

impl Deref for Core {
    type Target = worker::Core;

    fn deref(&self) -> &worker::Core {
        &self.kernel
    }
}

impl DerefMut for Core {
    fn deref_mut(&mut self) -> &mut worker::Core {
        &mut self.kernel
    }
}

/// What all HTTP connections of a worker share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) cache: Cache,
    pub(crate) heads: Heads,
    pub(crate) programs: Programs,
    /// One for each proxy route.
    pub(crate) routes: Vec<RouteConnections>,
    /// The header fields that are added to files.
    pub(crate) web: Arc<CompiledWebConfig>,
    pub(crate) common: CommonHeaders,
    /// Connections of HTTP/2 with something to hand on between them and their streams.
    pub(crate) multiplexed: Vec<Key>,
    /// Memory for frames, which they share.
    pub(crate) frames: Vec<u8>,
}

impl Shared {
    /// For one of the workers of a server.
    pub(crate) fn new(server: &Http) -> Self {
        let (config, web) = (&server.config, server.web());
        let open_files = server.sessions.descriptors().for_files();
        let programs = Programs::new(config.programs.most.div_ceil(config.workers.max(1)).max(1));
        let routes =
            config.proxy_routes.iter().map(|route| RouteConnections::new(route, config.workers)).collect();
        let common = CommonHeaders::new(&web);
        Self {
            cache: Cache::new(open_files),
            heads: Heads::default(),
            programs,
            routes,
            common,
            multiplexed: Vec::new(),
            frames: Vec::new(),
            web,
        }
    }

    pub(crate) fn lane(&mut self, line: Line) -> &mut Lane {
        match line {
            Line::Programs => self.programs.lane(),
            Line::Proxy(route) => self.routes[route].lane(),
        }
    }

    /// Replaces the additional header fields; cached files contain the old ones.
    pub(crate) fn replace_web(&mut self, web: Arc<CompiledWebConfig>) {
        self.common = CommonHeaders::new(&web);
        self.cache.clear();
        self.web = web;
    }
}

impl Core {
    /// For one of the workers of a server; `post` is the way to its connections.
    pub fn new(kernel: worker::Core, server: &Arc<Http>, post: Post<Message>) -> Self {
        Self { kernel, server: Arc::clone(server), http: Shared::new(server), post }
    }

    /// Replaces the additional header fields; cached files contain the old ones.
    pub fn replace_web(&mut self, web: Arc<CompiledWebConfig>) {
        self.http.replace_web(web);
    }

    /// Ends what is due on the worker, whatever its connections do: files that were not used, programs whose time is
    /// over, requests whose turn it is.
    pub fn end_turn(&mut self) {
        self.http.cache.sweep(self.kernel.now.instant);
        let overdue = self.http.programs.look(self.kernel.now.instant);
        if !overdue.is_empty() {
            self.kernel.discard(overdue);
        }
        let Self { http, kernel, .. } = self;
        let (now, yielded) = (kernel.now.instant, &mut kernel.yielded);
        http.programs.admit(now, yielded);
        http.routes.iter_mut().for_each(|route| route.look(now, yielded));
    }

    /// When [`Core::end_turn`] has something to do.
    pub fn due(&self) -> Option<Instant> {
        let due = self.http.cache.sweep_due().into_iter().chain(self.http.programs.due());
        due.chain(self.http.routes.iter().filter_map(RouteConnections::due)).min()
    }

    /// Returns whether connections of HTTP/2 have something to hand on between them and their streams.
    pub fn has_multiplexed(&self) -> bool {
        !self.http.multiplexed.is_empty()
    }

    /// Takes the keys of those.
    pub fn take_multiplexed(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.http.multiplexed)
    }

    /// Notes that a connection of HTTP/2 has something to hand on.
    pub fn note_multiplexed(&mut self, key: Key) {
        if !self.http.multiplexed.contains(&key) {
            self.http.multiplexed.push(key);
        }
    }

    /// Logs what programs have written as errors.
    pub fn read_errors(&mut self) {
        loop {
            let (lines, more) = self.http.programs.said(&mut self.kernel.scratch);
            let peer = SocketAddr::from(([0, 0, 0, 0], 0));
            for line in lines {
                let subject = Subject { session: 0, peer, user: None };
                self.kernel.log(&subject, millrace_log::Event::ProgramSaid { text: &line });
            }
            if !more {
                return;
            }
        }
    }
}
