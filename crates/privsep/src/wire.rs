//! Packets between the processes: sent and received with descriptors, written and read within bounds.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// The longest message.
pub(crate) const LONGEST: usize = 64 * 1024;

/// The most descriptors with a message: the connections that come with the policy.
pub(crate) const DESCRIPTORS: usize = 160;

/// Makes the two ends of a connection, which keeps the bounds of messages.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Makes connections; returns our ends and theirs.
pub(crate) fn pairs(count: usize) -> io::Result<(Vec<OwnedFd>, Vec<OwnedFd>)> {
    let pairs = (0..count).map(|_| pair()).collect::<io::Result<Vec<_>>>()?;
    Ok(pairs.into_iter().unzip())
}

/// Sends a message with copies of these descriptors.
pub(crate) fn send(socket: impl AsFd, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    if message.len() > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a message is too long"));
    }
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let parts = [IoSlice::new(message)];
    retry_on_intr(|| sendmsg(&socket, &parts, &mut ancillary, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives a message into the buffer, and the descriptors with it; `None` where the other side has closed its end. One
/// that does not fit is an error.
pub(crate) fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Option<(&[u8], Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = retry_on_intr(|| {
        recvmsg(&socket, &mut [IoSliceMut::new(&mut *buffer)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    let descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors: Vec<OwnedFd> = descriptors.flatten().collect();
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(malformed());
    }
    // No message is empty.
    Ok((received.bytes > 0).then(|| (&buffer[..received.bytes], descriptors)))
}

pub(crate) fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a malformed message")
}

/// A message as it is written.
#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(crate) fn flag(&mut self, flag: bool) {
        self.byte(flag.into());
    }

    pub(crate) fn number(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(crate) fn long(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// Writes a text, whose end is cut off beyond 65,535 bytes: every reader refuses one of that length.
    pub(crate) fn text(&mut self, text: impl AsRef<[u8]>) {
        let text = text.as_ref();
        let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&length.to_le_bytes());
        self.0.extend_from_slice(&text[..length.into()]);
    }

    pub(crate) fn texts<T: AsRef<[u8]>>(&mut self, texts: &[T]) {
        self.number(u32::try_from(texts.len()).unwrap_or(u32::MAX));
        texts.iter().for_each(|text| self.text(text));
    }
}

/// A message as it is read.
#[derive(Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or_else(malformed)?;
        self.0 = rest;
        Ok(*bytes)
    }

    pub(crate) fn byte(&mut self) -> io::Result<u8> {
        self.take().map(|[byte]| byte)
    }

    pub(crate) fn flag(&mut self) -> io::Result<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(malformed()),
        }
    }

    pub(crate) fn number(&mut self) -> io::Result<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn long(&mut self) -> io::Result<u64> {
        self.take().map(u64::from_le_bytes)
    }

    pub(crate) fn octets<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.take()
    }

    /// Reads a text of at most this many bytes, without a NUL.
    pub(crate) fn text(&mut self, most: usize) -> io::Result<&'a [u8]> {
        let length = usize::from(u16::from_le_bytes(self.take()?));
        let (text, rest) = self.0.split_at_checked(length).ok_or_else(malformed)?;
        self.0 = rest;
        if length > most || text.contains(&0) {
            return Err(malformed());
        }
        Ok(text)
    }

    pub(crate) fn string(&mut self, most: usize) -> io::Result<&'a str> {
        str::from_utf8(self.text(most)?).map_err(|_| malformed())
    }

    /// Reads at most this many texts.
    pub(crate) fn texts(&mut self, count: usize, most: usize) -> io::Result<Vec<&'a [u8]>> {
        let there = usize::try_from(self.number()?).map_err(|_| malformed())?;
        if there > count {
            return Err(malformed());
        }
        (0..there).map(|_| self.text(most)).collect()
    }

    /// Ends a message: nothing is behind what was read.
    pub(crate) fn end(self) -> io::Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(malformed()) }
    }
}
