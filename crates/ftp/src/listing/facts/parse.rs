//! Lines of facts, as this server and others wrote them.

use millrace_vfs::Timestamp;

use crate::decimal::parse_decimal;
use crate::escape::unescaped;
use crate::time;

/// The entry that a line of facts describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `file`
    File,
    /// `dir`
    Directory,
    /// `cdir`: the directory that is listed.
    Itself,
    /// `pdir`: one above it.
    Parent,
    /// `OS.unix=slink`, and what others call it.
    Link,
    /// Anything else.
    Other,
}

/// An entry, as far as its server described it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactLine {
    /// `type`
    pub kind: Option<Kind>,
    /// `size`, or the `sizd` that some servers give for directories.
    pub size: Option<u64>,
    /// `modify`
    pub modified: Option<Timestamp>,
    /// `create`
    pub created: Option<Timestamp>,
    /// `unique`
    pub unique: Option<Vec<u8>>,
    /// `perm`
    pub permissions: Option<Vec<u8>>,
    /// `UNIX.mode`
    pub mode: Option<u32>,
    /// `UNIX.owner`
    pub owner: Option<Vec<u8>>,
    /// `UNIX.group`
    pub group: Option<Vec<u8>>,
    /// Where a link leads.
    pub link: Option<Vec<u8>>,
    /// The name.
    pub name: Vec<u8>,
}

/// Parses a line from the data connection, with or without its line end. Facts that make no sense are
/// passed over; a line without the blank that ends its facts, or without a name, is `None`.
pub fn parse(line: &[u8]) -> Option<FactLine> {
    let line = line.strip_suffix(b"\r\n").unwrap_or(line);
    // No value holds a blank, so the first one ends the facts, even where the last semicolon is missing.
    let blank = memchr::memchr(b' ', line)?;
    let mut parsed = FactLine {
        kind: None,
        size: None,
        modified: None,
        created: None,
        unique: None,
        permissions: None,
        mode: None,
        owner: None,
        group: None,
        link: None,
        name: parse_name(&line[blank + 1..]),
    };
    for fact in line[..blank].split(|&byte| byte == b';') {
        if let Some(equals) = memchr::memchr(b'=', fact) {
            parsed.set(&fact[..equals].to_ascii_lowercase(), &fact[equals + 1..]);
        }
    }
    (!parsed.name.is_empty()).then_some(parsed)
}

impl FactLine {
    fn set(&mut self, key: &[u8], value: &[u8]) {
        match key {
            b"type" => (self.kind, self.link) = parse_type(value),
            b"size" | b"sizd" => self.size = parse_decimal(value),
            b"modify" => self.modified = time::parse(value),
            b"create" => self.created = time::parse(value),
            b"unique" => self.unique = Some(value.to_vec()),
            b"perm" => self.permissions = Some(value.to_vec()),
            b"unix.mode" => self.mode = parse_octal(value),
            b"unix.owner" => self.owner = Some(value.to_vec()),
            b"unix.group" => self.group = Some(value.to_vec()),
            _ => {}
        }
    }
}

fn parse_type(value: &[u8]) -> (Option<Kind>, Option<Vec<u8>>) {
    let lower = value.to_ascii_lowercase();
    let kind = match &lower[..] {
        b"file" => Kind::File,
        b"dir" => Kind::Directory,
        b"cdir" => Kind::Itself,
        b"pdir" => Kind::Parent,
        other if [&b"os.unix=slink"[..], b"os.unix=symlink"].iter().any(|link| other.starts_with(link)) => {
            let target = memchr::memchr(b':', value).map(|colon| value[colon + 1..].to_vec());
            return (Some(Kind::Link), target);
        }
        _ => Kind::Other,
    };
    (Some(kind), None)
}

fn parse_octal(value: &[u8]) -> Option<u32> {
    let is_octal = (1..=7).contains(&value.len()) && value.iter().all(|byte| (b'0'..=b'7').contains(byte));
    is_octal.then(|| value.iter().fold(0, |mode, byte| mode << 3 | u32::from(byte - b'0')))
}

/// Takes out the NUL after each CR, and decodes escapes.
fn parse_name(text: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(text.len());
    for &byte in text {
        if byte != 0 || name.last() != Some(&b'\r') {
            name.push(byte);
        }
    }
    unescaped(&name).into_owned()
}
