//! The database of a simulated cluster: in memory, what `postgres/schema.rs` does in SQL. Each function is one statement,
//! and so atomic; `now` is the clock of the database.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::questions::{Answer, Question};
use super::tables::Tables;
use crate::scope::{Claim, SharedScope};
use crate::table::{BanChange, Epoch, Locking, Pulled, Renewal, SharedBan, Taking};

/// A row of `node`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeRow {
    pub(super) lease: Duration,
    pub(super) renewed: Instant,
}

/// The row of `pulse`.
#[derive(Debug, Clone, Copy)]
struct Pulse {
    heard: Instant,
    spare_until: Instant,
    closed_until: Instant,
}

/// A row of `ban`. The bans of a simulation last longer than it does.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BanRow {
    ban: SharedBan,
    until: Option<Instant>,
    lifted: bool,
    edition: i64,
}

/// The tables and sequences.
#[derive(Debug, Default)]
pub(super) struct Database {
    pub(super) nodes: BTreeMap<Epoch, NodeRow>,
    pub(super) held: BTreeMap<SharedScope, BTreeMap<Epoch, u64>>,
    pub(super) tables: Tables,
    pulse: Option<Pulse>,
    bans: Vec<BanRow>,
    /// What `reap` has ended, for the invariants; in the order in which it did.
    pub(super) reaped: Vec<Epoch>,
    epochs: i64,
    editions: i64,
}

impl Database {
    /// Stands for the migration.
    pub(super) fn new(now: Instant) -> Self {
        let pulse = Some(Pulse { heard: now, spare_until: now, closed_until: now });
        Self { pulse, ..Self::default() }
    }

    /// Stands for a crash: unlogged tables (`node`, `held`, `pulse`) are empty after it.
    pub(super) fn crash(&mut self) {
        self.nodes.clear();
        self.held.clear();
        self.tables.crash();
        self.pulse = None;
    }

    /// Stands for `reap`.
    fn reap(&mut self, lease: Duration, now: Instant) {
        let after_crash = Pulse { heard: now, spare_until: now + lease, closed_until: now + lease };
        let pulse = self.pulse.map_or(after_crash, |pulse| match now > pulse.heard + lease {
            true => Pulse { heard: now, spare_until: now + lease, ..pulse },
            false => Pulse { heard: now, ..pulse },
        });
        self.pulse = Some(pulse);
        if now < pulse.spare_until {
            return;
        }
        let is_over = |row: &NodeRow| row.renewed + row.lease < now;
        let over: Vec<Epoch> =
            self.nodes.iter().filter(|(_, row)| is_over(row)).map(|(epoch, _)| *epoch).collect();
        over.iter().for_each(|epoch| self.leave(*epoch));
        self.reaped.extend(over);
    }

    /// Stands for `register`.
    pub(super) fn register(
        &mut self,
        replaces: Option<Epoch>,
        lease: Duration,
        places: &[(SharedScope, u64)],
        now: Instant,
    ) -> Epoch {
        self.epochs += 1;
        let epoch = Epoch(self.epochs);
        if let Some(replaced) = replaces {
            self.tables.move_locks(replaced, epoch);
            self.leave(replaced);
        }
        self.nodes.insert(epoch, NodeRow { lease, renewed: now });
        for (scope, count) in places {
            self.held.entry(scope.clone()).or_default().insert(epoch, *count);
        }
        self.reap(lease, now);
        epoch
    }

    /// Stands for `renew`.
    pub(super) fn renew(&mut self, epoch: Epoch, freed: &[(SharedScope, u64)], now: Instant) -> Renewal {
        let Some(row) = self.nodes.get_mut(&epoch) else { return Renewal::Fenced };
        row.renewed = now;
        let lease = row.lease;
        for (scope, count) in freed {
            let Some(counts) = self.held.get_mut(scope) else { continue };
            let left = counts.get(&epoch).map_or(0, |places| places.saturating_sub(*count));
            match left {
                0 => counts.remove(&epoch),
                left => counts.insert(epoch, left),
            };
        }
        self.reap(lease, now);
        Renewal::Kept
    }

    /// Stands for `take`.
    pub(super) fn take(&mut self, epoch: Epoch, claims: &[Claim], now: Instant) -> Taking {
        let taken = |scope| self.held.get(scope).map_or(0, |counts| counts.values().sum::<u64>());
        if let Some(full) = claims.iter().position(|claim| taken(&claim.scope) >= claim.most) {
            return Taking::Full(full);
        }
        if !self.is_alive(epoch, now) {
            return Taking::Fenced;
        }
        if self.is_closed(now) {
            return Taking::Closed;
        }
        for Claim { scope, .. } in claims {
            *self.held.entry(scope.clone()).or_default().entry(epoch).or_default() += 1;
        }
        Taking::Taken
    }

    fn is_alive(&self, epoch: Epoch, now: Instant) -> bool {
        self.nodes.get(&epoch).is_some_and(|row| row.renewed + row.lease > now)
    }

    /// Returns whether nodes register after a crash.
    fn is_closed(&self, now: Instant) -> bool {
        self.pulse.is_some_and(|pulse| pulse.closed_until > now)
    }

    /// Executes a question.
    pub(super) fn execute(&mut self, question: &Question, lease: Duration, now: Instant) -> Answer {
        match question {
            Question::Register(replaces, places) => {
                Answer::Registered(self.register(*replaces, lease, places, now))
            }
            Question::Renew(epoch, freed) => Answer::Renewed(self.renew(*epoch, freed, now)),
            Question::Take(epoch, claims) => Answer::Taken(self.take(*epoch, claims, now)),
            Question::Pull(since) => Answer::Pulled(self.pull_bans(*since, now)),
            Question::Push(epoch, changes) => Answer::Pushed(self.push_bans(*epoch, changes, now)),
            question => self.execute_more(question, now),
        }
    }

    fn execute_more(&mut self, question: &Question, now: Instant) -> Answer {
        let (is_there, is_alive) = match question.epoch() {
            Some(epoch) => (self.nodes.contains_key(&epoch), self.is_alive(epoch, now)),
            None => (true, true),
        };
        let is_closed = self.is_closed(now);
        let others = |mine: &Epoch| -> Vec<Epoch> {
            self.nodes.keys().filter(|epoch| *epoch != mine && self.is_alive(**epoch, now)).copied().collect()
        };
        let others = if let Question::SendErrand(mine) = question { others(mine) } else { Vec::new() };
        let tables = &mut self.tables;
        match question {
            Question::Unlock(epoch, numbers) => {
                tables.unlock(*epoch, numbers);
                Answer::Done
            }
            Question::PullLocks(since) => Answer::NewLocks(tables.pull_locks(*since, now)),
            Question::PullFailures(origin, since) => {
                let (tallies, edition) = tables.pull_failures(*origin, *since);
                Answer::Failures(tallies, edition)
            }
            Question::PushFailures(_, origin, tallies) if is_there => {
                Answer::Pushed(tables.push_failures(*origin, tallies))
            }
            Question::PushFailures(..) => Answer::Pushed(Renewal::Fenced),
            Question::ShareRate(epoch, wish) => {
                Answer::Part(is_alive.then(|| tables.share_rate(*epoch, *wish)))
            }
            Question::TakeErrands(epoch) => Answer::Errands(tables.take_errands(*epoch)),
            Question::AnswerErrand(number) => {
                tables.answer_errand(*number);
                Answer::Done
            }
            Question::SendErrand(_) => Answer::Errands(tables.send_errand(&others, now)),
            Question::Answers(numbers) => Answer::Errands(tables.answers(numbers)),
            Question::EndErrands(numbers) => {
                tables.end_errands(numbers, now);
                Answer::Done
            }
            Question::LockUpload(..) if !is_alive => Answer::Locked(Locking::Fenced),
            Question::LockUpload(..) if is_closed => Answer::Locked(Locking::Busy),
            Question::LockUpload(epoch, key, number) => {
                Answer::Locked(tables.lock_upload(*epoch, *key, *number))
            }
            Question::HoldsUpload(key, number) => Answer::Whether(tables.holds_upload(*key, *number)),
            Question::FinishUpload(key, number) => Answer::Whether(tables.finish_upload(*key, *number)),
            Question::ReleaseUpload(key, number) => {
                tables.release_upload(*key, *number);
                Answer::Done
            }
            Question::GiveLock(place, token, left) => {
                Answer::Whether(tables.give_lock(*place, *token, *left, now))
            }
            Question::ReleaseLock(token) => {
                tables.release_lock(*token, now);
                Answer::Done
            }
            Question::Register(..)
            | Question::Renew(..)
            | Question::Take(..)
            | Question::Pull(_)
            | Question::Push(..) => unreachable!("they are executed elsewhere"),
        }
    }

    /// Stands for `DELETE FROM node`, with the places of the epoch (`ON DELETE CASCADE`).
    pub(super) fn leave(&mut self, epoch: Epoch) {
        if self.nodes.remove(&epoch).is_some() {
            self.tables.end(epoch);
            self.held.values_mut().for_each(|counts| {
                counts.remove(&epoch);
            });
        }
    }

    /// Stands for the query of `pull_bans`.
    pub(super) fn pull_bans(&self, since: i64, now: Instant) -> Pulled {
        let mut rows: Vec<_> = self.bans.iter().filter(|row| row.edition > since).collect();
        rows.sort_by_key(|row| row.edition);
        let change = |row: &&BanRow| match row.lifted {
            true => BanChange::Lifted(row.ban.clone()),
            false => BanChange::Banned(row.ban.clone(), row.until.map(|until| until - now)),
        };
        let edition = rows.last().map_or(since, |row| row.edition);
        Pulled { changes: rows.iter().map(change).collect(), edition }
    }

    /// Stands for `change_bans`.
    pub(super) fn push_bans(&mut self, epoch: Epoch, changes: &[BanChange], now: Instant) -> Renewal {
        if !self.nodes.contains_key(&epoch) {
            return Renewal::Fenced;
        }
        for change in changes {
            self.editions += 1;
            let (ban, until, lifted) = match change {
                BanChange::Banned(ban, left) => (ban, left.map(|left| now + left), false),
                BanChange::Lifted(ban) => (ban, None, true),
            };
            self.bans.retain(|row| row.ban != *ban);
            self.bans.push(BanRow { ban: ban.clone(), until, lifted, edition: self.editions });
        }
        Renewal::Kept
    }

    /// Returns how many places an epoch has in a scope.
    pub(super) fn places(&self, scope: &SharedScope, epoch: Epoch) -> u64 {
        self.held.get(scope).and_then(|counts| counts.get(&epoch)).copied().unwrap_or(0)
    }

    /// Returns what a write under an epoch that has ended must leave as it is.
    pub(super) fn fingerprint(&self) -> (u64, i64, [usize; 3]) {
        let Tables { rates, uploads, .. } = &self.tables;
        let rows = [self.nodes.len(), rates.len(), uploads.len()];
        (self.held.values().flat_map(BTreeMap::values).sum(), self.editions, rows)
    }
}
