//! A reactor: one thread with its own epoll, its own listeners and its own connections.
//!
//! Connections never move between workers, and a command takes no lock that they share unless it needs what they
//! share: a passive port, a place among sessions, a file (`docs/scale.md` lists all of it). A turn of the loop first serves control connections and messages, then gives each
//! waiting transfer one share ([`crate::transfer::TURN`]), so that a `NOOP` is answered within a
//! millisecond or two however many downloads run.
//!
//! A panic in the work for a connection ends only that connection.
//!
//! Which protocols a worker serves is a [`Doors`]. The worker calls it, and the connections that it opens, without dynamic
//! dispatch.

mod accepting;
mod arrival;
mod core;
mod doors;
mod message;
mod place;
mod token;

use std::fmt;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_metrics::Metric;
use millrace_net::inbox::{self, Inbox, Sender};
use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry};

pub use self::arrival::Way;
pub use self::core::Core;
pub use self::doors::{Client, Doors, Newcomer};
pub use self::message::{Errand, Message, Post, Promise};
use self::place::Place;
pub use self::token::Role;
use self::token::{ERRORS, INBOX, Source};
use crate::services::Services;
use crate::slab::{Key, Slab};

/// How long running transfers may keep the loop from looking at control connections.
const TRANSFER_SHARE: Duration = Duration::from_millis(2);

/// How soon accepting is tried again when descriptors ran out.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// As good as without an end.
pub const AS_LONG_AS_IT_TAKES: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// How long a server that was relieved goes on with what does not run on its workers: a client that was accepted just
/// before may still be in the handshake, and would hear GOAWAY before its first request by HTTP/2.
const SETTLING: Duration = Duration::from_secs(2);

/// A socket that clients come to.
#[derive(Debug)]
pub struct Listener<D> {
    /// What is spoken there.
    pub door: D,
    /// The address that it is bound to.
    pub address: SocketAddr,
    /// The socket.
    pub socket: OwnedFd,
}

impl<D: Copy> Listener<D> {
    fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone()?, ..*self })
    }
}

/// A reactor thread's state.
pub struct Worker<D: Doors> {
    poll: Poll,
    doors: D,
    inbox: Inbox<Message<D>>,
    listeners: Vec<Listener<D::Door>>,
    /// Listeners that may have more to accept.
    accepting: Vec<usize>,
    connections: Slab<Place<D>>,
    /// Given up to tell a client 421 when descriptors have run out.
    spare: Option<File>,
    /// Where another server accepts: when clients that have nothing under way are sent there.
    retiring: Option<Instant>,
    /// Before that: when [`Doors::begin_shutdown`] is called.
    settling: Option<Instant>,
    /// When a shutdown ends whatever still runs.
    stopping: Option<Instant>,
}

/// Memory that the turns of a worker use again.
pub struct Turns<D: Doors> {
    events: Events,
    messages: Vec<Message<D>>,
    due: Vec<Key>,
}

impl<D: Doors> Default for Turns<D> {
    fn default() -> Self {
        Self { events: Events::with_capacity(1024), messages: Vec::new(), due: Vec::new() }
    }
}

impl<D: Doors> fmt::Debug for Turns<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns").finish_non_exhaustive()
    }
}

impl<D: Doors> fmt::Debug for Worker<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("listeners", &self.listeners).finish_non_exhaustive()
    }
}

impl<D: Doors> Worker<D> {
    /// Makes a worker with its listeners, and the way to send it messages, of which `doors` gets a copy.
    pub fn new(
        services: Arc<Services>,
        listeners: Vec<Listener<D::Door>>,
        doors: impl FnOnce(Core, &Sender<Message<D>>) -> D,
    ) -> io::Result<(Self, Sender<Message<D>>)> {
        let poll = Poll::new()?;
        let (sender, inbox) = inbox::inbox(poll.registry(), INBOX)?;
        watch_listeners(poll.registry(), &listeners)?;
        let core = Core::new(poll.registry().try_clone()?, services);
        let worker = Self {
            poll,
            doors: doors(core, &sender),
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
    pub fn run(mut self) {
        let mut turns = Turns::default();
        loop {
            let timeout = self.timeout();
            match self.turn(&mut turns, timeout) {
                Ok(true) => {}
                Ok(false) => return self.end(),
                // An epoll that fails cannot be served by; the other workers go on.
                Err(_) => return,
            }
        }
    }

    /// Serves whatever has come, or comes within this time. Returns whether the worker goes on.
    pub fn turn(&mut self, turns: &mut Turns<D>, timeout: Option<Duration>) -> io::Result<bool> {
        let Turns { events, messages, due } = turns;
        match self.poll.poll(events, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        self.doors.begin_turn();
        let begun = self.doors.now.instant;
        for key in self.doors.handshakes.begin_turn() {
            self.serve(key, Client::shake_hands);
        }
        for event in &*events {
            self.dispatch(event);
        }
        self.inbox.take(messages);
        for message in messages.drain(..) {
            if matches!(message, Message::Stop) {
                return Ok(false);
            }
            self.receive(message);
        }
        self.accept();
        D::hand_on(self);
        let now = self.doors.now.instant;
        self.doors.wheel.expire(now, due);
        for key in due.drain(..) {
            D::before_clock(self, key);
            self.serve_place(key, Place::look_at_clock);
        }
        self.run_transfers();
        D::hand_on(self);
        let core: &mut Core = &mut self.doors;
        core.end_turn();
        self.doors.end_turn();
        self.doors.hand_over_log();
        let taken = self.doors.services.clock.instant().saturating_duration_since(begun);
        self.doors.metrics.observe(Metric::WorkerTurn, &[], taken);
        Ok(!self.is_to_end())
    }

    /// Looks whether the time has come for an end that was asked for.
    fn is_to_end(&mut self) -> bool {
        let now = self.doors.now.instant;
        if self.settling.take_if(|end| now >= *end).is_some() {
            D::begin_shutdown(self);
        }
        if self.retiring.take_if(|end| now >= *end).is_some() {
            D::begin_shutdown(self);
            self.shut_down(now + AS_LONG_AS_IT_TAKES);
        }
        self.stopping.is_some_and(|end| self.connections.is_empty() && self.settling.is_none() || now >= end)
    }

    /// Returns when the next turn is due although nothing comes.
    pub fn due(&self) -> Option<Instant> {
        let ends = self.stopping.into_iter().chain(self.retiring).chain(self.settling);
        let core: &Core = &self.doors;
        core.due().into_iter().chain(self.doors.due()).chain(ends).min()
    }

    fn timeout(&self) -> Option<Duration> {
        let retry = match (self.accepting.is_empty(), &self.spare) {
            (true, _) => None,
            // Not even one descriptor to refuse a client with: there is no use in asking at once.
            (false, None) => Some(ACCEPT_RETRY),
            (false, Some(_)) => Some(Duration::ZERO),
        };
        let is_busy = !self.doors.yielded.is_empty() || self.doors.is_busy();
        if is_busy || self.doors.handshakes.is_waiting() {
            return Some(Duration::ZERO);
        }
        let now = self.doors.services.clock.instant();
        let next = self.due().map(|moment| moment.saturating_duration_since(now));
        retry.into_iter().chain(next).min()
    }

    fn dispatch(&mut self, event: &Event) {
        match event.token() {
            INBOX => return,
            ERRORS => return self.doors.read_errors(),
            _ => {}
        }
        match token::source(event.token()) {
            Source::Listener(index) => {
                if !self.accepting.contains(&index) {
                    self.accepting.push(index);
                }
            }
            Source::Connection(key, Role::Client) => {
                self.serve_place(key, |place, doors| place.event(doors, event));
            }
            Source::Connection(key, Role::Side) => {
                self.serve(key, |client, doors| client.side_event(doors, event));
            }
            Source::Connection(key, Role::Wake) => self.serve(key, Client::go_on),
        }
    }

    fn receive(&mut self, message: Message<D>) {
        match message {
            // Meant for a connection that is gone; a file that it brings may hang when it is closed.
            Message::Client(key, message) if self.connections.get_mut(key).is_none() => {
                self.doors.discard(message);
            }
            Message::Client(key, message) => {
                self.serve(key, |client, doors| client.told(doors, message));
            }
            Message::Each(Errand(work)) => {
                for key in self.connections.keys() {
                    let client = self.connections.get_mut(key).and_then(Place::client);
                    if client.is_some_and(|client| client.is_of_note()) {
                        self.serve(key, |client, doors| work(client, doors));
                    }
                }
            }
            Message::Worker(work) => work(self),
            Message::Stop => {}
        }
    }

    /// Lets a connection do something; see [`Worker::serve_place`].
    pub fn serve(&mut self, key: Key, work: impl FnOnce(&mut D::Client, &mut D)) {
        self.serve_place(key, |place, doors| {
            if let Place::Client(client) = place {
                work(client, doors);
            }
        });
    }

    /// Lets a connection do something, then sends what it has to say and closes it if it has ended.
    fn serve_place(&mut self, key: Key, work: impl FnOnce(&mut Place<D>, &mut D)) {
        // Gone already: what was meant for it, a lease perhaps, is dropped with `work`.
        let Some(place) = self.connections.get_mut(key) else { return };
        let parent = place.client().and_then(|client| client.parent());
        let doors = &mut self.doors;
        let goes_on = catch_unwind(AssertUnwindSafe(|| {
            work(place, doors);
            place.settle(doors)
        }));
        match (goes_on, parent) {
            (worked, Some(parent)) => D::after_child(self, key, parent, worked.is_ok()),
            (Ok(true), None) => {}
            (Ok(false), None) => self.end_one(key),
            (Err(_), None) => self.lose(key),
        }
    }

    /// Lets a connection do something, and settles it, without what else follows. Returns false if that panicked.
    pub fn try_work(&mut self, key: Key, work: impl FnOnce(&mut D::Client, &mut D)) -> bool {
        let Some((client, doors)) = self.client(key) else { return true };
        catch_unwind(AssertUnwindSafe(|| {
            work(client, doors);
            client.settle(doors)
        }))
        .is_ok()
    }

    /// Returns a connection, and what connections share.
    pub fn client(&mut self, key: Key) -> Option<(&mut D::Client, &mut D)> {
        let client = self.connections.get_mut(key)?.client()?;
        Some((client, &mut self.doors))
    }

    /// Returns two connections, and what connections share.
    pub fn clients(&mut self, one: Key, other: Key) -> Option<(&mut D::Client, &mut D::Client, &mut D)> {
        let (one, other) = self.connections.get_pair(one, other)?;
        Some((one.client()?, other.client()?, &mut self.doors))
    }

    /// Adds a connection that is part of another.
    pub fn insert(&mut self, make: impl FnOnce(Key) -> D::Client) -> Key {
        self.connections.insert_with(|key| Place::Client(make(key)))
    }

    /// Takes a connection out.
    pub fn remove(&mut self, key: Key) -> Option<D::Client> {
        match self.connections.remove(key)? {
            Place::Client(client) => Some(client),
            Place::Arriving(_) => None,
        }
    }

    /// Returns the keys of all connections.
    pub fn keys(&self) -> Vec<Key> {
        self.connections.keys()
    }

    /// Closes a connection that has ended.
    pub fn end_one(&mut self, key: Key) {
        match self.connections.remove(key) {
            Some(Place::Arriving(arrival)) => {
                let arrived = arrival.into_arrived(&self.doors);
                self.arrived(arrived);
            }
            Some(Place::Client(client)) => {
                let (children, doors) = (client.children(), &mut self.doors);
                if catch_unwind(AssertUnwindSafe(|| client.close(doors))).is_err() {
                    self.doors.recover();
                }
                D::end_children(self, children);
            }
            None => {}
        }
    }

    /// A mistake of ours has left a connection in the middle of something: it ends, at no cost for others.
    pub fn lose(&mut self, key: Key) {
        self.doors.recover();
        if let Some(Place::Client(client)) = self.connections.remove(key) {
            client.reset();
            D::end_children(self, client.children());
            self.doors.discard(client);
        }
    }

    /// Gives transfers that used up their share another, for a while.
    fn run_transfers(&mut self) {
        let mut left = self.doors.yielded.len();
        // What they read now may have come after an answer of this turn.
        self.doors.turn += u64::from(left > 0);
        let begin = self.doors.services.clock.instant();
        while left > 0 {
            left -= 1;
            if let Some(key) = self.doors.yielded.pop_front() {
                self.serve(key, Client::continue_transfer);
            }
            if self.doors.services.clock.instant().saturating_duration_since(begin) > TRANSFER_SHARE {
                break;
            }
        }
    }

    /// Returns where clients come to, with copies of the sockets.
    pub fn listeners(&self) -> io::Result<Vec<Listener<D::Door>>> {
        self.listeners.iter().map(Listener::try_clone).collect()
    }

    /// What the connections share.
    pub fn doors(&mut self) -> &mut D {
        &mut self.doors
    }

    /// Accepts nothing more, or accepts again. Clients that come meanwhile wait in the kernel.
    pub fn set_accepting(&mut self, accepts: bool) {
        self.accepting.clear();
        self.listeners.iter().for_each(|listener| self.doors.forget(&listener.socket));
        if accepts && watch_listeners(self.poll.registry(), &self.listeners).is_err() {
            self.doors
                .services
                .log
                .warn("no client can be accepted any more: the listeners cannot be watched");
        }
    }

    /// Another server accepts: connections stay until then; what is under way then, until it has ended.
    pub fn retire(&mut self, end: Instant) {
        (self.retiring, self.stopping) = (Some(end), Some(end + AS_LONG_AS_IT_TAKES));
        self.settling = Some(self.doors.now.instant + SETTLING);
        self.close_listeners();
        for key in self.connections.keys() {
            self.serve(key, Client::retire);
        }
    }

    fn close_listeners(&mut self) {
        self.accepting.clear();
        for listener in self.listeners.drain(..) {
            self.doors.forget(&listener.socket);
        }
    }

    /// Accepts nothing more; what has not ended by then is ended.
    pub fn shut_down(&mut self, end: Instant) {
        (self.retiring, self.settling, self.stopping) = (None, None, Some(end));
        self.doors.ending = true;
        self.close_listeners();
        for key in self.connections.keys() {
            self.serve_place(key, Place::shut_down);
        }
    }

    /// Ends the worker, and what is left.
    fn end(mut self) {
        self.end_clients();
        self.doors.hand_over_log();
    }

    /// Ends what is left: transfers get their 426, sessions 421.
    pub fn end_clients(&mut self) {
        self.doors.ending = true;
        for key in self.connections.keys() {
            self.serve_place(key, Place::end_now);
        }
        for key in self.connections.keys() {
            if let Some(Place::Client(client)) = self.connections.remove(key) {
                client.close(&mut self.doors);
            }
        }
        // What is sent to them now, a lease perhaps, goes back.
        self.inbox.close();
    }
}

fn watch_listeners<D>(registry: &Registry, listeners: &[Listener<D>]) -> io::Result<()> {
    for (index, listener) in listeners.iter().enumerate() {
        let socket = listener.socket.as_raw_fd();
        registry.register(&mut SourceFd(&socket), token::of_listener(index), Interest::READABLE)?;
    }
    Ok(())
}
