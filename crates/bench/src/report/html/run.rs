//! The page of `millrace bench`.

use std::collections::BTreeMap;

use super::page;
use super::parts::{
    LATENCY, SHARE, curve, documents, figure, grid, list, machine, of_share, section, table, warnings,
};
use super::plot::{Axis, Scale, Series, lines};
use super::words::{date, escaped, number, of_count, of_ms, of_rate};
use crate::host::verdict::Bound;
use crate::report::text::{ms, name, rate};
use crate::report::{CellReport, Moment, Report};
use crate::stats::median;

const USERS: Axis = Axis { label: "users", scale: Scale::Log };
const SECONDS: Axis = Axis { label: "seconds", scale: Scale::Linear };
const PER_SECOND: Axis = Axis { label: "operations a second", scale: Scale::Linear };

/// More lines than colors would say nothing.
const MOST_LINES: usize = 8;

/// The page.
pub fn render(report: &Report) -> String {
    let title = format!("{} under {}", report.target, report.plan);
    let about = format!("{}. {}.", report.summary, date(report.began));
    let mut body = section("In short", &list("lead card", summary(report)));
    body += &section("Every figure", &every_figure(report));
    body += &warnings(doubts(report));
    for load in loads(report) {
        body += &section(&load.title, &grid(&load.figures()));
    }
    body += &section("What bounded each figure", &bounds(report));
    body += &section("How evenly users were served", &fairness(report));
    body += &documents(&report.tables, &report.notes);
    let settings = [
        ("server", format!("{} at {}", report.target, report.address)),
        ("measured by", format!("millrace {}", report.version)),
    ];
    body += &machine(&report.machine, &settings);
    page("Millrace bench", &title, &about, &body)
}

/// The run in sentences: each load at its best, what went wrong, and what the figures are worth.
fn summary(report: &Report) -> Vec<String> {
    let mut sentences: Vec<String> = loads(report).iter().filter_map(Load::sentence).collect();
    let cells = &report.cells;
    let ops: u64 = cells.iter().map(|cell| cell.ops).sum();
    let faults: u64 = cells.iter().map(|cell| cell.faults.count() + cell.login_faults.count()).sum();
    sentences.push(match faults {
        0 => format!("All {ops} operations ended well."),
        _ if report.has_wrong_data() => {
            format!("The server delivered wrong data: see below. {faults} failures beside {ops} operations.")
        }
        _ => format!("{faults} operations or logins failed beside {ops} that ended well."),
    });
    let bound = |bound| cells.iter().filter(|cell| cell.verdict.bound == bound).count();
    let (all, client) = (cells.len(), bound(Bound::Client));
    sentences.push(match (client, bound(Bound::Server)) {
        (0, 0) => "Nothing was at its limit: more users or a higher rate may get more.".to_owned(),
        (0, server) => format!("The server was at its limit in {server} of {all} figures."),
        (client, _) => format!(
            "In {client} of {all} figures the measuring side was at its limit: the server may be faster than these \
             say."
        ),
    });
    sentences
}

fn doubts(report: &Report) -> Vec<String> {
    let of_cell = |cell: &CellReport| {
        let failures = cell.faults.kinds().map(|kind| {
            format!("{} x {:?}: {}", kind.count, kind.fault, kind.first.first().map_or("", |text| text))
        });
        let all: Vec<String> = cell.warnings.iter().cloned().chain(failures).collect();
        let (name, users) = (name(cell), cell.measured.users);
        all.into_iter().map(move |doubt| format!("{name}, {users} users: {doubt}")).collect::<Vec<_>>()
    };
    report.warnings.iter().cloned().chain(report.cells.iter().flat_map(of_cell)).collect()
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
        let mut row = vec![escaped(&titled(cell)), of_count(u64::from(cell.measured.users))];
        row.extend([cell.ops_per_s, cell.mb_per_s].map(of_rate));
        row.extend(
            [latency.p50_ms, latency.p90_ms, latency.p99_ms, latency.p999_ms, latency.max_ms].map(of_ms),
        );
        row.push(of_count(cell.faults.count()));
        row.push(optional(cell.server_us_per_op));
        row.push(of_rate(cell.client_us_per_op));
        row.push(optional(cell.pss_kib_per_session));
        row.push(format!("<span class=\"mark\">{}</span>", cell.verdict.bound.name()));
        row
    });
    table(&head, &rows.collect::<Vec<_>>())
}

fn titled(cell: &CellReport) -> String {
    match &cell.measured.label {
        Some(label) => format!("{label}: {}", name(cell)),
        None => name(cell),
    }
}

/// Figures that differ in the number of users, or in nothing.
struct Load<'a> {
    title: String,
    cells: Vec<&'a CellReport>,
}

/// In the order in which they were taken; without idle sessions, of which there is nothing to draw.
fn loads(report: &Report) -> Vec<Load<'_>> {
    let mut loads: Vec<Load<'_>> = Vec::new();
    for cell in &report.cells {
        let title = titled(cell);
        match loads.iter_mut().find(|load| load.title == title) {
            Some(load) => load.cells.push(cell),
            None => loads.push(Load { title, cells: vec![cell] }),
        }
    }
    loads
}

impl Load<'_> {
    /// The best of it, for who reads nothing else.
    fn sentence(&self) -> Option<String> {
        let best = self.cells.iter().max_by(|one, other| one.ops_per_s.total_cmp(&other.ops_per_s))?;
        let users = best.measured.users;
        if best.measured.op == "idle" {
            let kib = best.pss_kib_per_session?;
            return Some(format!("An idle session costs the server {} KiB of memory.", rate(kib)));
        }
        if best.ops == 0 {
            return Some(format!("{}: no operation ended well.", self.title));
        }
        let moved = if best.bytes > 0 { format!(", {} MB/s", rate(best.mb_per_s)) } else { String::new() };
        let knee = self.knee().map_or_else(String::new, |users| {
            format!(" {users} users get nine tenths of that already: more of them only wait longer.")
        });
        Some(format!(
            "{}: {} a second by {users} user{}{moved}; half of them took at most {} ms, 99 of 100 at most {} ms.{knee}",
            self.title,
            rate(best.ops_per_s),
            if users == 1 { "" } else { "s" },
            ms(best.latency.p50_ms),
            ms(best.latency.p99_ms)
        ))
    }

    /// The fewest users that get nine tenths of the highest rate, where more were tried than these.
    fn knee(&self) -> Option<u32> {
        let rates = self.by_users(&|cell| Some(cell.ops_per_s));
        let at = knee(&rates)?;
        Some(rates[at].0 as u32)
    }

    /// Medians over the repetitions, from few users to many.
    fn by_users(&self, value: &dyn Fn(&CellReport) -> Option<f64>) -> Vec<(f64, f64)> {
        let mut values: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for cell in &self.cells {
            values.entry(cell.measured.users).or_default().extend(value(cell));
        }
        let middles =
            values.into_iter().filter_map(|(users, values)| Some((f64::from(users), median(&values)?)));
        middles.collect()
    }

    fn figures(&self) -> String {
        if self.cells.iter().all(|cell| cell.ops == 0) {
            return String::new();
        }
        let curves = self.each(|cell, name, color| curve(name, color, &cell.histogram));
        let rates = self.each(|cell, name, color| over_time(cell, name, color, rates));
        let waits = self.each(|cell, name, color| over_time(cell, name, color, latencies));
        self.against_users()
            + &figure("Latency: of the fast and of the slow", &lines(SHARE, LATENCY, &curves))
            + &figure("Throughput over time", &lines(SECONDS, PER_SECOND, &rates))
            + &figure("Mean latency over time", &lines(SECONDS, LATENCY, &waits))
    }

    /// A line a figure.
    fn each(&self, line: impl Fn(&CellReport, &str, usize) -> Series) -> Vec<Series> {
        let many = self.cells.iter().take(MOST_LINES).enumerate().map(|(color, cell)| {
            let measured = &cell.measured;
            let repetition = match measured.repetition {
                0 => String::new(),
                repetition => format!(" (again, {})", repetition + 1),
            };
            line(cell, &format!("{} users{repetition}", measured.users), color)
        });
        many.filter(|series| !series.points.is_empty()).collect()
    }

    fn against_users(&self) -> String {
        let line = |name: &str, color: usize, value: &dyn Fn(&CellReport) -> Option<f64>| Series {
            name: name.to_owned(),
            color,
            points: self.by_users(value),
            knee: None,
        };
        let mut rates = line("operations a second", 0, &|cell| Some(cell.ops_per_s));
        if rates.points.len() < 2 {
            return String::new();
        }
        rates.knee = knee(&rates.points);
        let waits = [
            line("p50", 2, &|cell| Some(cell.latency.p50_ms)),
            line("p99", 4, &|cell| Some(cell.latency.p99_ms)),
        ];
        let cpu = [
            line("server", 0, &|cell| cell.server_us_per_op),
            line("this client", 7, &|cell| Some(cell.client_us_per_op)),
        ];
        let memory = [line("server, PSS", 3, &|cell| {
            cell.audit.server.as_ref().map(|server| server.pss_kib_after as f64 / 1024.0)
        })];
        let us = Axis { label: "us of CPU for an operation", scale: Scale::Linear };
        let mib = Axis { label: "MiB", scale: Scale::Linear };
        figure("Rate against users; the ring is the knee", &lines(USERS, PER_SECOND, &[rates]))
            + &figure("Latency against users", &lines(USERS, LATENCY, &waits))
            + &figure("CPU against users", &lines(USERS, us, &cpu))
            + &figure("Memory against users", &lines(USERS, mib, &memory))
    }
}

/// Where a curve that rises with the users becomes flat; `None` where its last point is needed.
fn knee(rates: &[(f64, f64)]) -> Option<usize> {
    let most = rates.iter().map(|point| point.1).fold(0.0, f64::max);
    rates.iter().position(|point| point.1 >= most * 0.9).filter(|at| at + 1 < rates.len())
}

fn over_time(
    cell: &CellReport,
    name: &str,
    color: usize,
    points: fn(&[Moment]) -> Vec<(f64, f64)>,
) -> Series {
    Series { name: name.to_owned(), color, points: points(&cell.timeline), knee: None }
}

fn rates(timeline: &[Moment]) -> Vec<(f64, f64)> {
    let pairs = timeline.windows(2).filter(|pair| pair[1].seconds > pair[0].seconds);
    pairs
        .map(|pair| {
            let ended = pair[1].ops.saturating_sub(pair[0].ops);
            (pair[1].seconds, ended as f64 / (pair[1].seconds - pair[0].seconds))
        })
        .collect()
}

/// The mean of the operations that ended between two moments, in milliseconds.
fn latencies(timeline: &[Moment]) -> Vec<(f64, f64)> {
    let pairs = timeline.windows(2).filter(|pair| pair[1].ops > pair[0].ops);
    pairs
        .map(|pair| {
            let waited_us = pair[1].waited_us.saturating_sub(pair[0].waited_us);
            (pair[1].seconds, waited_us as f64 / (pair[1].ops - pair[0].ops) as f64 / 1e3)
        })
        .collect()
}

/// The self-audit: the verdict of each figure, and what it stands on.
fn bounds(report: &Report) -> String {
    let head = [
        "load",
        "users",
        "verdict",
        "client's busiest thread",
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
            of_share(audit.client.busiest_thread),
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
        format!("{}, {} users: {bound}: {evidence}", titled(cell), cell.measured.users)
    });
    table(&head, &rows.collect::<Vec<_>>()) + &list("small soft", reasons)
}

fn fairness(report: &Report) -> String {
    let head =
        ["load", "users", "Jain's index", "worst user / median", "starved", "longest stall ms", "of user"];
    let rows = report.cells.iter().filter(|cell| cell.ops > 0 && cell.measured.users > 1).map(|cell| {
        let fairness = &cell.fairness;
        vec![
            escaped(&titled(cell)),
            of_count(u64::from(cell.measured.users)),
            number(fairness.jain, format!("{:.3}", fairness.jain)),
            number(fairness.min_over_median, format!("{:.2}", fairness.min_over_median)),
            of_count(fairness.starved as u64),
            of_ms(fairness.longest_wait_ms),
            of_count(u64::from(fairness.longest_waiting_user)),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() { String::new() } else { table(&head, &rows) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knee_is_where_more_users_get_no_more() {
        let rates = [(1.0, 10.0), (10.0, 95.0), (100.0, 100.0), (1000.0, 80.0)];
        assert_eq!(knee(&rates), Some(1));
        assert_eq!(knee(&rates[..2]), None, "it still rises");
        assert_eq!(knee(&[]), None);
    }

    #[test]
    fn rates_over_time_are_those_between_two_moments() {
        let moment = |seconds, ops, waited_us| Moment { seconds, ops, bytes: 0, faults: 0, waited_us };
        let timeline = [moment(1.0, 10, 5_000), moment(1.5, 60, 105_000), moment(2.0, 60, 105_000)];
        assert_eq!(rates(&timeline), [(1.5, 100.0), (2.0, 0.0)]);
        assert_eq!(latencies(&timeline), [(1.5, 2.0)]);
    }
}
