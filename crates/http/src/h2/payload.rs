//! Frames that carry neither a body nor fields (RFC 9113 sections 6.3 to 6.9).

use super::connection::{Connection, Side, StreamEvent};
use super::fault::{Fault, protocol, too_short};
use super::frame::{self, ErrorCode, FrameHead, MAX_WINDOW, flag, kind};
use super::stream::Ended;

impl Connection {
    /// Handles a frame that is whole. One of an unknown type is passed over.
    pub(super) fn on_payload(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<StreamEvent>, Fault> {
        match head.kind {
            kind::PRIORITY => on_priority(head, payload),
            kind::RST_STREAM => self.on_reset(head, payload),
            kind::SETTINGS => self.on_settings(head, payload, out),
            kind::PUSH_PROMISE => protocol("PUSH_PROMISE, where none is allowed"),
            kind::PING => on_ping(head, payload, out),
            kind::GOAWAY => on_goaway(head, payload),
            kind::WINDOW_UPDATE => self.on_window_update(head, payload),
            _ => Ok(None),
        }
    }

    fn on_reset(&mut self, head: FrameHead, payload: &[u8]) -> Result<Option<StreamEvent>, Fault> {
        let Ok(code) = payload.try_into().map(u32::from_be_bytes) else { return too_short() };
        if self.is_idle(head.stream) {
            return protocol("RST_STREAM on an idle stream");
        }
        let Some(stream) = self.streams.get(head.stream) else { return Ok(None) };
        if self.side == Side::Server && !stream.is_answered && !self.budget.take_reset() {
            let reason = "requests are taken back faster than they can be answered";
            return Err(Fault::Connection(ErrorCode::ENHANCE_YOUR_CALM, reason));
        }
        self.streams.end(Ended::ByBoth(head.stream));
        Ok(Some(StreamEvent::Reset { stream: head.stream, code: ErrorCode(code) }))
    }

    fn on_settings(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<StreamEvent>, Fault> {
        if head.stream != 0 {
            return protocol("SETTINGS on a stream");
        }
        if head.has(flag::ACK) {
            // It has heard of the windows.
            self.stream_window = self.limits.stream_window;
            return if payload.is_empty() { Ok(None) } else { too_short() };
        }
        let window = i64::from(self.peer.window);
        self.peer.update(payload)?;
        let increment = i64::from(self.peer.window) - window;
        if increment != 0 && !self.streams.iter_mut().all(|stream| stream.open_window(increment)) {
            let reason = "SETTINGS open a window too far";
            return Err(Fault::Connection(ErrorCode::FLOW_CONTROL_ERROR, reason));
        }
        frame::write(kind::SETTINGS, flag::ACK, 0, &[], out);
        Ok((increment > 0).then_some(StreamEvent::Window))
    }

    fn on_window_update(&mut self, head: FrameHead, payload: &[u8]) -> Result<Option<StreamEvent>, Fault> {
        let Ok(increment) = payload.try_into().map(u32::from_be_bytes) else { return too_short() };
        let increment = i64::from(increment) & MAX_WINDOW;
        if head.stream == 0 {
            self.send_window += increment;
            return match (increment, self.send_window > MAX_WINDOW) {
                (0, _) => protocol("WINDOW_UPDATE by nothing"),
                (_, true) => {
                    let reason = "the window of the connection is opened too far";
                    Err(Fault::Connection(ErrorCode::FLOW_CONTROL_ERROR, reason))
                }
                _ => Ok(Some(StreamEvent::Window)),
            };
        }
        if self.is_idle(head.stream) {
            return protocol("WINDOW_UPDATE on an idle stream");
        }
        let Some(stream) = self.streams.get(head.stream) else { return Ok(None) };
        match increment {
            0 => Err(Fault::Stream(head.stream, ErrorCode::PROTOCOL_ERROR)),
            _ if !stream.open_window(increment) => {
                Err(Fault::Stream(head.stream, ErrorCode::FLOW_CONTROL_ERROR))
            }
            _ => Ok(Some(StreamEvent::Window)),
        }
    }
}

fn on_priority(head: FrameHead, payload: &[u8]) -> Result<Option<StreamEvent>, Fault> {
    let Ok([a, b, c, d, _]) = <[u8; 5]>::try_from(payload) else {
        return Err(Fault::Stream(head.stream, ErrorCode::FRAME_SIZE_ERROR));
    };
    match head.stream {
        0 => protocol("PRIORITY on no stream"),
        stream if u32::from_be_bytes([a & 0x7f, b, c, d]) == stream => {
            Err(Fault::Stream(stream, ErrorCode::PROTOCOL_ERROR))
        }
        _ => Ok(None),
    }
}

fn on_ping(head: FrameHead, payload: &[u8], out: &mut Vec<u8>) -> Result<Option<StreamEvent>, Fault> {
    match (head.stream, payload.len()) {
        (1.., _) => protocol("PING on a stream"),
        (_, 8) if head.has(flag::ACK) => Ok(Some(StreamEvent::Pong)),
        (_, 8) => {
            frame::write(kind::PING, flag::ACK, 0, payload, out);
            Ok(None)
        }
        _ => too_short(),
    }
}

fn on_goaway(head: FrameHead, payload: &[u8]) -> Result<Option<StreamEvent>, Fault> {
    let Some((&[a, b, c, d, e, f, g, h], _)) = payload.split_first_chunk::<8>() else { return too_short() };
    if head.stream != 0 {
        return protocol("GOAWAY on a stream");
    }
    let (last, code) = (u32::from_be_bytes([a & 0x7f, b, c, d]), u32::from_be_bytes([e, f, g, h]));
    Ok(Some(StreamEvent::GoAway { last, code: ErrorCode(code) }))
}
