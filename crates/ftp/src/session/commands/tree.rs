//! `AVBL`, `DSIZ`, `RMDA` (draft-peterson-streamlined-ftp-command-extensions) and `COMB` (Serv-U): about
//! more than one file at once.

use millrace_vfs::VirtualPath;

use super::site::{self, words};
use super::{Argument, Command, Feat, PATH, Paths, ROW};
use crate::reply::{Reply, code};
use crate::session::{Answer, DENIED, LeftOut, Permission, Permissions, Request, Session, Step};

const DRAFT: &str = "draft-peterson-streamlined-ftp-command-extensions";

pub(super) const AVBL: Command = Command {
    verb: "AVBL",
    argument: Argument::Optional,
    needs: Permissions::only(Permission::List),
    feat: Feat::Line("AVBL"),
    paths: PATH,
    help: "AVBL [<directory>]",
    source: DRAFT,
    run: avbl,
    ..ROW
};

pub(super) const DSIZ: Command = Command {
    verb: "DSIZ",
    argument: Argument::Optional,
    needs: Permissions::only(Permission::List),
    feat: Feat::Line("DSIZ"),
    paths: PATH,
    help: "DSIZ [<directory>]",
    source: DRAFT,
    note: "a folder that cannot be read is left out, which a first line says",
    run: dsiz,
    ..ROW
};

pub(super) const RMDA: Command = Command {
    verb: "RMDA",
    argument: Argument::Required,
    needs: Permissions::only(Permission::Delete),
    feat: Feat::Line("RMDA <directory>"),
    paths: PATH,
    help: "RMDA <directory>",
    source: DRAFT,
    note: "links are removed, not followed",
    run: rmda,
    ..ROW
};

pub(super) const COMB: Command = Command {
    verb: "COMB",
    argument: Argument::Required,
    needs: Permissions::only(Permission::Read)
        .with(Permission::Write)
        .with(Permission::Append)
        .with(Permission::Delete),
    feat: Feat::Line("COMB"),
    paths: Paths::Within(target_and_parts),
    help: "COMB <target> <part> [<part> ...]; with quotes around a name that has a blank in it",
    source: "Serv-U",
    note: "the parts are removed when all of them are in the target; to a file that is there they are appended, and a \
           server that is killed meanwhile leaves it longer",
    run: comb,
    ..ROW
};

/// The parts of one `COMB`.
const PARTS: usize = 256;

fn avbl(session: &mut Session, argument: &[u8]) -> Step {
    session.ask_at(argument, Request::Space, |_, answer| match answer {
        Answer::Space(space) => Reply::owned(code::FILE_STATUS, space.available.to_string()).into(),
        _ => Step::mismatch(),
    })
}

fn dsiz(session: &mut Session, argument: &[u8]) -> Step {
    session.ask_at(argument, Request::TreeSize, |_, answer| match answer {
        Answer::Sum(bytes, LeftOut { unreadable: 0, .. }) => {
            Reply::owned(code::FILE_STATUS, bytes.to_string()).into()
        }
        // The number stands on the last line, as it does alone.
        Answer::Sum(bytes, LeftOut { unreadable, .. }) => {
            let first =
                format!("{unreadable} folder(s) could not be read, or not whole; the others:").into_bytes();
            Reply::owned(code::FILE_STATUS, bytes.to_string()).behind([first]).into()
        }
        _ => Step::mismatch(),
    })
}

/// Removes a directory with all that is in it. Also `SITE RMDIR`.
pub(super) fn rmda(session: &mut Session, argument: &[u8]) -> Step {
    match session.path(argument) {
        Ok(path) if path.is_root() => DENIED.into(),
        Ok(path) => session.ask_about(path, Request::RemoveTree, |_, answer| match answer {
            Answer::Count(entries) => {
                Reply::filled(code::FILE_ACTION_OK, "Removed; entries: {}.", [entries.to_string()]).into()
            }
            _ => Step::mismatch(),
        }),
        Err(reply) => reply.into(),
    }
}

fn comb(session: &mut Session, argument: &[u8]) -> Step {
    let mut paths = match target_and_parts(session, argument) {
        Ok(paths) => paths,
        Err(reply) => return reply.into(),
    };
    let target = paths.remove(0);
    let bits = site::file_bits(session);
    session.ask_about(
        target,
        |target| Request::Combine(target, paths, bits),
        |_, answer| match answer {
            Answer::Count(bytes) => {
                Reply::filled(code::FILE_ACTION_OK, "Combined; the file's size is {}.", [bytes.to_string()])
                    .into()
            }
            _ => Step::mismatch(),
        },
    )
}

/// The target of a `COMB`, and then its parts, at least one.
fn target_and_parts(session: &Session, argument: &[u8]) -> Result<Vec<VirtualPath>, Reply> {
    const SYNTAX: Reply =
        Reply::new(code::BAD_ARGUMENT, "Syntax: COMB target part [part ...], up to 256 parts");
    let names = words(argument).filter(|names| (2..=PARTS + 1).contains(&names.len())).ok_or(SYNTAX)?;
    names.iter().map(|name| session.path(name)).collect()
}
