//! The plots of one load: against users, over the share of operations, and over time.

use super::parts::{LATENCY, SHARE, curve, figure};
use super::plot::{Axis, Scale, Series, lines};
use millrace_load::figure::CellReport;
use millrace_load::series::{LoadSeries, knee};
use millrace_load::timeline::Moment;
use millrace_load::units::users;

const USERS: Axis = Axis { label: "users", scale: Scale::Log };
const SECONDS: Axis = Axis { label: "seconds", scale: Scale::Linear };
/// Over time what varies counts, not by what factor.
const MEAN: Axis = Axis { label: "ms", scale: Scale::Linear };
const PER_SECOND: Axis = Axis { label: "operations a second", scale: Scale::Linear };
const MB_PER_SECOND: Axis = Axis { label: "MB a second", scale: Scale::Linear };

const OF_USERS: Axis = Axis { label: "% of the users, who got at most", scale: Scale::Linear };

/// More lines than colors would say nothing.
const MOST_LINES: usize = 8;

/// All of them; nothing where nothing was done.
pub(super) fn figures(load: &LoadSeries<'_>) -> String {
    if load.cells.iter().all(|cell| cell.is_empty()) {
        return String::new();
    }
    let curves = each(load, |cell, name, color| curve(name, color, latencies_of(cell)));
    // A transfer that ends now and then would be a needle, where bytes come all the time.
    let (of_time, unit): (Counted, _) = match load.cells.iter().any(|cell| cell.is_of_bytes()) {
        true => (|moment| moment.bytes as f64 / 1e6, MB_PER_SECOND),
        false => (|moment| moment.ops as f64, PER_SECOND),
    };
    let rates =
        each(load, |cell, name, color| over_time(cell, name, color, &|moments| rates(moments, of_time)));
    let waits = each(load, |cell, name, color| match latencies_of(cell) {
        [] => over_time(cell, name, color, &|_| Vec::new()),
        _ => over_time(cell, name, color, &latencies),
    });
    let shares = each(load, goodput);
    against_users(load)
        + &figure("Latency by percentile", &lines(SHARE, LATENCY, &curves))
        + &figure("Throughput per user, sorted", &lines(OF_USERS, goodput_axis(load), &shares))
        + &figure("Throughput over time", &lines(SECONDS, unit, &rates))
        + &figure("Mean latency over time", &lines(SECONDS, MEAN, &waits))
}

/// Names the lines left out where there are more than can be told apart.
pub(super) fn left_out(load: &LoadSeries<'_>) -> Option<String> {
    let more = load.cells.len().checked_sub(MOST_LINES).filter(|&more| more > 0)?;
    Some(format!("Drawn are the first {MOST_LINES}; {more} more are in the table."))
}

/// A line a figure.
fn each(load: &LoadSeries<'_>, line: impl Fn(&CellReport, &str, usize) -> Series) -> Vec<Series> {
    let many = load.cells.iter().take(MOST_LINES).enumerate().map(|(color, cell)| {
        let measured = &cell.measured;
        let repetition = match measured.repetition {
            0 => String::new(),
            repetition => format!(", repetition {}", repetition + 1),
        };
        line(cell, &format!("{}{repetition}", users(measured.users)), color)
    });
    many.filter(|series| !series.points.is_empty()).collect()
}

fn against_users(load: &LoadSeries<'_>) -> String {
    let line = |name: &str, color: usize, value: &dyn Fn(&CellReport) -> Option<f64>| Series {
        name: name.to_owned(),
        color,
        points: load.by_users(value),
        knee: None,
    };
    let is_endless = load.cells.iter().any(|cell| cell.measured.endless);
    let unit = if is_endless { MB_PER_SECOND } else { PER_SECOND };
    let mut rates = line(unit.label, 0, &|cell| Some(cell.achieved()));
    if rates.points.len() < 2 {
        return String::new();
    }
    rates.knee = knee(&rates.points);
    let waits = [
        line("p50", 2, &|cell| cell.has_operations().then_some(cell.latency.p50_ms)),
        line("p99", 4, &|cell| cell.has_operations().then_some(cell.latency.p99_ms)),
    ];
    let cpu = [
        line("server", 0, &|cell| cell.server_us_per_op),
        line("this client", 7, &|cell| cell.has_operations().then_some(cell.client_us_per_op)),
    ];
    let memory = [line("server, PSS", 3, &|cell| {
        cell.audit.server.as_ref().map(|server| server.pss_kib_after as f64 / 1024.0)
    })];
    let us = Axis { label: "us of CPU for an operation", scale: Scale::Linear };
    let mib = Axis { label: "MiB", scale: Scale::Linear };
    figure("Rate against users; the ring is the knee", &lines(USERS, unit, &[rates]))
        + &figure("Latency against users", &lines(USERS, LATENCY, &waits))
        + &figure("CPU against users", &lines(USERS, us, &cpu))
        + &figure("Memory against users", &lines(USERS, mib, &memory))
}

/// Throughput per user, sorted; empty for a single user.
fn goodput(cell: &CellReport, name: &str, color: usize) -> Series {
    let of = cell.fairness.goodput.as_ref().filter(|_| cell.measured.users > 1);
    let quantiles = of.map_or(&[][..], |goodput| &goodput.quantiles);
    let last = quantiles.len().saturating_sub(1).max(1) as f64;
    let points = (0..).zip(quantiles).map(|(at, &got)| (f64::from(at) / last * 100.0, got)).collect();
    Series { name: name.to_owned(), color, points, knee: None }
}

fn goodput_axis<'a>(load: &LoadSeries<'a>) -> Axis<'a> {
    let goodput = load.cells.iter().find_map(|cell| cell.fairness.goodput.as_ref());
    Axis { label: goodput.map_or("", |goodput| &goodput.unit), scale: Scale::Linear }
}

fn over_time(cell: &CellReport, name: &str, color: usize, points: &dyn Fn(&[Moment]) -> Points) -> Series {
    Series { name: name.to_owned(), color, points: points(&cell.timeline), knee: None }
}

/// Each moment behind the one before; behind the beginning, at which nothing had been done.
fn pairs(timeline: &[Moment]) -> impl Iterator<Item = [Moment; 2]> {
    let before = [Moment::default()].into_iter().chain(timeline.iter().copied());
    before.zip(timeline).map(|(before, now)| [before, *now])
}

/// Places in a plot, from left to right.
type Points = Vec<(f64, f64)>;

/// The counter that a line shows.
type Counted = fn(&Moment) -> f64;

fn rates(timeline: &[Moment], counted: Counted) -> Vec<(f64, f64)> {
    let pairs = pairs(timeline).filter(|pair| pair[1].seconds > pair[0].seconds);
    pairs
        .map(|[before, now]| {
            let more = (counted(&now) - counted(&before)).max(0.0);
            (now.seconds, more / (now.seconds - before.seconds))
        })
        .collect()
}

/// Of operations that tell something.
fn latencies_of(cell: &CellReport) -> &[(u64, u64)] {
    if cell.has_operations() { &cell.histogram } else { &[] }
}

/// The mean of the operations that ended between two moments, in milliseconds.
fn latencies(timeline: &[Moment]) -> Vec<(f64, f64)> {
    let pairs = pairs(timeline).filter(|pair| pair[1].ops > pair[0].ops);
    pairs
        .map(|pair| {
            let waited_us = pair[1].waited_us.saturating_sub(pair[0].waited_us);
            (pair[1].seconds, waited_us as f64 / (pair[1].ops - pair[0].ops) as f64 / 1e3)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_over_time_are_those_between_two_moments() {
        let moment = |seconds, ops, waited_us| Moment { seconds, ops, bytes: 0, faults: 0, waited_us };
        let timeline = [moment(1.0, 10, 5_000), moment(1.5, 60, 105_000), moment(2.0, 60, 105_000)];
        let ops: Counted = |moment| moment.ops as f64;
        assert_eq!(rates(&timeline, ops), [(1.0, 10.0), (1.5, 100.0), (2.0, 0.0)]);
        assert_eq!(latencies(&timeline), [(1.0, 0.5), (1.5, 2.0)]);
    }
}
