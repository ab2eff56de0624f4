//! A connection and the response that is awaited on it: what the benchmark counts of it, and what it keeps of its head.

use millrace_http::h1::ClientConnection;
use millrace_http::h1::client::{PreparedRequest, ResponseError, ResponseEvent, ResponseHead};

/// What the benchmark keeps of a response's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) status: u16,
    /// The connection can be used again behind the response.
    pub(super) keeps_alive: bool,
    /// A field that responses out of files have, and those of programs have not.
    pub(super) of_file: Option<&'static str>,
}

/// What a server says of a file that it sends: a program's response is not dated, and has no parts.
const OF_FILES: [&str; 3] = ["last-modified", "etag", "accept-ranges"];

/// One connection, with at most one response that is awaited.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    connection: ClientConnection,
    head: Option<Head>,
    is_over: bool,
    /// What the first response on the connection says of the server.
    pub(super) server: Option<String>,
    /// Bytes of the body, and of the whole response.
    pub(super) body: u64,
    pub(super) all: u64,
}

impl Exchange {
    /// A request is being sent; its response is awaited from now on.
    pub(super) fn begin(&mut self, request: &PreparedRequest) {
        self.connection.send(request);
        (self.head, self.is_over) = (None, false);
        (self.body, self.all) = (0, 0);
    }

    pub(super) fn head(&self) -> Option<&Head> {
        self.head.as_ref()
    }

    /// Returns whether the response has come to its end.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns whether no byte of the response has come.
    pub(super) fn is_fresh(&self) -> bool {
        self.all == 0
    }

    /// How many bytes of the body follow for certain: they need not be looked at.
    pub(super) fn certain(&self) -> u64 {
        self.connection.certain()
    }

    /// So many of these have come.
    pub(super) fn skip(&mut self, count: u64) -> Result<(), ResponseError> {
        self.connection.skip(count);
        (self.body, self.all) = (self.body + count, self.all + count);
        self.feed(&[])
    }

    /// The stream has ended. Returns whether the response had, too.
    pub(super) fn end(&mut self) -> bool {
        self.is_over |= matches!(self.connection.close(), Ok(Some(ResponseEvent::End { .. })));
        self.is_over
    }

    /// Takes what has come. What comes behind the end is passed over: requests are not pipelined.
    pub(super) fn feed(&mut self, mut input: &[u8]) -> Result<(), ResponseError> {
        while !self.is_over {
            let received = self.connection.receive(input)?;
            self.all += received.taken as u64;
            input = &input[received.taken..];
            match received.event {
                None => break,
                Some(ResponseEvent::Interim(_)) => {}
                Some(ResponseEvent::Head(head)) => {
                    self.head = Some(kept(&head));
                    if self.server.is_none() {
                        self.server =
                            head.get("server").map(|name| String::from_utf8_lossy(name).into_owned());
                    }
                }
                Some(ResponseEvent::Body(piece)) => self.body += piece.len() as u64,
                Some(ResponseEvent::End { .. }) => self.is_over = true,
            }
        }
        Ok(())
    }
}

fn kept(head: &ResponseHead<'_>) -> Head {
    let of_file = OF_FILES.into_iter().find(|name| head.get(name).is_some());
    Head { status: head.status.0, keeps_alive: head.persistent, of_file }
}

#[cfg(test)]
mod tests {
    use millrace_http::Version;

    use super::*;

    #[test]
    fn bytes_are_counted_however_they_come() {
        let text = b"HTTP/1.1 200 OK\r\nServer: x\r\nETag: \"1\"\r\nContent-Length: 10\r\n\r\n0123456789";
        for size in 1..=text.len() {
            let mut exchange = Exchange::default();
            exchange.begin(&PreparedRequest::new("GET", "/", Version::Http11, &[]));
            assert!(exchange.is_fresh() && !exchange.is_over());
            let mut rest = &text[..];
            while !rest.is_empty() {
                let count = size.min(rest.len());
                match exchange.certain() {
                    0 => exchange.feed(&rest[..count]).unwrap(),
                    certain => exchange.skip(certain.min(count as u64)).unwrap(),
                }
                rest = &rest[count..];
            }
            let head = Head { status: 200, keeps_alive: true, of_file: Some("etag") };
            assert!(exchange.is_over() && exchange.end());
            assert_eq!((exchange.head(), exchange.server.as_deref()), (Some(&head), Some("x")));
            assert_eq!((exchange.body, exchange.all), (10, text.len() as u64));
        }
    }

    #[test]
    fn a_cut_response_is_not_over() {
        let mut exchange = Exchange::default();
        exchange.begin(&PreparedRequest::new("GET", "/", Version::Http11, &[]));
        exchange.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx").unwrap();
        assert!(!exchange.end() && exchange.head().is_some());
    }
}
