//! What a worker has to know of the protocols that it serves.

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
    /// What other threads tell a connection.
    type Message: Debug + Send + 'static;

    /// Returns true if clients speak first at this door, so that many of them can be asked at once whether they have.
    fn client_speaks_first(door: Self::Door) -> bool;

    /// Writes what a client is told that is refused: nothing where the protocol has no words for that. `is_full`: there are
    /// as many sessions as may be.
    fn refusal(
        &self,
        door: Self::Door,
        peer: SocketAddr,
        reason: &'static str,
        is_full: bool,
        out: &mut Vec<u8>,
    );

    /// Makes the connection of a client that was admitted.
    fn open(&mut self, key: Key, newcomer: Newcomer<Self::Door>) -> Self::Client;

    /// Programs of this worker have written errors: see [`Core::watch_errors`].
    fn read_errors(&mut self) {}

    /// Ends a turn of the loop.
    fn end_turn(&mut self) {}

    /// Returns when the end of a turn has something to do.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Another server has accepted for long enough: what does not run on the worker ends, and clients are told to begin
    /// nothing new.
    fn begin_shutdown(_: &mut Worker<Self>) {}

    /// Hands on between connections and those within them. Called between the parts of a turn.
    fn hand_on(_: &mut Worker<Self>) {}

    /// Returns true if something is left to be handed on at once.
    fn is_busy(&self) -> bool {
        false
    }

    /// The clock of a connection is about to be looked at.
    fn before_clock(_: &mut Worker<Self>, _: Key) {}

    /// A connection within another one has done something; `is_sound`: without a panic.
    fn after_child(_: &mut Worker<Self>, _child: Key, _parent: Key, _is_sound: bool) {}

    /// A connection is gone, and these within it have to end.
    fn end_children(_: &mut Worker<Self>, _: Vec<Key>) {}
}

/// A client that was admitted.
#[derive(Debug)]
pub struct Newcomer<D> {
    /// Its socket.
    pub socket: OwnedFd,
    /// Its address.
    pub peer: SocketAddr,
    /// Where it came in.
    pub door: D,
    /// The address that the listener is bound to.
    pub bound: SocketAddr,
    /// The proxy that it came by.
    pub way: Option<Way>,
    /// Its place in the tree of limits.
    pub member: LimitHandle,
    /// Its place among the connections.
    pub admission: Admission,
    /// Whether it is known that nothing has come yet.
    pub has_sent_nothing: bool,
}

/// A connection of a worker. [`settle`](Self::settle) follows whatever else is called.
pub trait Client<D: Doors>: Send {
    /// The first call: greets the client that came in here.
    fn begin(&mut self, doors: &mut D, door: D::Door, bound: SocketAddr);
    /// The reactor tells of the socket that the client connected to.
    fn event(&mut self, doors: &mut D, event: &Event);
    /// The reactor tells of a data connection, or of a program's output.
    fn side_event(&mut self, doors: &mut D, event: &Event);
    /// There is something to go on with.
    fn go_on(&mut self, doors: &mut D);
    /// Another thread has something for it.
    fn told(&mut self, doors: &mut D, message: D::Message);
    /// The wheel says that something may be due.
    fn look_at_clock(&mut self, doors: &mut D);
    /// A new turn has time for handshakes.
    fn shake_hands(&mut self, doors: &mut D);
    /// Its transfer has another share of a turn.
    fn continue_transfer(&mut self, doors: &mut D);
    /// Does what follows from what happened. Returns whether the connection goes on.
    fn settle(&mut self, doors: &mut D) -> bool;
    /// Another server accepts, and takes the clients that can go there.
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
