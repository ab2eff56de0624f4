//! The inputs of a server's connection, and its steps.

use std::sync::Arc;
use std::time::Duration;

use crate::Status;
use crate::request::{Head, Refusal, Version};

/// An input of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input<'a> {
    /// The client sent these bytes.
    Received(&'a [u8]),
    /// The client ended its side: no more bytes come.
    PeerClosed,
    /// The driver can answer the next request, of which bytes may be here.
    Ready,
    /// The body of the open request is about to be taken.
    BodyWanted,
    /// The answer to the open request is complete, and with the driver.
    Answered,
    /// The driver has sent everything; whether there may be input that it has not read.
    Sent(Unread),
    /// The moment of [`ServerConnection::deadline`](super::ServerConnection::deadline) has come.
    Deadline,
}

/// Whether the driver may find more input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// It has read all that came.
    Nothing,
    /// It has not looked, or not to the end.
    Possible,
}

/// The result of an input: bytes first, then at most one act.
#[derive(Debug, Default)]
pub struct Step {
    /// The bytes to send before anything else.
    pub send: &'static [u8],
    /// The act after that.
    pub act: Option<Act>,
}

/// An act that the driver performs.
#[derive(Debug)]
pub enum Act {
    /// Answer this request, however long that takes, and then report [`Input::Answered`].
    Answer(Arc<Head>),
    /// Answer a malformed request with this refusal, and then report [`Input::Answered`]; the bytes are its beginning,
    /// for the log.
    Refuse(Refusal, Vec<u8>),
    /// End our side of the stream, and go on giving what comes: it is thrown away.
    EndOutput,
    /// Close the connection.
    Close,
}

/// How long a client may take.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// For a head, from its first byte; and for the first byte of a new connection.
    pub head: Duration,
    /// For the next request.
    pub idle: Duration,
}

impl Step {
    pub(super) fn act(act: Act) -> Self {
        Self { act: Some(act), ..Self::default() }
    }
}

/// How the body of an answer is framed (RFC 9112 section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerFraming {
    /// There is no body: the request was `HEAD`, or the status has none.
    Bodiless,
    /// By `Content-Length`.
    Length(u64),
    /// In chunks.
    Chunked,
    /// The body ends where the connection does: HTTP/1.0 knows nothing else.
    UntilClose,
}

impl AnswerFraming {
    /// The framing of an answer to a request of this version, whose body has this length, where that is known.
    pub fn of(version: Version, is_head: bool, status: Status, length: Option<u64>) -> Self {
        match length {
            _ if is_head || status.is_bodiless() => Self::Bodiless,
            Some(length) => Self::Length(length),
            None if version == Version::Http11 => Self::Chunked,
            None => Self::UntilClose,
        }
    }
}
