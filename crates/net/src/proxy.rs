//! The header in which a proxy names its client: the PROXY protocol of HAProxy, versions 1 (a line) and 2 (binary), as
//! `doc/proxy-protocol.txt` there has it.
//!
//! The invariants: a header is read whole or not at all, and no byte after it is read from the socket, so the next
//! reader (TLS, a session, an upload) sees a connection without it. A malformed header is an error.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

use crate::listener::plain;
use crate::stream;

/// How long a header may be. The protocol asks for room for 536 bytes; certificates that proxies pass on are longer.
pub const MOST: usize = 4096;

/// The longest line of version 1, with its end.
const LINE: usize = 107;

/// The beginning of a version 2 header.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// The beginning of a version 1 header.
const WORD: &[u8; 6] = b"PROXY ";

/// The type of the field that is a checksum of the header.
const CRC32C: u8 = 0x03;

/// The content of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// How many bytes it is long.
    pub length: usize,
    /// `None`: the proxy connects for itself (a health check), or does not know its client.
    pub ends: Option<Ends>,
}

/// The connection that the proxy passes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// The client.
    pub client: SocketAddr,
    /// The address that the client connected to.
    pub server: SocketAddr,
}

/// Why a header is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyFault {
    /// The bytes are not the beginning of a header.
    Missing,
    /// The connection ended in it, or before it.
    Ended,
    /// It does not end where it has to.
    TooLong,
    /// A version or command that there is not.
    Version,
    /// It is about something else than TCP.
    Family,
    /// The addresses are invalid.
    Address,
    /// Its further fields go beyond its end.
    Field,
    /// The checksum is another.
    Checksum,
}

impl std::fmt::Display for ProxyFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Missing => "it does not begin with a PROXY header",
            Self::Ended => "it ended before its PROXY header was whole",
            Self::TooLong => "its PROXY header is too long",
            Self::Version => "its PROXY header has an unknown version or command",
            Self::Family => "its PROXY header is not about TCP",
            Self::Address => "the addresses in its PROXY header are malformed",
            Self::Field => "a field of its PROXY header is longer than the header",
            Self::Checksum => "the checksum of its PROXY header is wrong",
        })
    }
}

impl std::error::Error for ProxyFault {}

/// The header at the beginning of these bytes; `None` where more of it may come.
pub fn parse(bytes: &[u8]) -> Result<Option<Header>, ProxyFault> {
    let begins = |with: &[u8]| bytes.iter().zip(with).all(|(one, other)| one == other);
    if begins(SIGNATURE) {
        binary(bytes)
    } else if begins(WORD) {
        line(bytes)
    } else {
        Err(ProxyFault::Missing)
    }
}

/// Takes the header off a socket, as far as it has come: `None` where it has not, whole.
pub fn take(socket: impl AsFd) -> io::Result<Result<Option<Header>, ProxyFault>> {
    let mut buffer = [0; MOST];
    let seen = match stream::peek(&socket, &mut buffer) {
        Ok(0) => return Ok(Err(ProxyFault::Ended)),
        Ok(seen) => seen,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Ok(None)),
        Err(error) => return Err(error),
    };
    let parsed = parse(&buffer[..seen]);
    if let Ok(Some(header)) = parsed {
        let mut rest = &mut buffer[..header.length];
        // The bytes are there: this socket has no other reader.
        while !rest.is_empty() {
            let count = stream::read(&socket, rest)?;
            rest = &mut rest[count.max(1)..];
        }
    }
    Ok(parsed)
}

/// Returns a header of version 2 for a connection that is passed on. Two addresses of different families are both written as
/// IPv6.
pub fn header(ends: &Ends) -> Vec<u8> {
    let mut header = [&SIGNATURE[..], &[0x21]].concat();
    match (ends.client.ip(), ends.server.ip()) {
        (IpAddr::V4(client), IpAddr::V4(server)) => {
            header.extend([0x11, 0, 12]);
            header.extend(client.octets());
            header.extend(server.octets());
        }
        (client, server) => {
            header.extend([0x21, 0, 36]);
            header.extend(mapped(client).octets());
            header.extend(mapped(server).octets());
        }
    }
    header.extend(ends.client.port().to_be_bytes());
    header.extend(ends.server.port().to_be_bytes());
    header
}

fn mapped(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

/// Version 1: `PROXY TCP4 192.0.2.7 203.0.113.1 51234 21`, or `PROXY UNKNOWN` and anything.
fn line(bytes: &[u8]) -> Result<Option<Header>, ProxyFault> {
    let Some(end) = bytes.iter().take(LINE).position(|&byte| byte == b'\n') else {
        return if bytes.len() < LINE { Ok(None) } else { Err(ProxyFault::TooLong) };
    };
    let text = bytes[..end].strip_suffix(b"\r").ok_or(ProxyFault::Address)?;
    let text = std::str::from_utf8(text.get(WORD.len()..).ok_or(ProxyFault::Family)?)
        .map_err(|_| ProxyFault::Family)?;
    let mut words = text.split(' ');
    let ip: fn(&str) -> Option<IpAddr> = match words.next() {
        Some("TCP4") => |word| word.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        Some("TCP6") => |word| word.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        Some("UNKNOWN") => return Ok(Some(Header { length: end + 1, ends: None })),
        _ => return Err(ProxyFault::Family),
    };
    let [client, server, from, to] = [(); 4].map(|()| words.next().unwrap_or_default());
    let ends = || {
        Some(Ends {
            client: plain(SocketAddr::new(ip(client)?, port(from)?)),
            server: plain(SocketAddr::new(ip(server)?, port(to)?)),
        })
    };
    match (ends(), words.next()) {
        (ends @ Some(_), None) => Ok(Some(Header { length: end + 1, ends })),
        _ => Err(ProxyFault::Address),
    }
}

/// A port as version 1 writes it: digits, and no zero before others.
fn port(word: &str) -> Option<u16> {
    let is_plain = word.bytes().all(|byte| byte.is_ascii_digit()) && (word == "0" || !word.starts_with('0'));
    word.parse().ok().filter(|_| is_plain)
}

/// Version 2: the signature, version and command, family, length; addresses; fields.
fn binary(bytes: &[u8]) -> Result<Option<Header>, ProxyFault> {
    let Some(&[command, family, high, low]) = bytes.get(SIGNATURE.len()..SIGNATURE.len() + 4) else {
        return Ok(None);
    };
    let is_local = match command {
        0x20 => true,
        0x21 => false,
        _ => return Err(ProxyFault::Version),
    };
    let begin = SIGNATURE.len() + 4;
    let length = begin + usize::from(u16::from_be_bytes([high, low]));
    if length > MOST {
        return Err(ProxyFault::TooLong);
    }
    let Some(whole) = bytes.get(..length) else { return Ok(None) };
    let body = &whole[begin..];
    let (ends, fields) = match family {
        // An address after `LOCAL` is ignored.
        _ if is_local => (None, addresses(family).unwrap_or(0)),
        0x00 => (None, 0),
        0x11 => (ends4(body), 12),
        0x21 => (ends6(body), 36),
        _ => return Err(ProxyFault::Family),
    };
    if ends.is_none() && !is_local && family != 0 {
        return Err(ProxyFault::Address);
    }
    if let Some(fields) = body.get(fields..) {
        check_fields(whole, fields)?;
    }
    Ok(Some(Header { length, ends }))
}

/// How long the addresses of a family are.
fn addresses(family: u8) -> Option<usize> {
    match family >> 4 {
        0 => Some(0),
        1 => Some(12),
        2 => Some(36),
        3 => Some(216),
        _ => None,
    }
}

fn ends4(body: &[u8]) -> Option<Ends> {
    let &[a, b, c, d, e, f, g, h, p, q, r, s] = body.first_chunk::<12>()?;
    Some(Ends {
        client: SocketAddr::from(([a, b, c, d], u16::from_be_bytes([p, q]))),
        server: SocketAddr::from(([e, f, g, h], u16::from_be_bytes([r, s]))),
    })
}

fn ends6(body: &[u8]) -> Option<Ends> {
    let (client, rest) = body.split_first_chunk::<16>()?;
    let (server, rest) = rest.split_first_chunk::<16>()?;
    let &[p, q, r, s] = rest.first_chunk::<4>()?;
    Some(Ends {
        client: plain(SocketAddr::from((*client, u16::from_be_bytes([p, q])))),
        server: plain(SocketAddr::from((*server, u16::from_be_bytes([r, s])))),
    })
}

/// The fields behind the addresses: each has a type, a length and that many bytes. Only the checksum is for us.
fn check_fields(whole: &[u8], fields: &[u8]) -> Result<(), ProxyFault> {
    let mut rest = fields;
    while !rest.is_empty() {
        let &[kind, high, low] = rest.first_chunk::<3>().ok_or(ProxyFault::Field)?;
        let length = usize::from(u16::from_be_bytes([high, low]));
        let value = rest.get(3..3 + length).ok_or(ProxyFault::Field)?;
        if kind == CRC32C {
            let sum = u32::from_be_bytes(value.try_into().map_err(|_| ProxyFault::Field)?);
            let at = whole.len() - rest.len() + 3;
            let bytes = whole.iter().enumerate();
            let counted = bytes.map(|(index, &byte)| if (at..at + 4).contains(&index) { 0 } else { byte });
            if crc32c(counted) != sum {
                return Err(ProxyFault::Checksum);
            }
        }
        rest = &rest[3 + length..];
    }
    Ok(())
}

/// The checksum of RFC 4960, appendix B. A header is short: no table is worth it.
fn crc32c(bytes: impl Iterator<Item = u8>) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 1 { (sum >> 1) ^ 0x82f6_3b78 } else { sum >> 1 };
    !bytes.fold(u32::MAX, |sum, byte| (0..8).fold(sum ^ u32::from(byte), step))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use proptest::prelude::*;

    use super::*;

    /// A header of either version.
    fn made(version: u8, ends: Ends) -> Vec<u8> {
        if version == 2 {
            return header(&ends);
        }
        let kind = if ends.client.is_ipv4() { "TCP4" } else { "TCP6" };
        let (client, server) = (ends.client, ends.server);
        let ips = format!("{} {}", client.ip(), server.ip());
        format!("PROXY {kind} {ips} {} {}\r\n", client.port(), server.port()).into_bytes()
    }

    fn second(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, body].concat()
    }

    fn addresses() -> impl Strategy<Value = Ends> {
        let four = any::<[(Ipv4Addr, u16); 2]>().prop_map(|[client, server]| Ends {
            client: SocketAddr::from(client),
            server: SocketAddr::from(server),
        });
        let six = any::<[(Ipv6Addr, u16); 2]>()
            .prop_filter("those are IPv4", |ends| ends.iter().all(|(ip, _)| ip.to_ipv4_mapped().is_none()))
            .prop_map(|[client, server]| Ends {
                client: SocketAddr::from(client),
                server: SocketAddr::from(server),
            });
        four.boxed().prop_union(six.boxed())
    }

    proptest! {
        #[test]
        fn a_header_says_what_was_put_in_however_it_is_cut_and_whatever_follows(
            version in 1..=2u8,
            ends in addresses(),
            behind in any::<Vec<u8>>(),
        ) {
            let mut bytes = made(version, ends);
            let length = bytes.len();
            for cut in 0..length {
                prop_assert_eq!(parse(&bytes[..cut]), Ok(None));
            }
            bytes.extend(behind);
            prop_assert_eq!(parse(&bytes), Ok(Some(Header { length, ends: Some(ends) })));
        }

        #[test]
        fn no_bytes_are_read_beyond_and_a_verdict_stays_whatever_follows(
            version in 1..=2u8,
            ends in addresses(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            fields in prop::collection::vec(any::<u8>(), 0..40),
            noise in any::<bool>(),
        ) {
            let mut bytes = made(version, ends);
            if version == 2 && noise {
                let body = [&bytes[16..], &fields].concat();
                bytes = second(0x21, bytes[13], &body);
            }
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let mut before = Ok(None);
            for cut in 0..=bytes.len() {
                let now = parse(&bytes[..cut]);
                if before != Ok(None) {
                    prop_assert_eq!(now, before);
                }
                if let Ok(Some(header)) = now {
                    prop_assert!(header.length <= cut);
                }
                before = now;
            }
        }

        #[test]
        fn anything_is_a_header_or_a_fault(bytes in any::<Vec<u8>>(), begin in 0..3usize) {
            let beginning: [&[u8]; 3] = [b"", WORD, SIGNATURE];
            let _ = parse(&[beginning[begin], &bytes[..]].concat());
        }
    }

    #[test]
    fn ends_of_two_families_are_what_they_were() {
        let ends = Ends {
            client: "[2001:db8::7]:51234".parse().unwrap(),
            server: "192.0.2.1:50000".parse().unwrap(),
        };
        let bytes = header(&ends);
        assert_eq!(parse(&bytes), Ok(Some(Header { length: bytes.len(), ends: Some(ends) })));
    }

    #[test]
    fn malformed_headers_are_refused() {
        let four = |rest: &str| format!("PROXY TCP4 {rest}\r\n").into_bytes();
        let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(LINE));
        for (bytes, fault) in [
            (b"USER anonymous\r\n".to_vec(), ProxyFault::Missing),
            (b"proxy TCP4 1.2.3.4 1.2.3.4 1 2\r\n".to_vec(), ProxyFault::Missing),
            (b"\r\n\r\n\0\r\nQUIT!".to_vec(), ProxyFault::Missing),
            (b"\x16\x03\x01\x02\x00".to_vec(), ProxyFault::Missing),
            (b"PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n".to_vec(), ProxyFault::Family),
            (b"PROXY \r\n".to_vec(), ProxyFault::Family),
            (b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n".to_vec(), ProxyFault::Address),
            (b"PROXY TCP6 1.2.3.4 ::1 1 2\r\n".to_vec(), ProxyFault::Address),
            (four("1.2.3.4 1.2.3.4 1"), ProxyFault::Address),
            (four("1.2.3.4 1.2.3.4 1 2 3"), ProxyFault::Address),
            (four("1.2.3.4  1.2.3.4 1 2"), ProxyFault::Address),
            (four("01.2.3.4 1.2.3.4 1 2"), ProxyFault::Address),
            (four("1.2.3.4 1.2.3.4 01 2"), ProxyFault::Address),
            (four("1.2.3.4 1.2.3.4 +1 2"), ProxyFault::Address),
            (four("1.2.3.4 1.2.3.4 65536 2"), ProxyFault::Address),
            (four("::1 ::1 1 2"), ProxyFault::Address),
            (long.into_bytes(), ProxyFault::TooLong),
            (second(0x11, 0x11, &[0; 12]), ProxyFault::Version),
            (second(0x22, 0x11, &[0; 12]), ProxyFault::Version),
            (second(0x21, 0x12, &[0; 12]), ProxyFault::Family),
            (second(0x21, 0x31, &[0; 216]), ProxyFault::Family),
            (second(0x21, 0x11, &[0; 11]), ProxyFault::Address),
            (second(0x21, 0x21, &[0; 35]), ProxyFault::Address),
            (second(0x21, 0x11, &[0; MOST]), ProxyFault::TooLong),
            (second(0x21, 0x11, &[[0; 12].as_slice(), &[4, 0, 9, 0]].concat()), ProxyFault::Field),
            (
                second(0x21, 0x11, &[[0; 12].as_slice(), &[3, 0, 4, 1, 2, 3, 4]].concat()),
                ProxyFault::Checksum,
            ),
            (second(0x21, 0x11, &[[0; 12].as_slice(), &[3, 0, 2, 1, 2]].concat()), ProxyFault::Field),
        ] {
            assert_eq!(parse(&bytes), Err(fault), "{}", String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn a_proxy_may_speak_for_itself_or_not_know_for_whom() {
        for bytes in [
            b"PROXY UNKNOWN\r\n".to_vec(),
            b"PROXY UNKNOWN ffff::1 whatever\r\n".to_vec(),
            second(0x20, 0x00, &[]),
            second(0x20, 0x11, &[1; 12]),
            second(0x21, 0x00, &[]),
        ] {
            assert_eq!(parse(&bytes), Ok(Some(Header { length: bytes.len(), ends: None })));
        }
    }

    #[test]
    fn an_ipv4_client_of_an_ipv6_proxy_is_an_ipv4_client() {
        let Ok(Some(header)) = parse(b"PROXY TCP6 ::ffff:192.0.2.7 ::ffff:192.0.2.1 1 2\r\n") else {
            panic!()
        };
        assert_eq!(header.ends.unwrap().client, "192.0.2.7:1".parse().unwrap());
    }

    #[test]
    fn a_checksum_is_that_of_the_header_with_zeros_in_its_place() {
        // The check value of the polynomial.
        assert_eq!(crc32c(b"123456789".iter().copied()), 0xe306_9283);
        let mut bytes =
            second(0x21, 0x11, &[[7; 12].as_slice(), &[4, 0, 1, 9, 3, 0, 4, 0, 0, 0, 0]].concat());
        let at = bytes.len() - 4;
        let sum = crc32c(bytes.iter().copied());
        bytes[at..].copy_from_slice(&sum.to_be_bytes());
        assert!(parse(&bytes).unwrap().is_some());
        bytes[20] ^= 1;
        assert_eq!(parse(&bytes), Err(ProxyFault::Checksum));
    }

    #[test]
    fn not_a_byte_behind_the_header_is_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        client.write_all(b"PROXY UNKNOWN\r").unwrap();
        assert!(stream::wait_readable(&socket, std::time::Duration::from_secs(30)));
        assert_eq!(take(&socket).unwrap(), Ok(None));
        client.write_all(b"\nUSER").unwrap();
        let header = loop {
            match take(&socket).unwrap() {
                Ok(Some(header)) => break header,
                other => assert_eq!(other, Ok(None)),
            }
        };
        assert_eq!(header, Header { length: 15, ends: None });
        let mut rest = [0; 4];
        socket.read_exact(&mut rest).unwrap();
        assert_eq!(&rest, b"USER");
        drop(client);
        assert!(stream::wait_readable(&socket, std::time::Duration::from_secs(30)));
        assert_eq!(take(&socket).unwrap(), Err(ProxyFault::Ended));
    }
}
