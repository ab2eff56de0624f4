//! An address of this machine that a virtual host is known by: with a port, or at every port.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// An address, of one port or of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HostAddress {
    ip: IpAddr,
    port: Option<u16>,
}

/// A text that is no address of a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostAddressError {
    /// It has another form.
    #[error(
        "{0:?} is no address of this computer: expected one such as \"192.0.2.7\", \"192.0.2.7:2121\" or \
         \"[2001:db8::7]:990\""
    )]
    Form(String),
    /// It stands for all addresses, and so tells no host from another.
    #[error("{0} stands for every address, which tells no host from another: name one")]
    Every(IpAddr),
}

impl HostAddress {
    /// Returns whether a connection that came to `local` belongs to it.
    pub fn covers(&self, local: SocketAddr) -> bool {
        self.ip == local.ip().to_canonical() && self.port.is_none_or(|port| port == local.port())
    }

    /// Returns whether it is of one port only, and so goes before one of all ports.
    pub fn has_port(&self) -> bool {
        self.port.is_some()
    }

    /// Returns what belongs to the address that comes closest to `local`: one with its port, or else without.
    pub fn closest<T>(all: impl Iterator<Item = (Self, T)>, local: SocketAddr) -> Option<T> {
        all.filter(|(address, _)| address.covers(local))
            .max_by_key(|(address, _)| address.has_port())
            .map(|(_, of)| of)
    }

    /// Returns whether a listener that is bound to `bound` accepts connections for it. A port that is still to be chosen may
    /// be any.
    pub fn is_heard_at(&self, bound: SocketAddr) -> bool {
        let is_its_family = bound.is_ipv6() || self.ip.is_ipv4();
        let is_its_ip = bound.ip().to_canonical() == self.ip || bound.ip().is_unspecified() && is_its_family;
        is_its_ip && (bound.port() == 0 || self.port.is_none_or(|port| port == bound.port()))
    }
}

impl FromStr for HostAddress {
    type Err = HostAddressError;

    fn from_str(text: &str) -> Result<Self, HostAddressError> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        let of_all_ports = bare.parse().map(|ip: IpAddr| (ip, None));
        let parsed = of_all_ports.or_else(|_| text.parse().map(|at: SocketAddr| (at.ip(), Some(at.port()))));
        match parsed.map(|(ip, port)| (ip.to_canonical(), port)) {
            Ok((ip, _)) if ip.is_unspecified() => Err(HostAddressError::Every(ip)),
            Ok((ip, port)) => Ok(Self { ip, port }),
            Err(_) => Err(HostAddressError::Form(text.to_owned())),
        }
    }
}

impl fmt::Display for HostAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => SocketAddr::new(self.ip, port).fmt(f),
            None => self.ip.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_covers_its_port_or_all() {
        for (text, local, expected) in [
            ("192.0.2.7", "192.0.2.7:21", true),
            ("192.0.2.7", "[::ffff:192.0.2.7]:990", true),
            ("::ffff:192.0.2.7", "192.0.2.7:21", true),
            ("192.0.2.7", "192.0.2.8:21", false),
            ("192.0.2.7:2121", "192.0.2.7:2121", true),
            ("192.0.2.7:2121", "192.0.2.7:21", false),
            ("[2001:db8::7]:990", "[2001:db8::7]:990", true),
            ("[2001:db8::7]", "[2001:db8::7]:21", true),
            ("2001:db8::7", "[2001:db8::8]:21", false),
        ] {
            let address: HostAddress = text.parse().unwrap();
            assert_eq!(address.covers(local.parse().unwrap()), expected, "{text} {local}");
        }
    }

    #[test]
    fn a_listener_hears_its_own_addresses() {
        for (text, bound, expected) in [
            ("192.0.2.7", "0.0.0.0:21", true),
            ("192.0.2.7", "[::]:21", true),
            ("192.0.2.7:22", "0.0.0.0:21", false),
            ("192.0.2.7:22", "192.0.2.7:0", true),
            ("192.0.2.7", "192.0.2.8:21", false),
            ("2001:db8::7", "0.0.0.0:21", false),
        ] {
            let address: HostAddress = text.parse().unwrap();
            assert_eq!(address.is_heard_at(bound.parse().unwrap()), expected, "{text} {bound}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", "files.test", "192.0.2", "192.0.2.7:", "192.0.2.7:70000", "[192.0.2.7", "0.0.0.0", "[::]:21"]
        {
            assert!(text.parse::<HostAddress>().is_err(), "{text:?}");
        }
    }
}
