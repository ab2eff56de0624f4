//! The nodes of a tree in memory, and how a path finds them.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use millrace_vfs::{Change, FileError, FileKind, Link, Metadata, Owner, Space, Timestamp, VirtualPath};

/// How many links a path may lead through, as on Linux.
const MOST_LINKS: usize = 40;

/// Permission bits of a new file, by default.
const FILE_BITS: u32 = 0o644;

/// Permission bits of a new directory, by default.
pub(super) const DIRECTORY_BITS: u32 = 0o755;

/// A path without links: the names from the root down.
pub(super) type Names = Vec<Vec<u8>>;

/// The whole tree.
#[derive(Debug)]
pub(super) struct Tree {
    root: Node,
    identities: u64,
}

/// One entry.
#[derive(Debug)]
pub(super) enum Node {
    /// A file, shared with the uploads that write into it.
    File(Arc<FileNode>),
    /// A directory and what it holds.
    Directory(DirectoryNode),
    /// A symbolic link.
    Link(LinkNode),
}

/// A directory.
#[derive(Debug)]
pub(super) struct DirectoryNode {
    pub(super) entries: BTreeMap<Vec<u8>, Node>,
    attributes: Attributes,
}

/// A symbolic link.
#[derive(Debug)]
pub(super) struct LinkNode {
    text: Vec<u8>,
    attributes: Attributes,
}

/// A file. Its state is locked by itself, so that an upload in place needs no tree.
#[derive(Debug)]
pub(super) struct FileNode {
    state: Mutex<FileState>,
}

#[derive(Debug)]
struct FileState {
    content: Arc<Content>,
    attributes: Attributes,
}

/// The changeable attributes of a node, and its identity.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attributes {
    modified: Timestamp,
    created: Timestamp,
    mode: u32,
    owner: Owner,
    identity: u64,
}

/// Takes the tree apart level by level: a drop that descends would need as much stack as a client has made
/// directories within directories.
impl Drop for Tree {
    fn drop(&mut self) {
        let Node::Directory(root) = &mut self.root else { return };
        let mut levels = vec![std::mem::take(&mut root.entries)];
        while let Some(entries) = levels.pop() {
            levels.extend(entries.into_values().filter_map(|node| match node {
                Node::Directory(directory) => Some(directory.entries),
                _ => None,
            }));
        }
    }
}

impl Tree {
    /// Nothing but a root.
    pub(super) fn new() -> Self {
        Self { root: Node::directory(Attributes::new(1, DIRECTORY_BITS)), identities: 1 }
    }

    /// A number that no other node has.
    pub(super) fn next_identity(&mut self) -> u64 {
        self.identities += 1;
        self.identities
    }

    /// The node of a path, links followed.
    pub(super) fn find(&self, path: &VirtualPath) -> Result<&Node, FileError> {
        let place = self.resolve(path, true)?;
        self.node(&place).ok_or(FileError::NotFound)
    }

    /// The node of a directory's entry, links followed.
    pub(super) fn follow(&self, directory: &[Vec<u8>], name: &[u8]) -> Option<&Node> {
        let place = self.walk(directory.to_vec(), &[name], true).ok()?;
        self.node(&place)
    }

    /// Where a path leads. Everything but the last name exists there and is a directory.
    pub(super) fn resolve(&self, path: &VirtualPath, follow_last: bool) -> Result<Names, FileError> {
        let names: Vec<&[u8]> = path.components().collect();
        self.walk(Names::new(), &names, follow_last)
    }

    fn walk(&self, start: Names, names: &[&[u8]], follow_last: bool) -> Result<Names, FileError> {
        let mut place = start;
        // The rest of the path, the next name last.
        let mut ahead: Names = names.iter().rev().map(|name| name.to_vec()).collect();
        let mut links = 0;
        while let Some(name) = ahead.pop() {
            match &name[..] {
                b"" | b"." => continue,
                b".." => {
                    // The parent of the root is outside the tree.
                    place.pop().ok_or(FileError::PermissionDenied)?;
                    continue;
                }
                _ => {}
            }
            let is_last = ahead.is_empty();
            let directory = match self.node(&place) {
                Some(Node::Directory(directory)) => directory,
                Some(_) => return Err(FileError::NotDirectory),
                None => return Err(FileError::NotFound),
            };
            match directory.entries.get(&name) {
                Some(Node::Link(link)) if follow_last || !is_last => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(FileError::Loop);
                    }
                    link.lead(&mut ahead)?;
                }
                None if !is_last => return Err(FileError::NotFound),
                _ => place.push(name),
            }
        }
        Ok(place)
    }

    /// The node at a place.
    pub(super) fn node(&self, place: &[Vec<u8>]) -> Option<&Node> {
        place.iter().try_fold(&self.root, |node, name| match node {
            Node::Directory(directory) => directory.entries.get(name),
            _ => None,
        })
    }

    /// The node at a place, to change it.
    pub(super) fn node_mut(&mut self, place: &[Vec<u8>]) -> Option<&mut Node> {
        place.iter().try_fold(&mut self.root, |node, name| match node {
            Node::Directory(directory) => directory.entries.get_mut(name),
            _ => None,
        })
    }

    /// The directory that holds a place, and the name in it.
    fn parent_mut<'a>(
        &mut self,
        place: &'a [Vec<u8>],
    ) -> Result<(&mut DirectoryNode, &'a Vec<u8>), FileError> {
        let (name, parent) = place.split_last().ok_or(FileError::AlreadyExists)?;
        match self.node_mut(parent) {
            Some(Node::Directory(directory)) => Ok((directory, name)),
            Some(_) => Err(FileError::NotDirectory),
            None => Err(FileError::NotFound),
        }
    }

    /// Puts a node where none is.
    pub(super) fn insert_new(&mut self, place: &[Vec<u8>], node: Node) -> Result<(), FileError> {
        let (directory, name) = self.parent_mut(place)?;
        if directory.entries.contains_key(name) {
            return Err(FileError::AlreadyExists);
        }
        directory.insert(name, node);
        Ok(())
    }

    /// Makes a file where none is.
    pub(super) fn make_file(
        &mut self,
        place: &[Vec<u8>],
        content: Content,
        bits: Option<u32>,
    ) -> Result<Arc<FileNode>, FileError> {
        let attributes = Attributes::new(self.next_identity(), bits.unwrap_or(FILE_BITS));
        let file = Arc::new(FileNode::new(content, attributes));
        self.insert_new(place, Node::File(Arc::clone(&file)))?;
        Ok(file)
    }

    /// Puts a finished upload where it belongs. It takes over the mode and owner of the file that it
    /// replaces, whose readers keep the old content.
    pub(super) fn publish(
        &mut self,
        place: &[Vec<u8>],
        content: Content,
        exclusive: bool,
        bits: Option<u32>,
    ) -> Result<(), FileError> {
        let mut attributes = Attributes::new(self.next_identity(), bits.unwrap_or(FILE_BITS));
        let (directory, name) = self.parent_mut(place)?;
        match directory.entries.get(name) {
            Some(_) if exclusive => return Err(FileError::AlreadyExists),
            Some(Node::Directory(_)) => return Err(FileError::IsDirectory),
            Some(Node::File(old)) => attributes.inherit(&old.state().attributes),
            Some(Node::Link(_)) | None => {}
        }
        directory.insert(name, Node::File(Arc::new(FileNode::new(content, attributes))));
        Ok(())
    }

    /// Takes the node at a place out of the tree.
    pub(super) fn remove(&mut self, place: &[Vec<u8>]) -> Result<Node, FileError> {
        let (directory, name) = self.parent_mut(place)?;
        directory.attributes.modified = now();
        directory.entries.remove(name).ok_or(FileError::NotFound)
    }

    /// Moves a node; a file that has the new name is replaced, a directory is not.
    pub(super) fn rename(&mut self, from: &[Vec<u8>], to: &[Vec<u8>]) -> Result<(), FileError> {
        let is_directory = matches!(self.node(from).ok_or(FileError::NotFound)?, Node::Directory(_));
        if from == to {
            return Ok(());
        }
        if to.starts_with(from) {
            return Err(FileError::InvalidName);
        }
        match self.node(to) {
            Some(Node::Directory(_)) if !is_directory => return Err(FileError::IsDirectory),
            Some(_) if is_directory => return Err(FileError::AlreadyExists),
            _ => {}
        }
        // Both parents exist (`resolve` says so), so nothing is lost between the two steps.
        let node = self.remove(from)?;
        let (directory, name) = self.parent_mut(to)?;
        directory.insert(name, node);
        Ok(())
    }
}

impl Node {
    /// An empty directory.
    pub(super) fn directory(attributes: Attributes) -> Self {
        Self::Directory(DirectoryNode { entries: BTreeMap::new(), attributes })
    }

    /// A link.
    pub(super) fn link(text: &[u8], attributes: Attributes) -> Self {
        Self::Link(LinkNode { text: text.to_owned(), attributes })
    }

    /// The link that it is.
    pub(super) fn as_link(&self) -> Option<Link> {
        match self {
            Self::Link(link) => Some(Link { text: link.text.clone(), metadata: self.metadata() }),
            _ => None,
        }
    }

    /// The node itself, not what a link leads to.
    pub(super) fn metadata(&self) -> Metadata {
        match self {
            Self::File(file) => {
                let state = file.state();
                state.attributes.metadata(FileKind::File, state.content.len() as u64, 1)
            }
            Self::Directory(directory) => {
                directory.attributes.metadata(FileKind::Directory, directory.entries.len() as u64, 2)
            }
            Self::Link(link) => link.attributes.metadata(FileKind::Symlink, link.text.len() as u64, 1),
        }
    }

    /// Changes attributes.
    pub(super) fn change(&mut self, change: Change) {
        match self {
            Self::File(file) => file.state().attributes.change(change),
            Self::Directory(directory) => directory.attributes.change(change),
            Self::Link(link) => link.attributes.change(change),
        }
    }
}

impl DirectoryNode {
    fn insert(&mut self, name: &[u8], node: Node) {
        self.attributes.modified = now();
        self.entries.insert(name.to_owned(), node);
    }
}

impl LinkNode {
    /// Puts the names of the link's text before those that are still ahead.
    fn lead(&self, ahead: &mut Names) -> Result<(), FileError> {
        if self.text.first() == Some(&b'/') {
            return Err(FileError::PermissionDenied);
        }
        ahead.extend(self.text.split(|&byte| byte == b'/').rev().map(<[u8]>::to_vec));
        Ok(())
    }
}

impl FileNode {
    fn new(content: Content, attributes: Attributes) -> Self {
        Self { state: Mutex::new(FileState { content: Arc::new(content), attributes }) }
    }

    fn state(&self) -> MutexGuard<'_, FileState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The content as it is now.
    pub(super) fn content(&self) -> Arc<Content> {
        Arc::clone(&self.state().content)
    }

    /// Writes into the file. Readers keep what they opened.
    pub(super) fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let mut state = self.state();
        let offset = usize::try_from(offset).map_err(|_| FileError::TooLarge)?;
        Arc::make_mut(&mut state.content).write_at(offset, bytes)?;
        state.attributes.modified = now();
        Ok(())
    }

    /// Appends at the file's present end.
    pub(super) fn append(&self, bytes: &[u8]) -> Result<(), FileError> {
        let mut state = self.state();
        let end = state.content.len();
        Arc::make_mut(&mut state.content).write_at(end, bytes)?;
        state.attributes.modified = now();
        Ok(())
    }

    /// Cuts the file to a length, where it is longer.
    pub(super) fn truncate(&self, length: usize) {
        Arc::make_mut(&mut self.state().content).truncate(length);
    }
}

impl Attributes {
    /// Those of a node made now.
    pub(super) fn new(identity: u64, mode: u32) -> Self {
        let now = now();
        Self { modified: now, created: now, mode, owner: Owner::default(), identity }
    }

    fn inherit(&mut self, old: &Self) {
        self.mode = old.mode;
        self.owner = old.owner;
    }

    fn change(&mut self, change: Change) {
        self.modified = change.modified.unwrap_or(self.modified);
        self.mode = change.mode.map_or(self.mode, |mode| mode & 0o7777);
        self.owner.user = change.user.unwrap_or(self.owner.user);
        self.owner.group = change.group.unwrap_or(self.owner.group);
    }

    fn metadata(&self, kind: FileKind, size: u64, links: u32) -> Metadata {
        Metadata {
            kind,
            size,
            modified: self.modified,
            created: Some(self.created),
            changed: None,
            mode: self.mode,
            owner: self.owner,
            links,
            identity: (0, self.identity),
        }
    }
}

/// The bytes of a file, paid for out of the tree's room until they are dropped.
#[derive(Debug)]
pub(super) struct Content {
    bytes: Vec<u8>,
    room: Arc<Room>,
}

impl Content {
    /// No bytes.
    pub(super) fn empty(room: &Arc<Room>) -> Self {
        Self { bytes: Vec::new(), room: Arc::clone(room) }
    }

    /// Overwrites from `offset` on, and grows as need be.
    pub(super) fn write_at(&mut self, offset: usize, bytes: &[u8]) -> Result<(), FileError> {
        let end = offset.checked_add(bytes.len()).ok_or(FileError::TooLarge)?;
        if end > self.bytes.len() {
            self.room.take((end - self.bytes.len()) as u64)?;
            self.bytes.resize(end, 0);
        }
        self.bytes[offset..end].copy_from_slice(bytes);
        Ok(())
    }
}

impl Content {
    fn truncate(&mut self, length: usize) {
        let before = self.bytes.len();
        self.bytes.truncate(length);
        self.room.used.fetch_sub((before - self.bytes.len()) as u64, Ordering::Relaxed);
    }
}

impl Deref for Content {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A second version, because a reader still holds the first: it is charged for, but never refused.
impl Clone for Content {
    fn clone(&self) -> Self {
        self.room.used.fetch_add(self.bytes.len() as u64, Ordering::Relaxed);
        Self { bytes: self.bytes.clone(), room: Arc::clone(&self.room) }
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        self.room.used.fetch_sub(self.bytes.len() as u64, Ordering::Relaxed);
    }
}

/// How much the files may hold in all.
#[derive(Debug)]
pub(super) struct Room {
    limit: u64,
    used: AtomicU64,
}

impl Room {
    /// Room for `limit` bytes.
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, used: AtomicU64::new(0) }
    }

    fn take(&self, bytes: u64) -> Result<(), FileError> {
        let fits = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.limit);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(()),
            Err(_) => Err(FileError::NoSpace),
        }
    }

    /// The free space.
    pub(super) fn space(&self) -> Space {
        let used = self.used.load(Ordering::Relaxed);
        let available = self.limit.saturating_sub(used);
        Space { available, total: self.limit, held: None, quota: None }
    }
}

fn now() -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: now.as_secs().cast_signed(), nanoseconds: now.subsec_nanos() }
}
