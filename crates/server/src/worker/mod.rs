//! A reactor: one thread with its own epoll, its own listeners and its own connections.
//!
//! Connections never move between workers and share nothing on the way of a command, so there is no lock
//! to wait for. A turn of the loop first serves control connections and messages, then gives each
//! waiting transfer one share ([`crate::transfer::TURN`]), so that a `NOOP` is answered within a
//! millisecond or two however many downloads run.
//!
//! A panic in what is done for a connection ends that connection, and no other.

mod accepting;
mod core;
mod message;
mod token;

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_net::inbox::{self, Inbox, Sender};
use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token};
use serde::{Deserialize, Serialize};

pub(crate) use self::core::{Core, watch_errors};
pub(crate) use self::message::{Errand, Message, Promise};
use self::token::{CONTROL, DATA, ERRORS, INBOX, KIND, LISTENER, PROGRAM, key};
use crate::client::Client;
use crate::ftp::Connection;
use crate::log::{self, Subject};
use crate::slab::{Key, Slab};
use crate::state::Server;

/// How long running transfers may keep the loop from looking at control connections.
const TRANSFER_SHARE: Duration = Duration::from_millis(2);

/// How soon accepting is tried again when descriptors ran out.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// As good as without an end.
pub(crate) const AS_LONG_AS_IT_TAKES: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// How long a server that was relieved takes new streams of HTTP/2: who was accepted just before may still be in the
/// handshake, and would hear GOAWAY before the first request.
const SETTLING: Duration = Duration::from_secs(2);

/// A socket that clients come to.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) door: Door,
    pub(crate) address: SocketAddr,
    pub(crate) socket: OwnedFd,
}

impl Listener {
    fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone()?, ..*self })
    }
}

/// What is spoken at a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Door {
    Ftp,
    /// FTP that begins with TLS.
    Ftps,
    Http,
    /// HTTP in TLS.
    Https,
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
    /// When whoever has nothing under way is sent away, where another server accepts.
    retiring: Option<Instant>,
    /// Before that: when connections of HTTP/2 are told so. Until then there may be streams for this worker.
    settling: Option<Instant>,
    /// When a shutdown ends whatever still runs.
    stopping: Option<Instant>,
}

impl Worker {
    /// A worker with its listeners, and the way to send it messages.
    pub(crate) fn new(server: Arc<Server>, listeners: Vec<Listener>) -> io::Result<(Self, Sender<Message>)> {
        let poll = Poll::new()?;
        let (sender, inbox) = inbox::inbox(poll.registry(), INBOX)?;
        watch_listeners(poll.registry(), &listeners)?;
        let core = Core::new(poll.registry().try_clone()?, server, sender.clone());
        let worker = Self {
            poll,
            core,
            inbox,
            listeners,
            accepting: Vec::new(),
            connections: Slab::default(),
            spare: File::open("/dev/null").ok(),
            retiring: None,
            settling: None,
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
            self.core.begin_turn();
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
            self.core.end_turn();
            if self.settling.take_if(|end| self.core.now.instant >= *end).is_some() {
                self.core.server.side.begin_shutdown();
            }
            if self.retiring.take_if(|end| self.core.now.instant >= *end).is_some() {
                self.core.server.side.begin_shutdown();
                self.shut_down(self.core.now.instant + AS_LONG_AS_IT_TAKES);
            }
            if let Some(end) = self.stopping
                && (self.connections.is_empty() && self.settling.is_none() || self.core.now.instant >= end)
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
        let ends = self.stopping.into_iter().chain(self.retiring).chain(self.settling);
        let next = self.core.due().into_iter().chain(ends).min();
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
                let index = token::listener(token);
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
            Message::ShowListeners(answer) => {
                let _ = answer.send(self.listeners.iter().map(Listener::try_clone).collect());
            }
            Message::Accept(is_to, done) => {
                self.accept_again(is_to);
                let _ = done.send(());
            }
            Message::Retire(end) => self.retire(end),
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

    /// Accepts no longer, or again.
    fn accept_again(&mut self, is_to: bool) {
        self.accepting.clear();
        self.listeners.iter().for_each(|listener| self.core.forget(&listener.socket));
        if is_to && watch_listeners(self.poll.registry(), &self.listeners).is_err() {
            self.core.server.log.warn("nobody can be let in any more: the listeners cannot be watched");
        }
    }

    /// Another server accepts: whoever is here goes on for a while.
    fn retire(&mut self, end: Instant) {
        (self.retiring, self.stopping) = (Some(end), Some(end + AS_LONG_AS_IT_TAKES));
        self.settling = Some(self.core.now.instant + SETTLING);
        self.close_listeners();
        for key in self.connections.keys() {
            self.serve_any(key, |client, _| client.retire());
        }
    }

    fn close_listeners(&mut self) {
        self.accepting.clear();
        for listener in self.listeners.drain(..) {
            self.core.forget(&listener.socket);
        }
    }

    fn shut_down(&mut self, end: Instant) {
        (self.retiring, self.settling, self.stopping) = (None, None, Some(end));
        self.core.ending = true;
        self.close_listeners();
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
        self.core.hand_over_log();
    }
}

fn watch_listeners(registry: &Registry, listeners: &[Listener]) -> io::Result<()> {
    for (index, listener) in listeners.iter().enumerate() {
        let socket = listener.socket.as_raw_fd();
        registry.register(&mut SourceFd(&socket), token::of_listener(index), Interest::READABLE)?;
    }
    Ok(())
}
