//! The server to measure: `ftp://user:pass@host:port/path`.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use millrace_vfs::hex;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How a target is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scheme {
    /// FTP (RFC 959).
    Ftp,
    /// FTP in TLS from the first byte.
    Ftps,
    /// FTP that asks for TLS (RFC 4217).
    Ftpes,
    /// HTTP/1.1.
    Http,
    /// HTTP/1.1 in TLS.
    Https,
}

impl Scheme {
    /// Returns true if requests are made, and not commands.
    pub fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Https)
    }

    /// Returns true if it is encrypted.
    pub fn is_secure(self) -> bool {
        !matches!(self, Self::Ftp | Self::Http)
    }
}

const SCHEMES: [(&str, Scheme, u16); 5] = [
    ("ftp", Scheme::Ftp, 21),
    ("ftps", Scheme::Ftps, 990),
    ("ftpes", Scheme::Ftpes, 21),
    ("http", Scheme::Http, 80),
    ("https", Scheme::Https, 443),
];

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEMES.iter().find(|row| row.1 == *self).map_or("", |row| row.0))
    }
}

/// A server, an account on it, and the folder to work in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// How it is spoken to.
    pub scheme: Scheme,
    /// The account.
    pub user: String,
    /// Its password.
    pub password: String,
    /// The host as given.
    pub host: String,
    /// Of the control connection.
    pub port: u16,
    /// The folder that test files are put in, without a slash at its end; empty for the login's own.
    pub path: String,
}

/// A URL that is no target.
#[derive(Debug, Error)]
#[error("{url:?} {fault}; a target is written ftp://user:pass@host:port/path")]
pub struct TargetError {
    url: String,
    fault: &'static str,
}

impl Target {
    /// Parses a URL.
    pub fn parse(url: &str) -> Result<Self, TargetError> {
        let wrong = |fault| TargetError { url: url.to_owned(), fault };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("has no ftp:// before it"))?;
        let &(_, scheme, default_port) = SCHEMES
            .iter()
            .find(|row| row.0.eq_ignore_ascii_case(scheme))
            .ok_or_else(|| wrong("is neither ftp, ftps, ftpes, http nor https"))?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (account, place) = authority.rsplit_once('@').unwrap_or(("anonymous:millrace-bench", authority));
        let (user, password) = account.split_once(':').unwrap_or((account, ""));
        let (host, port) = split_port(place).ok_or_else(|| wrong("has no valid port"))?;
        let text = |part: &str| percent_decoded(part).ok_or_else(|| wrong("has a broken %-escape"));
        if host.is_empty() {
            return Err(wrong("names no host"));
        }
        Ok(Self {
            scheme,
            user: text(user)?,
            password: text(password)?,
            host: host.to_owned(),
            port: port.unwrap_or(default_port),
            path: text(path.trim_end_matches('/'))?,
        })
    }

    /// Looks the host up, once, so that no name service is measured.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        let mut found = (self.host.as_str(), self.port).to_socket_addrs()?;
        found.next().ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }

    /// The path of a test file.
    pub fn file(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}/{name}", self.path) }
    }
}

/// Without the password: this goes into reports.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        write!(f, "{}://{}@{host}:{}/{}", self.scheme, self.user, self.port, self.path)
    }
}

/// Returns true if the address may be loaded without `--allow`.
pub(crate) fn is_own_machine(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

fn split_port(place: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, behind) = rest.split_once(']')?;
            (host, if behind.is_empty() { None } else { Some(behind.strip_prefix(':')?) })
        }
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    Some((host, port.map(str::parse).transpose().ok()?))
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let (digits, after) = after.split_at_checked(2)?;
            out.extend(hex::decode(digits)?);
            rest = after;
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_read() {
        let target = Target::parse("ftp://a%40b:p%3aw@[::1]:2121/in/box/").unwrap();
        assert_eq!((&target.user[..], &target.password[..]), ("a@b", "p:w"));
        assert_eq!((&target.host[..], target.port, &target.path[..]), ("::1", 2121, "in/box"));
        assert_eq!(target.file("x"), "in/box/x");
        assert_eq!(target.to_string(), "ftp://a@b@[::1]:2121/in/box");
    }

    #[test]
    fn omitted_parts_have_defaults() {
        let target = Target::parse("ftp://localhost").unwrap();
        assert_eq!((&target.user[..], target.port), ("anonymous", 21));
        assert_eq!(target.file("x"), "x");
    }

    #[test]
    fn invalid_targets_are_refused() {
        for bad in ["localhost:21", "gopher://a/", "ftp://", "ftp://a:b/", "ftp://%zz@a/", "ftp://[::1/"] {
            assert!(Target::parse(bad).is_err(), "{bad}");
        }
    }
}
