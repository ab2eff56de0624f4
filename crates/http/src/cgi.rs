//! CGI/1.1 (RFC 3875): the variables that describe a request to a program, and the meaning of its answer.
//!
//! The invariant: nothing of a client reaches a variable that means something else to a program. A field becomes
//! `HTTP_` and its name; `Proxy`, which would become the variable that libraries take their proxy from
//! (CVE-2016-5385), is left out, and so is a name with an underscore, which could pass for another with a hyphen.

use std::fmt::Display;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};

use crate::{Field, Framing, Head, Status};

/// Bytes of the head of a program's answer at most.
pub const MAX_HEAD: usize = 32 * 1024;

/// Variables: `NAME=value`, each ended by a NUL byte, as `execve` has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment(Vec<u8>);

impl Default for Environment {
    fn default() -> Self {
        Self(Vec::with_capacity(1024))
    }
}

impl Environment {
    /// Adds a variable. A value with a NUL byte is left out with its variable, since no program could have it.
    pub fn set(&mut self, name: &str, value: &[u8]) {
        self.put(name, |bytes| bytes.extend_from_slice(value));
    }

    /// The same for a value that is formatted.
    fn show(&mut self, name: &str, value: impl Display) {
        // A vector takes all that is written to it.
        self.put(name, |bytes| _ = write!(bytes, "{value}"));
    }

    fn put(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.0.len();
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(b'=');
        write(&mut self.0);
        match memchr::memchr(0, &self.0[start..]) {
            None => self.0.push(0),
            Some(_) => self.0.truncate(start),
        }
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.split(|&byte| byte == 0).filter_map(|variable| {
            let equals = memchr::memchr(b'=', variable)?;
            Some((&variable[..equals], &variable[equals + 1..]))
        })
    }

    /// All of them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The facts about a request beside its head.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The program's path, as clients name it, decoded.
    pub script: &'a [u8],
    /// The rest of the path after the program, decoded; may be empty.
    pub path_info: &'a [u8],
    /// Where that would lie in the file system.
    pub path_translated: Option<&'a [u8]>,
    /// The text after the question mark, undecoded.
    pub query: &'a [u8],
    /// The user, if one has logged in.
    pub user: Option<&'a [u8]>,
    /// The client's address.
    pub peer: IpAddr,
    /// Where it connected to.
    pub local: SocketAddr,
    /// Whether the connection is encrypted.
    pub encrypted: bool,
    /// The client's protocol: `HTTP/1.1`, `HTTP/2.0`...
    pub protocol: &'a str,
}

/// The environment of a program (RFC 3875 section 4.1), but for `PATH`, which is the server's to choose.
pub fn environment(head: &Head, request: &Request<'_>) -> Environment {
    let mut variables = Environment::default();
    variables.set("GATEWAY_INTERFACE", b"CGI/1.1");
    variables.set("SERVER_SOFTWARE", concat!("Millrace/", env!("CARGO_PKG_VERSION")).as_bytes());
    variables.set("SERVER_PROTOCOL", request.protocol.as_bytes());
    match head.get(Field::Host) {
        Some(host) => variables.set("SERVER_NAME", host_name(host)),
        None => variables.show("SERVER_NAME", request.local.ip()),
    }
    variables.show("SERVER_PORT", request.local.port());
    variables.set("REQUEST_METHOD", head.method_text().as_bytes());
    variables.set("QUERY_STRING", request.query);
    variables.set("SCRIPT_NAME", request.script);
    if !request.path_info.is_empty() {
        variables.set("PATH_INFO", request.path_info);
        if let Some(path) = request.path_translated {
            variables.set("PATH_TRANSLATED", path);
        }
    }
    variables.show("REMOTE_ADDR", request.peer);
    variables.show("REMOTE_HOST", request.peer);
    if let Some(user) = request.user {
        variables.set("AUTH_TYPE", b"Basic");
        variables.set("REMOTE_USER", user);
    }
    if let Framing::Length(length) = head.framing {
        variables.show("CONTENT_LENGTH", length);
    }
    if let Some(media_type) = head.get(Field::ContentType) {
        variables.set("CONTENT_TYPE", media_type);
    }
    // Not in the RFC, but what programs look for.
    if request.encrypted {
        variables.set("HTTPS", b"on");
    }
    for (at, (name, _)) in head.fields().enumerate() {
        let is_first = !head.fields().take(at).any(|(earlier, _)| earlier.eq_ignore_ascii_case(name));
        if is_first && is_told(name) {
            add_field(&mut variables, head, name);
        }
    }
    variables
}

/// `Host` without its port.
fn host_name(host: &[u8]) -> &[u8] {
    let port = host.iter().rposition(|&byte| byte == b':');
    let is_port = |at: usize| host[at + 1..].iter().all(u8::is_ascii_digit);
    match port {
        Some(at) if is_port(at) => &host[..at],
        _ => host,
    }
}

/// Returns whether a field becomes a variable.
fn is_told(name: &str) -> bool {
    // Those have a variable of their own, are about the connection, or are a secret.
    const LEFT_OUT: [&str; 9] = [
        "proxy",
        "authorization",
        "proxy-authorization",
        "content-length",
        "content-type",
        "connection",
        "keep-alive",
        "transfer-encoding",
        "expect",
    ];
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    is_plain && !LEFT_OUT.iter().any(|out| out.eq_ignore_ascii_case(name))
}

/// A field of the head as `HTTP_*` (RFC 3875 section 4.1.18); several lines of one become a list.
fn add_field(variables: &mut Environment, head: &Head, name: &str) {
    let letter = |letter: char| if letter == '-' { '_' } else { letter.to_ascii_uppercase() };
    let variable: String = "HTTP_".chars().chain(name.chars().map(letter)).collect();
    if name.eq_ignore_ascii_case("host") {
        // The host that was asked for, which a target in absolute form names.
        return variables.set(&variable, head.get(Field::Host).unwrap_or_default());
    }
    let separator: &[u8] = if variable == "HTTP_COOKIE" { b"; " } else { b", " };
    let lines = head.fields().filter(|(other, _)| other.eq_ignore_ascii_case(name));
    variables.put(&variable, |bytes| {
        for (at, (_, value)) in lines.enumerate() {
            bytes.extend_from_slice(if at == 0 { b"" } else { separator });
            bytes.extend_from_slice(value);
        }
    });
}

/// A program's answer (RFC 3875 section 6.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A document, or a redirect that the client is to follow.
    Document {
        /// Its status.
        status: Status,
        /// The length of the body, where the program says so.
        length: Option<u64>,
        /// The lines of its head that are passed on, each with its CR LF.
        lines: Vec<u8>,
    },
    /// The answer is that to a `GET` of this path and query, of this server.
    LocalRedirect(Vec<u8>),
}

/// The head of a program's answer is not what the RFC asks for: 502, and this for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// Takes the head of a program's answer apart: what it means, and its length; `None` where more has to come.
pub fn parse(output: &[u8]) -> Result<Option<(Answer, usize)>, Malformed> {
    let Some(length) = head_length(output) else {
        return match output.len() < MAX_HEAD {
            true => Ok(None),
            false => Err(Malformed("the head of its answer is too long")),
        };
    };
    let (mut status, mut location, mut has_type, mut body_length) = (None, None, false, None);
    let mut lines = Vec::new();
    for line in output[..length].split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        let (name, value) = field(line)?;
        match name.to_ascii_lowercase().as_slice() {
            b"status" => status = Some(parse_status(value)?),
            b"location" => location = Some(value),
            b"content-length" => {
                let length = crate::request::decimal(value);
                let length = length.ok_or(Malformed("its Content-Length is not a number"))?;
                if body_length.replace(length).is_some_and(|other| other != length) {
                    return Err(Malformed("it has two lengths"));
                }
            }
            // Those are between the client and this server.
            b"connection"
            | b"keep-alive"
            | b"transfer-encoding"
            | b"date"
            | b"server"
            | b"upgrade"
            | b"proxy-authenticate"
            | b"trailer" => {}
            lowercase => {
                has_type |= lowercase == b"content-type";
                lines.extend_from_slice(&[name, b": ", value, b"\r\n"].concat());
            }
        }
    }
    if let (Some(path), None) = (location, &status)
        && path.starts_with(b"/")
        && !path.starts_with(b"//")
        && !has_type
    {
        return Ok(Some((Answer::LocalRedirect(path.to_vec()), length)));
    }
    if let Some(url) = location {
        lines.extend_from_slice(&[b"Location: ", url, b"\r\n"].concat());
    } else if !has_type && status.is_none() {
        return Err(Malformed("its answer has neither Content-Type nor Location nor Status"));
    }
    let default = if location.is_some() { Status::FOUND } else { Status::OK };
    let status = status.unwrap_or(default);
    Ok(Some((Answer::Document { status, length: body_length, lines }, length)))
}

/// The status of an answer that a program writes as it goes to the client, and how long its head is: `None` where more
/// has to come.
pub fn parse_raw(output: &[u8]) -> Option<(Option<Status>, usize)> {
    let length = head_length(output).or((output.len() >= MAX_HEAD).then_some(0))?;
    // `HTTP/1.1 200 OK`
    let code = output.starts_with(b"HTTP/").then(|| output.split(|&byte| byte == b' ').nth(1)).flatten();
    let code = code.and_then(|code| crate::request::decimal(code.get(..3)?));
    let status = code.and_then(|code| u16::try_from(code).ok()).filter(|code| (100..=599).contains(code));
    Some((status.map(Status), length))
}

/// Up to and with the empty line.
fn head_length(output: &[u8]) -> Option<usize> {
    let output = &output[..output.len().min(MAX_HEAD)];
    let mut start = 0;
    for at in memchr::memchr_iter(b'\n', output) {
        if matches!(&output[start..at], b"" | b"\r") {
            return Some(at + 1);
        }
        start = at + 1;
    }
    None
}

fn field(line: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let at = memchr::memchr(b':', line).ok_or(Malformed("a line of its head has no colon"))?;
    let (name, value) = (&line[..at], line[at + 1..].trim_ascii());
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    if name.is_empty() || !name.iter().all(is_token) {
        return Err(Malformed("a line of its head has no name"));
    }
    if value.iter().any(|byte| matches!(byte, 0..=8 | 10..=31 | 127)) {
        return Err(Malformed("a line of its head has a control character"));
    }
    Ok((name, value))
}

/// `404 Not here`; the words mean nothing (RFC 9110 section 15.1), and the number's own are sent.
fn parse_status(value: &[u8]) -> Result<Status, Malformed> {
    let (code, words) = value.split_at(value.len().min(3));
    let code = crate::request::decimal(code).and_then(|code| u16::try_from(code).ok());
    match code {
        Some(code @ 200..=599) if matches!(words, [] | [b' ', ..]) => Ok(Status(code)),
        _ => Err(Malformed("its Status is no number from 200 to 599")),
    }
}

/// Returns whether a program writes its answer as it goes to the client (RFC 3875 section 5).
pub fn is_non_parsed(name: &[u8]) -> bool {
    name.starts_with(b"nph-")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn variables(text: &str) -> Vec<(String, String)> {
        let (head, _) = crate::request::parse(text.as_bytes()).unwrap().unwrap();
        let request = Request {
            script: b"/cgi-bin/x",
            path_info: b"/a b",
            path_translated: Some(b"/srv/a b"),
            query: b"q=%20&r",
            user: Some(b"alice"),
            peer: "192.0.2.1".parse().unwrap(),
            local: "192.0.2.9:8080".parse().unwrap(),
            encrypted: false,
            protocol: "HTTP/1.1",
        };
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        environment(&head, &request).iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn the_environment_is_the_one_of_the_rfc() {
        let variables = variables(
            "POST /cgi-bin/x/a%20b?q=%20&r HTTP/1.1\r\nHost: example.org:8080\r\nContent-Length: 5\r\n\
             Content-Type: text/plain\r\nAuthorization: Basic x\r\nProxy: evil:1\r\nProxy_: evil\r\n\
             X-Two: a\r\nX-Two: b\r\nX_Two: c\r\nCookie: a=1\r\nCookie: b=2\r\nConnection: keep-alive\r\n\r\n",
        );
        let mut variables: Vec<String> =
            variables.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        variables.sort();
        let expected = [
            "AUTH_TYPE=Basic",
            "CONTENT_LENGTH=5",
            "CONTENT_TYPE=text/plain",
            "GATEWAY_INTERFACE=CGI/1.1",
            "HTTP_COOKIE=a=1; b=2",
            "HTTP_HOST=example.org:8080",
            "HTTP_X_TWO=a, b",
            "PATH_INFO=/a b",
            "PATH_TRANSLATED=/srv/a b",
            "QUERY_STRING=q=%20&r",
            "REMOTE_ADDR=192.0.2.1",
            "REMOTE_HOST=192.0.2.1",
            "REMOTE_USER=alice",
            "REQUEST_METHOD=POST",
            "SCRIPT_NAME=/cgi-bin/x",
            "SERVER_NAME=example.org",
            "SERVER_PORT=8080",
            "SERVER_PROTOCOL=HTTP/1.1",
            concat!("SERVER_SOFTWARE=Millrace/", env!("CARGO_PKG_VERSION")),
        ];
        assert_eq!(variables, expected);
    }

    #[test]
    fn a_value_that_no_program_could_have_is_left_out() {
        let mut variables = Environment::default();
        variables.set("A", b"1=2");
        variables.set("B", b"x\0C=3");
        variables.set("D", b"");
        let all: Vec<_> = variables.iter().collect();
        assert_eq!(all, [(&b"A"[..], &b"1=2"[..]), (b"D", b"")]);
        assert_eq!(variables.as_bytes(), b"A=1=2\0D=\0");
    }

    fn document(output: &str) -> (u16, Option<u64>, String) {
        match parse(output.as_bytes()).unwrap().unwrap().0 {
            Answer::Document { status, length, lines } => {
                (status.0, length, String::from_utf8(lines).unwrap())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn answers_mean_what_the_rfc_says() {
        let html = "Content-Type: text/html\r\n".to_owned();
        assert_eq!(document("Content-Type: text/html\n\nx"), (200, None, html.clone()));
        assert_eq!(document("content-type:text/html\r\n\r\n").2, "content-type: text/html\r\n");
        assert_eq!(document("Content-Type: text/html\nContent-Length: 3\n\nabc"), (200, Some(3), html));
        assert_eq!(document("Status: 404 Not here\nContent-Type: a/b\n\n").0, 404);
        let (status, _, lines) = document("Location: http://h/x\n\n");
        assert_eq!((status, lines.as_str()), (302, "Location: http://h/x\r\n"));
        assert_eq!(document("Status: 301\nLocation: /x\n\n").0, 301);
        // Another host is not a path of ours.
        assert_eq!(document("Location: //evil/x\n\n").0, 302);
        let local = parse(b"Location: /a?b\n\nrest").unwrap();
        assert_eq!(local, Some((Answer::LocalRedirect(b"/a?b".to_vec()), 16)));
    }

    #[test]
    fn an_answer_that_goes_as_it_is_has_a_status_too() {
        for (output, expected) in [
            ("HTTP/1.0 404 Not Found\r\nX: y\r\n\r\nbody", Some((Some(404), 32))),
            ("HTTP/1.1 204\n\n", Some((Some(204), 14))),
            ("anything\n\nelse", Some((None, 10))),
            ("HTTP/1.1 20 x\n\n", Some((None, 15))),
            ("HTTP/1.1 200 OK\r\n", None),
            ("", None),
        ] {
            let raw = parse_raw(output.as_bytes());
            assert_eq!(
                raw.map(|(status, length)| (status.map(|status| status.0), length)),
                expected,
                "{output:?}"
            );
        }
    }

    #[test]
    fn hop_by_hop_fields_are_not_passed_to_programs() {
        let (_, _, lines) =
            document("Content-Type: a/b\nConnection: close\nTransfer-Encoding: chunked\nX-A: b\n\n");
        assert_eq!(lines, "Content-Type: a/b\r\nX-A: b\r\n");
    }

    #[test]
    fn a_head_that_is_none_is_refused() {
        for output in [
            "no colon\n\n",
            ": x\n\n",
            "X-A: b\n\n",
            "\n",
            "Status: 99\n\n",
            "Status: 20x\n\n",
            "Status: 2000\n\n",
            "Content-Type: a\nContent-Length: -1\n\n",
            "Content-Type: a\nContent-Length: 2\nContent-Length: 5\n\n",
            "Content-Type: a\rX: b\n\n",
            "Content Type: a\n\n",
        ] {
            assert!(parse(output.as_bytes()).is_err(), "{output:?}");
        }
        assert_eq!(parse(b"Content-Type: a\n"), Ok(None));
        assert!(parse(&vec![b'a'; MAX_HEAD]).is_err());
    }

    proptest! {
        #[test]
        fn no_output_panics_or_brings_in_a_line(output in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(Some((Answer::Document { lines, .. }, length))) = parse(&output) {
                prop_assert!(length <= output.len());
                prop_assert!(!lines.windows(4).any(|bytes| bytes == b"\r\n\r\n"));
                prop_assert!(lines.iter().all(|&byte| byte != 0));
            }
        }
    }
}
