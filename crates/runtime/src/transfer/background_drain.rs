//! Data connections of downloads that are whole, until their clients have left them as well.
//!
//! When all of a large file is sent, its last megabytes lie in the kernel. If the socket is closed then, the first byte
//! from the client resets the connection (RFC 2525 section 2.17), and the unread data is lost, though the client got a
//! 226. ([`lingering_close`](super::lingering_close) is for bytes that have arrived by then.) So the output is shut
//! down, and the socket is kept until the client closes, while its session goes on without waiting.
//!
//! The reactor does not watch these sockets, which would cost each download two calls: they are polled after a moment,
//! when most have ended, and then with growing intervals. A download sent by one call has left before the client can
//! send anything; its socket is closed at once.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use millrace_net::stream;

/// The first look.
const SOON: Duration = Duration::from_millis(20);

/// The longest time between two.
const SELDOM: Duration = Duration::from_secs(1);

/// How long a client's end is waited for. Then the kernel brings it the rest, unless it says something.
const PATIENCE: Duration = Duration::from_secs(20);

/// The most that is read of a client.
const MOST: usize = 1 << 20;

/// The sockets of one worker.
#[derive(Debug)]
pub struct BackgroundDrain {
    /// The longest there first.
    sockets: VecDeque<Leaver>,
    /// How many there may be: each is a descriptor.
    room: usize,
    due: Option<Instant>,
}

#[derive(Debug)]
struct Leaver {
    socket: OwnedFd,
    until: Instant,
    look_at: Instant,
    pause: Duration,
    /// How much more is read of it.
    left: usize,
}

impl BackgroundDrain {
    /// No connection yet, and room for this many.
    pub fn new(room: usize) -> Self {
        Self { sockets: VecDeque::new(), room, due: None }
    }

    /// Says our end, and keeps the socket.
    pub(super) fn add(&mut self, socket: OwnedFd, now: Instant) {
        if self.room == 0 || stream::end_writing(&socket).is_err() {
            return;
        }
        if self.sockets.len() == self.room {
            self.sockets.pop_front();
        }
        let look_at = now + SOON;
        self.sockets.push_back(Leaver { socket, until: now + PATIENCE, look_at, pause: SOON, left: MOST });
        self.due = Some(self.due.map_or(look_at, |due| due.min(look_at)));
    }

    /// When to look next.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Closes those that have ended, or are to end.
    pub fn look(&mut self, now: Instant, scratch: &mut [u8]) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        self.sockets.retain_mut(|leaver| leaver.look_at > now || leaver.stays(now, scratch));
        self.due = self.sockets.iter().map(|leaver| leaver.look_at).min();
    }
}

impl Leaver {
    fn stays(&mut self, now: Instant, scratch: &mut [u8]) -> bool {
        self.pause = (self.pause * 2).min(SELDOM);
        self.look_at = now + self.pause;
        now < self.until && self.has_more_to_come(scratch)
    }

    /// Reads and discards input. Returns true if its end has not come.
    fn has_more_to_come(&mut self, scratch: &mut [u8]) -> bool {
        loop {
            match stream::read(&self.socket, scratch) {
                Ok(0) => return false,
                Ok(count) if count >= self.left => return false,
                Ok(count) => self.left -= count,
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn pair() -> (TcpStream, OwnedFd) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        (client, socket.into())
    }

    /// Looks whenever it is due, as if the time passed at once, until none is left; answers for how long.
    fn look_until_none(drain: &mut BackgroundDrain, begin: Instant) -> Duration {
        let mut now = begin;
        while let Some(due) = drain.due() {
            now = due;
            drain.look(now, &mut [0; 100]);
        }
        now - begin
    }

    #[test]
    fn a_client_that_ends_is_not_waited_for_and_one_that_does_not_is_for_a_while() {
        let (begin, mut drain) = (Instant::now(), BackgroundDrain::new(10));
        let (mut client, socket) = pair();
        drain.add(socket, begin);
        assert_eq!(client.read(&mut [0]).unwrap(), 0, "our end is said");
        client.write_all(b"unexpected bytes").unwrap();
        let waited = look_until_none(&mut drain, begin);
        assert!((PATIENCE..PATIENCE + 2 * SELDOM).contains(&waited), "{waited:?}");

        let (client, socket) = pair();
        drop(client);
        assert!(stream::wait_for_end(&socket, Duration::from_secs(60)));
        drain.add(socket, begin);
        assert!(look_until_none(&mut drain, begin) < PATIENCE);
    }

    #[test]
    fn the_longest_there_makes_room_and_a_flood_ends() {
        let (begin, mut drain) = (Instant::now(), BackgroundDrain::new(1));
        let (_first, socket) = pair();
        drain.add(socket, begin);
        let (mut second, socket) = pair();
        drain.add(socket, begin);
        assert_eq!(drain.sockets.len(), 1);
        std::thread::spawn(move || while second.write_all(&[b'x'; 65_536]).is_ok() {});
        let mut now = begin;
        while !drain.sockets.is_empty() {
            now += Duration::from_micros(1);
            drain.sockets[0].look_at = now;
            drain.due = Some(now);
            drain.look(now, &mut [0; 65_536]);
        }
        assert!(now < begin + PATIENCE, "it was cut for what it sent");
    }
}
