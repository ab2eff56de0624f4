//! Hashes of files: `HASH`, `XCRC`, `XMD5`, `XSHA256` and their kin.
//!
//! A [`Hasher`] is fed by the reader of the file, on the blocking pool, so it can stop between two buffers. Its
//! libraries detect the processor's SHA, AVX2 and carry-less multiply instructions when they run.
//!
//! Names are those of the IANA registry "FTP Hash Algorithms" (draft-bryan-ftp-hash); BLAKE3 is in no
//! registry.

use millrace_vfs::hex::Hex;
use sha2::Digest;

use crate::decimal::parse_decimal;

/// A hash algorithm, in the order in which `FEAT` lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// CRC-32 (ISO 3309, zlib's).
    Crc32,
    /// MD5: for old clients; not secure.
    Md5,
    /// SHA-1: for old clients; not secure.
    Sha1,
    /// SHA-256, what `HASH` begins with.
    Sha256,
    /// SHA-512.
    Sha512,
    /// BLAKE3: the fastest.
    Blake3,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Self; 6] = [Self::Crc32, Self::Md5, Self::Sha1, Self::Sha256, Self::Sha512, Self::Blake3];

    /// The name as `HASH` and `OPTS HASH` use it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
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

    /// The algorithm of a verb: `XCRC`, `XMD5`, `MD5`, `MMD5`, `XSHA`, `XSHA1`, `XSHA256`, `XSHA512`.
    pub fn of_verb(verb: &str) -> Option<Self> {
        match verb {
            "XCRC" => Some(Self::Crc32),
            "XMD5" | "MD5" | "MMD5" => Some(Self::Md5),
            "XSHA" | "XSHA1" => Some(Self::Sha1),
            "XSHA256" => Some(Self::Sha256),
            "XSHA512" => Some(Self::Sha512),
            _ => None,
        }
    }
}

/// A hash that grows as bytes arrive.
#[derive(Debug, Clone)]
pub struct Hasher(State);

#[derive(Debug, Clone)]
enum State {
    Crc32(crc32fast::Hasher),
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
            State::Md5(hasher) => Hex(&hasher.finalize()).to_string(),
            State::Sha1(hasher) => Hex(&hasher.finalize()).to_string(),
            State::Sha256(hasher) => Hex(&hasher.finalize()).to_string(),
            State::Sha512(hasher) => Hex(&hasher.finalize()).to_string(),
            State::Blake3(hasher) => Hex(hasher.finalize().as_bytes()).to_string(),
        }
    }
}

/// A range of a file to hash, in bytes: from `start` up to and without `end`, or to the end of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// The first byte.
    pub start: u64,
    /// The byte after the last one.
    pub end: Option<u64>,
}

/// The range that `XCRC` and similar commands hash.
///
/// Without quotes, `a 0 5` may be the file `a 0 5`, or five bytes of the file `a`: the readings are in the
/// order in which to try them, and the first that names a file counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// At least one name, each with its range.
    pub readings: Vec<(Vec<u8>, Span)>,
}

impl Target {
    /// Reads `"name" start end`, `name start end`, `name start`, `name`. `None` where quotes or ranges make
    /// no sense, or where there is no name.
    pub fn parse(argument: &[u8]) -> Option<Self> {
        if argument.first() == Some(&b'"')
            && let Some((name, rest)) = unquote(argument)
        {
            let span = parse_span(rest)?;
            return (!name.is_empty()).then(|| Self { readings: vec![(name, span)] });
        }
        if argument.is_empty() {
            return None;
        }
        let mut readings = vec![(argument.to_vec(), Span::default())];
        let blanks: Vec<usize> = memchr::memrchr_iter(b' ', argument).take(2).filter(|at| *at > 0).collect();
        // Two numbers before one: `a 0 5` is a range of `a` rather than the tail of `a 0`.
        for at in blanks.into_iter().rev() {
            if let Some(span) = parse_span(&argument[at..]) {
                readings.push((argument[..at].to_vec(), span));
            }
        }
        Some(Self { readings })
    }
}

/// The text between quotes, doubled ones undone, and what follows.
fn unquote(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut name = Vec::new();
    let mut rest = text.strip_prefix(b"\"")?;
    loop {
        let quote = memchr::memchr(b'"', rest)?;
        name.extend_from_slice(&rest[..quote]);
        rest = &rest[quote + 1..];
        match rest.strip_prefix(b"\"") {
            Some(after) => {
                name.push(b'"');
                rest = after;
            }
            None => return Some((name, rest)),
        }
    }
}

/// Parses nothing, ` start` or ` start end`.
fn parse_span(text: &[u8]) -> Option<Span> {
    let mut numbers = text.split(|&byte| byte == b' ').filter(|part| !part.is_empty());
    let span = Span {
        start: numbers.next().map_or(Some(0), parse_decimal)?,
        end: numbers.next().map(|end| parse_decimal(end).ok_or(())).transpose().ok()?,
    };
    let is_one_range = span.end.is_none_or(|end| end >= span.start) && numbers.next().is_none();
    (is_one_range && text.first().is_none_or(|&first| first == b' ')).then_some(span)
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
        assert_eq!(Algorithm::of_verb("XSHA"), Some(Algorithm::Sha1));
    }

    fn readings(argument: &str) -> Option<Vec<(String, u64, Option<u64>)>> {
        let target = Target::parse(argument.as_bytes())?;
        let text = |(name, span): (Vec<u8>, Span)| (String::from_utf8(name).unwrap(), span.start, span.end);
        Some(target.readings.into_iter().map(text).collect())
    }

    #[test]
    fn quotes_end_a_name_and_leave_one_reading() {
        assert_eq!(readings("\"a b\""), Some(vec![("a b".into(), 0, None)]));
        assert_eq!(readings("\"a b\" 5"), Some(vec![("a b".into(), 5, None)]));
        assert_eq!(readings("\"a \"\"b\"\"\" 5 10"), Some(vec![("a \"b\"".into(), 5, Some(10))]));
        assert_eq!(readings("\"a\" 10 5"), None);
        assert_eq!(readings("\"a\" x"), None);
        assert_eq!(readings("\"a\"5"), None);
        assert_eq!(readings("\"\""), None);
        assert_eq!(readings("\"a"), Some(vec![("\"a".into(), 0, None)]));
    }

    #[test]
    fn without_quotes_the_whole_is_tried_first_as_a_name() {
        assert_eq!(readings("a b"), Some(vec![("a b".into(), 0, None)]));
        assert_eq!(readings("a 5"), Some(vec![("a 5".into(), 0, None), ("a".into(), 5, None)]));
        assert_eq!(
            readings("a b 0 5"),
            Some(vec![("a b 0 5".into(), 0, None), ("a b".into(), 0, Some(5)), ("a b 0".into(), 5, None)])
        );
        assert_eq!(readings(""), None);
        assert_eq!(readings("5"), Some(vec![("5".into(), 0, None)]));
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
        fn any_argument_is_read(argument in prop::collection::vec(prop::sample::select(&b"\" 019a\xff"[..]), 0..20)) {
            let _ = Target::parse(&argument);
        }
    }
}
