//! MODE Z: the stream compressed with zlib (RFC 1950; draft-preston-ftpext-deflate).
//!
//! Reading is bounded per call, however small the input that unfolds, and each turn of the loop takes input, makes
//! output or ends it: neither a deflate bomb nor a stalled stream can hold memory or a thread (CVE-2005-0850). A stream
//! that ends before its checksum has lost bytes.
//!
//! Clients use this mode for all files (lftp does as soon as `FEAT` has it), and most large files are compressed
//! already. So the encoder tries a stretch; if that did not shrink, it sends a longer one uncompressed: a copy and a
//! checksum.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::error::CodecError;

/// How much output space is offered to the compressor at a time.
const STEP: usize = 16 * 1024;

/// Input after which it is looked at whether packing it was worth its while.
const TRIAL: u64 = 128 * 1024;

/// Input that is sent as it is after a trial that was not, before the next trial.
const RESPITE: u64 = 16 * TRIAL;

/// A trial was worth its while if this share of it was saved, in percent.
const GAIN: u64 = 3;

/// Bytes to a zlib stream.
#[derive(Debug)]
pub struct Deflater {
    stream: Compress,
    /// That of trials.
    level: u8,
    stretch: Stretch,
}

/// How the next bytes are encoded, and up to which byte of the input.
#[derive(Debug, Clone, Copy)]
enum Stretch {
    /// Packed; this many bytes were made before it.
    Trial { until: u64, made: u64 },
    /// Sent as they are.
    Respite { until: u64 },
}

impl Deflater {
    /// Compresses with `level` 0 (not at all) to 9 (slowest).
    pub fn new(level: u8) -> Self {
        let level = level.min(9);
        // Incompressible data needs no trials.
        let until = if level == 0 { u64::MAX } else { TRIAL };
        Self {
            stream: Compress::new(Compression::new(level.into()), true),
            level,
            stretch: Stretch::Trial { until, made: 0 },
        }
    }

    /// Appends what of the compressed stream is ready after `input`.
    pub fn write(&mut self, mut input: &[u8], out: &mut Vec<u8>) {
        while !input.is_empty() {
            let (Stretch::Trial { until, .. } | Stretch::Respite { until }) = self.stretch;
            let left = until - self.stream.total_in();
            let (stretch, later) =
                input.split_at(input.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
            self.run(stretch, FlushCompress::None, out);
            input = later;
            if stretch.len() as u64 == left {
                self.next_stretch(out);
            }
        }
    }

    /// Appends the rest of the compressed stream.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.run(&[], FlushCompress::Finish, out);
    }

    fn next_stretch(&mut self, out: &mut Vec<u8>) {
        // The compressor's pending output must be counted and written before the level may change.
        self.run(&[], FlushCompress::Sync, out);
        let (begin, made) = (self.stream.total_in(), self.stream.total_out());
        let trial = Stretch::Trial { until: begin + TRIAL, made };
        let (level, stretch) = match self.stretch {
            Stretch::Trial { made: before, .. } if (made - before) * 100 > TRIAL * (100 - GAIN) => {
                (0, Stretch::Respite { until: begin + RESPITE })
            }
            Stretch::Trial { .. } => return self.stretch = trial,
            Stretch::Respite { .. } => (self.level, trial),
        };
        // Where the level stays as it was, the stream is as good, and longer or slower.
        let _ = self.stream.set_level(Compression::new(level.into()));
        self.stretch = stretch;
    }

    fn run(&mut self, mut input: &[u8], flush: FlushCompress, out: &mut Vec<u8>) {
        loop {
            let (taken, made) = (self.stream.total_in(), self.stream.total_out());
            let filled = out.len();
            out.resize(filled + STEP, 0);
            let status = self.stream.compress(input, &mut out[filled..], flush);
            let taken = (self.stream.total_in() - taken) as usize;
            let made = (self.stream.total_out() - made) as usize;
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

    /// Returns true if the stream has ended, with the right checksum.
    pub fn has_ended(&self) -> bool {
        self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that nothing can pack.
    fn noise(length: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        };
        std::iter::repeat_with(&mut next).flatten().take(length).collect()
    }

    fn packed(pieces: &[&[u8]], level: u8) -> Vec<u8> {
        let (mut deflater, mut out) = (Deflater::new(level), Vec::new());
        for piece in pieces {
            deflater.write(piece, &mut out);
        }
        deflater.finish(&mut out);
        out
    }

    fn unpacked(mut input: &[u8]) -> Vec<u8> {
        let (mut inflater, mut out) = (Inflater::default(), Vec::new());
        while !inflater.has_ended() {
            let taken = inflater.read(input, &mut out, STEP).unwrap();
            input = &input[taken..];
        }
        out
    }

    #[test]
    fn mixed_data_round_trips_at_any_level() {
        let (noise, text) = (noise(RESPITE as usize), b"a line of a log\n".repeat(50_000));
        for level in [0, 1, 2, 6, 9] {
            let whole = [&text[..], &noise, &text, &noise[..1], &noise, &text].concat();
            let pieces: Vec<&[u8]> = whole.chunks(70_001).collect();
            assert_eq!(unpacked(&packed(&pieces, level)), whole, "level {level}");
        }
    }

    /// A trial in seventeen stretches: what was sent as it is cannot have been packed.
    #[test]
    fn incompressible_data_is_rarely_tried_and_hardly_grows() {
        let noise = noise(4 * (TRIAL + RESPITE) as usize);
        let mut deflater = Deflater::new(6);
        let (mut out, mut respites) = (Vec::new(), 0);
        for piece in noise.chunks(TRIAL as usize) {
            respites += usize::from(matches!(deflater.stretch, Stretch::Respite { .. }));
            deflater.write(piece, &mut out);
        }
        deflater.finish(&mut out);
        assert_eq!(respites, 4 * 16);
        assert!(out.len() < noise.len() + noise.len() / 1000, "{} of {}", out.len(), noise.len());
        assert_eq!(unpacked(&out), noise);
    }

    #[test]
    fn compressible_data_after_incompressible_is_compressed() {
        let text = b"a line of a log\n".repeat(1 << 18);
        let noise = noise(TRIAL as usize);
        let out = packed(&[&noise, &text], 6);
        assert!(out.len() < TRIAL as usize + RESPITE as usize + text.len() / 20, "{}", out.len());
    }
}
