//! `MFMT`, `MFCT`, `MFF` (draft-somers-ftp-mfxx): changing facts of a file.

use millrace_vfs::{Change, Timestamp};

use super::{Argument, Command, Feat, Paths, ROW, Status};
use crate::reply::{Reply, code};
use crate::session::{Answer, DENIED, Permission, Permissions, Request, Session, Step, split};
use crate::time;

pub(super) const MFMT: Command = Command {
    verb: "MFMT",
    argument: Argument::Required,
    needs: Permissions::only(Permission::Attributes),
    feat: Feat::Line("MFMT"),
    paths: Paths::Within(|session, argument| Ok(vec![session.path(time_and_path(argument)?.1)?])),
    help: "MFMT <YYYYMMDDHHMMSS> <path>",
    source: "draft-somers-ftp-mfxx",
    run: mfmt,
    ..ROW
};

pub(super) const MFCT: Command = Command {
    verb: "MFCT",
    argument: Argument::Required,
    needs: Permissions::only(Permission::Attributes),
    help: "MFCT <YYYYMMDDHHMMSS> <path>",
    source: "draft-somers-ftp-mfxx",
    status: Status::Refused,
    note: "Linux has no call that sets the time of a file's creation",
    run: |_, _| Reply::new(code::NOT_IMPLEMENTED, "The time of creation cannot be set here.").into(),
    ..ROW
};

pub(super) const MFF: Command = Command {
    verb: "MFF",
    argument: Argument::Required,
    needs: Permissions::only(Permission::Attributes),
    feat: Feat::Line("MFF Modify;UNIX.group;UNIX.mode;UNIX.owner;"),
    paths: Paths::Within(|session, argument| Ok(vec![session.path(facts_and_path(argument)?.1)?])),
    help: "MFF <fact>=<value>;... <path>",
    source: "draft-somers-ftp-mfxx",
    note: "owner and group are numbers, and for administrators",
    run: mff,
    ..ROW
};

fn mfmt(session: &mut Session, argument: &[u8]) -> Step {
    match time_and_path(argument) {
        Ok((time, path)) => modify(session, path, time),
        Err(reply) => reply.into(),
    }
}

fn time_and_path(argument: &[u8]) -> Result<(Timestamp, &[u8]), Reply> {
    match time::parse_prefix(argument) {
        Some((time, [b' ', path @ ..])) => Ok((time, path)),
        _ => Err(Reply::new(code::BAD_ARGUMENT, "Syntax: MFMT YYYYMMDDHHMMSS path")),
    }
}

/// Sets a file's time of modification: `213 Modify=20200101000000; path`. For `MFMT`, and for the old form
/// of `MDTM`.
pub(super) fn modify(session: &mut Session, path: &[u8], time: Timestamp) -> Step {
    let mut facts = b"Modify=".to_vec();
    time::write(time, &mut facts);
    facts.push(b';');
    change(session, path, Change { modified: Some(time), ..Change::default() }, &facts)
}

fn mff(session: &mut Session, argument: &[u8]) -> Step {
    let (facts, path) = match facts_and_path(argument) {
        Ok(read) => read,
        Err(reply) => return reply.into(),
    };
    match parse_facts(facts) {
        Ok(wanted) if !may_change(session, wanted) => DENIED.into(),
        Ok(wanted) => change(session, path, wanted, facts),
        Err(reply) => reply.into(),
    }
}

fn facts_and_path(argument: &[u8]) -> Result<(&[u8], &[u8]), Reply> {
    match split(argument) {
        (facts, Some(path)) => Ok((facts, path)),
        _ => Err(Reply::new(code::BAD_ARGUMENT, "Syntax: MFF fact=value;... path")),
    }
}

/// Giving a file away could evade a quota, so owners are for administrators.
pub(super) fn may_change(session: &Session, change: Change) -> bool {
    (change.user.is_none() && change.group.is_none()) || session.permissions().allows(Permission::Admin)
}

fn change(session: &mut Session, path: &[u8], change: Change, facts: &[u8]) -> Step {
    if path.is_empty() {
        return Reply::new(code::BAD_ARGUMENT, "A path is missing.").into();
    }
    let (facts, path) = (facts.to_vec(), path.to_vec());
    session.ask_at(
        &path.clone(),
        |path| Request::Change(path, change),
        move |session, _| match (change.modified, session.subject.clone()) {
            (Some(_), Some(changed)) => session.ask(Request::Metadata(changed), move |_, answer| {
                let Answer::Metadata(metadata) = answer else { return Step::mismatch() };
                changed_to(&with_modified(&facts, metadata.modified), &path)
            }),
            _ => changed_to(&facts, &path),
        },
    )
}

fn changed_to(facts: &[u8], path: &[u8]) -> Step {
    Reply::owned(code::FILE_STATUS, [facts, b" ", path].concat()).into()
}

/// The facts with the time that holds: a file system has its first and last times, and some have only even seconds.
fn with_modified(facts: &[u8], holds: Timestamp) -> Vec<u8> {
    let mut out = Vec::with_capacity(facts.len());
    for fact in facts.split_inclusive(|&byte| byte == b';') {
        let name = fact.split(|&byte| byte == b'=').next().unwrap_or_default();
        let is_other = !name.eq_ignore_ascii_case(b"modify")
            || matches!((fact.strip_suffix(b";")).and_then(|fact| time::parse(fact.get(7..)?)), Some(asked) if asked.seconds == holds.seconds);
        if is_other {
            out.extend_from_slice(fact);
        } else {
            out.extend_from_slice(name);
            out.push(b'=');
            time::write(Timestamp { nanoseconds: 0, ..holds }, &mut out);
            out.push(b';');
        }
    }
    out
}

fn parse_facts(facts: &[u8]) -> Result<Change, Reply> {
    const SYNTAX: Reply = Reply::new(code::BAD_ARGUMENT, "Syntax: MFF fact=value;... path");
    let mut change = Change::default();
    for fact in facts.strip_suffix(b";").ok_or(SYNTAX)?.split(|&byte| byte == b';') {
        let at = memchr::memchr(b'=', fact).ok_or(SYNTAX)?;
        let (name, value) = (&fact[..at], &fact[at + 1..]);
        match &name.to_ascii_lowercase()[..] {
            b"modify" => change.modified = Some(time::parse(value).ok_or(SYNTAX)?),
            b"unix.mode" => change.mode = Some(parse_mode(value).ok_or(SYNTAX)?),
            b"unix.owner" => change.user = Some(parse_id(value).ok_or(SYNTAX)?),
            b"unix.group" => change.group = Some(parse_id(value).ok_or(SYNTAX)?),
            _ => {
                return Err(Reply::new(
                    code::BAD_PARAMETER,
                    "A fact that cannot be changed; FEAT lists those that can.",
                ));
            }
        }
    }
    Ok(change)
}

/// Octal digits, as `chmod` takes them.
pub(super) fn parse_mode(text: &[u8]) -> Option<u32> {
    if text.is_empty() || text.len() > 5 {
        return None;
    }
    let digit = |byte: &u8| matches!(byte, b'0'..=b'7').then(|| u32::from(byte - b'0'));
    let mode = text.iter().try_fold(0, |mode, byte| Some(mode * 8 + digit(byte)?))?;
    (mode <= 0o7777).then_some(mode)
}

/// A user's or group's number. The highest means "leave unchanged" to the system, so it is invalid.
pub(super) fn parse_id(text: &[u8]) -> Option<u32> {
    crate::decimal::parse_decimal(text).and_then(|id| u32::try_from(id).ok()).filter(|&id| id != u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reported_time_is_the_stored_one() {
        let holds = Timestamp { seconds: 1_577_836_800, nanoseconds: 5 };
        for (asked, told) in [
            (&b"Modify=20200101000000;"[..], &b"Modify=20200101000000;"[..]),
            (b"modify=20200101000000.5;UNIX.mode=0644;", b"modify=20200101000000.5;UNIX.mode=0644;"),
            (b"UNIX.mode=0644;Modify=99991231235959;", b"UNIX.mode=0644;Modify=20200101000000;"),
        ] {
            assert_eq!(with_modified(asked, holds), told);
        }
    }

    #[test]
    fn an_unknown_fact_is_no_matter_of_syntax() {
        let code = |facts: &[u8]| parse_facts(facts).unwrap_err().code();
        for unknown in [&b"Colour=red;"[..], b"Create=20200101000000;", b"UNIX.mode=0644;Size=5;"] {
            assert_eq!(code(unknown), code::BAD_PARAMETER, "{}", unknown.escape_ascii());
        }
        for malformed in [&b"Colour;"[..], b"Colour=red", b"Modify=yesterday;"] {
            assert_eq!(code(malformed), code::BAD_ARGUMENT, "{}", malformed.escape_ascii());
        }
    }

    #[test]
    fn facts_are_read_in_any_case_and_all_of_them() {
        let change = parse_facts(b"Modify=20200101000000;UNIX.mode=0644;unix.GROUP=5;").unwrap();
        assert_eq!(change.modified.unwrap().seconds, 1_577_836_800);
        assert_eq!((change.mode, change.user, change.group), (Some(0o644), None, Some(5)));
        for bad in ["", ";", "Modify=20200101000000", "Modify=x;", "UNIX.mode=8;", "Create=20200101000000;"] {
            assert!(parse_facts(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn modes_are_octal_and_ids_are_numbers() {
        assert_eq!(parse_mode(b"07777"), Some(0o7777));
        assert_eq!([&b""[..], b"8", b"10000", b"-1", b"000644", b"u+x"].map(parse_mode), [None; 6]);
        assert_eq!(parse_mode(&[b'7'; 100]), None);
        assert_eq!(parse_id(b"0"), Some(0));
        assert_eq!([&b"4294967295"[..], b"-1", b"root", b""].map(parse_id), [None; 4]);
    }
}
