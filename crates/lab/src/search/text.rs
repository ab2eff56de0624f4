//! A search for a terminal.

use std::fmt::Write;

use millrace_load::run::Ending;
use millrace_load::units::users;

use super::Capacity;
use crate::report::quick_sentence;
use crate::report::text::repeat;
use crate::terminal::cut;

/// The answer of a search, and how it was found.
pub fn render(capacity: &Capacity) -> String {
    let head = format!("{}: the most users of {} at {}", capacity.plan, capacity.what, capacity.target);
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
        let line = format!("{:>7} users {done}{purpose:<10}  {words}", trial.users);
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
        Ending::Failed(error) => format!("; it ended early: {error}"),
    };
    match capacity.users {
        0 => format!("It does not hold a single user well{shaky}{early}."),
        count => format!("It holds {}{more}{idle}{shaky}{recovers}{early}.", users(count)),
    }
}
