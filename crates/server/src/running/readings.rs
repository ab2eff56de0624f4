//! What metrics and health checks ask of a server that runs.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Instant, SystemTime};

use millrace_blocking::PoolLoad;
use millrace_log::Spans;
use millrace_metrics::{Metric, Reading, Registry, process_readings};

use super::Running;
use crate::data_relay::{DataRelay, RelayCounts};
use crate::hooks::Backlog;
use crate::worker::{Worker, WorkerMessage};

/// Whether a server takes more clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// It does.
    Ready,
    /// It waits for the last transfers and then ends, or is about to.
    Draining,
    /// Another process accepts instead.
    HandedOver,
}

/// Returns the spans of what the workers of a server have ended.
pub fn spans_of(running: &Running) -> &Arc<Spans> {
    running.log.spans()
}

/// Reads the metrics that are not counted, and the queue of the hooks. Returns nothing where the server has ended.
pub fn readings_of(running: &Weak<Running>) -> Option<(Arc<Running>, Vec<Reading>)> {
    let backlog = running.upgrade()?.backlog();
    // A disk may hold this up; the server is not kept alive meanwhile.
    let queue = backlog.as_ref().map(Running::queue_readings);
    let running = running.upgrade()?;
    let readings = running.readings().into_iter().chain(queue.into_iter().flatten()).collect();
    Some((running, readings))
}

impl Running {
    /// The metrics that its workers count.
    pub fn metrics(&self) -> &Registry {
        self.log.metrics()
    }

    /// Returns whether it takes more clients.
    pub fn readiness(&self) -> Readiness {
        let is_leaving = self.state.is_leaving.load(Ordering::Acquire);
        if !is_leaving && !self.is_ending() {
            Readiness::Ready
        } else if self.is_handed_over() {
            Readiness::HandedOver
        } else {
            Readiness::Draining
        }
    }

    /// Returns how many workers it has.
    pub fn worker_count(&self) -> usize {
        self.workers.len()
    }

    /// Returns whether a worker has ended. In a server that drains, one does that has no connection left.
    pub fn has_ended(&self, worker: usize) -> bool {
        self.workers.get(worker).is_none_or(|worker| worker.is_closed())
    }

    /// Has a worker call this in its next turn. One that has ended never does.
    pub fn ask_worker(&self, worker: usize, answer: impl FnOnce() + Send + 'static) {
        if let Some(worker) = self.workers.get(worker) {
            worker.send(WorkerMessage::Worker(Box::new(move |_: &mut Worker| answer())));
        }
    }

    /// Reads the queue of the hooks, where there is one. It waits for a disk.
    pub fn queue_readings(backlog: &Backlog) -> Vec<Reading> {
        let counts = backlog.counts().ok();
        let of_state = |(waiting, parked): (u64, u64)| {
            [("waiting", waiting), ("parked", parked)]
                .map(|(state, count)| Reading::at(Metric::DeliveryQueue, state, count as f64))
        };
        counts.map(of_state).into_iter().flatten().collect()
    }

    /// Reads the metrics that are not counted. It waits for nothing but locks that are held for a moment.
    pub fn readings(&self) -> Vec<Reading> {
        let state = &self.state;
        let (pending, waiting) = state.shared.ftp.passive.occupancy();
        let mut readings: Vec<Reading> = [
            (Metric::Sessions, state.sessions.count()),
            (Metric::Banned, state.bans.list(Instant::now()).len()),
            (Metric::PendingData, pending),
            (Metric::WaitingForPort, waiting),
            (Metric::Ready, usize::from(self.readiness() == Readiness::Ready)),
        ]
        .map(|(metric, count)| Reading::of(metric, count as f64))
        .into();
        let pools = [
            ("files", &state.pool),
            ("long", &state.long),
            ("listings", &state.shared.ftp.listings),
            ("logins", &state.logins),
        ];
        let loads = pools.map(|(name, pool)| (name, pool.load()));
        readings.extend(loads.into_iter().chain(state.hook_pools.loads()).flat_map(of_pool));
        for (file, until) in state.tls.iter().flat_map(|tls| tls.expiries()) {
            let until = until.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let file = file.display().to_string();
            readings.push(Reading::at(Metric::CertificateExpiry, file, until.as_secs() as f64));
        }
        readings.push(Reading::at(Metric::Build, env!("CARGO_PKG_VERSION"), 1.0));
        let node = state.cluster.iter().map(|cluster| (cluster.name().to_owned(), cluster.epoch().is_some()));
        let registered =
            |(name, is_member)| Reading::at(Metric::ClusterNode, name, f64::from(u8::from(is_member)));
        readings.extend(node.map(registered));
        // A server that hands on nothing counts it too: a dashboard shows 0 then, and no gap.
        let none = RelayCounts::default();
        let handed_on = state.data_relay.get().map_or(&none, DataRelay::counts).by_result();
        readings.extend(handed_on.map(|(result, count)| Reading::at(Metric::HandedOn, result, count as f64)));
        readings.extend(state.disks.readings(&state.pool));
        let lost = state.log.lost_lines().into_iter();
        readings.extend(lost.map(|(log, lines)| Reading::at(Metric::LogLinesLost, log, lines as f64)));
        let most = state.sessions.descriptors().most;
        readings.push(Reading::of(Metric::MostDescriptors, most as f64));
        readings.extend(process_readings());
        readings
    }
}

fn of_pool((name, load): (&'static str, PoolLoad)) -> [Reading; 3] {
    [(Metric::PoolWaiting, load.waiting), (Metric::PoolThreads, load.threads), (Metric::PoolIdle, load.idle)]
        .map(|(metric, count)| Reading::at(metric, name, count as f64))
}
