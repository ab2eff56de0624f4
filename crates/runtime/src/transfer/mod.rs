//! Transfers: the bytes of both directions, between files and data connections.
//!
//! ```text
//!   Accepting --+-> Securing             +-> Yield  (its share of the turn is used up)
//!               +-> Open --turn()--------+-> Wait   (the socket is full, or empty)
//!   Connecting -+    ^                   +-> Job    (the blocking pool has it)
//!                    |                   +-> Commit (all of an upload has come) -> Job, or Done
//!                    |                   +-> Done
//!                    +---- readiness, or the job's end
//! ```
//!
//! A turn moves bytes until the socket or the file would wait, or until its share is used up. Nothing here
//! waits: what the page cache cannot answer, and writes that stage, go to the blocking pool with everything
//! that they need, and come back. [`send`] and [`receive`] have the two directions; this is the only
//! place that knows whether bytes move by `sendfile`, `splice` or through a buffer.

mod background_drain;
mod lingering_close;
mod receive;
mod send;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millrace_ftp::session::{Content, Progress, Protection, Transfer, TransferError, Via};
use millrace_net::stream;
use millrace_net::tls::{Channel, Heard};
use millrace_vfs::{Conversion, VirtualPath};

pub use background_drain::BackgroundDrain;
pub use lingering_close::LingeringClose;
pub use receive::Receiver;
pub use send::{FILL, SMALL, Sender};

use millrace_limits::{self as limits, Errand, Flow, LimitHandle, Pace, Tree};
use millrace_log::Direction;
use millrace_metrics::{Cause, Waited, Waits};

use crate::clock::Clock;
use crate::report::network_share;

/// Bytes that one turn of one transfer may move before others have theirs: some 0.3 ms.
pub const TURN: usize = 1 << 20;

/// How much may be moved at once, and how much was. That may be more, because encrypted data is read in whole records.
#[derive(Debug)]
pub struct Share {
    most: u64,
    moved: u64,
}

impl Share {
    /// A share of which nothing is used up.
    pub fn new(most: u64) -> Self {
        Self { most, moved: 0 }
    }

    /// How much may still be moved.
    pub fn left(&self) -> usize {
        usize::try_from(self.most.saturating_sub(self.moved)).unwrap_or(usize::MAX)
    }

    /// Returns whether nothing more may be moved.
    pub fn is_used_up(&self) -> bool {
        self.moved >= self.most
    }

    /// Notes that this many bytes were moved.
    pub fn take(&mut self, bytes: usize) {
        self.moved += bytes as u64;
    }

    /// All that was moved, allowed or not.
    pub fn moved(&self) -> u64 {
        self.moved
    }
}

/// A transfer that is under way.
#[derive(Debug)]
pub struct Running {
    /// The source or target of the data.
    pub work: Work,
    /// The data connection.
    pub link: Link,
    /// Where the bytes go.
    pub via: Via,
    /// Whether they are encrypted.
    pub protection: Protection,
    /// The file or directory, as clients see it.
    pub path: VirtualPath,
    /// The direction, for the log.
    pub direction: Direction,
    /// Whether line ends are converted (TYPE A).
    pub ascii: bool,
    /// What is done to the stored bytes on their way.
    pub conversion: Conversion,
    /// When the command came.
    pub started: Instant,
    /// When a byte last moved, or the connection came about: what the stall timeout counts from.
    pub moved: Instant,
    /// When the first byte moved.
    pub first: Option<Instant>,
    /// The client's progress since.
    pub taken: Taken,
    /// What it has waited for.
    pub waits: Waits,
    /// Bytes of the file, where that is known.
    pub total: Option<u64>,
    /// The state shared with the job on the pool.
    pub shared: Arc<Shared>,
    /// Distinguishes this transfer's job from that of one before it.
    pub serial: u64,
    /// The state of the peer's end, if a job has seen it.
    pub end: End,
    /// Its limits, and until when they delay it.
    pub pace: Pace,
    /// Set when the transfer is to end while a job has it: why, and when to stop waiting for the job.
    pub ending: Option<(TransferError, Instant)>,
    /// The commands that the client sent before the end of an upload were processed.
    pub is_heard_out: bool,
}

/// The state shared by a transfer and its job on the pool.
#[derive(Debug, Default)]
pub struct Shared {
    /// File bytes moved.
    pub bytes: AtomicU64,
    /// Asks the job to stop at its next step.
    pub cancelled: AtomicBool,
}

impl Shared {
    /// Counts file bytes that were moved.
    pub fn add(&self, count: u64) {
        self.bytes.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the file bytes that were moved.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns whether the job is to stop.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

/// Tells a slow client from an idle one after the last byte was written: the kernel may still hold megabytes, and a client
/// that takes some kilobytes of them a second is slow.
#[derive(Debug, Default, Clone, Copy)]
pub struct Taken(Option<u64>);

impl Taken {
    /// When to look next, where the last byte moved then: half-way first, for something to compare with.
    pub fn due(self, moved: Instant, stall_timeout: Duration) -> Instant {
        moved + if self.0.is_none() { stall_timeout / 2 } else { stall_timeout }
    }

    /// Looks at what it has taken in all. `true` at first, and where that is more since: then it counts from now.
    pub fn look(&mut self, acknowledged: io::Result<u64>, moved: &mut Instant, now: Instant) -> bool {
        let Ok(acknowledged) = acknowledged else { return false };
        match self.0.replace(acknowledged) {
            None => true,
            Some(before) if acknowledged > before => {
                *moved = now;
                true
            }
            Some(_) => false,
        }
    }
}

/// The source or target of the data.
#[derive(Debug)]
pub enum Work {
    /// A download.
    Send(Sender),
    /// An upload.
    Receive(Receiver),
    /// A job has it.
    OnPool,
}

/// The data connection.
#[derive(Debug)]
pub enum Link {
    /// The client is to connect. The descriptor is a second one of the listener's, known to the reactor.
    Accepting(Option<OwnedFd>),
    /// We are connecting.
    Connecting(Socket),
    /// TLS begins.
    Securing(Socket),
    /// Bytes can move.
    Open(Socket),
    /// All have moved, and the client, which has sent some of its own, is to end first.
    LingeringClose(Box<LingeringClose>),
    /// The control connection takes the bytes.
    Control,
    /// A job has the socket.
    OnPool,
}

/// A data socket, and whether the reactor knows it.
#[derive(Debug)]
pub struct Socket {
    /// The descriptor.
    pub fd: OwnedFd,
    /// Whether the reactor knows it.
    pub registered: bool,
    /// The state of the end of the peer's data.
    pub end: End,
    /// The rate that the kernel was set to.
    flow: Flow,
    /// `None`: bytes go as they are.
    pub tls: Option<Box<Channel>>,
}

/// The state of the end of the peer's data, before everything is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// Nothing: the next bytes, or the end, are an event.
    NotYet,
    /// It will send no more: a short read is the last one.
    Orderly,
    /// The connection was reset. Earlier data can still be read, and the read after it returns the error: it must be
    /// attempted, because there is no further event.
    Broken,
}

impl Socket {
    /// A socket that is not encrypted, and that the reactor does not know.
    pub fn new(fd: OwnedFd) -> Self {
        Self { fd, registered: false, end: End::NotYet, flow: Flow::FREE, tls: None }
    }

    /// All of a download is sent, which may not all have left us: the socket is closed when its client has ended, too.
    pub fn leave(self, drain: &mut BackgroundDrain, now: Instant) {
        drain.add(self.fd, now);
    }

    /// Paces the following output.
    pub fn keep_to(&mut self, flow: Flow) {
        if self.flow != flow {
            self.flow = flow;
            // Where the kernel cannot, bytes leave in bursts, and no faster in the end.
            let _ = stream::pace(&self.fd, flow.rate());
        }
    }

    /// Sends what the socket takes, or under TLS what can be encrypted in one go.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => stream::write(&self.fd, bytes),
            Some(channel) => channel.write(&self.fd, bytes),
        }
    }

    /// As `write`; if `follows`, the last bytes may wait to share a packet with what comes next.
    pub fn write_or_wait(&mut self, bytes: &[u8], follows: bool) -> io::Result<usize> {
        match (&mut self.tls, follows) {
            (None, true) => stream::write_more(&self.fd, bytes),
            (Some(channel), true) => channel.write_more(&self.fd, bytes),
            (_, false) => self.write(bytes),
        }
    }

    /// Reads through TLS, about as much as is `wanted`, and gives what it came to to `take`.
    fn receive(
        &mut self,
        buffer: &mut [u8],
        wanted: usize,
        take: &mut dyn FnMut(&[u8]),
    ) -> io::Result<Heard> {
        match &mut self.tls {
            None => Err(io::ErrorKind::Unsupported.into()),
            Some(channel) => channel.read_some(&self.fd, buffer, wanted, take),
        }
    }

    /// Announces the end, where the mode can; returns true once the kernel has it.
    fn finish(&mut self) -> Turn {
        let Some(channel) = &mut self.tls else { return Turn::Done(Ok(())) };
        match channel.close(&self.fd) {
            Ok(()) => Turn::Done(Ok(())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Turn::Wait,
            Err(error) => Turn::Done(Err(TransferError::Broken(error))),
        }
    }

    /// Closes TLS before the socket of an upload: sends close_notify, and reads all input, because unread input makes
    /// the kernel discard unsent data. For a download [`Running::part`] does it.
    pub fn part(&mut self, scratch: &mut [u8]) {
        if let Some(channel) = &mut self.tls {
            let _ = channel.close(&self.fd);
            let _ = stream::end_writing(&self.fd);
            let _ = stream::read(&self.fd, scratch);
        }
    }
}

/// The result of a turn.
#[derive(Debug)]
pub enum Turn {
    /// There is more to do at once, when others have had their turn.
    Yield,
    /// The socket has to become ready.
    Wait,
    /// A limit has to allow more: [`Running::pace`] says when.
    Pause,
    /// This has to be done on the blocking pool.
    Job(JobKind),
    /// Everything of an upload has come: it may be committed.
    Commit,
    /// It is over.
    Done(Result<(), TransferError>),
}

/// The purpose of a job on the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    /// Make more bytes to send, or bring a file's next pages into the cache.
    Fill,
    /// Write what was received; then, where that is possible, go on with `splice`.
    Sink,
    /// Abandon an upload in place, before its client gets the reply.
    Leave,
}

/// The result of a job.
#[derive(Debug)]
pub struct JobDone {
    /// The number of the transfer.
    pub serial: u64,
    /// The source or target of the data.
    pub work: Work,
    /// The data connection, where the job had it.
    pub socket: Option<Socket>,
    /// Bytes that the job itself took off the socket.
    pub taken: Errand,
    /// `None`: go on with turns.
    pub result: Option<Result<(), TransferError>>,
}

impl Work {
    /// Returns true if dropping it may wait for a disk.
    pub fn end_may_wait(&self) -> bool {
        match self {
            Self::Send(sender) => sender.end_may_wait(),
            Self::Receive(receiver) => receiver.end_may_wait(),
            Self::OnPool => false,
        }
    }
}

impl Running {
    /// Begins a transfer whose connection is yet to come.
    pub fn new(transfer: Transfer, link: Link, serial: u64, now: Instant, member: &LimitHandle) -> Self {
        let Transfer { content, via, coding, path, skip, offset, announced, protection } = transfer;
        let conversion = match &content {
            Content::Send(handle, _) => handle.conversion(),
            _ => Conversion::default(),
        };
        let (direction, total, work, pace) = match content {
            Content::Send(handle, range) => {
                let sender = Sender::file(handle, range, coding, skip);
                (
                    Direction::Download,
                    sender.left(),
                    Work::Send(sender),
                    Pace::new(limits::Direction::Download),
                )
            }
            Content::List(lister) => {
                let sender = Sender::listing(lister, coding);
                (Direction::Listing, None, Work::Send(sender), Pace::of_listing())
            }
            Content::Receive(upload, most) => {
                let (pace, upload) = Pace::of_upload(member, upload, 0);
                let receiver = Receiver::new(upload, most, coding, offset).expecting(announced);
                (Direction::Upload, None, Work::Receive(receiver), pace)
            }
        };
        let ascii = coding.representation == millrace_ftp::codec::Type::Ascii;
        Self {
            work,
            link,
            via,
            protection,
            path,
            direction,
            ascii,
            conversion,
            started: now,
            moved: now,
            first: None,
            taken: Taken::default(),
            waits: Waits::default(),
            total,
            shared: Arc::default(),
            serial,
            end: End::NotYet,
            pace,
            ending: None,
            is_heard_out: false,
        }
    }

    /// Moves what can be moved and is allowed now. `scratch` is the worker's buffer.
    pub fn turn(&mut self, now: Instant, scratch: &mut [u8], tree: &Tree, member: &LimitHandle) -> Turn {
        if let Work::Receive(receiver) = &self.work
            && receiver.has_ended()
        {
            return if self.pace.over().is_some() { self.held_up() } else { Turn::Commit };
        }
        let wanted = self.wanted();
        let Some(allowed) = self.pace.allowance(tree, member, now, wanted) else { return self.held_up() };
        let mut share = Share::new(allowed.min(TURN as u64));
        let Link::Open(socket) = &mut self.link else { return Turn::Wait };
        let before = self.shared.bytes();
        let turn = match &mut self.work {
            Work::Send(sender) => {
                if let Some(flow) = self.pace.flow() {
                    socket.keep_to(flow);
                }
                sender.turn(socket, &self.shared, scratch, &mut share)
            }
            Work::Receive(receiver) => receiver.turn(socket, &self.shared, scratch, &mut share),
            Work::OnPool => Turn::Wait,
        };
        if self.shared.bytes() != before || share.moved() > 0 || matches!(turn, Turn::Yield) {
            self.moved = now;
            self.taken = Taken::default();
        }
        self.pace.spend(share.moved());
        match turn {
            // The excess may have been the end.
            Turn::Commit if self.pace.over().is_some() => return self.held_up(),
            Turn::Wait => self.pace.fall_out_of_line(),
            // Sleeping at once is cheaper than another turn.
            Turn::Yield if self.pace.is_limited() => {
                let wanted = self.wanted();
                if self.pace.allowance(tree, member, now, wanted).is_none() {
                    return self.held_up();
                }
            }
            Turn::Yield | Turn::Pause | Turn::Job(_) | Turn::Commit | Turn::Done(_) => {}
        }
        turn
    }

    /// Notes that the first byte has moved, once one has. The turn in which it did may have begun before the transfer.
    pub fn note_first_byte(&mut self, clock: &Clock) {
        let is_waited_for = match &self.work {
            Work::Receive(receiver) => self.shared.bytes() + receiver.unwritten() == 0,
            Work::Send(_) | Work::OnPool => self.shared.bytes() == 0,
        };
        if self.first.is_none() && !is_waited_for {
            self.first = Some(clock.instant());
        }
    }

    /// A limit has to allow more, or a quota never will.
    fn held_up(&self) -> Turn {
        match self.pace.over() {
            Some(over) => Turn::Done(Err(TransferError::File(over.clone().into()))),
            None => Turn::Pause,
        }
    }

    /// How many bytes are still to be moved, as far as that is known.
    fn wanted(&self) -> u64 {
        self.total.map_or(u64::MAX, |total| total.saturating_sub(self.shared.bytes()))
    }

    /// Takes out what a job needs.
    pub fn lend(&mut self, kind: JobKind) -> Job {
        let work = std::mem::replace(&mut self.work, Work::OnPool);
        let goes_on = matches!(&work, Work::Receive(receiver) if !receiver.has_ended());
        let socket = match (&self.link, kind) {
            (Link::Open(_), JobKind::Sink) if goes_on => {
                match std::mem::replace(&mut self.link, Link::OnPool) {
                    Link::Open(socket) => Some(socket),
                    _ => None,
                }
            }
            _ => None,
        };
        let grace = match &work {
            Work::Receive(receiver) => receiver.grace(self.shared.bytes(), self.started.elapsed()),
            _ => Duration::ZERO,
        };
        let (serial, most, shared) = (self.serial, self.pace.left(), Arc::clone(&self.shared));
        Job { serial, kind, work, socket, shared, most, taken: self.pace.errand(), grace, control: None }
    }

    /// The socket of a download, by which it can be told what the bytes wait for.
    pub fn sending_socket(&self) -> Option<&OwnedFd> {
        match &self.link {
            Link::Open(socket) if self.direction != Direction::Upload => Some(&socket.fd),
            _ => None,
        }
    }

    /// For how long it has waited for each cause until now.
    pub fn waited(&self, now: Instant) -> Waited {
        let waited = self.waits.waited(now);
        match self.sending_socket() {
            Some(socket) if !waited.of(Cause::Client).is_zero() => waited.with_network(network_share(socket)),
            _ => waited,
        }
    }

    /// Returns true if a job has the work now.
    pub fn is_lent(&self) -> bool {
        matches!(self.work, Work::OnPool)
    }

    /// Takes back what a job had.
    pub fn take_back(&mut self, done: JobDone, now: Instant) -> Option<Result<(), TransferError>> {
        self.work = done.work;
        if let Some(mut socket) = done.socket {
            socket.end = socket.end.max(self.end);
            self.link = Link::Open(socket);
        }
        self.pace.take_back(done.taken);
        self.moved = now;
        done.result
    }

    /// How far it has come.
    pub fn progress(&self, now: Instant) -> Progress {
        let unwritten = match &self.work {
            Work::Receive(receiver) => receiver.unwritten(),
            _ => 0,
        };
        Progress {
            bytes: self.shared.bytes() + unwritten,
            total: self.total,
            elapsed: now.saturating_duration_since(self.started),
            is_checked: false,
        }
    }
}

/// Why a transfer failed, for the log.
pub fn describe(error: &TransferError) -> String {
    match error {
        TransferError::NoConnection(why)
        | TransferError::NotSecured(why)
        | TransferError::Malformed(why)
        | TransferError::Cut(why) => why.clone(),
        TransferError::Broken(error) => format!("data connection broke: {error}"),
        TransferError::Stalled => "stalled".to_owned(),
        TransferError::Aborted => "aborted".to_owned(),
        TransferError::File(error) => error.to_string(),
        TransferError::Refused(reply) => String::from_utf8_lossy(reply.text()).into_owned(),
    }
}

/// A piece of a transfer on its way to the blocking pool.
pub struct Job {
    serial: u64,
    kind: JobKind,
    work: Work,
    socket: Option<Socket>,
    shared: Arc<Shared>,
    /// How much it may read from the socket.
    most: u64,
    taken: Errand,
    /// How long the end of the client is waited for before it commits.
    grace: Duration,
    /// The control connection, where that end can be heard.
    control: Option<OwnedFd>,
}

impl Job {
    /// A socket that goes along and that the reactor knows. It must forget it first: on a fast upload each
    /// arrival would wake a worker that has nothing to do with it.
    pub fn known_socket(&mut self) -> Option<&mut Socket> {
        self.socket.as_mut().filter(|socket| socket.registered)
    }

    /// Where the end of the client can be heard, if it is waited for.
    pub fn listen_to(&mut self, control: &OwnedFd) {
        if !self.grace.is_zero() {
            // Without a descriptor to spare the worker hears it all the same.
            self.control = control.try_clone().ok();
        }
    }

    /// Does it; on a thread that may wait.
    pub fn run(self) -> JobDone {
        let Self { serial, kind, work, mut socket, shared, most, mut taken, grace, control } = self;
        let mut share = Share::new(most);
        let (work, result) = match work {
            Work::Send(mut sender) => {
                let result = sender.fill().err().map(|error| Err(TransferError::File(error)));
                (Work::Send(sender), result)
            }
            Work::Receive(mut receiver) if kind == JobKind::Leave => {
                receiver.leave(&shared);
                (Work::Receive(receiver), None)
            }
            Work::Receive(mut receiver) => {
                let is_gone = || match &control {
                    Some(control) => stream::wait_for_end(control, grace),
                    None => {
                        std::thread::sleep(grace);
                        false
                    }
                };
                let result = receiver.sink(socket.as_mut(), &shared, &mut share, is_gone);
                (Work::Receive(receiver), result)
            }
            Work::OnPool => (Work::OnPool, None),
        };
        taken.moved(share.moved());
        JobDone { serial, work, socket, taken, result }
    }
}

#[cfg(test)]
mod tests;
