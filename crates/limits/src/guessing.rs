//! Slows down the guessing of passwords that is spread over many addresses, which bans of single addresses do not see.
//!
//! A wrong password counts for the account, from whatever address it came, and for the wider network of the client. Where a
//! count passes its limit, further logins are refused without looking at the password, until the count has faded: on
//! average one guess in a while gets through. A network from which the user has logged in before is familiar: its logins
//! are neither counted nor refused, so guessing cannot lock a user out.
//!
//! The invariant: memory is bounded ([`MOST`] entries of each kind).

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::fading::{Count, MOST, NAME, make_room};
use crate::network::Network;

/// Wrong passwords of an account, in those after which a user is banned at one address.
pub(crate) const ACCOUNT_FACTOR: f64 = 3.0;

/// The same for a network of many clients.
pub(crate) const NETWORK_FACTOR: f64 = 20.0;

/// How long a network stays familiar after a login.
const FAMILIAR: Duration = Duration::from_secs(30 * 24 * 3600);

/// A login makes it familiar for longer when that is at least a day: the networks are kept in a file.
const RENEWED: Duration = Duration::from_secs(29 * 24 * 3600);

/// Why a login is refused without looking at the password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginBlock {
    /// The user is banned at this address.
    Banned,
    /// Too many wrong passwords for this account came from elsewhere.
    AccountGuessed,
    /// Too many wrong passwords came from the client's network.
    NetworkGuessed,
}

impl LoginBlock {
    /// For the log.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Banned => "banned at this address for a while",
            Self::AccountGuessed => {
                "too many wrong passwords for this account, and no login from this network before"
            }
            Self::NetworkGuessed => {
                "too many wrong passwords from this network, and no login of this user from there before"
            }
        }
    }
}

/// A network from which a user has logged in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FamiliarNetwork {
    /// The network.
    pub network: Network,
    /// The user, the first 64 bytes of the name.
    pub user: Vec<u8>,
    /// For how long it stays familiar.
    pub left: Duration,
}

/// The counts, and the familiar networks. Users are known by a keyed hash of their names.
#[derive(Debug, Default)]
pub(crate) struct Guessing {
    accounts: HashMap<u64, Count>,
    networks: HashMap<Network, Count>,
    familiar: HashMap<(Network, u64), Familiar>,
}

#[derive(Debug)]
struct Familiar {
    until: Instant,
    name: Box<[u8]>,
}

/// The network of a client's provider or site: 24 bits of an IPv4 address, 48 of an IPv6 address.
pub(crate) fn wider(address: IpAddr) -> Network {
    match address.to_canonical() {
        address @ IpAddr::V4(_) => Network::new(address, 24),
        address @ IpAddr::V6(_) => Network::new(address, 48),
    }
}

impl Guessing {
    /// Returns why a login is refused, where a user is banned at an address after this many failures.
    pub(crate) fn block(&self, address: IpAddr, user: u64, after: f64, now: Instant) -> Option<LoginBlock> {
        let network = wider(address);
        let passes =
            |count: Option<&Count>, limit: f64| count.is_some_and(|count| count.at(now) > limit - 0.5);
        let block = if after == 0.0 {
            None
        } else if passes(self.accounts.get(&user), after * ACCOUNT_FACTOR) {
            Some(LoginBlock::AccountGuessed)
        } else if passes(self.networks.get(&network), after * NETWORK_FACTOR) {
            Some(LoginBlock::NetworkGuessed)
        } else {
            None
        };
        block.filter(|_| !self.is_familiar(network, user, now))
    }

    fn is_familiar(&self, network: Network, user: u64, now: Instant) -> bool {
        self.familiar.get(&(network, user)).is_some_and(|familiar| now < familiar.until)
    }

    /// Counts a wrong password. Returns whether it counts as a guess: not where the network is familiar.
    pub(crate) fn failed(&mut self, address: IpAddr, user: u64, now: Instant) -> bool {
        let network = wider(address);
        let is_guess = !self.is_familiar(network, user, now);
        if is_guess {
            self.count_account(user, 1.0, now);
            self.count_network(network, 1.0, now);
        }
        is_guess
    }

    /// Counts guesses of the password of an account.
    pub(crate) fn count_account(&mut self, user: u64, guesses: f64, now: Instant) {
        make_room(&mut self.accounts, now);
        self.accounts.entry(user).or_insert_with(|| Count::new(now)).add(guesses, now);
    }

    /// Counts guesses from a wider network.
    pub(crate) fn count_network(&mut self, network: Network, guesses: f64, now: Instant) {
        make_room(&mut self.networks, now);
        self.networks.entry(network).or_insert_with(|| Count::new(now)).add(guesses, now);
    }

    /// Notes a login. Returns whether the familiar networks have changed.
    pub(crate) fn succeeded(&mut self, address: IpAddr, user: u64, name: &[u8], now: Instant) -> bool {
        let network = wider(address);
        if self.familiar.get(&(network, user)).is_some_and(|familiar| now + RENEWED < familiar.until) {
            return false;
        }
        self.insert(network, user, name, now + FAMILIAR, now);
        true
    }

    /// Notes a network that is familiar until then.
    pub(crate) fn insert(&mut self, network: Network, user: u64, name: &[u8], until: Instant, now: Instant) {
        if self.familiar.len() >= MOST {
            self.familiar.retain(|_, familiar| now < familiar.until);
        }
        if self.familiar.len() >= MOST {
            // The half that ends first goes.
            let mut ends: Vec<Instant> = self.familiar.values().map(|familiar| familiar.until).collect();
            let (_, middle, _) = ends.select_nth_unstable(MOST / 2);
            let middle = *middle;
            self.familiar.retain(|_, familiar| familiar.until > middle);
        }
        let name = name[..name.len().min(NAME)].into();
        self.familiar.insert((network, user), Familiar { until, name });
    }

    /// Returns the familiar network of the user of this hash.
    pub(crate) fn familiar_at(&self, place: (Network, u64), now: Instant) -> Option<FamiliarNetwork> {
        let Familiar { until, name } = self.familiar.get(&place)?;
        let left = until.saturating_duration_since(now);
        (!left.is_zero()).then(|| FamiliarNetwork { network: place.0, user: name.to_vec(), left })
    }

    /// The familiar networks, by the hashes of their users.
    pub(crate) fn familiar_places(&self) -> impl Iterator<Item = (Network, u64)> {
        self.familiar.keys().copied()
    }

    /// The familiar networks.
    pub(crate) fn familiar(&self, now: Instant) -> Vec<FamiliarNetwork> {
        let networks = self.familiar.iter().filter(|(_, familiar)| now < familiar.until);
        let report = |((network, _), familiar): (&(Network, u64), &Familiar)| FamiliarNetwork {
            network: *network,
            user: familiar.name.to_vec(),
            left: familiar.until - now,
        };
        networks.map(report).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::{BanRules, Bans, LoginBlock};
    use std::net::IpAddr;
    use std::time::{Duration, Instant};

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// An address of a network of its own for each number.
    fn elsewhere(number: u32) -> IpAddr {
        IpAddr::from(((11 << 24) + (number << 8) + 1).to_be_bytes())
    }

    fn bans() -> Bans {
        Bans::new(BanRules { after: 5, ..BanRules::default() })
    }

    #[test]
    fn guesses_from_a_thousand_networks_are_counted_together() {
        let (bans, start) = (bans(), Instant::now());
        let mut now = start;
        let mut looked_at = 0;
        for number in 0..10_000 {
            now += Duration::from_millis(360);
            if bans.login_block(elsewhere(number % 1000), b"alice", now).is_none() {
                bans.failed(elsewhere(number % 1000), b"alice", now);
                looked_at += 1;
            }
        }
        // An hour: the first fifteen, and what fades.
        assert!((15..100).contains(&looked_at), "{looked_at}");
        assert_eq!(bans.login_block(address("203.0.113.1"), b"alice", now), Some(LoginBlock::AccountGuessed));
        assert_eq!(bans.login_block(elsewhere(1), b"bob", now), None);
    }

    #[test]
    fn a_user_who_has_logged_in_from_a_network_is_not_locked_out_there() {
        let (bans, now) = (bans(), Instant::now());
        bans.succeeded(address("198.51.100.7"), b"alice", now);
        (0..100).for_each(|number| _ = bans.failed(elsewhere(number), b"alice", now));
        assert_eq!(bans.login_block(address("198.51.100.9"), b"alice", now), None);
        assert!(bans.login_block(address("203.0.113.9"), b"alice", now).is_some());
        let later = now + Duration::from_secs(31 * 24 * 3600);
        (0..100).for_each(|number| _ = bans.failed(elsewhere(number), b"alice", later));
        assert!(bans.login_block(address("198.51.100.9"), b"alice", later).is_some(), "too long ago");
    }

    #[test]
    fn a_network_that_tries_many_names_is_slowed_down_and_spares_its_users() {
        let (bans, now) = (bans(), Instant::now());
        bans.succeeded(address("192.0.2.200"), b"alice", now);
        for number in 0..=100u8 {
            bans.failed(IpAddr::from([192, 0, 2, number]), &[number], now);
        }
        assert_eq!(bans.login_block(address("192.0.2.201"), b"bob", now), Some(LoginBlock::NetworkGuessed));
        assert_eq!(bans.login_block(address("192.0.2.201"), b"alice", now), None);
        assert_eq!(bans.login_block(address("192.0.3.1"), b"bob", now), None);
    }

    #[test]
    fn familiar_networks_hold_after_a_restart() {
        let (before, after, now) = (bans(), bans(), Instant::now());
        before.succeeded(address("198.51.100.7"), b"ali\xffce", now);
        let edition = before.edition();
        before.succeeded(address("198.51.100.8"), b"ali\xffce", now);
        assert_eq!(before.edition(), edition, "it is nothing new");
        before.familiar(now).iter().for_each(|network| after.take_over_familiar(network, now));
        (0..100).for_each(|number| _ = after.failed(elsewhere(number), b"ali\xffce", now));
        assert_eq!(after.login_block(address("198.51.100.7"), b"ali\xffce", now), None);
        assert!(after.login_block(address("203.0.113.9"), b"ali\xffce", now).is_some());
    }

    #[test]
    fn a_flood_of_names_and_networks_is_bounded() {
        let (bans, start) = (bans(), Instant::now());
        for number in 0..100_000u32 {
            let now = start + Duration::from_millis(number.into());
            bans.failed(elsewhere(number), &number.to_be_bytes(), now);
            bans.succeeded(elsewhere(number), &number.to_be_bytes(), now);
        }
        assert!(bans.familiar(start).len() <= super::MOST);
    }
}
