//! What the log says of commands that were not done, and of how a session ended.
//!
//! Logins and transfers that fail have lines of their own, with what only they know; everything else that is
//! answered with 4xx or 5xx is told here: who probes the server, and why a client does not get on, is seen in one place.

use millrace_ftp::reply::{Replies, Reply, code};
use millrace_ftp::session::{Answer, Input, commands};
use millrace_log as log;
use millrace_metrics::Verb;
use millrace_runtime::worker::Core;
use millrace_vfs::FileError;

use super::scene::Identity;

/// Commands whose arguments are not shown.
pub(super) const SECRET: [&str; 5] = ["PASS", "ACCT", "INTERNALSHUTDOWN", "SITE GPASS", "SITE PSWD"];

/// What is shown in place of what may be a password.
pub(super) const HIDDEN: &[u8] = b"***";

/// The longest verb of RFC 959. A longer word that is no command may be a password.
const LONGEST_VERB: usize = 4;

/// So much of a command is worth a line.
const SHOWN: usize = 256;

/// What replies are about.
#[derive(Debug, Clone, Copy)]
pub(super) enum About<'a> {
    /// This line.
    Line(&'a [u8]),
    /// A line that was too long to be kept.
    TooLong,
    /// A line without a meaning.
    Torn,
    /// The command that had to wait for its answer, where only its verb is known.
    Answer,
    /// Logged elsewhere.
    Other,
}

impl<'a> About<'a> {
    /// What the replies to an input will be about.
    pub(super) fn of(input: &Input<'a>) -> Self {
        match input {
            Input::Line(line) => Self::Line(line),
            Input::LineTooLong => Self::TooLong,
            Input::LineTorn => Self::Torn,
            Input::Answer(Answer::Login(_)) => Self::Other,
            Input::Answer(_) => Self::Answer,
            _ => Self::Other,
        }
    }

    /// What the replies to `next` will be about, to which this has led.
    pub(super) fn then(self, next: &Input<'_>) -> Self {
        match (self, About::of(next)) {
            (Self::Line(line), About::Answer) => Self::Line(line),
            (_, About::Answer) => Self::Answer,
            _ => Self::Other,
        }
    }

    /// What it is, as others may read it.
    pub(super) fn shown(self, verb: &'static str) -> Option<&'a [u8]> {
        Some(match self {
            Self::Line(line) => shown(line),
            Self::TooLong => b"(a line that is too long)",
            Self::Torn => b"(a line with Telnet options that have no end)",
            Self::Answer => verb.as_bytes(),
            Self::Other => return None,
        })
    }
}

impl Identity<'_> {
    /// Tells in the system's own words what went wrong with a file: the client is told only that it did.
    pub(super) fn tell_failure(&self, core: &mut Core, about: About<'_>, input: &Input<'_>) {
        if let Input::Answer(
            Answer::Failed(FileError::Io(error)) | Answer::FailedAt(_, FileError::Io(error)),
        ) = input
        {
            let command = String::from_utf8_lossy(about.shown(self.session.verb()).unwrap_or_default());
            let text = format!("{command} failed: {error}");
            self.log(core, log::Event::Warning { text: &text });
        }
    }

    /// Tells of replies that say no.
    pub(super) fn tell_refusals(&self, core: &mut Core, about: About<'_>, replies: &Replies) {
        let says_no = |reply: &&Reply| reply.code() >= 400 && reply.code() != code::SERVICE_CLOSING;
        for reply in replies.iter().filter(says_no) {
            let Some(command) = about.shown(self.session.verb()) else { return };
            self.log(core, log::Event::Declined { command, code: reply.code(), text: reply.text() });
        }
    }
}

/// Which command the replies to an input answer.
#[derive(Debug, Clone, Copy)]
pub(super) enum Answered {
    /// This one.
    Command(Verb),
    /// The one that has waited for an answer.
    Waiting,
    /// That of the transfer; a further reply answers the `ABOR` that ended it.
    Transfer,
    /// None: the server speaks of itself.
    None,
}

impl Answered {
    /// Returns the command that the replies to an input will answer.
    pub(super) fn by(input: &Input<'_>) -> Self {
        match input {
            Input::Line(line) | Input::Refused(line, _) => {
                let end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
                Self::Command(Verb::of(&line[..end]))
            }
            Input::LineTooLong | Input::LineTorn => Self::Command(Verb::OTHER),
            // A wrong password is answered after a while.
            Input::Answer(_) | Input::Deadline => Self::Waiting,
            Input::TransferEnded(_) => Self::Transfer,
            _ => Self::None,
        }
    }
}

impl Identity<'_> {
    /// Counts the replies that end a command. `transferring` is that of the last transfer.
    pub(super) fn count_replies(
        &self,
        core: &Core,
        answered: Answered,
        transferring: Verb,
        replies: &Replies,
    ) {
        let ends =
            |reply: &&Reply| (200..600).contains(&reply.code()) && reply.code() != code::SERVICE_CLOSING;
        for (place, reply) in replies.iter().filter(ends).enumerate() {
            let verb = match answered {
                Answered::None => return,
                Answered::Command(verb) => verb,
                Answered::Transfer if place == 0 => transferring,
                Answered::Transfer => Verb::of(b"ABOR"),
                Answered::Waiting => Verb::of(self.session.verb().as_bytes()),
            };
            core.metrics.add_command(verb, reply.code());
        }
    }
}

/// How a session ended that the server ends: by its last reply.
pub(super) fn parting(replies: &Replies) -> Option<Box<str>> {
    let last = replies.iter().last()?;
    Some(match last.code() {
        code::GOODBYE => "quit".into(),
        _ => String::from_utf8_lossy(last.text()).into(),
    })
}

/// A line as it may be read by others: without a password, also where its command is spelt so that it is none, and not
/// for ever.
pub(super) fn shown(line: &[u8]) -> &[u8] {
    match end_of_secret(line) {
        Some(0) => HIDDEN,
        end => &line[..line.len().min(end.unwrap_or(SHOWN))],
    }
}

/// Returns whether a line has an argument that is not shown.
pub(super) fn has_secret(line: &[u8]) -> bool {
    end_of_secret(line).is_some_and(|end| end < line.len())
}

/// Where what is shown of a line ends, unless all of it may be shown.
fn end_of_secret(line: &[u8]) -> Option<usize> {
    SECRET.iter().find_map(|secret| end_of(secret, line)).or_else(|| end_of_unknown(line))
}

/// The same of a line that is no command: a password may have been typed into it, with a verb or without.
fn end_of_unknown(line: &[u8]) -> Option<usize> {
    let (verb, end) = word(line, 0)?;
    if verb.eq_ignore_ascii_case(b"SITE") {
        let (of_site, _) = word(line, end)?;
        return commands::find_of_site(of_site).is_none().then_some(end);
    }
    let is_verb = verb.len() <= LONGEST_VERB && verb.iter().all(u8::is_ascii_alphabetic);
    match commands::find(verb) {
        Some(_) => None,
        None if is_verb => Some(end),
        None => Some(0),
    }
}

/// The first word of a line from `from` on, and where it ends.
fn word(line: &[u8], from: usize) -> Option<(&[u8], usize)> {
    let rest = &line[from..];
    let start = from + rest.iter().position(|byte| !is_blank(*byte))?;
    let length = line[start..].iter().position(|byte| is_blank(*byte)).unwrap_or(line.len() - start);
    Some((&line[start..start + length], start + length))
}

/// Where the words of a command end that a line begins with, whatever stands before and between them.
fn end_of(command: &str, line: &[u8]) -> Option<usize> {
    let mut rest = line;
    for word in command.split(' ') {
        rest = &rest[rest.iter().position(|byte| !is_blank(*byte))?..];
        let (said, behind) = rest.split_at_checked(word.len())?;
        if !said.eq_ignore_ascii_case(word.as_bytes()) || behind.first().is_some_and(|next| !is_blank(*next))
        {
            return None;
        }
        rest = behind;
    }
    Some(line.len() - rest.len())
}

fn is_blank(byte: u8) -> bool {
    byte <= b' ' || byte == 0x7f
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        for (line, expected) in [
            (&b"RETR a b"[..], &b"RETR a b"[..]),
            (b"PASS secret", b"PASS"),
            (b"pass secret", b"pass"),
            (b"ACCT 123456", b"ACCT"),
            (b"INTERNALSHUTDOWN secret", b"INTERNALSHUTDOWN"),
            (b"site gpass secret", b"site gpass"),
            (b"SITE PSWD old new", b"SITE PSWD"),
            (b"PASSX secret", b"***"),
            (b"PAS secret", b"PAS"),
            (b"PASS=secret", b"***"),
            (b"secret", b"***"),
            (b"Tr0u", b"***"),
            (b"GET / HTTP/1.1", b"GET"),
            (b"NOPE", b"NOPE"),
            (b"XPWD x", b"XPWD x"),
            (b"SITE PASWD secret", b"SITE"),
            (b" PASS secret", b" PASS"),
            (b"PASS\tsecret", b"PASS"),
            (b"\0 pass \x01secret", b"\0 pass"),
            (b"SITE  GPASS\tsecret", b"SITE  GPASS"),
            (b"SITE CHMOD 644 f", b"SITE CHMOD 644 f"),
            (b"SITE", b"SITE"),
            (b" ", b" "),
            (b"", b""),
        ] {
            assert_eq!(shown(line), expected);
            assert_eq!(has_secret(line), expected == HIDDEN || expected.len() < line.len());
        }
        assert_eq!(shown(&[b"RETR ", &[b'x'; 4096][..]].concat()).len(), SHOWN);
    }
}
