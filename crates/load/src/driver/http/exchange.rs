//! An HTTP connection and the response awaited on it: the pending output, the benchmark's counts, and what it keeps of
//! the response's head.

use std::sync::Arc;

use millrace_http::h1::ClientConnection;
use millrace_http::h1::client::{ResponseError, ResponseEvent, ResponseHead};
use millrace_http::h2::{self, ConnectionError, ErrorCode, StreamEvent};
use thiserror::Error;

use super::request::Request;
use crate::plan::HttpVersion;

/// Why a response is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum ExchangeError {
    #[error(transparent)]
    Http1(#[from] ResponseError),
    #[error(transparent)]
    Http2(#[from] ConnectionError),
    #[error("the server reset the stream, error {}", .0.0)]
    Reset(ErrorCode),
    #[error("the server allows no stream")]
    NoStream,
}

/// What the benchmark keeps of a response's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) status: u16,
    /// A field that responses with files have, and those of programs do not.
    pub(super) of_file: Option<&'static str>,
}

/// The fields that servers add to files: a program's response has no date and no ranges.
const OF_FILES: [&str; 3] = ["last-modified", "etag", "accept-ranges"];

/// Windows that never block a server, as those of h2load.
const LIMITS: h2::ConnectionLimits = h2::ConnectionLimits {
    streams: 0,
    stream_window: (1 << 30) - 1,
    connection_window: (1 << 30) - 1,
    field_bytes: 64 * 1024,
};

/// A connection with at most one pending response.
#[derive(Debug)]
pub(super) struct Exchange {
    protocol: Protocol,
    response: Response,
}

/// The pending response.
#[derive(Debug, Default)]
struct Response {
    head: Option<Head>,
    is_over: bool,
    keeps_alive: bool,
    /// The server's name in the first response.
    server: Option<String>,
    /// Bytes of the body, and of the whole response.
    body: u64,
    all: u64,
}

#[derive(Debug)]
enum Protocol {
    Http1 {
        connection: ClientConnection,
        /// The request, and how much of it is written.
        request: Option<Arc<Request>>,
        written: usize,
    },
    Http2(Box<Http2>),
}

#[derive(Debug)]
struct Http2 {
    client: h2::Client,
    stream: u32,
    /// The pending output, and how much of it is written.
    out: Vec<u8>,
    written: usize,
    /// Received bytes that are not attributed to a response yet.
    unassigned: u64,
}

impl Exchange {
    /// An exchange on a new connection.
    pub(super) fn new(version: HttpVersion) -> Self {
        let protocol = match version {
            HttpVersion::Http10 | HttpVersion::Http11 => {
                Protocol::Http1 { connection: ClientConnection::default(), request: None, written: 0 }
            }
            HttpVersion::Http2 => {
                let mut out = Vec::new();
                let client = h2::Client::new(LIMITS, &mut out);
                Protocol::Http2(Box::new(Http2 { client, stream: 0, out, written: 0, unassigned: 0 }))
            }
        };
        Self { protocol, response: Response::default() }
    }

    /// Makes a request, and awaits its response.
    pub(super) fn begin(&mut self, next: &Arc<Request>) -> Result<(), ExchangeError> {
        let server = self.response.server.take();
        self.response = Response { server, ..Response::default() };
        match (&mut self.protocol, &**next) {
            (Protocol::Http1 { connection, request, written }, Request::Http1(prepared)) => {
                connection.send(prepared);
                (*request, *written) = (Some(Arc::clone(next)), 0);
                Ok(())
            }
            (Protocol::Http2(http2), Request::Http2(block)) => {
                let stream = http2.client.request(true, &mut http2.out, |fields| _ = fields.block(block));
                http2.stream = stream.ok_or(ExchangeError::NoStream)?;
                Ok(())
            }
            // The settings determine both.
            _ => Err(ExchangeError::NoStream),
        }
    }

    /// The output pending for the server.
    pub(super) fn output(&self) -> &[u8] {
        match &self.protocol {
            Protocol::Http1 { request: Some(request), written, .. } => match &**request {
                Request::Http1(request) => &request.bytes()[*written..],
                Request::Http2(_) => &[],
            },
            Protocol::Http1 { .. } => &[],
            Protocol::Http2(http2) => &http2.out[http2.written..],
        }
    }

    /// Notes that this many bytes of the output were written.
    pub(super) fn note_written(&mut self, count: usize) {
        match &mut self.protocol {
            Protocol::Http1 { written, .. } => *written += count,
            Protocol::Http2(http2) => {
                http2.written += count;
                if http2.written == http2.out.len() {
                    http2.out.clear();
                    http2.written = 0;
                }
            }
        }
    }

    pub(super) fn head(&self) -> Option<&Head> {
        self.response.head.as_ref()
    }

    /// The server's name in the first response.
    pub(super) fn server(&self) -> Option<&String> {
        self.response.server.as_ref()
    }

    /// Bytes of the body so far.
    pub(super) fn body(&self) -> u64 {
        self.response.body
    }

    /// Bytes of the whole response so far.
    pub(super) fn all(&self) -> u64 {
        self.response.all
    }

    /// Returns whether the response has come to its end.
    pub(super) fn is_over(&self) -> bool {
        self.response.is_over
    }

    /// Returns true if no byte of the response has arrived.
    pub(super) fn is_fresh(&self) -> bool {
        self.response.all == 0
    }

    /// Returns true if another request can follow on the connection.
    pub(super) fn keeps_alive(&self) -> bool {
        match &self.protocol {
            Protocol::Http1 { .. } => self.response.keeps_alive,
            Protocol::Http2(http2) => http2.client.is_usable(),
        }
    }

    /// How many bytes of the body certainly follow: they need not be parsed.
    pub(super) fn certain(&self) -> u64 {
        match &self.protocol {
            Protocol::Http1 { connection, .. } => connection.certain(),
            Protocol::Http2(_) => 0,
        }
    }

    /// Counts this many of these bytes as received.
    pub(super) fn skip(&mut self, count: u64) -> Result<(), ExchangeError> {
        if let Protocol::Http1 { connection, .. } = &mut self.protocol {
            connection.skip(count);
        }
        self.response.body += count;
        self.response.all += count;
        self.feed(&[])
    }

    /// The byte stream has ended. Returns true if the response was complete.
    pub(super) fn end(&mut self) -> bool {
        if let Protocol::Http1 { connection, .. } = &mut self.protocol {
            self.response.is_over |= matches!(connection.close(), Ok(Some(ResponseEvent::End { .. })));
        }
        self.response.is_over
    }

    /// Parses received bytes. Bytes after the end of an HTTP/1 response are ignored: requests are not pipelined.
    pub(super) fn feed(&mut self, input: &[u8]) -> Result<(), ExchangeError> {
        match &mut self.protocol {
            Protocol::Http1 { connection, .. } => Ok(self.response.feed(connection, input)?),
            Protocol::Http2(http2) => http2.feed(input, &mut self.response),
        }
    }
}

impl Response {
    fn feed(&mut self, connection: &mut ClientConnection, mut input: &[u8]) -> Result<(), ResponseError> {
        while !self.is_over {
            let received = connection.receive(input)?;
            self.all += received.taken as u64;
            input = &input[received.taken..];
            match received.event {
                None => break,
                Some(ResponseEvent::Interim(_)) => {}
                Some(ResponseEvent::Head(head)) => {
                    self.keep(head.status.0, |name| field(&head, name));
                }
                Some(ResponseEvent::Body(piece)) => self.body += piece.len() as u64,
                Some(ResponseEvent::End { persistent }) => {
                    (self.is_over, self.keeps_alive) = (true, persistent)
                }
            }
        }
        Ok(())
    }

    /// Keeps the fields of a head that matter to the benchmark.
    fn keep<'f>(&mut self, status: u16, get: impl Fn(&str) -> Option<&'f [u8]>) {
        let of_file = OF_FILES.into_iter().find(|name| get(name).is_some());
        self.head = Some(Head { status, of_file });
        if self.server.is_none() {
            self.server = get("server").map(|name| String::from_utf8_lossy(name).into_owned());
        }
    }
}

fn field<'a>(head: &ResponseHead<'a>, name: &str) -> Option<&'a [u8]> {
    head.get(name)
}

impl Http2 {
    fn feed(&mut self, mut input: &[u8], response: &mut Response) -> Result<(), ExchangeError> {
        loop {
            let received = self.client.receive(input, &mut self.out)?;
            self.unassigned += received.taken as u64;
            input = &input[received.taken..];
            match received.event {
                None => return Ok(()),
                Some(StreamEvent::Head { stream, ends }) if stream == self.stream => {
                    let fields = self.client.fields();
                    match fields.status() {
                        Some(status @ 200..) => response.keep(status, |name| fields.get(name)),
                        _ => continue,
                    }
                    response.is_over = ends;
                }
                Some(StreamEvent::Data { stream, range, ends }) => {
                    self.client.release(stream, range.len(), &mut self.out);
                    response.body += range.len() as u64;
                    response.is_over = ends;
                }
                Some(StreamEvent::Trailers { stream }) if stream == self.stream => response.is_over = true,
                Some(StreamEvent::Reset { stream, code }) if stream == self.stream && !response.is_over => {
                    return Err(ExchangeError::Reset(code));
                }
                Some(_) => continue,
            }
            response.all += std::mem::take(&mut self.unassigned);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use millrace_http::Status;

    use super::*;
    use crate::plan::Settings;
    use crate::target::Target;

    fn begun(http: HttpVersion) -> Exchange {
        let target = Target::parse("http://localhost/").unwrap();
        let request = Request::new(&target, &Settings { http, ..Settings::default() }, "/a");
        let mut exchange = Exchange::new(http);
        exchange.begin(&Arc::new(request)).unwrap();
        exchange
    }

    #[test]
    fn bytes_are_counted_however_they_come() {
        let text = b"HTTP/1.1 200 OK\r\nServer: x\r\nETag: \"1\"\r\nContent-Length: 10\r\n\r\n0123456789";
        for size in 1..=text.len() {
            let mut exchange = begun(HttpVersion::Http11);
            assert!(exchange.is_fresh() && !exchange.is_over());
            assert!(exchange.output().starts_with(b"GET /a HTTP/1.1\r\n"));
            let mut rest = &text[..];
            while !rest.is_empty() {
                let count = size.min(rest.len());
                match exchange.certain() {
                    0 => exchange.feed(&rest[..count]).unwrap(),
                    certain => exchange.skip(certain.min(count as u64)).unwrap(),
                }
                rest = &rest[count..];
            }
            let head = Head { status: 200, of_file: Some("etag") };
            assert!(exchange.is_over() && exchange.end() && exchange.keeps_alive());
            assert_eq!((exchange.head(), exchange.server()), (Some(&head), Some(&"x".to_owned())));
            assert_eq!((exchange.body(), exchange.all()), (10, text.len() as u64));
        }
    }

    #[test]
    fn a_cut_response_is_not_over() {
        let mut exchange = begun(HttpVersion::Http11);
        exchange.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx").unwrap();
        assert!(!exchange.end() && exchange.head().is_some());
    }

    #[test]
    fn streams_follow_each_other_on_a_connection() {
        let mut exchange = begun(HttpVersion::Http2);
        let mut out = Vec::new();
        let mut server = h2::Server::new(h2::ConnectionLimits::default(), &mut out);
        for round in 0..3_u64 {
            let said = exchange.output().to_vec();
            exchange.note_written(said.len());
            let mut rest = &said[..];
            loop {
                let received = server.receive(rest, Instant::now(), &mut out).unwrap();
                rest = &rest[received.taken..];
                match received.event {
                    None => break,
                    Some(StreamEvent::Head { stream, ends: true }) => {
                        server.head(stream, false, &mut out, |fields| {
                            fields.status(Status::OK).field("server", b"x").length(5);
                        });
                        server.data_head(stream, 5, true, &mut out);
                        out.extend_from_slice(b"hello");
                    }
                    Some(_) => {}
                }
            }
            for piece in std::mem::take(&mut out).chunks(3) {
                exchange.feed(piece).unwrap();
            }
            assert!(exchange.is_over() && exchange.keeps_alive(), "{round}");
            assert_eq!((exchange.body(), exchange.server()), (5, Some(&"x".to_owned())));
            assert_eq!(exchange.head(), Some(&Head { status: 200, of_file: None }));
            let target = Target::parse("http://localhost/").unwrap();
            let settings = Settings { http: HttpVersion::Http2, ..Settings::default() };
            exchange.begin(&Arc::new(Request::new(&target, &settings, "/"))).unwrap();
            assert!(exchange.is_fresh());
        }
        server.shut_down(ErrorCode::NO_ERROR, &mut out);
        exchange.feed(&out).unwrap();
        assert!(!exchange.keeps_alive() && exchange.is_fresh());
    }
}
