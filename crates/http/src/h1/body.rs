//! A body on its way in, counted or chunked: how much of it is still to come.

use super::chunked::{ChunkDecoder, ChunkError};
use crate::Framing;

/// The rest of a body.
#[derive(Debug, Clone)]
pub enum BodyDecoder {
    /// That many bytes.
    Length(u64),
    /// Chunks.
    Chunked(ChunkDecoder),
    /// All that comes on a stream; whether its end was told.
    Stream(bool),
}

impl BodyDecoder {
    /// The body that a head announces.
    pub fn of(framing: Framing) -> Self {
        match framing {
            Framing::None => Self::Length(0),
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked => Self::Chunked(ChunkDecoder::default()),
        }
    }

    /// Takes what belongs to the body from the front of `wire`, and appends what it holds to `body`.
    pub fn take(&mut self, wire: &mut &[u8], body: &mut Vec<u8>) -> Result<(), ChunkError> {
        match self {
            Self::Length(left) => {
                let count = (*left).min(wire.len() as u64) as usize;
                body.extend_from_slice(&wire[..count]);
                *wire = &wire[count..];
                *left -= count as u64;
                Ok(())
            }
            Self::Chunked(decoder) => decoder.decode(wire, body),
            Self::Stream(_) => {
                body.extend_from_slice(std::mem::take(wire));
                Ok(())
            }
        }
    }

    /// Returns whether all of it was taken.
    pub fn has_ended(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(decoder) => decoder.has_ended(),
            Self::Stream(has_ended) => *has_ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_a_body_is_left() {
        for (framing, wire) in
            [(Framing::Length(3), &b"abcGET"[..]), (Framing::Chunked, b"3\r\nabc\r\n0\r\n\r\nGET")]
        {
            for piece in 1..=wire.len() {
                let (mut decoder, mut body, mut behind) = (BodyDecoder::of(framing), Vec::new(), Vec::new());
                for mut bytes in wire.chunks(piece) {
                    decoder.take(&mut bytes, &mut body).unwrap();
                    behind.extend_from_slice(bytes);
                }
                assert!(decoder.has_ended());
                assert_eq!((&body[..], &behind[..]), (&b"abc"[..], &b"GET"[..]));
            }
        }
        assert!(BodyDecoder::of(Framing::None).has_ended());
    }
}
