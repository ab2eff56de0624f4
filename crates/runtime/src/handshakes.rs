//! Handshakes of TLS are the one costly operation that needs no login. A reactor gives them a share of each turn
//! ([`SHARE`]); the others wait for the next turn, while other connections are served.

use std::fmt::Display;
use std::time::{Duration, Instant};

use millrace_net::tls::Tls;

use crate::slab::Key;

/// The share of a reactor's turn for handshakes.
const SHARE: Duration = Duration::from_millis(2);

/// The used part of this turn's share, and the connections that wait for the next.
#[derive(Debug, Default)]
pub struct Handshakes {
    spent: Duration,
    waiting: Vec<Key>,
}

impl Handshakes {
    /// Begins a turn: returns the connections that may continue.
    pub fn begin_turn(&mut self) -> Vec<Key> {
        self.spent = Duration::ZERO;
        std::mem::take(&mut self.waiting)
    }

    /// Returns true if a handshake waits.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns true if this turn has no time for another.
    pub fn is_used_up(&self) -> bool {
        self.spent >= SHARE
    }

    /// Puts a connection in line for the next turn.
    pub fn wait(&mut self, key: Key) {
        self.waiting.push(key);
    }

    /// A handshake has gone on since then.
    pub fn spend(&mut self, since: Instant) {
        self.spent += since.elapsed();
    }
}

/// Returns for the log why a handshake has failed, and what the client offered in it, where that is known.
pub fn describe_failure(why: impl Display, tls: Option<&Tls>) -> String {
    match tls.and_then(Tls::hello) {
        Some(hello) => format!("{why}; the client offered {hello}"),
        None => why.to_string(),
    }
}
