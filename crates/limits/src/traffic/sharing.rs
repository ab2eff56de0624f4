//! What users move at several servers together.
//!
//! A server has *room* for each of its users that move something: a part of what is left of the quota, which counts as used at
//! the others. So all of them together move no more than the quota. It asks for room ahead, tells about once a second what has
//! moved, gives back the room that it did not need meanwhile, and learns what the others have told.
//!
//! The invariant: a transfer waits for room, and is cut only where the others have told, a moment ago, that all of the quota
//! is used. While there are no answers, a server goes by what it was told last, and waits for nothing.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use millrace_vfs::OverQuota;

use super::{CurrentQuota, MovedBytes, Quotas, Since, State, Traffic, TrafficCounts};
use crate::Direction;

/// Room is asked for in advance: this many times what has moved since it was asked for last, within a least and a most.
const AHEAD: (u64, u64, u64) = (4, 16 << 20, 1 << 30);

/// For how long an answer is good enough to refuse a transfer.
const FRESH: Duration = Duration::from_secs(2);

/// Users with a longer name are counted by each server.
const LONGEST_NAME: usize = 256;

/// What a server tells of a user, and the room that it asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrafficTelling {
    /// What the user is counted by.
    pub user: String,
    /// What this server had counted before it shared: told once.
    pub before: Option<TrafficCounts>,
    /// What has moved since it was told last.
    pub moved: Since,
    /// The quota that the last transfer was held to.
    pub quota: CurrentQuota,
    /// How much room it would have.
    pub wish: MovedBytes,
}

/// What all servers have told of a user, and the room that this one has from that telling on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TrafficAnswer {
    /// All that was told.
    pub counts: TrafficCounts,
    /// The room.
    pub room: MovedBytes,
}

/// The way to the other servers.
pub(super) struct Sharing {
    /// Whether there are answers.
    answers: AtomicBool,
    /// Whether a transfer waits for room, or soon will.
    is_urgent: AtomicBool,
    /// Where the next telling begins among the users.
    next: AtomicUsize,
    /// Has the server tell, and ask, at once.
    ring: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sharing").field("answers", &self.answers).finish_non_exhaustive()
    }
}

/// The room of one user.
#[derive(Debug)]
pub(super) struct Room {
    sharing: Arc<Sharing>,
    /// What was counted before, until it is told.
    before: Option<TrafficCounts>,
    /// What has moved since it was told last; more than nothing of it is beyond what the others know.
    untold: Since,
    /// How much may move from that telling on.
    granted: MovedBytes,
    quota: CurrentQuota,
    /// A transfer would have more of it: up, down.
    wanted: [bool; 2],
    /// Whether that was said since the last telling.
    has_rung: bool,
    /// The last answer had no room, so that the next one is not hurried.
    is_refused: bool,
    answered: Option<Instant>,
}

impl Room {
    fn new(sharing: Arc<Sharing>, counts: &TrafficCounts) -> Box<Self> {
        let is_own = !counts.is_shared && *counts != TrafficCounts::default();
        let room = Self {
            before: is_own.then_some(*counts),
            untold: Since::default(),
            granted: MovedBytes::default(),
            quota: CurrentQuota::default(),
            wanted: [false; 2],
            has_rung: false,
            is_refused: false,
            answered: None,
            sharing,
        };
        // The counts of a user who has just come are to be known soon.
        room.sharing.hurry();
        Box::new(room)
    }

    /// More has moved.
    pub(super) fn moved(&mut self, direction: Direction, bytes: i64) {
        *self.untold.way(direction) += bytes;
        // Asked for in time it need not be waited for.
        if bytes > 0 && self.available(direction) < *self.granted.way(direction) / 2 {
            self.want(direction);
        }
    }

    /// An upload has become a file.
    pub(super) fn earned(&mut self, bytes: u64) {
        self.untold.credit += bytes;
    }

    /// How much may move of what is `left` of a quota, as far as this server knows. 0: it has to wait for an answer.
    pub(super) fn left(
        &mut self,
        left: Result<u64, OverQuota>,
        quota: CurrentQuota,
        direction: Direction,
    ) -> Result<u64, OverQuota> {
        if !self.sharing.answers.load(Relaxed) {
            return left;
        }
        self.quota = quota;
        if left.is_err() && self.is_fresh() {
            return left;
        }
        let most = left.unwrap_or(0).min(self.available(direction));
        if most == 0 {
            self.want(direction);
        }
        Ok(most)
    }

    /// Returns whether what the others have told was heard a moment ago.
    pub(super) fn is_fresh(&self) -> bool {
        self.sharing.answers.load(Relaxed) && self.answered.is_some_and(|answered| answered.elapsed() < FRESH)
    }

    /// What was given back since the last telling is no room before the next: the others may have it by then.
    fn available(&mut self, direction: Direction) -> u64 {
        let moved = u64::try_from(*self.untold.way(direction)).unwrap_or(0);
        self.granted.way(direction).saturating_sub(moved)
    }

    fn want(&mut self, direction: Direction) {
        self.wanted[direction as usize] = true;
        if !std::mem::replace(&mut self.has_rung, true) && !self.is_refused {
            self.sharing.hurry();
        }
    }

    fn is_to_be_told(&self) -> bool {
        self.untold != Since::default() || self.granted != MovedBytes::default()
    }

    /// How much room it needs: none where nothing has moved and nothing waits, or where nothing limits it.
    fn wish(&mut self, direction: Direction) -> u64 {
        let moved = u64::try_from(*self.untold.way(direction)).unwrap_or(0);
        let (times, least, most) = AHEAD;
        match self.quota.limits(direction) && (moved > 0 || self.wanted[direction as usize]) {
            true => moved.saturating_mul(times).clamp(least, most),
            false => 0,
        }
    }

    /// Tells what is to be told. What is not wished for is given up with this.
    fn tell(&mut self, user: &str) -> Option<TrafficTelling> {
        let wish = MovedBytes { up: self.wish(Direction::Upload), down: self.wish(Direction::Download) };
        let is_new = self.answered.is_none() || self.before.is_some();
        if !is_new && !self.is_to_be_told() && wish == MovedBytes::default() {
            return None;
        }
        self.granted = MovedBytes {
            up: self.available(Direction::Upload).min(wish.up),
            down: self.available(Direction::Download).min(wish.down),
        };
        (self.wanted, self.has_rung) = ([false; 2], false);
        let (before, moved) = (self.before.take(), std::mem::take(&mut self.untold));
        Some(TrafficTelling { user: user.to_owned(), before, moved, quota: self.quota, wish })
    }

    fn learn(&mut self, told: &TrafficTelling, answer: &TrafficAnswer) {
        let is_short = |wish, room| wish > 0 && room == 0;
        self.is_refused =
            is_short(told.wish.up, answer.room.up) || is_short(told.wish.down, answer.room.down);
        (self.granted, self.answered) = (answer.room, Some(Instant::now()));
        if told.before.is_some() {
            // The user may have been forgotten meanwhile, and have come again with the same.
            self.before = None;
        }
    }
}

impl Sharing {
    fn hurry(&self) {
        if self.answers.load(Relaxed) && !self.is_urgent.swap(true, Relaxed) {
            (self.ring)();
        }
    }
}

impl State {
    pub(super) fn is_to_be_told(&self) -> bool {
        self.room.as_ref().is_some_and(|room| room.is_to_be_told())
    }

    fn learn(&mut self, told: &TrafficTelling, answer: &TrafficAnswer) {
        let Some(room) = &mut self.room else { return };
        room.learn(told, answer);
        let untold = room.untold;
        self.counts = TrafficCounts { is_shared: true, ..answer.counts };
        self.counts.add(Direction::Upload, untold.up);
        self.counts.add(Direction::Download, untold.down);
        self.counts.ever.up = self.counts.ever.up.saturating_add(untold.credit);
        self.is_new = true;
    }
}

impl Quotas {
    /// Has other servers count what users move as well: from now on this one moves what it has room for. `ring` is called where
    /// it is to [tell](Self::tell_traffic) at once, by a thread that must not wait.
    pub fn share(&self, ring: impl Fn() + Send + Sync + 'static) {
        let sharing = Sharing {
            answers: AtomicBool::new(false),
            is_urgent: AtomicBool::new(false),
            next: AtomicUsize::new(0),
            ring: Box::new(ring),
        };
        let sharing = self.sharing.get_or_init(|| Arc::new(sharing));
        for (user, traffic) in &*self.lock() {
            let mut state = traffic.lock();
            if state.room.is_none() && user.len() <= LONGEST_NAME {
                state.room = Some(Room::new(Arc::clone(sharing), &state.counts));
            }
        }
    }

    /// The counters of a user of whom so much was counted.
    pub(super) fn counting(&self, user: &str, counts: TrafficCounts) -> Arc<Traffic> {
        let sharing = self.sharing.get().filter(|_| user.len() <= LONGEST_NAME);
        let room = sharing.map(|sharing| Room::new(Arc::clone(sharing), &counts));
        Arc::new(Traffic(State { counts, room, ..State::default() }.into()))
    }

    /// Returns whether a transfer waits for room, or soon will.
    pub fn is_traffic_urgent(&self) -> bool {
        self.sharing.get().is_some_and(|sharing| sharing.is_urgent.load(Relaxed))
    }

    /// Notes whether the others can be told, and answer. Until they do, this server goes by what it knows.
    pub fn note_answers(&self, are_there: bool) {
        self.sharing.get().iter().for_each(|sharing| sharing.answers.store(are_there, Relaxed));
    }

    /// Gives up all room: the others do not count it any more.
    pub fn give_up_room(&self) {
        for traffic in self.lock().values() {
            if let Some(room) = &mut traffic.lock().room {
                let used = |moved: i64| u64::try_from(moved).unwrap_or(0);
                room.granted = MovedBytes { up: used(room.untold.up), down: used(room.untold.down) };
            }
        }
    }

    /// Takes what is to be told, of this many users at most, in the order of their names; first of those whose transfers wait. Where
    /// there are more, others come next time, and soon. It is to be told until there is an answer, which
    /// [`Quotas::learn_traffic`] gets.
    pub fn tell_traffic(&self, most: usize) -> Vec<TrafficTelling> {
        let Some(sharing) = self.sharing.get() else { return Vec::new() };
        sharing.is_urgent.store(false, Relaxed);
        let users = self.lock();
        let waits =
            |traffic: &Traffic| traffic.lock().room.as_ref().is_some_and(|room| room.wanted.contains(&true));
        let (mut waiting, mut others): (Vec<_>, Vec<_>) =
            users.iter().partition(|(_, traffic)| waits(traffic));
        let next = sharing.next.fetch_add(most, Relaxed);
        for some in [&mut waiting, &mut others] {
            let first = next.checked_rem(some.len()).unwrap_or(0);
            some.rotate_left(first);
        }
        let tell = |(user, traffic): (&String, &Arc<Traffic>)| traffic.lock().room.as_mut()?.tell(user);
        let mut told: Vec<_> = waiting.into_iter().chain(others).filter_map(tell).take(most).collect();
        sharing.is_urgent.fetch_or(told.len() == most, Relaxed);
        told.sort_by(|one, other| one.user.cmp(&other.user));
        told
    }

    /// Learns the answers to what was told, in its order.
    pub fn learn_traffic(&self, told: &[TrafficTelling], answers: &[TrafficAnswer]) {
        let mut users = self.lock();
        for (told, answer) in told.iter().zip(answers) {
            // One that is forgotten here has room yet, which is to be given back.
            let traffic = users.entry(told.user.clone()).or_insert_with(|| {
                self.counting(&told.user, TrafficCounts { is_shared: true, ..answer.counts })
            });
            traffic.lock().learn(told, answer);
        }
        drop(users);
        self.note_answers(true);
    }
}

#[cfg(test)]
mod tests;
