//! What must hold in a simulated cluster beside places and bans: of uploads, errands, the shared rate, failed logins, and locks of
//! WebDAV.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use millrace_limits::Network;

use super::invariants::{RECOVERY, SPREAD, Violation};
use super::tables::{DavRow, RATE, digest};
use super::tasks::Fact;
use super::world::{Process, World};
use crate::dav_table::Wanted;

/// Failed logins of a user from an address that ban it there, and of an address that ban the address.
const USER_FAILURES: u32 = 20;
const ADDRESS_FAILURES: u32 = 100;
/// For how long the parts of healthy nodes may be more than the rate together: an answer is on its way.
const CROSSING: Duration = Duration::from_millis(1500);
/// What a node takes for so is no older.
const HEARSAY: Duration = Duration::from_secs(5);
/// A lock that ends so soon may have ended by a clock that is fast.
const FAST: Duration = Duration::from_secs(12);

/// A lock of a client.
#[derive(Debug)]
struct HeldLock {
    token: u64,
    since: Instant,
}

/// What is remembered for the promises.
#[derive(Debug, Default)]
pub(super) struct Promises {
    performed: HashSet<u64>,
    /// The errand that was answered last: to how many it was sent, and how many have answered.
    pub(super) answered: Option<(usize, usize)>,
    held: Vec<HeldLock>,
    over_since: Option<Instant>,
    failures: HashMap<(u8, u8), u32>,
    steps: usize,
}

/// The network that logins of this number come from.
pub(super) fn guesser(number: u8) -> Network {
    format!("198.51.100.{number}").parse().expect("an address")
}

fn guesser_of(network: &Network) -> Option<u8> {
    network.to_string().strip_prefix("198.51.100.")?.parse().ok()
}

impl Promises {
    /// The address from which is guessed when all is calm.
    pub(super) const GUESSED: u8 = 200;

    /// A login has failed.
    pub(super) fn failed(&mut self, address: u8, user: u8) {
        *self.failures.entry((address, user)).or_default() += 1;
    }

    /// Checks what a task has found.
    pub(super) fn note(&mut self, world: &World, process: usize, fact: &Fact) -> Result<(), Violation> {
        let tables = &world.database.tables;
        match fact {
            Fact::Writes(key, number) => {
                let later =
                    tables.locked.get(key).into_iter().flatten().skip_while(|locked| *locked != number);
                let others: Vec<u64> =
                    later.filter(|locked| *locked >> 32 != process as u64).copied().collect();
                if !others.is_empty() {
                    let text =
                        format!("node {process} writes upload {key}, which {others:?} have locked since");
                    return Err(Violation(text));
                }
            }
            Fact::IsFile(key) if !tables.finished.contains(key) => {
                return Err(Violation(format!("upload {key} is told to be a file, and is none")));
            }
            Fact::Performs(number) if !self.performed.insert(*number) => {
                return Err(Violation(format!("errand {number} is performed twice")));
            }
            Fact::Answered(sent, heard) => {
                if let Some(number) = heard.iter().find(|number| !self.performed.contains(number)) {
                    return Err(Violation(format!("errand {number} is answered, and was not performed")));
                }
                self.answered = Some((sent.len(), heard.len()));
            }
            Fact::HasLock(token) => self.held.push(HeldLock { token: *token, since: world.now }),
            Fact::EndsLock(token) => self.held.retain(|lock| lock.token != *token),
            Fact::IsFile(_) | Fact::Performs(_) => {}
        }
        Ok(())
    }

    /// Checks what depends on time.
    pub(super) fn after_step(&mut self, world: &World) -> Result<(), Violation> {
        self.steps += 1;
        self.rate_is_kept(world)?;
        if self.steps.is_multiple_of(4) {
            self.locks_are_known(world)?;
        }
        self.bans_are_deserved(&world.processes[self.steps % world.processes.len()], world.now)
    }

    /// Checks that all parts together are no more than the rate: those that the database has, and those that healthy nodes use.
    fn rate_is_kept(&mut self, world: &World) -> Result<(), Violation> {
        let given: u64 = world.database.tables.rates.values().map(|row| row.part).sum();
        if given > RATE {
            return Err(Violation(format!("parts of {given} of a rate of {RATE} are given")));
        }
        let healthy = world.processes.iter().filter(|process| world.is_healthy(process, RECOVERY));
        let used: u64 = healthy.map(|process| process.node.part).sum();
        let is_locked = world.bans_locked_until + RECOVERY > world.now;
        if used <= RATE || is_locked {
            self.over_since = None;
            return Ok(());
        }
        let since = *self.over_since.get_or_insert(world.now);
        match world.now.duration_since(since) > CROSSING {
            true => Err(Violation(format!("healthy nodes use {used} of a rate of {RATE}"))),
            false => Ok(()),
        }
    }

    /// Checks that nodes know of locks that clients have had for a while.
    fn locks_are_known(&mut self, world: &World) -> Result<(), Violation> {
        let row = |lock: &HeldLock| -> Option<&DavRow> {
            let rows = &world.database.tables.dav;
            rows.iter().find(|row| row.token == lock.token && row.until > world.now)
        };
        self.held.retain(|lock| row(lock).is_some());
        let is_locked = world.bans_locked_until + RECOVERY > world.now;
        for lock in &self.held {
            let Some(row) = row(lock) else { continue };
            let wanted = Wanted { on: vec![digest(row.place)], ..Wanted::default() };
            for (number, process) in world.processes.iter().enumerate() {
                let (locks, clock) = (&process.node.locks, process.clock(world.now.max(process.born)));
                let is_due = lock.since + SPREAD <= world.now && row.until > world.now + FAST && !is_locked;
                if is_due && world.is_healthy(process, RECOVERY) && !locks.may_hold(&wanted, clock) {
                    return Err(Violation(format!("node {number} does not know of lock {}", lock.token)));
                }
                let is_old = lock.since + HEARSAY <= world.now;
                if is_old && world.is_running(number) && locks.are_none(clock) {
                    return Err(Violation(format!("node {number} takes lock {} for none", lock.token)));
                }
            }
        }
        Ok(())
    }

    /// Checks that who is banned has failed as often as bans.
    fn bans_are_deserved(&self, process: &Process, now: Instant) -> Result<(), Violation> {
        for ban in process.node.bans.list(process.clock(now.max(process.born))) {
            let Some(address) = guesser_of(&ban.network) else { continue };
            let of_user = |user: u8| self.failures.get(&(address, user)).copied().unwrap_or(0);
            let (failures, least) = match ban.user.as_deref() {
                Some(user) => (user.first().map_or(0, |user| of_user(*user)), USER_FAILURES),
                None => ((0..=u8::MAX).map(of_user).sum(), ADDRESS_FAILURES),
            };
            if failures < least {
                return Err(Violation(format!("{ban:?} holds for {failures} failures of {least}")));
            }
        }
        Ok(())
    }

    /// Checks what must be when all has been calm for long, and all nodes want all of the rate.
    pub(super) fn at_rest(&self, world: &World) -> Result<(), Violation> {
        let living = || world.processes.iter().filter(|process| process.is_alive && process.born < world.now);
        let used: u64 = living().map(|process| process.node.part).sum();
        if !(RATE * 9 / 10..=RATE).contains(&used) {
            return Err(Violation(format!("at rest {used} are used of a rate of {RATE}")));
        }
        let locks = &world.database.tables.uploads;
        if !locks.is_empty() {
            return Err(Violation(format!("at rest uploads are locked: {locks:?}")));
        }
        let guessed = guesser(Self::GUESSED);
        let has = |process: &Process| {
            process.node.bans.list(process.clock(world.now)).iter().any(|ban| ban.network == guessed)
        };
        match living().all(has) {
            true => Ok(()),
            false => Err(Violation("a user was guessed at all nodes, and is not banned at all".to_owned())),
        }
    }

    /// Checks that the errand that was sent when all was calm has the answers of all.
    pub(super) fn all_have_answered(&self, world: &World) -> Result<(), Violation> {
        let others = world.database.nodes.len() - 1;
        match self.answered {
            Some(answered) if answered == (others, others) => Ok(()),
            // None was sent where there are no others.
            None if others == 0 => Ok(()),
            answered => Err(Violation(format!("{others} nodes were to answer, and did: {answered:?}"))),
        }
    }

    /// Checks that errands are forgotten.
    pub(super) fn errands_are_gone(&self, world: &World) -> Result<(), Violation> {
        match world.database.tables.errands.len() {
            0 => Ok(()),
            left => Err(Violation(format!("{left} errands are left"))),
        }
    }
}
