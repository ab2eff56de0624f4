//! The generators of a run, as the process that leads it has them.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use millrace_load::elsewhere::{Generated, GeneratorError, Generators, MEETINGS, STARTS, Share, StandIn};
use millrace_load::figure::GeneratorShare;
use millrace_load::limits::users_a_process;
use millrace_load::moment;
use millrace_load::plan::{Cell, OnDeath};
use millrace_load::tally::Counts;
use thiserror::Error;

use crate::clock::{Offset, ROUND_TRIPS, RoundTrip};
use crate::protocol::{Done, Hello, Order, PROTOCOL, Report, SILENCE, line};
use crate::source::{Source, StartError};

/// An answer that takes no work comes within this time.
const PATIENCE: Duration = Duration::from_secs(20);
/// The moment of a start lies so much ahead, and four round trips.
const LEAD: Duration = Duration::from_millis(100);

/// Why there are no generators.
#[derive(Debug, Error)]
pub enum FleetError {
    /// One did not start.
    #[error("--from {name}: {error}")]
    Start {
        /// As it was given.
        name: String,
        /// What happened.
        error: StartError,
    },
    /// One does not answer as it should.
    #[error("{0}")]
    Silent(GeneratorError),
    /// One is of another build.
    #[error("--from: the generator {0} speaks another protocol: it is of another version")]
    OtherVersion(String),
    /// The target is another server for it.
    #[error(
        "--from: {address} is the loopback of each machine, and {name} has its own: name the server by an address that it has on the network"
    )]
    Loopback {
        /// As it was given.
        name: String,
        /// The target.
        address: SocketAddr,
    },
}

/// Generators that have started, and wait for orders. They end with this.
pub struct Fleet {
    generators: Vec<Mutex<Generator>>,
    traits: Vec<Traits>,
    /// The moments at which the generators go on after each meeting of the present load, in nanoseconds of this clock.
    starts: Mutex<[Option<u64>; MEETINGS]>,
}

/// What does not change of a generator.
struct Traits {
    name: String,
    hello: Hello,
    is_here: bool,
    threads: usize,
}

impl Fleet {
    /// Starts all, and compares their clocks. `threads` is how many workers each is to have.
    pub fn start(
        sources: &[Source],
        (program, client): (&Path, &str),
        threads: Option<u32>,
        target: SocketAddr,
    ) -> Result<Self, FleetError> {
        let own = Hello::of_this_process();
        let mut fleet = Self { generators: Vec::new(), traits: Vec::new(), starts: Mutex::default() };
        let mut locals = 0;
        for source in sources {
            let started = source.start(program, client);
            let named = source.to_string();
            for child in started.map_err(|error| FleetError::Start { name: named.clone(), error })? {
                locals += usize::from(matches!(source, Source::Local(_)));
                let name =
                    if let Source::Local(_) = source { format!("local {locals}") } else { named.clone() };
                let mut generator = Generator::of(name.clone(), child);
                let hello = generator.hello().map_err(FleetError::Silent)?;
                if hello.protocol != PROTOCOL {
                    return Err(FleetError::OtherVersion(name));
                }
                if target.ip().is_loopback() && hello.network != own.network {
                    return Err(FleetError::Loopback { name, address: target });
                }
                let is_here = hello.machine == own.machine;
                // On a machine that has others, too, each takes one thread.
                let threads = threads.map_or(if is_here { 1 } else { hello.cores }, |count| count as usize);
                fleet.traits.push(Traits { name, is_here, threads: threads.max(1), hello });
                fleet.generators.push(Mutex::new(generator));
            }
        }
        for generator in &fleet.generators {
            held(generator).compare_clocks().map_err(FleetError::Silent)?;
        }
        Ok(fleet)
    }

    /// Returns the number of users that all of them have descriptors for.
    pub fn most_users(&self, has_data: bool) -> u32 {
        let of_worker = |one: &Traits| users_a_process(one.hello.descriptors, has_data) / one.threads as u64;
        let least = self.traits.iter().map(of_worker).min().unwrap_or(0);
        let workers: usize = self.traits.iter().map(|one| one.threads).sum();
        u32::try_from(least * workers as u64).unwrap_or(u32::MAX)
    }

    /// Returns the process that leads to the generator of this index: it, or OpenSSH's client.
    pub fn process(&self, index: usize) -> u32 {
        held(&self.generators[index]).child.id()
    }

    /// Returns when all go on after a meeting: the first of those who stand in decides it for all.
    fn start_after(&self, meeting: usize, error: Duration) -> u64 {
        let mut starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        let lead = LEAD + error * 8;
        *starts[meeting].get_or_insert_with(|| now() + lead.as_nanos() as u64)
    }
}

impl Generators for Fleet {
    fn shares(&self, cell: &Cell) -> Result<Vec<Share>, GeneratorError> {
        if let Some(what) = undivided(cell) {
            return Err(GeneratorError::Undivided(format!(
                "{what} takes one process: generators cannot divide it"
            )));
        }
        let users = cell.users as usize;
        let parties = self.traits.len().min(users);
        let own = |one: &Traits| one.threads.min((users / parties.max(1)).max(1));
        let all: usize = self.traits[..parties].iter().map(own).sum();
        let mut shares = Vec::new();
        for one in &self.traits[..parties] {
            let first = shares.last().map_or(0, |last: &Share| last.first + last.own);
            shares.push(Share { first, own: own(one), all });
        }
        let room = |(one, share): (&Traits, &Share)| {
            let most = users_a_process(one.hello.descriptors, cell.op.has_data());
            let needed = u64::from(share.users(cell.sessions()));
            (needed > most).then(|| {
                let name = &one.name;
                GeneratorError::Undivided(format!(
                    "{needed} users of {name} need more descriptors than it has, which are for {most}"
                ))
            })
        };
        self.traits.iter().zip(&shares).find_map(room).map_or(Ok(shares), Err)
    }

    fn generate(&self, index: usize, stand_in: &StandIn<'_>) -> Result<Generated, GeneratorError> {
        if index == 0 {
            // The others come here only after the first meeting, which waits for this one.
            *self.starts.lock().unwrap_or_else(PoisonError::into_inner) = [None; MEETINGS];
        }
        let traits = &self.traits[index];
        let mut generator = held(&self.generators[index]);
        let offset = generator.compare_clocks()?;
        let mut order = stand_in.order.clone();
        // Another machine's processes and folders are not those of these names.
        order.cell.settings.server_pid = None;
        order.cell.settings.server_root = None;
        let (cell, share) = (order.cell.clone(), order.share);
        generator.tell(&Order::Load(Box::new(order)))?;
        let done = generator.attend(stand_in, traits.is_here, |meeting| {
            let start = self.start_after(meeting, offset.error);
            STARTS.contains(&meeting).then(|| offset.theirs(start))
        })?;
        let Done { mut tally, timeline, audit } = done;
        tally.shift(-offset.ahead_ns);
        let start = self.start_after(STARTS[1], offset.error);
        let users = share.users(cell.sessions());
        let part = GeneratorShare {
            number: index + 1,
            name: traits.name.clone(),
            host: traits.hello.host.clone(),
            is_here: traits.is_here,
            threads: share.own,
            users,
            start_ms: tally.opened.map_or(0.0, |opened| since(start, opened)),
            clock_error_ms: offset.error.as_secs_f64() * 1e3,
            descriptors: traits.hello.descriptors,
            descriptors_needed: u64::from(users) * if cell.op.has_data() { 2 } else { 1 },
            ..GeneratorShare::default()
        };
        let part = part.counted(cell.op, &tally, &audit);
        Ok(Generated { tally, timeline, share: Some(part) })
    }
}

/// Returns what of a load one process must have whole.
fn undivided(cell: &Cell) -> Option<&'static str> {
    let settings = &cell.settings;
    let has = [
        (settings.on_death != OnDeath::Off, "--on-death"),
        (settings.chaos.is_some(), "--chaos"),
        (settings.replay.is_some(), "--replay"),
        (settings.ran.is_some(), "--ran"),
        (settings.source.is_some(), "--source"),
    ];
    has.into_iter().find_map(|(has, what)| has.then_some(what))
}

/// Nanoseconds of this machine's clock.
fn now() -> u64 {
    moment::now().0.as_nanos() as u64
}

/// Returns how long after a moment of this machine's clock another one lies, in milliseconds.
fn since(start: u64, moment: Instant) -> f64 {
    let (uptime, now) = moment::now();
    let at = match moment.checked_duration_since(now) {
        Some(ahead) => uptime + ahead,
        None => uptime.saturating_sub(now - moment),
    };
    (at.as_nanos() as i64 - start as i64) as f64 / 1e6
}

fn held(generator: &Mutex<Generator>) -> MutexGuard<'_, Generator> {
    generator.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One of them, with the process that leads to it.
struct Generator {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    reports: Receiver<(Report, u64)>,
    pings: u32,
}

impl Generator {
    fn of(name: String, mut child: Child) -> Self {
        let (report, reports) = channel();
        let output = child.stdout.take();
        thread::spawn(move || {
            let listen = |output: ChildStdout| {
                for said in BufReader::new(output).lines().map_while(Result::ok) {
                    let came = now();
                    let Ok(heard) = serde_json::from_str(&said) else { break };
                    if report.send((heard, came)).is_err() {
                        break;
                    }
                }
            };
            output.map(listen)
        });
        let input = child.stdin.take();
        Self { name, child, input, reports, pings: 0 }
    }

    fn lost(&self, why: &str) -> GeneratorError {
        GeneratorError::Lost { name: self.name.clone(), why: why.to_owned() }
    }

    /// The next report, and when it came.
    fn next(&self, patience: Duration) -> Result<(Report, u64), GeneratorError> {
        self.reports.recv_timeout(patience).map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                self.lost(&format!("nothing was heard of it for {} s", patience.as_secs()))
            }
            RecvTimeoutError::Disconnected => self.lost("it has ended, or the connection to it has"),
        })
    }

    fn tell(&mut self, order: &Order) -> Result<(), GeneratorError> {
        let told = self.input.as_mut().map_or(Ok(()), |input| input.write_all(&line(order)));
        told.map_err(|error| self.lost(&format!("it cannot be told anything: {error}")))
    }

    fn hello(&mut self) -> Result<Hello, GeneratorError> {
        match self.next(PATIENCE)?.0 {
            Report::Hello(hello) => Ok(hello),
            other => Err(self.unexpected(&other)),
        }
    }

    fn unexpected(&self, report: &Report) -> GeneratorError {
        let text = format!("{report:?}");
        self.lost(&format!(
            "it said {} where that has no place",
            text.split(['(', ' ']).next().unwrap_or_default()
        ))
    }

    fn compare_clocks(&mut self) -> Result<Offset, GeneratorError> {
        let mut trips = Vec::new();
        for _ in 0..ROUND_TRIPS {
            self.pings += 1;
            let asked = now();
            self.tell(&Order::Ping(self.pings))?;
            trips.push(loop {
                match self.next(PATIENCE)? {
                    (Report::Pong(number, said), answered) if number == self.pings => {
                        break RoundTrip { asked, said, answered };
                    }
                    // Of a load that has ended.
                    (Report::Pong(..) | Report::Live(_), _) => {}
                    (other, _) => return Err(self.unexpected(&other)),
                }
            });
        }
        Offset::estimate(&trips).ok_or_else(|| self.lost("its clock cannot be compared"))
    }

    /// Meets the others in its place until it is done. `moment` says when it goes on after a meeting, by its own clock.
    fn attend(
        &mut self,
        stand_in: &StandIn<'_>,
        is_here: bool,
        moment: impl Fn(usize) -> Option<u64>,
    ) -> Result<Done, GeneratorError> {
        let mut was_stopped = false;
        loop {
            match self.next(SILENCE)?.0 {
                Report::Live(mut counts) => {
                    if !is_here {
                        counts.iter_mut().for_each(|one: &mut Counts| one.thread = 0);
                    }
                    stand_in.show(&counts);
                }
                Report::Here => {
                    let meeting = stand_in.meet();
                    self.tell(&Order::Go(moment(meeting).unwrap_or(0)))?;
                }
                Report::Done(done) => return Ok(*done),
                Report::Failed(why) => return Err(self.lost(&why)),
                Report::Pong(..) => {}
                other @ Report::Hello(_) => return Err(self.unexpected(&other)),
            }
            if stand_in.is_over() && !was_stopped {
                was_stopped = true;
                self.tell(&Order::Stop)?;
            }
        }
    }
}

impl Drop for Generator {
    /// Closes its input, at which it ends; after a while it is ended.
    fn drop(&mut self) {
        self.input = None;
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use millrace_load::plan::Plan;
    use proptest::prelude::*;

    use super::*;

    /// Generators of this many threads each, none of which runs.
    fn fleet(threads: &[usize]) -> Fleet {
        let one = |&threads: &usize| Traits {
            name: "one".to_owned(),
            hello: Hello { descriptors: 1064, ..Hello::of_this_process() },
            is_here: false,
            threads,
        };
        Fleet { generators: Vec::new(), traits: threads.iter().map(one).collect(), starts: Mutex::default() }
    }

    fn cell(flags: &[(&str, &str)]) -> Cell {
        Plan::new("ftp://127.0.0.1:2121/", None, flags).unwrap().cells().remove(0)
    }

    proptest! {
        #[test]
        fn the_shares_are_the_whole(threads in proptest::collection::vec(1usize..9, 1..9), users in 1u32..400) {
            let shares = fleet(&threads).shares(&cell(&[("ops", "noop"), ("users", &users.to_string())])).unwrap();
            let all: usize = shares.iter().map(|share| share.own).sum();
            prop_assert!(all <= users as usize && shares.len() == threads.len().min(users as usize));
            let mut next = 0;
            for share in &shares {
                prop_assert!(share.first == next && share.own > 0 && share.all == all);
                next += share.own;
            }
            prop_assert_eq!(shares.iter().map(|share| share.users(users)).sum::<u32>(), users);
        }
    }

    #[test]
    fn what_the_generators_cannot_do_is_said() {
        let said = |flags: &[(&str, &str)]| {
            let flags = [&[("ops", "retr")], flags].concat();
            fleet(&[1, 1]).shares(&cell(&flags)).unwrap_err().to_string()
        };
        assert!(
            said(&[("users", "1002")])
                .contains("501 users of one need more descriptors than it has, which are for 500")
        );
        assert!(
            said(&[("users", "9"), ("on-death", "stop-growth")]).contains("--on-death takes one process")
        );
        assert_eq!(fleet(&[1, 1]).most_users(true), 1000);
        assert_eq!(fleet(&[3, 1]).most_users(true), 664, "the first has three of four users");
    }

    #[test]
    fn all_go_on_at_one_moment_of_their_own_clocks() {
        let fleet = fleet(&[1, 1]);
        let error = Duration::from_millis(1);
        let first = fleet.start_after(3, error);
        assert!(first > now(), "it lies ahead");
        assert_eq!(fleet.start_after(3, error * 9), first);
        assert_ne!(fleet.start_after(1, error), first);
    }
}
