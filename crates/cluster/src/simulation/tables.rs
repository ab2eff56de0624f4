//! More tables of the database of a simulated cluster: errands, the parts of a rate, locks of uploads, failed logins, and locks
//! of WebDAV. Each function is one statement, and stands for the one of its name in SQL.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use millrace_limits::FailureTally;

use crate::dav_table::{NewLocks, PlaceDigest};
use crate::table::{Epoch, Locking, Renewal};

/// The rate that is shared, in bytes a second.
pub(super) const RATE: u64 = 32_000;

/// A row of `rate`.
#[derive(Debug, Clone, Copy)]
pub(super) struct RateRow {
    wanted: u64,
    weight: u64,
    pub(super) part: u64,
}

/// A row of `errand`.
#[derive(Debug, Clone, Copy)]
pub(super) struct ErrandRow {
    pub(super) epoch: Epoch,
    is_taken: bool,
    is_answered: bool,
    made: Instant,
}

/// A row of `dav_lock`.
#[derive(Debug, Clone, Copy)]
pub(super) struct DavRow {
    pub(super) token: u64,
    pub(super) place: u8,
    pub(super) until: Instant,
    edition: i64,
}

/// The tables.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) rates: BTreeMap<Epoch, RateRow>,
    pub(super) errands: BTreeMap<u64, ErrandRow>,
    errand_number: u64,
    /// Which number an upload is locked by, and under which epoch.
    pub(super) uploads: BTreeMap<u64, (Epoch, u64)>,
    /// Uploads that have become files.
    pub(super) finished: BTreeSet<u64>,
    /// The numbers by which each upload was locked, in this order: for the invariants.
    pub(super) locked: BTreeMap<u64, Vec<u64>>,
    failures: Vec<(i64, Epoch, FailureTally)>,
    failure_edition: i64,
    pub(super) dav: Vec<DavRow>,
    dav_edition: i64,
}

/// The place of a lock, as nodes know it.
pub(super) fn digest(place: u8) -> PlaceDigest {
    [place; 16]
}

impl Tables {
    /// Unlogged tables are empty after a crash.
    pub(super) fn crash(&mut self) {
        self.rates.clear();
        self.errands.clear();
        self.uploads.clear();
        self.failures.clear();
    }

    /// Stands for `ON DELETE CASCADE`.
    pub(super) fn end(&mut self, epoch: Epoch) {
        self.rates.remove(&epoch);
        self.errands.retain(|_, errand| errand.epoch != epoch);
        self.uploads.retain(|_, (holder, _)| *holder != epoch);
    }

    /// Locks of names go over to a new registration.
    pub(super) fn move_locks(&mut self, from: Epoch, to: Epoch) {
        self.uploads.values_mut().filter(|(holder, _)| *holder == from).for_each(|(holder, _)| *holder = to);
    }

    pub(super) fn share_rate(&mut self, mine: Epoch, wish: Option<(u64, u64)>) -> u64 {
        let Some((wanted, weight)) = wish.filter(|(_, weight)| *weight > 0) else {
            self.rates.remove(&mine);
            return 0;
        };
        let part = self.rates.get(&mine).map_or(0, |row| row.part);
        self.rates.insert(mine, RateRow { wanted, weight, part });
        let others: u64 =
            self.rates.iter().filter(|(epoch, _)| **epoch != mine).map(|(_, row)| row.part).sum();
        let (mut left_rate, mut left_weight) =
            (RATE as f64, self.rates.values().map(|row| row.weight).sum::<u64>() as f64);
        let mut rows: Vec<(Epoch, RateRow)> = self.rates.iter().map(|(epoch, row)| (*epoch, *row)).collect();
        let each = |row: &RateRow| row.wanted as f64 / row.weight as f64;
        rows.sort_by(|(one, a), (other, b)| each(a).total_cmp(&each(b)).then(one.cmp(other)));
        let mut got = 0;
        for (epoch, row) in rows {
            let fair = (row.wanted as f64).min(left_rate * row.weight as f64 / left_weight);
            left_rate -= fair;
            left_weight -= row.weight as f64;
            if epoch == mine {
                got = fair as u64;
            }
        }
        let got = got.min(RATE.saturating_sub(others));
        self.rates.insert(mine, RateRow { wanted, weight, part: got });
        got
    }

    /// Sends an errand to these.
    pub(super) fn send_errand(&mut self, to: &[Epoch], now: Instant) -> Vec<u64> {
        let send = |epoch: &Epoch| {
            self.errand_number += 1;
            let row = ErrandRow { epoch: *epoch, is_taken: false, is_answered: false, made: now };
            self.errands.insert(self.errand_number, row);
            self.errand_number
        };
        to.iter().map(send).collect()
    }

    pub(super) fn take_errands(&mut self, mine: Epoch) -> Vec<u64> {
        let new = self.errands.iter_mut().filter(|(_, errand)| errand.epoch == mine && !errand.is_taken);
        new.map(|(number, errand)| {
            errand.is_taken = true;
            *number
        })
        .collect()
    }

    pub(super) fn answer_errand(&mut self, number: u64) {
        self.errands.entry(number).and_modify(|errand| errand.is_answered = true);
    }

    pub(super) fn answers(&self, numbers: &[u64]) -> Vec<u64> {
        let is_answered = |number: &&u64| self.errands.get(number).is_some_and(|errand| errand.is_answered);
        numbers.iter().filter(is_answered).copied().collect()
    }

    pub(super) fn end_errands(&mut self, numbers: &[u64], now: Instant) {
        let minute = Duration::from_secs(60);
        self.errands.retain(|number, errand| !numbers.contains(number) && errand.made + minute >= now);
    }

    pub(super) fn lock_upload(&mut self, mine: Epoch, key: u64, number: u64) -> Locking {
        match self.uploads.get(&key) {
            Some((holder, _)) if *holder != mine => Locking::Busy,
            _ => {
                self.uploads.insert(key, (mine, number));
                self.locked.entry(key).or_default().push(number);
                Locking::Locked
            }
        }
    }

    pub(super) fn holds_upload(&self, key: u64, number: u64) -> bool {
        self.uploads.get(&key).is_some_and(|(_, held)| *held == number)
    }

    pub(super) fn finish_upload(&mut self, key: u64, number: u64) -> bool {
        let holds = self.holds_upload(key, number);
        if holds {
            self.finished.insert(key);
        }
        holds
    }

    pub(super) fn release_upload(&mut self, key: u64, number: u64) {
        if self.holds_upload(key, number) {
            self.uploads.remove(&key);
        }
    }

    pub(super) fn unlock(&mut self, mine: Epoch, numbers: &[u64]) {
        self.uploads.retain(|_, (holder, number)| *holder != mine || !numbers.contains(number));
    }

    pub(super) fn push_failures(&mut self, origin: Epoch, tallies: &[FailureTally]) -> Renewal {
        for tally in tallies {
            self.failure_edition += 1;
            self.failures.push((self.failure_edition, origin, tally.clone()));
        }
        Renewal::Kept
    }

    pub(super) fn pull_failures(&self, origin: Epoch, since: i64) -> (Vec<FailureTally>, i64) {
        let new = self.failures.iter().filter(|(edition, by, _)| *edition > since && *by != origin);
        let edition = new.clone().map(|(edition, ..)| *edition).max().unwrap_or(since);
        (new.map(|(.., tally)| tally.clone()).collect(), edition)
    }

    pub(super) fn give_lock(&mut self, place: u8, token: u64, left: Duration, now: Instant) -> bool {
        self.dav.retain(|lock| lock.until > now);
        if self.dav.iter().any(|lock| lock.place == place) {
            return false;
        }
        self.dav_edition += 1;
        self.dav.push(DavRow { token, place, until: now + left, edition: self.dav_edition });
        true
    }

    pub(super) fn release_lock(&mut self, token: u64, now: Instant) {
        self.dav.retain(|lock| lock.until > now && lock.token != token);
    }

    pub(super) fn pull_locks(&self, since: i64, now: Instant) -> NewLocks {
        let held = || self.dav.iter().filter(|lock| lock.until > now);
        let new = held().filter(|lock| lock.edition > since);
        let edition = new.clone().map(|lock| lock.edition).max().unwrap_or(since);
        let locks = new.map(|lock| (digest(lock.place), Vec::new(), lock.until - now)).collect();
        NewLocks { locks, are_any: held().next().is_some(), edition }
    }
}
