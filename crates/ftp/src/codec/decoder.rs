//! Uploads: wire bytes to file bytes.

use super::{CodecError, Coding, Mode, Structure, Type};
use super::{block, deflate, record};
use crate::{ascii, ebcdic};

/// The progress of [`Decoder::decode`]. The caller passes unread input again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded {
    /// All of the input is taken; there is nothing to write until more comes.
    Hungry,
    /// The output is as long as was allowed. Call again, with the rest of the input, even if that is empty.
    Full {
        /// Bytes taken.
        consumed: usize,
    },
    /// MODE B: a restart marker. The data before it is in the output; when that is stored, reply `110 MARK marker =
    /// position`. Then call again with the rest.
    Marker {
        /// Bytes taken.
        consumed: usize,
        /// The sender's marker, printable.
        marker: Vec<u8>,
        /// Our own: the offset in the file.
        position: u64,
    },
    /// The file is complete. In MODE B the rest of the input belongs to the next file; elsewhere there
    /// must be none.
    EndOfFile {
        /// Bytes taken.
        consumed: usize,
    },
}

/// Wire bytes to file bytes.
#[derive(Debug)]
pub struct Decoder {
    translation: FromNetwork,
    unframing: Unframing,
    /// Bytes out of a frame, on their way to translation.
    scratch: Vec<u8>,
    /// Bytes of the file made so far, from its beginning.
    position: u64,
}

#[derive(Debug)]
enum FromNetwork {
    None,
    Ascii(ascii::FromNetwork),
    Ebcdic,
}

#[derive(Debug)]
enum Unframing {
    Stream(Option<record::Unescaper>),
    Block(block::Reader),
    Deflate(Option<record::Unescaper>, Box<deflate::Inflater>),
}

impl Decoder {
    /// Decodes a file whose first byte goes to offset `start`.
    pub fn new(coding: Coding, start: u64) -> Self {
        let translation = match (coding.representation, coding.structure) {
            (Type::Ebcdic, _) => FromNetwork::Ebcdic,
            (Type::Ascii, Structure::File) => FromNetwork::Ascii(ascii::FromNetwork::default()),
            _ => FromNetwork::None,
        };
        let unescaper = coding.record_end().map(record::Unescaper::new);
        let unframing = match coding.mode {
            Mode::Stream => Unframing::Stream(unescaper),
            Mode::Block => Unframing::Block(block::Reader::new(coding.record_end())),
            Mode::Deflate { .. } => Unframing::Deflate(unescaper, Box::default()),
        };
        Self { translation, unframing, scratch: Vec::new(), position: start }
    }

    /// Appends file bytes to `out`, about `most` of them (at least 1; one or two more can come).
    pub fn decode(&mut self, input: &[u8], out: &mut Vec<u8>, most: usize) -> Result<Decoded, CodecError> {
        let start = out.len();
        let most = most.max(1);
        let result = match self.unframing {
            Unframing::Stream(_) => self.decode_stream(input, out, most),
            Unframing::Block(_) => self.decode_blocks(input, out, most),
            Unframing::Deflate(..) => self.decode_deflate(input, out, most),
        };
        self.position += (out.len() - start) as u64;
        match result? {
            Decoded::Marker { consumed, marker, .. } => {
                Ok(Decoded::Marker { consumed, marker, position: self.position })
            }
            Decoded::EndOfFile { consumed } => {
                self.flush(out);
                Ok(Decoded::EndOfFile { consumed })
            }
            progress => Ok(progress),
        }
    }

    /// The connection has closed: appends what was held back, or says that bytes are missing.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), CodecError> {
        let whole = match &self.unframing {
            Unframing::Stream(None) => true,
            Unframing::Stream(Some(unescaper)) => unescaper.has_ended(),
            Unframing::Block(reader) => reader.has_ended(),
            Unframing::Deflate(unescaper, inflater) => {
                inflater.has_ended() && unescaper.as_ref().is_none_or(record::Unescaper::has_ended)
            }
        };
        if !whole {
            return Err(CodecError::Truncated);
        }
        self.flush(out);
        Ok(())
    }

    /// The offset in the file of what comes next.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// MODE B: how many blocks their sender marked as doubtful. They are data all the same (RFC 959 section 3.4.2), but
    /// the user should be told.
    pub fn suspect_blocks(&self) -> u64 {
        match &self.unframing {
            Unframing::Block(reader) => reader.suspect_blocks(),
            _ => 0,
        }
    }

    fn flush(&mut self, out: &mut Vec<u8>) {
        let start = out.len();
        if let FromNetwork::Ascii(converter) = &mut self.translation {
            converter.finish(out);
        }
        self.position += (out.len() - start) as u64;
    }

    fn decode_stream(&mut self, input: &[u8], out: &mut Vec<u8>, most: usize) -> Result<Decoded, CodecError> {
        let Unframing::Stream(unescaper) = &mut self.unframing else { return Ok(Decoded::Hungry) };
        let part = &input[..input.len().min(most)];
        let Some(unescaper) = unescaper else {
            self.translation.convert(part, out);
            return Ok(progress(part.len(), input));
        };
        self.scratch.clear();
        let consumed = unescape(unescaper, part, &mut self.scratch)?;
        self.translation.convert(&self.scratch, out);
        match unescaper.has_ended() {
            true => Ok(Decoded::EndOfFile { consumed }),
            false => Ok(progress(consumed, input)),
        }
    }

    fn decode_blocks(&mut self, input: &[u8], out: &mut Vec<u8>, most: usize) -> Result<Decoded, CodecError> {
        let Unframing::Block(reader) = &mut self.unframing else { return Ok(Decoded::Hungry) };
        // Output is never longer than the input, so a bound on the input is one on the output.
        let part = &input[..input.len().min(most)];
        let mut rest = part;
        while let Some(event) = reader.next(&mut rest)? {
            let consumed = part.len() - rest.len();
            match event {
                block::BlockEvent::Data(data) => self.translation.convert(data, out),
                block::BlockEvent::NewLine(byte) => self.translation.convert(&[byte], out),
                block::BlockEvent::Marker(marker) => {
                    return Ok(Decoded::Marker { consumed, marker, position: self.position });
                }
                block::BlockEvent::EndOfFile => return Ok(Decoded::EndOfFile { consumed }),
            }
        }
        Ok(progress(part.len(), input))
    }

    fn decode_deflate(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        most: usize,
    ) -> Result<Decoded, CodecError> {
        let Unframing::Deflate(unescaper, inflater) = &mut self.unframing else {
            return Ok(Decoded::Hungry);
        };
        if inflater.has_ended() && !input.is_empty() {
            return Err(CodecError::TrailingData);
        }
        self.scratch.clear();
        let consumed = inflater.read(input, &mut self.scratch, most)?;
        let is_full = self.scratch.len() == most;
        if !is_full && !inflater.has_ended() && consumed < input.len() {
            return Err(CodecError::Corrupt); // it stands still
        }
        if let Some(unescaper) = unescaper {
            let inflated = std::mem::take(&mut self.scratch);
            let taken = unescape(unescaper, &inflated, &mut self.scratch)?;
            if taken < inflated.len() {
                return Err(CodecError::TrailingData);
            }
        }
        self.translation.convert(&self.scratch, out);
        match inflater.has_ended() {
            true if unescaper.as_ref().is_some_and(|unescaper| !unescaper.has_ended()) => {
                Err(CodecError::Truncated)
            }
            true => Ok(Decoded::EndOfFile { consumed }),
            false if is_full => Ok(Decoded::Full { consumed }),
            false => Ok(progress(consumed, input)),
        }
    }
}

impl FromNetwork {
    fn convert(&mut self, input: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::None => out.extend_from_slice(input),
            Self::Ascii(converter) => converter.convert(input, out),
            Self::Ebcdic => ebcdic::from_network(input, out),
        }
    }
}

fn progress(consumed: usize, input: &[u8]) -> Decoded {
    if consumed < input.len() { Decoded::Full { consumed } } else { Decoded::Hungry }
}

/// Unescapes, and refuses what comes after the end.
fn unescape(unescaper: &mut record::Unescaper, input: &[u8], out: &mut Vec<u8>) -> Result<usize, CodecError> {
    if unescaper.has_ended() && !input.is_empty() {
        return Err(CodecError::TrailingData);
    }
    unescaper.convert(input, out)
}
