//! A control connection: feeds lines to its [`Session`], performs what the session asks for.
//!
//! The loop is [`Connection::feed`]: give the session an input, write its replies, perform its act; where
//! that yields the next input at once (a cached answer, a transfer that was done in one go), go round again.
//! What cannot be answered now comes back as a message or an event and enters the same loop.
//!
//! Replies are collected and sent together when the connection has no more to do for now, or before it
//! waits. A client that does not take its replies is not read from, so it costs one buffer.

mod admin;
mod data;
mod deadlines;
pub(crate) mod door;
mod early;
mod ending;
mod hook_wait;
mod hooking;
mod lease;
mod login;
pub(crate) mod message;
mod question;
mod reading;
mod refusals;
mod secure;
mod sending;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use millrace_accounts::Account;
use millrace_ftp::Session;
use millrace_ftp::line::LineReader;
use millrace_ftp::session::{Act, Answer, Input, TransferError};
use millrace_limits::Member;
use millrace_log::{self as log, Subject};
use millrace_net::{listener, stream};
use millrace_runtime::passive::Lease;
use millrace_runtime::slab::Key;
use millrace_runtime::transfer::{Link, Running};
use millrace_runtime::worker::{Core, Newcomer, Role, Way};
use mio::Interest;
use mio::event::Event;

use self::door::Door;
use self::hooking::Hooked;
use self::login::Reviews;
use self::message::Message;
use self::question::Question;
use self::reading::Held;
use self::refusals::About;
use self::secure::Secure;

/// What the reactor tells of a control connection. Urgent data is told of by itself, because a read stops short of it.
const CONTROL: Interest = Interest::READABLE.add(Interest::PRIORITY);

/// One client. Everything that only some moments need is behind an `Option` or an empty `Vec`, so that
/// an idle one is small.
#[derive(Debug)]
pub struct Connection {
    key: Key,
    /// What connections of the worker share.
    door: Arc<Door>,
    socket: OwnedFd,
    number: u64,
    session: Session,
    account: Option<Account>,
    reviews: Reviews,
    /// Its part in the tree of limits.
    member: Member,
    /// What there is of TLS, once it has begun.
    secure: Option<Box<Secure>>,
    /// What `HOST` said.
    host: Option<Box<str>>,
    /// The proxy that it came by, and where that connected to.
    way: Option<Box<(Way, SocketAddr)>>,
    /// Its part in the hooks, where there are any.
    hooked: Option<Box<Hooked>>,
    reader: LineReader,
    /// A line that the session does not take yet.
    held: Option<Held>,
    /// What came behind the held line.
    pending: Vec<u8>,
    /// Replies that the client has not taken.
    output: Vec<u8>,
    state: State,
    /// The leased passive port.
    lease: Option<Box<Lease>>,
    running: Option<Box<Running>>,
    /// The question that the blocking pool answers.
    question: Option<Box<Question>>,
    /// Until when the session waits for a passive port.
    port_deadline: Option<Instant>,
    /// When the wheel will have this connection looked at.
    look_at: Option<Instant>,
}

/// What is known of the control socket.
#[derive(Debug, Default)]
struct State {
    /// There may be more to read.
    readable: bool,
    /// There is urgent data, at which a read stops short: only an empty socket says that all was read.
    urgent: bool,
    /// The reactor tells when the socket takes bytes.
    watches_writable: bool,
    /// The client will send no more.
    ended: bool,
    /// As `ended`, heard of while there may still be lines to read.
    hung_up: bool,
    /// The connection is gone, or cannot be used.
    broken: bool,
    /// It is closed when the replies are sent, or at this time.
    closing: Option<Instant>,
    /// All has been said and done; what the client still sends is read, and means nothing. Closing a socket
    /// with something unread resets it, and a reset can overtake the last reply.
    is_left: bool,
    /// Its transfer is in the worker's line for another turn.
    in_line: bool,
    /// Why the server ends the session.
    parting: Option<Box<str>>,
}

impl Connection {
    /// The close that follows is a reset.
    pub fn reset(&self) {
        stream::reset_on_close(&self.socket);
    }

    /// A client that was admitted.
    pub fn new<D>(key: Key, door: &Arc<Door>, newcomer: Newcomer<D>, core: &mut Core) -> Self {
        let Newcomer { socket, peer, bound, way, member, admission, .. } = newcomer;
        let local = match bound.ip().is_unspecified() {
            false => bound,
            true => listener::local_address(&socket).unwrap_or(bound),
        };
        // Counted out when the session ends.
        admission.keep();
        let way = way.map(|way| Box::new((way, local)));
        // To its client the server is where the client connected to.
        let facing = way.as_ref().and_then(|way| way.0.facing).unwrap_or(local);
        let session = Session::new(door.ftp.settings(), peer, facing, core.now);
        let broken = core.watch(key, Role::Client, &socket, CONTROL).is_err();
        Self {
            key,
            door: Arc::clone(door),
            socket,
            number: core.services.next_session.fetch_add(1, Ordering::Relaxed),
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
    pub fn greet(&mut self, core: &mut Core, implicit: bool) {
        let proxy = self.way.as_ref().map(|way| way.0.proxy);
        self.log(core, log::Event::Connected { proxy });
        self.greet_or_ask(core, implicit);
    }

    /// The address of this machine's that its connections are on.
    fn local(&self) -> SocketAddr {
        self.way.as_ref().map_or(self.session.local(), |way| way.1)
    }

    /// Another thread has something for it.
    pub fn told(&mut self, core: &mut Core, message: Message) {
        match message {
            Message::Answer(serial, answer) => self.answered(core, serial, answer),
            Message::Login(serial, decision) => self.login_decided(core, serial, decision),
            Message::Reviewed(reviewed) => self.reviewed(core, *reviewed),
            Message::Job(done) => self.job_done(core, done),
            Message::Port(lease) => self.port_granted(core, lease),
            Message::Ruled(serial, ruling) => self.ruled(core, serial, ruling),
            Message::Wake => self.continue_transfer(core),
        }
    }

    /// The reactor says something of the control socket.
    pub fn control_event(&mut self, core: &mut Core, event: &Event) {
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
    pub fn settle(&mut self, core: &mut Core) -> bool {
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

    /// Gives the session an input and does what it wants, for as long as that yields the next input.
    fn feed(&mut self, core: &mut Core, input: Input<'_>) {
        let about = About::of(&input);
        self.feed_about(core, input, about);
    }

    /// The same where it is known which line an answer is about.
    fn feed_about(&mut self, core: &mut Core, input: Input<'_>, about: About<'_>) {
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
                let companion = self.companion();
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
                self.give_time_to_leave(core);
                None
            }
        }
    }

    fn log(&self, core: &mut Core, event: log::Event<'_>) {
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
        assert!(size_of::<Connection>() <= 784, "{}", size_of::<Connection>());
    }
}
