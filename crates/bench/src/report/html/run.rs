//! The page of `millrace bench`.

use super::page;
use super::parts::{documents, grid, list, machine, of_shares, section, table, warnings};
use super::pictures::{figures, left_out};
use super::words::{date, escaped, number, of_count, of_ms, of_rate};
use crate::host::verdict::Bound;
use crate::report::load::{loads, titled};
use crate::report::text::users;
use crate::report::{CellReport, Report, Set, summary};

/// The page.
pub fn render(report: &Report) -> String {
    let title = format!("{} under {}", report.target, report.titled());
    let about = format!("{}. {}.", report.summary, date(report.began));
    let mut body = section("In short", &list("lead card", summary::sentences(report)));
    body += &section("Every figure", &every_figure(report));
    body += &warnings(doubts(report));
    for load in loads(report) {
        let left_out = left_out(&load).map(|said| list("soft", [said])).unwrap_or_default();
        body += &section(&load.title, &(grid(&figures(&load)) + &left_out));
    }
    body += &section("What bounded each figure", &bounds(report));
    body += &section("What the server had", &server(report));
    body += &section("What single users got", &fairness(report));
    let remarks = remarks(report);
    if !remarks.is_empty() {
        body += &section("To be known besides", &list("soft", remarks));
    }
    body += &documents(&report.tables, &report.notes);
    body += &machine(&report.machine, &settings(report));
    page("Millrace bench", &title, &about, &body)
}

/// Where, by what, and how it was measured.
fn settings(report: &Report) -> Vec<(&'static str, String)> {
    let mut settings = vec![("server", format!("{} at {}", report.target, report.address))];
    settings.extend(report.server.clone().map(|command| ("its command", command)));
    settings.push(("measured by", format!("millrace {}", report.version)));
    settings.extend(report.settings().into_iter().map(|Set { load, said }| match load {
        Some(load) => ("beside that", format!("{load}: {said}")),
        None => ("settings", said),
    }));
    settings
}

fn doubts(report: &Report) -> Vec<String> {
    let of_cell = |cell: &CellReport| {
        let failures = cell.faults.kinds().map(ToString::to_string);
        let all: Vec<String> = cell.warnings.iter().cloned().chain(failures).collect();
        let (name, users) = (titled(cell), users(cell.measured.users));
        all.into_iter().map(move |doubt| format!("{name}, {users}: {doubt}")).collect::<Vec<_>>()
    };
    report.warnings.iter().cloned().chain(report.cells.iter().flat_map(of_cell)).collect()
}

/// What is no doubt, and belongs to a figure.
fn remarks(report: &Report) -> Vec<String> {
    let of_cell = |cell: &CellReport| {
        let dataset =
            cell.measured.dataset.map(|dataset| format!("{} test files: {dataset}", cell.measured.files));
        let uploads = cell.upload_check.as_ref().map(ToString::to_string);
        let (name, users) = (titled(cell), users(cell.measured.users));
        dataset.into_iter().chain(uploads).map(move |remark| format!("{name}, {users}: {remark}"))
    };
    report.cells.iter().flat_map(of_cell).collect()
}

fn every_figure(report: &Report) -> String {
    let head = [
        "load",
        "users",
        "ops/s",
        "MB/s",
        "p50 ms",
        "p90",
        "p99",
        "p99.9",
        "max",
        "errors",
        "server us/op",
        "client us/op",
        "KiB/session",
        "limit",
    ];
    let optional = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), of_rate);
    let rows = report.cells.iter().map(|cell| {
        let latency = &cell.latency;
        let nothing = || "-".to_owned();
        // No zeros where nothing was measured, and of what was cut off only its bytes.
        let of_ops = |shown: String| if cell.has_operations() { shown } else { nothing() };
        let mut row = vec![escaped(&titled(cell)), of_count(u64::from(cell.measured.users))];
        row.push(of_ops(of_rate(cell.ops_per_s)));
        row.push(if cell.bytes > 0 { of_rate(cell.mb_per_s) } else { nothing() });
        row.extend(
            [latency.p50_ms, latency.p90_ms, latency.p99_ms, latency.p999_ms, latency.max_ms]
                .map(|ms| of_ops(of_ms(ms))),
        );
        let logins = match cell.login_faults.count() {
            0 => String::new(),
            logins => format!(" + {} at login", of_count(logins)),
        };
        row.push(of_count(cell.faults.count()) + &logins);
        row.push(of_ops(optional(cell.server_us_per_op)));
        row.push(of_ops(of_rate(cell.client_us_per_op)));
        row.push(optional(cell.pss_kib_per_session));
        row.push(format!("<span class=\"mark\">{}</span>", cell.verdict.bound.name()));
        row
    });
    table(&head, &rows.collect::<Vec<_>>())
}

/// The self-audit: the verdict of each figure, and what it stands on.
fn bounds(report: &Report) -> String {
    let head = [
        "load",
        "users",
        "verdict",
        "client's threads",
        "client by processor",
        "machine by processor",
        "late by ms (p99)",
        "server processors",
        "Little",
        "TIME_WAIT",
        "SYN again",
        "backlog drops",
    ];
    let rows = report.cells.iter().map(|cell| {
        let audit = &cell.audit;
        let evidence = escaped(&cell.verdict.evidence.join("; "));
        vec![
            escaped(&titled(cell)),
            of_count(u64::from(cell.measured.users)),
            format!("<span class=\"mark\" title=\"{evidence}\">{}</span>", cell.verdict.bound.name()),
            of_shares(&audit.client.threads),
            of_shares(&audit.client.cores),
            of_shares(&audit.cores_busy),
            of_ms(audit.client.lag_p99_ms),
            audit.server.as_ref().map_or_else(
                || "?".to_owned(),
                |server| format!("{:.2}", server.cpu_seconds / audit.seconds.max(1e-9)),
            ),
            cell.little.map_or_else(|| "-".to_owned(), |little| number(little, format!("{little:.2}"))),
            of_count(audit.network.time_wait),
            of_count(audit.network.syn_retransmitted),
            of_count(audit.network.listen_drops),
        ]
    });
    let reasons = report.cells.iter().filter(|cell| cell.verdict.bound != Bound::Unsaturated).map(|cell| {
        let (bound, evidence) = (cell.verdict.bound.name(), cell.verdict.evidence.join("; "));
        format!("{}, {}: {bound}: {evidence}", titled(cell), users(cell.measured.users))
    });
    table(&head, &rows.collect::<Vec<_>>()) + &list("small soft", reasons)
}

/// What its processes used and held, where they are known.
fn server(report: &Report) -> String {
    let head = [
        "load",
        "users",
        "processes",
        "threads",
        "descriptors",
        "context switches",
        "KiB (PSS) before",
        "logged in",
        "at the end",
        "KiB (RSS) at most",
    ];
    let rows = report.cells.iter().filter_map(|cell| {
        let server = cell.audit.server.as_ref()?;
        let had = [
            u64::from(cell.measured.users),
            server.processes,
            server.threads,
            server.descriptors,
            server.context_switches,
            server.pss_kib_before,
            server.pss_kib_logged_in,
            server.pss_kib_after,
            server.rss_kib_peak,
        ];
        Some([escaped(&titled(cell))].into_iter().chain(had.map(of_count)).collect())
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() { String::new() } else { table(&head, &rows) }
}

/// What single users got, and for how long they waited.
fn fairness(report: &Report) -> String {
    let head = [
        "load",
        "users",
        "a user got",
        "at least",
        "median",
        "at most",
        "worst user / median",
        "Jain's index",
        "starved",
        "longest operation ms",
        "of user",
        "longest byte gap ms (p99)",
        "the longest",
        "of user",
    ];
    let rows = report.cells.iter().filter_map(|cell| {
        let fairness = &cell.fairness;
        let goodput = fairness.goodput.as_ref()?;
        let gap = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), of_ms);
        let mut row = vec![escaped(&titled(cell)), of_count(u64::from(cell.measured.users))];
        row.push(escaped(&goodput.unit));
        row.extend([goodput.min, goodput.median, goodput.max].map(of_rate));
        let of_one = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "-".to_owned(), |value| number(value, format!("{value:.digits$}")))
        };
        row.extend([of_one(fairness.min_over_median, 2), of_one(fairness.jain, 3)]);
        row.push(of_count(fairness.starved as u64));
        row.push(of_ms(fairness.longest_wait_ms));
        row.push(of_count(u64::from(fairness.longest_waiting_user)));
        row.extend([cell.gap.map(|gap| gap.p99_ms), cell.gap.map(|_| fairness.longest_gap_ms)].map(gap));
        row.push(match cell.gap {
            Some(_) => of_count(u64::from(fairness.longest_gap_user)),
            None => "-".to_owned(),
        });
        Some(row)
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() { String::new() } else { table(&head, &rows) }
}
