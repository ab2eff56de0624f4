//! What a collector of OpenTelemetry is told of a running server: what a scrape tells, and spans.

use std::io;
use std::sync::{Arc, Weak};

use millrace_metrics::{Metric, Reading, Snapshot};
use millrace_server::{Readiness, Running, readings_of, spans_of};
use millrace_telemetry::{Collector, Observed, Telemetry};

use super::pulse::{Pulse, SCRAPE_PATIENCE};

struct ObservedServer {
    running: Weak<Running>,
    pulse: Arc<Pulse>,
    /// A successor has another identity.
    is_told_apart: bool,
}

impl Observed for ObservedServer {
    fn read(&self) -> Option<(Snapshot, Vec<Reading>)> {
        let (running, mut readings) = readings_of(&self.running)?;
        if !self.is_told_apart && running.readiness() == Readiness::HandedOver {
            // The successor has the same identity, and its counters have begun at zero.
            return None;
        }
        readings.extend(self.pulse.lags(&running, SCRAPE_PATIENCE));
        Some((running.metrics().snapshot(), readings))
    }

    fn warn(&self, text: &str) {
        self.running.upgrade().iter().for_each(|running| running.warn(text));
    }

    fn count_dropped(&self, spans: u64) {
        let running = self.running.upgrade();
        running.iter().for_each(|running| running.metrics().shared().add(Metric::SpansDropped, &[], spans));
    }
}

/// Begins to tell a collector of a server, until what is returned is dropped.
pub fn tell(collector: Collector, running: &Arc<Running>) -> io::Result<Telemetry> {
    let pulse = Arc::new(Pulse::new(running.worker_count()));
    let is_told_apart = collector.tells_processes_apart();
    let server = ObservedServer { running: Arc::downgrade(running), pulse, is_told_apart };
    Telemetry::start(collector, Arc::new(server), Arc::clone(spans_of(running)))
}
