//! Hashes of whole files: the kinds, computing them as bytes pass, and the form in which they are stored with a file.
//!
//! A [`Hasher`] is fed piece by piece, so it can stop between two buffers. Its libraries detect the processor's SHA,
//! AVX2 and carry-less multiply instructions when they run.
//!
//! Names are those of the IANA registry "FTP Hash Algorithms" (draft-bryan-ftp-hash); CRC32C and BLAKE3 are in no
//! registry.

use std::fmt;

use sha2::Digest;

use crate::Timestamp;
use crate::hex::Hex;

/// A hash algorithm, in the order in which `FEAT` lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// CRC-32 (ISO 3309, zlib's).
    Crc32,
    /// CRC-32C (Castagnoli, RFC 3720): finds damage at the rate of memory; no protection against forgery.
    Crc32c,
    /// MD5: for old clients; not secure.
    Md5,
    /// SHA-1: for old clients; not secure.
    Sha1,
    /// SHA-256, what `HASH` begins with.
    Sha256,
    /// SHA-512.
    Sha512,
    /// BLAKE3: the fastest that is secure.
    Blake3,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Self; 7] =
        [Self::Crc32, Self::Crc32c, Self::Md5, Self::Sha1, Self::Sha256, Self::Sha512, Self::Blake3];

    /// The name as `HASH` and `OPTS HASH` use it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Md5 => "MD5",
            Self::Sha1 => "SHA-1",
            Self::Sha256 => "SHA-256",
            Self::Sha512 => "SHA-512",
            Self::Blake3 => "BLAKE3",
        }
    }

    /// The algorithm that a client names, in any case, with or without its hyphen (`sha256`).
    pub fn parse(name: &[u8]) -> Option<Self> {
        let plain = |text: &[u8]| -> Vec<u8> {
            text.iter().filter(|byte| **byte != b'-').map(u8::to_ascii_uppercase).collect()
        };
        let name = plain(name);
        Self::ALL.into_iter().find(|algorithm| plain(algorithm.name().as_bytes()) == name)
    }

    /// How many hexadecimal digits its hashes have.
    fn digits(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 8,
            Self::Md5 => 32,
            Self::Sha1 => 40,
            Self::Sha256 | Self::Blake3 => 64,
            Self::Sha512 => 128,
        }
    }
}

/// A set of algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Algorithms(u8);

impl Algorithms {
    /// No algorithm.
    pub const NONE: Self = Self(0);

    /// This set and one more.
    #[must_use]
    pub const fn with(self, algorithm: Algorithm) -> Self {
        Self(self.0 | 1 << algorithm as u8)
    }

    /// Returns whether it is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The algorithms, in the order of [`Algorithm::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Algorithm> {
        Algorithm::ALL.into_iter().filter(move |algorithm| self.0 & 1 << *algorithm as u8 != 0)
    }
}

/// A hash that grows as bytes arrive.
#[derive(Debug, Clone)]
pub struct Hasher(State);

#[derive(Debug, Clone)]
enum State {
    Crc32(crc32fast::Hasher),
    Crc32c(u32),
    Md5(md5::Md5),
    Sha1(sha1::Sha1),
    Sha256(sha2::Sha256),
    Sha512(sha2::Sha512),
    Blake3(Box<blake3::Hasher>),
}

impl Hasher {
    /// The hash of no bytes yet.
    pub fn new(algorithm: Algorithm) -> Self {
        Self(match algorithm {
            Algorithm::Crc32 => State::Crc32(crc32fast::Hasher::new()),
            Algorithm::Crc32c => State::Crc32c(0),
            Algorithm::Md5 => State::Md5(Digest::new()),
            Algorithm::Sha1 => State::Sha1(Digest::new()),
            Algorithm::Sha256 => State::Sha256(Digest::new()),
            Algorithm::Sha512 => State::Sha512(Digest::new()),
            Algorithm::Blake3 => State::Blake3(Box::default()),
        })
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::Crc32(hasher) => hasher.update(bytes),
            State::Crc32c(sum) => *sum = crc32c::crc32c_append(*sum, bytes),
            State::Md5(hasher) => hasher.update(bytes),
            State::Sha1(hasher) => hasher.update(bytes),
            State::Sha256(hasher) => hasher.update(bytes),
            State::Sha512(hasher) => hasher.update(bytes),
            State::Blake3(hasher) => {
                hasher.update(bytes);
            }
        }
    }

    /// The hash in lower-case hexadecimal digits.
    pub fn finish(self) -> String {
        match self.0 {
            State::Crc32(hasher) => Hex(&hasher.finalize().to_be_bytes()).to_string(),
            State::Crc32c(sum) => Hex(&sum.to_be_bytes()).to_string(),
            State::Md5(hasher) => Hex(&hasher.finalize()).to_string(),
            State::Sha1(hasher) => Hex(&hasher.finalize()).to_string(),
            State::Sha256(hasher) => Hex(&hasher.finalize()).to_string(),
            State::Sha512(hasher) => Hex(&hasher.finalize()).to_string(),
            State::Blake3(hasher) => Hex(hasher.finalize().as_bytes()).to_string(),
        }
    }
}

/// Several hashes that grow together.
#[derive(Debug, Clone)]
pub struct Hashers {
    hashers: Vec<(Algorithm, Hasher)>,
    length: u64,
}

impl Hashers {
    /// The hashes of no bytes yet.
    pub fn new(algorithms: Algorithms) -> Self {
        Self {
            hashers: algorithms.iter().map(|algorithm| (algorithm, Hasher::new(algorithm))).collect(),
            length: 0,
        }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hashers.iter_mut().for_each(|(_, hasher)| hasher.update(bytes));
        self.length += bytes.len() as u64;
    }

    /// How many bytes it has taken.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The hashes.
    pub fn finish(self) -> Hashes {
        Hashes(self.hashers.into_iter().map(|(algorithm, hasher)| (algorithm, hasher.finish())).collect())
    }
}

/// The hashes of a whole file, in lower-case hexadecimal digits: `SHA-256:ba78... CRC32C:364b3fb7`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hashes(Vec<(Algorithm, String)>);

impl Hashes {
    /// Parses what [`Display`](fmt::Display) writes; at least one.
    pub fn parse(text: &str) -> Option<Self> {
        let hashes = text.split(' ').map(|word| {
            let (name, hash) = word.split_once(':')?;
            let algorithm = Algorithm::parse(name.as_bytes())?;
            let is_hash = hash.len() == algorithm.digits()
                && hash.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
            is_hash.then(|| (algorithm, hash.to_owned()))
        });
        hashes.collect::<Option<_>>().map(Self)
    }

    /// The hash by an algorithm.
    pub fn of(&self, algorithm: Algorithm) -> Option<&str> {
        self.0.iter().find(|(of, _)| *of == algorithm).map(|(_, hash)| &**hash)
    }

    /// Their algorithms.
    pub fn algorithms(&self) -> Algorithms {
        self.0.iter().fold(Algorithms::NONE, |set, (algorithm, _)| set.with(*algorithm))
    }

    /// The most telling one, with its name in front: `SHA-256:ba78...`.
    pub fn strongest(&self) -> Option<String> {
        use Algorithm::{Blake3, Crc32, Crc32c, Md5, Sha1, Sha256, Sha512};
        let order = [Sha256, Sha512, Blake3, Sha1, Md5, Crc32c, Crc32];
        let found = order.iter().find_map(|of| Some((of, self.of(*of)?)));
        found.map(|(algorithm, hash)| format!("{}:{hash}", algorithm.name()))
    }
}

impl fmt::Display for Hashes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (algorithm, hash)) in self.0.iter().enumerate() {
            write!(f, "{}{}:{hash}", if at > 0 { " " } else { "" }, algorithm.name())?;
        }
        Ok(())
    }
}

/// The hashes that are stored with a file, and what the file was then: they hold for as long as it has this length and
/// time of its last change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredHashes {
    /// The length of the file in bytes.
    pub size: u64,
    /// Its last change.
    pub modified: Timestamp,
    /// The hashes of its whole content.
    pub hashes: Hashes,
}

impl StoredHashes {
    /// The extended attribute of a local file that has them.
    pub const ATTRIBUTE: &'static str = "user.millrace.hash";

    /// The bytes that an attribute may have.
    pub const LONGEST: usize = 512;

    /// Parses `size seconds.nanoseconds hashes`, as [`Display`](fmt::Display) writes it.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut parts = std::str::from_utf8(text).ok()?.splitn(3, ' ');
        let size = parts.next()?.parse().ok()?;
        let (seconds, nanoseconds) = parts.next()?.split_once('.')?;
        let modified = Timestamp { seconds: seconds.parse().ok()?, nanoseconds: nanoseconds.parse().ok()? };
        Some(Self { size, modified, hashes: Hashes::parse(parts.next()?)? })
    }

    /// Returns whether they are those of a file that has this length and time of its last change now.
    pub fn fit(&self, size: u64, modified: Timestamp) -> bool {
        (self.size, self.modified) == (size, modified)
    }
}

impl fmt::Display for StoredHashes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Timestamp { seconds, nanoseconds } = self.modified;
        write!(f, "{} {seconds}.{nanoseconds:09} {}", self.size, self.hashes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hash(algorithm: Algorithm, bytes: &[u8]) -> String {
        let mut hasher = Hasher::new(algorithm);
        hasher.update(bytes);
        hasher.finish()
    }

    #[test]
    fn hashes_of_abc_are_those_of_the_standards() {
        for (algorithm, expected) in [
            (Algorithm::Crc32, "352441c2"),
            (Algorithm::Crc32c, "364b3fb7"),
            (Algorithm::Md5, "900150983cd24fb0d6963f7d28e17f72"),
            (Algorithm::Sha1, "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (Algorithm::Sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (
                Algorithm::Sha512,
                "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
                 2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
            ),
            (Algorithm::Blake3, "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"),
        ] {
            assert_eq!(hash(algorithm, b"abc"), expected);
            assert_eq!(expected.len(), algorithm.digits());
        }
        assert_eq!(hash(Algorithm::Crc32, b""), "00000000");
    }

    #[test]
    fn names_are_found_in_any_spelling() {
        for algorithm in Algorithm::ALL {
            assert_eq!(Algorithm::parse(algorithm.name().as_bytes()), Some(algorithm));
            assert_eq!(
                Algorithm::parse(algorithm.name().to_lowercase().replace('-', "").as_bytes()),
                Some(algorithm)
            );
        }
        assert_eq!(Algorithm::parse(b"SHA-3"), None);
    }

    #[test]
    fn stored_hashes_come_back_and_hold_for_the_file_that_they_were_made_of() {
        let all = Algorithm::ALL.into_iter().fold(Algorithms::NONE, Algorithms::with);
        let mut hashers = Hashers::new(all);
        hashers.update(b"abc");
        let modified = Timestamp { seconds: -1, nanoseconds: 5 };
        let stored = StoredHashes { size: hashers.length(), modified, hashes: hashers.finish() };
        let text = stored.to_string();
        assert!(text.starts_with("3 -1.000000005 CRC32:352441c2 CRC32C:364b3fb7 MD5:"), "{text}");
        assert!(text.len() <= StoredHashes::LONGEST, "{}", text.len());
        assert_eq!(StoredHashes::parse(text.as_bytes()), Some(stored.clone()));
        assert_eq!(stored.hashes.algorithms(), all);
        let sum = "SHA-256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(stored.hashes.strongest().as_deref(), Some(sum));
        assert!(stored.fit(3, modified));
        assert!(!stored.fit(4, modified));
        assert!(!stored.fit(3, Timestamp::default()));
    }

    proptest! {
        #[test]
        fn pieces_make_the_hash_of_the_whole(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0..300usize) {
            for algorithm in Algorithm::ALL {
                let mut hasher = Hasher::new(algorithm);
                let (first, second) = bytes.split_at(cut.min(bytes.len()));
                hasher.update(first);
                hasher.update(second);
                prop_assert_eq!(hasher.finish(), hash(algorithm, &bytes));
            }
        }

        #[test]
        fn whatever_an_attribute_has_is_read(text in "[0-9a-fA-Z:. -]{0,80}") {
            let _ = StoredHashes::parse(text.as_bytes());
        }
    }
}
