//! The output of streams put into frames: heads as they are made, bodies in turn, as far as the client's windows allow.

use millrace_http::h2::ErrorCode;
use millrace_http::response::split_block;
use millrace_runtime::slab::Key;

use crate::connection::Connection;
use crate::h2::OUT;
use crate::h2::connection::{Bodies, Http2Connection};
use crate::h2::stream::StreamDriver;
use crate::stream_context::AnswerProgress;
use crate::worker::Core;

impl Http2Connection {
    /// Takes from a stream what it has to say, after something was done for it: what it used of the request's body, the
    /// head of its answer, and of the body what can be sent at once. Returns whether the stream is to make more.
    pub fn collect(&mut self, stream: &mut Connection, core: &mut Core) -> bool {
        let waited = !stream.link.waiting().is_empty();
        self.collect_all(stream, core);
        waited && stream.link.waiting().is_empty() && !stream.is_answered() && !stream.link.is_broken()
    }

    fn collect_all(&mut self, stream: &mut Connection, core: &mut Core) {
        self.borrow_frames(core);
        self.release(stream);
        let Some(context) = &mut stream.stream else { return };
        if std::mem::take(&mut context.dismisses) {
            self.shut_down();
        }
        let Some(context) = &mut stream.stream else { return };
        let id = context.id;
        if context.answer == AnswerProgress::Ended {
            return;
        }
        let waits_for_client = context.answer == AnswerProgress::Body && !stream.link.waiting().is_empty();
        if let Some(running) = self.running.iter_mut().find(|running| running.id == id) {
            running.waits_for_client = waits_for_client;
        }
        if stream.link.is_broken() {
            if context.is_stalled && self.running.iter().all(|running| running.waits_for_client) {
                // Nothing else would be taken, either.
                self.link.break_off();
            }
            context.answer = AnswerProgress::Ended;
            return self.http2.reset(id, ErrorCode::INTERNAL_ERROR, &mut self.frames);
        }
        if context.answer == AnswerProgress::Head && !self.send_head(stream) {
            return;
        }
        // What is not whole yet has its turn with others.
        while stream.is_answered() && self.has_room() && self.frames.len() < OUT {
            let room = self.http2.room(id);
            if room == 0 || stream.link.waiting().is_empty() {
                break;
            }
            self.send_body(stream, room);
        }
        self.send_end(stream);
        self.http2.set_body_ready(id, !stream.link.waiting().is_empty());
        if !stream.link.waiting().is_empty() {
            self.bodies = Bodies::Possible;
        }
    }

    /// Opens the client's window by what was used of the request's body.
    fn release(&mut self, stream: &mut Connection) {
        let is_over = stream.link.is_broken() || stream.is_answered();
        let buffered = if is_over { 0 } else { stream.http.buffered() as u64 };
        let Some(context) = &mut stream.stream else { return };
        let used = (context.received - context.released).saturating_sub(buffered);
        if used > 0 {
            context.released += used;
            self.http2.release(context.id, used as usize, &mut self.frames);
        }
    }

    /// Sends the head of an answer, once it is whole. Returns whether it was sent.
    fn send_head(&mut self, stream: &mut Connection) -> bool {
        let is_answered = stream.is_answered();
        let Some((block, body)) = split_block(stream.link.waiting()) else {
            if is_answered {
                // Nothing was said.
                self.http2.reset(stream_id(stream), ErrorCode::INTERNAL_ERROR, &mut self.frames);
                set_progress(stream, AnswerProgress::Ended);
            }
            return false;
        };
        let (ends, taken) = (is_answered && body.is_empty(), stream.link.waiting().len() - body.len());
        self.http2.head(stream_id(stream), ends, &mut self.frames, |fields| _ = fields.block(block));
        stream.link.take(taken);
        match ends {
            true => self.end(stream),
            false => set_progress(stream, AnswerProgress::Body),
        }
        true
    }

    /// Sends one frame of a body, of at most this many bytes.
    fn send_body(&mut self, stream: &mut Connection, room: usize) {
        let is_answered = stream.is_answered();
        let waiting = stream.link.waiting();
        let part = &waiting[..room.min(waiting.len())];
        let ends = is_answered && part.len() == waiting.len();
        self.http2.data_head(stream_id(stream), part.len(), ends, &mut self.frames);
        self.frames.extend_from_slice(part);
        let count = part.len();
        stream.link.take(count);
        if ends {
            self.end(stream);
        }
    }

    /// Ends an answer of which nothing is left.
    fn send_end(&mut self, stream: &mut Connection) {
        let is_over = stream.is_answered() && stream.link.waiting().is_empty();
        let context = stream.stream.as_ref();
        if is_over && context.is_some_and(|context| context.answer == AnswerProgress::Body) {
            self.http2.data_head(stream_id(stream), 0, true, &mut self.frames);
            self.end(stream);
        }
    }

    /// The answer has ended: more of the request is not wanted.
    pub(crate) fn end(&mut self, stream: &mut Connection) {
        set_progress(stream, AnswerProgress::Ended);
        self.leave_unread(stream_id(stream));
    }

    /// The stream whose turn it is to send of its body, and how much.
    pub fn next_body(&mut self) -> Option<(Key, usize)> {
        while self.has_room() && self.frames.len() < OUT {
            let Some((id, room)) = self.http2.next_body() else {
                self.bodies = Bodies::None;
                return None;
            };
            match self.running.iter().find(|stream| stream.id == id) {
                Some(stream) => return Some((stream.key, room)),
                None => self.http2.set_body_ready(id, false),
            }
        }
        None
    }

    /// Sends a frame of a stream whose turn it is. Returns whether the stream is to make more.
    pub fn take_turn(&mut self, stream: &mut Connection, room: usize, core: &mut Core) -> bool {
        if !stream.link.waiting().is_empty() && !stream.link.is_broken() {
            self.send_body(stream, room);
            StreamDriver::of(stream).note_taken(core.now.instant);
        }
        let left = stream.link.waiting().len();
        self.http2.set_body_ready(stream_id(stream), left > 0);
        left == 0
    }
}

fn stream_id(stream: &Connection) -> u32 {
    stream.stream.as_ref().map_or(0, |context| context.id)
}

fn set_progress(stream: &mut Connection, progress: AnswerProgress) {
    if let Some(context) = &mut stream.stream {
        context.answer = progress;
    }
}
