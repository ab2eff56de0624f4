//! The socket of a connection of HTTP/2, and what it tells of the client: that it is still there, and that it takes
//! what it is sent, however slowly.
//!
//! Megabytes may lie in the kernels' buffers, a `PING` among them: who reads some kilobytes a second answers that after
//! minutes, and asks for more no sooner. So what its kernel has acknowledged counts for both.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millrace_net::stream;
use tokio::net::TcpStream;

/// Bytes that have to be taken before it counts: a kernel acknowledges each `PING` for whoever takes nothing.
const WORTH: u64 = 512;

/// A socket of the side runtime.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) socket: TcpStream,
    began: Instant,
    /// When the client last gave a sign of life, in milliseconds since it began.
    heard: AtomicU64,
    /// As much had been taken when it last counted.
    counted: AtomicU64,
}

impl Wire {
    pub(super) fn new(socket: TcpStream) -> Self {
        Self { socket, began: Instant::now(), heard: AtomicU64::new(0), counted: AtomicU64::new(0) }
    }

    /// The client has said something.
    pub(super) fn note_life(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heard.store(now, Ordering::Relaxed);
    }

    /// For how long it has given no sign of life.
    pub(super) fn silence(&self) -> Duration {
        let heard = self.began + Duration::from_millis(self.heard.load(Ordering::Relaxed));
        heard.elapsed()
    }

    /// How much the client has taken, in pieces that are worth to be counted.
    pub(super) fn taken(&self) -> io::Result<u64> {
        Ok(stream::acknowledged(&self.socket)? / WORTH)
    }

    /// Claims that the client has taken more since this was last so, which is a sign of life.
    pub(super) fn takes(&self) -> bool {
        let Ok(taken) = self.taken() else { return false };
        let takes = self.counted.swap(taken, Ordering::Relaxed) != taken;
        if takes {
            self.note_life();
        }
        takes
    }
}
