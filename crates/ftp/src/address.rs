//! The ways in which FTP names an address: `PORT`/`PASV` (RFC 959), `EPRT`/`EPSV` (RFC 2428),
//! `LPRT`/`LPSV` (RFC 1639). Both directions, so that the client twin uses the same code.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Parses the six numbers of `PORT` and of a 227 reply: `h1,h2,h3,h4,p1,p2`.
pub fn parse_port(argument: &[u8]) -> Option<SocketAddr> {
    let [h1, h2, h3, h4, p1, p2] = numbers::<6>(argument)?;
    Some(SocketAddr::from(([h1, h2, h3, h4], u16::from_be_bytes([p1, p2]))))
}

/// Writes an IPv4 address and port as `h1,h2,h3,h4,p1,p2`.
pub fn format_port(address: Ipv4Addr, port: u16) -> String {
    let [h1, h2, h3, h4] = address.octets();
    let [p1, p2] = port.to_be_bytes();
    format!("{h1},{h2},{h3},{h4},{p1},{p2}")
}

/// Why an `EPRT` argument cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtendedError {
    /// Not of the form `<d>proto<d>address<d>port<d>`.
    Malformed,
    /// A network protocol other than 1 (IPv4) and 2 (IPv6): reply 522.
    Family,
}

/// Parses `EPRT`'s `|1|132.235.1.2|6275|` or `|2|1080::8:800:200C:417A|5282|`.
pub fn parse_extended(argument: &[u8]) -> Result<SocketAddr, ExtendedError> {
    use ExtendedError::Malformed;
    let text = std::str::from_utf8(argument).map_err(|_| Malformed)?;
    let delimiter =
        text.chars().next().filter(|c| ('!'..='~').contains(c) && !c.is_ascii_digit()).ok_or(Malformed)?;
    let fields: Vec<&str> = text.split(delimiter).collect();
    let ["", family, address, port, ""] = fields[..] else { return Err(Malformed) };
    let port = decimal(port).ok_or(Malformed)?;
    let address: IpAddr = match family {
        "1" => address.parse::<Ipv4Addr>().map_err(|_| Malformed)?.into(),
        "2" => address.parse::<Ipv6Addr>().map_err(|_| Malformed)?.into(),
        _ if !family.is_empty() && family.bytes().all(|byte| byte.is_ascii_digit()) => {
            return Err(ExtendedError::Family);
        }
        _ => return Err(Malformed),
    };
    Ok(SocketAddr::new(address, port))
}

/// Writes an address as the argument of `EPRT`.
pub fn format_extended(address: SocketAddr) -> String {
    let family = if address.is_ipv4() { 1 } else { 2 };
    format!("|{family}|{}|{}|", address.ip(), address.port())
}

/// Parses the port out of a 229 reply's text: `Entering Extended Passive Mode (|||6446|)`.
pub fn parse_extended_passive(text: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(text).ok()?;
    let inside = text.split_once('(')?.1.split_once(')')?.0;
    let delimiter = inside.chars().next()?;
    let fields: Vec<&str> = inside.split(delimiter).collect();
    let ["", "", "", port, ""] = fields[..] else { return None };
    decimal(port)
}

/// Parses the address out of a 227 reply's text, with or without parentheses.
pub fn parse_passive(text: &[u8]) -> Option<SocketAddr> {
    let start = text
        .windows(2)
        .position(|pair| pair[0].is_ascii_digit() && (pair[1].is_ascii_digit() || pair[1] == b','))?;
    let numbers = &text[start..];
    let end =
        numbers.iter().position(|byte| !byte.is_ascii_digit() && *byte != b',').unwrap_or(numbers.len());
    parse_port(&numbers[..end])
}

/// Parses `LPRT`'s `4,4,h1,h2,h3,h4,2,p1,p2` and `6,16,h1,...,h16,2,p1,p2`.
pub fn parse_long(argument: &[u8]) -> Result<SocketAddr, ExtendedError> {
    use ExtendedError::Malformed;
    if let Some([4, 4, h1, h2, h3, h4, 2, p1, p2]) = numbers::<9>(argument) {
        return Ok(SocketAddr::from(([h1, h2, h3, h4], u16::from_be_bytes([p1, p2]))));
    }
    match numbers::<21>(argument) {
        Some([6, 16, address @ .., 2, p1, p2]) => {
            let address: [u8; 16] = address;
            Ok(SocketAddr::from((address, u16::from_be_bytes([p1, p2]))))
        }
        _ if !argument.starts_with(b"4,")
            && !argument.starts_with(b"6,")
            && argument.first().is_some_and(u8::is_ascii_digit) =>
        {
            Err(ExtendedError::Family)
        }
        _ => Err(Malformed),
    }
}

/// Writes an address as `LPRT` and 228 replies have it.
pub fn format_long(address: SocketAddr) -> String {
    let octets = match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let family = if address.is_ipv4() { 4 } else { 6 };
    let mut fields = vec![family, octets.len() as u8];
    fields.extend(octets);
    fields.push(2);
    fields.extend(address.port().to_be_bytes());
    fields.iter().map(u8::to_string).collect::<Vec<_>>().join(",")
}

/// Exactly `N` comma-separated numbers of at most 255.
fn numbers<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let text = std::str::from_utf8(text).ok()?;
    let mut numbers = [0; N];
    let mut fields = text.split(',');
    for number in &mut numbers {
        *number = decimal(fields.next()?)?;
    }
    fields.next().is_none().then_some(numbers)
}

/// Digits only: `str::parse` would take a sign as well.
fn decimal<T: std::str::FromStr>(text: &str) -> Option<T> {
    (text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn port_takes_six_octets_and_nothing_else() {
        assert_eq!(parse_port(b"127,0,0,1,4,1"), Some("127.0.0.1:1025".parse().unwrap()));
        for bad in [
            "",
            "1,2,3,4,5",
            "1,2,3,4,5,6,7",
            "1,2,3,4,5,256",
            "1,2,3,4,5,-6",
            "1,2,3,4,5,+6",
            "1,2,3,4,5, 6",
            "a,2,3,4,5,6",
            "1,2,3,4,5,0000000006",
        ] {
            assert_eq!(parse_port(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn extended_refuses_what_is_no_address() {
        assert_eq!(parse_extended(b"|3|x|1|"), Err(ExtendedError::Family));
        for bad in [
            "",
            "|1|127.0.0.1|99999|",
            "|1|127.0.0.1|21",
            "|1|::1|21|",
            "|2|127.0.0.1|21|",
            "1|127.0.0.1|21|",
            "|1|127.0.0.1|21||",
            "||127.0.0.1|21|",
            "|1|127.0.0.1|-1|",
            "\u{e9}1\u{e9}127.0.0.1\u{e9}21\u{e9}",
        ] {
            assert_eq!(parse_extended(bad.as_bytes()), Err(ExtendedError::Malformed), "{bad}");
        }
    }

    #[test]
    fn passive_replies_parse_in_the_forms_that_servers_send() {
        let address = Some("10.0.0.1:1025".parse().unwrap());
        for text in
            ["Entering Passive Mode (10,0,0,1,4,1).", "Entering Passive Mode 10,0,0,1,4,1", "=10,0,0,1,4,1"]
        {
            assert_eq!(parse_passive(text.as_bytes()), address, "{text}");
        }
        assert_eq!(parse_extended_passive(b"Entering Extended Passive Mode (|||6446|)"), Some(6446));
        assert_eq!(parse_extended_passive(b"(|||99999|)"), None);
    }

    proptest! {
        #[test]
        fn every_form_round_trips(v6: bool, octets: [u8; 16], port: u16) {
            let ip: IpAddr = if v6 { octets.into() } else { [octets[0], octets[1], octets[2], octets[3]].into() };
            let address = SocketAddr::new(ip, port);
            prop_assert_eq!(parse_extended(format_extended(address).as_bytes()), Ok(address));
            prop_assert_eq!(parse_long(format_long(address).as_bytes()), Ok(address));
            if let IpAddr::V4(ip) = ip {
                prop_assert_eq!(parse_port(format_port(ip, port).as_bytes()), Some(address));
            }
        }

        #[test]
        fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..50)) {
            let _ = (parse_port(&bytes), parse_extended(&bytes), parse_long(&bytes), parse_passive(&bytes), parse_extended_passive(&bytes));
        }
    }
}
