//! `SITE NEWER` and `MINFO`, as wu-ftpd had them for mirrors: the files that changed after a moment.

use millrace_vfs::Timestamp;

use super::{Argument, Command, Paths, ROW};
use crate::reply::{Reply, code};
use crate::session::{Answer, Permission, Permissions, Request, Session, Step, wrong_syntax};
use crate::time;

pub(super) const NEWER: Command = Command {
    verb: "NEWER",
    argument: Argument::Required,
    needs: Permissions::only(Permission::List),
    paths: Paths::Within(|session, argument| Ok(vec![session.path(since_and_where(argument)?.1)?])),
    help: "SITE NEWER <YYYYMMDDHHMMSS> [<directory>]",
    source: "wu-ftpd",
    note: "of a whole tree, links not followed; says which part of it could not be read",
    run: newer,
    ..ROW
};

pub(super) const MINFO: Command = Command {
    verb: "MINFO",
    help: "SITE MINFO <YYYYMMDDHHMMSS> [<directory>]",
    note: "the same as NEWER; MLST tells more of each file",
    ..NEWER
};

fn newer(session: &mut Session, argument: &[u8]) -> Step {
    let (since, path) = match since_and_where(argument) {
        Ok(read) => read,
        Err(reply) => return reply.into(),
    };
    session.ask_at(
        path,
        |path| Request::Newer(path, since),
        |_, answer| match answer {
            Answer::Found(mut lines, left_out) => {
                // A path begins with a slash: these are not paths.
                if left_out.unreadable > 0 {
                    let text =
                        format!(" ({} folder(s) could not be read, or not whole)", left_out.unreadable);
                    lines.push(text.into_bytes());
                }
                if left_out.overflow {
                    lines.push(b" (more have changed than are shown here)".to_vec());
                }
                Reply::lines(code::FILE_STATUS, "Files that changed since:", lines, "End").into()
            }
            _ => Step::mismatch(),
        },
    )
}

fn since_and_where(argument: &[u8]) -> Result<(Timestamp, &[u8]), Reply> {
    match time::parse_prefix(argument) {
        Some((since, [])) => Ok((since, b"")),
        Some((since, [b' ', path @ ..])) => Ok((since, path)),
        _ => Err(wrong_syntax(&NEWER)),
    }
}
