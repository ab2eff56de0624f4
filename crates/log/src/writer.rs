//! A thread that writes what others hand it, so that a slow reader or a stuck disk delays only the log.
//!
//! A line that comes alone is written at once. After a write the thread pauses for a moment, so that a burst is written
//! together: waking a thread costs more than a line.
//!
//! The queue is bounded. Further lines are dropped and counted, and when there is room again the count is written in
//! their place: a log has no silent gaps. The same holds for lines that cannot be written to a full disk: the error is
//! reported at once, and the count when a line can be written.

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Bytes that may wait: some ten thousand lines.
const WAITING: usize = 1 << 20;

/// A buffer that became larger than this in a burst is not kept.
const KEPT: usize = 64 * 1024;

/// How long the thread rests between two writes.
const REST: Duration = Duration::from_millis(10);

/// With this many bytes waiting it does not.
const BURST: usize = WAITING / 4;

/// How long the end of a server waits for its last lines to be taken.
const FAREWELL: Duration = Duration::from_secs(2);

/// A failure of a log.
#[derive(Debug)]
pub(super) enum Gap<'a> {
    /// This many lines were dropped.
    Dropped(u64),
    /// Lines cannot be written from now on.
    Failing(&'a io::Error),
    /// They can be again, or it is the end; this many could not.
    Lost(u64),
}

/// Tells of it; answers what the log itself says of it.
type Notice = Box<dyn Fn(Gap<'_>) -> Vec<u8> + Send>;

/// Where the lines go.
type Sink = Box<dyn Write + Send>;

/// The way to the thread. Dropping it lets the thread end, once it has written everything.
#[derive(Debug)]
pub(super) struct Writer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Locked for an append or a swap, never for a write.
    state: Mutex<State>,
    /// There is something to write, or nothing more will come.
    work: Condvar,
    /// The thread has ended.
    ended: Condvar,
    /// Lines that found no room, or could not be written.
    lost: AtomicU64,
    /// Counts lines.
    count: Count,
}

/// Returns how many lines, or entries, these bytes are.
pub(super) type Count = fn(&[u8]) -> u64;

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    /// Where they go from now on.
    next: Option<Sink>,
    /// Lines that found no room.
    dropped: u64,
    thread: Thread,
    closed: bool,
    ended: bool,
}

/// The state of the thread.
///
/// ```text
///   Idle --a line--> Busy --written--> Resting --a moment, or a burst--> Busy
///    ^                                    |
///    +------------- no line --------------+
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Thread {
    /// It writes, or was woken to: it looks by itself.
    #[default]
    Busy,
    /// It wakes up by itself in a moment; a burst wakes it at once.
    Resting,
    /// Any line wakes it.
    Idle,
}

impl State {
    /// Returns true if the thread has to be woken for what has just come.
    fn is_urgent(&self) -> bool {
        match self.thread {
            Thread::Busy => false,
            Thread::Resting => self.is_crowd(),
            Thread::Idle => true,
        }
    }

    /// Returns true if what waits is too much to rest.
    fn is_crowd(&self) -> bool {
        self.waiting.len() >= BURST || self.dropped > 0
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}

impl Writer {
    /// Begins to write to `sink`.
    pub(super) fn start(sink: impl Write + Send + 'static, notice: Notice) -> io::Result<Self> {
        Self::resting(sink, notice, (REST, lines))
    }

    /// The same where what is written are no lines.
    pub(super) fn counting(
        sink: impl Write + Send + 'static,
        notice: Notice,
        count: Count,
    ) -> io::Result<Self> {
        Self::resting(sink, notice, (REST, count))
    }

    fn resting(
        sink: impl Write + Send + 'static,
        notice: Notice,
        (rest, count): (Duration, Count),
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            work: Condvar::new(),
            ended: Condvar::new(),
            lost: AtomicU64::new(0),
            count,
        });
        let of_thread = Arc::clone(&shared);
        thread::Builder::new()
            .name("millrace-log".to_owned())
            .stack_size(256 * 1024)
            .spawn(move || of_thread.write_out(Box::new(sink), &notice, rest))?;
        Ok(Self { shared })
    }

    /// Hands over whole lines. Never waits.
    pub(super) fn push(&self, lines: &[u8]) {
        let mut state = self.shared.lock();
        // After a gap nothing more is taken until the gap is reported.
        if state.dropped > 0 || state.waiting.len() + lines.len() > WAITING {
            state.dropped += self.shared.lose(lines);
        } else {
            state.waiting.extend_from_slice(lines);
        }
        if state.is_urgent() {
            state.thread = Thread::Busy;
            drop(state);
            self.shared.work.notify_one();
        }
    }

    /// Returns how many lines were lost so far.
    pub(super) fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// Has what comes from now on, and what still waits, written elsewhere.
    pub(super) fn redirect(&self, sink: impl Write + Send + 'static) {
        self.shared.lock().next = Some(Box::new(sink));
    }

    /// Waits until everything is written, but only briefly: the reader may be stuck.
    pub(super) fn close(&self) {
        let mut state = self.shared.lock();
        state.closed = true;
        self.shared.work.notify_one();
        let wait = self.shared.ended.wait_timeout_while(state, FAREWELL, |state| !state.ended);
        drop(wait.unwrap_or_else(PoisonError::into_inner));
    }
}

/// Counts lines.
pub(super) fn lines(text: &[u8]) -> u64 {
    text.iter().filter(|&&byte| byte == b'\n').count() as u64
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts these lines among the lost ones; returns how many they are.
    fn lose(&self, lines: &[u8]) -> u64 {
        let lost = (self.count)(lines);
        self.lost.fetch_add(lost, Ordering::Relaxed);
        lost
    }

    /// The thread. A log that cannot be written must not stop the server.
    fn write_out(&self, sink: Sink, notice: &Notice, rest: Duration) {
        let (mut lines, mut rests) = (Vec::new(), None);
        let mut page = Page { sink, lost: 0, is_torn: false };
        while let Some((dropped, next)) = self.take(&mut lines, rests) {
            rests = Some(rest);
            if let Some(sink) = next {
                page = Page { sink, is_torn: false, ..page };
            }
            if dropped > 0 {
                lines.extend_from_slice(&notice(Gap::Dropped(dropped)));
            }
            page.write(&lines, self, notice);
            lines.clear();
            lines.shrink_to(KEPT);
        }
        if page.lost > 0 {
            let _ = notice(Gap::Lost(page.lost));
        }
        self.lock().ended = true;
        self.ended.notify_all();
    }

    /// Pauses for at most so long, and waits for lines. Returns how many lines were dropped after them, and the new
    /// sink if it changed; `None` at the end.
    fn take(&self, lines: &mut Vec<u8>, rest: Option<Duration>) -> Option<(u64, Option<Sink>)> {
        let mut state = self.lock();
        if let Some(rest) = rest {
            state.thread = Thread::Resting;
            let rests = |state: &mut State| !state.is_crowd() && !state.closed;
            let wait = self.work.wait_timeout_while(state, rest, rests);
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        loop {
            if !state.waiting.is_empty() || state.dropped > 0 {
                state.thread = Thread::Busy;
                std::mem::swap(&mut state.waiting, lines);
                return Some((std::mem::take(&mut state.dropped), state.next.take()));
            }
            if state.closed {
                return None;
            }
            state.thread = Thread::Idle;
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The sink, and its last error.
struct Page {
    sink: Sink,
    /// Unwritten lines that were not reported yet.
    lost: u64,
    /// The last of what was written is no whole line.
    is_torn: bool,
}

impl Page {
    fn write(&mut self, lines: &[u8], shared: &Shared, notice: &Notice) {
        match self.write_from_new_line(lines) {
            Ok(()) if self.lost > 0 => {
                let told = notice(Gap::Lost(std::mem::take(&mut self.lost)));
                // An error now shows again with the next line.
                let _ = self.sink.write_all(&told);
            }
            Ok(()) => {}
            Err((error, rest)) => {
                if self.lost == 0 {
                    let _ = notice(Gap::Failing(&error));
                }
                self.lost += shared.lose(rest);
            }
        }
    }

    /// Answers what could not be written, beginning with the rest of a line.
    fn write_from_new_line<'a>(&mut self, lines: &'a [u8]) -> Result<(), (io::Error, &'a [u8])> {
        if self.is_torn {
            self.sink.write_all(b"\n").map_err(|error| (error, lines))?;
            self.is_torn = false;
        }
        let mut rest = lines;
        while !rest.is_empty() {
            let error = match self.sink.write(rest) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(count) => {
                    self.is_torn = rest[count - 1] != b'\n';
                    rest = &rest[count..];
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            return Err((error, rest));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};

    use super::*;

    #[test]
    fn a_log_without_a_reader_blocks_no_writer_and_counts_missing_lines() {
        const LINES: u64 = 100_000;
        let (reader, sink) = io::pipe().unwrap();
        let notice = |gap: Gap<'_>| match gap {
            Gap::Dropped(dropped) => format!("{dropped} missing\n").into_bytes(),
            gap => panic!("{gap:?}"),
        };
        let writer = Writer::start(sink, Box::new(notice)).unwrap();
        for number in 0..LINES {
            writer.push(format!("line {number} of a log without a reader\n").as_bytes());
        }
        let lost = writer.lost();
        writer.close();
        drop(writer);
        let (mut whole, mut missing) = (0, 0);
        for line in BufReader::new(reader).lines().map(Result::unwrap) {
            match line.strip_suffix(" missing") {
                Some(count) => missing += count.parse::<u64>().unwrap(),
                None => {
                    assert_eq!(line, format!("line {} of a log without a reader", whole + missing));
                    whole += 1;
                }
            }
        }
        assert!(missing > 0);
        assert_eq!(lost, missing);
        assert_eq!(whole + missing, LINES);
    }

    #[test]
    fn a_line_alone_is_written_at_once_and_a_crowd_together() {
        let (reader, sink) = io::pipe().unwrap();
        let mut reader = BufReader::with_capacity(WAITING, reader);
        let hour = Duration::from_secs(3600);
        let writer = Writer::resting(sink, Box::new(|_| Vec::new()), (hour, lines)).unwrap();
        let mut line = String::new();
        writer.push(b"alone\n");
        reader.read_line(&mut line).unwrap();
        assert_eq!(line, "alone\n");
        // Not the first of them, nor any by itself: the thread rests.
        let burst = "one of many\n".repeat(BURST / 12 + 1);
        for line in burst.split_inclusive('\n') {
            writer.push(line.as_bytes());
        }
        // Later lines wait for the end of the next pause, or for the end.
        let mut taken = vec![0; burst.len()];
        reader.read_exact(&mut taken).unwrap();
        assert!(taken == burst.as_bytes());
        writer.push(b"last\n");
        writer.close();
        drop(writer);
        line.clear();
        reader.read_to_string(&mut line).unwrap();
        assert_eq!(line, "last\n");
    }

    #[test]
    fn lines_after_a_redirection_go_to_the_new_sink() {
        let ((first, sink), (second, other)) = (io::pipe().unwrap(), io::pipe().unwrap());
        let writer = Writer::start(sink, Box::new(|_| Vec::new())).unwrap();
        let (mut first, second) = (BufReader::new(first), BufReader::new(second));
        let mut line = String::new();
        writer.push(b"a\n");
        first.read_line(&mut line).unwrap();
        writer.redirect(other);
        writer.push(b"b\n");
        writer.close();
        drop(writer);
        assert_eq!(line, "a\n");
        assert_eq!(first.lines().count(), 0);
        assert_eq!(second.lines().map(Result::unwrap).collect::<Vec<_>>(), ["b"]);
    }

    /// A disk with so much room.
    struct Disk(Arc<Mutex<(usize, Vec<u8>)>>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut disk = self.0.lock().unwrap();
            let count = bytes.len().min(disk.0);
            if count == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            disk.0 -= count;
            disk.1.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_is_told_once_and_what_is_missing_when_there_is_room() {
        let disk = Arc::new(Mutex::new((6, Vec::new())));
        let (tell, told) = std::sync::mpsc::channel();
        let tell = Mutex::new(tell);
        let notice = move |gap: Gap<'_>| {
            let text = match gap {
                Gap::Dropped(_) => "dropped".to_owned(),
                Gap::Failing(error) => format!("{:?}", error.kind()),
                Gap::Lost(lines) => format!("{lines} lost"),
            };
            tell.lock().unwrap().send(text.clone()).unwrap();
            format!("{text}\n").into_bytes()
        };
        let hear = || told.recv_timeout(Duration::from_secs(30)).unwrap();
        let writer =
            Writer::resting(Disk(Arc::clone(&disk)), Box::new(notice), (Duration::ZERO, lines)).unwrap();
        writer.push(b"one\ntwo\nthree\n");
        assert_eq!(hear(), "StorageFull");
        writer.push(b"four\n");
        disk.lock().unwrap().0 = 1000;
        // Whether there was room for the fourth is the thread's luck.
        writer.push(b"five\n");
        let lost = hear();
        let begin = std::time::Instant::now();
        let written = loop {
            let written = String::from_utf8(disk.lock().unwrap().1.clone()).unwrap();
            if written.contains(&lost) && written.contains("five\n") {
                break written;
            }
            assert!(begin.elapsed() < Duration::from_secs(30), "{written}");
            thread::yield_now();
        };
        let rest = written.strip_prefix("one\ntw\n").unwrap_or_else(|| panic!("{written}"));
        let lines: Vec<&str> = rest.lines().filter(|&line| line != lost).collect();
        assert_eq!(lines.last(), Some(&"five"), "{written}");
        assert_eq!(lost, format!("{} lost", 2 + 2 - lines.len()));
        assert_eq!(writer.lost(), 4 - lines.len() as u64);
    }

    #[test]
    fn queued_lines_are_written_by_the_end() {
        let (reader, sink) = io::pipe().unwrap();
        let writer = Writer::start(sink, Box::new(|_| Vec::new())).unwrap();
        writer.push(b"a\n");
        writer.push(b"b\nc\n");
        writer.close();
        drop(writer);
        let lines: Vec<String> = BufReader::new(reader).lines().map(Result::unwrap).collect();
        assert_eq!(lines, ["a", "b", "c"]);
    }
}
