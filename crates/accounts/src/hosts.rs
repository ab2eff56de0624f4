//! Names under which a server shows other trees: those of `Host` by HTTP, of `HOST` (RFC 7151) or SNI by FTP.
//!
//! FTP and HTTP share one table. A client that names a host sees that host's folder as the root, with users' folders in
//! it; with any other name it sees everything, as if there were no hosts.

use std::sync::Arc;

use millrace_limits::HostName;

use super::homes::Homes;

/// A tree for some names.
#[derive(Debug)]
pub struct VirtualHost {
    /// The names.
    pub names: Vec<HostName>,
    /// The folders served under one host name.
    pub homes: Arc<Homes>,
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
