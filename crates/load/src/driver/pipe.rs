//! A blocking connection, encrypted or not, for [`BlockingSession`](super::ftp) and for the test whether an HTTP server
//! answers.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use millrace_net::tls::{BUFFER, Channel, Heard};

use super::cancellable_wait::CancellableWait;
use super::error::DriverError;

/// A greeting or a status line in the clear, `220 ...`, `HTTP/1.1 400 ...`: no record of TLS begins with '2' or 'H'.
pub(super) fn is_in_clear(error: &io::Error) -> bool {
    error.to_string().contains("InvalidContentType")
}

/// A blocking socket and its encryption.
pub(super) struct Pipe {
    socket: TcpStream,
    secret: Option<Secret>,
}

struct Secret {
    channel: Box<Channel>,
    buffer: Vec<u8>,
    /// Decrypted bytes that are not read yet.
    plain: Vec<u8>,
    taken: usize,
}

impl Pipe {
    pub(super) fn plain(socket: TcpStream) -> Self {
        Self { socket, secret: None }
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Encrypts it from here on.
    pub(super) fn encrypt(
        &mut self,
        mut channel: Box<Channel>,
        wait: CancellableWait<'_>,
        patience: Duration,
    ) -> Result<io::Result<()>, DriverError> {
        let mut buffer = vec![0; BUFFER];
        let socket = &self.socket;
        let over = wait.until(patience, || Ok(channel.handshake(socket, &mut buffer)?.then_some(())))?;
        Ok(over.and_then(|over| over.ok_or(io::ErrorKind::TimedOut.into())).map(|()| {
            self.secret = Some(Secret { channel, buffer, plain: Vec::new(), taken: 0 });
        }))
    }

    /// Returns true if ALPN has selected this protocol.
    pub(super) fn has_agreed_on(&self, protocol: &[u8]) -> bool {
        self.secret.as_ref().is_some_and(|secret| secret.channel.tls().protocol() == Some(protocol))
    }

    /// Ends the output, and waits until the server has taken it: closing with unread TLS 1.3 tickets would reset the
    /// connection and lose data in flight.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        if let Some(secret) = &mut self.secret {
            secret.channel.close(&self.socket)?;
        }
        self.socket.shutdown(Shutdown::Write)
    }
}

impl Read for Pipe {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let Some(Secret { channel, buffer, plain, taken }) = &mut self.secret else {
            return self.socket.read(room);
        };
        while *taken == plain.len() {
            plain.clear();
            *taken = 0;
            match channel.read(&self.socket, buffer, &mut |piece| plain.extend_from_slice(piece))? {
                Heard::Bytes { .. } => {}
                Heard::End | Heard::Cut { .. } if plain.is_empty() => return Ok(0),
                Heard::End | Heard::Cut { .. } => {}
            }
        }
        let count = room.len().min(plain.len() - *taken);
        room[..count].copy_from_slice(&plain[*taken..*taken + count]);
        *taken += count;
        Ok(count)
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.secret {
            Some(secret) => secret.channel.write(&self.socket, bytes),
            None => self.socket.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.secret {
            Some(secret) => secret.channel.flush(&self.socket),
            None => Ok(()),
        }
    }
}
