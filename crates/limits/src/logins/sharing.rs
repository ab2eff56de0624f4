//! What servers of a cluster tell one another of logins, so that their rates hold for all of them together.
//!
//! Each server counts by itself, and adds what the others have told: no login waits. What several let in before they know of
//! each other is on top, and is taken off what comes next.
//!
//! The invariant: what waits to be told is bounded. What is closest to a limit is told first.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Buckets, Logins, Rate, make_room, nanos};
use crate::network::Network;

/// Buckets that wait to be told, at most.
const MOST_WAITING: usize = 4096;

/// Longer names of users are told to none.
const NAME: usize = 64;

/// Whose logins a rate is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LoginsOf {
    /// Everybody's.
    Server,
    /// Those from an address.
    Address(IpAddr),
    /// Those from a network.
    Network(Network),
    /// A user's.
    User(Box<[u8]>),
}

/// Logins that one server has counted since it last told, or what all have told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginTally {
    /// Whose they are.
    pub of: LoginsOf,
    /// How long the rate takes for them.
    pub time: Duration,
}

/// What is to be told. Like the buckets themselves it becomes less with time.
#[derive(Debug, Default)]
pub(super) struct Outbox(Mutex<HashMap<LoginsOf, Waiting>>);

#[derive(Debug, Clone, Copy)]
struct Waiting {
    /// When this server's own logins are over, in nanoseconds since the buckets were made.
    empty_at: u64,
    full: u64,
}

impl Waiting {
    /// Which part of a bucketful it is.
    fn worth(&self, now: u64) -> f64 {
        self.empty_at.saturating_sub(now) as f64 / self.full.max(1) as f64
    }
}

impl Outbox {
    /// A login was let in.
    pub(super) fn add(&self, of: LoginsOf, rate: Rate, now: u64) {
        if matches!(&of, LoginsOf::User(name) if name.len() > NAME) {
            return;
        }
        let mut waiting = self.lock();
        if waiting.len() >= MOST_WAITING && !waiting.contains_key(&of) {
            let mut worth: Vec<f64> = waiting.values().map(|waiting| waiting.worth(now)).collect();
            let (_, middle, _) = worth.select_nth_unstable_by(MOST_WAITING / 2, f64::total_cmp);
            let middle = *middle;
            waiting.retain(|_, waiting| waiting.worth(now) > middle);
        }
        let entry = waiting.entry(of).or_insert(Waiting { empty_at: 0, full: 0 });
        entry.empty_at = entry.empty_at.max(now).saturating_add(rate.interval());
        entry.full = rate.full();
    }

    /// Takes this many, without those whose time is over.
    fn take(&self, most: usize, now: u64) -> Vec<LoginTally> {
        let mut waiting = self.lock();
        waiting.retain(|_, waiting| waiting.empty_at > now);
        let mut by_worth: Vec<(f64, LoginsOf)> =
            waiting.iter().map(|(of, waiting)| (waiting.worth(now), of.clone())).collect();
        by_worth.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let taken = by_worth.into_iter().take(most).filter_map(|(_, of)| {
            let Waiting { empty_at, .. } = waiting.remove(&of)?;
            Some(LoginTally { of, time: Duration::from_nanos(empty_at - now) })
        });
        taken.collect()
    }

    /// How long this server's logins take that it has not told yet.
    fn untold(&self, of: &LoginsOf, now: u64) -> u64 {
        self.lock().get(of).map_or(0, |waiting| waiting.empty_at.saturating_sub(now))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<LoginsOf, Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Logins {
    /// Has logins told to other servers from now on.
    pub fn share(&self) {
        self.is_shared.store(true, Relaxed);
    }

    /// Returns whether there is any rate.
    pub fn is_any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// Takes this many tallies of logins that the others have not been told; the closest to a limit.
    pub fn take_tallies(&self, most: usize, now: Instant) -> Vec<LoginTally> {
        self.outbox.take(most, self.nanos(now))
    }

    /// All servers together have told so much.
    pub fn learn(&self, told: &LoginTally, now: Instant) {
        let now = self.nanos(now);
        let untold = self.outbox.untold(&told.of, now);
        let Buckets { server, addresses, networks, users } = &self.buckets;
        let (buckets, whose) = match &told.of {
            LoginsOf::Server => (server, self.key_of(&())),
            LoginsOf::Address(address) => (addresses, self.key_of(address)),
            LoginsOf::Network(network) => (networks, self.key_of(network)),
            LoginsOf::User(name) => (users, self.key_of(&&**name)),
        };
        let mut buckets = buckets.lock().unwrap_or_else(PoisonError::into_inner);
        make_room(&mut buckets, now);
        let empty_at = buckets.entry(whose).or_insert(0);
        // What is known here alone stays.
        *empty_at = (*empty_at).max(now.saturating_add(nanos(told.time)).saturating_add(untold));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LoginRates, NetworkBits};

    fn logins(now: Instant) -> Logins {
        let [address, network, server, user] =
            ["6/minute", "60/minute", "600/minute", "3/minute"].map(|rate| rate.parse().unwrap());
        let logins = Logins::new(LoginRates { server, address, network, user }, NetworkBits::default(), now);
        logins.share();
        logins
    }

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    /// What all have told: does what the database does.
    #[derive(Default)]
    struct Told(HashMap<LoginsOf, Instant>);

    impl Told {
        fn exchange(&mut self, logins: &Logins, now: Instant) -> usize {
            let told = logins.take_tallies(256, now);
            for tally in &told {
                let empty_at = self.0.entry(tally.of.clone()).or_insert(now);
                *empty_at = (*empty_at).max(now) + tally.time;
            }
            for (of, empty_at) in &self.0 {
                let time = empty_at.saturating_duration_since(now);
                logins.learn(&LoginTally { of: of.clone(), time }, now);
            }
            told.len()
        }
    }

    /// How many of ten attempts are let in.
    fn let_in(logins: &Logins, now: Instant) -> usize {
        (0..10).filter(|_| logins.attempt(HERE, now, 0).is_ok()).count()
    }

    #[test]
    fn servers_together_let_in_as_many_as_one_once_they_know() {
        let begin = Instant::now();
        let (nodes, mut told) = ([(); 3].map(|()| logins(begin)), Told::default());
        let after = |seconds| begin + Duration::from_secs(seconds);
        let first: usize = nodes.iter().map(|node| let_in(node, begin)).sum();
        assert_eq!(first, 18, "before they know of each other each lets in a burst");
        for _ in 0..2 {
            nodes.iter().for_each(|node| assert!(told.exchange(node, begin) <= 3));
        }
        let now_and = |seconds| nodes.iter().map(|node| let_in(node, after(seconds))).sum::<usize>();
        assert_eq!(now_and(119), 0, "what was on top is taken off what comes next");
        assert_eq!(let_in(&nodes[0], after(130)), 1);
        told.exchange(&nodes[0], after(130));
        told.exchange(&nodes[1], after(130));
        assert_eq!(let_in(&nodes[1], after(130)), 0);
        assert_eq!(let_in(&nodes[1], after(140)), 1);
    }

    #[test]
    fn users_are_told_by_name_and_each_login_once() {
        let begin = Instant::now();
        let ([one, other], mut told) = ([(); 2].map(|()| logins(begin)), Told::default());
        let log_in = |node: &Logins, name: &[u8]| node.log_in(name, begin, 0).is_ok();
        assert!(log_in(&one, b"ann") && log_in(&one, b"ann") && log_in(&one, &[b'x'; NAME + 1]));
        assert_eq!((told.exchange(&one, begin), told.exchange(&one, begin)), (1, 0));
        told.exchange(&other, begin);
        assert!(log_in(&other, b"ann") && !log_in(&other, b"ann") && log_in(&other, b"bob"));
    }

    #[test]
    fn what_could_not_be_told_in_time_is_told_no_more() {
        let begin = Instant::now();
        let node = logins(begin);
        assert_eq!(let_in(&node, begin), 6);
        let late = node.take_tallies(256, begin + Duration::from_secs(45));
        assert_eq!(late, [LoginTally { of: LoginsOf::Address(HERE), time: Duration::from_secs(15) }]);
        assert_eq!(let_in(&node, begin + Duration::from_secs(60)), 6);
        assert_eq!(node.take_tallies(256, begin + Duration::from_secs(200)), []);
    }

    #[test]
    fn a_flood_fills_no_memory_and_what_is_closest_to_a_limit_is_told_first() {
        let begin = Instant::now();
        let node = logins(begin);
        assert_eq!(let_in(&node, begin), 6);
        for number in 0..100_000_u32 {
            // Each from another network.
            let _ = node.attempt(IpAddr::from((number << 8).to_be_bytes()), begin, 0);
        }
        assert!(node.outbox.lock().len() <= MOST_WAITING);
        let told = node.take_tallies(2, begin);
        assert!(told.iter().any(|tally| tally.of == LoginsOf::Server), "{told:?}");
        assert!(told.iter().any(|tally| tally.of == LoginsOf::Address(HERE)), "{told:?}");
    }

    #[test]
    fn a_server_alone_remembers_nothing_for_others() {
        let begin = Instant::now();
        let node = logins(begin);
        node.is_shared.store(false, Relaxed);
        assert_eq!((let_in(&node, begin), node.take_tallies(256, begin)), (6, Vec::new()));
    }
}
