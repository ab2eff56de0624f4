//! `SITE UMASK`: the modes of what the session makes from now on.
//!
//! A storage makes files with its own mode. Where a session has a mask, it passes the mode at creation, so that no
//! other mode is ever visible.

use super::{Argument, Command, ROW};
use crate::reply::{Reply, code};
use crate::session::commands::facts::parse_mode;
use crate::session::{Permission, Permissions, Session, Step, wrong_syntax};

pub(super) const UMASK: Command = Command {
    verb: "UMASK",
    argument: Argument::Optional,
    needs: Permissions::only(Permission::Attributes),
    help: "SITE UMASK [<octal mask>]",
    source: "wu-ftpd",
    note: "for new files and directories; those that exist keep their modes",
    run: umask,
    ..ROW
};

fn umask(session: &mut Session, argument: &[u8]) -> Step {
    let argument = argument.trim_ascii();
    if argument.is_empty() {
        return match current(session).or(session.settings.umask) {
            Some(mask) => Reply::filled(code::OK, "The mask is {}.", [format!("{mask:03o}")]).into(),
            None => Reply::new(code::OK, "The mask is the server's own.").into(),
        };
    }
    match parse_mode(argument).filter(|&mask| mask <= 0o777) {
        Some(mask) => {
            session.extras_mut().umask = Some(mask);
            Reply::filled(code::OK, "The mask is {} now.", [format!("{mask:03o}")]).into()
        }
        None => wrong_syntax(&UMASK).into(),
    }
}

fn current(session: &Session) -> Option<u32> {
    session.extras.as_ref().and_then(|extras| extras.umask)
}

/// The permission bits of a new file, where the session has a mask.
pub(in crate::session::commands) fn file_bits(session: &Session) -> Option<u32> {
    current(session).map(|mask| 0o666 & !mask)
}

/// The permission bits of a new directory, where the session has a mask.
pub(in crate::session::commands) fn directory_bits(session: &Session) -> Option<u32> {
    current(session).map(|mask| 0o777 & !mask)
}
