//! The `[otlp]` table: the collector of OpenTelemetry that metrics and traces are sent to.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use millrace_telemetry::{Collector, Compression, Settings, SetupError};
use millrace_terminal::Failure;

use super::error::ValueError;
use super::hooks::credentials;
use super::places::Places;
use super::said::{Place, Said};
use super::setting::{default, required, settings, unset};
use super::slot::{Map, One};
use super::sources;
use super::value::{Count, Period, Value};

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
        /// How posts are compressed: `"none"` or `"gzip"`. `OTEL_EXPORTER_OTLP_COMPRESSION` replaces it for both signals,
        /// `OTEL_EXPORTER_OTLP_METRICS_COMPRESSION` and `OTEL_EXPORTER_OTLP_TRACES_COMPRESSION` for one.
        compression: One<Compression> = default("none");
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
    let compression = |signal: &str| {
        let key = table.compression.as_ref().map_or(Compression::None, |said| said.value);
        compression(signal, key, |name| env::var_os(name))
            .map_err(|(name, error)| places.error(&Place::Environment(name), "compression", &error))
    };
    let pairs = table.attributes.iter().map(|(key, said)| (key.clone(), said.value.clone()));
    let collector = Collector::new(Settings {
        endpoint: table.endpoint.value.clone(),
        headers: credentials(&table.headers, (&None, &None), &table.endpoint, places)?,
        attributes: pairs.collect(),
        metrics_compression: compression("METRICS")?,
        traces_compression: compression("TRACES")?,
        interval: table.interval.as_ref().map_or(Duration::from_secs(15), |said| said.value.0),
        one_in: table.trace_one_in.as_ref().map_or(1, |said| said.value.0 as u64),
        roots: sources::read(table.ca.as_ref(), "ca", places)?,
    });
    collector.map(Some).map_err(|error| match (&error, &table.ca) {
        (SetupError::NoCertificate, Some(ca)) => places.error(&ca.place, "ca", &error),
        _ => places.error(&table.endpoint.place, "endpoint", &error),
    })
}

/// Returns how posts of a signal are compressed. Its variable of OpenTelemetry overrides the one for all signals, and that the
/// key. An empty variable counts as not set, and case does not matter (OpenTelemetry, "Environment Variable Specification").
/// An error has the name of the variable.
fn compression(
    signal: &str,
    key: Compression,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Compression, (String, ValueError)> {
    let names =
        [format!("OTEL_EXPORTER_OTLP_{signal}_COMPRESSION"), "OTEL_EXPORTER_OTLP_COMPRESSION".to_owned()];
    let set =
        names.into_iter().find_map(|name| Some((variable(&name).filter(|value| !value.is_empty())?, name)));
    let Some((value, name)) = set else { return Ok(key) };
    let text = value.to_str().ok_or(ValueError::Encoding);
    text.and_then(|text| Compression::from_text(&text.to_ascii_lowercase())).map_err(|error| (name, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_for_a_signal_overrides_the_one_for_all_and_that_the_key() {
        use Compression::{Gzip, None as Plain};
        const TRACES: &str = "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION";
        const ALL: &str = "OTEL_EXPORTER_OTLP_COMPRESSION";
        for (key, variables, metrics, traces) in [
            (Plain, vec![], Plain, Plain),
            (Gzip, vec![], Gzip, Gzip),
            (Plain, vec![(ALL, "gzip")], Gzip, Gzip),
            (Gzip, vec![(ALL, "none")], Plain, Plain),
            (Gzip, vec![(ALL, "")], Gzip, Gzip),
            (Plain, vec![(TRACES, "GZip")], Plain, Gzip),
            (Plain, vec![(ALL, "gzip"), (TRACES, "none")], Gzip, Plain),
            (Plain, vec![(ALL, "gzip"), (TRACES, "")], Gzip, Gzip),
        ] {
            let of =
                |name: &str| variables.iter().find(|(one, _)| *one == name).map(|(_, value)| value.into());
            let found = ["METRICS", "TRACES"].map(|signal| compression(signal, key, of).unwrap());
            assert_eq!(found, [metrics, traces], "{key:?} {variables:?}");
        }
        let wrong = |_: &str| Some("zstd".into());
        let (name, error) = compression("TRACES", Plain, wrong).unwrap_err();
        assert_eq!(name, TRACES);
        assert_eq!(error.to_string(), "\"zstd\" is none of the choices; write none or gzip");
    }
}
