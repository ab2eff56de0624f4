//! A race in sentences, for who reads nothing else: who won, then how each did, and what an operation costs it.
//!
//! They say in how many of the loads; which loads these are, where that takes no list. The tables have them all.

use std::ops::RangeInclusive;

use super::RaceReport;
use super::comparison::{Outcome, SERVER_CPU};
use crate::report::{quick_sentence, text};
use millrace_load::figure::CellReport;
use millrace_load::run::Ending;
use millrace_load::units::counted;
use millrace_stats::Stillness;

/// How many loads are named; others are counted.
const NAMED: usize = 2;

/// How one of them did, load by load: the titles of these.
#[derive(Debug, Default)]
struct Record<'a> {
    better: Vec<&'a str>,
    worse: Vec<&'a str>,
    same: Vec<&'a str>,
    unclear: Vec<&'a str>,
    missing: Vec<&'a str>,
}

impl<'a> Record<'a> {
    /// The records by result, each with its label.
    fn parts(&self) -> [(&Vec<&'a str>, &'static str); 5] {
        [
            (&self.better, "is better than {} at"),
            (&self.worse, "is worse than {} at"),
            (&self.same, "does as well at"),
            (&self.unclear, "shows no clear difference at"),
            (&self.missing, "could not be measured at"),
        ]
    }

    fn loads(&self) -> usize {
        self.parts().iter().map(|part| part.0.len()).sum()
    }
}

impl RaceReport {
    /// Fills in `conclusions`.
    pub(super) fn conclude(&mut self) {
        let reference = self.reference().to_owned();
        let others: Vec<usize> = (0..self.contestants.len()).filter(|at| *at != self.against).collect();
        let records: Vec<(&str, Record<'_>)> =
            others.iter().map(|&at| (&self.contestants[at].label[..], self.record(at))).collect();
        let first = quick_sentence(&self.quick).into_iter().chain(self.failures());
        let each = others
            .iter()
            .flat_map(|&at| [Some(self.conclusion(at, &reference)), self.costs(at, &reference)])
            .flatten();
        let mut said: Vec<String> = first.chain(winner(&reference, &records)).chain(each).collect();
        said.push(self.stillness());
        said.extend(self.early_end());
        self.conclusions = said;
    }

    /// How many operations and logins of one of them failed.
    pub(super) fn failed(&self, at: usize) -> u64 {
        let cells = self.scenarios.iter().flat_map(|scenario| &scenario.standings[at].cells);
        cells.filter(|cell| cell.has_failures()).map(CellReport::failures).sum()
    }

    /// Warns that the rates exclude failed operations, where a server let operations fail.
    fn failures(&self) -> Option<String> {
        let told = (0..self.contestants.len()).filter_map(|at| {
            let failed = self.failed(at);
            (failed > 0).then(|| format!("{failed} of {}", self.contestants[at].label))
        });
        let told = told.collect::<Vec<_>>().join(", ");
        (!told.is_empty()).then(|| {
            format!("OPERATIONS FAILED, and the race with them: {told}. A rate says little where some are left out.")
        })
    }

    /// How still the machine kept, and what it means where it did not.
    fn stillness(&self) -> String {
        let words = &self.sentinel.words;
        match self.sentinel.drift.kind {
            Stillness::Restless | Stillness::Drifting => {
                format!(
                    "{words} Ratios of one block suffer less from that than rates do; intervals are wider for it."
                )
            }
            _ => words.clone(),
        }
    }

    fn early_end(&self) -> Option<String> {
        let standings = self.scenarios.iter().flat_map(|scenario| &scenario.standings);
        let taken: usize = standings.map(|standing| standing.cells.len()).sum();
        let all = self.blocks as usize * self.contestants.len() * self.scenarios.len();
        match &self.ending {
            Ending::Complete => None,
            Ending::Interrupted => Some(format!(
                "It was interrupted: {taken} of {} are here, and are whole.",
                counted(all as u64, "figure")
            )),
            Ending::Failed(error) | Ending::Invalid(error) => Some(format!(
                "It did not end as it should, with {taken} of {}: {error}.",
                counted(all as u64, "figure")
            )),
        }
    }

    fn record(&self, at: usize) -> Record<'_> {
        let mut record = Record::default();
        for scenario in &self.scenarios {
            let kind = match scenario.standings[at].main() {
                None => &mut record.missing,
                // Of one block nothing can be told.
                Some(main) => match main.outcome.unwrap_or(Outcome::Unclear) {
                    Outcome::Better => &mut record.better,
                    Outcome::Worse => &mut record.worse,
                    Outcome::Same => &mut record.same,
                    Outcome::Unclear => &mut record.unclear,
                },
            };
            kind.push(&scenario.title);
        }
        record
    }

    fn conclusion(&self, at: usize, reference: &str) -> String {
        let (label, record) = (&self.contestants[at].label, self.record(at));
        let all = record.loads();
        let parts = record.parts().into_iter().filter(|part| !part.0.is_empty());
        let parts: Vec<(&Vec<&str>, &str)> = parts.collect();
        if let [(titles, _)] = parts[..] {
            let [of_any, of_all] = match titles[..] {
                [only] => [format!("at {only}"), format!("at {only}")],
                _ => [format!("in any of the {all} loads"), format!("in all {all} loads")],
            };
            return match () {
                () if !record.same.is_empty() => format!("{label} and {reference} do not differ {of_any}."),
                () if !record.unclear.is_empty() => format!(
                    "No difference between {label} and {reference} was seen {of_any}; the figures vary too much \
                     to rule one out."
                ),
                () if !record.missing.is_empty() => format!("{label} could not be measured."),
                () if !record.better.is_empty() => format!("{label} is better than {reference} {of_all}."),
                () => format!("{label} is worse than {reference} {of_all}."),
            };
        }
        let told = parts.iter().map(|(titles, words)| {
            let words = words.replace("{}", reference);
            format!("{words} {}", named(titles, all))
        });
        format!("{label} {}.", told.collect::<Vec<_>>().join("; it "))
    }

    /// The cost per operation, where a difference is certain: valid even where the client or another program used the
    /// machine.
    fn costs(&self, at: usize, reference: &str) -> Option<String> {
        let told = [(Outcome::Worse, "more"), (Outcome::Better, "less")];
        let told = told.into_iter().filter_map(|(outcome, word)| {
            let known = self.scenarios.iter().filter_map(|scenario| {
                let cpu = scenario.standings[at].of(SERVER_CPU).filter(|cpu| cpu.outcome == Some(outcome))?;
                Some((&scenario.title[..], cpu.ratio?.middle))
            });
            let known: Vec<(&str, f64)> = known.collect();
            let titles: Vec<&str> = known.iter().map(|one| one.0).collect();
            let factors = range(known.iter().map(|one| one.1))?;
            let at = named(&titles, self.scenarios.len());
            Some(format!("{word} CPU than {reference} at {at} ({})", times(&factors)))
        });
        let told = told.collect::<Vec<_>>().join(", and ");
        let label = &self.contestants[at].label;
        (!told.is_empty()).then(|| format!("For an operation {label} needs {told}."))
    }
}

/// Names the winner, where there are several servers to choose from: there is none where no load tells any of them
/// apart.
fn winner(reference: &str, others: &[(&str, Record<'_>)]) -> Option<String> {
    if others.len() < 2 {
        return None;
    }
    let who = |some: &dyn Fn(&Record<'_>) -> bool| -> Vec<&str> {
        others.iter().filter(|one| some(&one.1)).map(|one| one.0).collect()
    };
    let (better, worse) = (who(&|one| !one.better.is_empty()), who(&|one| !one.worse.is_empty()));
    let ahead = who(&|one| !one.better.is_empty() && one.worse.is_empty());
    Some(match (&better[..], &worse[..], &ahead[..]) {
        ([], [], _) => format!("No server came out ahead: no load tells {reference} and the others apart."),
        ([], worse, _) if worse.len() == others.len() => format!(
            "{reference} came out ahead: no other is better at any load, and each of the others is worse at some."
        ),
        ([], worse, _) => {
            let are = if worse.len() == 1 { "which is" } else { "each of which is" };
            format!(
                "{reference} came out ahead of {}, {are} worse at some load and better at none.",
                in_a_row(worse)
            )
        }
        ([_], _, [ahead]) => {
            format!("{ahead} came out ahead of {reference}: better at some load, and worse at none.")
        }
        (better, ..) => format!(
            "No server came out ahead of all: {} {} better than {reference} at some load, and which is best depends on the load.",
            in_a_row(better),
            if better.len() == 1 { "is" } else { "are" }
        ),
    })
}

/// `uploads of 1 KiB by 20 and logins by 20`, or `6 of 10 loads`.
fn named(titles: &[&str], all: usize) -> String {
    match titles.len() {
        ..=NAMED => in_a_row(titles),
        count if count == all => format!("all {all} loads"),
        count => format!("{count} of {all} loads"),
    }
}

/// `a, b and c`.
pub(crate) fn in_a_row(names: &[&str]) -> String {
    match names {
        [before @ .., last] if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => names.concat(),
    }
}

fn range(values: impl Iterator<Item = f64>) -> Option<RangeInclusive<f64>> {
    values
        .map(|value| value..=value)
        .reduce(|all, one| all.start().min(*one.start())..=all.end().max(*one.end()))
}

/// `1.5 to 28 times`.
fn times(factors: &RangeInclusive<f64>) -> String {
    match [factors.start(), factors.end()].map(|&factor| text::factor(factor)) {
        [least, most] if least == most => format!("{least} times as much"),
        [least, most] => format!("{least} to {most} times as much"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(better: usize, worse: usize) -> Record<'static> {
        Record { better: vec!["x"; better], worse: vec!["y"; worse], unclear: vec!["z"], ..Record::default() }
    }

    #[test]
    fn a_race_names_its_winner_or_says_that_there_is_none() {
        let said = |records: [(usize, usize); 2]| {
            let [one, two] = records.map(|(better, worse)| record(better, worse));
            winner("millrace", &[("vsftpd", one), ("proftpd", two)]).unwrap()
        };
        assert_eq!(
            said([(0, 3), (0, 1)]),
            "millrace came out ahead: no other is better at any load, and each of the others is worse at some."
        );
        assert_eq!(
            said([(0, 3), (0, 0)]),
            "millrace came out ahead of vsftpd, which is worse at some load and better at none."
        );
        assert!(said([(0, 0), (0, 0)]).starts_with("No server came out ahead: "));
        assert!(said([(2, 0), (0, 5)]).starts_with("vsftpd came out ahead of millrace: "));
        for mixed in [[(2, 1), (0, 5)], [(2, 0), (1, 0)]] {
            assert!(said(mixed).starts_with("No server came out ahead of all: vsftpd "), "{}", said(mixed));
        }
        assert_eq!(winner("millrace", &[("vsftpd", record(0, 3))]), None, "its own sentence says that");
    }

    #[test]
    fn few_loads_are_named_and_many_counted() {
        assert_eq!(named(&["logins by 2", "quit"], 9), "logins by 2 and quit");
        assert_eq!(named(&["a", "b", "c"], 9), "3 of 9 loads");
        assert_eq!(named(&["a", "b", "c"], 3), "all 3 loads");
        assert_eq!((in_a_row(&["a"]), in_a_row(&["a", "b", "c"])), ("a".to_owned(), "a, b and c".to_owned()));
    }

    #[test]
    fn factors_are_told_from_the_least_to_the_most() {
        let of = |values: &[f64]| range(values.iter().copied()).map(|factors| times(&factors));
        assert_eq!(of(&[2.0, 28.4, 1.5]).as_deref(), Some("1.50 to 28.4 times as much"));
        assert_eq!(of(&[0.5]).as_deref(), Some("0.50 times as much"));
        assert_eq!(of(&[]), None);
    }
}
