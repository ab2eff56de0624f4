//! One transfer: arranging its data connection, moving its bytes, and deciding when it is over.
//!
//! A transfer counts when its data connection has ended **and** the server has sent 226 **and** every expected byte has
//! arrived. A data socket is watched only when it would block: a small file has usually come by the time its replies
//! are read, and is then taken without a further event.
//!
//! An *endless* transfer is cut off when the time is over, and the server's reply to that does not matter. One that is
//! *held back* waits between the two until all users are there.

mod moving;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use millrace_ftp::client::{ClientEvent, ClientSession, Plan, Received};
use millrace_net::tls::Channel;
use millrace_net::{listener, stream};

use self::moving::Flow;
use super::throttle::Throttle;
use crate::driver::files::Files;
use crate::driver::gap::Gap;
use crate::driver::worker::{Interest, Role, Socket, WorkerContext};
use crate::fault::Fault;
use crate::payload::{Checker, FileId, Flaw};
use crate::plan::Job;
use crate::plan::{Download, Mode, Op};
use crate::tally::UserTally;

/// Active mode listens on explicit ports, in turn, below Linux's ephemeral range: binding to port 0 becomes
/// slow once `TIME_WAIT` fills that range, and a server that connects from one fixed port cannot meet a port
/// again soon.
const ACTIVE_PORTS: std::ops::Range<u16> = 10_000..30_000;
static NEXT_ACTIVE_PORT: AtomicU32 = AtomicU32::new(0);

/// A transfer that has begun and not ended.
pub(super) struct Transfer {
    user: u32,
    /// Data connections leave from where the control connection does: servers check it.
    local: SocketAddr,
    op: Op,
    stage: Stage,
    path: String,
    data: Option<Socket>,
    /// Its encryption, and whether the handshake is complete.
    channel: Option<Box<Channel>>,
    is_secured: bool,
    /// A complete encrypted upload: closing it with unread TLS 1.3 tickets would reset the connection.
    lingering: Option<Socket>,
    listener: Option<Socket>,
    is_watched: bool,
    /// The data connection has ended.
    ended: bool,
    /// The error that ended it; the server's reply decides.
    broken: Option<io::Error>,
    moved: u64,
    /// The expected number of bytes, where that is known.
    size: Option<u64>,
    /// The content of an upload that is verified later.
    content: Option<FileId>,
    serial: u32,
    checker: Option<Checker>,
    flaw: Option<Flaw>,
    commanded: Instant,
    throttle: Option<Throttle>,
    gap: Gap,
    /// When an endless transfer is cut off.
    cut_at: Option<Instant>,
    first_byte: Option<Instant>,
    last_byte: Option<Instant>,
    /// When the last byte came, if that was after the 226.
    late_byte: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    /// `PASV`, `EPSV`, `PORT` or `EPRT` was sent.
    Arranging,
    /// The data connection is arranged, and the command is held back.
    Held,
    /// The transfer command was sent.
    Commanded,
    /// 150 has come.
    Opened,
    /// It was cut off; any last reply will do.
    Cut,
    /// 226 has come, at this moment.
    Confirmed(Instant),
}

/// What the caller does next.
pub(super) enum Next {
    Wait,
    Complete { moved: u64 },
    Fail(Fault, String),
}

impl Transfer {
    /// Sends the command that arranges a data connection.
    pub(super) fn begin(
        user: u32,
        job: Option<Job>,
        counts: &mut UserTally,
        local: SocketAddr,
        session: &mut ClientSession,
        context: &mut WorkerContext<'_>,
    ) -> io::Result<Self> {
        let mut transfer = Self::named(user, job, local, counts, context);
        let plan = match context.cell.mode.unwrap_or(Mode::Pasv) {
            // PASV can name an IPv4 port only.
            Mode::Pasv if context.server.is_ipv4() => Plan::Passive,
            Mode::Pasv => Plan::ExtendedPassive,
            Mode::Epsv => Plan::ExtendedPassive,
            Mode::Port => Plan::Active(transfer.listen(local, context)?),
            Mode::Eprt => Plan::ExtendedActive(transfer.listen(local, context)?),
        };
        session.plan(plan, &mut context.out);
        Ok(transfer)
    }

    /// The same over TLS.
    pub(super) fn encrypted(self, channel: Box<Channel>) -> Self {
        Self { channel: Some(channel), ..self }
    }

    /// `job` comes from a log; without one the cell decides.
    fn named(
        user: u32,
        job: Option<Job>,
        local: SocketAddr,
        counts: &mut UserTally,
        context: &WorkerContext<'_>,
    ) -> Self {
        let cell = context.cell;
        let (op, size) = job.map_or((cell.op, cell.size), |job| (job.op, Some(job.bytes)));
        let mut transfer = Self {
            user,
            local,
            op,
            stage: Stage::Arranging,
            path: String::new(),
            data: None,
            channel: None,
            is_secured: false,
            lingering: None,
            listener: None,
            is_watched: false,
            ended: false,
            broken: None,
            moved: 0,
            size,
            content: None,
            serial: 0,
            checker: None,
            flaw: None,
            commanded: context.until,
            throttle: None,
            gap: Gap::default(),
            cut_at: cell.settings.endless.then_some(context.until),
            first_byte: None,
            last_byte: None,
            late_byte: None,
        };
        transfer.choose_file(job, counts, context);
        if op == Op::Retr {
            transfer.throttle = Throttle::of(&cell.settings, context.until);
        }
        transfer
    }

    /// Chooses the file of the next transfer, and its content.
    fn choose_file(&mut self, job: Option<Job>, counts: &mut UserTally, context: &WorkerContext<'_>) {
        let (cell, files) = (context.cell, context.files);
        match (self.op, job) {
            (Op::Retr, Some(Job { bytes, .. })) => {
                self.path = files.sized(bytes);
                let checker = || context.payload.checker(Files::download_id(0), bytes);
                self.checker = cell.settings.verify.then(checker);
            }
            (Op::Retr, None)
                if cell.settings.file.is_some() || cell.settings.download == Download::Uploaded =>
            {
                self.path = files.download(counts.number);
                self.size = None; // it may be any file
            }
            (Op::Retr, None) => {
                let number = cell.file_of(counts.number, counts.downloads);
                counts.downloads += 1;
                self.path = files.download(number);
                if cell.settings.verify {
                    let checker = context.payload.checker(Files::download_id(number), cell.size.unwrap_or(0));
                    self.checker = Some(checker);
                }
            }
            (Op::Stor, _) => {
                self.serial = counts.uploads;
                self.path = files.upload(counts.number, self.serial);
                self.content = cell.settings.verify.then(|| files.upload_id(counts.number, self.serial));
                counts.uploads += 1;
                counts.confirmed = None;
            }
            _ => self.path = files.directory(counts.number),
        }
    }

    /// Listens for the server's connection, where the control connection comes from.
    fn listen(&mut self, local: SocketAddr, context: &mut WorkerContext<'_>) -> io::Result<SocketAddr> {
        let mut tries = ACTIVE_PORTS.len();
        loop {
            let drawn = NEXT_ACTIVE_PORT.fetch_add(1, Ordering::Relaxed) % ACTIVE_PORTS.len() as u32;
            let address = SocketAddr::new(local.ip(), ACTIVE_PORTS.start + drawn as u16);
            tries -= 1;
            match listener::bind_data(address) {
                Ok(descriptor) => {
                    let socket = context.own(descriptor);
                    if let Some(size) = self.receive_buffer(context) {
                        stream::limit_receive_buffer(&socket, size)?;
                    }
                    context.watch(&socket, self.user, Role::Listener, Interest::Read)?;
                    self.listener = Some(socket);
                    return Ok(address);
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries > 0 => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the receive buffer of its data connection, where it is not the system's own.
    fn receive_buffer(&self, context: &WorkerContext<'_>) -> Option<usize> {
        context.buffers.for_download(self.size.filter(|_| self.op == Op::Retr))
    }

    /// Accepts the server's connection.
    pub(super) fn accept(&mut self, context: &WorkerContext<'_>) {
        if let Some(Ok((data, _))) = self.listener.as_ref().map(listener::accept) {
            self.data = Some(context.own(data));
            self.listener = None;
        }
    }

    pub(super) fn on_reply(
        &mut self,
        event: ClientEvent<'_>,
        session: &mut ClientSession,
        context: &mut WorkerContext<'_>,
    ) -> Next {
        match (self.stage, event) {
            (Stage::Arranging, ClientEvent::Listening(address)) => {
                match stream::begin_connect_with(self.local, address, self.receive_buffer(context)) {
                    Ok(data) => self.data = Some(context.own(data)),
                    Err(error) => return Next::Fail(Fault::Client, format!("data connection: {error}")),
                }
                self.command_or_hold(session, context)
            }
            (Stage::Arranging, ClientEvent::Done(_)) => self.command_or_hold(session, context),
            (Stage::Arranging, ClientEvent::Refused(reply)) => {
                Next::Fail(Fault::DataConnection, words(reply))
            }
            (Stage::Commanded, ClientEvent::Opening(announced)) => {
                self.stage = Stage::Opened;
                if self.op == Op::Retr && self.size.is_none() {
                    self.size = announced;
                }
                Next::Wait
            }
            (Stage::Commanded | Stage::Opened, ClientEvent::Done(_)) => {
                self.stage = Stage::Confirmed(Instant::now());
                self.check_over(context)
            }
            (Stage::Cut, ClientEvent::Done(_) | ClientEvent::Refused(_)) => {
                Next::Complete { moved: self.moved }
            }
            (_, ClientEvent::Refused(reply)) => Next::Fail(Fault::of_reply(reply.code), words(reply)),
            _ => Next::Wait,
        }
    }

    fn command_or_hold(&mut self, session: &mut ClientSession, context: &mut WorkerContext<'_>) -> Next {
        if !context.holds_back {
            return self.command(session, context);
        }
        self.stage = Stage::Held;
        context.held_back += 1;
        Next::Wait
    }

    /// Sends the command, if it was held back.
    pub(super) fn release(&mut self, session: &mut ClientSession, context: &mut WorkerContext<'_>) {
        if matches!(self.stage, Stage::Held) {
            self.command(session, context);
        }
    }

    fn command(&mut self, session: &mut ClientSession, context: &mut WorkerContext<'_>) -> Next {
        let verb: &[u8] = match self.op {
            Op::Retr => b"RETR",
            Op::Stor => b"STOR",
            Op::Nlst => b"NLST",
            Op::Mlsd => b"MLSD",
            _ => b"LIST",
        };
        session.transfer(verb, self.path.as_bytes(), &mut context.out);
        self.stage = Stage::Commanded;
        self.commanded = Instant::now();
        if let Some(throttle) = &mut self.throttle {
            throttle.note_command(self.commanded);
        }
        Next::Wait
    }

    /// Returns true if bytes may move although no event says so.
    pub(super) fn is_worth_a_look(&self) -> bool {
        !self.is_watched && self.data.is_some() && matches!(self.stage, Stage::Opened | Stage::Confirmed(_))
    }

    /// Moves what can be moved. `hung_up`: the server's end of the stream has come.
    pub(super) fn move_bytes(&mut self, hung_up: bool, context: &mut WorkerContext<'_>) -> Next {
        let Some(data) = self.data.take() else { return Next::Wait };
        if self.channel.is_some() && !self.is_secured {
            match self.secure(&data, context) {
                Ok(true) => {}
                Ok(false) => {
                    self.data = Some(data);
                    return Next::Wait;
                }
                // The server's reply decides.
                Err(_) if matches!(self.stage, Stage::Cut | Stage::Confirmed(_)) => {}
                Err(error) => return Next::Fail(Fault::Tls, format!("data connection: {error}")),
            }
        }
        let result = match self.op {
            Op::Stor if !matches!(self.stage, Stage::Opened) => Ok(Flow::Rests),
            Op::Stor => self.send(&data, context),
            _ => self.receive(&data, hung_up, context),
        };
        match result {
            Ok(Flow::Ended) => {
                self.ended = true;
                if self.channel.is_some() {
                    self.part(data, context);
                    return self.check_over(context);
                }
            }
            Ok(Flow::Rests) => {
                self.data = Some(data);
                return self.judge_speed(false);
            }
            Ok(Flow::Cut) => {
                self.stage = Stage::Cut;
                return Next::Wait;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let watched = self.watch(&data, context);
                self.data = Some(data);
                return match watched {
                    Ok(()) => self.judge_speed(false),
                    Err(error) => Next::Fail(Fault::Client, format!("watching the data connection: {error}")),
                };
            }
            Err(error) => {
                self.broken = Some(error);
                self.ended = true;
            }
        }
        drop(data);
        self.check_over(context)
    }

    fn judge_speed(&self, is_over: bool) -> Next {
        let slow = self.throttle.and_then(|throttle| throttle.too_slow(self.moved, is_over, Instant::now()));
        match slow {
            Some(speed) => {
                let text = format!("{} at {speed:.0} B/s after {} bytes", self.path, self.moved);
                Next::Fail(Fault::TooSlow, text)
            }
            None => Next::Wait,
        }
    }

    /// Checks whether it has ended, and how.
    fn check_over(&mut self, context: &mut WorkerContext<'_>) -> Next {
        let Stage::Confirmed(confirmed) = self.stage else { return Next::Wait };
        if let (Some(data), Some(channel)) = (self.lingering.take(), &mut self.channel) {
            // With TLS 1.3 a ticket resumes one connection: those of this one are for the next.
            let _ = channel.read(&data, &mut context.buffer, &mut |_| {});
        }
        if !self.ended && self.op != Op::Stor {
            return Next::Wait;
        }
        if let Some(error) = &self.broken {
            let text = format!("{} bytes moved, then {error}, and yet 2xx", self.moved);
            return Next::Fail(Fault::DataLost, text);
        }
        if let Some(flaw) = self.find_flaw() {
            let words = flaw.words(|id| context.files.name(id));
            return Next::Fail(flaw.into(), format!("{} is {words}", self.path));
        }
        if let slow @ Next::Fail(..) = self.judge_speed(true) {
            return slow;
        }
        if self.op == Op::Retr {
            context.tally.lead.record(self.late_byte.map_or_else(Default::default, |at| at - confirmed));
        }
        if let (Some(first), Some(last)) = (self.first_byte, self.last_byte) {
            context.tally.flow.record(last - first);
        }
        Next::Complete { moved: self.moved }
    }

    /// Its longest pause until now, when it is over; none where this client caused it.
    pub(super) fn gap(&self, now: Instant) -> Gap {
        match (&self.throttle, self.ended) {
            (Some(_), _) => Gap::default(),
            (None, true) => self.gap,
            (None, false) => self.gap.given_up(now),
        }
    }

    /// How many bytes it has moved so far.
    pub(super) fn moved(&self) -> u64 {
        self.moved
    }

    fn find_flaw(&self) -> Option<Flaw> {
        let counted = match self.size {
            _ if self.cut_at.is_some() => None,
            Some(size) if self.moved < size => Some(Flaw::Truncated { got: self.moved, size }),
            Some(size) if self.moved > size => Some(Flaw::TooLong { size }),
            _ => None,
        };
        self.flaw.or(counted)
    }

    /// The serial number of an upload.
    pub(super) fn upload(&self) -> Option<u32> {
        (self.op == Op::Stor).then_some(self.serial)
    }
}

/// Describes the transfer in messages about timeouts.
impl fmt::Display for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reached = match self.stage {
            Stage::Arranging => "before its data connection was arranged",
            Stage::Held => "while it was held back",
            Stage::Commanded => "before its 150",
            Stage::Opened => "after its 150",
            Stage::Cut => "after it was cut off",
            Stage::Confirmed(_) => "after its 226",
        };
        write!(f, "{} {} ({reached}, {} bytes moved)", self.op, self.path, self.moved)
    }
}

/// A reply in an error.
pub(super) fn words(reply: Received<'_>) -> String {
    format!("{} {}", reply.code, String::from_utf8_lossy(reply.text()))
}
