//! The second table of a terminal's report: what single users got, for how long a transfer stood still, and where this
//! client's own CPU went.

use std::fmt::Write;

use super::text::{column, ms};
use super::{CellReport, Report};
use millrace_load::units::rate;

const HEAD: &str =
    "what                users    least   median     most       gap p99     max   by thread     by core";
const KEY: &str = "least, median, most: what users got; gap: the longest in which a transfer moved nothing, ms;\n\
    by thread, by core: what this client used of a processor, %";

/// For the figures with operations; empty without any.
pub(super) fn render(report: &Report) -> String {
    let rows: String = report.cells.iter().filter_map(row).collect();
    if rows.is_empty() { rows } else { format!("\n{HEAD}\n{rows}\n{KEY}\n") }
}

fn row(cell: &CellReport) -> Option<String> {
    let goodput = cell.fairness.goodput.as_ref()?;
    let [p99, max] = match &cell.gap {
        Some(gap) => [gap.p99_ms, gap.max_ms].map(ms),
        None => ["-".to_owned(), "-".to_owned()],
    };
    let mut row = format!("{}{:>6}", column(cell), cell.measured.users);
    for value in [goodput.min, goodput.median, goodput.max] {
        let _ = write!(row, " {:>8}", rate(value));
    }
    let client = &cell.audit.client;
    let _ = writeln!(
        row,
        " {:<5} {p99:>7} {max:>7} {:>11} {:>11}",
        goodput.unit,
        shares(&client.threads),
        shares(&client.cores)
    );
    Some(row)
}

/// `31+29`, in hundredths; of many the least and the most, and how many there are.
fn shares(each: &[f64]) -> String {
    const FEW: usize = 3;
    let percent = |share: f64| format!("{:.0}", share * 100.0);
    if each.len() <= FEW {
        return each.iter().map(|&share| percent(share)).collect::<Vec<_>>().join("+");
    }
    let least = each.iter().copied().fold(f64::INFINITY, f64::min);
    let most = each.iter().copied().fold(0.0, f64::max);
    format!("{}-{} x{}", percent(least), percent(most), each.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_fit_their_column() {
        assert_eq!(shares(&[0.314, 0.0]), "31+0");
        assert_eq!(shares(&[1.0; 64]), "100-100 x64");
        assert_eq!(shares(&[]), "");
        assert!(HEAD.len() <= 100 && KEY.lines().all(|line| line.len() <= 100));
    }
}
