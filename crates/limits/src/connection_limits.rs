//! Limits on sessions that are not logged in yet: of the whole server, of an address, of a network.
//!
//! They are counted when a client connects and before a byte is read, so that one address, or a network that has
//! many, cannot take every place.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{LimitKey, Reached, Timed};
use crate::network::Network;

/// How many bits of an address are its network's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkBits {
    /// Of an IPv4 address.
    pub ipv4: u8,
    /// Of an IPv6 address.
    pub ipv6: u8,
}

impl NetworkBits {
    /// Each address is a network of its own.
    pub const ADDRESS: Self = Self { ipv4: 32, ipv6: 128 };

    pub(super) fn network(self, address: IpAddr) -> Network {
        let address = address.to_canonical();
        Network::new(address, if address.is_ipv4() { self.ipv4 } else { self.ipv6 })
    }
}

/// The networks that registries assign: to an office, or to the customer of a provider.
impl Default for NetworkBits {
    fn default() -> Self {
        Self { ipv4: 24, ipv6: 56 }
    }
}

/// The share of an address is at least this: a browser opens some connections at once.
const LEAST_SHARE: u64 = 16;

/// There is no place for another session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooManyConnections {
    /// On the server, which has this many.
    Server(u64),
    /// On the server, whose process may open this many files, too few for more sessions.
    Descriptors(u64),
    /// From an address.
    Address(u64),
    /// From a network.
    Network(Network, u64),
}

impl TooManyConnections {
    /// The reply for the client: it names the limit, without a number or a name.
    pub fn for_the_client(self) -> &'static str {
        match self {
            Self::Server(_) | Self::Descriptors(_) => "Too many sessions on this server; try again later.",
            Self::Address(_) => "Too many sessions from your address; try again later.",
            Self::Network(..) => "Too many sessions from your network; try again later.",
        }
    }

    /// For the log.
    pub fn reached(self) -> Reached {
        match self {
            Self::Server(most) => Reached::new(LimitKey::Sessions, most),
            Self::Descriptors(most) => Reached::new(LimitKey::OpenFiles, most),
            Self::Address(most) => Reached::new(LimitKey::SessionsPerAddress, most),
            Self::Network(network, most) => Reached::new(LimitKey::SessionsPerNetwork, most).of(network),
        }
    }
}

/// Sessions per network; costs nothing where there never is a limit.
#[derive(Debug)]
pub struct ConnectionLimit {
    limit: Timed,
    bits: NetworkBits,
    /// The default for one address; 0 for no limit. It does not apply to this machine's own addresses, which proxies
    /// and tests use.
    share: u64,
    /// Proxies, whose clients share their address.
    proxies: Vec<Network>,
    /// Locked for one map operation, and only where there is a limit at some time.
    counts: Mutex<HashMap<Network, u64>>,
}

impl ConnectionLimit {
    /// Creates an empty count with this limit for each network of this many bits.
    pub fn new(limit: Timed, bits: NetworkBits) -> Self {
        Self { limit, bits, share: 0, proxies: Vec::new(), counts: Mutex::default() }
    }

    /// The same, where one network may have a quarter of this many sessions.
    pub fn sharing(mut self, all: u64) -> Self {
        self.share = (all / 4).max(LEAST_SHARE);
        self
    }

    /// The same, where addresses in these networks may have any number.
    pub fn without(mut self, proxies: &[Network]) -> Self {
        self.proxies = proxies.to_vec();
        self
    }

    /// Returns the limit of an address, where one is set that holds for it.
    pub fn of_address(&self, address: IpAddr) -> Option<u64> {
        let is_bound = !self.limit.is_none() && !self.is_free(address);
        is_bound.then(|| self.limit.value()).filter(|most| *most > 0)
    }

    /// Returns the network of an address, and its limit, where one is set that holds for it.
    pub fn of_network(&self, address: IpAddr) -> Option<(Network, u64)> {
        Some((self.bits.network(address), self.of_address(address)?))
    }

    /// Returns whether nothing is counted of an address.
    fn is_free(&self, address: IpAddr) -> bool {
        let is_free = self.limit.is_none() && (self.share == 0 || address.to_canonical().is_loopback());
        is_free || self.proxies.iter().any(|network| network.contains(address))
    }

    /// Counts an address in, or answers which network has as many sessions as it may, and how many that is.
    pub fn enter(&self, address: IpAddr) -> Result<(), (Network, u64)> {
        if self.is_free(address) {
            return Ok(());
        }
        let network = self.bits.network(address);
        let mut counts = self.counts();
        let count = counts.entry(network).or_default();
        let most = if self.limit.is_none() { self.share } else { self.limit.value() };
        if most > 0 && *count >= most {
            return Err((network, most));
        }
        *count += 1;
        Ok(())
    }

    /// Counts an address out.
    pub fn leave(&self, address: IpAddr) {
        if self.is_free(address) {
            return;
        }
        let network = self.bits.network(address);
        let mut counts = self.counts();
        if let Some(count) = counts.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&network);
            }
        }
    }

    /// It is this moment now, in seconds since 1970.
    pub fn tick(&self, wall: i64) {
        self.limit.tick(wall);
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<Network, u64>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Limit, Refused, Scope, Setting};

    #[test]
    fn addresses_of_a_network_share_its_places() {
        let limit = ConnectionLimit::new(Timed::new(Limit::of(2), 0), NetworkBits { ipv4: 24, ipv6: 48 });
        let enter = |address: &str| limit.enter(address.parse().unwrap()).is_ok();
        for (address, fits) in [
            ("192.0.2.1", true),
            ("192.0.2.200", true),
            ("192.0.2.3", false),
            ("::ffff:192.0.2.4", false),
            ("192.0.3.1", true),
            ("2001:db8:1::1", true),
            ("2001:db8:1:ffff::1", true),
            ("2001:db8:1:1::1", false),
            ("2001:db8:2::1", true),
        ] {
            assert_eq!(enter(address), fits, "{address}");
        }
        limit.leave("192.0.2.77".parse().unwrap());
        assert!(enter("192.0.2.3"));
        for address in ["192.0.2.1", "192.0.2.1", "192.0.3.1", "2001:db8:1::", "2001:db8:1::", "2001:db8:2::"]
        {
            limit.leave(address.parse().unwrap());
        }
        assert!(limit.counts().is_empty(), "clients that have left are forgotten");
    }

    #[test]
    fn where_nothing_is_set_an_address_has_a_quarter_but_for_this_machine() {
        let address: IpAddr = "192.0.2.1".parse().unwrap();
        for (all, share) in [(400, 100), (10, LEAST_SHARE)] {
            let limit = ConnectionLimit::new(Timed::new(Limit::none(), 0), NetworkBits::ADDRESS).sharing(all);
            assert!((0..share).all(|_| limit.enter(address).is_ok()));
            assert_eq!(limit.enter(address).unwrap_err().1, share);
            assert!(limit.enter("192.0.2.2".parse().unwrap()).is_ok());
            assert!((0..1000).all(|_| limit.enter("::1".parse().unwrap()).is_ok()));
            limit.leave("::1".parse().unwrap());
            limit.leave(address);
            assert!(limit.enter(address).is_ok());
        }
    }

    #[test]
    fn a_limit_of_an_address_follows_the_clock_and_counts_who_came_before_it() {
        let limit = "none; 00:01-00:02 UTC 2; 00:02-00:03 UTC 3".parse().unwrap();
        let limit = ConnectionLimit::new(Timed::new(limit, 0), NetworkBits::ADDRESS);
        let address = "192.0.2.1".parse().unwrap();
        assert!((0..2).all(|_| limit.enter(address).is_ok()));
        limit.tick(60);
        assert_eq!(limit.enter(address).unwrap_err().1, 2);
        limit.tick(120);
        assert!(limit.enter(address).is_ok() && limit.enter(address).is_err());
        limit.tick(180);
        assert!(limit.enter(address).is_ok());
    }

    #[test]
    fn a_client_learns_which_limit_it_is_and_the_log_its_key_value_and_owner() {
        let network = "192.0.2.0/24".parse().unwrap();
        let crowded = [
            (TooManyConnections::Server(4711), "on this server", "sessions", ""),
            (TooManyConnections::Descriptors(4711), "on this server", "open-files", ""),
            (TooManyConnections::Address(4711), "from your address", "sessions-per-address", ""),
            (
                TooManyConnections::Network(network, 4711),
                "from your network",
                "sessions-per-network",
                "192.0.2.0/24",
            ),
        ];
        let crowded =
            crowded.map(|(what, told, key, of)| (what.for_the_client(), told, what.reached(), key, of));
        let refused = |scope, is_default| Refused { scope, value: 4711, is_default };
        let (listener, alice) = ("192.0.2.1:21".parse().unwrap(), Scope::User(Arc::from(&b"alice"[..])));
        let scopes = [
            (refused(Scope::Server, false), "on this server", "sessions", ""),
            (
                refused(Scope::Listener(listener), false),
                "this address of the server",
                "sessions",
                "listener 192.0.2.1:21",
            ),
            (refused(Scope::Group("staff".into()), false), "of your group", "shared-sessions", "group staff"),
            (refused(alice.clone(), false), "of this user", "sessions", "user alice"),
            (refused(alice, true), "of this user", "user-sessions", "user alice"),
        ];
        let scopes = scopes
            .map(|(refused, told, key, of)| (refused.for_the_client(), told, refused.reached(), key, of));
        for (for_the_client, told, reached, key, of) in crowded.into_iter().chain(scopes) {
            assert!(for_the_client.contains(told), "{for_the_client}");
            assert_eq!((reached.key.key(), reached.of.as_deref().unwrap_or_default()), (key, of));
            assert_eq!(reached.value, Setting::Number(4711));
            let secret = ["4711", "192.0.2", "staff", "alice"];
            assert!(!secret.iter().any(|secret| for_the_client.contains(secret)), "{for_the_client}");
        }
    }
}
