//! The report for a page: a table, and what should be known of it.

use std::fmt::Write;

use super::command::folded;
use super::text::ms;
use super::{CellReport, Report, summary};
use millrace_load::series::titled;
use millrace_load::units::{counted, rate, users};

/// The report.
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    let machine = &report.machine;
    let _ = writeln!(out, "**{}**: {}  ", report.titled(), report.summary);
    let _ =
        writeln!(out, "{}, {}, {}\n", report.target, counted(machine.cores as u64, "core"), machine.kernel);
    for sentence in summary::sentences(report) {
        let _ = writeln!(out, "- {sentence}");
    }
    out.push_str(
        "\n| what | users | ops/s | MB/s | p50 ms | p99 ms | max ms | errors | server us/op | verdict |\n",
    );
    out.push_str("|---|--:|--:|--:|--:|--:|--:|--:|--:|---|\n");
    for cell in &report.cells {
        out.push_str(&row(cell));
    }
    for cell in &report.cells {
        let uploads = cell.upload_check.as_ref().map(ToString::to_string);
        let generators = cell.generators.iter().map(|share| share.words(cell.ops));
        for remark in uploads.into_iter().chain(generators).chain(cell.warnings.iter().cloned()) {
            let _ = writeln!(out, "\n- {}, {}: {remark}", titled(cell), users(cell.measured.users));
        }
    }
    out + &repeat(&report.command)
}

/// The command that repeats a run.
pub(crate) fn repeat(command: &str) -> String {
    if command.is_empty() { String::new() } else { format!("\n```\n{}\n```\n", folded(command)) }
}

fn row(cell: &CellReport) -> String {
    let latency = &cell.latency;
    let server = cell.server_us_per_op.map_or_else(String::new, |us| format!("{us:.1}"));
    // No zeros where nothing was measured.
    let known = |text: String| if cell.is_empty() { "-".to_owned() } else { text };
    let of_ops = |text: String| if cell.measured.endless { "-".to_owned() } else { known(text) };
    let columns = [
        titled(cell),
        cell.measured.users.to_string(),
        of_ops(rate(cell.ops_per_s)),
        known(rate(cell.mb_per_s)),
        of_ops(ms(latency.p50_ms)),
        of_ops(ms(latency.p99_ms)),
        of_ops(ms(latency.max_ms)),
        cell.failures().to_string(),
        server,
        cell.verdict.bound.name().to_owned(),
    ];
    format!("| {} |\n", columns.join(" | "))
}
