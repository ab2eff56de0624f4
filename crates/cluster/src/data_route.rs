//! Where a node takes data connections of its sessions that have come to another node.

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use ring::hmac::{self, HMAC_SHA256};
use ring::rand::{SecureRandom, SystemRandom};

/// The length of a [seal](DataRoute::seal).
pub const SEAL: usize = 32;

/// The length of a [nonce](nonce).
pub const NONCE: usize = 16;

/// Random bytes for one seal; `None` where the system has none.
pub fn nonce() -> Option<[u8; NONCE]> {
    let mut nonce = [0; NONCE];
    SystemRandom::new().fill(&mut nonce).ok()?;
    Some(nonce)
}

/// A way to the sessions of a node: it has these passive ports, and takes their connections at this address. The key is known to
/// the nodes of the cluster alone, and proves that a connection comes from one of them.
#[derive(Clone, PartialEq, Eq)]
pub struct DataRoute {
    /// The node's name, for people.
    pub node: String,
    /// Where it takes connections.
    pub address: SocketAddr,
    /// At which ports clients connect to its sessions.
    pub ports: RangeInclusive<u16>,
    /// Random bytes of the node.
    pub key: [u8; 32],
}

impl DataRoute {
    /// A route with a new key; `None` where the system has no random numbers.
    pub fn new(node: &str, address: SocketAddr, ports: RangeInclusive<u16>) -> Option<Self> {
        let mut key = [0; 32];
        SystemRandom::new().fill(&mut key).ok()?;
        Some(Self { node: node.to_owned(), address, ports, key })
    }

    /// Seals what is said of a connection. The node that it goes to has chosen the nonce, for this connection alone: so who has
    /// overheard a seal can use it at no other.
    pub fn seal(&self, nonce: &[u8; NONCE], text: &str) -> [u8; SEAL] {
        let tag = hmac::sign(&hmac::Key::new(HMAC_SHA256, &self.key), &sealed(nonce, text));
        let mut seal = [0; SEAL];
        seal.copy_from_slice(tag.as_ref());
        seal
    }

    /// Returns whether a node that knows this route has sealed it.
    pub fn has_sealed(&self, nonce: &[u8; NONCE], text: &str, seal: &[u8; SEAL]) -> bool {
        hmac::verify(&hmac::Key::new(HMAC_SHA256, &self.key), &sealed(nonce, text), seal).is_ok()
    }
}

fn sealed(nonce: &[u8; NONCE], text: &str) -> Vec<u8> {
    [nonce, text.as_bytes()].concat()
}

impl fmt::Debug for DataRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, address, ports, .. } = self;
        f.debug_struct("DataRoute")
            .field("node", node)
            .field("address", address)
            .field("ports", ports)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_of_one_text_one_key_and_one_connection() {
        let route = || DataRoute::new("a", "127.0.0.1:50000".parse().unwrap(), 50_000..=50_099).unwrap();
        let (one, other) = (route(), route());
        let (first, second) = (nonce().unwrap(), nonce().unwrap());
        let seal = one.seal(&first, "192.0.2.7:1 203.0.113.1:50001");
        assert!(one.has_sealed(&first, "192.0.2.7:1 203.0.113.1:50001", &seal));
        assert!(!one.has_sealed(&first, "192.0.2.8:1 203.0.113.1:50001", &seal));
        assert!(!one.has_sealed(&second, "192.0.2.7:1 203.0.113.1:50001", &seal));
        assert!(!other.has_sealed(&first, "192.0.2.7:1 203.0.113.1:50001", &seal));
        assert!(!format!("{one:?}").contains("key"));
    }
}
