//! A thread that writes what others hand it, so that a reader that does not read, or a disk that hangs, holds up
//! nobody but the log.
//!
//! What waits to be written is bounded. Lines beyond that are dropped and counted, and when there is room
//! again the count is written where they would have stood: a log has gaps only where it says so.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Bytes that may wait: some ten thousand lines.
const WAITING: usize = 1 << 20;

/// A buffer that became larger than this in a burst is not kept.
const KEPT: usize = 64 * 1024;

/// How long the end of a server waits for its last lines to be taken.
const FAREWELL: Duration = Duration::from_secs(2);

/// Says how many lines are missing, in the words of the log.
type Notice = Box<dyn Fn(u64) -> Vec<u8> + Send>;

/// Where the lines go.
type Sink = Box<dyn Write + Send>;

/// The way to the thread. Dropping it lets the thread end, once it has written everything.
#[derive(Debug)]
pub(super) struct Writer {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Locked for an append or a swap, never for a write.
    state: Mutex<State>,
    /// There is something to write, or nothing more will come.
    work: Condvar,
    /// The thread has ended.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    /// Where they go from now on.
    next: Option<Sink>,
    /// Lines that found no room.
    dropped: u64,
    /// The thread waits for `work`; otherwise it looks by itself, and waking it would be for nothing.
    is_idle: bool,
    closed: bool,
    ended: bool,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}

impl Writer {
    /// Begins to write to `sink`.
    pub(super) fn start(sink: impl Write + Send + 'static, notice: Notice) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        thread::Builder::new()
            .name("millrace-log".to_owned())
            .stack_size(256 * 1024)
            .spawn(move || of_thread.write_out(Box::new(sink), &notice))?;
        Ok(Self { shared })
    }

    /// Hands over whole lines. Never waits.
    pub(super) fn push(&self, lines: &[u8]) {
        let mut state = self.shared.lock();
        // Behind a gap nothing more is taken until the gap is told of.
        if state.dropped > 0 || state.waiting.len() + lines.len() > WAITING {
            state.dropped += lines.iter().filter(|&&byte| byte == b'\n').count() as u64;
        } else {
            state.waiting.extend_from_slice(lines);
        }
        if std::mem::take(&mut state.is_idle) {
            drop(state);
            self.shared.work.notify_one();
        }
    }

    /// Has what comes from now on, and what still waits, written elsewhere.
    pub(super) fn redirect(&self, sink: impl Write + Send + 'static) {
        self.shared.lock().next = Some(Box::new(sink));
    }

    /// Waits until everything is written, but not for long: nobody may be reading.
    pub(super) fn close(&self) {
        let mut state = self.shared.lock();
        state.closed = true;
        self.shared.work.notify_one();
        let wait = self.shared.ended.wait_timeout_while(state, FAREWELL, |state| !state.ended);
        drop(wait.unwrap_or_else(PoisonError::into_inner));
    }
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

    /// The thread. A log that cannot be written must not stop the server, so errors are nobody's.
    fn write_out(&self, mut sink: Sink, notice: &Notice) {
        let mut lines = Vec::new();
        while let Some((dropped, next)) = self.take(&mut lines) {
            sink = next.unwrap_or(sink);
            if dropped > 0 {
                lines.extend_from_slice(&notice(dropped));
            }
            let _ = sink.write_all(&lines);
            lines.clear();
            lines.shrink_to(KEPT);
        }
        self.lock().ended = true;
        self.ended.notify_all();
    }

    /// Waits for lines; answers how many were dropped behind them and where they go, if not where the last
    /// ones went; `None` at the end.
    fn take(&self, lines: &mut Vec<u8>) -> Option<(u64, Option<Sink>)> {
        let mut state = self.lock();
        loop {
            if !state.waiting.is_empty() || state.dropped > 0 {
                std::mem::swap(&mut state.waiting, lines);
                return Some((std::mem::take(&mut state.dropped), state.next.take()));
            }
            if state.closed {
                return None;
            }
            state.is_idle = true;
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.is_idle = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    #[test]
    fn a_log_that_nobody_reads_holds_nobody_up_and_says_what_is_missing() {
        const LINES: u64 = 100_000;
        let (reader, sink) = io::pipe().unwrap();
        let notice = |dropped| format!("{dropped} missing\n").into_bytes();
        let writer = Writer::start(sink, Box::new(notice)).unwrap();
        for number in 0..LINES {
            writer.push(format!("line {number} of a log that nobody reads\n").as_bytes());
        }
        writer.close();
        drop(writer);
        let (mut whole, mut missing) = (0, 0);
        for line in BufReader::new(reader).lines().map(Result::unwrap) {
            match line.strip_suffix(" missing") {
                Some(count) => missing += count.parse::<u64>().unwrap(),
                None => {
                    assert_eq!(line, format!("line {} of a log that nobody reads", whole + missing));
                    whole += 1;
                }
            }
        }
        assert!(missing > 0);
        assert_eq!(whole + missing, LINES);
    }

    #[test]
    fn what_comes_after_a_redirection_goes_elsewhere() {
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

    #[test]
    fn what_was_handed_over_is_written_by_the_end() {
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
