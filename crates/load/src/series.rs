//! The figures of a report, load by load: what differs in the number of users, or in nothing, belongs together.

use std::collections::BTreeMap;

use millrace_stats::{median, plus_minus};

use crate::figure::{CellReport, Measured};
use crate::units::{rate, users};
use crate::verdict::{Bound, Verdict};

/// Where fewer users get this share of the highest rate, more of them only wait longer.
const KNEE: f64 = 0.9;

/// Repetitions whose mean is known to no more than this share of it, at 95 %, have no mean to speak of.
const UNSTEADY: f64 = 0.5;

/// Figures that differ in the number of users, or in nothing.
pub struct LoadSeries<'a> {
    /// Its title: `retr 1k pasv`.
    pub title: String,
    /// In the order in which they were taken.
    pub cells: Vec<&'a CellReport>,
}

/// Puts figures together, in the order in which they were taken.
pub fn loads(cells: &[CellReport]) -> Vec<LoadSeries<'_>> {
    let mut loads: Vec<LoadSeries<'_>> = Vec::new();
    for cell in cells {
        let title = titled(cell);
        match loads.iter_mut().find(|load| load.title == title) {
            Some(load) => load.cells.push(cell),
            None => loads.push(LoadSeries { title, cells: vec![cell] }),
        }
    }
    loads
}

/// Where nothing was at its limit, more users or a higher rate get more: unless fewer got as much.
pub fn compare_with_fewer(cells: &mut [CellReport]) {
    let waits: Vec<Option<String>> = {
        let all = loads(cells);
        let of_cell = |cell: &CellReport| {
            let load = all.iter().find(|load| load.cells.iter().any(|one| std::ptr::eq(*one, cell)))?;
            load.waits(cell)
        };
        cells.iter().map(of_cell).collect()
    };
    for (cell, waits) in cells.iter_mut().zip(waits) {
        if let (Some(reason), Verdict { bound, evidence }) = (waits, &mut cell.verdict) {
            *bound = Bound::Waiting;
            evidence[0] = reason;
        }
    }
}

/// Sets beside each figure amid bad users what the same was without them.
pub fn compare_with_calm(cells: &mut [CellReport]) {
    for at in 0..cells.len() {
        let calm = Measured { bad_users: 0, ..cells[at].measured.clone() };
        let p99_ms = cells.iter().find(|cell| cell.measured == calm).map(|cell| cell.latency.p99_ms);
        if let Some(chaos) = &mut cells[at].chaos {
            chaos.calm_p99_ms = p99_ms;
        }
    }
}

/// A figure's title without the users: `retr 1k pasv`, after the preset's own label.
pub fn titled(cell: &CellReport) -> String {
    match &cell.measured.label {
        Some(label) => format!("{label}: {}", cell.measured.name()),
        None => cell.measured.name(),
    }
}

impl<'a> LoadSeries<'a> {
    /// The number of users with the highest rate: the middle one of its repetitions, and how many these are.
    pub fn best(&self) -> Option<(&'a CellReport, usize)> {
        let rates = self.by_users(&|cell| Some(cell.achieved()));
        let users = rates.iter().max_by(|one, other| one.1.total_cmp(&other.1))?.0;
        let of_users = self.cells.iter().copied().filter(|cell| f64::from(cell.measured.users) == users);
        let mut repetitions: Vec<&CellReport> = of_users.collect();
        repetitions.sort_by(|one, other| one.achieved().total_cmp(&other.achieved()));
        Some((repetitions[(repetitions.len() - 1) / 2], repetitions.len()))
    }

    /// Why one of its figures shows users that queue: half as many, or fewer, reached at least nine tenths of its rate,
    /// and no limit was seen.
    fn waits(&self, cell: &CellReport) -> Option<String> {
        let is_of_rate = cell.has_operations() && cell.measured.rate.is_none() && cell.standing.is_none();
        let is_open = cell.verdict.bound == Bound::Unsaturated && !cell.is_too_short();
        if !is_of_rate || !is_open || cell.failures() > 0 || cell.replay.is_some() {
            return None;
        }
        let count = f64::from(cell.measured.users);
        let rates = self.by_users(&|cell| Some(cell.achieved()));
        let fewer = rates.iter().filter(|(users, _)| users * 2.0 <= count);
        let best = fewer.max_by(|one, other| one.1.total_cmp(&other.1))?;
        (best.1 >= KNEE * cell.achieved()).then(|| {
            format!(
                "{} got {} a second, and {} got {}: more only wait longer, for something that takes no processor (a lock, a \
                 queue, a delay)",
                users(cell.measured.users),
                rate(cell.achieved()),
                best.0,
                rate(best.1)
            )
        })
    }

    /// In words, of which numbers of users the repetitions differ too much to tell a mean.
    pub fn unsteady(&self) -> Vec<String> {
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
                    rate(mean),
                    share * 100.0
                )
            })
        });
        doubtful.collect()
    }

    /// Medians over the repetitions, from few users to many.
    pub fn by_users(&self, value: &dyn Fn(&CellReport) -> Option<f64>) -> Vec<(f64, f64)> {
        let mut values: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for cell in &self.cells {
            values.entry(cell.measured.users).or_default().extend(value(cell));
        }
        let middles =
            values.into_iter().filter_map(|(users, values)| Some((f64::from(users), median(&values)?)));
        middles.collect()
    }

    /// The fewest users that get nine tenths of the highest rate, where more were tried than these.
    pub fn knee(&self) -> Option<u32> {
        let rates = self.by_users(&|cell| Some(cell.achieved()));
        Some(rates[knee(&rates)?].0 as u32)
    }
}

/// The first point that reaches nine tenths of the highest, where later points are not much higher.
pub fn knee(rates: &[(f64, f64)]) -> Option<usize> {
    let highest = rates.iter().map(|point| point.1).fold(0.0, f64::max);
    let at = rates.iter().position(|point| point.1 >= KNEE * highest)?;
    (highest > 0.0 && at + 1 < rates.len()).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Fault;
    use crate::figure::Figures;
    use crate::plan::Plan;

    /// A login each: how many users, at which rate, and what bounded it.
    fn figure(users: &str, rate: f64, bound: Bound) -> CellReport {
        let flags = [("ops", "login"), ("users", users)];
        let cell = Plan::new("ftp://127.0.0.1:2121/", None, &flags).unwrap().cells().remove(0);
        let mut report = CellReport::new(&cell, Figures::default());
        report.audit.seconds = 5.0;
        (report.ops, report.ops_per_s) = (1000, rate);
        report.verdict = Verdict { bound, evidence: vec!["as judged".to_owned(), "a caution".to_owned()] };
        report
    }

    #[test]
    fn users_who_get_no_more_than_fewer_did_wait() {
        use Bound::{Server, Unsaturated, Waiting};
        let cases = [
            // The rate falls, or stays, though neither server nor client is at a limit.
            (
                [("1", 100.0, Unsaturated), ("100", 6000.0, Unsaturated), ("10000", 4000.0, Unsaturated)],
                Waiting,
            ),
            ([("1", 100.0, Unsaturated), ("100", 6000.0, Server), ("10000", 6100.0, Unsaturated)], Waiting),
            // It rises, is bounded by something, or there are hardly more users.
            (
                [("1", 100.0, Unsaturated), ("10", 990.0, Unsaturated), ("100", 4000.0, Unsaturated)],
                Unsaturated,
            ),
            ([("1", 100.0, Unsaturated), ("100", 6000.0, Server), ("10000", 4000.0, Server)], Server),
            (
                [("1", 10.0, Unsaturated), ("100", 980.0, Unsaturated), ("110", 990.0, Unsaturated)],
                Unsaturated,
            ),
        ];
        for (figures, expected) in cases {
            let mut cells = figures.map(|(users, rate, bound)| figure(users, rate, bound));
            compare_with_fewer(&mut cells);
            compare_with_fewer(&mut cells); // also as each figure comes
            let Verdict { bound, evidence } = &cells[2].verdict;
            assert_eq!(*bound, expected, "{figures:?}");
            let is_told = evidence[0].contains("and 100 got 6000: more only wait longer");
            assert_eq!((is_told, &evidence[1][..]), (expected == Waiting, "a caution"), "{evidence:?}");
            assert_ne!(cells[0].verdict.bound, Waiting);
        }
    }

    #[test]
    fn failures_and_another_target_rate_do_not_count_as_queueing() {
        let waits = |change: fn(&mut CellReport)| {
            let mut cells =
                [("10", 900.0), ("100", 500.0)].map(|(users, rate)| figure(users, rate, Bound::Unsaturated));
            change(&mut cells[1]);
            compare_with_fewer(&mut cells);
            cells[1].verdict.bound == Bound::Waiting
        };
        assert!(waits(|_| {}));
        assert!(!waits(|cell| cell.audit.seconds = 0.05), "too short to tell");
        assert!(!waits(|cell| cell.measured.rate = Some(500.0)), "another load");
        assert!(!waits(|cell| cell.faults.record(Fault::TurnedAway, 0, || "421 Full.".to_owned())));
    }

    #[test]
    fn the_knee_is_where_more_users_get_no_more() {
        let rates = [(1.0, 10.0), (10.0, 95.0), (100.0, 100.0), (1000.0, 80.0)];
        assert_eq!(knee(&rates), Some(1));
        assert_eq!(knee(&rates[..2]), None, "it still rises");
        assert_eq!(knee(&[]), None);
    }
}
