//! A search for a terminal.

use std::fmt::Write;

use millrace_load::run::Ending;

use super::{Capacity, Sought};
use crate::report::quick_sentence;
use crate::report::text::{ms, repeat};
use crate::terminal::cut;

/// The answer of a search, and how it was found.
pub fn render(capacity: &Capacity) -> String {
    let head = format!(
        "{}: {} of {} at {}{}",
        capacity.plan,
        capacity.sought.most(),
        capacity.what,
        capacity.target,
        within(capacity)
    );
    let mut out = format!("{}\n", cut(&head));
    for trial in &capacity.trials {
        let words = match &trial.objection {
            Some(objection) => format!("{objection} ({})", trial.bound),
            None => "well".to_owned(),
        };
        let purpose = trial.purpose.name();
        let done = match capacity.is_of_idle_users() {
            true => "     logged in  ".to_owned(),
            false => format!("{:>9.0} ops/s  ", trial.ops_per_s),
        };
        let latency = trial.latency_ms.map_or_else(String::new, |value| format!("{:>7} ms  ", ms(value)));
        let unit = if capacity.sought == Sought::Users { "users" } else { "asked" };
        let line = format!("{:>7} {unit} {done}{latency}{purpose:<10}  {words}", trial.users);
        let _ = writeln!(out, "{}", cut(&line));
    }
    for sentence in search_sentences(capacity) {
        let _ = writeln!(out, "{}", cut(&sentence));
    }
    out + &repeat(&capacity.command)
}

/// The answer, and what it is worth.
pub(crate) fn search_sentences(capacity: &Capacity) -> Vec<String> {
    let mut said: Vec<String> = quick_sentence(&capacity.quick).into_iter().collect();
    said.push(answer(capacity));
    if capacity.is_of_this_client() {
        said.push(
            "What ended it was this client's machine, or what else ran on it: the server may hold more."
                .to_owned(),
        );
    }
    said
}

/// The objective, behind the answer; nothing without one.
fn within(capacity: &Capacity) -> String {
    capacity
        .slo
        .map_or_else(String::new, |slo| format!(" with {} within {} ms", slo.percentile, ms(slo.limit_ms)))
}

/// Between which ends an answer with an objective lies.
fn error(capacity: &Capacity) -> String {
    let beyond = capacity.beyond.filter(|_| capacity.slo.is_some());
    beyond.map_or_else(String::new, |beyond| {
        let above = (f64::from(beyond) / f64::from(capacity.users.max(1)) - 1.0) * 100.0;
        format!(" ({beyond} did not pass: the answer is too low by at most {above:.1} %)")
    })
}

/// The same in a sentence.
pub(crate) fn answer(capacity: &Capacity) -> String {
    let more = match &capacity.ceiling {
        Some(ceiling) if capacity.is_open => format!(" or more: {ceiling}"),
        _ if capacity.is_open => " or more".to_owned(),
        _ => String::new(),
    };
    let idle = match capacity.is_of_idle_users() {
        true => "; they only logged in and did nothing (--ops noop --think 1s has them do something)",
        false => "",
    };
    let shaky = match capacity.users {
        _ if !capacity.is_shaky => "",
        0 => "; no answer stood up",
        _ => "; an answer above it did not stand up",
    };
    let recovers = match capacity.recovers {
        Some(true) => "; it holds them right after more than that",
        Some(false) => "; ! after more than that it no longer holds them",
        None => "",
    };
    let early = match &capacity.ending {
        Ending::Complete => String::new(),
        Ending::Interrupted => "; it was interrupted, and there may be more".to_owned(),
        Ending::Failed(error) | Ending::Invalid(error) => format!("; it ended early: {error}"),
    };
    match capacity.users {
        0 if capacity.sought == Sought::Users => {
            format!("It does not hold a single user well{shaky}{early}.")
        }
        0 => format!("It holds no rate{}{shaky}{early}.", within(capacity)),
        count => {
            let (most, error) = (capacity.sought.words(count), error(capacity));
            format!("It holds {most}{}{error}{more}{idle}{shaky}{recovers}{early}.", within(capacity))
        }
    }
}
