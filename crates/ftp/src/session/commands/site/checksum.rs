//! `SITE CHECKSUM` and `CHECKMETHOD`, as wu-ftpd had them before there was `HASH`.

use super::{Argument, Command, PATH, ROW};
use crate::digest::Algorithm;
use crate::reply::{Reply, code};
use crate::session::commands::digest;
use crate::session::{ByteRange, Permission, Permissions, Session, Step};

pub(super) const CHECKSUM: Command = Command {
    verb: "CHECKSUM",
    argument: Argument::Required,
    needs: Permissions::only(Permission::Read),
    paths: PATH,
    help: "SITE CHECKSUM <file>",
    source: "wu-ftpd",
    run: checksum,
    ..ROW
};

pub(super) const CHECKMETHOD: Command = Command {
    verb: "CHECKMETHOD",
    argument: Argument::Optional,
    help: "SITE CHECKMETHOD [<algorithm>]",
    source: "wu-ftpd",
    note: "the same choice as OPTS HASH; POSIX cksum is not served",
    run: checkmethod,
    ..ROW
};

fn checksum(session: &mut Session, argument: &[u8]) -> Step {
    let (algorithm, name) = (digest::current(session), argument.to_vec());
    digest::of_path(session, argument, algorithm, ByteRange::default(), move |hash, _| {
        Reply::owned(code::OK, [hash.as_bytes(), b" ", &name].concat())
    })
}

fn checkmethod(session: &mut Session, argument: &[u8]) -> Step {
    let name = argument.trim_ascii();
    // The name in wu-ftpd.
    let name = if name.eq_ignore_ascii_case(b"CRC") { b"CRC32" } else { name };
    if !name.is_empty() {
        match Algorithm::parse(name) {
            Some(algorithm) => session.extras_mut().hash = Some(algorithm),
            None => {
                return Reply::new(code::BAD_PARAMETER, "Unknown hash; FEAT lists those that are known.")
                    .into();
            }
        }
    }
    Reply::filled(code::OK, "The checksum is {}.", [digest::current(session).name()]).into()
}
