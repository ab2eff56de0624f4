//! MODE Z: the stream compressed with zlib (RFC 1950; draft-preston-ftpext-deflate).
//!
//! Reading is bounded per call, however small the input that unfolds, and each turn of the loop takes
//! input, makes output or ends it: neither a deflate bomb nor a stream that stands still can hold memory or
//! a thread (CVE-2005-0850). A stream that ends before its checksum has lost bytes.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use crate::codec::CodecError;

/// How much output space is offered to the compressor at a time.
const STEP: usize = 16 * 1024;

/// Bytes to a zlib stream.
#[derive(Debug)]
pub struct Deflater(Compress);

impl Deflater {
    /// Compresses with `level` 0 (not at all) to 9 (slowest).
    pub fn new(level: u8) -> Self {
        Self(Compress::new(Compression::new(u32::from(level.min(9))), true))
    }

    /// Appends what of the compressed stream is ready after `input`.
    pub fn write(&mut self, input: &[u8], out: &mut Vec<u8>) {
        self.run(input, FlushCompress::None, out);
    }

    /// Appends the rest of the compressed stream.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.run(&[], FlushCompress::Finish, out);
    }

    fn run(&mut self, mut input: &[u8], flush: FlushCompress, out: &mut Vec<u8>) {
        loop {
            let (taken, made) = (self.0.total_in(), self.0.total_out());
            let filled = out.len();
            out.resize(filled + STEP, 0);
            let status = self.0.compress(input, &mut out[filled..], flush);
            let taken = (self.0.total_in() - taken) as usize;
            let made = (self.0.total_out() - made) as usize;
            out.truncate(filled + made);
            input = &input[taken..];
            // An output that was not filled means that nothing more is to come for now.
            let status = status.expect("compressing into a live stream does not fail");
            if status == Status::StreamEnd || (taken == 0 && made == 0) || (input.is_empty() && made < STEP) {
                return;
            }
        }
    }
}

/// A zlib stream to bytes.
#[derive(Debug)]
pub struct Inflater {
    stream: Decompress,
    ended: bool,
}

impl Default for Inflater {
    fn default() -> Self {
        Self { stream: Decompress::new(true), ended: false }
    }
}

impl Inflater {
    /// Appends at most `most` bytes to `out`. Answers how many bytes of `input` it took. When it appended
    /// `most`, there may be more to come without more input.
    pub fn read(&mut self, input: &[u8], out: &mut Vec<u8>, most: usize) -> Result<usize, CodecError> {
        let (all_taken, all_made) = (self.stream.total_in(), self.stream.total_out());
        let filled = out.len();
        out.resize(filled + most, 0);
        let (mut taken, mut made) = (0, 0);
        let mut result = Ok(());
        while !self.ended && made < most {
            let status =
                self.stream.decompress(&input[taken..], &mut out[filled + made..], FlushDecompress::None);
            let before = (taken, made);
            taken = (self.stream.total_in() - all_taken) as usize;
            made = (self.stream.total_out() - all_made) as usize;
            match status {
                Ok(Status::StreamEnd) => self.ended = true,
                Ok(_) if (taken, made) == before => break,
                Ok(_) => {}
                Err(_) => {
                    result = Err(CodecError::Corrupt);
                    break;
                }
            }
        }
        out.truncate(filled + made);
        result.map(|()| taken)
    }

    /// Claims that the stream has ended, with the right checksum.
    pub fn has_ended(&self) -> bool {
        self.ended
    }
}
