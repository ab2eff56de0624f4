//! Misbehaving users beside the measured ones: how many, what they do, and what they leak.
//!
//! A load with chaos is measured twice: without the misbehaving users, and with them. The difference is their cost to
//! the others; a leak is what the server still holds some time after all users have gone.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::host::{Holdings, holdings};

/// How a bad user behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mischief {
    /// Logs in a byte a second.
    SlowLogin,
    /// Asks for one passive port after the other, and connects to none.
    PasvFlood,
    /// Downloads, and never reads.
    Unread,
    /// Uploads a part, ends its side of the control connection, and leaves the data connection open.
    HalfClosed,
    /// Resets its connections in the middle of a download.
    Resets,
    /// Aborts downloads as soon as they have begun.
    Abor,
    /// Makes the server connect to a port that never answers.
    BlackHole,
}

/// Every [`Mischief`] by its name.
pub const MISCHIEFS: [(&str, Mischief); 7] = [
    ("slow-login", Mischief::SlowLogin),
    ("pasv-flood", Mischief::PasvFlood),
    ("unread", Mischief::Unread),
    ("half-closed", Mischief::HalfClosed),
    ("resets", Mischief::Resets),
    ("abor", Mischief::Abor),
    ("black-hole", Mischief::BlackHole),
];

impl Mischief {
    /// The name in flags.
    pub fn name(self) -> &'static str {
        MISCHIEFS.iter().find(|row| row.1 == self).map_or("", |row| row.0)
    }
}

/// The share of misbehaving users, and their misbehaviours: `10%`, or `10%:unread,abor`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chaos {
    /// Misbehaving users for a hundred others.
    pub percent: u32,
    /// Their misbehaviours, in turn.
    pub kinds: Vec<Mischief>,
}

/// Each bad user is a thread of this client.
const MOST_BAD: u32 = 1000;

impl Chaos {
    /// How many misbehaving users there are beside `good` others: at least one of each kind.
    pub fn users(&self, good: u32) -> u32 {
        let share = u64::from(good) * u64::from(self.percent) / 100;
        (share as u32).clamp(self.kinds.len() as u32, MOST_BAD)
    }

    /// The misbehaviour of the user of this number.
    pub fn kind(&self, number: u32) -> Mischief {
        self.kinds[number as usize % self.kinds.len()]
    }
}

/// The counts of misbehaviour, while it runs.
#[derive(Debug, Default)]
pub(crate) struct Deeds {
    is_over: AtomicBool,
    /// For each of [`MISCHIEFS`]: how often it was done, and how often the server ended it.
    done: [AtomicU64; MISCHIEFS.len()],
    ended: [AtomicU64; MISCHIEFS.len()],
}

impl Deeds {
    /// Returns true if misbehaviour is to end.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Ends all misbehaviour.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(crate) fn note(&self, kind: Mischief) {
        self.done[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a refusal or a close by the server.
    pub(crate) fn note_end(&self, kind: Mischief) {
        self.ended[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Waits so long, or until the end; returns true if misbehaviour goes on.
    pub(crate) fn pause(&self, length: Duration) -> bool {
        const STEP: Duration = Duration::from_millis(50);
        let until = Instant::now() + length;
        while !self.is_over() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            thread::sleep(left.min(STEP));
        }
        false
    }
}

/// What misbehaving users did, and what the server still holds of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChaosReport {
    /// Misbehaving users.
    pub users: u32,
    /// The counts of each kind.
    pub deeds: Vec<Deed>,
    /// The same load's p99 without them, in milliseconds.
    pub calm_p99_ms: Option<f64>,
    /// The server's resources before any user connected, where its process is known.
    pub before: Option<Holdings>,
    /// And after all users had gone.
    pub after: Option<Holdings>,
    /// How many of its additional descriptors are listening ports kept for later users: at most one for each user.
    #[serde(default)]
    pub kept_ports: u64,
    /// How long the server took to release them, at most [`SETTLING`].
    pub settled_s: f64,
}

/// The misbehaviour of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Deed {
    /// The kind.
    pub kind: Mischief,
    /// How often.
    pub times: u64,
    /// How often the server put an end to it: refused, or closed.
    pub ended_by_server: u64,
}

/// How long a server has to release the resources of misbehaving users.
pub const SETTLING: Duration = Duration::from_secs(10);
/// How often it is checked meanwhile.
const LOOK: Duration = Duration::from_millis(100);

impl ChaosReport {
    /// Waits until the server of this process has released the users' resources, or the time is over.
    pub(crate) fn settle(
        chaos: &Chaos,
        [good, bad]: [u32; 2],
        deeds: &Deeds,
        server: Option<i32>,
        before: Option<Holdings>,
    ) -> Self {
        let begun = Instant::now();
        let kept = |now: &Holdings| {
            before.map_or(0, |then| now.listeners.saturating_sub(then.listeners)).min(u64::from(good + bad))
        };
        let has_settled = |now: &Holdings| {
            let is_free =
                |then: Holdings| now.descriptors - kept(now).min(now.descriptors) <= then.descriptors;
            before.is_none_or(|then| is_free(then) && now.processes <= then.processes)
        };
        let after = loop {
            let now = server.and_then(holdings);
            if now.as_ref().is_none_or(has_settled) || begun.elapsed() >= SETTLING {
                break now;
            }
            thread::sleep(LOOK);
        };
        let count = |counts: &[AtomicU64], kind: Mischief| counts[kind as usize].load(Ordering::Relaxed);
        let kinds = MISCHIEFS.iter().map(|row| row.1).filter(|kind| chaos.kinds.contains(kind));
        let deed =
            |kind| Deed { kind, times: count(&deeds.done, kind), ended_by_server: count(&deeds.ended, kind) };
        Self {
            users: bad,
            kept_ports: after.as_ref().map_or(0, kept),
            deeds: kinds.map(deed).collect(),
            calm_p99_ms: None,
            before,
            after,
            settled_s: begun.elapsed().as_secs_f64(),
        }
    }

    /// Descriptors and processes that the server still holds, beside ports that it keeps for the next users.
    pub fn leaked(&self) -> Option<(u64, u64)> {
        let (before, after) = (self.before?, self.after?);
        let more = |field: fn(&Holdings) -> u64| field(&after).saturating_sub(field(&before));
        let descriptors = more(|held| held.descriptors).saturating_sub(self.kept_ports);
        Some((descriptors, more(|held| held.processes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_of_each_kind_at_least() {
        let all = Chaos { percent: 10, kinds: MISCHIEFS.map(|row| row.1).to_vec() };
        assert_eq!((all.kind(0), all.kind(8)), (Mischief::SlowLogin, Mischief::PasvFlood));
        assert_eq!([all.users(1), all.users(100), all.users(1_000_000)], [7, 10, MOST_BAD]);
    }

    /// A server that keeps the listening port of its last user open, and one that leaks one for every `PASV` of a
    /// flood.
    #[test]
    fn a_port_for_each_user_may_be_kept_and_no_more() {
        let chaos = Chaos { percent: 10, kinds: vec![Mischief::PasvFlood] };
        let listening: Vec<_> =
            (0..12).map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        // Other tests of this process open and close descriptors meanwhile: so only the two are compared.
        let pid = std::process::id() as i32;
        let report = |users: [u32; 2]| {
            let before = Holdings { listeners: 0, descriptors: u64::MAX, ..holdings(pid).unwrap() };
            ChaosReport::settle(&chaos, users, &Deeds::default(), Some(pid), Some(before))
        };
        assert_eq!(report([3, 4]).kept_ports, 7);
        assert!(report([1000, 1]).kept_ports >= listening.len() as u64);
        let held = |descriptors: u64| {
            Some(Holdings { processes: 1, threads: 1, descriptors, listeners: 0, pss_kib: 0 })
        };
        let leaked = |kept_ports: u64| {
            ChaosReport { before: held(10), after: held(15), kept_ports, ..report([1, 1]) }.leaked()
        };
        assert_eq!([0, 1, 5].map(leaked), [Some((5, 0)), Some((4, 0)), Some((0, 0))]);
    }

    #[test]
    fn the_table_has_the_order_of_the_kinds() {
        assert!(MISCHIEFS.iter().enumerate().all(|(at, row)| row.1 as usize == at));
    }
}
