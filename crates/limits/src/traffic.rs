//! How much a user has moved, within a day, a week and a month, and ever: what transfer quotas and ratios are
//! held against.
//!
//! A transfer takes a piece of what is left before it moves it, and gives back what it did not move, so that a user's
//! transfers are never over together by more than a byte each. Periods begin at midnight UTC, on Mondays and on the
//! first of the month. Setting the clock back does not restart a period.

mod sharing;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use millrace_storage::{Allowance, Ledger, LedgerError};
use millrace_vfs::{Counted, OverQuota, QuotaScope};
use serde::{Deserialize, Serialize};

use self::sharing::{Room, Sharing};
pub use self::sharing::{TrafficAnswer, TrafficTelling};
use super::schedule::number;
use super::{Direction, Scheduled};

/// How much a transfer reserves at a time: at least, at most, and as a part of what is left.
const PIECES: (u64, u64, u64) = (64 << 10, 16 << 20, 64);

/// A clock that is put back by more days than these was wrong before, and not now.
const LEAP: i64 = 40;

/// Seconds of a day.
const DAY: i64 = 86_400;

/// An amount within a period: `10G/day`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Per {
    /// Bytes.
    pub bytes: u64,
    /// Within which.
    pub period: Period,
}

/// When counting begins anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Period {
    /// At midnight, UTC.
    Day,
    /// On Mondays.
    Week,
    /// On the first.
    Month,
}

impl Period {
    const WORDS: [(Self, &'static str); 3] =
        [(Self::Day, "day"), (Self::Week, "week"), (Self::Month, "month")];
}

/// How much may be downloaded for what was uploaded: `1:3` is three bytes for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ratio {
    /// For this many bytes up ...
    pub upload: u32,
    /// ... this many down.
    pub download: u32,
}

/// How much a user may move.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TransferQuota {
    /// From the client.
    pub upload: Scheduled<Per>,
    /// To the client.
    pub download: Scheduled<Per>,
    /// Both together.
    pub total: Scheduled<Per>,
    /// The one for the other.
    pub ratio: Scheduled<Ratio>,
}

/// The same at a moment; `None` for no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CurrentQuota {
    /// From the client.
    pub upload: Option<Per>,
    /// To the client.
    pub download: Option<Per>,
    /// Both together.
    pub total: Option<Per>,
    /// The one for the other.
    pub ratio: Option<Ratio>,
}

impl CurrentQuota {
    /// Returns whether it limits this direction.
    fn limits(&self, direction: Direction) -> bool {
        match direction {
            Direction::Upload => self.upload.is_some() || self.total.is_some(),
            Direction::Download => self.download.is_some() || self.total.is_some() || self.ratio.is_some(),
        }
    }
}

impl TransferQuota {
    /// Returns true if there never is a limit.
    pub fn is_none(&self) -> bool {
        [&self.upload, &self.download, &self.total].into_iter().all(Scheduled::is_none)
            && self.ratio.is_none()
    }

    /// The quota at a time, in seconds since 1970. Bytes moved earlier count, whatever the quota was then.
    fn at(&self, wall: i64) -> CurrentQuota {
        let Self { upload, download, total, ratio } = self;
        CurrentQuota {
            upload: upload.at(wall),
            download: download.at(wall),
            total: total.at(wall),
            ratio: ratio.at(wall),
        }
    }
}

/// A user's transfer quota, and what the user has moved.
#[derive(Debug, Clone)]
pub struct Moved {
    /// Each session has it, and most have none.
    pub quota: Arc<TransferQuota>,
    /// The user's counters.
    pub traffic: Arc<Traffic>,
}

impl PartialEq for Moved {
    fn eq(&self, other: &Self) -> bool {
        self.quota == other.quota
    }
}

impl Eq for Moved {}

/// The bytes that a user has moved.
#[derive(Debug, Default)]
pub struct Traffic(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    counts: TrafficCounts,
    is_new: bool,
    /// The bytes counted here since another process took over the counting.
    since: Since,
    /// How much this server may move, where others count as well.
    room: Option<Box<Room>>,
}

/// Bytes from the client and to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedBytes {
    /// From the client.
    pub up: u64,
    /// To the client.
    pub down: u64,
}

/// What a user has moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrafficCounts {
    /// Days since 1970.
    pub day: i64,
    /// Today, this week, this month.
    pub periods: [MovedBytes; 3],
    /// To the client, and what became files of what came.
    pub ever: MovedBytes,
    /// Whether it is what all servers have counted that share it.
    pub is_shared: bool,
}

/// The bytes that a user has moved since a moment, such as that at which another process took over.
/// Negative where earlier reservations were given back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Since {
    /// From the client.
    pub up: i64,
    /// To the client.
    pub down: i64,
    /// What became files of what came.
    pub credit: u64,
}

impl TrafficCounts {
    /// Begins anew what the day begins.
    fn look_at(&mut self, wall: i64) {
        let day = wall.div_euclid(DAY);
        if day == self.day || (self.day - LEAP..self.day).contains(&day) {
            return;
        }
        let (before, now) = (calendar(self.day), calendar(day));
        for (bytes, (before, now)) in self.periods.iter_mut().zip(before.into_iter().zip(now)) {
            if now > before {
                *bytes = MovedBytes::default();
            }
        }
        self.day = day;
    }

    /// The bytes that may be downloaded for the uploaded ones.
    fn earned(&self, ratio: Ratio) -> u64 {
        let earned = u128::from(self.ever.up) * u128::from(ratio.download) / u128::from(ratio.upload.max(1));
        u64::try_from(earned).unwrap_or(u64::MAX)
    }

    /// The rest of the quota in this direction, or the quota that forbids the transfer.
    fn left(&self, quota: CurrentQuota, direction: Direction) -> Result<u64, OverQuota> {
        let of = |per: Per| self.periods[per.period as usize];
        let per = |per: Option<Per>, counted, used: fn(MovedBytes) -> u64| {
            per.map(|per| (counted, per.bytes, per.bytes.saturating_sub(used(of(per)))))
        };
        let own = match direction {
            Direction::Upload => per(quota.upload, Counted::Uploaded, |bytes| bytes.up),
            Direction::Download => per(quota.download, Counted::Downloaded, |bytes| bytes.down),
        };
        let total = per(quota.total, Counted::Moved, |bytes| bytes.up.saturating_add(bytes.down));
        let ratio = quota.ratio.filter(|_| direction == Direction::Download).map(|ratio| {
            let left = self.earned(ratio).saturating_sub(self.ever.down);
            (Counted::Ratio, ratio.download.into(), left)
        });
        let mut least = u64::MAX;
        for (counted, most, left) in own.into_iter().chain(total).chain(ratio) {
            if left == 0 {
                return Err(OverQuota { scope: QuotaScope::Account, counted, most });
            }
            least = least.min(left);
        }
        Ok(least)
    }

    /// More has moved this way, or less than was counted. The total of uploads counts only complete files.
    fn add(&mut self, direction: Direction, bytes: i64) {
        let ever = (direction == Direction::Download).then_some(&mut self.ever);
        self.periods.iter_mut().chain(ever).for_each(|counted| {
            *counted.way(direction) = counted.way(direction).saturating_add_signed(bytes)
        });
    }
}

impl State {
    fn add(&mut self, direction: Direction, bytes: i64) {
        if bytes == 0 {
            return;
        }
        self.is_new = true;
        *self.since.way(direction) += bytes;
        self.counts.add(direction, bytes);
        self.room.iter_mut().for_each(|room| room.moved(direction, bytes));
    }

    fn credit(&mut self, bytes: u64) {
        self.is_new = true;
        self.since.credit += bytes;
        self.counts.ever.up = self.counts.ever.up.saturating_add(bytes);
        self.room.iter_mut().for_each(|room| room.earned(bytes));
    }
}

impl Since {
    fn way(&mut self, direction: Direction) -> &mut i64 {
        match direction {
            Direction::Upload => &mut self.up,
            Direction::Download => &mut self.down,
        }
    }
}

impl MovedBytes {
    fn way(&mut self, direction: Direction) -> &mut u64 {
        match direction {
            Direction::Upload => &mut self.up,
            Direction::Download => &mut self.down,
        }
    }
}

/// The numbers of a day, of its week and of its month.
fn calendar(day: i64) -> [i64; 3] {
    let date = Timestamp::from_second(day.saturating_mul(DAY)).unwrap_or_default().to_zoned(TimeZone::UTC);
    // 1970 began on a Thursday.
    [day, (day + 3).div_euclid(7), i64::from(date.year()) * 12 + i64::from(date.month())]
}

impl Moved {
    /// Checks whether a transfer in this direction may begin; the error names the quota that forbids it. `wall` is in
    /// seconds since 1970.
    pub fn check(&self, direction: Direction, wall: i64) -> Result<(), OverQuota> {
        self.left(&mut self.traffic.lock(), direction, wall).map(drop)
    }

    /// Reserves at most `wanted` bytes of the remaining quota. 0: other servers count as well, and are to leave this one
    /// some of it; try again soon.
    pub fn reserve(&self, direction: Direction, wall: i64, wanted: u64) -> Result<u64, OverQuota> {
        let mut state = self.traffic.lock();
        let left = self.left(&mut state, direction, wall)?;
        let (least, most, part) = PIECES;
        let piece = (left / part).clamp(least, most).min(left).min(wanted);
        state.add(direction, piece.cast_signed());
        Ok(piece)
    }

    /// How much this server may move now.
    fn left(&self, state: &mut State, direction: Direction, wall: i64) -> Result<u64, OverQuota> {
        // While the others answer, the day is theirs: this server's clock may be ahead, and would wait for room of another day.
        if !state.room.as_ref().is_some_and(|room| room.is_fresh()) {
            state.counts.look_at(wall);
        }
        let quota = self.quota.at(wall);
        match (state.counts.left(quota, direction), &mut state.room) {
            (Ok(u64::MAX), _) => Ok(u64::MAX),
            (left, Some(room)) => room.left(left, quota, direction),
            (left, None) => left,
        }
    }

    /// Of what was taken so much was not moved.
    pub fn give_back(&self, direction: Direction, bytes: u64) {
        self.traffic.lock().add(direction, -bytes.cast_signed());
    }

    /// More was moved than could be taken.
    pub fn count(&self, direction: Direction, bytes: u64) {
        self.traffic.lock().add(direction, bytes.cast_signed());
    }
}

impl Traffic {
    /// Counts received bytes that have become a file, and earn credit.
    pub(super) fn credit(&self, bytes: u64) {
        self.lock().credit(bytes);
    }

    /// Adds what the predecessor counted.
    fn add_elsewhere(&self, since: Since, wall: i64) {
        let mut state = self.lock();
        state.counts.look_at(wall);
        state.add(Direction::Upload, since.up);
        state.add(Direction::Download, since.down);
        state.credit(since.credit);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The used part of a quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Used {
    /// The quota's key.
    pub key: &'static str,
    /// Where the virtual folder is whose quota it is; `None` for the user's own.
    pub folder: Option<String>,
    /// The used amount; for a ratio, the downloaded bytes.
    pub used: u64,
    /// How much it may be; of a ratio, what was earned by uploads.
    pub most: u64,
    /// Nothing has changed since.
    pub exact: bool,
}

/// The counts of quotas: what folders hold, and what users have moved. One value serves the accounts before and after a
/// reload.
#[derive(Debug)]
pub struct Quotas {
    ledger: Ledger,
    /// Guarded for a look-up.
    users: Mutex<HashMap<String, Arc<Traffic>>>,
    /// The other servers that count what users move, once this one has joined them.
    sharing: OnceLock<Arc<Sharing>>,
}

impl Quotas {
    /// Counts, and keeps it in this ledger.
    pub fn new(ledger: Ledger) -> Self {
        Self { ledger, users: Mutex::default(), sharing: OnceLock::new() }
    }

    /// The counts of folders.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// A user's traffic counters, if they are in memory.
    pub fn traffic_at_hand(&self, user: &str) -> Option<Arc<Traffic>> {
        self.lock().get(user).cloned()
    }

    /// The counts of a user. May block.
    pub fn traffic(&self, user: &str) -> Arc<Traffic> {
        if let Some(traffic) = self.traffic_at_hand(user) {
            return traffic;
        }
        let kept = self.ledger.note(&key(user)).and_then(|text| serde_json::from_str(&text).ok());
        let traffic = self.counting(user, kept.unwrap_or_default());
        // Another thread may have counted already.
        Arc::clone(self.lock().entry(user.to_owned()).or_insert(traffic))
    }

    /// The last stored use of a user's transfer quotas at this time, in seconds since 1970: for reports.
    pub fn moved_of(&self, user: &str, quota: &TransferQuota, wall: i64) -> Vec<Used> {
        let kept = self.ledger.kept_note(&key(user)).and_then(|text| serde_json::from_str(&text).ok());
        let mut counts: TrafficCounts = kept.unwrap_or_default();
        counts.look_at(wall);
        let quota = quota.at(wall);
        let per = |key, per: Option<Per>, used: fn(MovedBytes) -> u64| {
            per.map(|per| Used {
                folder: None,
                key,
                used: used(counts.periods[per.period as usize]),
                most: per.bytes,
                exact: true,
            })
        };
        let ratio = quota.ratio.map(|ratio| Used {
            folder: None,
            key: "ratio",
            used: counts.ever.down,
            most: counts.earned(ratio),
            exact: true,
        });
        let periods = [
            per("quota-upload", quota.upload, |bytes| bytes.up),
            per("quota-download", quota.download, |bytes| bytes.down),
            per("quota-transfer", quota.total, |bytes| bytes.up.saturating_add(bytes.down)),
        ];
        periods.into_iter().chain([ratio]).flatten().collect()
    }

    /// The last stored use of a folder's quota: files and bytes.
    pub fn held_in(&self, tree: &str, allowance: Allowance) -> Vec<Used> {
        let Some(kept) = self.ledger.kept(tree) else { return Vec::new() };
        let used = |key, used, most: Option<u64>| {
            most.map(|most| Used { key, folder: None, used, most, exact: kept.exact })
        };
        let both = [
            used("quota-bytes", kept.bytes, allowance.bytes),
            used("quota-files", kept.files, allowance.files),
        ];
        both.into_iter().flatten().collect()
    }

    /// Hands the counting to another process; bytes that this one still moves are [reported](Self::since) at the end.
    pub fn leave(&self) {
        self.lock().values().for_each(|traffic| traffic.lock().since = Since::default());
        self.ledger.leave();
    }

    /// What users have moved since another process took over. What servers count together they tell each other anyway.
    pub fn since(&self) -> Vec<(String, Since)> {
        let users = self.lock();
        let moved = users.iter().filter_map(|(user, traffic)| {
            let state = traffic.lock();
            state.room.is_none().then(|| (user.clone(), state.since))
        });
        moved.filter(|(_, since)| *since != Since::default()).collect()
    }

    /// A user has moved this at a server that this one relieves. May wait.
    pub fn add_elsewhere(&self, user: &str, since: Since, wall: i64) {
        self.traffic(user).add_elsewhere(since, wall);
    }

    /// Keeps what has changed; see [`Ledger::keep`].
    pub fn keep(&self, last: bool) -> Result<(), LedgerError> {
        if self.ledger.is_left() {
            return self.ledger.keep(last);
        }
        let users: Vec<_> = {
            let mut users = self.lock();
            let changed = |traffic: &Arc<Traffic>| traffic.lock().is_new;
            // Unused counters need not be remembered, once all is told.
            users.retain(|_, traffic| {
                Arc::strong_count(traffic) > 1 || changed(traffic) || traffic.lock().is_to_be_told()
            });
            let changed = users.iter().filter(|(_, traffic)| changed(traffic));
            changed.map(|(user, traffic)| (user.clone(), Arc::clone(traffic))).collect()
        };
        for (user, traffic) in users {
            let counts = {
                let mut state = traffic.lock();
                state.is_new = false;
                state.counts
            };
            self.ledger.put_note(&key(&user), &serde_json::json!(counts).to_string());
        }
        self.ledger.keep(last)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Traffic>>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(user: &str) -> String {
    format!("moved by {user}")
}

/// Why a text is no transfer quota or ratio.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not {1}")]
pub struct TransferQuotaError(String, &'static str);

impl FromStr for Per {
    type Err = TransferQuotaError;

    fn from_str(text: &str) -> Result<Self, TransferQuotaError> {
        let wrong =
            || TransferQuotaError(text.to_owned(), "a quota; write such as \"10G/day\", week or month");
        let (bytes, period) = text.split_once('/').ok_or_else(wrong)?;
        let found = Period::WORDS.into_iter().find(|(_, word)| *word == period.trim());
        let (period, _) = found.ok_or_else(wrong)?;
        match number(bytes.trim()) {
            Ok(bytes) if bytes > 0 => Ok(Self { bytes, period }),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Per {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.bytes, Period::WORDS[self.period as usize].1)
    }
}

impl FromStr for Ratio {
    type Err = TransferQuotaError;

    fn from_str(text: &str) -> Result<Self, TransferQuotaError> {
        let part = |part: &str| part.trim().parse().ok().filter(|part| *part > 0);
        text.split_once(':')
            .and_then(|(upload, download)| Some(Self { upload: part(upload)?, download: part(download)? }))
            .ok_or_else(|| {
                TransferQuotaError(text.to_owned(), "a ratio of upload to download; write such as \"1:3\"")
            })
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.upload, self.download)
    }
}
