//! Handing descriptors to another process of this computer, over a pair of connected sockets.
//!
//! The pair keeps messages apart (`SOCK_SEQPACKET`), and each carries at most one descriptor (`SCM_RIGHTS`): what a
//! message says and what it brings belong together.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::cmsg_space;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// The longest message.
pub const LONGEST: usize = 64 * 1024;

/// A pair of connected sockets. Children do not inherit them.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Bounds how long a message waits for room: who takes none for this time has the sender hear
/// [`io::ErrorKind::WouldBlock`].
pub fn bound_sending(socket: impl AsFd, patience: Duration) -> io::Result<()> {
    Ok(sockopt::set_socket_timeout(socket, Timeout::Send, Some(patience))?)
}

/// Sends a message, with a descriptor of which the receiver gets a copy. Fails if the receiver has gone.
pub fn send(socket: impl AsFd, message: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<_> = descriptor.into_iter().collect();
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let parts = [IoSlice::new(message)];
    loop {
        match sendmsg(&socket, &parts, &mut ancillary, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            sent => return Ok(sent.map(drop)?),
        }
    }
}

/// Receives a message and its descriptors; `None` once the sender has gone, and [`io::ErrorKind::WouldBlock`] after the
/// timeout.
pub fn receive(
    socket: impl AsFd,
    patience: Option<Duration>,
) -> io::Result<Option<(Vec<u8>, Option<OwnedFd>)>> {
    sockopt::set_socket_timeout(&socket, Timeout::Recv, patience)?;
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut message = vec![0; LONGEST];
    let received = loop {
        let mut parts = [IoSliceMut::new(&mut message)];
        match recvmsg(&socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received?,
        }
    };
    let descriptor = ancillary.drain().find_map(|brought| match brought {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    message.truncate(received.bytes);
    Ok((received.bytes > 0).then_some((message, descriptor)))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::listener::local_address;

    #[test]
    fn a_listener_is_the_receivers_too_with_who_waits_at_it() {
        let (ours, theirs) = pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).unwrap();
        send(&ours, b"first", Some(listener.as_fd())).unwrap();
        send(&ours, b"second", None).unwrap();
        drop((listener, ours));
        let (message, descriptor) = receive(&theirs, None).unwrap().unwrap();
        let descriptor = descriptor.unwrap();
        assert_eq!((&message[..], local_address(&descriptor).unwrap()), (&b"first"[..], address));
        let (_, peer) = TcpListener::from(descriptor).accept().unwrap();
        assert_eq!(peer, client.local_addr().unwrap(), "it was not lost when the sender closed its own");
        let (message, descriptor) = receive(&theirs, None).unwrap().unwrap();
        assert!(message == b"second" && descriptor.is_none());
        assert!(receive(&theirs, None).unwrap().is_none(), "the sender has gone");
    }

    #[test]
    fn receiving_waits_for_the_timeout() {
        let (ours, _theirs) = pair().unwrap();
        let error = receive(&ours, Some(Duration::from_millis(1))).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn sending_waits_for_the_timeout() {
        let (ours, _theirs) = pair().unwrap();
        bound_sending(&ours, Duration::from_millis(1)).unwrap();
        let error =
            std::iter::repeat_with(|| send(&ours, &[b'x'; 1000], None)).find_map(Result::err).unwrap();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_closed_peer_is_noticed() {
        let (ours, theirs) = pair().unwrap();
        drop(theirs);
        assert!(send(&ours, b"anybody?", None).is_err());
    }
}
