//! Networks: an address and how many of its bits count.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use thiserror::Error;

/// `10.0.0.0/8`, `2001:db8::/32`; an address alone is a network of one. IPv4 addresses that IPv6 sockets show
/// as `::ffff:a.b.c.d` are IPv4 addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network {
    /// With the bits that do not count cleared.
    address: IpAddr,
    bits: u8,
}

/// Why a text is no network.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NetworkError {
    /// It has another form.
    #[error("{0:?} is not a network, such as 10.0.0.0/8, 2001:db8::/32 or 192.0.2.7")]
    Form(String),
    /// The address has bits beyond those that count: the network is larger than it seems to be.
    #[error(
        "{text:?} names one address and a whole network; write {network} for the network, or {address} alone"
    )]
    HostBits {
        /// The text.
        text: String,
        /// The network that the address is in.
        network: Network,
        /// The address.
        address: IpAddr,
    },
}

impl Network {
    /// The network of this address with this many bits.
    pub fn new(address: IpAddr, bits: u8) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let bits = bits.min(32);
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                Self { address: IpAddr::V4((u32::from(address) & mask).into()), bits }
            }
            IpAddr::V6(address) => {
                let bits = bits.min(128);
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                Self { address: IpAddr::V6((u128::from(address) & mask).into()), bits }
            }
        }
    }

    /// The network of one client: an IPv4 address, or the 64 bits of an IPv6 client.
    pub fn of_client(address: IpAddr) -> Self {
        match address.to_canonical() {
            address @ IpAddr::V4(_) => Self::new(address, 32),
            address @ IpAddr::V6(_) => Self::new(address, 64),
        }
    }

    /// Its first address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns true if an address belongs to it.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && Self::new(address, self.bits) == *self
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let wrong = || NetworkError::Form(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        match Self::new(address, bits) {
            _ if bits > most => Err(wrong()),
            network if network.address == address.to_canonical() => Ok(network),
            network => Err(NetworkError::HostBits { text: text.to_owned(), network, address }),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.address, self.bits) {
            (IpAddr::V4(address), 32) => write!(f, "{address}"),
            (IpAddr::V6(address), 128) => write!(f, "{address}"),
            (address, bits) => write!(f, "{address}/{bits}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_share_its_bits() {
        for (network, address, expected) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.6", false),
            ("0.0.0.0/0", "192.0.2.6", true),
            ("0.0.0.0/0", "::1", false),
            ("2001:db8::/32", "2001:db8:1::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::/0", "::1", true),
        ] {
            let network: Network = network.parse().unwrap();
            assert_eq!(network.contains(address.parse().unwrap()), expected, "{network} {address}");
        }
        let error = "10.1.2.3/8".parse::<Network>().unwrap_err().to_string();
        assert!(error.ends_with("; write 10.0.0.0/8 for the network, or 10.1.2.3 alone"), "{error}");
        assert!("2001:db8::1/32".parse::<Network>().is_err() && "::1/128".parse::<Network>().is_ok());
        for wrong in ["", "10.0.0.0/33", "10.0.0/8", "10.0.0.0/", "10.0.0.0/-1", "::/129", "example.com"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }
}
