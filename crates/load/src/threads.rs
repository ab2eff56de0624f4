//! How many threads this client loads a server with, where `--threads` does not say it.
//!
//! A server on another machine leaves this one to the client, which takes a thread for each processor. A server on this
//! machine needs processors, too: there the client begins with one thread, and takes more only where that thread is never
//! idle, or half busy beside an idle processor, and where short looks in turn say that more threads get more done.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::host::Audit;
use crate::plan::{Cache, Cell, Names, Op, Settings};

/// How long a look takes, its warm-up aside. Shorter figures are not worth one.
const LOOK: std::time::Duration = std::time::Duration::from_millis(200);
const WARM_UP: std::time::Duration = std::time::Duration::from_millis(50);
const SHORTEST_FIGURE: std::time::Duration = std::time::Duration::from_secs(1);
/// A look takes no more users than these: more only make the logins longer.
const USERS: u32 = 1000;
/// More threads than these were never of use.
const MOST: usize = 32;
/// A thread that ran or waited for a processor for so much of the time is never idle.
const NEVER_IDLE: f64 = 0.9;
/// A thread that is half busy may keep a server waiting, if that leaves this many processors idle.
const HALF_BUSY: f64 = 0.5;
const IDLE: f64 = 0.1;
/// So much more must a larger number of threads get done.
const GAIN: f64 = 1.05;

/// How many threads load the server, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadChoice {
    /// Their number.
    pub count: u32,
    /// The reason, in words.
    pub why: String,
    /// Whether looks at the server under load have led to it.
    pub by_looks: bool,
}

impl ThreadChoice {
    /// A number that is known without a look.
    pub(crate) fn known(count: u32, why: &str) -> Self {
        Self { count, why: why.to_owned(), by_looks: false }
    }
}

impl fmt::Display for ThreadChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = if self.count == 1 { "thread" } else { "threads" };
        write!(f, "{} {threads} of this client: {}", self.count, self.why)
    }
}

/// What a short look at a load has shown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Look {
    /// Operations that ended well, a second.
    pub(crate) rate: f64,
    /// The share of the time in which the keenest thread ran, or waited for a processor.
    pub(crate) keenest: f64,
    /// The share of a processor that the busiest thread used.
    pub(crate) busiest: f64,
    /// Processors that did nothing.
    pub(crate) idle: f64,
}

impl Look {
    /// Returns what a look shows in which this many operations ended well.
    pub(crate) fn of(audit: &Audit, ops: u64) -> Self {
        Self {
            rate: ops as f64 / audit.seconds,
            keenest: audit.client.keenest_thread,
            busiest: audit.client.busiest_thread,
            idle: audit.cores as f64 * (1.0 - audit.machine_busy - audit.stolen),
        }
    }

    /// Returns whether more threads may get more done.
    fn wants_more(&self) -> bool {
        self.keenest >= NEVER_IDLE || (self.busiest >= HALF_BUSY && self.idle >= IDLE)
    }
}

/// Chooses for a cell; `look` takes a look at a cell of a given number of threads.
pub(crate) fn choose<E>(
    cell: &Cell,
    cores: usize,
    is_on_this_machine: bool,
    mut look: impl FnMut(&Cell) -> Result<Look, E>,
) -> Result<ThreadChoice, E> {
    let most = cores.min(MOST).min(cell.users as usize) as u32;
    match cell.settings.threads {
        Some(count) => return Ok(ThreadChoice::known(count, "--threads says so")),
        None if most <= 1 => return Ok(ThreadChoice::known(1, "there is one processor or one user")),
        None if !is_on_this_machine => {
            return Ok(ThreadChoice::known(
                most,
                "one for each processor, since the server is on another machine",
            ));
        }
        None if !is_looked_at(cell) => {
            return Ok(ThreadChoice::known(
                1,
                "of such a load no look can be taken before (--threads takes more)",
            ));
        }
        None => {}
    }
    let mut look = |count| look(&short(cell, count));
    let mut last = look(1)?;
    let mut found = ThreadChoice { by_looks: true, ..ThreadChoice::known(1, "") };
    found.why =
        format!("it had nothing to do for {:.0} % of a short look", (1.0 - last.keenest).max(0.0) * 100.0);
    while found.count < most && last.wants_more() {
        let more = (found.count * 2).min(most);
        // In turn, so that a disturbance is of both.
        let looks = [look(more)?, look(found.count)?, look(more)?];
        let fewer = last.rate.max(looks[1].rate);
        let gain = looks[0].rate.max(looks[2].rate) / fewer.max(1e-9);
        let got = format!("{more} got {:.2} times as much as {} in short looks", gain, found.count);
        if gain < GAIN {
            found.why = format!("{got}: no more than chance");
            break;
        }
        (found.count, found.why, last) = (more, got, looks[2]);
    }
    Ok(found)
}

/// Returns whether a load can be put on for a short while before its figure without changing the figure.
fn is_looked_at(cell: &Cell) -> bool {
    let Settings {
        duration,
        count,
        total,
        endless,
        barrier,
        replay,
        cache,
        dataset,
        ran,
        cgi,
        raw_target,
        ..
    } = &cell.settings;
    let is_once =
        count.is_some() || total.is_some() || *endless || *barrier || replay.is_some() || cell.grows();
    let has_memory =
        *cache != Cache::Any || dataset.is_some() || ran.is_some() || *cgi || raw_target.is_some();
    let stores = cell.op == Op::Stor && (cell.settings.verify || cell.settings.names == Names::Fresh);
    let does_something = !matches!(cell.op, Op::Idle | Op::Quit | Op::Replay);
    *duration >= SHORTEST_FIGURE
        && does_something
        && !is_once
        && !has_memory
        && !stores
        && cell.bad_users() == 0
}

/// The same load by this many threads, for a short look.
fn short(cell: &Cell, threads: u32) -> Cell {
    let settings = Settings {
        threads: Some(threads),
        duration: LOOK,
        warm_up: WARM_UP,
        idlers: 0,
        ..cell.settings.clone()
    };
    Cell { users: cell.users.min(USERS), settings, ..cell.clone() }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::plan::Plan;

    const FLAGS: [(&str, &str); 3] = [("ops", "retr"), ("users", "100"), ("duration", "5s")];

    fn cell(flags: &[(&str, &str)]) -> Cell {
        let flags = [&FLAGS[..], flags].concat();
        Plan::new("ftp://127.0.0.1:2121/", None, &flags).unwrap().cells().pop().unwrap()
    }

    /// Chooses the number of threads on this many processors, for a server that gets this much done by each number. Returns the looks, too.
    fn chosen(
        cell: &Cell,
        cores: usize,
        is_here: bool,
        of: impl Fn(u32) -> Look,
    ) -> (ThreadChoice, Vec<u32>) {
        let mut looks = Vec::new();
        let choice = choose::<Infallible>(cell, cores, is_here, |look| {
            assert!(look.settings.duration == LOOK && look.settings.warm_up == WARM_UP);
            let threads = look.settings.threads.unwrap();
            looks.push(threads);
            Ok(of(threads))
        });
        (choice.unwrap(), looks)
    }

    /// Each thread does so much, up to what the server can.
    fn server_of(limit: f64) -> impl Fn(u32) -> Look {
        move |threads| {
            let rate = f64::from(threads).min(limit);
            let used = rate / f64::from(threads);
            Look { rate, keenest: used, busiest: used, idle: 0.0 }
        }
    }

    #[test]
    fn threads_are_added_while_they_get_more_done() {
        let (choice, looks) = chosen(&cell(&[]), 8, true, server_of(3.0));
        assert_eq!((choice.count, choice.by_looks), (4, true), "{choice}");
        assert_eq!(looks, [1, 2, 1, 2, 4, 2, 4], "four of them are idle for a while, which is enough");
        assert_eq!(
            choice.to_string(),
            "4 threads of this client: 4 got 1.50 times as much as 2 in short looks"
        );
        assert_eq!(chosen(&cell(&[]), 2, true, server_of(9.0)).0.count, 2, "as many as there are processors");
        assert_eq!(chosen(&cell(&[("users", "3")]), 8, true, server_of(9.0)).0.count, 3, "or users");
    }

    #[test]
    fn one_thread_that_is_enough_stays_alone() {
        let (choice, looks) = chosen(&cell(&[]), 8, true, server_of(0.4));
        assert_eq!((choice.count, looks.len()), (1, 1));
        assert_eq!(
            choice.to_string(),
            "1 thread of this client: it had nothing to do for 60 % of a short look"
        );
        // A full machine, of which two threads get no more.
        let full = |_| Look { rate: 100.0, keenest: 1.0, busiest: 0.6, idle: 0.0 };
        let (choice, looks) = chosen(&cell(&[]), 8, true, full);
        assert_eq!((choice.count, looks), (1, vec![1, 2, 1, 2]));
        assert!(choice.why.ends_with("no more than chance"), "{choice}");
    }

    #[test]
    fn a_thread_that_is_half_busy_beside_an_idle_processor_may_be_one_too_few() {
        let look =
            |idle: f64| move |threads| Look { rate: f64::from(threads), keenest: 0.7, busiest: 0.6, idle };
        assert_eq!(chosen(&cell(&[]), 2, true, look(0.5)).0.count, 2);
        assert_eq!(chosen(&cell(&[]), 2, true, look(0.0)).0.count, 1);
    }

    #[test]
    fn no_look_is_taken_where_the_answer_is_known_or_the_figure_would_change() {
        let asked = |flags: &[(&str, &str)], is_here| {
            let (choice, looks) = chosen(&cell(flags), 8, is_here, server_of(9.0));
            assert!(looks.is_empty() && !choice.by_looks, "{choice}");
            choice.count
        };
        assert_eq!(asked(&[("threads", "5")], true), 5);
        assert_eq!(asked(&[("users", "1")], true), 1);
        assert_eq!(asked(&[], false), 8);
        for flag in
            [("duration", "200ms"), ("count", "3"), ("cache", "cold"), ("chaos", "10%"), ("ops", "idle")]
        {
            let flags = [flag, ("server-root", "/")];
            assert_eq!(asked(&flags[..1 + usize::from(flag.0 == "cache")], true), 1, "{flag:?}");
        }
    }
}
