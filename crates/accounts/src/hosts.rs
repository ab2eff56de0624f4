//! Names under which a server shows other trees: those of `Host` by HTTP, of `HOST` (RFC 7151) or SNI by FTP.
//!
//! FTP and HTTP share one table. A client that names a host sees that host's folder as the root, with users' folders in
//! it; with any other name it sees everything, as if there were no hosts.

use std::fmt;
use std::sync::Arc;

use super::homes::Homes;

/// A tree for some names.
#[derive(Debug)]
pub struct VirtualHost {
    /// The names.
    pub names: Vec<HostName>,
    /// The folders served under one host name.
    pub homes: Arc<Homes>,
}

/// The name of a host, or all names beneath one: `*.example.org`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostName {
    /// In lower case; a wildcard's suffix begins with its dot.
    name: String,
    is_beneath: bool,
}

/// A text that is no name of a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no name of a host: expected one such as \"files.example.org\" or \"*.example.org\", without a port"
)]
pub struct HostNameError(String);

impl HostName {
    /// Reads a name as it is written in a configuration.
    pub fn parse(text: &str) -> Result<Self, HostNameError> {
        let (rest, is_beneath) = match text.strip_prefix('*') {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let labels = if is_beneath { rest.strip_prefix('.').unwrap_or_default() } else { rest };
        let is_label = |label: &str| {
            !label.is_empty()
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        };
        match labels.split('.').all(is_label) {
            true => Ok(Self { name: rest.to_ascii_lowercase(), is_beneath }),
            false => Err(HostNameError(text.to_owned())),
        }
    }

    /// Returns true if a [plain](plain) name is this one.
    pub fn covers(&self, plain: &str) -> bool {
        match self.is_beneath {
            true => plain.len() > self.name.len() && !plain.starts_with('.') && plain.ends_with(&self.name),
            false => plain == self.name,
        }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.is_beneath { "*" } else { "" }, self.name)
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

    #[test]
    fn invalid_names_are_refused() {
        for text in ["", "*", "*a.b", "a..b", "a.b:80", "a/b", "a b", ".a", "a.", "*."] {
            assert!(HostName::parse(text).is_err(), "{text:?}");
        }
    }
}
