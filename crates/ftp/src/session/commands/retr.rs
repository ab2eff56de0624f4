//! `RETR` (RFC 959 section 4.1.3): downloads.

use millrace_vfs::VirtualPath;

use super::rest::{self, Point};
use super::{Argument, Command, PATH, ROW};
use crate::codec::{Mode, Type};
use crate::reply::{Reply, code};
use crate::session::{Answer, Content, Permission, Permissions, Request, Session, Step, Transfer};

pub(super) const RETR: Command = Command {
    verb: "RETR",
    argument: Argument::Required,
    needs: Permissions::only(Permission::Read),
    transfers: true,
    paths: PATH,
    help: "RETR <file>",
    run: retr,
    ..ROW
};

fn retr(session: &mut Session, argument: &[u8]) -> Step {
    session.ask_at(argument, Request::OpenRead, opened)
}

fn opened(session: &mut Session, answer: Answer) -> Step {
    let (Answer::Readable(handle), Some(path)) = (answer, session.subject.take()) else {
        return Step::mismatch();
    };
    let mut point = match rest::point(session.coding, session.range) {
        Ok(point) => point,
        Err(reply) => return reply.into(),
    };
    if point != Point::default() && !handle.conversion().is_none() {
        return Reply::new(
            code::BAD_RESTART,
            "This file is made while it is sent: fetch it from its start, and whole.",
        )
        .into();
    }
    let size = handle.size();
    if let Some(size) = size {
        if point.range.start > size {
            return past_the_end(size, point.range.start).into();
        }
        point.range.end = point.range.end.map(|end| end.min(size));
    }
    let length = size.map(|size| point.range.end.unwrap_or(size) - point.range.start);
    let announcement = announcement(session, &path, length);
    let content = Content::Send(handle, point.range);
    let transfer = Transfer { skip: point.skip, ..Transfer::new(content, session.coding, path) };
    session.transfer(announcement, transfer, complete)
}

/// The reply to a range that begins behind the end.
pub(super) fn past_the_end(size: u64, start: u64) -> Reply {
    let values = [size.to_string(), start.to_string()];
    Reply::filled(code::BAD_RESTART, "The file ends at byte {}: it cannot be restarted at {}.", values)
}

/// The reply to a transfer that ended well.
pub(super) fn complete(_: &mut Session) -> Step {
    Reply::new(code::CLOSING_DATA, "Transfer complete.").into()
}

/// `150 Opening BINARY mode data connection for name (123 bytes).`: clients read the size out of it.
pub(super) fn announcement(session: &Session, path: &VirtualPath, size: Option<u64>) -> Reply {
    let representation = match (session.coding.representation, session.coding.mode) {
        (_, Mode::Deflate { .. }) => "deflate",
        (Type::Image, _) => "BINARY",
        (Type::Ascii, _) => "ASCII",
        (Type::Ebcdic, _) => "EBCDIC",
    };
    let name = path.name();
    let mut text = Vec::with_capacity(64 + name.len());
    text.extend_from_slice(b"Opening ");
    text.extend_from_slice(representation.as_bytes());
    text.extend_from_slice(b" mode data connection for ");
    text.extend_from_slice(name);
    if let Some(size) = size {
        text.extend_from_slice(b" (");
        crate::decimal::push_decimal(size, &mut text);
        text.extend_from_slice(b" bytes)");
    }
    text.push(b'.');
    Reply::owned(code::OPENING_DATA, text)
}
