//! The table of metrics in `docs/metrics.md`.

use std::fmt::Write as _;

use super::rows::{Kind, ROWS};

/// Returns the table, in Markdown.
pub fn page() -> String {
    let mut table = "| metric | kind | labels | what |\n|---|---|---|---|\n".to_owned();
    for row in &ROWS {
        let kind = match row.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let label = |label: &super::Label| match label.values {
            [] => format!("`{}`", label.name),
            values => format!("`{}`: {}", label.name, values.join(", ")),
        };
        let labels: Vec<String> = row.labels.iter().map(label).collect();
        let _ = writeln!(table, "| `{}` | {kind} | {} | {} |", row.name, labels.join("; "), row.help);
    }
    table
}
