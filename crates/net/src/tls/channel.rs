//! A TLS connection together with what its socket has not taken yet: the copy loop.
//!
//! Nothing here waits. Reads are as large as the caller's buffer and hold many records; writes hand the kernel several
//! full-size records at a time. Encrypted data is sent before any other.
//!
//! A kernel that knows TLS would be a second kind of channel: with `dangerous_into_kernel_connection` of rustls, one whose
//! handshake is over would give its keys to the socket, and be `sendfile` from there on.

use std::io;
use std::os::fd::AsFd;

use super::connection::Tls;
use super::fault::Fault;
use super::unwritten::Unwritten;
use crate::{Wire, stream};

/// How much is encrypted before it is written to the socket: 4 full records, one call.
const BATCH: usize = 64 * 1024;

/// The longest record on the wire, and what may stand before it. Asking the socket for less at a time would be a
/// call for every few bytes of what can only be opened whole.
const RECORD: usize = 16 * 1024 + 512;

/// How large the buffer must be that the channel reads into: more than the longest handshake message.
pub const BUFFER: usize = 256 * 1024;

/// TLS over a non-blocking socket that the caller owns.
#[derive(Debug)]
pub struct Channel {
    tls: Tls,
    out: Wire,
    /// Plain bytes that came with the end of the handshake.
    early: Vec<u8>,
    /// Our close_notify is among what was sent, or waits in `out`.
    closed: bool,
    /// `out` has not been written yet, because more data follows.
    held: bool,
}

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// This many wire bytes; the read filled the buffer or not.
    Bytes {
        /// Whether the socket may have more: the buffer was filled.
        more: bool,
    },
    /// The other side said that this was all.
    End,
    /// The connection ended without a word: what came may be a part, and is one if a record was begun.
    Cut {
        /// Whether the beginning of a record is lost with it.
        within_record: bool,
    },
}

impl Channel {
    /// A channel whose handshake is about to begin.
    pub fn new(tls: Tls) -> Self {
        Self { tls, out: Wire::default(), early: Vec::new(), closed: false, held: false }
    }

    /// Goes over to records that are opened and sealed where they lie: see [`Tls::settle`].
    pub fn settle(self) -> io::Result<Self> {
        Ok(Self { tls: self.tls.settle().map_err(invalid)?, ..self })
    }

    /// The connection's state.
    pub fn tls(&self) -> &Tls {
        &self.tls
    }

    /// The connection's state, to release parts that are no longer needed.
    pub fn tls_mut(&mut self) -> &mut Tls {
        &mut self.tls
    }

    /// Moves the handshake on; answers whether it is over and all of it was sent.
    pub fn handshake(&mut self, socket: impl AsFd, buffer: &mut [u8]) -> io::Result<bool> {
        if self.tls.is_untouched() && self.tls.is_handshaking() {
            // The client's side speaks first.
            self.tls.receive(&mut [], &mut self.out, &mut |_| {}).map_err(invalid)?;
        }
        loop {
            match self.flush(&socket) {
                Ok(()) if !self.tls.is_handshaking() => return Ok(true),
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
            let begun = self.tls.begin(buffer);
            // A small read: what follows the handshake is mostly the transfer's to read.
            let most = buffer.len().min(begun + RECORD);
            match stream::read(&socket, &mut buffer[begun..most]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    let early = &mut self.early;
                    let result =
                        self.tls.receive(&mut buffer[..begun + count], &mut self.out, &mut |bytes| {
                            early.extend_from_slice(bytes);
                        });
                    if let Err(fault) = result {
                        // The alert; whether it arrives makes no difference.
                        let _ = self.flush(&socket);
                        return Err(invalid(fault));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads once, and gives what it came to to `take`. [`io::ErrorKind::WouldBlock`] when nothing has come,
    /// [`io::ErrorKind::InvalidData`] when it is no TLS.
    pub fn read(
        &mut self,
        socket: impl AsFd,
        buffer: &mut [u8],
        take: &mut dyn FnMut(&[u8]),
    ) -> io::Result<Heard> {
        self.read_some(socket, buffer, usize::MAX, take)
    }

    /// As [`Channel::read`], where no more than `most` bytes are wanted: it may be up to two records more.
    pub fn read_some(
        &mut self,
        socket: impl AsFd,
        buffer: &mut [u8],
        most: usize,
        take: &mut dyn FnMut(&[u8]),
    ) -> io::Result<Heard> {
        if !self.early.is_empty() {
            take(&std::mem::take(&mut self.early));
            return Ok(Heard::Bytes { more: true });
        }
        if self.tls.has_ended() {
            return Ok(Heard::End);
        }
        let (begun, unheard) = (self.tls.begin(buffer), self.tls.take_unheard());
        let room = buffer.len().min(begun.saturating_add(most.max(RECORD)));
        let count = if unheard { 0 } else { stream::read(&socket, &mut buffer[begun..room])? };
        if count == 0 && !unheard {
            return Ok(Heard::Cut { within_record: begun > 0 });
        }
        let filled = begun + count;
        let more = unheard || filled == room;
        let result = self.tls.receive(&mut buffer[..filled], &mut self.out, take);
        if !self.out.is_empty() {
            // An answer to a key update, or an alert: if the socket is full, the next write takes it along.
            match self.flush(&socket) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
        result.map_err(invalid)?;
        Ok(if self.tls.has_ended() { Heard::End } else { Heard::Bytes { more } })
    }

    /// Sends plain bytes; answers how many of them are on their way, which the socket may not all have
    /// taken: [`Channel::flush`] brings the rest. [`io::ErrorKind::WouldBlock`] while it takes nothing.
    pub fn write(&mut self, socket: impl AsFd, plain: &[u8]) -> io::Result<usize> {
        self.flush_unless_held(&socket)?;
        let plain = &plain[..plain.len().min(BATCH)];
        self.tls.seal(plain, &mut self.out).map_err(invalid)?;
        match self.flush(&socket) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(plain.len()),
        }
    }

    /// Like `write`, but the encrypted data waits for the next write, to be sent with it, or for [`Channel::flush`].
    pub fn write_more(&mut self, socket: impl AsFd, plain: &[u8]) -> io::Result<usize> {
        self.flush_unless_held(&socket)?;
        let plain = &plain[..plain.len().min(BATCH)];
        self.tls.seal(plain, &mut self.out).map_err(invalid)?;
        self.held = true;
        Ok(plain.len())
    }

    /// The same with up to `most` plain bytes that `read` puts into the records themselves: where it fails, or there is
    /// nothing to read, that is the answer.
    pub fn write_from(
        &mut self,
        socket: impl AsFd,
        most: usize,
        read: &mut dyn FnMut(&mut [io::IoSliceMut<'_>]) -> io::Result<usize>,
    ) -> Result<usize, Unwritten> {
        self.flush_unless_held(&socket).map_err(Unwritten::Socket)?;
        let count = self.tls.seal_from(most, read, &mut self.out)?;
        match self.flush(&socket) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(Unwritten::Socket(error)),
            _ => Ok(count),
        }
    }

    /// Sends encrypted data, except data held for the next write, unless there is much of it.
    fn flush_unless_held(&mut self, socket: impl AsFd) -> io::Result<()> {
        if self.held && self.out.pending().len() < BATCH { Ok(()) } else { self.flush(socket) }
    }

    /// Returns true if encrypted data waits for the next write.
    pub fn is_holding(&self) -> bool {
        self.held
    }

    /// Sends what was encrypted and not taken.
    pub fn flush(&mut self, socket: impl AsFd) -> io::Result<()> {
        self.held = false;
        while !self.out.is_empty() {
            let count = stream::write(&socket, self.out.pending())?;
            self.out.consume(count);
        }
        Ok(())
    }

    /// Returns true if the socket has taken all that it was offered.
    pub fn is_flushed(&self) -> bool {
        self.out.is_empty() || self.held
    }

    /// Gives back the memory that only a busy connection needs.
    pub fn release(&mut self) {
        self.out.release();
    }

    /// Sends close_notify after everything before; `Ok` once the socket has taken it.
    pub fn close(&mut self, socket: impl AsFd) -> io::Result<()> {
        if !self.closed {
            self.closed = true;
            self.tls.close(&mut self.out).map_err(invalid)?;
        }
        self.flush(socket)
    }

    /// Sends with new keys from here on.
    pub fn update_keys(&mut self, socket: impl AsFd) -> io::Result<()> {
        self.tls.update_keys(&mut self.out).map_err(invalid)?;
        self.flush(socket)
    }
}

fn invalid(fault: Fault) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, fault)
}
