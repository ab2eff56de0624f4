//! A document's table in its own shape: its numbers next to ours.
//!
//! Where the document compared servers, ours is one column before theirs; else each of our numbers stands above the
//! document's.

use serde::{Deserialize, Serialize};

use super::CellReport;
use crate::terminal::{WIDTH, cut};
use millrace_load::figure::HttpFigures;
use millrace_load::host::ServerAudit;
use millrace_load::plan::{Line, Plan, Published, Value};
use millrace_load::units::{rate, short_size, users as count_of_users};
use millrace_stats::plus_minus;

/// A table of a document with what was measured now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// The title, with the unit.
    pub title: String,
    /// Across.
    pub columns: Vec<String>,
    /// Whether there are columns of the document's alone: each row is then one line.
    pub is_beside: bool,
    /// Down.
    pub rows: Vec<Row>,
}

/// A row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// As the document calls it.
    pub name: String,
    /// From left to right.
    pub numbers: Vec<Number>,
}

/// A number of a document, and ours.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Number {
    /// The document's, where it has one.
    pub published: Option<f64>,
    /// The mean over our repetitions, where any was measured.
    pub measured: Option<f64>,
    /// Half of its 95 % confidence interval, where there are several.
    pub plus_minus: Option<f64>,
    /// How many of the operations failed.
    pub faults: u64,
}

/// The state of the page cache, if it was prepared.
fn cache_of(cells: &[CellReport]) -> String {
    let mut caches: Vec<&str> = cells.iter().filter_map(|cell| cell.measured.cache.as_deref()).collect();
    caches.dedup();
    if caches.is_empty() { String::new() } else { format!("; cache {}", caches.join(", ")) }
}

/// Before the title of a table that is of another load than the document's.
const QUICK: &str = "QUICK FORM, not the document's load: ";

impl Table {
    fn new(published: &Published, plan: &Plan, cells: &[CellReport]) -> Self {
        let is_quick = !plan.quick.is_empty();
        // Where nothing would be left, everything is kept.
        let is_enough = cells.iter().any(|cell| cell.measured.repetition >= published.discard);
        let discard = if is_enough { published.discard } else { 0 };
        let rows = published.row.iter().map(|row| {
            let numbers = published.column.iter().zip(&row.published).map(|(column, &number)| {
                let belongs = |cell: &&CellReport| {
                    let kept = cell.measured.repetition >= discard;
                    kept && !column.theirs && is_in(cell, row) && is_in(cell, column)
                };
                let value = column.value.or(row.value).unwrap_or(published.value);
                Number::new(number, value, cells.iter().filter(belongs))
            });
            let ran = if is_quick { what_ran(published, row, cells) } else { String::new() };
            Row { name: format!("{}{ran}", row.name), numbers: numbers.collect() }
        });
        Self {
            title: format!("{}{}{}", if is_quick { QUICK } else { "" }, named(published), cache_of(cells)),
            columns: published.column.iter().map(|column| column.name.clone()).collect(),
            is_beside: published.column.iter().any(|column| column.theirs),
            rows: rows.collect(),
        }
    }

    /// The tables of a plan, but for those that say nothing: of steps that its form leaves out.
    pub(crate) fn all(plan: &Plan, cells: &[CellReport]) -> Vec<Self> {
        let tables = plan.tables.iter().map(|published| Self::new(published, plan, cells));
        tables.filter(Self::says_anything).collect()
    }

    /// Returns true if there is a number in it.
    pub(crate) fn says_anything(&self) -> bool {
        let mut numbers = self.rows.iter().flat_map(|row| &row.numbers);
        numbers.any(|number| number.measured.is_some() || number.published.is_some())
    }

    /// For a terminal: ours above the document's.
    pub fn render(&self) -> String {
        // A table that would be too wide has its intervals on lines of their own.
        let out = self.laid_out(Intervals::Beside);
        let is_too_wide = out.lines().any(|line| line.chars().count() > WIDTH);
        if is_too_wide && !self.is_beside { self.laid_out(Intervals::Beneath) } else { out }
    }

    fn laid_out(&self, intervals: Intervals) -> String {
        let lines: Vec<_> = self.rows.iter().flat_map(|row| self.lines(row, intervals)).collect();
        let width = |text: &str| text.chars().count();
        let head = self.rows.iter().map(|row| width(&row.name)).max().unwrap_or(0) + 2;
        // A column is as wide as what stands in it.
        let of_column = |at: usize| {
            let cells = lines.iter().filter_map(move |line| line.numbers.get(at));
            let widest = cells.map(|text| width(text)).max().unwrap_or(0);
            2 + widest.max(width(&self.columns[at])).max(NARROWEST)
        };
        let columns: Vec<usize> = (0..self.columns.len()).map(of_column).collect();
        let line = |name: &str, whose: &str, numbers: &[String]| {
            let cells = numbers.iter().zip(&columns);
            let numbers: String = cells.map(|(text, &column)| format!("{text:>column$}")).collect();
            let whose = if self.is_beside { String::new() } else { format!("{whose:8}") };
            format!("{}\n", format!("{name:head$}{whose}{numbers}").trim_end())
        };
        let mut out = format!("{}\n", cut(&self.title)) + &line("", "", &self.columns);
        lines.iter().for_each(|one| out += &line(one.name, one.whose, &one.numbers));
        out
    }

    /// A row as a terminal shows it: one line, or ours and the document's.
    fn lines<'a>(&self, row: &'a Row, intervals: Intervals) -> Vec<Shown<'a>> {
        let shown = |name: &'a str, whose, words: &dyn Fn(&Number) -> String| Shown {
            name,
            whose,
            numbers: row.numbers.iter().map(words).collect(),
        };
        let theirs = |number: &Number| number.published.map_or_else(|| "-".to_owned(), as_published);
        if self.is_beside {
            let either = |number: &Number| number.published.map_or_else(|| number.words(), as_published);
            return vec![shown(&row.name, "", &either)];
        }
        let has = |what: fn(&Number) -> Option<f64>| row.numbers.iter().any(|number| what(number).is_some());
        let document = has(|number| number.published).then(|| shown("", "document", &theirs));
        let ours = match intervals {
            Intervals::Beside => vec![shown(&row.name, "now", &Number::words)],
            Intervals::Beneath => {
                let half = |number: &Number| number.plus_minus.map(rate).unwrap_or_default();
                let interval = has(|number| number.plus_minus).then(|| shown("", "\u{b1}", &half));
                [shown(&row.name, "now", &Number::mean)].into_iter().chain(interval).collect()
            }
        };
        ours.into_iter().chain(document).collect()
    }
}

/// Where the intervals of our numbers stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Intervals {
    Beside,
    Beneath,
}

/// A number of a document, with the digits that it has there.
pub(crate) fn as_published(number: f64) -> String {
    number.to_string()
}

/// Columns are no narrower: numbers of several rows would run into one another.
const NARROWEST: usize = 6;

/// A line of a table.
struct Shown<'a> {
    name: &'a str,
    whose: &'static str,
    numbers: Vec<String>,
}

/// The title of a document's table with the unit, unless that says what the numbers are.
fn named(published: &Published) -> String {
    if published.title.contains(':') {
        published.title.clone()
    } else {
        format!("{}, {}", published.title, unit(published.value))
    }
}

impl Number {
    fn new<'a>(published: f64, value: Value, cells: impl Iterator<Item = &'a CellReport>) -> Self {
        let mut faults = 0;
        let samples: Vec<f64> = cells
            .map(|cell| {
                faults += cell.failures();
                value_of(value, cell)
            })
            .filter(|sample| !sample.is_nan())
            .collect();
        let mean = samples.iter().sum::<f64>() / samples.len() as f64;
        Self {
            published: Some(published).filter(|number| !number.is_nan()),
            measured: (!samples.is_empty()).then_some(mean),
            plus_minus: plus_minus(&samples, mean),
            faults,
        }
    }

    /// Ours, with its interval.
    fn words(&self) -> String {
        self.said(self.plus_minus)
    }

    /// Ours alone.
    fn mean(&self) -> String {
        self.said(None)
    }

    fn said(&self, plus_minus: Option<f64>) -> String {
        let mean = self.measured.map_or_else(|| "-".to_owned(), rate);
        let half = plus_minus.map(|half| format!("\u{b1}{}", rate(half))).unwrap_or_default();
        let failed = if self.faults > 0 { "!" } else { "" };
        format!("{mean}{half}{failed}")
    }
}

/// A figure's value for a column; NaN if it is missing.
fn value_of(value: Value, cell: &CellReport) -> f64 {
    // Where nothing ended well there is no rate, rather than one of none.
    let is_rate = matches!(
        value,
        Value::OpsPerSecond
            | Value::KibPerSecond
            | Value::WaarpMbitPerSecond
            | Value::MbitPerSecond
            | Value::MibPerSecond
            | Value::Seconds
    );
    if is_rate && cell.is_empty() {
        return f64::NAN;
    }
    match value {
        Value::OpsPerSecond => cell.ops_per_s,
        Value::KibPerSecond => cell.mb_per_s * 1e6 / 1024.0,
        Value::WaarpMbitPerSecond => cell.mb_per_s * 1e6 * 8.0 / 1_024_000.0,
        Value::MbitPerSecond => cell.mb_per_s * 8.0,
        Value::MibPerSecond => cell.mb_per_s * 1e6 / (1024.0 * 1024.0),
        Value::KibPerSecondInStep => cell.step.map_or(f64::NAN, |step| step.overall_mb_per_s * 1e6 / 1024.0),
        Value::Seconds => cell.seconds,
        Value::LoginSeconds => cell.login_seconds,
        Value::UsersLeft => cell.standing.as_ref().map_or(f64::NAN, |standing| f64::from(standing.left)),
        Value::ClientCpuFrom => cell.audit.client.quiet_second * 100.0,
        Value::ClientCpuTo => cell.audit.client.busiest_second * 100.0,
        Value::Skew => cell.step.map_or(f64::NAN, |step| step.skew_ms),
        Value::Sync => cell.step.map_or(f64::NAN, |step| step.sync),
        Value::ServerCpu => match &cell.audit.server {
            Some(server) => server.cpu_seconds / cell.audit.seconds.max(1e-9) * 100.0,
            None => f64::NAN,
        },
        Value::LoadAverage => cell.audit.server.as_ref().map_or(f64::NAN, |server| server.load_average),
        Value::DocumentBytes => http(cell, |http| http.document_bytes as f64),
        Value::KeptAlive => http(cell, |http| http.kept_alive as f64),
        Value::TransferRate => http(cell, |http| http.transfer_rate(cell.seconds)),
        Value::ConnectMin => http(cell, |http| http.connect_ms(cell.ops)[0]),
        Value::ConnectMean => http(cell, |http| http.connect_ms(cell.ops)[1]),
        Value::ConnectMax => http(cell, |http| http.connect_ms(cell.ops)[2]),
        Value::TotalMin => http(cell, |http| http.total_min_ms),
        Value::TotalMean => cell.latency.mean_ms,
        Value::TotalMax => cell.latency.max_ms,
        Value::Nothing => f64::NAN,
        Value::Rss => memory(cell, |server| server.rss_kib),
        Value::Pss => memory(cell, |server| server.pss_kib_after),
        Value::Uss => memory(cell, |server| server.uss_kib),
        Value::PeakRss => memory(cell, |server| server.rss_kib_peak),
    }
}

fn unit(value: Value) -> &'static str {
    match value {
        Value::OpsPerSecond => "operations a second",
        Value::KibPerSecond => "KiB a second",
        Value::WaarpMbitPerSecond => "Mbit of 1,024,000 bit a second",
        Value::MbitPerSecond => "Mbit of 1,000,000 bit a second",
        Value::MibPerSecond => "MiB a second",
        Value::KibPerSecondInStep => "KiB a second from the first beginning to the last end",
        Value::Seconds | Value::LoginSeconds => "seconds",
        Value::UsersLeft => "users left",
        Value::ClientCpuFrom | Value::ClientCpuTo | Value::ServerCpu => "% of a processor",
        Value::Skew
        | Value::ConnectMin
        | Value::ConnectMean
        | Value::ConnectMax
        | Value::TotalMin
        | Value::TotalMean
        | Value::TotalMax => "ms",
        Value::DocumentBytes => "bytes",
        Value::KeptAlive => "requests",
        Value::TransferRate => "units of 1000 bytes a second",
        Value::LoadAverage => "processes that run or wait",
        Value::Sync => "of 1",
        Value::Nothing => "",
        Value::Rss | Value::Pss | Value::Uss | Value::PeakRss => "MiB of memory",
    }
}

/// Of the server, in MiB; no number where its process is not known.
fn memory(cell: &CellReport, kib: fn(&ServerAudit) -> u64) -> f64 {
    cell.audit.server.as_ref().map_or(f64::NAN, |server| kib(server) as f64 / 1024.0)
}

/// Of HTTP; no number of anything else.
fn http(cell: &CellReport, of: impl Fn(&HttpFigures) -> f64) -> f64 {
    cell.http.as_ref().map_or(f64::NAN, of)
}

/// The load of a row's figures, where neither its name nor a column's has it: ` [20 users, 64k]`.
fn what_ran(published: &Published, row: &Line, cells: &[CellReport]) -> String {
    let names = |said: fn(&Line) -> bool| said(row) || published.column.iter().any(said);
    let own = published.column.iter().filter(|column| !column.theirs);
    let own: Vec<&Line> = own.collect();
    let of_row: Vec<_> = cells
        .iter()
        .filter(|cell| is_in(cell, row) && own.iter().any(|column| is_in(cell, column)))
        .map(|cell| (cell.measured.users, cell.measured.idlers, cell.measured.size))
        .collect();
    let Some(&(users, idlers, size)) = of_row.first() else { return String::new() };
    let mut said = Vec::new();
    if !names(|line| line.users.is_some()) && of_row.iter().all(|one| (one.0, one.1) == (users, idlers)) {
        said.push(if idlers > 0 { format!("{users}+{idlers} users") } else { count_of_users(users) });
    }
    if !names(|line| line.size.is_some()) && of_row.iter().all(|one| one.2 == size) {
        said.extend(size.map(short_size));
    }
    if said.is_empty() { String::new() } else { format!(" [{}]", said.join(", ")) }
}

fn is_in(cell: &CellReport, line: &Line) -> bool {
    let measured = &cell.measured;
    line.label.as_ref().is_none_or(|label| Some(label) == measured.label.as_ref())
        && line.op.as_ref().is_none_or(|op| *op == measured.op)
        && line.mode.as_ref().is_none_or(|mode| Some(mode) == measured.mode.as_ref())
        && line.size.is_none_or(|size| Some(size) == measured.size)
        && line.users.is_none_or(|users| users == measured.users)
        && line.shared.is_none_or(|shared| shared == (measured.files == 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Six columns with intervals would take some 120 columns of a terminal.
    #[test]
    fn a_table_too_wide_for_a_terminal_has_its_intervals_beneath() {
        let number =
            Number { published: Some(1388.82), measured: Some(2e6), plus_minus: Some(1e5), faults: 0 };
        let row = Row { name: "Different files".to_owned(), numbers: vec![number; 6] };
        let columns = (1..7).map(|count| count.to_string()).collect();
        let wide =
            Table { title: "wide".to_owned(), columns, is_beside: false, rows: vec![row.clone(), row] };
        let narrow = Table {
            columns: wide.columns[..2].to_vec(),
            rows: vec![Row { name: "x".to_owned(), numbers: vec![number; 2] }],
            ..wide.clone()
        };
        let (wide, narrow) = (wide.render(), narrow.render());
        assert!(wide.lines().all(|line| line.chars().count() <= WIDTH), "{wide}");
        let whose = |word: &str| wide.lines().any(|line| line.split_whitespace().any(|one| one == word));
        assert!(["now", "2000000", "\u{b1}", "100000", "document"].into_iter().all(whose), "{wide}");
        assert!(wide.contains("1388.82") && narrow.contains("2000000\u{b1}100000"), "{wide}{narrow}");
    }

    #[test]
    fn a_hole_stays_a_hole() {
        let hole = Number::new(f64::NAN, Value::OpsPerSecond, [].into_iter());
        assert_eq!((hole.published, hole.measured, hole.words()), (None, None, "-".to_owned()));
    }
}
