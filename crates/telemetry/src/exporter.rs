//! The threads: one sends metrics now and then, one sends spans as they come.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use millrace_log::{Span, Spans};
use millrace_metrics::process_start;
use serde_json::Value;

use super::attributes::resource;
use super::collector::{Collector, Signal};
use super::ids::Numbering;
use super::link::{Link, Outcome};
use super::settings::Observed;
use super::{metrics, traces};

/// How long after its start a server is first told of, at most.
const FIRST_LOOK: Duration = Duration::from_secs(2);

/// How often metrics are sent at most: each time all workers are asked.
const LEAST_INTERVAL: Duration = Duration::from_secs(1);

/// How long spans wait for others at most.
const DELAY: Duration = Duration::from_secs(5);

/// How often a batch of spans is sent before it is given up.
const TRIES: usize = 5;

/// Metrics and traces that are sent, until this is dropped.
#[derive(Debug)]
pub struct Telemetry(Arc<Exporter>);

struct Exporter {
    collector: Collector,
    resource: Value,
    numbering: Numbering,
    observed: Arc<dyn Observed>,
    spans: Arc<Spans>,
    state: Mutex<State>,
    changed: Condvar,
}

/// Says when it is over.
#[derive(Debug, Default)]
struct State {
    is_over: bool,
    /// Threads that have not ended.
    threads: usize,
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter").field("collector", &self.collector).finish_non_exhaustive()
    }
}

impl Telemetry {
    /// Begins to send.
    pub fn start(collector: Collector, observed: Arc<dyn Observed>, spans: Arc<Spans>) -> io::Result<Self> {
        let resource = resource(&collector.settings.attributes);
        let one_in = collector.settings.one_in;
        let (state, changed) = Default::default();
        let numbering = Numbering::new();
        let exporter = Exporter { collector, resource, numbering, observed, spans, state, changed };
        let telemetry = Self(Arc::new(exporter));
        telemetry.0.spawn("otlp-metrics", Exporter::send_metrics)?;
        if one_in > 0 {
            telemetry.0.spawn("otlp-traces", Exporter::send_traces)?;
            telemetry.0.spans.begin(one_in);
        }
        Ok(telemetry)
    }

    /// Sends what there is to a collector that takes it, and waits for at most this time.
    pub fn finish(&self, time: Duration) {
        self.0.end();
        let is_waited_for = |state: &mut State| state.threads > 0;
        drop(self.0.changed.wait_timeout_while(self.0.lock(), time, is_waited_for));
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Exporter {
    fn spawn(self: &Arc<Self>, name: &str, work: fn(&Self)) -> io::Result<()> {
        let exporter = Arc::clone(self);
        let run = move || {
            work(&exporter);
            exporter.lock().threads -= 1;
            exporter.changed.notify_all();
        };
        // Before it can end.
        self.lock().threads += 1;
        thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
        self.spans.end();
    }

    /// Waits so long. Returns whether it is over.
    fn wait(&self, time: Duration) -> bool {
        let wait = self.changed.wait_timeout_while(self.lock(), time, |state| !state.is_over);
        wait.unwrap_or_else(PoisonError::into_inner).0.is_over
    }

    /// Posts a message with so many things, and tells the log what has changed.
    fn send(&self, link: &mut Link, signal: Signal, body: &[u8], things: u64) -> Outcome {
        let answer = self.collector.post(signal, body);
        let outcome = link.note(answer, things, Instant::now(), RandomState::new().hash_one(signal.word()));
        if let Some(told) = &outcome.told {
            self.observed.warn(&format!("OTLP, {} to {}: {told}", signal.word(), self.collector.url(signal)));
        }
        outcome
    }

    /// Metrics that were not taken are not sent again: the next say more.
    fn send_metrics(&self) {
        let (interval, mut link) = (self.collector.settings.interval.max(LEAST_INTERVAL), Link::default());
        let mut pause = FIRST_LOOK.min(interval);
        loop {
            let is_over = self.wait(pause);
            if is_over && link.is_away() {
                return;
            }
            let Some((counted, readings)) = self.observed.read() else { return };
            let now = SystemTime::now();
            let message = metrics::message(&self.resource, (&counted, &readings), process_start(), now);
            let body = self.collector.body(Signal::Metrics, message);
            self.send(&mut link, Signal::Metrics, &body, 0);
            if is_over {
                return;
            }
            pause = link.pause().max(interval);
        }
    }

    fn send_traces(&self) {
        let mut link = Link::default();
        while let Some(batch) = self.spans.take(DELAY) {
            let lost = if batch.is_empty() { 0 } else { self.send_batch(&mut link, &batch) };
            if lost > 0 {
                self.observed.count_dropped(lost);
            }
        }
    }

    /// Sends spans, and tries again where that may help. Returns how many are lost.
    fn send_batch(&self, link: &mut Link, batch: &[Span]) -> u64 {
        let message = traces::message(&self.resource, &self.numbering, batch);
        let (body, things) = (self.collector.body(Signal::Traces, message), batch.len() as u64);
        for _ in 0..TRIES {
            let is_over = self.wait(link.pause());
            if is_over && link.is_away() {
                break;
            }
            let outcome = self.send(link, Signal::Traces, &body, things);
            if outcome.again.is_none() {
                return outcome.lost;
            }
        }
        things
    }
}
