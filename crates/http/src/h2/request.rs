//! The head of a request, as both versions of HTTP have it, from the fields of a stream (RFC 9113 section 8.3.1).

use super::fields::{Fields, Pseudo};
use crate::request::{Head, MAX_REQUEST_LINE, Refusal};
use crate::{Framing, Status};

/// Reads the head of a request from fields that were found well-formed, in place of what was in `head`; `ends`: no body
/// follows. The same is refused that is in HTTP/1.1.
///
/// The authority stands for `Host`, several cookies are one field, and a stream is open for its body without being told
/// (`Expect`). A body of unknown length is framed as a chunked one is: its end is told.
pub(super) fn read(fields: &Fields, ends: bool, head: &mut Head) -> Result<(), Refusal> {
    let refuse = |status, reason| Err(Refusal { status, reason });
    let method = fields.pseudo(Pseudo::Method).unwrap_or_default();
    let Some(method) = str::from_utf8(method).ok().filter(|method| is_token(method)) else {
        return refuse(Status::BAD_REQUEST, "The method is malformed.");
    };
    let Some(path) = fields.pseudo(Pseudo::Path) else {
        return refuse(Status::NOT_IMPLEMENTED, "There are no tunnels here.");
    };
    let is_path = path.starts_with(b"/") || (path == b"*" && method == "OPTIONS");
    if !is_path || path.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) {
        return refuse(Status::BAD_REQUEST, "The path is malformed.");
    }
    if path.len() > MAX_REQUEST_LINE {
        return refuse(Status::URI_TOO_LONG, "The path is longer than 8 KiB.");
    }
    head.begin(method, path);
    let authority = fields.pseudo(Pseudo::Authority);
    if let Some(authority) = authority {
        head.add("host", authority)?;
    }
    let mut cookies = Vec::new();
    for (name, value) in fields.iter() {
        match str::from_utf8(name).unwrap_or_default() {
            "host" if authority.is_some() => {}
            "expect" => {}
            "cookie" => {
                cookies.extend_from_slice(if cookies.is_empty() { b"" } else { b"; " });
                cookies.extend_from_slice(value);
            }
            name => head.add(name, value)?,
        }
    }
    if !cookies.is_empty() {
        head.add("cookie", &cookies)?;
    }
    head.complete(if ends { Framing::None } else { Framing::Chunked })
}

fn is_token(text: &str) -> bool {
    let is_mark = |byte| b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || is_mark(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Field, Method};

    fn read_all(lines: &[(&str, &str)], ends: bool) -> Result<Head, u16> {
        let (mut fields, mut head) = (Fields::new(100_000), Head::default());
        lines.iter().for_each(|(name, value)| _ = fields.push(name.as_bytes(), value.as_bytes()));
        read(&fields, ends, &mut head).map(|()| head).map_err(|refusal| refusal.status.0)
    }

    fn with(method: &str, path: &str, more: &[(&str, &str)]) -> Result<Head, u16> {
        let pseudo = [(":method", method), (":scheme", "https"), (":path", path)];
        read_all(&[&pseudo, more].concat(), true)
    }

    #[test]
    fn a_head_says_the_same_as_one_of_http_1() {
        let more = [
            (":authority", "example.org:80"),
            ("host", "other"),
            ("cookie", "a=1"),
            ("range", "bytes=0-1"),
            ("accept", "a"),
            ("cookie", "b=2"),
            ("accept", "b"),
            ("expect", "100-continue"),
        ];
        let head = with("GET", "/a?b", &more).unwrap();
        let text =
            b"GET /a?b HTTP/1.1\r\nhost: example.org:80\r\nrange: bytes=0-1\r\naccept: a\r\naccept: b\r\n\
                     cookie: a=1; b=2\r\n\r\n";
        let same = crate::request::parse(text).unwrap().unwrap().0;
        let parts = |head: &Head| {
            let fields: Vec<_> =
                head.fields().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            (
                head.method,
                head.target().to_owned(),
                head.framing,
                head.persistent,
                head.expects_continue,
                fields,
            )
        };
        assert_eq!(parts(&head), parts(&same));
        assert_eq!((head.method, head.get(Field::Host)), (Method::Get, Some(&b"example.org:80"[..])));
        assert_eq!(head.all(Field::Accept).collect::<Vec<_>>(), [b"a", b"b"]);
    }

    #[test]
    fn a_body_is_as_long_as_is_said_or_ends_where_it_is_told() {
        let put = [(":method", "PUT"), (":scheme", "https"), (":path", "/"), (":authority", "h")];
        assert_eq!(read_all(&put, false).unwrap().framing, Framing::Chunked);
        assert_eq!(read_all(&put, true).unwrap().framing, Framing::None);
        let sized = [&put[..], &[("content-length", "3")]].concat();
        assert_eq!(read_all(&sized, false).unwrap().framing, Framing::Length(3));
    }

    #[test]
    fn what_http_1_refuses_is_refused() {
        let host = (":authority", "h");
        for (method, path, more, status) in [
            ("GET", "/", &[][..], 400),
            ("GET", "/", &[(":authority", "a b")], 400),
            ("GET", "/ HTTP/1.1", &[host], 400),
            ("GET", "a", &[host], 400),
            ("GET", "*", &[host], 400),
            ("G T", "/", &[host], 400),
            ("GET", "/", &[host, ("range", "a"), ("range", "b")], 400),
            ("PUT", "/", &[host, ("content-length", "99999999999999999999")], 400),
        ] {
            assert_eq!(with(method, path, more).err(), Some(status), "{method} {path} {more:?}");
        }
        assert!(with("OPTIONS", "*", &[host]).is_ok() && with("GET", "/", &[("host", "h")]).is_ok());
        assert_eq!(read_all(&[(":method", "CONNECT"), host], true).err(), Some(501));
        assert_eq!(with("GET", &format!("/{}", "x".repeat(9000)), &[host]).err(), Some(414));
        let many: Vec<(&str, &str)> =
            std::iter::once(host).chain(std::iter::repeat_n(("a", "b"), 70)).collect();
        assert_eq!(with("GET", "/", &many).err(), Some(431));
    }
}
