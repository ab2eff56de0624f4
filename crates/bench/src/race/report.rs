//! What a race found: every figure, and every comparison with its interval.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::entrant::{Entrant, Server, Started};
use super::{Figure, Race};
use crate::host::verdict::Bound;
use crate::plan::{Cell, Op, Plan};
use crate::report::table::Table;
use crate::report::{CellReport, Machine, Measured, text};
use crate::stats::{Confidence, Difference, Drift, Interval, Stillness, median, paired};

/// Changes when the meaning of a field does.
const FORMAT: u32 = 1;
const KIND: &str = "race";
/// A race makes dozens of claims: with 95 % some of them would be wrong in most races.
const CONFIDENCE: Confidence = Confidence::P99;
/// What is less than this is no difference that anybody would choose a server for.
const MARGIN: f64 = 0.05;
/// The metric that needs neither an idle machine nor a fast client.
const SERVER_CPU: &str = "server CPU";

/// What is compared.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// What it is called.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// More of it is better.
    pub more_is_better: bool,
    of: fn(&CellReport) -> Option<f64>,
}

/// Everything that is compared: the first that applies to a load is its **main** metric.
pub const METRICS: [Metric; 8] = [
    Metric {
        name: "memory of an idle session",
        unit: "KiB",
        more_is_better: false,
        of: |cell| cell.pss_kib_per_session,
    },
    Metric {
        name: "rate",
        unit: "MB/s",
        more_is_better: true,
        of: |cell| is_large(cell).then_some(cell.mb_per_s),
    },
    Metric {
        name: "rate",
        unit: "ops/s",
        more_is_better: true,
        of: |cell| (!is_large(cell) && !is_idle(cell)).then_some(cell.ops_per_s),
    },
    Metric {
        name: "p99",
        unit: "ms",
        more_is_better: false,
        of: |cell| (!is_idle(cell) && cell.ops > 0).then_some(cell.latency.p99_ms),
    },
    Metric {
        name: SERVER_CPU,
        unit: "us/op",
        more_is_better: false,
        of: |cell| cell.server_us_per_op.filter(|_| !is_idle(cell)),
    },
    Metric {
        name: "server memory",
        unit: "MiB",
        more_is_better: false,
        of: |cell| Some(cell.audit.server.as_ref()?.pss_kib_after as f64 / 1024.0),
    },
    Metric {
        name: "longest stall",
        unit: "ms",
        more_is_better: false,
        of: |cell| (!is_idle(cell) && cell.ops > 0).then_some(cell.fairness.longest_wait_ms),
    },
    Metric {
        name: "fairness",
        unit: "least of a user over the median",
        more_is_better: true,
        of: |cell| (!is_idle(cell) && cell.ops > 0).then_some(cell.fairness.min_over_median),
    },
];

fn is_large(cell: &CellReport) -> bool {
    cell.measured.size.is_some_and(|size| size >= 1 << 20)
}

fn is_idle(cell: &CellReport) -> bool {
    cell.measured.op == "idle"
}

/// What a race found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RaceReport {
    /// Of the JSON.
    pub format: u32,
    /// What this is, for programs that read both: `race`.
    pub kind: String,
    /// This program's.
    pub version: String,
    /// The preset.
    pub plan: String,
    /// What it is.
    pub summary: String,
    /// When the race began, in seconds since 1970.
    pub began: u64,
    /// How long it took.
    pub seconds: f64,
    /// Client and servers run on it.
    pub machine: Machine,
    /// How many times each figure was taken.
    pub blocks: u32,
    /// Of every order that was drawn, and of the intervals.
    pub seed: u64,
    /// How seldom an interval misses the truth.
    pub confidence: Confidence,
    /// A difference below this share is none.
    pub margin: f64,
    /// Whom the others are held against: an index of `contestants`.
    pub against: usize,
    /// Who took part.
    pub contestants: Vec<Contestant>,
    /// One a load.
    pub scenarios: Vec<Scenario>,
    /// How still the machine kept.
    pub sentinel: SentinelReport,
    /// The document's tables, with its numbers and those of each contestant.
    pub tables: Vec<Table>,
    /// What a reader of them must know.
    pub notes: Vec<String>,
    /// The race in sentences, for who reads nothing else.
    pub conclusions: Vec<String>,
    /// What should be known before a figure is believed.
    pub warnings: Vec<String>,
}

/// Who took part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Contestant {
    /// No two are alike.
    pub label: String,
    /// As it says, where it was started for the race.
    pub version: Option<String>,
    /// How it was started; ports and folders are those of the first block.
    pub argv: Vec<String>,
    /// How it serves many.
    pub model: Option<String>,
    /// How a login is checked.
    pub auth: Option<String>,
}

/// A load that was put on all.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Scenario {
    /// `retr 1k pasv, 100 users`.
    pub name: String,
    /// In words.
    pub title: String,
    /// What it is.
    pub measured: Option<Measured>,
    /// In the order of `contestants`.
    pub standings: Vec<Standing>,
}

/// What one contestant did under one load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Standing {
    /// Its label.
    pub contestant: String,
    /// Medians and comparisons, the main one first.
    pub comparisons: Vec<Comparison>,
    /// Operations that ended well, and that did not, in all blocks.
    pub ops: u64,
    /// See there.
    pub errors: u64,
    /// The texts of the first failures.
    pub failures: Vec<String>,
    /// Blocks in which the client was at its limit, and the figure says little of the server.
    pub client_bound: usize,
    /// The latencies of all blocks: (upper edge in microseconds, count).
    pub histogram: Vec<(u64, u64)>,
    /// A figure a block, without time line and histogram.
    pub cells: Vec<CellReport>,
}

/// A metric of one contestant, and against the reference.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Comparison {
    /// What, as [`METRICS`] calls it.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// More of it is better.
    pub more_is_better: bool,
    /// Of each block; `null` where there is none.
    pub samples: Vec<Option<f64>>,
    /// The middle one.
    pub median: f64,
    /// This contestant's over the reference's, of figures of one block; none of the reference itself.
    pub ratio: Option<Interval>,
    /// What that means.
    pub outcome: Option<Outcome>,
}

/// What a comparison means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Than the reference.
    Better,
    /// Than the reference.
    Worse,
    /// No difference that matters.
    Same,
    /// No difference was seen, and the figures vary too much to say that there is none.
    Unclear,
}

impl Outcome {
    /// For a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Same => "same",
            Self::Unclear => "cannot tell",
        }
    }
}

/// How still the machine kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SentinelReport {
    /// What the same small work took before, between and after the blocks, in milliseconds.
    pub readings_ms: Vec<f64>,
    /// What that says.
    pub drift: Drift,
    /// In a sentence.
    pub words: String,
}

impl Contestant {
    pub(super) fn new(entrant: &Entrant, started: &Started) -> Self {
        let label = entrant.label.clone();
        match &entrant.server {
            Server::Url(_) => Self { label, version: None, argv: Vec::new(), model: None, auth: None },
            Server::Known { installed, .. } => Self {
                label,
                version: Some(installed.version.clone()),
                argv: started.process.as_ref().map(|process| process.argv.clone()).unwrap_or_default(),
                model: Some(installed.peer.model.to_owned()),
                auth: Some(installed.peer.auth.to_owned()),
            },
        }
    }
}

impl RaceReport {
    pub(super) fn new(
        race: &Race,
        plan: &Plan,
        began: SystemTime,
        contestants: Vec<Contestant>,
        figures: Vec<Figure>,
        readings_ms: Vec<f64>,
    ) -> Self {
        let mut tables = Vec::new();
        for (entrant, contestant) in contestants.iter().enumerate() {
            let cells: Vec<CellReport> = figures
                .iter()
                .filter(|figure| figure.entrant == entrant)
                .filter_map(|figure| figure.outcome.clone().ok())
                .collect();
            tables.extend(plan.tables.iter().map(|published| {
                let table = Table::new(published, &cells);
                Table { title: format!("{}: {}", contestant.label, table.title), ..table }
            }));
        }
        let scenarios = race.cells.iter().enumerate().map(|(at, cell)| {
            let of_cell = || figures.iter().filter(move |figure| figure.cell == at);
            Scenario::new(race, cell, &|entrant| {
                of_cell().filter(|figure| figure.entrant == entrant).collect()
            })
        });
        let scenarios: Vec<Scenario> = scenarios.collect();
        let drift = Drift::of(&readings_ms, race.seed);
        let mut report = Self {
            format: FORMAT,
            kind: KIND.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            plan: plan.name.clone(),
            summary: plan.summary.clone(),
            began: began.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            seconds: began.elapsed().map_or(0.0, |elapsed| elapsed.as_secs_f64()),
            machine: Machine::this(),
            blocks: race.blocks,
            seed: race.seed,
            confidence: CONFIDENCE,
            margin: MARGIN,
            against: race.against,
            contestants,
            scenarios,
            sentinel: SentinelReport { words: drift.words(), readings_ms, drift },
            tables,
            notes: plan.notes.clone(),
            conclusions: Vec::new(),
            warnings: race.warnings.clone(),
        };
        report.conclude();
        report.warn();
        report
    }

    /// As JSON, in lines for people.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report has no map with keys that are no text")
    }

    /// Reads a report that [`RaceReport::json`] wrote. The error is a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let report: Self =
            serde_json::from_str(text).map_err(|error| format!("is no report of a race: {error}"))?;
        if report.kind != KIND || report.format != FORMAT {
            return Err(format!("is a report of kind {} in format {}", report.kind, report.format));
        }
        Ok(report)
    }

    /// The label of whom the others are held against.
    pub fn reference(&self) -> &str {
        &self.contestants[self.against].label
    }

    /// Claims that bytes were wrong somewhere.
    pub fn has_wrong_data(&self) -> bool {
        let cells =
            || self.scenarios.iter().flat_map(|scenario| &scenario.standings).flat_map(|one| &one.cells);
        cells().any(|cell| cell.faults.kinds().any(|kind| kind.fault.is_wrong_data()))
    }

    /// Claims that a figure could not be taken at all.
    pub fn has_gaps(&self) -> bool {
        let standings = || self.scenarios.iter().flat_map(|scenario| &scenario.standings);
        standings().any(|standing| standing.cells.len() < self.blocks as usize)
    }

    /// Claims that the figures vary too much, or are too few, for any main comparison to say anything.
    pub fn is_inconclusive(&self) -> bool {
        self.scenarios
            .iter()
            .flat_map(|scenario| scenario.standings.iter().filter_map(|standing| standing.main()))
            .filter_map(|main| main.outcome)
            .all(|outcome| outcome == Outcome::Unclear)
    }

    /// A sentence a contestant.
    fn conclude(&mut self) {
        let reference = self.reference().to_owned();
        let others = (0..self.contestants.len()).filter(|at| *at != self.against);
        self.conclusions = others
            .flat_map(|at| [Some(self.conclusion(at, &reference)), self.costs(at, &reference)])
            .flatten()
            .collect();
        self.conclusions.push(self.sentinel.words.clone());
    }

    fn conclusion(&self, at: usize, reference: &str) -> String {
        let mut told: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for scenario in &self.scenarios {
            let outcome = scenario.standings[at].main().and_then(|main| main.outcome);
            told.entry(outcome.map_or("not measured", Outcome::name)).or_default().push(&scenario.title);
        }
        let label = &self.contestants[at].label;
        let all = self.scenarios.len();
        if told.len() == 1
            && let Some((kind, _)) = told.first_key_value()
        {
            return match *kind {
                "same" => format!("{label} and {reference} do not differ in any of the {all} loads."),
                "cannot tell" => format!(
                    "No difference between {label} and {reference} was seen in any of the {all} loads; the \
                     figures vary too much to rule one out."
                ),
                "not measured" => format!("{label} could not be measured."),
                kind => format!("{label} is {kind} than {reference} in all {all} loads."),
            };
        }
        let mut parts = Vec::new();
        for (kind, words) in [
            ("better", "is better than {} at"),
            ("worse", "is worse than {} at"),
            ("same", "does as well at"),
            ("cannot tell", "shows no clear difference at"),
            ("not measured", "could not be measured at"),
        ] {
            if let Some(titles) = told.get(kind) {
                parts.push(format!("{} {}", words.replace("{}", reference), titles.join(", ")));
            }
        }
        format!("{label} {}.", parts.join("; it "))
    }

    /// What it costs where it is known to differ: true even where the client or another program had the machine.
    fn costs(&self, at: usize, reference: &str) -> Option<String> {
        let told = [(Outcome::Worse, "more"), (Outcome::Better, "less")].map(|(outcome, word)| {
            let told = self.scenarios.iter().filter_map(|scenario| {
                let cpu = scenario.standings[at].of(SERVER_CPU).filter(|cpu| cpu.outcome == Some(outcome))?;
                Some(format!("{} times at {}", text::factor(cpu.ratio?.middle), scenario.title))
            });
            (word, told.collect::<Vec<_>>().join(", "))
        });
        let told = told.iter().filter(|(_, loads)| !loads.is_empty());
        let told: Vec<String> = told.map(|(word, loads)| format!("{word} CPU ({loads})")).collect();
        let label = &self.contestants[at].label;
        (!told.is_empty())
            .then(|| format!("For an operation {label} needs {} than {reference}.", told.join(" and ")))
    }

    fn warn(&mut self) {
        if matches!(self.sentinel.drift.kind, Stillness::Restless | Stillness::Drifting) {
            self.warnings.push(format!(
                "{} Ratios of one block suffer less from that than rates do; intervals are wider for it.",
                self.sentinel.words
            ));
        }
        for scenario in &self.scenarios {
            for standing in scenario.standings.iter().filter(|standing| !standing.failures.is_empty()) {
                self.warnings.push(format!(
                    "{} at {}: {} of {} operations failed, first: {}",
                    standing.contestant,
                    scenario.title,
                    standing.errors,
                    standing.ops + standing.errors,
                    standing.failures[0]
                ));
            }
        }
        let bound: Vec<String> = (0..self.contestants.len()).filter_map(|at| self.client_bound(at)).collect();
        if !bound.is_empty() {
            self.warnings.push(format!(
                "This client was at its limit: {}. There a rate says little, and the server may be faster than shown; \
                 its CPU for an operation is still true.",
                bound.join(", ")
            ));
        }
    }

    /// `millrace in 3 of 7 loads`, where the client was at its limit in most blocks of these.
    fn client_bound(&self, at: usize) -> Option<String> {
        let standings = self.scenarios.iter().map(|scenario| &scenario.standings[at]);
        let bound = standings.filter(|standing| standing.client_bound * 2 > standing.cells.len()).count();
        (bound > 0)
            .then(|| format!("{} in {bound} of {} loads", self.contestants[at].label, self.scenarios.len()))
    }
}

impl Scenario {
    fn new<'a>(race: &Race, cell: &Cell, figures: &dyn Fn(usize) -> Vec<&'a Figure>) -> Self {
        let all: Vec<Vec<&Figure>> = (0..race.entrants.len()).map(figures).collect();
        let samples: Vec<Samples> = all.iter().map(|figures| Samples::of(figures, race.blocks)).collect();
        let standings = race.entrants.iter().zip(&all).enumerate().map(|(at, (entrant, figures))| {
            let reference = (at != race.against).then(|| &samples[race.against]);
            Standing::new(entrant, figures, &samples[at], reference, race.seed)
        });
        let standings: Vec<Standing> = standings.collect();
        let first = standings.iter().flat_map(|standing| &standing.cells).next();
        let name = first.map_or_else(|| cell.op.to_string(), text::name);
        let users = cell.users;
        Self {
            name: format!("{name}, {users} {}", if users == 1 { "user" } else { "users" }),
            title: title(cell),
            measured: first.map(|cell| cell.measured.clone()),
            standings,
        }
    }
}

/// A load in words.
fn title(cell: &Cell) -> String {
    let size = cell.size.map(crate::report::short_size).unwrap_or_default();
    let what = match cell.op {
        Op::Retr => format!("downloads of {size}"),
        Op::Stor => format!("uploads of {size}"),
        Op::Login => "logins".to_owned(),
        Op::Idle => "memory of idle sessions".to_owned(),
        Op::List | Op::Nlst | Op::Mlsd => format!("listings by {}", cell.op.to_string().to_uppercase()),
        _ => cell.op.to_string(),
    };
    let mode = cell.mode.map(|mode| mode.to_string()).filter(|mode| mode != "pasv");
    let mode = mode.map_or_else(String::new, |mode| format!(" ({mode})"));
    format!("{what}{mode} by {}", cell.users)
}

/// Of each metric, the blocks' values.
struct Samples([Vec<Option<f64>>; METRICS.len()]);

impl Samples {
    fn of(figures: &[&Figure], blocks: u32) -> Self {
        Self(METRICS.map(|metric| {
            let of_block = |block| {
                let figure = figures.iter().find(|figure| figure.block == block)?;
                (metric.of)(figure.outcome.as_ref().ok()?)
            };
            (0..blocks).map(of_block).collect()
        }))
    }
}

impl Standing {
    fn new(
        entrant: &Entrant,
        figures: &[&Figure],
        samples: &Samples,
        reference: Option<&Samples>,
        seed: u64,
    ) -> Self {
        let mut cells: Vec<CellReport> =
            figures.iter().filter_map(|figure| figure.outcome.clone().ok()).collect();
        let mut histogram = BTreeMap::new();
        for cell in &mut cells {
            for (edge, count) in std::mem::take(&mut cell.histogram) {
                *histogram.entry(edge).or_insert(0) += count;
            }
            cell.timeline.clear();
        }
        let comparisons = METRICS.iter().enumerate().filter_map(|(at, &metric)| {
            let against = reference.map(|reference| &reference.0[at]);
            Comparison::new(metric, &samples.0[at], against, seed)
        });
        let faults = |cell: &CellReport| cell.faults.count() + cell.login_faults.count();
        let texts = cells.iter().flat_map(|cell| cell.login_faults.kinds().chain(cell.faults.kinds()));
        let texts = texts.filter_map(|kind| kind.first.first().cloned());
        let missing = figures.iter().filter_map(|figure| figure.outcome.as_ref().err().cloned());
        let mut failures: Vec<String> = missing.chain(texts).collect();
        failures.dedup();
        failures.truncate(3);
        Self {
            contestant: entrant.label.clone(),
            comparisons: comparisons.collect(),
            ops: cells.iter().map(|cell| cell.ops).sum(),
            errors: cells.iter().map(faults).sum(),
            failures,
            client_bound: cells.iter().filter(|cell| cell.verdict.bound == Bound::Client).count(),
            histogram: histogram.into_iter().collect(),
            cells,
        }
    }

    /// What the load is about: memory, or the rate.
    pub fn main(&self) -> Option<&Comparison> {
        self.comparisons.first()
    }

    /// A comparison by its metric's name.
    pub fn of(&self, name: &str) -> Option<&Comparison> {
        self.comparisons.iter().find(|comparison| comparison.metric == name)
    }
}

impl Comparison {
    /// `None` where nothing was measured.
    fn new(
        metric: Metric,
        samples: &[Option<f64>],
        reference: Option<&Vec<Option<f64>>>,
        seed: u64,
    ) -> Option<Self> {
        let present: Vec<f64> = samples.iter().copied().flatten().collect();
        let ratio = reference.and_then(|reference| {
            let pairs =
                reference.iter().zip(samples).filter_map(|(first, second)| Some(((*first)?, (*second)?)));
            paired(&pairs.collect::<Vec<_>>(), CONFIDENCE, seed)
        });
        let outcome = ratio.map(|ratio| match (Difference::of(&ratio, MARGIN), metric.more_is_better) {
            (Difference::Same, _) => Outcome::Same,
            (Difference::Unclear, _) => Outcome::Unclear,
            (Difference::Higher, true) | (Difference::Lower, false) => Outcome::Better,
            (Difference::Higher, false) | (Difference::Lower, true) => Outcome::Worse,
        });
        Some(Self {
            metric: metric.name.to_owned(),
            unit: metric.unit.to_owned(),
            more_is_better: metric.more_is_better,
            median: median(&present)?,
            samples: samples.to_vec(),
            ratio,
            outcome,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Random;

    fn comparison(metric: usize, reference: &[f64], own: &[f64]) -> Comparison {
        let some = |values: &[f64]| values.iter().copied().map(Some).collect::<Vec<_>>();
        Comparison::new(METRICS[metric], &some(own), Some(&some(reference)), 1).unwrap()
    }

    #[test]
    fn more_is_better_for_rates_and_worse_for_costs() {
        let (few, many) = ([100.0, 102.0, 99.0, 101.0, 100.0], [200.0, 203.0, 198.0, 202.0, 199.0]);
        let (rate, memory) = (2, 0);
        assert_eq!(comparison(rate, &few, &many).outcome, Some(Outcome::Better));
        assert_eq!(comparison(rate, &many, &few).outcome, Some(Outcome::Worse));
        assert_eq!(comparison(memory, &few, &many).outcome, Some(Outcome::Worse));
        assert_eq!(comparison(memory, &few, &few).outcome, Some(Outcome::Same));
    }

    #[test]
    fn what_varies_too_much_is_unclear() {
        let noisy = comparison(2, &[100.0, 50.0, 180.0, 70.0], &[90.0, 160.0, 60.0, 140.0]);
        assert_eq!(noisy.outcome, Some(Outcome::Unclear));
    }

    /// An A/A race as a busy machine makes them: a mood that lasts for a block, and a noise of each figure of which
    /// now and then one takes twice as long.
    fn race_of_a_server_with_itself(seed: u64) -> Comparison {
        let mut random = Random::new(seed);
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            let mood = 1000.0 * (random.normal() * 0.4).exp();
            for side in [&mut first, &mut second] {
                let hit = if random.below(10) == 0 { 0.5 } else { 1.0 };
                side.push(mood * hit * (random.normal() * 0.05).exp());
            }
        }
        comparison(2, &first, &second)
    }

    #[test]
    fn races_of_a_server_with_itself_find_no_difference() {
        let races: Vec<Comparison> = (0..20).map(race_of_a_server_with_itself).collect();
        let holds = races.iter().filter(|race| race.ratio.unwrap().holds(1.0)).count();
        assert!(holds >= 18, "the interval holds \"no difference\" in {holds} of 20");
        let decided = |race: &&Comparison| matches!(race.outcome, Some(Outcome::Better | Outcome::Worse));
        assert!(races.iter().filter(decided).count() <= 2);
    }

    #[test]
    fn a_block_without_a_figure_is_left_out() {
        let own = [Some(2.0), None, Some(2.0), Some(2.0)];
        let reference = vec![Some(1.0), Some(1.0), None, Some(1.0)];
        let comparison = Comparison::new(METRICS[2], &own, Some(&reference), 1).unwrap();
        assert_eq!((comparison.median, comparison.ratio.map(|ratio| ratio.middle)), (2.0, Some(2.0)));
        assert!(Comparison::new(METRICS[2], &[None, None], None, 1).is_none());
    }
}
