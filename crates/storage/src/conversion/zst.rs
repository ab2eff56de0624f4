//! Zstandard (RFC 8878): frames of a MiB each are written; all frames of a file are read, and held to their checksums.

use std::io::{self, BufRead, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::{Coder, PIECE};

/// What a frame holds, in bytes. The library compresses a frame at once; its matches reach back 128 KiB, so a MiB costs
/// nothing but a header.
const FRAME: u64 = 1 << 20;
/// The most that a frame may let its decoder remember, in bytes: what RFC 8878 (section 3.1.1.1.2) asks of decoders, and
/// `zstd -19` needs.
const WINDOW: u64 = 8 << 20;

/// Compresses.
pub(super) struct Encoder<R> {
    source: R,
    has_begun: bool,
}

impl<R: BufRead> Encoder<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, has_begun: false }
    }
}

impl<R: BufRead + Send> Coder for Encoder<R> {
    fn step(&mut self, out: &mut Vec<u8>) -> io::Result<bool> {
        let mut piece = Vec::new();
        self.source.by_ref().take(FRAME).read_to_end(&mut piece)?;
        // An empty file has an empty frame.
        if !piece.is_empty() || !self.has_begun {
            out.append(&mut compress_to_vec(&piece[..], CompressionLevel::Fastest));
        }
        self.has_begun = true;
        Ok(!piece.is_empty())
    }
}

/// Decompresses.
pub(super) struct Decoder<R> {
    source: R,
    frame: FrameDecoder,
    is_in_frame: bool,
    has_begun: bool,
}

impl<R: BufRead> Decoder<R> {
    pub(super) fn new(source: R) -> Self {
        let mut frame = FrameDecoder::new();
        frame.set_max_window_size(WINDOW);
        Self { source, frame, is_in_frame: false, has_begun: false }
    }

    /// Begins the next frame, or passes over one without content; returns false at the end of the file.
    fn begin(&mut self) -> io::Result<bool> {
        if self.has_begun && self.source.fill_buf()?.is_empty() {
            return Ok(false);
        }
        self.has_begun = true;
        match self.frame.reset(&mut self.source) {
            Ok(()) => self.is_in_frame = true,
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length, ..
            })) => {
                io::copy(&mut self.source.by_ref().take(length.into()), &mut io::sink())?;
            }
            Err(error) => return Err(io::Error::other(error)),
        }
        Ok(true)
    }

    /// Ends a frame whose content was all taken.
    fn end(&mut self) -> io::Result<()> {
        self.is_in_frame = false;
        let written = self.frame.get_checksum_from_data();
        match written.is_none() || written == self.frame.get_calculated_checksum() {
            true => Ok(()),
            false => Err(io::Error::other("its checksum is another one")),
        }
    }
}

impl<R: BufRead + Send> Coder for Decoder<R> {
    fn step(&mut self, out: &mut Vec<u8>) -> io::Result<bool> {
        if !self.is_in_frame {
            return self.begin();
        }
        if self.frame.can_collect() == 0 && !self.frame.is_finished() {
            let one = BlockDecodingStrategy::UptoBlocks(1);
            self.frame.decode_blocks(&mut self.source, one).map_err(io::Error::other)?;
        }
        let start = out.len();
        out.resize(start + PIECE, 0);
        let count = self.frame.read(&mut out[start..])?;
        out.truncate(start + count);
        if count == 0 && self.frame.is_finished() {
            self.end()?;
        }
        Ok(true)
    }
}
