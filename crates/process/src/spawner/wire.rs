//! What server and spawner send each other: blocks of bytes, each behind its length.

use std::ffi::{CString, OsString};
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, send, sendmsg,
};

/// The longest message. The kernel gives arguments and variables together 2 MiB or less by default.
const LONGEST: usize = 4 << 20;

/// Descriptors that come with a request: three streams, and the socket for the answers.
pub(super) const DESCRIPTORS: usize = 4;

/// A message as it is written.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    #[cfg(test)]
    pub(super) fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    #[cfg(test)]
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
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // The descriptors come with the length, the rest behind it.
        let length = (self.0.len() as u64).to_le_bytes();
        let sent = loop {
            match sendmsg(socket, &[IoSlice::new(&length)], &mut ancillary, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                sent => break sent?,
            }
        };
        let rest = [&length[sent..], &self.0].concat();
        let mut rest = &rest[..];
        while !rest.is_empty() {
            match send(socket, rest, SendFlags::NOSIGNAL) {
                Ok(count) => rest = &rest[count..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// A message as it is read.
#[derive(Debug)]
pub(super) struct Reader {
    bytes: Vec<u8>,
    at: usize,
}

fn malformed() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

impl Reader {
    #[cfg(test)]
    pub(super) fn of(writer: Writer) -> Self {
        Self { bytes: writer.0, at: 0 }
    }

    pub(super) fn number(&mut self) -> io::Result<u64> {
        let (number, _) = self.bytes[self.at..].split_first_chunk().ok_or_else(malformed)?;
        self.at += size_of::<u64>();
        Ok(u64::from_le_bytes(*number))
    }

    pub(super) fn block(&mut self) -> io::Result<Vec<u8>> {
        let length = usize::try_from(self.number()?).map_err(|_| malformed())?;
        let block = self.bytes[self.at..].get(..length).ok_or_else(malformed)?.to_vec();
        self.at += length;
        Ok(block)
    }

    pub(super) fn blocks(&mut self) -> io::Result<Vec<Vec<u8>>> {
        (0..self.number()?).map(|_| self.block()).collect()
    }

    pub(super) fn texts(&mut self) -> io::Result<Vec<OsString>> {
        Ok(self.blocks()?.into_iter().map(OsString::from_vec).collect())
    }

    /// Reads a block as a path for the kernel.
    pub(super) fn path(&mut self) -> io::Result<CString> {
        CString::new(self.block()?).map_err(|_| malformed())
    }

    /// Receives a message and the descriptors with it; `None` where the other side has closed its end.
    pub(super) fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<(Self, Vec<OwnedFd>)>> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut length = [0; size_of::<u64>()];
        let received = loop {
            let mut parts = [IoSliceMut::new(&mut length)];
            match recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL) {
                Err(Errno::INTR) => {}
                received => break received?.bytes,
            }
        };
        if received == 0 {
            return Ok(None);
        }
        let descriptors = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let descriptors: Vec<OwnedFd> = descriptors.flatten().collect();
        let mut socket = std::fs::File::from(socket.as_fd().try_clone_to_owned()?);
        socket.read_exact(&mut length[received..])?;
        let length = usize::try_from(u64::from_le_bytes(length)).ok().filter(|length| *length <= LONGEST);
        let mut bytes = vec![0; length.ok_or_else(malformed)?];
        socket.read_exact(&mut bytes)?;
        Ok(Some((Self { bytes, at: 0 }, descriptors)))
    }
}
