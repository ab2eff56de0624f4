//! An HTTP connection: the state of one client.
//!
//! Answers to pipelined requests are collected and written together. A client that does not take its answers is
//! not read from.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use millrace_http::Head;
use millrace_http::h1::{Input, ServerConnection};
use millrace_runtime::sessions::Admission;
use mio::event::Event;

use super::Message;
use super::dav::Collecting;
use super::exchange::Exchange;
use super::h2::StreamContext;
use super::hooking::{HookState, Then};
use super::link::ClientLink;
use super::programs::{Line, Slot};
use super::receive::Receiving;
use super::running::Running;
use super::secure::Securing;
use super::sending::Sending;
use super::who::Who;
use crate::auth::Decision;
use crate::http::deadlines::Clock;
use crate::http::hooking::HookGate;
use crate::http::hooking::Notices;
use crate::http::reading::Reader;
use crate::http::receive::Reception;
use crate::http::running::Relay;
use crate::http::secure::Handshake;
use crate::http::sending::Delivery;
use crate::http::who::Logins;
use crate::limits::Member;
use crate::log::{self, Subject};
use crate::slab::Key;
use crate::worker::Core;

/// One client. What only some moments need is behind a `Box` or an empty `Vec`, so that an idle one is small.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) key: Key,
    pub(super) link: ClientLink,
    /// What the protocol says.
    pub(super) http: ServerConnection,
    pub(super) peer: SocketAddr,
    /// Its place among those that limits are for.
    pub(super) member: Member,
    pub(super) number: u64,
    pub(super) work: Work,
    /// The authenticated user; known from the first request on.
    pub(super) who: Option<Arc<Who>>,
    /// When the wheel will have this connection looked at.
    pub(super) look_at: Option<Instant>,
    /// Wrong passwords so far.
    pub(super) wrong_passwords: u32,
    /// A place among the programs, for the one that is about to run.
    pub(super) slot: Option<Slot>,
    /// The program at the path of the request, if any.
    pub(super) program_path: ProgramPath,
    /// How often the request was sent on within the server.
    pub(super) redirects: u8,
    /// What was asked for, where programs have sent the request on.
    pub(super) redirected: Option<Box<Redirected>>,
    /// What the answer says besides.
    pub(super) beside: Option<Box<Beside>>,
    /// Its place among the sessions.
    pub(super) admission: Option<Admission>,
    /// What it is to the connection of HTTP/2 that it is a stream of.
    pub(super) stream: Option<Box<StreamContext>>,
    /// Its part in the hooks, where there are any.
    pub(super) hooked: HookState,
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
    Running(Box<Running>),
    /// Hooks are asked; the number of the question.
    Ruled(u64, Box<Then>),
}

/// Header lines of the answer that depend on the user.
#[derive(Debug)]
pub(super) struct Beside(pub(super) String);

/// What the log says that was asked for.
#[derive(Debug)]
pub(super) struct Redirected {
    pub(super) method: String,
    pub(super) target: Vec<u8>,
    /// What applications hear of that, where it is not the path that they answer at.
    pub(super) uri: Option<Vec<u8>>,
}

impl From<&Head> for Redirected {
    fn from(head: &Head) -> Self {
        Self { method: head.method_text().to_owned(), target: head.target().to_owned(), uri: None }
    }
}

/// A request that waits.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) serial: u64,
    /// The request.
    pub(super) head: Arc<Head>,
    /// A place among the programs.
    pub(super) slot: Option<Slot>,
    /// Where it waits for one.
    pub(super) line: Option<Line>,
    /// Detects that the client has gone, so that the answer is no longer needed.
    pub(super) patience: Option<Patience>,
}

/// Work that is abandoned when the client has gone.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// Dropped when the client has gone.
    pub(super) waits: Arc<()>,
    /// The client has ended its side: when one asks whether it is there.
    pub(super) doubted_at: Option<Instant>,
}

impl Asked {
    /// Of which nothing is asked yet.
    pub(super) fn of(head: &Arc<Head>) -> Self {
        Self { serial: 0, head: Arc::clone(head), slot: None, line: None, patience: None }
    }

    /// Which waits for a place.
    pub(super) fn in_line(head: &Arc<Head>, line: Line) -> Self {
        Self { line: Some(line), ..Self::of(head) }
    }
}

/// Whether a path is a program's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProgramPath {
    /// It is a program's where it looks like one.
    ByName,
    /// It looks like a program's, and leads to a file that is none.
    NoProgram,
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
        Self::by(key, ClientLink::new(socket), peer, member, admission, core)
    }

    /// One that what is sent goes by this link.
    pub(super) fn by(
        key: Key,
        link: ClientLink,
        peer: SocketAddr,
        member: Member,
        admission: Option<Admission>,
        core: &Core,
    ) -> Self {
        Self {
            key,
            link,
            http: ServerConnection::new(core.now.instant),
            peer,
            member,
            number: core.server.next_session.fetch_add(1, Ordering::Relaxed),
            work: Work::Idle,
            who: None,
            look_at: None,
            wrong_passwords: 0,
            slot: None,
            program_path: ProgramPath::ByName,
            redirects: 0,
            redirected: None,
            beside: None,
            admission,
            stream: None,
            hooked: HookState::default(),
        }
    }

    /// The same, where the client has said nothing yet: the reactor will tell.
    pub(crate) fn silent(mut self) -> Self {
        self.link.expect_silence();
        self
    }

    /// The reactor says something of the socket.
    pub(crate) fn event(&mut self, core: &mut Core, event: &Event) {
        let hung_up = self.link.take_event(event, self.http.has_ended_output());
        if self.link.is_broken() {
            return;
        }
        if hung_up && matches!(self.work, Work::Ruled(..)) {
            // From now on hooks have only so long.
            self.http.moved(core.now.instant);
        }
        if event.is_writable() {
            self.go_on(core);
        }
    }

    /// Another thread has something for it.
    pub(crate) fn told(&mut self, core: &mut Core, message: Message) {
        match message {
            Message::Login(serial, user, decision, edition) => {
                let Some(mut asked) = self.take_asked(serial) else { return };
                self.slot = asked.slot.take();
                match decision {
                    // The accounts were changed meanwhile: those that hold now are asked.
                    Decision::Granted(_) if edition != core.server.edition() => {
                        self.exchange(core, &asked.head).handle(None);
                    }
                    decision => Logins::new(self, core).login_decided(*asked, &user, decision, edition),
                }
                self.slot = None;
            }
            Message::Found(serial, found) => match self.take_asked(serial) {
                Some(asked) => {
                    self.slot = asked.slot;
                    self.exchange(core, &asked.head).handle(Some(found));
                    self.slot = None;
                }
                None => core.discard(found),
            },
            Message::Filled(serial, sender, result) => match &mut self.work {
                Work::Sending(sending) if sending.body.is_lent() && sending.body.serial == serial => {
                    if let Some(sender) = sender {
                        sending.body.take_back(sender, core.now.instant);
                    }
                    match result {
                        Ok(()) => self.go_on(core),
                        Err(error) => Delivery::new(self, core).body_failed(&error.to_string()),
                    }
                }
                _ => core.discard(sender),
            },
            Message::Written(serial, written) => Reception::new(self, core).written(serial, written),
            Message::Ruled(serial, ruled) => HookGate::new(self, core).hooks_answered(serial, ruled),
            Message::Heard => self.was_heard(core),
            Message::Reviewed(user, decision) => self.reviewed(core, &user, decision),
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

    /// Writes and reads on where that is possible, sets the clock. Answers whether the connection goes on.
    pub(crate) fn settle(&mut self, core: &mut Core) -> bool {
        self.carry_on(core);
        self.note_answered(core);
        if self.stream.is_some() {
            // The connection of HTTP/2 sees to the rest.
            self.flush(core, false);
            return true;
        }
        Reader::new(self, core).read_on();
        // The end shares a packet with the last answer, where it comes at once.
        self.flush(core, self.ends_behind_output());
        self.say_farewell(core);
        if self.is_over() || !self.link.register(core, self.key) {
            return false;
        }
        self.acknowledge();
        Clock::new(self, core).set_clock();
        true
    }

    /// A first answer acknowledges what it answers. Where there is none yet, and the client has more to send, it may
    /// wait to hear that its beginning has come.
    fn acknowledge(&mut self) {
        let waits_for_client = match &self.work {
            Work::Idle | Work::Collecting(_) | Work::Receiving(_) | Work::Securing(_) => true,
            Work::Running(running) => running.takes_input(),
            _ => false,
        };
        if self.http.has_spoken() && waits_for_client {
            self.link.acknowledge();
        }
    }

    /// Goes on with what takes a body, where more of that may have come.
    fn carry_on(&mut self, core: &mut Core) {
        match &self.work {
            Work::Securing(securing) if !securing.in_line => Handshake::new(self, core).secure_on(),
            Work::Collecting(_) => Reception::new(self, core).collect_more(),
            Work::Receiving(_) => Reception::new(self, core).receive_on(),
            Work::Running(_) if self.link.has_hung_up() => Relay::new(self, core).hear_out(),
            Work::Asked(_) if self.link.has_hung_up() => Clock::new(self, core).doubt_who_asks(),
            Work::Running(running) if self.link.may_read() && running.takes_input() => {
                Relay::new(self, core).run_on()
            }
            _ => {}
        }
    }

    pub(super) fn takes_requests(&self) -> bool {
        matches!(self.work, Work::Idle)
            && self.http.takes_requests()
            && self.link.is_flushed()
            && !self.link.is_broken()
            && !self.hooked.waits_to_be_heard()
    }

    /// Tells the protocol that the request was answered, where nothing more is done for it.
    pub(super) fn note_answered(&mut self, core: &mut Core) {
        if matches!(self.work, Work::Idle) && self.http.is_answering() {
            self.http.handle(core.now.instant, Input::Answered, &mut core.http.heads);
        }
    }

    /// Takes the body of the request from now on: a client that waits to hear so is told.
    pub(super) fn want_body(&mut self, core: &mut Core) {
        let step = self.http.handle(core.now.instant, Input::BodyWanted, &mut core.http.heads);
        core.out.extend_from_slice(step.send);
    }

    /// Goes on with what it is busy with.
    pub(crate) fn go_on(&mut self, core: &mut Core) {
        match std::mem::replace(&mut self.work, Work::Idle) {
            Work::Queued(until, asked) => {
                match asked.line.and_then(|line| core.http.lane(line).claim(self.key)) {
                    // Whatever else is asked first, the place stays this request's.
                    Some(slot) => {
                        self.slot = Some(slot);
                        self.exchange(core, &asked.head).handle(None);
                        self.slot = None;
                    }
                    None => self.work = Work::Queued(until, asked),
                }
            }
            work => {
                self.work = work;
                match &self.work {
                    Work::Running(_) => Relay::new(self, core).run_on(),
                    Work::Receiving(_) => Reception::new(self, core).receive_on(),
                    _ => Delivery::new(self, core).send_on(),
                }
            }
        }
    }
}

impl Notices<'_> {
    /// Tells the log of something that an operator should look at.
    pub(super) fn warn(&self, core: &mut Core, text: &str) {
        let subject = Subject { session: self.connection.number, peer: self.connection.peer, user: None };
        core.log(&subject, log::Event::Warning { text });
    }

    /// Tells the log what an application has said of errors.
    pub(super) fn log_complaint(&self, core: &mut Core, text: &str) {
        let subject = Subject { session: self.connection.number, peer: self.connection.peer, user: None };
        core.log(&subject, log::Event::ProgramSaid { text });
    }
}

impl Exchange<'_> {
    /// Returns whether the connection may go on behind the answer to this request.
    pub(super) fn may_go_on(&self) -> bool {
        let head = self.head;
        head.persistent && self.connection.http.keeps_alive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the allocator's share and its place in the slab this stays far below 1 KiB.
    #[test]
    fn an_idle_connection_is_small() {
        assert!(size_of::<Connection>() <= 352, "{}", size_of::<Connection>());
    }
}
