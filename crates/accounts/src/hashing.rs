//! Checking password hashes without being worn out by it.
//!
//! A hash is meant to be costly: 19 MiB and some 20 ms. So no more are computed at once than there are cores, and a
//! successful login is remembered for a while by its [`Mac`]: a thousand logins a second of one user cost one hash.
//! Failures are never remembered; each guess pays. A waiting login gets the memory of the one before; when none waits
//! the memory is freed. Hashes give way to transfers: each is computed by a thread of lower priority.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{getpriority_process, setpriority_process};

use super::argon2id::Memory;
use super::hash::Hash;
use super::password::Mac;

/// How long a success is remembered. Long enough that a client which connects for each file pays once,
/// short enough that memory does not keep a day's users.
const LIFETIME: Duration = Duration::from_secs(5 * 60);

/// Successes remembered at most: 4096 take 300 KiB.
const CAPACITY: usize = 4096;

/// By how much nicer threads are that compute hashes. Beside a busy worker such a thread has a quarter of a core.
const NICE: i32 = 5;

/// Computes hashes, a few at a time.
#[derive(Debug)]
pub(super) struct Hashing {
    recent: Mutex<Recent>,
    turns: Mutex<Turns>,
    freed: Condvar,
    computed: AtomicU64,
}

impl Hashing {
    pub(super) fn new() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self {
            recent: Mutex::new(Recent::new(CAPACITY)),
            turns: Mutex::new(Turns { free: cores, waiting: 0, memory: Vec::new() }),
            freed: Condvar::new(),
            computed: AtomicU64::new(0),
        }
    }

    /// Returns true if this login succeeded recently.
    pub(super) fn remembers(&self, login: Mac) -> bool {
        self.recent().contains(login, Instant::now())
    }

    /// Returns true if `password` matches `hash`; remembers `login` if so.
    pub(super) fn check(&self, login: Mac, hash: &Hash, password: &[u8]) -> bool {
        let mut turn = self.wait_for_turn();
        // Of many logins that came at once, the first has done the work for the others.
        if self.remembers(login) {
            return true;
        }
        self.computed.fetch_add(1, Ordering::Relaxed);
        let right = in_background(|| hash.verify(password, &mut turn.memory));
        if right {
            self.recent().insert(login, Instant::now());
        }
        right
    }

    /// Takes the time of a check.
    pub(super) fn pretend(&self, decoy: &Hash, password: &[u8]) {
        let mut turn = self.wait_for_turn();
        self.computed.fetch_add(1, Ordering::Relaxed);
        in_background(|| decoy.pretend(password, &mut turn.memory));
    }

    /// Hashes computed so far.
    pub(super) fn computed(&self) -> u64 {
        self.computed.load(Ordering::Relaxed)
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for_turn(&self) -> Turn<'_> {
        let mut turns = self.turns();
        turns.waiting += 1;
        let none_free = |turns: &mut Turns| turns.free == 0;
        let mut turns = self.freed.wait_while(turns, none_free).unwrap_or_else(PoisonError::into_inner);
        turns.waiting -= 1;
        turns.free -= 1;
        let memory = turns.memory.pop().unwrap_or_default();
        Turn { hashing: self, memory }
    }
}

/// Limits how many hashes are computed at once.
#[derive(Debug)]
struct Turns {
    /// Hashes that may be begun now.
    free: usize,
    /// Logins that wait for another to end.
    waiting: usize,
    /// The memory of ended hashes, for waiting logins.
    memory: Vec<Memory>,
}

/// The right to compute a hash now.
struct Turn<'a> {
    hashing: &'a Hashing,
    memory: Memory,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        let mut turns = self.hashing.turns();
        turns.free += 1;
        match turns.waiting > turns.memory.len() {
            true => turns.memory.push(memory),
            false => {
                drop(turns);
                drop(memory);
            }
        }
        self.hashing.freed.notify_one();
    }
}

/// Logins that succeeded, and when.
struct Recent {
    successes: HashMap<Mac, Instant>,
    capacity: usize,
}

impl Recent {
    fn new(capacity: usize) -> Self {
        Self { successes: HashMap::new(), capacity }
    }

    fn contains(&self, login: Mac, now: Instant) -> bool {
        self.successes.get(&login).is_some_and(|&then| is_fresh(then, now))
    }

    fn insert(&mut self, login: Mac, now: Instant) {
        if self.successes.len() >= self.capacity {
            self.make_room(now);
        }
        self.successes.insert(login, now);
    }

    /// A walk through all, paid for by the hash that came before it.
    fn make_room(&mut self, now: Instant) {
        self.successes.retain(|_, then| is_fresh(*then, now));
        if self.successes.len() >= self.capacity {
            let oldest = self.successes.iter().min_by_key(|(_, then)| **then).map(|(login, _)| *login);
            oldest.map(|login| self.successes.remove(&login));
        }
    }
}

impl fmt::Debug for Recent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Recent({} of {})", self.successes.len(), self.capacity)
    }
}

/// Returns what a thread of lower priority computes; this thread waits for it. The thread is new each time, because only
/// privileged programs may raise a priority again. Where the system refuses it, this thread computes.
fn in_background<T: Send>(mut compute: impl FnMut() -> T + Send) -> T {
    let mut computed = None;
    thread::scope(|scope| {
        let _ = thread::Builder::new().name("millrace-hash".to_owned()).spawn_scoped(scope, || {
            let nice = getpriority_process(None).unwrap_or(0);
            let _ = setpriority_process(None, nice + NICE);
            computed = Some(compute());
        });
    });
    computed.unwrap_or_else(compute)
}

fn is_fresh(then: Instant, now: Instant) -> bool {
    now.saturating_duration_since(then) < LIFETIME
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(number: u8) -> Mac {
        Mac::of(b"user", &[number])
    }

    #[test]
    fn nothing_is_left_of_what_hashes_worked_in() {
        let hashing = Hashing::new();
        let hash = Hash::parse(&crate::password::hash_password(b"right")).unwrap();
        thread::scope(|scope| {
            for number in 0..8 {
                let (hashing, hash) = (&hashing, &hash);
                scope.spawn(move || {
                    let password: &[u8] = if number % 2 == 0 { b"right" } else { b"wrong" };
                    assert_eq!(hashing.check(login(number), hash, password), number % 2 == 0);
                });
            }
        });
        let turns = hashing.turns();
        assert_eq!((turns.waiting, turns.memory.len()), (0, 0));
    }

    #[test]
    fn a_hash_is_computed_at_a_lower_priority_than_logins_have() {
        let nice = || getpriority_process(None).unwrap();
        let before = nice();
        assert_eq!(in_background(nice), (before + NICE).min(19));
        assert_eq!(nice(), before);
    }

    #[test]
    fn a_success_is_forgotten_after_its_lifetime() {
        let (mut recent, start) = (Recent::new(8), Instant::now());
        recent.insert(login(1), start);
        assert!(recent.contains(login(1), start + LIFETIME - Duration::from_secs(1)));
        assert!(!recent.contains(login(1), start + LIFETIME));
        assert!(!recent.contains(login(2), start));
    }

    #[test]
    fn the_oldest_success_makes_room() {
        let (mut recent, start) = (Recent::new(3), Instant::now());
        for number in 0..5 {
            recent.insert(login(number), start + Duration::from_secs(number.into()));
        }
        let now = start + Duration::from_secs(5);
        let kept: Vec<u8> = (0..5).filter(|&number| recent.contains(login(number), now)).collect();
        assert_eq!(kept, [2, 3, 4]);
        assert_eq!(recent.successes.len(), 3);
    }

    #[test]
    fn expired_successes_make_room_first() {
        let (mut recent, start) = (Recent::new(2), Instant::now());
        recent.insert(login(0), start);
        recent.insert(login(1), start + LIFETIME);
        recent.insert(login(2), start + LIFETIME);
        assert!(recent.contains(login(1), start + LIFETIME));
        assert!(recent.contains(login(2), start + LIFETIME));
    }
}
