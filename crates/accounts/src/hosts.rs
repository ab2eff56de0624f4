//! Virtual hosts: other trees, for clients that name a host or come to its address.
//!
//! FTP and HTTP share one table. The name is that of `Host` by HTTP, of `HOST` (RFC 7151) or SNI by FTP. A client that names
//! none of the hosts belongs to that of the address which it came to. It sees the host's folder as the root, with users'
//! folders in it; a client of no host sees everything, as if there were no hosts.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use millrace_limits::{GroupLimits, HostName, Limits};
use millrace_net::host_address::HostAddress;

use super::homes::Homes;

/// What a host is known by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownBy {
    /// The names that clients say.
    pub names: Vec<HostName>,
    /// The addresses of this machine that they come to.
    pub addresses: Vec<HostAddress>,
}

impl KnownBy {
    /// Returns the first host that has this plain name, or else the one whose address comes closest to `local`.
    pub fn choose<'a, T>(
        hosts: &'a [T],
        known_by: impl Fn(&T) -> &Self,
        name: &str,
        local: Option<SocketAddr>,
    ) -> Option<&'a T> {
        let named = hosts.iter().find(|host| known_by(host).has_name(name));
        named.or_else(|| Self::at(hosts, known_by, local?))
    }

    fn at<'a, T>(hosts: &'a [T], known_by: impl Fn(&T) -> &Self, local: SocketAddr) -> Option<&'a T> {
        let of =
            |host: &'a T| known_by(host).addresses.clone().into_iter().map(move |address| (address, host));
        HostAddress::closest(hosts.iter().flat_map(of), local)
    }

    /// Returns its first name, or else its first address.
    pub fn first(&self) -> String {
        let name = self.names.first().map(ToString::to_string);
        name.or_else(|| self.addresses.first().map(ToString::to_string)).unwrap_or_default()
    }

    /// Returns whether a plain name is one of its own.
    pub fn has_name(&self, name: &str) -> bool {
        self.names.iter().any(|own| own.covers(name))
    }
}

/// A tree of its own.
#[derive(Debug)]
pub struct VirtualHost {
    /// What it is known by.
    pub known_by: KnownBy,
    /// Its folders.
    pub homes: Arc<Homes>,
    /// Whether the anonymous user may log in there; `None` as elsewhere.
    pub anonymous: Option<bool>,
    /// For all of its sessions together.
    pub limits: Limits,
}

impl VirtualHost {
    /// Returns the group that counts its sessions: `host files.example.org`.
    pub fn group(&self) -> GroupLimits {
        GroupLimits { name: format!("host {}", self.known_by).into(), limits: self.limits.clone() }
    }
}

impl fmt::Display for KnownBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.names.iter().map(ToString::to_string);
        let all: Vec<String> = names.chain(self.addresses.iter().map(ToString::to_string)).collect();
        f.write_str(&all.join(", "))
    }
}

/// A name as a client wrote it, without its port and the dot at its end, in lower case.
pub fn plain(host: &[u8]) -> String {
    let end = match host {
        // An address of IPv6.
        [b'[', ..] => host.len(),
        _ => host.iter().position(|&byte| byte == b':').unwrap_or(host.len()),
    };
    let name = host[..end].strip_suffix(b".").unwrap_or(&host[..end]);
    String::from_utf8_lossy(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_chosen_by_name_then_by_address_with_port_then_by_address() {
        let host = |names: &[&str], addresses: &[&str]| KnownBy {
            names: names.iter().map(|name| HostName::parse(name).unwrap()).collect(),
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        };
        let hosts = [
            host(&["a.example"], &["192.0.2.7"]),
            host(&["*.example"], &[]),
            host(&[], &["192.0.2.7:2121", "2001:db8::7"]),
        ];
        for (name, local, expected) in [
            ("a.example", "192.0.2.7:2121", Some(0)),
            ("b.example", "192.0.2.7:2121", Some(1)),
            ("", "192.0.2.7:2121", Some(2)),
            ("", "192.0.2.7:21", Some(0)),
            ("192.0.2.7", "192.0.2.7:21", Some(0)),
            ("b.test", "[2001:db8::7]:21", Some(2)),
            ("", "192.0.2.8:2121", None),
        ] {
            let found = KnownBy::choose(&hosts, |host| host, name, Some(local.parse().unwrap()));
            assert_eq!(found, expected.map(|place: usize| &hosts[place]), "{name} {local}");
        }
        assert_eq!(KnownBy::choose(&hosts, |host| host, "", None), None);
    }

    #[test]
    fn names_are_compared_as_names_are() {
        for (name, host, expected) in [
            ("a.example", "a.example", true),
            ("A.Example", "a.eXAMPLE", true),
            ("a.example", "a.example:8080", true),
            ("a.example", "a.example.", true),
            ("a.example", "b.a.example", false),
            ("a.example", "a.example.evil", false),
            ("*.example", "a.example", true),
            ("*.example", "a.b.example:80", true),
            ("*.example", "example", false),
            ("*.example", ".example", false),
            ("*.example", "aexample", false),
            ("localhost", "[::1]:80", false),
        ] {
            assert_eq!(
                HostName::parse(name).unwrap().covers(&plain(host.as_bytes())),
                expected,
                "{name} {host}"
            );
        }
    }
}
