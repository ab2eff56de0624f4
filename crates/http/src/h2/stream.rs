//! Streams: their states and windows (RFC 9113 sections 5.1 and 5.2).

use super::frame::{DEFAULT_WINDOW, MAX_WINDOW};

/// How many streams that have ended are remembered, so that frames which were on their way are no fault.
const REMEMBERED: usize = 48;

/// The states that a stream of a request goes through. No side pushes, so none is reserved (RFC 9113 section 5.1).
///
/// ```text
///                 +--------+
///                 |  idle  |                  not in the list: above the highest
///                 +--------+
///                     | HEADERS (send or receive)
///                 +--------+
///        .--------|  Open  |--------.
///        | ES rcv +--------+ ES snd |         ES: END_STREAM
/// +--------------+    |    +-------------+
/// | RemoteClosed |    |    | LocalClosed |
/// +--------------+    |    +-------------+
///        | ES snd     | RST        | ES rcv
///        |        +--------+       |
///        '------->| closed |<------'          not in the list any more
///                 +--------+
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamState {
    /// Both sides send.
    Open,
    /// The peer has sent its END_STREAM.
    RemoteClosed,
    /// This side has.
    LocalClosed,
}

/// How far the peer's side of a stream has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remote {
    /// The head of its message has not come.
    Head,
    /// A body may follow; its length in bytes where the request has one.
    Body(Option<u64>),
}

/// One stream that is open.
#[derive(Debug, Clone)]
pub(super) struct Stream {
    pub(super) id: u32,
    pub(super) state: StreamState,
    pub(super) remote: Remote,
    /// Bytes that this side may send; less than 0 where the peer has made its windows smaller.
    pub(super) send_window: i64,
    /// Bytes that the peer may send.
    pub(super) receive_window: u32,
    /// Bytes that were received and used, for which the window is not opened again yet.
    pub(super) owed: u32,
    /// A response has begun.
    pub(super) is_answered: bool,
    /// This side has a body for it.
    pub(super) has_body: bool,
}

impl Stream {
    /// Opens a window by this many bytes; returns whether it is no larger than may be.
    pub(super) fn open_window(&mut self, increment: i64) -> bool {
        self.send_window += increment;
        self.send_window <= MAX_WINDOW
    }
}

/// Marks a stream that this side has reset; no number has this bit.
const BY_THIS_SIDE: u32 = 1 << 31;

/// The streams that are open, in the order of their numbers, and the last ones that have ended.
#[derive(Debug)]
pub(super) struct Streams {
    open: Vec<Stream>,
    /// Their numbers, with [`BY_THIS_SIDE`]; 0 for none.
    ended: [u32; REMEMBERED],
    next: u8,
    /// Where the next look for a stream that can send begins.
    turn: u32,
}

/// A stream that has ended, and the side that ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// None is remembered here.
    No,
    /// Both sides know.
    ByBoth(u32),
    /// This side has reset it; the peer may not know.
    ByThisSide(u32),
}

impl Default for Streams {
    fn default() -> Self {
        Self { open: Vec::new(), ended: [0; REMEMBERED], next: 0, turn: 0 }
    }
}

impl Streams {
    pub(super) fn count(&self) -> usize {
        self.open.len()
    }

    pub(super) fn get(&mut self, id: u32) -> Option<&mut Stream> {
        let at = self.place(id)?;
        Some(&mut self.open[at])
    }

    /// The most recent is the most frequent.
    fn place(&self, id: u32) -> Option<usize> {
        match self.open.last() {
            Some(last) if last.id == id => Some(self.open.len() - 1),
            _ => self.open.binary_search_by_key(&id, |stream| stream.id).ok(),
        }
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.open.iter_mut()
    }

    /// Opens a stream; its number is higher than all before it.
    pub(super) fn open(&mut self, id: u32, state: StreamState, send: u32, receive: u32) -> &mut Stream {
        debug_assert!(self.open.last().is_none_or(|last| last.id < id));
        let at = self.open.len();
        self.open.push(Stream {
            id,
            state,
            remote: Remote::Head,
            send_window: i64::from(send),
            receive_window: receive,
            owed: 0,
            is_answered: false,
            has_body: false,
        });
        &mut self.open[at]
    }

    /// A stream has ended.
    pub(super) fn end(&mut self, ended: Ended) {
        let (Ended::ByBoth(id) | Ended::ByThisSide(id)) = ended else { return };
        if let Some(at) = self.place(id) {
            self.open.remove(at);
        }
        self.remember(ended);
    }

    /// Remembers a stream that has ended, or was never opened.
    pub(super) fn remember(&mut self, ended: Ended) {
        self.ended[usize::from(self.next)] = match ended {
            Ended::No => 0,
            Ended::ByBoth(id) => id,
            Ended::ByThisSide(id) => id | BY_THIS_SIDE,
        };
        self.next = (self.next + 1) % REMEMBERED as u8;
    }

    /// The remembered state of a stream that is not open.
    pub(super) fn ended(&self, id: u32) -> Ended {
        match self.ended.iter().find(|ended| id > 0 && *ended & !BY_THIS_SIDE == id) {
            Some(ended) if ended & BY_THIS_SIDE != 0 => Ended::ByThisSide(id),
            Some(_) => Ended::ByBoth(id),
            None => Ended::No,
        }
    }

    /// The next stream in turn with a body and a window, and how much of the window is open.
    pub(super) fn next_with_window(&mut self) -> Option<(u32, usize)> {
        let can = |stream: &&Stream| stream.has_body && stream.send_window > 0;
        let (before, behind) = self.open.split_at(self.open.partition_point(|stream| stream.id <= self.turn));
        let stream = behind.iter().find(can).or_else(|| before.iter().find(can))?;
        self.turn = stream.id;
        Some((stream.id, usize::try_from(stream.send_window).unwrap_or(0)))
    }
}

/// The window of a whole connection, as this side receives.
#[derive(Debug)]
pub(super) struct ReceiveWindow {
    /// Bytes that the peer may send.
    pub(super) left: u32,
    /// Its size.
    size: u32,
    /// Used and not opened again.
    owed: u32,
}

impl ReceiveWindow {
    /// One that begins as all do, and is to be opened to `size`: the increment.
    pub(super) fn new(size: u32) -> (Self, u32) {
        let size = size.clamp(DEFAULT_WINDOW, MAX_WINDOW as u32);
        (Self { left: size, size, owed: 0 }, size - DEFAULT_WINDOW)
    }

    /// Bytes were used; the increment that is to be told, once it is half the window.
    pub(super) fn release(&mut self, count: u32) -> Option<u32> {
        self.owed += count;
        (self.owed >= self.size / 2).then(|| {
            self.left += self.owed;
            std::mem::take(&mut self.owed)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_take_turns() {
        let mut streams = Streams::default();
        for id in [1, 3, 5, 7] {
            let stream = streams.open(id, StreamState::RemoteClosed, 10, 10);
            stream.has_body = id != 3;
        }
        let mut turns = || streams.next_with_window().map(|(id, _)| id);
        assert_eq!([turns(), turns(), turns(), turns()], [Some(1), Some(5), Some(7), Some(1)]);
        streams.get(5).unwrap().send_window = 0;
        assert_eq!(streams.next_with_window(), Some((7, 10)));
        streams.end(Ended::ByBoth(7));
        assert_eq!((streams.count(), streams.get(7).is_none()), (3, true));
        assert_eq!((streams.ended(7), streams.ended(5)), (Ended::ByBoth(7), Ended::No));
        streams.remember(Ended::ByThisSide(9));
        assert_eq!(streams.ended(9), Ended::ByThisSide(9));
    }

    #[test]
    fn a_window_is_opened_again_by_halves() {
        let (mut window, increment) = ReceiveWindow::new(100_000);
        assert_eq!(increment, 100_000 - DEFAULT_WINDOW);
        window.left -= 60_000;
        assert_eq!(window.release(49_999), None);
        assert_eq!((window.release(10_001), window.left), (Some(60_000), 100_000));
    }
}
