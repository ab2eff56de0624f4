//! The report for a terminal: at most 100 columns.

use std::fmt::Write;

use super::command::folded;
use super::summary::{self, UNSEEN};
use super::users::render as render_users;
use super::zb::{self, Spelling};
use super::{CellReport, Report};
use crate::terminal::cut;
use millrace_load::chaos::ChaosReport;
use millrace_load::figure::Fidelity;
use millrace_load::figure::{Commands, TlsFigures};
use millrace_load::histogram::Percentiles;
use millrace_load::ramp_up::RampOutcome;
use millrace_load::series::titled;
use millrace_load::units::{counted, rate, users};
use millrace_load::verdict::Bound;

/// The report; `color` only where a person looks at it (`NO_COLOR`, a pipe).
pub fn render(report: &Report, color: bool) -> String {
    let mut out = String::new();
    let machine = &report.machine;
    let _ = writeln!(out, "{}", cut(&format!("{}: {}", report.titled(), report.summary)));
    let from = format!("{} x {}, {}", machine.cores, machine.processor, machine.kernel);
    let _ = writeln!(out, "{}", cut(&format!("{}, from {from}", report.target)));
    if let Some(server) = &report.server {
        let _ = writeln!(out, "{}", cut(&format!("server: {server}")));
    }
    let _ = writeln!(out, "\n{HEAD}");
    for cell in &report.cells {
        let _ = writeln!(out, "{}", row(cell, color));
    }
    let _ = writeln!(
        out,
        "\nlatencies in ms; us/op: CPU of server and client; fair: least of a user over the median"
    );
    out.push_str(&render_users(report));
    out.push('\n');
    for cell in &report.cells {
        out.push_str(&notes(cell));
    }
    out.push_str(&zb::render(report, Spelling::Modern));
    for table in &report.tables {
        let _ = write!(out, "\n{}", table.render());
    }
    for note in &report.notes {
        let _ = writeln!(out, "{}", cut(&format!("- {note}")));
    }
    for warning in &report.warnings {
        let _ = writeln!(out, "{}", cut(&format!("! {warning}")));
    }
    out.push('\n');
    for sentence in summary::sentences(report) {
        let _ = writeln!(out, "{}", cut(&sentence));
    }
    out + &repeat(&report.command)
}

/// The command that repeats a run, below its report.
pub(crate) fn repeat(command: &str) -> String {
    if command.is_empty() { String::new() } else { format!("\nThe same again:\n{}\n", folded(command)) }
}

const HEAD: &str =
    "what                users     ops/s    MB/s    p50    p99    max   err   us/op s+c  fair verdict";

/// A cell's name: `retr 1k pasv`.
pub(crate) fn name(cell: &CellReport) -> String {
    cell.measured.name()
}

/// Columns of a cell's name, as in [`HEAD`].
const NAME: usize = 19;

/// A cell's name, behind the preset's own for it; one that is too long for its column has a line of its own.
pub(super) fn column(cell: &CellReport) -> String {
    let name = titled(cell);
    match name.chars().count() > NAME {
        true => format!("{}\n{:NAME$}", cut(&name), ""),
        false => format!("{name:NAME$}"),
    }
}

/// A cell in one line, as under [`HEAD`].
pub(crate) fn row(cell: &CellReport, color: bool) -> String {
    let Percentiles { p50_ms, p99_ms, max_ms, .. } = cell.latency;
    let server = cell.server_us_per_op.map_or_else(|| "?".to_owned(), microseconds);
    let verdict = painted(cell.verdict.bound, color);
    let head = format!("{}{:>6}", column(cell), cell.measured.users);
    if cell.measured.op == "idle" {
        let memory = cell
            .pss_kib_per_session
            .map(|kib| format!("{kib:.2} KiB of the server a session"))
            .or_else(|| cell.hides_its_memory().then(|| format!("memory {UNSEEN}")))
            .unwrap_or_default();
        return format!("{head}   {memory:<55} {:>3}", cell.failures());
    }
    if cell.is_empty() {
        // No zeros: nothing of these was measured.
        let failures = cell.failures();
        return format!(
            "{head} {:>9} {:>7} {:>6} {:>6} {:>6} {failures:>5} {:>11} {:>5} {verdict}",
            "-", "-", "-", "-", "-", "-", "-"
        );
    }
    // Of a transfer that is cut off when the time is over only the bytes tell something.
    let of_ops = |text: String| if cell.measured.endless { "-".to_owned() } else { text };
    let fair = cell.fairness.min_over_median;
    format!(
        "{head} {:>9} {:>7} {:>6} {:>6} {:>6} {:>5} {:>11} {:>5} {verdict}",
        of_ops(rate(cell.ops_per_s)),
        rate(cell.mb_per_s),
        of_ops(ms(p50_ms)),
        of_ops(ms(p99_ms)),
        of_ops(ms(max_ms)),
        cell.failures(),
        of_ops(format!("{server}+{}", microseconds(cell.client_us_per_op))),
        fair.map_or_else(|| "-".to_owned(), |fair| format!("{fair:.2}")),
    )
}

/// Microseconds; from ten thousand on, thousands of them.
fn microseconds(us: f64) -> String {
    if us < 9_999.5 { format!("{us:.0}") } else { format!("{:.0}k", us / 1e3) }
}

/// The doubts about a cell besides its row: empty where all is well.
fn notes(cell: &CellReport) -> String {
    let mut lines = Vec::new();
    if cell.verdict.bound != Bound::Unsaturated {
        lines.push(format!("{}: {}", cell.verdict.bound.name(), cell.verdict.evidence.join("; ")));
    }
    lines.extend(cell.thread_choice.as_ref().filter(|threads| threads.by_looks).map(ToString::to_string));
    if let Some(raw) = &cell.raw_latency {
        lines.push(format!(
            "from the real beginning, which hides waiting: p50 {} p99 {} max {}",
            ms(raw.p50_ms),
            ms(raw.p99_ms),
            ms(raw.max_ms)
        ));
    }
    lines.extend(cell.standing.as_ref().map(|standing| standing_line(cell, standing)));
    lines.extend(cell.replay.as_ref().map(|replay| replay_line(cell, replay)));
    lines.extend(cell.tls.as_ref().map(|tls| {
        let TlsFigures { suite, data_handshakes, data_resumed } = tls;
        match (cell.http.is_some(), data_handshakes) {
            (true, 0) => format!("{suite}; no new connections"),
            (true, _) => format!("{suite}; {data_resumed} of {data_handshakes} new connections resumed"),
            (false, _) => format!("{suite}; {data_resumed} of {data_handshakes} data connections resumed"),
        }
    }));
    lines.extend(cell.generators.iter().map(|share| share.words(cell.ops)));
    lines.extend(cell.upload_check.as_ref().map(ToString::to_string));
    let files = cell.measured.files;
    lines.extend(cell.measured.dataset.map(|dataset| format!("{files} test files: {dataset}")));
    lines.extend(cell.commands.as_ref().map(|Commands { ran, behind_s, .. }| {
        format!(
            "{ran} commands ran, the last {behind_s:.1} s after the last transfer, which is in the figure"
        )
    }));
    lines.extend(cell.chaos.as_ref().map(|chaos| chaos_line(cell, chaos)));
    lines.extend(cell.warnings.iter().map(|warning| format!("! {warning}")));
    for kind in cell.faults.kinds() {
        lines.push(format!("! {kind}"));
    }
    if cell.fairness.starved > 0 {
        let fairness = &cell.fairness;
        let jain = fairness.jain.map_or_else(String::new, |jain| format!("; Jain {jain:.3}"));
        lines.push(format!(
            "! {} got less than half of the median: {:?}{jain}",
            counted(fairness.starved as u64, "user"),
            fairness.starved_users
        ));
    }
    let name = titled(cell);
    lines.iter().fold(String::new(), |mut out, line| {
        let _ = writeln!(out, "{}", cut(&format!("{name}, {}: {line}", users(cell.measured.users))));
        out
    })
}

/// The users that were left, in dkftpbench's form.
fn standing_line(cell: &CellReport, standing: &RampOutcome) -> String {
    let mut line = format!("{} left standing of {} that began", users(standing.left), standing.started);
    match &standing.first_death {
        Some(death) => {
            let _ =
                write!(line, "; the first died at {:.1} s, of {}: {}", death.at_s, death.alive, death.why);
        }
        None => line.push_str("; no user died"),
    }
    if let (Some(size), Some(flow)) = (cell.measured.size, &cell.flow) {
        let speed = |ms: f64| rate(size as f64 / ms.max(1e-3) * 1e3);
        let _ = write!(
            line,
            "; {} done, at B/s from the first byte: p1 {} p50 {}; with PASV and RETR: p1 {} p50 {}",
            counted(cell.ops, "download"),
            speed(flow.p99_ms),
            speed(flow.p50_ms),
            speed(cell.latency.p99_ms),
            speed(cell.latency.p50_ms)
        );
    }
    if let Some(lead) = &cell.lead_226 {
        let _ = write!(line, "; the 226 came before the last byte by p50 {} ms", ms(lead.p50_ms));
    }
    let _ = write!(line, "; login p50 {} p99 {}", ms(cell.login.p50_ms), ms(cell.login.p99_ms));
    if !standing.is_settled {
        line.push_str("; ! the time was over before it was quiet");
    }
    line
}

/// How a replay compares with its log.
fn replay_line(cell: &CellReport, replay: &Fidelity) -> String {
    let Fidelity { logged, speed, .. } = replay;
    format!(
        "{} of {} transfers and {:.1} of {:.1} MB, in {:.1} s for {:.1} s of the log ({speed} x); begun late by p50 {} p99 {} \
         max {} ms; at once {}, in the log {}; a transfer took {} ms, in the log {:.1} s; {} of its lines were left out",
        replay.transfers,
        logged.transfers,
        replay.bytes as f64 / 1e6,
        logged.bytes as f64 / 1e6,
        cell.seconds,
        logged.seconds,
        ms(replay.late.p50_ms),
        ms(replay.late.p99_ms),
        ms(replay.late.max_ms),
        replay.most_at_once,
        logged.most_at_once,
        ms(cell.raw_latency.as_ref().map_or(0.0, |raw| raw.mean_ms)),
        logged.mean_seconds,
        logged.skipped
    )
}

/// What misbehaving users did, their cost to the others, and what they leaked.
fn chaos_line(cell: &CellReport, chaos: &ChaosReport) -> String {
    let mut line = format!("p99 {} amid {} bad users", ms(cell.latency.p99_ms), chaos.users);
    if let Some(calm) = chaos.calm_p99_ms {
        let _ = write!(line, ", {} without them", ms(calm));
    }
    let deeds: Vec<_> = chaos
        .deeds
        .iter()
        .map(|deed| {
            format!("{} {} (ended by the server: {})", deed.kind.name(), deed.times, deed.ended_by_server)
        })
        .collect();
    let _ = write!(line, "; {}", deeds.join(", "));
    match (chaos.before, chaos.after) {
        (Some(before), Some(after)) => {
            let kept = match chaos.kept_ports {
                0 => String::new(),
                ports => format!(" ({ports} of them a port that is kept open for the next user)"),
            };
            let _ = write!(
                line,
                "; of the server, before anyone came and {:.1} s after all had left: descriptors {} and {}{kept}, \
                 processes {} and {}, threads {} and {}, MiB {:.1} and {:.1}",
                chaos.settled_s,
                before.descriptors,
                after.descriptors,
                before.processes,
                after.processes,
                before.threads,
                after.threads,
                before.pss_kib as f64 / 1024.0,
                after.pss_kib as f64 / 1024.0
            );
        }
        _ => line.push_str("; without --server-pid a leak cannot be measured"),
    }
    line
}

fn painted(bound: Bound, color: bool) -> String {
    let code = match bound {
        Bound::Server => "32",
        Bound::Unsaturated => "36",
        Bound::Client | Bound::Others | Bound::Unknown => "31",
        Bound::Network | Bound::Disk | Bound::Waiting => "33",
    };
    let name = bound.name().trim_end_matches("-bound");
    if color { format!("\x1b[{code}m{name}\x1b[0m") } else { name.to_owned() }
}

/// A factor in three digits, small ones too.
pub(crate) fn factor(ratio: f64) -> String {
    if ratio < 0.1 { format!("{ratio:.3}") } else { rate(ratio) }
}

/// Milliseconds in at most six columns.
pub(crate) fn ms(value: f64) -> String {
    match value {
        value if value >= 1000.0 => format!("{value:.0}"),
        value if value >= 100.0 => format!("{value:.1}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_fits_a_terminal() {
        assert!(HEAD.len() <= 100);
    }

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!([0.1234, 12.34, 1234.5].map(ms), ["0.123", "12.34", "1234"]);
        assert_eq!([0.0123, 0.5, 12.34].map(factor), ["0.012", "0.50", "12.3"]);
        assert_eq!([0.5, 12.34, 12345.6].map(rate), ["0.50", "12.3", "12346"]);
    }
}
