//! What both sides of a connection do with what they receive (RFC 9113 sections 4 to 6).
//!
//! Payloads of `DATA` pass through as they come. Every other frame is handled whole; where it came in pieces, these are put together in a
//! buffer that exists for no longer than that.

use std::ops::Range;

use thiserror::Error;

use super::budget::FrameBudget;
use super::fault::{Fault, protocol};
use super::fields::Fields;
use super::frame::{self, DEFAULT_WINDOW, ErrorCode, FRAME_HEAD, FRAME_SIZE, FrameHead, PREFACE, flag, kind};
use super::heads::Block;
use super::hpack::FieldDecoder;
use super::settings::{ConnectionLimits, PeerSettings};
use super::stream::{Ended, ReceiveWindow, Remote, StreamState, Streams};

/// The dynamic table of the fields that come: what every peer begins with.
const TABLE: usize = 4096;

/// What came of the bytes of the peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamEvent {
    /// The head of a request or of a response, an interim one included; its fields are in `fields()` until more is
    /// received. `ends`: no body follows.
    Head {
        /// The stream.
        stream: u32,
        /// Whether nothing follows.
        ends: bool,
    },
    /// Bytes of a body: this range of the input, which may be empty at the end. Their window is opened again by `release`.
    Data {
        /// The stream.
        stream: u32,
        /// Which bytes of the input.
        range: Range<usize>,
        /// Whether nothing follows.
        ends: bool,
    },
    /// Trailers, in `fields()`; nothing follows.
    Trailers {
        /// The stream.
        stream: u32,
    },
    /// A stream was reset, by the peer or for a fault of the peer's. It is gone.
    Reset {
        /// The stream.
        stream: u32,
        /// Why.
        code: ErrorCode,
    },
    /// A window was opened: bodies may go on.
    Window,
    /// The peer has answered a `PING`.
    Pong,
    /// The peer opens no more streams, or serves none above this.
    GoAway {
        /// The last one that is served.
        last: u32,
        /// Why.
        code: ErrorCode,
    },
}

/// How much of the input was taken, and what it came to. Without an event all of it was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedFrames {
    /// Bytes of the input that are done with.
    pub taken: usize,
    /// What they came to; there may be more behind it.
    pub event: Option<StreamEvent>,
}

/// Why the connection has ended. The peer is told by a `GOAWAY`, which stands in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("HTTP/2 error {}: {reason}", code.0)]
pub struct ConnectionError {
    /// What the peer is told.
    pub code: ErrorCode,
    /// Why, for a person.
    pub reason: &'static str,
}

/// Which end of the connection this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Server,
    Client,
}

/// A connection, whichever side this is.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) side: Side,
    pub(super) limits: ConnectionLimits,
    pub(super) peer: PeerSettings,
    pub(super) streams: Streams,
    /// The last stream that the client has opened.
    pub(super) highest: u32,
    /// Bytes that this side may send on all streams together.
    pub(super) send_window: i64,
    pub(super) receive_window: ReceiveWindow,
    /// The last stream that is served, once the peer was told to open no more.
    pub(super) last_served: Option<u32>,
    pub(super) budget: FrameBudget,
    pub(super) fields: Fields,
    pub(super) decoder: FieldDecoder,
    intake: Intake,
    /// A head of a frame, or the preface, that came in pieces: how much of it.
    head: [u8; FRAME_HEAD],
    known: usize,
    /// A payload that came in pieces.
    partial: Vec<u8>,
    /// Fields of which more follow.
    pub(super) block: Option<Block>,
    /// The first frame of the peer has come.
    has_settings: bool,
    /// Bytes that the peer may send on a new stream: no fewer than it knows of.
    pub(super) stream_window: u32,
}

/// The part of a frame that is received next.
#[derive(Debug, Clone, Copy)]
enum Intake {
    Preface,
    Head,
    Payload(FrameHead),
    Data(Data),
    /// The connection has ended with an error.
    Nothing,
}

/// The rest of a frame of `DATA`.
#[derive(Debug, Clone, Copy)]
struct Data {
    /// 0 where the stream is gone and its bytes are passed over.
    stream: u32,
    /// Bytes of the payload to come, and how many of them are padding.
    left: u32,
    padding: Padding,
    ends: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Padding {
    /// The first byte says.
    Unknown,
    Bytes(u32),
}

/// What one step through the input came to.
enum Progress {
    Event(StreamEvent),
    Frame,
    NeedsMore,
}

impl Connection {
    /// A new connection, and what the window of the whole is opened by.
    pub(super) fn new(side: Side, limits: ConnectionLimits) -> (Self, u32) {
        let (receive_window, increment) = ReceiveWindow::new(limits.connection_window);
        let connection = Self {
            side,
            limits,
            peer: PeerSettings::default(),
            streams: Streams::default(),
            highest: 0,
            send_window: i64::from(DEFAULT_WINDOW),
            receive_window,
            last_served: None,
            budget: FrameBudget::default(),
            fields: Fields::new(limits.field_bytes as usize),
            decoder: FieldDecoder::new(TABLE),
            intake: if side == Side::Server { Intake::Preface } else { Intake::Head },
            head: [0; FRAME_HEAD],
            known: 0,
            partial: Vec::new(),
            block: None,
            has_settings: false,
            stream_window: limits.stream_window.max(DEFAULT_WINDOW),
        };
        (connection, increment)
    }

    /// Takes bytes up to the next event.
    pub(super) fn receive(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<ReceivedFrames, ConnectionError> {
        let mut at = 0;
        loop {
            let event = match self.step(input, &mut at, out) {
                Ok(Progress::Frame) => continue,
                Ok(Progress::NeedsMore) => None,
                Ok(Progress::Event(event)) => Some(event),
                Err(Fault::Stream(stream, code)) => match self.reset_for_fault(stream, code, out) {
                    Ok(Some(event)) => Some(event),
                    Ok(None) => continue,
                    Err(error) => return Err(error),
                },
                Err(Fault::Connection(code, reason)) => return Err(self.end_for_fault(code, reason, out)),
            };
            return Ok(ReceivedFrames { taken: at, event });
        }
    }

    fn end_for_fault(&mut self, code: ErrorCode, reason: &'static str, out: &mut Vec<u8>) -> ConnectionError {
        self.intake = Intake::Nothing;
        let last = if self.side == Side::Server { self.highest } else { 0 };
        frame::write_goaway(last, code, out);
        ConnectionError { code, reason }
    }

    /// Resets a stream; the event, where the caller knows the stream.
    fn reset_for_fault(
        &mut self,
        stream: u32,
        code: ErrorCode,
        out: &mut Vec<u8>,
    ) -> Result<Option<StreamEvent>, ConnectionError> {
        if self.side == Side::Server && !self.budget.take_fault() {
            let reason = "too many streams were reset for faults";
            return Err(self.end_for_fault(ErrorCode::ENHANCE_YOUR_CALM, reason, out));
        }
        let is_known = self.streams.get(stream).is_some();
        frame::write_reset(stream, code, out);
        self.streams.end(Ended::ByThisSide(stream));
        if let Intake::Data(data) = &mut self.intake
            && data.stream == stream
        {
            data.stream = 0;
        }
        Ok(is_known.then_some(StreamEvent::Reset { stream, code }))
    }

    fn step(&mut self, input: &[u8], at: &mut usize, out: &mut Vec<u8>) -> Result<Progress, Fault> {
        let rest = &input[*at..];
        match self.intake {
            Intake::Nothing => {
                *at = input.len();
                Ok(Progress::NeedsMore)
            }
            Intake::Data(data) => self.take_data(data, rest, at, out),
            _ if rest.is_empty() => Ok(Progress::NeedsMore),
            Intake::Preface => {
                let count = rest.len().min(PREFACE.len() - self.known);
                if rest[..count] != PREFACE[self.known..self.known + count] {
                    return protocol("the connection does not begin with the preface");
                }
                (*at, self.known) = (*at + count, self.known + count);
                if self.known == PREFACE.len() {
                    (self.known, self.intake) = (0, Intake::Head);
                }
                Ok(Progress::Frame)
            }
            Intake::Head => {
                let count = rest.len().min(FRAME_HEAD - self.known);
                self.head[self.known..self.known + count].copy_from_slice(&rest[..count]);
                (*at, self.known) = (*at + count, self.known + count);
                if self.known < FRAME_HEAD {
                    return Ok(Progress::NeedsMore);
                }
                self.known = 0;
                let head = FrameHead::parse(self.head);
                self.begin_frame(head)?;
                match self.intake {
                    Intake::Payload(_) if head.length == 0 => self.end_frame(head, &[], out),
                    _ => Ok(Progress::Frame),
                }
            }
            Intake::Payload(head) => {
                let length = head.length as usize;
                if self.partial.is_empty() && rest.len() >= length {
                    *at += length;
                    return self.end_frame(head, &rest[..length], out);
                }
                let count = rest.len().min(length - self.partial.len());
                self.partial.extend_from_slice(&rest[..count]);
                *at += count;
                if self.partial.len() < length {
                    return Ok(Progress::NeedsMore);
                }
                let payload = std::mem::take(&mut self.partial);
                self.end_frame(head, &payload, out)
            }
        }
    }

    /// Looks at the head of a frame, and decides how its payload is taken.
    fn begin_frame(&mut self, head: FrameHead) -> Result<(), Fault> {
        self.intake = Intake::Payload(head);
        if head.length as usize > FRAME_SIZE {
            return Err(Fault::Connection(ErrorCode::FRAME_SIZE_ERROR, "a frame is too long"));
        }
        if !std::mem::replace(&mut self.has_settings, true)
            && (head.kind != kind::SETTINGS || head.has(flag::ACK))
        {
            return protocol("the first frame is no SETTINGS");
        }
        if let Some(block) = &self.block
            && (head.kind != kind::CONTINUATION || head.stream != block.stream)
        {
            return protocol("a block of fields is interrupted");
        }
        let is_free = match head.kind {
            kind::DATA => head.length > 0 || head.has(flag::END_STREAM),
            kind::HEADERS | kind::CONTINUATION => true,
            _ => false,
        };
        if self.side == Side::Server && !is_free && !self.budget.take_frame() {
            let reason = "frames that ask for nothing come faster than they are worth";
            return Err(Fault::Connection(ErrorCode::ENHANCE_YOUR_CALM, reason));
        }
        if head.kind == kind::DATA { self.begin_data(head) } else { Ok(()) }
    }

    fn begin_data(&mut self, head: FrameHead) -> Result<(), Fault> {
        let Some(left) = self.receive_window.left.checked_sub(head.length) else {
            let reason = "more came than the window of the connection allows";
            return Err(Fault::Connection(ErrorCode::FLOW_CONTROL_ERROR, reason));
        };
        self.receive_window.left = left;
        let padding = match head.has(flag::PADDED) {
            true if head.length == 0 => return protocol("padding without a length"),
            true => Padding::Unknown,
            false => Padding::Bytes(0),
        };
        let mut data = Data { stream: 0, left: head.length, padding, ends: head.has(flag::END_STREAM) };
        self.intake = Intake::Data(data);
        let Some(stream) = self.streams.get(head.stream) else {
            return match self.streams.ended(head.stream) {
                _ if self.is_idle(head.stream) => protocol("DATA on an idle stream"),
                Ended::ByThisSide(_) => Ok(()),
                _ => Err(Fault::Stream(head.stream, ErrorCode::STREAM_CLOSED)),
            };
        };
        if stream.state == StreamState::RemoteClosed {
            return Err(Fault::Stream(head.stream, ErrorCode::STREAM_CLOSED));
        }
        if stream.remote == Remote::Head {
            return Err(Fault::Stream(head.stream, ErrorCode::PROTOCOL_ERROR));
        }
        let Some(left) = stream.receive_window.checked_sub(head.length) else {
            return Err(Fault::Stream(head.stream, ErrorCode::FLOW_CONTROL_ERROR));
        };
        stream.receive_window = left;
        data.stream = head.stream;
        self.intake = Intake::Data(data);
        Ok(())
    }

    /// Returns whether no stream of this number was ever opened.
    pub(super) fn is_idle(&self, stream: u32) -> bool {
        stream.is_multiple_of(2) || stream > self.highest
    }

    fn take_data(
        &mut self,
        mut data: Data,
        rest: &[u8],
        at: &mut usize,
        out: &mut Vec<u8>,
    ) -> Result<Progress, Fault> {
        if rest.is_empty() && data.left > 0 {
            return Ok(Progress::NeedsMore);
        }
        let padding = match data.padding {
            Padding::Bytes(padding) => padding,
            Padding::Unknown => {
                let padding = u32::from(rest[0]);
                if padding >= data.left {
                    return protocol("padding is longer than its frame");
                }
                (data.left, data.padding, *at) = (data.left - 1, Padding::Bytes(padding), *at + 1);
                self.intake = Intake::Data(data);
                self.release(data.stream, 1, out);
                return Ok(Progress::Frame);
            }
        };
        let content = data.left.saturating_sub(padding);
        let count = if content > 0 { content } else { data.left }.min(rest.len() as u32);
        data.left -= count;
        let range = *at..*at + count as usize;
        *at += count as usize;
        let is_over = data.left == 0;
        self.intake = if is_over { Intake::Head } else { Intake::Data(data) };
        // The windows for padding and ignored data are opened without the caller.
        if content == 0 || data.stream == 0 {
            self.release(data.stream, count, out);
            if data.stream == 0 || !(is_over && data.ends) {
                return Ok(Progress::Frame);
            }
            self.end_remote(data.stream)?;
            let range = range.start..range.start;
            return Ok(Progress::Event(StreamEvent::Data { stream: data.stream, range, ends: true }));
        }
        if let Some(stream) = self.streams.get(data.stream)
            && let Remote::Body(Some(length)) = &mut stream.remote
        {
            let Some(left) = length.checked_sub(u64::from(count)) else {
                return Err(Fault::Stream(data.stream, ErrorCode::PROTOCOL_ERROR));
            };
            *length = left;
        }
        let ends = is_over && data.ends;
        if ends {
            self.end_remote(data.stream)?;
        }
        Ok(Progress::Event(StreamEvent::Data { stream: data.stream, range, ends }))
    }

    /// The peer has ended its side of a stream.
    pub(super) fn end_remote(&mut self, id: u32) -> Result<(), Fault> {
        let Some(stream) = self.streams.get(id) else { return Ok(()) };
        if matches!(stream.remote, Remote::Body(Some(1..))) {
            return Err(Fault::Stream(id, ErrorCode::PROTOCOL_ERROR));
        }
        match stream.state {
            StreamState::LocalClosed => self.streams.end(Ended::ByBoth(id)),
            _ => stream.state = StreamState::RemoteClosed,
        }
        Ok(())
    }

    /// A frame is whole.
    fn end_frame(&mut self, head: FrameHead, payload: &[u8], out: &mut Vec<u8>) -> Result<Progress, Fault> {
        self.intake = Intake::Head;
        let event = match head.kind {
            kind::HEADERS => self.on_headers(head, payload, out),
            kind::CONTINUATION => self.on_continuation(head, payload, out),
            _ => self.on_payload(head, payload, out),
        };
        event.map(|event| event.map_or(Progress::Frame, Progress::Event))
    }
}
