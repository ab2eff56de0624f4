//! Heads and trailers: `HEADERS` and `CONTINUATION`, put together and looked at (RFC 9113 sections 6.2, 6.10 and 8).

use super::connection::{Connection, Side, StreamEvent};
use super::fault::{Fault, protocol, too_short};
use super::fields::Kind;
use super::frame::{ErrorCode, FrameHead, flag};
use super::hpack::HpackError;
use super::stream::{Ended, Remote, StreamState};
use crate::Status;

/// Frames that the fields of a message may come in, however short these are.
const MAX_FRAGMENTS: usize = 16;

/// How many times as long as the fields may be their block may be.
const MAX_BLOCK: usize = 4;

/// The beginning of a block of fields.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) stream: u32,
    ends: bool,
    depends_on_itself: bool,
    bytes: Vec<u8>,
    fragments: usize,
}

impl Connection {
    pub(super) fn on_headers(
        &mut self,
        head: FrameHead,
        mut payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<StreamEvent>, Fault> {
        if head.stream == 0 {
            return protocol("HEADERS on no stream");
        }
        if head.has(flag::PADDED) {
            let Some((&padding, rest)) = payload.split_first() else { return too_short() };
            let Some(length) = rest.len().checked_sub(usize::from(padding)) else {
                return protocol("padding is longer than its frame");
            };
            payload = &rest[..length];
        }
        let mut depends_on_itself = false;
        if head.has(flag::PRIORITY) {
            let Some((&[a, b, c, d, _], rest)) = payload.split_first_chunk::<5>() else {
                return too_short();
            };
            depends_on_itself = u32::from_be_bytes([a & 0x7f, b, c, d]) == head.stream;
            payload = rest;
        }
        let (stream, ends) = (head.stream, head.has(flag::END_STREAM));
        if head.has(flag::END_HEADERS) {
            return self.on_block(stream, ends, depends_on_itself, payload, out);
        }
        self.block = Some(Block { stream, ends, depends_on_itself, bytes: payload.to_vec(), fragments: 1 });
        Ok(None)
    }

    pub(super) fn on_continuation(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<StreamEvent>, Fault> {
        let Some(mut block) = self.block.take() else {
            return protocol("CONTINUATION without HEADERS");
        };
        block.bytes.extend_from_slice(payload);
        block.fragments += 1;
        let most = self.limits.field_bytes as usize * MAX_BLOCK;
        if block.bytes.len() > most || block.fragments > MAX_FRAGMENTS {
            let reason = "a block of fields has no end";
            return Err(Fault::Connection(ErrorCode::ENHANCE_YOUR_CALM, reason));
        }
        if head.has(flag::END_HEADERS) {
            return self.on_block(block.stream, block.ends, block.depends_on_itself, &block.bytes, out);
        }
        self.block = Some(block);
        Ok(None)
    }

    /// A block of fields is whole. It is decoded whatever its stream is, as later ones refer to it.
    fn on_block(
        &mut self,
        id: u32,
        ends: bool,
        depends_on_itself: bool,
        block: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<StreamEvent>, Fault> {
        self.fields.clear();
        let fields = &mut self.fields;
        self.decoder.decode(block, |name, value| fields.push(name, value)).map_err(|error| match error {
            HpackError::Flood => {
                Fault::Connection(ErrorCode::ENHANCE_YOUR_CALM, "fields unfold to more than may be")
            }
            _ => Fault::Connection(ErrorCode::COMPRESSION_ERROR, "a block of fields is broken"),
        })?;
        if let Some(stream) = self.streams.get(id) {
            if stream.state == StreamState::RemoteClosed {
                return Err(Fault::Stream(id, ErrorCode::STREAM_CLOSED));
            }
            return match stream.remote {
                Remote::Head => self.on_response(id, ends),
                Remote::Body(_) if ends && self.fields.check(Kind::Trailers) => {
                    self.end_remote(id)?;
                    Ok(Some(StreamEvent::Trailers { stream: id }))
                }
                Remote::Body(_) => Err(Fault::Stream(id, ErrorCode::PROTOCOL_ERROR)),
            };
        }
        match (self.side, self.streams.ended(id)) {
            (_, Ended::ByThisSide(_)) => Ok(None),
            (Side::Server, _) if !id.is_multiple_of(2) && id > self.highest => {
                self.on_request(id, ends, depends_on_itself, out)
            }
            (Side::Client, Ended::ByBoth(_)) => Err(Fault::Stream(id, ErrorCode::STREAM_CLOSED)),
            (_, Ended::ByBoth(_)) => {
                Err(Fault::Connection(ErrorCode::STREAM_CLOSED, "HEADERS on a stream that has ended"))
            }
            (_, Ended::No) => protocol("HEADERS on a stream that cannot be opened"),
        }
    }

    fn on_request(
        &mut self,
        id: u32,
        ends: bool,
        depends_on_itself: bool,
        out: &mut Vec<u8>,
    ) -> Result<Option<StreamEvent>, Fault> {
        self.highest = id;
        if self.last_served.is_some() {
            self.streams.remember(Ended::ByThisSide(id));
            return Ok(None);
        }
        if self.streams.count() >= self.limits.streams as usize {
            return Err(Fault::Stream(id, ErrorCode::REFUSED_STREAM));
        }
        let length = self.fields.content_length();
        let is_too_short = ends && length.is_some_and(|length| length > 0);
        if depends_on_itself || is_too_short || !self.fields.check(Kind::Request) {
            return Err(Fault::Stream(id, ErrorCode::PROTOCOL_ERROR));
        }
        let state = if ends { StreamState::RemoteClosed } else { StreamState::Open };
        let stream = self.streams.open(id, state, self.peer.window, self.stream_window);
        stream.remote = Remote::Body(length);
        if self.fields.is_too_large() {
            self.send_head(id, true, out, |fields| _ = fields.status(Status::HEAD_TOO_LARGE).length(0));
            if !ends {
                self.reset(id, ErrorCode::NO_ERROR, out);
            }
            return Ok(None);
        }
        Ok(Some(StreamEvent::Head { stream: id, ends }))
    }

    fn on_response(&mut self, id: u32, ends: bool) -> Result<Option<StreamEvent>, Fault> {
        let is_interim = self.fields.status().is_some_and(|status| status < 200);
        if !self.fields.check(Kind::Response) || self.fields.is_too_large() || is_interim && ends {
            return Err(Fault::Stream(id, ErrorCode::PROTOCOL_ERROR));
        }
        if let Some(stream) = self.streams.get(id)
            && !is_interim
        {
            // The length announced in a response to HEAD, or by 304, is not that of a body.
            stream.remote = Remote::Body(None);
        }
        if ends {
            self.end_remote(id)?;
        }
        Ok(Some(StreamEvent::Head { stream: id, ends }))
    }
}
