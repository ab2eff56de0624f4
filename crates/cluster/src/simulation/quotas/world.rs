//! The nodes, the database and the time of a simulation of quotas: what happens when, and what goes wrong.

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use millrace_storage::{Ledger, MemoryStorage};
use millrace_vfs::{FileError, Storage, VirtualPath, Wait, WriteMode};

use super::door::{Door, Way};
use super::table::QuotaTable;
use crate::lock::lock;
use crate::simulation::draw::Draw;
use crate::simulation::invariants::Violation;
use crate::simulation::node::LEASE;

/// What the tree may hold.
pub(super) const MOST: u64 = 40_000;
const NAMES: usize = 12;
/// Bytes that are written at a time, at most.
const PIECE: usize = 4_000;
const STEPS: usize = 400;
/// How long a node waits for an answer.
const ANSWER: Duration = Duration::from_secs(2);
/// Nodes that wait within one another, at most: what others do while one waits is done on its stack.
const NESTED: usize = 4;

/// What goes wrong in a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Faults {
    /// Nodes are killed, and nothing else: the tree never holds more than the quota.
    Kills,
    /// Answers and questions are lost or late as well, of shares and counts.
    Answers,
    /// Nodes are stopped and cut off as well.
    Silence,
}

/// A question that is executed when its node waits for it no longer.
type LateQuestion = Box<dyn FnOnce(&mut QuotaTable, Instant) + Send>;

struct State {
    draw: Draw,
    now: Instant,
    table: QuotaTable,
    late: Vec<(Instant, LateQuestion)>,
    doors: Vec<Arc<Door>>,
    numbers: u64,
    is_calm: bool,
    /// By how much the tree may hold more than the quota, after what has gone wrong.
    excess: u64,
    violation: Option<Violation>,
    trace: Option<String>,
}

/// A cluster that serves one tree.
pub(super) struct World {
    state: Mutex<State>,
    files: Arc<MemoryStorage>,
    faults: Faults,
    depth: AtomicUsize,
    start: Instant,
}

impl World {
    pub(super) fn new(seed: u64, traces: bool) -> Arc<Self> {
        let (now, files) = (Instant::now(), Arc::new(MemoryStorage::new()));
        files.insert("/0", vec![7; 10_000]);
        Arc::new_cyclic(|world: &Weak<Self>| {
            let mut draw = Draw::from_seed(seed);
            let nodes = if seed.is_multiple_of(16) { 100 } else { 2 + draw.up_to(6) };
            let doors = (1..=nodes as u64).map(|number| Arc::new(Door::open(world, number, &files, now)));
            let state = State {
                draw,
                now,
                table: QuotaTable::default(),
                late: Vec::new(),
                doors: doors.collect(),
                numbers: nodes as u64,
                is_calm: false,
                excess: 0,
                violation: None,
                trace: traces.then(String::new),
            };
            let faults = [Faults::Kills, Faults::Answers, Faults::Silence][seed as usize % 3];
            let depth = AtomicUsize::new(0);
            Self { state: Mutex::new(state), files: Arc::clone(&files), faults, depth, start: now }
        })
    }

    pub(super) fn now(&self) -> Instant {
        lock(&self.state).now
    }

    pub(super) fn trace(&self) -> String {
        lock(&self.state).trace.clone().unwrap_or_default()
    }

    fn note(&self, what: impl FnOnce() -> String) {
        let mut state = lock(&self.state);
        let at = (state.now - self.start).as_millis();
        if let Some(trace) = &mut state.trace {
            let _ = writeln!(trace, "{at:>7} ms  {}", what());
        }
    }

    /// The tree may hold so much more.
    pub(super) fn allow(&self, bytes: u64) {
        lock(&self.state).excess += bytes;
    }

    fn permille(&self, times: usize) -> bool {
        lock(&self.state).draw.permille(times)
    }

    fn up_to(&self, end: usize) -> usize {
        lock(&self.state).draw.up_to(end)
    }

    fn millis(&self, least: usize, most: usize) -> Duration {
        lock(&self.state).draw.millis(least, most)
    }

    /// Asks the database, on a way on which anything may happen. `None`: there is no answer in time.
    pub(super) fn ask<T>(
        &self,
        way: &Way,
        question: impl Fn(&mut QuotaTable, Instant) -> T + Send + 'static,
    ) -> Option<T> {
        let (fails, is_cut) = {
            let state = lock(&self.state);
            (!state.is_calm && self.faults != Faults::Kills, way.state().cut_until > state.now)
        };
        if is_cut {
            self.wait(way, ANSWER, false);
            return None;
        }
        let fate = if fails { self.up_to(1000) } else { 1000 };
        match fate {
            0..10 => {
                self.wait(way, ANSWER, false);
                None
            }
            10..20 => {
                self.wait(way, ANSWER, false);
                let delay = self.millis(0, 6_000);
                let mut state = lock(&self.state);
                let at = state.now + delay;
                let late: LateQuestion = Box::new(move |table, now| drop(question(table, now)));
                state.late.push((at, late));
                None
            }
            20..30 => {
                self.execute(&question);
                self.wait(way, ANSWER, false);
                None
            }
            30..60 => {
                // It is slow, and others are not.
                self.wait(way, Duration::from_millis(300), false);
                let answer = self.execute(&question);
                self.wait(way, Duration::from_millis(300), false);
                Some(answer)
            }
            60..75 if self.faults == Faults::Silence => {
                // An answer that is there when the process goes on is an answer, however late.
                let answer = self.execute(&question);
                let time = self.millis(500, 20_000);
                self.wait(way, time, true);
                Some(answer)
            }
            _ => Some(self.execute(&question)),
        }
    }

    fn execute<T>(&self, question: &impl Fn(&mut QuotaTable, Instant) -> T) -> T {
        let mut state = lock(&self.state);
        let now = state.now;
        question(&mut state.table, now)
    }

    /// Has the others go on for so long, while a node waits.
    fn wait(&self, way: &Way, time: Duration, is_stopped: bool) {
        {
            let mut state = way.state();
            (state.is_asking, state.is_stopped) = (true, is_stopped);
        }
        let end = self.now() + time;
        let depth = self.depth.fetch_add(1, Ordering::Relaxed);
        while depth < NESTED && self.now() < end {
            self.act();
            let pause = self.millis(5, 200);
            self.pass(pause);
        }
        self.depth.fetch_sub(1, Ordering::Relaxed);
        let rest = end.saturating_duration_since(self.now());
        self.pass(rest);
        let mut state = way.state();
        (state.is_asking, state.is_stopped) = (false, false);
    }

    /// Lets time pass: late questions are executed, and keepers take their turns.
    fn pass(&self, time: Duration) {
        let end = self.now() + time;
        while self.now() < end {
            let doors = {
                let mut state = lock(&self.state);
                state.now = (state.now + Duration::from_millis(250)).min(end);
                let now = state.now;
                let (due, later) =
                    std::mem::take(&mut state.late).into_iter().partition(|(at, _)| *at <= now);
                state.late = later;
                let due: Vec<(Instant, LateQuestion)> = due;
                due.into_iter().for_each(|(_, question)| question(&mut state.table, now));
                state.doors.clone()
            };
            for door in doors {
                self.keep(&door);
            }
        }
    }

    /// Stands for a turn of the keeper, whose own questions have answers here, unless the node is cut off; and for the second in
    /// which shares are told.
    fn keep(&self, door: &Door) {
        let now = self.now();
        let is_asking = {
            let mut node = door.way.state();
            if node.is_dead || node.is_stopped || node.next_turn > now || node.cut_until > now {
                return;
            }
            node.next_turn = now + Duration::from_secs(1);
            let mut state = lock(&self.state);
            let renewed = node.lease.epoch().filter(|epoch| state.table.renew(*epoch, now));
            let epoch = renewed.unwrap_or_else(|| state.table.register(node.last, now));
            node.lease.hold(epoch, now);
            node.last = Some(epoch);
            let ended = std::mem::take(&mut node.ended);
            state.table.unlock(epoch, &ended);
            node.is_asking
        };
        self.reap(now);
        if !is_asking && self.depth.load(Ordering::Relaxed) < NESTED {
            door.ledger.keep(true).expect("it keeps nothing itself");
        }
    }

    /// Ends silent nodes. One that lives may still use what it had reserved.
    fn reap(&self, now: Instant) {
        let mut state = lock(&self.state);
        for epoch in state.table.reap(LEASE, now) {
            let reserved = state.table.shares.get(&epoch).map_or(0, |share| share.reserved_bytes);
            let is_its = |door: &&Arc<Door>| door.way.state().last == Some(epoch);
            if state.doors.iter().any(|door| is_its(&door)) {
                state.excess += reserved;
            }
        }
    }

    /// Does one thing: a fault, or what a client wants.
    fn act(&self) {
        let nodes = lock(&self.state).doors.len();
        let index = self.up_to(nodes);
        let door = Arc::clone(&lock(&self.state).doors[index]);
        if door.way.state().is_asking {
            return;
        }
        match self.up_to(1000) {
            0..8 => self.kill(index),
            8..20 if self.faults == Faults::Silence => {
                let until = self.now() + self.millis(500, 15_000);
                self.note(|| format!("node {index} is cut off"));
                door.way.state().cut_until = until;
            }
            20..40 => {
                let counted = door.ledger.recount(Some("tree"));
                self.note(|| format!("node {index} counts: {counted:?}"));
            }
            _ => self.client(index, &door),
        }
        self.check();
    }

    fn kill(&self, index: usize) {
        let is_in_doubt = { lock(&self.state).doors[index].way.state().is_in_doubt };
        if is_in_doubt {
            return;
        }
        self.note(|| format!("node {index} is killed"));
        let mut state = lock(&self.state);
        state.numbers += 1;
        let (now, number) = (state.now, state.numbers);
        let world = state.doors[index].way.world();
        let door = Arc::new(Door::open(&world, number, &self.files, now));
        let dead = std::mem::replace(&mut state.doors[index], door);
        drop(state);
        dead.way.state().is_dead = true;
        lock(&dead.uploads).clear();
    }

    /// A client uploads, ends an upload, renames or removes.
    fn client(&self, index: usize, door: &Door) {
        let [name, other] = [(); 2].map(|()| {
            let number = self.up_to(NAMES).to_string();
            VirtualPath::root().join(number.as_bytes()).expect("a name")
        });
        let open = lock(&door.uploads).len();
        match self.up_to(100) {
            0..20 if open < 3 => {
                let begun = door.quota.open_write(&name, WriteMode::Replace, Wait::Allowed);
                self.told(index, "begins", &begun);
                lock(&door.uploads).extend(begun.ok());
            }
            20..75 if open > 0 => {
                let turn = self.up_to(open);
                let mut upload = lock(&door.uploads).swap_remove(turn);
                // Small ones are paid for out of what a share has in advance.
                let most = if self.permille(500) { PIECE / 16 } else { PIECE };
                let piece = vec![7; 1 + self.up_to(most)];
                match upload.write_all(&piece) {
                    Ok(()) => lock(&door.uploads).push(upload),
                    Err(error) => self.told::<()>(index, "writes", &Err(error)),
                }
            }
            75..90 if open > 0 => {
                let turn = self.up_to(open);
                let upload = lock(&door.uploads).swap_remove(turn);
                if self.permille(800) {
                    self.told(index, "commits", &upload.commit());
                } else {
                    upload.abort();
                }
            }
            90..95 => self.told(index, "removes", &door.quota.remove_file(&name)),
            95..97 => self.told(index, "renames", &door.quota.rename(&name, &other)),
            _ => {}
        }
    }

    fn told<T>(&self, index: usize, what: &str, result: &Result<T, FileError>) {
        let error = result.as_ref().err();
        self.note(|| format!("node {index} {what}: {error:?}"));
    }

    /// Bytes and files that are there.
    fn stored(&self) -> (u64, u64) {
        let (ledger, files) = (Ledger::new(None), Arc::clone(&self.files) as Arc<dyn Storage>);
        let _tally = ledger.tally("walk", &files);
        let reports = ledger.recount(None).expect("they are in memory");
        (reports[0].bytes, reports[0].files)
    }

    /// Checks that the tree holds no more than it may.
    fn check(&self) {
        let stored = self.stored().0;
        let mut state = lock(&self.state);
        let most = MOST + state.excess;
        if stored > most && state.violation.is_none() {
            state.violation = Some(Violation(format!("the tree holds {stored} bytes of {most}")));
        }
    }

    fn violation(&self) -> Result<(), Violation> {
        lock(&self.state).violation.take().map_or(Ok(()), Err)
    }

    /// Runs the cluster through its faults, and until all is calm.
    pub(super) fn run(&self) -> Result<(), Violation> {
        self.pass(Duration::from_secs(1));
        for _ in 0..STEPS {
            self.act();
            let time = self.millis(5, 300);
            self.pass(time);
            self.violation()?;
        }
        self.calm();
        self.violation()?;
        self.at_rest()
    }

    /// Ends the faults, and all uploads.
    fn calm(&self) {
        self.note(|| "calm".to_owned());
        let (doors, now) = {
            let mut state = lock(&self.state);
            state.is_calm = true;
            (state.doors.clone(), state.now)
        };
        for door in &doors {
            door.way.state().cut_until = now;
        }
        self.pass(Duration::from_secs(20));
        for door in &doors {
            let uploads = std::mem::take(&mut *lock(&door.uploads));
            uploads.into_iter().for_each(|upload| drop(upload.commit()));
        }
        self.check();
        self.pass(Duration::from_secs(10));
    }

    /// Checks that the database has what is there: at once, or where it says that it may not, after a count.
    fn at_rest(&self) -> Result<(), Violation> {
        let door = Arc::clone(&lock(&self.state).doors[0]);
        let is_doubtful = {
            let table = &lock(&self.state).table;
            table.tree.is_doubtful || !table.tree.is_counted || !table.shares.is_empty()
        };
        if is_doubtful {
            let counted = door.ledger.recount(Some("tree"));
            self.note(|| format!("counted: {counted:?}"));
            self.pass(Duration::from_secs(3));
        }
        let (stored, state) = (self.stored(), lock(&self.state));
        let tree = state.table.tree;
        let counted = (tree.bytes, tree.files, tree.lost_bytes, tree.is_doubtful);
        let is_right = counted == (stored.0.cast_signed(), stored.1.cast_signed(), 0, false);
        if !is_right || !state.table.shares.is_empty() || !state.table.locks.is_empty() {
            return Err(Violation(format!(
                "stored are {stored:?}, and at rest the database has {counted:?}, shares {:?}, locks {:?}",
                state.table.shares, state.table.locks
            )));
        }
        Ok(())
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("faults", &self.faults).finish_non_exhaustive()
    }
}
