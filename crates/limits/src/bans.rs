//! Rejects clients before the login: networks that the lists name, and clients that failed too often.
//!
//! Each failed login counts against the pair of address and user, and against the address. Many users may share an
//! address (NAT): the pair is banned first, which harms no other user, and an address with successful logins by others
//! is allowed four times as many failures. Counts fade by half in [`FADE`]. What is spread over many addresses is
//! counted by `guessing`. What other servers of a cluster are to know of it is in `sharing`.
//!
//! The invariant: memory is bounded ([`MOST`] entries of each kind), and a client that nothing is known of
//! costs no lock.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use crate::fading::{Count, FADE, MOST, NAME, make_room};
use crate::guessing::{FamiliarNetwork, Guessing, LoginBlock};
use crate::network::Network;
use crate::{LimitKey, Reached};

mod sharing;

use sharing::Outbox;
pub use sharing::{FailureTally, TallyOf};

/// Failures of an address, in those of a pair.
const ADDRESS_FACTOR: f64 = 5.0;

/// The same for an address with a recent successful login.
const SHARED_FACTOR: f64 = 20.0;

/// The rules that reject clients before they log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BanRules {
    /// Where not empty, only these may connect.
    pub allow: Vec<Network>,
    /// These may not connect, even if `allow` has them.
    pub deny: Vec<Network>,
    /// Failed logins of a user from an address until the two are banned; 0 for never.
    pub after: u32,
    /// For how long.
    pub time: Duration,
}

impl Default for BanRules {
    fn default() -> Self {
        Self { allow: Vec::new(), deny: Vec::new(), after: 20, time: Duration::from_secs(15 * 60) }
    }
}

/// Why a client is turned away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turned {
    /// The list of allowed networks exists, and the client is not in it.
    NotAllowed(Box<[Network]>),
    /// The list of denied networks, by the entry that matches the client.
    Denied(Network),
    /// By a ban of a network.
    Banned(Network, Cause),
}

/// Why a network is banned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// An administrator wants it.
    Wanted,
    /// Too many logins have failed: this many are allowed.
    Failures(u32),
}

impl Turned {
    /// The reply for the client.
    pub fn for_the_client(&self) -> &'static str {
        match self {
            Self::NotAllowed(_) | Self::Denied(_) => "Connections from your address are not accepted.",
            Self::Banned(..) => "Your address is banned for a while; try again later.",
        }
    }

    /// For the log.
    pub fn reached(&self) -> Reached {
        match self {
            Self::NotAllowed(networks) => {
                let networks: Vec<_> = networks.iter().map(ToString::to_string).collect();
                Reached::new(LimitKey::Allow, networks.join(", "))
            }
            Self::Denied(network) => Reached::new(LimitKey::Deny, network.to_string()),
            Self::Banned(network, Cause::Wanted) => Reached::new(LimitKey::Ban, network.to_string()),
            Self::Banned(network, Cause::Failures(after)) => {
                Reached::new(LimitKey::BanAfter, u64::from(*after)).of(network)
            }
        }
    }
}

/// The lists and the counts, shared by all workers.
#[derive(Debug)]
pub struct Bans {
    rules: RwLock<BanRules>,
    /// Networks in the lists, and those that are banned: the lookup is skipped where there are none.
    listed: AtomicUsize,
    banned: AtomicUsize,
    /// Counts changes of bans.
    edition: AtomicU64,
    /// Locked for one look or one change.
    book: Mutex<Book>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Book {
    addresses: HashMap<Network, Count>,
    /// By a keyed hash of the name: names are as long as clients like.
    pairs: HashMap<(Network, u64), Count>,
    banned: HashMap<Network, Ban>,
    guessing: Guessing,
    /// What others are to be told; `None` where there are no others.
    outbox: Option<Box<Outbox>>,
}

/// From how many failures on there is a ban, and for how long.
#[derive(Debug, Clone, Copy)]
struct Threshold {
    /// Of a user at an address; 0 for never.
    after: f64,
    time: Duration,
}

impl Book {
    /// Counts failures of a user at a client's network. Returns how many there are now, and whether they led to a ban.
    fn count_pair(
        &mut self,
        pair: (Network, u64),
        user: &[u8],
        failures: f64,
        threshold: Threshold,
        now: Instant,
    ) -> (f64, bool) {
        make_room(&mut self.pairs, now);
        let count = self.pairs.entry(pair).or_insert_with(|| Count::new(now));
        let failures = count.add(failures, now);
        let is_banned = threshold.after > 0.0 && failures > threshold.after - 0.5;
        if is_banned {
            count.banned_until = Some(now + threshold.time);
            count.name = Some(shortened(user).into());
            count.failures = 0.0;
        }
        (failures, is_banned)
    }

    /// A user has logged in: its failures at this network are forgotten, and the network is one that honest users have, too.
    /// Returns whether there were failures of either.
    fn forgive(&mut self, pair: (Network, u64), now: Instant) -> bool {
        let had_failed = self.pairs.remove(&pair).is_some();
        // Only addresses with failures are stored.
        let Some(count) = self.addresses.get_mut(&pair.0) else { return had_failed };
        count.succeeded = Some(now);
        had_failed || count.at(now) > 0.5
    }

    /// Counts failures of a client's network. Returns whether they led to a ban.
    fn count_address(&mut self, network: Network, failures: f64, threshold: Threshold, now: Instant) -> bool {
        make_room(&mut self.addresses, now);
        let count = self.addresses.entry(network).or_insert_with(|| Count::new(now));
        let shared = count.succeeded.is_some_and(|then| now.saturating_duration_since(then) < FADE);
        let factor = if shared { SHARED_FACTOR } else { ADDRESS_FACTOR };
        let is_banned = count.add(failures, now) > threshold.after * factor - 0.5 && threshold.after > 0.0;
        if is_banned {
            count.failures = 0.0;
            if self.banned.len() < MOST {
                let cause = Cause::Failures(threshold.after as u32);
                self.banned.insert(network, Ban { until: Some(now + threshold.time), cause });
            }
        }
        is_banned
    }
}

/// Returns as much of a user's name as is kept: clients choose its length.
fn shortened(user: &[u8]) -> &[u8] {
    &user[..user.len().min(NAME)]
}

/// An active ban, for reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BanReport {
    /// Where it holds.
    pub network: Network,
    /// The banned user, as the client named it, the first 64 bytes; `None` where the whole address is banned.
    pub user: Option<Vec<u8>>,
    /// The remaining time; `None` until an operator lifts it.
    pub left: Option<Duration>,
}

/// A network's ban.
#[derive(Debug, Clone, Copy)]
struct Ban {
    /// `None` until an operator lifts it.
    until: Option<Instant>,
    cause: Cause,
}

impl Ban {
    fn holds(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

/// The consequence of a failed login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed {
    /// Failures of this user from this address, the last one included.
    pub count: u32,
    /// The user is now banned at this address.
    pub user_banned: bool,
    /// The address is now banned altogether.
    pub address_banned: bool,
}

impl Failed {
    /// Returns the bans that it has led to: of this user at the address, and as `None` of the address altogether.
    pub fn bans(self, user: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
        let of_user = self.user_banned.then_some(Some(user));
        of_user.into_iter().chain(self.address_banned.then_some(None))
    }
}

impl Bans {
    /// Creates the lists and counts; nothing is banned yet.
    pub fn new(rules: BanRules) -> Self {
        let bans = Self {
            rules: RwLock::default(),
            listed: AtomicUsize::new(0),
            banned: AtomicUsize::new(0),
            edition: AtomicU64::new(0),
            book: Mutex::default(),
            hasher: RandomState::new(),
        };
        bans.configure(rules);
        bans
    }

    /// Other rules; bans stay.
    pub fn configure(&self, rules: BanRules) {
        self.listed.store(rules.allow.len() + rules.deny.len(), Relaxed);
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = rules;
    }

    /// Checks whether a client may connect; the error says why not.
    pub fn admit(&self, address: IpAddr, now: Instant) -> Result<(), Turned> {
        if self.listed.load(Relaxed) > 0 {
            let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
            let naming =
                |networks: &[Network]| networks.iter().find(|network| network.contains(address)).copied();
            if let Some(network) = naming(&rules.deny) {
                return Err(Turned::Denied(network));
            }
            if !rules.allow.is_empty() && naming(&rules.allow).is_none() {
                return Err(Turned::NotAllowed(rules.allow.as_slice().into()));
            }
        }
        if self.banned.load(Relaxed) == 0 {
            return Ok(());
        }
        let mut book = self.book();
        let banned = |(network, ban): &(&Network, &Ban)| network.contains(address) && ban.holds(now);
        if let Some((network, ban)) = book.banned.iter().find(banned) {
            return Err(Turned::Banned(*network, ban.cause));
        }
        if book.banned.values().any(|ban| !ban.holds(now)) {
            book.banned.retain(|_, ban| ban.holds(now));
            self.banned.store(book.banned.len(), Relaxed);
        }
        Ok(())
    }

    /// Returns why the password of this user is not looked at for a client at this address, where that is so.
    pub fn login_block(&self, address: IpAddr, user: &[u8], now: Instant) -> Option<LoginBlock> {
        let (pair, after) = (self.pair(address, user), self.threshold().after);
        let book = self.book();
        let until = book.pairs.get(&pair).and_then(|count| count.banned_until);
        match until.is_some_and(|until| now < until) {
            true => Some(LoginBlock::Banned),
            false => book.guessing.block(address, pair.1, after, now),
        }
    }

    /// Returns whether there is a [`LoginBlock`].
    pub fn is_banned(&self, address: IpAddr, user: &[u8], now: Instant) -> bool {
        self.login_block(address, user, now).is_some()
    }

    fn threshold(&self) -> Threshold {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        Threshold { after: f64::from(rules.after), time: rules.time }
    }

    /// Counts a failed login.
    pub fn failed(&self, address: IpAddr, user: &[u8], now: Instant) -> Failed {
        let (pair, threshold) = (self.pair(address, user), self.threshold());
        let mut book = self.book();
        let is_guess = book.guessing.failed(address, pair.1, now);
        let (failures, user_banned) = book.count_pair(pair, user, 1.0, threshold, now);
        let address_banned = book.count_address(pair.0, 1.0, threshold, now);
        if let Some(outbox) = &mut book.outbox {
            outbox.failed(address, user, is_guess, now);
        }
        if address_banned {
            self.banned.store(book.banned.len(), Relaxed);
        }
        if user_banned || address_banned {
            self.edition.fetch_add(1, Relaxed);
        }
        Failed { count: failures.round() as u32, user_banned, address_banned }
    }

    /// Notes a successful login: the address counts as shared with an honest user, the user's failures are forgotten,
    /// and the network is familiar.
    pub fn succeeded(&self, address: IpAddr, user: &[u8], now: Instant) {
        let pair = self.pair(address, user);
        let mut book = self.book();
        let had_failed = book.forgive(pair, now);
        let is_new = book.guessing.succeeded(address, pair.1, user, now);
        if let Some(outbox) = &mut book.outbox {
            outbox.succeeded(address, user, had_failed, is_new.then_some(pair.1), now);
        }
        if is_new {
            self.edition.fetch_add(1, Relaxed);
        }
    }

    /// The networks from which users have logged in.
    pub fn familiar(&self, now: Instant) -> Vec<FamiliarNetwork> {
        self.book().guessing.familiar(now)
    }

    /// Knows a network that another server knew.
    pub fn take_over_familiar(&self, familiar: &FamiliarNetwork, now: Instant) {
        let FamiliarNetwork { network, user, left } = familiar;
        let hash = self.hash_of(user);
        self.book().guessing.insert(*network, hash, user, now + *left, now);
    }

    /// Bans a network; without a time until it is lifted. Answers whether there was room for it.
    pub fn ban(&self, network: Network, until: Option<Instant>) -> bool {
        let mut book = self.book();
        let fits = book.banned.len() < MOST || book.banned.contains_key(&network);
        if fits {
            book.banned.insert(network, Ban { until, cause: Cause::Wanted });
        }
        self.banned.store(book.banned.len(), Relaxed);
        self.edition.fetch_add(1, Relaxed);
        fits
    }

    /// Returns a number that is another after each change of bans, but for those that end by themselves.
    pub fn edition(&self) -> u64 {
        self.edition.load(Relaxed)
    }

    /// Bans as another server did, whose bans these were.
    pub fn take_over(&self, ban: &BanReport, now: Instant) {
        let BanReport { network, user, left } = ban;
        let until = left.map(|left| now + left);
        let Some(user) = user else {
            self.ban(*network, until);
            return;
        };
        let pair = (*network, self.hash_of(user));
        let mut book = self.book();
        make_room(&mut book.pairs, now);
        let count = book.pairs.entry(pair).or_insert_with(|| Count::new(now));
        (count.banned_until, count.name) = (until, Some(shortened(user).into()));
        count.failures = 0.0;
        self.edition.fetch_add(1, Relaxed);
    }

    /// Lifts the bans of a network, of users there too; answers whether there was one.
    pub fn lift(&self, network: Network) -> bool {
        let mut book = self.book();
        let before = book.banned.len() + book.pairs.len();
        book.banned.remove(&network);
        book.pairs.retain(|(address, _), count| *address != network || count.banned_until.is_none());
        book.addresses.remove(&network);
        self.banned.store(book.banned.len(), Relaxed);
        self.edition.fetch_add(1, Relaxed);
        book.banned.len() + book.pairs.len() < before
    }

    /// Lifts one ban: of the network, or of this user there.
    pub fn lift_one(&self, network: Network, user: Option<&[u8]>) {
        let mut book = self.book();
        match user {
            None => {
                book.banned.remove(&network);
                book.addresses.remove(&network);
            }
            Some(user) => _ = book.pairs.remove(&(network, self.hash_of(user))),
        }
        self.banned.store(book.banned.len(), Relaxed);
        self.edition.fetch_add(1, Relaxed);
    }

    /// Banned networks and users, and for how long yet.
    pub fn list(&self, now: Instant) -> Vec<BanReport> {
        let book = self.book();
        let left = |until: Option<Instant>| until.map(|until| until.saturating_duration_since(now));
        let of_network = |(network, ban): (&Network, &Ban)| BanReport {
            network: *network,
            user: None,
            left: left(ban.until),
        };
        let of_user = |((network, _), count): (&(Network, u64), &Count)| {
            let user = Some(count.name.as_deref().unwrap_or_default().to_vec());
            Some(BanReport { network: *network, user, left: left(Some(count.banned_until?)) })
        };
        let mut list: Vec<_> = book.banned.iter().map(of_network).collect();
        list.extend(book.pairs.iter().filter_map(of_user));
        list.retain(|ban| ban.left.is_none_or(|left| !left.is_zero()));
        list
    }

    fn pair(&self, address: IpAddr, user: &[u8]) -> (Network, u64) {
        (Network::of_client(address), self.hash_of(user))
    }

    /// Returns the hash that a user is known by here: of the whole name, as others may begin alike.
    fn hash_of(&self, user: &[u8]) -> u64 {
        self.hasher.hash_one(user)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn bans(after: u32) -> Bans {
        Bans::new(BanRules { after, time: Duration::from_secs(60), ..BanRules::default() })
    }

    #[test]
    fn a_user_who_fails_too_often_is_banned_there_and_nowhere_else() {
        let (bans, start) = (bans(3), Instant::now());
        let here = address("192.0.2.1");
        assert_eq!(bans.failed(here, b"alice", start).count, 1);
        assert!(!bans.failed(here, b"alice", start).user_banned);
        assert!(bans.failed(here, b"alice", start).user_banned);
        assert!(bans.is_banned(here, b"alice", start));
        assert!(!bans.is_banned(here, b"bob", start));
        assert!(!bans.is_banned(address("192.0.2.2"), b"alice", start));
        assert_eq!(bans.admit(here, start), Ok(()));
        let network = "192.0.2.1".parse().unwrap();
        let left = Some(Duration::from_secs(60));
        assert_eq!(bans.list(start), [BanReport { network, user: Some(b"alice".to_vec()), left }]);
        assert!(!bans.is_banned(here, b"alice", start + Duration::from_secs(60)));
    }

    #[test]
    fn an_address_that_tries_many_names_is_banned_for_a_time() {
        let (bans, start) = (bans(2), Instant::now());
        let here = address("2001:db8::1");
        let banned =
            (0..10).map(|number| bans.failed(here, &[number], start)).filter(|one| one.address_banned);
        assert_eq!(banned.count(), 1);
        let turned = Turned::Banned("2001:db8::/64".parse().unwrap(), Cause::Failures(2));
        assert_eq!(bans.admit(address("2001:db8::2"), start), Err(turned), "the same 64 bits");
        assert_eq!(bans.admit(address("2001:db8:0:1::2"), start), Ok(()));
        assert_eq!(bans.admit(here, start + Duration::from_secs(60)), Ok(()));
    }

    #[test]
    fn an_address_that_others_use_well_has_more_patience() {
        let (bans, start) = (bans(2), Instant::now());
        let here = address("192.0.2.1");
        bans.failed(here, b"mallory", start);
        bans.succeeded(here, b"alice", start);
        let banned = (0..39u8).map(|number| bans.failed(here, &[number], start).address_banned);
        assert_eq!(banned.enumerate().find(|(_, banned)| *banned), Some((38, true)));
    }

    #[test]
    fn mistakes_fade_and_a_success_forgets_them() {
        let (bans, start) = (bans(3), Instant::now());
        let here = address("192.0.2.1");
        for hour in 0..100 {
            let now = start + Duration::from_secs(3600 * hour);
            assert!(!bans.failed(here, b"alice", now).user_banned, "one an hour");
        }
        for _ in 0..100 {
            bans.failed(here, b"bob", start);
            bans.failed(here, b"bob", start);
            bans.succeeded(here, b"bob", start);
        }
        assert!(!bans.is_banned(here, b"bob", start));
    }

    #[test]
    fn the_lists_decide_first_and_can_be_changed() {
        let (bans, start) = (bans(0), Instant::now());
        let network = |text: &str| text.parse::<Network>().unwrap();
        let rules = BanRules {
            allow: vec![network("10.0.0.0/8")],
            deny: vec![network("10.1.0.0/16")],
            ..BanRules::default()
        };
        bans.configure(rules);
        assert_eq!(bans.admit(address("10.2.0.1"), start), Ok(()));
        assert_eq!(bans.admit(address("10.1.0.1"), start), Err(Turned::Denied(network("10.1.0.0/16"))));
        let others = Turned::NotAllowed([network("10.0.0.0/8")].into());
        assert_eq!(bans.admit(address("192.0.2.1"), start), Err(others));
        bans.configure(BanRules::default());
        assert_eq!(bans.admit(address("192.0.2.1"), start), Ok(()));
        assert!(bans.ban(network("192.0.2.0/24"), None));
        let turned = Turned::Banned(network("192.0.2.0/24"), Cause::Wanted);
        assert_eq!(bans.admit(address("192.0.2.1"), start + FADE * 1000), Err(turned));
        assert!(bans.lift(network("192.0.2.0/24")) && !bans.lift(network("192.0.2.0/24")));
        assert_eq!(bans.admit(address("192.0.2.1"), start), Ok(()));
    }

    #[test]
    fn a_flood_of_names_and_addresses_is_forgotten_before_it_fills_the_memory() {
        let (bans, start) = (bans(3), Instant::now());
        let guesser = address("192.0.2.1");
        bans.failed(guesser, b"root", start);
        bans.failed(guesser, b"root", start);
        for number in 0..100_000u32 {
            bans.failed(IpAddr::from(number.to_be_bytes()), b"root", start);
        }
        let book = bans.book();
        assert!(book.pairs.len() <= MOST && book.addresses.len() <= MOST);
        drop(book);
        assert!(bans.failed(guesser, b"root", start).user_banned, "who failed more often is remembered");
    }
}
