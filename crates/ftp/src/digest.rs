//! Hashes of files: what `HASH`, `XCRC`, `XMD5`, `XSHA256` and their kin ask for.
//!
//! A [`Hasher`] is fed by the reader of the file, on the blocking pool, so it can stop between two buffers.

pub use millrace_vfs::hash::{Algorithm, Hasher};

use crate::decimal::parse_decimal;

/// The algorithm of a verb: `XCRC`, `XMD5`, `MD5`, `MMD5`, `XSHA`, `XSHA1`, `XSHA256`, `XSHA512`.
pub fn algorithm_of_verb(verb: &str) -> Option<Algorithm> {
    match verb {
        "XCRC" => Some(Algorithm::Crc32),
        "XMD5" | "MD5" | "MMD5" => Some(Algorithm::Md5),
        "XSHA" | "XSHA1" => Some(Algorithm::Sha1),
        "XSHA256" => Some(Algorithm::Sha256),
        "XSHA512" => Some(Algorithm::Sha512),
        _ => None,
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

    #[test]
    fn verbs_name_their_algorithms() {
        assert_eq!(algorithm_of_verb("XSHA"), Some(Algorithm::Sha1));
        assert_eq!(algorithm_of_verb("HASH"), None);
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
        fn any_argument_is_read(argument in prop::collection::vec(prop::sample::select(&b"\" 019a\xff"[..]), 0..20)) {
            let _ = Target::parse(&argument);
        }
    }
}
