//! The text of a scrape: the format of Prometheus (version 0.0.4), and OpenMetrics (version 1.0.0).
//!
//! Both are lines of `name{label="value"} number`. OpenMetrics names a counter without its `_total`, tells units, and
//! ends with `# EOF`, by which a text that was cut is recognised.

use std::fmt::Write as _;

use super::registry::Registry;
use super::rows::{BUCKETS, HISTOGRAM, Kind, Metric, ROWS, Row, Source, Unit};
use super::snapshot::Snapshot;

/// The form of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// What Prometheus has always read.
    Prometheus,
    /// Its successor.
    OpenMetrics,
}

impl Format {
    /// Chooses by the field `Accept` of a request.
    pub fn accepted(accept: &str) -> Self {
        match accept.contains("application/openmetrics-text") {
            true => Self::OpenMetrics,
            false => Self::Prometheus,
        }
    }

    /// Returns the media type of the text.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The value of a metric that is read from the server.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// The metric.
    pub metric: Metric,
    /// The values of its labels.
    pub labels: Vec<String>,
    /// The value.
    pub value: f64,
}

impl Reading {
    /// The value of a metric without labels.
    pub fn of(metric: Metric, value: f64) -> Self {
        Self { metric, labels: Vec::new(), value }
    }

    /// The value of a series of a metric with one label.
    pub fn at(metric: Metric, label: impl Into<String>, value: f64) -> Self {
        Self { metric, labels: vec![label.into()], value }
    }
}

/// Writes all metrics. One that is read and has no reading is left out.
pub fn write(registry: &Registry, readings: &[Reading], format: Format) -> String {
    let counted = registry.snapshot();
    let mut out = String::with_capacity(32 * 1024);
    for row in &ROWS {
        match row.source {
            Source::Counted => {
                write_head(row, format, &mut out);
                write_counted(row, &counted, &mut out);
            }
            Source::Read => {
                let readings = readings.iter().filter(|reading| reading.metric == row.metric);
                for (index, reading) in readings.enumerate() {
                    if index == 0 {
                        write_head(row, format, &mut out);
                    }
                    write_name(row, "", &reading.labels, None, &mut out);
                    let _ = writeln!(out, "{}", reading.value);
                }
            }
        }
    }
    if format == Format::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out
}

fn write_head(row: &Row, format: Format, out: &mut String) {
    let (kind, name) = match (row.kind, format) {
        (Kind::Counter, Format::OpenMetrics) => ("counter", row.name.trim_end_matches("_total")),
        (Kind::Counter, Format::Prometheus) => ("counter", row.name),
        (Kind::Gauge, _) => ("gauge", row.name),
        (Kind::Histogram, _) => ("histogram", row.name),
    };
    let _ = writeln!(out, "# HELP {name} {}\n# TYPE {name} {kind}", row.help);
    let unit = match row.unit {
        Unit::None => return,
        Unit::Bytes => "bytes",
        Unit::Seconds => "seconds",
    };
    if format == Format::OpenMetrics {
        let _ = writeln!(out, "# UNIT {name} {unit}");
    }
}

fn write_counted(row: &'static Row, counted: &Snapshot, out: &mut String) {
    for (labels, cells) in counted.series(row) {
        match row.kind {
            Kind::Histogram => write_histogram(row, &labels, cells, out),
            Kind::Counter | Kind::Gauge => {
                write_name(row, "", &labels, None, out);
                write_number(row.unit, cells[0], out);
            }
        }
    }
}

/// The number of observations is that of the buckets, so that the two agree though workers count meanwhile.
fn write_histogram(row: &Row, labels: &[&str], cells: &[u64], out: &mut String) {
    let mut count = 0_u64;
    let bounds = BUCKETS.iter().map(|bound| seconds(*bound)).chain(["+Inf".to_owned()]);
    for (bound, cell) in bounds.zip(cells) {
        count = count.wrapping_add(*cell);
        write_name(row, "_bucket", labels, Some(&bound), out);
        let _ = writeln!(out, "{count}");
    }
    write_name(row, "_sum", labels, None, out);
    write_number(Unit::Seconds, cells[HISTOGRAM - 1], out);
    write_name(row, "_count", labels, None, out);
    let _ = writeln!(out, "{count}");
}

/// Writes `name{label="value"} `.
fn write_name(row: &Row, suffix: &str, labels: &[impl AsRef<str>], bound: Option<&str>, out: &mut String) {
    out.push_str(row.name);
    out.push_str(suffix);
    let names = row.labels.iter().map(|label| label.name);
    let pairs = names.zip(labels.iter().map(AsRef::as_ref)).chain(bound.map(|bound| ("le", bound)));
    for (index, (name, value)) in pairs.enumerate() {
        out.push(if index == 0 { '{' } else { ',' });
        let _ = write!(out, "{name}=\"");
        for character in value.chars() {
            match character {
                '\\' | '"' => out.extend(['\\', character]),
                '\n' => out.push_str("\\n"),
                character => out.push(character),
            }
        }
        out.push('"');
    }
    out.push_str(if row.labels.is_empty() && bound.is_none() { " " } else { "} " });
}

fn write_number(unit: Unit, number: u64, out: &mut String) {
    let _ = match unit {
        Unit::Seconds => writeln!(out, "{}", seconds(number)),
        Unit::None | Unit::Bytes => writeln!(out, "{number}"),
    };
}

/// Returns microseconds as seconds, without an error of rounding: `0.0025`, `1.0`.
fn seconds(micros: u64) -> String {
    let mut text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    while text.ends_with('0') && !text.ends_with(".0") {
        text.pop();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn lines_of(name: &str, text: &str) -> Vec<String> {
        let is_meant = |line: &&str| line.trim_start_matches("# HELP ").contains(name) && line.contains(name);
        text.lines().filter(is_meant).map(str::to_owned).collect()
    }

    #[test]
    fn a_counter_is_written_with_every_series() {
        let registry = Registry::default();
        registry.shard().add(Metric::Logins, &[1], 7);
        let text = write(&registry, &[], Format::Prometheus);
        assert_eq!(
            lines_of("millrace_logins_total", &text)[1..],
            [
                "# TYPE millrace_logins_total counter",
                "millrace_logins_total{result=\"success\"} 0",
                "millrace_logins_total{result=\"failed\"} 7",
                "millrace_logins_total{result=\"refused\"} 0",
            ]
        );
    }

    #[test]
    fn openmetrics_names_counters_without_their_ending_and_tells_units() {
        let text = write(&Registry::default(), &[], Format::OpenMetrics);
        assert_eq!(
            lines_of("millrace_http_response_bytes", &text)[1..],
            [
                "# TYPE millrace_http_response_bytes counter",
                "# UNIT millrace_http_response_bytes bytes",
                "millrace_http_response_bytes_total 0",
            ]
        );
        assert!(text.ends_with("\n# EOF\n"));
    }

    #[test]
    fn openmetrics_has_one_family_of_a_name() {
        let readings: Vec<_> = ROWS.iter().map(|row| Reading::of(row.metric, 0.0)).collect();
        let text = write(&Registry::default(), &readings, Format::OpenMetrics);
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let mut names: Vec<_> = types.filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(names.len(), ROWS.len());
        names.sort_unstable();
        names.windows(2).for_each(|pair| assert_ne!(pair[0], pair[1]));
    }

    #[test]
    fn a_histogram_has_growing_buckets_a_sum_and_a_count() {
        let registry = Registry::default();
        for micros in [90, 2_400, 2_000_000_000] {
            registry.shared().observe(Metric::RequestDuration, &[], Duration::from_micros(micros));
        }
        let text = write(&registry, &[], Format::Prometheus);
        let has = |line: &str| assert!(text.contains(&format!("\n{line}\n")), "{line}");
        has("millrace_http_request_duration_seconds_bucket{le=\"0.0001\"} 1");
        has("millrace_http_request_duration_seconds_bucket{le=\"0.001\"} 1");
        has("millrace_http_request_duration_seconds_bucket{le=\"0.0025\"} 2");
        has("millrace_http_request_duration_seconds_bucket{le=\"1800.0\"} 2");
        has("millrace_http_request_duration_seconds_bucket{le=\"+Inf\"} 3");
        has("millrace_http_request_duration_seconds_sum 2000.00249");
        has("millrace_http_request_duration_seconds_count 3");
    }

    #[test]
    fn a_reading_is_written_where_there_is_one_and_its_label_escaped() {
        let file = Reading::at(Metric::CertificateExpiry, "/a\\\"b\n.pem", 1.5e9);
        let text =
            write(&Registry::default(), &[file, Reading::of(Metric::Sessions, 3.0)], Format::Prometheus);
        assert!(text.contains("\nmillrace_sessions 3\n"), "{text}");
        let line =
            "\nmillrace_certificate_expiry_timestamp_seconds{file=\"/a\\\\\\\"b\\n.pem\"} 1500000000\n";
        assert!(text.contains(line), "{text}");
        assert!(!text.contains("millrace_ready"));
    }

    #[test]
    fn the_text_stays_small() {
        let text = write(&Registry::default(), &[], Format::Prometheus);
        assert!(text.len() < 60_000, "{}", text.len());
    }

    #[test]
    fn the_form_is_chosen_by_the_scraper() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
        assert_eq!(Format::accepted(prometheus), Format::OpenMetrics);
        assert_eq!(Format::accepted("*/*"), Format::Prometheus);
    }
}
