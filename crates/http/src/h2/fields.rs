//! The fields of a request, a response or trailers, as one block has them (RFC 9113 sections 8.2 and 8.3).
//!
//! The invariant: fields that pass [`Fields::check`] can be written as HTTP/1.1 without changing their meaning. Names
//! are tokens in lower case, values contain no line end, and no field is about the connection.

use std::ops::Range;

use crate::request::decimal;

/// What a field counts besides its name and value (RFC 9113 section 10.5.1).
const OVERHEAD: usize = 32;

/// How many times as long as is allowed fields are still counted.
const FLOOD: usize = 4;

/// A pseudo-header field (RFC 9113 section 8.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the fields' own.
pub enum Pseudo {
    Method,
    Scheme,
    Path,
    Authority,
    Status,
}

const PSEUDO: [(&[u8], Pseudo); 5] = [
    (b":method", Pseudo::Method),
    (b":scheme", Pseudo::Scheme),
    (b":path", Pseudo::Path),
    (b":authority", Pseudo::Authority),
    (b":status", Pseudo::Status),
];

/// What a block of fields stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Request,
    Response,
    Trailers,
}

/// A fault in fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    Malformed,
    TooLarge,
}

/// The fields of one block. The memory is used again for the next one.
#[derive(Debug, Default, Clone)]
pub struct Fields {
    text: Vec<u8>,
    lines: Vec<Line>,
    pseudo: [Option<Range<u32>>; PSEUDO.len()],
    content_length: Option<u64>,
    /// As RFC 9113 section 10.5.1 counts, and the most that is kept.
    size: usize,
    max_size: usize,
    flaw: Option<Flaw>,
}

/// A name, and the value behind it.
#[derive(Debug, Clone, Copy)]
struct Line {
    start: u32,
    name: u32,
    value: u32,
}

impl Fields {
    /// Keeps fields of this many bytes together (`SETTINGS_MAX_HEADER_LIST_SIZE`).
    pub fn new(max_size: usize) -> Self {
        Self { max_size, ..Self::default() }
    }

    /// The value of a pseudo-header field.
    pub fn pseudo(&self, which: Pseudo) -> Option<&[u8]> {
        let range = self.pseudo[which as usize].clone()?;
        Some(&self.text[range.start as usize..range.end as usize])
    }

    /// The status of a response.
    pub fn status(&self) -> Option<u16> {
        let text = self.pseudo(Pseudo::Status).filter(|text| text.len() == 3)?;
        decimal(text).filter(|status| *status >= 100).map(|status| status as u16)
    }

    /// Every field except pseudo-header fields, in order: name in lower case, and value.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.lines.iter().map(|line| {
            let (start, name) = (line.start as usize, (line.start + line.name) as usize);
            (&self.text[start..name], &self.text[name..name + line.value as usize])
        })
    }

    /// The value of the first field of a name in lower case.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(other, _)| *other == name.as_bytes()).map(|(_, value)| value)
    }

    /// The value of `content-length`.
    pub fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// Returns true if the fields exceeded the limit; they are incomplete then.
    pub fn is_too_large(&self) -> bool {
        self.flaw == Some(Flaw::TooLarge)
    }

    /// Forgets them all.
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.lines.clear();
        self.pseudo = Default::default();
        (self.content_length, self.size, self.flaw) = (None, 0, None);
    }

    /// Adds a field as it came. Returns whether the fields together are still worth counting.
    pub(super) fn push(&mut self, name: &[u8], value: &[u8]) -> bool {
        self.size += name.len() + value.len() + OVERHEAD;
        if self.size > self.max_size {
            self.flaw = self.flaw.or(Some(Flaw::TooLarge));
            return self.size <= FLOOD * self.max_size;
        }
        let start = self.text.len() as u32;
        let is_sound = match name.first() {
            Some(b':') => self.push_pseudo(name, value),
            _ => self.push_line(name, value, start),
        };
        if is_sound.is_none() || !is_value(value) {
            self.flaw = Some(Flaw::Malformed);
        }
        true
    }

    fn push_pseudo(&mut self, name: &[u8], value: &[u8]) -> Option<()> {
        let which = PSEUDO.iter().find(|(known, _)| *known == name)?.1;
        // They stand before all others, and once (RFC 9113 section 8.3).
        if !self.lines.is_empty() || self.pseudo[which as usize].is_some() {
            return None;
        }
        let start = self.text.len() as u32;
        self.text.extend_from_slice(value);
        self.pseudo[which as usize] = Some(start..self.text.len() as u32);
        Some(())
    }

    fn push_line(&mut self, name: &[u8], value: &[u8], start: u32) -> Option<()> {
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(value);
        self.lines.push(Line { start, name: name.len() as u32, value: value.len() as u32 });
        if name.is_empty() || !name.iter().all(|&byte| NAME[usize::from(byte)]) {
            return None;
        }
        match name {
            // Fields about one connection (RFC 9113 section 8.2.2).
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => None,
            b"te" if value != b"trailers" => None,
            b"content-length" => {
                let length = decimal(value)?;
                match self.content_length.replace(length) {
                    Some(other) if other != length => None,
                    _ => Some(()),
                }
            }
            _ => Some(()),
        }
    }

    /// Returns whether they make up a well-formed message (RFC 9113 section 8.1.1); too large ones may not, and are told from
    /// others by [`Fields::is_too_large`].
    pub(super) fn check(&self, kind: Kind) -> bool {
        let has = |which| self.pseudo[which as usize].is_some();
        let request = [Pseudo::Method, Pseudo::Scheme, Pseudo::Path, Pseudo::Authority];
        let is_shaped = match kind {
            Kind::Trailers => self.pseudo.iter().all(Option::is_none),
            Kind::Response => self.status().is_some() && !request.into_iter().any(has),
            Kind::Request if has(Pseudo::Status) || !has(Pseudo::Method) => false,
            // It has neither scheme nor path (RFC 9113 section 8.5).
            Kind::Request if self.pseudo(Pseudo::Method) == Some(b"CONNECT") => {
                has(Pseudo::Authority) && !has(Pseudo::Scheme) && !has(Pseudo::Path)
            }
            Kind::Request => {
                has(Pseudo::Scheme) && self.pseudo(Pseudo::Path).is_some_and(|path| !path.is_empty())
            }
        };
        self.is_too_large() || is_shaped && self.flaw.is_none()
    }
}

/// Bytes that a name may hold: those of a token (RFC 9110 section 5.6.2) without capital letters.
const NAME: [bool; 256] = {
    let (mut table, mut byte) = ([false; 256], 0);
    while byte < 256 {
        let letter = byte as u8;
        table[byte] = letter.is_ascii_lowercase()
            || letter.is_ascii_digit()
            || matches!(
                letter,
                b'!' | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            );
        byte += 1;
    }
    table
};

/// Returns whether a value holds no control character, and no blank at either end (RFC 9113 section 8.2.1).
fn is_value(value: &[u8]) -> bool {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    !is_blank(value.first())
        && !is_blank(value.last())
        && value.iter().all(|&byte| (byte >= b' ' && byte != 0x7f) || byte == b'\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::new(1000);
        for (name, value) in lines {
            assert!(fields.push(name.as_bytes(), value.as_bytes()));
        }
        fields
    }

    const GET: [(&str, &str); 3] = [(":method", "GET"), (":scheme", "https"), (":path", "/")];

    #[test]
    fn malformed_requests_are_told() {
        let with = |more: &[(&str, &str)]| fields(&[&GET, more].concat()).check(Kind::Request);
        assert!(with(&[(":authority", "h"), ("te", "trailers"), ("content-length", "3"), ("x", "")]));
        for bad in [
            (":method", "GET"),
            (":status", "200"),
            (":other", "x"),
            ("Host", "h"),
            ("", "x"),
            ("a b", "x"),
            ("connection", "close"),
            ("transfer-encoding", "chunked"),
            ("te", "gzip"),
            ("a", "x\r\ny: z"),
            ("a", " x"),
            ("content-length", "+3"),
        ] {
            assert!(!with(&[bad]), "{bad:?}");
        }
        assert!(!with(&[("a", "b"), (":authority", "h")]), "behind another");
        assert!(!with(&[("content-length", "1"), ("content-length", "2")]));
        for missing in 0..3 {
            let mut some = GET.to_vec();
            some.remove(missing);
            assert!(!fields(&some).check(Kind::Request), "{missing}");
        }
        assert!(!fields(&[(":method", "GET"), (":scheme", "https"), (":path", "")]).check(Kind::Request));
        assert!(fields(&[(":method", "CONNECT"), (":authority", "h:1")]).check(Kind::Request));
        assert!(!fields(&GET).check(Kind::Trailers) && fields(&[("a", "b")]).check(Kind::Trailers));
        assert!(fields(&[(":status", "200")]).check(Kind::Response) && !fields(&GET).check(Kind::Response));
    }

    #[test]
    fn what_is_too_long_is_counted_and_not_kept() {
        let mut fields = fields(&GET);
        assert!(fields.push(b"a", &[b'x'; 900]));
        assert!(fields.is_too_large() && fields.check(Kind::Request) && fields.get("a").is_none());
        assert!(!fields.push(b"a", &[b'x'; 4000]));
        fields.clear();
        assert!(!fields.is_too_large());
    }
}
