//! `SITE QUOTA`, `IDLE`, `TIME`, `ZONE`, `WHO`, `STAT`, `DESCUSER`: about the session and the server.
//!
//! A user that may not administer the server sees only itself.

use millrace_vfs::Space;

use super::{Argument, Command, HERE, ROW};
use crate::reply::{Reply, code};
use crate::session::commands::list::{status, status_lines};
use crate::session::{Access, Answer, DENIED, Permission, Request, Session, Step, quoted};
use crate::time;

pub(super) const QUOTA: Command = Command {
    verb: "QUOTA",
    paths: HERE,
    help: "SITE QUOTA",
    source: "ProFTPD mod_quotatab",
    note: "what a quota counts here, else the room there is; AVBL is for programs",
    run: |session, _| session.ask(Request::Space(session.directory.clone()), quota),
    ..ROW
};

pub(super) const IDLE: Command = Command {
    verb: "IDLE",
    argument: Argument::Optional,
    help: "SITE IDLE [<seconds>]",
    source: "wu-ftpd",
    note: "`idle-timeout` at most",
    run: idle,
    ..ROW
};

pub(super) const TIME: Command =
    Command { verb: "TIME", help: "SITE TIME", source: "Pure-FTPd", note: "UTC", run: clock, ..ROW };

pub(super) const ZONE: Command = Command {
    verb: "ZONE",
    help: "SITE ZONE",
    source: "Apache FtpServer",
    run: |_, _| Reply::new(code::OK, "UTC+0000: all times are UTC here.").into(),
    ..ROW
};

pub(super) const WHO: Command = Command {
    verb: "WHO",
    help: "SITE WHO",
    source: "Apache FtpServer",
    note: "all sessions for administrators, the user's own for others",
    run: who,
    ..ROW
};

pub(super) const STAT: Command = Command {
    verb: "STAT",
    help: "SITE STAT",
    source: "Apache FtpServer",
    note: "as STAT; for administrators also the number of sessions",
    run: stat,
    ..ROW
};

pub(super) const DESCUSER: Command = Command {
    verb: "DESCUSER",
    argument: Argument::Optional,
    help: "SITE DESCUSER [<own name>]",
    source: "Apache FtpServer",
    note: "only the session's own account; others belong to their source",
    run: descuser,
    ..ROW
};

fn quota(_: &mut Session, answer: Answer) -> Step {
    match answer {
        Answer::Space(Space { held: Some(held), .. }) => {
            let of = |most: Option<u64>| most.map_or("no limit".to_owned(), |most| most.to_string());
            let lines = [
                format!(" Bytes: {} of {}", held.bytes, of(held.most_bytes)),
                format!(" Files: {} of {}", held.files, of(held.most_files)),
            ];
            Reply::lines(code::OK, "Quota here:", lines.map(String::into_bytes), "End").into()
        }
        Answer::Space(space) => {
            let values = [space.available.to_string(), space.total.to_string()];
            Reply::filled(code::OK, "{} of {} bytes are free.", values).into()
        }
        _ => Step::mismatch(),
    }
}

fn idle(session: &mut Session, argument: &[u8]) -> Step {
    let most = session.settings.idle_timeout_max.as_secs();
    let argument = argument.trim_ascii();
    if argument.is_empty() {
        let now = session.extras.as_ref().and_then(|extras| extras.idle).map(u64::from);
        let now = now.unwrap_or(session.settings.idle_timeout.as_secs());
        let values = [now.to_string(), most.to_string()];
        return Reply::filled(code::OK, "Idle after {} s; up to {} s can be had.", values).into();
    }
    match crate::decimal::parse_decimal(argument).filter(|seconds| (1..=most).contains(seconds)) {
        Some(seconds) => {
            session.extras_mut().idle = Some(u32::try_from(seconds).unwrap_or(u32::MAX));
            Reply::filled(code::OK, "Idle after {} s now.", [seconds.to_string()]).into()
        }
        None => {
            let most = [most.to_string()];
            Reply::filled(code::BAD_ARGUMENT, "The time is from 1 to {} seconds.", most).into()
        }
    }
}

fn clock(session: &mut Session, _: &[u8]) -> Step {
    let mut text = Vec::new();
    time::write(session.now.wall, &mut text);
    text.extend_from_slice(b" UTC");
    Reply::owned(code::OK, text).into()
}

fn who(session: &mut Session, _: &[u8]) -> Step {
    if session.permissions().allows(Permission::Admin) {
        return session.ask(Request::Who, |_, answer| match answer {
            Answer::Sessions(lines, _) => Reply::lines(code::SYSTEM_STATUS, "Sessions:", lines, "End").into(),
            _ => Step::mismatch(),
        });
    }
    let name = session.user().unwrap_or_default();
    let line = [b" ", name, format!(" from {}", session.peer.ip()).as_bytes()].concat();
    Reply::lines(code::SYSTEM_STATUS, "Sessions:", [line], "End").into()
}

fn stat(session: &mut Session, _: &[u8]) -> Step {
    if !session.permissions().allows(Permission::Admin) {
        return status(session);
    }
    session.ask(Request::Who, |session, answer| {
        let Answer::Sessions(_, logged_in) = answer else { return Step::mismatch() };
        let mut lines = status_lines(session);
        lines.push(match logged_in {
            1 => b" 1 session is logged in".to_vec(),
            more => format!(" {more} sessions are logged in").into_bytes(),
        });
        Reply::lines(code::SYSTEM_STATUS, "Millrace status:", lines, "End of status.").into()
    })
}

fn descuser(session: &mut Session, argument: &[u8]) -> Step {
    let Access::User(login) = &session.access else { return Step::mismatch() };
    let argument = argument.trim_ascii();
    if !argument.is_empty() && argument != &login.name[..] {
        return DENIED.into();
    }
    let lines = [
        [b" Name: ", &login.name[..]].concat(),
        [b" Home: ", &quoted(&login.home)[..]].concat(),
        format!(" May: {}", login.permissions).into_bytes(),
    ];
    Reply::lines(code::SYSTEM_STATUS, "This account:", lines, "End").into()
}
