//! The content of test files: bytes that identify their file and their place in it.
//!
//! A file is a row of 8-byte words. The word at `index` of file `id` is a keyed *permutation* of the pair (id, index),
//! so it looks random, and yet its origin can be computed from its value. A wrong byte is therefore not just wrong:
//! [`Checker`] distinguishes data of another file from repeated, skipped and invented data. Nothing is compared with a
//! stored copy.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Bits of a word that count words: files of up to 8 TiB.
const INDEX_BITS: u32 = 40;
const WORD: usize = 8;

/// Names a test file's content: a number below 2^24.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId(u32);

impl FileId {
    /// How many there are.
    pub const COUNT: u32 = 1 << (64 - INDEX_BITS);

    /// The content of this number, which wraps at [`FileId::COUNT`].
    pub fn new(number: u32) -> Self {
        Self(number % Self::COUNT)
    }

    /// The content of a user's `serial`-th upload: another one each time, so that an upload which the server
    /// acknowledged and lost is not hidden by the one before.
    pub fn upload(user: u32, serial: u32) -> Self {
        Self::new((user & 0xffff) | (serial & 0xff) << 16)
    }

    /// The user and the serial number of an upload, if it is one, as far as [`FileId::upload`] keeps them.
    pub fn uploaded(self) -> (u32, u32) {
        (self.0 & 0xffff, self.0 >> 16)
    }

    /// The number of a file that was made to be downloaded.
    pub fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file {}", self.0)
    }
}

/// Makes contents. Two of the same seed agree.
#[derive(Debug, Clone, Copy)]
pub struct Payload {
    key: u64,
}

impl Payload {
    /// The contents of this seed.
    pub fn new(seed: u64) -> Self {
        Self { key: mix(seed ^ 0x6d69_6c6c_7261_6365) }
    }

    /// Writes the bytes of `file` that begin at `offset`.
    pub fn fill(&self, file: FileId, offset: u64, out: &mut [u8]) {
        let mut index = offset / WORD as u64;
        let skipped = (offset % WORD as u64) as usize;
        let (head, body) = out.split_at_mut(((WORD - skipped) % WORD).min(out.len()));
        if !head.is_empty() {
            let word = self.word(file, index).to_le_bytes();
            head.copy_from_slice(&word[skipped..skipped + head.len()]);
            index += 1;
        }
        let mut words = body.chunks_exact_mut(WORD);
        for (chunk, index) in (&mut words).zip(index..) {
            chunk.copy_from_slice(&self.word(file, index).to_le_bytes());
        }
        let index = index + (body.len() / WORD) as u64;
        let tail = body.chunks_exact_mut(WORD).into_remainder();
        let count = tail.len();
        tail.copy_from_slice(&self.word(file, index).to_le_bytes()[..count]);
    }

    /// Begins to check a file that arrives from its start.
    pub fn checker(&self, file: FileId, size: u64) -> Checker {
        Checker { payload: *self, file, size, offset: 0, word: [0; WORD] }
    }

    fn word(&self, file: FileId, index: u64) -> u64 {
        mix(self.key ^ (u64::from(file.0) << INDEX_BITS | index & ((1 << INDEX_BITS) - 1)))
    }

    /// Where a word lies. Any word lies somewhere: two in a row are needed to believe it.
    fn place(&self, word: u64) -> (FileId, u64) {
        let pair = unmix(word) ^ self.key;
        (FileId((pair >> INDEX_BITS) as u32), pair & ((1 << INDEX_BITS) - 1))
    }

    /// Finds where two words in a row within `bytes`, at any alignment, come from: file and offset of the
    /// first byte.
    fn origin(&self, bytes: &[u8]) -> Option<(FileId, i64)> {
        bytes.windows(2 * WORD).take(WORD).enumerate().find_map(|(skipped, pair)| {
            let (first, second) = pair.split_at(WORD);
            let (file, index) = self.place(u64::from_le_bytes(first.try_into().ok()?));
            let next = self.place(u64::from_le_bytes(second.try_into().ok()?));
            (next == (file, index + 1)).then_some((file, (index * WORD as u64) as i64 - skipped as i64))
        })
    }
}

/// The finalizer of splitmix64: a bijection of 64 bits in which every input bit reaches every output bit.
fn mix(mut word: u64) -> u64 {
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

fn unmix(mut word: u64) -> u64 {
    word = (word ^ word >> 31 ^ word >> 62).wrapping_mul(0x3196_42b2_d24d_8ec3);
    word = (word ^ word >> 27 ^ word >> 54).wrapping_mul(0x96de_1b17_3f11_9089);
    word ^ word >> 30 ^ word >> 60
}

/// How the users' last uploads were compared with what was sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadCheck {
    /// `HASH SHA-256`, `XCRC` and the like where the server has that; else `reading back`.
    pub by: String,
    /// How many there were: one of each user whose last was confirmed.
    pub uploads: u64,
    /// Uploads that the server's hash confirmed.
    pub by_hash: u64,
    /// Uploads that were read back, and right.
    pub by_reading: u64,
    /// Wrong uploads, which are among the faults.
    pub wrong: u64,
}

/// How uploads are verified where the server has no hashes.
pub const READING_BACK: &str = "reading back";

impl fmt::Display for UploadCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { by, uploads, by_hash, by_reading, wrong } = self;
        write!(f, "{} of {uploads} uploads were checked by {by}", by_hash + by_reading + wrong)?;
        if by != READING_BACK && *by_reading > 0 {
            write!(f, ", {by_reading} of them by reading back where that was refused")?;
        }
        match wrong {
            wrong if *wrong > 0 && by == READING_BACK => write!(f, "; {wrong} were wrong"),
            0 => Ok(()),
            wrong => write!(f, "; {wrong} were wrong, and read back to see how"),
        }
    }
}

/// How a file that arrived is not what was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// It ended early, and all that came was right.
    Truncated {
        /// How many bytes came.
        got: u64,
        /// How many should have.
        size: u64,
    },
    /// It went on beyond its end, and all before was right.
    TooLong {
        /// How many bytes it should have had.
        size: u64,
    },
    /// Bytes that had come already came again.
    Doubled {
        /// Where in the file it happened.
        at: u64,
        /// The part of the file that was there instead.
        from: u64,
    },
    /// Bytes are missing in the middle: what comes later came too early.
    Skipped {
        /// Where in the file it happened.
        at: u64,
        /// The part of the file that was there instead.
        to: u64,
    },
    /// The bytes of another file, which another session may have asked for.
    Crossed {
        /// Where in the file it happened.
        at: u64,
        /// The file of the bytes.
        other: FileId,
    },
    /// Bytes that are of no test file of this seed.
    Foreign {
        /// Where in the file it happened.
        at: u64,
    },
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { got, size } => write!(f, "truncated: {got} of {size} bytes"),
            Self::TooLong { size } => write!(f, "too long: more than its {size} bytes"),
            Self::Doubled { at, from } => write!(f, "doubled: at byte {at} came byte {from} again"),
            Self::Skipped { at, to } => write!(f, "skipped: at byte {at} came byte {to}"),
            Self::Crossed { at, other } => write!(f, "crossed over: at byte {at} came bytes of {other}"),
            Self::Foreign { at } => write!(f, "corrupt: at byte {at} came bytes of no test file"),
        }
    }
}

impl Flaw {
    /// In words, with the name of the file whose bytes came.
    pub fn words(&self, name: impl FnOnce(FileId) -> String) -> String {
        match self {
            Self::Crossed { at, other } => {
                format!("crossed over: at byte {at} came bytes of {}", name(*other))
            }
            flaw => flaw.to_string(),
        }
    }
}

/// Checks a file while it arrives, in whatever pieces.
#[derive(Debug, Clone)]
pub struct Checker {
    payload: Payload,
    file: FileId,
    size: u64,
    offset: u64,
    /// The word that the last piece ended in, for the next.
    word: [u8; WORD],
}

impl Checker {
    /// Checks the next bytes. After a flaw the rest is of no interest.
    pub fn check(&mut self, bytes: &[u8]) -> Result<(), Flaw> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let begin = (self.offset % WORD as u64) as usize;
            let index = self.offset / WORD as u64;
            if begin == 0 {
                rest = self.check_words(rest, index)?;
                if rest.is_empty() {
                    break;
                }
                self.word = self.payload.word(self.file, self.offset / WORD as u64).to_le_bytes();
            }
            let count = rest.len().min(WORD - begin);
            if rest[..count] != self.word[begin..begin + count] {
                return Err(self.flaw(rest));
            }
            self.offset += count as u64;
            rest = &rest[count..];
        }
        if self.offset > self.size { Err(Flaw::TooLong { size: self.size }) } else { Ok(()) }
    }

    /// Checks that the file is complete.
    pub fn finish(&self) -> Result<(), Flaw> {
        match self.offset {
            got if got < self.size => Err(Flaw::Truncated { got, size: self.size }),
            got if got > self.size => Err(Flaw::TooLong { size: self.size }),
            _ => Ok(()),
        }
    }

    /// Checks whole words from a word's beginning, and returns the remaining partial word.
    fn check_words<'a>(&mut self, bytes: &'a [u8], index: u64) -> Result<&'a [u8], Flaw> {
        let mut words = bytes.chunks_exact(WORD);
        for (chunk, index) in (&mut words).zip(index..) {
            if chunk != self.payload.word(self.file, index).to_le_bytes() {
                let right = (index * WORD as u64 - self.offset) as usize;
                self.offset += right as u64;
                return Err(self.flaw(&bytes[right..]));
            }
        }
        self.offset += (bytes.len() - words.remainder().len()) as u64;
        Ok(words.remainder())
    }

    /// Classifies the wrong bytes at `self.offset`, or up to a word after it.
    fn flaw(&self, bytes: &[u8]) -> Flaw {
        let at = self.offset;
        match self.payload.origin(bytes) {
            Some((file, from)) if at >= self.size && (file != self.file || from >= at as i64) => {
                Flaw::TooLong { size: self.size }
            }
            Some((file, from)) if file == self.file && from < at as i64 => {
                Flaw::Doubled { at, from: from.max(0) as u64 }
            }
            Some((file, to)) if file == self.file && to > at as i64 => Flaw::Skipped { at, to: to as u64 },
            Some((other, _)) if other != self.file => Flaw::Crossed { at, other },
            _ if at >= self.size => Flaw::TooLong { size: self.size },
            _ => Flaw::Foreign { at },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: FileId = FileId(7);

    fn content(file: FileId, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        Payload::new(1).fill(file, 0, &mut bytes);
        bytes
    }

    fn verdict(bytes: &[u8], size: u64, piece: usize) -> Result<(), Flaw> {
        let mut checker = Payload::new(1).checker(FILE, size);
        bytes.chunks(piece).try_for_each(|piece| checker.check(piece))?;
        checker.finish()
    }

    #[test]
    fn mixing_can_be_undone() {
        for word in [0, 1, 42, u64::MAX, 0x0123_4567_89ab_cdef] {
            assert_eq!(unmix(mix(word)), word);
        }
    }

    #[test]
    fn each_fault_is_called_by_its_name() {
        let good = content(FILE, 4096);
        let other = content(FileId(9), 4096);
        assert_eq!(verdict(&good, 4096, 1000), Ok(()));
        assert_eq!(verdict(&good[..4000], 4096, 1000), Err(Flaw::Truncated { got: 4000, size: 4096 }));
        assert_eq!(verdict(&[&good[..], b"x"].concat(), 4096, 5000), Err(Flaw::TooLong { size: 4096 }));
        let doubled = [&good[..1024], &good[..3072]].concat();
        assert_eq!(verdict(&doubled, 4096, 1000), Err(Flaw::Doubled { at: 1024, from: 0 }));
        for size in [300, 1024] {
            let twice = [&good[..size], &good[..size]].concat();
            let is_doubled = |piece| matches!(verdict(&twice, size as u64, piece), Err(Flaw::Doubled { .. }));
            assert!(is_doubled(size) && is_doubled(2 * size), "all of it came twice: {size}");
        }
        let skipped = [&good[..1024], &good[2048..]].concat();
        assert_eq!(verdict(&skipped, 4096, 5000), Err(Flaw::Skipped { at: 1024, to: 2048 }));
        assert_eq!(verdict(&other, 4096, 1000), Err(Flaw::Crossed { at: 0, other: FileId(9) }));
        assert_eq!(verdict(&[0; 4096], 4096, 1000), Err(Flaw::Foreign { at: 0 }));
    }

    #[test]
    fn a_shift_by_odd_bytes_is_seen_through() {
        let good = content(FILE, 4096);
        let shifted = [&good[..1003], &good[503..]].concat();
        assert!(matches!(verdict(&shifted, 4096, 5000), Err(Flaw::Doubled { at: 1000, .. })));
    }

    #[test]
    fn contents_of_another_seed_are_foreign() {
        let mut bytes = vec![0; 64];
        Payload::new(2).fill(FILE, 0, &mut bytes);
        assert_eq!(verdict(&bytes, 64, 64), Err(Flaw::Foreign { at: 0 }));
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(size in 0usize..300, offset in 0usize..300, piece in 1usize..50) {
            let whole = content(FILE, 600);
            let mut part = vec![0; size];
            Payload::new(1).fill(FILE, offset as u64, &mut part);
            prop_assert_eq!(&part[..], &whole[offset..offset + size]);
            prop_assert_eq!(verdict(&whole[..size], size as u64, piece), Ok(()));
        }

        #[test]
        fn any_wrong_byte_is_found(size in 1usize..200, at in 0usize..200, piece in 1usize..50) {
            let mut bytes = content(FILE, size);
            let at = at % size;
            bytes[at] ^= 1;
            prop_assert!(verdict(&bytes, size as u64, piece).is_err());
        }
    }
}
