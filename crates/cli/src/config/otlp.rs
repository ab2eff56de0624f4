//! The `[otlp]` table: the collector of OpenTelemetry that metrics and traces are sent to.

use std::path::PathBuf;
use std::time::Duration;

use millrace_telemetry::{Collector, Settings, SetupError};
use millrace_terminal::Failure;

use super::hooks::credentials;
use super::places::Places;
use super::said::Said;
use super::setting::{default, required, settings, unset};
use super::slot::{Map, One};
use super::sources;
use super::value::{Count, Period};

settings! {
    /// The `[otlp]` table.
    OtlpTable of "otlp" {
        /// The collector: `"http://127.0.0.1:4318"`. Metrics are posted to `/v1/metrics` beneath that, traces to
        /// `/v1/traces`.
        endpoint: Said<String> = required();
        /// What goes with each post besides, as of a `[[hook]]`: `{ Authorization = "Bearer 1234" }`
        headers: Map<String> = unset("none");
        /// A file of CA certificates in PEM, one of which has to have signed the collector's
        ca: One<PathBuf> = unset("what browsers trust");
        /// How often metrics are sent; once a second at most
        interval: One<Period> = default("15s").positive();
        /// One in this many sessions of FTP and requests of HTTP is traced; of requests with `traceparent` those that it
        /// says are. 0: none.
        trace_one_in: One<Count> = default("1");
        /// Attributes of the resource, besides or instead of those that are always there:
        /// `{ "deployment.environment.name" = "production" }`
        attributes: Map<String> = unset("none");
    }
}

impl OtlpTable {
    /// `to http://127.0.0.1:4318`
    pub(crate) fn shown(&self) -> String {
        format!("to {}", self.endpoint.value)
    }
}

/// The collector as written.
pub(super) fn collector(tables: &[OtlpTable], places: &Places<'_>) -> Result<Option<Collector>, Failure> {
    let Some(table) = tables.first() else { return Ok(None) };
    let pairs = table.attributes.iter().map(|(key, said)| (key.clone(), said.value.clone()));
    let collector = Collector::new(Settings {
        endpoint: table.endpoint.value.clone(),
        headers: credentials(&table.headers, (&None, &None), &table.endpoint, places)?,
        attributes: pairs.collect(),
        interval: table.interval.as_ref().map_or(Duration::from_secs(15), |said| said.value.0),
        one_in: table.trace_one_in.as_ref().map_or(1, |said| said.value.0 as u64),
        roots: sources::read(table.ca.as_ref(), "ca", places)?,
    });
    collector.map(Some).map_err(|error| match (&error, &table.ca) {
        (SetupError::NoCertificate, Some(ca)) => places.error(&ca.place, "ca", &error),
        _ => places.error(&table.endpoint.place, "endpoint", &error),
    })
}
