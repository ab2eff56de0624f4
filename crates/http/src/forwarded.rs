//! Who a proxy says that its client is: by `X-Forwarded-For` and `X-Forwarded-Proto`, or by `Forwarded` (RFC 7239). Only one of
//! them is believed: a proxy that adds to one passes the other on as its client wrote it.
//!
//! Each proxy on the way adds its client at the end, and cannot tell whether what stands before is true. So the list is
//! read from its end, for as long as it names proxies that are trusted. The first other address is the client. What
//! names no address (`unknown`, `_hidden`) ends the search: the client stays unknown, and is not the proxy itself.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::Head;

/// The client of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForwardedClient {
    /// Its address, or that of the proxy nearest to it that is named; the port is 0 where it is not said.
    pub address: Option<SocketAddr>,
    /// Whether the address is its own.
    pub is_known: bool,
    /// Whether its connection to the proxy is encrypted, where that is said.
    pub is_encrypted: Option<bool>,
}

/// The fields by which proxies name their client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ForwardingField {
    /// `X-Forwarded-For` and `X-Forwarded-Proto`.
    #[default]
    XForwardedFor,
    /// `Forwarded`.
    Forwarded,
}

/// Returns the client of the proxy that a request came from, where it says anything of one by this field.
pub fn client(
    head: &Head,
    field: ForwardingField,
    is_trusted: impl Fn(IpAddr) -> bool,
) -> Option<ForwardedClient> {
    let hops = match field {
        ForwardingField::Forwarded => hops(&values(head, "forwarded")?),
        ForwardingField::XForwardedFor => {
            let (nodes, protocols) = (values(head, "x-forwarded-for"), values(head, "x-forwarded-proto"));
            protocols.as_ref().or(nodes.as_ref())?;
            hops_by_custom(&nodes.unwrap_or_default(), protocols.as_deref())
        }
    };
    let mut client = ForwardedClient { address: None, is_known: false, is_encrypted: None };
    for hop in hops.iter().rev() {
        let found = hop.node.as_deref().and_then(address);
        client = ForwardedClient {
            address: found.or(client.address),
            is_known: found.is_some(),
            is_encrypted: hop.is_encrypted,
        };
        if !found.is_some_and(|address| is_trusted(address.ip())) {
            break;
        }
    }
    Some(client)
}

/// What one proxy says of its client.
#[derive(Debug, Default, PartialEq, Eq)]
struct Hop {
    /// An address, maybe with a port, or a word.
    node: Option<String>,
    is_encrypted: Option<bool>,
}

/// Returns the values of a field as the one list that they are (RFC 9110 section 5.3).
fn values(head: &Head, name: &str) -> Option<String> {
    let lines = head.fields().filter(|(other, _)| other.eq_ignore_ascii_case(name));
    let lines: Vec<_> = lines.map(|(_, value)| String::from_utf8_lossy(value)).collect();
    (!lines.is_empty()).then(|| lines.join(","))
}

/// Reads `for=192.0.2.7;proto=https, for="[2001:db8::7]:4711"`.
fn hops(list: &str) -> Vec<Hop> {
    split(list, ',').map(hop).collect()
}

fn hop(element: &str) -> Hop {
    let mut hop = Hop::default();
    for pair in split(element, ';') {
        let Some((name, value)) = pair.split_once('=') else { continue };
        let value = unquoted(value.trim());
        match name.trim().to_ascii_lowercase().as_str() {
            "for" => hop.node = Some(value),
            "proto" => hop.is_encrypted = is_encrypted(&value),
            _ => {}
        }
    }
    hop
}

/// Reads `X-Forwarded-For`. Where `X-Forwarded-Proto` has as many values each belongs to one address; a single value is the
/// client's own.
fn hops_by_custom(addresses: &str, protocols: Option<&str>) -> Vec<Hop> {
    let protocols: Vec<&str> = protocols.map_or(Vec::new(), |list| list.split(',').map(str::trim).collect());
    let nodes: Vec<&str> = addresses.split(',').map(str::trim).collect();
    let of = |place: usize| match protocols.len() {
        1 => protocols.first(),
        count if count == nodes.len() => protocols.get(place),
        _ => None,
    };
    let hop = |(place, node): (usize, &&str)| Hop {
        node: Some((*node).to_owned()),
        is_encrypted: of(place).and_then(|protocol| is_encrypted(protocol)),
    };
    nodes.iter().enumerate().map(hop).collect()
}

fn is_encrypted(protocol: &str) -> Option<bool> {
    match protocol.to_ascii_lowercase().as_str() {
        "https" | "wss" => Some(true),
        "http" | "ws" => Some(false),
        _ => None,
    }
}

/// Splits where a separator stands outside quotes.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.split(move |char: char| {
        let was_escaped = std::mem::take(&mut is_escaped);
        match char {
            '"' if !was_escaped => is_quoted = !is_quoted,
            '\\' if is_quoted && !was_escaped => is_escaped = true,
            _ => {}
        }
        char == separator && !is_quoted
    })
}

/// Returns a token, or what stands in a quoted string.
fn unquoted(text: &str) -> String {
    let Some(inner) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else {
        return text.to_owned();
    };
    let mut is_escaped = false;
    inner
        .chars()
        .filter(|char| {
            is_escaped = *char == '\\' && !is_escaped;
            !is_escaped
        })
        .collect()
}

/// Reads `192.0.2.7`, `192.0.2.7:4711`, `2001:db8::7`, `[2001:db8::7]` and `[2001:db8::7]:4711`.
fn address(node: &str) -> Option<SocketAddr> {
    let bare = node.strip_prefix('[').and_then(|node| node.strip_suffix(']'));
    let ip = match bare {
        Some(inner) => inner.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        None => node.parse::<IpAddr>().ok(),
    };
    let address = ip.map(|ip| SocketAddr::new(ip, 0)).or_else(|| node.parse().ok())?;
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request;

    /// What a head with these fields says, where 10.0.0.0/8 is trusted.
    fn told(fields: &str) -> Option<(String, Option<bool>)> {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let (head, _) = request::parse(head.as_bytes()).unwrap().unwrap();
        let is_trusted = |address: IpAddr| matches!(address, IpAddr::V4(v4) if v4.octets()[0] == 10);
        let field = match fields.starts_with("Forwarded") {
            true => ForwardingField::Forwarded,
            false => ForwardingField::XForwardedFor,
        };
        let client = client(&head, field, is_trusted)?;
        let address = client.address.map_or("-".to_owned(), |address| address.to_string());
        Some((format!("{address}{}", if client.is_known { "" } else { "?" }), client.is_encrypted))
    }

    #[test]
    fn the_client_is_the_last_that_is_no_trusted_proxy() {
        let plain = |address: &str| Some((address.to_owned(), None));
        let table = [
            ("", None),
            ("X-Forwarded-For: 192.0.2.7\r\n", plain("192.0.2.7:0")),
            // A client may have said the first.
            ("X-Forwarded-For: 198.51.100.1, 192.0.2.7\r\n", plain("192.0.2.7:0")),
            ("X-Forwarded-For: 192.0.2.7, 10.0.0.1\r\n", plain("192.0.2.7:0")),
            ("X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-For: 10.0.0.1\r\n", plain("192.0.2.7:0")),
            ("X-Forwarded-For: 10.0.0.2, 10.0.0.1\r\n", plain("10.0.0.2:0")),
            ("X-Forwarded-For: 192.0.2.7:4711\r\n", plain("192.0.2.7:4711")),
            ("X-Forwarded-For: 2001:db8::7\r\n", plain("[2001:db8::7]:0")),
            ("X-Forwarded-For: ::ffff:192.0.2.7\r\n", plain("192.0.2.7:0")),
            ("X-Forwarded-For: unknown\r\n", plain("-?")),
            ("X-Forwarded-For: 192.0.2.7, rubbish, 10.0.0.1\r\n", plain("10.0.0.1:0?")),
            ("X-Forwarded-For: \r\n", plain("-?")),
            ("Forwarded: for=192.0.2.7\r\nX-Forwarded-For: 192.0.2.8\r\n", plain("192.0.2.7:0")),
            ("X-Forwarded-For: 192.0.2.8\r\nForwarded: for=192.0.2.7\r\n", plain("192.0.2.8:0")),
            ("Forwarded: for=_hidden\r\n", plain("-?")),
            ("Forwarded: by=10.0.0.9\r\n", plain("-?")),
            ("Forwarded: For=\"[2001:db8::7]:4711\"\r\n", plain("[2001:db8::7]:4711")),
            ("Forwarded: for=\"192.0.2.8, for=192.0.2.7\r\n", plain("-?")),
        ];
        for (fields, expected) in table {
            assert_eq!(told(fields), expected, "{fields:?}");
        }
    }

    #[test]
    fn the_protocol_of_a_client_without_an_address_is_told() {
        let table = [
            ("X-Forwarded-Proto: http\r\n", "-?", Some(false)),
            ("X-Forwarded-For: unknown\r\nX-Forwarded-Proto: https\r\n", "-?", Some(true)),
            ("Forwarded: for=unknown;proto=http, for=10.0.0.1;proto=https\r\n", "10.0.0.1:0?", Some(false)),
        ];
        for (fields, address, expected) in table {
            assert_eq!(told(fields), Some((address.to_owned(), expected)), "{fields:?}");
        }
    }

    #[test]
    fn the_protocol_is_that_of_the_clients_own_connection() {
        let table = [
            ("X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\n", Some(true)),
            ("X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: HTTP\r\n", Some(false)),
            ("X-Forwarded-For: 192.0.2.7, 10.0.0.1\r\nX-Forwarded-Proto: https\r\n", Some(true)),
            ("X-Forwarded-For: 192.0.2.7, 10.0.0.1\r\nX-Forwarded-Proto: http, https\r\n", Some(false)),
            // Which of them belongs to whom is not said.
            ("X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https, http\r\n", None),
            ("Forwarded: for=192.0.2.7;proto=https, for=10.0.0.1;proto=http\r\n", Some(true)),
            ("Forwarded: for=192.0.2.7;proto=http, for=10.0.0.1;proto=https\r\n", Some(false)),
            ("Forwarded: for=192.0.2.7;host=\"a;proto=https\"\r\n", None),
            ("Forwarded: for=192.0.2.7;proto=\"https\"\r\nX-Forwarded-Proto: http\r\n", Some(true)),
        ];
        for (fields, expected) in table {
            assert_eq!(told(fields), Some(("192.0.2.7:0".to_owned(), expected)), "{fields:?}");
        }
    }
}
