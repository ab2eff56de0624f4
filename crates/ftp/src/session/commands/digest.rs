//! Hashes: `HASH` and `OPTS HASH` (draft-bryan-ftpext-hash), `MD5` and `MMD5` (draft-twine-ftpmd5), and the
//! `X` commands that many servers have without any document.
//!
//! The file is read on the blocking pool and `ABOR` stops that. The argument of an `X` command is
//! `"name" start end`, or without quotes whatever [`Target`] can read in it; the first reading that names
//! a file counts.

use millrace_vfs::{FileError, VirtualPath};

use super::{Argument, Command, Feat, PATH, Paths, ROW, retr};
use crate::digest::{Algorithm, Span, Target};
use crate::reply::{Reply, code};
use crate::session::{Answer, ByteRange, Permission, Permissions, Request, Session, Step, split};

/// The common parts of all.
const DIGEST: Command =
    Command { argument: Argument::Required, needs: Permissions::only(Permission::Read), ..ROW };

pub(super) const HASH: Command = Command {
    verb: "HASH",
    feat: Feat::Made(|session| Some(format!("HASH {}", feature(session)))),
    paths: PATH,
    help: "HASH <file>",
    source: "draft-bryan-ftpext-hash",
    note: "OPTS HASH chooses; of a part of the file after RANG or REST",
    run: hash,
    ..DIGEST
};

/// The row of an `X` command.
const fn x(verb: &'static str, help: &'static str, run: fn(&mut Session, &[u8]) -> Step) -> Command {
    let paths = Paths::Within(|session, argument| {
        Ok(readings(session, argument)?.into_iter().map(|(path, _)| path).collect())
    });
    Command { verb, feat: Feat::Line(verb), paths, help, source: "Serv-U, ProFTPD mod_digest", run, ..DIGEST }
}

pub(super) const XCRC: Command = x("XCRC", "XCRC <file> [<start> [<end>]]", |session, argument| {
    range(session, Algorithm::Crc32, argument)
});
pub(super) const XMD5: Command =
    x("XMD5", "XMD5 <file> [<start> [<end>]]", |session, argument| range(session, Algorithm::Md5, argument));
pub(super) const XSHA: Command =
    x("XSHA", "XSHA <file> [<start> [<end>]]", |session, argument| range(session, Algorithm::Sha1, argument));
pub(super) const XSHA1: Command = x("XSHA1", "XSHA1 <file> [<start> [<end>]]", |session, argument| {
    range(session, Algorithm::Sha1, argument)
});
pub(super) const XSHA256: Command = x("XSHA256", "XSHA256 <file> [<start> [<end>]]", |session, argument| {
    range(session, Algorithm::Sha256, argument)
});
pub(super) const XSHA512: Command = x("XSHA512", "XSHA512 <file> [<start> [<end>]]", |session, argument| {
    range(session, Algorithm::Sha512, argument)
});

pub(super) const XDIGEST: Command = Command {
    source: "Waarp",
    note: "the algorithm by its name in FEAT's HASH line",
    paths: Paths::Within(|session, argument| Ok(vec![session.path(algorithm_and_name(argument)?.1)?])),
    ..x("XDIGEST", "XDIGEST <algorithm> <file>", xdigest)
};

pub(super) const MD5: Command = Command {
    verb: "MD5",
    feat: Feat::Line("MD5"),
    paths: PATH,
    help: "MD5 <file>",
    source: "draft-twine-ftpmd5",
    run: md5,
    ..DIGEST
};

pub(super) const MMD5: Command = Command {
    verb: "MMD5",
    feat: Feat::Line("MMD5"),
    paths: Paths::Within(|session, argument| {
        Ok(names(session, argument)?.into_iter().map(|(path, _)| path).collect())
    }),
    help: "MMD5 <file>, <file>, ...; with quotes around a name that has a comma in it",
    source: "draft-twine-ftpmd5",
    run: mmd5,
    ..DIGEST
};

/// The files of one `MMD5`: a line of 9 KiB could name thousands.
const MANY: usize = 64;

/// The algorithm of `HASH`: what `OPTS HASH` set, or the draft's recommendation.
pub(super) fn current(session: &Session) -> Algorithm {
    session.extras.as_ref().and_then(|extras| extras.hash).unwrap_or(Algorithm::Sha256)
}

/// `SHA-1;SHA-256*;`: the algorithms, with a star after the selected one.
fn feature(session: &Session) -> String {
    let star = |algorithm| if algorithm == current(session) { "*" } else { "" };
    Algorithm::ALL.map(|algorithm| format!("{}{};", algorithm.name(), star(algorithm))).concat()
}

/// `OPTS HASH` tells the algorithm, `OPTS HASH name` chooses it.
pub(super) fn opts_hash(session: &mut Session, name: &[u8]) -> Step {
    if !name.is_empty() {
        match Algorithm::parse(name) {
            Some(algorithm) => session.extras_mut().hash = Some(algorithm),
            None => {
                return Reply::new(code::BAD_PARAMETER, "Unknown hash; FEAT lists those that are known.")
                    .into();
            }
        }
    }
    Reply::owned(code::OK, current(session).name()).into()
}

/// `213 SHA-256 0-49 <hash> <name>`
fn hash(session: &mut Session, argument: &[u8]) -> Step {
    let (algorithm, range) = (current(session), std::mem::take(&mut session.restart));
    let name = argument.to_vec();
    of_path(session, argument, algorithm, range, move |hash, length| {
        if length == 0 && range.start > 0 {
            return retr::past_the_end(range.start, range.start);
        }
        let last = (range.start + length).saturating_sub(1);
        let text = format!("{} {}-{last} {hash} ", algorithm.name(), range.start);
        Reply::owned(code::FILE_STATUS, [text.as_bytes(), &name].concat())
    })
}

fn md5(session: &mut Session, argument: &[u8]) -> Step {
    let name = argument.to_vec();
    of_path(session, argument, Algorithm::Md5, ByteRange::default(), move |hash, _| {
        Reply::owned(code::MD5, [&name[..], b" ", hash.to_uppercase().as_bytes()].concat())
    })
}

fn xdigest(session: &mut Session, argument: &[u8]) -> Step {
    match algorithm_and_name(argument) {
        Ok((algorithm, name)) => of_path(session, name, algorithm, ByteRange::default(), plain),
        Err(reply) => reply.into(),
    }
}

/// `SHA-256 name`
fn algorithm_and_name(argument: &[u8]) -> Result<(Algorithm, &[u8]), Reply> {
    match split(argument) {
        (algorithm, Some(name)) if !name.is_empty() => {
            let unknown = Reply::new(code::BAD_PARAMETER, "Unknown hash; FEAT lists those that are known.");
            Ok((Algorithm::parse(algorithm).ok_or(unknown)?, name))
        }
        _ => Err(Reply::new(code::BAD_ARGUMENT, "Syntax: XDIGEST <algorithm> <file>")),
    }
}

/// `250 <hash>`
fn plain(hash: &str, _: u64) -> Reply {
    Reply::owned(code::FILE_ACTION_OK, hash)
}

/// One file, whole or in part.
pub(super) fn of_path(
    session: &mut Session,
    argument: &[u8],
    algorithm: Algorithm,
    range: ByteRange,
    reply: impl FnOnce(&str, u64) -> Reply + Send + 'static,
) -> Step {
    let path = match session.path(argument) {
        Ok(path) => path,
        Err(reply) => return reply.into(),
    };
    let request = |path| Request::Digest(path, algorithm, range);
    session.ask_about(path, request, move |_, answer| match answer {
        Answer::Digest(hash, length) => reply(&hash, length).into(),
        _ => Step::mismatch(),
    })
}

/// `XCRC` and its kin.
fn range(session: &mut Session, algorithm: Algorithm, argument: &[u8]) -> Step {
    let readings = match readings(session, argument) {
        Ok(readings) => readings,
        Err(reply) => return reply.into(),
    };
    let first = readings[0].0.clone();
    try_readings(session, algorithm, readings.into_iter(), first)
}

/// Whatever the argument of an `X` command can be read as, at least one.
fn readings(session: &Session, argument: &[u8]) -> Result<Vec<(VirtualPath, Span)>, Reply> {
    const SYNTAX: Reply =
        Reply::new(code::BAD_ARGUMENT, "The argument is a name, in quotes, and perhaps start and end.");
    let target = Target::parse(argument).ok_or(SYNTAX)?;
    target.readings.into_iter().map(|(name, span)| Ok((session.path(&name)?, span))).collect()
}

/// Asks for one reading after the other until one names a file. When none does, the reply is about the
/// first, which is the argument as it was given.
fn try_readings(
    session: &mut Session,
    algorithm: Algorithm,
    mut readings: std::vec::IntoIter<(VirtualPath, Span)>,
    first: VirtualPath,
) -> Step {
    let Some((path, Span { start, end })) = readings.next() else { return Step::mismatch() };
    let request = Request::Digest(path.clone(), algorithm, ByteRange { start, end });
    session.ask_whether(request, move |session, answer| match answer {
        Answer::Digest(hash, length) => plain(&hash, length).into(),
        Answer::Failed(FileError::NotFound | FileError::NotDirectory) if readings.len() > 0 => {
            try_readings(session, algorithm, readings, first)
        }
        Answer::Failed(error) => {
            session.subject = Some(if matches!(error, FileError::NotFound) { first } else { path });
            session.refusal(&error).into()
        }
        _ => Step::mismatch(),
    })
}

/// `252 a.txt <hash>, b.txt <hash>`
fn mmd5(session: &mut Session, argument: &[u8]) -> Step {
    match names(session, argument) {
        Ok(names) => next_md5(session, names.into_iter(), Vec::new()),
        Err(reply) => reply.into(),
    }
}

/// The files of an `MMD5`, each with its name as it was given.
fn names(session: &Session, argument: &[u8]) -> Result<Vec<(VirtualPath, Vec<u8>)>, Reply> {
    const SYNTAX: Reply =
        Reply::new(code::BAD_ARGUMENT, "The argument is up to 64 names with commas between them.");
    let names = comma_separated(argument);
    if names.len() > MANY || names.iter().any(Vec::is_empty) {
        return Err(SYNTAX);
    }
    names.into_iter().map(|name| Ok((session.path(&name)?, name))).collect()
}

fn next_md5(
    session: &mut Session,
    mut names: std::vec::IntoIter<(VirtualPath, Vec<u8>)>,
    done: Vec<u8>,
) -> Step {
    let Some((path, name)) = names.next() else { return Reply::owned(code::MULTIPLE_MD5, done).into() };
    let request = |path| Request::Digest(path, Algorithm::Md5, ByteRange::default());
    session.ask_about(path, request, move |session, answer| {
        let Answer::Digest(hash, _) = answer else { return Step::mismatch() };
        let mut done = done;
        if !done.is_empty() {
            done.extend_from_slice(b", ");
        }
        done.extend_from_slice(&name);
        done.push(b' ');
        done.extend_from_slice(hash.to_uppercase().as_bytes());
        next_md5(session, names, done)
    })
}

/// Names between commas, blanks around them left out; within quotes a comma is a comma.
fn comma_separated(list: &[u8]) -> Vec<Vec<u8>> {
    let mut quoted = false;
    let parts = list.split(|&byte| {
        quoted ^= byte == b'"';
        byte == b',' && !quoted
    });
    parts
        .map(|part| {
            let part = part.trim_ascii();
            let inside = part.strip_prefix(b"\"").and_then(|part| part.strip_suffix(b"\""));
            inside.unwrap_or(part).to_vec()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_quotes_keep_their_commas() {
        assert_eq!(comma_separated(b"a, \"b,c\" ,d e"), [&b"a"[..], b"b,c", b"d e"]);
        assert_eq!(comma_separated(b"a,,b"), [&b"a"[..], b"", b"b"]);
    }
}
