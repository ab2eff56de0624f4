//! Lines that a client has sent and its session does not take yet.

use millrace_ftp::Session;
use millrace_ftp::line::{LineEvent, LineReader};

/// How far behind a line that has to wait is read on for an `ABOR`.
const LOOK_AHEAD: usize = 4 * 1024;

/// What the session does not take yet.
#[derive(Debug)]
pub(super) enum Held {
    Line(Vec<u8>),
    TooLong,
    Torn,
}

/// Lines, of which one at most is held, and what came behind it.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) reader: LineReader,
    /// A line that the session does not take yet.
    pub(super) held: Option<Held>,
    /// What came behind the held line.
    pub(super) pending: Vec<u8>,
}

impl Lines {
    /// Returns true if there is more than the session takes now.
    pub(super) fn are_waiting(&self) -> bool {
        self.held.is_some() || !self.pending.is_empty()
    }

    /// Takes the held line, if the session takes it by now.
    pub(super) fn take_held(&mut self, session: &Session) -> Option<Held> {
        self.held.take_if(|held| match held {
            Held::Line(line) => session.takes(line),
            Held::TooLong | Held::Torn => session.takes(b""),
        })
    }

    /// Returns true if what is behind a held line may still be read.
    pub(super) fn have_room(&self) -> bool {
        self.pending.len() < LOOK_AHEAD
    }

    /// Returns true if one that waits says `ABOR`.
    pub(super) fn have_abort(&self) -> bool {
        let is_abort = |line: &[u8]| line.trim_ascii_end().eq_ignore_ascii_case(b"ABOR");
        let (mut reader, mut rest) = (LineReader::default(), &self.pending[..]);
        let mut behind = std::iter::from_fn(|| reader.next(&mut rest));
        matches!(&self.held, Some(Held::Line(line)) if is_abort(line))
            || behind.any(|event| matches!(event, LineEvent::Line(line) if is_abort(&line)))
    }

    /// Takes the first line that waits, if it says `STAT` alone.
    pub(super) fn take_status(&mut self) -> bool {
        let (mut reader, mut rest) = (LineReader::default(), &self.pending[..]);
        let asks = match reader.next(&mut rest) {
            Some(LineEvent::Line(line)) => line.trim_ascii_end().eq_ignore_ascii_case(b"STAT"),
            _ => false,
        };
        if asks {
            let after = self.pending.len() - rest.len();
            self.pending.drain(..after);
        }
        asks
    }
}
