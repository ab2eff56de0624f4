//! One thread of the load, whatever the protocol: a set of sockets and its share of the users.
//!
//! A [`Worker`] leads its [`Client`]s through the phases of a cell; the [`WorkerContext`] is what they share.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use millrace_net::timer::{TICK, Wheel};
use rustix::event::Timespec;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::files::Files;
use super::http::request::Request;
use super::receive_buffer::Buffers;
pub(super) use super::selector::{Interest, Socket};
use super::selector::{Ready, Set, tells_once};
use super::task::WorkerTask;
use crate::fault::Fault;
use crate::payload::{FileId, Payload};
use crate::plan::Job;
use crate::plan::{Cell, Op};
use crate::ramp_up::RampUp;
use crate::schedule::{Arrivals, Pace};
use crate::selector::Selector;
use crate::tally::{Live, Tally, UserTally};
use crate::target::Target;

/// The size of reads and writes where bytes are inspected.
const BUFFER: usize = millrace_net::tls::BUFFER;
/// The most that the kernel drops at a time: more than any receive buffer.
const DISCARD: usize = 16 << 20;
/// The file that unverified uploads are sent from, again and again.
pub(super) const UPLOAD_BLOCK: usize = 1 << 20;
/// The token of the timer, which no user has.
const TIMER: u64 = u64::MAX;

/// The role of a user's socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Control,
    Data,
    Listener,
}

fn token(user: u32, role: Role) -> u64 {
    u64::from(user) << 2 | role as u64
}

/// One user of a protocol. The context watches its sockets, and reports their events to it.
pub(super) trait Client: Sized {
    /// Makes a user that has not connected.
    fn new(index: u32, number: u32, context: &mut WorkerContext<'_>) -> Self;

    /// Connects, and logs in.
    fn connect(&mut self, context: &mut WorkerContext<'_>);

    /// Returns true if it can begin an operation.
    fn is_able(&self, context: &WorkerContext<'_>) -> bool;

    /// Returns true if it has begun as many operations as it may.
    fn has_done_all(&self, context: &WorkerContext<'_>) -> bool;

    /// Begins an operation that was meant to begin at `intended`.
    fn begin(&mut self, intended: Instant, now: Instant, context: &mut WorkerContext<'_>);

    /// Sends the operation that it has arranged and holds back.
    fn release(&mut self, now: Instant, context: &mut WorkerContext<'_>);

    /// Begins the next operation, or waits for the moment to, or logs in again.
    fn settle(&mut self, now: Instant, context: &mut WorkerContext<'_>);

    /// Called at the time that it asked for: continues its operation, or settles.
    fn wake(&mut self, now: Instant, context: &mut WorkerContext<'_>);

    /// A socket is ready; `hung_up`: the server's end of its stream has come.
    fn on_event(&mut self, role: Role, hung_up: bool, context: &mut WorkerContext<'_>);

    /// Called when its entry in the timer wheel expires.
    fn look_at_deadline(&mut self, now: Instant, context: &mut WorkerContext<'_>);

    /// Abandons its operation after the timeout.
    fn time_out(&mut self, context: &mut WorkerContext<'_>);

    /// Stops at any point; this is not a failure.
    fn abandon(&mut self, context: &mut WorkerContext<'_>);

    /// Leaves, if it is idle.
    fn quit(&mut self, context: &mut WorkerContext<'_>);

    /// Clears the counts of the warm-up.
    fn clear_warm_up(&mut self);

    fn counts(&self) -> UserTally;
}

/// One thread of the load.
pub(super) struct Worker<'a, C> {
    task: WorkerTask<'a>,
    users: Vec<C>,
    context: WorkerContext<'a>,
    ready: Vec<Ready>,
    /// The run was asked to end, and every user has left.
    has_stopped: bool,
}

/// The state shared by the users of a worker.
pub(super) struct WorkerContext<'a> {
    pub(super) target: &'a Target,
    pub(super) server: SocketAddr,
    pub(super) cell: &'a Cell,
    pub(super) files: Files<'a>,
    pub(super) payload: Payload,
    pub(super) live: &'a Live,
    pub(super) tally: Tally,
    /// For bytes that are inspected, within one call.
    pub(super) buffer: Vec<u8>,
    /// Decrypted bytes, within one call.
    pub(super) plain: Vec<u8>,
    /// For bytes that are discarded: the kernel drops them, and the memory is never touched.
    pub(super) discard: Vec<u8>,
    /// The receive buffers of data connections.
    pub(super) buffers: Buffers,
    /// The beginning of unverified uploads, and the whole as a file.
    pub(super) block: Vec<u8>,
    pub(super) block_file: File,
    /// For commands, within one call.
    pub(super) out: Vec<u8>,
    /// The request that all users repeat, where the protocol has one.
    pub(super) request: Option<Arc<Request>>,
    /// Operations that have begun since the warm-up, and the most that may begin.
    pub(super) begun: u64,
    pub(super) total: u64,
    set: Set,
    timer: OwnedFd,
    /// When the timer fires.
    armed: Option<Instant>,
    /// Operations and logins that have begun and not ended.
    pub(super) busy: usize,
    /// Operations wait once their data connections are arranged; this many are waiting.
    pub(super) holds_back: bool,
    pub(super) held_back: usize,
    /// With a death rule: the living users.
    pub(super) ramp: Option<RampUp<'a>>,
    /// No operation begins after this.
    pub(super) until: Instant,
    /// When the load began.
    pub(super) opened: Instant,
    /// At a fixed rate: when operations are due, and which users are free.
    arrivals: Option<Arrivals>,
    free: VecDeque<u32>,
    /// Users that think, or recover from a fault.
    sleepers: BinaryHeap<Reverse<(Instant, u32)>>,
    /// The deadlines of users' operations.
    wheel: Wheel<u32>,
}

impl<'a, C: Client> Worker<'a, C> {
    pub(super) fn new(target: &'a Target, server: SocketAddr, task: &WorkerTask<'a>) -> io::Result<Self> {
        let mut context = WorkerContext::new(target, server, task)?;
        let users =
            (0..).zip(task.users()).map(|(index, number)| C::new(index, number, &mut context)).collect();
        Ok(Self { task: *task, users, context, ready: Vec::new(), has_stopped: false })
    }

    /// Runs all phases of the cell.
    pub(super) fn run(mut self) -> Tally {
        let WorkerTask { cell, gate, live, .. } = self.task;
        live.thread.store(rustix::thread::gettid().as_raw_nonzero().get() as u64, Ordering::Relaxed);
        gate.meet(); // no user has connected yet
        if cell.op != Op::Login && !cell.grows() {
            self.log_in_all();
        }
        self.context.tally.end_logins();
        gate.meet(); // everyone has logged in
        if cell.op != Op::Idle && !cell.warm_up().is_zero() {
            self.load(cell.warm_up());
        }
        self.context.tally.clear_warm_up();
        self.context.begun = 0;
        self.users.iter_mut().for_each(C::clear_warm_up);
        if cell.settings.barrier {
            self.arrange_all();
        }
        gate.meet(); // the warm-up has ended
        gate.meet(); // the coordinator has looked at the machine
        match cell.op {
            Op::Idle => self.hold(cell.settings.duration),
            _ if cell.grows() => self.grow(cell.settings.duration),
            _ => self.load(cell.settings.duration),
        }
        live.finished.store(1, Ordering::Release);
        gate.meet(); // the last operation has ended, and the coordinator has looked again
        self.quit_all();
        let mut tally = self.context.tally;
        let active = self.users.iter().map(C::counts).filter(|user| user.number < cell.users);
        tally.users = active.collect();
        tally
    }

    fn log_in_all(&mut self) {
        let give_up = Instant::now() + self.context.cell.settings.patience;
        let at_once = self.context.cell.settings.connecting as usize;
        let mut next = 0;
        while !self.has_stopped && (next < self.users.len() || self.context.busy > 0) {
            while next < self.users.len() && self.context.busy < at_once {
                self.users[next].connect(&mut self.context);
                next += 1;
            }
            self.turn();
            if Instant::now() > give_up {
                self.give_up();
            }
        }
    }

    /// Makes every user begin an operation, and hold it back once its data connection is arranged.
    fn arrange_all(&mut self) {
        let now = Instant::now();
        if self.has_stopped {
            return;
        }
        self.context.holds_back = true;
        for user in self.users.iter_mut() {
            if user.is_able(&self.context) && !user.has_done_all(&self.context) {
                user.begin(now, now, &mut self.context);
            }
        }
        let give_up = now + self.context.cell.settings.patience;
        while self.context.busy > self.context.held_back && !self.has_stopped && Instant::now() < give_up {
            self.turn();
        }
        (self.context.holds_back, self.context.held_back) = (false, 0);
    }

    /// Lets users begin one after the other, until no user is born or dies for the quiet time.
    fn grow(&mut self, length: Duration) {
        let (begun, most) = (Instant::now(), self.users.len() as u32);
        self.context.open(begun, begun + length, &self.task);
        let WorkerTask { cell, index, ramp_state, .. } = self.task;
        self.context.ramp = Some(RampUp::new(&cell.settings, most, begun, index, ramp_state));
        let mut now = begun;
        while now < begun + length
            && !self.has_stopped
            && self.context.ramp.as_ref().is_some_and(|ramp| !ramp.is_over(now))
        {
            while let Some(next) = self.context.ramp.as_mut().and_then(RampUp::start) {
                self.users[next as usize].connect(&mut self.context);
            }
            self.turn();
            now = Instant::now();
        }
        self.context.until = now;
        self.context.tally.standing = self.context.ramp.take().map(|ramp| ramp.standing(now));
        self.context.tally.ended = Some(now);
        for user in &mut self.users {
            user.abandon(&mut self.context);
        }
        self.context.close();
    }

    /// Begins operations for so long, and waits until all have ended.
    fn load(&mut self, length: Duration) {
        if self.has_stopped {
            return;
        }
        let now = Instant::now();
        self.context.open(now, now + length, &self.task);
        for user in &mut self.users {
            user.release(now, &mut self.context);
        }
        for user in &mut self.users {
            user.settle(now, &mut self.context);
        }
        let give_up = now + length + self.context.cell.settings.patience;
        while !self.has_stopped && !self.is_over() {
            self.turn();
            if Instant::now() > give_up {
                self.give_up();
                break;
            }
        }
        self.context.close();
    }

    fn is_over(&self) -> bool {
        let more_is_due = self.context.arrivals.as_ref().is_some_and(|arrivals| arrivals.next().is_some());
        let is_late = Instant::now() >= self.context.until;
        let more_to_come = more_is_due && (!is_late || !self.context.free.is_empty());
        self.context.busy == 0
            && !more_to_come
            && (is_late || self.users.iter().all(|user| user.has_done_all(&self.context)))
    }

    /// Keeps the sessions open, and notices when the server ends one.
    fn hold(&mut self, length: Duration) {
        let until = Instant::now() + length;
        while !self.has_stopped && Instant::now() < until {
            self.turn();
        }
    }

    fn quit_all(&mut self) {
        for user in &mut self.users {
            user.quit(&mut self.context);
        }
        let give_up = Instant::now() + Duration::from_secs(5);
        while self.context.busy > 0 && Instant::now() < give_up {
            self.turn();
        }
    }

    fn give_up(&mut self) {
        self.context.until = Instant::now();
        for user in &mut self.users {
            user.time_out(&mut self.context);
        }
    }

    /// Ends at once, with the counts so far.
    fn stop(&mut self) {
        self.has_stopped = true;
        self.context.until = Instant::now();
        for user in &mut self.users {
            user.abandon(&mut self.context);
        }
        self.context.close();
    }

    /// Waits for events, and handles them.
    fn turn(&mut self) {
        if self.task.stop.is_asked() && !self.has_stopped {
            return self.stop();
        }
        let mut ready = std::mem::take(&mut self.ready);
        let now = Instant::now();
        self.context.wait(now, &mut ready);
        for ready in ready.drain(..) {
            self.on_ready(ready);
        }
        self.ready = ready;
        let now = Instant::now();
        while let Some(index) = self.context.awake(now) {
            self.users[index as usize].wake(now, &mut self.context);
        }
        while let Some((index, intended)) = self.context.arrival(now, &self.users) {
            self.users[index as usize].begin(intended, now, &mut self.context);
        }
        let mut due = Vec::new();
        self.context.wheel.expire(now, &mut due);
        for index in due {
            self.users[index as usize].look_at_deadline(now, &mut self.context);
        }
    }

    fn on_ready(&mut self, Ready { token, hung_up }: Ready) {
        if token == TIMER {
            return self.context.take_time();
        }
        self.context.waste();
        let role = match token & 3 {
            token if token == Role::Control as u64 => Role::Control,
            token if token == Role::Data as u64 => Role::Data,
            _ => Role::Listener,
        };
        self.users[(token >> 2) as usize].on_event(role, hung_up, &mut self.context);
    }
}

impl<'a> WorkerContext<'a> {
    fn new(target: &'a Target, server: SocketAddr, task: &WorkerTask<'a>) -> io::Result<Self> {
        let now = Instant::now();
        let payload = Payload::new(task.cell.settings.seed);
        let mut block = vec![0; UPLOAD_BLOCK];
        payload.fill(FileId::new(0), 0, &mut block);
        let mut block_file = File::from(memfd_create("millrace-bench", MemfdFlags::CLOEXEC)?);
        block_file.write_all(&block)?;
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        let mut set = Set::new(task.cell.settings.selector)?;
        set.watch(timer.as_fd(), TIMER, Interest::Timer)?;
        Ok(Self {
            target,
            server,
            cell: task.cell,
            files: Files::new(target, task.cell),
            payload,
            live: task.live,
            tally: Tally::default(),
            buffer: vec![0; BUFFER],
            plain: Vec::new(),
            discard: vec![0; DISCARD],
            buffers: Buffers::of(target, server, task.cell),
            block,
            block_file,
            out: Vec::new(),
            request: None,
            begun: 0,
            total: task.share(),
            set,
            timer,
            armed: None,
            busy: 0,
            holds_back: false,
            held_back: 0,
            ramp: None,
            until: now,
            opened: now,
            arrivals: None,
            free: VecDeque::new(),
            sleepers: BinaryHeap::new(),
            wheel: Wheel::new(now),
        })
    }

    /// Permits operations to begin.
    fn open(&mut self, now: Instant, until: Instant, task: &WorkerTask<'_>) {
        (self.opened, self.until) = (now, until);
        self.tally.opened = Some(now);
        self.arrivals = match self.cell.pace() {
            Pace::Rate(rate) => Some(Arrivals::new(rate, task.index, task.workers, now, until)),
            Pace::Closed { .. } => None,
        };
    }

    /// Permits no more operations, and counts those that never began.
    fn close(&mut self) {
        if let Some(arrivals) = self.arrivals.take() {
            self.tally.faults.record_many(Fault::Missed, arrivals.behind(self.until));
        }
        self.free.clear();
        self.sleepers.clear();
    }

    /// The server's address for a user.
    pub(super) fn server_of(&self, number: u32) -> SocketAddr {
        let ports = &self.cell.settings.ports;
        match ports.get(number as usize % ports.len().max(1)) {
            Some(&port) => SocketAddr::new(self.server.ip(), port),
            None => self.server,
        }
    }

    /// A user's jobs in a replayed log.
    pub(super) fn jobs(&self, user: u32) -> &'a [Job] {
        self.cell.settings.replay.as_ref().map_or(&[], |script| script.jobs(user))
    }

    /// Counts moved bytes of an operation that may still take long.
    pub(super) fn note_moved(&self, count: u64) {
        Live::bump(&self.live.bytes, count);
    }

    /// Returns true if operations have their own start times.
    pub(super) fn is_paced(&self) -> bool {
        self.arrivals.is_some()
    }

    /// At a fixed rate: this user can begin the next operation. After the end of the time, only users that were already
    /// free begin the operations still due, so that a rate that is not reached ends with its time.
    pub(super) fn offer(&mut self, user: u32) {
        if Instant::now() < self.until {
            self.free.push_back(user);
        }
    }

    /// Makes a user settle later.
    pub(super) fn sleep(&mut self, user: u32, until: Instant) {
        if until < self.until {
            self.sleepers.push(Reverse((until, user)));
        }
    }

    /// Schedules a check of a user's timeout; returns when that will be.
    pub(super) fn look_later(&mut self, user: u32, deadline: Instant) {
        self.wheel.insert(deadline, user);
    }

    /// Wakes a user in the middle of an operation, also after the last has begun.
    pub(super) fn sleep_within(&mut self, user: u32, until: Instant) {
        self.sleepers.push(Reverse((until, user)));
    }

    /// Makes a socket that can be watched.
    pub(super) fn own(&self, descriptor: OwnedFd) -> Socket {
        self.set.own(descriptor)
    }

    /// Watches a socket.
    pub(super) fn watch(
        &mut self,
        socket: &Socket,
        user: u32,
        role: Role,
        interest: Interest,
    ) -> io::Result<()> {
        self.set.watch(socket.as_fd(), token(user, role), interest)
    }

    /// Changes the awaited event of a watched socket, or repeats [`Interest::Once`].
    pub(super) fn watch_again(
        &mut self,
        socket: &Socket,
        user: u32,
        role: Role,
        interest: Interest,
    ) -> io::Result<()> {
        self.set.watch_again(socket.as_fd(), token(user, role), interest)
    }

    /// Returns true if the selector is edge-triggered.
    pub(super) fn tells_once(&self) -> bool {
        tells_once(self.cell.settings.selector)
    }

    fn wait(&mut self, now: Instant, ready: &mut Vec<Ready>) {
        let sleeper = self.sleepers.peek().map(|Reverse((until, _))| *until);
        let arrival = self.arrivals.as_ref().filter(|_| !self.free.is_empty()).and_then(Arrivals::next);
        let next = sleeper.into_iter().chain(arrival).min();
        let timeout = match next {
            Some(next) if next <= now => Duration::ZERO,
            Some(next) => {
                self.arm(next, now);
                TICK
            }
            None => TICK,
        };
        // A signal, or an error that appears as a timeout in the next round: no socket is ready.
        let _ = self.set.wait(timeout, ready);
    }

    /// Sets the timer: epoll's own timeout counts milliseconds, too coarse for an intended start.
    fn arm(&mut self, at: Instant, now: Instant) {
        if self.armed.is_some_and(|armed| armed <= at && armed > now) {
            return;
        }
        let ahead = at - now;
        let value = Timespec { tv_sec: ahead.as_secs() as i64, tv_nsec: ahead.subsec_nanos().into() };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let setting = Itimerspec { it_interval: never, it_value: value };
        if timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &setting).is_ok() {
            self.armed = Some(at);
        }
    }

    /// Resets a timer that has fired: poll would report it again otherwise.
    fn take_time(&mut self) {
        self.armed = None;
        if self.cell.settings.selector == Selector::Poll {
            let _ = rustix::io::read(&self.timer, &mut [0; 8]);
        }
    }

    fn awake(&mut self, now: Instant) -> Option<u32> {
        let &Reverse((until, user)) = self.sleepers.peek()?;
        (until <= now).then(|| self.sleepers.pop().map(|_| user))?
    }

    /// The next operation that is due, and the user that begins it.
    fn arrival<C: Client>(&mut self, now: Instant, users: &[C]) -> Option<(u32, Instant)> {
        // A user that has lost its session since it was offered returns by itself.
        while let Some(&user) = self.free.front()
            && !users[user as usize].is_able(self)
        {
            self.free.pop_front();
        }
        let user = *self.free.front()?;
        let intended = self.arrivals.as_mut()?.take(now)?;
        self.free.pop_front();
        Some((user, intended))
    }

    /// Wastes time to simulate a slow client in tests.
    fn waste(&self) {
        let handicap = self.cell.settings.handicap;
        if !handicap.is_zero() {
            let until = Instant::now() + handicap;
            while Instant::now() < until {}
        }
    }
}
