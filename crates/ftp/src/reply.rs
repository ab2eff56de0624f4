//! Replies: three digits and a text (RFC 959 section 4.2).
//!
//! Whatever a text holds, a reply is written as well-formed lines: control characters are escaped and
//! Telnet's IAC is doubled in [`Reply::write`], the one place that puts a reply on the wire, so a file
//! name can neither end a line nor forge the next one.

use std::borrow::Cow;

/// A reply code of RFC 959 section 4.2 and its successors, by its name here.
#[allow(missing_docs)] // The names are the documentation.
pub mod code {
    pub const RESTART_MARKER: u16 = 110;
    pub const DATA_ALREADY_OPEN: u16 = 125;
    pub const OPENING_DATA: u16 = 150;
    pub const OK: u16 = 200;
    pub const SUPERFLUOUS: u16 = 202;
    pub const SYSTEM_STATUS: u16 = 211;
    pub const DIRECTORY_STATUS: u16 = 212;
    pub const FILE_STATUS: u16 = 213;
    pub const HELP: u16 = 214;
    pub const SYSTEM_NAME: u16 = 215;
    pub const READY: u16 = 220;
    pub const GOODBYE: u16 = 221;
    pub const CLOSING_DATA: u16 = 226;
    pub const PASSIVE: u16 = 227;
    pub const LONG_PASSIVE: u16 = 228;
    pub const EXTENDED_PASSIVE: u16 = 229;
    pub const LOGGED_IN: u16 = 230;
    pub const AUTHORIZED: u16 = 232;
    pub const FILE_ACTION_OK: u16 = 250;
    pub const MD5: u16 = 251;
    pub const MULTIPLE_MD5: u16 = 252;
    pub const PATH_CREATED: u16 = 257;
    pub const SECURITY_ACCEPTED: u16 = 234;
    pub const NEED_PASSWORD: u16 = 331;
    pub const NEED_ACCOUNT: u16 = 332;
    pub const NEED_MORE: u16 = 350;
    pub const SERVICE_CLOSING: u16 = 421;
    pub const NO_DATA_CONNECTION: u16 = 425;
    pub const TRANSFER_ABORTED: u16 = 426;
    pub const FILE_BUSY: u16 = 450;
    pub const LOCAL_ERROR: u16 = 451;
    pub const NO_SPACE: u16 = 452;
    pub const UNKNOWN_COMMAND: u16 = 500;
    pub const BAD_ARGUMENT: u16 = 501;
    pub const NOT_IMPLEMENTED: u16 = 502;
    pub const BAD_SEQUENCE: u16 = 503;
    pub const BAD_PARAMETER: u16 = 504;
    pub const BAD_LONG_FAMILY: u16 = 521;
    pub const DATA_NEEDS_PROTECTION: u16 = 521;
    pub const BAD_FAMILY: u16 = 522;
    pub const DATA_NOT_SECURED: u16 = 522;
    pub const NOT_LOGGED_IN: u16 = 530;
    pub const BAD_COMMAND_LEVEL: u16 = 533;
    pub const POLICY: u16 = 534;
    pub const BAD_PROTECTION: u16 = 536;
    pub const BAD_COMMAND_PROTECTION: u16 = 537;
    pub const FILE_UNAVAILABLE: u16 = 550;
    pub const OVER_QUOTA: u16 = 552;
    pub const BAD_NAME: u16 = 553;
    pub const BAD_RESTART: u16 = 554;
}

/// One reply, of one line or several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    code: u16,
    /// The text of the last line, which in a reply of one line is the only one.
    text: Cow<'static, [u8]>,
    made: Made,
    /// The lines before the last, in a reply of several: the first stands behind the code and a hyphen,
    /// the others are written as they are.
    before: Vec<Vec<u8>>,
}

/// The fixed parts of a text, which have translations.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Made {
    /// All of one that was not made, nothing of one that was.
    Plainly,
    /// These words, each where it stands.
    OfParts(Vec<(usize, &'static str)>),
    /// The fixed text around the variable parts.
    ByFilling(&'static str, Vec<Vec<u8>>),
}

/// A part of a text that is made for one reply.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part<'a> {
    /// Words that are always the same.
    Fixed(&'static str),
    /// A variable part: a path, a number.
    Own(&'a [u8]),
}

impl Reply {
    /// A reply of one line with a fixed text.
    pub const fn new(code: u16, text: &'static str) -> Self {
        Self { code, text: Cow::Borrowed(text.as_bytes()), made: Made::Plainly, before: Vec::new() }
    }

    /// A reply of one line with a text made now.
    pub fn owned(code: u16, text: impl Into<Vec<u8>>) -> Self {
        Self { code, text: Cow::Owned(text.into()), made: Made::Plainly, before: Vec::new() }
    }

    /// A reply of one line: a sentence with a value for each `{}` in it.
    pub(crate) fn filled<const N: usize>(
        code: u16,
        sentence: &'static str,
        values: [impl Into<Vec<u8>>; N],
    ) -> Self {
        let values: Vec<Vec<u8>> = values.into_iter().map(Into::into).collect();
        let text = fill(sentence, &values);
        Self { made: Made::ByFilling(sentence, values), ..Self::owned(code, text) }
    }

    /// The same under another code.
    pub(crate) fn coded(self, code: u16) -> Self {
        Self { code, ..self }
    }

    /// A reply of one line, some of which is always the same and has translations.
    pub(crate) fn of(code: u16, parts: &[Part<'_>]) -> Self {
        let (mut text, mut fixed) = (Vec::new(), Vec::new());
        for part in parts {
            match *part {
                Part::Fixed(words) => {
                    fixed.push((text.len(), words));
                    text.extend_from_slice(words.as_bytes());
                }
                Part::Own(bytes) => text.extend_from_slice(bytes),
            }
        }
        Self { made: Made::OfParts(fixed), ..Self::owned(code, text) }
    }

    /// A reply of several lines: `first`, then `lines` as they are, then `last`.
    ///
    /// Lines that begin with a digit get a space before them, so that none can be taken for the end.
    pub fn lines(
        code: u16,
        first: impl Into<Vec<u8>>,
        lines: impl IntoIterator<Item = Vec<u8>>,
        last: &'static str,
    ) -> Self {
        Self::new(code, last).behind(std::iter::once(first.into()).chain(lines))
    }

    /// The same reply behind lines, of which the first stands behind the code.
    pub fn behind(self, lines: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let mut before: Vec<Vec<u8>> = lines.into_iter().collect();
        for line in before.iter_mut().skip(1).filter(|line| line.first().is_some_and(u8::is_ascii_digit)) {
            line.insert(0, b' ');
        }
        Self { before, ..self }
    }

    /// `110 MARK marker = position`, with the sender's marker and ours (RFC 959 section 4.2 fixes the text).
    pub fn marker(marker: &[u8], position: u64) -> Self {
        Self::owned(code::RESTART_MARKER, [b"MARK ", marker, format!(" = {position}").as_bytes()].concat())
    }

    /// The three digits.
    pub fn code(&self) -> u16 {
        self.code
    }

    /// The text of the last (or only) line.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The same reply with the fixed text of its last line translated, where there is a translation.
    pub(crate) fn translated(mut self, words: impl Fn(&str) -> Option<&'static str>) -> Self {
        if let Cow::Borrowed(text) = self.text {
            let text = std::str::from_utf8(text).ok().and_then(words);
            return Self { text: text.map_or(self.text, |text| Cow::Borrowed(text.as_bytes())), ..self };
        }
        self.text = Cow::Owned(match std::mem::replace(&mut self.made, Made::Plainly) {
            Made::Plainly => return self,
            Made::ByFilling(sentence, values) => fill(words(sentence).unwrap_or(sentence), &values),
            Made::OfParts(parts) => {
                let (mut text, mut copied) = (Vec::new(), 0);
                for (at, fixed) in parts {
                    text.extend_from_slice(&self.text[copied..at]);
                    text.extend_from_slice(words(fixed).unwrap_or(fixed).as_bytes());
                    copied = at + fixed.len();
                }
                text.extend_from_slice(&self.text[copied..]);
                text
            }
        });
        self
    }

    /// Returns true if it only announces what follows (1xx): not the end of the command.
    pub fn is_preliminary(&self) -> bool {
        self.code < 200
    }

    /// Appends the reply as it goes over the control connection.
    pub fn write(&self, out: &mut Vec<u8>) {
        let digits = [
            b'0' + (self.code / 100) as u8,
            b'0' + (self.code / 10 % 10) as u8,
            b'0' + (self.code % 10) as u8,
        ];
        for (index, line) in self.before.iter().enumerate() {
            if index == 0 {
                out.extend_from_slice(&digits);
                out.push(b'-');
            }
            write_text(line, out);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(&digits);
        out.push(b' ');
        write_text(&self.text, out);
        out.extend_from_slice(b"\r\n");
    }
}

/// A sentence with each `{}` in it replaced by its value.
fn fill(sentence: &str, values: &[Vec<u8>]) -> Vec<u8> {
    let mut text = Vec::with_capacity(sentence.len() + 32);
    let mut values = values.iter();
    for (number, words) in sentence.split("{}").enumerate() {
        if number > 0 {
            text.extend_from_slice(values.next().map_or(b"", |value| value));
        }
        text.extend_from_slice(words.as_bytes());
    }
    text
}

/// Text with what could end or forge a line made harmless: control characters become `?`'s of their
/// kind (`\n` as `\012`), IAC is doubled (RFC 854).
fn write_text(text: &[u8], out: &mut Vec<u8>) {
    if text.iter().all(|&byte| byte >= b' ' && byte != 0x7f && byte != 0xff) {
        out.extend_from_slice(text);
        return;
    }
    for &byte in text {
        match byte {
            0xff => out.extend_from_slice(&[0xff, 0xff]),
            b'\t' => out.push(b'\t'),
            0..b' ' | 0x7f => {
                out.push(b'\\');
                out.extend([byte >> 6, byte >> 3 & 7, byte & 7].map(|digit| b'0' + digit));
            }
            _ => out.push(byte),
        }
    }
}

/// The replies of one step: usually one, sometimes none or two.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Replies {
    first: Option<Reply>,
    more: Vec<Reply>,
}

impl Replies {
    /// No reply.
    pub const NONE: Self = Self { first: None, more: Vec::new() };

    /// Adds a reply behind the others.
    pub fn push(&mut self, reply: Reply) {
        match self.first {
            None => self.first = Some(reply),
            Some(_) => self.more.push(reply),
        }
    }

    /// The replies in the order in which they must be sent.
    pub fn iter(&self) -> impl Iterator<Item = &Reply> {
        self.first.iter().chain(&self.more)
    }

    /// Changes each reply (a translation).
    pub(crate) fn map(self, change: impl Fn(Reply) -> Reply) -> Self {
        Self { first: self.first.map(&change), more: self.more.into_iter().map(&change).collect() }
    }

    /// Returns true if there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Appends them all as they go over the control connection.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|reply| reply.write(out));
    }
}

impl From<Reply> for Replies {
    fn from(reply: Reply) -> Self {
        Self { first: Some(reply), more: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(reply: &Reply) -> Vec<u8> {
        let mut out = Vec::new();
        reply.write(&mut out);
        out
    }

    #[test]
    fn a_line_is_code_space_text() {
        assert_eq!(written(&Reply::new(200, "Done.")), b"200 Done.\r\n");
    }

    #[test]
    fn several_lines_end_with_the_code_and_a_space() {
        let reply = Reply::lines(211, "Features:", [b" SIZE".to_vec(), b"211 forged".to_vec()], "End");
        assert_eq!(written(&reply), b"211-Features:\r\n SIZE\r\n 211 forged\r\n211 End\r\n");
    }

    #[test]
    fn only_the_fixed_parts_of_a_composed_text_are_translated() {
        let reply = Reply::of(550, &[Part::Own(b"no: "), Part::Fixed("no"), Part::Fixed(".")]);
        assert_eq!(written(&reply), b"550 no: no.\r\n");
        let german = |text: &str| (text == "no").then_some("nein");
        assert_eq!(written(&reply.translated(german)), b"550 no: nein.\r\n");
        assert_eq!(written(&Reply::owned(550, "no").translated(german)), b"550 no\r\n");
        assert_eq!(written(&Reply::new(550, "no").translated(german)), b"550 nein\r\n");
    }

    #[test]
    fn a_sentence_is_filled_in_any_language() {
        let german = |text: &str| (text == "{} of {} bytes.").then_some("von {1}: {} Bytes, {}");
        let reply = Reply::filled(200, "{} of {} bytes.", ["{}", "2"]);
        assert_eq!(written(&reply), b"200 {} of 2 bytes.\r\n");
        assert_eq!(written(&reply.translated(german)), b"200 von {1}: {} Bytes, 2\r\n");
        assert_eq!(written(&Reply::filled(200, "{}.", ["1"]).translated(german)), b"200 1.\r\n");
    }

    #[test]
    fn a_file_name_cannot_forge_a_reply() {
        let reply = Reply::owned(257, &b"\"a\r\n226 done\x1b\xff\""[..]);
        assert_eq!(written(&reply), b"257 \"a\\015\\012226 done\\033\xff\xff\"\r\n");
    }
}
