//! HTTP's own figures, and ZeusBench's block of them: what `zb` printed in 2000, field by field.
//!
//! Its kb/s are 1000 bytes a second, heads included; its kept connections' requests count a connect of 0 ms.

use std::fmt::Write;

use super::{CellReport, Report, quick_sentence};
use crate::terminal::cut;
use millrace_load::figure::HttpFigures;

/// How the fields are spelt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// As in the dictionary, and after it the fields that zb did not have.
    Modern,
    /// As the build of the thread of 2000 printed it, and nothing else.
    Then,
}

/// zb's output, preceded by a warning that this is not zb's load, if so.
pub fn compat(report: &Report) -> String {
    let quick = quick_sentence(&report.quick).map(|said| cut(&said) + "\n");
    quick.unwrap_or_default() + &render(report, Spelling::Then)
}

/// The block of every figure that was taken over HTTP.
pub fn render(report: &Report, spelling: Spelling) -> String {
    let blocks = report.cells.iter().filter_map(|cell| Some((cell, cell.http.as_ref()?)));
    blocks.fold(String::new(), |mut out, (cell, http)| {
        out.push('\n');
        out.push_str(&block(cell, http, spelling));
        out
    })
}

fn block(cell: &CellReport, http: &HttpFigures, spelling: Spelling) -> String {
    let names = match spelling {
        Spelling::Then => ["Doucment Length", "Concurency Level", "Bytes transfered", "HTML transfered"],
        Spelling::Modern => ["Document Length", "Concurrency Level", "Bytes transferred", "HTML transferred"],
    };
    let [document, concurrency, bytes, html] = names;
    // No zero where there was no document; zb had one.
    let is_known = cell.ops > 0 || spelling == Spelling::Then;
    let length = if is_known { format!("{} bytes", http.document_bytes) } else { "-".to_owned() };
    let fields = [
        ("Server", http.server.clone()),
        (document, length),
        (concurrency, cell.measured.users.to_string()),
        ("Time taken for tests", format!("{:.3} seconds", cell.seconds)),
        ("Complete requests", cell.ops.to_string()),
        ("Failed requests", cell.faults.count().to_string()),
        ("Keep-Alive requests", http.kept_alive.to_string()),
        (bytes, format!("{} bytes", http.wire_bytes)),
        (html, format!("{} bytes", cell.bytes)),
        ("Requests per seconds", format!("{:.2}", cell.ops_per_s)),
        ("Transfer rate", format!("{:.2} kb/s", http.transfer_rate(cell.seconds))),
    ];
    let mut out = String::new();
    for (name, value) in fields {
        let _ = writeln!(out, "{:<24}{}", format!("{name}:"), value.replace(char::is_control, "?"));
    }
    let then = spelling == Spelling::Then;
    if cell.ops == 0 && !then {
        return out + "\nNo request ended well: there are no times.\n";
    }
    let _ = writeln!(out, "\n{}", if then { "Connnection Times (ms)" } else { "Connection Times (ms)" });
    // Ours has three digits more behind the point.
    let wide = if then { 8 } else { 12 };
    let _ = writeln!(out, "{:<10}{:>wide$}{:>wide$}{:>wide$}", "", "min", "avg", "max");
    let [connect_min, connect_mean, connect_max] = http.connect_ms(cell.ops);
    let times = [
        ("Connect:", connect_min, connect_mean, connect_max),
        ("Total:", http.total_min_ms, cell.latency.mean_ms, cell.latency.max_ms),
    ];
    for (name, min, avg, max) in times {
        let _ = match spelling {
            Spelling::Then => writeln!(out, "{name:<10}{min:>wide$.0}{avg:>wide$.0}{max:>wide$.0}"),
            Spelling::Modern => writeln!(out, "{name:<10}{min:>wide$.3}{avg:>wide$.3}{max:>wide$.3}"),
        };
    }
    if spelling == Spelling::Modern {
        let latency = &cell.latency;
        let _ = writeln!(
            out,
            "Total p50 {:.3}  p90 {:.3}  p99 {:.3}  p99.9 {:.3}; connects of 1 s or more: {}; Jain {}",
            latency.p50_ms,
            latency.p90_ms,
            latency.p99_ms,
            latency.p999_ms,
            http.slow_connects,
            cell.fairness.jain.map_or_else(|| "-".to_owned(), |jain| format!("{jain:.3}"))
        );
        let _ = writeln!(
            out,
            "{:.0} bytes and {:.2} TCP segments (this machine's) a request; CPU us: client {:.1}, server {}",
            http.wire_bytes as f64 / cell.ops.max(1) as f64,
            http.segments_per_response,
            cell.client_us_per_op,
            cell.server_us_per_op.map_or_else(|| "?".to_owned(), |us| format!("{us:.1}"))
        );
    }
    out
}
