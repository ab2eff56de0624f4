//! Names as parts of keys: a key is text without control characters, a name is any bytes.
//!
//! A name that is such text is its own part of a key, so that other tools see the same names. Control characters, bytes
//! that are no UTF-8 and the backslash (a slash to some stores) are written as `%XX`. A `%` that would then be misread gets `25` after it: the name `%0A` has
//! the key `%250A`. Each name has one key; a key that no name has (`a//b`, `%C3%A9`) is not shown.

use std::fmt::Write as _;

use millrace_vfs::VirtualPath;

/// The longest key, in bytes.
pub(crate) const LONGEST: usize = 1024;

/// Returns whether a byte is written as `%XX` at all.
fn is_escaped(byte: u8) -> bool {
    byte != 0 && (!(0x20..0x7f).contains(&byte) || byte == b'\\')
}

/// The value of two upper-case hexadecimal digits.
fn pair(digits: &[u8]) -> Option<u8> {
    let is_upper = |digit: &u8| matches!(digit, b'0'..=b'9' | b'A'..=b'F');
    let digits = digits.get(..2).filter(|digits| digits.iter().all(is_upper))?;
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Returns whether what follows a `%` makes it look like an escape, with any number of `25` in between.
fn looks_escaped(mut rest: &[u8]) -> bool {
    while let Some(after) = rest.strip_prefix(b"25") {
        rest = after;
    }
    pair(rest).is_some_and(is_escaped)
}

/// Returns the part of a key that stands for a name.
pub(crate) fn encode(name: &[u8]) -> String {
    let mut key = String::with_capacity(name.len());
    let mut position = 0;
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            position += character.len_utf8();
            match character {
                '%' if looks_escaped(&name[position..]) => key.push_str("%25"),
                '\0'..='\x1f' | '\x7f' | '\\' => escape(&mut key, character as u8),
                _ => key.push(character),
            }
        }
        position += chunk.invalid().len();
        chunk.invalid().iter().for_each(|&byte| escape(&mut key, byte));
    }
    key
}

fn escape(key: &mut String, byte: u8) {
    write!(key, "%{byte:02X}").expect("text takes text");
}

/// Returns the name that a part of a key stands for, unless no name has it.
pub(crate) fn decode(key: &str) -> Option<Vec<u8>> {
    let bytes = key.as_bytes();
    let mut name = Vec::with_capacity(bytes.len());
    let mut position = 0;
    while let Some(&byte) = bytes.get(position) {
        let rest = &bytes[position + 1..];
        match (byte, pair(rest).filter(|&value| is_escaped(value))) {
            (b'%', Some(value)) => {
                name.push(value);
                position += 3;
            }
            (b'%', None) if rest.strip_prefix(b"25").is_some_and(looks_escaped) => {
                name.push(b'%');
                position += 3;
            }
            _ => {
                name.push(byte);
                position += 1;
            }
        }
    }
    let is_name = !matches!(&*name, b"" | b"." | b"..")
        && name.len() <= VirtualPath::MAX_NAME
        && !name.iter().any(|&byte| byte == b'/' || byte == 0);
    (is_name && encode(&name) == key).then_some(name)
}

/// Returns the key of a path beneath a prefix, which is empty or ends in a slash.
pub(crate) fn key(prefix: &str, path: &VirtualPath) -> String {
    let mut key = prefix.to_owned();
    for (at, name) in path.components().enumerate() {
        if at > 0 {
            key.push('/');
        }
        key.push_str(&encode(name));
    }
    key
}

/// As [`key`], of what lies in a folder: the prefix of its entries, which is the key of its marker too.
pub(crate) fn folder_key(prefix: &str, path: &VirtualPath) -> String {
    let mut key = key(prefix, path);
    if !path.is_root() {
        key.push('/');
    }
    key
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_is_its_own_key_and_other_bytes_are_escaped() {
        for (name, key) in [
            (&b"report 100%.txt"[..], "report 100%.txt"),
            ("é".as_bytes(), "é"),
            (b"a\r\nb", "a%0D%0Ab"),
            (b"\xff\xfe", "%FF%FE"),
            (b"%0A", "%250A"),
            (b"%250A", "%25250A"),
            (b"%25", "%25"),
            (b"%41", "%41"),
        ] {
            assert_eq!(encode(name), key);
            assert_eq!(decode(key).as_deref(), Some(name));
        }
        for key in ["", ".", "..", "%C3%A9", "a/b"] {
            assert_eq!(decode(key), None, "{key}");
        }
    }

    proptest! {
        #[test]
        fn every_name_comes_back(name in prop::collection::vec(prop::sample::select(&b"%%%250AFx\n\xff\xc3\xa9"[..]), 1..20)) {
            prop_assert_eq!(decode(&encode(&name)), Some(name));
        }

        #[test]
        fn every_key_is_that_of_its_name_or_of_none(key in "[%250AFC39x]{1,16}") {
            if let Some(name) = decode(&key) {
                prop_assert_eq!(encode(&name), key);
            }
        }
    }
}
