//! Pages of directories: HTML for people, JSON for programs, a few rows at a time.
//!
//! Names are any bytes. In a link they are percent-encoded, in text escaped, in JSON bytes that are not UTF-8 become
//! U+FFFD (the `href` beside it is exact).

mod html;
mod paging;

use std::cmp::Ordering;
use std::io::Write;

use millrace_vfs::{DirEntry, FileKind, VirtualPath};

pub use self::html::POLICY;
pub use self::paging::{Cursor, Position, Selection};
use crate::date;
use crate::page::escape;
use crate::target::{encode, parameter};

/// How a page is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A page for people.
    Html,
    /// An array for programs.
    Json,
}

/// The sort key of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Column {
    Name,
    Size,
    Modified,
}

/// The order of rows; directories always come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// The sort key.
    pub column: Column,
    /// Whether the largest comes first.
    pub descending: bool,
}

impl Order {
    /// As the query says: `?sort=size&desc`.
    pub fn from_query(query: Option<&[u8]>) -> Self {
        let column = match parameter(query, b"sort") {
            Some(b"size") => Column::Size,
            Some(b"time") => Column::Modified,
            _ => Column::Name,
        };
        Self { column, descending: parameter(query, b"desc").is_some() }
    }

    /// The query of a page in this order, the reverse of `from_query`.
    fn query(self) -> String {
        let column = match self.column {
            Column::Name => "sort=name",
            Column::Size => "sort=size",
            Column::Modified => "sort=time",
        };
        if self.descending { format!("{column}&desc") } else { column.to_owned() }
    }

    /// Sorts entries.
    pub fn sort(self, entries: &mut [DirEntry]) {
        entries.sort_by(|left, right| self.compare(self.rank(left), self.rank(right)));
    }

    /// What an entry is sorted by: whether it is a directory, a number, and its name.
    fn rank(self, entry: &DirEntry) -> (bool, i128, &[u8]) {
        let (metadata, modified) = (&entry.metadata, entry.metadata.modified);
        let value = match self.column {
            Column::Name => 0,
            Column::Size => i128::from(metadata.size),
            Column::Modified => {
                i128::from(modified.seconds) * 1_000_000_000 + i128::from(modified.nanoseconds)
            }
        };
        (metadata.is_directory(), value, &entry.name)
    }

    fn compare(self, left: (bool, i128, &[u8]), right: (bool, i128, &[u8])) -> Ordering {
        let order = (left.1, left.2).cmp(&(right.1, right.2));
        right.0.cmp(&left.0).then(if self.descending { order.reverse() } else { order })
    }
}

/// Where the links of a page lead, besides to what they name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Links {
    /// Stands behind each of them; empty for nothing.
    pub query: String,
    /// There is no way up.
    pub is_top: bool,
}

impl Links {
    /// Writes the query of a link, with this own part.
    fn write(&self, own: &str, out: &mut Vec<u8>) {
        let both = [self.query.as_str(), own];
        let parts = both.into_iter().filter(|part| !part.is_empty());
        for (part, mark) in parts.zip(["?", "&"]) {
            out.extend_from_slice(mark.as_bytes());
            out.extend_from_slice(part.as_bytes());
        }
    }

    /// The same between the quotes of HTML.
    fn write_html(&self, own: &str, out: &mut Vec<u8>) {
        let mut plain = Vec::new();
        self.write(own, &mut plain);
        escape(&plain, out);
    }
}

impl Format {
    /// The media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Html => "text/html; charset=utf-8",
            Self::Json => "application/json",
        }
    }

    /// Writes the part before the rows. `order` is `None` where there are too many to sort; `position` is that of one page
    /// of several.
    pub fn begin(
        self,
        path: &VirtualPath,
        order: Option<Order>,
        position: Option<&Position>,
        links: &Links,
        out: &mut Vec<u8>,
    ) {
        match self {
            Self::Json => out.extend_from_slice(b"["),
            Self::Html => html::begin(path, order, position, links, out),
        }
    }

    /// One row; `first` says whether it is the first.
    pub fn row(self, entry: &DirEntry, first: bool, links: &Links, out: &mut Vec<u8>) {
        match self {
            Self::Json => json_row(entry, first, links, out),
            Self::Html => html::row(entry, links, out),
        }
    }

    /// Writes the part after the rows.
    pub fn end(self, position: Option<&Position>, links: &Links, out: &mut Vec<u8>) {
        match self {
            Self::Json => out.extend_from_slice(b"\n]\n"),
            Self::Html => html::end(position, links, out),
        }
    }
}

fn json_row(entry: &DirEntry, first: bool, links: &Links, out: &mut Vec<u8>) {
    out.extend_from_slice(if first { b"\n" } else { b",\n" });
    out.extend_from_slice(b"{\"name\":\"");
    json_text(&entry.name, out);
    out.extend_from_slice(b"\",\"href\":\"");
    link(entry, out);
    links.write("", out);
    let kind = match entry.metadata.kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "link",
        FileKind::Other(_) => "other",
    };
    let _ = write!(out, "\",\"type\":\"{kind}\",\"mtime\":\"");
    write_time(entry, b'T', out);
    out.extend_from_slice(b"Z\"");
    if entry.metadata.is_file() {
        let _ = write!(out, ",\"size\":{}", entry.metadata.size);
    }
    out.push(b'}');
}

/// The link to an entry. `./` before it: a name with a colon would otherwise be a scheme.
fn link(entry: &DirEntry, out: &mut Vec<u8>) {
    out.extend_from_slice(b"./");
    encode(&entry.name, out);
    if entry.metadata.is_directory() {
        out.push(b'/');
    }
}

/// `2026-11-21 04:20:00`, from the parts of an HTTP date.
fn write_time(entry: &DirEntry, between: u8, out: &mut Vec<u8>) {
    let mut text = Vec::with_capacity(date::LENGTH);
    date::write(entry.metadata.modified.seconds, &mut text);
    const MONTHS: &[u8] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let month = MONTHS.chunks(3).position(|month| month == &text[8..11]).map_or(0, |at| at + 1);
    out.extend_from_slice(&text[12..16]);
    let _ = write!(out, "-{month:02}-");
    out.extend_from_slice(&text[5..7]);
    out.push(between);
    out.extend_from_slice(&text[17..25]);
}

/// Text between the quotes of JSON; `<` is escaped too, so that it is harmless in a page.
fn json_text(text: &[u8], out: &mut Vec<u8>) {
    for character in String::from_utf8_lossy(text).chars() {
        match character {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '<' | '\u{0}'..='\u{1f}' | '\u{7f}' => _ = write!(out, "\\u{:04x}", character as u32),
            character => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_vfs::{Metadata, Owner, Timestamp};

    use super::*;

    fn entry(name: &[u8], kind: FileKind, size: u64, seconds: i64) -> DirEntry {
        let modified = Timestamp { seconds, nanoseconds: 0 };
        let metadata = Metadata {
            kind,
            size,
            modified,
            created: None,
            changed: None,
            mode: 0o644,
            owner: Owner::default(),
            links: 1,
            identity: (0, 0),
        };
        DirEntry { name: name.to_owned(), metadata, link: None }
    }

    #[test]
    fn rows_are_links_that_lead_to_their_names() {
        let mut out = Vec::new();
        Format::Html.row(
            &entry(b"a b<c>&.txt", FileKind::File, 42, 784_111_777),
            true,
            &Links::default(),
            &mut out,
        );
        let row = String::from_utf8(out).unwrap();
        let link = "<a href=\"./a%20b%3Cc%3E%26.txt\">a b&lt;c&gt;&amp;.txt</a>";
        assert_eq!(row, format!("<tr><td>{link}<td>1994-11-06 08:49<td>42 B\n"));
        let mut out = Vec::new();
        Format::Html.row(
            &entry(b"javascript:x", FileKind::Directory, 42, 0),
            true,
            &Links::default(),
            &mut out,
        );
        assert!(out.starts_with(b"<tr><td><a href=\"./javascript%3Ax/\">javascript:x/</a><td>"));
    }

    #[test]
    fn the_query_is_appended_to_all_links() {
        let links = Links { query: "user=a%26b&beneath=1".to_owned(), is_top: false };
        let page = |format: Format, links: &Links| {
            let (path, mut out) = (VirtualPath::parse(b"/a/b").unwrap(), Vec::new());
            format.begin(&path, Some(Order::from_query(None)), None, links, &mut out);
            format.row(&entry(b"d", FileKind::Directory, 1, 0), true, links, &mut out);
            format.end(None, links, &mut out);
            String::from_utf8(out).unwrap()
        };
        let html = page(Format::Html, &links);
        for link in ["./d/?", "../?", "?"] {
            let link = format!("href=\"{link}user=a%26b&amp;beneath=1");
            assert!(html.contains(&link), "{link}: {html}");
        }
        assert!(html.contains("beneath=1&amp;sort=name&amp;desc\">Name"), "{html}");
        assert!(!page(Format::Html, &Links { is_top: true, ..links.clone() }).contains("../"));
        assert!(page(Format::Json, &links).contains("\"href\":\"./d/?user=a%26b&beneath=1\""));
        assert!(page(Format::Html, &Links::default()).contains("href=\"?sort=size\">Size"));
    }

    #[test]
    fn json_is_json_whatever_names_hold() {
        let mut out = Vec::new();
        Format::Json.begin(&VirtualPath::root(), None, None, &Links::default(), &mut out);
        Format::Json.row(&entry(b"a\"\\\n\xff", FileKind::File, 1, 0), true, &Links::default(), &mut out);
        Format::Json.row(&entry(b"d", FileKind::Directory, 1, 0), false, &Links::default(), &mut out);
        Format::Json.end(None, &Links::default(), &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "[\n{\"name\":\"a\\\"\\\\\\u000a\u{fffd}\",\"href\":\"./a%22%5C%0A%FF\",\"type\":\"file\",\
             \"mtime\":\"1970-01-01T00:00:00Z\",\"size\":1},\n\
             {\"name\":\"d\",\"href\":\"./d/\",\"type\":\"directory\",\"mtime\":\"1970-01-01T00:00:00Z\"}\n]\n"
        );
    }

    #[test]
    fn directories_come_first_in_every_order() {
        let mut entries = [
            entry(b"b", FileKind::File, 1, 3),
            entry(b"a", FileKind::File, 2, 2),
            entry(b"z", FileKind::Directory, 0, 1),
        ];
        for (query, expected) in [
            (None, ["z", "a", "b"]),
            (Some(&b"desc"[..]), ["z", "b", "a"]),
            (Some(b"sort=size"), ["z", "b", "a"]),
            (Some(b"sort=time&desc"), ["z", "b", "a"]),
            (Some(b"sort=nonsense"), ["z", "a", "b"]),
        ] {
            Order::from_query(query).sort(&mut entries);
            let names: Vec<_> = entries.iter().map(|entry| String::from_utf8_lossy(&entry.name)).collect();
            assert_eq!(names, expected, "{query:?}");
        }
    }
}
