//! The chunked transfer coding (RFC 9112 section 7.1), taken apart and put together.
//!
//! Bounded: a size has at most 16 digits and is less than 2^63, an extension after it on the line (which are not used
//! in practice) at most 256 bytes, and 16 KiB in all chunks of a body; the trailer 4 KiB.

use std::ops::Range;

use crate::{Refusal, Status};

/// Bytes of a chunk's extensions at most.
const MAX_EXTENSION: u16 = 256;

/// Bytes of the extensions of all chunks at most: they would be work without an end that moves no data.
const MAX_EXTENSIONS: u16 = 16 * 1024;

/// Bytes of the trailer at most.
const MAX_TRAILER: u16 = 4096;

/// Why a chunked body is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// It breaks the grammar, or one of the bounds above.
    #[error("the chunked body is malformed")]
    Malformed,
    /// A chunk announces 2^63 bytes or more.
    #[error("a chunk is too large")]
    TooLarge,
}

impl From<ChunkError> for Refusal {
    fn from(error: ChunkError) -> Self {
        match error {
            ChunkError::Malformed => {
                Self { status: Status::BAD_REQUEST, reason: "The chunked body is malformed." }
            }
            ChunkError::TooLarge => {
                Self { status: Status::CONTENT_TOO_LARGE, reason: "A chunk is too large." }
            }
        }
    }
}

/// Takes a chunked body apart, in pieces of any size.
#[derive(Debug, Clone)]
pub struct ChunkDecoder {
    state: State,
    /// Bytes of extensions so far.
    extensions: u16,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    /// In the digits of a size: its value so far, and how many digits.
    Size(u64, u8),
    /// In blanks behind the digits: an extension, or the line's end.
    Blank(u64, u16),
    /// In an extension: its bytes so far.
    Extension(u64, u16),
    /// The CR of the line with the size was read.
    SizeEnd(u64),
    /// In the data: bytes to come.
    Data(u64),
    /// Behind the data: CR, then LF.
    DataCr,
    DataLf,
    /// At the beginning of a line of the trailer: bytes of it so far.
    Trailer(u16),
    /// In the name of a field there.
    TrailerName(u16),
    /// Behind its colon.
    TrailerValue(u16),
    /// The CR behind a field of the trailer was read.
    TrailerLf(u16),
    /// The CR of the last line was read.
    EndLf,
    End,
}

impl Default for ChunkDecoder {
    fn default() -> Self {
        Self { state: State::Size(0, 0), extensions: 0 }
    }
}

impl ChunkDecoder {
    /// Returns whether the body has ended.
    pub fn has_ended(&self) -> bool {
        self.state == State::End
    }

    /// Takes wire bytes from `wire`, appending what they hold to `body`, until it ends or `wire` is used up.
    pub fn decode(&mut self, wire: &mut &[u8], body: &mut Vec<u8>) -> Result<(), ChunkError> {
        while !wire.is_empty() && !self.has_ended() {
            let (taken, piece) = self.next_piece(wire)?;
            body.extend_from_slice(&wire[piece]);
            *wire = &wire[taken..];
        }
        Ok(())
    }

    /// Takes wire bytes up to the end of the next piece of the body: how many, and which of them are the piece. It is
    /// empty where the body ends or `wire` is used up.
    pub fn next_piece(&mut self, wire: &[u8]) -> Result<(usize, Range<usize>), ChunkError> {
        let mut at = 0;
        while at < wire.len() && !self.has_ended() {
            if let State::Data(left) = self.state {
                let count = left.min((wire.len() - at) as u64) as usize;
                let left = left - count as u64;
                self.state = if left == 0 { State::DataCr } else { State::Data(left) };
                return Ok((at + count, at..at + count));
            }
            self.state = self.step(wire[at])?;
            if matches!(self.state, State::Blank(..) | State::Extension(..)) {
                self.extensions += 1;
            }
            at += 1;
        }
        Ok((at, at..at))
    }

    fn step(&self, byte: u8) -> Result<State, ChunkError> {
        let may_extend = self.extensions < MAX_EXTENSIONS;
        Ok(match (self.state, byte) {
            (State::Size(size, digits), byte) if byte.is_ascii_hexdigit() && digits < 16 => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                State::Size(size.wrapping_mul(16) + u64::from(digit), digits + 1)
            }
            (State::Size(size, 1..), b'\r') => State::SizeEnd(bounded(size)?),
            (State::Size(size, 1..), b';') => State::Extension(bounded(size)?, 0),
            (State::Size(size, 1..), b' ' | b'\t') => State::Blank(bounded(size)?, 0),
            (State::Blank(size, _) | State::Extension(size, _), b'\r') => State::SizeEnd(size),
            (State::Blank(size, length), b';') => State::Extension(size, length),
            (State::Blank(size, length), b' ' | b'\t') if length < MAX_EXTENSION && may_extend => {
                State::Blank(size, length + 1)
            }
            (State::Extension(size, length), byte)
                if length < MAX_EXTENSION && may_extend && is_text(byte) =>
            {
                State::Extension(size, length + 1)
            }
            (State::SizeEnd(0), b'\n') => State::Trailer(0),
            (State::SizeEnd(size), b'\n') => State::Data(size),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Size(0, 0),
            (State::Trailer(_), b'\r') => State::EndLf,
            (State::EndLf, b'\n') => State::End,
            (State::Trailer(total) | State::TrailerName(total), byte)
                if total < MAX_TRAILER && is_token(byte) =>
            {
                State::TrailerName(total + 1)
            }
            (State::TrailerName(total), b':') => State::TrailerValue(total + 1),
            (State::TrailerValue(total), b'\r') => State::TrailerLf(total),
            (State::TrailerValue(total), byte) if total < MAX_TRAILER && is_text(byte) => {
                State::TrailerValue(total + 1)
            }
            (State::TrailerLf(total), b'\n') => State::Trailer(total),
            _ => return Err(ChunkError::Malformed),
        })
    }
}

/// Returns whether a byte may stand in a field's value.
fn is_text(byte: u8) -> bool {
    byte == b'\t' || !byte.is_ascii_control()
}

/// Returns whether a byte may stand in a field's name.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn bounded(size: u64) -> Result<u64, ChunkError> {
    i64::try_from(size).map(|_| size).map_err(|_| ChunkError::TooLarge)
}

/// Appends a chunk; nothing for no bytes, which would end the body.
pub fn write_chunk(bytes: &[u8], out: &mut Vec<u8>) {
    use std::io::Write;
    if !bytes.is_empty() {
        let _ = write!(out, "{:x}\r\n", bytes.len());
        out.extend_from_slice(bytes);
        out.extend_from_slice(b"\r\n");
    }
}

/// The last chunk, without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(wire: &[u8]) -> Result<(Vec<u8>, bool, usize), u16> {
        let (mut decoder, mut body, mut rest) = (ChunkDecoder::default(), Vec::new(), wire);
        decoder.decode(&mut rest, &mut body).map_err(|error| Refusal::from(error).status.0)?;
        Ok((body, decoder.has_ended(), rest.len()))
    }

    #[test]
    fn a_body_ends_with_its_last_chunk() {
        for (wire, body, ended, rest) in [
            ("3\r\nabc\r\n0\r\n\r\nGET", "abc", true, 3),
            ("3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n", "abc0123456789", true, 0),
            ("0\r\n\r\n", "", true, 0),
            ("000003 \r\nabc\r\n", "abc", false, 0),
            ("3 ; x=\"y z\"\r\nabc\r\n0\r\nA: b\r\nC:\r\n\r\n", "abc", true, 0),
            ("3\r\nab", "ab", false, 0),
        ] {
            assert_eq!(decode(wire.as_bytes()), Ok((body.into(), ended, rest)), "{wire:?}");
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for wire in [
            "\r\n",
            ";x\r\n",
            "3\nabc",
            "3\r\nabcd\r\n",
            "3\r\nabc\n",
            "g\r\n",
            "-1\r\n",
            "0x3\r\nabc",
            "3\r\nabc\r\n\r\n0\r\n",
            "0\r\nTrailer: x\n\r\n",
            "3;a\nb\r\nabc",
            " 3\r\nabc",
            "00000000000000003\r\nabc",
            "1 5\r\na",
            "1 \0\x01\r\na",
            "1;\x01\r\na",
            "0\r\nno field\r\n\r\n",
            "0\r\n: x\r\n\r\n",
            "0\r\nA b: x\r\n\r\n",
            "0\r\n A: x\r\n\r\n",
            "0\r\nA: \0\r\n\r\n",
        ] {
            assert_eq!(decode(wire.as_bytes()), Err(400), "{wire:?}");
        }
        assert_eq!(decode(b"ffffffffffffffff\r\n"), Err(413));
        assert_eq!(decode(&[&b"1;"[..], &[b'x'; 257]].concat()), Err(400));
        assert_eq!(decode(&[&b"0\r\n"[..], &[b'x'; 4097]].concat()), Err(400));
        let extended = [&b"1;"[..], &[b'x'; 250], b"\r\na\r\n"].concat();
        assert_eq!(decode(&extended.repeat(60)).map(|(body, ..)| body.len()), Ok(60));
        assert_eq!(decode(&extended.repeat(70)), Err(400), "in all chunks together");
    }

    proptest! {
        #[test]
        fn the_pieces_make_no_difference(body in prop::collection::vec(any::<u8>(), 0..200), cut in 1..20_usize) {
            let mut wire = Vec::new();
            body.chunks(17).for_each(|chunk| write_chunk(chunk, &mut wire));
            wire.extend_from_slice(LAST_CHUNK);
            let (mut decoder, mut decoded) = (ChunkDecoder::default(), Vec::new());
            for mut piece in wire.chunks(cut) {
                decoder.decode(&mut piece, &mut decoded).unwrap();
            }
            prop_assert!(decoder.has_ended());
            prop_assert_eq!(decoded, body);
        }
    }
}
