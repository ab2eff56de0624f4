//! Encryption of the load: FTP in TLS (RFC 4217), explicit and implicit, and HTTP in TLS (RFC 9110 section 4.2.2).
//!
//! Every FTP session has tickets of its own, with which its data connections resume, because servers may require that.
//! A user of HTTP has tickets of its own, and each of its connections resumes with those of the one before.

use std::io;
use std::os::fd::AsFd;

use millrace_net::stream;
use millrace_net::tls::{Channel, Connector, Heard, Trust, Versions};

use super::worker::Socket;
use crate::plan::{HttpVersion, Prot, Settings, TlsVersion};
use crate::target::{Scheme, Target};

/// The encryption of a target's sessions.
#[derive(Debug, Clone)]
pub(super) struct Security {
    connector: Connector,
    name: String,
    /// From the first byte on, rather than after `AUTH TLS`.
    pub(super) is_implicit: bool,
    pub(super) prot: Prot,
    resumes: bool,
}

impl Security {
    /// `None` where nothing is encrypted. Certificates are not verified: the benchmark measures the user's own servers.
    pub(super) fn of(target: &Target, settings: &Settings) -> io::Result<Option<Self>> {
        if !target.scheme.is_secure() {
            return Ok(None);
        }
        let versions = match settings.tls {
            TlsVersion::Tls12 => Versions::Tls12,
            TlsVersion::Tls13 => Versions::Tls13,
            TlsVersion::Off | TlsVersion::On => Versions::All,
        };
        let connector = Connector::new(Trust::Anybody, versions, None).map_err(io::Error::other)?;
        let is_http2 = target.scheme.is_http() && settings.http == HttpVersion::Http2;
        let connector = if is_http2 { connector.with_protocols(&[b"h2"]) } else { connector };
        Ok(Some(Self {
            connector,
            name: target.host.clone(),
            is_implicit: target.scheme == Scheme::Ftps,
            prot: settings.prot,
            resumes: settings.resume,
        }))
    }

    /// For another session or user.
    pub(super) fn renewed(&self) -> Self {
        let connector =
            if self.resumes { self.connector.forgetful() } else { self.connector.without_resumption() };
        Self { connector, ..self.clone() }
    }

    /// For another connection of a session.
    pub(super) fn channel(&self) -> io::Result<Box<Channel>> {
        self.connector.connect(&self.name).map(|tls| Box::new(Channel::new(tls))).map_err(io::Error::other)
    }
}

/// A control connection, or an HTTP connection, encrypted or not.
#[derive(Debug)]
pub(super) struct Link {
    socket: Socket,
    channel: Option<Box<Channel>>,
}

impl Link {
    /// A connection without encryption.
    pub(super) fn plain(socket: Socket) -> Self {
        Self { socket, channel: None }
    }

    /// The socket to watch.
    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Encrypts it from here on.
    pub(super) fn encrypt(&mut self, channel: Box<Channel>) {
        self.channel = Some(channel);
    }

    /// Returns true if [`Link::handshake`] must be called before any data.
    pub(super) fn is_handshaking(&self) -> bool {
        self.channel.as_ref().is_some_and(|channel| channel.tls().is_handshaking())
    }

    /// Continues the handshake; returns true when it is complete.
    pub(super) fn handshake(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        self.channel.as_mut().map_or(Ok(true), |channel| channel.handshake(&self.socket, buffer))
    }

    /// Returns true if it resumed an earlier session.
    pub(super) fn is_resumed(&self) -> bool {
        self.channel.as_ref().is_some_and(|channel| channel.tls().is_resumed())
    }

    /// Returns true if ALPN has selected this protocol.
    pub(super) fn has_agreed_on(&self, protocol: &[u8]) -> bool {
        self.channel.as_ref().is_some_and(|channel| channel.tls().protocol() == Some(protocol))
    }

    /// The cipher suite, after the handshake.
    pub(super) fn suite(&self) -> Option<String> {
        let tls = self.channel.as_ref()?.tls();
        Some(format!("{} {}", tls.version()?, tls.cipher()?))
    }

    /// Reads available bytes into `plain`; 0 bytes are the end.
    pub(super) fn read(&mut self, buffer: &mut [u8], plain: &mut Vec<u8>) -> io::Result<usize> {
        plain.clear();
        let Some(channel) = &mut self.channel else {
            let count = stream::read(&self.socket, buffer)?;
            plain.extend_from_slice(&buffer[..count]);
            return Ok(count);
        };
        match channel.read(&self.socket, buffer, &mut |piece| plain.extend_from_slice(piece))? {
            // An incomplete record, or one without data.
            Heard::Bytes { .. } if plain.is_empty() => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(plain.len()),
        }
    }

    /// Passes decrypted bytes to `take`, piece by piece; `None` where the connection is not encrypted.
    pub(super) fn read_secret(
        &mut self,
        buffer: &mut [u8],
        take: &mut dyn FnMut(&[u8]),
    ) -> Option<io::Result<Heard>> {
        Some(self.channel.as_mut()?.read(&self.socket, buffer, take))
    }

    /// Sends a command, or a part of a request; returns how much of it was taken.
    pub(super) fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        match &mut self.channel {
            Some(channel) => channel.write(&self.socket, text),
            None => stream::write(&self.socket, text),
        }
    }

    /// Offers the rest to the socket; returns true if it has taken everything.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        match self.channel.as_mut().map_or(Ok(()), |channel| channel.flush(&self.socket)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            flushed => flushed.map(|()| true),
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
