//! The gate: every command line passes here, and is refused here, before its command sees it.
//!
//! Default-deny: a verb that is not in the table is refused, one whose row does not say `Always` is
//! refused before the login, and one that needs a permission is refused without it. There is no other
//! place where that is decided.

use std::time::Duration;

use millrace_vfs::VirtualPath;

use super::{
    Access, Act, Bound, ByteRange, Closing, DataPlan, Phase, Progress, Request, Session, Step, data,
};
use crate::listing::search::Searched;
use crate::reply::{Reply, code};
use crate::session::commands::{self, Argument, Command, Paths, SITE_COMMANDS, When};

/// Lines in a row that are no command until the connection is closed: a browser tricked into talking
/// to us (ALPACA), or a port scanner.
const NONSENSE_LIMIT: u8 = 20;

pub(super) const SHUTTING_DOWN: Reply = Reply::new(code::SERVICE_CLOSING, "The server is shutting down.");

/// The reason is in the log only.
pub(super) const KICKED: Reply = Reply::new(code::SERVICE_CLOSING, "Disconnected by the administrator.");

pub(super) const EXPELLED: Reply = Reply::new(
    code::SERVICE_CLOSING,
    "This account can no longer be used here: closing the control connection.",
);

pub(super) const GOODBYE: Reply = Reply::new(code::GOODBYE, "Goodbye.");

/// The reply to a command that its client has given up while a hook was asked about it.
pub const NOT_BEGUN: Reply = Reply::new(code::TRANSFER_ABORTED, "Aborted before it had begun.");

/// Splits a line into its verb and its argument, which is `None` where not even a space follows.
pub(crate) fn split(line: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(b' ', line) {
        Some(space) => (&line[..space], Some(&line[space + 1..])),
        None => (line, None),
    }
}

/// Returns true if the line's command may be given during a transfer.
pub(super) fn is_busy_command(line: &[u8]) -> bool {
    commands::find(split(line).0).is_some_and(|command| command.busy)
}

/// Returns true if the line's command may be given during a transfer and has no reply of its own there.
pub(super) fn is_silent_busy_command(line: &[u8]) -> bool {
    commands::find(split(line).0).is_some_and(|command| matches!(command.verb, "ABOR" | "QUIT"))
}

/// A line that would be run, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The verb, as the table has it.
    pub verb: &'static str,
    /// The subcommand of `SITE`, as its table has it.
    pub site: Option<&'static str>,
    /// Every path that it names, the main one first: for a pattern the folder that is searched, and the path with that
    /// literal name.
    pub paths: Vec<VirtualPath>,
    /// The folders beneath it that a pattern leads into.
    pub searched: Option<Searched>,
}

impl Session {
    /// The command that the line would run, if it passes the gate now; `None` if it would only be refused.
    pub fn named(&self, line: &[u8]) -> Option<Named> {
        let (verb, argument) = split(line);
        let command = commands::find(verb)?;
        let argument = admit(self, command, argument.unwrap_or_default()).ok()?;
        if command.verb != "SITE" {
            let (paths, searched) = paths(self, command, argument)?;
            return Some(Named { verb: command.verb, site: None, paths, searched });
        }
        let (verb, argument) = split(argument);
        let row = commands::find_in(SITE_COMMANDS, verb)?;
        let argument = admit(self, row, argument.unwrap_or_default()).ok()?;
        let (paths, searched) = paths(self, row, argument)?;
        Some(Named { verb: command.verb, site: Some(row.verb), paths, searched })
    }

    /// Refuses a line. It still consumes the values that its command would consume.
    pub(super) fn refused(&mut self, line: &[u8], reply: Reply) -> Step {
        if !self.takes(line) || self.is_busy() {
            return Step::NOTHING;
        }
        self.nonsense = 0;
        let (verb, argument) = split(line);
        let Some(command) = commands::find(verb) else { return reply.into() };
        let subcommand = argument.and_then(|argument| commands::find_in(SITE_COMMANDS, split(argument).0));
        match (command.verb, subcommand.map(|row| row.verb)) {
            _ if command.transfers => self.restart = ByteRange::default(),
            ("HASH", _) => self.restart = ByteRange::default(),
            ("RNFR" | "RNTO", _) | ("SITE", Some("CPFR" | "CPTO")) => self.source = None,
            _ => {}
        }
        reply.into()
    }

    pub(super) fn line(&mut self, line: &[u8]) -> Step {
        if !self.takes(line) {
            // The driver was to keep it back; a reply now could overtake another.
            return Step::NOTHING;
        }
        let (verb, argument) = split(line);
        let Some(command) = commands::find(verb) else { return stray(self, verb) };
        self.nonsense = 0;
        match self.is_busy() {
            true => while_busy(self, command, argument),
            false => self.run(command, argument),
        }
    }

    /// Runs a row of a table, if its conditions are met. `SITE` comes here a second time with its own.
    pub(crate) fn run(&mut self, command: &Command, argument: Option<&[u8]>) -> Step {
        self.subject = None;
        self.verb = command.verb;
        if command.transfers {
            // Used up also by a command that is refused: the next one means another file.
            self.range = std::mem::take(&mut self.restart);
        }
        match admit(self, command, argument.unwrap_or_default()) {
            Ok(argument) => (command.run)(self, argument),
            Err(reply) => reply.into(),
        }
    }

    /// The reply to a verb that is not known, or not to this user.
    pub(crate) fn unknown(&mut self) -> Step {
        self.nonsense(Reply::new(code::UNKNOWN_COMMAND, "Unknown command; HELP lists those that are known."))
    }

    /// The reply to a line that is no command; this many in a row are allowed.
    pub(super) fn nonsense(&mut self, reply: Reply) -> Step {
        if !matches!(self.phase, Phase::Ready) {
            return Step::NOTHING;
        }
        self.nonsense += 1;
        if self.nonsense >= NONSENSE_LIMIT {
            let last = Reply::new(
                code::SERVICE_CLOSING,
                "Too many unknown commands: closing the control connection.",
            );
            let bound = Bound::UnknownCommands(NONSENSE_LIMIT);
            return self.close(last).because(bound);
        }
        reply.into()
    }

    /// `QUIT` of a session that is not busy.
    pub(crate) fn say_goodbye(&mut self) -> Step {
        self.close(GOODBYE)
    }
}

fn paths(session: &Session, row: &Command, argument: &[u8]) -> Option<(Vec<VirtualPath>, Option<Searched>)> {
    match row.paths {
        Paths::None => Some(Default::default()),
        Paths::Whole(read) | Paths::Within(read) => Some((read(session, argument).ok()?, None)),
        Paths::Listed(read) => {
            let Some(request) = read(session, argument).ok()? else { return Some(Default::default()) };
            let searched = Searched::new(&request.path, &request.listing.search, request.listing.depth);
            let literal = request.literal.map(|literal| literal.path);
            Some(([request.path].into_iter().chain(literal).collect(), searched))
        }
    }
}

/// The line with another path in place of its own; `None` where it has none that can be taken out.
pub fn rewritten(line: &[u8], path: &VirtualPath) -> Option<Vec<u8>> {
    let (verb, argument) = split(line);
    let row = commands::find(verb)?;
    let (head, row) = match row.verb {
        "SITE" => {
            let (site, _) = split(argument.unwrap_or_default());
            ([verb, b" ", site].concat(), commands::find_in(SITE_COMMANDS, site)?)
        }
        _ => (verb.to_vec(), row),
    };
    matches!(row.paths, Paths::Whole(_)).then(|| [&head, &b" "[..], path.as_bytes()].concat())
}

fn admit<'a>(session: &Session, command: &Command, argument: &'a [u8]) -> Result<&'a [u8], Reply> {
    if command.when == When::LoggedIn && !matches!(session.access, Access::User(_)) {
        return Err(Reply::new(code::NOT_LOGGED_IN, "Please log in with USER and PASS."));
    }
    if !session.permissions().contains(command.needs) {
        return Err(DENIED);
    }
    if argument.contains(&0) {
        return Err(Reply::new(code::BAD_ARGUMENT, "A NUL byte in the argument."));
    }
    let is_wrong = match command.argument {
        // Not trimmed: a file may be named by a blank.
        Argument::Required => argument.is_empty(),
        Argument::None => !argument.trim_ascii().is_empty(),
        Argument::Optional => false,
    };
    if is_wrong {
        return Err(wrong_syntax(command));
    }
    if command.transfers && session.data == DataPlan::None {
        return Err(data::NO_PLAN);
    }
    if command.transfers
        && let Some(reply) = session.data_refusal()
    {
        return Err(reply);
    }
    Ok(argument)
}

/// The commands that pass during a transfer or a long question.
fn while_busy(session: &mut Session, command: &Command, argument: Option<&[u8]>) -> Step {
    match command.verb {
        "ABOR" => {
            session.aborting = true;
            Step::act(Act::Abort)
        }
        "QUIT" => {
            session.closing = Some(Closing::Quit);
            Step::NOTHING
        }
        "STAT" if argument.is_none_or(<[u8]>::is_empty) => Step::act(Act::Ask(Request::Progress)),
        "STAT" => {
            Reply::new(code::FILE_BUSY, "A transfer is in progress; STAT without an argument reports it.")
                .into()
        }
        _ => Reply::new(code::OK, "Still here; a transfer is in progress.").into(),
    }
}

fn stray(session: &mut Session, verb: &[u8]) -> Step {
    // The commands of a browser that was directed to an FTP port.
    if [&b"GET"[..], b"POST", b"HEAD", b"PUT", b"OPTIONS", b"CONNECT"].contains(&verb) {
        return session
            .close(Reply::new(code::SERVICE_CLOSING, "This is an FTP server, not an HTTP server."));
    }
    session.unknown()
}

/// The reply to a missing or surplus argument, with the syntax from the table.
pub(crate) fn wrong_syntax(command: &Command) -> Reply {
    Reply::owned(code::BAD_ARGUMENT, format!("Syntax: {}", command.help))
}

/// The reply to what the account may not do.
pub(crate) const DENIED: Reply =
    Reply::new(code::FILE_UNAVAILABLE, "Permission denied: this account may not do that.");

/// The reply to `STAT` during a transfer.
pub(super) fn progress_report(progress: &Progress) -> Step {
    let total = progress.total.map_or(String::new(), |total| format!(" of {total}"));
    let seconds = progress.elapsed.as_secs_f64();
    let lines = [format!(" {}{total} bytes in {seconds:.1} s", progress.bytes).into_bytes()];
    let first = match progress.is_checked {
        true => "All has come, and is being checked:",
        false => "Transfer in progress:",
    };
    Reply::lines(code::SYSTEM_STATUS, first, lines, "End of status.").into()
}

/// The reply to `STAT` while a command waits to be run.
pub(super) fn waiting_report(verb: &[u8], elapsed: Duration) -> Step {
    let seconds = format!(": {:.1} s", elapsed.as_secs_f64());
    let line = [b" ", verb, seconds.as_bytes()].concat();
    Reply::lines(code::SYSTEM_STATUS, "A command waits to be allowed:", [line], "End of status.").into()
}
