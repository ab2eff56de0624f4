//! Writes `--ready-file` and `--ready-json`: the process and the addresses that accept connections.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::process;

use millrace_terminal::Failure;
use serde::Serialize;

use crate::announce::Bound;

/// A server that accepts connections.
#[derive(Debug, Serialize)]
struct Ready {
    pid: u32,
    ftp: Vec<Listener>,
    ftps: Vec<Listener>,
    http: Vec<Listener>,
    https: Vec<Listener>,
    /// Health checks and metrics.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    admin: Vec<Listener>,
}

/// An address where a client of this computer reaches the server.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Listener {
    host: String,
    port: u16,
    url: String,
}

impl Listener {
    /// Describes a bound address; "any address" becomes the loopback address of its family.
    fn new(scheme: &str, bound: &SocketAddr) -> Self {
        let ip = match bound.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        let url = format!("{scheme}://{}/", SocketAddr::new(ip, bound.port()));
        Self { host: ip.to_string(), port: bound.port(), url }
    }
}

/// Returns the description as one line of JSON, with its line end.
pub(crate) fn line(bound: Bound<'_>) -> String {
    let all = |scheme: &str, addresses: &[SocketAddr]| {
        addresses.iter().map(|address| Listener::new(scheme, address)).collect()
    };
    let ready = Ready {
        pid: process::id(),
        ftp: all("ftp", bound.ftp),
        ftps: all("ftps", bound.ftps),
        http: all("http", bound.http),
        https: all("https", bound.https),
        admin: all(bound.admin_scheme(), bound.admin),
    };
    // Numbers and strings alone: serialising them cannot fail.
    serde_json::to_string(&ready).unwrap_or_default() + "\n"
}

/// Removes the file of a server that ran before, so that it is not taken for this one's.
pub(crate) fn clear(path: &Path) {
    // If removal fails, writing the file reports the error.
    let _ = fs::remove_file(path);
}

/// Writes the description to a file, by way of a neighbour, so that a reader never sees half of it.
///
/// # Errors
///
/// The file, or its neighbour `NAME.new`, cannot be written.
pub(crate) fn write(path: &Path, bound: Bound<'_>) -> Result<(), Failure> {
    let mut neighbour = path.as_os_str().to_owned();
    neighbour.push(".new");
    fs::write(&neighbour, line(bound))
        .and_then(|()| fs::rename(&neighbour, path))
        .map_err(|error| Failure::Running(format!("cannot write --ready-file {}: {error}.", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_address_is_reached_by_loopback() {
        let at = |address: &str| Listener::new("http", &address.parse().unwrap());
        assert_eq!(at("0.0.0.0:80").url, "http://127.0.0.1:80/");
        assert_eq!(at("[::]:8080").url, "http://[::1]:8080/");
        assert_eq!(
            at("192.0.2.1:81"),
            Listener { host: "192.0.2.1".to_owned(), port: 81, url: "http://192.0.2.1:81/".to_owned() }
        );
    }
}
