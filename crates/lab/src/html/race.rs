//! The page of a race.

use super::bars::{self, Bar};
use super::page;
use super::parts::{
    LATENCY, SHARE, capital, curve, documents, facts, figure, folded, grid, list, machine, section, table,
    warnings,
};
use super::plot::{Axis, Scale, Series, interval, lines};
use super::words::{date, escaped, number, of_count, of_ms, of_rate};
use crate::race::text::end;
use crate::race::{Comparison, Outcome, RaceReport, Scenario, Standing, in_a_row};
use crate::report::text::factor;

/// More loads than these are a table rather than pictures.
const MOST_BARS: usize = 12;

const BLOCK: Axis = Axis { label: "block", scale: Scale::Ordinal };

/// The page.
pub fn render(report: &RaceReport) -> String {
    let others: Vec<&str> = report
        .contestants
        .iter()
        .map(|one| one.label.as_str())
        .filter(|label| *label != report.reference())
        .collect();
    let title = format!("{} against {}", in_a_row(&others), report.reference());
    let about = format!("{}: {}. {}.", report.titled(), report.summary, date(report.began));
    let mut body = section("In short", &list("lead card", &report.conclusions));
    body += &section("Every load at a glance", &(glance(report) + &key_to_marks(report)));
    body += &warnings(&report.warnings);
    body += &cost(report);
    body += &report.scenarios.iter().map(|scenario| load(report, scenario)).collect::<String>();
    body += &section("How still the machine kept", &stillness(report));
    body += &documents(&report.tables, &report.notes);
    body += &section("Who took part", &contestants(report));
    let settings = [
        ("blocks", report.blocks.to_string()),
        ("order", format!("drawn anew for every block and load, from seed {}", report.seed)),
        ("intervals", format!("{}, of ratios within a block", report.confidence.name())),
        ("took", format!("{:.0} s", report.seconds)),
        ("measured by", format!("millrace {}", report.version)),
    ];
    body += &machine(&report.machine, &settings, &report.command);
    page("Millrace race", &title, &about, &body)
}

/// The main figure of each load: as bars, and as a table to copy from.
fn glance(report: &RaceReport) -> String {
    let all = matrix(report, &|standing| standing.main());
    let measured: Vec<&Scenario> =
        report.scenarios.iter().filter(|one| one.standings.iter().any(|one| one.main().is_some())).collect();
    if measured.len() > MOST_BARS {
        return all;
    }
    let cards = measured.into_iter().map(|scenario| {
        let bars: Vec<Bar> = scenario.standings.iter().enumerate().map(bar).collect();
        let main = scenario.standings.iter().find_map(Standing::main);
        let better = if main.is_some_and(|main| main.more_is_better) { "more" } else { "less" };
        let unit = main.map_or_else(String::new, |main| format!("{}, {better} is better", main.unit));
        bars::card(&capital(&scenario.title), &unit, &bars)
    });
    grid(&cards.collect::<String>()) + &folded("The same as a table", &all)
}

fn bar((at, standing): (usize, &Standing)) -> Bar {
    let main = standing.main();
    let words = main.map_or_else(
        || "<span class=\"soft\">not measured</span>".to_owned(),
        |main| format!("{} {}", of_rate(main.median), against(main)),
    );
    Bar { name: standing.contestant.clone(), color: at, value: main.map(|main| main.median), words }
}

/// Which of a standing's comparisons a table is about.
type Pick<'a> = &'a dyn Fn(&Standing) -> Option<&Comparison>;

/// Loads down, contestants across; nothing where there is nothing of it.
fn matrix(report: &RaceReport, pick: Pick<'_>) -> String {
    let mut head = vec!["load"];
    head.extend(report.contestants.iter().map(|one| one.label.as_str()));
    let rows = report.scenarios.iter().filter_map(|scenario| {
        let picked: Vec<Option<&Comparison>> = scenario.standings.iter().map(pick).collect();
        let unit = &picked.iter().flatten().next()?.unit;
        let name = format!("{} <small class=\"soft\">{}</small>", escaped(&scenario.title), escaped(unit));
        Some([name].into_iter().chain(picked.into_iter().map(cell)).collect())
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() { String::new() } else { table(&head, &rows) }
}

fn cell(comparison: Option<&Comparison>) -> String {
    let Some(comparison) = comparison else { return "<span class=\"soft\">not measured</span>".to_owned() };
    format!("{}<br>{}", of_rate(comparison.median), against(comparison))
}

/// How many times the reference's it is, with its mark; nothing of the reference itself.
fn against(comparison: &Comparison) -> String {
    comparison.ratio.map_or_else(String::new, |ratio| {
        mark(comparison, &format!("x&thinsp;{}", number(ratio.middle, factor(ratio.middle))))
    })
}

fn mark(comparison: &Comparison, words: &str) -> String {
    let (class, sign) = match comparison.outcome {
        Some(Outcome::Better) => (" better", ""),
        Some(Outcome::Worse) => (" worse", ""),
        Some(Outcome::Unclear) => (" unclear", "&thinsp;?"),
        Some(Outcome::Same) | None => ("", ""),
    };
    format!("<span class=\"mark{class}\">{words}{sign}</span>")
}

fn key_to_marks(report: &RaceReport) -> String {
    format!(
        "<p class=\"small soft\">x: times the figure of {reference} in the same block. \
         <span class=\"mark better\">better</span> <span class=\"mark worse\">worse</span> than {reference}; \
         <span class=\"mark\">the same</span> within {margin:.0}&thinsp;%; \
         <span class=\"mark unclear\">cannot tell&thinsp;?</span>: the figures vary too much.</p>\n",
        reference = escaped(report.reference()),
        margin = report.margin * 100.0
    )
}

/// The cost of an operation: valid even where the client was at its limit.
fn cost(report: &RaceReport) -> String {
    let cpu = matrix(report, &|standing| standing.of("server CPU"));
    let memory = matrix(report, &|standing| standing.of("server memory"));
    let explained = "<p>CPU of the server for an operation, its system calls included. It needs no idle machine \
        and no fast client, so it is the fairest figure where both share one machine.</p>\n";
    let held = "<p>What all its processes hold (PSS: pages that several share are divided among them), looked at once \
        in each block: when the load's last operation had ended, and before those of its users left who were still there. The loads of a block come in \
        an order that is drawn anew, and a server keeps some of what earlier ones made it take: compare the servers in a \
        row, not the rows of a server.</p>\n";
    let mut out = String::new();
    if !cpu.is_empty() {
        out += &section("What an operation costs the server", &(explained.to_owned() + &cpu));
    }
    if !memory.is_empty() {
        out += &section("Memory of the server when the load had ended", &(held.to_owned() + &memory));
    }
    out
}

/// One load in full.
fn load(report: &RaceReport, scenario: &Scenario) -> String {
    let Some(main) = scenario.standings.iter().find_map(Standing::main) else {
        return section(&scenario.title, "<p class=\"card\">No server could be measured.</p>\n");
    };
    let is_idle = scenario.measured.as_ref().is_some_and(|measured| measured.op == "idle");
    let ratio = format!("x of {}", report.reference());
    let mut head = vec!["server", main.unit.as_str(), ratio.as_str(), ""];
    let columns: &[(&str, &str)] = if is_idle { &[] } else { &COLUMNS };
    head.extend(columns.iter().map(|column| column.0));
    head.push("errors");
    let bounds = if is_idle { Vec::new() } else { bounds(report) };
    head.extend(bounds.iter().map(|bound| bound.0));
    let rows = scenario.standings.iter().enumerate().map(|(at, standing)| {
        let mut row = vec![named(at, &standing.contestant)];
        row.extend(main_cells(report, at, standing));
        row.extend(columns.iter().map(|column| standing.of(column.1).map_or_else(|| "-".to_owned(), shown)));
        row.push(of_count(standing.errors));
        row.extend(bounds.iter().map(|(_, blocks)| match standing.blocks_seen() {
            0 => "?".to_owned(),
            seen => format!("{} of {seen}", blocks(standing)),
        }));
        row
    });
    let table = table(&head, &rows.collect::<Vec<_>>());
    let curves: Vec<Series> = scenario
        .standings
        .iter()
        .enumerate()
        .map(|(at, one)| curve(&one.contestant, at, &one.histogram))
        .filter(|series| !series.points.is_empty())
        .collect();
    let rate = Axis { label: &main.unit, scale: Scale::Linear };
    let figures = figure("Latency by percentile", &lines(SHARE, LATENCY, &curves))
        + &figure(
            &format!("{} in each block", capital(&main.metric)),
            &lines(BLOCK, rate, &samples(scenario)),
        );
    section(&capital(&scenario.title), &(table + &grid(&figures)))
}

/// The columns beside the main figure of a load that moves something: heading and metric.
const COLUMNS: [(&str, &str); 5] = [
    ("p99 ms", "p99"),
    ("longest stall ms", "longest stall"),
    ("worst user / median", "fairness"),
    ("server us/op", "server CPU"),
    ("server MiB", "server memory"),
];

/// A column of blocks whose rate is not the server's, and how many these are.
type Bounds = (&'static str, fn(&Standing) -> usize);

/// Others are no matter where they were nowhere in the way.
fn bounds(report: &RaceReport) -> Vec<Bounds> {
    let all: [Bounds; 2] = [
        ("client at its limit", |standing| standing.client_bound),
        ("other programs had the processors", |standing| standing.others_bound),
    ];
    let standings = || report.scenarios.iter().flat_map(|scenario| &scenario.standings);
    let is_told = |(at, bound): &(usize, Bounds)| *at == 0 || standings().any(|one| bound.1(one) > 0);
    all.into_iter().enumerate().filter(is_told).map(|(_, bound)| bound).collect()
}

fn main_cells(report: &RaceReport, at: usize, standing: &Standing) -> [String; 3] {
    let Some(main) = standing.main() else {
        return ["-".to_owned(), String::new(), "<span class=\"mark\">not measured</span>".to_owned()];
    };
    let median = of_rate(main.median);
    let (Some(ratio), Some(outcome)) = (main.ratio, main.outcome) else {
        let is_reference = if at == report.against { "<span class=\"soft\">1</span>" } else { "?" };
        return [median, is_reference.to_owned(), String::new()];
    };
    let words = format!(
        "{} <small class=\"soft\">{} to {}</small>",
        number(ratio.middle, factor(ratio.middle)),
        number(ratio.low, escaped(&end(ratio.low))),
        number(ratio.high, escaped(&end(ratio.high)))
    );
    let picture = interval(ratio.low, ratio.middle, ratio.high, report.margin, at);
    [median, format!("{words}<br>{picture}"), mark(main, outcome.name())]
}

fn shown(comparison: &Comparison) -> String {
    if comparison.unit == "ms" { of_ms(comparison.median) } else { of_rate(comparison.median) }
}

/// With the color that it has in the plots.
fn named(at: usize, label: &str) -> String {
    format!("<span class=\"dot c{}\"><i></i>{}</span>", at % 8, escaped(label))
}

fn samples(scenario: &Scenario) -> Vec<Series> {
    let of = |(at, standing): (usize, &Standing)| {
        let samples = &standing.main()?.samples;
        let points = (1..).zip(samples).filter_map(|(block, sample)| Some((f64::from(block), (*sample)?)));
        Some(Series { name: standing.contestant.clone(), color: at, points: points.collect(), knee: None })
    };
    scenario.standings.iter().enumerate().filter_map(of).collect()
}

fn stillness(report: &RaceReport) -> String {
    let readings = &report.sentinel.readings_ms;
    let points = (0..).zip(readings).map(|(block, reading)| (f64::from(block), *reading)).collect();
    let series = Series { name: "without any server".to_owned(), color: 7, points, knee: None };
    let ms = Axis { label: "ms", scale: Scale::Linear };
    let after = Axis { label: "after so many blocks", scale: Scale::Linear };
    grid(&figure("The same small work between the blocks", &lines(after, ms, &[series])))
}

fn contestants(report: &RaceReport) -> String {
    let rows = report.contestants.iter().map(|one| {
        let version = one.version.as_deref().unwrap_or("ran already");
        let more = [("", &one.model), ("logins: ", &one.auth)]
            .into_iter()
            .filter_map(|(what, said)| Some(format!("; {what}{}", said.as_ref()?)))
            .collect::<String>();
        (one.label.clone(), format!("{version}{more}\n{}", one.argv.join(" ")))
    });
    facts(&rows.collect::<Vec<_>>())
}
