//! Hot upgrade: one server replaces another without refusing a connection. The old one starts the new one and passes it
//! the listening sockets; the new one accepts when the old one has stopped. Connections in between wait in the kernel.
//!
//! ```text
//!   old (successor.rs)                               new (predecessor.rs)
//!     starts the new one, whose standard input is a socket of theirs
//!     Listener, AdminListener, ... ThatIsAll  ---->  opens the rest; may still fail safely
//!                                        <---------  Ready
//!     stops accepting, stores its counts
//!     Ban, Ban, ... Go                   --------->  reads what was kept, accepts
//!                                        <---------  Serving
//!     retires: sessions for a while, transfers to their end
//!     Changed, Moved, ... Farewell       --------->  counts what was done there, too
//! ```
//!
//! The invariant: at any moment one of the two accepts, or will. Where the new one fails before it serves, says nothing
//! for too long or ends, the old one accepts again.
//!
//! Both run while the old one has its last sessions. Each counts sessions and bandwidth by itself. Accounts in
//! databases, files, and appended logs are shared as usual. The new process owns what only one can have: deliveries of
//! events (`hooks/queue.rs`; the old one still stores its sessions' events), quotas (the old one reports at the end
//! what it has moved, and the new one counts changed trees again), locks and properties of WebDAV (the old one refers
//! changes to the new one), certificates by ACME. Passive ports are leased by both, and kept by neither
//! (`passive/mod.rs`). The privileged helper, which only a server of root's can start, serves both.

mod predecessor;
mod successor;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use millrace_net::fd_passing;
use serde::{Deserialize, Serialize};

use crate::limits::Since;
use crate::worker::Door;

pub use predecessor::{Predecessor, TakeOverError};
pub(crate) use successor::say_farewell;
pub use successor::{HandOverError, hand_over_also};

/// A socket at which the program around the server listens for administrators. A successor gets it, too: one that has given up
/// the rights of root could not open it, where its port is below 1024.
#[derive(Debug)]
pub struct AdminListener {
    /// The address as it was configured.
    pub asked: SocketAddr,
    /// The same, with the real port.
    pub bound: SocketAddr,
    /// The socket.
    pub socket: OwnedFd,
}

/// What the two say to each other.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
enum Word {
    /// The old one: here is one of the sockets of this address, and what it was asked for as.
    Listener { door: Door, asked: SocketAddr, bound: SocketAddr },
    /// The old one: here is a socket at which administrators are served, and what it was asked for as.
    AdminListener { asked: SocketAddr, bound: SocketAddr },
    /// The old one: at this socket its privileged helper serves you, too.
    Helper {},
    /// The old one: these were all, of the process of this number.
    ThatIsAll { pid: u32 },
    /// The new one: everything is ready; stop accepting.
    Ready {},
    /// The old one: these are banned, for so long yet.
    Ban { network: String, user: Option<Vec<u8>>, milliseconds: Option<u64> },
    /// The old one: I have stopped accepting and stored my state. The next session has this number.
    Go { next_session: u64 },
    /// The new one: I let clients in, and the name of the control socket is mine.
    Serving {},
    /// The new one: nothing comes of it.
    Failed { why: String },
    /// The old one: this tree of a quota has changed since.
    Changed { tree: String },
    /// The old one: a user has moved this since.
    Moved { user: String, since: Since },
    /// The old one: that was all, I end.
    Farewell {},
}

impl Word {
    fn send(&self, socket: impl AsFd, with: Option<BorrowedFd<'_>>) -> io::Result<()> {
        fd_passing::send(socket, &serde_json::to_vec(self)?, with)
    }

    /// What the other says next, and what it hands over; `None` where it has gone.
    fn receive(socket: impl AsFd, patience: Option<Duration>) -> io::Result<Option<(Self, Option<OwnedFd>)>> {
        let received = fd_passing::receive(socket, patience)?;
        received.map(|(message, with)| Ok((serde_json::from_slice(&message)?, with))).transpose()
    }
}
