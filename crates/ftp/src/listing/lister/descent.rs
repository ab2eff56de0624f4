//! Listings that go on below their first directory: `-R`, and patterns with folders in them.
//!
//! Directories that wait are a stack, so nothing recurses, and each is at most [`Listing::depth`](super::Listing) deep.

use std::sync::Arc;

use millrace_vfs::{FileError, Storage, VirtualPath};

use super::super::search::Level;
use super::{Cut, Line, Lister, Unread, as_directory};
use crate::escape::escape_name;

/// Where a recursive listing is.
#[derive(Debug)]
pub(super) struct Tree {
    storage: Arc<dyn Storage>,
    path: VirtualPath,
    pub(super) depth: usize,
    /// Directories found in this one, in the order of the listing.
    pub(super) found: Vec<Vec<u8>>,
    /// Directories still to be listed, the next one last: path, displayed path, depth.
    waiting: Vec<(VirtualPath, Vec<u8>, usize)>,
}

impl Lister {
    /// Where `-R` was asked for, goes into the directories below `path`, the directory that is listed; links
    /// are not followed. Where a pattern has folders in it, goes into those that match, as a shell does also by links.
    pub fn in_tree(mut self, storage: Arc<dyn Storage>, path: VirtualPath) -> Self {
        if self.listing.options.recursive || self.listing.search.len() > 1 {
            self.tree = Some(Tree { storage, path, depth: 0, found: Vec::new(), waiting: Vec::new() });
        }
        self
    }

    /// Continues with a subdirectory; returns false if there is none.
    pub(super) fn next_directory(&mut self) -> Result<bool, FileError> {
        let Some(tree) = &mut self.tree else { return Ok(false) };
        if matches!(self.cut, Some(Cut::Budget(_))) {
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
            self.cut = Some(Cut::Depth(self.listing.depth));
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

    /// Skips an unreadable directory: like `ls` it continues, and reports it at the end. A directory that was removed
    /// meanwhile is not reported.
    pub(super) fn pass_over(&mut self, error: FileError) -> Result<(), FileError> {
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

    /// Returns true if these are matches in several folders, which are told apart by their paths, as `ls` does.
    pub(super) fn shows_paths(&self) -> bool {
        self.listing.search.len() > 1 && self.depth() < self.listing.search.len()
    }

    /// How deep beneath the first directory this one is.
    pub(super) fn depth(&self) -> usize {
        self.tree.as_ref().map_or(0, |tree| tree.depth)
    }

    /// `./pub:`, as `ls -R` has it, where a client asked for `-R`.
    pub(super) fn write_heading(&self, out: &mut Vec<u8>) {
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
}
