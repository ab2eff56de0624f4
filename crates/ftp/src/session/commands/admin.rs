//! `LIMITBANDWIDTH` and `INTERNALSHUTDOWN`, as Waarp FTP has them: for administrators. For other users they do not
//! exist.

use super::{Argument, Command, Feat, ROW};
use crate::reply::{Reply, code};
use crate::session::{Answer, Permission, Request, Session, Step};

const WAARP: Command =
    Command { argument: Argument::Optional, source: "Waarp FTP", feat: Feat::Silent, ..ROW };

pub(super) const LIMITBANDWIDTH: Command = Command {
    verb: "LIMITBANDWIDTH",
    help: "LIMITBANDWIDTH [<write> [<read>]], bytes a second",
    note: "for administrators: of the whole server, 0 for no limit; without an argument as configured",
    run: limit_bandwidth,
    ..WAARP
};

/// The same beneath `SITE`, for clients that send unknown verbs only there.
pub(super) const SITE_LIMITBANDWIDTH: Command =
    Command { help: "SITE LIMITBANDWIDTH [<write> [<read>]], bytes a second", ..LIMITBANDWIDTH };

pub(super) const INTERNALSHUTDOWN: Command = Command {
    verb: "INTERNALSHUTDOWN",
    help: "INTERNALSHUTDOWN <shutdown password>",
    note: "for administrators: running transfers may end within the grace time, then the server stops",
    run: shut_down,
    ..WAARP
};

/// Returns true if the command does not exist for the user of this session.
pub(super) fn is_unknown(session: &Session, command: &Command) -> bool {
    command.source == WAARP.source && !session.permissions().allows(Permission::Admin)
}

fn limit_bandwidth(session: &mut Session, argument: &[u8]) -> Step {
    if !session.permissions().allows(Permission::Admin) {
        return session.unknown();
    }
    let numbers: Option<Vec<u64>> = std::str::from_utf8(argument)
        .ok()
        .map(str::split_whitespace)
        .and_then(|words| words.map(|word| word.parse().ok()).collect());
    let request = match numbers.as_deref() {
        Some([]) => Request::RestoreBandwidth,
        Some(&[both]) => Request::LimitBandwidth { write: both, read: both },
        Some(&[write, read]) => Request::LimitBandwidth { write, read },
        _ => return Reply::new(code::BAD_ARGUMENT, "Expected no number, one, or two.").into(),
    };
    session.ask(request, |_, answer| match answer {
        Answer::Done => Reply::new(code::OK, "Limit bandwidth accepted.").into(),
        _ => Step::mismatch(),
    })
}

fn shut_down(session: &mut Session, password: &[u8]) -> Step {
    if !session.permissions().allows(Permission::Admin) {
        return session.unknown();
    }
    session.ask(Request::ShutDown(password.to_vec()), |session, answer| match answer {
        Answer::Count(1) => session.close(Reply::new(code::GOODBYE, "The server is shutting down. Goodbye.")),
        Answer::Count(_) => Reply::new(code::BAD_ARGUMENT, "Not the shutdown password.").into(),
        _ => Step::mismatch(),
    })
}
