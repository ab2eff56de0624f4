//! Where clients are sent on to: a directory that was named without its slash, and HTTPS.

use std::net::IpAddr;

use crate::request::{Field, Head};
use crate::target::{self, Target, encode};

/// The default port of HTTPS.
const USUAL: u16 = 443;

/// Returns the location of a directory that was named without its slash.
pub fn directory_location(target: &Target<'_>) -> String {
    let mut location = Vec::new();
    encode(target.path.as_bytes(), &mut location);
    location.push(b'/');
    if let Some(query) = target.query {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    String::from_utf8_lossy(&location).into_owned()
}

/// Returns the location of a request's target by HTTPS at a port: at the host that it names, or at the server's own address
/// where it names none.
pub fn https_location(head: &Head, sent: &Target<'_>, own: IpAddr, port: u16) -> String {
    let host = sent.authority.or(head.get(Field::Host)).map(without_port).filter(|host| !host.is_empty());
    let host = host.map_or_else(|| written_ip(own), |host| String::from_utf8_lossy(host).into_owned());
    let port = if port == USUAL { String::new() } else { format!(":{port}") };
    format!("https://{host}{port}{}", ascii(target::written(head.target())))
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
    use crate::request;

    #[test]
    fn a_directory_has_a_slash_behind_its_path() {
        for (written, expected) in [
            ("/a", "/a/"),
            ("/a%20b?c=%20", "/a%20b/?c=%20"),
            ("http://h/x/../a?", "/a/?"),
            ("/%3F", "/%3F/"),
        ] {
            let target = target::parse(written.as_bytes()).unwrap();
            assert_eq!(directory_location(&target), expected, "{written}");
        }
    }

    #[test]
    fn https_is_at_the_host_that_was_asked() {
        for (head, port, expected) in [
            ("GET /a?b HTTP/1.1\r\nHost: h:8080\r\n\r\n", 443, "https://h/a?b"),
            ("GET /a?b HTTP/1.1\r\nHost: h\r\n\r\n", 8443, "https://h:8443/a?b"),
            ("GET http://o:80/a HTTP/1.1\r\nHost: h\r\n\r\n", 443, "https://o/a"),
            ("GET /a HTTP/1.0\r\n\r\n", 443, "https://[2001:db8::1]/a"),
        ] {
            let (head, _) = request::parse(head.as_bytes()).unwrap().unwrap();
            let sent = target::parse(head.target()).unwrap();
            let own = IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]);
            assert_eq!(https_location(&head, &sent, own, port), expected);
        }
    }

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
