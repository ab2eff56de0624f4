//! A race for a terminal (at most 100 columns) and for a page.

use std::fmt::Write;

use super::{Comparison, Outcome, RaceReport, Scenario, Standing};
use crate::report::text::{ms, repeat};
use crate::report::{form, markdown};
use crate::terminal::cut;
use millrace_load::units::{counted, rate};
use millrace_stats::Interval;

/// The race; `color` only where a person looks at it (`NO_COLOR`, a pipe).
pub fn render(report: &RaceReport, color: bool) -> String {
    let mut out = String::new();
    let machine = &report.machine;
    let _ = writeln!(out, "{}", cut(&format!("{}: {}", report.titled(), report.summary)));
    let _ = writeln!(
        out,
        "{}",
        cut(&format!(
            "{} blocks in random order (seed {}), {} x {}, {}",
            report.blocks, report.seed, machine.cores, machine.processor, machine.kernel
        ))
    );
    for contestant in &report.contestants {
        let version = contestant.version.as_deref().unwrap_or("runs already");
        let auth = contestant.auth.as_ref().map_or_else(String::new, |auth| format!("; logins: {auth}"));
        let _ = writeln!(out, "{}", cut(&format!("  {} {version}{auth}", contestant.label)));
    }
    for scenario in &report.scenarios {
        let _ = write!(out, "\n{}", table(report, scenario, color));
    }
    let _ = writeln!(
        out,
        "\nx: over {} of the same block, and the {} interval; \"same\" is within {:.0} %",
        report.reference(),
        report.confidence.name(),
        report.margin * 100.0
    );
    for table in &report.tables {
        let _ = write!(out, "\n{}", table.render());
    }
    for note in &report.notes {
        let _ = writeln!(out, "{}", cut(&format!("- {note}")));
    }
    out.push('\n');
    for conclusion in &report.conclusions {
        let _ = writeln!(out, "{}", cut(conclusion));
    }
    for warning in &report.warnings {
        let _ = writeln!(out, "{}", cut(&format!("! {warning}")));
    }
    out + &repeat(&report.command)
}

/// Columns of a load's name, and of a server's.
const NAME: usize = 28;
/// Columns of a ratio: `12.34 [0.20->100] cannot tell`.
const RATIO: usize = 29;

fn table(report: &RaceReport, scenario: &Scenario, color: bool) -> String {
    let unit = scenario.standings.iter().find_map(Standing::main).map_or("", |main| &main.unit);
    // Loads differ at the end of their names: a name that is too long has a line of its own.
    let (above, beside) = match scenario.name.chars().count() < NAME {
        true => (String::new(), &scenario.name[..]),
        false => (cut(&scenario.name) + "\n", ""),
    };
    let mut out = above;
    let _ =
        writeln!(out, "{beside:<NAME$}{:>9}  {:<RATIO$} {:>8} {:>9}  errors", unit, "  x", "p99 ms", "us/op");
    for (at, standing) in scenario.standings.iter().enumerate() {
        let value = |name: &str| standing.of(name).map(|comparison| comparison.median);
        let main = standing.main();
        let ratio = match main {
            _ if at == report.against => "  1".to_owned(),
            Some(main) => in_words(main, color),
            None => "not measured".to_owned(),
        };
        let width = RATIO + ratio.len() - visible(&ratio);
        let _ = writeln!(
            out,
            "  {:<26}{:>9}  {ratio:<width$} {:>8} {:>9}  {}",
            clipped(&standing.contestant, 26),
            main.map_or_else(|| "-".to_owned(), |main| rate(main.median)),
            value("p99").map_or_else(|| "-".to_owned(), ms),
            value("server CPU").map_or_else(|| "?".to_owned(), rate),
            standing.errors,
        );
    }
    out
}

/// `1.31 [1.22-1.40] better`.
fn in_words(comparison: &Comparison, color: bool) -> String {
    let (Some(ratio), Some(outcome)) = (comparison.ratio, comparison.outcome) else { return "?".to_owned() };
    let code = match outcome {
        Outcome::Better => "32",
        Outcome::Worse => "31",
        Outcome::Same | Outcome::Unclear => "36",
    };
    let name =
        if color { format!("\x1b[{code}m{}\x1b[0m", outcome.name()) } else { outcome.name().to_owned() };
    format!("{:.2} [{}] {name}", ratio.middle, ends(comparison).unwrap_or_default())
}

/// `1.22-1.40`; `None` where the interval is too wide.
fn ends(comparison: &Comparison) -> Option<String> {
    let ratio = comparison.ratio?;
    Some(format!("{}-{}", end(ratio.low), end(ratio.high)))
}

/// An end of an interval: two samples can give one that says nothing, and has sixteen digits.
pub(crate) fn end(value: f64) -> String {
    match value {
        value if value >= 100.0 => ">100".to_owned(),
        value if value >= 10.0 => format!("{value:.0}"),
        // An end that is not 1 is not to look like it: it is what the outcome hangs on.
        value if value != 1.0 && (value - 1.0).abs() < 0.005 => format!("{value:.3}"),
        value => format!("{value:.2}"),
    }
}

/// The width on a terminal, without color codes.
fn visible(text: &str) -> usize {
    text.split('\x1b')
        .enumerate()
        .map(|(at, part)| if at == 0 { part.len() } else { part.len() - after_code(part) })
        .sum()
}

fn after_code(part: &str) -> usize {
    part.find('m').map_or(0, |at| at + 1)
}

fn clipped(text: &str, width: usize) -> String {
    match text.chars().count() < width {
        true => text.to_owned(),
        false => text.chars().take(width - 2).chain(['~']).collect(),
    }
}

/// The race as a table for a page.
pub fn markdown(report: &RaceReport) -> String {
    let mut out = String::new();
    let machine = &report.machine;
    let _ = writeln!(out, "**{}**: {}  ", report.titled(), report.summary);
    let _ = writeln!(
        out,
        "{} blocks, seed {}; {}, {}, {}\n",
        report.blocks,
        report.seed,
        counted(machine.cores as u64, "core"),
        machine.processor,
        machine.kernel
    );
    for conclusion in &report.conclusions {
        let _ = writeln!(out, "- {conclusion}");
    }
    let _ = writeln!(
        out,
        "\n| load | server | median | x {} | {} interval | outcome | p99 ms | server us/op | errors |",
        report.reference(),
        report.confidence.name()
    );
    out.push_str("|---|---|--:|--:|--:|---|--:|--:|--:|\n");
    for scenario in &report.scenarios {
        for standing in &scenario.standings {
            out.push_str(&row(scenario, standing));
        }
    }
    for contestant in &report.contestants {
        let version = contestant.version.as_deref().unwrap_or("runs already");
        let auth = contestant.auth.as_ref().map_or_else(String::new, |auth| format!("; logins: {auth}"));
        let _ =
            writeln!(out, "\n- **{}** {version}{auth}; `{}`", contestant.label, contestant.argv.join(" "));
    }
    for warning in &report.warnings {
        let _ = writeln!(out, "\n- {warning}");
    }
    out + &markdown::repeat(&report.command)
}

fn row(scenario: &Scenario, standing: &Standing) -> String {
    let value = |name: &str| standing.of(name).map(|comparison| comparison.median);
    let main = standing.main();
    let ratio = main.and_then(|main| main.ratio);
    let columns = [
        scenario.name.clone(),
        standing.contestant.clone(),
        main.map_or_else(|| "-".to_owned(), |main| format!("{} {}", rate(main.median), main.unit)),
        ratio.map_or_else(String::new, |ratio| format!("{:.2}", ratio.middle)),
        main.and_then(ends).unwrap_or_default(),
        main.and_then(|main| main.outcome).map_or("", Outcome::name).to_owned(),
        value("p99").map_or_else(String::new, ms),
        value("server CPU").map_or_else(String::new, rate),
        standing.errors.to_string(),
    ];
    format!("| {} |\n", columns.join(" | "))
}

/// Every comparison as a table for other programs: a line each (RFC 4180).
pub fn csv(report: &RaceReport) -> String {
    let head = "load,server,metric,unit,median,against,ratio,low,high,outcome,samples,form";
    let mut out = format!("{head}\r\n");
    for scenario in &report.scenarios {
        for standing in &scenario.standings {
            for comparison in &standing.comparisons {
                out += &line(report, scenario, standing, comparison);
            }
        }
    }
    out
}

fn line(report: &RaceReport, scenario: &Scenario, standing: &Standing, comparison: &Comparison) -> String {
    let optional = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let ratio = |end: fn(&Interval) -> f64| optional(comparison.ratio.as_ref().map(end));
    let samples: Vec<String> = comparison.samples.iter().copied().map(optional).collect();
    let columns = [
        scenario.name.clone(),
        standing.contestant.clone(),
        comparison.metric.clone(),
        comparison.unit.clone(),
        comparison.median.to_string(),
        report.reference().to_owned(),
        ratio(|ratio| ratio.middle),
        ratio(|ratio| ratio.low),
        ratio(|ratio| ratio.high),
        comparison.outcome.map_or("", Outcome::name).to_owned(),
        samples.join(" "),
        form(&report.quick).to_owned(),
    ];
    let quoted = columns.map(|text| match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    });
    format!("{}\r\n", quoted.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn color_takes_no_columns() {
        assert_eq!(visible("1.0 \x1b[32mbetter\x1b[0m"), "1.0 better".len());
        assert_eq!(visible("plain"), 5);
    }

    #[test]
    fn long_names_are_clipped() {
        assert_eq!(clipped("millrace --uploads in-place", 12), "millrace -~");
        assert_eq!(clipped("short", 12), "short");
    }
}
