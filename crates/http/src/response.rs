//! Heads of answers.
//!
//! A head is begun with its status line, given its fields, and ended with an empty line. Values come from this
//! program or were checked to hold no control character, so nothing that a client sent can add a field.

use std::fmt::Display;
use std::io::Write;

use crate::{Status, Version};

/// The name that answers carry.
pub const SERVER: &str = "Millrace";

/// A head being written.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

/// Whether the connection goes on behind an answer, and with whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// It closes.
    Close,
    /// It goes on: the client's version says so.
    Implied,
    /// It goes on: a client of HTTP/1.0 has to be told.
    Told,
}

impl Persistence {
    /// For a client of this version, whose connection goes on or not.
    pub fn of(version: Version, goes_on: bool) -> Self {
        match (goes_on, version) {
            (false, _) => Self::Close,
            (true, Version::Http11) => Self::Implied,
            (true, Version::Http10) => Self::Told,
        }
    }
}

impl<'a> Writer<'a> {
    /// Begins a head with its status line and the lines that every answer has, `Server` and `Date` among them.
    pub fn begin(out: &'a mut Vec<u8>, status: Status, common: &[u8], persistence: Persistence) -> Self {
        match status {
            Status::OK => out.extend_from_slice(b"HTTP/1.1 200 OK\r\n"),
            _ => _ = write!(out, "HTTP/1.1 {} {}\r\n", status.0, status.reason()),
        }
        out.extend_from_slice(common);
        out.extend_from_slice(match persistence {
            Persistence::Close => b"Connection: close\r\n",
            Persistence::Implied => b"",
            Persistence::Told => b"Connection: Keep-Alive\r\n".as_slice(),
        });
        Self { out }
    }

    /// Adds a field.
    pub fn field(&mut self, name: &str, value: impl Display) -> &mut Self {
        let _ = write!(self.out, "{name}: {value}\r\n");
        self
    }

    /// Adds a field whose value is bytes.
    pub fn bytes(&mut self, name: &str, value: &[u8]) -> &mut Self {
        debug_assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n')));
        for part in [name.as_bytes(), b": ", value, b"\r\n"] {
            self.out.extend_from_slice(part);
        }
        self
    }

    /// Adds `Content-Length`.
    pub fn length(&mut self, length: u64) -> &mut Self {
        self.bytes("Content-Length", itoa::Buffer::new().format(length).as_bytes())
    }

    /// Adds whole lines that were made before.
    pub fn lines(&mut self, lines: &[u8]) -> &mut Self {
        self.out.extend_from_slice(lines);
        self
    }

    /// Ends the head.
    pub fn end(self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

/// The interim answer to a client that waits before it sends a body.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
