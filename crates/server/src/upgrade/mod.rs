//! One server relieves another without a connection that is refused: the new one is started by the old, is handed its
//! listening sockets, and accepts at them when the old one does no longer. Who comes between the two waits in the kernel.
//!
//! ```text
//!   old (successor.rs)                               new (predecessor.rs)
//!     starts the new one, whose standard input is a socket of theirs
//!     Listener, Listener, ... ThatIsAll  --------->  opens what else it needs, and fails while that harms nobody
//!                                        <---------  Ready
//!     accepts nobody, keeps what it counts
//!     Ban, Ban, ... Go                   --------->  reads what was kept, accepts
//!                                        <---------  Serving
//!     retires: sessions for a while, transfers to their end
//!     Changed, Moved, ... Farewell       --------->  counts what was done there, too
//! ```
//!
//! The invariant: at any moment one of the two accepts, or will. Where the new one fails before it serves, says nothing
//! for too long or ends, the old one accepts again.
//!
//! While the old one has its last sessions both are there. Each counts sessions and bandwidth by itself. Accounts in
//! databases, files, and logs that are appended to are shared as ever. What one process has to itself is the new one's:
//! deliveries of events (`hooks/queue.rs`; the old one still puts what its sessions do), quotas (the new one is told at
//! the end what the old one has moved, and counts trees anew that it has changed), locks and properties of WebDAV (the
//! old one sends who would change them to the new one), certificates by ACME. Passive ports are leased by both, and
//! kept by neither (`passive/mod.rs`).

mod predecessor;
mod successor;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use millrace_net::handing;
use serde::{Deserialize, Serialize};

use crate::limits::Since;
use crate::worker::Door;

pub use predecessor::Predecessor;
pub use successor::HandOverError;
pub(crate) use successor::say_farewell;

/// What the two say to each other.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
enum Word {
    /// The old one: here is one of the sockets of this address, and what it was asked for as.
    Listener { door: Door, asked: SocketAddr, bound: SocketAddr },
    /// The old one: these were all, of the process of this number.
    ThatIsAll { pid: u32 },
    /// The new one: nothing is missing but that you let nobody in.
    Ready {},
    /// The old one: these are banned, for so long yet.
    Ban { network: String, user: Option<Vec<u8>>, milliseconds: Option<u64> },
    /// The old one: I let nobody in, and have kept what I know. The next session has this number.
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
        handing::send(socket, &serde_json::to_vec(self)?, with)
    }

    /// What the other says next, and what it hands over; `None` where it has gone.
    fn receive(socket: impl AsFd, patience: Option<Duration>) -> io::Result<Option<(Self, Option<OwnedFd>)>> {
        let received = handing::receive(socket, patience)?;
        received.map(|(message, with)| Ok((serde_json::from_slice(&message)?, with))).transpose()
    }
}
