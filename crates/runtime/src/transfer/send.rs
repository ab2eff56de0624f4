//! Downloads and listings: file bytes to a data connection.
//!
//! Three ways, chosen by what the source is: a small file in the page cache is read and sent with one call
//! each; a larger one goes by `sendfile` as long as its pages are in the cache, and the pool fetches those
//! that are not; everything else (conversions, listings, streams, file systems that may hang) passes
//! through a buffer that the pool fills.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use millrace_ftp::codec::{Coding, Encoder};
use millrace_ftp::listing::{Lister, Unread};
use millrace_ftp::session::{ByteRange, TransferError};
use millrace_net::copy::Side;
use millrace_net::tls::{Channel, Unwritten};
use millrace_net::{Wire, copy, stream};
use millrace_vfs::{FileError, FileRange, ReadHandle, ReadStream, Readiness};

use super::{JobKind, Share, Shared, Socket, Turn};

/// Up to here a file is read and sent rather than handed to `sendfile`: one packet holds data and FIN.
/// -5 to -10 % CPU at 1 KiB, a loss at 100 KiB.
pub const SMALL: u64 = 16 * 1024;

/// The size of one `sendfile`, and of one lookup in the page cache or one fetch by the pool.
const CHUNK: u64 = 1 << 20;

/// From this size on only full packets are sent, except the last: with a full socket, `sendfile` would send small
/// packets for each bit of free space. On loopback 64 MiB take 0.5 of the CPU. Files that fit into the socket's buffer
/// gain nothing.
const CORKED: u64 = 4 << 20;

/// In MODE B, bytes of the file between two restart markers: what a client that is cut off has to fetch again.
const MARKER_INTERVAL: u64 = 1 << 20;

/// How far the buffer is filled at a time; a listing is sent in writes of this size.
pub const FILL: usize = 64 * 1024;

/// A file or listing on its way out.
#[derive(Debug)]
pub struct Sender {
    source: Source,
    /// `None` where file bytes go as they are.
    encoder: Option<Encoder>,
    /// The next byte of the file, and the one past the last.
    offset: u64,
    end: Option<u64>,
    buffer: Vec<u8>,
    /// How much of the buffer has been sent.
    sent: usize,
    /// The pool has read the file up to here: it is not asked again whether that is in the cache. It may have left
    /// it, or the file system may never tell.
    warmed: u64,
    /// Nothing more goes into the buffer.
    drained: bool,
    /// The connection is closed afterwards, which sends waiting packets.
    closes: bool,
    /// The kernel does not send this file by itself: it is read.
    by_hand: bool,
    /// Whether packets wait until they are full, once that is decided.
    corked: Option<bool>,
}

#[derive(Debug)]
enum Source {
    File(FileRange),
    Stream(Box<dyn ReadStream>),
    Listing(Box<Lister>),
}

impl Sender {
    /// A file's range; of its converted form the first `skip` bytes are left out.
    pub fn file(handle: ReadHandle, range: ByteRange, coding: Coding, skip: u64) -> Self {
        let end = match (handle.size(), range.end) {
            (Some(size), Some(end)) => Some(size.min(end)),
            (size, end) => size.or(end),
        };
        let source = match handle {
            ReadHandle::File(file) => Source::File(file),
            ReadHandle::Stream(stream) => Source::Stream(stream),
        };
        let encoder = (!coding.is_plain())
            .then(|| Encoder::new(coding, range.start).skipping(skip).with_markers(MARKER_INTERVAL));
        Self::new(source, encoder, range.start, end)
    }

    /// A listing.
    pub fn listing(lister: Box<Lister>, coding: Coding) -> Self {
        let encoder = (!coding.is_plain()).then(|| Encoder::new(coding, 0));
        Self::new(Source::Listing(lister), encoder, 0, None)
    }

    fn new(source: Source, encoder: Option<Encoder>, offset: u64, end: Option<u64>) -> Self {
        Self {
            source,
            encoder,
            offset,
            end,
            buffer: Vec::new(),
            sent: 0,
            warmed: 0,
            drained: false,
            closes: true,
            by_hand: false,
            corked: None,
        }
    }

    /// The same on a connection that goes on: nothing is left to wait in the kernel.
    pub fn keeping_open(self) -> Self {
        Self { closes: false, ..self }
    }

    /// How many file bytes are still to be sent, where that is known. (Converted bytes in the buffer count as they are.)
    pub fn left(&self) -> Option<u64> {
        let read = (self.buffer.len() - self.sent) as u64;
        self.end.map(|end| end.saturating_sub(self.offset) + read)
    }

    /// Returns true if dropping it may wait: a file system that may hang is asked when a file is closed, too.
    pub fn end_may_wait(&self) -> bool {
        match &self.source {
            Source::File(range) => range.readiness == Readiness::MayHang,
            Source::Stream(stream) => stream.readiness() == Readiness::MayHang,
            Source::Listing(_) => false,
        }
    }

    /// Sends its share.
    pub fn turn(
        &mut self,
        socket: &mut Socket,
        shared: &Shared,
        scratch: &mut [u8],
        share: &mut Share,
    ) -> Turn {
        let is_file = match (&self.source, &self.encoder) {
            (Source::File(range), None) => range.readiness == Readiness::Cached && !self.by_hand,
            _ => false,
        };
        let turn = match (is_file, &mut socket.tls) {
            (true, None) => self.turn_by_kernel(socket, shared, scratch, share),
            (true, Some(channel)) => self.turn_by_records(&socket.fd, channel, shared, share),
            (false, _) => self.turn_by_buffer(socket, shared, share),
        };
        match turn {
            Turn::Done(Ok(())) if self.closes => socket.finish(),
            turn => turn,
        }
    }

    /// Puts its share into memory that has room for this many bytes; waits where there is none left.
    pub fn turn_to_memory(
        &mut self,
        (out, mut room): (&mut Wire, usize),
        shared: &Shared,
        share: &mut Share,
    ) -> Turn {
        loop {
            if self.is_at_end() {
                return Turn::Done(self.whole());
            }
            if room == 0 {
                return Turn::Wait;
            }
            if share.is_used_up() {
                return Turn::Yield;
            }
            let most = room.min(share.left());
            let moved = match (&self.source, &self.encoder) {
                (Source::File(range), None) if range.readiness == Readiness::Cached && !self.by_hand => {
                    let end = self.end.unwrap_or(u64::MAX);
                    let most = (end - self.offset).min(most as u64) as usize;
                    match self.read_to_memory(out, most) {
                        Ok(0) => return Turn::Done(Err(TransferError::File(shrunk()))),
                        Ok(count) => {
                            self.offset += count as u64;
                            count
                        }
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            return Turn::Job(JobKind::Fill);
                        }
                        Err(error) => return Turn::Done(Err(TransferError::File(error.into()))),
                    }
                }
                _ if self.sent < self.buffer.len() => {
                    let count = most.min(self.buffer.len() - self.sent);
                    out.append(&self.buffer[self.sent..self.sent + count]);
                    self.sent += count;
                    count
                }
                _ if !self.fills_at_once() => return Turn::Job(JobKind::Fill),
                _ => match self.fill() {
                    Ok(()) => continue,
                    Err(error) => return Turn::Done(Err(TransferError::File(error))),
                },
            };
            room -= moved;
            share.take(moved);
            shared.add(moved as u64);
        }
    }

    /// Appends bytes of a file to memory: those that the page cache has, unless the pool has read them.
    fn read_to_memory(&self, out: &mut Wire, most: usize) -> io::Result<usize> {
        let Source::File(FileRange { file, .. }) = &self.source else { return Ok(0) };
        let room = &mut out.room(most)[..most];
        let count = match self.offset + most as u64 <= self.warmed {
            true => file.read_at(room, self.offset),
            false => copy::read_cached(file, room, self.offset),
        }?;
        out.fill(count);
        Ok(count)
    }

    /// Returns whether nothing is left to be moved.
    fn is_at_end(&self) -> bool {
        match (&self.source, &self.encoder) {
            (Source::File(range), None) if range.readiness == Readiness::Cached && !self.by_hand => {
                self.end.is_some_and(|end| self.offset >= end)
            }
            _ => self.drained && self.sent == self.buffer.len(),
        }
    }

    /// A file that is encrypted on its way: read from the page cache into the records, several at a time.
    fn turn_by_records(
        &mut self,
        fd: &OwnedFd,
        channel: &mut Channel,
        shared: &Shared,
        share: &mut Share,
    ) -> Turn {
        let Source::File(FileRange { file, .. }) = &self.source else { return Turn::Wait };
        let end = self.end.unwrap_or(u64::MAX);
        while self.offset < end {
            if share.is_used_up() {
                return Turn::Yield;
            }
            let most = (end - self.offset).min(FILL.min(share.left()) as u64) as usize;
            let read =
                if self.offset + most as u64 <= self.warmed { copy::scatter } else { copy::scatter_cached };
            match channel.write_from(fd, most, &mut |parts| read(file, parts, self.offset)) {
                Ok(0) => return Turn::Done(Err(TransferError::File(shrunk()))),
                Ok(count) => {
                    self.offset += count as u64;
                    share.take(count);
                    shared.add(count as u64);
                }
                Err(Unwritten::Socket(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Turn::Wait;
                }
                Err(Unwritten::Socket(error)) => return Turn::Done(Err(TransferError::Broken(error))),
                Err(Unwritten::Source(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Turn::Job(JobKind::Fill);
                }
                Err(Unwritten::Source(error)) => return Turn::Done(Err(TransferError::File(error.into()))),
            }
        }
        Turn::Done(Ok(()))
    }

    fn turn_by_kernel(
        &mut self,
        socket: &Socket,
        shared: &Shared,
        scratch: &mut [u8],
        share: &mut Share,
    ) -> Turn {
        let Source::File(FileRange { file, .. }) = &self.source else { return Turn::Wait };
        let end = self.end.unwrap_or(u64::MAX);
        if let Some(small) = scratch.get_mut(..end.saturating_sub(self.offset) as usize)
            && small.len() as u64 <= SMALL
            && small.len() <= share.left()
            && let Ok(count) = copy::read_cached(file, small, self.offset)
            && count == small.len()
        {
            let write = if self.closes { stream::write_more } else { stream::write };
            match write(&socket.fd, small) {
                Ok(count) => {
                    self.offset += count as u64;
                    share.take(count);
                    shared.add(count as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Turn::Wait,
                Err(error) => return Turn::Done(Err(TransferError::Broken(error))),
            }
        }
        // Paced data is sent as it comes.
        self.corked.get_or_insert_with(|| {
            end.saturating_sub(self.offset) >= CORKED
                && stream::paced(&socket.fd).is_ok_and(|rate| rate.is_none())
                && stream::cork(&socket.fd, true).is_ok()
        });
        while self.offset < end {
            if share.is_used_up() {
                return Turn::Yield;
            }
            let length = (end - self.offset).min(CHUNK).min(share.left() as u64);
            if self.offset + length > self.warmed && !copy::is_cached(file, self.offset, length) {
                return Turn::Job(JobKind::Fill);
            }
            match copy::send_file(&socket.fd, file, self.offset, length as usize) {
                Ok(0) => return Turn::Done(Err(TransferError::File(shrunk()))),
                Ok(count) => {
                    self.offset += count as u64;
                    share.take(count);
                    shared.add(count as u64);
                }
                Err((_, error)) if error.kind() == io::ErrorKind::WouldBlock => return Turn::Wait,
                Err((_, error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Err((Side::Kernel, _)) => {
                    self.by_hand = true;
                    self.uncork(socket);
                    return Turn::Yield;
                }
                Err((Side::File, error)) => return Turn::Done(Err(TransferError::File(error.into()))),
                Err((Side::Socket, error)) => return Turn::Done(Err(TransferError::Broken(error))),
            }
        }
        if !self.closes {
            self.uncork(socket);
        }
        Turn::Done(Ok(()))
    }

    /// Sends waiting packets, and stops holding them.
    fn uncork(&mut self, socket: &Socket) {
        if self.corked.replace(false) == Some(true) {
            let _ = stream::cork(&socket.fd, false);
        }
    }

    fn turn_by_buffer(&mut self, socket: &mut Socket, shared: &Shared, share: &mut Share) -> Turn {
        loop {
            while self.sent < self.buffer.len() {
                if share.is_used_up() {
                    return Turn::Yield;
                }
                let end = self.buffer.len().min(self.sent.saturating_add(share.left()));
                match socket.write(&self.buffer[self.sent..end]) {
                    Ok(count) => {
                        self.sent += count;
                        share.take(count);
                        shared.add(count as u64);
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Turn::Wait,
                    Err(error) => return Turn::Done(Err(TransferError::Broken(error))),
                }
            }
            if self.drained {
                return Turn::Done(self.whole());
            }
            if !self.fills_at_once() {
                return Turn::Job(JobKind::Fill);
            }
            if share.is_used_up() {
                return Turn::Yield;
            }
            if let Err(error) = self.fill() {
                return Turn::Done(Err(TransferError::File(error)));
            }
        }
    }

    /// Returns true if [`Sender::fill`] may be called on a reactor thread.
    fn fills_at_once(&self) -> bool {
        match &self.source {
            Source::Stream(stream) => stream.readiness() == Readiness::Cached,
            Source::Listing(lister) => lister.is_ahead(),
            Source::File(_) => false,
        }
    }

    /// The part of the buffer that is to be sent next, for a control connection; refilled by
    /// [`Sender::fill`] when empty.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        self.sent = 0;
        std::mem::take(&mut self.buffer)
    }

    /// Whether the drained data was complete.
    pub fn whole(&self) -> Result<(), TransferError> {
        match &self.source {
            Source::Listing(lister) => {
                lister.cut().map_or(Ok(()), |cut| Err(TransferError::Cut(cut.to_string())))
            }
            // How long a file is when it is converted is known at its end.
            _ if self.encoder.as_ref().is_some_and(Encoder::skips_more) => {
                Err(TransferError::File(FileError::OutOfRange))
            }
            _ => Ok(()),
        }
    }

    /// The folders that a finished listing could not read.
    pub fn take_unread(&mut self) -> Option<Unread> {
        match &mut self.source {
            Source::Listing(lister) => lister.take_unread(),
            _ => None,
        }
    }

    /// Returns true if everything is in the buffer.
    pub fn is_drained(&self) -> bool {
        self.drained
    }

    /// Makes more bytes to send, or for `sendfile` brings the next pages into the cache. May wait.
    pub fn fill(&mut self) -> Result<(), FileError> {
        if let (Source::File(FileRange { file, readiness: Readiness::Cached, .. }), None) =
            (&self.source, &self.encoder)
            && !self.by_hand
        {
            let length = self.end.unwrap_or(u64::MAX).saturating_sub(self.offset).min(CHUNK);
            warm(file, self.offset, length)?;
            self.warmed = self.offset + length;
            return Ok(());
        }
        if self.sent == self.buffer.len() {
            self.buffer.clear();
            self.sent = 0;
        }
        if let Source::Listing(lister) = &mut self.source {
            let mut lines = std::mem::take(&mut self.buffer);
            let more = match &mut self.encoder {
                None => lister.fill(&mut lines, FILL),
                Some(encoder) => {
                    let mut plain = Vec::with_capacity(FILL + 4096);
                    lister.fill(&mut plain, FILL).inspect(|_| encoder.encode(&plain, &mut lines))
                }
            };
            self.buffer = lines;
            if !more? {
                self.finish();
            }
            return Ok(());
        }
        let mut chunk = vec![0; FILL];
        let most =
            self.end.map_or(FILL as u64, |end| end.saturating_sub(self.offset).min(FILL as u64)) as usize;
        let count = if most == 0 { 0 } else { self.read(&mut chunk[..most])? };
        self.offset += count as u64;
        if count == 0 && self.end.is_some_and(|end| self.offset < end) {
            return Err(shrunk());
        }
        match &mut self.encoder {
            Some(encoder) => encoder.encode(&chunk[..count], &mut self.buffer),
            None => self.buffer.extend_from_slice(&chunk[..count]),
        }
        if count == 0 || self.end == Some(self.offset) {
            self.finish();
        }
        Ok(())
    }

    fn read(&mut self, chunk: &mut [u8]) -> Result<usize, FileError> {
        match &mut self.source {
            Source::File(range) => Ok(range.file.read_at(chunk, self.offset)?),
            Source::Stream(stream) => stream.read_at(self.offset, chunk),
            Source::Listing(_) => Ok(0),
        }
    }

    fn finish(&mut self) {
        if let Some(encoder) = &mut self.encoder {
            encoder.finish(&mut self.buffer);
        }
        self.drained = true;
    }
}

/// Reads a range through, so that it lies in the page cache.
fn warm(file: &std::fs::File, offset: u64, length: u64) -> Result<(), FileError> {
    let mut sink = vec![0; 256 * 1024];
    let mut done = 0;
    while done < length {
        let most = sink.len().min((length - done) as usize);
        match file.read_at(&mut sink[..most], offset + done)? {
            0 => return Err(shrunk()),
            count => done += count as u64,
        }
    }
    Ok(())
}

fn shrunk() -> FileError {
    FileError::Io(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter while it was sent"))
}
