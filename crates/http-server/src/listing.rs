//! Pages of directories: sorted, for people one of several pages where they are too large, for programs streamed then.

use millrace_http::index::{Cursor, Format, Links, Order, Position, Selection};
use millrace_vfs::{DirEntry, Directory, FileError, ReadStream, Storage, VirtualPath};

/// The size of a write.
const FILL: usize = 64 * 1024;

/// Entries that are read at a time.
const BATCH: usize = 512;

/// How a page is to be.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) format: Format,
    pub(crate) order: Order,
    /// Which page, where there are several.
    pub(crate) cursor: Cursor,
    /// More entries than this are not sorted, or are not on one page.
    pub(crate) sort_entries: usize,
    pub(crate) links: Links,
}

/// A page being made.
#[derive(Debug)]
pub struct Listing {
    directory: Box<dyn Directory>,
    format: Format,
    path: VirtualPath,
    /// Entries that were read and not yet written, from the last one on.
    entries: Vec<DirEntry>,
    /// How they are sorted; `None` where there are too many.
    order: Option<Order>,
    /// Where the page stands, if there are several.
    position: Option<Position>,
    links: Links,
    stage: Stage,
    /// The next bytes of the stream.
    ready: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    Begin,
    /// The next row is the first.
    FirstRow,
    Rows,
    Drained,
}

impl Listing {
    /// Opens a directory, and reads it where it is to be sorted; all of it for a page of several.
    pub(crate) fn open(
        storage: &dyn Storage,
        path: &VirtualPath,
        Shape { format, order, cursor, sort_entries, links }: Shape,
    ) -> Result<Self, FileError> {
        let mut directory = storage.open_directory(path)?;
        let mut entries = Vec::new();
        let mut is_whole = false;
        while !is_whole && entries.len() <= sort_entries {
            let before = entries.len();
            directory.next_batch(&mut entries, BATCH)?;
            is_whole = entries.len() == before;
        }
        let (mut sorted, mut position) = (Some(order), None);
        match format {
            _ if is_whole => order.sort(&mut entries),
            Format::Html if sort_entries > 0 => {
                let mut selection = Selection::new(order, cursor, sort_entries);
                while !entries.is_empty() {
                    selection.take(&mut entries);
                    directory.next_batch(&mut entries, BATCH)?;
                }
                let (selected, place) = selection.finish();
                (entries, position) = (selected, Some(place));
            }
            Format::Html | Format::Json => sorted = None,
        }
        entries.reverse();
        Ok(Self {
            directory,
            format,
            path: path.clone(),
            entries,
            order: sorted,
            position,
            links,
            stage: Stage::Begin,
            ready: Vec::new(),
        })
    }

    /// Returns whether it is sorted as was asked.
    pub(crate) fn is_sorted(&self) -> bool {
        self.order.is_some()
    }

    /// Returns whether all of it was written.
    pub(crate) fn is_drained(&self) -> bool {
        self.stage == Stage::Drained
    }

    /// Writes the next part. May wait.
    pub(crate) fn fill(&mut self) -> Result<Vec<u8>, FileError> {
        let mut out = Vec::new();
        if self.stage == Stage::Begin {
            let position = self.position.as_ref();
            self.format.begin(&self.path, self.order, position, &self.links, &mut out);
            self.stage = Stage::FirstRow;
        }
        while out.len() < FILL && self.stage != Stage::Drained {
            if self.entries.is_empty() && self.order.is_none() {
                self.directory.next_batch(&mut self.entries, BATCH)?;
                self.entries.reverse();
            }
            match self.entries.pop() {
                Some(entry) => {
                    self.format.row(&entry, self.stage == Stage::FirstRow, &self.links, &mut out);
                    self.stage = Stage::Rows;
                }
                None => {
                    self.format.end(self.position.as_ref(), &self.links, &mut out);
                    self.stage = Stage::Drained;
                }
            }
        }
        Ok(out)
    }

    /// The same, with bytes that were made already, as a stream.
    pub(crate) fn beginning_with(mut self, first: Vec<u8>) -> Self {
        self.ready = first;
        self
    }
}

/// Read once, from its start: the offset is where the last read ended.
impl ReadStream for Listing {
    fn size(&self) -> Option<u64> {
        None
    }

    fn read_at(&mut self, _: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        if self.ready.is_empty() && !self.is_drained() {
            self.ready = self.fill()?;
        }
        let count = buffer.len().min(self.ready.len());
        buffer[..count].copy_from_slice(&self.ready[..count]);
        self.ready.drain(..count);
        Ok(count)
    }
}
