//! `CWD`, `CDUP`, `PWD` and their RFC 775 twins, `SMNT`: where the session stands.

use millrace_vfs::FileError;

use super::{Argument, Command, ROW, Status};
use crate::reply::{Reply, code};
use crate::session::{Access, Answer, Permission, Permissions, Request, Session, Step};

pub(super) const CWD: Command = Command {
    verb: "CWD",
    argument: Argument::Optional,
    needs: Permissions::only(Permission::List),
    path: true,
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
    help: "CDUP",
    run: |session, _| enter(session, b".."),
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

fn cwd(session: &mut Session, argument: &[u8]) -> Step {
    match &session.access {
        // As wu-ftpd and pyftpdlib do.
        Access::User(login) if argument.is_empty() => {
            session.directory = login.home.clone();
            arrived(session)
        }
        _ => enter(session, argument),
    }
}

fn enter(session: &mut Session, argument: &[u8]) -> Step {
    session.ask_at(argument, Request::Metadata, changed)
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
    let text = [&Session::quoted(session.directory())[..], b" is the current directory."].concat();
    Reply::owned(code::PATH_CREATED, text).into()
}
