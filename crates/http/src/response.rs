//! Heads of answers.
//!
//! A head is begun with its status line, given its fields, and ended with an empty line. Values come from this
//! program or were checked to hold no control character, so nothing that a client sent can add a field.
//!
//! On a stream of HTTP/2 a head is a block of fields (HPACK) behind its length; [`split_block`] finds it again.

use std::fmt::Display;
use std::io::Write;

use crate::h2::hpack::FieldEncoder;
use crate::{Status, Version};

/// The name that answers carry.
pub const SERVER: &str = "Millrace";

/// Bytes of the length that stands before a block of fields.
const BLOCK_LENGTH: usize = 4;

/// Fields that HTTP/2 has no place for, because they are about one connection (RFC 9113 section 8.2.2).
const OF_CONNECTIONS: [&str; 6] =
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "te"];

/// A head being written.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    form: Form,
}

/// How a head is written.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// As the lines of HTTP/1.
    Lines,
    /// As a block of fields, whose length stands here.
    Block(usize),
}

/// Whole lines that many heads have, made once in both forms.
#[derive(Debug, Default, Clone)]
pub struct PreparedFields {
    lines: Vec<u8>,
    block: Vec<u8>,
}

impl From<Vec<u8>> for PreparedFields {
    fn from(lines: Vec<u8>) -> Self {
        let mut block = Vec::new();
        encode_lines(&lines, &mut block);
        Self { lines, block }
    }
}

impl PreparedFields {
    /// The lines, as HTTP/1 has them.
    pub fn lines(&self) -> &[u8] {
        &self.lines
    }
}

/// Whether the connection continues after an answer, and at whose wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// It closes.
    Close,
    /// It goes on: the client's version says so.
    Implied,
    /// It goes on: a client of HTTP/1.0 has to be told.
    Told,
    /// The answer is on a stream of HTTP/2, which ends by a flag.
    Stream,
}

impl Persistence {
    /// For a client of this version, whose connection goes on or not.
    pub fn of(version: Version, goes_on: bool) -> Self {
        match (goes_on, version) {
            (_, Version::Http2) => Self::Stream,
            (false, _) => Self::Close,
            (true, Version::Http11) => Self::Implied,
            (true, Version::Http10) => Self::Told,
        }
    }
}

impl<'a> Writer<'a> {
    /// Begins a head with its status line and the lines that every answer has, `Server` and `Date` among them.
    pub fn begin(
        out: &'a mut Vec<u8>,
        status: Status,
        common: &PreparedFields,
        persistence: Persistence,
    ) -> Self {
        if persistence == Persistence::Stream {
            let start = out.len();
            out.extend_from_slice(&[0; BLOCK_LENGTH]);
            FieldEncoder::new(out).status(status).block(&common.block);
            return Self { out, form: Form::Block(start) };
        }
        match status {
            Status::OK => out.extend_from_slice(b"HTTP/1.1 200 OK\r\n"),
            _ => _ = write!(out, "HTTP/1.1 {} {}\r\n", status.0, status.reason()),
        }
        out.extend_from_slice(&common.lines);
        out.extend_from_slice(match persistence {
            Persistence::Close => b"Connection: close\r\n",
            Persistence::Implied | Persistence::Stream => b"",
            Persistence::Told => b"Connection: Keep-Alive\r\n".as_slice(),
        });
        Self { out, form: Form::Lines }
    }

    /// Adds a field.
    pub fn field(&mut self, name: &str, value: impl Display) -> &mut Self {
        match self.form {
            Form::Lines => _ = write!(self.out, "{name}: {value}\r\n"),
            Form::Block(_) => encode(name, value.to_string().as_bytes(), self.out),
        }
        self
    }

    /// Adds a field whose value is bytes.
    pub fn bytes(&mut self, name: &str, value: &[u8]) -> &mut Self {
        debug_assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n')));
        match self.form {
            Form::Lines => {
                for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                    self.out.extend_from_slice(part);
                }
            }
            Form::Block(_) => encode(name, value, self.out),
        }
        self
    }

    /// Adds `Content-Length`.
    pub fn length(&mut self, length: u64) -> &mut Self {
        self.bytes("Content-Length", itoa::Buffer::new().format(length).as_bytes())
    }

    /// Adds whole lines.
    pub fn lines(&mut self, lines: &[u8]) -> &mut Self {
        match self.form {
            Form::Lines => self.out.extend_from_slice(lines),
            Form::Block(_) => encode_lines(lines, self.out),
        }
        self
    }

    /// Adds whole lines that were made before.
    pub fn prepared(&mut self, fields: &PreparedFields) -> &mut Self {
        self.out.extend_from_slice(match self.form {
            Form::Lines => &fields.lines,
            Form::Block(_) => &fields.block,
        });
        self
    }

    /// Ends the head.
    pub fn end(self) {
        match self.form {
            Form::Lines => self.out.extend_from_slice(b"\r\n"),
            Form::Block(start) => {
                let length = (self.out.len() - start - BLOCK_LENGTH) as u32;
                self.out[start..start + BLOCK_LENGTH].copy_from_slice(&length.to_be_bytes());
            }
        }
    }
}

/// Splits what was written for a stream into the block of fields and what stands behind it; `None` where the head is not
/// whole.
pub fn split_block(written: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = written.split_first_chunk::<BLOCK_LENGTH>()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}

/// Appends a field to a block, unless it is about one connection.
fn encode(name: &str, value: &[u8], out: &mut Vec<u8>) {
    let mut small = [0; 64];
    let long;
    let name = match small.get_mut(..name.len()) {
        Some(small) => {
            small.copy_from_slice(name.as_bytes());
            small.make_ascii_lowercase();
            str::from_utf8(small).unwrap_or_default()
        }
        None => {
            long = name.to_ascii_lowercase();
            &long
        }
    };
    if !OF_CONNECTIONS.contains(&name) {
        FieldEncoder::new(out).field(name, value.trim_ascii());
    }
}

/// Appends the fields of whole lines to a block.
fn encode_lines(lines: &[u8], out: &mut Vec<u8>) {
    for line in lines.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        if let Ok(name) = str::from_utf8(&line[..colon])
            && !name.is_empty()
        {
            encode(name, &line[colon + 1..], out);
        }
    }
}

/// The interim answer to a client that waits before it sends a body.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h2::hpack::FieldDecoder;

    fn written(persistence: Persistence) -> Vec<u8> {
        let common = PreparedFields::from(b"Server: Millrace\r\nDate: now\r\n".to_vec());
        let mut out = Vec::new();
        let mut writer = Writer::begin(&mut out, Status::PARTIAL_CONTENT, &common, persistence);
        writer.field("Content-Range", format_args!("bytes 0-1/{}", 9)).bytes("ETag", b"\"a\"").length(2);
        writer.lines(b"X-One: 1\r\nTransfer-Encoding: chunked\r\nX-Two:  2 \r\n");
        writer.prepared(&PreparedFields::from(b"Vary: Accept\r\n".to_vec()));
        writer.end();
        out.extend_from_slice(b"ab");
        out
    }

    #[test]
    fn both_forms_say_the_same() {
        let text = String::from_utf8(written(Persistence::Implied)).unwrap();
        let out = written(Persistence::Stream);
        let (block, body) = split_block(&out).unwrap();
        assert_eq!(body, b"ab");
        let mut fields = Vec::new();
        let mut decoder = FieldDecoder::new(4096);
        decoder
            .decode(block, |name, value| {
                fields.push((
                    String::from_utf8(name.to_vec()).unwrap(),
                    String::from_utf8(value.to_vec()).unwrap(),
                ));
                true
            })
            .unwrap();
        assert_eq!(fields.remove(0), (":status".to_owned(), "206".to_owned()));
        let lines = text.split("\r\n").skip(1).take_while(|line| !line.is_empty());
        let of_lines: Vec<_> = lines
            .filter(|line| !line.starts_with("Transfer-Encoding"))
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        assert_eq!(fields, of_lines);
        assert!(split_block(&out[..block.len()]).is_none());
    }
}
