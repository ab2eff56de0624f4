//! The capacity search: the most users, or the highest rate, that a load supports without failing its criteria.
//!
//! It doubles until it does not, halves the gap to within 1 %, and then asks three more times, and once for long: an
//! answer that does not stand up is lowered, and the report says so. At last it loads the server beyond the answer and
//! asks once more: a server that does not come back from that has hysteresis.

mod slo;
pub mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

pub use self::slo::{Slo, SloError};
use crate::report::{Machine, titled};
use millrace_load::elsewhere::{GeneratorError, Generators};
use millrace_load::figure::{CellReport, Measured};
use millrace_load::plan::{Plan, Settings};
use millrace_load::progress::Progress;
use millrace_load::run::Ending;
use millrace_load::run::{RunError, run_from};
use millrace_load::units::{counted, users};
use millrace_load::verdict::Bound;

/// How often an answer must stand up.
const CONFIRMATIONS: u32 = 3;
/// The gap between what goes well and what does not, as a share, that ends the search.
const PRECISION: f64 = 0.01;
/// By how much an answer is lowered that did not stand up; from the third on by twice as much each time, or on a machine
/// that is never still the search would not end.
const LOWER: f64 = 0.97;
/// How many times as long as another load the soak is.
const SOAK: u32 = 5;
/// By how much the last load goes beyond the answer.
const BEYOND: f64 = 1.25;

/// When a load goes well: no operation and no login fails, and
#[derive(Debug, Clone, PartialEq)]
pub struct Criterion {
    /// users are at least at this share of the read rate, or else of the pace that one user has alone, on average and
    /// each but
    pub pace: f64,
    /// this share of them, of which no more get less than half of the median.
    pub starved: f64,
    /// Instead of the pace: a percentile of the latency stays within a limit.
    pub slo: Option<Slo>,
}

impl Default for Criterion {
    fn default() -> Self {
        Self { pace: 0.75, starved: 0.01, slo: None }
    }
}

/// The quantity that is searched for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sought {
    /// The most users.
    #[default]
    Users,
    /// The highest rate, in operations a second, of a given number of users.
    Rate,
}

impl Sought {
    /// A number of it, in words.
    pub fn words(self, count: u32) -> String {
        match self {
            Self::Users => users(count),
            Self::Rate if count == 1 => "1 operation a second".to_owned(),
            Self::Rate => format!("{count} operations a second"),
        }
    }

    /// The number to begin with: a rate that has a 99th percentile in this time.
    fn first(self, length: Duration) -> u32 {
        match self {
            Self::Users => 1,
            Self::Rate => (100.0 / length.as_secs_f64().max(0.01)).ceil() as u32,
        }
    }

    /// The superlative of it in a title.
    pub fn most(self) -> &'static str {
        match self {
            Self::Users => "the most users",
            Self::Rate => "the highest rate",
        }
    }
}

/// The purpose of a load in a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// To find an answer.
    Find,
    /// To see whether it stands up.
    Confirm,
    /// To see whether it stands up for long.
    Soak,
    /// To go beyond it.
    Overload,
    /// To see whether it holds after that.
    Recover,
}

impl Purpose {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Find => "",
            Self::Confirm => "again",
            Self::Soak => "for long",
            Self::Overload => "beyond",
            Self::Recover => "after that",
        }
    }
}

/// One load of a search.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trial {
    /// Its purpose.
    pub purpose: Purpose,
    /// How many users, or how many operations a second were asked for.
    pub users: u32,
    /// Why it did not go well, if it did not.
    pub objection: Option<String>,
    /// Its limit, as reports name it.
    pub bound: &'static str,
    /// Operations a second.
    pub ops_per_s: f64,
    /// The percentile that has a limit, in milliseconds.
    pub latency_ms: Option<f64>,
}

/// The answer of a search.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Capacity {
    /// The server, without its password.
    pub target: String,
    /// The command that repeats the search, without passwords; empty where it is not known.
    pub command: String,
    /// Of what: `retr 1k pasv, stor 1k pasv`.
    pub what: String,
    /// How each load was put on: settings by their flags' names.
    pub settings: BTreeMap<String, String>,
    /// When it began, in seconds since 1970.
    pub began: u64,
    /// The client's machine.
    pub machine: Machine,
    /// What was searched for.
    pub sought: Sought,
    /// The limit of a percentile of the latency.
    pub slo: Option<Slo>,
    /// The most users, or the highest rate, that passed each time; 0 if none did.
    pub users: u32,
    /// The fewest, or the lowest, beyond the answer that did not: the truth lies between the two.
    pub beyond: Option<u32>,
    /// It is all that was asked for, and there may be more.
    pub is_open: bool,
    /// Where the number of users was not given: the client's own limit that stopped the growth.
    pub ceiling: Option<String>,
    /// An answer did not stand up and had to be lowered.
    pub is_shaky: bool,
    /// Whether the answer held right after a load beyond it; `None` where no such load was found.
    pub recovers: Option<bool>,
    /// Whether the search came to its end; what it had found until then holds.
    pub ending: Ending,
    /// The preset, and in which form.
    pub plan: String,
    /// The settings that the quick form of the preset shortened, in words; empty in the full form.
    pub quick: Vec<String>,
    /// Every load, in order.
    pub trials: Vec<Trial>,
}

impl Capacity {
    /// Returns true if users logged in and did nothing.
    pub fn is_of_idle_users(&self) -> bool {
        self.what == "idle"
    }

    /// Returns true if what ended the search was this client's machine, or what else ran on it: then the server may hold more.
    pub fn is_of_this_client(&self) -> bool {
        let failed = self.trials.iter().filter(|trial| trial.objection.is_some() && trial.users > self.users);
        let nearest = failed.min_by_key(|trial| trial.users);
        let elsewhere = [Bound::Client, Bound::Others, Bound::Unknown].map(Bound::name);
        nearest.is_some_and(|trial| elsewhere.contains(&trial.bound))
    }

    /// As JSON, in lines for people.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a capacity has no map with keys that are no text")
    }

    /// As a table for other programs: a line a load.
    pub fn csv(&self) -> String {
        let line = |trial: &Trial| {
            let Trial { purpose, users, ops_per_s, bound, objection, latency_ms } = trial;
            let said = objection.as_deref().unwrap_or_default().replace('"', "\"\"");
            let latency = latency_ms.map_or_else(String::new, |ms| ms.to_string());
            format!("{},{users},{ops_per_s},\"{said}\",{bound},{latency}\r\n", purpose.name())
        };
        format!(
            "purpose,{},ops_per_s,objection,bound,latency_ms\r\n",
            if self.sought == Sought::Users { "users" } else { "rate" }
        ) + &self.trials.iter().map(line).collect::<String>()
    }
}

/// Searches with the first step of a plan, up to `most`.
pub fn search(
    plan: &Plan,
    sought: Sought,
    most: u32,
    criterion: Criterion,
    progress: &dyn Progress,
) -> Result<Capacity, RunError> {
    search_from(plan, None, sought, most, criterion, progress)
}

/// Searches by the load of generators, where there are any.
pub fn search_from(
    plan: &Plan,
    generators: Option<&dyn Generators>,
    sought: Sought,
    most: u32,
    criterion: Criterion,
    progress: &dyn Progress,
) -> Result<Capacity, RunError> {
    let mut plan = plan.clone();
    plan.steps.truncate(1);
    let mut trials = Vec::new();
    let mut alone: Vec<f64> = Vec::new();
    let length = plan.steps.first().map_or(plan.base.duration, |step| step.duration);
    let mut course = Course::new(sought.first(length), most);
    let quiet = plan.steps.first().map_or(plan.base.quiet, |step| step.quiet);
    let read_rate = plan.steps.first().and_then(|step| step.read_rate);
    let what = names(&plan);
    let settings = plan.steps.first().map_or_else(BTreeMap::new, Settings::told);
    let began = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut ending = Ending::Complete;
    while let Some((users, purpose)) = course.next() {
        let times = if purpose == Purpose::Soak { SOAK } else { 1 };
        for step in &mut plan.steps {
            match sought {
                Sought::Users => step.users = vec![users],
                Sought::Rate => step.rate = Some(f64::from(users)),
            }
            step.duration = length * times;
            step.quiet = quiet * times;
        }
        let report = match run_from(&plan, generators, progress) {
            Err(RunError::Interrupted) if !trials.is_empty() => {
                ending = Ending::Interrupted;
                break;
            }
            Err(error @ RunError::Generator(GeneratorError::Lost { .. })) if !trials.is_empty() => {
                ending = Ending::Invalid(error.to_string());
                break;
            }
            report => report?,
        };
        if report.ending != Ending::Complete {
            ending = report.ending;
            break;
        }
        let planned = (length * times).as_secs_f64();
        // Each figure is held against the same one of a user alone.
        let mut cells = report.cells.iter().enumerate();
        let objection = cells
            .find_map(|(at, cell)| criterion.objection(cell, planned, alone.get(at).copied(), read_rate));
        let bound = bound_of(&report.cells);
        let ops_per_s = report.cells.iter().map(|cell| cell.ops_per_s).sum();
        if users == 1 && sought == Sought::Users {
            alone = report.cells.iter().map(|cell| pace(cell, planned)).collect();
        }
        course.note(users, purpose, objection.is_none());
        let latency_ms = criterion.slo.and_then(|slo| slo.worst(&report.cells));
        trials.push(Trial { purpose, users, objection, bound, ops_per_s, latency_ms });
    }
    let Course { good, bad, lowered, recovers, .. } = course;
    let is_shaky = lowered > 0;
    let (is_open, machine) = (bad > most, Machine::this());
    let target = plan.target.to_string();
    let (users, ceiling) = (good, None);
    let (quick, plan) = (plan.quick.clone(), titled(&plan.name, plan.as_published, &plan.quick));
    Ok(Capacity {
        target,
        command: String::new(), // the program knows it
        what,
        settings,
        began,
        machine,
        sought,
        slo: criterion.slo,
        users,
        beyond: (!is_open).then_some(bad),
        is_open,
        ceiling,
        is_shaky,
        recovers,
        ending,
        plan,
        quick,
        trials,
    })
}

/// The names of the loads, one after the other, without the users.
fn names(plan: &Plan) -> String {
    let mut names: Vec<String> = plan.cells().iter().map(|cell| Measured::of(cell).name()).collect();
    let mut known = BTreeSet::new();
    names.retain(|name| known.insert(name.clone()));
    names.join(", ")
}

/// The limit that a load showed: one that hides the server's invalidates every other finding.
fn bound_of(cells: &[CellReport]) -> &'static str {
    let bounds = || cells.iter().map(|cell| cell.verdict.bound);
    let other = || bounds().find(|&bound| bound != Bound::Unsaturated);
    bounds().find(|bound| bound.hides_the_server()).or_else(other).unwrap_or(Bound::Unsaturated).name()
}

impl Criterion {
    /// Why a load did not go well.
    fn objection(
        &self,
        cell: &CellReport,
        planned: f64,
        alone: Option<f64>,
        read_rate: Option<u64>,
    ) -> Option<String> {
        let users = cell.measured.users;
        // Where a user that fails is out, the question is how many are left: users begin one after the other, and keep
        // the given pace.
        if let Some(standing) = &cell.standing {
            let left = standing.left;
            return match &standing.first_death {
                Some(death) => Some(format!("{left} were left standing: the first died of {}", death.why)),
                None if left < users => Some(format!("only {left} began before the time was over")),
                None if cell.is_empty() => {
                    Some("nothing moved before it was quiet: a longer --quiet may do".to_owned())
                }
                None => None,
            };
        }
        let faults = cell.faults.count() + cell.login_faults.count();
        if faults > 0 {
            let first = cell.login_faults.kinds().chain(cell.faults.kinds()).next();
            let words = first.and_then(|kind| kind.first.first()).map_or("", |text| text);
            return Some(format!("{}; {words}", counted(faults, "failure")));
        }
        if let Some(slo) = self.slo {
            return slo.objection(cell);
        }
        if let Some(rate) = read_rate.filter(|_| cell.measured.op == "retr") {
            return self.below_read_rate(cell, rate as f64);
        }
        let pace = pace(cell, planned);
        if let Some(alone) = alone.filter(|alone| pace < self.pace * alone) {
            return Some(format!("{:.0} % of the pace of one user alone", pace / alone * 100.0));
        }
        if let Some(alone) = alone
            && let Some(slow) = self.slow(cell, pace, planned).filter(|&slow| slow < self.pace * alone)
        {
            let (many, share) = (self.starved * 100.0, slow / alone * 100.0);
            return Some(format!(
                "the slowest {many:.0} % are at {share:.0} % of the pace of one user alone"
            ));
        }
        let starved = cell.fairness.starved;
        (starved as f64 > self.starved * f64::from(users)).then(|| match starved {
            1 => "1 user starves".to_owned(),
            some => format!("{some} users starve"),
        })
    }
}

impl Criterion {
    /// Why users that read at a given rate are not held: the pace of each is known, whatever one alone gets.
    fn below_read_rate(&self, cell: &CellReport, rate: f64) -> Option<String> {
        let Some(goodput) = &cell.fairness.goodput else { return Some("nothing moved".to_owned()) };
        let share = |kilobytes: f64| kilobytes * 1e3 / rate;
        let (mean, slowest) = (share(goodput.mean), goodput.slowest_hundredth.map_or(1.0, share));
        if mean < self.pace {
            return Some(format!("{:.0} % of the read rate", mean * 100.0));
        }
        let many = self.starved * 100.0;
        (slowest < self.pace)
            .then(|| format!("the slowest {many:.0} % are at {:.0} % of the read rate", slowest * 100.0))
    }

    /// The pace of the fastest user among those that may be slow, where users are counted separately. The operation
    /// under way at the end counts, too.
    fn slow(&self, cell: &CellReport, pace: f64, planned: f64) -> Option<f64> {
        let goodput = cell.fairness.goodput.as_ref().filter(|_| self.starved < 1.0)?;
        let share = goodput.slowest_hundredth.filter(|_| goodput.mean > 0.0)? / goodput.mean;
        Some(pace * share + 1.0 / cell.seconds.max(planned))
    }
}

/// A user's operations a second. A user that thinks ends its last one before the time is over, which matters for a
/// single user.
fn pace(cell: &CellReport, planned: f64) -> f64 {
    cell.ops as f64 / cell.seconds.max(planned) / f64::from(cell.measured.users)
}

/// Which numbers to try: pure, so that it is tested without a server.
#[derive(Debug)]
struct Course {
    /// Where it begins.
    first: u32,
    most: u32,
    /// The most that went well.
    good: u32,
    /// The fewest that did not; beyond `most` while all has gone well.
    bad: u32,
    confirmed: u32,
    is_soaked: bool,
    is_overloaded: bool,
    /// How often an answer had to be lowered.
    lowered: u32,
    recovers: Option<bool>,
}

impl Course {
    fn new(first: u32, most: u32) -> Self {
        Self {
            first: first.min(most),
            most,
            good: 0,
            bad: most.saturating_add(1),
            confirmed: 0,
            is_soaked: false,
            is_overloaded: false,
            lowered: 0,
            recovers: None,
        }
    }

    /// How many users to try next, and what for.
    fn next(&self) -> Option<(u32, Purpose)> {
        let gap = self.bad - self.good;
        let is_found = f64::from(gap) <= (f64::from(self.good) * PRECISION).max(1.0);
        match self {
            _ if is_found && self.good == 0 => None,
            _ if is_found || self.confirmed > 0 => self.prove(),
            _ if self.bad > self.most => Some(((self.good * 2).clamp(self.first, self.most), Purpose::Find)),
            _ => Some((self.good + gap / 2, Purpose::Find)),
        }
    }

    /// The next load that must confirm the answer.
    fn prove(&self) -> Option<(u32, Purpose)> {
        if self.confirmed < CONFIRMATIONS {
            return Some((self.good, Purpose::Confirm));
        }
        if !self.is_soaked {
            return Some((self.good, Purpose::Soak));
        }
        let beyond = ((f64::from(self.good) * BEYOND) as u32).max(self.bad).min(self.most);
        match self.recovers {
            // There is nothing beyond, as far as is known.
            None if beyond <= self.good => None,
            None if self.is_overloaded => Some((self.good, Purpose::Recover)),
            None => Some((beyond, Purpose::Overload)),
            Some(_) => None,
        }
    }

    fn note(&mut self, users: u32, purpose: Purpose, went_well: bool) {
        match (purpose, went_well) {
            (Purpose::Find, true) => self.good = users,
            (Purpose::Find, false) => self.bad = users,
            (Purpose::Confirm, true) => self.confirmed += 1,
            (Purpose::Soak, true) => self.is_soaked = true,
            (Purpose::Overload, _) => self.is_overloaded = true,
            (Purpose::Recover, _) => self.recovers = Some(went_well),
            (Purpose::Confirm | Purpose::Soak, false) => {
                (self.lowered, self.confirmed) = (self.lowered + 1, 0);
                self.bad = self.good;
                let steps = 1 << self.lowered.saturating_sub(2).min(10);
                self.good = ((f64::from(users) * LOWER.powi(steps)) as u32).min(users - 1);
                // A lowered value is confirmed, not approached again.
                self.bad = self.bad.min(self.good + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Follows a course against a server that holds this many; answers the result and how often it asked.
    fn follow(most: u32, mut holds: impl FnMut(u32, u32) -> bool) -> (Course, u32) {
        let (mut course, mut asked) = (Course::new(1, most), 0);
        while let Some((users, purpose)) = course.next() {
            asked += 1;
            assert!(asked < 100, "{course:?}");
            course.note(users, purpose, holds(users, asked));
        }
        (course, asked)
    }

    #[test]
    fn a_limit_is_found_within_two_percent() {
        for limit in [1, 2, 7, 100, 137, 999, 9999] {
            let (course, asked) = follow(20_000, |users, _| users <= limit);
            assert!(course.good <= limit && f64::from(course.good) >= f64::from(limit) * 0.98, "{course:?}");
            assert!(asked < 40 && course.lowered == 0, "{asked} trials");
            assert_eq!((course.is_soaked, course.recovers), (true, Some(true)));
        }
    }

    #[test]
    fn a_rate_begins_with_a_hundred_operations_and_may_go_below() {
        assert_eq!(Sought::Rate.first(Duration::from_secs(2)), 50);
        for limit in [7, 50, 3000] {
            let mut course = Course::new(50, 100_000);
            assert_eq!(course.next(), Some((50, Purpose::Find)));
            while let Some((rate, purpose)) = course.next() {
                course.note(rate, purpose, rate <= limit);
            }
            assert!(course.good <= limit && f64::from(course.good) >= f64::from(limit) * 0.98, "{course:?}");
        }
    }

    #[test]
    fn no_limit_and_no_capacity_are_answers_too() {
        let (course, _) = follow(500, |_, _| true);
        assert_eq!((course.good, course.bad), (500, 501));
        assert_eq!(follow(500, |_, _| false).0.good, 0);
        assert_eq!(follow(1, |_, _| true).0.good, 1);
    }

    #[test]
    fn a_server_that_does_not_come_back_has_hysteresis() {
        // At 1.25 times its answer, which no step of the search had been, it falls over for good.
        let mut has_fallen = false;
        let (course, _) = follow(10_000, |users, _| {
            has_fallen |= (600..700).contains(&users);
            users <= if has_fallen { 300 } else { 500 }
        });
        assert_eq!((course.recovers, course.is_soaked), (Some(false), true), "{course:?}");
    }

    #[test]
    fn a_machine_that_is_never_still_ends_the_search_all_the_same() {
        for most in [400, 20_000, 1_000_000] {
            // Whatever went well once does not the next time, down to a few users.
            let mut last = 0;
            let (course, asked) =
                follow(most, |users, _| std::mem::replace(&mut last, users) != users || users <= 16);
            assert!(asked < 90 && course.lowered > 3, "{asked}: {course:?}");
        }
    }

    #[test]
    fn an_answer_that_does_not_stand_up_is_lowered() {
        // From the tenth load on it holds fewer.
        let (course, _) = follow(10_000, |users, asked| users <= if asked < 12 { 1000 } else { 900 });
        assert!(course.good <= 900 && course.good > 800, "{course:?}");
    }
}
