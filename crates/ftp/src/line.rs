//! Command lines: out of whatever pieces the network delivers them in.
//!
//! A line ends in CRLF; a bare LF is taken too, because scanners and `nc` send it. Within a line,
//! `CR NUL` is a CR (RFC 854) and Telnet commands are removed, options refused (RFC 1123 section
//! 4.1.2.12). A line is at most [`MAX_LINE`] bytes: the rest of a longer one is skipped without being
//! kept. Between lines the reader owns no memory.

use std::borrow::Cow;

/// The longest command line without its end: a verb and the longest path, quoted twice over.
pub const MAX_LINE: usize = 9 * 1024;

const IAC: u8 = 255;
const DONT: u8 = 254;
const DO: u8 = 253;
const WONT: u8 = 252;
const WILL: u8 = 251;
const SB: u8 = 250;
const SE: u8 = 240;

/// What the reader found next.
#[derive(Debug, PartialEq, Eq)]
pub enum LineEvent<'a> {
    /// A whole line, without its end: borrowed from the input where it lay there in one piece.
    Line(Cow<'a, [u8]>),
    /// A line longer than [`MAX_LINE`] has ended.
    TooLong,
    /// A line ended within a Telnet option subnegotiation: it is discarded.
    Torn,
    /// A Telnet option was proposed; these bytes refuse it.
    Refuse([u8; 3]),
}

/// Cuts a stream of bytes into lines.
#[derive(Debug, Default)]
pub struct LineReader {
    /// The received part of the current line.
    partial: Vec<u8>,
    state: State,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    /// After a CR that may begin the end of the line.
    Return,
    /// After IAC.
    Command,
    /// After IAC and WILL, WONT, DO or DONT.
    Option(u8),
    /// After IAC SB: everything up to IAC SE is an option subnegotiation, and ignored.
    Subnegotiation,
    /// The same, after IAC.
    Subcommand,
    /// In a line that is too long.
    Skip,
}

impl LineReader {
    /// Returns true if no line has begun.
    pub fn is_empty(&self) -> bool {
        self.partial.is_empty() && self.state == State::Text
    }

    /// Takes the next event out of `input`, which is moved past what was consumed; `None` when all of
    /// `input` is consumed and no event is complete.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Option<LineEvent<'a>> {
        if self.is_empty()
            && let Some(line) = whole_line(input)
        {
            return Some(LineEvent::Line(Cow::Borrowed(line)));
        }
        while let Some((&byte, rest)) = input.split_first() {
            *input = rest;
            if let Some(event) = self.step(byte) {
                return Some(event);
            }
        }
        None
    }

    fn step(&mut self, byte: u8) -> Option<LineEvent<'static>> {
        match (self.state, byte) {
            (State::Skip, b'\n') => {
                self.state = State::Text;
                return Some(LineEvent::TooLong);
            }
            (State::Skip, _) => {}
            (State::Command, WILL | WONT | DO | DONT) => self.state = State::Option(byte),
            (State::Command, SB) => self.state = State::Subnegotiation,
            (State::Subcommand, SE) => self.state = State::Text,
            // The line ends all the same: where these bytes were a name's (`\xff\xfa` of Latin-1), there is no end of
            // theirs, and the name is not what has come of it.
            (State::Subnegotiation | State::Subcommand, b'\n') => {
                (self.state, self.partial) = (State::Text, Vec::new());
                return Some(LineEvent::Torn);
            }
            (State::Subnegotiation, IAC) => self.state = State::Subcommand,
            (State::Subnegotiation | State::Subcommand, _) => self.state = State::Subnegotiation,
            (State::Command, IAC) => {
                self.state = State::Text;
                self.push(IAC);
            }
            // No command has such a number: the IAC stood alone, as old clients end their urgent data with one.
            (State::Command, ..SE) => {
                self.state = State::Text;
                return self.step(byte);
            }
            (State::Command, _) => self.state = State::Text,
            (State::Option(verb), option) => {
                self.state = State::Text;
                return match verb {
                    WILL => Some(LineEvent::Refuse([IAC, DONT, option])),
                    DO => Some(LineEvent::Refuse([IAC, WONT, option])),
                    _ => None,
                };
            }
            (State::Text | State::Return, b'\n') => {
                self.state = State::Text;
                return Some(LineEvent::Line(Cow::Owned(std::mem::take(&mut self.partial))));
            }
            (State::Return, _) => {
                self.state = State::Text;
                self.push(b'\r');
                if byte != 0 {
                    self.text(byte);
                }
            }
            (State::Text, _) => self.text(byte),
        }
        None
    }

    fn text(&mut self, byte: u8) {
        match byte {
            _ if self.state == State::Skip => {}
            IAC => self.state = State::Command,
            b'\r' => self.state = State::Return,
            _ => self.push(byte),
        }
    }

    fn push(&mut self, byte: u8) {
        if self.partial.len() < MAX_LINE {
            self.partial.push(byte);
        } else {
            self.partial = Vec::new();
            self.state = State::Skip;
        }
    }
}

/// Splits a line off `input` if it lies there whole and has nothing in it to decode.
fn whole_line<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = memchr::memchr(b'\n', input)?;
    let line = &input[..end];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() > MAX_LINE || memchr::memchr2(IAC, b'\r', line).is_some() {
        return None;
    }
    *input = &input[end + 1..];
    Some(line)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every event of `input` when it arrives in pieces cut at `cuts`.
    fn events(input: &[u8], cuts: &[usize]) -> Vec<LineEvent<'static>> {
        let mut reader = LineReader::default();
        let mut found = Vec::new();
        let mut start = 0;
        for end in cuts.iter().copied().filter(|&cut| cut <= input.len()).chain([input.len()]) {
            let mut piece = &input[start.min(end)..end];
            start = end.max(start);
            while let Some(event) = reader.next(&mut piece) {
                found.push(match event {
                    LineEvent::Line(line) => LineEvent::Line(Cow::Owned(line.into_owned())),
                    LineEvent::TooLong => LineEvent::TooLong,
                    LineEvent::Torn => LineEvent::Torn,
                    LineEvent::Refuse(bytes) => LineEvent::Refuse(bytes),
                });
            }
        }
        found
    }

    fn line(text: &[u8]) -> LineEvent<'static> {
        LineEvent::Line(Cow::Owned(text.to_vec()))
    }

    #[test]
    fn lines_end_in_crlf_or_lf() {
        assert_eq!(events(b"USER a\r\nPASS b\nNO", &[]), [line(b"USER a"), line(b"PASS b")]);
    }

    #[test]
    fn cr_nul_is_a_cr_in_a_name() {
        assert_eq!(events(b"DELE a\r\0b\rc\r\n", &[]), [line(b"DELE a\rb\rc")]);
    }

    #[test]
    fn telnet_commands_vanish_and_a_doubled_iac_is_a_byte() {
        // Interrupt Process and Data Mark before ABOR, as RFC 959 section 4.1.3 has it.
        assert_eq!(events(b"\xff\xf4\xff\xf2ABOR\r\n", &[]), [line(b"ABOR")]);
        // As old clients say it: IP, and a single IAC as urgent data.
        assert_eq!(events(b"\xff\xf4\xffabor\r\n", &[]), [line(b"abor")]);
        assert_eq!(events(b"NOOP\xff\r\nPWD\xff\n", &[]), [line(b"NOOP"), line(b"PWD")]);
        assert_eq!(events(b"CWD \xff\xff\r\n", &[]), [line(b"CWD \xff")]);
        assert_eq!(
            events(b"\xff\xfb\x01\xff\xfd\x03\xff\xfe\x05NOOP\r\n", &[]),
            [LineEvent::Refuse([IAC, DONT, 1]), LineEvent::Refuse([IAC, WONT, 3]), line(b"NOOP")]
        );
        // The rest of a subnegotiation up to its end; without an end there is no line.
        assert_eq!(events(b"\xff\xfa\x18\x01\xff\xff\xff\xf0PWD\r\n", &[]), [line(b"PWD")]);
        assert_eq!(events(b"CWD a\xff\xfab\r\nPWD\r\n", &[]), [LineEvent::Torn, line(b"PWD")]);
    }

    #[test]
    fn a_line_too_long_is_skipped_and_the_next_is_read() {
        let longest = vec![b'x'; MAX_LINE];
        for ending in [&b"\r\n"[..], b"\n"] {
            let input = [&longest[..], ending, &longest, b"x", ending, b"NOOP\r\n"].concat();
            assert_eq!(events(&input, &[]), [line(&longest), LineEvent::TooLong, line(b"NOOP")]);
            assert_eq!(events(&input, &[5, 9999]), [line(&longest), LineEvent::TooLong, line(b"NOOP")]);
        }
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(
            input in prop::collection::vec(prop::sample::select(&b"ab\r\n\0\xff\xf4\xfb\xfd\xfa\xf0"[..]), 0..60),
            cuts in prop::collection::vec(0usize..60, 0..6),
        ) {
            let mut cuts = cuts;
            cuts.sort_unstable();
            prop_assert_eq!(events(&input, &cuts), events(&input, &[]));
        }
    }
}
