//! Common parts of the pages of a run and of a race.

use std::fmt::{Display, Write};

use super::plot::{Axis, Scale, Series};
use super::words::{escaped, number, of_rate};
use crate::report::Machine;
use crate::report::table::{Number, Table, as_published};

/// From the fastest operation to the slowest; the few slow ones take as much room as the many fast.
pub(super) const SHARE: Axis =
    Axis { label: "share of the operations that took at most", scale: Scale::Nines };
pub(super) const LATENCY: Axis = Axis { label: "ms", scale: Scale::Log };

/// A section with its heading.
pub(super) fn section(title: &str, body: &str) -> String {
    if body.is_empty() {
        return String::new();
    }
    format!("<section>\n<h2>{}</h2>\n{body}</section>\n", escaped(title))
}

/// A picture with its heading; nothing where there is no picture.
pub(super) fn figure(title: &str, picture: &str) -> String {
    if picture.is_empty() {
        return String::new();
    }
    format!("<figure class=\"card\"><figcaption>{}</figcaption>{picture}</figure>\n", escaped(title))
}

/// Pictures beside one another, where there is room.
pub(super) fn grid(figures: &str) -> String {
    if figures.is_empty() { String::new() } else { format!("<div class=\"grid\">\n{figures}</div>\n") }
}

/// More columns than these do not fit a telephone, which is said there.
const WIDE: usize = 5;

/// A table whose first column names the rows. Cells are markup.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let columns = head.len();
    let head = head.iter().fold(String::new(), |out, name| out + &format!("<th>{}</th>", escaped(name)));
    let wide = if columns > WIDE { " wide" } else { "" };
    let mut out =
        format!("<div class=\"card scroll{wide}\"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n");
    for row in rows {
        let (name, cells) = row.split_first().map_or(("", row.as_slice()), |(name, rest)| (name, rest));
        let cells = cells.iter().fold(String::new(), |out, cell| out + &format!("<td>{cell}</td>"));
        let _ = writeln!(out, "<tr><th>{name}</th>{cells}</tr>");
    }
    out + "</tbody></table></div>\n"
}

/// A part that is folded by default; nothing without content.
pub(super) fn folded(summary: &str, body: &str) -> String {
    if body.is_empty() {
        return String::new();
    }
    format!("<details><summary>{}</summary>\n{body}</details>\n", escaped(summary))
}

/// Capitalises the first letter, for the beginning of a heading.
pub(super) fn capital(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// A list of names and descriptions; the descriptions may be long.
pub(super) fn facts(rows: &[(String, String)]) -> String {
    let rows = rows.iter().fold(String::new(), |out, (name, what)| {
        out + &format!("<tr><th>{}</th><td>{}</td></tr>\n", escaped(name), escaped(what))
    });
    format!("<div class=\"card scroll\"><table class=\"wrap\"><tbody>\n{rows}</tbody></table></div>\n")
}

/// Sentences, one below the other.
pub(super) fn list<T: Display>(class: &str, sentences: impl IntoIterator<Item = T>) -> String {
    let items = sentences
        .into_iter()
        .fold(String::new(), |out, one| out + &format!("<li>{}</li>\n", escaped(&one.to_string())));
    if items.is_empty() { items } else { format!("<ul class=\"{class}\">\n{items}</ul>\n") }
}

/// The doubts about the figures.
pub(super) fn warnings<T: Display>(sentences: impl IntoIterator<Item = T>) -> String {
    section("Before you believe it", &list("warnings", sentences))
}

/// A curve of latencies over the share of operations, of (upper edge in microseconds, count).
pub(super) fn curve(name: &str, color: usize, histogram: &[(u64, u64)]) -> Series {
    /// Of one decade of rareness, this many points are drawn.
    const POINTS: f64 = 80.0;
    let all: u64 = histogram.iter().map(|bucket| bucket.1).sum();
    let (mut points, mut below, mut drawn) = (Vec::new(), 0, f64::NEG_INFINITY);
    for (at, (edge_us, count)) in histogram.iter().enumerate() {
        below += count;
        // The middle of the last operation: a share of all would be infinitely rare.
        let share = (below as f64 - 0.5) / all as f64;
        let rareness = -(1.0 - share).log10() * POINTS;
        if rareness >= drawn + 1.0 || at + 1 == histogram.len() {
            drawn = rareness;
            points.push((share, *edge_us as f64 / 1e3));
        }
    }
    Series { name: name.to_owned(), color, points, knee: None }
}

/// The tables of a document, with its numbers and ours.
pub(super) fn documents(tables: &[Table], notes: &[String]) -> String {
    let tables = tables.iter().fold(String::new(), |out, one| out + &document(one));
    let title = if tables.is_empty() { "What the preset is about" } else { "The document's own tables" };
    section(title, &(tables + &list("small soft", notes)))
}

fn document(document: &Table) -> String {
    let mut head = vec![""];
    head.extend((!document.is_beside).then_some("whose"));
    head.extend(document.columns.iter().map(String::as_str));
    let mut rows = Vec::new();
    for row in &document.rows {
        let name = escaped(&row.name);
        let theirs = |one: &Number| one.published.map_or_else(|| "-".to_owned(), as_published);
        let ours = |one: &Number| measured(one);
        if document.is_beside {
            let either = |one: &Number| one.published.map_or_else(|| ours(one), as_published);
            rows.push([name].into_iter().chain(row.numbers.iter().map(either)).collect());
            continue;
        }
        let now = [name, "now".to_owned()].into_iter();
        rows.push(now.chain(row.numbers.iter().map(ours)).collect());
        if row.numbers.iter().any(|one| one.published.is_some()) {
            let published = [String::new(), "document".to_owned()].into_iter();
            rows.push(published.chain(row.numbers.iter().map(theirs)).collect());
        }
    }
    format!("<h3>{}</h3>\n{}", escaped(&document.title), table(&head, &rows))
}

fn measured(one: &Number) -> String {
    let mut text = one.measured.map_or_else(|| "-".to_owned(), of_rate);
    if let Some(half) = one.plus_minus {
        text += &format!("&thinsp;±&thinsp;{}", of_rate(half));
    }
    if one.faults > 0 {
        text += " <b title=\"some operations failed\">!</b>";
    }
    text
}

/// The machine, what it allows, how it was loaded, and the command that does so again.
pub(super) fn machine(machine: &Machine, settings: &[(&str, String)], command: &str) -> String {
    let own = [
        ("processors", format!("{} x {}", machine.cores, machine.processor)),
        ("memory", format!("{} MiB", machine.memory_mib)),
        ("kernel", machine.kernel.clone()),
    ];
    let again = (!command.is_empty()).then(|| ("the same again", command.to_owned()));
    let rows =
        own.iter().chain(settings).chain(&again).map(|(name, what)| ((*name).to_owned(), what.clone()));
    let limits = machine
        .limits
        .iter()
        .map(|limit| (limit.name.to_string(), format!("{} - {}", limit.value, limit.meaning)));
    let limits = facts(&limits.collect::<Vec<_>>());
    let body = facts(&rows.collect::<Vec<_>>()) + &folded("What this machine allows", &limits);
    section("Machine and settings", &body)
}

/// A share of one as a percentage; the value is the share.
fn of_share(share: f64) -> String {
    number(share, format!("{:.0}&thinsp;%", share * 100.0))
}

/// Several of them, in a row.
pub(super) fn of_shares(shares: &[f64]) -> String {
    let each: Vec<String> = shares.iter().map(|&share| of_share(share)).collect();
    if each.is_empty() { "-".to_owned() } else { each.join(" + ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_ends_at_the_slowest_operation() {
        let series = curve("x", 0, &[(100, 90), (200, 9), (5000, 1)]);
        assert_eq!(series.points.last(), Some(&(0.995, 5.0)));
        assert_eq!(series.points[0], (0.895, 0.1));
        assert!(curve("nothing", 0, &[]).points.is_empty());
    }

    #[test]
    fn dense_curves_are_thinned() {
        let dense: Vec<(u64, u64)> = (1..100_000).map(|edge| (edge, 1)).collect();
        let points = curve("x", 0, &dense).points;
        assert!((100..500).contains(&points.len()), "{}", points.len());
    }
}
