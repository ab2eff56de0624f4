//! Sessions of whoever is not logged in yet: of the whole server, of an address, of a network.
//!
//! They are counted when a client connects and before a byte is read, so that one address, or a network that has
//! many, cannot take every place.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

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
    pub(crate) const ADDRESS: Self = Self { ipv4: 32, ipv6: 128 };

    fn network(self, address: IpAddr) -> Network {
        let address = address.to_canonical();
        Network::new(address, if address.is_ipv4() { self.ipv4 } else { self.ipv6 })
    }
}

/// What registries give out: an office, and the customer of a provider.
impl Default for NetworkBits {
    fn default() -> Self {
        Self { ipv4: 24, ipv6: 56 }
    }
}

/// There is no place for another session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crowded {
    /// On the server, which has so many.
    Server(usize),
    /// From an address.
    Address(usize),
    /// From a network.
    Network(Network, usize),
}

impl Crowded {
    /// What the client may know: which limit it is, and no number or name.
    pub(crate) fn for_the_client(self) -> &'static str {
        match self {
            Self::Server(_) => "Too many sessions on this server; try again later.",
            Self::Address(_) => "Too many sessions from your address; try again later.",
            Self::Network(..) => "Too many sessions from your network; try again later.",
        }
    }

    /// The limit's key for the log.
    pub(crate) fn key(self) -> String {
        match self {
            Self::Server(_) => "sessions".to_owned(),
            Self::Address(_) => "sessions-per-address".to_owned(),
            Self::Network(network, _) => format!("sessions-per-network of {network}"),
        }
    }

    /// How many there may be.
    pub(crate) fn value(self) -> u64 {
        match self {
            Self::Server(most) | Self::Address(most) | Self::Network(_, most) => most as u64,
        }
    }
}

/// Sessions per network; costs nothing where there is no limit.
#[derive(Debug)]
pub(crate) struct Crowd {
    /// 0 for no limit.
    limit: usize,
    bits: NetworkBits,
    /// Locked for one map operation, and only where there is a limit.
    counts: Mutex<HashMap<Network, usize>>,
}

impl Crowd {
    pub(crate) fn new(limit: usize, bits: NetworkBits) -> Self {
        Self { limit, bits, counts: Mutex::default() }
    }

    /// Counts an address in, or answers which network has as many sessions as it may, and how many that is.
    pub(crate) fn enter(&self, address: IpAddr) -> Result<(), (Network, usize)> {
        if self.limit == 0 {
            return Ok(());
        }
        let network = self.bits.network(address);
        let mut counts = self.counts();
        let count = counts.entry(network).or_default();
        if *count >= self.limit {
            return Err((network, self.limit));
        }
        *count += 1;
        Ok(())
    }

    /// Counts an address out.
    pub(crate) fn leave(&self, address: IpAddr) {
        if self.limit == 0 {
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

    fn counts(&self) -> MutexGuard<'_, HashMap<Network, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::limits::{Refused, Scope};

    #[test]
    fn addresses_of_a_network_share_its_places() {
        let crowd = Crowd::new(2, NetworkBits { ipv4: 24, ipv6: 48 });
        let enter = |address: &str| crowd.enter(address.parse().unwrap()).is_ok();
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
        crowd.leave("192.0.2.77".parse().unwrap());
        assert!(enter("192.0.2.3"));
        for address in ["192.0.2.1", "192.0.2.1", "192.0.3.1", "2001:db8:1::", "2001:db8:1::", "2001:db8:2::"]
        {
            crowd.leave(address.parse().unwrap());
        }
        assert!(crowd.counts().is_empty(), "nobody is remembered who has left");
    }

    #[test]
    fn a_client_learns_which_limit_it_is_and_the_log_its_key_and_value() {
        let network = "192.0.2.0/24".parse().unwrap();
        let crowded = [
            (Crowded::Server(4711), "on this server", "sessions"),
            (Crowded::Address(4711), "from your address", "sessions-per-address"),
            (Crowded::Network(network, 4711), "from your network", "sessions-per-network of 192.0.2.0/24"),
        ];
        let crowded =
            crowded.map(|(what, told, key)| (what.for_the_client(), told, what.key(), what.value(), key));
        let refused = |scope| Refused { scope, value: 4711 };
        let scopes = [
            (Scope::Server, "on this server", "sessions of server"),
            (
                Scope::Listener("192.0.2.1:21".parse().unwrap()),
                "this address of the server",
                "listener 192.0.2.1:21",
            ),
            (Scope::Group("staff".into()), "of your group", "sessions of group staff"),
            (Scope::User(Arc::from(&b"alice"[..])), "of this user", "sessions of user alice"),
        ];
        let scopes = scopes.map(|(scope, told, key)| {
            let refused = refused(scope);
            (refused.for_the_client(), told, refused.key(), refused.value, key)
        });
        for (for_the_client, told, logged, value, key) in crowded.into_iter().chain(scopes) {
            assert!(for_the_client.contains(told) && logged.contains(key), "{for_the_client}: {logged}");
            assert_eq!(value, 4711);
            let secret = ["4711", "192.0.2", "staff", "alice"];
            assert!(!secret.iter().any(|secret| for_the_client.contains(secret)), "{for_the_client}");
        }
    }
}
