//! The client's side of a connection, as a value: requests in, bytes out; bytes in, events out.
//!
//! ```text
//!          send            head              last byte of the body
//!   Idle --------> Head ------------> Body ------------------------> End --> Idle, Head (pipelined) or Closed
//!                  ^  | 1xx              `-- UntilClose: the server's close is the end
//!                  '--'
//! ```
//!
//! It opens no socket and asks no clock. A body is not copied: an event names the bytes of the input that belong to
//! it. How long a body is follows RFC 9112 section 6.3.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::ops::Range;

use thiserror::Error;

use super::{ChunkDecoder, Version};
use crate::Status;
use crate::request::decimal;

/// Bytes of a response's head at most.
pub const MAX_HEAD: usize = 64 * 1024;

/// Fields of a response's head at most.
pub const MAX_FIELDS: usize = 256;

/// Why a connection cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ResponseError {
    /// The bytes are no response.
    #[error("the server sent what is no HTTP response")]
    NotHttp,
    /// The head is longer than [`MAX_HEAD`].
    #[error("the head of a response is longer than {MAX_HEAD} bytes")]
    HeadTooLong,
    /// The head has more fields than [`MAX_FIELDS`].
    #[error("the head of a response has more than {MAX_FIELDS} fields")]
    TooManyFields,
    /// Two lengths, or one that is no number.
    #[error("Content-Length is no number")]
    Length,
    /// The chunked coding is broken.
    #[error("the chunked body of a response is malformed")]
    Chunk,
    /// Bytes came while no request was open.
    #[error("the server sent a response without a request")]
    Unsolicited,
    /// The server closed before a byte of the response.
    #[error("closed before a response")]
    NoResponse,
    /// The server closed within the response.
    #[error("closed within a response")]
    Truncated,
}

/// A request as it is sent: its head, and what its method means for the response.
///
/// A body follows as the fields announce it; the caller sends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedRequest {
    bytes: Vec<u8>,
    answer: AnswerTo,
}

/// How the request's method affects the body of its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerTo {
    /// `HEAD`: there is no body, whatever the fields announce.
    Head,
    /// `CONNECT`: a tunnel follows a success.
    Connect,
    Other,
}

impl PreparedRequest {
    /// Writes a head: the request line, then the fields in their order.
    ///
    /// The caller answers for it that no part holds a line end.
    pub fn new(method: &str, target: &str, version: Version, fields: &[(&str, &str)]) -> Self {
        let answer = match method {
            "HEAD" => AnswerTo::Head,
            "CONNECT" => AnswerTo::Connect,
            _ => AnswerTo::Other,
        };
        let version = match version {
            Version::Http10 => " HTTP/1.0\r\n",
            Version::Http11 | Version::Http2 => " HTTP/1.1\r\n",
        };
        let mut bytes = [method, " ", target, version].concat().into_bytes();
        for (name, value) in fields {
            debug_assert!(!value.bytes().any(|byte| matches!(byte, b'\r' | b'\n')));
            for part in [name, ": ", value, "\r\n"] {
                bytes.extend_from_slice(part.as_bytes());
            }
        }
        bytes.extend_from_slice(b"\r\n");
        Self { bytes, answer }
    }

    /// The head, to be sent.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// How long the body of a response is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    /// That many bytes; 0 without a body.
    Known(u64),
    /// Up to its last chunk.
    Chunked,
    /// Up to the end of the connection.
    UntilClose,
}

/// The head of a response. The text is borrowed from the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseHead<'a> {
    /// The status; of an interim response less than 200.
    pub status: Status,
    /// The server's version.
    pub version: Version,
    /// How long the body is.
    pub body: BodyLength,
    /// The value of `Content-Length`, whether or not a body follows.
    pub content_length: Option<u64>,
    /// Whether the connection can be used again behind the response (RFC 9112 section 9.3).
    pub persistent: bool,
    text: &'a [u8],
}

impl<'a> ResponseHead<'a> {
    /// Every field in its order: name and value as written.
    pub fn fields(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        self.text.split(|&byte| byte == b'\n').skip(1).filter_map(|line| {
            let colon = memchr::memchr(b':', line)?;
            Some((line[..colon].trim_ascii_end(), line[colon + 1..].trim_ascii()))
        })
    }

    /// The value of the first field of this name.
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        self.fields().find(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }
}

/// An event of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResponseEvent<'a> {
    /// An interim response (1xx); the final one follows.
    Interim(ResponseHead<'a>),
    /// The head of the response to the oldest open request.
    Head(ResponseHead<'a>),
    /// Bytes of its body: this range of the input that was given.
    Body(Range<usize>),
    /// Its end. Whether another request can be sent on this connection.
    End {
        /// The same as in the head.
        persistent: bool,
    },
}

/// How much of the input was taken, and what it came to. Without an event all of it was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedResponse<'a> {
    /// Bytes of the input that are done with.
    pub taken: usize,
    /// The event that they completed; there may be more after it.
    pub event: Option<ResponseEvent<'a>>,
}

/// The client's side of a connection.
#[derive(Debug, Default)]
pub struct ClientConnection {
    flow: Flow,
    /// The head that came in pieces, or the last one that did.
    partial: Vec<u8>,
}

/// Where the stream of responses is.
#[derive(Debug, Default)]
struct Flow {
    place: Place,
    /// The requests whose responses are due, without the one whose head has come.
    open: VecDeque<AnswerTo>,
    /// The connection goes on behind the response that is coming.
    persistent: bool,
}

/// Where in its stream the connection is.
#[derive(Debug, Default)]
enum Place {
    /// Between responses; before one where a request is open.
    #[default]
    Between,
    /// In a head whose beginning is in [`ClientConnection::partial`].
    Head,
    /// Bytes of the body to come.
    Body(u64),
    Chunks(ChunkDecoder),
    UntilClose,
    /// The response is over, and its end was not told.
    End,
    /// Nothing follows.
    Closed,
}

impl ClientConnection {
    /// Returns whether a request can be sent: the connection goes on, as far as is known.
    pub fn is_usable(&self) -> bool {
        !matches!(self.flow.place, Place::Closed)
    }

    /// Returns whether no response is due.
    pub fn is_idle(&self) -> bool {
        matches!(self.flow.place, Place::Between) && self.flow.open.is_empty()
    }

    /// Notes that a request is sent; its bytes are to be written to the server. Requests may be pipelined.
    pub fn send<'r>(&mut self, request: &'r PreparedRequest) -> &'r [u8] {
        self.flow.open.push_back(request.answer);
        &request.bytes
    }

    /// How many bytes of a body follow for certain; 0 where that is not known. They may be passed over with
    /// [`ClientConnection::skip`].
    pub fn certain(&self) -> u64 {
        match self.flow.place {
            Place::Body(left) => left,
            _ => 0,
        }
    }

    /// Passes over bytes of a body that the caller did not keep: at most [`ClientConnection::certain`].
    pub fn skip(&mut self, count: u64) {
        self.flow.skip(count);
    }

    /// Takes bytes from the server, up to the next event. The caller repeats it with the rest until there is no event.
    pub fn receive<'a>(&'a mut self, input: &'a [u8]) -> Result<ReceivedResponse<'a>, ResponseError> {
        match self.flow.place {
            Place::Between | Place::Head if input.is_empty() => Ok(ReceivedResponse::all(0)),
            Place::Between if self.flow.open.is_empty() => self.flow.fail(ResponseError::Unsolicited),
            Place::Between => match parse(input, self.flow.answer()) {
                Ok(None) if input.len() < MAX_HEAD => {
                    self.partial.clear();
                    self.partial.extend_from_slice(input);
                    self.flow.place = Place::Head;
                    Ok(ReceivedResponse::all(input.len()))
                }
                parsed => self.flow.begin(parsed, 0),
            },
            Place::Head => {
                let known = self.partial.len();
                self.partial.extend_from_slice(input);
                // A head ends with a line.
                let may_end = memchr::memchr(b'\n', input).is_some();
                let parsed = if may_end { parse(&self.partial, self.flow.answer()) } else { Ok(None) };
                match parsed {
                    Ok(None) if self.partial.len() < MAX_HEAD => Ok(ReceivedResponse::all(input.len())),
                    parsed => self.flow.begin(parsed, known),
                }
            }
            _ => self.flow.continue_body(input),
        }
    }

    /// The server has closed its side. The event is the end of a response that ends so.
    pub fn close(&mut self) -> Result<Option<ResponseEvent<'static>>, ResponseError> {
        match std::mem::replace(&mut self.flow.place, Place::Closed) {
            Place::UntilClose | Place::End => Ok(Some(ResponseEvent::End { persistent: false })),
            Place::Between if !self.flow.open.is_empty() => Err(ResponseError::NoResponse),
            Place::Between | Place::Closed => Ok(None),
            Place::Head | Place::Body(_) | Place::Chunks(_) => Err(ResponseError::Truncated),
        }
    }
}

impl Flow {
    fn answer(&self) -> AnswerTo {
        self.open.front().copied().unwrap_or(AnswerTo::Other)
    }

    fn fail<T>(&mut self, error: ResponseError) -> Result<T, ResponseError> {
        self.place = Place::Closed;
        Err(error)
    }

    fn skip(&mut self, count: u64) {
        if let Place::Body(left) = self.place {
            self.place = if left > count { Place::Body(left - count) } else { Place::End };
        }
    }

    /// A head has arrived, of which this many bytes were received before; or invalid data.
    fn begin<'a>(
        &mut self,
        parsed: Result<Option<ResponseHead<'a>>, ResponseError>,
        known: usize,
    ) -> Result<ReceivedResponse<'a>, ResponseError> {
        let head = match parsed {
            Ok(Some(head)) if head.text.len() <= MAX_HEAD => head,
            Ok(_) => return self.fail(ResponseError::HeadTooLong),
            Err(error) => return self.fail(error),
        };
        let taken = head.text.len() - known;
        if head.status < Status::OK {
            self.place = Place::Between;
            return Ok(ReceivedResponse { taken, event: Some(ResponseEvent::Interim(head)) });
        }
        self.open.pop_front();
        self.persistent = head.persistent;
        self.place = match head.body {
            BodyLength::Known(0) => Place::End,
            BodyLength::Known(length) => Place::Body(length),
            BodyLength::Chunked => Place::Chunks(ChunkDecoder::default()),
            BodyLength::UntilClose => Place::UntilClose,
        };
        Ok(ReceivedResponse { taken, event: Some(ResponseEvent::Head(head)) })
    }

    fn continue_body(&mut self, input: &[u8]) -> Result<ReceivedResponse<'static>, ResponseError> {
        match &mut self.place {
            Place::End => return Ok(self.end(0)),
            _ if input.is_empty() => {}
            Place::Closed => return Err(ResponseError::Unsolicited),
            Place::Body(left) => {
                let count = (*left).min(input.len() as u64);
                self.skip(count);
                return Ok(ReceivedResponse::body(count as usize, 0..count as usize));
            }
            Place::Chunks(decoder) => {
                let Ok((taken, piece)) = decoder.next_piece(input) else {
                    return self.fail(ResponseError::Chunk);
                };
                if !piece.is_empty() {
                    return Ok(ReceivedResponse::body(taken, piece));
                }
                return Ok(if decoder.has_ended() { self.end(taken) } else { ReceivedResponse::all(taken) });
            }
            Place::UntilClose | Place::Between | Place::Head => {
                return Ok(ReceivedResponse::body(input.len(), 0..input.len()));
            }
        }
        Ok(ReceivedResponse::all(0))
    }

    fn end(&mut self, taken: usize) -> ReceivedResponse<'static> {
        self.place = if self.persistent { Place::Between } else { Place::Closed };
        ReceivedResponse { taken, event: Some(ResponseEvent::End { persistent: self.persistent }) }
    }
}

impl<'a> ReceivedResponse<'a> {
    fn all(taken: usize) -> Self {
        Self { taken, event: None }
    }

    fn body(taken: usize, piece: Range<usize>) -> Self {
        Self { taken, event: Some(ResponseEvent::Body(piece)) }
    }
}

/// Parses the head at the beginning of `bytes`; `None` where more has to come.
///
/// Lenient where servers are: lines may end in LF alone, and be folded.
fn parse(bytes: &[u8], answer: AnswerTo) -> Result<Option<ResponseHead<'_>>, ResponseError> {
    let mut slots = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut config = httparse::ParserConfig::default();
    config.allow_spaces_after_header_name_in_responses(true);
    config.allow_obsolete_multiline_headers_in_responses(true);
    let mut response = httparse::Response::new(&mut []);
    let length = match config.parse_response_with_uninit_headers(&mut response, bytes, &mut slots) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(ResponseError::TooManyFields),
        Err(_) => return Err(ResponseError::NotHttp),
    };
    let (Some(version), Some(status)) = (response.version, response.code) else {
        return Err(ResponseError::NotHttp);
    };
    let version = if version == 0 { Version::Http10 } else { Version::Http11 };
    let (mut content_length, mut coding, mut closes, mut keeps) = (None, None, false, false);
    for field in response.headers.iter() {
        if field.name.eq_ignore_ascii_case("content-length") {
            let length = decimal(field.value).ok_or(ResponseError::Length)?;
            if content_length.replace(length).is_some_and(|other| other != length) {
                return Err(ResponseError::Length);
            }
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            coding = Some(field.value);
        } else if field.name.eq_ignore_ascii_case("connection") {
            let lists = |token: &[u8]| {
                field
                    .value
                    .split(|&byte| byte == b',')
                    .any(|item| item.trim_ascii().eq_ignore_ascii_case(token))
            };
            closes |= lists(b"close");
            keeps |= lists(b"keep-alive");
        }
    }
    let body = match (answer, status, coding, content_length) {
        (AnswerTo::Head, ..) | (_, 100..200 | 204 | 304, ..) => BodyLength::Known(0),
        (AnswerTo::Connect, 200..300, ..) => BodyLength::UntilClose,
        (_, _, Some(coding), _) if ends_in_chunked(coding) => BodyLength::Chunked,
        (_, _, Some(_), _) | (_, _, None, None) => BodyLength::UntilClose,
        (_, _, None, Some(length)) => BodyLength::Known(length),
    };
    let persistent = !closes && (version == Version::Http11 || keeps) && body != BodyLength::UntilClose;
    let text = &bytes[..length];
    Ok(Some(ResponseHead { status: Status(status), version, body, content_length, persistent, text }))
}

/// Returns whether the last transfer coding is `chunked`, so that the body ends with its last chunk.
fn ends_in_chunked(codings: &[u8]) -> bool {
    let last = codings.rsplit(|&byte| byte == b',').next().unwrap_or_default();
    last.trim_ascii().eq_ignore_ascii_case(b"chunked")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Field;
    use crate::h1::{Framing, LAST_CHUNK, write_chunk};
    use crate::request;
    use crate::response::{Persistence, PreparedFields, Writer};

    fn get() -> PreparedRequest {
        PreparedRequest::new("GET", "/a", Version::Http11, &[("Host", "h")])
    }

    /// What a response consisted of: the statuses, the body, whether it ended, and whether the connection continues.
    #[derive(Debug, Default, Clone, PartialEq, Eq)]
    struct Seen {
        statuses: Vec<u16>,
        body: Vec<u8>,
        ends: Vec<bool>,
    }

    fn feed(
        connection: &mut ClientConnection,
        mut input: &[u8],
        seen: &mut Seen,
    ) -> Result<(), ResponseError> {
        loop {
            let ReceivedResponse { taken, event } = connection.receive(input)?;
            match event {
                None => {
                    assert_eq!(taken, input.len());
                    return Ok(());
                }
                Some(ResponseEvent::Interim(head) | ResponseEvent::Head(head)) => {
                    seen.statuses.push(head.status.0)
                }
                Some(ResponseEvent::Body(piece)) => seen.body.extend_from_slice(&input[piece]),
                Some(ResponseEvent::End { persistent }) => seen.ends.push(persistent),
            }
            input = &input[taken..];
        }
    }

    /// The result must not depend on how the responses are divided; the connection closes after them.
    fn read(requests: &[&PreparedRequest], text: &[u8]) -> Result<Seen, ResponseError> {
        let all = |size: usize| {
            let (mut connection, mut seen) = (ClientConnection::default(), Seen::default());
            requests.iter().for_each(|request| _ = connection.send(request));
            text.chunks(size).try_for_each(|piece| feed(&mut connection, piece, &mut seen))?;
            if let Some(ResponseEvent::End { persistent }) = connection.close()? {
                seen.ends.push(persistent);
            }
            Ok(seen)
        };
        let whole = all(text.len().max(1));
        for size in 1..text.len() {
            assert_eq!(all(size), whole, "in pieces of {size}");
        }
        whole
    }

    fn seen(statuses: &[u16], body: &str, ends: &[bool]) -> Result<Seen, ResponseError> {
        Ok(Seen { statuses: statuses.to_vec(), body: body.into(), ends: ends.to_vec() })
    }

    #[test]
    fn a_response_ends_where_its_head_says() {
        let text = b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: Keep-Alive\r\n\r\nhello";
        assert_eq!(read(&[&get()], text), seen(&[200], "hello", &[true]));
        let text = b"HTTP/1.1 404 Not Found\nContent-Length: 0\nConnection: x, close\n\n";
        assert_eq!(read(&[&get()], text), seen(&[404], "", &[false]));
        let text = b"HTTP/1.1 304 x\r\nContent-Length: 9\r\n\r\n";
        assert_eq!(read(&[&get()], text), seen(&[304], "", &[true]));
        let head = PreparedRequest::new("HEAD", "/", Version::Http11, &[]);
        let text = b"HTTP/1.1 200 x\r\nContent-Length: 9\r\n\r\n";
        assert_eq!(read(&[&head], text), seen(&[200], "", &[true]));
        let text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\nContent-Length: 1\r\n\r\n\
                     3;a=b\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: x\r\n\r\n";
        assert_eq!(read(&[&get()], text), seen(&[200], "abc0123456789", &[true]));
        assert_eq!(read(&[&get()], b"HTTP/1.0 200 OK\r\n\r\nuntil"), seen(&[200], "until", &[false]));
    }

    #[test]
    fn pipelined_responses_follow_their_requests() {
        let (get, head) = (get(), PreparedRequest::new("HEAD", "/", Version::Http11, &[]));
        let text =
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\
                     HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No\r\n\r\n";
        assert_eq!(read(&[&get, &head, &get], text), seen(&[200, 200, 103, 204], "ok", &[true; 3]));
    }

    #[test]
    fn what_is_no_response_is_an_error() {
        for (bad, error) in [
            (&b"220 FTP\r\n\r\n"[..], ResponseError::NotHttp),
            (b"HTTP/1.1 x\r\n\r\n", ResponseError::NotHttp),
            (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", ResponseError::Length),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", ResponseError::Length),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx", ResponseError::Chunk),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", ResponseError::Truncated),
            (b"HTTP/1.1 200 OK\r\n", ResponseError::Truncated),
            (b"", ResponseError::NoResponse),
        ] {
            assert_eq!(read(&[&get()], bad), Err(error), "{}", bad.escape_ascii());
        }
        assert_eq!(read(&[], b"HTTP/1.1 200 OK\r\n\r\n"), Err(ResponseError::Unsolicited));
        let endless = [&b"HTTP/1.1 200 OK\r\na: "[..], &b"b".repeat(2 * MAX_HEAD)].concat();
        let mut connection = ClientConnection::default();
        connection.send(&get());
        assert_eq!(connection.receive(&endless), Err(ResponseError::HeadTooLong));
        assert!(!connection.is_usable());
    }

    #[test]
    fn bytes_that_follow_for_certain_may_be_passed_over() {
        let mut connection = ClientConnection::default();
        connection.send(&get());
        let input = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nServer: x \r\nserver: y\r\n\r\nab";
        let received = connection.receive(input).unwrap();
        let Some(ResponseEvent::Head(head)) = &received.event else { panic!("{received:?}") };
        assert_eq!((head.get("server"), head.content_length), (Some(&b"x"[..]), Some(10)));
        let rest = &input[received.taken..];
        assert_eq!(connection.receive(rest), Ok(ReceivedResponse::body(2, 0..2)));
        assert_eq!(connection.certain(), 8);
        connection.skip(8);
        assert_eq!(connection.certain(), 0);
        let end = ReceivedResponse { taken: 0, event: Some(ResponseEvent::End { persistent: true }) };
        assert_eq!(connection.receive(b""), Ok(end));
        assert!(connection.is_idle());
    }

    #[test]
    fn the_server_of_this_crate_understands_the_requests() {
        let fields = [("Host", "h:80"), ("Connection", "close"), ("Content-Length", "3")];
        let request = PreparedRequest::new("PUT", "/a?b", Version::Http11, &fields);
        let (head, length) = request::parse(request.bytes()).unwrap().unwrap();
        assert_eq!(length, request.bytes().len());
        assert_eq!((head.target(), head.framing), (&b"/a?b"[..], Framing::Length(3)));
        assert_eq!((head.get(Field::Host), head.persistent), (Some(&b"h:80"[..]), false));
    }

    proptest! {
        #[test]
        fn the_pieces_make_no_difference(
            bodies in prop::collection::vec((any::<bool>(), "[a-z]{0,40}"), 1..4),
            cut in 1..40_usize,
        ) {
            let (mut wire, mut connection, mut found) = (Vec::new(), ClientConnection::default(), Seen::default());
            for (is_chunked, body) in &bodies {
                let mut head = Writer::begin(&mut wire, Status::OK, &PreparedFields::default(), Persistence::Implied);
                if *is_chunked {
                    head.bytes("Transfer-Encoding", b"chunked");
                    head.end();
                    write_chunk(body.as_bytes(), &mut wire);
                    wire.extend_from_slice(LAST_CHUNK);
                } else {
                    head.length(body.len() as u64);
                    head.end();
                    wire.extend_from_slice(body.as_bytes());
                }
                connection.send(&get());
            }
            for piece in wire.chunks(cut) {
                feed(&mut connection, piece, &mut found).unwrap();
            }
            let all: String = bodies.iter().map(|(_, body)| body.as_str()).collect();
            prop_assert!(connection.is_idle());
            prop_assert_eq!(Ok(found), seen(&vec![200; bodies.len()], &all, &vec![true; bodies.len()]));
        }
    }
}
