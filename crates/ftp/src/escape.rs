//! File names where a line is one line: listings of every form, and the text of replies.
//!
//! A name may hold any byte but `/` and NUL; a carriage return, a line feed or an escape in one would end
//! the line early or drive a terminal. Such a byte is written as a backslash and three octal digits
//! (`\012`), as `ls -b` and `/proc/mounts` do. So that nothing can be confused with it, a backslash *that
//! begins what would read as such an escape* is itself written `\134`; every other name, with or without
//! backslashes, stands there byte for byte. [`unescape_name`] is the exact inverse.
//!
//! Bytes from 0x80 up are left alone, as they are UTF-8, but for characters that are controls as well: those of the
//! second set of controls (U+0080 to U+009F, among them the next line and the beginning of a terminal's sequences), and the
//! separators of lines and paragraphs (U+2028, U+2029). `PWD` and `MKD` double the quote (RFC 959,
//! appendix II). Telnet's doubling of 0xFF belongs to [`crate::line`].

use std::borrow::Cow;

/// Appends a file name, control characters escaped.
pub fn escape_name(name: &[u8], out: &mut Vec<u8>) {
    if !needs_a_look(name) {
        return out.extend_from_slice(name);
    }
    let mut rest = name;
    while let Some((&byte, after)) = rest.split_first() {
        let control = control_at(rest);
        if control > 0 {
            rest[..control].iter().for_each(|&byte| push_octal(byte, out));
            rest = &rest[control..];
            continue;
        }
        match byte == b'\\' && escape_at(rest).is_some() {
            true => push_octal(byte, out),
            false => out.push(byte),
        }
        rest = after;
    }
}

/// Appends what [`escape_name`] made `text` from.
pub fn unescape_name(mut text: &[u8], out: &mut Vec<u8>) {
    while let Some(backslash) = memchr::memchr(b'\\', text) {
        out.extend_from_slice(&text[..backslash]);
        text = &text[backslash..];
        let length = match escape_at(text) {
            Some((bytes, count)) => {
                out.extend_from_slice(&bytes[..count]);
                4 * count
            }
            None => {
                out.push(b'\\');
                1
            }
        };
        text = &text[length..];
    }
    out.extend_from_slice(text);
}

/// Returns what [`escape_name`] made `text` from: the path that a client means which names what a listing showed it.
pub fn unescaped(text: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\\', text).is_none() {
        return Cow::Borrowed(text);
    }
    let mut name = Vec::with_capacity(text.len());
    unescape_name(text, &mut name);
    Cow::Owned(name)
}

/// Appends a path as `PWD` (257) and `MKD` show it: in quotes, with quotes doubled and control characters
/// escaped.
pub fn quote_path(path: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let mut parts = path.split(|&byte| byte == b'"');
    escape_name(parts.next().unwrap_or_default(), out);
    for part in parts {
        out.extend_from_slice(b"\"\"");
        escape_name(part, out);
    }
    out.push(b'"');
}

/// Reads back what [`quote_path`] wrote at the beginning of `text`: the path, and what follows the closing
/// quote.
pub fn unquote_path(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut rest = text.strip_prefix(b"\"")?;
    let mut path = Vec::new();
    loop {
        let quote = memchr::memchr(b'"', rest)?;
        unescape_name(&rest[..quote], &mut path);
        rest = &rest[quote + 1..];
        match rest.strip_prefix(b"\"") {
            Some(after) => {
                path.push(b'"');
                rest = after;
            }
            None => return Some((path, rest)),
        }
    }
}

/// Returns true if a byte would break a line or drive a terminal.
fn is_control(byte: u8) -> bool {
    byte < 0x20 || byte == 0x7f
}

/// Returns of how many bytes the control character at the beginning of `name` is; 0 where there is none.
fn control_at(name: &[u8]) -> usize {
    match name {
        [byte, ..] if is_control(*byte) => 1,
        [0xc2, 0x80..=0x9f, ..] => 2,
        [0xe2, 0x80, 0xa8 | 0xa9, ..] => 3,
        _ => 0,
    }
}

/// Without an early exit, so that the compiler makes vector instructions of it.
fn needs_a_look(name: &[u8]) -> bool {
    name.iter().fold(false, |found, &byte| {
        found | is_control(byte) | (byte == b'\\') | (byte == 0xc2) | (byte == 0xe2)
    })
}

/// Returns the bytes that escapes at the beginning of `text` stand for, and how many, where we would write them.
fn escape_at(text: &[u8]) -> Option<([u8; 3], usize)> {
    let mut bytes = [0; 3];
    for (at, escape) in text.chunks_exact(4).take(3).enumerate() {
        let [b'\\', high @ b'0'..=b'3', middle @ b'0'..=b'7', low @ b'0'..=b'7'] = escape else { break };
        bytes[at] = (high - b'0') << 6 | (middle - b'0') << 3 | (low - b'0');
        let count = at + 1;
        if control_at(&bytes[..count]) == count || bytes[..count] == *b"\\" {
            return Some((bytes, count));
        }
    }
    None
}

fn push_octal(byte: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(&[b'\\', b'0' + (byte >> 6), b'0' + (byte >> 3 & 7), b'0' + (byte & 7)]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn escaped(name: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        escape_name(name, &mut out);
        out
    }

    #[test]
    fn only_what_breaks_a_line_is_escaped() {
        assert_eq!(escaped(b"a b\\c \"d\" \\999 \xff\xc3\xa9"), b"a b\\c \"d\" \\999 \xff\xc3\xa9");
        assert_eq!(escaped(b"a\r\nb\x1b[1m\x7f\0"), b"a\\015\\012b\\033[1m\\177\\000");
    }

    #[test]
    fn controls_of_more_than_one_byte_are_escaped() {
        assert_eq!(escaped("a\u{85}b\u{9b}1m".as_bytes()), b"a\\302\\205b\\302\\2331m");
        assert_eq!(escaped("a\u{2028}b\u{2029}".as_bytes()), b"a\\342\\200\\250b\\342\\200\\251");
        assert_eq!(escaped("\u{a0}\u{2014}".as_bytes()), "\u{a0}\u{2014}".as_bytes());
        // What only looks so.
        assert_eq!(escaped(b"\\302\\205"), b"\\134302\\205");
        assert_eq!(escaped(b"\\302\\240 \\205"), b"\\302\\240 \\205");
    }

    #[test]
    fn a_name_that_looks_escaped_is_not_confused_with_one_that_is() {
        assert_eq!(escaped(b"a\n"), b"a\\012");
        assert_eq!(escaped(b"a\\012"), b"a\\134012");
        assert_eq!(escaped(b"a\\134012"), b"a\\134134012");
        assert_eq!(escaped(b"\\\n"), b"\\\\012");
    }

    #[test]
    fn quotes_in_paths_are_doubled() {
        let mut out = Vec::new();
        quote_path(b"/a \"b\"\n", &mut out);
        assert_eq!(out, b"\"/a \"\"b\"\"\\012\"");
        assert_eq!(unquote_path(b"\"/a\" is it"), Some((b"/a".to_vec(), &b" is it"[..])));
        assert_eq!(unquote_path(b"\"/a\"\""), None);
    }

    /// Names dense in what could go wrong.
    fn name() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(
            prop_oneof![
                prop::sample::select(&b"\\01234567\n\r\x1b\x7f\"a\xc2\x85\xe2\x80\xa8"[..]),
                any::<u8>()
            ],
            0..24,
        )
    }

    /// Names of escapes, and of what stands in them.
    fn name_of_escapes() -> impl Strategy<Value = Vec<u8>> {
        const PARTS: [&[u8]; 9] =
            [b"\\302", b"\\205", b"\\342", b"\\200", b"\\250", b"\\134", b"\xc2\x85", b"\xe2\x80\xa8", b"\n"];
        let part = prop::sample::select(&PARTS[..]);
        prop::collection::vec(part, 0..6).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn a_name_comes_back(name in prop_oneof![name(), name_of_escapes()]) {
            let text = escaped(&name);
            prop_assert!((0..text.len()).all(|at| control_at(&text[at..]) == 0));
            prop_assert_eq!(&*unescaped(&text), &name[..]);
        }

        #[test]
        fn a_path_comes_back_from_its_quotes(path in name(), rest in "[^\"]{0,8}") {
            let mut text = Vec::new();
            quote_path(&path, &mut text);
            text.extend_from_slice(rest.as_bytes());
            prop_assert_eq!(unquote_path(&text), Some((path, rest.as_bytes())));
        }
    }
}
