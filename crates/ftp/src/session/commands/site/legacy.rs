//! Commands of wu-ftpd and NcFTPd without a use here: they are known, so that the reply can give the reason.

use super::{Argument, Command, ROW};
use crate::reply::{Reply, code};
use crate::session::commands::Status;
use crate::session::{Session, Step};

/// The common parts of all.
const LEGACY: Command =
    Command { argument: Argument::Optional, source: "wu-ftpd", status: Status::Refused, ..ROW };

pub(super) const ALIAS: Command = Command {
    verb: "ALIAS",
    help: "SITE ALIAS [<name>]",
    note: "no aliases of directories are kept: a link does the same",
    status: Status::Superfluous,
    run: alias,
    ..LEGACY
};

pub(super) const BUFSIZE: Command = Command {
    verb: "BUFSIZE",
    help: "SITE BUFSIZE <bytes>",
    source: "NcFTPd",
    status: Status::Superfluous,
    note: "the system sizes the buffers of each connection by what it measures, and does that better",
    run: |_, _| Reply::new(code::SUPERFLUOUS, "The system sizes the buffers by itself.").into(),
    ..LEGACY
};

pub(super) const EXEC: Command = Command {
    verb: "EXEC",
    help: "SITE EXEC <program>",
    note: "no program is ever run for a client (CVE-2000-0573)",
    run: |_, _| Reply::new(code::NOT_IMPLEMENTED, "No programs are run here.").into(),
    ..LEGACY
};

pub(super) const GPASS: Command =
    Command { verb: "GPASS", help: "SITE GPASS <password>", note: NO_GROUPS, run: group, ..LEGACY };

pub(super) const GROUP: Command =
    Command { verb: "GROUP", help: "SITE GROUP <name>", note: NO_GROUPS, run: group, ..LEGACY };

pub(super) const GROUPS: Command =
    Command { verb: "GROUPS", help: "SITE GROUPS", note: NO_GROUPS, run: group, ..LEGACY };

pub(super) const INDEX: Command = Command {
    verb: "INDEX",
    help: "SITE INDEX <text>",
    note: "it searched a file that a program had made; LIST takes patterns",
    run: |_, _| Reply::new(code::NOT_IMPLEMENTED, "No index is kept here; LIST takes patterns.").into(),
    ..LEGACY
};

const NO_GROUPS: &str = "groups have no passwords here; an account has its rights when it logs in";

fn alias(_: &mut Session, argument: &[u8]) -> Step {
    match argument.is_empty() {
        true => Reply::new(code::SYSTEM_STATUS, "There are no aliases.").into(),
        false => Reply::new(code::BAD_PARAMETER, "There is no such alias.").into(),
    }
}

fn group(_: &mut Session, _: &[u8]) -> Step {
    Reply::new(code::NOT_IMPLEMENTED, "Groups have no passwords here.").into()
}
