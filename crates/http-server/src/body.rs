//! Bodies that do not fit into one write with their head: a file, parts of one, a stream.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use millrace_ftp::codec::Coding;
use millrace_ftp::session::{ByteRange, TransferError};
use millrace_limits::{Direction, Flow, LimitHandle, Pace, Tree};
use millrace_net::Wire;
use millrace_runtime::transfer::{Sender, Share, Shared, Socket, TURN, Taken, Turn};
use millrace_vfs::{FileError, FileRange, ReadHandle, ReadStream, Readiness};

use crate::chunks::{Chunks, Framing};

/// A piece of a body.
#[derive(Debug)]
pub(crate) enum Part {
    /// Bytes that are here: the head, what stands between parts.
    Bytes(Vec<u8>),
    /// A range of a file.
    File(Arc<std::fs::File>, Readiness, Range<u64>),
    /// A range of a stream; one without an end goes on until the stream ends.
    Stream(Box<dyn ReadStream>, u64, Option<u64>),
}

impl Part {
    /// Bytes of a file or stream, where that is known.
    fn length(&self) -> Option<u64> {
        match self {
            Self::Bytes(_) => Some(0),
            Self::File(_, _, range) => Some(range.end.saturating_sub(range.start)),
            Self::Stream(_, start, end) => end.map(|end| end.saturating_sub(*start)),
        }
    }
}

/// Where the bytes of a body go.
pub(crate) enum Sink<'a> {
    Socket(&'a mut Socket),
    /// Memory, with room for this many more bytes.
    Memory(&'a mut Wire, usize),
}

impl Sink<'_> {
    /// Has the sender move its share to here, evenly where there is a `flow` and the kernel can.
    fn turn(
        &mut self,
        sender: &mut Sender,
        shared: &Shared,
        scratch: &mut [u8],
        share: &mut Share,
        flow: Option<Flow>,
    ) -> Turn {
        match self {
            Sink::Socket(socket) => {
                if let Some(flow) = flow {
                    socket.keep_to(flow);
                }
                sender.turn(socket, shared, scratch, share)
            }
            Sink::Memory(memory, room) => {
                let before = memory.pending().len();
                let turn = sender.turn_to_memory((&mut **memory, *room), shared, share);
                *room -= (memory.pending().len() - before).min(*room);
                turn
            }
        }
    }
}

/// A body on its way out.
#[derive(Debug)]
pub(crate) struct Body {
    parts: VecDeque<Part>,
    current: Current,
    /// Bytes sent of the parts that are files or streams.
    shared: Shared,
    /// How many there are of them, where that is known.
    total: Option<u64>,
    /// What of them only stands around the content.
    framing: Framing,
    /// When a byte last moved: what the stall timeout counts from.
    pub(crate) moved: Instant,
    /// What the client has taken since.
    pub(crate) taken: Taken,
    /// What limits allow it.
    pace: Pace,
    /// Names the job that has the sender.
    pub(crate) serial: u64,
}

#[derive(Debug)]
enum Current {
    None,
    Sending(Box<Sender>),
    /// The pool has it.
    Lent,
}

/// What came of moving a body on.
#[derive(Debug)]
pub(crate) enum Progress {
    /// These bytes are to be written next.
    Bytes(Vec<u8>),
    /// The socket has to become ready.
    Wait,
    /// A limit has to allow more: [`Body::paused`] says when it does.
    Pause,
    /// Its share of the turn is used up.
    Yield,
    /// The pool has to fill this.
    Fill(Box<Sender>),
    /// All of this part was sent; closing it may wait, so the pool does.
    Spent(Box<Sender>),
    /// All of it is sent.
    Done,
    /// It cannot be sent whole.
    Failed(TransferError),
}

impl Body {
    pub(crate) fn new(parts: VecDeque<Part>, now: Instant) -> Self {
        let pace = Pace::new(Direction::Download);
        let total = parts.iter().map(Part::length).sum();
        Self {
            parts,
            total,
            current: Current::None,
            shared: Shared::default(),
            framing: Framing::default(),
            moved: now,
            taken: Taken::default(),
            pace,
            serial: 0,
        }
    }

    /// The same of a stream in chunks.
    pub(crate) fn chunked(stream: Chunks, now: Instant) -> Self {
        let framing = stream.framing();
        let part = Part::Stream(Box::new(stream), 0, None);
        Self { framing, ..Self::new(VecDeque::from([part]), now) }
    }

    /// The same of a page that shows what there is, which is no download.
    pub(crate) fn of_listing(self) -> Self {
        Self { pace: Pace::of_listing(), ..self }
    }

    /// Bytes of files and streams sent so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.framing.content_of(self.shared.bytes())
    }

    /// How many there are in all, where that is known.
    pub(crate) fn total(&self) -> Option<u64> {
        self.total
    }

    /// Returns whether a job has its sender.
    pub(crate) fn is_lent(&self) -> bool {
        matches!(self.current, Current::Lent)
    }

    /// Moves what can be moved now.
    pub(crate) fn advance(
        &mut self,
        sink: &mut Sink<'_>,
        scratch: &mut [u8],
        now: Instant,
        limits: (&Tree, &LimitHandle),
    ) -> Progress {
        let mut left = TURN as u64;
        loop {
            match &mut self.current {
                Current::Lent => return Progress::Wait,
                Current::None => match self.parts.pop_front() {
                    None => return Progress::Done,
                    Some(Part::Bytes(bytes)) => return Progress::Bytes(bytes),
                    Some(part) => match sender(part) {
                        Ok(sender) => self.current = Current::Sending(Box::new(sender)),
                        Err(error) => return Progress::Failed(TransferError::File(error)),
                    },
                },
                Current::Sending(sender) => {
                    let before = self.shared.bytes();
                    let wanted = sender.left().unwrap_or(u64::MAX);
                    let Some(allowed) = self.pace.allowance(limits.0, limits.1, now, wanted) else {
                        return match self.pace.over() {
                            Some(over) => Progress::Failed(TransferError::File(over.clone().into())),
                            None => Progress::Pause,
                        };
                    };
                    let mut share = Share::new(allowed.min(left));
                    let turn = sink.turn(sender, &self.shared, scratch, &mut share, self.pace.flow());
                    self.pace.spend(share.moved());
                    left = left.saturating_sub(share.moved());
                    if self.shared.bytes() != before {
                        self.moved = now;
                        self.taken = Taken::default();
                    }
                    if let Some(progress) = self.after(turn, left) {
                        return progress;
                    }
                }
            }
        }
    }

    /// Decides what follows from a turn of the sender; `left` is what the body may still move in this turn of the worker.
    /// `None`: the sender, or the next part, goes on at once.
    fn after(&mut self, turn: Turn, left: u64) -> Option<Progress> {
        match turn {
            // Nothing is left of the allowance: the next one has its time, or is there at once.
            Turn::Yield | Turn::Pause if self.pace.is_limited() && left > 0 => None,
            Turn::Yield | Turn::Pause => Some(Progress::Yield),
            Turn::Wait => {
                self.pace.fall_out_of_line();
                Some(Progress::Wait)
            }
            Turn::Job(_) => match std::mem::replace(&mut self.current, Current::Lent) {
                Current::Sending(sender) => Some(Progress::Fill(sender)),
                _ => Some(Progress::Wait),
            },
            // Nothing is committed in this direction.
            Turn::Commit | Turn::Done(Ok(())) => match std::mem::replace(&mut self.current, Current::None) {
                Current::Sending(sender) if sender.end_may_wait() => Some(Progress::Spent(sender)),
                _ => None,
            },
            Turn::Done(Err(error)) => Some(Progress::Failed(error)),
        }
    }

    /// Returns whether the client is still reading, however slowly; `taken` is the total that it has read.
    pub(crate) fn still_takes(&mut self, taken: io::Result<u64>, now: Instant) -> bool {
        self.taken.look(taken, &mut self.moved, now)
    }

    /// Until when a limit keeps it waiting.
    pub(crate) fn paused(&self) -> Option<Instant> {
        self.pace.paused
    }

    /// Returns true if a file follows, so that both may share a packet.
    pub(crate) fn has_more(&self) -> bool {
        !self.parts.is_empty() || !matches!(self.current, Current::None)
    }

    /// Takes back what the pool had.
    pub(crate) fn take_back(&mut self, sender: Sender, now: Instant) {
        self.current = Current::Sending(Box::new(sender));
        self.moved = now;
        self.taken = Taken::default();
    }

    /// The rest at the end of the connection, if closing it may block on a file system.
    pub(crate) fn remains(self) -> Option<impl Send + 'static> {
        match self.current {
            Current::Sending(sender) if sender.end_may_wait() => Some((sender, self.parts)),
            _ => None,
        }
    }
}

fn sender(part: Part) -> Result<Sender, FileError> {
    let (handle, range) = match part {
        Part::Bytes(_) => return Err(FileError::Unsupported),
        Part::File(file, readiness, range) => {
            let file = FileRange { file, size: range.end, readiness };
            (ReadHandle::File(file), ByteRange { start: range.start, end: Some(range.end) })
        }
        Part::Stream(stream, start, end) => (ReadHandle::Stream(stream), ByteRange { start, end }),
    };
    Ok(Sender::file(handle, range, Coding::PLAIN, 0).keeping_open())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use millrace_net::stream;

    use super::*;
    use millrace_limits::{AccountLimits, Limit, Limits, Moved, ServerLimits, TransferQuota};

    /// The two ends of a connection.
    fn pair() -> (Socket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        (Socket::new(socket.into()), client)
    }

    /// Bytes without end, on a file system that may hang.
    #[derive(Debug)]
    struct Slow(u64);

    impl ReadStream for Slow {
        fn size(&self) -> Option<u64> {
            Some(self.0)
        }

        fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
            Ok(buffer.len().min((self.0 - offset) as usize))
        }

        fn readiness(&self) -> Readiness {
            Readiness::MayHang
        }
    }

    /// Closing it may be a transaction of a database.
    #[test]
    fn a_part_whose_end_may_wait_is_given_back_when_it_was_sent() {
        let (mut socket, _client) = pair();
        let now = Instant::now();
        let (tree, mut scratch) = (Tree::new(ServerLimits::default(), now, 0), vec![0; 64 * 1024]);
        let member = tree.connect("127.0.0.1:1".parse().unwrap(), now).unwrap();
        let mut body = Body::new(VecDeque::from([Part::Stream(Box::new(Slow(9)), 0, Some(9))]), now);
        let mut was_given_back = false;
        loop {
            match body.advance(&mut Sink::Socket(&mut socket), &mut scratch, now, (&tree, &member)) {
                Progress::Fill(mut sender) => {
                    sender.fill().unwrap();
                    body.take_back(*sender, now);
                }
                Progress::Spent(_) => was_given_back = true,
                Progress::Wait | Progress::Yield => {}
                Progress::Done => break,
                progress => panic!("{progress:?}"),
            }
        }
        assert!(was_given_back);
    }

    /// A quota allows the next bytes at once; others have their turn all the same.
    #[test]
    fn an_answer_that_only_a_quota_counts_gives_its_turn_back() {
        let (mut socket, mut client) = pair();
        let reader = std::thread::spawn(move || std::io::copy(&mut client, &mut std::io::sink()));
        let now = Instant::now();
        let (tree, mut scratch) = (Tree::new(ServerLimits::default(), now, 0), vec![0; 64 * 1024]);
        let mut member = tree.connect("127.0.0.1:1".parse().unwrap(), now).unwrap();
        let quota = TransferQuota { download: "1000G/day".parse().unwrap(), ..TransferQuota::default() };
        let moved = Some(Moved { quota: Arc::new(quota), traffic: Arc::default() });
        tree.log_in(&mut member, b"u", &AccountLimits { moved, ..AccountLimits::default() }, now).unwrap();
        let path = std::env::temp_dir().join(format!("millrace-http-body-{}", std::process::id()));
        let file = std::fs::File::create_new(&path).unwrap();
        file.set_len(64 << 20).unwrap();
        drop(file);
        let file = std::fs::File::open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        let part = Part::File(Arc::new(file), Readiness::Cached, 0..64 << 20);
        let mut body = Body::new(VecDeque::from([part]), now);
        loop {
            let before = body.bytes();
            let progress = body.advance(&mut Sink::Socket(&mut socket), &mut scratch, now, (&tree, &member));
            assert!(body.bytes() - before <= TURN as u64, "{} bytes", body.bytes() - before);
            match progress {
                Progress::Wait | Progress::Yield => std::thread::yield_now(),
                Progress::Done => break,
                progress => panic!("{progress:?}"),
            }
        }
        drop(socket);
        assert_eq!(reader.join().unwrap().unwrap(), 64 << 20);
    }

    #[test]
    fn the_kernel_is_told_the_pace_of_a_limited_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        client.set_nonblocking(true).unwrap();
        let limits = Limits { download: Some(Limit::of(400_000)), ..Limits::default() };
        let mut now = Instant::now();
        let tree = Tree::new(ServerLimits { server: limits, ..ServerLimits::default() }, now, 0);
        let member = tree.connect(listener.local_addr().unwrap(), now).unwrap();
        let file = std::env::current_exe().and_then(std::fs::File::open).unwrap();
        let part = Part::File(Arc::new(file), Readiness::MayHang, 0..1_000_000);
        let mut body = Body::new(VecDeque::from([part]), now);
        let (mut socket, mut scratch) = (Socket::new(socket.into()), vec![0; 64 * 1024]);
        let mut told = Vec::new();
        loop {
            match body.advance(&mut Sink::Socket(&mut socket), &mut scratch, now, (&tree, &member)) {
                Progress::Pause => now = body.paused().unwrap(),
                Progress::Fill(mut sender) => {
                    sender.fill().unwrap();
                    body.take_back(*sender, now);
                }
                Progress::Wait | Progress::Yield => now += Duration::from_millis(1),
                Progress::Spent(_) => {}
                Progress::Done => break,
                progress => panic!("{progress:?}"),
            }
            told.push(stream::paced(&socket.fd).unwrap());
            while client.read(&mut scratch).is_ok_and(|count| count > 0) {}
        }
        assert_eq!(told[0], None, "for a slice nothing is told");
        assert!(told.len() < 200, "{} turns: to the last byte in pieces that are worth a call", told.len());
        assert!((400_000..470_000).contains(&told.last().unwrap().unwrap()), "{told:?}");
    }
}
