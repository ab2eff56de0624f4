//! The message of all metrics (`ExportMetricsServiceRequest`), by the names that Prometheus knows.
//!
//! Counters and histograms are cumulative: they say what was counted since the process started.

use std::time::{Duration, SystemTime};

use millrace_metrics::{BUCKETS, Kind, ROWS, Reading, Row, Snapshot, Unit};
use serde_json::{Value, json};

use super::attributes::{Attributes, scope};

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`
const CUMULATIVE: u8 = 2;

/// From when to when it was counted, in nanoseconds since 1970.
struct Times {
    start: String,
    now: String,
}

/// Writes all metrics that were counted from `start` until `now`. One that is read and has no reading is left out.
pub(crate) fn message(
    resource: &Value,
    (counted, readings): (&Snapshot, &[Reading]),
    start: SystemTime,
    now: SystemTime,
) -> Vec<u8> {
    let times = Times { start: nanoseconds(start), now: nanoseconds(now) };
    let metrics: Vec<Value> = ROWS.iter().filter_map(|row| metric(row, counted, readings, &times)).collect();
    let scope_metrics = json!([{ "scope": scope(), "metrics": metrics }]);
    json!({ "resourceMetrics": [{ "resource": resource, "scopeMetrics": scope_metrics }] })
        .to_string()
        .into_bytes()
}

fn metric(row: &'static Row, counted: &Snapshot, readings: &[Reading], times: &Times) -> Option<Value> {
    let counted = counted.series(row).map(|(labels, cells)| of_cells(row, &labels, cells, times));
    let read = readings.iter().filter(|reading| reading.metric == row.metric && reading.value.is_finite());
    let read = read.map(|reading| point(row, &reading.labels, json!({ "asDouble": reading.value }), times));
    let points: Vec<Value> = counted.chain(read).collect();
    let (kind, data) = match row.kind {
        _ if points.is_empty() => return None,
        Kind::Gauge => ("gauge", json!({ "dataPoints": points })),
        Kind::Counter => (
            "sum",
            json!({ "aggregationTemporality": CUMULATIVE, "isMonotonic": true, "dataPoints": points }),
        ),
        Kind::Histogram => {
            ("histogram", json!({ "aggregationTemporality": CUMULATIVE, "dataPoints": points }))
        }
    };
    // The units of UCUM. Without one a name stays as it is on the way to Prometheus.
    let unit = match row.unit {
        Unit::None => "",
        Unit::Bytes => "By",
        Unit::Seconds => "s",
    };
    Some(json!({ "name": row.name, "description": row.help, "unit": unit, kind: data }))
}

/// A series that shards count.
fn of_cells(row: &Row, labels: &[&str], cells: &[u64], times: &Times) -> Value {
    let value = match (row.kind, row.unit, cells) {
        (Kind::Histogram, _, [buckets @ .., sum]) => {
            let count: u64 = buckets.iter().sum();
            let buckets: Vec<String> = buckets.iter().map(u64::to_string).collect();
            json!({
                "count": count.to_string(),
                "sum": seconds(*sum),
                "bucketCounts": buckets,
                "explicitBounds": BUCKETS.map(seconds),
            })
        }
        (_, Unit::Seconds, cells) => json!({ "asDouble": seconds(cells.iter().sum()) }),
        (_, _, cells) => json!({ "asInt": cells.iter().sum::<u64>().to_string() }),
    };
    point(row, labels, value, times)
}

/// A data point: the value of a series, with its labels and times.
fn point(row: &Row, labels: &[impl AsRef<str>], mut value: Value, times: &Times) -> Value {
    let pairs = row.labels.iter().zip(labels);
    let attributes =
        pairs.fold(Attributes::default(), |all, (label, value)| all.text(label.name, value.as_ref()));
    value["attributes"] = attributes.into_json();
    value["timeUnixNano"] = times.now.as_str().into();
    if row.kind != Kind::Gauge {
        value["startTimeUnixNano"] = times.start.as_str().into();
    }
    value
}

fn nanoseconds(at: SystemTime) -> String {
    at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}

fn seconds(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use millrace_metrics::{Metric, Registry};

    use super::*;

    fn metrics_of(registry: &Registry, readings: &[Reading]) -> Vec<Value> {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let message = message(&json!({}), (&registry.snapshot(), readings), at(1), at(2));
        let message: Value = serde_json::from_slice(&message).unwrap();
        message["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap().clone()
    }

    fn find(metrics: &[Value], name: &str) -> Value {
        metrics.iter().find(|metric| metric["name"] == name).cloned().unwrap_or_default()
    }

    #[test]
    fn a_counter_is_a_cumulative_sum_with_a_point_for_each_series() {
        let registry = Registry::default();
        registry.shared().add(Metric::Logins, &[1], 7);
        registry.shared().add_time(Metric::TransferWaitSeconds, &[0, 0, 2], Duration::from_millis(2500));
        let metrics = metrics_of(&registry, &[]);
        let logins = find(&metrics, "millrace_logins_total");
        assert_eq!(
            (&logins["sum"]["aggregationTemporality"], &logins["sum"]["isMonotonic"]),
            (&2.into(), &true.into())
        );
        assert_eq!(
            logins["sum"]["dataPoints"][1],
            json!({
                "asInt": "7",
                "attributes": [{ "key": "result", "value": { "stringValue": "failed" } }],
                "startTimeUnixNano": "1000000000",
                "timeUnixNano": "2000000000",
            })
        );
        let waits = find(&metrics, "millrace_transfer_wait_seconds_total");
        assert_eq!((&waits["unit"], &waits["sum"]["dataPoints"][2]["asDouble"]), (&"s".into(), &2.5.into()));
    }

    #[test]
    fn a_histogram_has_a_bucket_more_than_bounds_and_counts_all_of_them() {
        let registry = Registry::default();
        for micros in [90, 2_400, 2_000_000_000] {
            registry.shared().observe(Metric::RequestDuration, &[], Duration::from_micros(micros));
        }
        let metric = find(&metrics_of(&registry, &[]), "millrace_http_request_duration_seconds");
        let point = &metric["histogram"]["dataPoints"][0];
        assert_eq!((&point["count"], &point["sum"]), (&"3".into(), &2000.00249.into()));
        let (buckets, bounds) =
            (point["bucketCounts"].as_array().unwrap(), point["explicitBounds"].as_array().unwrap());
        assert_eq!((buckets.len(), bounds.len()), (19, 18));
        assert_eq!((&bounds[0], &bounds[4]), (&0.0001.into(), &0.0025.into()));
        assert_eq!([&buckets[0], &buckets[4], &buckets[18]], ["1", "1", "1"]);
    }

    #[test]
    fn a_reading_is_there_where_there_is_one() {
        let file = Reading::at(Metric::CertificateExpiry, "/a.pem", 1.5e9);
        let lost = Reading::at(Metric::LogLinesLost, "events", 3.0);
        let metrics =
            metrics_of(&Registry::default(), &[file, lost, Reading::of(Metric::Sessions, f64::NAN)]);
        let expiry = find(&metrics, "millrace_certificate_expiry_timestamp_seconds");
        let point = &expiry["gauge"]["dataPoints"][0];
        assert_eq!((&point["asDouble"], &point["startTimeUnixNano"]), (&1.5e9.into(), &Value::Null));
        let lost = find(&metrics, "millrace_log_lines_lost_total");
        assert_eq!(lost["sum"]["dataPoints"][0]["startTimeUnixNano"], "1000000000");
        assert_eq!(find(&metrics, "millrace_sessions"), Value::Null);
        assert_eq!(find(&metrics, "millrace_ready"), Value::Null);
    }
}
