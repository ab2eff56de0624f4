//! The report as a table for other programs: a line a cell (RFC 4180).

use super::{CellReport, Report, form};
use millrace_load::fairness::Goodput;
use millrace_load::host::ServerAudit;

/// A column: its name and its value in a cell's line.
type Column = (&'static str, fn(&CellReport) -> String);

const COLUMNS: [Column; 40] = [
    ("op", |cell| cell.measured.op.clone()),
    ("size", |cell| optional(cell.measured.size)),
    ("mode", |cell| cell.measured.mode.clone().unwrap_or_default()),
    ("users", |cell| cell.measured.users.to_string()),
    ("rate", |cell| optional(cell.measured.rate)),
    ("repetition", |cell| cell.measured.repetition.to_string()),
    ("seconds", |cell| cell.seconds.to_string()),
    ("ops", |cell| cell.ops.to_string()),
    ("ops_per_s", |cell| cell.ops_per_s.to_string()),
    ("mb_per_s", |cell| cell.mb_per_s.to_string()),
    ("mean_ms", |cell| cell.latency.mean_ms.to_string()),
    ("p50_ms", |cell| cell.latency.p50_ms.to_string()),
    ("p90_ms", |cell| cell.latency.p90_ms.to_string()),
    ("p99_ms", |cell| cell.latency.p99_ms.to_string()),
    ("p999_ms", |cell| cell.latency.p999_ms.to_string()),
    ("max_ms", |cell| cell.latency.max_ms.to_string()),
    ("raw_p99_ms", |cell| optional(cell.raw_latency.map(|raw| raw.p99_ms))),
    ("first_byte_p50_ms", |cell| optional(cell.first_byte.map(|first| first.p50_ms))),
    ("login_p50_ms", |cell| cell.login.p50_ms.to_string()),
    ("errors", |cell| cell.faults.count().to_string()),
    ("login_errors", |cell| cell.login_faults.count().to_string()),
    ("server_us_per_op", |cell| optional(cell.server_us_per_op)),
    ("client_us_per_op", |cell| cell.client_us_per_op.to_string()),
    ("pss_kib_per_session", |cell| optional(cell.pss_kib_per_session)),
    ("jain", |cell| optional(cell.fairness.jain)),
    ("min_over_median", |cell| optional(cell.fairness.min_over_median)),
    ("user_unit", |cell| goodput(cell, |got| got.unit.clone())),
    ("user_min", |cell| goodput(cell, |got| got.min.to_string())),
    ("user_median", |cell| goodput(cell, |got| got.median.to_string())),
    ("user_max", |cell| goodput(cell, |got| got.max.to_string())),
    ("gap_p99_ms", |cell| optional(cell.gap.map(|gap| gap.p99_ms))),
    ("gap_max_ms", |cell| optional(cell.gap.map(|gap| gap.max_ms))),
    ("server_processes", |cell| server(cell, |server| server.processes)),
    ("server_threads", |cell| server(cell, |server| server.threads)),
    ("server_descriptors", |cell| server(cell, |server| server.descriptors)),
    ("server_context_switches", |cell| server(cell, |server| server.context_switches)),
    ("server_pss_kib", |cell| server(cell, |server| server.pss_kib_after)),
    ("client_busiest_thread", |cell| cell.audit.client.busiest_thread.to_string()),
    ("little", |cell| optional(cell.little)),
    ("verdict", |cell| cell.verdict.bound.name().to_owned()),
];

/// The report.
pub fn render(report: &Report) -> String {
    let names = COLUMNS.map(|column| column.0).join(",") + ",form";
    let form = form(&report.quick);
    let lines = report.cells.iter().map(|cell| COLUMNS.map(|column| (column.1)(cell)).join(",") + "," + form);
    [names].into_iter().chain(lines).map(|line| line + "\r\n").collect()
}

fn goodput(cell: &CellReport, field: fn(&Goodput) -> String) -> String {
    cell.fairness.goodput.as_ref().map_or_else(String::new, field)
}

fn server(cell: &CellReport, field: fn(&ServerAudit) -> u64) -> String {
    optional(cell.audit.server.as_ref().map(field))
}

fn optional<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}
