//! `SITE CHMOD`, `CHOWN`, `CHGRP`, `UTIME`: what `chmod` and its kin do.

use millrace_vfs::{Change, Timestamp};

use super::{Argument, Command, Feat, Paths, ROW};
use crate::reply::{Reply, code};
use crate::session::commands::facts::{parse_id, parse_mode};
use crate::session::{Permission, Permissions, Request, Session, Step, split, wrong_syntax};
use crate::time;

pub(super) const CHMOD: Command = Command {
    verb: "CHMOD",
    argument: Argument::Required,
    needs: Permissions::only(Permission::Attributes),
    feat: Feat::Line("CHMOD"),
    paths: BEHIND_A_WORD,
    help: "SITE CHMOD <octal mode> <path>",
    source: "wu-ftpd",
    run: |session, argument| match split(argument) {
        (mode, Some(path)) => change(session, &CHMOD, path, parse_mode(mode).map(of_mode)),
        _ => wrong_syntax(&CHMOD).into(),
    },
    ..ROW
};

/// Giving a file away could evade a quota: for administrators.
const OWNERS: Permissions = Permissions::only(Permission::Attributes).with(Permission::Admin);

pub(super) const CHOWN: Command = Command {
    verb: "CHOWN",
    argument: Argument::Required,
    needs: OWNERS,
    paths: BEHIND_A_WORD,
    help: "SITE CHOWN <user>[:<group>] <path>, in numbers",
    source: "ftpserverlib",
    run: |session, argument| match split(argument) {
        (owner, Some(path)) => change(session, &CHOWN, path, parse_owner(owner)),
        _ => wrong_syntax(&CHOWN).into(),
    },
    ..ROW
};

pub(super) const CHGRP: Command = Command {
    verb: "CHGRP",
    argument: Argument::Required,
    needs: OWNERS,
    paths: BEHIND_A_WORD,
    help: "SITE CHGRP <group> <path>, in numbers",
    source: "ProFTPD mod_site",
    run: |session, argument| match split(argument) {
        (group, Some(path)) => {
            let group = parse_id(group).map(|group| Change { group: Some(group), ..Change::default() });
            change(session, &CHGRP, path, group)
        }
        _ => wrong_syntax(&CHGRP).into(),
    },
    ..ROW
};

pub(super) const UTIME: Command = Command {
    verb: "UTIME",
    argument: Argument::Required,
    needs: Permissions::only(Permission::Attributes),
    feat: Feat::Line("UTIME"),
    paths: Paths::Within(|session, argument| match parse_utime(argument) {
        Some((path, _)) => Ok(vec![session.path(path)?]),
        None => Err(wrong_syntax(&UTIME)),
    }),
    help: "SITE UTIME <YYYYMMDDhhmm[ss]> <path>, or <path> <access> <modification> <creation> UTC",
    source: "Pure-FTPd, ProFTPD mod_site_misc",
    note: "times are UTC; the time of creation is ignored",
    run: utime,
    ..ROW
};

/// `644 path`: one word, and all that follows.
const BEHIND_A_WORD: Paths = Paths::Within(|session, argument| match split(argument) {
    (_, Some(path)) => Ok(vec![session.path(path)?]),
    // Without a path, each says by itself what it takes.
    _ => Ok(Vec::new()),
});

fn of_mode(mode: u32) -> Change {
    Change { mode: Some(mode), ..Change::default() }
}

fn of_times(accessed: Timestamp, modified: Timestamp) -> Change {
    Change { accessed: Some(accessed), modified: Some(modified), ..Change::default() }
}

fn change(session: &mut Session, command: &Command, path: &[u8], change: Option<Change>) -> Step {
    let Some(change) = change.filter(|_| !path.is_empty()) else { return wrong_syntax(command).into() };
    session.ask_at(path, |path| Request::Change(path, change), |_, _| Reply::new(code::OK, "Changed.").into())
}

/// `1000` or `1000:100`
fn parse_owner(text: &[u8]) -> Option<Change> {
    let mut parts = text.splitn(2, |&byte| byte == b':');
    let user = Some(parse_id(parts.next()?)?);
    let group = match parts.next() {
        Some(group) => Some(parse_id(group)?),
        None => None,
    };
    Some(Change { user, group, ..Change::default() })
}

fn utime(session: &mut Session, argument: &[u8]) -> Step {
    match parse_utime(argument) {
        Some((path, times)) => change(session, &UTIME, path, Some(times)),
        None => wrong_syntax(&UTIME).into(),
    }
}

fn parse_utime(argument: &[u8]) -> Option<(&[u8], Change)> {
    if let (first, Some(path)) = split(argument)
        && let Some(time) = time::parse(first).or_else(|| time::parse_minutes(first))
    {
        return Some((path, of_times(time, time)));
    }
    // `name 20200101000000 20200101000000 20200101000000 UTC`, where the name may have blanks.
    let mut from_end = argument.rsplitn(5, |&byte| byte == b' ');
    let zone = from_end.next()?;
    let [_, modified, accessed] = [from_end.next()?, from_end.next()?, from_end.next()?].map(time::parse);
    let path = from_end.next()?;
    let path = path.strip_prefix(b"\"").and_then(|path| path.strip_suffix(b"\"")).unwrap_or(path);
    zone.eq_ignore_ascii_case(b"UTC").then_some((path, of_times(accessed?, modified?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utime_is_read_in_both_forms() {
        let seconds = |argument: &str| {
            let (path, change) = parse_utime(argument.as_bytes())?;
            let path = String::from_utf8(path.to_vec()).unwrap();
            Some((path, change.accessed.unwrap().seconds, change.modified.unwrap().seconds))
        };
        assert_eq!(seconds("197001010001 a b"), Some(("a b".into(), 60, 60)));
        assert_eq!(seconds("19700101000002 a"), Some(("a".into(), 2, 2)));
        let long = "a b 19700101000003 19700101000004 19700101000005 UTC";
        assert_eq!(seconds(long), Some(("a b".into(), 3, 4)));
        assert_eq!(seconds(&long.replace("UTC", "CET")), None);
        assert_eq!(seconds("a"), None);
    }

    #[test]
    fn owners_are_numbers() {
        assert_eq!(parse_owner(b"5:6"), Some(Change { user: Some(5), group: Some(6), ..Change::default() }));
        assert_eq!([&b"root"[..], b"5:", b":6", b"5:6:7"].map(parse_owner), [None; 4]);
    }
}
