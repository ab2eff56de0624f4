//! The seam between the bytes of a file and the bytes on a data connection: TYPE, STRU and MODE together.
//!
//! An [`Encoder`] makes wire bytes of file bytes (downloads), a [`Decoder`] file bytes of wire bytes
//! (uploads). Both take buffers cut anywhere and keep their memory flat: what one call appends is bounded
//! by its input, or by the caller where the input is compressed. Where [`Coding::is_plain`] there is
//! nothing to do, and the kernel may move the bytes by itself.
//!
//! A decoder knows whether the file came whole. In MODE B and Z, and with records, the wire says where the
//! file ends; [`Decoder::finish`] is an error where it did not, so that lost bytes never get a 226.
//!
//! RFC 959 section 3.4. With STRU R a line of our file is a record, and TYPE A has nothing left to convert:
//! the mark of the record stands for the line end.

use thiserror::Error;

use crate::{ascii, block, deflate, ebcdic, record};

/// How the bytes of a file are represented on the wire (`TYPE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Type {
    /// `A`: lines end in CR LF.
    #[default]
    Ascii,
    /// `E`: code page 037.
    Ebcdic,
    /// `I`, `L 8`: as they are.
    Image,
}

/// What a file is made of (`STRU`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Structure {
    /// `F`: bytes.
    #[default]
    File,
    /// `R`: records, which are lines of the file here.
    Record,
}

/// How the bytes go over a connection (`MODE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// `S`: one after the other; closing the connection ends the file.
    #[default]
    Stream,
    /// `B`: in blocks.
    Block,
    /// `Z`: compressed.
    Deflate {
        /// 0 to 9, when sending.
        level: u8,
    },
}

/// A session's `TYPE`, `STRU` and `MODE`. The default is RFC 959's: ASCII, file, stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Coding {
    /// `TYPE`
    pub representation: Type,
    /// `STRU`
    pub structure: Structure,
    /// `MODE`
    pub mode: Mode,
}

impl Coding {
    /// Image, file, stream: the bytes as they are.
    pub const PLAIN: Self =
        Self { representation: Type::Image, structure: Structure::File, mode: Mode::Stream };

    /// Claims that file bytes and wire bytes are the same, so that `sendfile` and `splice` may be used.
    pub fn is_plain(&self) -> bool {
        *self == Self::PLAIN
    }

    /// Claims that closing the connection is what ends the file, so that a lost end cannot be noticed
    /// in the data itself.
    pub fn ends_with_close(&self) -> bool {
        self.mode == Mode::Stream && self.structure == Structure::File
    }

    /// The byte that ends a line where lines are made into records, after translation; `None` with STRU F.
    fn record_end(&self) -> Option<u8> {
        match (self.structure, self.representation) {
            (Structure::File, _) => None,
            (Structure::Record, Type::Ebcdic) => Some(ebcdic::NEW_LINE),
            (Structure::Record, _) => Some(b'\n'),
        }
    }
}

/// Why wire bytes are not a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CodecError {
    /// The connection closed before the end of the file was marked.
    #[error("the data ended before the end of the file")]
    Truncated,
    /// Bytes came after the end of the file.
    #[error("data after the end of the file")]
    TrailingData,
    /// STRU R: 0xFF and a code that is none.
    #[error("0x{0:02X} is no record mark")]
    BadEscape(u8),
    /// MODE B: a descriptor with bits that mean nothing together.
    #[error("0x{0:02X} is no block descriptor")]
    BadDescriptor(u8),
    /// MODE B: a restart marker that is empty, too long or not printable.
    #[error("the restart marker is not 1 to 255 printable characters")]
    BadMarker,
    /// MODE Z: not a zlib stream, or one whose checksum is wrong.
    #[error("the compressed data is damaged")]
    Corrupt,
}

/// File bytes to wire bytes.
#[derive(Debug)]
pub struct Encoder {
    translation: ToNetwork,
    framing: Framing,
    /// What the translation made, on its way into a frame.
    scratch: Vec<u8>,
    /// Bytes of the file taken so far, from its beginning.
    position: u64,
    /// MODE B: a restart marker after so many bytes.
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
    Block(block::Writer),
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
            Mode::Block => Framing::Block(block::Writer::new(coding.record_end())),
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

    /// Claims that what was to be left out is more than there was so far.
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

/// How far [`Decoder::decode`] came. What it did not take, the caller gives again, first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// All of the input is taken; there is nothing to write until more comes.
    Hungry,
    /// The output is as long as was allowed. Call again, with the rest of the input, even if that is empty.
    Full {
        /// Bytes taken.
        consumed: usize,
    },
    /// MODE B: a restart marker. What was before it is in the output; when that is stored, reply
    /// `110 MARK marker = position`. Then call again with the rest.
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
    pub fn decode(&mut self, input: &[u8], out: &mut Vec<u8>, most: usize) -> Result<Progress, CodecError> {
        let start = out.len();
        let most = most.max(1);
        let result = match self.unframing {
            Unframing::Stream(_) => self.decode_stream(input, out, most),
            Unframing::Block(_) => self.decode_blocks(input, out, most),
            Unframing::Deflate(..) => self.decode_deflate(input, out, most),
        };
        self.position += (out.len() - start) as u64;
        match result? {
            Progress::Marker { consumed, marker, .. } => {
                Ok(Progress::Marker { consumed, marker, position: self.position })
            }
            Progress::EndOfFile { consumed } => {
                self.flush(out);
                Ok(Progress::EndOfFile { consumed })
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

    /// MODE B: how many blocks their sender marked as doubtful. They are data all the same (RFC 959
    /// section 3.4.2), but somebody should be told.
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

    fn decode_stream(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        most: usize,
    ) -> Result<Progress, CodecError> {
        let Unframing::Stream(unescaper) = &mut self.unframing else { return Ok(Progress::Hungry) };
        let part = &input[..input.len().min(most)];
        let Some(unescaper) = unescaper else {
            self.translation.convert(part, out);
            return Ok(progress(part.len(), input));
        };
        self.scratch.clear();
        let consumed = unescape(unescaper, part, &mut self.scratch)?;
        self.translation.convert(&self.scratch, out);
        match unescaper.has_ended() {
            true => Ok(Progress::EndOfFile { consumed }),
            false => Ok(progress(consumed, input)),
        }
    }

    fn decode_blocks(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        most: usize,
    ) -> Result<Progress, CodecError> {
        let Unframing::Block(reader) = &mut self.unframing else { return Ok(Progress::Hungry) };
        // Output is never longer than the input, so a bound on the input is one on the output.
        let part = &input[..input.len().min(most)];
        let mut rest = part;
        while let Some(event) = reader.next(&mut rest)? {
            let consumed = part.len() - rest.len();
            match event {
                block::Event::Data(data) => self.translation.convert(data, out),
                block::Event::NewLine(byte) => self.translation.convert(&[byte], out),
                block::Event::Marker(marker) => {
                    return Ok(Progress::Marker { consumed, marker, position: self.position });
                }
                block::Event::EndOfFile => return Ok(Progress::EndOfFile { consumed }),
            }
        }
        Ok(progress(part.len(), input))
    }

    fn decode_deflate(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        most: usize,
    ) -> Result<Progress, CodecError> {
        let Unframing::Deflate(unescaper, inflater) = &mut self.unframing else {
            return Ok(Progress::Hungry);
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
            true => Ok(Progress::EndOfFile { consumed }),
            false if is_full => Ok(Progress::Full { consumed }),
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

fn progress(consumed: usize, input: &[u8]) -> Progress {
    if consumed < input.len() { Progress::Full { consumed } } else { Progress::Hungry }
}

/// Unescapes, and refuses what comes after the end.
fn unescape(unescaper: &mut record::Unescaper, input: &[u8], out: &mut Vec<u8>) -> Result<usize, CodecError> {
    if unescaper.has_ended() && !input.is_empty() {
        return Err(CodecError::TrailingData);
    }
    unescaper.convert(input, out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn coding(representation: Type, structure: Structure, mode: Mode) -> Coding {
        Coding { representation, structure, mode }
    }

    fn block() -> Coding {
        coding(Type::Image, Structure::File, Mode::Block)
    }

    fn deflate() -> Coding {
        coding(Type::Image, Structure::File, Mode::Deflate { level: 6 })
    }

    fn encoded(coding: Coding, pieces: &[&[u8]]) -> Vec<u8> {
        let (mut encoder, mut out) = (Encoder::new(coding, 0), Vec::new());
        pieces.iter().for_each(|piece| encoder.encode(piece, &mut out));
        encoder.finish(&mut out);
        out
    }

    /// Decodes `wire`, given in these pieces, with at most `most` bytes a call, as a server would.
    fn decoded(coding: Coding, pieces: &[&[u8]], most: usize) -> Result<Vec<u8>, CodecError> {
        let (mut decoder, mut file) = (Decoder::new(coding, 0), Vec::new());
        for piece in pieces {
            let mut rest = *piece;
            loop {
                let mut out = Vec::new();
                let progress = decoder.decode(rest, &mut out, most)?;
                assert!(out.len() <= most + 2, "{} bytes where {most} were asked for", out.len());
                file.extend(out);
                match progress {
                    Progress::Hungry => break,
                    Progress::EndOfFile { consumed } if consumed == rest.len() => break,
                    Progress::EndOfFile { consumed: 0 } => return Err(CodecError::TrailingData),
                    Progress::Full { consumed }
                    | Progress::Marker { consumed, .. }
                    | Progress::EndOfFile { consumed } => rest = &rest[consumed..],
                }
            }
        }
        decoder.finish(&mut file)?;
        assert_eq!(decoder.position(), file.len() as u64);
        Ok(file)
    }

    fn any_coding() -> impl Strategy<Value = Coding> {
        let types = prop::sample::select(vec![Type::Ascii, Type::Ebcdic, Type::Image]);
        let structures = prop::sample::select(vec![Structure::File, Structure::Record]);
        let modes = prop::sample::select(vec![
            Mode::Stream,
            Mode::Block,
            Mode::Deflate { level: 0 },
            Mode::Deflate { level: 9 },
        ]);
        (types, structures, modes)
            .prop_map(|(representation, structure, mode)| coding(representation, structure, mode))
    }

    /// Bytes dense in what codings give a meaning to.
    fn file() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(
            prop_oneof![prop::sample::select(&b"\n\r\xff\x15\x01\x02a"[..]), any::<u8>()],
            0..300,
        )
    }

    #[test]
    fn only_image_file_stream_is_plain() {
        assert!(Coding::PLAIN.is_plain());
        assert!(!Coding::default().is_plain() && !block().is_plain() && !deflate().is_plain());
        assert!(Coding::default().ends_with_close() && !block().ends_with_close());
    }

    #[test]
    fn a_file_that_ends_without_saying_so_is_truncated() {
        for coding in [block(), deflate(), coding(Type::Image, Structure::Record, Mode::Stream)] {
            let wire = encoded(coding, &[b"some text\nand more"]);
            assert!(decoded(coding, &[&wire], 100).is_ok());
            for length in 0..wire.len() {
                let result = decoded(coding, &[&wire[..length]], 100);
                assert_eq!(result, Err(CodecError::Truncated), "{coding:?}, {length} of {}", wire.len());
            }
        }
    }

    #[test]
    fn what_follows_the_end_is_left_for_the_next_file_in_block_mode() {
        let wire = [encoded(block(), &[b"one"]), encoded(block(), &[b"two"])].concat();
        let (mut decoder, mut out) = (Decoder::new(block(), 0), Vec::new());
        assert_eq!(
            decoder.decode(&wire, &mut out, 100),
            Ok(Progress::EndOfFile { consumed: wire.len() / 2 })
        );
        assert_eq!(out, b"one");
        assert_eq!(decoder.decode(&wire[9..], &mut out, 100), Ok(Progress::EndOfFile { consumed: 0 }));
    }

    #[test]
    fn what_follows_the_end_is_an_error_elsewhere() {
        for coding in [deflate(), coding(Type::Image, Structure::Record, Mode::Stream)] {
            let wire = [&encoded(coding, &[b"one"])[..], b"two"].concat();
            assert_eq!(decoded(coding, &[&wire], 100), Err(CodecError::TrailingData));
        }
    }

    #[test]
    fn restart_markers_name_the_offset_in_the_file() {
        let coding = coding(Type::Ascii, Structure::File, Mode::Block);
        let (mut encoder, mut wire) = (Encoder::new(coding, 100).with_markers(4), Vec::new());
        encoder.encode(b"ab\ncd", &mut wire);
        encoder.encode(b"\r\r\nef", &mut wire);
        encoder.finish(&mut wire);
        let (mut decoder, mut out, mut markers) = (Decoder::new(coding, 100), Vec::new(), Vec::new());
        let mut rest = &wire[..];
        loop {
            match decoder.decode(rest, &mut out, 100).unwrap() {
                Progress::Marker { consumed, marker, position } => {
                    markers.push((String::from_utf8(marker).unwrap(), position));
                    rest = &rest[consumed..];
                }
                other => break assert_eq!(other, Progress::EndOfFile { consumed: rest.len() }),
            }
        }
        // The second would stand at 108, had the file had no CR LF: one byte less arrives.
        assert_eq!(markers, [("104".to_owned(), 104), ("108".to_owned(), 107)]);
        assert_eq!(out, b"ab\ncd\r\nef");
    }

    #[test]
    fn no_marker_comes_between_cr_and_lf() {
        let coding = coding(Type::Ascii, Structure::File, Mode::Block);
        let (mut encoder, mut wire) = (Encoder::new(coding, 0).with_markers(2), Vec::new());
        encoder.encode(b"a\r\nb", &mut wire);
        assert_eq!(wire, b"\0\0\x02a\r\0\0\x01\n\x10\0\x013\0\0\x01b");
    }

    #[test]
    fn rest_in_ascii_counts_wire_bytes() {
        let whole = encoded(Coding::default(), &[b"a\nbc\n\nd"]);
        for count in 0..whole.len() + 3 {
            let (mut encoder, mut out) =
                (Encoder::new(Coding::default(), 0).skipping(count as u64), Vec::new());
            encoder.encode(b"a\nb", &mut out);
            encoder.encode(b"c\n\nd", &mut out);
            encoder.finish(&mut out);
            assert_eq!(out, whole[count.min(whole.len())..]);
        }
    }

    #[test]
    fn a_deflate_bomb_comes_out_in_pieces() {
        let bomb = encoded(deflate(), &[&vec![0; 8 << 20]]);
        assert!(bomb.len() < 16 << 10);
        let (mut decoder, mut rest, mut total, mut out) =
            (Decoder::new(deflate(), 0), &bomb[..], 0, Vec::new());
        loop {
            out.clear();
            let progress = decoder.decode(rest, &mut out, 65_536).unwrap();
            assert!(out.len() <= 65_536 && out.capacity() <= 1 << 18);
            total += out.len();
            match progress {
                Progress::Full { consumed } => rest = &rest[consumed..],
                other => break assert_eq!(other, Progress::EndOfFile { consumed: rest.len() }),
            }
        }
        assert_eq!(total, 8 << 20);
    }

    #[test]
    fn a_wrong_checksum_is_corrupt() {
        let mut wire = encoded(deflate(), &[b"some text"]);
        *wire.last_mut().unwrap() ^= 1;
        assert_eq!(decoded(deflate(), &[&wire], 100), Err(CodecError::Corrupt));
    }

    proptest! {
        #[test]
        fn every_coding_brings_a_file_back_however_it_is_cut(
            coding in any_coding(), file in file(), cut in 0..300usize, wire_cut in 0..600usize, most in 1..400usize,
        ) {
            let (left, right) = file.split_at(cut.min(file.len()));
            let wire = encoded(coding, &[left, right]);
            let (first, second) = wire.split_at(wire_cut.min(wire.len()));
            let back = decoded(coding, &[first, second], most).unwrap();
            let is_text = coding.representation == Type::Ascii && coding.structure == Structure::File;
            if !is_text {
                prop_assert_eq!(back, file);
            } else {
                // Sending leaves CR LF as it is, receiving makes LF of it.
                let mut expected = Vec::new();
                let mut converter = ascii::FromNetwork::default();
                converter.convert(&file, &mut expected);
                converter.finish(&mut expected);
                prop_assert_eq!(back, expected);
            }
        }

        #[test]
        fn the_output_of_an_encoder_is_bounded(coding in any_coding(), file in file()) {
            let mut out = Vec::new();
            let mut encoder = Encoder::new(coding, 0);
            encoder.encode(&file, &mut out);
            prop_assert!(out.len() <= 4 * file.len() + 32 * 1024);
            prop_assert_eq!(encoder.position(), file.len() as u64);
        }

        #[test]
        fn any_bytes_end_in_progress_or_an_error(
            coding in any_coding(), wire in prop::collection::vec(prop_oneof![prop::sample::select(&b"\xff\x10\x40\x80\0\x01\x78\x9c"[..]), any::<u8>()], 0..200), most in 1..50usize,
        ) {
            let mut decoder = Decoder::new(coding, 0);
            let (mut rest, mut out, mut turns) = (&wire[..], Vec::new(), 0);
            loop {
                turns += 1;
                prop_assert!(turns < 10_000, "it stands still");
                match decoder.decode(rest, &mut out, most) {
                    Ok(Progress::Full { consumed } | Progress::Marker { consumed, .. }) => rest = &rest[consumed..],
                    Ok(Progress::Hungry | Progress::EndOfFile { .. }) | Err(_) => break,
                }
            }
            let _ = decoder.finish(&mut out);
        }
    }
}
