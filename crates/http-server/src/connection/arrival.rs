//! When the present request of a connection came, and which of its requests it is: what traces tell of it besides.

use std::time::{Duration, Instant};

use millrace_http::Head;
use millrace_http::traceparent::TraceParent;
use millrace_log::{RequestTrace, Tried, Within};

use crate::connection::Connection;
use crate::worker::Core;

/// Of the present request. A connection has one only where there are traces.
#[derive(Debug)]
pub(crate) struct Arrival {
    number: u64,
    at: Instant,
    caller: Option<TraceParent>,
}

impl Connection {
    /// Notes that a request has come, with its head where that could be read.
    pub(crate) fn note_arrival(&mut self, core: &Core, head: Option<&Head>) {
        if !core.services.log.spans().is_on() {
            return;
        }
        let (at, caller) = (core.now.instant, head.and_then(TraceParent::of));
        match &mut self.arrival {
            Some(arrival) => **arrival = Arrival { number: arrival.number + 1, at, caller },
            None => self.arrival = Some(Box::new(Arrival { number: 0, at, caller })),
        }
    }

    /// Returns what traces tell of the present request besides, where there are any.
    pub(crate) fn request_trace(&self, now: Instant) -> Option<RequestTrace> {
        self.arrival.as_ref().map(|arrival| RequestTrace {
            number: arrival.number,
            age: now.saturating_duration_since(arrival.at),
            caller: arrival.caller,
        })
    }

    /// Returns the same of a login, which the present request has waited for since it came.
    pub(crate) fn tried(&self, now: Instant) -> Tried {
        let trace = self.request_trace(now);
        let took = trace.map_or(Duration::ZERO, |trace| trace.age);
        Tried { took, within: trace.map_or(Within::Nothing, Within::Request) }
    }
}
