//! What server and spawner send each other: blocks of bytes, each behind its length, and descriptors.

use std::ffi::{CStr, OsString};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recv, recvmsg, send, sendmsg,
};

/// The longest message. The kernel gives arguments and variables together 2 MiB or less by default.
const LONGEST: usize = 4 << 20;

/// Bytes of the length before a message.
const HEADER: usize = size_of::<u64>();

/// What a message may take without a second call, and what a spawner keeps for each connection: more than most
/// requests of CGI need.
const USUAL: usize = 16 * 1024;

/// The most descriptors with a message: the connections that come with the policy.
pub(super) const DESCRIPTORS: usize = 8;

/// A message as it is written.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn block(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn blocks<'a>(&mut self, blocks: impl ExactSizeIterator<Item = &'a [u8]>) {
        self.number(blocks.len() as u64);
        blocks.for_each(|block| self.block(block));
    }

    /// Sends it, with copies of these descriptors.
    pub(super) fn send(&self, socket: BorrowedFd<'_>, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        if self.0.len() > LONGEST {
            return Err(Errno::TOOBIG.into());
        }
        let length = (self.0.len() as u64).to_le_bytes();
        let sent = send_with(socket, &[IoSlice::new(&length), IoSlice::new(&self.0)], descriptors)?;
        // The rest of a message that is longer than the buffer of the socket.
        send_all(socket, length.get(sent..).unwrap_or_default())?;
        send_all(socket, self.0.get(sent.saturating_sub(HEADER)..).unwrap_or_default())
    }
}

/// Sends as much of this as the socket takes, with copies of these descriptors; returns how much that was.
pub(super) fn send_with(
    socket: BorrowedFd<'_>,
    parts: &[IoSlice<'_>],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    loop {
        match sendmsg(socket, parts, &mut ancillary, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            sent => return Ok(sent?),
        }
    }
}

fn send_all(socket: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match send(socket, bytes, SendFlags::NOSIGNAL) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Receives what there is, up to the length of the buffer, and the descriptors with it; 0 where the other side has
/// closed its end.
pub(super) fn receive_with(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let count = loop {
        let mut parts = [IoSliceMut::new(buffer)];
        match recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => break received?.bytes,
        }
    };
    let descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok((count, descriptors.flatten().collect()))
}

/// Fills the buffer.
fn receive_all(socket: BorrowedFd<'_>, mut buffer: &mut [u8]) -> io::Result<()> {
    while !buffer.is_empty() {
        match recv(socket, &mut *buffer, RecvFlags::empty()) {
            Ok((_, 0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((_, count)) => buffer = &mut buffer[count..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Receives messages into one buffer. The other side sends one and waits for its answer before it sends the next, so
/// that a read never takes a part of another one; where it does, that is an error.
#[derive(Debug)]
pub(super) struct Receiver(Vec<u8>);

impl Receiver {
    pub(super) fn new() -> Self {
        Self(vec![0; USUAL])
    }

    /// Receives a message and the descriptors with it; `None` where the other side has closed its end.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<Option<(&[u8], Vec<OwnedFd>)>> {
        // What a long message has made it goes.
        self.0.truncate(USUAL);
        self.0.shrink_to(USUAL);
        let (mut count, descriptors) = receive_with(socket, &mut self.0)?;
        if count == 0 {
            return Ok(None);
        }
        if count < HEADER {
            receive_all(socket, &mut self.0[count..HEADER])?;
            count = HEADER;
        }
        let length = self.0.first_chunk().map(|length| u64::from_le_bytes(*length)).ok_or_else(malformed)?;
        let length = usize::try_from(length).ok().filter(|length| *length <= LONGEST);
        let end = HEADER + length.ok_or_else(malformed)?;
        if count > end {
            return Err(malformed());
        }
        if end > self.0.len() {
            self.0.resize(end, 0);
        }
        receive_all(socket, &mut self.0[count..end])?;
        Ok(Some((&self.0[HEADER..end], descriptors)))
    }
}

/// A message as it is read.
#[derive(Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

pub(super) fn malformed() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

impl<'a> Reader<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    pub(super) fn number(&mut self) -> io::Result<u64> {
        let (number, rest) = self.0.split_first_chunk().ok_or_else(malformed)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*number))
    }

    pub(super) fn block(&mut self) -> io::Result<&'a [u8]> {
        let length = usize::try_from(self.number()?).map_err(|_| malformed())?;
        let (block, rest) = self.0.split_at_checked(length).ok_or_else(malformed)?;
        self.0 = rest;
        Ok(block)
    }

    pub(super) fn blocks(&mut self) -> io::Result<Vec<&'a [u8]>> {
        (0..self.number()?).map(|_| self.block()).collect()
    }

    pub(super) fn texts(&mut self) -> io::Result<Vec<OsString>> {
        Ok(self.blocks()?.into_iter().map(|block| OsString::from_vec(block.to_vec())).collect())
    }

    /// Reads a block as a path for the kernel: its only NUL byte is its last.
    pub(super) fn path(&mut self) -> io::Result<&'a CStr> {
        CStr::from_bytes_with_nul(self.block()?).map_err(|_| malformed())
    }

    /// Ends a message: nothing is behind what was read.
    pub(super) fn end(self) -> io::Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(malformed()) }
    }
}
