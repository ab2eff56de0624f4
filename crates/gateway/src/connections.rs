//! Connections to applications by FastCGI: the idle ones of a worker, and how many requests may be under way.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use millrace_runtime::slab::Key;

use crate::conversation;
use crate::programs::Lane;
use crate::upstream::ProxyRoute;

/// How long an idle connection is kept, and how many by a worker.
const KEPT: Duration = Duration::from_secs(20);
const MOST_KEPT: usize = 8;

/// What a worker has of a route.
#[derive(Debug)]
pub struct RouteConnections {
    lane: Lane,
    /// Idle connections, and since when.
    kept: Vec<(Instant, OwnedFd)>,
}

impl RouteConnections {
    /// For this many workers.
    pub fn new(route: &ProxyRoute, workers: usize) -> Self {
        Self { lane: Lane::new(route.most.div_ceil(workers.max(1)).max(1)), kept: Vec::new() }
    }

    /// Admits waiting requests as far as there is room; connections that have waited for too long are closed.
    pub fn look(&mut self, now: Instant, admitted: &mut VecDeque<Key>) {
        self.lane.admit(admitted);
        self.kept.retain(|(since, _)| now.saturating_duration_since(*since) < KEPT);
    }

    /// When [`RouteConnections::look`] has something to do.
    pub fn due(&self) -> Option<Instant> {
        self.kept.first().map(|(since, _)| *since + KEPT)
    }

    /// The running and waiting requests.
    pub fn lane(&mut self) -> &mut Lane {
        &mut self.lane
    }

    /// Takes an idle connection whose peer has neither closed it nor sent anything.
    pub fn take(&mut self) -> Option<OwnedFd> {
        std::iter::from_fn(|| self.kept.pop()).map(|(_, socket)| socket).find(conversation::is_quiet)
    }

    /// A connection whose request is done.
    pub fn keep(&mut self, socket: OwnedFd, now: Instant) {
        if self.kept.len() < MOST_KEPT {
            self.kept.push((now, socket));
        }
    }
}
