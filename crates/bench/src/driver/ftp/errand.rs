//! One blocking session for what is not measured: making, checking and removing test files, and misbehaving.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use millrace_ftp::client::{ClientSession, Event, Plan, ReplyReader};
use millrace_net::stream;

use super::pipe::Pipe;
use super::security::Security;
use crate::chore::{Chore, Chores};
use crate::driver::DriverError;
use crate::payload::{Checker, FileId, Flaw, Payload};
use crate::plan::Settings;
use crate::target::{Scheme, Target};

/// No answer may take longer, however patient the users are.
const PATIENCE: Duration = Duration::from_secs(60);
const CHUNK: usize = 256 * 1024;
/// How often it looks up from a reply that does not come, where somebody may not want to wait.
const LOOK: Duration = Duration::from_millis(200);

/// A session.
pub(super) struct Errand<'a> {
    control: Pipe,
    security: Option<Security>,
    address: SocketAddr,
    scheme: Scheme,
    patience: Duration,
    session: ClientSession,
    reader: ReplyReader,
    /// What has come and is not yet read.
    input: Vec<u8>,
    chunk: Vec<u8>,
    /// The lines of the last reply that was a success.
    answer: Vec<u8>,
    /// What it is for, and who may not want to wait for it.
    heeds: Option<(Chores<'a>, Chore)>,
}

/// What an [`Event`] says, without the reply it was made from.
enum Heard {
    Listening(SocketAddr),
    Opening,
    Done,
}

impl<'a> Errand<'a> {
    /// Connects and logs in; every answer may take so long.
    pub(super) fn log_in(
        target: &Target,
        address: SocketAddr,
        patience: Duration,
    ) -> Result<Self, DriverError> {
        let patience = patience.min(PATIENCE);
        let unreachable = |error| DriverError::Unreachable { address, error };
        let control = TcpStream::connect_timeout(&address, patience).map_err(unreachable)?;
        control.set_nodelay(true).and_then(|()| be_patient(&control, patience)).map_err(unreachable)?;
        let security = Security::of(target, &Settings::default()).map_err(DriverError::Client)?;
        let control = Pipe::plain(control);
        let (session, reader) = (ClientSession::new(address), ReplyReader::default());
        let mut errand = Self {
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
            heeds: None,
        };
        let is_implicit = errand.security.as_ref().map(|security| security.is_implicit);
        if is_implicit == Some(true) {
            errand.encrypt()?;
        }
        errand.hear("its greeting")?;
        if is_implicit == Some(false) {
            errand.command(b"AUTH", b"TLS")?;
            errand.encrypt()?;
        }
        let mut out = Vec::new();
        errand.session.log_in(target.user.as_bytes(), target.password.as_bytes(), &mut out);
        errand.send(&out)?;
        errand.hear("the login")?;
        for [verb, argument] in Security::setup(errand.security.as_ref()) {
            errand.command(verb, argument)?;
        }
        Ok(errand)
    }

    /// From here on nobody has to wait for an answer who does not want to.
    pub(super) fn heeding(self, chores: Chores<'a>, chore: Chore) -> Result<Self, DriverError> {
        let look = self.control.socket().set_read_timeout(Some(LOOK.min(self.patience)));
        look.map_err(DriverError::Client)?;
        Ok(Self { heeds: Some((chores, chore)), ..self })
    }

    fn heed(&self) -> Result<(), DriverError> {
        let is_left = self.heeds.is_some_and(|(chores, chore)| chores.is_left(chore));
        if is_left { Err(DriverError::Left(0)) } else { Ok(()) }
    }

    fn encrypt(&mut self) -> Result<(), DriverError> {
        let channel = self.security.as_ref().map(Security::channel).transpose();
        let result =
            channel.and_then(|channel| channel.map_or(Ok(()), |channel| self.control.encrypt(channel)));
        result.map_err(|error| self.unreachable(error))
    }

    /// Puts a test file there.
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
            self.heed()?;
            let count = (size - offset).min(CHUNK as u64) as usize;
            payload.fill(file, offset, &mut self.chunk[..count]);
            if data.write_all(&self.chunk[..count]).is_err() {
                break; // the reply says why
            }
            offset += count as u64;
        }
        let _ = data.finish();
        self.hear(&format!("STOR {path}"))?;
        // What comes yet is tickets, which the next data connections need.
        let _ = data.read(&mut [0]);
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
            self.heed()?;
            let count = match data.read(&mut self.chunk) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                count => count.map_err(|error| self.unreachable(error))?,
            };
            if count == 0 {
                break;
            }
            verdict = verdict.and_then(|()| checker.check(&self.chunk[..count]));
        }
        drop(data);
        self.hear(&format!("RETR {path}"))?;
        Ok(verdict.and_then(|()| checker.finish()))
    }

    /// Says a command with one reply.
    pub(super) fn command(&mut self, verb: &[u8], argument: &[u8]) -> Result<(), DriverError> {
        let mut out = Vec::new();
        self.session.command(verb, argument, &mut out);
        self.send(&out)?;
        self.hear(&String::from_utf8_lossy(&out[..out.len() - 2])).map(drop)
    }

    /// Says a command with one reply, and answers that: the lines that it has.
    pub(super) fn ask(&mut self, verb: &[u8], argument: &[u8]) -> Result<String, DriverError> {
        self.command(verb, argument)?;
        Ok(String::from_utf8_lossy(&self.answer).into_owned())
    }

    /// Leaves; how that is answered no longer matters.
    pub(super) fn quit(mut self) {
        let mut out = Vec::new();
        self.session.quit(&mut out);
        let _ = self.send(&out).and_then(|()| self.hear("QUIT").map(drop));
    }

    /// The control connection itself.
    pub(super) fn socket(&self) -> &TcpStream {
        self.control.socket()
    }

    /// Asks for a passive port, and answers where it is.
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
        let data = connect(address, rcvbuf, self.patience)
            .and_then(|data| be_patient(&data, self.patience).map(|()| data))
            .map_err(|error| DriverError::Unreachable { address, error })?;
        let mut out = Vec::new();
        self.session.transfer(verb, path.as_bytes(), &mut out);
        self.send(&out)?;
        match self.hear(&String::from_utf8_lossy(&out[..out.len() - 2]))? {
            Heard::Opening => {
                let mut data = Pipe::plain(data);
                if let Some(security) = &self.security {
                    let secured = security.channel().and_then(|channel| data.encrypt(channel));
                    secured.map_err(|error| self.unreachable(error))?;
                }
                Ok(data)
            }
            _ => Err(self.unreachable(io::ErrorKind::InvalidData.into())),
        }
    }

    /// Has the server connect, and sends a transfer command; what comes of it is not waited for.
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

    /// Aborts the transfer under way; `drain` takes what is left of its data.
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
                    Event::Underway => continue,
                    Event::Listening(address) => Some(Ok(Heard::Listening(address))),
                    Event::Opening(_) => Some(Ok(Heard::Opening)),
                    Event::Done(reply) => {
                        self.answer.clear();
                        for line in reply.lines() {
                            self.answer.extend_from_slice(line);
                            self.answer.push(b'\n');
                        }
                        Some(Ok(Heard::Done))
                    }
                    Event::Greeted | Event::LoggedIn => Some(Ok(Heard::Done)),
                    Event::Refused(reply) | Event::Closing(reply) => {
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
        let (mut piece, begun) = ([0; 4096], Instant::now());
        let silent = |how| DriverError::Silent { address: self.address, how, what: what.to_owned() };
        loop {
            match self.control.read(&mut piece) {
                Ok(0) => return Err(silent("closed the connection".to_owned())),
                Ok(count) => {
                    self.input.extend_from_slice(&piece[..count]);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.heed()?;
                    if self.heeds.is_none() || begun.elapsed() >= self.patience {
                        return Err(silent(format!("said nothing for {:?}", self.patience)));
                    }
                }
                Err(error) => return Err(self.unreachable(error)),
            }
        }
    }

    fn unreachable(&self, error: io::Error) -> DriverError {
        DriverError::Unreachable { address: self.address, error }
    }
}

fn be_patient(socket: &TcpStream, patience: Duration) -> io::Result<()> {
    socket.set_read_timeout(Some(patience)).and_then(|()| socket.set_write_timeout(Some(patience)))
}

/// As [`TcpStream::connect_timeout`], with a receive buffer that the connection begins with.
fn connect(to: SocketAddr, rcvbuf: Option<usize>, patience: Duration) -> io::Result<TcpStream> {
    if rcvbuf.is_none() {
        return TcpStream::connect_timeout(&to, patience);
    }
    let anywhere = SocketAddr::new(if to.is_ipv4() { [0; 4].into() } else { [0u16; 8].into() }, 0);
    let socket = stream::begin_connect_with(anywhere, to, rcvbuf)?;
    if !stream::wait_writable(&socket, patience) {
        return Err(io::ErrorKind::TimedOut.into());
    }
    stream::connected(&socket)?;
    let socket = TcpStream::from(socket);
    socket.set_nonblocking(false)?;
    Ok(socket)
}
