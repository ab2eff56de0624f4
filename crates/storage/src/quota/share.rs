//! A tally whose tree other servers change as well: the part of a [`Tally`] that asks [`SharedCounts`].
//!
//! ```text
//!              first change                       quiet for a second
//!    no share ─────────────► share, with room ────────────────────────► no share
//!                              │          ▲
//!                              └──────────┘
//!                          out of room, or once a second
//! ```
//!
//! Bytes are paid for out of the room that the share has; the database is asked when there is not enough. While it is away,
//! a tree that was known goes on with an eighth of what was left then, and is counted again later.

use std::sync::MutexGuard;
use std::thread;
use std::time::{Duration, Instant};

use millrace_vfs::{Counted, FileError, VirtualPath};

use super::Allowance;
use super::shared::{Share, SharedCountError, SharedCounts, Telling, TreeState, Wish};
use super::tally::{Charge, Counts, State, Tally, count, lock};

/// Bytes that may be reserved in advance; more where a single change has needed more before.
const AHEAD: u64 = 1 << 30;
/// How long a name that another server has is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is tried.
const PAUSE: Duration = Duration::from_millis(20);
/// How long after a count that did not hold the next one begins, and how many times as long as that count took.
const REST: (Duration, u32) = (Duration::from_secs(2), 10);

/// What a tally knows of its share.
#[derive(Debug, Default)]
pub(super) struct SharePart {
    /// Its numbers, without what is reserved.
    own: Share,
    /// What of the reserved is not needed yet.
    room: (u64, u64),
    /// What others had reserved when the database was last asked.
    others: (u64, u64),
    /// What was used by all then, with what was reserved.
    used_then: (u64, u64),
    /// The database has the share, as far as is known.
    is_told: bool,
    /// The database has answered before.
    is_known: bool,
    /// Changes were made that the database may not know of.
    has_doubts: bool,
    /// The database may have the share, though no change could begin.
    may_be_left: bool,
    /// It says that the tree has to be counted again.
    is_doubtful: bool,
    /// Changes that it was told of, and whether room was needed since.
    told_changes: u64,
    has_paid: bool,
    /// When a count may be tried next.
    next_count: Option<Instant>,
}

impl SharePart {
    /// A change of the content.
    pub(super) fn grow(&mut self, (bytes, files): (i64, i64)) {
        self.own.bytes += bytes;
        self.own.files += files;
    }

    /// A change has ended.
    pub(super) fn end(&mut self) {
        self.own.changes += 1;
    }

    /// Returns whether the database may have the share, though no change could begin.
    pub(super) fn may_be_left(&self) -> bool {
        self.may_be_left
    }

    /// What others have reserved.
    pub(super) fn others(&self) -> (u64, u64) {
        self.others
    }

    /// Returns whether the tree is to be counted again, and may be.
    fn is_count_due(&self, now: Instant) -> bool {
        self.is_doubtful && self.next_count.is_none_or(|next| next <= now)
    }

    /// Takes from the room, if it suffices.
    pub(super) fn take(&mut self, bytes: u64, files: u64) -> bool {
        let is_enough = self.room.0 >= bytes && self.room.1 >= files;
        if is_enough {
            self.room = (self.room.0 - bytes, self.room.1 - files);
            self.has_paid |= bytes > 0 || files > 0;
        }
        is_enough
    }
}

/// Why a change cannot be paid for.
#[derive(Debug)]
pub(super) enum Unpaid {
    /// There would be too much.
    Over(Counted),
    /// The database has to be asked.
    Waits,
}

impl Counts {
    fn telling(&self) -> Telling {
        let share = Share {
            reserved_bytes: self.reserved_bytes + self.share.room.0,
            reserved_files: self.reserved_files + self.share.room.1,
            ..self.share.own
        };
        Telling { share, is_new: !self.share.is_told, is_last: false, is_doubtful: self.share.has_doubts }
    }

    /// Takes over how the tree is, as it was asked with this.
    fn adopt(&mut self, told: &Telling, state: &TreeState) {
        let since = (self.share.own.bytes - told.share.bytes, self.share.own.files - told.share.files);
        self.bytes = u64::try_from(state.bytes + since.0).unwrap_or(0);
        self.files = u64::try_from(state.files + since.1).unwrap_or(0);
        let share = &mut self.share;
        share.room = (share.room.0 + state.granted_bytes, share.room.1 + state.granted_files);
        share.others = (state.others_bytes, state.others_files);
        (share.is_told, share.is_known, share.is_doubtful) = (true, true, state.is_doubtful);
        share.told_changes = told.share.changes;
        share.has_doubts &= !told.is_doubtful;
        let (room, used) = (share.room, self.used());
        self.share.used_then = (used.0 + room.0, used.1 + room.1);
    }

    /// The share has ended without this server: what it had was added, and the tree is to be counted.
    fn begin_anew(&mut self, told: &Telling) {
        let own = &mut self.share.own;
        own.bytes -= told.share.bytes;
        own.files -= told.share.files;
        own.changes -= told.share.changes;
        (self.share.room, self.share.is_told, self.share.has_doubts) = ((0, 0), false, true);
    }

    /// Gives itself room while the database is away: an eighth of what was left when it was last heard.
    fn help_itself(&mut self, bytes: u64, files: u64, most: Allowance) -> Result<(), Unpaid> {
        let is_over = |more: u64, used: u64, then: u64, most: Option<u64>| {
            more > 0 && most.is_some_and(|most| used + more > then + most.saturating_sub(then) / 8)
        };
        let (used, then) = (self.used(), self.share.used_then);
        if is_over(files, used.1, then.1, most.files) {
            return Err(Unpaid::Over(Counted::Files));
        }
        if is_over(bytes, used.0, then.0, most.bytes) {
            return Err(Unpaid::Over(Counted::Bytes));
        }
        self.share.room = (self.share.room.0.max(bytes), self.share.room.1.max(files));
        Ok(())
    }
}

impl Tally {
    /// Tells the share, and asks for room. One question at a time, as the last one told holds.
    fn tell(
        &self,
        shared: &dyn SharedCounts,
        wish: Option<Wish>,
    ) -> Result<(MutexGuard<'_, Counts>, TreeState), SharedCountError> {
        let _turn = lock(&self.asking);
        self.tell_in_turn(shared, wish)
    }

    fn tell_in_turn(
        &self,
        shared: &dyn SharedCounts,
        wish: Option<Wish>,
    ) -> Result<(MutexGuard<'_, Counts>, TreeState), SharedCountError> {
        loop {
            let told = self.counts().telling();
            let state = shared.tell(self.key(), told, wish);
            let mut counts = self.counts();
            match state {
                Ok(state) => {
                    counts.adopt(&told, &state);
                    return Ok((counts, state));
                }
                Err(SharedCountError::Ended) if !told.is_new => counts.begin_anew(&told),
                Err(error) => return Err(error),
            }
        }
    }

    /// Asks how the tree is. While that cannot be said, what was heard last holds.
    pub(super) fn refresh(&self, shared: &dyn SharedCounts) {
        drop(self.tell(shared, None));
    }

    /// Begins the share, with as much room as there is; a tree that was never counted is counted. A share that no change can
    /// begin with is ended within a second: what it has reserved would be missing elsewhere.
    pub(super) fn begin_share(&self, shared: &dyn SharedCounts, most: Allowance) -> Result<(), FileError> {
        let begun = self.try_to_begin(shared, most);
        if begun.is_ok() {
            self.counts().share.may_be_left = false;
        }
        begun
    }

    fn try_to_begin(&self, shared: &dyn SharedCounts, most: Allowance) -> Result<(), FileError> {
        let wish = Wish { bytes: 0, files: 0, most, ahead: AHEAD };
        let told = self.tell(shared, Some(wish)).map(|(_, state)| state);
        match told {
            Ok(TreeState { is_counted: false, .. }) => {
                self.counts().share.may_be_left = true;
                let (found, changes) = (count(self.storage())?, 0);
                shared.counted(self.key(), found, changes).map_err(|_| FileError::Busy)?;
                self.tell(shared, Some(wish)).map(drop).map_err(|_| FileError::Busy)
            }
            Ok(state) => {
                if state.is_doubtful && self.counts().share.is_count_due(Instant::now()) {
                    // Otherwise it is too much until a count holds.
                    let _ = self.count_shared(shared);
                }
                Ok(())
            }
            Err(error) => {
                let share = &mut self.counts().share;
                if share.is_known {
                    share.has_doubts = true;
                    return Ok(());
                }
                share.may_be_left |= error == SharedCountError::Unanswered;
                Err(FileError::Busy)
            }
        }
    }

    /// Makes room for so much. Returns the counts, from whose share it can be taken.
    pub(super) fn make_room(
        &self,
        shared: &dyn SharedCounts,
        (bytes, files): (u64, u64),
        (paid, most): (u64, Allowance),
    ) -> Result<MutexGuard<'_, Counts>, Unpaid> {
        let _turn = lock(&self.asking);
        let counts = self.counts();
        let (room, is_over) = (counts.share.room, counts.over(bytes, files, most).is_some());
        if room.0 >= bytes && room.1 >= files && !is_over {
            return Ok(counts);
        }
        drop(counts);
        let missing = (bytes.saturating_sub(room.0), files.saturating_sub(room.1));
        let wish = Wish { bytes: missing.0, files: missing.1, most, ahead: AHEAD.max(paid) };
        match self.tell_in_turn(shared, Some(wish)) {
            Ok((_, TreeState { over: Some(counted), .. })) => Err(Unpaid::Over(counted)),
            Ok((counts, _)) => {
                counts.over(bytes, files, most).map_or(Ok(counts), |over| Err(Unpaid::Over(over)))
            }
            Err(_) => {
                let mut counts = self.counts();
                counts.help_itself(bytes, files, most)?;
                Ok(counts)
            }
        }
    }

    /// Tells the share if something has changed; ends it where nothing is under way, or nothing can be told. Returns whether
    /// it has ended.
    pub(super) fn keep_share(&self, shared: &dyn SharedCounts, last: bool) -> bool {
        let Ok(_only) = self.counting.try_lock() else { return false };
        let mut counts = self.counts();
        if counts.state != State::Changing {
            if std::mem::take(&mut counts.share.may_be_left) {
                drop(counts);
                self.end_left_share(shared);
            }
            return true;
        }
        let is_quiet = counts.changes == counts.seen;
        counts.seen = counts.changes;
        let has_paid = std::mem::take(&mut counts.share.has_paid);
        if counts.open == 0 && (is_quiet || last) {
            // From here on, a change waits for this, and begins a share.
            counts.state = State::Kept;
            drop(counts);
            return self.end_share(shared);
        }
        let spare = if has_paid { (0, 0) } else { std::mem::take(&mut counts.share.room) };
        let is_told = counts.share.told_changes == counts.share.own.changes && counts.share.is_told;
        drop(counts);
        if !is_told || spare != (0, 0) {
            // What cannot be told now is told with the next change, or in a second.
            self.refresh(shared);
        }
        false
    }

    /// Ends a share with which no change has begun.
    fn end_left_share(&self, shared: &dyn SharedCounts) {
        let told = {
            let mut counts = self.counts();
            counts.share.room = (0, 0);
            Telling { is_last: true, ..counts.telling() }
        };
        let _turn = lock(&self.asking);
        let ended = shared.tell(self.key(), told, None);
        let mut counts = self.counts();
        counts.begin_anew(&told);
        // Told again in a second, where it could not be.
        counts.share.may_be_left = ended.is_err_and(|error| error != SharedCountError::Ended);
        counts.share.has_doubts = told.is_doubtful && counts.share.may_be_left;
    }

    fn end_share(&self, shared: &dyn SharedCounts) -> bool {
        let told = {
            let mut counts = self.counts();
            // Given back now: the answer may be lost.
            counts.share.room = (0, 0);
            Telling { is_last: true, ..counts.telling() }
        };
        let ended = {
            let _turn = lock(&self.asking);
            shared.tell(self.key(), told, None)
        };
        let mut counts = self.counts();
        match ended {
            Ok(state) => {
                counts.adopt(&told, &state);
                counts.begin_anew(&told);
                counts.share.has_doubts = false;
                true
            }
            Err(error) => {
                counts.state = State::Changing;
                if error == SharedCountError::Ended {
                    counts.begin_anew(&told);
                }
                false
            }
        }
    }

    /// Returns whether a count is due, and may hold.
    pub(super) fn is_count_due(&self) -> bool {
        let counts = self.counts();
        counts.open == 0 && counts.share.is_count_due(Instant::now())
    }

    /// Something may have been counted twice.
    pub(super) fn doubt(&self) {
        self.counts().share.has_doubts = true;
    }

    /// Counts the tree for all servers. Returns whether it holds: not where it was being changed.
    pub(super) fn recount_shared(&self, shared: &dyn SharedCounts) -> Result<bool, FileError> {
        let _only = lock(&self.counting);
        let has_share = self.counts().state == State::Changing;
        let is_exact = self.count_shared(shared);
        if !has_share {
            // So that it is in the way of no other node that counts.
            self.end_share(shared);
        }
        is_exact
    }

    fn count_shared(&self, shared: &dyn SharedCounts) -> Result<bool, FileError> {
        let start = Instant::now();
        let busy = |_| FileError::Busy;
        let (counts, state) = self.tell(shared, None).map_err(busy)?;
        let changes = counts.share.own.changes;
        // What has changed since it was told would be told again behind the count.
        let is_told = counts.share.told_changes == changes;
        let is_quiet = counts.open == 0 && is_told && !state.has_others;
        drop(counts);
        let mut is_exact = false;
        if is_quiet {
            let found = count(self.storage())?;
            let counts = self.counts();
            let is_still = counts.open == 0 && counts.share.own.changes == changes;
            drop(counts);
            is_exact = is_still && shared.counted(self.key(), found, state.changes).map_err(busy)?;
            self.tell(shared, None).map(drop).map_err(busy)?;
        }
        let rest = (start.elapsed() * REST.1).max(REST.0);
        self.counts().share.next_count = (!is_exact).then(|| Instant::now() + rest);
        Ok(is_exact)
    }

    /// Locks a name on all servers. Where that is not possible in time, the tree is counted again later.
    pub(super) fn lock_name<'a>(&'a self, shared: &'a dyn SharedCounts, path: &VirtualPath) -> NameLock<'a> {
        let end = Instant::now() + PATIENCE;
        let number = loop {
            match shared.lock(self.key(), path.as_bytes()) {
                Ok(Some(number)) => break Some(number),
                Ok(None) if Instant::now() < end => thread::sleep(PAUSE),
                Ok(None) | Err(_) => break None,
            }
        };
        if number.is_none() {
            self.doubt();
        }
        NameLock { shared, number }
    }
}

/// A name that this server alone changes; given back when this is dropped.
#[derive(Debug)]
pub(super) struct NameLock<'a> {
    shared: &'a dyn SharedCounts,
    number: Option<u64>,
}

impl Drop for NameLock<'_> {
    fn drop(&mut self) {
        self.number.iter().for_each(|number| self.shared.unlock(*number));
    }
}

impl Charge {
    /// Pays out of the room of the share.
    pub(super) fn pay_shared(
        &self,
        shared: &dyn SharedCounts,
        (bytes, files): (u64, u64),
        most: Allowance,
        may_wait: bool,
    ) -> Result<MutexGuard<'_, Counts>, Unpaid> {
        let tally = self.tally();
        let mut counts = tally.counts();
        if counts.over(bytes, files, most).is_none() && counts.share.take(bytes, files) {
            return Ok(counts);
        }
        drop(counts);
        if !may_wait {
            return Err(Unpaid::Waits);
        }
        loop {
            let mut counts = tally.make_room(shared, (bytes, files), (self.paid().0, most))?;
            // The first that asked has it.
            if counts.share.take(bytes, files) {
                return Ok(counts);
            }
        }
    }
}
