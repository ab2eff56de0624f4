//! The scheduler of a simulated cluster: what happens when, messages, and faults.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use std::time::{Duration, Instant};

use super::database::Database;
use super::draw::Draw;
use super::invariants::{Invariants, Violation};
use super::node::{LEASE, Node};
use super::promises::Promises;
use super::questions::{Answer, Question};
use super::tasks::{Fact, Next, Task};
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
    pub(super) stopped_until: Instant,
    pub(super) cut_until: Instant,
    /// What it does that asks more than once.
    tasks: BTreeMap<u64, Task>,
    /// When a message of it was lost or slow, or it was stopped or cut, last.
    pub(super) troubled: Instant,
    /// The epoch of which it has heard last.
    pub(super) known: Option<Epoch>,
}

impl Process {
    /// A process that is born at this time, with a clock of this rate.
    pub(super) fn new(at: Instant, rate: u32) -> Self {
        Self {
            node: Node::new(at),
            is_alive: true,
            born: at,
            rate,
            stopped_until: at,
            cut_until: at,
            tasks: BTreeMap::new(),
            troubled: at,
            known: None,
        }
    }

    /// Returns what its clock says.
    pub(super) fn clock(&self, now: Instant) -> Instant {
        self.born + (now - self.born) * self.rate / 1000
    }
}

/// A part of a process that waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    Keeper,
    Login,
    Task(u64),
}

#[derive(Debug)]
pub(super) enum Event {
    Wake(usize),
    /// The time has come that a task has waited for.
    Task(usize, u64),
    /// A client comes, when a process goes on that was stopped.
    Client(usize),
    /// The question arrives at the database; whether its answer is lost.
    Arrive(usize, Ask, bool),
    Answer(usize, Ask, Option<Answer>),
}

#[derive(Debug, Clone)]
pub(super) struct Ask {
    number: u64,
    asker: Asker,
    question: Question,
}

/// A cluster.
#[derive(Debug)]
pub(super) struct World {
    pub(super) draw: Draw,
    pub(super) now: Instant,
    pub(super) start: Instant,
    pub(super) database: Database,
    pub(super) processes: Vec<Process>,
    pub(super) away_until: Instant,
    /// Since when the database is there, when it is.
    pub(super) up_since: Instant,
    /// Until when the table of bans is locked.
    pub(super) bans_locked_until: Instant,
    events: BTreeMap<(Instant, u64), Event>,
    numbers: u64,
    /// Questions whose answers are waited for.
    open: HashSet<u64>,
    is_calm: bool,
    pub(super) invariants: Invariants,
    pub(super) promises: Promises,
    /// Uploads that are under way.
    pub(super) uploads: [u64; 3],
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
            promises: Promises::default(),
            uploads: [1, 2, 3],
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

    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
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
        // Nodes that were killed last are there again.
        self.advance(Duration::from_secs(21))?;
        self.want_all();
        self.advance(Duration::from_secs(25))?;
        self.invariants.at_rest(self)?;
        self.promises.at_rest(self)?;
        self.ask_all()?;
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

    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn push(&mut self, at: Instant, event: Event) {
        self.numbers += 1;
        self.events.insert((at, self.numbers), event);
    }

    fn fails(&mut self, permille: usize) -> bool {
        !self.is_calm && self.draw.permille(permille)
    }

    /// Sends a question, which may be lost or late, as its answer may be.
    pub(super) fn ask(&mut self, process: usize, asker: Asker, question: Question) {
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
    pub(super) fn advance(&mut self, time: Duration) -> Result<(), Violation> {
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
        let mut promises = std::mem::take(&mut self.promises);
        let result = result.and_then(|()| promises.after_step(self));
        self.promises = promises;
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
            Event::Wake(process) | Event::Answer(process, ..) | Event::Task(process, _)
                if !self.processes[process].is_alive =>
            {
                Ok(())
            }
            Event::Wake(process) | Event::Answer(process, ..) | Event::Task(process, _)
                if self.processes[process].stopped_until > self.now =>
            {
                // The threads of a process that goes on run in any order.
                let at = self.processes[process].stopped_until + self.draw.millis(0, 5);
                self.push(at, event);
                Ok(())
            }
            Event::Client(process) if self.is_running(process) => self.log_in(process),
            Event::Client(_) => Ok(()),
            Event::Task(process, task) => {
                let clock = self.processes[process].clock(self.now);
                self.go_on(process, task, |task, node, facts| task.wake(node, clock, facts))
            }
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

    pub(super) fn wake(&mut self, process: usize) {
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
        let epoch = question.epoch();
        let is_there = epoch.is_none_or(|epoch| database.nodes.contains_key(&epoch));
        let answer = database.execute(question, LEASE, now);
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
            (Asker::Task(task), question) => {
                let asked = (&question, answer);
                self.go_on(process, task, |task, node, facts| task.answer(node, asked, clock, facts))?;
            }
            (_, question) => {
                if let Some(question) = node.answer_keeper(question, answer, clock) {
                    self.ask(process, Asker::Keeper, question);
                }
            }
        }
        for task in std::mem::take(&mut self.processes[process].node.begins) {
            self.begin(process, task)?;
        }
        if self.processes[process].node.is_called() {
            self.wake(process);
        }
        self.invariants.covered(self, process)
    }

    /// Begins a task.
    pub(super) fn begin(&mut self, process: usize, task: Task) -> Result<(), Violation> {
        let (number, clock) = (self.number(), self.processes[process].clock(self.now));
        self.processes[process].tasks.insert(number, task);
        self.go_on(process, number, |task, node, facts| task.begin(node, clock, facts))
    }

    /// Goes on with a task, and does what it wants next.
    fn go_on(
        &mut self,
        process: usize,
        number: u64,
        step: impl FnOnce(&mut Task, &mut Node, &mut Vec<Fact>) -> Next,
    ) -> Result<(), Violation> {
        let Some(mut task) = self.processes[process].tasks.remove(&number) else { return Ok(()) };
        let mut facts = Vec::new();
        let next = step(&mut task, &mut self.processes[process].node, &mut facts);
        for fact in facts {
            self.note(|| format!("node {process}: {fact:?}"));
            let mut promises = std::mem::take(&mut self.promises);
            let result = promises.note(self, process, &fact);
            self.promises = promises;
            result?;
        }
        match next {
            Next::End => return Ok(()),
            Next::Ask(question) => self.ask(process, Asker::Task(number), question),
            Next::Wait(time) => self.push(self.now + time, Event::Task(process, number)),
        }
        self.processes[process].tasks.insert(number, task);
        Ok(())
    }

    /// Returns whether a process has been able to speak with the database for so long.
    pub(super) fn is_healthy(&self, process: &Process, time: Duration) -> bool {
        let since = process.troubled.max(process.born).max(self.up_since);
        process.is_alive && self.now.checked_duration_since(since).is_some_and(|healthy| healthy >= time)
    }
}
