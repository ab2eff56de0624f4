//! The chunked transfer coding (RFC 9112 section 7.1), taken apart and put together.
//!
//! Bounded: a size has at most 16 digits and is less than 2^63, what stands behind it on its line (an
//! extension, which nobody uses) at most 256 bytes, the trailer 4 KiB.

use crate::{Refusal, Status};

/// Bytes of a chunk's extensions at most.
const MAX_EXTENSION: usize = 256;

/// Bytes of the trailer at most.
const MAX_TRAILER: usize = 4096;

/// Takes a chunked body apart, in whatever pieces it comes.
#[derive(Debug, Clone)]
pub struct Decoder {
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    /// In the digits of a size: its value so far, and how many digits.
    Size(u64, u8),
    /// Behind the digits: bytes of extension so far.
    Extension(u64, usize),
    /// The CR of the line with the size was read.
    SizeEnd(u64),
    /// In the data: bytes to come.
    Data(u64),
    /// Behind the data: CR, then LF.
    DataCr,
    DataLf,
    /// In the trailer: bytes so far, and the length of the line so far.
    Trailer(usize, usize),
    /// The CR of a trailer's line was read.
    TrailerLf(usize, usize),
    End,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { state: State::Size(0, 0) }
    }
}

impl Decoder {
    /// Claims that the body has ended.
    pub fn has_ended(&self) -> bool {
        self.state == State::End
    }

    /// Takes wire bytes from `wire`, appending what they hold to `body`, until it ends or `wire` is used up.
    pub fn decode(&mut self, wire: &mut &[u8], body: &mut Vec<u8>) -> Result<(), Refusal> {
        while let Some(&byte) = wire.first() {
            if let State::Data(left) = self.state {
                let count = left.min(wire.len() as u64) as usize;
                body.extend_from_slice(&wire[..count]);
                *wire = &wire[count..];
                let left = left - count as u64;
                self.state = if left == 0 { State::DataCr } else { State::Data(left) };
                continue;
            }
            if self.state == State::End {
                break;
            }
            self.state = self.step(byte)?;
            *wire = &wire[1..];
        }
        Ok(())
    }

    fn step(&self, byte: u8) -> Result<State, Refusal> {
        Ok(match (self.state, byte) {
            (State::Size(size, digits), byte) if byte.is_ascii_hexdigit() && digits < 16 => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                State::Size(size.wrapping_mul(16) + u64::from(digit), digits + 1)
            }
            (State::Size(size, 1..), b'\r') => State::SizeEnd(bounded(size)?),
            (State::Size(size, 1..), b';' | b' ' | b'\t') => State::Extension(bounded(size)?, 0),
            (State::Extension(size, _), b'\r') => State::SizeEnd(size),
            (State::Extension(size, length), byte) if length < MAX_EXTENSION && byte != b'\n' => {
                State::Extension(size, length + 1)
            }
            (State::SizeEnd(0), b'\n') => State::Trailer(0, 0),
            (State::SizeEnd(size), b'\n') => State::Data(size),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Size(0, 0),
            (State::Trailer(total, line), b'\r') => State::TrailerLf(total, line),
            (State::Trailer(total, line), byte) if total < MAX_TRAILER && byte != b'\n' => {
                State::Trailer(total + 1, line + 1)
            }
            (State::TrailerLf(_, 0), b'\n') => State::End,
            (State::TrailerLf(total, _), b'\n') => State::Trailer(total, 0),
            _ => {
                let reason = "The chunked body is malformed.";
                return Err(Refusal { status: Status::BAD_REQUEST, reason });
            }
        })
    }
}

fn bounded(size: u64) -> Result<u64, Refusal> {
    match i64::try_from(size) {
        Ok(_) => Ok(size),
        Err(_) => Err(Refusal { status: Status::CONTENT_TOO_LARGE, reason: "A chunk is too large." }),
    }
}

/// Appends a chunk; nothing for no bytes, which would end the body.
pub fn write(bytes: &[u8], out: &mut Vec<u8>) {
    use std::io::Write;
    if !bytes.is_empty() {
        let _ = write!(out, "{:x}\r\n", bytes.len());
        out.extend_from_slice(bytes);
        out.extend_from_slice(b"\r\n");
    }
}

/// The last chunk, without trailers.
pub const END: &[u8] = b"0\r\n\r\n";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(wire: &[u8]) -> Result<(Vec<u8>, bool, usize), u16> {
        let (mut decoder, mut body, mut rest) = (Decoder::default(), Vec::new(), wire);
        decoder.decode(&mut rest, &mut body).map_err(|refusal| refusal.status.0)?;
        Ok((body, decoder.has_ended(), rest.len()))
    }

    #[test]
    fn a_body_ends_with_its_last_chunk() {
        for (wire, body, ended, rest) in [
            ("3\r\nabc\r\n0\r\n\r\nGET", "abc", true, 3),
            ("3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n", "abc0123456789", true, 0),
            ("0\r\n\r\n", "", true, 0),
            ("000003 \r\nabc\r\n", "abc", false, 0),
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
        ] {
            assert_eq!(decode(wire.as_bytes()), Err(400), "{wire:?}");
        }
        assert_eq!(decode(b"ffffffffffffffff\r\n"), Err(413));
        assert_eq!(decode(&[&b"1;"[..], &[b'x'; 257]].concat()), Err(400));
        assert_eq!(decode(&[&b"0\r\n"[..], &[b'x'; 4097]].concat()), Err(400));
    }

    proptest! {
        #[test]
        fn the_pieces_make_no_difference(body in prop::collection::vec(any::<u8>(), 0..200), cut in 1..20_usize) {
            let mut wire = Vec::new();
            body.chunks(17).for_each(|chunk| write(chunk, &mut wire));
            wire.extend_from_slice(END);
            let (mut decoder, mut decoded) = (Decoder::default(), Vec::new());
            for mut piece in wire.chunks(cut) {
                decoder.decode(&mut piece, &mut decoded).unwrap();
            }
            prop_assert!(decoder.has_ended());
            prop_assert_eq!(decoded, body);
        }
    }
}
