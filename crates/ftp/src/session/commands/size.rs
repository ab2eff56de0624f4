//! `SIZE` and `MDTM` (RFC 3659 sections 3 and 4): what a client asks before it resumes.

use millrace_vfs::{FileError, FileKind, Timestamp, VirtualPath};

use super::{Argument, Command, Feat, PATH, Paths, ROW, facts};
use crate::codec::{Mode, Structure, Type};
use crate::reply::{Reply, code};
use crate::session::{Answer, Permission, Permissions, Request, Session, Step};
use crate::time;

/// How many octets a `RETR` would send now.
pub(super) const SIZE: Command = Command {
    verb: "SIZE",
    argument: Argument::Required,
    needs: Permissions::only(Permission::List),
    feat: Feat::Line("SIZE"),
    paths: PATH,
    help: "SIZE <file>",
    source: "RFC 3659",
    run: size,
    ..ROW
};

/// When a file's content last changed, in UTC; or, as old clients have it, when it is to have.
pub(super) const MDTM: Command = Command {
    verb: "MDTM",
    argument: Argument::Required,
    needs: Permissions::only(Permission::List),
    feat: Feat::Line("MDTM"),
    paths: Paths::Within(either),
    help: "MDTM [<YYYYMMDDHHMMSS>] <path>",
    source: "RFC 3659",
    note: "with a time it sets the time, unless time and path together name a file",
    run: mdtm,
    ..ROW
};

/// The gate's conditions for setting a time by `MDTM`.
static SET_TIME: Command = Command {
    needs: Permissions::only(Permission::Attributes),
    run: |session, argument| match with_time(argument) {
        Some((time, path)) => facts::modify(session, path, time),
        _ => Step::mismatch(),
    },
    ..MDTM
};

fn size(session: &mut Session, argument: &[u8]) -> Step {
    if session.coding.representation != Type::Image {
        return Reply::new(
            code::FILE_UNAVAILABLE,
            "SIZE is not available in TYPE A or E: it would have to convert the file.",
        )
        .into();
    }
    if session.coding.mode != Mode::Stream || session.coding.structure != Structure::File {
        return Reply::new(code::FILE_UNAVAILABLE, "SIZE is available in MODE S and STRU F only.").into();
    }
    session.ask_at(argument, Request::Metadata, sized)
}

fn sized(session: &mut Session, answer: Answer) -> Step {
    let Answer::Metadata(metadata) = answer else { return Step::mismatch() };
    match metadata.kind {
        FileKind::File => Reply::owned(code::FILE_STATUS, metadata.size.to_string()).into(),
        FileKind::Directory => session.refusal(&FileError::IsDirectory).into(),
        _ => session.refusal(&FileError::NotRegular).into(),
    }
}

/// `20240101120000 name`
fn with_time(argument: &[u8]) -> Option<(Timestamp, &[u8])> {
    match time::parse_prefix(argument) {
        Some((time, [b' ', path @ ..])) if !path.is_empty() => Some((time, path)),
        _ => None,
    }
}

/// The paths that the argument of `MDTM` may name: in one interpretation, or both.
fn either(session: &Session, argument: &[u8]) -> Result<Vec<VirtualPath>, Reply> {
    let mut paths = vec![session.path(argument)?];
    if let Some((_, path)) = with_time(argument) {
        paths.push(session.path(path)?);
    }
    Ok(paths)
}

fn mdtm(session: &mut Session, argument: &[u8]) -> Step {
    let path = match session.path(argument) {
        Ok(path) => path,
        Err(reply) => return reply.into(),
    };
    session.subject = Some(path.clone());
    if with_time(argument).is_none() {
        return session.ask(Request::Metadata(path), modified);
    }
    // `20240101120000 camera.jpg` may be the name of a file, and that is what RFC 3659 asks about.
    let argument = argument.to_vec();
    session.ask_whether(Request::Metadata(path), move |session, answer| match answer {
        Answer::Metadata(_) => modified(session, answer),
        _ => session.run(&SET_TIME, Some(&argument)),
    })
}

fn modified(_: &mut Session, answer: Answer) -> Step {
    let Answer::Metadata(metadata) = answer else { return Step::mismatch() };
    let mut text = Vec::with_capacity(14);
    time::write(metadata.modified, &mut text);
    Reply::owned(code::FILE_STATUS, text).into()
}
