//! Requests that lead to others within the server: a `Location` of a program (RFC 3875 section 6.2.2), and a folder
//! whose index answers in its place.

use crate::request::{Field, Head, Method, Refusal, Version};
use crate::response::Persistence;
use crate::{Status, request};

/// How often a request may lead to another.
pub const MAX_REDIRECTS: u8 = 5;

/// Fields that tell of the body, which the new request has not, and those that are written anew.
const LEFT_OUT: [&str; 6] =
    ["content-length", "content-type", "transfer-encoding", "expect", "connection", "host"];

/// The request for `path`, to which the answer to `head` leads: a `GET`, or a `HEAD`, with the fields of that request
/// but for those of its body. An error where the path cannot stand in a request line.
pub fn to_location(head: &Head, path: &[u8], persistence: Persistence) -> Result<Head, Refusal> {
    if !path.iter().all(|byte| matches!(byte, 0x21..=0x7e)) {
        return Err(Refusal { status: Status::BAD_GATEWAY, reason: "The location is invalid." });
    }
    let method = if head.method == Method::Head { "HEAD" } else { "GET" };
    let mut text = request_line(method, path, head.version);
    // The host that counts may have been that of the target.
    if let Some(host) = head.get(Field::Host) {
        push_field("Host", host, &mut text);
    }
    for (name, value) in head.fields() {
        if !LEFT_OUT.iter().any(|out| out.eq_ignore_ascii_case(name)) {
            push_field(name, value, &mut text);
        }
    }
    let connection: &[u8] = match persistence {
        Persistence::Close => b"close",
        Persistence::Implied | Persistence::Told | Persistence::Stream => b"keep-alive",
    };
    push_field("Connection", connection, &mut text);
    text.extend_from_slice(b"\r\n");
    read(&text, head.version)
}

/// The same request for another path, with its body: `target` is the path and the query as they are written in a
/// request line, `authority` that of the first target, where it had one.
pub fn to_index(head: &Head, target: &[u8], authority: Option<&[u8]>) -> Result<Head, Refusal> {
    let mut text = request_line(head.method_text(), target, head.version);
    // An authority in the target goes before the field.
    if let Some(authority) = authority {
        push_field("Host", authority, &mut text);
    }
    for (name, value) in head.fields() {
        if authority.is_none() || !name.eq_ignore_ascii_case("host") {
            push_field(name, value, &mut text);
        }
    }
    text.extend_from_slice(b"\r\n");
    read(&text, head.version)
}

fn request_line(method: &str, target: &[u8], version: Version) -> Vec<u8> {
    let version: &[u8] = match version {
        Version::Http11 | Version::Http2 => b"HTTP/1.1",
        Version::Http10 => b"HTTP/1.0",
    };
    [method.as_bytes(), b" ", target, b" ", version, b"\r\n"].concat()
}

fn push_field(name: &str, value: &[u8], text: &mut Vec<u8>) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        text.extend_from_slice(part);
    }
}

/// Reads a head that was written here for a client of this version.
fn read(text: &[u8], version: Version) -> Result<Head, Refusal> {
    match request::parse(text)? {
        Some((mut head, _)) => {
            head.version = version;
            Ok(head)
        }
        None => Err(Refusal { status: Status::BAD_GATEWAY, reason: "The request leads to none." }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Framing;

    fn head(text: &str) -> Head {
        request::parse(text.as_bytes()).unwrap().unwrap().0
    }

    #[test]
    fn a_location_is_asked_for_without_a_body() {
        let posted = head(
            "POST http://other/cgi/x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\
             Content-Type: a/b\r\nAccept: c/d\r\n\r\n",
        );
        let led = to_location(&posted, b"/a?b", Persistence::Implied).unwrap();
        assert_eq!((led.method, led.target(), led.framing), (Method::Get, &b"/a?b"[..], Framing::None));
        assert_eq!((led.get(Field::Host), led.get(Field::Accept)), (Some(&b"other"[..]), Some(&b"c/d"[..])));
        assert!(led.persistent && !led.expects_continue && led.get(Field::ContentType).is_none());
        assert!(!to_location(&posted, b"/a", Persistence::Close).unwrap().persistent);
        assert!(to_location(&posted, b"/a b", Persistence::Implied).is_err());
        assert!(to_location(&posted, b"/a\r\nX: y", Persistence::Implied).is_err());
    }

    #[test]
    fn an_index_is_asked_with_the_body_of_the_request() {
        let posted = head("POST http://o/f/ HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n");
        let led = to_index(&posted, b"/f/index.php?q", Some(b"o")).unwrap();
        assert_eq!((led.method, led.target()), (Method::Post, &b"/f/index.php?q"[..]));
        assert_eq!((led.framing, led.get(Field::Host)), (Framing::Length(3), Some(&b"o"[..])));
    }
}
