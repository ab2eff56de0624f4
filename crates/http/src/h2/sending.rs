//! What both sides of a connection send (RFC 9113 sections 5.2, 6 and 8.1).

use super::connection::Connection;
use super::frame::{self, ErrorCode, FRAME_HEAD, FRAME_SIZE, FrameHead, flag, kind};
use super::hpack::FieldEncoder;
use super::stream::{Ended, StreamState};

impl Connection {
    /// Appends the head of a message, whose fields `write` gives. Returns whether the stream is open for it.
    pub(super) fn send_head(
        &mut self,
        id: u32,
        ends: bool,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut FieldEncoder<'_>),
    ) -> bool {
        let Some(stream) = self.streams.get(id).filter(|stream| stream.state != StreamState::LocalClosed)
        else {
            return false;
        };
        stream.is_answered = true;
        stream.has_body = !ends;
        let start = out.len();
        out.extend_from_slice(&[0; FRAME_HEAD]);
        write(&mut FieldEncoder::new(out));
        frame::finish_block(start, id, ends, self.peer.frame_size.min(FRAME_SIZE), out);
        if ends {
            self.end_local(id);
        }
        true
    }

    /// How many bytes of a body may be sent on a stream now, in one frame.
    pub(super) fn room(&mut self, id: u32) -> usize {
        let window = self.send_window;
        let Some(stream) = self.streams.get(id).filter(|stream| stream.state != StreamState::LocalClosed)
        else {
            return 0;
        };
        let window = clamped(stream.send_window.min(window));
        self.frame_room(window)
    }

    fn frame_room(&self, window: usize) -> usize {
        window.min(self.peer.frame_size).min(FRAME_SIZE)
    }

    /// The next stream in turn with a body that may be sent, and how much of it in one frame.
    pub(super) fn next_body(&mut self) -> Option<(u32, usize)> {
        let window = clamped(self.send_window);
        if window == 0 {
            return None;
        }
        let (id, room) = self.streams.next_with_window()?;
        Some((id, self.frame_room(room.min(window))))
    }

    /// Appends the head of a frame of a body; the caller puts `length` bytes behind it, no more than there is room for.
    pub(super) fn send_data_head(&mut self, id: u32, length: usize, ends: bool, out: &mut Vec<u8>) {
        debug_assert!(length <= self.room(id));
        let flags = if ends { flag::END_STREAM } else { 0 };
        let head = FrameHead { length: length as u32, kind: kind::DATA, flags, stream: id };
        out.extend_from_slice(&head.bytes());
        self.send_window -= length as i64;
        if let Some(stream) = self.streams.get(id) {
            stream.send_window -= length as i64;
        }
        if ends {
            self.end_local(id);
        }
    }

    fn end_local(&mut self, id: u32) {
        let Some(stream) = self.streams.get(id) else { return };
        match stream.state {
            StreamState::RemoteClosed => self.streams.end(Ended::ByBoth(id)),
            _ => (stream.state, stream.has_body) = (StreamState::LocalClosed, false),
        }
    }

    /// Gives a stream up. Nothing more comes of it.
    pub(super) fn reset(&mut self, id: u32, code: ErrorCode, out: &mut Vec<u8>) {
        if self.streams.get(id).is_some() {
            frame::write_reset(id, code, out);
            self.streams.end(Ended::ByThisSide(id));
        }
    }

    /// Bytes of a body were used: opens the windows again, by halves.
    pub(super) fn release(&mut self, id: u32, count: u32, out: &mut Vec<u8>) {
        if let Some(increment) = self.receive_window.release(count) {
            frame::write_window_update(0, increment, out);
        }
        let half = self.limits.stream_window / 2;
        let Some(stream) = self.streams.get(id).filter(|stream| stream.state != StreamState::RemoteClosed)
        else {
            return;
        };
        stream.owed += count;
        if stream.owed >= half.max(1) {
            let increment = std::mem::take(&mut stream.owed);
            stream.receive_window += increment;
            frame::write_window_update(id, increment, out);
        }
    }
}

fn clamped(window: i64) -> usize {
    usize::try_from(window).unwrap_or(0)
}
