//! Selectors: the ways of asking the kernel which of many sockets are ready.

use std::io;

use millrace_uring::Ring;
use serde::{Deserialize, Serialize};

/// A way of asking which sockets are ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Selector {
    /// `poll`: every socket is named in each call.
    Poll,
    /// `epoll`, level-triggered: the kernel keeps the set, and tells of a socket as long as it is ready.
    Epoll,
    /// `epoll`, edge-triggered: it tells once, when a socket becomes ready.
    EpollEt,
    /// `io_uring`, multishot polls: it posts to memory that is shared with the process.
    #[serde(rename = "io_uring")]
    IoUring,
}

/// Every [`Selector`] by its name.
pub const SELECTORS: [(&str, Selector); 4] = [
    ("poll", Selector::Poll),
    ("epoll", Selector::Epoll),
    ("epoll-et", Selector::EpollEt),
    ("io_uring", Selector::IoUring),
];

impl Selector {
    /// As flags and tables have it.
    pub fn name(self) -> &'static str {
        SELECTORS.iter().find(|row| row.1 == self).map_or("", |row| row.0)
    }

    /// Whether the system permits it here; the error says why not.
    ///
    /// It is tried on a thread of its own: the remains of a closed ring interrupt system calls of the thread that owned
    /// it.
    pub fn permitted(self) -> io::Result<()> {
        match self {
            Self::Poll | Self::Epoll | Self::EpollEt => Ok(()),
            Self::IoUring => {
                let tried = std::thread::spawn(|| Ring::new(2).map(drop)).join();
                tried.unwrap_or_else(|_| Err(io::Error::other("it cannot be tried")))
            }
        }
    }
}
