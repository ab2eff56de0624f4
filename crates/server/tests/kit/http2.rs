//! A client of HTTP/2 that writes its frames by hand, so that it can break every rule (RFC 9113, RFC 7541).

use std::io::ErrorKind;
use std::net::TcpStream;

use millrace_http::h2::hpack::FieldDecoder;
use millrace_net::tls::{Heard, Versions};
use millrace_server::Config;

use super::{Response, Scratch, Secured, ServedHttp, connector, https_config, pattern, serve_http_with};

/// Types of frames.
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

/// Flags; `ACK` is that of `SETTINGS` and `PING`.
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// Settings.
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;

/// What a connection was ended for.
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;

/// What a connection begins with.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD: usize = 9;

/// Serves `/small` (`here`) and `/large` (8 MiB of the pattern), in TLS as well.
pub(crate) fn served_with(scratch: &Scratch, change: impl FnOnce(&mut Config)) -> ServedHttp {
    scratch.write("small", b"here");
    scratch.write("large", &pattern(8 << 20));
    let mut config = https_config(scratch);
    change(&mut config);
    serve_http_with(config)
}

/// Asserts that other clients are served the files of [`served_with`], by HTTP/2 and by HTTP/1.1.
#[track_caller]
pub(crate) fn expect_others_served(served: &ServedHttp) {
    assert_eq!(served.connect_http2(&[]).fetch(1, "/small"), (200, b"here".to_vec()));
    assert_eq!(served.get("/small", "").body, b"here");
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) content: Vec<u8>,
}

impl Frame {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = (self.content.len() as u32).to_be_bytes()[1..].to_vec();
        bytes.extend_from_slice(&[self.kind, self.flags]);
        bytes.extend_from_slice(&self.stream.to_be_bytes());
        bytes.extend_from_slice(&self.content);
        bytes
    }
}

/// A frame with this content.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, content: impl Into<Vec<u8>>) -> Vec<u8> {
    Frame { kind, flags, stream, content: content.into() }.bytes()
}

/// Fields as HPACK has them: literal, neither indexed nor in Huffman's code.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    let text = |text: &str, out: &mut Vec<u8>| match text.len() {
        length @ 0..127 => out.extend([&[length as u8], text.as_bytes()].concat()),
        length => {
            out.push(127);
            let mut rest = length - 127;
            while rest >= 128 {
                out.push((rest % 128) as u8 | 128);
                rest /= 128;
            }
            out.push(rest as u8);
            out.extend_from_slice(text.as_bytes());
        }
    };
    for (name, value) in fields {
        out.push(0);
        text(name, &mut out);
        text(value, &mut out);
    }
    out
}

/// The fields of a request without a body, and more.
pub(crate) fn request<'a>(
    method: &'a str,
    path: &'a str,
    more: &[(&'a str, &'a str)],
) -> Vec<(&'a str, &'a str)> {
    let mut fields =
        vec![(":method", method), (":scheme", "https"), (":path", path), (":authority", "localhost")];
    fields.extend_from_slice(more);
    fields
}

/// The frame of a `GET`.
pub(crate) fn get(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, block(&request("GET", path, &[])))
}

/// A connection.
pub(crate) struct Http2Client {
    pub(crate) secured: Secured,
    received: Vec<u8>,
    /// What the last `GOAWAY` was for.
    pub(crate) told_off: Option<u32>,
    /// Whether the server hears that this is still there when it asks.
    pub(crate) answers_pings: bool,
}

impl ServedHttp {
    /// A client of HTTP/2 with these settings.
    pub(crate) fn connect_http2(&self, settings: &[(u16, u32)]) -> Http2Client {
        let mut client = self.connect_http2_silently();
        let content: Vec<u8> = settings
            .iter()
            .flat_map(|(key, value)| [&key.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        assert!(client.send([PREFACE, &frame(SETTINGS, 0, 0, content)].concat()));
        client
    }

    /// One that has said nothing yet.
    pub(crate) fn connect_http2_silently(&self) -> Http2Client {
        let stream = TcpStream::connect(self.running.https_addresses()[0]).unwrap();
        stream.set_nodelay(true).unwrap();
        let connector = connector(Versions::All).with_protocols(&[b"h2"]);
        let secured = Secured::over(stream, &connector).unwrap();
        Http2Client { secured, received: Vec::new(), told_off: None, answers_pings: true }
    }
}

impl Http2Client {
    /// Sends bytes; answers whether the server still took them.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.secured.write_all(bytes.as_ref()).is_ok()
    }

    /// The next frame; `None` at the end of the connection. Settings are acknowledged.
    pub(crate) fn frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.take() {
                match (frame.kind, frame.flags & ACK) {
                    (PING, 0) if self.answers_pings => {
                        _ = self.send(self::frame(PING, ACK, 0, frame.content.clone()));
                    }
                    (SETTINGS, 0) => _ = self.send(self::frame(SETTINGS, ACK, 0, [])),
                    (GOAWAY, _) => {
                        let code = frame.content[4..8].try_into().map(u32::from_be_bytes);
                        self.told_off = code.ok();
                    }
                    _ => {}
                }
                return Some(frame);
            }
            let before = self.received.len();
            match self.secured.read(&mut self.received) {
                Ok(Heard::Bytes { .. }) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    panic!("nothing came: {error}")
                }
                // The last frames and the end may come together.
                _ if self.received.len() > before => {}
                _ => return None,
            }
        }
    }

    fn take(&mut self) -> Option<Frame> {
        let head = self.received.get(..HEAD)?;
        let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, &byte| sum << 8 | u32::from(byte));
        let (length, kind, flags, stream) = (number(&head[..3]), head[3], head[4], number(&head[5..9]));
        let end = HEAD + length as usize;
        let content = self.received.get(HEAD..end)?.to_vec();
        self.received.drain(..end);
        Some(Frame { kind, flags, stream, content })
    }

    /// The next frame of this type on this stream.
    #[track_caller]
    pub(crate) fn expect(&mut self, kind: u8, stream: u32) -> Frame {
        loop {
            match self.frame() {
                Some(frame) if (frame.kind, frame.stream) == (kind, stream) => return frame,
                Some(_) => {}
                None => panic!("the connection ended, told off: {:?}", self.told_off),
            }
        }
    }

    /// Returns true if a frame of this type comes yet, on whatever stream.
    pub(crate) fn try_expect(&mut self, kind: u8) -> bool {
        while let Some(frame) = self.frame() {
            if frame.kind == kind {
                return true;
            }
        }
        false
    }

    /// Asks for a file and takes all of it, giving back what it takes of the windows.
    #[track_caller]
    pub(crate) fn fetch(&mut self, stream: u32, path: &str) -> (u16, Vec<u8>) {
        self.send(get(stream, path));
        self.answer(stream)
    }

    /// The answer on a stream.
    #[track_caller]
    pub(crate) fn answer(&mut self, stream: u32) -> (u16, Vec<u8>) {
        let head = self.expect(HEADERS, stream);
        let status = status(&head.content);
        let body = if head.flags & END_STREAM != 0 { Vec::new() } else { self.body(stream) };
        (status, body)
    }

    /// The answer on a stream, with its fields.
    #[track_caller]
    pub(crate) fn response(&mut self, stream: u32) -> Response {
        let head = self.expect(HEADERS, stream);
        let mut fields = Vec::new();
        let mut decoder = FieldDecoder::new(4096);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let decoded = decoder.decode(&head.content, |name, value| {
            fields.push((text(name), text(value)));
            true
        });
        decoded.unwrap();
        let (name, status) = fields.remove(0);
        assert_eq!(name, ":status");
        let body = if head.flags & END_STREAM != 0 { Vec::new() } else { self.body(stream) };
        Response { status: status.parse().unwrap(), fields, body }
    }

    /// The body of an answer whose head was taken, giving back what it takes of the windows.
    #[track_caller]
    pub(crate) fn body(&mut self, stream: u32) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let data = self.expect(DATA, stream);
            let is_over = data.flags & END_STREAM != 0;
            if !data.content.is_empty() {
                let length = (data.content.len() as u32).to_be_bytes();
                self.send(frame(WINDOW_UPDATE, 0, 0, length));
                if !is_over {
                    self.send(frame(WINDOW_UPDATE, 0, stream, length));
                }
            }
            body.extend(data.content);
            if is_over {
                return body;
            }
        }
    }

    /// Reads until the connection ends, however it does.
    pub(crate) fn end(&mut self) {
        while self.frame().is_some() {}
    }
}

/// The status that a block of fields begins with, of those that HPACK's table has; 0 for others.
pub(crate) fn status(block: &[u8]) -> u16 {
    let first = block.iter().find(|&&byte| byte & 0xe0 != 0x20);
    match first {
        Some(0x88) => 200,
        Some(0x89) => 204,
        Some(0x8a) => 206,
        Some(0x8b) => 304,
        Some(0x8c) => 400,
        Some(0x8d) => 404,
        Some(0x8e) => 500,
        _ => 0,
    }
}
