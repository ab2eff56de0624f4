//! A reactor: one thread with its own epoll, its own listeners and its own connections.
//!
//! Connections never move between workers and share nothing on the way of a command, so there is no lock
//! to wait for. A turn of the loop first serves control connections and messages, then gives each
//! waiting transfer one share ([`crate::transfer::TURN`]), so that a `NOOP` is answered within a
//! millisecond or two however many downloads run.
//!
//! A panic in what is done for a connection ends that connection, and no other.

mod accepting;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use millrace_ftp::session::{Answer, Now};
use millrace_net::inbox::{Inbox, Sender};
use millrace_net::tls::{self, Wire};
use millrace_net::{inbox, timer::Wheel};
use millrace_vfs::Timestamp;
use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token};

use crate::auth::Decision;
use crate::client::Client;
use crate::ftp::{Connection, Reviewed};
use crate::handshakes::Handshakes;
use crate::hooks::Ruling;
use crate::http;
use crate::log::{self, Subject};
use crate::passive::Lease;
use crate::slab::{Key, Slab};
use crate::state::Server;
use crate::transfer::{JobDone, Leaving, Socket};
use crate::web::InForce;

/// How long running transfers may keep the loop from looking at control connections.
const TRANSFER_SHARE: Duration = Duration::from_millis(2);

/// How soon accepting is tried again when descriptors ran out.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The read buffer that all of a worker's control connections share.
const CONTROL_BUFFER: usize = 16 * 1024;

/// The buffer that all of its transfers share: see [`crate::transfer`] for what is read into it.
const SCRATCH: usize = 64 * 1024;

const INBOX: Token = Token(usize::MAX);
const KIND: usize = 0b11;
const CONTROL: usize = 0;
const DATA: usize = 1;
const LISTENER: usize = 2;
/// What a program reads from; of FTP, a connection that a proxy has yet to say whose it is.
const PROGRAM: usize = 3;

/// What all programs of a worker write errors to.
const ERRORS: Token = Token(usize::MAX - 1);

/// A socket that clients come to.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) door: Door,
    pub(crate) address: SocketAddr,
    pub(crate) socket: OwnedFd,
}

/// What is spoken at a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    Ftp,
    /// FTP that begins with TLS.
    Ftps,
    Http,
    /// HTTP in TLS.
    Https,
}

/// What other threads tell a worker.
#[derive(Debug)]
pub(crate) enum Message {
    /// The answer to a session's question, with the question's serial number.
    Answer(Key, u64, Answer),
    /// A login was decided.
    Login(Key, u64, Decision),
    /// The account of somebody who is logged in was looked at again.
    Reviewed(Key, Box<Reviewed>),
    /// A transfer's job is done.
    Job(Key, JobDone),
    /// The passive port that a session waited for.
    Port(Key, Lease),
    /// A hook has answered, with the serial number of what it was asked.
    Ruled(Key, u64, Ruling),
    /// A session's data connection was accepted by another session.
    Wake(Key),
    /// Do this with every connection that is of note.
    Each(Errand),
    /// What HTTP adds to files is this from now on.
    Web(Arc<InForce>),
    /// Another connection's requests, as a connection of HTTP/1.1.
    Adopt(Box<http::Adopted>),
    /// Something for a connection of HTTP.
    Http(Key, http::Message),
    /// Accept nobody more; what has not ended by then is ended.
    ShutDown(Instant),
    /// End at once.
    Stop,
}

/// Something to be done with connections; everything that came of it is there when the last copy is dropped.
#[derive(Clone)]
pub(crate) struct Errand(Arc<Work>);

type Work = dyn Fn(&mut Client, &mut Core) + Send + Sync;

impl Errand {
    pub(crate) fn new(work: impl Fn(&mut Client, &mut Core) + Send + Sync + 'static) -> Self {
        Self(Arc::new(work))
    }
}

impl std::fmt::Debug for Errand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Errand")
    }
}

/// What a connection needs of its worker.
pub(crate) struct Core {
    pub(crate) registry: Registry,
    pub(crate) server: Arc<Server>,
    pub(crate) sender: Sender<Message>,
    pub(crate) now: Now,
    /// Replies of the connection that is being served, until they are sent together.
    pub(crate) out: Vec<u8>,
    pub(crate) control_buffer: Vec<u8>,
    pub(crate) scratch: Vec<u8>,
    /// Decrypted bytes of the control connection that is being served.
    pub(crate) plain: Vec<u8>,
    /// Encrypted bytes of the same, on their way out.
    pub(crate) wire: Wire,
    pub(crate) handshakes: Handshakes,
    /// Transfers whose share was used up.
    pub(crate) yielded: VecDeque<Key>,
    pub(crate) wheel: Wheel<Key>,
    /// Data connections of nobody any more.
    leaving: Leaving,
    /// The server is closing: nobody who has nothing more to say is waited for.
    pub(crate) ending: bool,
    /// Counts the turns of the loop, and moments that are as good as another turn: see [`http::Shared`].
    pub(crate) turn: u64,
    /// What connections of HTTP share.
    pub(crate) http: http::Shared,
    serial: u64,
    lines: log::Lines,
}

impl Core {
    /// A number that no other question or transfer of this worker has.
    pub(crate) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Has the turn go on as if it had begun now: something was seen that is newer.
    pub(crate) fn look_at_clock(&mut self) {
        self.now = clock();
    }

    /// Writes an event to the log.
    pub(crate) fn log(&mut self, subject: &Subject<'_>, event: log::Event<'_>) {
        self.server.log.record(&mut self.lines, self.now.wall, subject, event);
    }

    /// Writes a request of HTTP to the log.
    pub(crate) fn log_request(&mut self, subject: &Subject<'_>, request: &log::Request<'_>) {
        self.server.log.request(&mut self.lines, self.now.wall, subject, request);
    }

    /// Writes a transfer to the transfer log.
    pub(crate) fn log_transfer(&mut self, subject: &Subject<'_>, transfer: &log::Transferred<'_>) {
        self.server.log.transfer(&mut self.lines, self.now.wall, subject, transfer);
    }

    /// Puts back what a panic may have taken along: buffers that were lent, and what was to be sent to whom it befell.
    fn recover(&mut self) {
        self.out.clear();
        self.plain.clear();
        self.wire = Wire::default();
        self.control_buffer.resize(CONTROL_BUFFER, 0);
        self.scratch.resize(scratch_size(&self.server), 0);
        self.server.log.warn("a connection was ended because of a mistake in this program; please report it");
    }

    /// Makes the reactor tell of a connection of HTTP.
    pub(crate) fn watch_http(&self, key: Key, socket: &OwnedFd) -> io::Result<()> {
        self.registry.register(&mut SourceFd(&socket.as_raw_fd()), token(key, CONTROL), Interest::READABLE)
    }

    /// Makes the reactor tell when a connection of HTTP takes bytes again, as well.
    pub(crate) fn watch_http_writable(&self, key: Key, socket: &OwnedFd, known: bool) -> io::Result<()> {
        let (raw, interest) = (socket.as_raw_fd(), Interest::READABLE | Interest::WRITABLE);
        match known {
            true => self.registry.reregister(&mut SourceFd(&raw), token(key, CONTROL), interest),
            false => self.registry.register(&mut SourceFd(&raw), token(key, CONTROL), interest),
        }
    }

    /// Makes the reactor tell when a program of a connection of HTTP has said something, or its end.
    pub(crate) fn watch_program_output(&self, key: Key, pipe: &File) -> io::Result<()> {
        self.registry.register(&mut SourceFd(&pipe.as_raw_fd()), token(key, DATA), Interest::READABLE)
    }

    /// Makes the reactor tell when a program takes bytes.
    pub(crate) fn watch_program_input(&self, key: Key, pipe: &File) -> io::Result<()> {
        self.registry.register(&mut SourceFd(&pipe.as_raw_fd()), token(key, PROGRAM), Interest::WRITABLE)
    }

    /// Makes the reactor tell of a control connection.
    pub(crate) fn watch_control(&self, key: Key, socket: &OwnedFd) -> io::Result<()> {
        // Urgent data is told of by itself, because a read stops short of it.
        let interest = Interest::READABLE | Interest::PRIORITY;
        self.registry.register(&mut SourceFd(&socket.as_raw_fd()), token(key, CONTROL), interest)
    }

    /// Makes the reactor tell when a control connection takes bytes again, as well.
    pub(crate) fn watch_control_writable(&self, key: Key, socket: &OwnedFd) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::PRIORITY | Interest::WRITABLE;
        self.registry.reregister(&mut SourceFd(&socket.as_raw_fd()), token(key, CONTROL), interest)
    }

    /// Makes the reactor tell of a data connection, or of the listener that it will come to.
    pub(crate) fn watch_data(&self, key: Key, socket: &OwnedFd, interest: Interest) -> io::Result<()> {
        self.registry.register(&mut SourceFd(&socket.as_raw_fd()), token(key, DATA), interest)
    }

    /// Makes the reactor tell when something comes on a connection to a passive port that has no name yet.
    pub(crate) fn watch_unnamed(&self, key: Key, socket: &OwnedFd) -> io::Result<()> {
        self.registry.register(&mut SourceFd(&socket.as_raw_fd()), token(key, PROGRAM), Interest::READABLE)
    }

    /// All of a download was sent on this data connection: it ends with its client.
    pub(crate) fn see_off(&mut self, socket: Socket) {
        if socket.registered {
            self.forget(&socket.fd);
        }
        socket.leave(&mut self.leaving, self.now.instant);
    }

    /// Makes the reactor forget a descriptor that stays open elsewhere.
    pub(crate) fn forget(&self, socket: &OwnedFd) {
        let _ = self.registry.deregister(&mut SourceFd(&socket.as_raw_fd()));
    }

    /// Ends programs whose time is over, and lets others begin.
    fn look_after_programs(&mut self) {
        let overdue = self.http.programs.look(self.now.instant);
        if !overdue.is_empty() {
            self.discard(overdue);
        }
        let Self { http, yielded, now, .. } = self;
        http.programs.admit(now.instant, yielded);
        http.passing.iter_mut().for_each(|passing| passing.look(now.instant, yielded));
    }

    /// Drops something whose end may wait for a disk (an upload that is given up, a file on a file system that
    /// may hang: its `close` asks the file system, too) where waiting is allowed.
    pub(crate) fn discard(&self, thing: impl Send + 'static) {
        self.server.pool.run(move || drop(thing));
    }
}

/// A reactor thread's state.
pub(crate) struct Worker {
    poll: Poll,
    core: Core,
    inbox: Inbox<Message>,
    listeners: Vec<Listener>,
    /// Listeners that may have more to accept.
    accepting: Vec<usize>,
    connections: Slab<Client>,
    /// Given up to tell a client 421 when descriptors have run out.
    spare: Option<File>,
    /// When a shutdown ends whatever still runs.
    stopping: Option<Instant>,
}

impl Worker {
    /// A worker with its listeners, and the way to send it messages.
    pub(crate) fn new(server: Arc<Server>, listeners: Vec<Listener>) -> io::Result<(Self, Sender<Message>)> {
        let poll = Poll::new()?;
        let (sender, inbox) = inbox::inbox(poll.registry(), INBOX)?;
        for (index, listener) in listeners.iter().enumerate() {
            let token = Token(index << 2 | LISTENER);
            poll.registry().register(
                &mut SourceFd(&listener.socket.as_raw_fd()),
                token,
                Interest::READABLE,
            )?;
        }
        let now = clock();
        let open_files = (server.descriptor_reserve / 4).min(512) as usize;
        let programs = server.config.programs.most.div_ceil(server.config.workers.max(1)).max(1);
        let core = Core {
            registry: poll.registry().try_clone()?,
            http: http::Shared::new(open_files, programs, &server.config, server.web()),
            scratch: vec![0; scratch_size(&server)],
            server,
            sender: sender.clone(),
            now,
            out: Vec::with_capacity(CONTROL_BUFFER),
            control_buffer: vec![0; CONTROL_BUFFER],
            plain: Vec::new(),
            wire: Wire::default(),
            handshakes: Handshakes::default(),
            yielded: VecDeque::new(),
            wheel: Wheel::new(now.instant),
            leaving: Leaving::new(open_files / 2),
            ending: false,
            turn: 0,
            serial: 0,
            lines: log::Lines::default(),
        };
        let worker = Self {
            poll,
            core,
            inbox,
            listeners,
            accepting: Vec::new(),
            connections: Slab::default(),
            spare: File::open("/dev/null").ok(),
            stopping: None,
        };
        Ok((worker, sender))
    }

    /// Serves until told to stop.
    pub(crate) fn run(mut self) {
        let mut events = Events::with_capacity(1024);
        let mut messages = Vec::new();
        let mut due = Vec::new();
        loop {
            match self.poll.poll(&mut events, self.timeout()) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    // An epoll that fails cannot be served by; the other workers go on.
                    return;
                }
                _ => {}
            }
            self.core.now = clock();
            self.core.turn += 1;
            for key in self.core.handshakes.begin_turn() {
                self.serve_any(key, Client::shake_hands);
            }
            for event in &events {
                self.dispatch(event);
            }
            self.inbox.take(&mut messages);
            for message in messages.drain(..) {
                if matches!(message, Message::Stop) {
                    return self.end();
                }
                self.receive(message);
            }
            self.accept();
            self.core.wheel.expire(self.core.now.instant, &mut due);
            for key in due.drain(..) {
                self.serve_any(key, Client::look_at_clock);
            }
            self.run_transfers();
            self.core.leaving.look(self.core.now.instant, &mut self.core.scratch);
            self.core.http.cache.sweep(self.core.now.instant);
            self.core.look_after_programs();
            self.core.server.log.flush(&mut self.core.lines);
            if let Some(end) = self.stopping
                && (self.connections.is_empty() || self.core.now.instant >= end)
            {
                return self.end();
            }
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let retry = match (self.accepting.is_empty(), &self.spare) {
            (true, _) => None,
            // Not even one descriptor to tell somebody so: there is no use in asking at once.
            (false, None) => Some(ACCEPT_RETRY),
            (false, Some(_)) => Some(Duration::ZERO),
        };
        if !self.core.yielded.is_empty() || self.core.handshakes.is_waiting() {
            return Some(Duration::ZERO);
        }
        let sweep = self.core.http.cache.sweep_due().into_iter().chain(self.core.http.programs.due());
        let sweep = sweep.chain(self.core.http.passing.iter().filter_map(http::Passing::due));
        let sweep = sweep.chain(self.core.leaving.due());
        let next = self.core.wheel.next_due().into_iter().chain(self.stopping).chain(sweep).min();
        let next = next.map(|moment| moment.saturating_duration_since(Instant::now()));
        retry.into_iter().chain(next).min()
    }

    fn dispatch(&mut self, event: &Event) {
        let Token(token) = event.token();
        if event.token() == INBOX {
            return;
        }
        if event.token() == ERRORS {
            return self.programs_said();
        }
        match token & KIND {
            LISTENER => {
                let index = token >> 2;
                if !self.accepting.contains(&index) {
                    self.accepting.push(index);
                }
            }
            CONTROL => self.serve_any(key(token), |client, core| client.event(core, event)),
            DATA => self.serve_any(key(token), |client, core| client.side_event(core, event)),
            PROGRAM => self.serve_any(key(token), Client::go_on),
            _ => {}
        }
    }

    fn programs_said(&mut self) {
        loop {
            let (lines, more) = self.core.http.programs.said(&mut self.core.scratch);
            let peer = SocketAddr::from(([0, 0, 0, 0], 0));
            for line in lines {
                self.core
                    .log(&Subject { session: 0, peer, user: None }, log::Event::ProgramSaid { text: &line });
            }
            if !more {
                return;
            }
        }
    }

    fn receive(&mut self, message: Message) {
        if let Message::Answer(key, ..) | Message::Job(key, _) | Message::Http(key, _) = &message
            && self.connections.get_mut(*key).is_none()
        {
            // Meant for a connection that is gone; a file that it brings may hang when it is closed.
            return self.core.discard(message);
        }
        match message {
            Message::Answer(key, serial, answer) => {
                self.serve(key, |connection, core| connection.answered(core, serial, answer));
            }
            Message::Login(key, serial, decision) => {
                self.serve(key, |connection, core| connection.login_decided(core, serial, decision));
            }
            Message::Reviewed(key, reviewed) => {
                self.serve(key, |connection, core| connection.reviewed(core, *reviewed));
            }
            Message::Job(key, done) => self.serve(key, |connection, core| connection.job_done(core, done)),
            Message::Port(key, lease) => {
                self.serve(key, |connection, core| connection.port_granted(core, lease))
            }
            Message::Ruled(key, serial, ruling) => {
                self.serve(key, |connection, core| connection.ruled(core, serial, ruling));
            }
            Message::Wake(key) => self.serve(key, Connection::woken),
            Message::Each(Errand(work)) => {
                for key in self.connections.keys() {
                    if self.connections.get_mut(key).is_some_and(|client| client.is_of_note()) {
                        self.serve_any(key, |client, core| work(client, core));
                    }
                }
            }
            Message::Http(key, message) => self.serve_any(key, |client, core| {
                if let Client::Http(connection) = client {
                    connection.told(core, message);
                }
            }),
            Message::Web(web) => self.core.http.replace_web(web),
            Message::Adopt(adopted) => self.adopt(*adopted),
            Message::ShutDown(end) => self.shut_down(end),
            Message::Stop => {}
        }
    }

    /// Lets a control connection do something; see [`Worker::serve_any`].
    fn serve(&mut self, key: Key, work: impl FnOnce(&mut Connection, &mut Core)) {
        self.serve_any(key, |client, core| {
            if let Client::Ftp(connection) = client {
                work(connection, core);
            }
        });
    }

    /// Lets a connection do something, then sends what it has to say and closes it if it has ended.
    fn serve_any(&mut self, key: Key, work: impl FnOnce(&mut Client, &mut Core)) {
        // Gone already: what was meant for it, a lease perhaps, is dropped with `work`.
        let Some(client) = self.connections.get_mut(key) else { return };
        let core = &mut self.core;
        let goes_on = catch_unwind(AssertUnwindSafe(|| {
            work(client, core);
            client.settle(core)
        }));
        match goes_on {
            Ok(true) => return,
            Ok(false) => {}
            Err(_) => return self.lose(key),
        }
        match self.connections.remove(key) {
            Some(Client::Arriving(arrival)) => {
                let arrived = arrival.into_arrived(&self.core);
                self.arrived(arrived);
            }
            Some(client) => {
                let core = &mut self.core;
                if catch_unwind(AssertUnwindSafe(|| client.close(core))).is_err() {
                    self.core.recover();
                }
            }
            None => {}
        }
    }

    /// A mistake of ours has left a connection in the middle of something: it ends, and costs nobody else anything.
    fn lose(&mut self, key: Key) {
        self.core.recover();
        if let Some(client) = self.connections.remove(key) {
            client.reset();
            self.core.discard(client);
        }
    }

    /// Gives transfers that used up their share another, for a while.
    fn run_transfers(&mut self) {
        let mut left = self.core.yielded.len();
        // What they read now may have come after an answer of this turn.
        self.core.turn += u64::from(left > 0);
        let begin = Instant::now();
        while left > 0 {
            left -= 1;
            if let Some(key) = self.core.yielded.pop_front() {
                self.serve_any(key, Client::continue_transfer);
            }
            if begin.elapsed() > TRANSFER_SHARE {
                break;
            }
        }
    }

    fn shut_down(&mut self, end: Instant) {
        self.stopping = Some(end);
        self.core.ending = true;
        for listener in self.listeners.drain(..) {
            self.core.forget(&listener.socket);
        }
        for key in self.connections.keys() {
            self.serve_any(key, Client::shut_down);
        }
    }

    /// Ends what is left: transfers get their 426, everybody 421.
    fn end(mut self) {
        self.core.ending = true;
        for key in self.connections.keys() {
            self.serve_any(key, Client::end_now);
        }
        for key in self.connections.keys() {
            if let Some(client) = self.connections.remove(key) {
                client.close(&mut self.core);
            }
        }
        self.core.server.log.flush(&mut self.core.lines);
    }
}

/// Makes a reactor tell when programs have written errors.
pub(crate) fn watch_errors(registry: &Registry, pipe: &File) -> io::Result<()> {
    registry.register(&mut SourceFd(&pipe.as_raw_fd()), ERRORS, Interest::READABLE)
}

/// TLS wants room for the longest handshake message.
fn scratch_size(server: &Server) -> usize {
    if server.tls.is_some() { tls::BUFFER } else { SCRATCH }
}

fn token(key: Key, kind: usize) -> Token {
    Token((key.generation as usize) << 32 | (key.index as usize) << 2 | kind)
}

fn key(token: usize) -> Key {
    Key { index: (token as u32) >> 2, generation: (token >> 32) as u32 }
}

fn clock() -> Now {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Now {
        instant: Instant::now(),
        wall: Timestamp { seconds: wall.as_secs() as i64, nanoseconds: wall.subsec_nanos() },
    }
}
