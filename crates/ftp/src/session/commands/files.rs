//! `DELE`, `RNFR`, `RNTO`, `MKD`, `RMD` and their RFC 775 twins: changing the tree.

use millrace_vfs::{FileError, VirtualPath};

use super::{Argument, Command, PATH, Paths, ROW, site};
use crate::reply::{Reply, code};
use crate::session::{Answer, Permission, Permissions, Request, Session, Source, Step, quoted};

pub(super) const DELE: Command = Command {
    verb: "DELE",
    argument: Argument::Required,
    needs: Permissions::only(Permission::Delete),
    paths: PATH,
    help: "DELE <file>",
    run: |session, argument| act(session, argument, Request::RemoveFile, DELETED),
    ..ROW
};

pub(super) const RMD: Command = Command {
    verb: "RMD",
    argument: Argument::Required,
    needs: Permissions::only(Permission::Delete),
    paths: PATH,
    help: "RMD <directory>",
    run: |session, argument| act(session, argument, Request::RemoveDirectory, REMOVED),
    ..ROW
};

pub(super) const XRMD: Command = Command { verb: "XRMD", help: "XRMD <directory>", source: "RFC 775", ..RMD };

pub(super) const MKD: Command = Command {
    verb: "MKD",
    argument: Argument::Required,
    needs: Permissions::only(Permission::MakeDirectory),
    paths: PATH,
    help: "MKD <directory>",
    run: mkd,
    ..ROW
};

pub(super) const XMKD: Command = Command { verb: "XMKD", help: "XMKD <directory>", source: "RFC 775", ..MKD };

pub(super) const RNFR: Command = Command {
    verb: "RNFR",
    argument: Argument::Required,
    needs: Permissions::only(Permission::Rename),
    paths: PATH,
    help: "RNFR <old name>",
    note: "waits for its RNTO whatever comes between",
    run: rnfr,
    ..ROW
};

pub(super) const RNTO: Command = Command {
    verb: "RNTO",
    argument: Argument::Required,
    needs: Permissions::only(Permission::Rename),
    paths: Paths::Whole(|session, argument| both(session, argument, &session.source)),
    help: "RNTO <new name>",
    run: rnto,
    ..ROW
};

const DELETED: Reply = Reply::new(code::FILE_ACTION_OK, "Deleted.");
pub(super) const REMOVED: Reply = Reply::new(code::FILE_ACTION_OK, "Removed.");
const RENAMED: Reply = Reply::new(code::FILE_ACTION_OK, "Renamed.");

/// Asks for something done to a path, and answers `reply` when it is.
pub(super) fn act(
    session: &mut Session,
    argument: &[u8],
    request: fn(VirtualPath) -> Request,
    reply: Reply,
) -> Step {
    session.ask_at(argument, request, move |_, _| reply.into())
}

/// Continues if `path` may be replaced: it is a new name, or the account may overwrite. Check and action are two steps:
/// another account may act between them.
pub(super) fn unless_taken(
    session: &mut Session,
    path: VirtualPath,
    next: impl FnOnce(&mut Session, VirtualPath) -> Step + Send + 'static,
) -> Step {
    if session.permissions().allows(Permission::Overwrite) {
        return next(session, path);
    }
    session.ask_whether(Request::Entry(path.clone()), move |session, answer| match answer {
        Answer::Failed(FileError::NotFound) => next(session, path),
        Answer::Failed(error) => session.refusal(&error).into(),
        _ => Reply::new(code::FILE_UNAVAILABLE, "Permission denied: the name is taken.").into(),
    })
}

fn mkd(session: &mut Session, argument: &[u8]) -> Step {
    let bits = site::directory_bits(session);
    session.ask_at(argument, |path| Request::MakeDirectory(path, bits), made)
}

/// The reply to a directory that was made.
pub(super) fn made(session: &mut Session, _: Answer) -> Step {
    let Some(path) = session.subject.take() else { return Step::mismatch() };
    Reply::filled(code::PATH_CREATED, "{} created.", [quoted(&path)]).into()
}

fn rnfr(session: &mut Session, argument: &[u8]) -> Step {
    session.source = None;
    match session.path(argument) {
        // The entry itself, not what a link points at: a dangling link can be renamed.
        Ok(path) => session.ask_about(path, Request::Entry, |session, _| {
            session.source = session.subject.take().map(Source::Rename);
            Reply::new(code::NEED_MORE, "Ready for RNTO.").into()
        }),
        Err(reply) => reply.into(),
    }
}

/// The new name, and what was named for it before.
pub(super) fn both(
    session: &Session,
    argument: &[u8],
    source: &Option<Source>,
) -> Result<Vec<VirtualPath>, Reply> {
    let from = source.iter().map(|(Source::Rename(from) | Source::Copy(from))| from.clone());
    Ok(std::iter::once(session.path(argument)?).chain(from).collect())
}

fn rnto(session: &mut Session, argument: &[u8]) -> Step {
    let Some(Source::Rename(from)) = session.source.take() else {
        return Reply::new(code::BAD_SEQUENCE, "Give RNFR first.").into();
    };
    match session.path(argument) {
        Ok(path) => unless_taken(session, path, move |session, to| {
            session.ask_about(to, |to| Request::Rename(from, to), |_, _| RENAMED.into())
        }),
        Err(reply) => reply.into(),
    }
}
