//! The state of the socket that a client connected to: whether it may have more to read, whether its client has ended,
//! whether it takes what is sent.
//!
//! The reactor is edge-triggered: what it reports is noted here until a read, or a write, finds that there is no more.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use millrace_net::stream;
use mio::event::Event;

/// How long a client may take to end its side of a connection when this side has ended its own.
pub const FAREWELL: Duration = Duration::from_secs(5);

/// The state of a client's socket. By default nothing has come, and what is sent is not waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SocketState {
    arrivals: Arrivals,
    end: ReadEnd,
    /// The reactor reports when the socket takes bytes again.
    reports_room: bool,
    /// The connection is gone, or is to be dropped.
    is_broken: bool,
}

/// Whether the socket may have more to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Arrivals {
    #[default]
    None,
    Possible,
    /// There is urgent data, before which a read stops short: only an empty socket shows that all was read.
    Urgent,
}

/// What is known of the end of the client's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum ReadEnd {
    /// Nothing: the next bytes, or the end, are an event.
    #[default]
    Unknown,
    /// It is there, behind bytes that may not have been read: there is no further event.
    Reported,
    /// It was read.
    Read,
}

impl SocketState {
    /// Notes what the reactor reports; `output_ended`: this side has ended its own. Returns whether the end of the client's
    /// bytes is news.
    pub fn take_event(&mut self, event: &Event, output_ended: bool) -> bool {
        if event.is_error() || (event.is_write_closed() && event.is_read_closed() && !output_ended) {
            self.break_off();
            return false;
        }
        if event.is_readable() {
            self.expect_bytes();
        }
        if event.is_priority() {
            self.arrivals = Arrivals::Urgent;
        }
        event.is_read_closed() && self.note_hang_up()
    }

    /// Returns whether there may be something to read.
    pub fn may_read(&self) -> bool {
        self.arrivals != Arrivals::None
    }

    /// Notes that there may be something to read.
    pub fn expect_bytes(&mut self) {
        if self.arrivals == Arrivals::None {
            self.arrivals = Arrivals::Possible;
        }
    }

    /// Notes that there is nothing to read before the reactor reports it.
    pub fn expect_silence(&mut self) {
        self.arrivals = Arrivals::None;
    }

    /// Returns whether the client will send no more, though not all of it may have been read.
    pub fn has_hung_up(&self) -> bool {
        self.end != ReadEnd::Unknown
    }

    /// Returns whether all that the client sent was read, and its end.
    pub fn has_read_end(&self) -> bool {
        self.end == ReadEnd::Read
    }

    /// Notes that the client will send no more than what has come. Returns whether that is news.
    pub fn note_hang_up(&mut self) -> bool {
        let is_news = !self.has_hung_up();
        self.end = self.end.max(ReadEnd::Reported);
        is_news
    }

    /// Notes that all that the client sent was read, and its end.
    pub fn note_end(&mut self) {
        self.end = ReadEnd::Read;
    }

    /// Returns whether the connection is gone, or cannot be used.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Has the connection be dropped.
    pub fn break_off(&mut self) {
        self.is_broken = true;
    }

    /// Reads once, where there is no TLS; `None` where nothing came.
    pub fn receive(&mut self, socket: impl AsFd, buffer: &mut [u8]) -> Option<usize> {
        match stream::read(socket, buffer) {
            Ok(0) => self.read_ended(),
            Ok(count) => {
                self.note_read(count == buffer.len());
                return Some(count);
            }
            Err(error) => self.note_failure(&error),
        }
        None
    }

    /// Reads and discards what a client still sends when this side has ended its own: closing a socket with something unread
    /// resets it, and a reset can overtake the last answer. Returns how much of `most` is left; where that is nothing, the
    /// connection is to be dropped.
    pub fn discard(&mut self, socket: impl AsFd, buffer: &mut [u8], mut most: usize) -> usize {
        while self.may_read() && !self.is_broken() {
            most = most.saturating_sub(self.receive(&socket, buffer).unwrap_or(0));
            if most == 0 {
                self.break_off();
            }
        }
        most
    }

    /// Notes that a read has brought something, and whether it has `filled` its buffer.
    pub fn note_read(&mut self, filled: bool) {
        // A short read means that there is no more, and the next arrival is a new event; but for an end that came
        // with these bytes, of which nothing more will be reported.
        if self.arrivals != Arrivals::Urgent {
            self.arrivals = if filled || self.has_hung_up() { Arrivals::Possible } else { Arrivals::None };
        }
    }

    /// Notes that a read has found the client's end.
    pub fn read_ended(&mut self) {
        self.note_end();
        self.expect_silence();
    }

    /// Notes that a read has failed.
    pub fn note_failure(&mut self, error: &io::Error) {
        match error.kind() {
            io::ErrorKind::WouldBlock => self.expect_silence(),
            _ => self.break_off(),
        }
    }

    /// Sends what waits in `output`, and then `out`, by `write`, as far as that takes it: the rest waits in `output`, and
    /// `out` is empty. Returns how many bytes were sent, and whether the socket has to take bytes again before the rest
    /// can be.
    pub fn send(
        &mut self,
        output: &mut Vec<u8>,
        out: &mut Vec<u8>,
        mut write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> (usize, bool) {
        if !output.is_empty() {
            output.append(out);
            std::mem::swap(output, out);
        }
        let (mut sent, mut is_full) = (0, false);
        while sent < out.len() {
            match write(&out[sent..]) {
                Ok(count) => sent += count,
                Err(error) => {
                    // Kept also where the connection is gone: it shows how much was sent.
                    *output = out[sent..].to_vec();
                    is_full = error.kind() == io::ErrorKind::WouldBlock;
                    if !is_full {
                        self.break_off();
                    }
                    break;
                }
            }
        }
        out.clear();
        (sent, is_full)
    }

    /// Has the reactor report when the socket takes bytes again, by `watch`, unless it does.
    pub fn watch_writable(&mut self, watch: impl FnOnce() -> io::Result<()>) {
        if !std::mem::replace(&mut self.reports_room, true) && watch().is_err() {
            self.break_off();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use mio::unix::SourceFd;
    use mio::{Events, Interest, Poll, Token};

    use super::*;

    /// A client, the server's end of its connection, and a reactor that watches that.
    fn connected() -> (UnixStream, UnixStream, Poll) {
        let (client, socket) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        let poll = Poll::new().unwrap();
        poll.registry().register(&mut SourceFd(&socket.as_raw_fd()), Token(0), Interest::READABLE).unwrap();
        (client, socket, poll)
    }

    fn take_events(state: &mut SocketState, poll: &mut Poll, output_ended: bool) -> bool {
        let mut events = Events::with_capacity(8);
        poll.poll(&mut events, Some(Duration::from_secs(60))).unwrap();
        events.iter().fold(false, |is_news, event| state.take_event(event, output_ended) | is_news)
    }

    #[test]
    fn a_short_read_is_the_last_until_the_next_event() {
        let ((mut client, socket, mut poll), mut state) = (connected(), SocketState::default());
        let mut buffer = [0; 4];
        client.write_all(b"abcdef").unwrap();
        assert!(!take_events(&mut state, &mut poll, false));
        assert!(state.may_read());
        assert_eq!(state.receive(&socket, &mut buffer), Some(4));
        assert!(state.may_read(), "it has filled the buffer");
        assert_eq!(state.receive(&socket, &mut buffer), Some(2));
        assert!(!state.may_read());
        client.write_all(b"g").unwrap();
        take_events(&mut state, &mut poll, false);
        assert!(state.may_read());
    }

    #[test]
    fn an_end_that_comes_with_bytes_is_read_behind_them() {
        let ((mut client, socket, mut poll), mut state) = (connected(), SocketState::default());
        client.write_all(b"ab").unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(take_events(&mut state, &mut poll, false));
        assert!(!state.note_hang_up(), "it is no news any more");
        assert_eq!(state.receive(&socket, &mut [0; 4]), Some(2));
        assert!(state.may_read() && !state.has_read_end());
        assert_eq!(state.receive(&socket, &mut [0; 4]), None);
        assert!(state.has_read_end() && !state.may_read() && !state.is_broken());
    }

    #[test]
    fn what_comes_after_the_end_is_discarded_and_a_flood_is_cut() {
        let ((mut client, socket, mut poll), mut state) = (connected(), SocketState::default());
        client.write_all(&[0; 10]).unwrap();
        take_events(&mut state, &mut poll, true);
        assert_eq!(state.discard(&socket, &mut [0; 4], 11), 1);
        assert!(!state.may_read() && !state.is_broken());
        client.write_all(&[0; 10]).unwrap();
        take_events(&mut state, &mut poll, true);
        assert_eq!(state.discard(&socket, &mut [0; 4], 8), 0);
        assert!(state.is_broken());
        let read = stream::read(&socket, &mut [0; 4]).unwrap();
        assert_eq!(read, 2, "no more is read than it takes to see that it is a flood");
    }

    #[test]
    fn a_closed_connection_is_broken_unless_this_side_has_ended_its_own() {
        for output_ended in [false, true] {
            let ((client, _socket, mut poll), mut state) = (connected(), SocketState::default());
            drop(client);
            take_events(&mut state, &mut poll, output_ended);
            assert_eq!(state.is_broken(), !output_ended);
        }
    }

    #[test]
    fn urgent_data_is_read_on_until_the_socket_is_empty() {
        let mut state = SocketState { arrivals: Arrivals::Urgent, ..SocketState::default() };
        state.note_read(false);
        assert!(state.may_read(), "a read stops before urgent data");
        state.note_failure(&io::ErrorKind::WouldBlock.into());
        assert!(!state.may_read() && !state.is_broken());
        state.note_failure(&io::ErrorKind::ConnectionReset.into());
        assert!(state.is_broken());
    }

    #[test]
    fn what_the_socket_does_not_take_waits_before_what_comes_later() {
        let (mut state, mut output, mut out) = (SocketState::default(), Vec::new(), b"first ".to_vec());
        let (mut taken, mut room) = (Vec::new(), 4);
        let mut write = |bytes: &[u8]| {
            let count = bytes.len().min(room).min(3);
            taken.extend_from_slice(&bytes[..count]);
            room -= count;
            if count == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(count) }
        };
        assert_eq!(state.send(&mut output, &mut out, &mut write), (4, true));
        assert_eq!((&*output, &*out), (&b"t "[..], &b""[..]));
        out.extend_from_slice(b"second");
        assert_eq!(state.send(&mut output, &mut out, &mut write), (0, true));
        assert_eq!(output, b"t second");
        assert_eq!(state.send(&mut output, &mut out, |bytes| Ok(bytes.len())), (8, false));
        assert!(output.is_empty() && out.is_empty() && !state.is_broken());
        assert_eq!(taken, b"firs");
    }

    #[test]
    fn a_failed_write_breaks_the_connection_and_keeps_what_was_not_sent() {
        let (mut state, mut output, mut out) = (SocketState::default(), Vec::new(), b"gone".to_vec());
        let sent = state.send(&mut output, &mut out, |_| Err(io::ErrorKind::BrokenPipe.into()));
        assert_eq!((sent, &*output), ((0, false), &b"gone"[..]));
        assert!(state.is_broken());
    }

    #[test]
    fn the_reactor_is_asked_once_to_report_room() {
        let (mut state, mut asked) = (SocketState::default(), 0);
        for _ in 0..2 {
            state.watch_writable(|| {
                asked += 1;
                Ok(())
            });
        }
        assert_eq!(asked, 1);
        assert!(!state.is_broken());
    }
}
