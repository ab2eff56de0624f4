//! Files by their paths, in a map, and what they have to say to a session's questions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use millrace_ftp::digest::Hasher;
use millrace_ftp::listing::Lister;
use millrace_ftp::session::*;
use millrace_vfs::*;

/// Files by their paths; a directory is a path without content. The root always exists.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tree(Arc<Mutex<BTreeMap<VirtualPath, Node>>>);

#[derive(Debug, Clone, Default)]
pub(crate) struct Node {
    /// `None` for a directory.
    pub(crate) content: Option<Vec<u8>>,
    pub(crate) mode: u32,
    pub(crate) modified: Timestamp,
}

pub(crate) fn path(text: impl AsRef<[u8]>) -> VirtualPath {
    VirtualPath::parse(text.as_ref()).unwrap()
}

impl Tree {
    pub(crate) fn insert(&self, name: &str, content: impl AsRef<[u8]>) {
        let node = Node { content: Some(content.as_ref().to_vec()), mode: 0o644, ..Node::default() };
        self.0.lock().unwrap().insert(path(name), node);
    }

    pub(crate) fn insert_directory(&self, name: &str) {
        self.0.lock().unwrap().insert(path(name), Node { mode: 0o755, ..Node::default() });
    }

    pub(crate) fn content(&self, name: &str) -> Option<Vec<u8>> {
        self.0.lock().unwrap().get(&path(name))?.content.clone()
    }

    pub(crate) fn mode(&self, name: &str) -> Option<u32> {
        Some(self.0.lock().unwrap().get(&path(name))?.mode)
    }

    pub(crate) fn modified(&self, name: &str) -> Option<i64> {
        Some(self.0.lock().unwrap().get(&path(name))?.modified.seconds)
    }

    fn node(&self, path: &VirtualPath) -> Result<Node, FileError> {
        if path.is_root() {
            return Ok(Node { mode: 0o755, ..Node::default() });
        }
        self.0.lock().unwrap().get(path).cloned().ok_or(FileError::NotFound)
    }

    fn file(&self, path: &VirtualPath) -> Result<Vec<u8>, FileError> {
        self.node(path)?.content.ok_or(FileError::IsDirectory)
    }

    fn entries(&self, directory: &VirtualPath) -> Vec<DirEntry> {
        let map = self.0.lock().unwrap();
        let children = map.iter().filter(|(path, _)| path.parent() == *directory && !path.is_root());
        children.map(|(path, node)| entry(path, node)).collect()
    }

    fn put(&self, path: VirtualPath, node: Node) -> Result<(), FileError> {
        if !path.is_root() && self.node(&path.parent())?.content.is_some() {
            return Err(FileError::NotDirectory);
        }
        self.0.lock().unwrap().insert(path, node);
        Ok(())
    }

    fn remove(&self, path: &VirtualPath) -> Result<Node, FileError> {
        self.0.lock().unwrap().remove(path).ok_or(FileError::NotFound)
    }

    fn upload(
        &self,
        path: VirtualPath,
        mode: WriteMode,
        bits: Option<u32>,
    ) -> Result<Box<dyn Upload>, FileError> {
        let old = match self.file(&path) {
            Ok(content) => Some(content),
            Err(FileError::NotFound) => None,
            Err(error) => return Err(error),
        };
        let (content, at) = match (mode, old) {
            (WriteMode::CreateNew, Some(_)) => return Err(FileError::AlreadyExists),
            (WriteMode::At(start), Some(content)) if start <= content.len() as u64 => {
                (content, start as usize)
            }
            (WriteMode::At(_), Some(_)) => return Err(FileError::OutOfRange),
            (WriteMode::At(_), None) => return Err(FileError::NotFound),
            (WriteMode::Append, Some(content)) => (content.clone(), content.len()),
            _ => (Vec::new(), 0),
        };
        Ok(Box::new(Uploading { tree: self.clone(), path, content, at, bits }))
    }

    /// What the tree says to a question about files.
    pub(super) fn answer(&self, request: Request) -> Result<Answer, FileError> {
        Ok(match request {
            Request::Metadata(path) => Answer::Metadata(metadata(&self.node(&path)?)),
            Request::Entry(path) | Request::Look(path, _) => {
                Answer::Entry(Box::new(entry(&path, &self.node(&path)?)))
            }
            Request::OpenRead(path) => {
                Answer::Readable(ReadHandle::Stream(Box::new(Bytes(self.file(&path)?))))
            }
            Request::OpenWrite(path, mode, bits) => Answer::Writable(self.upload(path, mode, bits)?),
            Request::OpenUnique(base, bits) => {
                let free = self.free_name(&base);
                Answer::Unique(self.upload(free.clone(), WriteMode::CreateNew, bits)?, free)
            }
            Request::List(request) => self.list(request)?,
            Request::MakeDirectory(path, _) if self.node(&path).is_ok() => {
                return Err(FileError::AlreadyExists);
            }
            Request::MakeDirectory(path, bits) => {
                self.put(path, Node { mode: bits.unwrap_or(0o755), ..Node::default() })?;
                Answer::Done
            }
            Request::RemoveDirectory(path) if !self.entries(&path).is_empty() => {
                return Err(FileError::NotEmpty);
            }
            Request::RemoveDirectory(path) => match self.node(&path)?.content {
                None => self.remove(&path).map(|_| Answer::Done)?,
                Some(_) => return Err(FileError::NotDirectory),
            },
            Request::RemoveFile(path) => {
                self.file(&path)?;
                self.remove(&path).map(|_| Answer::Done)?
            }
            Request::RemoveTree(top) => {
                self.node(&top)?;
                let mut map = self.0.lock().unwrap();
                let before = map.len();
                map.retain(|path, _| !path.starts_with(&top));
                Answer::Count((before - map.len()) as u64)
            }
            Request::Rename(from, to) => {
                let node = self.remove(&from)?;
                self.put(to, node)?;
                Answer::Done
            }
            Request::Change(path, change) => {
                let mut node = self.node(&path)?;
                node.mode = change.mode.unwrap_or(node.mode);
                node.modified = change.modified.unwrap_or(node.modified);
                self.put(path, node)?;
                Answer::Done
            }
            Request::MakeSymlink(target, path) => {
                self.put(path, Node { content: Some(target), ..Node::default() })?;
                Answer::Done
            }
            Request::Copy(from, to) => {
                let content = self.file(&from)?;
                let length = content.len() as u64;
                self.put(to, Node { content: Some(content), ..Node::default() })?;
                Answer::Count(length)
            }
            Request::Combine(target, parts, bits) => self.combine(target, &parts, bits)?,
            request => self.look_through(request)?,
        })
    }

    /// The same where nothing is opened or changed, and much may be read.
    fn look_through(&self, request: Request) -> Result<Answer, FileError> {
        Ok(match request {
            Request::Digest(path, algorithm, range) => {
                let content = self.file(&path)?;
                let end = range.end.unwrap_or(u64::MAX).min(content.len() as u64);
                let part = content.get(range.start as usize..end as usize).unwrap_or_default();
                let mut hasher = Hasher::new(algorithm);
                hasher.update(part);
                Answer::Digest(hasher.finish(), part.len() as u64)
            }
            Request::TreeSize(top) => {
                let map = self.0.lock().unwrap();
                let files = map.iter().filter(|(path, _)| path.starts_with(&top));
                let contents = files.filter_map(|(_, node)| node.content.as_ref());
                Answer::Sum(contents.map(|content| content.len() as u64).sum(), LeftOut::default())
            }
            Request::Newer(top, since) => {
                let map = self.0.lock().unwrap();
                let newer = map.iter().filter(|(path, node)| path.starts_with(&top) && node.modified > since);
                let lines = newer.map(|(path, _)| [b" ", path.as_bytes()].concat()).collect();
                Answer::Found(lines, LeftOut::default())
            }
            Request::Notes(_) => Answer::Lines(Vec::new()),
            Request::Space(_) => {
                Answer::Space(Space { available: 1000, total: 5000, held: None, quota: None })
            }
            other => unreachable!("the driver's: {other:?}"),
        })
    }

    /// The name, or the first free one with a number.
    fn free_name(&self, base: &VirtualPath) -> VirtualPath {
        let numbered = (1..).map(|number| path(format!("{base}.{number}")));
        std::iter::once(base.clone()).chain(numbered).find(|path| self.node(path).is_err()).unwrap()
    }

    fn list(&self, mut request: Box<ListRequest>) -> Result<Answer, FileError> {
        if let Some(literal) = request.literal.take_if(|literal| self.node(&literal.path).is_ok()) {
            request = literal;
        }
        let node = self.node(&request.path)?;
        let entries = match node.content {
            None => self.entries(&request.path),
            Some(_) if request.files => vec![entry(&request.path, &node)],
            Some(_) => return Err(FileError::NotDirectory),
        };
        Ok(Answer::Listing(Box::new(Lister::of(entries, request.listing))))
    }

    fn combine(
        &self,
        target: VirtualPath,
        parts: &[VirtualPath],
        bits: Option<u32>,
    ) -> Result<Answer, FileError> {
        let mode = self.node(&target).map_or(bits.unwrap_or(0o644), |node| node.mode);
        let mut content = self.file(&target).unwrap_or_default();
        for part in parts {
            content.extend(self.file(part)?);
            self.remove(part)?;
        }
        let length = content.len() as u64;
        self.put(target, Node { content: Some(content), mode, ..Node::default() })?;
        Ok(Answer::Count(length))
    }
}

fn metadata(node: &Node) -> Metadata {
    Metadata {
        kind: if node.content.is_some() { FileKind::File } else { FileKind::Directory },
        size: node.content.as_ref().map_or(0, Vec::len) as u64,
        modified: node.modified,
        created: None,
        changed: None,
        mode: node.mode,
        owner: Owner::default(),
        links: 1,
        identity: (0, 0),
    }
}

fn entry(path: &VirtualPath, node: &Node) -> DirEntry {
    DirEntry { name: path.name().to_vec(), metadata: metadata(node), link: None }
}

#[derive(Debug)]
struct Bytes(Vec<u8>);

impl ReadStream for Bytes {
    fn size(&self) -> Option<u64> {
        Some(self.0.len() as u64)
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        let rest = self.0.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

#[derive(Debug)]
struct Uploading {
    tree: Tree,
    path: VirtualPath,
    content: Vec<u8>,
    at: usize,
    bits: Option<u32>,
}

impl Upload for Uploading {
    fn file(&mut self) -> Result<Option<(&std::fs::File, u64)>, FileError> {
        Ok(None)
    }

    fn advance(&mut self, _: u64) {}

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let end = (self.at + bytes.len()).min(self.content.len());
        self.content.splice(self.at..end, bytes.iter().copied());
        self.at += bytes.len();
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<Committed, FileError> {
        let size = self.content.len() as u64;
        let mode = self.tree.node(&self.path).map_or(self.bits.unwrap_or(0o600), |node| node.mode);
        self.tree.put(self.path.clone(), Node { content: Some(self.content), mode, ..Node::default() })?;
        Ok(Committed { size })
    }

    fn undo(self: Box<Self>) {}

    fn abort(self: Box<Self>) {}

    fn readiness(&self) -> Readiness {
        Readiness::Cached
    }

    fn commit_readiness(&self) -> Readiness {
        Readiness::Cached
    }
}
