//! One transfer: arranging its data connection, moving its bytes, and deciding when it is over.
//!
//! A transfer counts when its data connection has ended **and** the server has said 226 **and** every byte that
//! was to come has come. A data socket is put into the epoll set only when it would block: a small file has
//! usually come by the time its replies are read, and is then taken without a further event.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use millrace_ftp::client::{ClientSession, Event, Plan, Received};
use millrace_net::{copy, listener, stream};
use rustix::net::{RecvFlags, recv};

use super::files::Files;
use super::worker::{Desk, Role, UPLOAD_BLOCK};
use crate::fault::Fault;
use crate::payload::{Checker, FileId, Flaw};
use crate::plan::{Mode, Op};
use crate::tally::UserTally;

/// Active mode listens on explicit ports, in turn, below Linux's ephemeral range: binding to port 0 becomes
/// slow once `TIME_WAIT` fills that range, and a server that connects from one fixed port cannot meet a port
/// again soon.
const ACTIVE_PORTS: std::ops::Range<u16> = 10_000..30_000;
static NEXT_ACTIVE_PORT: AtomicU32 = AtomicU32::new(0);

/// Below this an unverified upload is sent from memory, above it by `sendfile`.
const SMALL_UPLOAD: u64 = 64 * 1024;

/// How often one transfer's socket is emptied before others have their turn.
const ROUNDS: usize = 8;

/// A transfer that has begun and not ended.
pub(super) struct Transfer {
    user: u32,
    /// Data connections leave from where the control connection does: servers check it.
    local: SocketAddr,
    op: Op,
    stage: Stage,
    path: String,
    data: Option<OwnedFd>,
    listener: Option<OwnedFd>,
    is_watched: bool,
    /// The data connection has ended.
    ended: bool,
    /// By this rather than by its end; what the server says of it decides.
    broken: Option<io::Error>,
    moved: u64,
    /// How many bytes there should be, where that is known.
    size: Option<u64>,
    /// The content of an upload that is verified later.
    content: Option<FileId>,
    serial: u32,
    checker: Option<Checker>,
    flaw: Option<Flaw>,
    commanded: Instant,
    /// When the last byte came, if that was after the 226.
    late_byte: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    /// `PASV`, `EPSV`, `PORT` or `EPRT` was sent.
    Arranging,
    /// The transfer command was sent.
    Commanded,
    /// 150 has come.
    Opened,
    /// 226 has come, at this moment.
    Confirmed(Instant),
}

/// How it goes on.
pub(super) enum Next {
    Wait,
    Complete { moved: u64 },
    Fail(Fault, String),
}

impl Transfer {
    /// Says what arranges a data connection.
    pub(super) fn begin(
        user: u32,
        counts: &mut UserTally,
        local: SocketAddr,
        session: &mut ClientSession,
        desk: &mut Desk<'_>,
    ) -> io::Result<Self> {
        let mut transfer = Self::named(user, local, counts, desk);
        let plan = match desk.cell.mode.unwrap_or(Mode::Pasv) {
            Mode::Pasv => Plan::Passive,
            Mode::Epsv => Plan::ExtendedPassive,
            Mode::Port => Plan::Active(transfer.listen(local, desk)?),
            Mode::Eprt => Plan::ExtendedActive(transfer.listen(local, desk)?),
        };
        session.plan(plan, &mut desk.out);
        Ok(transfer)
    }

    fn named(user: u32, local: SocketAddr, counts: &mut UserTally, desk: &Desk<'_>) -> Self {
        let (cell, files) = (desk.cell, desk.files);
        let mut transfer = Self {
            user,
            local,
            op: cell.op,
            stage: Stage::Arranging,
            path: String::new(),
            data: None,
            listener: None,
            is_watched: false,
            ended: false,
            broken: None,
            moved: 0,
            size: cell.size,
            content: None,
            serial: 0,
            checker: None,
            flaw: None,
            commanded: desk.until,
            late_byte: None,
        };
        match cell.op {
            Op::Retr if cell.settings.file.is_some() => {
                transfer.path = files.download(counts.number);
                transfer.size = None; // it may be any file
            }
            Op::Retr => {
                let number = counts.number % cell.files();
                transfer.path = files.download(number);
                if cell.settings.verify {
                    let checker = desk.payload.checker(Files::download_id(number), cell.size.unwrap_or(0));
                    transfer.checker = Some(checker);
                }
            }
            Op::Stor => {
                transfer.serial = counts.uploads;
                transfer.path = files.upload(counts.number, transfer.serial);
                transfer.content =
                    cell.settings.verify.then(|| Files::upload_id(counts.number, transfer.serial));
                counts.uploads += 1;
                counts.confirmed = None;
            }
            _ => transfer.path = files.directory(counts.number),
        }
        transfer
    }

    /// Listens for the server's connection, where the control connection comes from.
    fn listen(&mut self, local: SocketAddr, desk: &Desk<'_>) -> io::Result<SocketAddr> {
        let mut tries = ACTIVE_PORTS.len();
        loop {
            let drawn = NEXT_ACTIVE_PORT.fetch_add(1, Ordering::Relaxed) % ACTIVE_PORTS.len() as u32;
            let address = SocketAddr::new(local.ip(), ACTIVE_PORTS.start + drawn as u16);
            tries -= 1;
            match listener::bind_data(address) {
                Ok(socket) => {
                    desk.watch(&socket, self.user, Role::Listener)?;
                    self.listener = Some(socket);
                    return Ok(address);
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries > 0 => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The server connects.
    pub(super) fn accept(&mut self) {
        if let Some(Ok((data, _))) = self.listener.as_ref().map(listener::accept) {
            self.data = Some(data);
            self.listener = None;
        }
    }

    pub(super) fn on_reply(
        &mut self,
        event: Event<'_>,
        session: &mut ClientSession,
        desk: &mut Desk<'_>,
    ) -> Next {
        match (self.stage, event) {
            (Stage::Arranging, Event::Listening(address)) => {
                match stream::begin_connect(self.local, address) {
                    Ok(data) => self.data = Some(data),
                    Err(error) => return Next::Fail(Fault::Client, format!("data connection: {error}")),
                }
                self.command(session, desk)
            }
            (Stage::Arranging, Event::Done(_)) => self.command(session, desk),
            (Stage::Arranging, Event::Refused(reply)) => Next::Fail(Fault::DataConnection, words(reply)),
            (Stage::Commanded, Event::Opening(announced)) => {
                self.stage = Stage::Opened;
                if self.op == Op::Retr && self.size.is_none() {
                    self.size = announced;
                }
                Next::Wait
            }
            (Stage::Commanded | Stage::Opened, Event::Done(_)) => {
                self.stage = Stage::Confirmed(Instant::now());
                self.check_over(desk)
            }
            (_, Event::Refused(reply)) => Next::Fail(Fault::of_reply(reply.code), words(reply)),
            _ => Next::Wait,
        }
    }

    fn command(&mut self, session: &mut ClientSession, desk: &mut Desk<'_>) -> Next {
        let verb: &[u8] = match self.op {
            Op::Retr => b"RETR",
            Op::Stor => b"STOR",
            Op::Nlst => b"NLST",
            Op::Mlsd => b"MLSD",
            _ => b"LIST",
        };
        session.transfer(verb, self.path.as_bytes(), &mut desk.out);
        self.stage = Stage::Commanded;
        self.commanded = Instant::now();
        Next::Wait
    }

    /// Claims that bytes may move although no event says so.
    pub(super) fn is_worth_a_look(&self) -> bool {
        !self.is_watched && self.data.is_some() && matches!(self.stage, Stage::Opened | Stage::Confirmed(_))
    }

    /// Moves what can be moved. `hung_up`: the server's end of the stream has come.
    pub(super) fn move_bytes(&mut self, hung_up: bool, desk: &mut Desk<'_>) -> Next {
        let Some(data) = self.data.take() else { return Next::Wait };
        let result = match self.op {
            Op::Stor if !matches!(self.stage, Stage::Opened) => Ok(false),
            Op::Stor => self.send(&data, desk),
            _ => self.receive(&data, hung_up, desk),
        };
        match result {
            Ok(true) => self.ended = true,
            Ok(false) => {
                self.data = Some(data);
                return Next::Wait;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if !self.is_watched {
                    self.is_watched = true;
                    if let Err(error) = desk.watch(&data, self.user, Role::Data) {
                        return Next::Fail(Fault::Client, format!("epoll: {error}"));
                    }
                }
                self.data = Some(data);
                return Next::Wait;
            }
            Err(error) => {
                self.broken = Some(error);
                self.ended = true;
            }
        }
        drop(data);
        self.check_over(desk)
    }

    /// Takes what has come; true at the end of it.
    fn receive(&mut self, data: &OwnedFd, hung_up: bool, desk: &mut Desk<'_>) -> io::Result<bool> {
        for _ in 0..ROUNDS {
            let (count, room) = match &mut self.checker {
                Some(checker) if self.flaw.is_none() => {
                    let count = stream::read(data, &mut desk.buffer)?;
                    self.flaw = checker.check(&desk.buffer[..count]).err();
                    (count, desk.buffer.len())
                }
                _ => (recv(data, &mut desk.discard[..], RecvFlags::TRUNC)?.1, desk.discard.len()),
            };
            if count > 0 {
                self.count_received(count, desk);
            }
            // With the end already here, a short read has taken everything: no second call to learn of it.
            if count == 0 || (hung_up && count < room) {
                return Ok(true);
            }
        }
        if self.is_watched { Ok(false) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    fn count_received(&mut self, count: usize, desk: &mut Desk<'_>) {
        if self.moved == 0 {
            desk.tally.first_byte.record(self.commanded.elapsed());
        }
        if matches!(self.stage, Stage::Confirmed(_)) {
            self.late_byte = Some(Instant::now());
        }
        self.moved += count as u64;
    }

    /// Sends what the socket takes; true when all is sent.
    fn send(&mut self, data: &OwnedFd, desk: &mut Desk<'_>) -> io::Result<bool> {
        let size = self.size.unwrap_or(0);
        while self.moved < size {
            let left = size - self.moved;
            let sent = if let Some(content) = self.content {
                let count = left.min(desk.buffer.len() as u64) as usize;
                desk.payload.fill(content, self.moved, &mut desk.buffer[..count]);
                stream::write(data, &desk.buffer[..count])?
            } else if size <= SMALL_UPLOAD {
                stream::write(data, &desk.block[self.moved as usize..size as usize])?
            } else {
                let offset = self.moved % UPLOAD_BLOCK as u64;
                copy::send_file(
                    data,
                    &desk.block_file,
                    offset,
                    left.min(UPLOAD_BLOCK as u64 - offset) as usize,
                )?
            };
            self.moved += sent as u64;
        }
        Ok(true)
    }

    /// Whether it has ended, and how.
    fn check_over(&mut self, desk: &mut Desk<'_>) -> Next {
        let Stage::Confirmed(confirmed) = self.stage else { return Next::Wait };
        if !self.ended && self.op != Op::Stor {
            return Next::Wait;
        }
        if let Some(error) = &self.broken {
            let text = format!("{} bytes moved, then {error}, and yet 2xx", self.moved);
            return Next::Fail(Fault::DataLost, text);
        }
        if let Some(flaw) = self.find_flaw() {
            return Next::Fail(flaw.into(), format!("{} is {flaw}", self.path));
        }
        if self.op == Op::Retr {
            desk.tally.lead.record(self.late_byte.map_or_else(Default::default, |at| at - confirmed));
        }
        Next::Complete { moved: self.moved }
    }

    fn find_flaw(&self) -> Option<Flaw> {
        let counted = match self.size {
            Some(size) if self.moved < size => Some(Flaw::Truncated { got: self.moved, size }),
            Some(size) if self.moved > size => Some(Flaw::TooLong { size }),
            _ => None,
        };
        self.flaw.or(counted)
    }

    /// The serial number of an upload.
    pub(super) fn serial(&self) -> u32 {
        self.serial
    }
}

/// For the words of a timeout.
impl fmt::Display for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reached = match self.stage {
            Stage::Arranging => "before its data connection was arranged",
            Stage::Commanded => "before its 150",
            Stage::Opened => "after its 150",
            Stage::Confirmed(_) => "after its 226",
        };
        write!(f, "{} {} ({reached}, {} bytes moved)", self.op, self.path, self.moved)
    }
}

/// A reply in an error.
pub(super) fn words(reply: Received<'_>) -> String {
    format!("{} {}", reply.code, String::from_utf8_lossy(reply.text()))
}
