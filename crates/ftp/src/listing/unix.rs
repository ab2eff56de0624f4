//! A line as `ls -l` writes it: what `LIST` sends, and what every old client parses.
//!
//! ```text
//! -rw-r--r--   1 alice    users        1048576 Jan  1 12:00 a name
//! ```
//!
//! Names are bytes, exact but for control characters, which [`crate::escape`] writes in octal; what
//! [`UnixWriter`] wrote, [`parse`] reads back, to the precision of the date. Times are UTC. No RFC defines the
//! form: RFC 959 only says that it is for people.

use std::{fmt, sync::Arc};

use millrace_vfs::{FileKind, Metadata, Owner, Special, Timestamp};

use super::OwnerNames;
use crate::{
    decimal::{parse_decimal, push_right_aligned},
    escape::{escape_name, unescape_name},
    time,
};

/// Writes lines, and remembers from one to the next what seldom changes.
pub struct UnixWriter {
    now: Timestamp,
    owners: Arc<dyn OwnerNames>,
    /// The columns of the last owner.
    owner_columns: Option<(Owner, Vec<u8>)>,
    /// The column of the last date: its minute, and whether it shows the time of day.
    date_column: Option<(i64, bool, [u8; 12])>,
}

impl fmt::Debug for UnixWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnixWriter").field("now", &self.now).finish_non_exhaustive()
    }
}

impl UnixWriter {
    /// A writer of lines as of `now`.
    pub fn new(now: Timestamp, owners: Arc<dyn OwnerNames>) -> Self {
        Self { now, owners, owner_columns: None, date_column: None }
    }

    /// Appends the line of an entry, without a line end. `link` is the text of a symbolic link.
    pub fn write(&mut self, name: &[u8], metadata: &Metadata, link: Option<&[u8]>, out: &mut Vec<u8>) {
        out.extend_from_slice(&mode_column(metadata, link.is_some()));
        out.push(b' ');
        push_right_aligned(u64::from(metadata.links), 3, out);
        self.write_owner(metadata.owner, out);
        let size = link.map_or(metadata.size, |link| link.len() as u64);
        push_right_aligned(size, 12, out);
        out.push(b' ');
        self.write_date(metadata.modified, out);
        out.push(b' ');
        escape_name(name, out);
        if let Some(link) = link {
            out.extend_from_slice(ARROW);
            escape_name(link, out);
        }
    }

    fn write_owner(&mut self, owner: Owner, out: &mut Vec<u8>) {
        if let Some((_, columns)) = self.owner_columns.as_ref().filter(|(of, _)| *of == owner) {
            return out.extend_from_slice(columns);
        }
        let mut columns = vec![b' '];
        push_name_column(&mut columns, |out| self.owners.user(owner.user, out));
        push_name_column(&mut columns, |out| self.owners.group(owner.group, out));
        out.extend_from_slice(&columns);
        self.owner_columns = Some((owner, columns));
    }

    fn write_date(&mut self, date: Timestamp, out: &mut Vec<u8>) {
        let (minute, recent) = (date.seconds.div_euclid(60), time::is_recent(date, self.now));
        if let Some((_, _, column)) = &self.date_column.filter(|(m, r, _)| (*m, *r) == (minute, recent)) {
            return out.extend_from_slice(column);
        }
        let start = out.len();
        time::write_ls(date, self.now, out);
        self.date_column = out[start..].try_into().ok().map(|column| (minute, recent, column));
    }
}

/// An entry, as a line describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnixLine {
    /// Its type; a link is a [`FileKind::Symlink`].
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Number of names.
    pub links: u32,
    /// Its owner, a name or a number.
    pub user: Vec<u8>,
    /// Its group, a name or a number; empty with servers that leave it out.
    pub group: Vec<u8>,
    /// Length in bytes.
    pub size: u64,
    /// Last change, to the minute or the day.
    pub modified: Timestamp,
    /// The name.
    pub name: Vec<u8>,
    /// Where a link leads.
    pub link: Option<Vec<u8>>,
}

const ARROW: &[u8] = b" -> ";

/// Parses a line, with or without its line end. `now` says which year a date without one is in. Lines that
/// are something else, such as `total 8`, are `None`.
pub fn parse(line: &[u8], now: Timestamp) -> Option<UnixLine> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (kind, mode) = parse_mode(line.get(..10)?)?;
    let fields = Fields::new(line);
    // The date is the first that follows a number, the size; owners may be missing or have any name.
    let (at, modified) = (3..fields.count.saturating_sub(2)).find_map(|at| {
        parse_decimal(fields.get(at - 1))?;
        let date = time::parse_ls(fields.get(at), fields.get(at + 1), fields.get(at + 2), now)?;
        Some((at, date))
    })?;
    let text = line.get(fields.spans[at + 2].1 + 1..)?;
    let (name, link) = match memchr::memmem::find(text, ARROW).filter(|_| kind == FileKind::Symlink) {
        Some(arrow) => (&text[..arrow], Some(unescaped(&text[arrow + ARROW.len()..]))),
        None => (text, None),
    };
    Some(UnixLine {
        kind,
        mode,
        links: parse_decimal(fields.get(1)).and_then(|links| u32::try_from(links).ok()).unwrap_or(1),
        user: if at > 3 { fields.get(2).to_vec() } else { Vec::new() },
        group: if at > 4 { fields.get(3).to_vec() } else { Vec::new() },
        size: parse_decimal(fields.get(at - 1))?,
        modified,
        name: Some(unescaped(name)).filter(|name| !name.is_empty())?,
        link,
    })
}

/// The words of a line, as many as can stand before a name.
struct Fields<'a> {
    line: &'a [u8],
    spans: [(usize, usize); 12],
    count: usize,
}

impl<'a> Fields<'a> {
    fn new(line: &'a [u8]) -> Self {
        let mut fields = Self { line, spans: [(0, 0); 12], count: 0 };
        let mut at = 0;
        while let Some(span) = fields.spans.get_mut(fields.count) {
            at += line[at..].iter().take_while(|byte| **byte == b' ').count();
            let end = memchr::memchr(b' ', &line[at..]).map_or(line.len(), |length| at + length);
            if end == at {
                break;
            }
            *span = (at, end);
            fields.count += 1;
            at = end;
        }
        fields
    }

    fn get(&self, index: usize) -> &'a [u8] {
        let (start, end) = self.spans[index];
        &self.line[start..end]
    }
}

/// `drwxr-sr-t`. A link shows its own mode, whatever its target.
fn mode_column(metadata: &Metadata, is_link: bool) -> [u8; 10] {
    let kind = if is_link { FileKind::Symlink } else { metadata.kind };
    let mode = if kind == FileKind::Symlink { 0o777 } else { metadata.mode };
    let mut column = *b"----------";
    column[0] = match kind {
        FileKind::File => b'-',
        FileKind::Directory => b'd',
        FileKind::Symlink => b'l',
        FileKind::Other(Special::Pipe) => b'p',
        FileKind::Other(Special::Socket) => b's',
        FileKind::Other(Special::CharacterDevice) => b'c',
        FileKind::Other(Special::BlockDevice) => b'b',
    };
    for (at, letter) in b"rwxrwxrwx".iter().enumerate() {
        if mode & (0o400 >> at) != 0 {
            column[at + 1] = *letter;
        }
    }
    for (bit, at, letter) in SPECIAL_BITS {
        if mode & bit != 0 {
            column[at] = if column[at] == b'x' { letter } else { letter.to_ascii_uppercase() };
        }
    }
    column
}

/// Set-user, set-group and sticky: the bit, its column, the letter.
const SPECIAL_BITS: [(u32, usize, u8); 3] = [(0o4000, 3, b's'), (0o2000, 6, b's'), (0o1000, 9, b't')];

fn parse_mode(column: &[u8]) -> Option<(FileKind, u32)> {
    let kind = match column.first()? {
        b'-' => FileKind::File,
        b'd' => FileKind::Directory,
        b'l' => FileKind::Symlink,
        b'p' => FileKind::Other(Special::Pipe),
        b's' => FileKind::Other(Special::Socket),
        b'c' => FileKind::Other(Special::CharacterDevice),
        b'b' => FileKind::Other(Special::BlockDevice),
        _ => return None,
    };
    let mut mode = 0;
    for (at, letter) in column.iter().enumerate().skip(1) {
        let bit = 0o400 >> (at - 1);
        let special = SPECIAL_BITS.iter().find(|special| special.1 == at);
        mode |= match (letter, special) {
            (b'-', _) => 0,
            (b'r' | b'w' | b'x', _) => bit,
            (b's' | b't', Some(special)) => bit | special.0,
            (b'S' | b'T', Some(special)) => special.0,
            _ => return None,
        };
    }
    Some((kind, mode))
}

/// Writes a name as one word, padded to eight bytes, and a blank.
fn push_name_column(columns: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = columns.len();
    write(columns);
    for byte in &mut columns[start..] {
        if *byte <= b' ' || *byte == 0x7f {
            *byte = b'_';
        }
    }
    if columns.len() == start {
        columns.push(b'?');
    }
    columns.resize(columns.len().max(start + 8), b' ');
    columns.push(b' ');
}

fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(text.len());
    unescape_name(text, &mut name);
    name
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::listing::NumericOwners;

    const NOW: Timestamp = Timestamp { seconds: 1_709_210_096, nanoseconds: 0 }; // 2024-02-29 12:34:56

    fn metadata(kind: FileKind, mode: u32) -> Metadata {
        Metadata {
            kind,
            size: 1_048_576,
            modified: Timestamp { seconds: 1_704_067_200, nanoseconds: 0 },
            created: None,
            changed: None,
            mode,
            owner: Owner { user: 1000, group: 100 },
            links: 1,
            identity: (1, 2),
        }
    }

    fn line(name: &[u8], metadata: &Metadata, link: Option<&[u8]>) -> Vec<u8> {
        let mut out = Vec::new();
        UnixWriter::new(NOW, Arc::new(NumericOwners)).write(name, metadata, link, &mut out);
        out
    }

    #[test]
    fn a_line_looks_as_ls_writes_it() {
        let text = |name: &str, kind, mode, link: Option<&str>| {
            let line = line(name.as_bytes(), &metadata(kind, mode), link.map(str::as_bytes));
            String::from_utf8(line).unwrap()
        };
        assert_eq!(
            text("a name", FileKind::File, 0o644, None),
            "-rw-r--r--   1 1000     100           1048576 Jan  1 00:00 a name"
        );
        assert_eq!(
            text("\n", FileKind::Directory, 0o3770, None),
            "drwxrws--T   1 1000     100           1048576 Jan  1 00:00 \\012"
        );
        assert_eq!(
            text("l", FileKind::Directory, 0o755, Some("a b")),
            "lrwxrwxrwx   1 1000     100                 3 Jan  1 00:00 l -> a b"
        );
    }

    #[test]
    fn remembered_columns_change_with_what_they_show() {
        let mut writer = UnixWriter::new(NOW, Arc::new(NumericOwners));
        let mut first = metadata(FileKind::File, 0o644);
        let mut out = Vec::new();
        for (user, seconds) in [(1, 0), (1, 59), (2, 60), (1, NOW.seconds), (1, NOW.seconds + 1), (1, 0)] {
            first.owner.user = user;
            first.modified.seconds = seconds;
            out.clear();
            writer.write(b"a", &first, None, &mut out);
            assert_eq!(out, line(b"a", &first, None));
        }
    }

    #[test]
    fn an_owner_is_one_word() {
        #[derive(Debug)]
        struct Odd;
        impl OwnerNames for Odd {
            fn user(&self, _: u32, out: &mut Vec<u8>) {
                out.extend_from_slice(b"A User\n");
            }
            fn group(&self, _: u32, _: &mut Vec<u8>) {}
        }
        let mut out = Vec::new();
        UnixWriter::new(NOW, Arc::new(Odd)).write(b"a", &metadata(FileKind::File, 0), None, &mut out);
        assert!(out.starts_with(b"----------   1 A_User_  ?        "), "{}", out.escape_ascii());
    }

    #[test]
    fn lines_of_other_servers_are_read() {
        for (text, size, name) in [
            // vsftpd
            ("-rw-r--r--    1 0        0             523 Jan 01 00:00 a b", 523, "a b"),
            // ProFTPD
            ("-rw-r--r--   1 ftp      ftp           523 Jan  1 00:00 a", 523, "a"),
            // pyftpdlib
            ("-rw-r--r--   1 root     root          523 Jan 01 00:00 a\r\n", 523, "a"),
            // without a group
            ("-rw-r--r--   1 owner 523 Jan 01 00:00 a", 523, "a"),
            // a user called Jan, an access control list's plus
            ("-rw-r--r--+  1 Jan 1 523 Jan 01 00:00 Jan  1 00:00", 523, "Jan  1 00:00"),
        ] {
            let line = parse(text.as_bytes(), NOW).expect(text);
            assert_eq!((line.size, &line.name[..]), (size, name.as_bytes()), "{text}");
            assert_eq!(line.modified.seconds, 1_704_067_200);
        }
    }

    #[test]
    fn malformed_lines_are_ignored() {
        for text in [
            "",
            "total 8",
            "./pub:",
            "-rw-r--r--",
            "-rw-r--r-- 1 0 0 5 Jan 01 00:00",
            "-rw-r--r-- 1 0 0 x Jan 01 00:00 a",
        ] {
            assert_eq!(parse(text.as_bytes(), NOW), None, "{text}");
        }
    }

    fn name() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop_oneof![prop::sample::select(&b"\\012\n\r ->"[..]), 1..=255u8], 1..40)
            .prop_filter("a slash, or an arrow", |name| {
                !name.contains(&b'/') && memchr::memmem::find(name, ARROW).is_none()
            })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            name in name(), link in prop::option::of(name()), kind in prop::sample::select(vec![FileKind::File, FileKind::Directory, FileKind::Other(Special::Pipe), FileKind::Other(Special::Socket), FileKind::Other(Special::CharacterDevice), FileKind::Other(Special::BlockDevice)]),
            mode in 0..0o10000u32, size: u64, links in 1..u32::MAX, user: u32, group: u32, seconds in 0..2 * NOW.seconds,
        ) {
            let mut metadata = metadata(kind, mode);
            (metadata.size, metadata.links, metadata.owner) = (size, links, Owner { user, group });
            metadata.modified.seconds = seconds;
            let unit = if time::is_recent(metadata.modified, NOW) { 60 } else { 86_400 };
            // `name ->` before ` -> link` would be an arrow too early.
            prop_assume!(link.is_none() || !name.ends_with(b" ->") && !name.ends_with(b" -"));
            let expected = UnixLine {
                kind: if link.is_some() { FileKind::Symlink } else { kind },
                mode: if link.is_some() { 0o777 } else { mode },
                links,
                user: user.to_string().into_bytes(),
                group: group.to_string().into_bytes(),
                size: link.as_ref().map_or(size, |link| link.len() as u64),
                modified: Timestamp { seconds: seconds - seconds % unit, nanoseconds: 0 },
                name: name.clone(),
                link: link.clone(),
            };
            let line = line(&name, &metadata, link.as_deref());
            let parsed = parse(&line, NOW).expect("our own line");
            prop_assert_eq!(parsed, expected);
        }

        #[test]
        fn any_bytes_are_a_line_or_none(bytes in prop::collection::vec(any::<u8>(), 0..80), text in "[-dl][rwxsStT-]{9} {0,2}[a-z0-9]{0,3} [0-9]{0,3} (Jan|[a-z]{3}) [0-9]{0,2} [0-9:]{0,5} ?.{0,4}") {
            let _ = parse(&bytes, NOW);
            let _ = parse(text.as_bytes(), NOW);
        }
    }
}
