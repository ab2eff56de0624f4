//! What places are counted of: all nodes together, an address, a user, a network, a group, a listener.

use std::net::{IpAddr, SocketAddr};

use millrace_limits::Network;

/// What places are counted of, as the database has it: a byte for the kind, and a name.
///
/// The order is that in which every writer locks them, so that two writers never wait for one another. (The locks are of hashes:
/// of two pairs of groups whose names collide crosswise the database would refuse one login.)
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SharedScope(Box<[u8]>);

impl SharedScope {
    /// All nodes.
    pub fn server() -> Self {
        Self::of(1, b"")
    }

    /// A client's address, on all nodes.
    pub fn address(address: IpAddr) -> Self {
        Self::of(2, address.to_canonical().to_string().as_bytes())
    }

    /// A user, on all nodes.
    pub fn user(name: &[u8]) -> Self {
        Self::of(3, name)
    }

    /// The addresses of a network, on all nodes.
    pub fn network(network: Network) -> Self {
        Self::of(4, network.to_string().as_bytes())
    }

    /// The members of a group, on all nodes.
    pub fn group(name: &str) -> Self {
        Self::of(5, name.as_bytes())
    }

    /// The clients of a listener: of those that are bound to this address, at whatever node.
    pub fn listener(address: SocketAddr) -> Self {
        Self::of(6, address.to_string().as_bytes())
    }

    fn of(kind: u8, name: &[u8]) -> Self {
        Self([&[kind], name].concat().into())
    }

    /// As the database has it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A scope in which a session needs a place, and how many places that may have in all.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim {
    /// The scope.
    pub scope: SharedScope,
    /// Its places.
    pub most: u64,
}
