//! A terminal in raw mode, of which only what has changed is written: it may be at the end of a slow line.

use std::io::{self, Write};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{InputModes, LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::keys::{Key, parse};

/// The size of a terminal that does not tell its own.
const SIZE: (usize, usize) = (80, 24);

/// The other screen, which leaves what was there before as it was; no cursor, no line wrap.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &[u8] = b"\x1b[?7h\x1b[?25h\x1b[?1049l";

/// A line of the screen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ScreenLine {
    pub(super) text: String,
    /// Shown in reverse video.
    pub(super) is_reversed: bool,
}

/// The terminal. Dropping it restores its mode.
pub(super) struct Terminal {
    before: Termios,
    frame: Frame,
}

impl Terminal {
    pub(super) fn open() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN;
        raw.input_modes -= InputModes::IXON | InputModes::ICRNL;
        tcsetattr(io::stdin(), OptionalActions::Flush, &raw)?;
        let terminal = Self { before, frame: Frame::default() };
        write(ENTER)?;
        Ok(terminal)
    }

    /// Columns and rows.
    pub(super) fn size() -> (usize, usize) {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
            _ => SIZE,
        }
    }

    /// Shows these lines in place of the last ones.
    pub(super) fn draw(&mut self, size: (usize, usize), lines: &[ScreenLine]) -> io::Result<()> {
        let bytes = self.frame.change(size, lines);
        if bytes.is_empty() { Ok(()) } else { write(&bytes) }
    }

    /// The keys that are pressed within this time, or until a signal comes.
    pub(super) fn keys(&self, within: Duration) -> io::Result<Vec<Key>> {
        let stdin = io::stdin();
        let wait = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: within.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&wait)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut bytes = [0; 256];
        // Not by way of the buffer of `Stdin`, which poll does not see.
        match rustix::io::read(&stdin, &mut bytes)? {
            0 => Ok(vec![Key::Quit]),
            count => Ok(parse(&bytes[..count])),
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = write(LEAVE);
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.before);
    }
}

fn write(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// What the terminal shows.
#[derive(Debug, Default)]
struct Frame {
    size: (usize, usize),
    lines: Vec<ScreenLine>,
}

impl Frame {
    /// Returns what turns the present lines into these. Nothing follows the last changed character of a line but what
    /// clears its rest.
    fn change(&mut self, size: (usize, usize), lines: &[ScreenLine]) -> Vec<u8> {
        let mut out = Vec::new();
        if self.size != size {
            self.size = size;
            self.lines.clear();
            out.extend_from_slice(b"\x1b[2J");
        }
        let (columns, rows) = size;
        for row in 0..rows {
            let mut line = lines.get(row).cloned().unwrap_or_default();
            line.text = line.text.chars().take(columns).collect();
            match self.lines.get_mut(row) {
                Some(before) if *before == line => {}
                Some(before) => {
                    change_line(row, before, &line, &mut out);
                    *before = line;
                }
                None => {
                    if line != ScreenLine::default() {
                        change_line(row, &ScreenLine::default(), &line, &mut out);
                    }
                    self.lines.push(line);
                }
            }
        }
        out
    }
}

fn change_line(row: usize, before: &ScreenLine, line: &ScreenLine, out: &mut Vec<u8>) {
    let is_alike = before.is_reversed == line.is_reversed;
    let same = before.text.chars().zip(line.text.chars()).take_while(|(before, now)| before == now).count();
    let same = if is_alike { same } else { 0 };
    let changed: String = line.text.chars().skip(same).collect();
    out.extend_from_slice(format!("\x1b[{};{}H", row + 1, same + 1).as_bytes());
    if line.is_reversed {
        out.extend_from_slice(b"\x1b[7m");
    }
    out.extend_from_slice(changed.as_bytes());
    if line.is_reversed {
        out.extend_from_slice(b"\x1b[0m");
    }
    if before.text.chars().count() > line.text.chars().count() {
        out.extend_from_slice(b"\x1b[K");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(texts: &[&str]) -> Vec<ScreenLine> {
        texts.iter().map(|text| ScreenLine { text: (*text).to_owned(), is_reversed: false }).collect()
    }

    #[test]
    fn only_what_has_changed_is_written() {
        let mut frame = Frame::default();
        let size = (20, 3);
        let first = frame.change(size, &lines(&["one", "two 100"]));
        assert!(first.starts_with(b"\x1b[2J") && String::from_utf8_lossy(&first).contains("two 100"));
        assert_eq!(frame.change(size, &lines(&["one", "two 100"])), b"");
        assert_eq!(frame.change(size, &lines(&["one", "two 120"])), b"\x1b[2;6H20");
        assert_eq!(frame.change(size, &lines(&["one", "two"])), b"\x1b[2;4H\x1b[K");
        assert_eq!(frame.change(size, &lines(&["one", "two", "x"])), b"\x1b[3;1Hx");
        let mut reversed = lines(&["one", "two", "x"]);
        reversed[0].is_reversed = true;
        assert_eq!(frame.change(size, &reversed), b"\x1b[1;1H\x1b[7mone\x1b[0m");
    }

    #[test]
    fn a_line_ends_with_the_screen_and_another_size_draws_all() {
        let mut frame = Frame::default();
        let drawn = frame.change((3, 1), &lines(&["abcdef", "x"]));
        assert_eq!(drawn, b"\x1b[2J\x1b[1;1Habc");
        assert_eq!(frame.change((4, 1), &lines(&["abcdef"])), b"\x1b[2J\x1b[1;1Habcd");
    }
}
