//! Moves and counts the bytes of a transfer, in clear or in TLS.
//!
//! It does not decide how a transfer ends: it returns the state of the data connection as a [`Flow`].

use std::io;
use std::time::Instant;

use millrace_net::tls::Heard;
use millrace_net::{copy, stream};
use rustix::net::{RecvFlags, recv};

use super::{Stage, Transfer};
use crate::driver::worker::{Interest, Role, Socket, UPLOAD_BLOCK, WorkerContext};
use crate::plan::Op;

/// Below this an unverified upload is sent from memory, above it by `sendfile`.
const SMALL_UPLOAD: u64 = 64 * 1024;

/// How often one transfer's socket is emptied before others have their turn.
const ROUNDS: usize = 8;

/// The state of the data connection.
pub(super) enum Flow {
    /// There will be another event.
    Rests,
    /// The end of the stream, or of the data to send.
    Ended,
    /// The time of an endless transfer is over.
    Cut,
}

impl Transfer {
    /// Continues the handshake; returns true when it is complete.
    pub(super) fn secure(&mut self, data: &Socket, context: &mut WorkerContext<'_>) -> io::Result<bool> {
        let Some(channel) = &mut self.channel else { return Ok(true) };
        let interest = if channel.handshake(data, &mut context.buffer)? {
            self.is_secured = true;
            context.tally.data_handshakes += 1;
            context.tally.data_resumed += u64::from(channel.tls().is_resumed());
            if !self.is_watched {
                return Ok(true);
            }
            if self.op == Op::Stor { Interest::Write } else { Interest::Stream }
        } else if channel.flush(data).is_err() {
            Interest::Write // it has not connected yet
        } else {
            Interest::Read
        };
        match std::mem::replace(&mut self.is_watched, true) {
            true => context.watch_again(data, self.user, Role::Data, interest)?,
            false => context.watch(data, self.user, Role::Data, interest)?,
        }
        Ok(self.is_secured)
    }

    /// Sends close_notify, and keeps the connection until the server has confirmed it.
    pub(super) fn part(&mut self, data: Socket, context: &mut WorkerContext<'_>) {
        if let Some(channel) = &mut self.channel {
            let _ = channel.close(&data); // a server that has gone needs no farewell
        }
        if self.op == Op::Stor {
            let _ = stream::end_writing(&data);
            if self.is_watched {
                let _ = context.watch_again(&data, self.user, Role::Data, Interest::Once);
            }
            self.lingering = Some(data);
        }
    }

    pub(super) fn watch(&mut self, data: &Socket, context: &mut WorkerContext<'_>) -> io::Result<()> {
        let was_watched = std::mem::replace(&mut self.is_watched, true);
        match (self.op, self.throttle, was_watched) {
            (Op::Stor, ..) if !was_watched => context.watch(data, self.user, Role::Data, Interest::Write),
            (_, Some(_), false) => context.watch(data, self.user, Role::Data, Interest::Once),
            (_, Some(_), true) => context.watch_again(data, self.user, Role::Data, Interest::Once),
            (_, None, false) => context.watch(data, self.user, Role::Data, Interest::Stream),
            _ => Ok(()),
        }
    }

    /// Reads the available bytes.
    pub(super) fn receive(
        &mut self,
        data: &Socket,
        hung_up: bool,
        context: &mut WorkerContext<'_>,
    ) -> io::Result<Flow> {
        for _ in 0..ROUNDS {
            let now = Instant::now();
            if self.cut_at.is_some_and(|cut_at| now >= cut_at) {
                return Ok(Flow::Cut);
            }
            let mut most = context.cell.settings.chunk.unwrap_or(u64::MAX);
            if let Some(throttle) = &self.throttle {
                if let Some(next) = throttle.next(self.moved).filter(|&next| next > now) {
                    context.sleep_within(self.user, next);
                    return Ok(Flow::Rests);
                }
                most = throttle.chunk;
            }
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            if self.channel.is_some() {
                if self.receive_secret(data, most, context)? {
                    return Ok(Flow::Ended);
                }
                continue;
            }
            let (count, room) = match &mut self.checker {
                Some(checker) if self.flaw.is_none() => {
                    let room = context.buffer.len().min(most);
                    let count = stream::read(data, &mut context.buffer[..room])?;
                    self.flaw = checker.check(&context.buffer[..count]).err();
                    (count, room)
                }
                _ => {
                    let room = context.discard.len().min(most);
                    (recv(data, &mut context.discard[..room], RecvFlags::TRUNC)?.1, room)
                }
            };
            if count > 0 {
                self.count_received(count, context);
            }
            // With the end already here, a short read has taken everything: no second call to learn of it.
            if count == 0 || (hung_up && count < room) {
                return Ok(Flow::Ended);
            }
        }
        // Lets other users continue; a permanently watched socket reports the rest, or the caller returns to it.
        if self.is_watched && self.throttle.is_none() {
            if context.tells_once() {
                context.sleep_within(self.user, Instant::now());
            }
            Ok(Flow::Rests)
        } else {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }

    /// Reads encrypted data, `most` bytes or a few more; returns true at the end.
    fn receive_secret(
        &mut self,
        data: &Socket,
        most: usize,
        context: &mut WorkerContext<'_>,
    ) -> io::Result<bool> {
        let Some(channel) = &mut self.channel else { return Ok(true) };
        let begun = channel.tls().begin(&mut context.buffer);
        let room = context.buffer.len().min(begun.saturating_add(most));
        let (checker, flaw, mut count) = (&mut self.checker, &mut self.flaw, 0);
        let heard = channel.read(data, &mut context.buffer[..room], &mut |plain| {
            count += plain.len();
            if let Some(checker) = checker.as_mut().filter(|_| flaw.is_none()) {
                *flaw = checker.check(plain).err();
            }
        })?;
        if count > 0 {
            self.count_received(count, context);
        }
        // Some servers end without close_notify: the size shows what is missing.
        Ok(!matches!(heard, Heard::Bytes { .. }))
    }

    fn count_received(&mut self, count: usize, context: &mut WorkerContext<'_>) {
        let now = Instant::now();
        if self.moved == 0 {
            self.first_byte = Some(now);
            context.tally.first_byte.record(now - self.commanded);
        }
        self.last_byte = Some(now);
        self.gap.note(now);
        if matches!(self.stage, Stage::Confirmed(_)) {
            self.late_byte = Some(now);
        }
        if let Some(throttle) = &mut self.throttle {
            throttle.note_bytes(now);
        }
        self.moved += count as u64;
        context.note_moved(count as u64);
    }

    /// Sends what the socket takes.
    pub(super) fn send(&mut self, data: &Socket, context: &mut WorkerContext<'_>) -> io::Result<Flow> {
        let size = if self.cut_at.is_some() { u64::MAX } else { self.size.unwrap_or(0) };
        let chunk = context.cell.settings.chunk.unwrap_or(u64::MAX);
        while self.moved < size {
            if self.cut_at.is_some_and(|cut_at| Instant::now() >= cut_at) {
                break;
            }
            let left = (size - self.moved).min(chunk);
            let sent = if let Some(content) = self.content {
                let count = left.min(context.buffer.len() as u64) as usize;
                context.payload.fill(content, self.moved, &mut context.buffer[..count]);
                match &mut self.channel {
                    Some(channel) => channel.write(data, &context.buffer[..count])?,
                    None => stream::write(data, &context.buffer[..count])?,
                }
            } else if let Some(channel) = &mut self.channel {
                channel.write(data, &context.block[..left.min(UPLOAD_BLOCK as u64) as usize])?
            } else if size <= SMALL_UPLOAD {
                let end = self.moved + left;
                stream::write(data, &context.block[self.moved as usize..end as usize])?
            } else if chunk <= SMALL_UPLOAD {
                stream::write(data, &context.block[..left as usize])?
            } else {
                let offset = self.moved % UPLOAD_BLOCK as u64;
                copy::send_file(
                    data,
                    &context.block_file,
                    offset,
                    left.min(UPLOAD_BLOCK as u64 - offset) as usize,
                )
                .map_err(|(_, error)| error)?
            };
            self.moved += sent as u64;
            context.note_moved(sent as u64);
            if self.moved < size || sent < left as usize {
                self.gap.note(Instant::now());
            }
        }
        if let Some(channel) = &mut self.channel {
            channel.close(data)?;
        }
        Ok(Flow::Ended)
    }
}
