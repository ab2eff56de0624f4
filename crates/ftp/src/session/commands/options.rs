//! `OPTS` (RFC 2389), `LANG` (RFC 2640), `CLNT` and `CSID`: what client and server tell of themselves.

use super::{Argument, Command, Feat, ROW, When, digest, list, parameters};
use crate::language::Language;
use crate::reply::{Reply, code};
use crate::session::{Session, Step, split};

pub(super) const OPTS: Command = Command {
    verb: "OPTS",
    argument: Argument::Required,
    when: When::Always,
    help: "OPTS HASH|MLST|MODE Z|UTF8 [<options>]",
    source: "RFC 2389",
    run: opts,
    ..ROW
};

pub(super) const LANG: Command = Command {
    verb: "LANG",
    argument: Argument::Optional,
    when: When::Always,
    feat: Feat::Made(|session| Some(format!("LANG {}", Language::feature(session.language())))),
    help: "LANG [<language>]",
    source: "RFC 2640",
    note: "English and German; lists, reasons that the system gives, and names of settings are English",
    run: lang,
    ..ROW
};

pub(super) const CLNT: Command = Command {
    verb: "CLNT",
    argument: Argument::Required,
    when: When::Always,
    feat: Feat::Line("CLNT"),
    help: "CLNT <name of the client>",
    source: "Serv-U, ProFTPD",
    note: "shown by STAT",
    run: |session, name| {
        session.extras_mut().client = Some(name.into());
        Reply::new(code::OK, "Noted.").into()
    },
    ..ROW
};

pub(super) const CSID: Command = Command {
    verb: "CSID",
    argument: Argument::Required,
    when: When::Always,
    feat: Feat::Line("CSID"),
    help: "CSID Name=<name>; Version=<version>;",
    source: "draft-peterson-streamlined-ftp-command-extensions",
    run: |session, name| {
        session.extras_mut().client = Some(name.into());
        // The properties that clients rely on, without version and machine, which would help attackers only.
        Reply::new(code::OK, "Name=Millrace; OS=Unix; CaseSensitive=1; DirSep=/;").into()
    },
    ..ROW
};

/// `OPTS UTF8 ON`, `OPTS MLST facts`, ...: each option's parser lies with its command.
fn opts(session: &mut Session, argument: &[u8]) -> Step {
    let (verb, rest) = split(argument);
    let rest = rest.unwrap_or_default().trim_ascii();
    match &verb.to_ascii_uppercase()[..] {
        b"UTF8" | b"UTF-8" => utf8(rest),
        b"MLST" => list::opts_mlst(session, rest),
        b"MODE" => parameters::opts_mode(session, rest),
        b"HASH" => digest::opts_hash(session, rest),
        _ => Reply::new(code::BAD_ARGUMENT, "No such option.").into(),
    }
}

/// Names are bytes and pass untouched, which is what a UTF-8 client needs; `OFF` changes nothing.
fn utf8(rest: &[u8]) -> Step {
    match &rest.to_ascii_uppercase()[..] {
        b"" | b"ON" | b"NLST" => Reply::new(code::OK, "UTF-8 names it is.").into(),
        b"OFF" => Reply::new(code::OK, "Names pass as the bytes that they are.").into(),
        _ => Reply::new(code::BAD_ARGUMENT, "Syntax: OPTS UTF8 [ON|OFF]").into(),
    }
}

/// Without an argument, back to the language that sessions begin with (RFC 2640 section 4.1).
fn lang(session: &mut Session, argument: &[u8]) -> Step {
    match Language::parse(argument.trim_ascii()) {
        Some(language) => {
            if language.is_some() || session.extras.is_some() {
                session.extras_mut().language = language;
            }
            Reply::new(code::OK, "Replies are in English now.").into()
        }
        None => Reply::new(code::BAD_PARAMETER, "Replies are not available in that language.").into(),
    }
}
