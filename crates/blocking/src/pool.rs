//! The blocking pool: threads for whatever may wait, so that no reactor does.
//!
//! It grows with need, up to a limit, and shrinks when idle: jobs that hang on a stuck disk each hold a thread, and
//! other jobs get other threads. A job that panics loses only itself.
//!
//! Jobs of the pool are done side by side: whichever thread is first. Those of one [`Line`] are done one after the
//! other, in the order in which they were put; behind each of them the pool's other jobs have their turn.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How long a thread without work stays.
const IDLE: Duration = Duration::from_secs(10);

/// Enough for a path walk, a hash, and a TLS handshake of a webhook; transfers keep their buffers on the heap.
const STACK: usize = 512 * 1024;

type Job = Box<dyn FnOnce() + Send>;

/// A growing pool of threads.
#[derive(Clone)]
pub struct BlockingPool {
    shared: Arc<Shared>,
}

/// What a pool has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolLoad {
    /// Jobs that no thread has begun.
    pub waiting: usize,
    /// Its threads.
    pub threads: usize,
    /// Those of them that have nothing to do.
    pub idle: usize,
}

struct Shared {
    limit: usize,
    state: Mutex<State>,
    work: Condvar,
    /// The last thread has ended.
    ended: Condvar,
}

/// Guarded for a push or a pop.
#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl std::fmt::Debug for BlockingPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockingPool(at most {})", self.shared.limit)
    }
}

impl BlockingPool {
    /// A pool of at most `limit` threads, and at least one.
    pub fn new(limit: usize) -> Self {
        Self::with_limit(limit.max(1))
    }

    /// A pool without threads: [`Self::run_waiting`] runs its jobs. For simulations.
    pub fn without_threads() -> Self {
        Self::with_limit(0)
    }

    fn with_limit(limit: usize) -> Self {
        let state = Mutex::default();
        Self { shared: Arc::new(Shared { limit, state, work: Condvar::new(), ended: Condvar::new() }) }
    }

    /// Returns how many jobs wait.
    pub fn waiting(&self) -> usize {
        self.shared.lock().jobs.len()
    }

    /// Returns what it has to do, and who does it.
    pub fn load(&self) -> PoolLoad {
        let state = self.shared.lock();
        PoolLoad { waiting: state.jobs.len(), threads: state.threads, idle: state.idle }
    }

    /// Runs the waiting job at this place of the queue on the caller's thread. Returns whether there was one.
    pub fn run_waiting(&self, place: usize) -> bool {
        // The job may put another, so the lock is free by then.
        let job = self.shared.lock().jobs.remove(place);
        job.map(|job| catch_unwind(AssertUnwindSafe(job))).is_some()
    }

    /// Runs a job on one of the threads; beyond the limit it waits for one.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.lock();
        state.jobs.push_back(Box::new(job));
        if state.idle >= state.jobs.len() {
            drop(state);
            self.shared.work.notify_one();
        } else if state.threads < self.shared.limit {
            state.threads += 1;
            drop(state);
            let shared = Arc::clone(&self.shared);
            let spawned = thread::Builder::new()
                .name("millrace-blocking".to_owned())
                .stack_size(STACK)
                .spawn(move || shared.work());
            if spawned.is_err() {
                self.do_without_a_thread();
            }
        }
    }

    /// The system refuses another thread: jobs wait for the existing ones. If there is none, no thread would ever take
    /// the job, so the caller runs it itself.
    fn do_without_a_thread(&self) {
        let mut state = self.shared.lock();
        state.threads -= 1;
        let jobs = if state.threads == 0 { std::mem::take(&mut state.jobs) } else { VecDeque::new() };
        drop(state);
        for job in jobs {
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }

    /// Lets the threads end once the queue is empty.
    pub fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
    }

    /// Returns true if it has nothing to do and no thread.
    pub fn is_over(&self) -> bool {
        let state = self.shared.lock();
        state.threads == 0 && state.jobs.is_empty()
    }

    /// Closes it and waits until all is done, but no longer than this.
    pub fn finish(&self, most: Duration) {
        self.close();
        let state = self.shared.lock();
        let _ = self.shared.ended.wait_timeout_while(state, most, |state| state.threads > 0);
    }
}

/// Jobs of one owner, of any pools: one is done at a time, first to last. Behind each, others of its pool have their turn.
#[derive(Default)]
pub struct Line {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<(BlockingPool, Job)>,
    /// A job is with its pool.
    is_served: bool,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Line({} jobs)", self.lock().jobs.len())
    }
}

impl Line {
    /// Has a thread of the pool do a job, behind those that were put before.
    pub fn put(self: &Arc<Self>, pool: &BlockingPool, job: impl FnOnce() + Send + 'static) {
        let mut waiting = self.lock();
        waiting.jobs.push_back((pool.clone(), Box::new(job)));
        if !std::mem::replace(&mut waiting.is_served, true) {
            drop(waiting);
            self.go_on();
        }
    }

    /// Gives the next job to its pool.
    fn go_on(self: &Arc<Self>) {
        let mut waiting = self.lock();
        let next = waiting.jobs.pop_front();
        waiting.is_served = next.is_some();
        drop(waiting);
        if let Some((pool, job)) = next {
            let line = Arc::clone(self);
            pool.run(move || {
                let _ = catch_unwind(AssertUnwindSafe(job));
                line.go_on();
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            // The job's owner hears of a panic by what the job drops.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }

    fn leave(&self, mut state: MutexGuard<'_, State>) -> Option<Job> {
        state.threads -= 1;
        if state.threads == 0 {
            self.ended.notify_all();
        }
        None
    }

    /// The next job; `None` when this thread is to end.
    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.closed {
                return self.leave(state);
            }
            state.idle += 1;
            let (woken, timeout) =
                self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if timeout.timed_out() && state.jobs.is_empty() {
                return self.leave(state);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn hanging_jobs_do_not_hold_up_others() {
        let pool = BlockingPool::new(4);
        let (release, hang) = mpsc::channel::<()>();
        let hang = Arc::new(Mutex::new(hang));
        for _ in 0..3 {
            let hang = Arc::clone(&hang);
            pool.run(move || _ = hang.lock().unwrap().recv());
        }
        let (done, answer) = mpsc::channel();
        for number in 0..100 {
            let done = done.clone();
            pool.run(move || done.send(number).unwrap());
        }
        let mut answers: Vec<i32> =
            (0..100).map(|_| answer.recv_timeout(Duration::from_secs(10)).unwrap()).collect();
        answers.sort_unstable();
        assert!(answers.into_iter().eq(0..100));
        drop(release);
    }

    #[test]
    fn a_panic_loses_only_its_job() {
        let pool = BlockingPool::new(1);
        let (done, answer) = mpsc::channel();
        pool.run(|| panic!("on purpose"));
        pool.run(move || done.send(()).unwrap());
        answer.recv_timeout(Duration::from_secs(10)).unwrap();
    }

    #[test]
    fn a_long_line_leaves_others_their_turn() {
        let pool = BlockingPool::new(1);
        let (long, short) = (Arc::new(Line::default()), Arc::new(Line::default()));
        let (release, hang) = mpsc::channel::<()>();
        let (done, order) = mpsc::channel();
        long.put(&pool, move || _ = hang.recv());
        for name in ["long"; 100] {
            let done = done.clone();
            long.put(&pool, move || done.send(name).unwrap());
        }
        let last = done.clone();
        short.put(&pool, move || last.send("short").unwrap());
        drop((release, done));
        let order: Vec<&str> = order.iter().collect();
        let at = order.iter().position(|name| *name == "short").unwrap();
        assert!(order.len() == 101 && at < 2, "{at} of {}", order.len());
    }

    #[test]
    fn jobs_of_a_line_are_done_in_their_order_whatever_becomes_of_one() {
        let pools = [BlockingPool::new(8), BlockingPool::new(2)];
        for round in 0..500 {
            let line = Arc::new(Line::default());
            let (done, order) = mpsc::channel();
            for number in 0..6 {
                let done = done.clone();
                line.put(&pools[number % 2], move || {
                    assert_ne!((round, number), (0, 2), "on purpose");
                    done.send(number).unwrap();
                });
            }
            drop(done);
            let order: Vec<usize> =
                std::iter::from_fn(|| order.recv_timeout(Duration::from_secs(30)).ok()).collect();
            let expected: &[usize] = if round == 0 { &[0, 1, 3, 4, 5] } else { &[0, 1, 2, 3, 4, 5] };
            assert_eq!(order, expected);
        }
    }
}
