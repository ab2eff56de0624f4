//! A blocking session for work that is not measured: making, checking and removing test files, and misbehaving.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use millrace_ftp::client::{ClientEvent, ClientSession, Plan, ReplyReader};

use super::setup;
use crate::driver::cancellable_wait::CancellableWait;
use crate::driver::error::DriverError;
use crate::driver::pipe::{Pipe, is_in_clear};
use crate::driver::security::Security;
use crate::payload::{Checker, FileId, Flaw, Payload};
use crate::plan::Settings;
use crate::target::{Scheme, Target};

/// The limit for every answer, also where the users' timeout is longer.
const PATIENCE: Duration = Duration::from_secs(60);
const CHUNK: usize = 256 * 1024;

/// A session.
pub(super) struct BlockingSession<'a> {
    control: Pipe,
    security: Option<Security>,
    address: SocketAddr,
    scheme: Scheme,
    patience: Duration,
    session: ClientSession,
    reader: ReplyReader,
    /// Received bytes that are not parsed yet.
    input: Vec<u8>,
    chunk: Vec<u8>,
    /// The lines of the last successful reply.
    answer: Vec<u8>,
    /// How the user can cancel it.
    wait: CancellableWait<'a>,
}

/// A [`ClientEvent`] without the reply that it was made from.
enum Heard {
    Listening(SocketAddr),
    Opening,
    Done,
}

impl<'a> BlockingSession<'a> {
    /// Connects and logs in, with this timeout for every answer.
    pub(super) fn log_in(
        target: &Target,
        address: SocketAddr,
        patience: Duration,
        wait: CancellableWait<'a>,
    ) -> Result<Self, DriverError> {
        let patience = patience.min(PATIENCE);
        let control = wait.connect(address, None, patience)?;
        control.set_nodelay(true).map_err(|error| DriverError::Unreachable { address, error })?;
        let security = Security::of(target, &Settings::default()).map_err(DriverError::Client)?;
        let control = Pipe::plain(control);
        let (session, reader) = (ClientSession::new(address), ReplyReader::default());
        let mut opened = Self {
            control,
            security,
            address,
            scheme: target.scheme,
            patience,
            session,
            reader,
            input: Vec::new(),
            chunk: Vec::new(),
            answer: Vec::new(),
            wait,
        };
        let is_implicit = opened.security.as_ref().map(|security| security.is_implicit);
        if is_implicit == Some(true) {
            opened.encrypt()?;
        }
        opened.hear("its greeting")?;
        if is_implicit == Some(false) {
            opened.command(b"AUTH", b"TLS")?;
            opened.encrypt()?;
        }
        let mut out = Vec::new();
        opened.session.log_in(target.user.as_bytes(), target.password.as_bytes(), &mut out);
        opened.send(&out)?;
        opened.hear("the login")?;
        for [verb, argument] in setup(opened.security.as_ref()) {
            opened.command(verb, argument)?;
        }
        Ok(opened)
    }

    fn encrypt(&mut self) -> Result<(), DriverError> {
        let Some(security) = &self.security else { return Ok(()) };
        let channel = security.channel().map_err(|error| self.unreachable(error))?;
        let encrypted = self.control.encrypt(channel, self.wait, self.patience)?;
        let (address, scheme) = (self.address, self.scheme);
        let remedy = "ftpes:// asks for TLS after the greeting, and ftp://";
        encrypted.map_err(|error| match scheme {
            Scheme::Ftps if is_in_clear(&error) => DriverError::NotTls { address, scheme, remedy },
            _ => self.unreachable(error),
        })
    }

    /// Uploads a test file.
    pub(super) fn store(
        &mut self,
        path: &str,
        payload: &Payload,
        file: FileId,
        size: u64,
    ) -> Result<(), DriverError> {
        let mut data = self.begin(b"STOR", path, None)?;
        self.chunk.resize(CHUNK, 0);
        let mut offset = 0;
        while offset < size {
            self.wait.check()?;
            let count = (size - offset).min(CHUNK as u64) as usize;
            payload.fill(file, offset, &mut self.chunk[..count]);
            if data.write_all(&self.chunk[..count]).is_err() {
                break; // the reply says why
            }
            offset += count as u64;
        }
        let _ = data.finish();
        self.hear(&format!("STOR {path}"))?;
        // The remaining records are tickets, which the next data connections need.
        let (wait, patience) = (self.wait, self.patience);
        drop(wait.until(patience, || data.read(&mut [0]).map(Some))?);
        Ok(())
    }

    /// Reads a file back.
    pub(super) fn check(
        &mut self,
        path: &str,
        mut checker: Checker,
    ) -> Result<Result<(), Flaw>, DriverError> {
        let mut data = self.begin(b"RETR", path, None)?;
        self.chunk.resize(CHUNK, 0);
        let mut verdict = Ok(());
        loop {
            self.wait.check()?;
            let read = self.wait.until(self.patience, || data.read(&mut self.chunk).map(Some))?;
            let read = read.and_then(|count| count.ok_or(io::ErrorKind::TimedOut.into()));
            let count = read.map_err(|error| self.unreachable(error))?;
            if count == 0 {
                break;
            }
            verdict = verdict.and_then(|()| checker.check(&self.chunk[..count]));
        }
        drop(data);
        self.hear(&format!("RETR {path}"))?;
        Ok(verdict.and_then(|()| checker.finish()))
    }

    /// Sends a command with one reply.
    pub(super) fn command(&mut self, verb: &[u8], argument: &[u8]) -> Result<(), DriverError> {
        let mut out = Vec::new();
        self.session.command(verb, argument, &mut out);
        self.send(&out)?;
        self.hear(&String::from_utf8_lossy(&out[..out.len() - 2])).map(drop)
    }

    /// Sends a command with one reply, and returns the reply's lines.
    pub(super) fn ask(&mut self, verb: &[u8], argument: &[u8]) -> Result<String, DriverError> {
        self.command(verb, argument)?;
        Ok(String::from_utf8_lossy(&self.answer).into_owned())
    }

    /// Sends `QUIT`; the reply does not matter.
    pub(super) fn quit(mut self) {
        let mut out = Vec::new();
        self.session.quit(&mut out);
        let _ = self.send(&out).and_then(|()| self.hear("QUIT").map(drop));
    }

    /// The control connection itself.
    pub(super) fn socket(&self) -> &TcpStream {
        self.control.socket()
    }

    /// Asks for a passive port, and returns its address.
    pub(super) fn listen(&mut self) -> Result<SocketAddr, DriverError> {
        let mut out = Vec::new();
        let plan = if self.address.is_ipv4() { Plan::Passive } else { Plan::ExtendedPassive };
        self.session.plan(plan, &mut out);
        self.send(&out)?;
        match self.hear("a passive data connection")? {
            Heard::Listening(address) => Ok(address),
            _ => Err(self.unreachable(io::ErrorKind::InvalidData.into())),
        }
    }

    /// Arranges a data connection, with a receive buffer of a size, sends a transfer command and waits until it is
    /// under way.
    pub(super) fn begin(
        &mut self,
        verb: &[u8],
        path: &str,
        rcvbuf: Option<usize>,
    ) -> Result<Pipe, DriverError> {
        let address = self.listen()?;
        let data = self.wait.connect(address, rcvbuf, self.patience)?;
        let mut out = Vec::new();
        self.session.transfer(verb, path.as_bytes(), &mut out);
        self.send(&out)?;
        match self.hear(&String::from_utf8_lossy(&out[..out.len() - 2]))? {
            Heard::Opening => {
                let mut data = Pipe::plain(data);
                if let Some(security) = &self.security {
                    let channel = security.channel().map_err(|error| self.unreachable(error))?;
                    let secured = data.encrypt(channel, self.wait, self.patience)?;
                    secured.map_err(|error| self.unreachable(error))?;
                }
                Ok(data)
            }
            _ => Err(self.unreachable(io::ErrorKind::InvalidData.into())),
        }
    }

    /// Makes the server connect, and sends a transfer command without waiting for the reply.
    pub(super) fn begin_active(
        &mut self,
        verb: &[u8],
        path: &str,
        to: SocketAddr,
    ) -> Result<(), DriverError> {
        let mut out = Vec::new();
        self.session.plan(Plan::Active(to), &mut out);
        self.send(&out)?;
        self.hear("an active data connection")?;
        out.clear();
        self.session.transfer(verb, path.as_bytes(), &mut out);
        self.send(&out)
    }

    /// Aborts the transfer under way; `drain` reads the rest of its data.
    pub(super) fn abort(&mut self, drain: impl FnOnce()) -> Result<(), DriverError> {
        let mut out = Vec::new();
        self.session.abort(&mut out);
        self.send(&out)?;
        drain();
        while !self.session.is_idle() {
            match self.hear("ABOR") {
                Err(DriverError::Refused { .. }) => {} // the transfer's own end, 426
                heard => _ = heard?,
            }
        }
        Ok(())
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), DriverError> {
        self.control.write_all(bytes).map_err(|error| self.unreachable(error))
    }

    /// Waits for the reply to `what`.
    fn hear(&mut self, what: &str) -> Result<Heard, DriverError> {
        let (address, scheme) = (self.address, self.scheme);
        let protocol = |error| DriverError::Protocol { address, scheme, error };
        loop {
            let mut input = &self.input[..];
            let mut out = Vec::new();
            let mut heard = None;
            while let Some(reply) = self.reader.next(&mut input).map_err(protocol)? {
                heard = match self.session.receive(reply, &mut out).map_err(protocol)? {
                    ClientEvent::Underway => continue,
                    ClientEvent::Listening(address) => Some(Ok(Heard::Listening(address))),
                    ClientEvent::Opening(_) => Some(Ok(Heard::Opening)),
                    ClientEvent::Done(reply) => {
                        self.answer.clear();
                        for line in reply.lines() {
                            self.answer.extend_from_slice(line);
                            self.answer.push(b'\n');
                        }
                        Some(Ok(Heard::Done))
                    }
                    ClientEvent::Greeted | ClientEvent::LoggedIn => Some(Ok(Heard::Done)),
                    ClientEvent::Refused(reply) | ClientEvent::Closing(reply) => {
                        let reply = format!("{} {}", reply.code, String::from_utf8_lossy(reply.text()));
                        Some(Err(DriverError::Refused { what: what.to_owned(), reply }))
                    }
                };
                break;
            }
            let left = input.len();
            self.input.drain(..self.input.len() - left);
            if !out.is_empty() {
                self.send(&out)?;
            }
            if let Some(heard) = heard {
                return heard;
            }
            self.read(what)?;
        }
    }

    fn read(&mut self, what: &str) -> Result<(), DriverError> {
        let mut piece = [0; 4096];
        let silent = |how| Err(DriverError::Silent { address: self.address, how, what: what.to_owned() });
        let control = &mut self.control;
        match self.wait.until(self.patience, || control.read(&mut piece).map(Some))? {
            Ok(Some(0)) => silent("closed the connection".to_owned()),
            Ok(Some(count)) => {
                self.input.extend_from_slice(&piece[..count]);
                Ok(())
            }
            Ok(None) => silent(format!("said nothing for {:?}", self.patience)),
            Err(error) => Err(self.unreachable(error)),
        }
    }

    fn unreachable(&self, error: io::Error) -> DriverError {
        DriverError::Unreachable { address: self.address, error }
    }
}
