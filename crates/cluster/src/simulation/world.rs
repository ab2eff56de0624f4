//! The scheduler of a simulated cluster: what happens when, messages, and faults.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use std::time::{Duration, Instant};

use super::database::Database;
use super::draw::Draw;
use super::invariants::{Invariants, Violation};
use super::node::{Answer, LEASE, Login, Node, Question};
use crate::scope::{Claim, SharedScope};
use crate::table::Epoch;

/// How long a node waits for an answer.
const ANSWER: Duration = Duration::from_secs(2);
/// How often a keeper looks what is due.
const TICK: Duration = Duration::from_millis(250);
const STEPS: usize = 1000;
/// One seed in so many has all of the nodes.
const CROWDED: u64 = 16;

/// A process of a node, and what has befallen it. A node that starts again is a new one.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) node: Node,
    pub(super) is_alive: bool,
    pub(super) born: Instant,
    /// By its clock, a thousand milliseconds last so long.
    rate: u32,
    stopped_until: Instant,
    cut_until: Instant,
    /// When a message of it was lost or slow, or it was stopped or cut, last.
    pub(super) troubled: Instant,
    /// The epoch of which it has heard last.
    pub(super) known: Option<Epoch>,
}

impl Process {
    /// Returns what its clock says.
    pub(super) fn clock(&self, now: Instant) -> Instant {
        self.born + (now - self.born) * self.rate / 1000
    }
}

/// A part of a process that waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asker {
    Keeper,
    Login,
}

#[derive(Debug)]
enum Event {
    Wake(usize),
    /// A client comes, when a process goes on that was stopped.
    Client(usize),
    /// The question arrives at the database; whether its answer is lost.
    Arrive(usize, Ask, bool),
    Answer(usize, Ask, Option<Answer>),
}

#[derive(Debug, Clone)]
struct Ask {
    number: u64,
    asker: Asker,
    question: Question,
}

/// A cluster.
#[derive(Debug)]
pub(super) struct World {
    draw: Draw,
    pub(super) now: Instant,
    pub(super) start: Instant,
    pub(super) database: Database,
    pub(super) processes: Vec<Process>,
    away_until: Instant,
    /// Since when the database is there, when it is.
    pub(super) up_since: Instant,
    /// Until when the table of bans is locked.
    pub(super) bans_locked_until: Instant,
    events: BTreeMap<(Instant, u64), Event>,
    numbers: u64,
    /// Questions whose answers are waited for.
    open: HashSet<u64>,
    is_calm: bool,
    invariants: Invariants,
    trace: Option<String>,
}

impl World {
    pub(super) fn new(seed: u64, traces: bool) -> Self {
        let now = Instant::now();
        let mut world = Self {
            draw: Draw::from_seed(seed),
            now,
            start: now,
            database: Database::new(now),
            processes: Vec::new(),
            away_until: now,
            up_since: now,
            bans_locked_until: now,
            events: BTreeMap::new(),
            numbers: 0,
            open: HashSet::new(),
            is_calm: false,
            invariants: Invariants::default(),
            trace: traces.then(String::new),
        };
        let nodes = if seed.is_multiple_of(CROWDED) { 100 } else { 3 + world.draw.up_to(8) };
        (0..nodes).for_each(|_| world.start_node(now));
        world
    }

    /// Returns what has happened.
    pub(super) fn trace(self) -> String {
        self.trace.unwrap_or_default()
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let _ = writeln!(trace, "{:>7} ms  {}", (self.now - self.start).as_millis(), what());
        }
    }

    /// Runs the cluster through its faults, and until all is calm.
    pub(super) fn run(&mut self) -> Result<(), Violation> {
        for _ in 0..STEPS {
            self.act()?;
            let time = self.draw.millis(20, 300);
            self.advance(time)?;
        }
        self.calm()?;
        self.advance(Duration::from_secs(25))?;
        self.invariants.at_rest(self)?;
        for index in 0..self.processes.len() {
            let node = &mut self.processes[index].node;
            (0..node.sessions.len()).for_each(|_| node.logout(0));
        }
        self.advance(Duration::from_secs(5))?;
        self.invariants.at_rest(self)
    }

    /// Ends the faults: what is stopped goes on, what is cut off is not.
    fn calm(&mut self) -> Result<(), Violation> {
        self.is_calm = true;
        self.note(|| "calm".to_owned());
        let now = self.now;
        self.away_until = self.away_until.min(now);
        self.bans_locked_until = self.bans_locked_until.min(now);
        for process in &mut self.processes {
            process.stopped_until = now;
            process.cut_until = now;
        }
        self.advance(Duration::ZERO)
    }

    /// Does one thing: a fault, clients, or bans.
    fn act(&mut self) -> Result<(), Violation> {
        let process = self.draw.up_to(self.processes.len());
        let is_alive = self.processes[process].is_alive;
        match self.draw.up_to(1000) {
            0..15 if is_alive => self.kill(process),
            15..40 if is_alive => self.stop(process),
            40..60 if is_alive => self.cut(process),
            60..66 => self.take_database_away(),
            66..70 => self.lock_bans(),
            70..100 if is_alive && self.is_running(process) => self.change_bans(process),
            _ => {
                for _ in 0..=self.draw.up_to(6) {
                    self.client()?;
                }
            }
        }
        Ok(())
    }

    fn start_node(&mut self, at: Instant) {
        let rate = 900 + self.draw.up_to(201) as u32;
        let first = at + self.draw.millis(0, 250);
        self.push(first, Event::Wake(self.processes.len()));
        self.processes.push(Process {
            node: Node::new(at),
            is_alive: true,
            born: at,
            rate,
            stopped_until: at,
            cut_until: at,
            troubled: at,
            known: None,
        });
    }

    fn kill(&mut self, process: usize) {
        self.note(|| format!("node {process} is killed"));
        self.processes[process].is_alive = false;
        self.processes[process].node.sessions.clear();
        let again = self.now + self.draw.millis(500, 20_000);
        self.start_node(again);
    }

    fn stop(&mut self, process: usize) {
        // Where leases end there is most to see; clients wait there for the process to go on.
        let (least, most) = if self.draw.permille(500) { (5_400, 7_500) } else { (500, 25_000) };
        let until = self.now + self.draw.millis(least, most);
        self.note(|| format!("node {process} is stopped"));
        if !self.processes[process].node.sessions.is_empty() {
            self.processes[process].node.logout(0);
        }
        self.push(until, Event::Client(process));
        self.processes[process].stopped_until = until;
        self.processes[process].troubled = until;
    }

    fn cut(&mut self, process: usize) {
        let until = self.now + self.draw.millis(500, 25_000);
        self.note(|| format!("node {process} is cut off"));
        self.processes[process].cut_until = until;
        self.processes[process].troubled = until;
    }

    fn take_database_away(&mut self) {
        let most = if self.draw.permille(500) { 3_000 } else { 70_000 };
        self.away_until = self.now + self.draw.millis(500, most);
        self.up_since = self.away_until;
        let crashes = self.draw.permille(500);
        self.note(|| format!("the database is away; it has crashed: {crashes}"));
        if crashes {
            self.database.crash();
            self.invariants.crashed();
        }
    }

    fn lock_bans(&mut self) {
        self.note(|| "the bans are locked".to_owned());
        self.bans_locked_until = self.now + self.draw.millis(2_000, 30_000);
    }

    fn is_running(&self, process: usize) -> bool {
        let process = &self.processes[process];
        process.is_alive && process.stopped_until <= self.now && process.born <= self.now
    }

    fn change_bans(&mut self, process: usize) {
        let lifts = self.draw.permille(300);
        let number = self.draw.up_to(250);
        let network = format!("192.0.2.{number}").parse().expect("an address");
        let bans = &self.processes[process].node.bans;
        if lifts {
            bans.lift(network);
        } else {
            bans.ban(network, None);
        }
        self.note(|| format!("node {process}: ban of 192.0.2.{number}, lifted: {lifts}"));
        let (now, up_since) = (self.now, self.up_since);
        self.invariants.bans_changed(network, (!lifts).then_some(process), now, up_since);
    }

    /// A client logs in or out.
    fn client(&mut self) -> Result<(), Violation> {
        let process = self.draw.up_to(self.processes.len());
        if !self.is_running(process) {
            return Ok(());
        }
        let sessions = self.processes[process].node.sessions.len();
        if sessions > 0 && self.draw.permille(450) {
            let session = self.draw.up_to(sessions);
            self.processes[process].node.logout(session);
            return self.invariants.covered(self, process);
        }
        self.log_in(process)
    }

    fn log_in(&mut self, process: usize) -> Result<(), Violation> {
        let user = [b'a' + self.draw.up_to(3) as u8];
        let mut claims = vec![Claim { scope: SharedScope::server(), most: 9 }];
        if self.draw.permille(600) {
            claims.push(Claim { scope: SharedScope::user(&user), most: 2 });
        }
        let clock = self.processes[process].clock(self.now);
        match self.processes[process].node.login(claims, clock) {
            Login::Refused => Ok(()),
            Login::Asks(question) => {
                self.ask(process, Asker::Login, question);
                Ok(())
            }
            Login::Begun => {
                self.note(|| format!("node {process}: a session takes a place on"));
                self.invariants.begun(self, process)
            }
        }
    }

    fn push(&mut self, at: Instant, event: Event) {
        self.numbers += 1;
        self.events.insert((at, self.numbers), event);
    }

    fn fails(&mut self, permille: usize) -> bool {
        !self.is_calm && self.draw.permille(permille)
    }

    /// Sends a question, which may be lost or late, as its answer may be.
    fn ask(&mut self, process: usize, asker: Asker, question: Question) {
        self.numbers += 1;
        let ask = Ask { number: self.numbers, asker, question };
        self.open.insert(ask.number);
        self.push(self.now + ANSWER, Event::Answer(process, ask.clone(), None));
        let (is_lost, is_late, answer_lost) = (self.fails(5), self.fails(10), self.fails(5));
        if is_lost || is_late || answer_lost {
            let until = self.now + ANSWER;
            let troubled = &mut self.processes[process].troubled;
            *troubled = until.max(*troubled);
        }
        if !is_lost {
            let most = if is_late { 8_000 } else { 20 };
            let at = self.now + self.draw.millis(1, most);
            self.push(at, Event::Arrive(process, ask, answer_lost));
        }
    }

    /// Lets time pass, and what happens in it happen.
    fn advance(&mut self, time: Duration) -> Result<(), Violation> {
        let end = self.now + time;
        while let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= end) {
            self.now = self.now.max(entry.key().0);
            let event = entry.remove();
            self.happen(event)?;
        }
        self.now = end;
        let mut invariants = std::mem::take(&mut self.invariants);
        let result = invariants.after_step(self);
        self.invariants = invariants;
        if self.invariants.grace_is_over(self.now) {
            self.give_up_the_absent();
        }
        result
    }

    /// After a crash: places of nodes that could not register in time are not counted.
    fn give_up_the_absent(&mut self) {
        let database = &self.database;
        let is_absent =
            |process: &&mut Process| process.known.is_none_or(|known| !database.nodes.contains_key(&known));
        let sessions =
            self.processes.iter_mut().filter(is_absent).flat_map(|process| &mut process.node.sessions);
        sessions.for_each(|session| session.is_excess = true);
    }

    fn happen(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Arrive(process, ask, answer_lost) => self.arrive(process, ask, answer_lost),
            Event::Wake(process) | Event::Answer(process, ..) if !self.processes[process].is_alive => Ok(()),
            Event::Wake(process) | Event::Answer(process, ..)
                if self.processes[process].stopped_until > self.now =>
            {
                // The threads of a process that goes on run in any order.
                let at = self.processes[process].stopped_until + self.draw.millis(0, 5);
                self.push(at, event);
                Ok(())
            }
            Event::Client(process) if self.is_running(process) => self.log_in(process),
            Event::Client(_) => Ok(()),
            Event::Wake(process) => {
                self.push(self.now + TICK, Event::Wake(process));
                self.wake(process);
                Ok(())
            }
            Event::Answer(process, ask, answer) if self.open.remove(&ask.number) => {
                self.answer(process, ask, answer)
            }
            Event::Answer(..) => Ok(()),
        }
    }

    fn wake(&mut self, process: usize) {
        let clock = self.processes[process].clock(self.now);
        if let Some(question) = self.processes[process].node.wake(clock) {
            self.ask(process, Asker::Keeper, question);
        }
    }

    /// A question arrives at the database, unless the database or the way to it is away.
    fn arrive(&mut self, process: usize, ask: Ask, answer_lost: bool) -> Result<(), Violation> {
        if self.away_until > self.now || self.processes[process].cut_until > self.now {
            if self.draw.permille(500) {
                self.push(self.now + Duration::from_millis(1), Event::Answer(process, ask, None));
            }
            return Ok(());
        }
        if ask.question.is_of_bans() && self.bans_locked_until > self.now {
            return Ok(());
        }
        let answer = self.execute(process, &ask.question)?;
        if !answer_lost {
            let late = if self.fails(10) { 1_900 } else { 20 };
            if late > 20 {
                let until = self.now + ANSWER;
                let troubled = &mut self.processes[process].troubled;
                *troubled = until.max(*troubled);
            }
            let at = self.now + self.draw.millis(1, late);
            self.push(at, Event::Answer(process, ask, Some(answer)));
        }
        Ok(())
    }

    fn execute(&mut self, process: usize, question: &Question) -> Result<Answer, Violation> {
        let (database, now) = (&mut self.database, self.now);
        let before = database.fingerprint();
        let (epoch, is_there) = match question {
            Question::Renew(epoch, _) | Question::Take(epoch, _) | Question::Push(epoch, _) => {
                (Some(*epoch), database.nodes.contains_key(epoch))
            }
            Question::Register(..) | Question::Pull(_) => (None, true),
        };
        let answer = match question {
            Question::Register(replaces, places) => {
                Answer::Registered(database.register(*replaces, LEASE, places, now))
            }
            Question::Renew(epoch, freed) => Answer::Renewed(database.renew(*epoch, freed, now)),
            Question::Take(epoch, claims) => Answer::Taken(database.take(*epoch, claims, now)),
            Question::Pull(since) => Answer::Pulled(database.pull_bans(*since, now)),
            Question::Push(epoch, changes) => Answer::Pushed(database.push_bans(*epoch, changes, now)),
        };
        if !is_there && self.database.fingerprint() != before {
            return Err(Violation(format!("{epoch:?} has ended, and has changed something: {question:?}")));
        }
        if let Answer::Registered(epoch) = answer {
            self.note(|| format!("node {process} registers: {epoch:?}"));
            self.invariants.registered(epoch, process, now);
        }
        for epoch in std::mem::take(&mut self.database.reaped) {
            self.note(|| format!("{epoch:?} is ended"));
            self.reaped(epoch);
        }
        Ok(answer)
    }

    /// An epoch has ended by silence: the sessions that it counted run on, over the limit.
    fn reaped(&mut self, epoch: Epoch) {
        let Some(owner) = self.invariants.end(epoch) else { return };
        let process = &mut self.processes[owner];
        let is_covered = process.known.is_some_and(|known| self.database.nodes.contains_key(&known));
        if !is_covered {
            process.node.sessions.iter_mut().for_each(|session| session.is_excess = true);
        }
    }

    fn answer(&mut self, process: usize, ask: Ask, answer: Option<Answer>) -> Result<(), Violation> {
        let clock = self.processes[process].clock(self.now);
        let is_locked = ask.question.is_of_bans() && self.bans_locked_until + ANSWER > self.now;
        if answer.is_none() && !is_locked {
            self.processes[process].troubled = self.now.max(self.processes[process].troubled);
        }
        if let Some(Answer::Registered(epoch)) = answer {
            self.processes[process].known = Some(epoch);
        }
        let node = &mut self.processes[process].node;
        match (ask.asker, ask.question) {
            (Asker::Login, Question::Take(epoch, claims)) => {
                let begins = node.answer_login(epoch, claims, answer, clock);
                if begins {
                    self.note(|| format!("node {process}: a session begins"));
                    self.invariants.begun(self, process)?;
                }
                if self.processes[process].node.book.lease.epoch() != Some(epoch) {
                    self.wake(process);
                }
            }
            (_, question) => {
                if let Some(question) = node.answer_keeper(question, answer, clock) {
                    self.ask(process, Asker::Keeper, question);
                }
            }
        }
        self.invariants.covered(self, process)
    }

    /// Returns whether a process has been able to speak with the database for so long.
    pub(super) fn is_healthy(&self, process: &Process, time: Duration) -> bool {
        let since = process.troubled.max(process.born).max(self.up_since);
        process.is_alive && self.now.checked_duration_since(since).is_some_and(|healthy| healthy >= time)
    }
}
