//! A control connection: feeds lines to its [`Session`], performs what the session asks for.
//!
//! The loop is [`Connection::feed`]: give the session an input, write its replies, perform its act; where
//! that yields the next input at once (a cached answer, a transfer that was done in one go), go round again.
//! What cannot be answered now comes back as a message or an event and enters the same loop.
//!
//! Replies are collected and sent together when the connection has no more to do for now, or before it
//! waits. A client that does not take its replies is not read from, so it costs one buffer.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use millrace_ftp::Session;
use millrace_ftp::line::{Event as LineEvent, LineReader};
use millrace_ftp::session::{Act, Answer, Input, TransferError};
use millrace_net::stream;
use millrace_vfs::FileError;
use mio::event::Event;

use super::hooking::Hooked;
use super::login::Reviews;
use super::question::Question;
use super::refusals::{self, About};
use super::secure::Secure;
use crate::auth::Account;
use crate::limits::Member;
use crate::log::{self, Subject};
use crate::passive::Lease;
use crate::proxied::Way;
use crate::slab::Key;
use crate::transfer::{Link, Running};
use crate::worker::Core;

/// Replies that are collected before they are sent in any case.
const OUT: usize = 16 * 1024;

/// How far behind a line that has to wait is read on for an `ABOR`.
const LOOK_AHEAD: usize = 4 * 1024;

/// How long the last replies may take to be read by a client that is being closed.
const FAREWELL: Duration = Duration::from_secs(5);

/// Reads of a client that goes on sending to a session that has ended, until it is cut.
const DRAIN: usize = 64;

/// One client. Everything that only some moments need is behind an `Option` or an empty `Vec`, so that
/// an idle one is small.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) key: Key,
    pub(super) socket: OwnedFd,
    pub(super) number: u64,
    pub(super) session: Session,
    pub(super) account: Option<Account>,
    pub(super) reviews: Reviews,
    /// Its part in the tree of limits.
    pub(super) member: Member,
    /// What there is of TLS, once it has begun.
    pub(super) secure: Option<Box<Secure>>,
    /// What `HOST` said.
    pub(super) host: Option<Box<str>>,
    /// The proxy that it came by, and where that connected to.
    pub(super) way: Option<Box<(Way, SocketAddr)>>,
    /// Its part in the hooks, where there are any.
    pub(super) hooked: Option<Box<Hooked>>,
    reader: LineReader,
    /// A line that the session does not take yet.
    held: Option<Held>,
    /// What came behind the held line.
    pub(super) pending: Vec<u8>,
    /// Replies that the client has not taken.
    pub(super) output: Vec<u8>,
    pub(super) state: State,
    /// The leased passive port.
    pub(super) lease: Option<Box<Lease>>,
    pub(super) running: Option<Box<Running>>,
    /// The question that the blocking pool answers.
    pub(super) question: Option<Box<Question>>,
    /// Until when the session waits for a passive port.
    pub(super) port_deadline: Option<Instant>,
    /// When the wheel will have this connection looked at.
    look_at: Option<Instant>,
}

#[derive(Debug)]
enum Held {
    Line(Vec<u8>),
    TooLong,
    Torn,
}

/// What is known of the control socket.
#[derive(Debug, Default)]
pub(super) struct State {
    /// There may be more to read.
    pub(super) readable: bool,
    /// There is urgent data, at which a read stops short: only an empty socket says that all was read.
    pub(super) urgent: bool,
    /// The reactor tells when the socket takes bytes.
    watches_writable: bool,
    /// The client will send no more.
    pub(super) ended: bool,
    /// As `ended`, heard of while there may still be lines to read.
    pub(super) hung_up: bool,
    /// The connection is gone, or cannot be used.
    pub(super) broken: bool,
    /// It is closed when the replies are sent, or at this time.
    pub(super) closing: Option<Instant>,
    /// All has been said and done; what the client still sends is read, and means nothing. Closing a socket
    /// with something unread resets it, and a reset can overtake the last reply.
    is_left: bool,
    /// Its transfer is in the worker's line for another turn.
    pub(super) in_line: bool,
    /// Why the server ends the session.
    parting: Option<Box<str>>,
}

impl Connection {
    /// The close that follows is a reset.
    pub(crate) fn reset(&self) {
        stream::reset_on_close(&self.socket);
    }

    pub(crate) fn new(
        key: Key,
        socket: OwnedFd,
        peer: SocketAddr,
        local: SocketAddr,
        way: Option<Box<(Way, SocketAddr)>>,
        member: Member,
        core: &mut Core,
    ) -> Self {
        // To its client the server is where the client connected to.
        let facing = way.as_ref().and_then(|way| way.0.facing).unwrap_or(local);
        let session = Session::new(core.server.settings(), peer, facing, core.now);
        let broken = core.watch_control(key, &socket).is_err();
        Self {
            key,
            socket,
            number: core.server.next_session.fetch_add(1, Ordering::Relaxed),
            session,
            account: None,
            reviews: Reviews::default(),
            member,
            secure: None,
            host: None,
            way,
            hooked: Self::hooked(core),
            reader: LineReader::default(),
            held: None,
            pending: Vec::new(),
            output: Vec::new(),
            state: State { broken, ..State::default() },
            lease: None,
            running: None,
            question: None,
            port_deadline: None,
            look_at: None,
        }
    }

    /// The first thing on a connection: the greeting, or where TLS is `implicit` the handshake.
    pub(crate) fn greet(&mut self, core: &mut Core, implicit: bool) {
        let proxy = self.way.as_ref().map(|way| way.0.proxy);
        self.log(core, log::Event::Connected { proxy });
        self.greet_or_ask(core, implicit);
    }

    /// The address of this machine's that its connections are on.
    pub(super) fn local(&self) -> SocketAddr {
        self.way.as_ref().map_or(self.session.local(), |way| way.1)
    }

    /// The reactor says something of the control socket.
    pub(crate) fn control_event(&mut self, core: &mut Core, event: &Event) {
        if event.is_error() || (event.is_write_closed() && event.is_read_closed()) {
            self.state.broken = true;
            return;
        }
        self.state.readable |= event.is_readable();
        self.state.urgent |= event.is_priority();
        self.state.hung_up |= event.is_read_closed();
        if event.is_writable() {
            self.send(core);
            if self.running.as_deref().is_some_and(|running| matches!(running.link, Link::Control)) {
                self.continue_transfer(core);
            }
        }
    }

    /// Reads on where reading is possible, sends what there is to say, sets the clock. Answers whether the
    /// connection goes on.
    pub(crate) fn settle(&mut self, core: &mut Core) -> bool {
        if self.state.is_left {
            self.drain(core);
        } else {
            self.read_on(core);
            while self.state.hung_up && !self.state.broken && self.hang_up(core) {
                self.read_on(core);
            }
            self.note_hang_up(core);
            self.send(core);
            if self.is_over() {
                self.leave(core);
            }
        }
        if self.state.is_left && (self.state.broken || self.state.hung_up || core.ending) {
            return false;
        }
        self.set_clock(core);
        true
    }

    /// Everything of the session ends but its socket, which waits, for a moment, for the client's end.
    fn leave(&mut self, core: &mut Core) {
        self.end_session(core);
        self.state.is_left = true;
        self.state.closing = Some(core.now.instant + FAREWELL);
        if !self.state.broken {
            self.state.broken = stream::end_writing(&self.socket).is_err();
        }
        if self.state.readable {
            self.drain(core);
        }
    }

    /// Reads what nobody wants any more: all that has come, as there is one event for it, but no flood.
    fn drain(&mut self, core: &mut Core) {
        if self.state.broken {
            return;
        }
        for _ in 0..DRAIN {
            match stream::read(&self.socket, &mut core.control_buffer) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => break,
            }
        }
        self.state.broken = true;
    }

    fn is_over(&self) -> bool {
        if self.state.broken || (self.state.closing.is_some() && self.output.is_empty()) {
            return true;
        }
        self.state.ended
            && self.held.is_none()
            && self.pending.is_empty()
            && self.output.is_empty()
            && !self.session.is_busy()
            && !self.awaits_hook()
    }

    /// Takes what there is to be taken now.
    fn read_on(&mut self, core: &mut Core) {
        loop {
            self.take_lines(core);
            if !self.hears_while_asked(core) {
                return;
            }
        }
    }

    /// Takes lines for as long as the session takes them and the client takes the replies.
    fn take_lines(&mut self, core: &mut Core) {
        let is_open = |state: &State| state.closing.is_none() && !state.broken;
        while is_open(&self.state) && self.output.is_empty() && !self.awaits_hook() {
            if let Some(held) = self.held.take_if(|held| match held {
                Held::Line(line) => self.session.takes(line),
                Held::TooLong | Held::Torn => self.session.takes(b""),
            }) {
                match held {
                    Held::Line(line) => self.line(core, &line),
                    Held::TooLong => self.feed(core, Input::LineTooLong),
                    Held::Torn => self.feed(core, Input::LineTorn),
                }
            } else if self.is_changing() && (self.held.is_some() || !self.pending.is_empty()) {
                return self.refuse_injection(core);
            } else if self.held.is_some() {
                if self.looks_for_abort(core) {
                    continue;
                }
                return;
            } else if !self.pending.is_empty() {
                let pending = std::mem::take(&mut self.pending);
                self.take_bytes(core, &pending);
            } else if self.state.readable && self.is_queued() {
                return;
            } else if self.state.readable {
                self.read(core);
            } else {
                return;
            }
        }
    }

    /// Looks at the line that has to wait, and behind it: `ABOR` is heard wherever it stands, and what it aborts ends at once.
    /// Its own reply comes in its turn. Answers whether there may be more to do.
    fn looks_for_abort(&mut self, core: &mut Core) -> bool {
        if !self.can_be_aborted() {
            return false;
        }
        if self.is_abort_waiting() {
            if let Some(input) = self.abort_hook(core) {
                self.feed(core, input);
            } else if let Some(outcome) = self.abort(core, TransferError::Aborted)
                && let Some(outcome) = self.transfer_over(core, outcome)
            {
                self.feed(core, Input::TransferEnded(outcome));
            }
            return true;
        }
        self.looks_ahead(core)
    }

    /// Reads behind a line that has to wait, but not for ever; answers whether it has.
    pub(super) fn looks_ahead(&mut self, core: &mut Core) -> bool {
        let reads = self.state.readable && self.pending.len() < LOOK_AHEAD && !self.is_queued();
        if reads {
            self.read(core);
        }
        reads
    }

    pub(super) fn is_abort_waiting(&self) -> bool {
        let is_abort = |line: &[u8]| line.trim_ascii_end().eq_ignore_ascii_case(b"ABOR");
        let (mut reader, mut rest) = (LineReader::default(), &self.pending[..]);
        let mut behind = std::iter::from_fn(|| reader.next(&mut rest));
        matches!(&self.held, Some(Held::Line(line)) if is_abort(line))
            || behind.any(|event| matches!(event, LineEvent::Line(line) if is_abort(&line)))
    }

    fn read(&mut self, core: &mut Core) {
        if self.has_tls() {
            return self.read_secure(core);
        }
        let mut buffer = std::mem::take(&mut core.control_buffer);
        match stream::read(&self.socket, &mut buffer) {
            Ok(0) => {
                (self.state.ended, self.state.hung_up) = (true, true);
                self.state.readable = false;
            }
            Ok(count) => {
                // A short read means that there is no more, and the next arrival is a new event; but for an end
                // that came with these bytes, of which nothing more will be told.
                self.state.readable = count == buffer.len() || self.state.urgent || self.state.hung_up;
                self.take_bytes(core, &buffer[..count]);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                (self.state.readable, self.state.urgent) = (false, false);
            }
            Err(_) => self.state.broken = true,
        }
        core.control_buffer = buffer;
    }

    /// Something came behind `AUTH` before the handshake: whoever sent it may not be who shakes hands.
    fn refuse_injection(&mut self, core: &mut Core) {
        let text = "plain text behind AUTH or CCC: somebody may have put it there";
        self.log(core, log::Event::Warning { text });
        self.state.broken = true;
    }

    pub(super) fn take_bytes(&mut self, core: &mut Core, bytes: &[u8]) {
        let mut rest = bytes;
        if self.held.is_some() || self.awaits_hook() {
            return self.pending.extend_from_slice(rest);
        }
        while let Some(event) = self.reader.next(&mut rest) {
            match event {
                LineEvent::Line(line) if self.session.takes(&line) => self.line(core, &line),
                LineEvent::Line(line) => self.held = Some(Held::Line(line.into_owned())),
                LineEvent::TooLong if self.session.takes(b"") => self.feed(core, Input::LineTooLong),
                LineEvent::TooLong => self.held = Some(Held::TooLong),
                LineEvent::Torn if self.session.takes(b"") => self.feed(core, Input::LineTorn),
                LineEvent::Torn => self.held = Some(Held::Torn),
                LineEvent::Refuse(bytes) => core.out.extend_from_slice(&bytes),
            }
            if core.out.len() > OUT {
                self.send(core);
            }
            let is_over = self.state.closing.is_some() || self.is_changing() || self.awaits_hook();
            if self.held.is_some() || is_over || !self.output.is_empty() {
                break;
            }
        }
        self.pending.extend_from_slice(rest);
    }

    /// Claims that there is more than the session takes now.
    pub(super) fn has_lines_waiting(&self) -> bool {
        self.held.is_some() || !self.pending.is_empty()
    }

    /// Gives the session an input and does what it wants, for as long as that yields the next input.
    pub(super) fn feed(&mut self, core: &mut Core, input: Input<'_>) {
        let about = About::of(&input);
        self.feed_about(core, input, about);
    }

    /// The same where it is known which line an answer is about.
    pub(super) fn feed_about(&mut self, core: &mut Core, input: Input<'_>, about: About<'_>) {
        let mut next = self.step(core, input, about);
        while let Some(input) = next {
            let about = about.then(&input);
            next = self.step(core, input, about);
        }
        if let (Some(question), About::Line(line)) = (&mut self.question, about)
            && question.line.is_empty()
        {
            question.line = refusals::shown(line).into();
        }
    }

    fn step(&mut self, core: &mut Core, input: Input<'_>, about: About<'_>) -> Option<Input<'static>> {
        self.note_limit(core, &input);
        self.tell_failure(core, about, &input);
        let step = self.session.handle(core.now, input);
        step.replies.write(&mut core.out);
        self.tell_refusals(core, about, &step.replies);
        if let Some(bound) = step.bound {
            self.log(core, log::Event::Limited { reached: &bound.into(), reason: None });
        }
        if matches!(step.act, Some(Act::Close)) {
            self.state.parting = refusals::parting(&step.replies);
        }
        if self.hooked.is_some() {
            self.note_replies(core, &step.replies);
        }
        step.act.and_then(|act| self.perform(core, act))
    }

    /// Does what the session asked for; answers what came of it, if that is known already.
    fn perform(&mut self, core: &mut Core, act: Act) -> Option<Input<'static>> {
        match act {
            Act::Ask(request) => self.ask(core, request).map(Input::Answer),
            Act::Transfer(transfer) => {
                let outcome = self.begin_transfer(core, *transfer)?;
                self.transfer_over(core, outcome).map(Input::TransferEnded)
            }
            Act::Abort if self.port_deadline.take().is_some() => {
                Some(Input::Answer(Answer::NoPort("the wait for one was aborted".to_owned())))
            }
            Act::Abort if self.awaits_word() => self.abort_hook(core),
            Act::Abort => {
                let outcome = self.abort(core, TransferError::Aborted)?;
                self.transfer_over(core, outcome).map(Input::TransferEnded)
            }
            Act::DropPassive => {
                self.drop_lease(core);
                None
            }
            Act::LogOut => {
                self.note_logout(core);
                self.account = None;
                self.member.log_out();
                self.drop_lease(core);
                None
            }
            Act::StartTls => {
                let companion = self.companion(core);
                // The 234, in clear.
                self.send(core);
                self.note_logout(core);
                self.account = None;
                self.member.log_out();
                self.drop_lease(core);
                self.begin_tls(core, false, companion);
                None
            }
            Act::StopTls => {
                self.end_tls(core);
                None
            }
            Act::Close => {
                self.state.closing = Some(core.now.instant + FAREWELL);
                None
            }
        }
    }

    /// Sends what there is to say, as far as the client takes it.
    pub(super) fn send(&mut self, core: &mut Core) {
        if self.state.broken {
            core.out.clear();
            return;
        }
        if self.has_tls() {
            self.seal(core);
        }
        self.write_out(core);
    }

    /// Hands the socket what it has not taken, and then what is in `core.out`.
    pub(super) fn write_out(&mut self, core: &mut Core) {
        if self.holds_replies() {
            return self.output.append(&mut core.out);
        }
        if !self.output.is_empty() {
            self.output.append(&mut core.out);
            std::mem::swap(&mut self.output, &mut core.out);
        }
        while !core.out.is_empty() {
            match stream::write(&self.socket, &core.out) {
                Ok(count) if count == core.out.len() => core.out.clear(),
                Ok(count) => drop(core.out.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.output = core.out.clone();
                    core.out.clear();
                    self.watch_writable(core);
                }
                Err(_) => {
                    self.state.broken = true;
                    core.out.clear();
                }
            }
        }
    }

    fn watch_writable(&mut self, core: &Core) {
        if !self.state.watches_writable {
            self.state.watches_writable = true;
            self.state.broken |= core.watch_control_writable(self.key, &self.socket).is_err();
        }
    }

    /// When something is due, whatever it is.
    fn due(&self, core: &Core) -> Option<Instant> {
        let transfer = self.running.as_deref().and_then(|running| self.transfer_due(running, core));
        let (question, lease, hook) = (self.question_due(), self.lease_due(), self.hook_due());
        let closing = self.state.closing.filter(|_| !self.holds_replies());
        [self.session.deadline(), self.port_deadline, closing, transfer, question, lease, hook]
            .into_iter()
            .flatten()
            .min()
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
        let is_due = |moment: Option<Instant>| moment.is_some_and(|moment| moment <= now);
        if (is_due(self.state.closing) && !self.holds_replies()) || is_due(self.hook_due()) {
            self.state.broken = true;
        } else if is_due(self.port_deadline) {
            self.no_port(core);
        } else if is_due(self.running.as_deref().and_then(|running| self.transfer_due(running, core))) {
            self.transfer_overdue(core);
        } else if is_due(self.question_due()) {
            self.question_overdue(core);
        } else if is_due(self.lease_due()) {
            self.lease_overdue(core);
        } else if is_due(self.session.deadline()) {
            self.feed(core, Input::Deadline);
        }
    }

    /// The server is closing.
    pub(crate) fn shut_down(&mut self, core: &mut Core) {
        self.feed(core, Input::Shutdown);
    }

    /// The time of grace is over.
    pub(crate) fn end_now(&mut self, core: &mut Core) {
        self.feed(core, Input::Shutdown);
        if let Some(outcome) = self.abort(core, TransferError::Aborted)
            && let Some(outcome) = self.transfer_over(core, outcome)
        {
            self.feed(core, Input::TransferEnded(outcome));
        }
        // Nobody will be there to hear what the pool answers, or what a job brings back.
        if self.question.take().is_some() {
            self.feed(core, Input::Answer(Answer::Failed(FileError::Cancelled)));
        }
        if self.running.is_some() {
            self.transfer_overdue(core);
        }
        if let Some(input) = self.abort_hook(core) {
            self.feed(core, input);
        }
    }

    /// Ends the connection and everything that belongs to it.
    pub(crate) fn close(mut self: Box<Self>, core: &mut Core) {
        if !self.state.is_left {
            self.end_session(core);
        }
    }

    fn end_session(&mut self, core: &mut Core) {
        if let Some(question) = self.question.take() {
            question.shared.cancelled.store(true, Ordering::Relaxed);
        }
        self.give_up_transfer(core);
        self.drop_lease(core);
        self.port_deadline = None;
        let parting = self.state.parting.take();
        let reason = match (&parting, &self.state, self.session.is_closed()) {
            (Some(parting), ..) => parting,
            (None, _, true) => "closed",
            (None, State { broken: true, .. }, _) => "connection lost",
            _ => "client closed",
        };
        self.log(core, log::Event::Disconnected { reason });
        self.tell_the_rest(core);
        core.server.release(self.session.peer().ip());
    }

    /// The last replies could not go before now.
    pub(super) fn give_time_to_leave(&mut self, core: &Core) {
        self.state.closing = Some(core.now.instant + FAREWELL);
    }

    pub(super) fn log(&self, core: &mut Core, event: log::Event<'_>) {
        let subject = Subject { session: self.number, peer: self.session.peer(), user: self.session.user() };
        core.log(&subject, event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thousand idle sessions are a megabyte at most: this, the allocator's share, a user's name.
    #[test]
    fn an_idle_connection_is_small() {
        assert!(size_of::<Connection>() <= 776, "{}", size_of::<Connection>());
    }
}
