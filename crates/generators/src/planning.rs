//! Capacity planning: how many servers a number of users takes, from measured figures of one server.
//!
//! The method is that of operational analysis (Denning and Buzen, 1978). A server that does at most `C` operations of a kind a
//! second spends `1 / C` of its second on each. Users who ask for `r` of them a second therefore take `r / C` servers, and what
//! they do of several kinds adds up (the utilization law): `U = sum(r / C)`. So many servers as keep the headroom free of each
//! are `U / (1 - headroom)`, rounded up. Where a search has found how many users a server holds, the users take at least
//! their number over that.
//!
//! `C` is the mean of the figures on the plateau of a curve: those with at least nine tenths of the highest median. It counts
//! only where the curve has one, which a verdict tells (the server was the limit), or a load of at most half as many users, or
//! of half the rate, that got as much. Its error is the 95 % interval of that mean, and at least 1 %; the errors of several
//! kinds are independent, and add up as squares.
//!
//! It holds where servers share nothing that is at its limit (a database, a store, a network), and where the kinds of operations
//! want the same part of a server; where they do not, fewer servers do.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use millrace_load::figure::{CellReport, Measured};
use millrace_load::verdict::Bound;
use millrace_stats::{median, plus_minus};
use serde::Deserialize;
use thiserror::Error;

/// Figures with this share of the highest are on the plateau.
const PLATEAU: f64 = 0.9;
/// Fewer figures than these have no error that could be told.
const FEWEST: usize = 3;
/// No capacity is known better.
const LEAST_ERROR: f64 = 0.01;

/// A measured figure of a load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Users of a closed loop, or operations a second that were asked for.
    pub offered: f64,
    /// Operations a second.
    pub achieved: f64,
    /// Its limit.
    pub bound: Bound,
}

/// What is known of a load.
#[derive(Debug, Clone, PartialEq)]
pub enum Measurement {
    /// Figures under several numbers of users or rates.
    Curve(Vec<Point>),
    /// The answer of a search for a rate: what a server does, and by which share that may be wrong.
    Rate(f64, f64),
    /// The answer of a search for users: what a server holds, and by which share that may be wrong.
    Users(f64, f64),
}

/// Loads by their names (`retr 1k pasv`), and what was measured of each.
pub type Measurements = BTreeMap<String, Vec<Measurement>>;

/// What each user does.
#[derive(Debug, Clone, PartialEq)]
pub struct Need {
    /// A load's name, or its first words.
    pub load: String,
    /// Operations of a user a second.
    pub rate: f64,
}

/// Why there is no answer.
#[derive(Debug, Error, PartialEq)]
pub enum PlanningError {
    /// A file that is no result.
    #[error("it is no --json of a load or of a search: {0}")]
    NoResult(String),
    /// A search that came to no answer.
    #[error("the search for {0} has no answer: it ended early, or went no further than it was let")]
    NoAnswer(String),
    /// A need that makes no sense.
    #[error(
        "--need {0:?} is not written like 'retr 1k=0.5', a load and how many a second each user asks for"
    )]
    Need(String),
    /// Nothing is known of a load.
    #[error("nothing was measured of {need:?}; there is {known}")]
    Unknown {
        /// As it was asked for.
        need: String,
        /// The names of the loads.
        known: String,
    },
    /// Several loads are meant.
    #[error("{need:?} may be {known}")]
    Ambiguous {
        /// As it was asked for.
        need: String,
        /// The names of the loads.
        known: String,
    },
    /// Too few figures.
    #[error(
        "{load}: an error can be computed from {FEWEST} figures on its plateau, not from {count}: --repeat {FEWEST} measures more"
    )]
    TooFew {
        /// The load.
        load: String,
        /// How many there are.
        count: usize,
    },
    /// The curve has no plateau.
    #[error(
        "{load}: the rate still rises with the load, and no limit of the server was seen: measure more users, or a higher rate"
    )]
    Rising {
        /// The load.
        load: String,
    },
    /// The headroom or the users.
    #[error("{0}")]
    Senseless(&'static str),
}

/// Part of a plan: a kind of operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// The load.
    pub load: String,
    /// Operations a second of all users.
    pub demand: f64,
    /// Operations a second that a server does.
    pub capacity: f64,
    /// By which share that may be wrong.
    pub error: f64,
}

/// The answer.
#[derive(Debug, Clone, PartialEq)]
pub struct SitePlan {
    /// The users.
    pub users: u32,
    /// Which share of each server is to stay free.
    pub headroom: f64,
    /// The kinds of operations.
    pub parts: Vec<Part>,
    /// How many users a server holds, and by which share that may be wrong, where a search has told.
    pub holds: Option<(f64, f64)>,
    /// How many servers are used up.
    pub used: f64,
    /// By how many that may be wrong.
    pub used_error: f64,
    /// How many servers it takes: at best, as measured, at worst.
    pub nodes: [u32; 3],
}

impl FromStr for Need {
    type Err = PlanningError;

    fn from_str(text: &str) -> Result<Self, PlanningError> {
        let need = text.rsplit_once('=').and_then(|(load, rate)| {
            let rate: f64 = rate.trim().trim_end_matches("/s").parse().ok()?;
            (rate.is_finite() && rate > 0.0 && !load.trim().is_empty())
                .then(|| Self { load: load.trim().to_owned(), rate })
        });
        need.ok_or_else(|| PlanningError::Need(text.to_owned()))
    }
}

/// A `--json` of a load or of a search, as far as it is of interest.
#[derive(Deserialize)]
#[serde(untagged)]
enum ResultFile {
    Load { cells: Vec<CellReport> },
    Search(Found),
}

#[derive(Deserialize)]
struct Found {
    what: String,
    sought: String,
    users: u32,
    beyond: Option<u32>,
    ending: serde_json::Value,
}

/// Reads a `--json` of a load or of a search, and adds what it has measured.
pub fn read(text: &str, into: &mut Measurements) -> Result<(), PlanningError> {
    let file = serde_json::from_str(text).map_err(|error| PlanningError::NoResult(error.to_string()))?;
    match file {
        ResultFile::Load { cells } => {
            for cell in cells.iter().filter(|cell| cell.has_operations()) {
                let (load, point) = (name(&cell.measured), Point::of(cell));
                let known = into.entry(load).or_default();
                match known
                    .iter_mut()
                    .find_map(|one| if let Measurement::Curve(points) = one { Some(points) } else { None })
                {
                    Some(points) => points.push(point),
                    None => known.push(Measurement::Curve(vec![point])),
                }
            }
        }
        ResultFile::Search(found) => {
            let Some(beyond) = found.beyond.filter(|_| found.ending == "complete" && found.users > 0) else {
                return Err(PlanningError::NoAnswer(found.what));
            };
            let answer = f64::from(found.users);
            let error = ((f64::from(beyond) - answer) / answer).max(LEAST_ERROR);
            // A search for a rate names the highest that it was let go to.
            let words: Vec<&str> = found.what.split(' ').filter(|word| !word.starts_with('@')).collect();
            into.entry(words.join(" ")).or_default().push(match found.sought.as_str() {
                "rate" => Measurement::Rate(answer, error),
                _ => Measurement::Users(answer, error),
            });
        }
    }
    Ok(())
}

/// Returns a load's name, whatever its rate was.
fn name(measured: &Measured) -> String {
    Measured { rate: None, ..measured.clone() }.name()
}

impl Point {
    fn of(cell: &CellReport) -> Self {
        let offered = cell.measured.rate.unwrap_or_else(|| f64::from(cell.measured.users));
        Self { offered, achieved: cell.ops_per_s, bound: cell.verdict.bound }
    }
}

/// Computes how many servers this many users take, if each asks for so much and so much of each server is to stay free.
pub fn plan(
    measured: &Measurements,
    needs: &[Need],
    users: u32,
    headroom: f64,
) -> Result<SitePlan, PlanningError> {
    if users == 0 || needs.is_empty() {
        return Err(PlanningError::Senseless("a plan is of users (--users) who need something (--need)"));
    }
    if !(0.0..0.95).contains(&headroom) {
        return Err(PlanningError::Senseless("--headroom is from 0 % to 95 %"));
    }
    let parts: Vec<Part> = needs.iter().map(|need| part(measured, need, users)).collect::<Result<_, _>>()?;
    let used: f64 = parts.iter().map(|part| part.demand / part.capacity).sum();
    let square = |part: &Part| (part.demand / part.capacity * part.error).powi(2);
    let used_error = parts.iter().map(square).sum::<f64>().sqrt();
    let holds = measured.values().flatten().filter_map(|one| match *one {
        Measurement::Users(count, error) => Some((count, error)),
        _ => None,
    });
    let holds = holds.min_by(|one, other| one.0.total_cmp(&other.0));
    let free = 1.0 - headroom;
    let count = |sign: f64| {
        let held = holds.map_or(0.0, |(count, error)| f64::from(users) / count * (1.0 + sign * error));
        let by_work = (used + sign * used_error) / free;
        // A server that is exactly used up is one, whatever the last digit says.
        (by_work.max(held / free) - 1e-9).ceil().max(1.0) as u32
    };
    let nodes = [count(-1.0), count(0.0), count(1.0)];
    Ok(SitePlan { users, headroom, parts, holds, used, used_error, nodes })
}

fn part(measured: &Measurements, need: &Need, users: u32) -> Result<Part, PlanningError> {
    let load = find(measured, &need.load)?;
    let known = &measured[load];
    let searched = known.iter().find_map(|one| match *one {
        Measurement::Rate(rate, error) => Some((rate, error)),
        _ => None,
    });
    let curve = known
        .iter()
        .find_map(|one| if let Measurement::Curve(points) = one { Some(&points[..]) } else { None });
    let (capacity, error) = match searched {
        Some(found) => found,
        None => capacity(load, curve.unwrap_or_default())?,
    };
    Ok(Part { load: load.to_owned(), demand: need.rate * f64::from(users), capacity, error })
}

/// Finds a load by its name, or by the beginning of only one.
fn find<'a>(measured: &'a Measurements, need: &str) -> Result<&'a str, PlanningError> {
    if let Some((name, _)) = measured.get_key_value(need) {
        return Ok(name);
    }
    let begins = |name: &&String| name.strip_prefix(need).is_some_and(|rest| rest.starts_with(' '));
    let found: Vec<&String> = measured.keys().filter(begins).collect();
    let list =
        |names: &[&String]| names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    match found[..] {
        [name] => Ok(name),
        [] => {
            let known = list(&measured.keys().collect::<Vec<_>>());
            Err(PlanningError::Unknown { need: need.to_owned(), known })
        }
        _ => Err(PlanningError::Ambiguous { need: need.to_owned(), known: list(&found) }),
    }
}

/// Returns what a server does a second, by a curve, and by which share that may be wrong.
fn capacity(load: &str, points: &[Point]) -> Result<(f64, f64), PlanningError> {
    // A figure that shows another limit than the server's says nothing of it.
    let points: Vec<Point> = points.iter().filter(|point| !point.bound.hides_the_server()).copied().collect();
    let mut levels: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for point in &points {
        levels.entry(point.offered.to_bits()).or_default().push(point.achieved);
    }
    let highest = levels.values().filter_map(|rates| median(rates)).fold(0.0, f64::max);
    let plateau: Vec<&Point> = points.iter().filter(|point| point.achieved >= PLATEAU * highest).collect();
    if plateau.len() < FEWEST {
        return Err(PlanningError::TooFew { load: load.to_owned(), count: plateau.len() });
    }
    let offered =
        |most: fn(f64, f64) -> f64, start| plateau.iter().map(|point| point.offered).fold(start, most);
    let is_flat = offered(f64::min, f64::MAX) * 2.0 <= offered(f64::max, 0.0);
    if !is_flat && plateau.iter().all(|point| point.bound == Bound::Unsaturated) {
        return Err(PlanningError::Rising { load: load.to_owned() });
    }
    let rates: Vec<f64> = plateau.iter().map(|point| point.achieved).collect();
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    let error = plus_minus(&rates, mean).map_or(LEAST_ERROR, |wide| wide / mean);
    Ok((mean, error.max(LEAST_ERROR)))
}

impl fmt::Display for SitePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { users, headroom, used, used_error, nodes: [best, nodes, worst], .. } = self;
        writeln!(
            f,
            "{users} users take {nodes} servers, with {:.0} % of each to stay free.\n",
            headroom * 100.0
        )?;
        writeln!(f, "{:<24} {:>14} {:>22} {:>8}", "what", "asked a second", "a server a second", "servers")?;
        for Part { load, demand, capacity, error } in &self.parts {
            let able = format!("{capacity:.1} +- {:.1} %", error * 100.0);
            writeln!(f, "{load:<24} {demand:>14.1} {able:>22} {:>8.2}", demand / capacity)?;
        }
        writeln!(
            f,
            "\nThese use up {used:.2} +- {used_error:.2} servers: {best} to {worst} are needed as far as was measured."
        )?;
        if let Some((count, error)) = self.holds {
            writeln!(
                f,
                "A server holds {count:.0} of the users (+- {:.1} %), whatever they ask for.",
                error * 100.0
            )?;
        }
        let busy = |nodes: u32| used / f64::from(nodes.max(1)) * 100.0;
        writeln!(
            f,
            "Each of {nodes} is busy for {:.0} %; if one is lost, the others for {:.0} %.",
            busy(*nodes),
            busy(nodes.saturating_sub(1))
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(f64, f64, Bound)]) -> Measurement {
        let point = |&(offered, achieved, bound): &(f64, f64, Bound)| Point { offered, achieved, bound };
        Measurement::Curve(points.iter().map(point).collect())
    }

    fn measured(loads: &[(&str, Measurement)]) -> Measurements {
        let mut all = Measurements::new();
        for (name, one) in loads {
            all.entry((*name).to_owned()).or_default().push(one.clone());
        }
        all
    }

    fn need(text: &str) -> Need {
        text.parse().unwrap()
    }

    use Bound::{Client, Server, Unsaturated};

    /// A server that does 1000 a second.
    fn downloads() -> Measurement {
        let rising = [(1.0, 120.0, Unsaturated), (10.0, 700.0, Unsaturated)];
        let flat = [(50.0, 990.0, Server), (100.0, 1000.0, Server), (200.0, 1010.0, Server)];
        curve(&[&rising[..], &flat].concat())
    }

    #[test]
    fn known_curves_have_known_answers() {
        let logins = curve(&[(1.0, 50.0, Server), (8.0, 50.0, Server), (8.0, 50.0, Server)]);
        let all = measured(&[("retr 1k pasv", downloads()), ("login", logins)]);
        let plan = plan(&all, &[need("retr 1k=0.5"), need("login = 0.01/s")], 10_000, 0.3).unwrap();
        // 5000 of 1000, and 100 of 50: 7 servers, and 10 with three tenths free.
        assert!((plan.used - 7.0).abs() < 1e-9, "{plan:?}");
        assert_eq!(plan.nodes[1], 10);
        assert!(plan.nodes[0] <= 10 && plan.nodes[2] > 10, "the error may be a server: {plan}");
        let errors: Vec<f64> = plan.parts.iter().map(|part| part.error).collect();
        assert_eq!(errors[1], LEAST_ERROR, "equal figures are not known better");
        let expected = ((5.0 * errors[0]).powi(2) + (2.0 * errors[1]).powi(2)).sqrt();
        assert!((plan.used_error - expected).abs() < 1e-9);
        assert!(
            plan.to_string().contains("10000 users take 10 servers, with 30 % of each to stay free."),
            "{plan}"
        );
        assert!(
            plan.to_string().contains("Each of 10 is busy for 70 %; if one is lost, the others for 78 %.")
        );
    }

    #[test]
    fn the_answers_of_searches_count() {
        let all = measured(&[
            ("retr 1k pasv", Measurement::Rate(400.0, 0.02)),
            ("idle", Measurement::Users(2000.0, 0.01)),
        ]);
        let few = plan(&all, &[need("retr 1k pasv=0.01")], 10_000, 0.0).unwrap();
        assert_eq!((few.used, few.nodes), (0.25, [5, 5, 6]), "users, not what they ask for, take servers");
        let many = plan(&all, &[need("retr=1")], 10_000, 0.0).unwrap();
        assert_eq!((many.used, many.nodes), (25.0, [25, 25, 26]));
    }

    #[test]
    fn too_little_data_is_refused() {
        let refused = |points: &[(f64, f64, Bound)]| {
            plan(&measured(&[("noop", curve(points))]), &[need("noop=1")], 10, 0.2).unwrap_err()
        };
        let load = || "noop".to_owned();
        assert_eq!(
            refused(&[(10.0, 100.0, Server), (20.0, 101.0, Server)]),
            PlanningError::TooFew { load: load(), count: 2 }
        );
        let rising = [(90.0, 96.0, Unsaturated), (100.0, 100.0, Unsaturated), (100.0, 101.0, Unsaturated)];
        assert_eq!(refused(&rising), PlanningError::Rising { load: load() });
        let hidden =
            [(10.0, 100.0, Client), (20.0, 100.0, Client), (30.0, 100.0, Client), (40.0, 100.0, Client)];
        assert_eq!(refused(&hidden), PlanningError::TooFew { load: load(), count: 0 });
        let flat = [(10.0, 98.0, Unsaturated), (20.0, 100.0, Unsaturated), (40.0, 101.0, Unsaturated)];
        assert!(
            plan(&measured(&[("noop", curve(&flat))]), &[need("noop=1")], 10, 0.2).is_ok(),
            "half as many got as much"
        );
    }

    #[test]
    fn needs_name_one_load() {
        let all = measured(&[("retr 1k pasv", downloads()), ("retr 1m pasv", downloads())]);
        let error = |text: &str| plan(&all, &[need(text)], 10, 0.2).unwrap_err().to_string();
        assert_eq!(error("retr=1"), "\"retr\" may be \"retr 1k pasv\", \"retr 1m pasv\"");
        assert!(error("stor=1").contains("nothing was measured of \"stor\"; there is \"retr 1k pasv\""));
        for wrong in ["retr", "retr=x", "retr=-1", "=1", "retr=inf"] {
            assert!(wrong.parse::<Need>().is_err(), "{wrong}");
        }
        assert!(plan(&all, &[], 10, 0.2).is_err() && plan(&all, &[need("retr 1k=1")], 10, 0.99).is_err());
    }

    #[test]
    fn searches_without_an_answer_are_refused() {
        let found = |users: u32, beyond: &str, ending: &str| {
            let text = format!(
                r#"{{"what":"noop @400","sought":"rate","users":{users},"beyond":{beyond},"ending":{ending}}}"#
            );
            let mut into = Measurements::new();
            read(&text, &mut into).map(|()| into)
        };
        let all = found(100, "102", "\"complete\"").unwrap();
        assert_eq!(all["noop"], [Measurement::Rate(100.0, 0.02)]);
        for (users, beyond, ending) in
            [(100, "null", "\"complete\""), (0, "1", "\"complete\""), (100, "102", r#"{"failed":"x"}"#)]
        {
            assert_eq!(found(users, beyond, ending), Err(PlanningError::NoAnswer("noop @400".to_owned())));
        }
        assert!(matches!(read("{}", &mut Measurements::new()), Err(PlanningError::NoResult(_))));
    }
}
