//! Metrics and traces for a collector of OpenTelemetry: OTLP by HTTP, encoded as JSON.
//!
//! | module | what it does |
//! |---|---|
//! | `metrics` | makes the message of all metrics, of a snapshot of what was counted and of readings |
//! | `traces` | makes the message of spans, which the log has queued |
//! | `ids` | says which trace a span is in |
//! | `attributes` | writes attributes, and the resource: which server it is |
//! | `collector` | compresses and posts a message, and says what the collector makes of it |
//! | `link` | decides when a message is tried again, and what the log is told |
//! | `exporter` | has the two threads, one for metrics and one for traces |
//!
//! The invariant: a collector that is away, slow or wrong delays nothing but these threads. What waits for it is bounded: one
//! batch of spans beside their queue, and no metrics, as later ones say more.

mod settings;

#[cfg(feature = "export")]
mod attributes;
#[cfg(feature = "export")]
mod collector;
#[cfg(feature = "export")]
mod exporter;
#[cfg(feature = "export")]
mod ids;
#[cfg(feature = "export")]
mod link;
#[cfg(feature = "export")]
mod metrics;
#[cfg(feature = "export")]
mod traces;
#[cfg(not(feature = "export"))]
mod without;

#[cfg(feature = "export")]
pub use collector::Collector;
#[cfg(feature = "export")]
pub use exporter::Telemetry;
pub use settings::{Compression, Observed, Settings, SetupError};
#[cfg(not(feature = "export"))]
pub use without::{Absent as Collector, Absent as Telemetry};
