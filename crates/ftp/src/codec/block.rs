//! MODE B: the file as blocks with headers (RFC 959 section 3.4.2).
//!
//! A header is a descriptor byte and a 16-bit count of the data bytes that follow. The descriptor's bits are
//! 128 end of record, 64 end of file, 32 suspected errors, 16 restart marker. A block that ends the file
//! ends it whatever becomes of the connection, so several files can follow one another on it, and a
//! connection that closes before it has lost bytes.

use memchr::memchr;

use super::error::CodecError;

/// Descriptor bit: the block's data ends a record.
pub const END_OF_RECORD: u8 = 128;
/// Descriptor bit: the block's data ends the file.
pub const END_OF_FILE: u8 = 64;
/// Descriptor bit: the sender doubts the data, which it got from a medium with errors.
pub const SUSPECT: u8 = 32;
/// Descriptor bit: the data is a restart marker.
pub const RESTART: u8 = 16;

/// The most data in one block that we write. The count could say 65,535.
const MOST_DATA: usize = 32 * 1024;
/// The longest restart marker that we take.
const MOST_MARKER: usize = 255;

/// Bytes to blocks.
#[derive(Debug)]
pub struct BlockWriter {
    /// Where records are marked: the byte that ends a line.
    new_line: Option<u8>,
}

impl BlockWriter {
    /// Writes plain blocks, or with `new_line` a record for each line that ends in it.
    pub fn new(new_line: Option<u8>) -> Self {
        Self { new_line }
    }

    /// Appends the blocks for `input`. The most output is three bytes for each input byte (empty lines).
    pub fn write(&mut self, mut input: &[u8], out: &mut Vec<u8>) {
        if let Some(new_line) = self.new_line {
            while let Some(end) = memchr(new_line, input) {
                write_data(&input[..end], END_OF_RECORD, out);
                input = &input[end + 1..];
            }
        }
        if !input.is_empty() {
            write_data(input, 0, out);
        }
    }

    /// Appends a restart marker. `marker` is printable and no longer than 255 bytes.
    pub fn mark(&mut self, marker: &[u8], out: &mut Vec<u8>) {
        debug_assert!(is_marker(marker));
        write_block(marker, RESTART, out);
    }

    /// Appends the end of the file.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        write_block(&[], END_OF_FILE, out);
    }
}

/// Blocks to bytes.
#[derive(Debug)]
pub struct Reader {
    /// Where records become lines: the byte that ends one.
    new_line: Option<u8>,
    state: State,
    marker: Vec<u8>,
    suspect_blocks: u64,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// In a header, of which so much is here.
    Header {
        bytes: [u8; 2],
        have: usize,
    },
    /// In a block's data, of which `left` bytes have not come yet.
    Data {
        descriptor: u8,
        left: usize,
    },
    Ended,
}

const BEFORE_HEADER: State = State::Header { bytes: [0; 2], have: 0 };

/// What a [`Reader`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum BlockEvent<'a> {
    /// Bytes of the file.
    Data(&'a [u8]),
    /// The end of a line: the byte to write.
    NewLine(u8),
    /// A restart marker.
    Marker(Vec<u8>),
    /// The end of the file.
    EndOfFile,
}

impl Reader {
    /// Reads blocks; with `new_line`, an end of record is told as [`BlockEvent::NewLine`], else it is ignored.
    pub fn new(new_line: Option<u8>) -> Self {
        Self { new_line, state: BEFORE_HEADER, marker: Vec::new(), suspect_blocks: 0 }
    }

    /// Takes bytes from the front of `input` up to the next event; `None` when it needs more.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<BlockEvent<'a>>, CodecError> {
        loop {
            match self.state {
                State::Ended => return Ok(Some(BlockEvent::EndOfFile)),
                State::Data { descriptor, left: 0 } => {
                    if let Some(event) = self.end_block(descriptor)? {
                        return Ok(Some(event));
                    }
                }
                _ if input.is_empty() => return Ok(None),
                State::Header { bytes, have } => self.header(bytes, have, input)?,
                State::Data { descriptor, left } => {
                    let data;
                    (data, *input) = input.split_at(left.min(input.len()));
                    self.state = State::Data { descriptor, left: left - data.len() };
                    if descriptor & RESTART == 0 {
                        return Ok(Some(BlockEvent::Data(data)));
                    }
                    self.marker.extend_from_slice(data);
                }
            }
        }
    }

    /// Returns true if the end of the file has been seen.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// How many blocks their sender marked as doubtful.
    pub fn suspect_blocks(&self) -> u64 {
        self.suspect_blocks
    }

    fn header(&mut self, mut bytes: [u8; 2], have: usize, input: &mut &[u8]) -> Result<(), CodecError> {
        let Some((&byte, rest)) = input.split_first() else { return Ok(()) };
        *input = rest;
        if let Some(slot) = bytes.get_mut(have) {
            *slot = byte;
            self.state = State::Header { bytes, have: have + 1 };
            return Ok(());
        }
        let [descriptor, high] = bytes;
        let left = usize::from(u16::from_be_bytes([high, byte]));
        let is_marker = descriptor & RESTART != 0;
        if descriptor & 0x0f != 0 || (is_marker && descriptor != RESTART) {
            return Err(CodecError::BadDescriptor(descriptor));
        }
        if is_marker && !(1..=MOST_MARKER).contains(&left) {
            return Err(CodecError::BadMarker);
        }
        self.suspect_blocks += u64::from(descriptor & SUSPECT != 0);
        self.state = State::Data { descriptor, left };
        Ok(())
    }

    /// Handles a block's descriptor after its data: one event at a time.
    fn end_block(&mut self, descriptor: u8) -> Result<Option<BlockEvent<'static>>, CodecError> {
        self.state = BEFORE_HEADER;
        if descriptor & RESTART != 0 {
            let marker = std::mem::take(&mut self.marker);
            return if is_marker(&marker) {
                Ok(Some(BlockEvent::Marker(marker)))
            } else {
                Err(CodecError::BadMarker)
            };
        }
        if descriptor & END_OF_FILE != 0 {
            self.state = State::Ended;
        }
        let new_line = self.new_line.filter(|_| descriptor & END_OF_RECORD != 0);
        Ok(new_line.map(BlockEvent::NewLine))
    }
}

fn write_data(mut data: &[u8], last_descriptor: u8, out: &mut Vec<u8>) {
    while data.len() > MOST_DATA {
        let block;
        (block, data) = data.split_at(MOST_DATA);
        write_block(block, 0, out);
    }
    write_block(data, last_descriptor, out);
}

fn write_block(data: &[u8], descriptor: u8, out: &mut Vec<u8>) {
    let count = u16::try_from(data.len()).expect("a block holds at most MOST_DATA bytes").to_be_bytes();
    out.extend_from_slice(&[descriptor, count[0], count[1]]);
    out.extend_from_slice(data);
}

fn is_marker(marker: &[u8]) -> bool {
    (1..=MOST_MARKER).contains(&marker.len()) && marker.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut input: &[u8]) -> Result<Vec<BlockEvent<'_>>, CodecError> {
        let mut reader = Reader::new(Some(b'\n'));
        let mut events = Vec::new();
        while let Some(event) = reader.next(&mut input)? {
            let is_end = event == BlockEvent::EndOfFile;
            events.push(event);
            if is_end {
                break;
            }
        }
        Ok(events)
    }

    #[test]
    fn blocks_are_written_as_the_rfc_draws_them() {
        let (mut writer, mut out) = (BlockWriter::new(Some(b'\n')), Vec::new());
        writer.write(b"ab\n\nc", &mut out);
        writer.mark(b"5", &mut out);
        writer.finish(&mut out);
        assert_eq!(out, b"\x80\0\x02ab\x80\0\0\0\0\x01c\x10\0\x015\x40\0\0");
    }

    #[test]
    fn every_bit_of_a_descriptor_is_told_in_turn() {
        let events = read(b"\x00\0\x01a\x10\0\x03x-9\xe0\0\x01bnext").unwrap();
        let expected = [
            BlockEvent::Data(b"a"),
            BlockEvent::Marker(b"x-9".to_vec()),
            BlockEvent::Data(b"b"),
            BlockEvent::NewLine(b'\n'),
            BlockEvent::EndOfFile,
        ];
        assert_eq!(events, expected);
    }

    #[test]
    fn senseless_headers_are_refused() {
        assert_eq!(read(b"\x01\0\x01a"), Err(CodecError::BadDescriptor(1)));
        assert_eq!(read(b"\x50\0\x01a"), Err(CodecError::BadDescriptor(0x50)));
        assert_eq!(read(b"\x10\0\0"), Err(CodecError::BadMarker));
        assert_eq!(read(b"\x10\x01\0"), Err(CodecError::BadMarker));
        assert_eq!(read(b"\x10\0\x01\n"), Err(CodecError::BadMarker));
    }

    #[test]
    fn long_data_is_several_blocks() {
        let (mut writer, mut out) = (BlockWriter::new(None), Vec::new());
        writer.write(&vec![b'x'; 100_000], &mut out);
        assert_eq!(out.len(), 100_000 + 4 * 3);
    }

    #[test]
    fn doubtful_blocks_are_counted_and_kept() {
        let (mut reader, mut input) = (Reader::new(None), &b"\x20\0\x01a"[..]);
        assert_eq!(reader.next(&mut input), Ok(Some(BlockEvent::Data(b"a"))));
        assert_eq!(reader.suspect_blocks(), 1);
    }
}
