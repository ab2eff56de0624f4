//! Every row of the tables does what it says of itself; and `docs/rfc.md` says the same.
//!
//! `UPDATE_DOCS=1 cargo test -p millrace-ftp --test table` writes the document anew.

#![allow(clippy::disallowed_methods)]

mod memory;

use std::fmt::Write;
use std::path::Path;

use millrace_ftp::commands::{Argument, COMMANDS, Command, Feat, SITE_COMMANDS, Status, When};
use millrace_ftp::session::{Permission, Permissions, Settings, TlsPolicy};

use memory::Driver;

const EVERYTHING: Permissions = Permissions::READ_WRITE.with(Permission::Admin);

/// Every row with what its verb stands behind.
fn rows() -> impl Iterator<Item = (&'static str, &'static Command)> {
    let main = COMMANDS.iter().map(|command| ("", command));
    main.chain(SITE_COMMANDS.iter().map(|command| ("SITE ", command)))
}

/// The line of a row with an argument that every command finds at least well-formed enough to look at.
fn line(prefix: &str, command: &Command) -> String {
    match command.argument {
        Argument::None => format!("{prefix}{}", command.verb),
        _ => format!("{prefix}{} x", command.verb),
    }
}

#[test]
fn a_row_that_does_not_say_always_is_refused_before_the_login() {
    for (prefix, command) in rows() {
        let mut driver = Driver::new(Default::default());
        // Without an argument where that is allowed: STAT is for all clients, STAT with a path is not.
        let bare = format!("{prefix}{}", command.verb);
        let code =
            driver.code(if command.argument == Argument::Optional { bare } else { line(prefix, command) });
        let is_refused = code == 530;
        assert_eq!(is_refused, command.when == When::LoggedIn, "{prefix}{}: {code}", command.verb);
    }
}

#[test]
fn a_required_argument_that_is_missing_gets_501_and_the_syntax() {
    for (prefix, command) in rows() {
        for line in [format!("{prefix}{}", command.verb), format!("{prefix}{} ", command.verb)] {
            let reply = Driver::logged_in_with(EVERYTHING).say(&line);
            let is_told = reply == format!("501 Syntax: {}\r\n", command.help);
            assert_eq!(is_told, command.argument == Argument::Required, "{line}: {reply}");
        }
    }
}

#[test]
fn an_argument_where_none_belongs_gets_501() {
    for (prefix, command) in rows().filter(|(_, command)| command.argument == Argument::None) {
        let mut driver = Driver::logged_in_with(EVERYTHING);
        assert_eq!(driver.code(format!("{prefix}{} x", command.verb)), 501, "{}", command.verb);
    }
}

#[test]
fn a_nul_in_an_argument_gets_501_everywhere() {
    for (prefix, command) in rows() {
        let mut driver = Driver::logged_in_with(EVERYTHING);
        assert_eq!(driver.code(format!("{prefix}{} a\0b", command.verb)), 501, "{}", command.verb);
    }
}

#[test]
fn each_permission_that_a_row_needs_is_needed() {
    for (prefix, command) in rows() {
        for bit in 0..11 {
            let Some(permission) = permission(bit).filter(|permission| command.needs.allows(*permission))
            else {
                continue;
            };
            let mut driver = Driver::logged_in_with(EVERYTHING.without(permission));
            let reply = driver.say(line(prefix, command));
            let denied = "550 Permission denied: this account may not do that.\r\n";
            assert_eq!(reply, denied, "{} without {permission:?}", command.verb);
            assert!(driver.question.is_none());
        }
    }
}

fn permission(bit: u16) -> Option<Permission> {
    use Permission::*;
    let all = [List, Read, Write, Append, Overwrite, Rename, Delete, MakeDirectory, Attributes, Link, Admin];
    all.into_iter().find(|permission| *permission as u16 == 1 << bit)
}

#[test]
fn a_transfer_without_an_agreed_connection_gets_425() {
    for (prefix, command) in rows() {
        let reply = Driver::logged_in_with(EVERYTHING).say(line(prefix, command));
        assert_eq!(reply.starts_with("425 Use PASV"), command.transfers, "{}: {reply}", command.verb);
    }
}

#[test]
fn help_knows_every_row() {
    // HELP SITE is the list of the other table.
    for (prefix, command) in rows().filter(|(_, command)| command.verb != "SITE") {
        let mut driver = Driver::logged_in_with(EVERYTHING);
        for help in [
            format!("HELP {prefix}{}", command.verb),
            format!("HELP {prefix}{}", command.verb.to_lowercase()),
        ] {
            assert_eq!(driver.say(help), format!("214 Syntax: {}\r\n", command.help));
        }
        let list = driver.say(format!("HELP {prefix}"));
        assert!(list.split_whitespace().any(|word| word == command.verb), "{}", command.verb);
    }
}

#[test]
fn help_tells_administrators_alone_of_what_others_do_not_know() {
    let mut driver = Driver::new(Default::default());
    for verb in ["INTERNALSHUTDOWN", "LIMITBANDWIDTH", "SITE LIMITBANDWIDTH"] {
        let help = driver.say(format!("HELP {verb}"));
        assert!(help.starts_with("502 "), "{help}");
        for list in ["HELP", "HELP SITE"] {
            assert!(!driver.say(list).contains(verb.trim_start_matches("SITE ")), "{verb}");
        }
    }
}

#[test]
fn rows_are_well_formed() {
    for (prefix, command) in rows() {
        let verb = command.verb;
        let table = if prefix.is_empty() { COMMANDS } else { SITE_COMMANDS };
        assert_eq!(table.iter().filter(|other| other.verb == verb).count(), 1, "{verb} is there once");
        assert!(verb.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit()), "{verb}");
        assert!(command.help.starts_with(&format!("{prefix}{verb}")), "{verb}");
        assert!(!command.source.is_empty(), "{verb}");
        assert!(command.status == Status::Served || !command.note.is_empty(), "{verb} says why");
    }
}

#[test]
fn refused_and_superfluous_commands_have_matching_codes() {
    for (prefix, command) in rows() {
        let mut driver = Driver::logged_in_with(EVERYTHING);
        let plain = format!("{prefix}{}", command.verb);
        let reply = match command.argument {
            Argument::Required => driver.say(line(prefix, command)),
            _ => driver.say(plain),
        };
        match command.status {
            Status::Refused => assert!(reply.starts_with("502 "), "{reply}"),
            Status::Unfit => assert!(reply.starts_with("503 ") || reply.starts_with("537 "), "{reply}"),
            Status::Superfluous => assert!(reply.starts_with("202 ") || reply.starts_with("211 "), "{reply}"),
            // Some accounts need it, and this one does not.
            Status::Served if command.verb == "ACCT" => assert!(reply.starts_with("202 "), "{reply}"),
            Status::Served => assert!(!reply.starts_with("502 ") && !reply.starts_with("202 "), "{reply}"),
        }
    }
}

#[test]
fn feat_lists_what_is_served_and_nothing_else() {
    let settings = Settings { tls: Some(TlsPolicy::default()), ..Settings::default() };
    let reply = Driver::new(settings).say("FEAT");
    let features: Vec<&str> = reply
        .lines()
        .filter_map(|line| line.strip_prefix(' '))
        .filter(|line| !["TVFS", "UTF8"].contains(line))
        .collect();
    for feature in &features {
        let (table, name) = match feature.strip_prefix("SITE ") {
            Some(name) => (SITE_COMMANDS, name),
            None => (COMMANDS, *feature),
        };
        let verb = name.split(' ').next().unwrap();
        let command = table.iter().find(|command| command.verb == verb).expect(feature);
        assert_eq!(command.status, Status::Served, "{feature}");
    }
    let silent = rows().filter(|(_, command)| matches!(command.feat, Feat::Silent)).count();
    assert_eq!(features.len() + silent, COMMANDS.len() + SITE_COMMANDS.len());
    // RFC 2389 section 3.2: each line begins with one blank, and the last has the code again.
    assert!(reply.starts_with("211-Features:\r\n ") && reply.ends_with("\r\n211 End\r\n"), "{reply}");
}

#[test]
fn an_extension_that_is_no_rfc_959_is_advertised() {
    // Clients find extensions in FEAT only; an extension that is not listed might as well not exist.
    let quiet = [
        "ESTA",
        "ESTP",
        "MFCT",
        "FEAT",
        "OPTS",
        "LPRT",
        "LPSV",
        "MLSD",
        "LIMITBANDWIDTH",
        "INTERNALSHUTDOWN",
        "ADAT",
        "MIC",
        "CONF",
        "ENC",
    ];
    for command in COMMANDS.iter().filter(|command| !["RFC 959", "RFC 775"].contains(&command.source)) {
        let is_silent = matches!(command.feat, Feat::Silent);
        assert_eq!(is_silent, quiet.contains(&command.verb), "{}", command.verb);
    }
}

const INTRODUCTION: &str = "\
# Which commands are served

Made from the tables of `crates/ftp` by `UPDATE_DOCS=1 cargo test -p millrace-ftp --test table`; a test fails
where it is out of date.

*Served* does what its source says, *superfluous* is answered with success and has nothing to do here,
*refused* is known and not served, with the reason beside it, *unfit* belongs to another mechanism of RFC 2228
than TLS. Verbs that stand in neither table get 500.
`x` in the column *busy*: answered during a transfer. Replies come in the order of the commands, whatever is
pipelined; `ABOR` during a transfer gets 426 for the transfer and 226 for itself.

The data formats: TYPE A N, E N (code page 037), I and L 8; STRU F and R; MODE S, B (with restart markers)
and Z (deflate; where `mode-z` switches it on). FEAT also lists TVFS and UTF8: names are bytes and pass unchanged.
";

fn document() -> String {
    let mut text = INTRODUCTION.to_owned();
    for (title, table) in [("Commands", COMMANDS), ("SITE commands", SITE_COMMANDS)] {
        write!(
            text,
            "\n## {title}\n\n| verb | syntax | source | status | busy | notes |\n|---|---|---|---|---|---|\n"
        )
        .unwrap();
        for command in table {
            let status = format!("{:?}", command.status).to_lowercase();
            let busy = if command.busy { "x" } else { "" };
            let syntax = command.help.replace('|', "\\|");
            writeln!(
                text,
                "| {} | `{syntax}` | {} | {status} | {busy} | {} |",
                command.verb, command.source, command.note
            )
            .unwrap();
        }
    }
    text
}

#[test]
fn the_document_tells_the_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rfc.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, document()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == document(),
        "docs/rfc.md is out of date: UPDATE_DOCS=1 cargo test -p millrace-ftp --test table"
    );
}
