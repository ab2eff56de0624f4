//! `CWD`, `CDUP`, `PWD` and their RFC 775 twins, `SMNT`: where the session stands.

use millrace_vfs::{FileError, VirtualPath};

use super::{Argument, Command, Paths, ROW, Status};
use crate::reply::{Reply, code};
use crate::session::{Access, Answer, Permission, Permissions, Request, Session, Step, quoted};

pub(super) const CWD: Command = Command {
    verb: "CWD",
    argument: Argument::Optional,
    needs: Permissions::only(Permission::List),
    paths: Paths::Whole(|session, argument| Ok(vec![destination(session, argument)?])),
    help: "CWD [<directory>]",
    note: "without a directory, to where the login began",
    run: cwd,
    ..ROW
};

pub(super) const XCWD: Command =
    Command { verb: "XCWD", help: "XCWD [<directory>]", source: "RFC 775", ..CWD };

pub(super) const CDUP: Command = Command {
    verb: "CDUP",
    needs: Permissions::only(Permission::List),
    paths: Paths::Within(|session, _| Ok(vec![session.path(UP)?])),
    help: "CDUP",
    run: |session, _| session.ask_at(UP, Request::Metadata, changed),
    ..ROW
};

pub(super) const XCUP: Command = Command { verb: "XCUP", help: "XCUP", source: "RFC 775", ..CDUP };

pub(super) const PWD: Command = Command { verb: "PWD", help: "PWD", run: pwd, ..ROW };

pub(super) const XPWD: Command = Command { verb: "XPWD", help: "XPWD", source: "RFC 775", ..PWD };

pub(super) const SMNT: Command = Command {
    verb: "SMNT",
    argument: Argument::Required,
    help: "SMNT <file system>",
    status: Status::Superfluous,
    note: "one tree a login",
    run: |_, _| Reply::new(code::SUPERFLUOUS, "There is one file system here, and it is mounted.").into(),
    ..ROW
};

/// The argument of a `CWD` that does what `CDUP` does.
const UP: &[u8] = b"..";

fn cwd(session: &mut Session, argument: &[u8]) -> Step {
    match destination(session, argument) {
        Ok(home) if argument.is_empty() => {
            session.directory = home;
            arrived(session)
        }
        Ok(path) => session.ask_about(path, Request::Metadata, changed),
        Err(reply) => reply.into(),
    }
}

/// Where a `CWD` leads: without an argument to where the login began, as wu-ftpd and pyftpdlib have it.
fn destination(session: &Session, argument: &[u8]) -> Result<VirtualPath, Reply> {
    match &session.access {
        Access::User(login) if argument.is_empty() => Ok(login.home.clone()),
        _ => session.path(argument),
    }
}

fn changed(session: &mut Session, answer: Answer) -> Step {
    match (answer, session.subject.take()) {
        (Answer::Metadata(metadata), Some(path)) if metadata.is_directory() => {
            session.directory = path;
            arrived(session)
        }
        (Answer::Metadata(_), path) => {
            session.subject = path;
            session.refusal(&FileError::NotDirectory).into()
        }
        _ => Step::mismatch(),
    }
}

fn arrived(session: &mut Session) -> Step {
    session.arrive(Reply::new(code::FILE_ACTION_OK, "Directory changed."))
}

fn pwd(session: &mut Session, _: &[u8]) -> Step {
    let path = quoted(session.directory());
    Reply::filled(code::PATH_CREATED, "{} is the current directory.", [path]).into()
}
