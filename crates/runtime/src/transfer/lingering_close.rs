//! The end of a download whose client sends on its data connection, where nothing of its is expected.
//!
//! A socket closed with unread input is reset (RFC 2525 section 2.17), and a reset discards data that the client has
//! not read yet: it would lose the tail of a file after a 226. So the output is shut down, input is read and discarded,
//! and the client's end is awaited, all within limits. Later input is handled by
//! [`background_drain`](super::background_drain).
//!
//! Each download is looked after, also a small one that is sent in one go: nothing of that has left us before the
//! close, so a reset would take all of it. It is one call for each of them, a `recv` that answers `EAGAIN`: 0.37 us of
//! some 56 that 1 KiB costs by `PASV`, where the floor pays 70 (`bench-runs/2026-11-21-2core-kvm/small.md`).
//!
//! Under TLS the client may have said its own `close_notify` before ours is read; that is its end. And how much it has
//! got it knows itself, by ours: a reset that comes when all was sent is not told as a failure there. Many close what
//! they know to be whole with our `close_notify` unread, and that resets.

use std::io;
use std::time::{Duration, Instant};

use millrace_ftp::session::TransferError;
use millrace_net::{stream, tls};

use super::{Direction, End, Link, Running, Socket};

/// The most that is read of a client before the connection is cut.
const MOST: usize = 1 << 20;

/// How long its end is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// A data connection on which everything was sent, and our end was said.
#[derive(Debug)]
pub struct LingeringClose {
    /// The data connection.
    pub socket: Socket,
    /// When its client is no longer waited for.
    pub until: Instant,
    /// How much more is read of it.
    left: usize,
    /// It still sends: how much it receives before a reset is unknown.
    goes_on: bool,
}

/// The result of a read.
enum Heard {
    /// There is nothing, now.
    Nothing,
    /// This many bytes, and no more now.
    Bytes(usize),
    /// It will send no more.
    End,
}

impl Running {
    /// Everything was sent. Answers how the transfer has ended, unless the client's end is to be waited for.
    pub fn part(&mut self, scratch: &mut [u8], now: Instant) -> Option<Result<(), TransferError>> {
        if self.direction == Direction::Upload {
            return Some(Ok(()));
        }
        match &mut self.link {
            Link::Open(socket) => {
                let junk = match read_away(socket, scratch, MOST) {
                    Ok(Heard::Nothing) => return Some(Ok(())),
                    Ok(Heard::End) => {
                        socket.end = socket.end.max(End::Orderly);
                        return Some(Ok(()));
                    }
                    Ok(Heard::Bytes(count)) => count,
                    Err(error) => return Some(Err(error)),
                };
                if let Err(error) = stream::end_writing(&socket.fd) {
                    return Some(Err(TransferError::Broken(error)));
                }
                let Link::Open(socket) = std::mem::replace(&mut self.link, Link::OnPool) else { return None };
                let until = now + PATIENCE;
                let closing = LingeringClose { socket, until, left: MOST - junk, goes_on: false };
                self.link = Link::LingeringClose(Box::new(closing));
                None
            }
            Link::LingeringClose(closing) => match read_away(&mut closing.socket, scratch, closing.left) {
                Ok(Heard::Nothing) => None,
                Ok(Heard::Bytes(count)) => {
                    closing.left -= count;
                    closing.goes_on = true;
                    None
                }
                Ok(Heard::End) => Some(Ok(())),
                Err(error) => Some(Err(error)),
            },
            _ => Some(Ok(())),
        }
    }
}

impl LingeringClose {
    /// The client's end did not come in time. A silent client may still be reading: the kernel sends the rest as usual.
    pub fn give_up(&self) -> Result<(), TransferError> {
        if self.goes_on { Err(flooded()) } else { Ok(()) }
    }
}

/// Reads what has come.
fn read_away(socket: &mut Socket, scratch: &mut [u8], most: usize) -> Result<Heard, TransferError> {
    let mut read = 0;
    loop {
        match hear(socket, scratch) {
            Ok(0) => return Ok(Heard::End),
            Ok(count) => read += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && read == 0 => {
                return Ok(Heard::Nothing);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Heard::Bytes(read)),
            Err(error) => return Err(TransferError::Broken(error)),
        }
        if read > most {
            return Err(flooded());
        }
    }
}

/// Reads once; 0 is the end. Under TLS a record counts as something, though nothing be in it.
fn hear(socket: &mut Socket, scratch: &mut [u8]) -> io::Result<usize> {
    let Some(channel) = &mut socket.tls else { return stream::read(&socket.fd, scratch) };
    let mut plain = 0;
    match channel.read(&socket.fd, scratch, &mut |bytes| plain += bytes.len()) {
        Ok(tls::Heard::Bytes { .. }) => Ok(plain.max(1)),
        Ok(tls::Heard::End | tls::Heard::Cut { .. }) => Ok(0),
        // The second: it asked for something of TLS, an answer to which comes behind our end.
        Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => {
            Ok(0)
        }
        Err(error) => Err(error),
    }
}

fn flooded() -> TransferError {
    TransferError::Malformed("the client goes on sending on the data connection of a download".to_owned())
}
