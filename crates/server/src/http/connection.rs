//! An HTTP connection: reads heads, writes what is answered, keeps the deadlines.
//!
//! Heads are parsed where they were read, in the buffer that all connections of a worker share; only what is
//! not whole, or what was sent ahead of its turn, is kept with the connection. Answers to pipelined requests are
//! collected and written together. A client that does not take its answers is not read from.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use millrace_http::intake::Intake;
use millrace_http::request::{self, Slots};
use millrace_http::{Framing, Head, Refusal, Status};
use millrace_net::stream;
use mio::event::Event;

use super::Message;
use super::body::{Body, Progress};
use super::cgi;
use super::dav::Collecting;
use super::exchange::{Record, Who};
use super::programs::Slot;
use super::receive::Receiving;
use super::secure::Securing;
use super::side::Carried;
use crate::limits::Member;
use crate::log::{self, Subject};
use crate::slab::Key;
use crate::state::Admission;
use crate::transfer::Socket;
use crate::worker::Core;

/// Answers that are collected before they are sent in any case.
const OUT: usize = 64 * 1024;

/// How long a client that is being closed may take to read its last answer.
const FAREWELL: Duration = Duration::from_secs(5);

/// What is read and thrown away of a client that is being closed.
const FAREWELL_BYTES: u64 = 1 << 20;

/// One client. What only some moments need is behind a `Box` or an empty `Vec`, so that an idle one is small.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) key: Key,
    pub(super) socket: Socket,
    pub(super) peer: SocketAddr,
    /// Its place among those that limits are for.
    pub(super) member: Member,
    pub(super) number: u64,
    /// Received and not yet understood: part of a head, or requests that came early.
    input: Vec<u8>,
    /// Answers that the client has not taken.
    output: Vec<u8>,
    pub(super) work: Work,
    /// Who asks; known from the first request on.
    pub(super) who: Option<Arc<Who>>,
    pub(super) flags: Flags,
    /// When it became idle, or connected: what the deadlines of heads count from.
    since: Instant,
    /// It is closed when everything is sent, or at this time.
    closing: Option<Instant>,
    /// What was read of a client that is being closed.
    drained: u64,
    /// When the wheel will have this connection looked at.
    look_at: Option<Instant>,
    /// The turn of the reactor in which it was last sent something.
    sent_in: u64,
    /// Wrong passwords so far.
    pub(super) wrong_passwords: u32,
    /// A place among the programs, for the one that is about to run.
    pub(super) slot: Option<Slot>,
    /// How often programs have sent the request on.
    pub(super) redirects: u8,
    /// Its place among the sessions.
    pub(super) admission: Option<Admission>,
    /// What it carries, where that is another connection's.
    pub(super) carries: Option<Box<Carried>>,
}

/// What a connection is busy with.
#[derive(Debug)]
pub(super) enum Work {
    /// Nothing: the next head may come.
    Idle,
    /// TLS begins; the reactor may have it in line for the time that handshakes get.
    Securing(Box<Securing>),
    /// The pool has been asked something that the answer depends on.
    Asked(Box<Asked>),
    /// As many programs run as may: there may be room for one until then.
    Queued(Instant, Box<Asked>),
    /// The answer to a wrong password is held back until then.
    Held(Instant, Box<Asked>),
    /// A body is sent.
    Sending(Box<Sending>),
    /// A short body is collected.
    Collecting(Box<Collecting>),
    /// A file is received.
    Receiving(Box<Receiving>),
    /// A program answers.
    Running(Box<cgi::Running>),
}

/// A request that waits.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) serial: u64,
    /// The head as it came.
    pub(super) head: Vec<u8>,
    /// A place among the programs.
    pub(super) slot: Option<Slot>,
}

/// An answer whose body is on its way.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) body: Body,
    pub(super) record: Record,
    /// Whether the connection goes on behind it.
    pub(super) goes_on: bool,
}

/// What is known of the socket.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Flags {
    /// There may be more to read.
    pub(super) readable: bool,
    /// What is in `input` is part of a head.
    starved: bool,
    /// What is in `input` has not been looked at since it grew.
    fresh: bool,
    /// The client has sent something.
    pub(super) spoke: bool,
    watches_writable: bool,
    /// The client will send no more.
    pub(super) ended: bool,
    /// As `ended`, heard of while there may still be something to read.
    pub(super) hung_up: bool,
    /// The connection is gone, or cannot be used.
    pub(super) broken: bool,
    /// The client may still be sending what is not wanted.
    lingers: bool,
    /// Our side was ended.
    shut: bool,
    /// The body of the request was taken: behind it is the next one.
    pub(super) took_body: bool,
    /// The server is closing: no further requests are taken.
    last: bool,
}

impl Connection {
    pub(crate) fn new(
        key: Key,
        socket: OwnedFd,
        peer: SocketAddr,
        member: Member,
        admission: Option<Admission>,
        core: &Core,
    ) -> Self {
        Self {
            key,
            socket: Socket::new(socket),
            peer,
            member,
            number: core.server.next_session.fetch_add(1, Ordering::Relaxed),
            input: Vec::new(),
            output: Vec::new(),
            work: Work::Idle,
            who: None,
            // A client sends its request at once: more often than not it has come already.
            flags: Flags { readable: true, ..Flags::default() },
            since: core.now.instant,
            closing: None,
            drained: 0,
            look_at: None,
            sent_in: 0,
            wrong_passwords: 0,
            slot: None,
            redirects: 0,
            admission,
            carries: None,
        }
    }

    /// The reactor says something of the socket.
    pub(crate) fn event(&mut self, core: &mut Core, event: &Event) {
        if event.is_error() || (event.is_write_closed() && event.is_read_closed() && !self.flags.shut) {
            self.flags.broken = true;
            return;
        }
        self.flags.readable |= event.is_readable();
        self.flags.hung_up |= event.is_read_closed();
        if event.is_writable() {
            self.go_on(core);
        }
    }

    /// Another thread has something for it.
    pub(crate) fn told(&mut self, core: &mut Core, message: Message) {
        match message {
            Message::Login(serial, user, decision) => {
                if let Some(asked) = self.take_asked(serial) {
                    self.login_decided(core, *asked, &user, decision);
                }
            }
            Message::Found(serial, found) => match self.take_asked(serial) {
                Some(asked) => {
                    self.slot = asked.slot;
                    self.again(core, &asked.head, Some(found));
                    self.slot = None;
                }
                None => core.discard(found),
            },
            Message::Filled(serial, sender, result) => match &mut self.work {
                Work::Sending(sending) if sending.body.is_lent() && sending.body.serial == serial => {
                    sending.body.take_back(sender, core.now.instant);
                    match result {
                        Ok(()) => self.go_on(core),
                        Err(error) => self.body_failed(core, &error.to_string()),
                    }
                }
                _ => core.discard(sender),
            },
            Message::Written(serial, written) => self.written(core, serial, written),
        }
    }

    fn take_asked(&mut self, serial: u64) -> Option<Box<Asked>> {
        match std::mem::replace(&mut self.work, Work::Idle) {
            Work::Asked(asked) if asked.serial == serial => Some(asked),
            other => {
                self.work = other;
                None
            }
        }
    }

    /// Goes on with a request whose head was kept.
    pub(super) fn again(
        &mut self,
        core: &mut Core,
        bytes: &[u8],
        found: Option<Result<super::find::Found, millrace_vfs::FileError>>,
    ) {
        let mut slots = Slots::new();
        match request::parse(bytes, &mut slots) {
            Ok(Some((head, _))) => self.handle(core, &head, bytes, found),
            // It was parsed before.
            _ => self.flags.broken = true,
        }
    }

    /// Writes and reads on where that is possible, sets the clock. Answers whether the connection goes on.
    pub(crate) fn settle(&mut self, core: &mut Core) -> bool {
        self.carry_on(core);
        self.read_on(core);
        self.flush(core, false);
        self.say_farewell(core);
        if self.is_over() {
            return false;
        }
        if !self.socket.registered {
            self.socket.registered = true;
            if core.watch_http(self.key, &self.socket.fd).is_err() {
                return false;
            }
        }
        self.set_clock(core);
        true
    }

    /// Goes on with what takes a body, where more of that may have come.
    fn carry_on(&mut self, core: &mut Core) {
        match &self.work {
            Work::Securing(securing) if !securing.in_line => self.secure_on(core),
            Work::Collecting(_) => self.collect_more(core),
            Work::Receiving(_) => self.receive_on(core),
            // A client that goes takes its program with it.
            Work::Running(_) if self.flags.hung_up => self.flags.broken = true,
            Work::Running(running) if self.flags.readable && running.takes_input() => self.run_on(core),
            _ => {}
        }
    }

    fn is_over(&self) -> bool {
        if self.flags.broken {
            return true;
        }
        let said_all = matches!(self.work, Work::Idle) && self.output_is_empty();
        match self.closing {
            Some(_) => said_all && self.flags.ended,
            None => said_all && (self.flags.ended || self.flags.last),
        }
    }

    fn takes_requests(&self) -> bool {
        matches!(self.work, Work::Idle)
            && self.output_is_empty()
            && self.closing.is_none()
            && !self.flags.broken
            && !self.flags.last
    }

    /// Takes requests for as long as there are any and the client takes the answers.
    fn read_on(&mut self, core: &mut Core) {
        while self.takes_requests() {
            if !self.input.is_empty() && self.flags.fresh {
                let input = std::mem::take(&mut self.input);
                self.take_bytes(core, &input);
            } else if self.flags.readable {
                self.read(core);
            } else {
                return;
            }
        }
    }

    fn read(&mut self, core: &mut Core) {
        if self.sent_in == core.turn {
            core.turn += 1;
        }
        let (mut buffer, mut plain) =
            (std::mem::take(&mut core.control_buffer), std::mem::take(&mut core.plain));
        let received = match self.socket.tls {
            None => self.receive(&mut buffer).map(|count| &buffer[..count]),
            Some(_) => self.receive_secure(&mut core.scratch, &mut plain).then_some(&plain[..]),
        };
        if let Some(bytes) = received {
            let count = bytes.len();
            match self.input.is_empty() {
                true => self.take_bytes(core, bytes),
                false => {
                    // A line that is not whole cannot end a head: no use in parsing it again for every byte.
                    self.flags.fresh =
                        bytes.contains(&b'\n') || self.input.len() + count > request::MAX_REQUEST_LINE;
                    self.input.extend_from_slice(bytes);
                }
            }
        }
        plain.clear();
        (core.control_buffer, core.plain) = (buffer, plain);
    }

    /// Reads once, where there is no TLS; `None` where nothing came.
    fn receive(&mut self, buffer: &mut [u8]) -> Option<usize> {
        match stream::read(&self.socket.fd, buffer) {
            Ok(0) => {
                (self.flags.ended, self.flags.hung_up, self.flags.readable) = (true, true, false);
                None
            }
            Ok(count) => {
                // A short read means that there is no more, and the next arrival is a new event; but for an end
                // that came with these bytes, of which nothing more will be told.
                self.flags.readable = count == buffer.len() || self.flags.hung_up;
                self.flags.spoke = true;
                Some(count)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.flags.readable = false;
                None
            }
            Err(_) => {
                self.flags.broken = true;
                None
            }
        }
    }

    fn take_bytes(&mut self, core: &mut Core, bytes: &[u8]) {
        let mut rest = bytes;
        // A head has its time from its first byte on, however many pieces it comes in.
        let began = self.flags.starved;
        self.flags.starved = false;
        while self.takes_requests() {
            // Empty lines before a request are ignored (RFC 9112 section 2.2).
            while let [b'\r', b'\n', more @ ..] = rest {
                rest = more;
            }
            if rest.is_empty() {
                break;
            }
            let mut slots = Slots::new();
            match request::parse(rest, &mut slots) {
                Ok(None) => {
                    self.flags.starved = true;
                    break;
                }
                Ok(Some((head, length))) => {
                    let (bytes, behind) = rest.split_at(length);
                    rest = behind;
                    self.handle(core, &head, bytes, None);
                }
                Err(refusal) => {
                    self.refuse(core, refusal);
                    rest = &[];
                }
            }
            if core.out.len() > OUT {
                self.flush(core, false);
            }
        }
        if !rest.is_empty() && self.closing.is_none() {
            if self.flags.starved && !began {
                self.since = core.now.instant;
            }
            self.input.extend_from_slice(rest);
            self.flags.fresh = !self.flags.starved;
        }
        // Its body may have come with its head.
        if matches!(self.work, Work::Collecting(_)) {
            self.collect_more(core);
        }
    }

    /// Answers what could not be understood, and closes.
    fn refuse(&mut self, core: &mut Core, refusal: Refusal) {
        self.linger();
        let record = Record::of_nothing(core.now.instant);
        self.answer_page(core, record, refusal.status, refusal.reason, &[]);
    }

    /// Nothing more is taken; what is answered is still sent.
    pub(super) fn close_behind(&mut self, core: &Core) {
        self.closing.get_or_insert(core.now.instant + FAREWELL);
        self.input = Vec::new();
    }

    /// Claims that the connection may go on behind this request: a body that nobody took is in the way.
    pub(super) fn may_go_on(&self, head: &Head<'_, '_>) -> bool {
        let is_behind_body = head.framing == Framing::None || self.flags.took_body;
        head.persistent && is_behind_body && self.closing.is_none() && !self.flags.last
    }

    /// Begins to send a body, whose head is in `core.out`.
    pub(super) fn send_body(&mut self, core: &mut Core, sending: Box<Sending>) {
        self.work = Work::Sending(sending);
        self.go_on(core);
    }

    /// Goes on with what it is busy with.
    pub(crate) fn go_on(&mut self, core: &mut Core) {
        match std::mem::replace(&mut self.work, Work::Idle) {
            Work::Queued(_, asked) => self.again(core, &asked.head, None),
            work => {
                self.work = work;
                match &self.work {
                    Work::Running(_) => self.run_on(core),
                    Work::Receiving(_) => self.receive_on(core),
                    _ => self.send_on(core),
                }
            }
        }
    }

    /// Takes more of a request's body, until `body` has `most` bytes.
    pub(super) fn take_body(
        &mut self,
        core: &mut Core,
        intake: &mut Intake,
        body: &mut Vec<u8>,
        most: usize,
    ) -> Result<(), Refusal> {
        while body.len() < most && !intake.has_ended() {
            let input = match self.input.is_empty() {
                false => std::mem::take(&mut self.input),
                true if self.flags.readable => self.read_body(core),
                true => return Ok(()),
            };
            let mut wire = &input[..];
            let taken = intake.take(&mut wire, body);
            // Behind the body is the next request.
            self.input.extend_from_slice(wire);
            self.flags.fresh = true;
            taken?;
        }
        Ok(())
    }

    /// Reads a piece of a request's body; nothing where nothing came.
    fn read_body(&mut self, core: &mut Core) -> Vec<u8> {
        if self.socket.tls.is_some() {
            let mut plain = Vec::new();
            self.receive_secure(&mut core.scratch, &mut plain);
            return plain;
        }
        let mut scratch = std::mem::take(&mut core.scratch);
        let count = self.receive(&mut scratch).unwrap_or(0);
        let piece = scratch[..count].to_vec();
        core.scratch = scratch;
        piece
    }

    /// Claims that all was sent.
    pub(super) fn output_is_empty(&self) -> bool {
        self.output.is_empty() && self.socket.tls.as_ref().is_none_or(|channel| channel.is_flushed())
    }

    pub(super) fn is_broken(&self) -> bool {
        self.flags.broken
    }

    /// A client that has ended in the middle of a body has gone.
    pub(super) fn break_where_ended(&mut self) {
        self.flags.broken |= self.flags.ended;
    }

    /// Claims that requests may follow, as far as this side is asked.
    pub(super) fn may_serve_on(&self) -> bool {
        self.closing.is_none() && !self.flags.last
    }

    /// The last answer was given at this time: the next request is waited for.
    pub(super) fn answered_at(&mut self, now: Instant) {
        self.since = now;
        self.redirects = 0;
    }

    /// The connection ends so that nobody takes the part of an answer for the whole.
    pub(super) fn cut(&mut self) {
        stream::reset_on_close(&self.socket.fd);
        self.flags.broken = true;
    }

    /// Tells the log of something that an operator should look at.
    pub(super) fn warn(&self, core: &mut Core, text: &str) {
        let subject = Subject { session: self.number, peer: self.peer, user: None };
        core.log(&subject, log::Event::Warning { text });
    }

    /// Sends on.
    fn send_on(&mut self, core: &mut Core) {
        loop {
            let follows = match &self.work {
                Work::Sending(sending) => sending.body.has_more(),
                _ => false,
            };
            self.flush(core, follows);
            if !self.output_is_empty() || self.flags.broken {
                return;
            }
            let Work::Sending(sending) = &mut self.work else { return };
            let limits = (&core.server.limits, &self.member);
            match sending.body.advance(&mut self.socket, &mut core.scratch, core.now.instant, limits) {
                Progress::Bytes(bytes) => core.out.extend_from_slice(&bytes),
                // The wheel wakes it.
                Progress::Pause => return,
                Progress::Wait => return self.watch_writable(core),
                Progress::Yield => return core.yielded.push_back(self.key),
                Progress::Fill(sender) => return self.fill(core, sender),
                Progress::Done => return self.body_sent(core),
                Progress::Failed(error) => {
                    if let millrace_ftp::session::TransferError::File(millrace_vfs::FileError::OverQuota(
                        over,
                    )) = &error
                    {
                        self.log_over_quota(core, Some(over));
                    }
                    return self.body_failed(core, &format!("{error:?}"));
                }
            }
        }
    }

    fn fill(&mut self, core: &mut Core, mut sender: Box<crate::transfer::Sender>) {
        let serial = core.next_serial();
        if let Work::Sending(sending) = &mut self.work {
            sending.body.serial = serial;
        }
        let (key, inbox) = (self.key, core.sender.clone());
        core.server.pool.run(move || {
            let result = sender.fill();
            inbox.send(crate::worker::Message::Http(key, Message::Filled(serial, *sender, result)));
        });
    }

    fn body_sent(&mut self, core: &mut Core) {
        let Work::Sending(sending) = std::mem::replace(&mut self.work, Work::Idle) else { return };
        let Sending { body, mut record, goes_on } = *sending;
        record.bytes += body.bytes();
        self.log_request(core, &record);
        self.since = core.now.instant;
        if !goes_on {
            self.close_behind(core);
        }
    }

    /// The body cannot be sent whole: the connection ends, so that nobody takes the part for the whole.
    fn body_failed(&mut self, core: &mut Core, why: &str) {
        let Work::Sending(sending) = std::mem::replace(&mut self.work, Work::Idle) else { return };
        let Sending { body, mut record, .. } = *sending;
        record.bytes += body.bytes();
        self.log_request(core, &record);
        let subject = Subject { session: self.number, peer: self.peer, user: None };
        core.log(&subject, log::Event::Warning { text: &format!("an answer was cut: {why}") });
        stream::reset_on_close(&self.socket.fd);
        self.flags.broken = true;
        if let Some(remains) = body.remains() {
            core.discard(remains);
        }
    }

    /// Sends what there is to say, as far as the client takes it.
    pub(super) fn flush(&mut self, core: &mut Core, follows: bool) {
        if self.flags.broken {
            core.out.clear();
            return;
        }
        if !self.output.is_empty() {
            self.output.append(&mut core.out);
            std::mem::swap(&mut self.output, &mut core.out);
        }
        let mut sent = 0;
        while sent < core.out.len() {
            match self.socket.write_or_wait(&core.out[sent..], follows) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.output = core.out[sent..].to_vec();
                    self.watch_writable(core);
                    break;
                }
                Err(_) => {
                    self.flags.broken = true;
                    break;
                }
            }
        }
        if sent > 0 {
            self.sent_in = core.turn;
            self.since = core.now.instant;
            if let Work::Sending(sending) = &mut self.work {
                sending.body.moved = core.now.instant;
            }
        }
        core.out.clear();
        if self.socket.tls.is_some() {
            self.flush_secure(core);
        }
    }

    pub(super) fn watch_writable(&mut self, core: &Core) {
        if !self.flags.watches_writable {
            self.flags.watches_writable = true;
            self.flags.broken |= match self.socket.registered {
                true => core.watch_http_writable(self.key, &self.socket.fd, true).is_err(),
                false => core.watch_http_writable(self.key, &self.socket.fd, false).is_err(),
            };
            self.socket.registered = true;
        }
    }

    /// Ends our side, and reads what still comes: closing a socket with something unread resets it, and a
    /// reset can overtake the last answer.
    fn say_farewell(&mut self, core: &mut Core) {
        if self.closing.is_none()
            || !self.output_is_empty()
            || self.flags.broken
            || !matches!(self.work, Work::Idle)
        {
            return;
        }
        if !self.flags.shut {
            self.flags.shut = true;
            self.end_tls();
            if !self.flags.readable && !self.flags.lingers {
                self.flags.ended = true;
                return;
            }
            self.flags.broken |= stream::end_writing(&self.socket.fd).is_err();
        }
        let mut buffer = std::mem::take(&mut core.control_buffer);
        while self.flags.readable && !self.flags.broken {
            // Whatever it is, in TLS or not: nobody will look at it.
            if let Some(count) = self.receive(&mut buffer) {
                self.drained += count as u64;
                self.flags.broken |= self.drained > FAREWELL_BYTES;
            }
        }
        core.control_buffer = buffer;
    }

    /// The client may send more that nobody will take: it is read for a while, and thrown away.
    pub(super) fn linger(&mut self) {
        self.flags.lingers = true;
    }

    fn due(&self, core: &Core) -> Option<Instant> {
        if let Some(closing) = self.closing
            && matches!(self.work, Work::Idle)
        {
            return Some(closing);
        }
        let config = &core.server.config;
        match &self.work {
            Work::Idle if !self.output_is_empty() => Some(self.since + config.stall_timeout),
            Work::Idle if self.input.is_empty() && self.flags.spoke => {
                Some(self.since + config.http_idle_timeout)
            }
            Work::Idle | Work::Securing(_) => Some(self.since + config.http_head_timeout),
            Work::Asked(_) => None,
            Work::Collecting(collecting) => Some(collecting.began + config.stall_timeout),
            Work::Held(until, _) | Work::Queued(until, _) => Some(*until),
            Work::Running(running) => Some(running.deadline()),
            Work::Receiving(receiving) if receiving.is_lent() => None,
            Work::Receiving(receiving) => {
                Some(receiving.paused().unwrap_or(receiving.moved() + config.stall_timeout))
            }
            Work::Sending(sending) if sending.body.is_lent() => None,
            Work::Sending(sending) => match sending.body.paused() {
                Some(until) => Some(until),
                None => Some(sending.body.moved + config.stall_timeout),
            },
        }
    }

    fn set_clock(&mut self, core: &mut Core) {
        if let Some(due) = self.due(core)
            && self.look_at.is_none_or(|look_at| due < look_at)
        {
            self.look_at = Some(core.wheel.insert(due, self.key));
        }
    }

    /// The wheel says that something may be due.
    pub(crate) fn look_at_clock(&mut self, core: &mut Core) {
        let now = core.now.instant;
        if self.look_at.is_none_or(|look_at| look_at > now) {
            return;
        }
        self.look_at = None;
        if self.due(core).is_none_or(|due| due > now) {
            return;
        }
        match std::mem::replace(&mut self.work, Work::Idle) {
            Work::Held(_, asked) => self.deny(core, &asked.head),
            Work::Queued(_, asked) => self.queued_too_long(core, &asked.head),
            Work::Running(running) => self.program_overdue(core, *running),
            Work::Receiving(receiving) if receiving.paused().is_some() => {
                self.work = Work::Receiving(receiving);
                self.receive_on(core);
            }
            Work::Sending(sending) if sending.body.paused().is_some() => {
                self.work = Work::Sending(sending);
                self.go_on(core);
            }
            Work::Idle if self.closing.is_none() && !self.input.is_empty() && self.output_is_empty() => {
                let reason = "The head did not come in time.";
                self.refuse(core, Refusal { status: Status::REQUEST_TIMEOUT, reason });
            }
            work => {
                self.work = work;
                self.flags.broken = true;
            }
        }
    }

    /// The server is closing: what is asked is still answered.
    pub(crate) fn shut_down(&mut self) {
        self.flags.last = true;
    }

    /// The time of grace is over.
    pub(crate) fn end_now(&mut self) {
        self.flags.broken = true;
    }

    /// Ends the connection and everything that belongs to it.
    pub(crate) fn close(mut self: Box<Self>, core: &mut Core) {
        if let Work::Sending(sending) = std::mem::replace(&mut self.work, Work::Idle) {
            let Sending { body, mut record, .. } = *sending;
            record.bytes += body.bytes();
            self.log_request(core, &record);
            // What was sent must not look like the whole of an answer that ends with the connection.
            stream::reset_on_close(&self.socket.fd);
            if let Some(remains) = body.remains() {
                core.discard(remains);
            }
        }
        self.give_up(core);
    }
}

impl Connection {
    /// What is under way ends with the connection.
    fn give_up(&mut self, core: &mut Core) {
        let record = match std::mem::replace(&mut self.work, Work::Idle) {
            Work::Running(running) => {
                let (program, record) = running.into_parts();
                core.discard(program);
                record
            }
            Work::Receiving(receiving) => {
                let (upload, record) = receiving.into_parts();
                core.discard(upload);
                Record { status: Status::BAD_REQUEST, ..record }
            }
            _ => return,
        };
        self.log_request(core, &record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the allocator's share and its place in the slab this stays far below 1 KiB.
    #[test]
    fn an_idle_connection_is_small() {
        assert!(size_of::<Connection>() <= 320, "{}", size_of::<Connection>());
    }
}
