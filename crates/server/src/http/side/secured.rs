//! TLS over a socket of the side runtime, as hyper reads and writes it.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use hyper::rt::{Read, ReadBufCursor, Write};
use millrace_net::stream;
use millrace_net::tls::{Channel, Heard};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::census::Census;
use super::wire::Wire;

/// What is read at a time: four full records, and the rest of one before.
const WIRE: usize = 64 * 1024 + 20 * 1024;

thread_local! {
    /// What all connections of a thread read into.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; WIRE]);
}

/// A socket with TLS on it, whose handshake is over.
#[derive(Debug)]
pub(super) struct Secured {
    wire: Arc<Wire>,
    inner: Inner,
    census: Census,
}

#[derive(Debug)]
struct Inner {
    channel: Box<Channel>,
    /// Decrypted and not taken, from `taken` on.
    plain: Vec<u8>,
    taken: usize,
    ended: bool,
}

impl Inner {
    /// Reads once.
    fn receive(&mut self, socket: &TcpStream) -> io::Result<()> {
        let Self { channel, plain, .. } = self;
        let heard = SCRATCH.with_borrow_mut(|scratch| {
            channel.read(socket, scratch, &mut |bytes| plain.extend_from_slice(bytes))
        })?;
        self.ended |= !matches!(heard, Heard::Bytes { .. });
        Ok(())
    }
}

impl Secured {
    /// Takes over what a worker began.
    pub(super) fn new(socket: OwnedFd, channel: Box<Channel>) -> io::Result<Self> {
        let wire = Arc::new(Wire::new(TcpStream::from_std(std::net::TcpStream::from(socket))?));
        let mut inner = Inner { channel, plain: Vec::new(), taken: 0, ended: false };
        // Something may have come with the end of the handshake, of which the socket will not tell.
        match inner.receive(&wire.socket) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(Self { wire, inner, census: Census::new(Instant::now()) }),
        }
    }

    /// What it goes by.
    pub(super) fn wire(&self) -> Arc<Wire> {
        Arc::clone(&self.wire)
    }

    /// Does something when the socket is ready for it.
    fn poll_io<T>(
        &mut self,
        cx: &mut Context<'_>,
        interest: Interest,
        mut work: impl FnMut(&mut Inner, &TcpStream) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        let (socket, inner) = (&self.wire.socket, &mut self.inner);
        loop {
            ready!(match interest.is_readable() {
                true => socket.poll_read_ready(cx),
                false => socket.poll_write_ready(cx),
            })?;
            match socket.try_io(interest, || work(inner, socket)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }
}

impl Read for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        while self.inner.taken == self.inner.plain.len() {
            if self.inner.ended {
                return Poll::Ready(Ok(()));
            }
            // An idle connection keeps no buffer.
            (self.inner.plain, self.inner.taken) = (Vec::new(), 0);
            ready!(self.poll_io(cx, Interest::READABLE, Inner::receive))?;
            self.wire.note_life();
        }
        let Self { inner, census, .. } = &mut *self;
        let rest = &inner.plain[inner.taken..];
        let count = rest.len().min(buffer.remaining());
        census.look(&rest[..count], Instant::now())?;
        buffer.put_slice(&rest[..count]);
        inner.taken += count;
        Poll::Ready(Ok(()))
    }
}

impl Write for Secured {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let sent = ready!(
            self.poll_io(cx, Interest::WRITABLE, |inner, socket| { inner.channel.write(socket, bytes) })
        )?;
        self.census.took(sent);
        Poll::Ready(Ok(sent))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.inner.channel.is_flushed() {
            ready!(self.poll_io(cx, Interest::WRITABLE, |inner, socket| inner.channel.flush(socket)))?;
        }
        self.inner.channel.release();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_io(cx, Interest::WRITABLE, |inner, socket| inner.channel.close(socket)))?;
        Poll::Ready(stream::end_writing(&self.wire.socket))
    }
}
