//! A page of a folder that is too large for one: found in one pass over the folder, in the memory of two pages.
//!
//! A link to another page names the entry that it goes on behind (`?after=`) or ends before (`?before=`), not a number: so
//! each page takes one pass, and entries that come or go move no others to another page.

use std::cmp::Ordering;
use std::io::Write;

use millrace_vfs::DirEntry;

use super::Order;
use crate::target::{decode_parameter, encode, parameter};

/// Which page of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cursor {
    /// The first.
    First,
    /// The one that begins behind this.
    After(SortKey),
    /// The one that ends before this.
    Before(SortKey),
    /// The last.
    Last,
}

/// Where an entry stands in an order; it need not be there any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortKey {
    is_directory: bool,
    /// Its size or its time in nanoseconds; 0 where its name alone decides.
    value: i128,
    name: Vec<u8>,
}

impl Cursor {
    /// Reads the query of a page; what is no cursor is the first page.
    pub fn from_query(query: Option<&[u8]>) -> Self {
        let key = |name: &[u8]| SortKey::parse(parameter(query, name)?);
        match (key(b"after"), key(b"before")) {
            (Some(key), _) => Self::After(key),
            (None, Some(key)) => Self::Before(key),
            (None, None) if parameter(query, b"last").is_some() => Self::Last,
            (None, None) => Self::First,
        }
    }

    /// The query that leads there, in this order.
    fn query(&self, order: Order) -> String {
        let order = order.query();
        match self {
            Self::First => order,
            Self::After(key) => format!("{order}&after={}", key.text()),
            Self::Before(key) => format!("{order}&before={}", key.text()),
            Self::Last => format!("{order}&last"),
        }
    }
}

impl SortKey {
    fn of(order: Order, entry: &DirEntry) -> Self {
        let (is_directory, value, name) = order.rank(entry);
        Self { is_directory, value, name: name.to_owned() }
    }

    fn rank(&self) -> (bool, i128, &[u8]) {
        (self.is_directory, self.value, &self.name)
    }

    /// `f.4096.a%20name`
    fn text(&self) -> String {
        let mut out = Vec::new();
        let _ = write!(out, "{}.{}.", if self.is_directory { 'd' } else { 'f' }, self.value);
        encode(&self.name, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let mut parts = text.splitn(3, |&byte| byte == b'.');
        let is_directory = match parts.next()? {
            b"d" => true,
            b"f" => false,
            _ => return None,
        };
        let value = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
        Some(Self { is_directory, value, name: decode_parameter(parts.next()?)? })
    }
}

/// The entries of a page, while the folder is read.
#[derive(Debug)]
pub struct Selection {
    order: Order,
    cursor: Cursor,
    /// Entries of a page.
    most: usize,
    /// Those that may be on it: twice as many at most.
    entries: Vec<DirEntry>,
    /// Entries of the folder, and those of them that stand before the cursor.
    all: usize,
    before: usize,
}

/// Where a page stands among those of its folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The first entry, counted from 0, and the number of entries.
    first: usize,
    shown: usize,
    /// Entries of the folder.
    all: usize,
    /// Queries of the other pages.
    links: Vec<(&'static str, String)>,
}

impl Selection {
    /// Begins with a page of at most this many entries.
    pub fn new(order: Order, cursor: Cursor, most: usize) -> Self {
        Self { order, cursor, most, entries: Vec::new(), all: 0, before: 0 }
    }

    /// Takes entries of the folder, and leaves none.
    pub fn take(&mut self, entries: &mut Vec<DirEntry>) {
        for entry in entries.drain(..) {
            self.all += 1;
            let compare = |key: &SortKey| self.order.compare(self.order.rank(&entry), key.rank());
            let is_wanted = match &self.cursor {
                Cursor::First | Cursor::Last => true,
                Cursor::After(key) => {
                    let is_behind = compare(key) == Ordering::Greater;
                    self.before += usize::from(!is_behind);
                    is_behind
                }
                Cursor::Before(key) => {
                    let is_before = compare(key) == Ordering::Less;
                    self.before += usize::from(is_before);
                    is_before
                }
            };
            if is_wanted {
                self.entries.push(entry);
            }
            if self.entries.len() >= 2 * self.most {
                self.prune();
            }
        }
    }

    /// Sorts, and keeps the entries that would be on the page if no others came.
    fn prune(&mut self) {
        self.order.sort(&mut self.entries);
        let surplus = self.entries.len().saturating_sub(self.most);
        match self.cursor {
            Cursor::First | Cursor::After(_) => self.entries.truncate(self.most),
            Cursor::Before(_) | Cursor::Last => drop(self.entries.drain(..surplus)),
        }
    }

    /// The page, sorted, once all entries have come.
    pub fn finish(mut self) -> (Vec<DirEntry>, Position) {
        self.prune();
        let Self { order, cursor, entries, all, before, .. } = self;
        let shown = entries.len();
        let first = match cursor {
            Cursor::First => 0,
            Cursor::After(_) => before,
            Cursor::Before(_) => before - shown,
            Cursor::Last => all - shown,
        };
        let key = |entry: Option<&DirEntry>| entry.map(|entry| SortKey::of(order, entry));
        let previous = key(entries.first()).map_or(Cursor::Last, Cursor::Before);
        let next = key(entries.last()).map_or(Cursor::First, Cursor::After);
        let mut links = Vec::new();
        if first > 0 {
            links.extend([("first", Cursor::First.query(order)), ("prev", previous.query(order))]);
        }
        if first + shown < all {
            links.extend([("next", next.query(order)), ("last", Cursor::Last.query(order))]);
        }
        (entries, Position { first, shown, all, links })
    }
}

impl Position {
    /// `Entries 2049 to 4096 of 10000`, and links to other pages: the word of each, and its query.
    pub(super) fn parts(&self) -> (String, impl Iterator<Item = (&'static str, &str)>) {
        let text = match self.shown {
            0 => format!("No more entries of {}", self.all),
            shown => format!("Entries {} to {} of {}", self.first + 1, self.first + shown, self.all),
        };
        (text, self.links.iter().map(|(word, query)| (*word, query.as_str())))
    }
}

#[cfg(test)]
mod tests {
    use millrace_vfs::{FileKind, Metadata, Owner, Timestamp};

    use super::*;

    fn entry(name: &str, kind: FileKind, size: u64) -> DirEntry {
        let metadata = Metadata {
            kind,
            size,
            modified: Timestamp { seconds: -1 - size as i64, nanoseconds: 5 },
            created: None,
            changed: None,
            mode: 0o644,
            owner: Owner::default(),
            links: 1,
            identity: (0, 0),
        };
        DirEntry { name: name.as_bytes().to_owned(), metadata, link: None }
    }

    /// A page of three entries, and the queries of the others.
    fn page(entries: &[DirEntry], query: &str) -> (Vec<String>, Position) {
        let query = Some(query.as_bytes());
        let mut selection = Selection::new(Order::from_query(query), Cursor::from_query(query), 3);
        // In an order of no use, a few at a time.
        entries.rchunks(2).for_each(|some| selection.take(&mut some.to_vec()));
        let (entries, position) = selection.finish();
        (entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect(), position)
    }

    fn link(position: &Position, word: &str) -> Option<String> {
        position.links.iter().find(|link| link.0 == word).map(|link| link.1.clone())
    }

    #[test]
    fn the_pages_of_a_folder_have_each_entry_once_in_every_order_both_ways() {
        let mut entries: Vec<DirEntry> =
            (0..10).map(|at| entry(&format!("f.{}&{at}", 10 - at), FileKind::File, at % 4)).collect();
        entries.extend(["d;1", "d%2"].map(|name| entry(name, FileKind::Directory, 0)));
        for query in ["", "desc", "sort=size", "sort=size&desc", "sort=time", "sort=time&desc"] {
            let mut sorted = entries.clone();
            Order::from_query(Some(query.as_bytes())).sort(&mut sorted);
            let sorted: Vec<_> =
                sorted.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect();
            for (first, word) in [(query.to_owned(), "next"), (format!("{query}&last"), "prev")] {
                let (mut pages, mut next) = (Vec::new(), Some(first));
                while let Some(query) = next.take() {
                    let (names, position) = page(&entries, &query);
                    assert_eq!(position.first, sorted.iter().position(|name| *name == names[0]).unwrap());
                    assert_eq!((position.shown, position.all), (3, 12), "{query}");
                    next = link(&position, word);
                    pages.push(names);
                }
                if word == "prev" {
                    pages.reverse();
                }
                assert_eq!(pages.concat(), sorted, "{query} {word}");
            }
        }
    }

    #[test]
    fn entries_that_come_and_go_move_no_others() {
        let entries: Vec<DirEntry> =
            ["b", "c", "d", "e", "f"].map(|name| entry(name, FileKind::File, 1)).to_vec();
        let (_, position) = page(&entries, "");
        let next = link(&position, "next").unwrap();
        assert_eq!(next, "sort=name&after=f.0.d");
        let changed: Vec<DirEntry> = ["a", "b", "e", "f"].map(|name| entry(name, FileKind::File, 1)).to_vec();
        assert_eq!(page(&changed, &next).0, ["e", "f"]);
        let (names, position) = page(&changed, "after=f.0.z");
        assert_eq!((names.len(), position.parts().0.as_str()), (0, "No more entries of 4"));
        assert_eq!(link(&position, "prev").as_deref(), Some("sort=name&last"));
        for nonsense in ["after=", "after=x.1.b", "after=f.b", "after=f.0.%", "before=d.-"] {
            assert_eq!(page(&changed, nonsense).0, ["a", "b", "e"], "{nonsense}");
        }
    }
}
