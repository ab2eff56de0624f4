//! A tree in memory: for tests, and for programs that embed the server.
//!
//! Uploads are staged: a name shows the old content or all of the new. A reader keeps the version that it
//! opened, whatever happens to the name. Links behave as on disk: followed within the tree, refused where
//! they lead out. Nothing ever waits.

mod node;
mod upload;

use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_vfs::{
    Change, DirEntry, Directory, FileError, Metadata, ReadHandle, ReadStream, Readiness, Space, Storage,
    Upload, VirtualPath, Wait, WriteMode,
};

use crate::through;
use node::{Attributes, Content, DIRECTORY_BITS, Names, Node, Room, Tree};
use upload::{InPlace, Staged};

/// A tree of files in memory. Clones share it.
#[derive(Debug, Clone)]
pub struct MemoryStorage {
    shared: Arc<Shared>,
}

/// The state shared by the storage and its open uploads and directories.
#[derive(Debug)]
struct Shared {
    /// Held for one operation; never while bytes are copied to or from a client.
    tree: Mutex<Tree>,
    room: Arc<Room>,
}

impl Shared {
    fn tree(&self) -> MutexGuard<'_, Tree> {
        // No operation leaves the tree half-changed, so a panic elsewhere does not spoil it.
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryStorage {
    /// An empty tree without a limit.
    pub fn new() -> Self {
        Self::with_capacity(u64::MAX)
    }

    /// An empty tree whose files, and the uploads to it, hold at most `bytes` in all; then they get
    /// [`FileError::NoSpace`].
    pub fn with_capacity(bytes: u64) -> Self {
        Self { shared: Arc::new(Shared { tree: Mutex::new(Tree::new()), room: Arc::new(Room::new(bytes)) }) }
    }

    /// Makes a file, and the directories on the way to it. For tests and set-up.
    ///
    /// # Panics
    /// Where `path` is no path, is a directory, or there is no room.
    pub fn insert(&self, path: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = VirtualPath::parse(path.as_bytes()).expect("the path is well-formed");
        self.insert_directories(&path.parent());
        let bytes = content.as_ref();
        let mut upload =
            self.open_write(&path, WriteMode::Replace, Wait::Never).expect("the name can be written");
        upload.write_all(bytes).expect("there is room");
        upload.commit().expect("the name can be replaced");
        self
    }

    fn insert_directories(&self, path: &VirtualPath) {
        if path.is_root() {
            return;
        }
        self.insert_directories(&path.parent());
        match self.make_directory(path) {
            Ok(()) | Err(FileError::AlreadyExists) => {}
            Err(error) => panic!("cannot make {path}: {error}"),
        }
    }

    /// The content of a file, or `None` where there is no such file. For tests.
    pub fn read(&self, path: &str) -> Option<Vec<u8>> {
        let path = VirtualPath::parse(path.as_bytes()).ok()?;
        let tree = self.shared.tree();
        match tree.find(&path).ok()? {
            Node::File(file) => Some(file.content().to_vec()),
            _ => None,
        }
    }
}

impl Default for MemoryStorage {
    fn default() -> Self {
        Self::new()
    }
}

impl Storage for MemoryStorage {
    fn open_read(&self, path: &VirtualPath, _: Wait) -> Result<ReadHandle, FileError> {
        match self.shared.tree().find(path)? {
            Node::File(file) => Ok(ReadHandle::Stream(Box::new(Reader { content: file.content() }))),
            Node::Directory(_) => Err(FileError::IsDirectory),
            Node::Link(_) => Err(FileError::Loop),
        }
    }

    fn open_write_with(
        &self,
        path: &VirtualPath,
        mode: WriteMode,
        bits: Option<u32>,
        _: Wait,
    ) -> Result<Box<dyn Upload>, FileError> {
        let mut tree = self.shared.tree();
        let place = tree.resolve(path, mode != WriteMode::CreateNew)?;
        let old = match tree.node(&place) {
            Some(Node::Directory(_)) => return Err(FileError::IsDirectory),
            Some(_) if mode == WriteMode::CreateNew => return Err(FileError::AlreadyExists),
            Some(Node::File(file)) => Some(Arc::clone(file)),
            Some(Node::Link(_)) => return Err(FileError::Loop),
            None => None,
        };
        let offset = match (mode, &old) {
            (WriteMode::Replace | WriteMode::CreateNew, _) => {
                let exclusive = mode == WriteMode::CreateNew;
                return Ok(Box::new(Staged::new(Arc::clone(&self.shared), place, exclusive, bits)));
            }
            (WriteMode::At(offset), Some(file)) if offset > file.content().len() as u64 => {
                return Err(FileError::OutOfRange);
            }
            (WriteMode::At(offset), Some(_)) => offset,
            (WriteMode::At(1..), None) => return Err(FileError::NotFound),
            // It goes to where the end is.
            (WriteMode::Append, _) | (WriteMode::At(_), None) => 0,
        };
        let file = match old {
            Some(file) => file,
            None => tree.make_file(&place, Content::empty(&self.shared.room), bits)?,
        };
        Ok(Box::new(match mode {
            WriteMode::Append => InPlace::appending(file),
            _ => InPlace::new(file, offset),
        }))
    }

    fn metadata(&self, path: &VirtualPath, _: Wait) -> Result<Metadata, FileError> {
        self.shared.tree().find(path).map(Node::metadata)
    }

    fn entry(&self, path: &VirtualPath) -> Result<DirEntry, FileError> {
        let tree = self.shared.tree();
        let place = tree.resolve(path, false)?;
        let node = tree.node(&place).ok_or(FileError::NotFound)?;
        Ok(DirEntry { name: path.name().to_owned(), metadata: node.metadata(), link: node.as_link() })
    }

    fn open_directory(&self, path: &VirtualPath) -> Result<Box<dyn Directory>, FileError> {
        let tree = self.shared.tree();
        let place = tree.resolve(path, true)?;
        match tree.node(&place) {
            Some(Node::Directory(_)) => {
                Ok(Box::new(Cursor { shared: Arc::clone(&self.shared), place, last: None }))
            }
            Some(_) => Err(FileError::NotDirectory),
            None => Err(FileError::NotFound),
        }
    }

    fn make_directory_with(&self, path: &VirtualPath, bits: Option<u32>) -> Result<(), FileError> {
        let mut tree = self.shared.tree();
        let place = tree.resolve(path, false)?;
        let attributes = Attributes::new(tree.next_identity(), bits.unwrap_or(DIRECTORY_BITS));
        tree.insert_new(&place, Node::directory(attributes))
    }

    fn remove_directory(&self, path: &VirtualPath) -> Result<(), FileError> {
        let mut tree = self.shared.tree();
        let place = tree.resolve(path, false)?;
        match tree.node(&place) {
            _ if place.is_empty() => Err(FileError::PermissionDenied),
            Some(Node::Directory(directory)) if !directory.entries.is_empty() => Err(FileError::NotEmpty),
            Some(Node::Directory(_)) => tree.remove(&place).map(drop),
            Some(_) => Err(FileError::NotDirectory),
            None => Err(FileError::NotFound),
        }
    }

    fn remove_file(&self, path: &VirtualPath) -> Result<(), FileError> {
        let mut tree = self.shared.tree();
        let place = tree.resolve(path, false)?;
        match tree.node(&place) {
            Some(Node::Directory(_)) => Err(FileError::IsDirectory),
            Some(_) => tree.remove(&place).map(drop),
            None => Err(FileError::NotFound),
        }
    }

    fn rename(&self, from: &VirtualPath, to: &VirtualPath) -> Result<(), FileError> {
        let mut tree = self.shared.tree();
        let (from, to) = (tree.resolve(from, false)?, tree.resolve(to, false)?);
        if from.is_empty() || to.is_empty() {
            return Err(FileError::PermissionDenied);
        }
        tree.rename(&from, &to)
    }

    fn change(&self, path: &VirtualPath, change: Change) -> Result<(), FileError> {
        let mut tree = self.shared.tree();
        let place = tree.resolve(path, true)?;
        tree.node_mut(&place).ok_or(FileError::NotFound)?.change(change);
        Ok(())
    }

    fn make_symlink(&self, target: &[u8], path: &VirtualPath) -> Result<(), FileError> {
        if target.is_empty() || target.contains(&0) {
            return Err(FileError::InvalidName);
        }
        let mut tree = self.shared.tree();
        let place = tree.resolve(path, false)?;
        let attributes = Attributes::new(tree.next_identity(), 0o777);
        tree.insert_new(&place, Node::link(target, attributes))
    }

    fn copy(
        &self,
        from: &VirtualPath,
        to: &VirtualPath,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u64, FileError> {
        through::copy((self, from), (self, to), progress)
    }

    /// The back end has no rules of its own.
    fn may_replace(&self, _: &VirtualPath, _: bool) -> Result<(), FileError> {
        Ok(())
    }

    fn space(&self, path: &VirtualPath) -> Result<Space, FileError> {
        self.shared.tree().find(path)?;
        Ok(self.shared.room.space())
    }
}

/// A file as it was when it was opened.
#[derive(Debug)]
struct Reader {
    content: Arc<Content>,
}

impl ReadStream for Reader {
    fn size(&self) -> Option<u64> {
        Some(self.content.len() as u64)
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.content.len());
        let rest = &self.content[start..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn readiness(&self) -> Readiness {
        Readiness::Cached
    }
}

/// An open directory: the place after the last name that was shown.
#[derive(Debug)]
struct Cursor {
    shared: Arc<Shared>,
    place: Names,
    last: Option<Vec<u8>>,
}

impl Cursor {
    fn visit(&mut self, most: usize, mut visit: impl FnMut(&Tree, &[u8], &Node)) -> Result<usize, FileError> {
        let tree = self.shared.tree();
        let Some(Node::Directory(directory)) = tree.node(&self.place) else { return Ok(0) };
        let start = match &self.last {
            Some(last) => Bound::Excluded(last.as_slice()),
            None => Bound::Unbounded,
        };
        let mut visited = 0;
        let mut last = None;
        for (name, node) in directory.entries.range::<[u8], _>((start, Bound::Unbounded)).take(most.max(1)) {
            visit(&tree, name, node);
            visited += 1;
            last = Some(name);
        }
        if let Some(last) = last {
            self.last = Some(last.clone());
        }
        Ok(visited)
    }
}

impl Directory for Cursor {
    fn next_batch(&mut self, entries: &mut Vec<DirEntry>, most: usize) -> Result<(), FileError> {
        let place = self.place.clone();
        self.visit(most, |tree, name, node| {
            let shown = tree.follow(&place, name).unwrap_or(node);
            entries.push(DirEntry {
                name: name.to_owned(),
                metadata: shown.metadata(),
                link: node.as_link(),
            });
        })?;
        Ok(())
    }

    fn next_names(&mut self, visit: &mut dyn FnMut(&[u8]), most: usize) -> Result<usize, FileError> {
        self.visit(most, |_, name, _| visit(name))
    }

    fn metadata(&self) -> Result<Metadata, FileError> {
        self.shared.tree().node(&self.place).map(Node::metadata).ok_or(FileError::NotFound)
    }
}
