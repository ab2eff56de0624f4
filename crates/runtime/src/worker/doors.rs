//! The interface between a worker and the protocols that it serves.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::ops::DerefMut;
use std::os::fd::OwnedFd;
use std::time::Instant;

use millrace_limits::LimitHandle;
use mio::event::Event;

use super::{Core, Way, Worker};
use crate::report::SessionReport;
use crate::sessions::Admission;
use crate::slab::Key;

/// The protocols of a worker, with what their connections share there: its [`Core`], and caches of their own.
pub trait Doors: DerefMut<Target = Core> + Sized + Send + 'static {
    /// The protocol of a listener.
    type Door: Copy + Debug + Send + 'static;
    /// A connection, whichever protocol it speaks.
    type Client: Client<Self>;
    /// A message from another thread to a connection.
    type Message: Debug + Send + 'static;

    /// Returns whether clients send first at this door, so that one call can find which of many have sent something.
    fn client_speaks_first(door: Self::Door) -> bool;

    /// Writes the answer to a client that is refused, or nothing where the protocol has none. `is_full`: the limit of
    /// sessions is reached.
    fn refusal(
        &self,
        door: Self::Door,
        peer: SocketAddr,
        reason: &'static str,
        is_full: bool,
        out: &mut Vec<u8>,
    );

    /// Makes a connection for a client that was admitted.
    fn open(&mut self, key: Key, newcomer: Newcomer<Self::Door>) -> Self::Client;

    /// Programs of this worker have written errors: see [`Core::watch_errors`].
    fn read_errors(&mut self) {}

    /// Ends a turn of the loop.
    fn end_turn(&mut self) {}

    /// Returns when [`end_turn`](Self::end_turn) has something to do.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// A successor has accepted clients for long enough: work outside the workers ends, and clients are asked to begin nothing
    /// new.
    fn begin_shutdown(_: &mut Worker<Self>) {}

    /// Passes bytes between connections and the streams within them. Called between the parts of a turn.
    fn hand_on(_: &mut Worker<Self>) {}

    /// Returns whether some bytes can be passed on at once.
    fn is_busy(&self) -> bool {
        false
    }

    /// Called before the deadline of a connection is checked.
    fn before_clock(_: &mut Worker<Self>, _: Key) {}

    /// Called after a stream within a connection has run; `is_sound`: without a panic.
    fn after_child(_: &mut Worker<Self>, _child: Key, _parent: Key, _is_sound: bool) {}

    /// A connection is gone: ends the streams within it.
    fn end_children(_: &mut Worker<Self>, _: Vec<Key>) {}
}

/// A client that was admitted.
#[derive(Debug)]
pub struct Newcomer<D> {
    /// Its socket.
    pub socket: OwnedFd,
    /// Its address.
    pub peer: SocketAddr,
    /// The protocol of its listener.
    pub door: D,
    /// The address that the listener is bound to.
    pub bound: SocketAddr,
    /// The proxy that it came through.
    pub way: Option<Way>,
    /// Its place in the tree of limits.
    pub member: LimitHandle,
    /// Its place among the connections.
    pub admission: Admission,
    /// Whether it is known that the client has sent nothing yet.
    pub has_sent_nothing: bool,
}

/// A connection of a worker. [`settle`](Self::settle) is called after each of the other methods.
pub trait Client<D: Doors>: Send {
    /// Greets the client; the first call.
    fn begin(&mut self, doors: &mut D, door: D::Door, bound: SocketAddr);
    /// Handles an event of the socket that the client connected to.
    fn event(&mut self, doors: &mut D, event: &Event);
    /// Handles an event of a data connection, or of a program's output.
    fn side_event(&mut self, doors: &mut D, event: &Event);
    /// Continues with work that was left.
    fn go_on(&mut self, doors: &mut D);
    /// Takes a message from another thread.
    fn told(&mut self, doors: &mut D, message: D::Message);
    /// Checks its deadlines, one of which may be over.
    fn look_at_clock(&mut self, doors: &mut D);
    /// Continues a handshake: a new turn has time for it.
    fn shake_hands(&mut self, doors: &mut D);
    /// Continues its transfer with another share of a turn.
    fn continue_transfer(&mut self, doors: &mut D);
    /// Does what follows from what happened. Returns whether the connection goes on.
    fn settle(&mut self, doors: &mut D) -> bool;
    /// A successor accepts clients: asks the client to connect there, if it can.
    fn retire(&mut self, doors: &mut D);
    /// The server is closing.
    fn shut_down(&mut self, doors: &mut D);
    /// The time of grace is over.
    fn end_now(&mut self, doors: &mut D);
    /// Ends it and everything that belongs to it.
    fn close(self, doors: &mut D);
    /// Returns the connection that it is a part of: a stream of HTTP/2.
    fn parent(&self) -> Option<Key> {
        None
    }
    /// Returns the connections that are parts of it.
    fn children(&self) -> Vec<Key> {
        Vec::new()
    }
    /// Has its socket closed with a reset.
    fn reset(&self);
    /// Returns true if it has a user, or something under way.
    fn is_of_note(&self) -> bool;
    /// Returns what an administrator sees of it.
    fn report(&self, now: Instant) -> Option<SessionReport>;
}
