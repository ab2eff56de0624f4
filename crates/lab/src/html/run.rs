//! The page of `millrace bench`.

use super::page;
use super::parts::{capital, documents, folded, grid, list, machine, of_shares, section, table, warnings};
use super::pictures::{figures, left_out};
use super::words::{date, escaped, number, of_count, of_ms, of_rate};
use crate::report::{Report, Set, summary};
use millrace_load::figure::CellReport;
use millrace_load::series::loads;
use millrace_load::units::users;
use millrace_load::verdict::Bound;

/// More loads than these have no large numbers: the table has them all.
const MOST_TILES: usize = 8;

/// The page.
pub fn render(report: &Report) -> String {
    let title = format!("{} under {}", report.target, report.titled());
    let about = format!("{}. {}.", report.summary, date(report.began));
    let mut body = section("In short", &(tiles(report) + &list("lead card", summary::sentences(report))));
    body += &section("Every figure", &every_figure(report));
    body += &warnings(doubts(report));
    for load in loads(&report.cells) {
        let left_out = left_out(&load).map(|said| list("soft", [said])).unwrap_or_default();
        let title = load.cells.first().map_or_else(String::new, |cell| heading(cell));
        body += &section(&title, &(grid(&figures(&load)) + &left_out));
    }
    body += &section("What bounded each figure", &bounds(report));
    body += &section("What the server had, and what single users got", &details(report));
    let remarks = remarks(report);
    if !remarks.is_empty() {
        body += &section("To be known besides", &list("soft", remarks));
    }
    body += &documents(&report.tables, &report.notes);
    body += &machine(&report.machine, &settings(report), &report.command);
    page("Millrace bench", &title, &about, &body)
}

/// A figure's load, without its users, as a heading.
fn heading(cell: &CellReport) -> String {
    capital(&cell.measured.words())
}

/// Wide tables, for who looks for something.
fn details(report: &Report) -> String {
    let held = "<p class=\"small soft\">At the end: when the last operation had ended, and before the users left. A server keeps \
        some of what earlier loads made it take.</p>\n";
    let server = server(report);
    let server = if server.is_empty() { server } else { server + held };
    folded("What the server had", &server) + &folded("What single users got", &fairness(report))
}

/// Where, by what, and how it was measured.
fn settings(report: &Report) -> Vec<(&'static str, String)> {
    let mut settings = vec![("server", format!("{} at {}", report.target, report.address))];
    settings.extend(report.server.clone().map(|command| ("its command", command)));
    settings.push(("measured by", format!("millrace {}", report.version)));
    settings.extend(report.settings().into_iter().map(|Set { load, said }| match load {
        Some(load) => ("in addition", format!("{load}: {said}")),
        None => ("settings", said),
    }));
    settings
}

fn doubts(report: &Report) -> Vec<String> {
    let of_cell = |cell: &CellReport| {
        let failures = cell.faults.kinds().map(ToString::to_string);
        let all: Vec<String> = cell.warnings.iter().cloned().chain(failures).collect();
        let (name, users) = (heading(cell), users(cell.measured.users));
        all.into_iter().map(move |doubt| format!("{name}, {users}: {doubt}")).collect::<Vec<_>>()
    };
    report.warnings.iter().cloned().chain(report.cells.iter().flat_map(of_cell)).collect()
}

/// Remarks that belong to a figure and cast no doubt on it.
fn remarks(report: &Report) -> Vec<String> {
    let of_cell = |cell: &CellReport| {
        let dataset =
            cell.measured.dataset.map(|dataset| format!("{} test files: {dataset}", cell.measured.files));
        let uploads = cell.upload_check.as_ref().map(ToString::to_string);
        let (name, users) = (heading(cell), users(cell.measured.users));
        let generators = cell.generators.iter().map(|share| share.words(cell.ops));
        let all: Vec<String> = dataset.into_iter().chain(uploads).chain(generators).collect();
        all.into_iter().map(move |remark| format!("{name}, {users}: {remark}"))
    };
    report.cells.iter().flat_map(of_cell).collect()
}

/// A column of figures: its heading, and a cell of it as markup.
type Column = (&'static str, fn(&CellReport) -> String);

/// The columns that readers look for first.
const FIRST: [Column; 8] = [
    ("users", |cell| of_count(u64::from(cell.measured.users))),
    ("ops/s", |cell| of_ops(cell, cell.ops_per_s, of_rate)),
    ("MB/s", |cell| if cell.bytes > 0 { of_rate(cell.mb_per_s) } else { nothing() }),
    ("p50 ms", |cell| of_ops(cell, cell.latency.p50_ms, of_ms)),
    ("p99 ms", |cell| of_ops(cell, cell.latency.p99_ms, of_ms)),
    ("errors", errors),
    ("server us/op", |cell| optional(cell.server_us_per_op.filter(|_| cell.has_operations()))),
    ("limit", |cell| format!("<span class=\"mark\">{}</span>", cell.verdict.bound.name())),
];

/// And what else was counted.
const BESIDES: [Column; 7] = [
    ("users", |cell| of_count(u64::from(cell.measured.users))),
    ("p90 ms", |cell| of_ops(cell, cell.latency.p90_ms, of_ms)),
    ("p99.9", |cell| of_ops(cell, cell.latency.p999_ms, of_ms)),
    ("max", |cell| of_ops(cell, cell.latency.max_ms, of_ms)),
    ("client us/op", |cell| of_ops(cell, cell.client_us_per_op, of_rate)),
    ("KiB of the server/session", |cell| optional(cell.pss_kib_per_session)),
    ("seconds", |cell| number(cell.seconds, format!("{:.1}", cell.seconds))),
];

fn every_figure(report: &Report) -> String {
    let all = |columns: &[Column]| {
        let head: Vec<&str> = ["load"].into_iter().chain(columns.iter().map(|column| column.0)).collect();
        let mut above = String::new();
        let row = |cell: &CellReport| {
            // Repetitions, and more users, stand below the load's name.
            let name = Some(heading(cell)).filter(|name| *name != above);
            let shown = name.as_deref().map(escaped).unwrap_or_default();
            above = name.unwrap_or_else(|| std::mem::take(&mut above));
            let cells = columns.iter().map(|column| column.1(cell));
            [shown].into_iter().chain(cells).collect()
        };
        table(&head, &report.cells.iter().map(row).collect::<Vec<Vec<String>>>())
    };
    all(&FIRST) + &folded("More of each figure", &all(&BESIDES))
}

/// No zeros where nothing was measured, and of what was cut off only its bytes.
fn of_ops(cell: &CellReport, value: f64, shown: fn(f64) -> String) -> String {
    if cell.has_operations() { shown(value) } else { nothing() }
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(nothing, of_rate)
}

fn nothing() -> String {
    "-".to_owned()
}

fn errors(cell: &CellReport) -> String {
    let logins = match cell.login_faults.count() {
        0 => String::new(),
        logins => format!(" + {} at login", of_count(logins)),
    };
    of_count(cell.faults.count()) + &logins
}

/// Each load's best figure in large: what one remembers.
fn tiles(report: &Report) -> String {
    let loads = loads(&report.cells);
    if loads.len() > MOST_TILES {
        return String::new();
    }
    let tiles: String = loads.iter().filter_map(|load| tile(load.best()?.0)).collect();
    if tiles.is_empty() { tiles } else { format!("<div class=\"tiles\">\n{tiles}</div>\n") }
}

fn tile(cell: &CellReport) -> Option<String> {
    let measured = &cell.measured;
    let count = users(measured.users);
    let (value, unit) = match (&cell.standing, cell.pss_kib_per_session) {
        (Some(standing), _) => (of_count(u64::from(standing.left)), format!("of {count} left standing")),
        (None, Some(kib)) => (of_rate(kib), "KiB of the server a session".to_owned()),
        _ if measured.op == "idle" || cell.is_empty() => return None,
        _ if cell.is_of_bytes() => (of_rate(cell.mb_per_s), "MB a second".to_owned()),
        _ => (of_rate(cell.ops_per_s), "a second".to_owned()),
    };
    let latency = match cell.has_operations() {
        true => format!(", 99 of 100 within {} ms", of_ms(cell.latency.p99_ms)),
        false => String::new(),
    };
    let failed = match cell.failures() {
        0 => String::new(),
        _ => format!(", <b>{} failed</b>", of_count(cell.failures())),
    };
    let name = escaped(&heading(cell));
    Some(format!(
        "<div class=\"card tile\"><p class=\"small soft\">{name}</p><p class=\"big\">{value} <small>{unit}</small></p>\
         <p class=\"small soft\">{count}{latency}{failed}</p></div>\n"
    ))
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
            escaped(&heading(cell)),
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
        format!("{}, {}: {bound}: {evidence}", heading(cell), users(cell.measured.users))
    });
    let reasons = list("", reasons);
    reasons + &folded("What this client and its machine did", &table(&head, &rows.collect::<Vec<_>>()))
}

/// The use of resources by its processes, where they are known.
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
        Some([escaped(&heading(cell))].into_iter().chain(had.map(of_count)).collect())
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() { String::new() } else { table(&head, &rows) }
}

/// The service of single users, and their longest waits.
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
        let mut row = vec![escaped(&heading(cell)), of_count(u64::from(cell.measured.users))];
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
