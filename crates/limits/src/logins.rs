//! Limits on the rate of logins: on the server, from an address, from a network, as a user.
//!
//! Each is a leaky bucket: a burst of its number, and then the rate. The server, an address and a network count every
//! attempt before the password check, since its cost is the same. A user counts logins with the right password only, so
//! that no client can lock another out.
//!
//! A rate may follow a schedule: it is looked up at each attempt, and earlier attempts stay counted.
//!
//! The invariant: memory is bounded ([`MOST`] entries of each kind), and where there is no rate there is no lock.

mod sharing;

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use thiserror::Error;

use self::sharing::Outbox;
pub use self::sharing::{LoginTally, LoginsOf};
use super::{LimitKey, NetworkBits, Reached, Scheduled};

/// Buckets of each kind at most; the emptiest go first.
const MOST: usize = 32 * 1024;

/// The words for periods, and how long they are in seconds.
const PERIODS: [(&str, u64); 4] = [("second", 1), ("minute", 60), ("hour", 3600), ("day", 86_400)];

/// A rate such as `60/minute`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    count: NonZeroU32,
    period: Duration,
}

/// A text that is no [`Rate`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not a rate; write a number for each second, minute, hour or day, such as \"60/minute\"")]
pub struct RateError(String);

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let wrong = || RateError(text.to_owned());
        let (count, word) = text.split_once('/').ok_or_else(wrong)?;
        let (_, seconds) = PERIODS.into_iter().find(|(name, _)| *name == word.trim()).ok_or_else(wrong)?;
        let count = count.trim().parse().map_err(|_| wrong())?;
        Ok(Self { count, period: Duration::from_secs(seconds) })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = PERIODS.iter().find(|(_, seconds)| *seconds == self.period.as_secs());
        write!(f, "{}/{}", self.count, word.map_or("", |(word, _)| word))
    }
}

impl Rate {
    /// One login's share of the period.
    fn interval(self) -> u64 {
        self.full() / u64::from(self.count.get())
    }

    /// A bucketful.
    fn full(self) -> u64 {
        nanos(self.period)
    }
}

/// A rate that is not to be exceeded, or none; it may depend on the time: `600/minute; mon-fri 08:00-18:00 100/minute`.
pub type RateLimit = Scheduled<Rate>;

/// The rates of logins of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoginRates {
    /// Of the whole server.
    pub server: RateLimit,
    /// From each address.
    pub address: RateLimit,
    /// From each network.
    pub network: RateLimit,
    /// As each user.
    pub user: RateLimit,
}

impl LoginRates {
    fn is_none(&self) -> bool {
        [&self.server, &self.address, &self.network, &self.user].into_iter().all(RateLimit::is_none)
    }
}

/// There were too many logins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooMany {
    key: LimitKey,
    rate: Rate,
    of: Option<String>,
    /// When there will be room for one.
    pub wait: Duration,
}

impl TooMany {
    /// The reply for the client: it names the limit, without a number or a name.
    pub fn for_the_client(&self) -> &'static str {
        match self.key {
            LimitKey::LoginsPerAddress => "Too many logins from your address; try again later.",
            LimitKey::LoginsPerNetwork => "Too many logins from your network; try again later.",
            LimitKey::UserLogins => "Too many logins of this user; try again later.",
            _ => "Too many logins on this server; try again later.",
        }
    }

    /// For the log.
    pub fn reached(&self) -> Reached {
        let reached = Reached::new(self.key, self.rate.to_string());
        Reached { of: self.of.clone(), ..reached }
    }
}

/// The buckets of a server.
#[derive(Debug)]
pub struct Logins {
    base: Instant,
    bits: NetworkBits,
    /// Whether there is any rate.
    any: AtomicBool,
    rates: RwLock<LoginRates>,
    buckets: Buckets,
    /// Whether other servers count as well, and what they are to be told.
    is_shared: AtomicBool,
    outbox: Outbox,
    /// Keyed, because clients choose what is hashed.
    hasher: RandomState,
}

/// Each by a hash of its key; the value is the time at which it will be empty.
#[derive(Debug, Default)]
struct Buckets {
    server: Mutex<HashMap<u64, u64>>,
    addresses: Mutex<HashMap<u64, u64>>,
    networks: Mutex<HashMap<u64, u64>>,
    users: Mutex<HashMap<u64, u64>>,
}

impl Logins {
    /// Creates full allowances at these rates.
    pub fn new(rates: LoginRates, bits: NetworkBits, now: Instant) -> Self {
        let logins = Self {
            base: now,
            bits,
            any: AtomicBool::new(false),
            rates: RwLock::default(),
            buckets: Buckets::default(),
            is_shared: AtomicBool::new(false),
            outbox: Outbox::default(),
            hasher: RandomState::new(),
        };
        logins.configure(rates);
        logins
    }

    /// Changes the rates; the counts stay.
    pub fn configure(&self, rates: LoginRates) {
        self.any.store(!rates.is_none(), Relaxed);
        *self.rates.write().unwrap_or_else(PoisonError::into_inner) = rates;
    }

    /// Counts an attempt to log in from an address. The narrowest bucket comes first: an attempt that it refuses does
    /// not count in the wider ones. `wall` is in seconds since 1970.
    pub fn attempt(&self, from: IpAddr, now: Instant, wall: i64) -> Result<(), TooMany> {
        let Some(rates) = self.rates() else { return Ok(()) };
        let from = from.to_canonical();
        let network = self.bits.network(from);
        let Buckets { server, addresses, networks, .. } = &self.buckets;
        let address = || LoginsOf::Address(from);
        self.take(addresses, rates.address.at(wall), &from, address, now).map_err(|(rate, wait)| {
            too_many(LimitKey::LoginsPerAddress, rate, Some(from.to_string()), wait)
        })?;
        let wider = || LoginsOf::Network(network);
        self.take(networks, rates.network.at(wall), &network, wider, now).map_err(|(rate, wait)| {
            too_many(LimitKey::LoginsPerNetwork, rate, Some(network.to_string()), wait)
        })?;
        self.take(server, rates.server.at(wall), &(), || LoginsOf::Server, now)
            .map_err(|(rate, wait)| too_many(LimitKey::Logins, rate, None, wait))
    }

    /// A user has shown the right password.
    pub fn log_in(&self, user: &[u8], now: Instant, wall: i64) -> Result<(), TooMany> {
        let Some(rates) = self.rates() else { return Ok(()) };
        let of = || LoginsOf::User(user.into());
        self.take(&self.buckets.users, rates.user.at(wall), &user, of, now).map_err(|(rate, wait)| {
            let of = format!("user {}", String::from_utf8_lossy(user));
            too_many(LimitKey::UserLogins, rate, Some(of), wait)
        })
    }

    fn rates(&self) -> Option<LoginRates> {
        let is_any = self.any.load(Relaxed);
        is_any.then(|| self.rates.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Takes one login's room of a bucket, or answers when there will be some.
    fn take(
        &self,
        buckets: &Mutex<HashMap<u64, u64>>,
        rate: Option<Rate>,
        whose: &impl Hash,
        of: impl FnOnce() -> LoginsOf,
        now: Instant,
    ) -> Result<(), (Rate, Duration)> {
        let Some(rate) = rate else { return Ok(()) };
        let now = self.nanos(now);
        let mut buckets = buckets.lock().unwrap_or_else(PoisonError::into_inner);
        make_room(&mut buckets, now);
        let empty_at = buckets.entry(self.key_of(whose)).or_insert(0);
        let after = (*empty_at).max(now).saturating_add(rate.interval());
        match after.saturating_sub(now).checked_sub(rate.full()) {
            Some(wait) if wait > 0 => Err((rate, Duration::from_nanos(wait))),
            _ => {
                *empty_at = after;
                if self.is_shared.load(Relaxed) {
                    self.outbox.add(of(), rate, now);
                }
                Ok(())
            }
        }
    }

    fn key_of(&self, whose: &impl Hash) -> u64 {
        self.hasher.hash_one(whose)
    }

    /// A moment, since these buckets were made.
    fn nanos(&self, now: Instant) -> u64 {
        nanos(now.saturating_duration_since(self.base))
    }
}

fn too_many(key: LimitKey, rate: Rate, of: Option<String>, wait: Duration) -> TooMany {
    TooMany { key, rate, of, wait }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Removes empty buckets, and if that is not enough, the emptiest half.
fn make_room(buckets: &mut HashMap<u64, u64>, now: u64) {
    if buckets.len() < MOST {
        return;
    }
    buckets.retain(|_, empty_at| *empty_at > now);
    if buckets.len() >= MOST {
        let mut times: Vec<u64> = buckets.values().copied().collect();
        let (_, middle, _) = times.select_nth_unstable(MOST / 2);
        let middle = *middle;
        buckets.retain(|_, empty_at| *empty_at > middle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> RateLimit {
        text.parse().unwrap()
    }

    fn logins(rates: LoginRates, now: Instant) -> Logins {
        Logins::new(rates, NetworkBits::default(), now)
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_rate_is_read_as_it_is_written() {
        for text in ["1/second", "60/minute", "1000/hour", "5/day"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        for text in ["", "60", "0/minute", "-1/minute", "60/fortnight", "x/day", "99999999999/day"] {
            assert!(text.parse::<Rate>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn as_many_as_the_rate_come_at_once_and_then_one_whenever_there_is_room() {
        let begin = Instant::now();
        let rates = LoginRates { address: rate("3/minute"), ..LoginRates::default() };
        let (logins, here) = (logins(rates, begin), address("192.0.2.1"));
        let at = |seconds: u64| logins.attempt(here, begin + Duration::from_secs(seconds), 0);
        assert_eq!((0..3).filter(|_| at(0).is_ok()).count(), 3);
        let refused = at(1).unwrap_err();
        assert_eq!(refused.wait, Duration::from_secs(19));
        assert!(logins.attempt(address("192.0.2.2"), begin, 0).is_ok(), "other addresses are not limited");
        assert!(at(19).is_err() && at(20).is_ok() && at(20).is_err());
        assert_eq!((0..10).filter(|_| at(3600).is_ok()).count(), 3);
    }

    #[test]
    fn attempts_refused_for_the_address_do_not_count_for_the_network_and_the_server() {
        let begin = Instant::now();
        let rates = LoginRates {
            address: rate("1/hour"),
            network: rate("2/hour"),
            server: rate("3/hour"),
            ..LoginRates::default()
        };
        let logins = logins(rates, begin);
        let refused = |from: &str| logins.attempt(address(from), begin, 0).err().map(|refused| refused.key);
        assert_eq!(refused("192.0.2.1"), None);
        for _ in 0..100 {
            assert_eq!(refused("::ffff:192.0.2.1"), Some(LimitKey::LoginsPerAddress));
        }
        assert_eq!(refused("192.0.2.2"), None);
        assert_eq!(refused("192.0.2.3"), Some(LimitKey::LoginsPerNetwork));
        assert_eq!(refused("192.0.3.1"), None);
        assert_eq!(refused("192.0.4.1"), Some(LimitKey::Logins));
        logins.configure(LoginRates::default());
        assert_eq!(refused("192.0.4.1"), None);
    }

    #[test]
    fn a_user_is_counted_wherever_they_come_from() {
        let begin = Instant::now();
        let logins = logins(LoginRates { user: rate("1/hour"), ..LoginRates::default() }, begin);
        assert!(logins.log_in(b"alice", begin, 0).is_ok() && logins.log_in(b"bob", begin, 0).is_ok());
        let refused = logins.log_in(b"alice", begin, 0).unwrap_err();
        assert_eq!(refused.reached().of.as_deref(), Some("user alice"));
        assert!(!refused.for_the_client().contains("alice"));
    }

    #[test]
    fn a_flood_of_addresses_is_forgotten_before_it_fills_the_memory() {
        let begin = Instant::now();
        let logins = logins(LoginRates { address: rate("2/day"), ..LoginRates::default() }, begin);
        let often = address("192.0.2.1");
        assert!(logins.attempt(often, begin, 0).is_ok() && logins.attempt(often, begin, 0).is_ok());
        for number in 0..100_000u32 {
            let _ = logins.attempt(IpAddr::from(number.to_be_bytes()), begin, 0);
        }
        assert!(logins.buckets.addresses.lock().unwrap().len() <= MOST);
        assert!(logins.attempt(often, begin, 0).is_err(), "who came more often is remembered");
    }

    #[test]
    fn a_rate_follows_the_clock() {
        let begin = Instant::now();
        let text = "3/minute; mon,tue,wed,thu,fri 08:00-18:00 UTC 1/minute; sat none";
        assert_eq!(
            rate(text).to_string(),
            "3/minute; mon,tue,wed,thu,fri 08:00-18:00 UTC 1/minute; sat none"
        );
        let logins = logins(LoginRates { user: rate(text), ..LoginRates::default() }, begin);
        // 2026-11-20 is a Friday.
        let most = |day: &str, user: &[u8]| {
            let wall = day.parse::<jiff::Timestamp>().unwrap().as_second();
            (0..10).filter(|_| logins.log_in(user, begin, wall).is_ok()).count()
        };
        assert_eq!(most("2026-11-20T07:59:59Z", b"early"), 3);
        assert_eq!(most("2026-11-20T08:00:00Z", b"late"), 1);
        assert_eq!(most("2026-11-20T08:00:00Z", b"early"), 0, "what was counted stays counted");
        assert_eq!(most("2026-11-21T08:00:00Z", b"early"), 10);
        for text in ["", "60", "1/minute; 5", "mon 1/minute", "1/minute; mon 5", "none; 8-9 1/day"] {
            assert!(text.parse::<RateLimit>().is_err(), "{text:?}");
        }
    }
}
