//! The message of all metrics (`ExportMetricsServiceRequest`), by the names that Prometheus knows.
//!
//! Counters and histograms are cumulative: they say what was counted since the process started.

use std::time::{Duration, SystemTime};

use millrace_metrics::{BUCKETS, Kind, ROWS, Reading, Row, Snapshot, Unit};
use serde::Serialize;
use serde_json::Value;

use super::attributes::{Attributes, long, scope};

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`
const CUMULATIVE: u8 = 2;

/// Bytes of the message, about: so much room is made at once.
const USUAL: usize = 128 * 1024;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExportMetricsServiceRequest<'a> {
    resource_metrics: [ResourceMetrics<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceMetrics<'a> {
    resource: &'a Value,
    scope_metrics: [ScopeMetrics<'a>; 1],
}

#[derive(Serialize)]
struct ScopeMetrics<'a> {
    scope: Value,
    metrics: Vec<MetricMessage<'a>>,
}

/// A metric as OTLP has it.
#[derive(Serialize)]
struct MetricMessage<'a> {
    name: &'static str,
    description: &'static str,
    unit: &'static str,
    #[serde(flatten)]
    data: Data<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Data<'a> {
    Gauge { data_points: Vec<Point<'a>> },
    Sum { aggregation_temporality: u8, is_monotonic: bool, data_points: Vec<Point<'a>> },
    Histogram { aggregation_temporality: u8, data_points: Vec<Point<'a>> },
}

/// A data point: the value of a series, with its labels and times.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Point<'a> {
    #[serde(flatten)]
    value: PointValue,
    attributes: Attributes<'a>,
    #[serde(serialize_with = "long")]
    time_unix_nano: u64,
    #[serde(flatten)]
    start: Option<Start>,
}

#[derive(Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
enum PointValue {
    Int {
        #[serde(serialize_with = "long")]
        as_int: u64,
    },
    Double {
        as_double: f64,
    },
    Histogram {
        #[serde(serialize_with = "long")]
        count: u64,
        sum: f64,
        bucket_counts: Vec<String>,
        explicit_bounds: [f64; BUCKETS.len()],
    },
}

/// What counters and histograms have besides.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Start {
    #[serde(serialize_with = "long")]
    start_time_unix_nano: u64,
}

/// From when to when it was counted, in nanoseconds since 1970.
struct Times {
    start: u64,
    now: u64,
}

/// Writes all metrics that were counted from `start` until `now`. One that is read and has no reading is left out.
pub(crate) fn message(
    resource: &Value,
    (counted, readings): (&Snapshot, &[Reading]),
    start: SystemTime,
    now: SystemTime,
) -> Vec<u8> {
    let times = Times { start: nanoseconds(start), now: nanoseconds(now) };
    let metrics = ROWS.iter().filter_map(|row| metric(row, counted, readings, &times)).collect();
    let scope_metrics = [ScopeMetrics { scope: scope(), metrics }];
    let request =
        ExportMetricsServiceRequest { resource_metrics: [ResourceMetrics { resource, scope_metrics }] };
    let mut message = Vec::with_capacity(USUAL);
    serde_json::to_writer(&mut message, &request).expect("a Vec takes all, and keys are texts");
    message
}

fn metric<'a>(
    row: &'static Row,
    counted: &'a Snapshot,
    readings: &'a [Reading],
    times: &Times,
) -> Option<MetricMessage<'a>> {
    let counted = counted.series(row).map(|(labels, cells)| point(row, labels, of_cells(row, cells), times));
    let read = readings.iter().filter(|reading| reading.metric == row.metric && reading.value.is_finite());
    let read = read.map(|reading| {
        let labels = reading.labels.iter().map(AsRef::as_ref);
        point(row, labels, PointValue::Double { as_double: reading.value }, times)
    });
    let data_points: Vec<Point<'_>> = counted.chain(read).collect();
    let data = match row.kind {
        _ if data_points.is_empty() => return None,
        Kind::Gauge => Data::Gauge { data_points },
        Kind::Counter => Data::Sum { aggregation_temporality: CUMULATIVE, is_monotonic: true, data_points },
        Kind::Histogram => Data::Histogram { aggregation_temporality: CUMULATIVE, data_points },
    };
    // The units of UCUM. Without one a name stays as it is on the way to Prometheus.
    let unit = match row.unit {
        Unit::None => "",
        Unit::Bytes => "By",
        Unit::Seconds => "s",
    };
    Some(MetricMessage { name: row.name, description: row.help, unit, data })
}

/// Returns the value of a series that shards count.
fn of_cells(row: &Row, cells: &[u64]) -> PointValue {
    match (row.kind, row.unit, cells) {
        (Kind::Histogram, _, [buckets @ .., sum]) => PointValue::Histogram {
            count: buckets.iter().sum(),
            sum: seconds(*sum),
            bucket_counts: buckets.iter().map(u64::to_string).collect(),
            explicit_bounds: BUCKETS.map(seconds),
        },
        (_, Unit::Seconds, cells) => PointValue::Double { as_double: seconds(cells.iter().sum()) },
        (_, _, cells) => PointValue::Int { as_int: cells.iter().sum() },
    }
}

fn point<'a>(
    row: &'static Row,
    labels: impl IntoIterator<Item = &'a str>,
    value: PointValue,
    times: &Times,
) -> Point<'a> {
    let pairs = row.labels.iter().zip(labels);
    let attributes = pairs.fold(Attributes::default(), |all, (label, value)| all.text(label.name, value));
    let start = (row.kind != Kind::Gauge).then_some(Start { start_time_unix_nano: times.start });
    Point { value, attributes, time_unix_nano: times.now, start }
}

fn nanoseconds(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn seconds(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use millrace_metrics::{Metric, Registry};
    use serde_json::json;

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
