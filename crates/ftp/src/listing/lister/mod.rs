//! A listing in progress: from what a back end reads, bytes on demand.
//!
//! Entries wait in a queue, which holds at most the entries to sort, or one batch. `descent.rs` walks the
//! subdirectories.

mod descent;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use millrace_vfs::{DirEntry, Directory, FileError};

use super::facts::Place;
use super::names::NameQueue;
use super::{Cut, Format, ListOptions, Listing, Sort, Unread, facts, sort, unix};
use crate::escape::escape_name;
use crate::glob::Glob;
use descent::Tree;

/// How many entries are asked of a back end at a time.
const BATCH: usize = 2048;

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
    /// Entries formatted ahead, and whether there may be more after them.
    ahead: Option<(Vec<u8>, bool)>,
}

#[derive(Debug)]
enum Line {
    Unix(unix::UnixWriter),
    Names,
    Facts(facts::FactWriter),
}

impl Lister {
    /// Lists the content of `directory`.
    pub fn new(directory: Box<dyn Directory>, listing: Listing) -> Self {
        Self { directory: Some(directory), is_fresh: true, ..Self::of(Vec::new(), listing) }
    }

    /// Lists these entries: one file, or with `-d` the directory itself.
    pub fn of(entries: Vec<DirEntry>, listing: Listing) -> Self {
        let line = match listing.format {
            Format::Unix => Line::Unix(unix::UnixWriter::new(listing.now, Arc::clone(&listing.owners))),
            Format::Names => Line::Names,
            Format::Facts(facts) => Line::Facts(
                facts::FactWriter::new(facts, listing.rights, Arc::clone(&listing.owners))
                    .with_links(listing.links)
                    .with_fact_source(Arc::clone(&listing.fact_source))
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

    /// Makes the first piece now, while waiting is allowed, so that the first [`Lister::fill`] has it at once.
    pub fn begin(&mut self, at_least: usize) -> Result<(), FileError> {
        let mut piece = Vec::new();
        let more = self.fill(&mut piece, at_least)?;
        self.ahead = Some((piece, more));
        Ok(())
    }

    /// Returns true if the next [`Lister::fill`] does not wait.
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

    /// The folders that it could not read, if any; to be called once, at its end.
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

    /// Takes this many entries off the budget; answers whether they were within it, and keeps the reason where not.
    fn affords(&mut self, visited: usize) -> bool {
        if self.left == 0 && visited > 0 {
            self.cut = Some(Cut::Budget(self.listing.budget));
        }
        self.left = self.left.saturating_sub(visited as u64);
        !matches!(self.cut, Some(Cut::Budget(_)))
    }

    /// `.` and `..`, if requested. The parent may not be visible, so `..` shows the metadata of `.`.
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

    /// Writes queued entries, up to `goal` bytes in `out`.
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

/// Returns true if a pattern's match is listed: hidden names only where they are asked for.
fn is_wanted(name: &[u8], pattern: &Glob, options: ListOptions) -> bool {
    let is_shown = name.first() != Some(&b'.') || pattern.names_hidden() || options.shows_hidden();
    is_shown && pattern.matches(name)
}

fn write_name(shown: &[u8], name: &[u8], line_end: &[u8], out: &mut Vec<u8>) {
    escape_name(shown, out);
    escape_name(name, out);
    out.extend_from_slice(line_end);
}
