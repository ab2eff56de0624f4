//! The figures of a report, load by load: what differs in the number of users, or in nothing, belongs together.

use std::collections::BTreeMap;

use super::table::plus_minus;
use super::text::users;
use super::{CellReport, Report, text};
use crate::stats::median;

/// Where fewer users get this share of the highest rate, more of them only wait longer.
const KNEE: f64 = 0.9;

/// Repetitions whose mean is known to no more than this share of it, at 95 %, have no mean to speak of.
const UNSTEADY: f64 = 0.5;

/// Figures that differ in the number of users, or in nothing.
pub(crate) struct Load<'a> {
    pub(crate) title: String,
    pub(crate) cells: Vec<&'a CellReport>,
}

/// In the order in which they were taken.
pub(crate) fn loads(report: &Report) -> Vec<Load<'_>> {
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

/// What a figure is of, without the users: `retr 1k pasv`, behind the preset's own name for it.
pub(crate) fn titled(cell: &CellReport) -> String {
    match &cell.measured.label {
        Some(label) => format!("{label}: {}", text::name(cell)),
        None => text::name(cell),
    }
}

impl<'a> Load<'a> {
    /// The number of users with the highest rate: the middle one of its repetitions, and how many these are.
    pub(crate) fn best(&self) -> Option<(&'a CellReport, usize)> {
        let rates = self.by_users(&|cell| Some(cell.achieved()));
        let users = rates.iter().max_by(|one, other| one.1.total_cmp(&other.1))?.0;
        let of_users = self.cells.iter().copied().filter(|cell| f64::from(cell.measured.users) == users);
        let mut repetitions: Vec<&CellReport> = of_users.collect();
        repetitions.sort_by(|one, other| one.achieved().total_cmp(&other.achieved()));
        Some((repetitions[(repetitions.len() - 1) / 2], repetitions.len()))
    }

    /// In words, of which numbers of users the repetitions differ too much to tell a mean.
    pub(crate) fn unsteady(&self) -> Vec<String> {
        let mut rates: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for cell in self.cells.iter().filter(|cell| cell.ops > 0 && cell.measured.op != "idle") {
            rates.entry(cell.measured.users).or_default().push(cell.achieved());
        }
        let unit = if self.cells.iter().any(|cell| cell.measured.endless) { " MB" } else { "" };
        let doubtful = rates.into_iter().filter_map(|(count, rates)| {
            let mean = rates.iter().sum::<f64>() / rates.len() as f64;
            let share = plus_minus(&rates, mean)? / mean;
            (share > UNSTEADY).then(|| {
                format!(
                    "{}, {}: its {} repetitions differ too much to tell a mean: {}{unit} a second, give or take {:.0} %",
                    self.title,
                    users(count),
                    rates.len(),
                    text::rate(mean),
                    share * 100.0
                )
            })
        });
        doubtful.collect()
    }

    /// Medians over the repetitions, from few users to many.
    pub(crate) fn by_users(&self, value: &dyn Fn(&CellReport) -> Option<f64>) -> Vec<(f64, f64)> {
        let mut values: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for cell in &self.cells {
            values.entry(cell.measured.users).or_default().extend(value(cell));
        }
        let middles =
            values.into_iter().filter_map(|(users, values)| Some((f64::from(users), median(&values)?)));
        middles.collect()
    }

    /// The fewest users that get nine tenths of the highest rate, where more were tried than these.
    pub(crate) fn knee(&self) -> Option<u32> {
        let rates = self.by_users(&|cell| Some(cell.achieved()));
        Some(rates[knee(&rates)?].0 as u32)
    }
}

/// The first point that reaches nine tenths of the highest, where points behind it do not get much more.
pub(crate) fn knee(rates: &[(f64, f64)]) -> Option<usize> {
    let highest = rates.iter().map(|point| point.1).fold(0.0, f64::max);
    let at = rates.iter().position(|point| point.1 >= KNEE * highest)?;
    (highest > 0.0 && at + 1 < rates.len()).then_some(at)
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
}
