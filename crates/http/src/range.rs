//! Byte ranges (RFC 9110 section 14).
//!
//! A client can name ranges by the thousand, each the whole file (CVE-2011-3192). So what overlaps or touches is
//! joined, and where the ranges are still many the whole file is the answer: it is never more work than that.

use std::ops::Range;

use crate::request::decimal;

/// Parts of an answer at most.
pub const MAX_PARTS: usize = 64;

/// Ranges that are looked at at all.
const MAX_SPECS: usize = 1024;

/// A gap that is cheaper to send than the head of another part (section 15.3.7.2).
const GAP: u64 = 80;

/// The ranges that a `Range` field asks for, of a file of some length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ranges {
    /// The whole: there is no range that counts.
    Whole,
    /// One range.
    One(Range<u64>),
    /// Several, in the order in which they were named.
    Many(Vec<Range<u64>>),
    /// None that the file has: 416.
    Unsatisfiable,
}

/// Parses a `Range` field for a file of `size` bytes. A field that is malformed, or in other units, is ignored.
pub fn parse(field: &[u8], size: u64) -> Ranges {
    let Some(set) = strip_unit(field) else { return Ranges::Whole };
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut specs = 0;
    for spec in set.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|spec| !spec.is_empty()) {
        specs += 1;
        match parse_one(spec, size) {
            _ if specs > MAX_SPECS => return Ranges::Whole,
            Err(Malformed) => return Ranges::Whole,
            Ok(None) => {}
            Ok(Some(range)) => join(&mut ranges, range),
        }
    }
    match ranges.len() {
        0 if specs == 0 => Ranges::Whole,
        0 => Ranges::Unsatisfiable,
        1 => Ranges::One(ranges.remove(0)),
        2..=MAX_PARTS => Ranges::Many(ranges),
        _ => Ranges::Whole,
    }
}

/// Parses a `Content-Range` field of a request (RFC 9110 section 14.5): the first byte, and the number of bytes.
pub fn content_range(field: &[u8]) -> Option<(u64, u64)> {
    let (unit, range) = field.split_at_checked(6)?;
    let slash = memchr::memchr(b'/', range)?;
    let (range, whole) = (&range[..slash], &range[slash + 1..]);
    let dash = memchr::memchr(b'-', range)?;
    let (first, last) = (decimal(&range[..dash])?, decimal(&range[dash + 1..])?);
    let fits = whole == b"*" || decimal(whole).is_some_and(|whole| last < whole);
    (unit.eq_ignore_ascii_case(b"bytes ") && first <= last && fits).then(|| (first, last - first + 1))
}

fn strip_unit(field: &[u8]) -> Option<&[u8]> {
    let (unit, set) = field.split_at_checked(6)?;
    unit.eq_ignore_ascii_case(b"bytes=").then_some(set)
}

struct Malformed;

/// A position, however large: beyond every file is beyond every file.
fn position(digits: &[u8]) -> Result<u64, Malformed> {
    match !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) {
        true => Ok(decimal(digits).unwrap_or(u64::MAX)),
        false => Err(Malformed),
    }
}

/// `first-last`, `first-` or `-suffix`; `None` for one that the file does not have.
fn parse_one(spec: &[u8], size: u64) -> Result<Option<Range<u64>>, Malformed> {
    let dash = memchr::memchr(b'-', spec).ok_or(Malformed)?;
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    if first.is_empty() {
        let suffix = position(last)?;
        return Ok((suffix > 0 && size > 0).then(|| size.saturating_sub(suffix)..size));
    }
    let first = position(first)?;
    let end = match last {
        b"" => size,
        last => position(last)?.saturating_add(1),
    };
    // Both may be beyond what can be counted.
    if end <= first && first < u64::MAX && !last.is_empty() {
        return Err(Malformed);
    }
    Ok((first < size).then(|| first..end.min(size)))
}

/// Adds a range, joined with those that it overlaps or nearly touches.
fn join(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    let touches = |other: &Range<u64>| {
        range.start <= other.end.saturating_add(GAP) && other.start <= range.end.saturating_add(GAP)
    };
    let Some(at) = ranges.iter().position(touches) else { return ranges.push(range) };
    let other = ranges.remove(at);
    let joined = range.start.min(other.start)..range.end.max(other.end);
    // Larger now, it may touch another; it takes the place of the first.
    let before = ranges.len();
    join(ranges, joined);
    if ranges.len() > before {
        let joined = ranges.pop().expect("one was pushed");
        ranges.insert(at.min(ranges.len()), joined);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_are_what_the_rfc_says() {
        use Ranges::{Many, One, Unsatisfiable, Whole};
        let table = [
            ("bytes=0-499", One(0..500)),
            ("bytes=500-999", One(500..1000)),
            ("bytes=-500", One(9500..10000)),
            ("bytes=9500-", One(9500..10000)),
            ("bytes=0-0,-1", Many(vec![0..1, 9999..10000])),
            ("bytes= 0-0 , 500-600", Many(vec![0..1, 500..601])),
            ("bytes=,0-0,", One(0..1)),
            ("BYTES=0-0", One(0..1)),
            ("bytes=0-99999999", One(0..10000)),
            ("bytes=-99999999", One(0..10000)),
            ("bytes=500-600,601-999", One(500..1000)),
            ("bytes=500-700,601-999", One(500..1000)),
            ("bytes=600-999,500-700", One(500..1000)),
            ("bytes=5000-5999,0-0", Many(vec![5000..6000, 0..1])),
            ("bytes=0-0,4000-4000,1-3999", One(0..4001)),
            ("bytes=10000-", Unsatisfiable),
            ("bytes=10000-10001,20000-", Unsatisfiable),
            ("bytes=-0", Unsatisfiable),
            ("bytes=-0,0-0", One(0..1)),
            ("bytes=5-4", Whole),
            ("bytes=0-1,5-4", Whole),
            ("bytes=a-b", Whole),
            ("bytes=1", Whole),
            ("bytes=", Whole),
            ("bytes", Whole),
            ("", Whole),
            ("items=0-5", Whole),
            ("bytes=--1", Whole),
            ("bytes=+1-2", Whole),
            ("bytes=0-18446744073709551615", One(0..10000)),
            ("bytes=18446744073709551615-", Unsatisfiable),
            ("bytes=99999999999999999999-99999999999999999999", Unsatisfiable),
            ("bytes=-99999999999999999999", One(0..10000)),
            ("bytes=0-9223372036854775807", One(0..10000)),
        ];
        for (field, expected) in table {
            assert_eq!(parse(field.as_bytes(), 10_000), expected, "{field}");
        }
        assert_eq!(parse(b"bytes=0-", 0), Unsatisfiable);
        assert_eq!(parse(b"bytes=-1", 0), Unsatisfiable);
    }

    #[test]
    fn a_content_range_says_where_bytes_go() {
        for (field, expected) in [
            ("bytes 5-9/10", Some((5, 5))),
            ("Bytes 0-0/*", Some((0, 1))),
            ("bytes 5-10/10", None),
            ("bytes 5-4/10", None),
            ("bytes */10", None),
            ("bytes=5-9/10", None),
            ("bytes 5-9", None),
            ("lines 5-9/10", None),
            ("", None),
        ] {
            assert_eq!(content_range(field.as_bytes()), expected, "{field}");
        }
    }

    #[test]
    fn a_thousand_ranges_are_never_more_than_the_file() {
        let overlapping = format!("bytes={}", "0-,".repeat(1000));
        assert_eq!(parse(overlapping.as_bytes(), 10_000), Ranges::One(0..10_000));
        let apart: String = (0..1000).map(|n| format!("{}-{},", n * 1000, n * 1000)).collect();
        assert_eq!(parse(format!("bytes={apart}").as_bytes(), 1_000_000), Ranges::Whole);
        assert_eq!(parse(format!("bytes={}", "9-,".repeat(5000)).as_bytes(), 10), Ranges::Whole);
    }

    proptest! {
        #[test]
        fn parts_lie_within_the_file_and_apart(field in "bytes=([0-9]{0,4}-[0-9]{0,4},){0,30}", size in 0..5000_u64) {
            let parts = match parse(field.as_bytes(), size) {
                Ranges::One(range) => vec![range],
                Ranges::Many(ranges) => ranges,
                _ => vec![],
            };
            for (at, part) in parts.iter().enumerate() {
                prop_assert!(part.start < part.end && part.end <= size);
                for other in &parts[..at] {
                    prop_assert!(part.end < other.start || other.end < part.start);
                }
            }
        }
    }
}
