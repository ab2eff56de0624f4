//! The commands about the conversation itself: `NOOP`, `ABOR`, `SYST`, `HELP`, `FEAT`, `SITE`.

use super::{Argument, COMMANDS, Command, Feat, ROW, SITE_COMMANDS, When, admin, site};
use crate::reply::{Reply, code};
use crate::session::{Act, DataPlan, Session, Step, split};

pub(super) const NOOP: Command = Command {
    verb: "NOOP",
    argument: Argument::Optional,
    when: When::Always,
    busy: true,
    help: "NOOP",
    run: |_, _| Reply::new(code::OK, "OK.").into(),
    ..ROW
};

pub(super) const ABOR: Command = Command {
    verb: "ABOR",
    argument: Argument::Optional,
    when: When::Always,
    busy: true,
    help: "ABOR",
    // During a transfer the gate aborts it; here there is at most a data connection that waits for one.
    run: |session, _| {
        session.data = DataPlan::None;
        Step::from(Reply::new(code::CLOSING_DATA, "Nothing to abort.")).then(Act::DropPassive)
    },
    ..ROW
};

pub(super) const SYST: Command = Command {
    verb: "SYST",
    when: When::Always,
    help: "SYST",
    run: |_, _| Reply::new(code::SYSTEM_NAME, "UNIX Type: L8").into(),
    ..ROW
};

pub(super) const HELP: Command = Command {
    verb: "HELP",
    argument: Argument::Optional,
    when: When::Always,
    help: "HELP [<command>]",
    run: help,
    ..ROW
};

pub(super) const FEAT: Command =
    Command { verb: "FEAT", when: When::Always, help: "FEAT", source: "RFC 2389", run: feat, ..ROW };

pub(super) const SITE: Command = Command {
    verb: "SITE",
    argument: Argument::Required,
    help: "SITE <command> [<arguments>]; SITE HELP lists them",
    run: site::run,
    ..ROW
};

fn help(session: &mut Session, argument: &[u8]) -> Step {
    let (verb, rest) = split(argument);
    if verb.eq_ignore_ascii_case(b"SITE") {
        return site::help(session, rest.unwrap_or_default());
    }
    help_in(session, COMMANDS, argument.trim_ascii())
}

/// `HELP`, of a table.
pub(super) fn help_in(session: &Session, table: &'static [Command], verb: &[u8]) -> Step {
    let is_known = |command: &&Command| !admin::is_unknown(session, command);
    if verb.is_empty() {
        let known: Vec<&Command> = table.iter().filter(is_known).collect();
        let rows = known.chunks(8).map(|row| {
            let row: String = row.iter().map(|command| format!(" {:<11}", command.verb)).collect();
            row.trim_end().as_bytes().to_vec()
        });
        return Reply::lines(
            code::HELP,
            "These commands are known:",
            rows,
            "HELP and a command, or SITE HELP and one, tells its syntax.",
        )
        .into();
    }
    match super::find_in(table, verb).filter(is_known) {
        Some(command) => Reply::owned(code::HELP, format!("Syntax: {}", command.help)).into(),
        None => Reply::new(code::NOT_IMPLEMENTED, "Unknown command; HELP lists those that are known.").into(),
    }
}

fn feat(session: &mut Session, _: &[u8]) -> Step {
    let line = |command: &Command| match command.feat {
        Feat::Silent => None,
        Feat::Line(line) => Some(line.to_owned()),
        Feat::WithTls(line) => session.settings.tls.as_ref().map(|_| line.to_owned()),
        Feat::Made(make) => make(session),
    };
    let of_site = SITE_COMMANDS.iter().filter_map(line).map(|line| format!("SITE {line}"));
    // Features that are no verbs.
    let others = ["TVFS", "UTF8"].map(str::to_owned);
    let mut lines: Vec<String> = COMMANDS.iter().filter_map(line).chain(of_site).chain(others).collect();
    lines.sort();
    let lines = lines.into_iter().map(|line| format!(" {line}").into_bytes());
    Reply::lines(code::SYSTEM_STATUS, "Features:", lines, "End").into()
}
