//! Keys of a terminal, as the bytes that they send.

/// A key that means something here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Backspace,
    /// Ctrl-C, and the end of input.
    Quit,
}

/// The keys in what was read at once. A sequence that means nothing here is passed over.
pub(super) fn parse(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let [first, rest @ ..] = bytes {
        bytes = rest;
        let key = match (first, rest) {
            (0x1b, [b'[' | b'O', rest @ ..]) => {
                let end = rest.iter().position(|byte| (0x40..=0x7e).contains(byte));
                let (sequence, rest) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
                bytes = rest;
                match sequence {
                    b"A" => Key::Up,
                    b"B" => Key::Down,
                    b"5~" => Key::PageUp,
                    b"6~" => Key::PageDown,
                    b"H" | b"1~" | b"7~" => Key::Home,
                    b"F" | b"4~" | b"8~" => Key::End,
                    _ => continue,
                }
            }
            (0x1b, _) => Key::Escape,
            (b'\r' | b'\n', _) => Key::Enter,
            (0x7f | 0x08, _) => Key::Backspace,
            (0x03 | 0x04, _) => Key::Quit,
            (0..0x20, _) => continue,
            (0x20..0x7f, _) => Key::Char(char::from(*first)),
            _ => match character(*first, rest) {
                Some((char, more)) => {
                    bytes = &rest[more..];
                    Key::Char(char)
                }
                None => continue,
            },
        };
        keys.push(key);
    }
    keys
}

/// A character of more than one byte, and how many follow the first.
fn character(first: u8, rest: &[u8]) -> Option<(char, usize)> {
    let more = match first {
        0xc0..0xe0 => 1,
        0xe0..0xf0 => 2,
        _ => 3,
    };
    let bytes: Vec<u8> = [first].iter().chain(rest.get(..more)?).copied().collect();
    std::str::from_utf8(&bytes).ok()?.chars().next().map(|char| (char, more))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_keys_and_unknown_ones_are_passed_over() {
        for (bytes, keys) in [
            (&b"q"[..], &[Key::Char('q')][..]),
            (b"\x1b[A\x1b[B\x1bOA", &[Key::Up, Key::Down, Key::Up]),
            (b"\x1b[5~\x1b[6~", &[Key::PageUp, Key::PageDown]),
            (b"\x1b", &[Key::Escape]),
            (b"\x1b[1;5Cx", &[Key::Char('x')]),
            (b"\x1b[1", &[]),
            ("é/".as_bytes(), &[Key::Char('é'), Key::Char('/')]),
            (b"\xc3", &[]),
            (b"\r\x7f\x03", &[Key::Enter, Key::Backspace, Key::Quit]),
        ] {
            assert_eq!(parse(bytes), keys, "{bytes:?}");
        }
    }
}
