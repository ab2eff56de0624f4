//! `SITE COPY`, `CPFR`, `CPTO`: copies within the server, as ProFTPD's mod_copy has them.
//!
//! A copy reads one file and writes another, so it needs what `RETR` and `STOR` need (CVE-2015-3306 and
//! CVE-2019-12815 are servers that forgot one or the other).

use millrace_vfs::{FileError, VirtualPath};

use super::{Argument, Command, Feat, PATH, Paths, ROW, words};
use crate::reply::{Reply, code};
use crate::session::commands::files::{both, unless_taken};
use crate::session::{Answer, Permission, Permissions, Request, Session, Source, Step, wrong_syntax};

/// The common parts of all three.
const COPYING: Command = Command {
    argument: Argument::Required,
    needs: Permissions::only(Permission::Read).with(Permission::Write),
    source: "ProFTPD mod_copy",
    ..ROW
};

pub(super) const COPY: Command = Command {
    verb: "COPY",
    feat: Feat::Line("COPY"),
    paths: Paths::Within(|session, argument| from_and_to(session, argument).map(Vec::from)),
    help: "SITE COPY <file> <new file>; with quotes around a name that has a blank in it",
    run: copy,
    ..COPYING
};

pub(super) const CPFR: Command = Command {
    verb: "CPFR",
    feat: Feat::Line("CPFR"),
    paths: PATH,
    help: "SITE CPFR <file>",
    run: cpfr,
    ..COPYING
};

pub(super) const CPTO: Command = Command {
    verb: "CPTO",
    feat: Feat::Line("CPTO"),
    paths: Paths::Whole(|session, argument| both(session, argument, &session.source)),
    help: "SITE CPTO <new file>",
    run: cpto,
    ..COPYING
};

fn copy(session: &mut Session, argument: &[u8]) -> Step {
    match from_and_to(session, argument) {
        Ok([from, to]) => copy_to(session, from, to),
        Err(reply) => reply.into(),
    }
}

fn from_and_to(session: &Session, argument: &[u8]) -> Result<[VirtualPath; 2], Reply> {
    let two = words(argument).and_then(|words| <[_; 2]>::try_from(words).ok());
    let [from, to] = two.ok_or_else(|| wrong_syntax(&COPY))?;
    Ok([session.path(&from)?, session.path(&to)?])
}

fn cpfr(session: &mut Session, argument: &[u8]) -> Step {
    session.source = None;
    session.ask_at(argument, Request::Metadata, |session, answer| {
        let Answer::Metadata(metadata) = answer else { return Step::mismatch() };
        if !metadata.is_file() {
            return session.refusal(&FileError::NotRegular).into();
        }
        session.source = session.subject.take().map(Source::Copy);
        Reply::new(code::NEED_MORE, "Ready for SITE CPTO.").into()
    })
}

fn cpto(session: &mut Session, argument: &[u8]) -> Step {
    match session.source.take() {
        Some(Source::Copy(from)) => match session.path(argument) {
            Ok(to) => copy_to(session, from, to),
            Err(reply) => reply.into(),
        },
        _ => Reply::new(code::BAD_SEQUENCE, "Give SITE CPFR first.").into(),
    }
}

fn copy_to(session: &mut Session, from: VirtualPath, to: VirtualPath) -> Step {
    if to == from {
        return Reply::new(code::FILE_UNAVAILABLE, "A file cannot be copied onto itself.").into();
    }
    unless_taken(session, to, move |session, to| {
        session.ask_about(
            from,
            |from| Request::Copy(from, to),
            |_, answer| match answer {
                Answer::Count(bytes) => {
                    Reply::filled(code::FILE_ACTION_OK, "Bytes copied: {}.", [bytes.to_string()]).into()
                }
                _ => Step::mismatch(),
            },
        )
    })
}
