//! A request's head (RFC 9112 sections 2 to 7).
//!
//! The invariant: a head that is accepted can be understood in one way only. Both lengths at once, a length
//! twice, a line that ends in a bare LF, a folded line, a blank before a colon, two hosts: each has been used
//! to make two servers in a row see different requests, so each is refused and the connection closed.

use std::mem::MaybeUninit;

use crate::{Status, target};

/// Fields of a head at most; browsers send some twenty.
pub const MAX_FIELDS: usize = 64;

/// Bytes of a head at most.
pub const MAX_HEAD: usize = 32 * 1024;

/// Bytes of a request line at most.
pub const MAX_REQUEST_LINE: usize = 8 * 1024;

/// A request's head: its bytes as they came, and where its parts stand in them. It outlives the buffer that it was
/// parsed in, so a request that waits is not parsed again.
#[derive(Debug, Clone)]
pub struct Head {
    /// The requested method.
    pub method: Method,
    /// The client's version.
    pub version: Version,
    /// How long the body is.
    pub framing: Framing,
    /// Whether the client wants the connection to go on (RFC 9112 section 9.3).
    pub persistent: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    bytes: Vec<u8>,
    method_text: Span,
    target: Span,
    /// The host of a target in absolute form.
    authority: Option<Span>,
    lines: Vec<Line>,
    /// For each known field the index in `lines` of its first line, from 1 on; 0 if it is absent.
    known: [u8; Field::COUNT],
}

/// A part of a head's bytes. [`MAX_HEAD`] bounds both ends.
#[derive(Debug, Clone, Copy, Default)]
struct Span {
    start: u16,
    end: u16,
}

/// A field's line.
#[derive(Debug, Clone, Copy)]
struct Line {
    name: Span,
    value: Span,
}

impl Span {
    /// Where `part`, which lies in `whole`, lies in it.
    fn of(part: &[u8], whole: &[u8]) -> Self {
        let start = (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize);
        let bounded = |at: usize| u16::try_from(at).unwrap_or(u16::MAX);
        Self { start: bounded(start), end: bounded(start + part.len()) }
    }

    fn get(self, bytes: &[u8]) -> &[u8] {
        bytes.get(usize::from(self.start)..usize::from(self.end)).unwrap_or_default()
    }
}

/// A method that is known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Method {
    Get,
    Head,
    Options,
    Post,
    Put,
    Patch,
    Delete,
    MkCol,
    Move,
    Copy,
    PropFind,
    PropPatch,
    Lock,
    Unlock,
    /// Any other.
    Other,
}

/// The version that a message came by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Version {
    Http10,
    Http11,
    Http2,
}

impl Version {
    /// The name, as logs and programs are told it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2.0",
        }
    }
}

/// Where a request's body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    None,
    /// After this many bytes, at least one.
    Length(u64),
    /// Where its last chunk says so.
    Chunked,
}

/// A head that is not accepted. The connection is closed behind the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The status of the answer.
    pub status: Status,
    /// Why, for the person who sent it.
    pub reason: &'static str,
}

pub(crate) const fn refuse<T>(status: Status, reason: &'static str) -> Result<T, Refusal> {
    Err(Refusal { status, reason })
}

const fn bad<T>(reason: &'static str) -> Result<T, Refusal> {
    refuse(Status::BAD_REQUEST, reason)
}

macro_rules! fields {
    ($($variant:ident $name:literal),* $(,)?) => {
        /// A field that means something to this server.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Field { $($variant),* }

        impl Field {
            const NAMES: &'static [&'static str] = &[$($name),*];
            const COUNT: usize = Self::NAMES.len();
        }
    };
}

fields! {
    Host "host",
    Connection "connection",
    ContentLength "content-length",
    TransferEncoding "transfer-encoding",
    Expect "expect",
    Range "range",
    IfRange "if-range",
    IfMatch "if-match",
    IfNoneMatch "if-none-match",
    IfModifiedSince "if-modified-since",
    IfUnmodifiedSince "if-unmodified-since",
    Accept "accept",
    AcceptEncoding "accept-encoding",
    Authorization "authorization",
    ContentRange "content-range",
    ContentType "content-type",
    ContentEncoding "content-encoding",
    Destination "destination",
    Overwrite "overwrite",
    Depth "depth",
    Origin "origin",
    Referer "referer",
    UserAgent "user-agent",
    WantReprDigest "want-repr-digest",
    AccessControlRequestMethod "access-control-request-method",
    Upgrade "upgrade",
    If "if",
    LockToken "lock-token",
    Timeout "timeout",
    SecFetchDest "sec-fetch-dest",
    TraceParent "traceparent",
}

impl Field {
    /// For each length, the fields whose names are so long: a bit each.
    const BY_LENGTH: [u32; 32] = {
        assert!(Self::COUNT <= 32);
        let (mut by_length, mut index) = ([0; 32], 0);
        while index < Self::COUNT {
            by_length[Self::NAMES[index].len()] |= 1 << index;
            index += 1;
        }
        by_length
    };

    fn index_of(name: &str) -> Option<usize> {
        let mut left = *Self::BY_LENGTH.get(name.len())?;
        while left != 0 {
            let index = left.trailing_zeros() as usize;
            if Self::NAMES[index].eq_ignore_ascii_case(name) {
                return Some(index);
            }
            left &= left - 1;
        }
        None
    }

    /// Returns whether a second line of it makes the head ambiguous.
    fn is_single(index: usize) -> bool {
        const SINGLE: [Field; 6] = [
            Field::Host,
            Field::ContentLength,
            Field::TransferEncoding,
            Field::Authorization,
            Field::Range,
            Field::ContentRange,
        ];
        SINGLE.iter().any(|&field| field as usize == index)
    }
}

/// Parses the head at the beginning of `bytes`: the head and its length, or `None` where more has to come.
pub fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, Refusal> {
    let mut head = Head::default();
    Ok(head.read(bytes)?.map(|length| (head, length)))
}

impl Default for Head {
    /// Room for a head, of which nothing was read yet.
    fn default() -> Self {
        Self {
            method: Method::Other,
            version: Version::Http11,
            framing: Framing::None,
            persistent: false,
            expects_continue: false,
            bytes: Vec::new(),
            method_text: Span::default(),
            target: Span::default(),
            authority: None,
            lines: Vec::new(),
            known: [0; Field::COUNT],
        }
    }
}

impl Head {
    /// Parses the head at the beginning of `bytes`, and reuses the memory of the previous one. Returns its length, or
    /// `None` if it is incomplete: then, as after an error, the content is undefined.
    pub fn read(&mut self, bytes: &[u8]) -> Result<Option<usize>, Refusal> {
        let mut slots = [const { MaybeUninit::uninit() }; MAX_FIELDS];
        let mut request = httparse::Request::new(&mut []);
        let parsed = httparse::ParserConfig::default().parse_request_with_uninit_headers(
            &mut request,
            bytes,
            &mut slots,
        );
        let length = match parsed {
            Ok(httparse::Status::Complete(length)) if length <= MAX_HEAD => length,
            Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD && !has_long_first_line(bytes) => {
                refuse_bare_line_feeds(bytes)?;
                return Ok(None);
            }
            Ok(_) if has_long_first_line(bytes) => {
                return refuse(Status::URI_TOO_LONG, "The request line is longer than 8 KiB.");
            }
            Ok(_) => return refuse(Status::HEAD_TOO_LARGE, "The head is longer than 32 KiB."),
            Err(error) => return Err(refusal(error, bytes)),
        };
        refuse_bare_line_feeds(&bytes[..length])?;
        if has_long_first_line(&bytes[..length]) {
            return refuse(Status::URI_TOO_LONG, "The request line is longer than 8 KiB.");
        }
        let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version)
        else {
            return bad("The request line is not whole.");
        };
        self.method = Method::from_text(method);
        self.version = if version == 0 { Version::Http10 } else { Version::Http11 };
        self.method_text = Span::of(method.as_bytes(), bytes);
        self.target = Span::of(target.as_bytes(), bytes);
        self.bytes.clear();
        self.bytes.extend_from_slice(&bytes[..length]);
        self.index(request.headers, bytes)?;
        self.frame()?;
        Ok(Some(length))
    }

    /// Begins a head whose parts are known, as those of HTTP/2 are, in place of what was here before.
    pub(crate) fn begin(&mut self, method: &str, target: &[u8]) {
        self.bytes.clear();
        self.lines.clear();
        self.known = [0; Field::COUNT];
        (self.method, self.version) = (Method::from_text(method), Version::Http2);
        self.method_text = self.append(method.as_bytes());
        self.target = self.append(target);
    }

    /// Adds a field to a head that was begun; an error where that makes it ambiguous or too long.
    pub(crate) fn add(&mut self, name: &str, value: &[u8]) -> Result<(), Refusal> {
        if self.lines.len() == MAX_FIELDS {
            return refuse(Status::HEAD_TOO_LARGE, "The head has more than 64 fields.");
        }
        if self.bytes.len() + name.len() + value.len() > MAX_HEAD {
            return refuse(Status::HEAD_TOO_LARGE, "The head is longer than 32 KiB.");
        }
        let line = Line { name: self.append(name.as_bytes()), value: self.append(value) };
        self.lines.push(line);
        self.note(name, self.lines.len() as u8)
    }

    /// Completes a head that was begun. Where no field says how long a body is, it is framed as `unsaid`.
    pub(crate) fn complete(&mut self, unsaid: Framing) -> Result<(), Refusal> {
        self.frame()?;
        if self.get(Field::ContentLength).is_none() {
            self.framing = unsaid;
        }
        Ok(())
    }

    fn append(&mut self, part: &[u8]) -> Span {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(part);
        Span { start: start as u16, end: self.bytes.len() as u16 }
    }

    /// Notes where the fields stand; an error where a second line of one makes the head ambiguous.
    fn index(&mut self, fields: &[httparse::Header<'_>], bytes: &[u8]) -> Result<(), Refusal> {
        self.lines.clear();
        self.known = [0; Field::COUNT];
        for (number, field) in (1..).zip(fields) {
            let name = Span::of(field.name.as_bytes(), bytes);
            self.lines.push(Line { name, value: Span::of(field.value, bytes) });
            self.note(field.name, number)?;
        }
        Ok(())
    }

    fn note(&mut self, name: &str, number: u8) -> Result<(), Refusal> {
        let Some(index) = Field::index_of(name) else { return Ok(()) };
        match &mut self.known[index] {
            place @ 0 => *place = number,
            _ if Field::is_single(index) => return bad("A field that may stand once stands twice."),
            _ => {}
        }
        Ok(())
    }

    /// Works out what the framing fields say together.
    fn frame(&mut self) -> Result<(), Refusal> {
        self.authority = None;
        match self.get(Field::Host) {
            None if self.version != Version::Http10 => return bad("There is no Host field."),
            Some(host) if !target::is_host(host) => return bad("The Host field is malformed."),
            _ => {}
        }
        // Whatever the field says, a target in absolute form names the host (RFC 9112 section 3.2.2).
        if let Some(authority) = target::authority(self.target()) {
            if !target::is_host(authority) {
                return bad("The authority of the request target is malformed.");
            }
            self.authority = Some(Span::of(authority, &self.bytes));
        }
        self.framing = match (self.get(Field::TransferEncoding), self.get(Field::ContentLength)) {
            (Some(_), Some(_)) => return bad("Both Transfer-Encoding and Content-Length stand in the head."),
            (Some(_), None) if self.version == Version::Http10 => {
                return bad("HTTP/1.0 has no Transfer-Encoding.");
            }
            (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => Framing::Chunked,
            (Some(_), None) => {
                return refuse(Status::NOT_IMPLEMENTED, "The only transfer coding known here is chunked.");
            }
            (None, Some(length)) => match decimal(length) {
                Some(0) => Framing::None,
                // No file is that long.
                Some(length) if i64::try_from(length).is_err() => {
                    return refuse(Status::CONTENT_TOO_LARGE, "The body is too long.");
                }
                Some(length) => Framing::Length(length),
                None => return bad("The Content-Length is not a number."),
            },
            (None, None) => Framing::None,
        };
        self.persistent = match self.version {
            Version::Http2 => true,
            Version::Http11 => !self.lists(Field::Connection, b"close"),
            Version::Http10 => {
                self.lists(Field::Connection, b"keep-alive") && !self.lists(Field::Connection, b"close")
            }
        };
        self.expects_continue = false;
        if let (Some(expect), Version::Http11) = (self.get(Field::Expect), self.version) {
            if !expect.eq_ignore_ascii_case(b"100-continue") {
                return refuse(
                    Status::EXPECTATION_FAILED,
                    "The only expectation known here is 100-continue.",
                );
            }
            self.expects_continue = self.framing != Framing::None;
        }
        Ok(())
    }

    /// The method as written.
    pub fn method_text(&self) -> &str {
        str::from_utf8(self.method_text.get(&self.bytes)).unwrap_or_default()
    }

    /// The request target as written.
    pub fn target(&self) -> &[u8] {
        self.target.get(&self.bytes)
    }

    /// The bytes of the head as they came.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The value of a field: of its first line, where there are several. `Host` is that of a target in absolute form.
    pub fn get(&self, field: Field) -> Option<&[u8]> {
        if let (Field::Host, Some(authority)) = (field, self.authority) {
            return Some(authority.get(&self.bytes));
        }
        let first = usize::from(self.known[field as usize]).checked_sub(1)?;
        self.lines.get(first).map(|line| line.value.get(&self.bytes))
    }

    /// The values of all lines of a field.
    pub fn all(&self, field: Field) -> impl Iterator<Item = &[u8]> {
        let name = Field::NAMES[field as usize].as_bytes();
        let lines = match usize::from(self.known[field as usize]).checked_sub(1) {
            Some(first) => self.lines.get(first..).unwrap_or_default(),
            None => &[],
        };
        let lines = lines.iter().map(|line| (line.name.get(&self.bytes), line.value.get(&self.bytes)));
        lines.filter(move |(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Returns whether a field, a list of tokens, has this one (in lower case) in it.
    pub fn lists(&self, field: Field, token: &[u8]) -> bool {
        self.all(field).any(|line| {
            line.split(|&byte| byte == b',').any(|item| item.trim_ascii().eq_ignore_ascii_case(token))
        })
    }

    /// Every field as it was written, in its order.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let text = |span: Span| str::from_utf8(span.get(&self.bytes)).unwrap_or_default();
        self.lines.iter().map(move |line| (text(line.name), line.value.get(&self.bytes)))
    }

    /// Returns whether the answer has no body whatever its head says (`HEAD`).
    pub fn wants_head_only(&self) -> bool {
        self.method == Method::Head
    }
}

impl Method {
    /// Methods are case-sensitive (RFC 9110 section 9.1).
    fn from_text(text: &str) -> Self {
        match text {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "OPTIONS" => Self::Options,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "PATCH" => Self::Patch,
            "DELETE" => Self::Delete,
            "MKCOL" => Self::MkCol,
            "MOVE" => Self::Move,
            "COPY" => Self::Copy,
            "PROPFIND" => Self::PropFind,
            "PROPPATCH" => Self::PropPatch,
            "LOCK" => Self::Lock,
            "UNLOCK" => Self::Unlock,
            _ => Self::Other,
        }
    }

    /// Returns whether it changes nothing (RFC 9110 section 9.2.1).
    pub fn is_safe(self) -> bool {
        matches!(self, Self::Get | Self::Head | Self::Options | Self::PropFind)
    }
}

/// A number of nothing but digits.
pub fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 19 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(text.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

/// Every LF has to have its CR (RFC 9112 section 2.2 lets a server be lenient; leniency is what smuggling uses).
fn refuse_bare_line_feeds(bytes: &[u8]) -> Result<(), Refusal> {
    let is_bare = |at: usize| at == 0 || bytes[at - 1] != b'\r';
    match memchr::memchr_iter(b'\n', bytes).any(is_bare) {
        true => bad("A line ends in LF without CR."),
        false => Ok(()),
    }
}

fn has_long_first_line(bytes: &[u8]) -> bool {
    // Empty lines may stand before it.
    let start = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    bytes.len() - start > MAX_REQUEST_LINE
        && memchr::memchr(b'\n', &bytes[start..start + MAX_REQUEST_LINE]).is_none()
}

fn refusal(error: httparse::Error, bytes: &[u8]) -> Refusal {
    use httparse::Error;
    let (status, reason) = match error {
        Error::TooManyHeaders => (Status::HEAD_TOO_LARGE, "The head has more than 64 fields."),
        Error::Version if names_other_version(bytes) => {
            (Status::VERSION_NOT_SUPPORTED, "Only HTTP/1.1 and HTTP/1.0 are spoken here.")
        }
        Error::Version => (Status::BAD_REQUEST, "The request line names no version of HTTP."),
        Error::Token => (Status::BAD_REQUEST, "The request line is malformed."),
        Error::NewLine => (Status::BAD_REQUEST, "A line does not end in CR LF."),
        _ => (Status::BAD_REQUEST, "A field of the head is malformed."),
    };
    Refusal { status, reason }
}

fn names_other_version(bytes: &[u8]) -> bool {
    let line = bytes.split(|&byte| byte == b'\n').find(|line| line.len() > 1).unwrap_or(bytes);
    let word = line.trim_ascii().rsplit(|&byte| byte == b' ').next().unwrap_or_default();
    let is_known = matches!(word, b"HTTP/1.1" | b"HTTP/1.0");
    !is_known
        && matches!(word, [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn status(text: &[u8]) -> Result<Option<usize>, u16> {
        match parse(text) {
            Ok(parsed) => Ok(parsed.map(|(_, length)| length)),
            Err(refusal) => Err(refusal.status.0),
        }
    }

    #[track_caller]
    fn framing(text: &str) -> (Framing, bool) {
        let (head, length) = parse(text.as_bytes()).unwrap().expect("it is whole");
        assert_eq!(length, text.len());
        (head.framing, head.persistent)
    }

    #[test]
    fn a_head_is_whole_or_more_has_to_come() {
        let text = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n";
        for cut in 0..text.len() {
            assert_eq!(status(&text[..cut]), Ok(None), "{cut}");
        }
        assert_eq!(status(text), Ok(Some(text.len())));
        assert_eq!(status(b"\r\n\r\nGET / HTTP/1.0\r\n\r\nrest"), Ok(Some(22)));
    }

    #[test]
    fn hosts_are_names_or_addresses_with_or_without_a_port() {
        for host in
            ["", "h", "h.test.:8080", "h:", "127.0.0.1:80", "[::1]", "[fe80::1%25eth0]:65535", "a_b%C3%A4~"]
        {
            assert!(target::is_host(host.as_bytes()), "{host}");
        }
    }

    /// RFC 9112: what a recipient must or may refuse.
    #[test]
    fn what_could_be_understood_in_two_ways_is_refused() {
        let table: [(&str, u16); 37] = [
            ("GET / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a:80:80\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a:65536\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: [::1]80\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a]\r\n\r\n", 400),
            ("GET / HTTP/1.1\nHost: h\n\n", 400),
            ("GET / HTTP/1.1\r\nHost: h\n\r\n", 400),
            ("\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: h\r\nA : b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: h\r\nA\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: h\r\nA: b\0c\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: h\r\nA: b\rc\r\n\r\n", 400),
            ("GET  / HTTP/1.1\r\nHost: h\r\n\r\n", 400),
            ("GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", 400),
            ("GET /\r\n\r\n", 400),
            ("G(T / HTTP/1.1\r\nHost: h\r\n\r\n", 400),
            ("GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505),
            ("GET / HTTP/1.2\r\nHost: h\r\n\r\n", 505),
            ("GET / HTTX/1.1\r\nHost: h\r\n\r\n", 400),
            ("GET / HTTP/1.1x\r\nHost: h\r\n\r\n", 400),
            ("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
            ("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400),
            ("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
            ("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1, 1\r\n\r\n", 400),
            ("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\n", 400),
            ("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 0x1\r\n\r\n", 400),
            ("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\n", 400),
            (
                "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
                400,
            ),
            ("PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
            ("PUT / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
            ("PUT / HTTP/1.1\r\nHost: h\r\nExpect: 200-ok\r\nContent-Length: 1\r\n\r\n", 417),
        ];
        for (text, expected) in table {
            assert_eq!(status(text.as_bytes()), Err(expected), "{text:?}");
        }
    }

    #[test]
    fn a_bare_line_feed_is_refused_before_the_head_is_whole() {
        assert_eq!(status(b"GET / HTTP/1.1\n"), Err(400));
    }

    #[test]
    fn heads_are_bounded() {
        let line = |length: usize| format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(length));
        assert!(status(line(8000).as_bytes()).is_ok());
        assert_eq!(status(line(9000).as_bytes()), Err(414));
        assert_eq!(status(&vec![b'a'; 9000]), Err(414));
        let field = |length: usize| format!("GET / HTTP/1.1\r\nHost: h\r\nA: {}\r\n\r\n", "a".repeat(length));
        assert!(status(field(32_000).as_bytes()).is_ok());
        assert_eq!(status(field(40_000).as_bytes()), Err(431));
        assert_eq!(status(field(16 << 20).as_bytes()), Err(431));
        let many = |count: usize| format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "A: b\r\n".repeat(count));
        assert!(status(many(63).as_bytes()).is_ok());
        assert_eq!(status(many(64).as_bytes()), Err(431));
    }

    #[test]
    fn bodies_end_where_the_head_says() {
        let put = |fields: &str| framing(&format!("PUT / HTTP/1.1\r\nHost: h\r\n{fields}\r\n")).0;
        assert_eq!(put(""), Framing::None);
        assert_eq!(put("Content-Length: 0\r\n"), Framing::None);
        assert_eq!(put("Content-Length: 007\r\n"), Framing::Length(7));
        assert_eq!(put("content-length:7\r\n"), Framing::Length(7));
        assert_eq!(put("Transfer-Encoding: Chunked\r\n"), Framing::Chunked);
    }

    #[test]
    fn connections_go_on_as_the_version_says() {
        for (version, field, persistent) in [
            ("1.1", "X: y", true),
            ("1.1", "Connection: close", false),
            ("1.1", "Connection: Close , x", false),
            ("1.1", "Connection: x\r\nConnection: close", false),
            ("1.1", "Connection: closed", true),
            ("1.0", "X: y", false),
            ("1.0", "Connection: Keep-Alive", true),
            ("1.0", "Connection: keep-alive, close", false),
        ] {
            let text = format!("GET / HTTP/{version}\r\nHost: h\r\n{field}\r\n\r\n");
            assert_eq!(framing(&text).1, persistent, "{version} {field}");
        }
    }

    #[test]
    fn only_a_body_is_waited_for() {
        let expects = |text: &str| parse(text.as_bytes()).unwrap().unwrap().0.expects_continue;
        let fields = "Host: h\r\nExpect: 100-Continue\r\n";
        assert!(expects(&format!("PUT / HTTP/1.1\r\n{fields}Content-Length: 1\r\n\r\n")));
        assert!(!expects(&format!("GET / HTTP/1.1\r\n{fields}\r\n")));
        assert!(!expects(&format!("PUT / HTTP/1.0\r\n{fields}Content-Length: 1\r\n\r\n")));
    }

    #[test]
    fn a_head_that_is_read_again_keeps_nothing_of_the_one_before() {
        let mut head = Head::default();
        let first = b"PUT http://other/a HTTP/1.1\r\nHost: h\r\nIf: x\r\nA: 1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";
        assert_eq!(head.read(first), Ok(Some(first.len())));
        assert_eq!((head.get(Field::Host), head.target()), (Some(&b"other"[..]), &b"http://other/a"[..]));
        assert!(head.expects_continue && head.framing == Framing::Length(3));
        let second = b"GET /b HTTP/1.0\r\nHost: g\r\n\r\n";
        assert_eq!(head.read(second), Ok(Some(second.len())));
        assert_eq!((head.get(Field::Host), head.get(Field::If)), (Some(&b"g"[..]), None));
        assert_eq!((head.method_text(), head.target(), head.as_bytes()), ("GET", &b"/b"[..], &second[..]));
        assert!(!head.expects_continue && !head.persistent && head.framing == Framing::None);
        assert_eq!(head.fields().collect::<Vec<_>>(), [("Host", &b"g"[..])]);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(prop::sample::select(&b"GET /HP1.0:\r\n\r\n ,\x00\xffax"[..]), 0..200)) {
            let _ = status(&bytes);
        }
    }
}
