//! Uploads: a data connection's bytes to a file.
//!
//! Data for an upload in place on a local file system is written directly; data for a staged upload, or a file system
//! that may hang, is collected and written by the blocking pool, a small file in a single job. A large file whose bytes
//! need no conversion goes by `splice` on a thread of the pool, where a disk that is slower than the network may hold
//! it up. Only staged uploads collect data across waits.

use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

use millrace_ftp::codec::{Coding, Decoded, Decoder, Mode};
use millrace_ftp::session::TransferError;
use millrace_net::copy::{Conduit, Side};
use millrace_net::stream;
use millrace_net::tls::{self, Heard};
use millrace_vfs::hash::Hashes;
use millrace_vfs::{FileError, Readiness, Upload};

use super::{End, JobKind, Share, Shared, Socket, Turn};

/// A read as full as this says that more is coming: time for the pool and `splice`. recv 64 KiB
/// first; a full buffer, then splice.
const LARGE: usize = 64 * 1024;

/// How much is collected before the pool writes it.
const COLLECT: usize = 256 * 1024;

/// How much file a compressed buffer may become at a time.
const DECODED: usize = 256 * 1024;

/// How long a splicing thread waits for more before it gives the socket back to the reactor.
const LINGER: Duration = Duration::from_millis(20);

/// How much a splicing thread moves before it checks for an abort.
const STRETCH: u64 = 64 << 20;

/// A client that dies closes its connections one after the other, and the end of the data may be seen first. So before
/// a staged upload whose end is only marked by the end of the connection gets its name, the end of the control
/// connection is awaited: for this part of the transfer's time, and at most so long. What was over sooner than 16 ms
/// does not wait. No time is long enough for a machine that is busy enough.
const GRACE_PART: u32 = 16;
const GRACE: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_millis(50);

/// The same where less has come than was announced.
const GRACE_FOR_LESS: Duration = Duration::from_millis(500);

/// A file on its way in.
#[derive(Debug)]
pub struct Receiver {
    /// `None` once it is committed.
    upload: Option<Box<dyn Upload>>,
    /// `None` where wire bytes go as they are.
    decoder: Option<Decoder>,
    /// Received and not yet written.
    buffer: Vec<u8>,
    /// The stream has ended.
    ended: bool,
    /// The decoder knows that the input has ended.
    finished: bool,
    /// How many bytes may still come, where the client announced a range.
    left: Option<u64>,
    /// How many bytes the file should have, where the client announced that.
    announced: Option<u64>,
    /// Kept from one stretch to the next.
    conduit: Option<Conduit>,
    /// Whether the wire form says where the file ends (MODE B and Z, records), rather than the connection.
    ends_itself: bool,
    /// Whether what follows the end of the file is the next file's (MODE B) or a fault.
    another_may_follow: bool,
    /// The state of uploads through TLS.
    records: Option<Box<Records>>,
    /// Restart markers whose bytes are written: the sender's, and our offset. `None` where our offset is not
    /// known (`APPE`), so that none can be confirmed.
    markers: Option<Vec<(Vec<u8>, u64)>>,
    /// The caller commits it.
    is_held_back: bool,
    /// Those of what was committed.
    hashes: Option<Hashes>,
}

/// The state of an upload through TLS.
#[derive(Debug, Default)]
struct Records {
    /// Decrypted and not yet looked at: empty between turns, and kept for its memory.
    opened: Vec<u8>,
    /// The buffer of a thread of the pool.
    wire: Vec<u8>,
    /// Whether the stream may end without close_notify.
    may_be_cut: bool,
    /// Whether it did.
    was_cut: bool,
    /// Whether it ended with it.
    said_goodbye: bool,
}

impl Receiver {
    /// An upload whose first byte goes to `offset` of the file, where that is known.
    pub fn new(upload: Box<dyn Upload>, most: Option<u64>, coding: Coding, offset: Option<u64>) -> Self {
        let decoder = (!coding.is_plain()).then(|| Decoder::new(coding, offset.unwrap_or(0)));
        Self {
            upload: Some(upload),
            decoder,
            buffer: Vec::new(),
            ended: false,
            finished: false,
            left: most,
            announced: None,
            conduit: None,
            ends_itself: !coding.ends_with_close(),
            another_may_follow: coding.mode == Mode::Block,
            records: None,
            markers: offset.map(|_| Vec::new()),
            is_held_back: false,
            hashes: None,
        }
    }

    /// Sets the announced number of bytes, if any.
    pub(super) fn expecting(mut self, announced: Option<u64>) -> Self {
        // Converted data has another length.
        self.announced = announced.filter(|_| self.decoder.is_none());
        self
    }

    /// Takes a TLS stream that ends without close_notify for whole.
    pub fn excuse(&mut self) {
        self.records().may_be_cut = true;
    }

    /// Returns true if a TLS stream ended without close_notify, and was taken for whole.
    pub fn was_excused(&self) -> bool {
        self.records.as_ref().is_some_and(|records| records.was_cut)
    }

    fn records(&mut self) -> &mut Records {
        self.records.get_or_insert_default()
    }

    /// Returns true if nothing more will be read: it is to be committed.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// How long the end of the control connection is waited for before what has come is committed: this many bytes, and
    /// those that are not written, in this time.
    pub(super) fn grace(&self, written: u64, took: Duration) -> Duration {
        let is_staged = self.upload.as_ref().is_some_and(|upload| upload.is_staged());
        let said_goodbye = self.records.as_ref().is_some_and(|records| records.said_goodbye);
        let came = written + self.unwritten();
        match self.announced {
            // The client announced the end, so it did not die.
            _ if !self.ended || !is_staged || said_goodbye || self.ends_itself => Duration::ZERO,
            Some(announced) if announced == came => Duration::ZERO,
            Some(announced) if announced > came => GRACE_FOR_LESS,
            _ => match took / GRACE_PART {
                part if part < *GRACE.start() => Duration::ZERO,
                part => part.min(*GRACE.end()),
            },
        }
    }

    /// Bytes that have come and are not written: of a small staged upload all.
    pub fn unwritten(&self) -> u64 {
        self.buffer.len() as u64
    }

    /// A staged upload is not committed when it is complete: [`Receiver::take_whole`] gives it to the code that decides
    /// about it.
    pub fn hold_back(&mut self) {
        self.is_held_back = self.upload.as_ref().is_some_and(|upload| upload.is_staged());
    }

    /// The hashes of an upload that is whole, where they were computed on its way.
    pub fn hashes(&self) -> Option<Hashes> {
        self.hashes.clone().or_else(|| self.upload.as_ref()?.hashes())
    }

    /// An upload that is whole and was held back.
    pub fn take_whole(&mut self) -> Option<Box<dyn Upload>> {
        self.upload.take_if(|_| self.is_held_back)
    }

    /// Commits a complete upload, unless that may block and must run on the pool.
    pub fn commit_at_once(&mut self) -> Option<Result<(), TransferError>> {
        let is_written = self.buffer.is_empty() && (self.decoder.is_none() || self.finished);
        let readiness = self.upload.as_ref().map_or(Readiness::Cached, |upload| upload.commit_readiness());
        (is_written && readiness == Readiness::Cached).then(|| self.commit())
    }

    /// The restart markers that have come since the last call, to be confirmed with 110.
    pub fn take_markers(&mut self) -> Vec<(Vec<u8>, u64)> {
        self.markers.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Nothing more is there to read. In place what has come is there before the next bytes are waited for.
    fn wait(&self) -> Turn {
        match self.upload.as_ref().is_some_and(|upload| !upload.is_staged()) && !self.buffer.is_empty() {
            true => Turn::Job(JobKind::Sink),
            false => Turn::Wait,
        }
    }

    /// Returns true if an upload in place that ends here must still write its buffer, or cut off the old file's tail.
    pub fn owes_its_file(&self) -> bool {
        let owes = |upload: &dyn Upload| {
            !upload.is_staged()
                && (!self.buffer.is_empty() || upload.commit_readiness() == Readiness::MayHang)
        };
        self.upload.as_deref().is_some_and(owes)
    }

    /// Gives the upload up. May wait.
    pub(super) fn leave(&mut self, shared: &Shared) {
        if self.upload.as_ref().is_some_and(|upload| !upload.is_staged()) {
            // It has failed before: the first error is reported.
            let _ = self.write_collected(shared);
        }
        self.upload = None;
    }

    /// Returns true if dropping it may block: an uncommitted upload is abandoned.
    pub(super) fn end_may_wait(&self) -> bool {
        self.upload.is_some()
    }

    /// Receives its share, or through TLS a little more.
    pub(super) fn turn(
        &mut self,
        socket: &mut Socket,
        shared: &Shared,
        scratch: &mut [u8],
        share: &mut Share,
    ) -> Turn {
        if socket.tls.is_some() {
            return self.turn_by_records(socket, shared, scratch, share);
        }
        while !share.is_used_up() {
            let room = scratch.len().min(LARGE).min(share.left());
            match stream::read(&socket.fd, &mut scratch[..room]) {
                Ok(count) => {
                    self.ended = count == 0 || (count < room && socket.end == End::Orderly);
                    share.take(count);
                    if let Some(turn) = self.take(&scratch[..count], count == LARGE, shared) {
                        return turn;
                    }
                    if count < room && socket.end != End::Broken {
                        return Turn::Wait;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.wait(),
                Err(error) => return Turn::Done(Err(TransferError::Broken(error))),
            }
        }
        Turn::Yield
    }

    /// The same through TLS, whose end is close_notify.
    fn turn_by_records(
        &mut self,
        socket: &mut Socket,
        shared: &Shared,
        scratch: &mut [u8],
        share: &mut Share,
    ) -> Turn {
        while !share.is_used_up() {
            let mut opened = std::mem::take(&mut self.records().opened);
            let heard = socket.receive(scratch, share.left(), &mut |bytes| opened.extend_from_slice(bytes));
            let more = match heard {
                Ok(heard) => self.hear(heard),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.wait(),
                Err(error) => Err(TransferError::Broken(error)),
            };
            let more = match more {
                Ok(more) => more,
                Err(error) => return Turn::Done(Err(error)),
            };
            share.take(opened.len());
            let turn = self.take(&opened, opened.len() >= LARGE, shared);
            opened.clear();
            self.records().opened = opened;
            if let Some(turn) = turn {
                return turn;
            }
            if !more && socket.end == End::NotYet {
                return Turn::Wait;
            }
        }
        Turn::Yield
    }

    /// Handles a read through TLS; returns true if there may be more at once.
    fn hear(&mut self, heard: Heard) -> Result<bool, TransferError> {
        match heard {
            Heard::Bytes { more } => return Ok(more),
            Heard::End => {
                self.ended = true;
                self.records().said_goodbye = true;
            }
            Heard::Cut { within_record: true } => {
                let why = "the connection ended in the middle of a TLS record: the file is incomplete";
                return Err(TransferError::Malformed(why.to_owned()));
            }
            Heard::Cut { .. } if self.records().may_be_cut => {
                self.ended = true;
                self.records().was_cut = true;
            }
            Heard::Cut { .. } => {
                let why = "the client ended TLS without close_notify, so the file may be incomplete";
                return Err(TransferError::Malformed(why.to_owned()));
            }
        }
        Ok(true)
    }

    /// Takes what was read; answers what the turn comes to, unless it goes on reading.
    fn take(&mut self, bytes: &[u8], full: bool, shared: &Shared) -> Option<Turn> {
        let upload = self.upload.as_mut()?;
        if self.decoder.is_some() || self.left.is_some() || upload.readiness() == Readiness::MayHang {
            self.buffer.extend_from_slice(bytes);
            let splices = full && self.decoder.is_none() && self.left.is_none();
            // The received data may contain the end, while the connection stays open. An upload in place writes
            // received data at once, even if the next bytes never come.
            let is_for_now = !full && !bytes.is_empty() && (self.ends_itself || !upload.is_staged());
            return match self.ended {
                true => Some(Turn::Commit),
                false => (splices || is_for_now || self.buffer.len() >= COLLECT)
                    .then_some(Turn::Job(JobKind::Sink)),
            };
        }
        if let Err(error) = upload.write_all(bytes) {
            return Some(Turn::Done(Err(TransferError::File(error))));
        }
        shared.add(bytes.len() as u64);
        match self.ended {
            true => Some(Turn::Commit),
            false => full.then_some(Turn::Job(JobKind::Sink)),
        }
    }

    fn commit(&mut self) -> Result<(), TransferError> {
        match self.upload.take_if(|_| !self.is_held_back) {
            Some(upload) => {
                self.hashes = upload.hashes();
                upload.commit().map(drop).map_err(TransferError::File)
            }
            None => Ok(()),
        }
    }

    /// Writes what was collected, and then commits, where that was all and its client `is_gone` not yet; otherwise
    /// splices for as long as bytes keep coming and its share allows more. May wait. `None`: the reactor goes
    /// on; an end that is met here is its to judge ([`Turn::Commit`]).
    pub(super) fn sink(
        &mut self,
        socket: Option<&mut Socket>,
        shared: &Shared,
        share: &mut Share,
        is_gone: impl FnOnce() -> bool,
    ) -> Option<Result<(), TransferError>> {
        let commits = self.ended;
        if let Err(error) = self.write_collected(shared) {
            return Some(Err(error));
        }
        if !self.ended
            && self.decoder.is_none()
            && self.left.is_none()
            && let Some(socket) = socket
            && let Err(error) = self.receive(socket, shared, share)
        {
            return Some(Err(error));
        }
        commits.then(|| match is_gone() || shared.is_cancelled() {
            true => Err(TransferError::Aborted),
            false => self.commit(),
        })
    }

    fn write_collected(&mut self, shared: &Shared) -> Result<(), TransferError> {
        let Some(upload) = self.upload.as_mut().filter(|_| !self.finished) else { return Ok(()) };
        let buffer = std::mem::take(&mut self.buffer);
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(buffer.len() as u64).ok_or_else(|| {
                TransferError::Malformed("more bytes than the announced range has".to_owned())
            })?;
        }
        let Some(decoder) = &mut self.decoder else {
            upload.write_all(&buffer).map_err(TransferError::File)?;
            shared.add(buffer.len() as u64);
            return Ok(());
        };
        let mut file = Vec::new();
        let mut wire = &buffer[..];
        loop {
            file.clear();
            let progress = decoder.decode(wire, &mut file, DECODED).map_err(malformed)?;
            upload.write_all(&file).map_err(TransferError::File)?;
            shared.add(file.len() as u64);
            match progress {
                Decoded::Hungry => break,
                Decoded::Full { consumed } => wire = &wire[consumed..],
                Decoded::Marker { consumed, marker, position } => {
                    if let Some(markers) = &mut self.markers {
                        markers.push((marker, position));
                    }
                    wire = &wire[consumed..];
                }
                Decoded::EndOfFile { consumed } if consumed < wire.len() && !self.another_may_follow => {
                    return Err(TransferError::Malformed("something follows the end of the file".to_owned()));
                }
                Decoded::EndOfFile { .. } => {
                    self.ended = true;
                    break;
                }
            }
        }
        if self.ended {
            file.clear();
            decoder.finish(&mut file).map_err(malformed)?;
            self.finished = true;
            upload.write_all(&file).map_err(TransferError::File)?;
            shared.add(file.len() as u64);
        }
        Ok(())
    }

    /// Moves bytes to the file for as long as they keep coming, by the shortest way that there is.
    fn receive(
        &mut self,
        socket: &mut Socket,
        shared: &Shared,
        share: &mut Share,
    ) -> Result<(), TransferError> {
        if socket.tls.is_some() {
            self.pump(socket, shared, share)
        } else if self.splice(socket, shared, share)? {
            Ok(())
        } else {
            self.relay(socket, shared, share)
        }
    }

    /// Reads through TLS and writes, for as long as bytes keep coming.
    fn pump(&mut self, socket: &mut Socket, shared: &Shared, share: &mut Share) -> Result<(), TransferError> {
        let mut wire = std::mem::take(&mut self.records().wire);
        wire.resize(tls::BUFFER, 0);
        while share.moved() < STRETCH && !share.is_used_up() && !self.ended && !shared.is_cancelled() {
            let Some(upload) = &mut self.upload else { break };
            let (mut count, mut written) = (0, Ok(()));
            let heard = socket.receive(&mut wire, share.left(), &mut |bytes| {
                if written.is_ok() {
                    written = upload.write_all(bytes);
                    count += bytes.len();
                }
            });
            written.map_err(TransferError::File)?;
            shared.add(count as u64);
            share.take(count);
            match heard {
                Ok(heard) => _ = self.hear(heard)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !stream::wait_readable(&socket.fd, LINGER) {
                        break;
                    }
                }
                Err(error) => return Err(TransferError::Broken(error)),
            }
        }
        self.records().wire = wire;
        Ok(())
    }

    /// Reads and writes in clear.
    fn relay(&mut self, socket: &Socket, shared: &Shared, share: &mut Share) -> Result<(), TransferError> {
        let Some(upload) = &mut self.upload else { return Ok(()) };
        let mut wire = vec![0; COLLECT];
        while share.moved() < STRETCH && !share.is_used_up() && !shared.is_cancelled() {
            let room = wire.len().min(share.left());
            match stream::read(&socket.fd, &mut wire[..room]) {
                Ok(0) => {
                    self.ended = true;
                    return Ok(());
                }
                Ok(count) => {
                    upload.write_all(&wire[..count]).map_err(TransferError::File)?;
                    shared.add(count as u64);
                    share.take(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !stream::wait_readable(&socket.fd, LINGER) {
                        return Ok(());
                    }
                }
                Err(error) => return Err(TransferError::Broken(error)),
            }
        }
        Ok(())
    }

    /// Uses `splice`; returns false where it is not possible: no pipe is available, there is no file, or no such system
    /// call.
    fn splice(
        &mut self,
        socket: &mut Socket,
        shared: &Shared,
        share: &mut Share,
    ) -> Result<bool, TransferError> {
        let Some(upload) = &mut self.upload else { return Ok(true) };
        let conduit = match &mut self.conduit {
            Some(conduit) => conduit,
            None => match Conduit::new() {
                Ok(conduit) => self.conduit.insert(conduit),
                Err(_) => return Ok(false),
            },
        };
        while share.moved() < STRETCH && !share.is_used_up() && !shared.is_cancelled() {
            let mut received = Ok(0);
            let mut receive = |file: &File, position| {
                received = conduit.receive(&socket.fd, file, position, share.left() as u64);
            };
            if !upload.with_file(&mut receive).map_err(TransferError::File)? {
                return Ok(false);
            }
            match received {
                Ok(0) => {
                    self.ended = true;
                    return Ok(true);
                }
                Ok(count) => {
                    upload.advance(count as u64);
                    shared.add(count as u64);
                    share.take(count);
                }
                Err((Side::Socket, error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !stream::wait_readable(&socket.fd, LINGER) {
                        return Ok(true);
                    }
                }
                Err((Side::Kernel, _)) => return Ok(false),
                Err((Side::Socket, error)) => return Err(TransferError::Broken(error)),
                Err((Side::File, error)) => return Err(TransferError::File(FileError::from(error))),
            }
        }
        Ok(true)
    }
}

/// In place the part that came is there, whatever ended the upload.
impl Drop for Receiver {
    fn drop(&mut self) {
        if !self.buffer.is_empty() && self.upload.as_ref().is_some_and(|upload| !upload.is_staged()) {
            let _ = self.write_collected(&Shared::default());
        }
    }
}

fn malformed(error: millrace_ftp::codec::CodecError) -> TransferError {
    TransferError::Malformed(error.to_string())
}
