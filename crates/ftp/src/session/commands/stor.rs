//! `STOR`, `APPE`, `STOU`, `ALLO` (RFC 959 section 4.1.3): uploads.
//!
//! A plain `STOR` replaces the file as the storage does it (whole, by default). `REST n` before it, and
//! `APPE`, write into the file that is there; the announcement says so.

use millrace_vfs::{Space, Upload, VirtualPath, WriteMode};

use super::rest::{self, parse_offset};
use super::{Argument, Command, HERE, PATH, Paths, ROW, retr, site};
use crate::reply::{Reply, code};
use crate::session::{
    Answer, Bound, ByteRange, Content, DENIED, Permission, Permissions, Request, Session, Step, Transfer,
};

pub(super) const STOR: Command = Command {
    verb: "STOR",
    argument: Argument::Required,
    needs: Permissions::only(Permission::Write),
    transfers: true,
    paths: PATH,
    help: "STOR <file>",
    run: stor,
    ..ROW
};

pub(super) const APPE: Command = Command {
    verb: "APPE",
    argument: Argument::Required,
    needs: Permissions::only(Permission::Append),
    transfers: true,
    paths: PATH,
    help: "APPE <file>",
    run: |session, argument| begin(session, argument, WriteMode::Append),
    ..ROW
};

pub(super) const STOU: Command = Command {
    verb: "STOU",
    argument: Argument::Optional,
    needs: Permissions::only(Permission::Write),
    transfers: true,
    paths: Paths::Whole(|session, argument| Ok(vec![beginning(session, argument)?])),
    help: "STOU [<name to begin with>]",
    note: "an argument, which RFC 959 does not have, is the beginning of the name",
    run: stou,
    ..ROW
};

pub(super) const ALLO: Command = Command {
    verb: "ALLO",
    argument: Argument::Required,
    paths: HERE,
    help: "ALLO <bytes> [R <record size>]",
    note: "says whether there is room; reserves nothing",
    run: allo,
    ..ROW
};

/// An upload that is about to be opened.
#[derive(Debug, Clone, Copy)]
struct Plan {
    /// Where in the file it begins, if that is known.
    offset: Option<u64>,
    /// How many bytes `RANG` lets in.
    most: Option<u64>,
    /// How many `ALLO` has announced.
    announced: Option<u64>,
}

/// The size from `ALLO`, which applies to the next command only, even if that fails.
fn announced(session: &mut Session) -> Option<u64> {
    session.extras.as_mut()?.announced.take()
}

fn stor(session: &mut Session, argument: &[u8]) -> Step {
    match write_mode(session) {
        Ok(mode) => begin(session, argument, mode),
        Err(reply) => reply.into(),
    }
}

fn write_mode(session: &Session) -> Result<WriteMode, Reply> {
    let permissions = session.permissions();
    let point = rest::point(session.coding, session.range)?;
    match point.range {
        _ if point.skip > 0 => {
            // It would take reading the file to find the place.
            Err(Reply::new(code::BAD_RESTART, "An upload can be restarted in STRU F and TYPE I only."))
        }
        ByteRange { start: 0, end: None } if permissions.allows(Permission::Overwrite) => {
            Ok(WriteMode::Replace)
        }
        ByteRange { start: 0, end: None } => Ok(WriteMode::CreateNew),
        _ if !permissions.allows(Permission::Append) => Err(DENIED),
        // A range in the middle overwrites; a restart only appends.
        ByteRange { end: Some(_), .. } if !permissions.allows(Permission::Overwrite) => Err(DENIED),
        ByteRange { start, .. } => Ok(WriteMode::At(start)),
    }
}

fn begin(session: &mut Session, argument: &[u8], mode: WriteMode) -> Step {
    let announced = announced(session);
    let path = match session.path(argument) {
        Ok(path) => path,
        Err(reply) => return reply.into(),
    };
    let offset = match mode {
        WriteMode::Replace | WriteMode::CreateNew => Some(0),
        WriteMode::At(start) => Some(start),
        WriteMode::Append => None,
    };
    let most = match mode {
        WriteMode::At(start) => session.range.end.map(|end| end - start),
        _ => None,
    };
    let plan = Plan { offset, most, announced };
    let bits = site::file_bits(session);
    session.ask_about(
        path,
        |path| Request::OpenWrite(path, mode, bits),
        move |session, answer| {
            let (Answer::Writable(upload), Some(path)) = (answer, session.subject.take()) else {
                return Step::mismatch();
            };
            let announcement = match plan.offset {
                Some(0) => retr::announcement(session, &path, None),
                Some(start) => Reply::filled(
                    code::OPENING_DATA,
                    "Ready to receive; writing in place from byte {}.",
                    [start.to_string()],
                ),
                None => Reply::new(
                    code::OPENING_DATA,
                    "Ready to receive; writing in place at the end of the file.",
                ),
            };
            receive(session, announcement, upload, path, plan, retr::complete)
        },
    )
}

fn stou(session: &mut Session, argument: &[u8]) -> Step {
    match beginning(session, argument) {
        Ok(path) => {
            let bits = site::file_bits(session);
            session.ask_about(path, |path| Request::OpenUnique(path, bits), unique)
        }
        Err(reply) => reply.into(),
    }
}

/// The prefix of the name that `STOU` makes.
fn beginning(session: &Session, argument: &[u8]) -> Result<VirtualPath, Reply> {
    let path = session.path(if argument.is_empty() { b"upload" } else { argument })?;
    match path.is_root() {
        true => Err(Reply::new(code::BAD_NAME, "STOU takes the beginning of a name, or nothing.")),
        false => Ok(path),
    }
}

fn unique(session: &mut Session, answer: Answer) -> Step {
    let Answer::Unique(upload, path) = answer else { return Step::mismatch() };
    // RFC 1123 section 4.1.2.9 fixes this text.
    let here = path.parent() == session.directory;
    let text = [&b"FILE: "[..], if here { path.name() } else { path.as_bytes() }].concat();
    let announcement = Reply::owned(code::OPENING_DATA, &text[..]);
    let plan = Plan { offset: Some(0), most: None, announced: announced(session) };
    receive(session, announcement, upload, path, plan, move |_| Reply::owned(code::CLOSING_DATA, text).into())
}

fn receive(
    session: &mut Session,
    announcement: Reply,
    upload: Box<dyn Upload>,
    path: VirtualPath,
    plan: Plan,
    success: impl FnOnce(&mut Session) -> Step + Send + 'static,
) -> Step {
    let content = Content::Receive(upload, plan.most);
    let Plan { offset, announced, .. } = plan;
    let transfer = Transfer { offset, announced, ..Transfer::new(content, session.coding, path) };
    session.transfer(announcement, transfer, success)
}

/// `ALLO 1000`, `ALLO 1000 R 80`: is there room? The announced size is only checked now, not enforced later.
fn allo(session: &mut Session, argument: &[u8]) -> Step {
    let words: Vec<&[u8]> = argument.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).collect();
    let (bytes, record) = match words[..] {
        [bytes] => (bytes, None),
        [bytes, r, record] if r.eq_ignore_ascii_case(b"R") => (bytes, Some(record)),
        _ => return Reply::new(code::BAD_ARGUMENT, "Syntax: ALLO <bytes> [R <record size>]").into(),
    };
    let (Some(bytes), true) =
        (parse_offset(bytes), record.is_none_or(|record| parse_offset(record).is_some()))
    else {
        return Reply::new(code::BAD_ARGUMENT, "ALLO takes numbers of bytes.").into();
    };
    session.ask_whether(Request::Space(session.directory.clone()), move |session, answer| match answer {
        Answer::Space(Space { available, quota: Some(over), .. }) if available < bytes => {
            Step::from(session.refusal(&over.clone().into())).because(Bound::Quota(over))
        }
        Answer::Space(space) if space.available < bytes => {
            let free = [space.available.to_string()];
            let reply = Reply::filled(code::NO_SPACE, "Only {} bytes are free.", free);
            Step::from(reply).because(Bound::Space(space.available))
        }
        Answer::Space(_) => {
            session.extras_mut().announced = Some(bytes);
            Reply::new(code::OK, "There is room.").into()
        }
        _ => Reply::new(code::SUPERFLUOUS, "No allocation is needed here.").into(),
    })
}
