//! The recorder: what the calls of a thread did to files and names, in order.
//!
//! It holds a descriptor of every file and directory that it has seen, so that no inode number is used twice.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};

/// A file, a directory or a link, by its number in [`Recorder::nodes`].
pub(in super::super) type Node = usize;

/// A name in a directory.
pub(in super::super) type Entry = (Node, Vec<u8>);

/// What a file system object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Kind {
    File,
    Directory,
    Link,
}

/// A change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Event {
    /// The names lead elsewhere from now on, all at once.
    Names(Vec<(Entry, Option<Node>)>),
    Written(Node, usize, Vec<u8>),
    Truncated(Node, usize),
    /// A wait for the device has ended.
    Synchronised(Node),
}

#[derive(Debug)]
pub(in super::super) struct Recorder {
    pub(in super::super) events: Vec<Event>,
    pub(in super::super) nodes: Vec<Kind>,
    held: Vec<OwnedFd>,
    numbers: HashMap<(u64, u64), Node>,
}

impl Recorder {
    /// Records what happens beneath a directory, which is node 0.
    pub(in super::super) fn new(root: impl AsFd) -> Self {
        let mut recorder =
            Self { events: Vec::new(), nodes: Vec::new(), held: Vec::new(), numbers: HashMap::new() };
        recorder.node(root.as_fd());
        recorder
    }

    /// The number of an open file.
    pub(in super::super) fn node(&mut self, file: impl AsFd) -> Node {
        let stat = rustix::fs::fstat(&file).expect("an open file has metadata");
        let key = (stat.st_dev, stat.st_ino);
        if let Some(&node) = self.numbers.get(&key) {
            return node;
        }
        self.nodes.push(match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Link,
            _ => Kind::File,
        });
        self.held.push(rustix::io::fcntl_dupfd_cloexec(&file, 3).expect("there are descriptors left"));
        self.numbers.insert(key, self.nodes.len() - 1);
        self.nodes.len() - 1
    }

    /// The number of what a name leads to.
    pub(in super::super) fn at(&mut self, directory: BorrowedFd<'_>, name: &[u8]) -> Node {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = rustix::fs::openat(directory, name, flags, Mode::empty()).expect("the name is there");
        self.node(found)
    }

    /// Returns whether two names lead to the same file, so that a rename does nothing.
    pub(super) fn are_one(old: (BorrowedFd<'_>, &[u8]), new: (BorrowedFd<'_>, &[u8])) -> bool {
        let stat = |(directory, name): (BorrowedFd<'_>, &[u8])| {
            rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
                .map(|stat| (stat.st_dev, stat.st_ino))
        };
        matches!((stat(old), stat(new)), (Ok(old), Ok(new)) if old == new)
    }

    pub(super) fn opened(&mut self, file: &OwnedFd, flags: OFlags, there: bool) {
        if !flags.contains(OFlags::CREATE) {
            return;
        }
        if there {
            if flags.contains(OFlags::TRUNC) {
                self.truncated(file.as_fd(), 0);
            }
            return;
        }
        // A link may have led anywhere.
        let path =
            rustix::fs::readlink(super::super::tree::magic_link(file), Vec::new()).expect("/proc is mounted");
        let path = path.to_bytes();
        let slash = path.iter().rposition(|&byte| byte == b'/').expect("the path is absolute");
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let parent = rustix::fs::open(&path[..slash], flags, Mode::empty()).expect("the parent is there");
        self.named(parent.as_fd(), &path[slash + 1..]);
    }

    pub(super) fn named(&mut self, directory: BorrowedFd<'_>, name: &[u8]) {
        let node = self.at(directory, name);
        let directory = self.node(directory);
        self.events.push(Event::Names(vec![((directory, name.to_vec()), Some(node))]));
    }

    pub(super) fn removed(&mut self, directory: BorrowedFd<'_>, name: &[u8]) {
        let directory = self.node(directory);
        self.events.push(Event::Names(vec![((directory, name.to_vec()), None)]));
    }

    pub(super) fn renamed(&mut self, old: (BorrowedFd<'_>, &[u8]), new: (BorrowedFd<'_>, &[u8])) {
        let node = self.at(new.0, new.1);
        let (from, to) = ((self.node(old.0), old.1.to_vec()), (self.node(new.0), new.1.to_vec()));
        self.events.push(Event::Names(vec![(from, None), (to, Some(node))]));
    }

    pub(super) fn written(&mut self, file: BorrowedFd<'_>, offset: u64, bytes: &[u8]) {
        let node = self.node(file);
        let offset = usize::try_from(offset).expect("files of tests are small");
        self.events.push(Event::Written(node, offset, bytes.to_vec()));
    }

    pub(super) fn truncated(&mut self, file: BorrowedFd<'_>, length: u64) {
        let node = self.node(file);
        let length = usize::try_from(length).expect("files of tests are small");
        self.events.push(Event::Truncated(node, length));
    }

    pub(super) fn synchronised(&mut self, file: BorrowedFd<'_>) {
        let node = self.node(file);
        self.events.push(Event::Synchronised(node));
    }
}
