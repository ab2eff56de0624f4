//! `REST` (RFC 959, RFC 3659 section 5) and `RANG` (draft-bryan-ftp-range): where a transfer begins and ends.
//!
//! Their values apply to the next transfer command, past `PASV`, `PORT`, `TYPE` and the like, which consumes them even
//! if it fails: the gate does that. The unit of an offset depends on the coding; only [`point`] knows it.

use super::{Argument, Command, Feat, ROW};
use crate::codec::{Coding, Mode, Structure, Type};
use crate::reply::{Reply, code};
use crate::session::{ByteRange, Session, Step};

pub(super) const REST: Command = Command {
    verb: "REST",
    argument: Argument::Required,
    feat: Feat::Line("REST STREAM"),
    help: "REST <offset>",
    source: "RFC 3659",
    note: "in TYPE A counts wire bytes, and for RETR only; in MODE B takes our markers",
    run: rest,
    ..ROW
};

pub(super) const RANG: Command = Command {
    verb: "RANG",
    argument: Argument::Required,
    feat: Feat::Line("RANG STREAM"),
    help: "RANG <first byte> <last byte>; RANG 1 0 for the whole file",
    source: "draft-bryan-ftp-range",
    note: "for RETR, STOR and HASH in MODE S, STRU F, TYPE I",
    run: rang,
    ..ROW
};

/// Where in the file, and where on the wire, a transfer begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Point {
    /// The part of the file.
    pub(super) range: ByteRange,
    /// Wire bytes to leave out.
    pub(super) skip: u64,
}

/// The meaning of a range in a coding, or the reply where it has none.
pub(super) fn point(coding: Coding, range: ByteRange) -> Result<Point, Reply> {
    // One byte on the wire for each of the file, and in the same place.
    let in_step = coding.structure == Structure::File && coding.representation != Type::Ascii;
    match (coding.mode, range) {
        (_, ByteRange { start: 0, end: None }) => Ok(Point::default()),
        (Mode::Stream, range) if in_step => Ok(Point { range, skip: 0 }),
        (_, ByteRange { end: Some(_), .. }) => {
            Err(Reply::new(code::BAD_RESTART, "A range is served in MODE S, STRU F and TYPE I only."))
        }
        // Our markers are offsets in the file, whatever its type.
        (Mode::Block, range) => Ok(Point { range, skip: 0 }),
        (Mode::Deflate { .. }, range) if in_step => Ok(Point { range, skip: 0 }),
        (Mode::Deflate { .. }, _) => Err(Reply::new(
            code::BAD_RESTART,
            "In MODE Z a transfer can be restarted in STRU F and TYPE I only.",
        )),
        (Mode::Stream, ByteRange { start, .. }) => Ok(Point { range: ByteRange::default(), skip: start }),
    }
}

/// Digits only: neither sign nor space, and no more than 63 bits, which is what files have.
pub(super) fn parse_offset(argument: &[u8]) -> Option<u64> {
    crate::decimal::parse_decimal(argument.trim_ascii()).filter(|&offset| offset <= i64::MAX as u64)
}

fn rest(session: &mut Session, argument: &[u8]) -> Step {
    match parse_offset(argument) {
        Some(start) => {
            session.restart = ByteRange { start, end: None };
            Reply::filled(code::NEED_MORE, "Restarting at {}; send RETR, STOR or APPE.", [start.to_string()])
                .into()
        }
        None => Reply::new(code::BAD_ARGUMENT, "The offset is a number of bytes.").into(),
    }
}

fn rang(session: &mut Session, argument: &[u8]) -> Step {
    let mut numbers = argument.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).map(parse_offset);
    let (Some(Some(first)), Some(Some(last)), None) = (numbers.next(), numbers.next(), numbers.next()) else {
        return Reply::new(code::BAD_ARGUMENT, "Syntax: RANG <first byte> <last byte>").into();
    };
    if first > last {
        session.restart = ByteRange::default();
        return Reply::new(code::NEED_MORE, "The range is reset: the whole file.").into();
    }
    session.restart = ByteRange { start: first, end: Some(last + 1) };
    Reply::owned(code::NEED_MORE, format!("Restarting at {first}. End byte range at {last}.")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: ByteRange = ByteRange { start: 5, end: None };

    fn of(representation: Type, structure: Structure, mode: Mode, range: ByteRange) -> Option<(u64, u64)> {
        let point = point(Coding { representation, structure, mode }, range).ok()?;
        Some((point.range.start, point.skip))
    }

    #[test]
    fn an_offset_counts_what_the_coding_counts() {
        let deflate = Mode::Deflate { level: 6 };
        for (representation, structure, mode, expected) in [
            (Type::Image, Structure::File, Mode::Stream, Some((5, 0))),
            (Type::Ebcdic, Structure::File, Mode::Stream, Some((5, 0))),
            (Type::Ascii, Structure::File, Mode::Stream, Some((0, 5))),
            (Type::Image, Structure::Record, Mode::Stream, Some((0, 5))),
            (Type::Ascii, Structure::File, Mode::Block, Some((5, 0))),
            (Type::Image, Structure::File, deflate, Some((5, 0))),
            (Type::Ascii, Structure::File, deflate, None),
        ] {
            assert_eq!(of(representation, structure, mode, RANGE), expected);
            assert_eq!(of(representation, structure, mode, ByteRange::default()), Some((0, 0)));
        }
    }

    #[test]
    fn a_range_with_an_end_is_for_plain_streams() {
        let range = ByteRange { start: 0, end: Some(9) };
        assert_eq!(of(Type::Image, Structure::File, Mode::Stream, range), Some((0, 0)));
        assert_eq!(of(Type::Ascii, Structure::File, Mode::Stream, range), None);
        assert_eq!(of(Type::Image, Structure::File, Mode::Block, range), None);
    }

    #[test]
    fn offsets_are_digits_that_a_file_can_have() {
        assert_eq!(parse_offset(b"9223372036854775807"), Some(i64::MAX as u64));
        for bad in [&b"9223372036854775808"[..], b"-1", b"+1", b"", b"1 2", b"0x1"] {
            assert_eq!(parse_offset(bad), None);
        }
    }
}
