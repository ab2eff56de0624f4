//! STRU R in MODE S: records marked in the stream by escapes (RFC 959 section 3.4.1).
//!
//! A record is a line of our file, without its line feed. On the wire 0xFF begins an escape: `FF 01` ends a
//! record, `FF 02` ends the file, `FF 03` both, and `FF FF` is the byte 0xFF itself. A last line that has no
//! line feed is data before `FF 02`, so a file comes back as it was.
//!
//! (In MODE B the descriptor of a block says the same: see [`super::block`].)

use memchr::{memchr, memchr2};

use super::error::CodecError;

const ESCAPE: u8 = 0xff;
const END_OF_RECORD: u8 = 1;
const END_OF_FILE: u8 = 2;

/// Lines to records.
#[derive(Debug)]
pub struct Escaper {
    new_line: u8,
    /// A record has ended whose mark is not written yet: it may be the last one's, `FF 03`.
    owes_mark: bool,
}

impl Escaper {
    /// An escaper of lines that end in `new_line`.
    pub fn new(new_line: u8) -> Self {
        Self { new_line, owes_mark: false }
    }

    /// Appends the wire form of `input`: at most twice its length, and two bytes.
    pub fn convert(&mut self, mut input: &[u8], out: &mut Vec<u8>) {
        while let Some(&first) = input.first() {
            self.write_mark(0, out);
            let special = match first == self.new_line || first == ESCAPE {
                true => Some(0),
                false => memchr2(self.new_line, ESCAPE, input),
            };
            let Some(at) = special else { return out.extend_from_slice(input) };
            out.extend_from_slice(&input[..at]);
            if input[at] == self.new_line {
                self.owes_mark = true;
            } else {
                out.extend_from_slice(&[ESCAPE, ESCAPE]);
            }
            input = &input[at + 1..];
        }
    }

    /// Appends the end of the file.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.write_mark(END_OF_FILE, out) {
            out.extend_from_slice(&[ESCAPE, END_OF_FILE]);
        }
    }

    fn write_mark(&mut self, with: u8, out: &mut Vec<u8>) -> bool {
        let owed = std::mem::take(&mut self.owes_mark);
        if owed {
            out.extend_from_slice(&[ESCAPE, END_OF_RECORD | with]);
        }
        owed
    }
}

/// Records to lines.
#[derive(Debug)]
pub struct Unescaper {
    new_line: u8,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Data,
    /// An escape byte ended the last buffer.
    Escape,
    Ended,
}

impl Unescaper {
    /// Makes lines that end in `new_line`.
    pub fn new(new_line: u8) -> Self {
        Self { new_line, state: State::Data }
    }

    /// Appends the lines in `input`, never more than it has bytes. Answers how many bytes it took: all, or
    /// up to the end of the file.
    pub fn convert(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, CodecError> {
        let mut rest = input;
        while !rest.is_empty() && self.state != State::Ended {
            if self.state == State::Escape {
                self.escape(rest[0], out)?;
                rest = &rest[1..];
                continue;
            }
            let data = memchr(ESCAPE, rest).unwrap_or(rest.len());
            out.extend_from_slice(&rest[..data]);
            if data < rest.len() {
                self.state = State::Escape;
            }
            rest = rest.get(data + 1..).unwrap_or_default();
        }
        Ok(input.len() - rest.len())
    }

    /// Returns true if the end of the file has been seen.
    pub fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    fn escape(&mut self, code: u8, out: &mut Vec<u8>) -> Result<(), CodecError> {
        self.state = State::Data;
        match code {
            ESCAPE => out.push(ESCAPE),
            1..=3 => {
                if code & END_OF_RECORD != 0 {
                    out.push(self.new_line);
                }
                if code & END_OF_FILE != 0 {
                    self.state = State::Ended;
                }
            }
            other => return Err(CodecError::BadEscape(other)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(pieces: &[&[u8]]) -> Vec<u8> {
        let (mut escaper, mut out) = (Escaper::new(b'\n'), Vec::new());
        pieces.iter().for_each(|piece| escaper.convert(piece, &mut out));
        escaper.finish(&mut out);
        out
    }

    #[test]
    fn the_last_record_and_the_file_end_together() {
        assert_eq!(escaped(&[b"a\nb\n"]), b"a\xff\x01b\xff\x03");
        assert_eq!(escaped(&[b"a\n", b"b"]), b"a\xff\x01b\xff\x02");
        assert_eq!(escaped(&[b"\n", b"", b"\n"]), b"\xff\x01\xff\x03");
        assert_eq!(escaped(&[]), b"\xff\x02");
        assert_eq!(escaped(&[b"\xff\n\xff"]), b"\xff\xff\xff\x01\xff\xff\xff\x02");
    }

    #[test]
    fn marks_that_are_cut_in_two_are_read() {
        let (mut unescaper, mut out) = (Unescaper::new(b'\n'), Vec::new());
        assert_eq!(unescaper.convert(b"a\xff", &mut out), Ok(2));
        assert_eq!(unescaper.convert(b"\x01\xff\xff\xff", &mut out), Ok(4));
        assert!(!unescaper.has_ended());
        assert_eq!(unescaper.convert(b"\x02more", &mut out), Ok(1));
        assert!(unescaper.has_ended());
        assert_eq!(out, b"a\n\xff");
    }

    #[test]
    fn an_unknown_mark_is_refused() {
        for code in [0, 4, 0xfe] {
            let result = Unescaper::new(b'\n').convert(&[0xff, code], &mut Vec::new());
            assert_eq!(result, Err(CodecError::BadEscape(code)));
        }
    }
}
