//! Directory listings: `LIST`, `NLST`, `MLSD`, and `STAT` with a path.
//!
//! A [`Lister`] turns an open [`Directory`] into bytes, a piece at a time, so that a directory of a million
//! entries costs no more memory than one of a thousand: entries are sorted where there are at most
//! [`Listing::sort_bound`] of them, and otherwise go out in the back end's own order as they are read.
//!
//! Two bounds hold whatever a client asks: no pattern and no `-R` visits more than [`Listing::budget`]
//! entries, and `-R` goes no deeper than [`Listing::depth`] (CVE-2011-0762, CVE-2019-20176). A listing that
//! met one says so with [`Lister::cut`]. Nothing here recurses.
//!
//! [`unix`] and [`facts`] write a line each, and parse what they and others wrote. RFC 959 section 4.1.3,
//! RFC 3659 section 7.

pub mod facts;
mod names;
pub mod options;
pub mod search;
pub mod sort;
pub mod unix;

use std::{fmt, sync::Arc};

use millrace_vfs::{DirEntry, Directory, FileError, Storage, Timestamp, VirtualPath};

use self::{facts::Place, names::NameQueue, search::Level};
pub use self::{
    facts::{Facts, Links, Rights},
    options::{ListOptions, Sort},
};
use crate::{escape::escape_name, glob::Glob};

/// How many entries are sorted, which is also what a sorted listing holds in memory, some 300 KiB. A `LIST` of a
/// cached local directory of 200,000 entries began after 10 ms with a bound of 4096, 3 ms unsorted, and took
/// 0.45 s in all (two shared cores); a listing shall begin within 10 ms.
pub const SORT_BOUND: usize = 2048;
/// How many entries a pattern or `-R` may visit: a quarter of a second by the same measurement.
pub const BUDGET: u64 = 100_000;
/// How many directories below the first `-R` goes.
pub const DEPTH: usize = 32;

/// How many entries are asked of a back end at a time.
const BATCH: usize = 512;

/// What the lines of a listing look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `LIST`: as `ls -l`.
    Unix,
    /// `NLST`: names.
    Names,
    /// `MLSD`: these facts. Never sorted: it is for programs.
    Facts(Facts),
}

/// Looks up who owns files, for those who read names rather than numbers.
pub trait OwnerNames: Send + Sync + fmt::Debug {
    /// Appends the name of a user, or the number where there is none.
    fn user(&self, id: u32, out: &mut Vec<u8>);
    /// Appends the name of a group, or the number where there is none.
    fn group(&self, id: u32, out: &mut Vec<u8>);
}

/// Numbers instead of names: nothing of the system's accounts is shown.
#[derive(Debug, Clone, Copy, Default)]
pub struct NumericOwners;

impl OwnerNames for NumericOwners {
    fn user(&self, id: u32, out: &mut Vec<u8>) {
        crate::decimal::push_decimal(u64::from(id), out);
    }

    fn group(&self, id: u32, out: &mut Vec<u8>) {
        crate::decimal::push_decimal(u64::from(id), out);
    }
}

/// One name for every owner and every group.
#[derive(Debug, Clone, Copy)]
pub struct FixedOwners(
    /// The name, for example `ftp`.
    pub &'static str,
);

impl OwnerNames for FixedOwners {
    fn user(&self, _: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0.as_bytes());
    }

    fn group(&self, _: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0.as_bytes());
    }
}

/// What to list, and how.
#[derive(Debug, Clone)]
pub struct Listing {
    /// What the lines look like.
    pub format: Format,
    /// What the client asked for. `long` and `directory` are for whoever chooses the format and the source.
    pub options: ListOptions,
    /// Only what matches, level by level; everything where there is no level.
    pub search: Vec<Level>,
    /// Goes before each name of an `NLST`, and before the headings of `-R`: the path as the client wrote
    /// it, with a slash at its end, or nothing. RFC 1123 section 4.1.2.7: names that can be used as they are.
    pub prefix: Vec<u8>,
    /// The time of the request, on which `LIST`'s form of a date depends.
    pub now: Timestamp,
    /// What the session may do here, for the `perm` fact.
    pub rights: Rights,
    /// What ends a line: CR LF, as text on the wire has it, or LF where a line is to become a record, or one of
    /// EBCDIC.
    pub line_end: &'static [u8],
    /// How owners are named.
    pub owners: Arc<dyn OwnerNames>,
    /// How links are shown by `MLSD`.
    pub links: Links,
    /// How many entries are sorted.
    pub sort_bound: usize,
    /// How many entries a pattern or `-R` may visit.
    pub budget: u64,
    /// How many directories below the first `-R` goes.
    pub depth: usize,
    /// Only directories, and these as `ls -d d*/` shows them: with a slash, and a link as what it leads to.
    pub only_directories: bool,
    /// What the directory and those above it are. `MLSD` shows a link to one of them as a link: as a directory
    /// it would have no end for a mirror that goes into it.
    pub ancestors: Vec<(u64, u64)>,
}

impl Listing {
    /// A listing in `format`, with every other setting at its default.
    pub fn new(format: Format, now: Timestamp) -> Self {
        Self {
            format,
            options: ListOptions::default(),
            search: Vec::new(),
            prefix: Vec::new(),
            now,
            rights: Rights::default(),
            line_end: b"\r\n",
            owners: Arc::new(NumericOwners),
            links: Links::default(),
            sort_bound: SORT_BOUND,
            budget: BUDGET,
            depth: DEPTH,
            only_directories: false,
            ancestors: Vec::new(),
        }
    }

    fn order(&self) -> Sort {
        match self.format {
            Format::Facts(_) => Sort::Unsorted,
            _ => self.options.sort,
        }
    }

    /// Claims that only what matches a pattern is listed.
    pub fn is_search(&self) -> bool {
        !self.search.is_empty()
    }

    fn is_bounded(&self) -> bool {
        self.is_search() || self.options.recursive
    }

    /// The pattern for the names in a directory so deep beneath the first.
    fn pattern_at(&self, depth: usize) -> Option<&Glob> {
        match self.search.get(depth) {
            Some(Level::Pattern(pattern)) => Some(pattern),
            _ => None,
        }
    }

    /// Claims that directories so deep are only on the way to what is looked for.
    fn passes_through(&self, depth: usize) -> bool {
        depth + 1 < self.search.len()
    }
}

/// Why a listing is not whole, which its text says to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// It visited as many entries as it may.
    Budget,
    /// It met directories deeper than it goes.
    Depth,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Budget => f.write_str("a pattern or -R may visit so many entries and no more"),
            Self::Depth => f.write_str("a pattern or -R goes so deep and no deeper"),
        }
    }
}

/// What a listing has left out: folders that it could not go into. One that is gone by now is none of them.
#[derive(Debug)]
pub struct Unread {
    /// The first.
    pub path: VirtualPath,
    /// Why.
    pub why: FileError,
    /// So many others.
    pub more: u64,
}

/// A listing in progress: bytes on demand. All calls may wait for the device.
#[derive(Debug)]
pub struct Lister {
    listing: Listing,
    line: Line,
    directory: Option<Box<dyn Directory>>,
    /// Entries read and not yet written, from `next` on.
    queue: Vec<DirEntry>,
    next: usize,
    /// The directory has just been opened: nothing of it has been read.
    is_fresh: bool,
    /// Before each name: the prefix, and with `-R` the directory.
    shown: Vec<u8>,
    tree: Option<Tree>,
    names: NameQueue,
    left: u64,
    cut: Option<Cut>,
    unread: Option<Unread>,
    /// Made before they were asked for, and whether there may be more behind them.
    ahead: Option<(Vec<u8>, bool)>,
}

#[derive(Debug)]
enum Line {
    Unix(unix::Writer),
    Names,
    Facts(facts::Writer),
}

/// Where a recursive listing is.
#[derive(Debug)]
struct Tree {
    storage: Arc<dyn Storage>,
    path: VirtualPath,
    depth: usize,
    /// Directories found in this one, in the order of the listing.
    found: Vec<Vec<u8>>,
    /// Directories still to be listed, the next one last: path, what is shown of it, depth.
    waiting: Vec<(VirtualPath, Vec<u8>, usize)>,
}

impl Lister {
    /// Lists what is in `directory`.
    pub fn new(directory: Box<dyn Directory>, listing: Listing) -> Self {
        Self { directory: Some(directory), is_fresh: true, ..Self::of(Vec::new(), listing) }
    }

    /// Lists these entries: one file, or with `-d` the directory itself.
    pub fn of(entries: Vec<DirEntry>, listing: Listing) -> Self {
        let line = match listing.format {
            Format::Unix => Line::Unix(unix::Writer::new(listing.now, Arc::clone(&listing.owners))),
            Format::Names => Line::Names,
            Format::Facts(facts) => Line::Facts(
                facts::Writer::new(facts, listing.rights, Arc::clone(&listing.owners))
                    .with_links(listing.links)
                    .with_ancestors(listing.ancestors.clone()),
            ),
        };
        Self {
            line,
            directory: None,
            queue: entries,
            next: 0,
            is_fresh: false,
            shown: listing.prefix.clone(),
            tree: None,
            names: NameQueue::default(),
            left: if listing.is_bounded() { listing.budget } else { u64::MAX },
            cut: None,
            unread: None,
            ahead: None,
            listing,
        }
    }

    /// Where `-R` was asked for, goes into the directories below `path`, the directory that is listed; links
    /// are not followed. Where a pattern has folders in it, goes into those that match, as a shell does also by links.
    pub fn in_tree(mut self, storage: Arc<dyn Storage>, path: VirtualPath) -> Self {
        if self.listing.options.recursive || self.listing.search.len() > 1 {
            self.tree = Some(Tree { storage, path, depth: 0, found: Vec::new(), waiting: Vec::new() });
        }
        self
    }

    /// Makes the first piece now, while waiting is allowed, so that the first [`Lister::fill`] has it at once.
    pub fn begin(&mut self, at_least: usize) -> Result<(), FileError> {
        let mut piece = Vec::new();
        let more = self.fill(&mut piece, at_least)?;
        self.ahead = Some((piece, more));
        Ok(())
    }

    /// Claims that the next [`Lister::fill`] does not wait.
    pub fn is_ahead(&self) -> bool {
        self.ahead.is_some()
    }

    /// Appends at least `at_least` bytes, unless the listing ends. Answers whether there may be more.
    pub fn fill(&mut self, out: &mut Vec<u8>, at_least: usize) -> Result<bool, FileError> {
        if let Some((mut piece, more)) = self.ahead.take() {
            out.append(&mut piece);
            return Ok(more);
        }
        let goal = out.len().saturating_add(at_least.max(1));
        while out.len() < goal {
            if self.next < self.queue.len() {
                self.write_queue(goal, out);
            } else if !self.advance(out)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Why the listing is not whole, where it is not.
    pub fn cut(&self) -> Option<Cut> {
        self.cut
    }

    /// What it could not go into, where there was such a thing; asked once, at its end.
    pub fn take_unread(&mut self) -> Option<Unread> {
        self.unread.take()
    }

    /// Reads further: a batch, or the next directory. Answers false at the end of all.
    fn advance(&mut self, out: &mut Vec<u8>) -> Result<bool, FileError> {
        let Some(mut directory) = self.directory.take() else { return self.next_directory() };
        let is_fresh = std::mem::take(&mut self.is_fresh);
        let begin = out.len();
        if is_fresh {
            self.write_heading(out);
            self.queue_itself(directory.as_ref());
        }
        let read = if self.wants_names_only() {
            self.read_names(directory.as_mut(), is_fresh, out)
        } else {
            self.read_entries(directory.as_mut(), is_fresh, out)
        };
        let more = match read {
            // One may ask for the names in it, and not what they are.
            Err(error @ FileError::PermissionDenied) if self.depth() > 0 => {
                if is_fresh {
                    out.truncate(begin);
                }
                self.queue.clear();
                self.next = 0;
                self.pass_over(error)?;
                false
            }
            read => read?,
        };
        if more {
            self.directory = Some(directory);
        }
        Ok(true)
    }

    /// `NLST` needs no metadata, which is most of the cost of an entry.
    fn wants_names_only(&self) -> bool {
        matches!(self.line, Line::Names)
            && self.tree.is_none()
            && !self.listing.only_directories
            && matches!(self.listing.order(), Sort::Name | Sort::Unsorted)
    }

    fn read_entries(
        &mut self,
        directory: &mut dyn Directory,
        is_first: bool,
        out: &mut Vec<u8>,
    ) -> Result<bool, FileError> {
        let is_sorted = is_first && self.listing.order() != Sort::Unsorted;
        if is_first {
            self.write_queue(usize::MAX, out);
        }
        self.queue.clear();
        self.next = 0;
        let mut more = self.read_batch(directory)?;
        while is_sorted && more && self.queue.len() <= self.listing.sort_bound {
            more = self.read_batch(directory)?;
        }
        if is_sorted && !more {
            sort::sort(&mut self.queue, self.listing.order(), self.listing.options.reverse);
        }
        if let Some(tree) = &mut self.tree {
            let passes_through = self.listing.passes_through(tree.depth);
            let goes_into = |entry: &&DirEntry| {
                let is_followed = passes_through || (self.listing.options.recursive && entry.link.is_none());
                is_followed && entry.metadata.is_directory()
            };
            tree.found.extend(self.queue.iter().filter(goes_into).map(|entry| entry.name.clone()));
            if passes_through {
                self.queue.clear();
            }
        }
        if self.listing.only_directories {
            self.queue.retain(|entry| entry.metadata.is_directory());
            self.queue.iter_mut().for_each(as_directory);
        }
        Ok(more)
    }

    /// Queues about a batch of entries; answers false at the end.
    fn read_batch(&mut self, directory: &mut dyn Directory) -> Result<bool, FileError> {
        let (before, most) = (self.queue.len(), self.allowance());
        directory.next_batch(&mut self.queue, most)?;
        let visited = self.queue.len() - before;
        if !self.affords(visited) {
            self.queue.truncate(before);
            return Ok(false);
        }
        if let Some(pattern) = self.listing.pattern_at(self.depth()) {
            let options = self.listing.options;
            let mut at = 0;
            self.queue.retain(|entry| {
                at += 1;
                at <= before || is_wanted(&entry.name, pattern, options)
            });
        }
        Ok(visited > 0)
    }

    fn read_names(
        &mut self,
        directory: &mut dyn Directory,
        is_first: bool,
        out: &mut Vec<u8>,
    ) -> Result<bool, FileError> {
        let is_sorted = is_first && self.listing.order() == Sort::Name;
        let mut more = true;
        while more {
            let (most, is_spent) = (self.allowance(), self.left == 0);
            let (names, options) = (&mut self.names, self.listing.options);
            let pattern = self.listing.pattern_at(0);
            let mut take = |name: &[u8]| {
                if !is_spent && pattern.is_none_or(|pattern| is_wanted(name, pattern, options)) {
                    names.push(name);
                }
            };
            let visited = directory.next_names(&mut take, most)?;
            more = self.affords(visited) && visited > 0;
            if !is_sorted || self.names.len() > self.listing.sort_bound {
                break;
            }
        }
        if is_sorted && !more {
            self.names.sort(self.listing.options.reverse);
        }
        let line_end = self.listing.line_end;
        self.names.iter().for_each(|name| write_name(&self.shown, name, line_end, out));
        self.names.clear();
        Ok(more)
    }

    /// How many entries are read next: where none is left, one, which tells whether there are more.
    fn allowance(&self) -> usize {
        BATCH.min(usize::try_from(self.left).unwrap_or(BATCH)).max(1)
    }

    /// Takes so many entries off the budget; answers whether they were within it, and keeps the reason where not.
    fn affords(&mut self, visited: usize) -> bool {
        if self.left == 0 && visited > 0 {
            self.cut = Some(Cut::Budget);
        }
        self.left = self.left.saturating_sub(visited as u64);
        self.cut != Some(Cut::Budget)
    }

    /// Goes on with a directory below; answers false where there is none.
    fn next_directory(&mut self) -> Result<bool, FileError> {
        let Some(tree) = &mut self.tree else { return Ok(false) };
        if self.cut == Some(Cut::Budget) {
            return Ok(false);
        }
        let found = std::mem::take(&mut tree.found);
        if tree.depth < self.listing.depth {
            for name in found.into_iter().rev() {
                let shown = [&self.shown[..], &name, b"/"].concat();
                if let Ok(path) = tree.path.join(&name) {
                    tree.waiting.push((path, shown, tree.depth + 1));
                }
            }
        } else if !found.is_empty() {
            self.cut = Some(Cut::Depth);
        }
        let Some((path, shown, depth)) = tree.waiting.pop() else { return Ok(false) };
        (tree.path, tree.depth, self.shown) = (path, depth, shown);
        if let Some(Level::Name(name)) = self.listing.search.get(depth) {
            let name = name.clone();
            self.look_up(name)?;
            return Ok(true);
        }
        match tree.storage.open_directory(&tree.path) {
            Ok(directory) => self.directory = Some(directory),
            Err(error) => self.pass_over(error)?,
        }
        self.is_fresh = true;
        Ok(true)
    }

    /// Where it is cannot be read, which is no reason to end there: as `ls` it goes on, and says so in the end. What
    /// was removed meanwhile is not there, and no word is lost on it.
    fn pass_over(&mut self, error: FileError) -> Result<(), FileError> {
        match (error, &mut self.unread, &self.tree) {
            (FileError::Cancelled, ..) => return Err(FileError::Cancelled),
            (FileError::NotFound | FileError::NotDirectory, ..) | (_, _, None) => {}
            (_, Some(unread), _) => unread.more += 1,
            (why, first, Some(tree)) => *first = Some(Unread { path: tree.path.clone(), why, more: 0 }),
        }
        Ok(())
    }

    /// A level that is a plain name: it is there, or it is not.
    fn look_up(&mut self, name: Vec<u8>) -> Result<(), FileError> {
        let Some(tree) = &mut self.tree else { return Ok(()) };
        if self.listing.passes_through(tree.depth) {
            tree.found.push(name);
            return Ok(());
        }
        let Ok(path) = tree.path.join(&name) else { return Ok(()) };
        let entry = match tree.storage.entry(&path) {
            Ok(entry) => entry,
            Err(error) => return self.pass_over(error),
        };
        if self.affords(1) && (!self.listing.only_directories || entry.metadata.is_directory()) {
            (self.queue, self.next) = (vec![entry], 0);
        }
        if self.listing.only_directories {
            self.queue.iter_mut().for_each(as_directory);
        }
        Ok(())
    }

    /// Claims that these are matches in several folders, which are told apart by their paths, as `ls` does.
    fn shows_paths(&self) -> bool {
        self.listing.search.len() > 1 && self.depth() < self.listing.search.len()
    }

    /// How deep beneath the first directory this one is.
    fn depth(&self) -> usize {
        self.tree.as_ref().map_or(0, |tree| tree.depth)
    }

    /// `./pub:`, as `ls -R` has it, where a client asked for `-R`.
    fn write_heading(&self, out: &mut Vec<u8>) {
        let (Some(tree), Line::Unix(_)) = (&self.tree, &self.line) else { return };
        if !self.listing.options.recursive || self.shows_paths() {
            return;
        }
        if tree.depth > 0 {
            out.extend_from_slice(self.listing.line_end);
        }
        let path = self.shown.strip_suffix(b"/").unwrap_or(&self.shown);
        if self.listing.prefix.is_empty() {
            out.extend_from_slice(if path.is_empty() { b"." } else { b"./" });
        } else if path.is_empty() {
            out.push(b'/');
        }
        escape_name(path, out);
        out.push(b':');
        out.extend_from_slice(self.listing.line_end);
    }

    /// `.` and `..`, where asked for. What is above is not ours to look at: `..` shows what `.` has.
    fn queue_itself(&mut self, directory: &dyn Directory) {
        if !self.listing.options.all || self.listing.is_search() || matches!(self.line, Line::Names) {
            return;
        }
        if let Ok(metadata) = directory.metadata() {
            let entry = |name: &[u8]| DirEntry { name: name.to_vec(), metadata, link: None };
            self.queue = vec![entry(b"."), entry(b"..")];
            self.next = 0;
        }
    }

    /// Writes what is queued, up to `goal` bytes in `out`.
    fn write_queue(&mut self, goal: usize, out: &mut Vec<u8>) {
        let shows_paths = self.shows_paths();
        while let Some(entry) = self.queue.get(self.next).filter(|_| out.len() < goal) {
            self.next += 1;
            match &mut self.line {
                Line::Names => write_name(&self.shown, &entry.name, self.listing.line_end, out),
                Line::Unix(writer) if shows_paths => {
                    let name = [&self.shown[..], &entry.name].concat();
                    writer.write(&name, entry.own_metadata(), entry.link_text(), out);
                    out.extend_from_slice(self.listing.line_end);
                }
                Line::Unix(writer) => {
                    writer.write(&entry.name, entry.own_metadata(), entry.link_text(), out);
                    out.extend_from_slice(self.listing.line_end);
                }
                Line::Facts(writer) => {
                    let item = facts::Item { place: Place::of(&entry.name), ..facts::Item::from(entry) };
                    writer.write(&item, out);
                    out.extend_from_slice(self.listing.line_end);
                }
            }
        }
    }
}

/// `d/`: the directory, and not the link that leads to it.
fn as_directory(entry: &mut DirEntry) {
    entry.link = None;
    entry.name.push(b'/');
}

/// Claims that a pattern's match is listed: hidden names only where they are asked for.
fn is_wanted(name: &[u8], pattern: &Glob, options: ListOptions) -> bool {
    let is_shown = name.first() != Some(&b'.') || pattern.names_hidden() || options.shows_hidden();
    is_shown && pattern.matches(name)
}

fn write_name(shown: &[u8], name: &[u8], line_end: &[u8], out: &mut Vec<u8>) {
    escape_name(shown, out);
    escape_name(name, out);
    out.extend_from_slice(line_end);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use millrace_vfs::{Change, FileKind, Link, Metadata, Owner, ReadHandle, Space, Upload, Wait, WriteMode};

    use super::*;

    const NOW: Timestamp = Timestamp { seconds: 1_709_210_096, nanoseconds: 0 };

    fn entry(name: &str, kind: FileKind, size: u64) -> DirEntry {
        let metadata = Metadata {
            kind,
            size,
            modified: Timestamp { seconds: size as i64, nanoseconds: 0 },
            created: None,
            changed: None,
            mode: 0o644,
            owner: Owner::default(),
            links: 1,
            identity: (1, size),
        };
        DirEntry { name: name.as_bytes().to_vec(), metadata, link: None }
    }

    fn files(names: &[&str]) -> Vec<DirEntry> {
        names.iter().zip(1..).map(|(name, size)| entry(name, FileKind::File, size)).collect()
    }

    /// A directory that gives its entries in the order in which they stand here.
    #[derive(Debug)]
    struct Fixed(std::vec::IntoIter<DirEntry>);

    impl Fixed {
        fn boxed(entries: Vec<DirEntry>) -> Box<dyn Directory> {
            Box::new(Self(entries.into_iter()))
        }
    }

    impl Directory for Fixed {
        fn next_batch(&mut self, entries: &mut Vec<DirEntry>, most: usize) -> Result<(), FileError> {
            entries.extend(self.0.by_ref().take(most));
            // As of a folder in which names may be read, and nothing else.
            match entries.iter().any(|entry| entry.name == b"dark") {
                true => Err(FileError::PermissionDenied),
                false => Ok(()),
            }
        }

        fn next_names(&mut self, visit: &mut dyn FnMut(&[u8]), most: usize) -> Result<usize, FileError> {
            Ok(self.0.by_ref().take(most).map(|entry| visit(&entry.name)).count())
        }

        fn metadata(&self) -> Result<Metadata, FileError> {
            Ok(entry(".", FileKind::Directory, 0).metadata)
        }
    }

    /// Directories by path; no other question is asked of it.
    /// Those without entries that are said here are forbidden.
    #[derive(Debug, Default)]
    struct Forest(BTreeMap<&'static str, Vec<DirEntry>>, &'static [&'static str]);

    impl Storage for Forest {
        fn open_directory(&self, path: &VirtualPath) -> Result<Box<dyn Directory>, FileError> {
            let path = std::str::from_utf8(path.as_bytes()).unwrap();
            if self.1.contains(&path) {
                return Err(FileError::PermissionDenied);
            }
            self.0.get(path).cloned().map(Fixed::boxed).ok_or(FileError::NotFound)
        }
        fn open_read(&self, _: &VirtualPath, _: Wait) -> Result<ReadHandle, FileError> {
            Err(FileError::Unsupported)
        }
        fn open_write_with(
            &self,
            _: &VirtualPath,
            _: WriteMode,
            _: Option<u32>,
            _: Wait,
        ) -> Result<Box<dyn Upload>, FileError> {
            Err(FileError::Unsupported)
        }
        fn metadata(&self, _: &VirtualPath, _: Wait) -> Result<Metadata, FileError> {
            Err(FileError::Unsupported)
        }
        fn entry(&self, path: &VirtualPath) -> Result<DirEntry, FileError> {
            let parent = path.parent();
            let parent = std::str::from_utf8(parent.as_bytes()).unwrap();
            if self.1.contains(&parent) {
                return Err(FileError::PermissionDenied);
            }
            let entries = self.0.get(parent);
            let entry = entries.into_iter().flatten().find(|entry| entry.name == path.name());
            entry.cloned().ok_or(FileError::NotFound)
        }
        fn make_directory_with(&self, _: &VirtualPath, _: Option<u32>) -> Result<(), FileError> {
            Err(FileError::Unsupported)
        }
        fn remove_directory(&self, _: &VirtualPath) -> Result<(), FileError> {
            Err(FileError::Unsupported)
        }
        fn remove_file(&self, _: &VirtualPath) -> Result<(), FileError> {
            Err(FileError::Unsupported)
        }
        fn rename(&self, _: &VirtualPath, _: &VirtualPath) -> Result<(), FileError> {
            Err(FileError::Unsupported)
        }
        fn change(&self, _: &VirtualPath, _: Change) -> Result<(), FileError> {
            Err(FileError::Unsupported)
        }
        fn make_symlink(&self, _: &[u8], _: &VirtualPath) -> Result<(), FileError> {
            Err(FileError::Unsupported)
        }
        fn copy(
            &self,
            _: &VirtualPath,
            _: &VirtualPath,
            _: &mut dyn FnMut(u64) -> bool,
        ) -> Result<u64, FileError> {
            Err(FileError::Unsupported)
        }
        fn space(&self, _: &VirtualPath) -> Result<Space, FileError> {
            Err(FileError::Unsupported)
        }
    }

    fn listing(format: Format, argument: &str) -> Listing {
        Listing { options: ListOptions::parse(argument.as_bytes()).0, ..Listing::new(format, NOW) }
    }

    fn all(mut lister: Lister) -> String {
        let mut out = Vec::new();
        while lister.fill(&mut out, 1).unwrap() {}
        String::from_utf8(out).unwrap()
    }

    /// The names in a listing of `entries`, in order.
    fn names(listing: Listing, entries: Vec<DirEntry>) -> Vec<String> {
        let text = all(Lister::new(Fixed::boxed(entries), listing));
        assert!(text.is_empty() || text.ends_with("\r\n"));
        text.split_terminator("\r\n").map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect()
    }

    #[test]
    fn every_format_lists_every_entry_and_dot_files_too() {
        for format in [Format::Unix, Format::Names, Format::Facts(Facts::DEFAULT)] {
            assert_eq!(names(listing(format, ""), files(&[".a", "b", "c"])), [".a", "b", "c"]);
            assert_eq!(names(listing(format, ""), Vec::new()), [""; 0]);
        }
    }

    #[test]
    fn a_listing_is_sorted_as_asked() {
        for format in [Format::Unix, Format::Names] {
            for (argument, expected) in [
                ("", ["a", "b", "c"]),
                ("-r", ["c", "b", "a"]),
                ("-U", ["b", "a", "c"]),
                ("-t", ["c", "a", "b"]),
                ("-S", ["c", "a", "b"]),
                ("-Sr", ["b", "a", "c"]),
            ] {
                assert_eq!(names(listing(format, argument), files(&["b", "a", "c"])), expected, "{argument}");
            }
        }
        assert_eq!(names(listing(Format::Facts(Facts::TYPE), ""), files(&["b", "a"])), ["b", "a"]);
    }

    #[test]
    fn what_is_more_than_the_bound_is_listed_whole_and_unsorted() {
        let many: Vec<String> = (0..2000).rev().map(|number| format!("{number:04}")).collect();
        let entries = || files(&many.iter().map(String::as_str).collect::<Vec<_>>());
        for format in [Format::Unix, Format::Names] {
            let bounded = Listing { sort_bound: 1000, ..listing(format, "") };
            assert_eq!(names(bounded, entries()), many);
            let bounded = Listing { sort_bound: 2000, ..listing(format, "-r") };
            assert_eq!(names(bounded, entries()), many);
            let bounded = Listing { sort_bound: 2000, ..listing(format, "") };
            assert_eq!(names(bounded, entries()), many.iter().rev().cloned().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_listing_comes_in_pieces_of_about_the_size_asked_for() {
        let many: Vec<String> = (0..5000).map(|number| number.to_string()).collect();
        let entries = files(&many.iter().map(String::as_str).collect::<Vec<_>>());
        let mut lister = Lister::new(Fixed::boxed(entries), listing(Format::Unix, ""));
        let (mut out, mut total) = (Vec::new(), 0);
        loop {
            out.clear();
            let more = lister.fill(&mut out, 10_000).unwrap();
            assert!(out.len() < 10_100);
            total += out.iter().filter(|byte| **byte == b'\n').count();
            if !more {
                break;
            }
            assert!(out.len() >= 10_000);
        }
        assert_eq!(total, 5000);
        assert!(!lister.fill(&mut out, 1).unwrap());
    }

    #[test]
    fn all_shows_the_directory_itself() {
        assert_eq!(names(listing(Format::Unix, "-a"), files(&["a"])), [".", "..", "a"]);
        assert_eq!(names(listing(Format::Unix, "-A"), files(&["a"])), ["a"]);
        assert_eq!(names(listing(Format::Names, "-a"), files(&["a"])), ["a"]);
    }

    #[test]
    fn a_pattern_picks_names_and_hidden_ones_only_where_asked_for() {
        let pick = |pattern: &str, argument: &str| {
            let listing = Listing {
                search: vec![Level::Pattern(Glob::new(pattern.as_bytes()))],
                ..listing(Format::Names, argument)
            };
            names(listing, files(&[".a.txt", "b.txt", "c.rs"]))
        };
        assert_eq!(pick("*.txt", ""), ["b.txt"]);
        assert_eq!(pick("*.txt", "-a"), [".a.txt", "b.txt"]);
        assert_eq!(pick(".*", ""), [".a.txt"]);
        assert_eq!(pick("*", "-t"), ["c.rs", "b.txt"]);
        assert_eq!(pick("x", ""), [""; 0]);
    }

    #[test]
    fn a_pattern_visits_no_more_than_its_budget() {
        for format in [Format::Names, Format::Unix] {
            let many = files(&["b"; 1000]);
            let listing = Listing { search: vec![Level::new(b"a*")], budget: 600, ..listing(format, "") };
            let mut lister = Lister::new(Fixed::boxed(many), listing);
            let mut out = Vec::new();
            while lister.fill(&mut out, 1).unwrap() {}
            assert!(out.is_empty());
            assert_eq!(lister.cut(), Some(Cut::Budget));
        }
    }

    #[test]
    fn a_search_that_just_uses_its_budget_up_is_whole() {
        for (format, text) in [(Format::Names, ""), (Format::Unix, ""), (Format::Names, "-t")] {
            for (budget, expected) in [(600, None), (599, Some(Cut::Budget))] {
                let search = vec![Level::new(b"a*")];
                let listing = Listing { search, budget, ..listing(format, text) };
                let mut lister = Lister::new(Fixed::boxed(files(&["a"; 600])), listing);
                let mut out = Vec::new();
                while lister.fill(&mut out, 1).unwrap() {}
                assert_eq!(out.split(|&byte| byte == b'\n').count() as u64, budget + 1);
                assert_eq!(lister.cut(), expected);
            }
        }
    }

    fn forest() -> (Vec<DirEntry>, Arc<dyn Storage>) {
        let directory = |name| entry(name, FileKind::Directory, 0);
        let mut link = directory("link");
        link.link = Some(Link { text: b"sub".to_vec(), metadata: link.metadata });
        let root = vec![
            directory("sub"),
            entry("z", FileKind::File, 1),
            directory("empty"),
            link,
            directory("gone"),
        ];
        let forest = Forest(forest_of(&root), &[]);
        (root, Arc::new(forest))
    }

    fn forest_of(root: &[DirEntry]) -> BTreeMap<&'static str, Vec<DirEntry>> {
        let deep = entry("deep", FileKind::Directory, 0);
        BTreeMap::from([
            ("/pub", root.to_vec()),
            ("/pub/sub", vec![deep, entry("x", FileKind::File, 1)]),
            ("/pub/sub/deep", vec![entry("y", FileKind::File, 1)]),
            ("/pub/empty", Vec::new()),
        ])
    }

    fn recursive(listing: Listing) -> Lister {
        let (root, storage) = forest();
        Lister::new(Fixed::boxed(root), listing).in_tree(storage, VirtualPath::parse(b"/pub").unwrap())
    }

    #[test]
    fn recursive_listings_go_down_in_order_and_not_through_links() {
        let text = all(recursive(listing(Format::Unix, "-R")));
        let shape: Vec<&str> = text.split("\r\n").map(|line| line.rsplit(' ').next().unwrap()).collect();
        // The link's name is before its arrow.
        let expected = [
            ".:",
            "empty",
            "gone",
            "sub",
            "sub",
            "z",
            "",
            "./empty:",
            "",
            "./sub:",
            "deep",
            "x",
            "",
            "./sub/deep:",
            "y",
            "",
        ];
        assert_eq!(shape, expected);
        let listing = Listing { prefix: b"pub/".to_vec(), ..listing(Format::Names, "-R") };
        assert_eq!(
            all(recursive(listing)),
            "pub/empty\r\npub/gone\r\npub/link\r\npub/sub\r\npub/z\r\npub/sub/deep\r\npub/sub/x\r\npub/sub/deep/y\r\n"
        );
    }

    #[test]
    fn a_folder_of_which_only_names_may_be_read_ends_no_listing_of_a_tree() {
        let (root, _) = forest();
        let mut folders = forest_of(&root);
        folders.insert("/pub/empty", files(&["a", "dark"]));
        let mut lister = Lister::new(Fixed::boxed(root), listing(Format::Unix, "-Ra"))
            .in_tree(Arc::new(Forest(folders, &[])), VirtualPath::parse(b"/pub").unwrap());
        let mut out = Vec::new();
        while lister.fill(&mut out, 1).unwrap() {}
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains("./sub/deep:") && !text.contains("./empty:") && !text.contains("dark"),
            "{text}"
        );
        assert_eq!(lister.take_unread().unwrap().path.as_bytes(), b"/pub/empty");
        // Asked about itself, it is no empty folder.
        let mut itself = Lister::new(Fixed::boxed(files(&["dark"])), listing(Format::Unix, ""));
        assert!(matches!(itself.fill(&mut Vec::new(), 1), Err(FileError::PermissionDenied)));
    }

    /// What a search in the forest lists: the last word of each line.
    fn search(format: Format, options: &str, pattern: &str) -> String {
        let listing = listing(format, options);
        let (_, search) = search::split(pattern.as_bytes(), listing.options).unwrap();
        let only_directories = listing.options.directory && pattern.ends_with('/');
        let text = all(recursive(Listing { search, only_directories, ..listing }));
        let words = text.lines().map(|line| line.rsplit(' ').next().unwrap());
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_pattern_with_folders_in_it_is_looked_for_level_by_level() {
        for (pattern, expected) in [
            ("*/x", "sub/x"),
            ("s*/*", "sub/deep sub/x"),
            ("*/deep/*", "sub/deep/y"),
            ("[s]ub/deep/y", "sub/deep/y"),
            ("*/*/*", "sub/deep/y"),
            ("s*/", "sub/deep sub/x"),
            ("z*/*", ""),
            ("*/nothing", ""),
            ("*/nothing/*", ""),
            ("*/*/*/*", ""),
        ] {
            assert_eq!(search(Format::Names, "", pattern), expected, "{pattern}");
            assert_eq!(search(Format::Unix, "", pattern), expected, "{pattern}");
        }
        assert_eq!(search(Format::Names, "-r", "s*/*"), "sub/x sub/deep");
        assert_eq!(search(Format::Names, "-R", "s*/*"), "sub/deep sub/x sub/deep/y");
        assert_eq!(search(Format::Unix, "-R", "s*/*"), "sub/deep sub/x  ./sub/deep: y");
    }

    #[test]
    fn a_slash_behind_a_pattern_with_d_asks_for_the_folders_themselves() {
        for (pattern, expected) in [
            ("*/", "empty/ gone/ link/ sub/"),
            ("[ls]*/", "link/ sub/"),
            ("z*/", ""),
            ("s*/*/", "sub/deep/"),
            ("s*/deep/", "sub/deep/"),
            ("s*/x/", ""),
        ] {
            assert_eq!(search(Format::Names, "-d", pattern), expected, "{pattern}");
            assert_eq!(search(Format::Unix, "-d", pattern), expected, "{pattern}");
        }
        assert_eq!(search(Format::Names, "-d", "[sz]*"), "sub z");
    }

    #[test]
    fn what_cannot_be_read_is_passed_over_and_told_and_what_is_gone_is_not() {
        let unread = |forbidden, argument: &str, pattern: &str| {
            let (root, _) = forest();
            let forest = Forest(forest_of(&root), forbidden);
            let options = ListOptions::parse(argument.as_bytes()).0;
            let search =
                search::split(pattern.as_bytes(), options).map_or_else(Vec::new, |(_, search)| search);
            let listing = Listing { search, ..listing(Format::Unix, argument) };
            let mut lister = Lister::new(Fixed::boxed(root), listing)
                .in_tree(Arc::new(forest), VirtualPath::parse(b"/pub").unwrap());
            let mut out = Vec::new();
            while lister.fill(&mut out, 1).unwrap() {}
            assert_eq!(lister.cut(), None);
            let unread = lister.take_unread().map(|unread| {
                assert!(matches!(unread.why, FileError::PermissionDenied));
                (String::from_utf8_lossy(unread.path.as_bytes()).into_owned(), unread.more)
            });
            (unread, String::from_utf8(out).unwrap())
        };
        let (all, text) = unread(&[], "-R", "");
        assert!(all.is_none() && text.contains("./sub/deep:"), "a folder that is gone is none of them");
        let (one, text) = unread(&["/pub/sub"], "-R", "");
        assert_eq!(one, Some(("/pub/sub".to_owned(), 0)));
        // What it holds is not told as nothing.
        assert!(!text.contains("./sub:") && text.contains("./empty:"), "{text}");
        assert_eq!(unread(&["/pub/empty", "/pub/sub"], "-R", "").0, Some(("/pub/empty".to_owned(), 1)));
        assert_eq!(unread(&["/pub/sub"], "", "s*/*").0, Some(("/pub/sub".to_owned(), 0)));
        assert_eq!(unread(&["/pub/sub"], "", "s*/x").0, Some(("/pub/sub".to_owned(), 0)));
        assert_eq!(unread(&["/pub/sub"], "", "e*/*").0, None);
    }

    #[test]
    fn recursion_ends_at_its_depth_and_its_budget() {
        let cut = |listing| {
            let mut lister = recursive(listing);
            let mut out = Vec::new();
            while lister.fill(&mut out, 1).unwrap() {}
            (lister.cut(), String::from_utf8(out).unwrap())
        };
        assert_eq!(cut(listing(Format::Names, "-R")).0, None);
        let (reason, text) = cut(Listing { depth: 1, ..listing(Format::Names, "-R") });
        assert!(reason == Some(Cut::Depth) && text.contains("sub/x") && !text.contains("sub/deep/y"));
        let (reason, text) = cut(Listing { budget: 6, ..listing(Format::Names, "-R") });
        assert!(reason == Some(Cut::Budget) && !text.contains("sub/deep/y"));
        for format in [Format::Names, Format::Unix] {
            assert_eq!(cut(Listing { budget: 7, ..listing(format, "-R") }).0, Some(Cut::Budget));
            let (reason, text) = cut(Listing { budget: 8, ..listing(format, "-R") });
            assert!(reason.is_none() && text.contains("y\r\n"), "eight entries are all there are");
        }
    }

    #[test]
    fn names_carry_the_path_that_was_asked_for() {
        let listing = Listing { prefix: b"pub/".to_vec(), ..listing(Format::Names, "") };
        assert_eq!(all(Lister::new(Fixed::boxed(files(&["a", "b"])), listing)), "pub/a\r\npub/b\r\n");
    }

    #[test]
    fn a_line_feed_in_a_name_does_not_end_its_line() {
        for format in [Format::Unix, Format::Names] {
            let text = all(Lister::of(files(&["a\r\nb"]), listing(format, "")));
            assert!(text.ends_with("a\\015\\012b\r\n") && text.matches('\n').count() == 1);
        }
    }

    #[test]
    fn a_lister_can_go_to_another_thread() {
        fn is_send<T: Send>() {}
        is_send::<Lister>();
    }
}
