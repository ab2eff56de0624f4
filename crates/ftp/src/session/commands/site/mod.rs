//! `SITE`: a table of its own, with the same rows and the same gate.
//!
//! Every subcommand does what the servers that have it do (the row's `source` names one), or its row says
//! why not. None runs a program.

mod about;
mod attributes;
mod checksum;
mod copy;
mod legacy;
mod newer;
mod tree;
mod umask;

use super::{Argument, Command, Feat, HERE, PATH, Paths, ROW, control};
use crate::reply::{Reply, code};
use crate::session::{Session, Step, split};

pub(super) use umask::{directory_bits, file_bits};

/// Every subcommand of `SITE`, grouped by what they are about.
pub static SITE_COMMANDS: &[Command] = &[
    HELP,
    // Attributes
    attributes::CHMOD,
    attributes::CHOWN,
    attributes::CHGRP,
    attributes::UTIME,
    umask::UMASK,
    // The tree
    tree::MKDIR,
    tree::RMDIR,
    tree::SYMLINK,
    copy::COPY,
    copy::CPFR,
    copy::CPTO,
    // Supported
    newer::NEWER,
    newer::MINFO,
    checksum::CHECKSUM,
    checksum::CHECKMETHOD,
    // Session and server
    about::QUOTA,
    about::IDLE,
    about::TIME,
    about::ZONE,
    about::WHO,
    about::STAT,
    about::DESCUSER,
    super::admin::SITE_LIMITBANDWIDTH,
    // Without a use here
    legacy::ALIAS,
    legacy::BUFSIZE,
    legacy::EXEC,
    legacy::GPASS,
    legacy::GROUP,
    legacy::GROUPS,
    legacy::INDEX,
];

const HELP: Command =
    Command { verb: "HELP", argument: Argument::Optional, help: "SITE HELP [<command>]", run: help, ..ROW };

pub(super) fn run(session: &mut Session, argument: &[u8]) -> Step {
    let (verb, argument) = split(argument);
    match super::find_in(SITE_COMMANDS, verb) {
        Some(command) => session.run(command, argument),
        None => {
            Reply::new(code::BAD_PARAMETER, "Unknown SITE command; SITE HELP lists those that are known.")
                .into()
        }
    }
}

pub(super) fn help(session: &mut Session, argument: &[u8]) -> Step {
    control::help_in(session, SITE_COMMANDS, argument.trim_ascii())
}

/// Names with blanks between them; a name in quotes may have blanks in it, and quotes, doubled. `None`
/// where the quotes do not match.
pub(super) fn words(mut text: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    loop {
        text = text.trim_ascii_start();
        if text.is_empty() {
            return Some(words);
        }
        let (word, rest) = word(text)?;
        words.push(word);
        text = rest;
    }
}

fn word(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let Some(mut rest) = text.strip_prefix(b"\"") else {
        let (word, rest) = split(text);
        return Some((word.to_vec(), rest.unwrap_or_default()));
    };
    let mut word = Vec::new();
    loop {
        let quote = memchr::memchr(b'"', rest)?;
        word.extend_from_slice(&rest[..quote]);
        rest = &rest[quote + 1..];
        match rest.first() {
            Some(b'"') => {
                word.push(b'"');
                rest = &rest[1..];
            }
            Some(b' ') | None => return (!word.is_empty()).then_some((word, rest)),
            Some(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_end_at_blanks_unless_in_quotes() {
        assert_eq!(words(b"a  \"b c\" d\"e").unwrap(), [&b"a"[..], b"b c", b"d\"e"]);
        assert_eq!(words(b"\"a \"\"b\"\"\" c").unwrap(), [&b"a \"b\""[..], b"c"]);
        for bad in ["\"a", "\"a\"b", "\"\"", "a \""] {
            assert_eq!(words(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(words(b" ").unwrap(), Vec::<Vec<u8>>::new());
    }
}
