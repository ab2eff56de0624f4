//! Requests that came in clear, and are sent on to HTTPS.

use std::net::IpAddr;

use millrace_http::target::{self, Target};
use millrace_http::{Field, Status};

use crate::answer::Answers;
use crate::connection::exchange::Exchange;
use crate::shared::CHALLENGE_PATH;
use crate::web::HttpsRedirect;

/// The default port.
const USUAL: u16 = 443;

/// Sends a request on to HTTPS, where that is wanted: at the name that it came by, so that each host stays the same,
/// and with its method (308). Answers whether it has.
pub(crate) fn sends_to_https(exchange: &mut Exchange<'_>, sent: &Target<'_>) -> bool {
    let head = exchange.head;
    let port = match exchange.core.http.web.https_redirect {
        HttpsRedirect::Off => None,
        HttpsRedirect::ToOwn => exchange.core.server.https_port,
        HttpsRedirect::To(port) => Some(port),
    };
    let Some(port) = port.filter(|_| !exchange.connection.is_encrypted()) else { return false };
    let written = target::written(head.target());
    if sent.path.as_bytes().starts_with(CHALLENGE_PATH) {
        return false;
    }
    let host = sent.authority.or(head.get(Field::Host)).map(without_port).filter(|host| !host.is_empty());
    let own =
        || written_ip(exchange.connection.local().map_or(exchange.connection.peer.ip(), |local| local.ip()));
    let host = host.map_or_else(own, |host| String::from_utf8_lossy(host).into_owned());
    let port = if port == USUAL { String::new() } else { format!(":{port}") };
    let location = format!("https://{host}{port}{}", ascii(written));
    exchange.pass_over_body();
    let record = exchange.record();
    let reason = "This is to be had by HTTPS.";
    Answers::new(exchange.connection, exchange.core).answer_page(
        record,
        Status::PERMANENT_REDIRECT,
        reason,
        &[("Location", &location)],
    );
    true
}

/// `[::1]:8080` is `[::1]`.
fn without_port(host: &[u8]) -> &[u8] {
    match host.iter().rposition(|&byte| byte == b':') {
        Some(at) if !host[at..].contains(&b']') => &host[..at],
        _ => host,
    }
}

fn written_ip(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

/// What no URL has is encoded.
fn ascii(path: &[u8]) -> String {
    let mut out = String::with_capacity(path.len());
    for &byte in path {
        match byte {
            b'!'..=b'~' if !matches!(byte, b'"' | b'<' | b'>' | b'#') => out.push(byte.into()),
            _ => out += &format!("%{byte:02X}"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_taken_without_their_ports() {
        for (host, expected) in [
            ("h", "h"),
            ("h:8080", "h"),
            ("[::1]", "[::1]"),
            ("[::1]:8080", "[::1]"),
            (":80", ""),
            ("h:", "h"),
        ] {
            assert_eq!(without_port(host.as_bytes()), expected.as_bytes(), "{host}");
        }
        assert_eq!(ascii(b"/a%20b?c=\"\xff"), "/a%20b?c=%22%FF");
    }
}
