//! A control connection: feeds lines to its [`Session`], performs what the session asks for.
//!
//! The loop is [`Connection::feed`]: give the session an input, write its replies, perform its act; where
//! that yields the next input at once (a cached answer, a transfer that was done in one go), go round again.
//! What cannot be answered now comes back as a message or an event and enters the same loop.
//!
//! Replies are collected and sent together when the connection has no more to do for now, or before it
//! waits. A client that does not take its replies is not read from, so it costs one buffer.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use millrace_ftp::Session;
use millrace_ftp::line::{Event as LineEvent, LineReader};
use millrace_ftp::session::{
    Act, Answer, Credentials, Grant, Input, Outcome, Request, TransferError, Verdict,
};
use millrace_net::stream;
use millrace_vfs::FileError;
use mio::event::Event;

use super::act::{self, Changed, ListLimits};
use super::hooking::Hooked;
use super::secure::Secure;
use crate::auth::{Account, Attempt, Decision, Protocol};
use crate::limits::{AccountLimits, Limit, Limits, Member, Refused, Scope};
use crate::log::{self, Subject};
use crate::passive::Lease;
use crate::running::{SessionReport, TransferReport};
use crate::slab::Key;
use crate::transfer::{Link, Running, Shared};
use crate::worker::{Core, Message};

/// Replies that are collected before they are sent in any case.
const OUT: usize = 16 * 1024;

/// How long the last replies may take to be read by a client that is being closed.
const FAREWELL: Duration = Duration::from_secs(5);

/// Reads of a client that goes on sending to a session that has ended, until it is cut.
const DRAIN: usize = 64;

/// How long an aborted transfer or question waits for the job that has its file, before it is answered all
/// the same.
pub(super) const JOB_GRACE: Duration = Duration::from_secs(2);

/// How long the question of a client that has hung up is waited for: what it asked for last is still done.
const LEFT_GRACE: Duration = Duration::from_secs(10);

/// One client. Everything that only some moments need is behind an `Option` or an empty `Vec`, so that
/// an idle one is small.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) key: Key,
    pub(super) socket: OwnedFd,
    pub(super) number: u64,
    pub(super) session: Session,
    pub(super) account: Option<Account>,
    /// Its part in the tree of limits.
    pub(super) member: Member,
    /// What there is of TLS, once it has begun.
    pub(super) secure: Option<Box<Secure>>,
    /// What `HOST` said.
    pub(super) host: Option<Box<str>>,
    /// Its part in the hooks, where there are any.
    pub(super) hooked: Option<Box<Hooked>>,
    reader: LineReader,
    /// A line that the session does not take yet.
    held: Option<Held>,
    /// What came behind the held line.
    pending: Vec<u8>,
    /// Replies that the client has not taken.
    pub(super) output: Vec<u8>,
    pub(super) state: State,
    /// The leased passive port.
    pub(super) lease: Option<Box<Lease>>,
    pub(super) running: Option<Box<Running>>,
    /// The question that the blocking pool answers.
    question: Option<Box<Question>>,
    /// Until when the session waits for a passive port.
    pub(super) port_deadline: Option<Instant>,
    /// When the wheel will have this connection looked at.
    look_at: Option<Instant>,
}

#[derive(Debug)]
enum Held {
    Line(Vec<u8>),
    TooLong,
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
}

#[derive(Debug)]
struct Question {
    serial: u64,
    shared: Arc<Shared>,
    asked: Instant,
    /// When the client, which said `ABOR`, is told that it is cancelled, whether or not the pool has answered.
    give_up: Option<Instant>,
    /// Who wants to log in; empty for other questions.
    user: Vec<u8>,
    /// What the log and the hooks are to be told where it is done.
    change: Option<Changed>,
}

impl Connection {
    pub(crate) fn new(
        key: Key,
        socket: OwnedFd,
        peer: SocketAddr,
        local: SocketAddr,
        member: Member,
        core: &mut Core,
    ) -> Self {
        let session = Session::new(Arc::clone(&core.server.settings), peer, local, core.now);
        let broken = core.watch_control(key, &socket).is_err();
        Self {
            key,
            socket,
            number: core.server.next_session.fetch_add(1, Ordering::Relaxed),
            session,
            account: None,
            member,
            secure: None,
            host: None,
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
        self.log(core, log::Event::Connected);
        self.greet_or_ask(core, implicit);
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

    /// The pool has answered a question.
    pub(crate) fn answered(&mut self, core: &mut Core, serial: u64, answer: Answer) {
        match self.question.take_if(|question| question.serial == serial) {
            Some(question) => {
                if let Some(changed) = &question.change {
                    if let Answer::Done | Answer::Count(_) = &answer {
                        let event = log::Event::Changed { verb: changed.verb, path: &changed.path };
                        self.log(core, event);
                    }
                    self.note_answer(core, changed, &answer);
                }
                self.feed(core, Input::Answer(answer));
            }
            None => core.discard(answer),
        }
    }

    /// The accounts have decided.
    pub(crate) fn login_decided(&mut self, core: &mut Core, serial: u64, decision: Decision) {
        if let Some(question) = self.question.take_if(|question| question.serial == serial)
            && let Some(verdict) = self.verdict(core, &question.user, decision)
        {
            self.feed(core, Input::Answer(Answer::Login(verdict)));
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

    /// Takes lines for as long as the session takes them and the client takes the replies.
    fn read_on(&mut self, core: &mut Core) {
        let is_open = |state: &State| state.closing.is_none() && !state.broken;
        while is_open(&self.state) && self.output.is_empty() && !self.awaits_hook() {
            if let Some(held) = self.held.take_if(|held| match held {
                Held::Line(line) => self.session.takes(line),
                Held::TooLong => self.session.takes(b""),
            }) {
                match held {
                    Held::Line(line) => self.line(core, &line),
                    Held::TooLong => self.feed(core, Input::LineTooLong),
                }
            } else if self.is_changing() && (self.held.is_some() || !self.pending.is_empty()) {
                return self.refuse_injection(core);
            } else if self.held.is_some() {
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
        while let Some(event) = self.reader.next(&mut rest) {
            match event {
                LineEvent::Line(line) if self.session.takes(&line) => self.line(core, &line),
                LineEvent::Line(line) => self.held = Some(Held::Line(line.into_owned())),
                LineEvent::TooLong if self.session.takes(b"") => self.feed(core, Input::LineTooLong),
                LineEvent::TooLong => self.held = Some(Held::TooLong),
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

    /// Gives the session an input and does what it wants, for as long as that yields the next input.
    pub(super) fn feed(&mut self, core: &mut Core, input: Input<'_>) {
        let mut next = self.step(core, input);
        while let Some(input) = next {
            next = self.step(core, input);
        }
    }

    fn step(&mut self, core: &mut Core, input: Input<'_>) -> Option<Input<'static>> {
        let step = self.session.handle(core.now, input);
        step.replies.write(&mut core.out);
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
            Act::Abort => {
                let outcome = self.abort(core, TransferError::Aborted)?;
                self.transfer_over(core, outcome).map(Input::TransferEnded)
            }
            Act::DropPassive => {
                self.lease = None;
                None
            }
            Act::LogOut => {
                self.note_logout(core);
                self.account = None;
                self.member.log_out();
                self.lease = None;
                None
            }
            Act::StartTls => {
                // The 234, in clear.
                self.send(core);
                self.note_logout(core);
                self.account = None;
                self.member.log_out();
                self.lease = None;
                self.begin_tls(core, false);
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

    fn ask(&mut self, core: &mut Core, request: Request) -> Option<Answer> {
        match request {
            Request::LogIn(credentials) => return self.log_in(core, credentials),
            Request::Listen => return self.listen(core),
            Request::LimitBandwidth { write, read } => {
                return Some(self.limit_bandwidth(core, Some((write, read))));
            }
            Request::RestoreBandwidth => return Some(self.limit_bandwidth(core, None)),
            Request::ShutDown(password) => return self.ask_shutdown(core, password),
            Request::Host(name) => {
                return Some(match self.serves_host(core, name) {
                    true => Answer::Done,
                    false => Answer::Failed(FileError::NotFound),
                });
            }
            Request::Progress => return Some(Answer::Progress(self.progress(core.now.instant))),
            Request::Who => {
                let text =
                    format!(" {} session(s) on this server.", core.server.sessions.load(Ordering::Relaxed));
                return Some(Answer::Lines(vec![text.into_bytes()]));
            }
            _ => {}
        }
        let Some(account) = &self.account else { return Some(Answer::Failed(FileError::PermissionDenied)) };
        let request = match act::answer_now(&*account.storage, request) {
            Ok(answer) => return Some(answer),
            Err(request) => request,
        };
        let storage = Arc::clone(&account.storage);
        let limits = ListLimits { sort_entries: core.server.config.sort_entries };
        let (key, sender, serial, shared) = self.question(core);
        if let Some(question) = &mut self.question {
            question.change = act::change(&request);
        }
        core.server.pool.run(move || {
            let mut reply = Promise { sender, message: Some(Message::Answer(key, serial, internal_error())) };
            reply.message =
                Some(Message::Answer(key, serial, act::answer(&storage, request, limits, &shared)));
        });
        None
    }

    /// Opens a question for the pool.
    fn question(&mut self, core: &mut Core) -> (Key, millrace_net::inbox::Sender<Message>, u64, Arc<Shared>) {
        let serial = core.next_serial();
        let shared = Arc::new(Shared::default());
        let asked = core.now.instant;
        self.question = Some(Box::new(Question {
            serial,
            shared: Arc::clone(&shared),
            asked,
            give_up: None,
            user: Vec::new(),
            change: None,
        }));
        (self.key, core.sender.clone(), serial, shared)
    }

    fn log_in(&mut self, core: &mut Core, credentials: Credentials) -> Option<Answer> {
        if let Some(verdict) = self.turned_away(core, &credentials.user) {
            return Some(Answer::Login(verdict));
        }
        let accounts = core.server.accounts();
        let from = self.session.peer().ip();
        let encrypted = self.session.is_encrypted();
        let asked = attempt(&credentials, from, encrypted);
        if let Some(decision) = accounts.quick(&asked) {
            return self.verdict(core, &credentials.user, decision).map(Answer::Login);
        }
        let (key, sender, serial, _) = self.question(core);
        if let Some(question) = &mut self.question {
            question.user.clone_from(&credentials.user);
        }
        core.server.logins.run(move || {
            let unavailable = Decision::Unavailable("The accounts are out of order.".to_owned());
            let mut reply = Promise { sender, message: Some(Message::Login(key, serial, unavailable)) };
            let decision = accounts.authenticate(&attempt(&credentials, from, encrypted));
            reply.message = Some(Message::Login(key, serial, decision));
        });
        None
    }

    /// Keeps the account of a login that succeeded, and says what the session has to know of it.
    pub(super) fn admit(&mut self, core: &mut Core, user: &[u8], account: Account) -> Verdict {
        if let Err(refused) = self.enter(core, user, &account) {
            return Verdict::Unavailable(refused.for_the_client().to_owned());
        }
        core.server.bans.succeeded(self.session.peer().ip(), user, core.now.instant);
        let grant = grant(&account);
        self.account = Some(account);
        // The session learns of it only now.
        let subject = Subject { session: self.number, peer: self.session.peer(), user: Some(user) };
        core.log(&subject, log::Event::LoggedIn);
        self.note_login(user);
        Verdict::Granted(grant)
    }

    /// What the session has to know of a decision; nothing yet where a hook is asked first.
    fn verdict(&mut self, core: &mut Core, user: &[u8], decision: Decision) -> Option<Verdict> {
        Some(match decision {
            Decision::Granted(account) if self.asks_about_login(core, user, &account) => return None,
            Decision::Granted(account) => self.admit(core, user, account),
            Decision::NeedsCode => Verdict::NeedsCode,
            Decision::Denied => {
                self.log(core, log::Event::LoginFailed { user });
                self.count_failure(core, user);
                Verdict::Denied
            }
            Decision::Refused(reason) => {
                self.log(core, log::Event::LoginRefused { user, reason: &reason });
                Verdict::Denied
            }
            Decision::Unavailable(reason) => {
                self.log(core, log::Event::LoginRefused { user, reason: &reason });
                Verdict::Unavailable("Nobody can be let in at the moment; try again later.".to_owned())
            }
        })
    }

    /// A wrong password, or a name that is not there: the address is held to it, on other connections too.
    fn count_failure(&mut self, core: &mut Core, user: &[u8]) {
        let failed = core.server.bans.failed(self.session.peer().ip(), user, core.now.instant);
        self.session.has_failed_before(failed.count.saturating_sub(1));
        if failed.user_banned {
            self.log(core, log::Event::Banned { user: Some(user) });
            self.note_ban(core, Some(user));
        }
        if failed.address_banned {
            self.log(core, log::Event::Banned { user: None });
            self.note_ban(core, None);
        }
    }

    /// What is decided without asking the accounts.
    fn turned_away(&mut self, core: &mut Core, user: &[u8]) -> Option<Verdict> {
        let most = core.server.config.cpu_limit;
        if most > 0 && core.server.load.percent() > most {
            self.log(core, log::Event::Limited { limit: "cpu-limit", value: most.into() });
            return Some(Verdict::Unavailable("The server is too busy; try again later.".to_owned()));
        }
        if core.server.bans.is_banned(self.session.peer().ip(), user, core.now.instant) {
            self.log(core, log::Event::LoginRefused { user, reason: "banned at this address for a while" });
            return Some(Verdict::Denied);
        }
        None
    }

    /// Takes its place among its user's and groups' sessions, if there is one.
    fn enter(&mut self, core: &mut Core, user: &[u8], account: &Account) -> Result<(), Refused> {
        let nothing = AccountLimits::default();
        let limits = account.limits.as_deref().unwrap_or(&nothing);
        let server = Arc::clone(&core.server);
        server.limits.log_in(&mut self.member, user, limits, core.now.instant).inspect_err(|refused| {
            let subject = Subject { session: self.number, peer: self.session.peer(), user: Some(user) };
            core.log(&subject, log::Event::Limited { limit: &refused.key(), value: refused.value });
        })
    }

    /// Sets the limits of this session, if it has this number; answers whether it has.
    pub(crate) fn set_limits(&mut self, core: &mut Core, number: u64, limits: &Limits) -> bool {
        if self.number == number {
            core.server.limits.limit_member(&mut self.member, number, limits, core.now.instant);
        }
        self.number == number
    }

    /// As an administrator sees it.
    pub(crate) fn report(&self, now: Instant) -> SessionReport {
        let transfer = self.running.as_deref().map(|running| {
            let progress = running.progress(now);
            TransferReport {
                kind: running.direction.word(),
                path: running.path.as_bytes().to_vec(),
                bytes: progress.bytes,
                total: progress.total,
                elapsed: progress.elapsed,
                held_back: running.pace.paused.is_some(),
            }
        });
        SessionReport {
            number: self.number,
            peer: self.session.peer(),
            local: self.session.local(),
            user: self.session.user().map(<[u8]>::to_vec),
            transfer,
        }
    }

    /// An administrator wants it gone.
    pub(crate) fn kick(&mut self, core: &mut Core) {
        self.log(core, log::Event::Kicked);
        self.feed(core, Input::Kicked);
    }

    /// `LIMITBANDWIDTH`: of the whole server, from clients and to them; `None` as configured.
    fn limit_bandwidth(&mut self, core: &mut Core, limits: Option<(u64, u64)>) -> Answer {
        let (tree, now) = (&core.server.limits, core.now.instant);
        match limits {
            None => tree.restore(&Scope::Server, now),
            Some((write, read)) => {
                let (upload, download) = (Some(Limit::of(write)), Some(Limit::of(read)));
                tree.set(&Scope::Server, &Limits { upload, download, sessions: None }, now)
            }
        };
        let text = match limits {
            None => "LIMITBANDWIDTH: as configured".to_owned(),
            Some((write, read)) => format!("LIMITBANDWIDTH: write {write}, read {read} bytes a second"),
        };
        self.log(core, log::Event::Warning { text: &text });
        Answer::Done
    }

    /// `INTERNALSHUTDOWN`: looks at the password where that may take its time, then stops the server.
    fn ask_shutdown(&mut self, core: &mut Core, password: Vec<u8>) -> Option<Answer> {
        if core.server.config.shutdown_password.is_none() {
            return Some(Answer::Count(0));
        }
        self.log(core, log::Event::Warning { text: "INTERNALSHUTDOWN was asked for" });
        let server = Arc::clone(&core.server);
        let (key, sender, serial, _) = self.question(core);
        core.server.logins.run(move || {
            let mut reply = Promise { sender, message: Some(Message::Answer(key, serial, internal_error())) };
            let right =
                server.config.shutdown_password.as_ref().is_some_and(|right| right.matches(&password));
            reply.message = Some(Message::Answer(key, serial, Answer::Count(u64::from(right))));
            drop(reply);
            if right {
                // Behind the answer: this session still hears its 221.
                server.begin_shutdown(server.config.grace);
            }
        });
        None
    }

    /// Accounts were changed, or time has passed: has the user's account looked at again, where it is one of
    /// those. Commands go on meanwhile.
    pub(crate) fn review(&mut self, core: &mut Core, concerned: impl Fn(&[u8], &Account) -> bool) {
        let (Some(user), Some(account)) = (self.session.user(), &self.account) else { return };
        if self.state.closing.is_some() || !concerned(user, account) {
            return;
        }
        let credentials = Credentials { user: user.to_vec(), password: Vec::new() };
        let from = self.session.peer().ip();
        let encrypted = self.session.is_encrypted();
        let accounts = core.server.accounts();
        let (key, sender) = (self.key, core.sender.clone());
        let effective = account.effective.clone();
        core.server.logins.run(move || {
            let attempt = attempt(&credentials, from, encrypted);
            // Where the accounts cannot tell, the clock still can.
            let by_clock = || effective?.admit(&attempt).err().map(Decision::Refused);
            if let Some(decision) = accounts.current(&attempt).or_else(by_clock) {
                let reviewed = Reviewed { user: credentials.user, decision };
                sender.send(Message::Reviewed(key, Box::new(reviewed)));
            }
        });
    }

    /// The user's account was looked at again.
    pub(crate) fn reviewed(&mut self, core: &mut Core, reviewed: Reviewed) {
        // Somebody else may have logged in meanwhile.
        if self.session.user() != Some(&reviewed.user) {
            return;
        }
        let reason = match reviewed.decision {
            Decision::Granted(account) => match self.enter(core, &reviewed.user, &account) {
                Ok(()) => {
                    let grant = grant(&account);
                    self.account = Some(account);
                    return self.feed(core, Input::Regranted(grant));
                }
                Err(refused) => refused.for_the_client().to_owned(),
            },
            // Who is in stays in while the accounts are out of reach.
            Decision::Unavailable(_) => return,
            Decision::Denied | Decision::NeedsCode => "the account is no longer there".to_owned(),
            Decision::Refused(reason) => reason,
        };
        self.log(core, log::Event::Expelled { reason: &reason });
        self.feed(core, Input::Expelled);
    }

    /// A new minute has begun.
    pub(crate) fn tick(&mut self, core: &mut Core) {
        core.server.limits.tick_member(&self.member, core.now.instant);
    }

    fn progress(&self, now: Instant) -> millrace_ftp::session::Progress {
        match (&self.running, &self.question) {
            (Some(running), _) => running.progress(now),
            (None, question) => millrace_ftp::session::Progress {
                bytes: question.as_ref().map_or(0, |question| question.shared.bytes()),
                total: None,
                elapsed: question
                    .as_ref()
                    .map_or(Duration::ZERO, |question| now.saturating_duration_since(question.asked)),
            },
        }
    }

    /// Cancels the long question, or ends the transfer; answers the outcome if that is known already.
    pub(super) fn abort(&mut self, core: &mut Core, error: TransferError) -> Option<Outcome> {
        if let Some(question) = &mut self.question {
            question.shared.cancelled.store(true, Ordering::Relaxed);
            question.give_up = Some(core.now.instant + JOB_GRACE);
            return None;
        }
        self.abort_transfer(core, error)
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
        let (question, lease) = (self.question_due(), self.lease_due());
        let closing = self.state.closing.filter(|_| !self.holds_replies());
        [self.session.deadline(), self.port_deadline, closing, transfer, question, lease]
            .into_iter()
            .flatten()
            .min()
    }

    /// When the open question, which may be put to a stuck disk, is not waited for any longer.
    fn question_due(&self) -> Option<Instant> {
        let question = self.question.as_ref()?;
        let left = self.state.hung_up.then(|| question.asked + LEFT_GRACE);
        question.give_up.into_iter().chain(left).min()
    }

    /// It is not.
    fn question_overdue(&mut self, core: &mut Core) {
        if self.state.hung_up {
            self.state.broken = true;
        } else if self.question.take().is_some() {
            self.feed(core, Input::Answer(Answer::Failed(FileError::Cancelled)));
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
        let is_due = |moment: Option<Instant>| moment.is_some_and(|moment| moment <= now);
        if is_due(self.state.closing) && !self.holds_replies() {
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
        (self.lease, self.port_deadline) = (None, None);
        let reason = match (&self.state, self.session.is_closed()) {
            (_, true) => "closed",
            (State { broken: true, .. }, _) => "connection lost",
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

/// What accounts say of somebody who is logged in.
#[derive(Debug)]
pub(crate) struct Reviewed {
    user: Vec<u8>,
    decision: Decision,
}

/// Sends its message when dropped: also when the job that was to fill it in panics.
pub(super) struct Promise {
    pub(super) sender: millrace_net::inbox::Sender<Message>,
    pub(super) message: Option<Message>,
}

impl Drop for Promise {
    fn drop(&mut self) {
        if let Some(message) = self.message.take() {
            self.sender.send(message);
        }
    }
}

/// What the session has to know of an account.
fn grant(account: &Account) -> Grant {
    Grant {
        permissions: account.permissions,
        rules: account.rules.clone(),
        home: account.home.clone(),
        encrypted_data: account.data.encrypted,
    }
}

/// A login as the accounts are asked about it.
fn attempt(credentials: &Credentials, from: IpAddr, encrypted: bool) -> Attempt<'_> {
    Attempt {
        user: &credentials.user,
        password: &credentials.password,
        from,
        protocol: Protocol::Ftp,
        encrypted,
        now: SystemTime::now(),
    }
}

fn internal_error() -> Answer {
    Answer::Failed(FileError::Io(io::Error::other("internal error")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thousand idle sessions are a megabyte at most: this, the allocator's share, a user's name.
    #[test]
    fn an_idle_connection_is_small() {
        assert!(size_of::<Connection>() <= 768, "{}", size_of::<Connection>());
    }
}
