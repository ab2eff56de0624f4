//! Downloads: file bytes to wire bytes.

use super::{Coding, Mode, Structure, Type};
use super::{block, deflate, record};
use crate::{ascii, ebcdic};

/// File bytes to wire bytes.
#[derive(Debug)]
pub struct Encoder {
    translation: ToNetwork,
    framing: Framing,
    /// The translated bytes, before they are framed.
    scratch: Vec<u8>,
    /// Bytes of the file taken so far, from its beginning.
    position: u64,
    /// MODE B: a restart marker after this many bytes.
    marker_interval: Option<u64>,
    next_marker: u64,
    /// Wire bytes still to be left out at the beginning.
    skip: u64,
}

#[derive(Debug)]
enum ToNetwork {
    None,
    Ascii(ascii::ToNetwork),
    Ebcdic,
}

#[derive(Debug)]
enum Framing {
    Stream(Option<record::Escaper>),
    Block(block::BlockWriter),
    Deflate(Option<record::Escaper>, Box<deflate::Deflater>, Vec<u8>),
}

impl Encoder {
    /// Encodes a file from byte `start` on: the first input is what stands there. That is `REST` in TYPE I,
    /// and `REST` with one of our markers in MODE B.
    pub fn new(coding: Coding, start: u64) -> Self {
        let translation = match (coding.representation, coding.structure) {
            (Type::Ebcdic, _) => ToNetwork::Ebcdic,
            (Type::Ascii, Structure::File) => ToNetwork::Ascii(ascii::ToNetwork::default()),
            _ => ToNetwork::None,
        };
        let escaper = coding.record_end().map(record::Escaper::new);
        let framing = match coding.mode {
            Mode::Stream => Framing::Stream(escaper),
            Mode::Block => Framing::Block(block::BlockWriter::new(coding.record_end())),
            Mode::Deflate { level } => {
                Framing::Deflate(escaper, Box::new(deflate::Deflater::new(level)), Vec::new())
            }
        };
        Self {
            translation,
            framing,
            scratch: Vec::new(),
            position: start,
            marker_interval: None,
            next_marker: u64::MAX,
            skip: 0,
        }
    }

    /// Leaves out the first `count` wire bytes: `REST` in TYPE A counts what goes over the wire (RFC 3659
    /// section 5.1), so the file is read from its beginning. For MODE S only.
    pub fn skipping(mut self, count: u64) -> Self {
        self.skip = count;
        self
    }

    /// Returns true if what was to be left out is more than there was so far.
    pub fn skips_more(&self) -> bool {
        self.skip > 0
    }

    /// In MODE B, puts in a restart marker after every `bytes` bytes of the file; elsewhere does nothing.
    /// A marker is the decimal offset in the file: what `REST` takes.
    pub fn with_markers(mut self, bytes: u64) -> Self {
        self.marker_interval = Some(bytes.max(1));
        self.next_marker = self.position.saturating_add(bytes.max(1));
        self
    }

    /// Appends the wire form of `input`: at most four times its length and 32 KiB.
    pub fn encode(&mut self, mut input: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        while let (Framing::Block(_), Some(interval)) = (&self.framing, self.marker_interval) {
            let to_marker = self.next_marker.saturating_sub(self.position);
            if to_marker > input.len() as u64 {
                break;
            }
            let (before, after) = input.split_at(to_marker as usize);
            self.encode_run(before, out);
            input = after;
            // A marker between CR and LF would let the LF grow a second CR after a restart.
            let splits_line_end = before.last() == Some(&b'\r');
            if !splits_line_end {
                self.write_marker(out);
            }
            self.next_marker = self.position.saturating_add(if splits_line_end { 1 } else { interval });
        }
        self.encode_run(input, out);
        self.leave_out(start, out);
    }

    /// Appends what ends the file on the wire. Nothing may be encoded after it.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let start = out.len();
        match &mut self.framing {
            Framing::Stream(None) => {}
            Framing::Stream(Some(escaper)) => escaper.finish(out),
            Framing::Block(writer) => writer.finish(out),
            Framing::Deflate(escaper, deflater, escaped) => {
                if let Some(escaper) = escaper {
                    escaped.clear();
                    escaper.finish(escaped);
                    deflater.write(escaped, out);
                }
                deflater.finish(out);
            }
        }
        self.leave_out(start, out);
    }

    /// The offset in the file of what comes next.
    pub fn position(&self) -> u64 {
        self.position
    }

    fn encode_run(&mut self, input: &[u8], out: &mut Vec<u8>) {
        self.position += input.len() as u64;
        if let Framing::Stream(None) = self.framing {
            return self.translation.convert(input, out);
        }
        self.scratch.clear();
        let translated = match self.translation {
            ToNetwork::None => input,
            _ => {
                self.translation.convert(input, &mut self.scratch);
                &self.scratch
            }
        };
        match &mut self.framing {
            Framing::Stream(None) => {}
            Framing::Stream(Some(escaper)) => escaper.convert(translated, out),
            Framing::Block(writer) => writer.write(translated, out),
            Framing::Deflate(None, deflater, _) => deflater.write(translated, out),
            Framing::Deflate(Some(escaper), deflater, escaped) => {
                escaped.clear();
                escaper.convert(translated, escaped);
                deflater.write(escaped, out);
            }
        }
    }

    fn write_marker(&mut self, out: &mut Vec<u8>) {
        if let Framing::Block(writer) = &mut self.framing {
            writer.mark(self.position.to_string().as_bytes(), out);
        }
    }

    fn leave_out(&mut self, start: usize, out: &mut Vec<u8>) {
        if self.skip > 0 {
            let count = self.skip.min((out.len() - start) as u64);
            out.drain(start..start + count as usize);
            self.skip -= count;
        }
    }
}

impl ToNetwork {
    fn convert(&mut self, input: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::None => out.extend_from_slice(input),
            Self::Ascii(converter) => converter.convert(input, out),
            Self::Ebcdic => ebcdic::to_network(input, out),
        }
    }
}
