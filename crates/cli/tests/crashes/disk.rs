//! A file system that a crash makes forget what was not synchronised, as a value.
//!
//! It has two images: what programs see, and what a crash leaves. Bytes come to the second by `fsync` or `fdatasync` of
//! their file, names by `fsync` of a directory that they are in, and nothing else does: neither time, nor a later change,
//! nor the synchronisation of a file brings its name along. At a crash some of the rest may have come too: of names a
//! first part, as they were changed (a journal); of each file's writes any part, in any order, the last one torn.
//!
//! Changes of a name are applied whole: a rename in both of its directories or in neither, as on ext4, XFS and btrfs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::SystemTime;

use rustix::io::Errno;

use crate::noise::Noise;

pub(crate) const ROOT: u64 = 1;

/// What lies on the disk, live and as it would be left.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) nodes: HashMap<u64, Inode>,
    next: u64,
    /// Changes of names that are not synchronised, in their order.
    journal: Vec<Change>,
    /// Synchronisation does nothing to bytes: a disk that lies, with which checks are checked.
    pub(crate) forgets_bytes: bool,
    /// What crashes have forgotten.
    pub(crate) forgotten: Forgotten,
}

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Forgotten {
    pub(crate) names: usize,
    pub(crate) writes: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Inode {
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    /// A crash forgets nothing of it: uploads that wait are removed by their age only.
    pub(crate) modified: SystemTime,
    pub(crate) content: Content,
}

#[derive(Debug, Clone)]
pub(crate) enum Content {
    Directory { live: Names, durable: Names },
    File { live: Vec<u8>, durable: Vec<u8>, unsynced: Vec<Write> },
}

pub(crate) type Names = BTreeMap<Vec<u8>, u64>;

/// A change of a file's bytes.
#[derive(Debug, Clone)]
pub(crate) enum Write {
    At(usize, Vec<u8>),
    Length(usize),
}

/// Names that change together: a directory, a name in it, and what it leads to.
type Change = Vec<(u64, Vec<u8>, Option<u64>)>;

type Result<T> = std::result::Result<T, Errno>;

impl Disk {
    pub(crate) fn new() -> Self {
        let content = Content::Directory { live: Names::new(), durable: Names::new() };
        let root = Inode { mode: 0o755, owner: (0, 0), modified: SystemTime::now(), content };
        Self {
            nodes: HashMap::from([(ROOT, root)]),
            next: ROOT + 1,
            journal: Vec::new(),
            forgets_bytes: false,
            forgotten: Forgotten::default(),
        }
    }

    pub(crate) fn node(&self, inode: u64) -> Result<&Inode> {
        self.nodes.get(&inode).ok_or(Errno::NOENT)
    }

    pub(crate) fn names(&self, directory: u64) -> Result<&Names> {
        match &self.node(directory)?.content {
            Content::Directory { live, .. } => Ok(live),
            Content::File { .. } => Err(Errno::NOTDIR),
        }
    }

    pub(crate) fn lookup(&self, directory: u64, name: &[u8]) -> Result<u64> {
        self.names(directory)?.get(name).copied().ok_or(Errno::NOENT)
    }

    pub(crate) fn bytes(&self, file: u64) -> Result<&[u8]> {
        match &self.node(file)?.content {
            Content::File { live, .. } => Ok(live),
            Content::Directory { .. } => Err(Errno::ISDIR),
        }
    }

    /// How many names lead to it.
    pub(crate) fn links(&self, inode: u64) -> u32 {
        let names = |node: &Inode| match &node.content {
            Content::Directory { live, .. } => live.values().filter(|&&target| target == inode).count(),
            Content::File { .. } => 0,
        };
        self.nodes.values().map(names).sum::<usize>() as u32
    }

    pub(crate) fn make(
        &mut self,
        directory: u64,
        name: &[u8],
        mode: u32,
        owner: (u32, u32),
        is_directory: bool,
    ) -> Result<u64> {
        if self.names(directory)?.contains_key(name) {
            return Err(Errno::EXIST);
        }
        let content = match is_directory {
            true => Content::Directory { live: Names::new(), durable: Names::new() },
            false => Content::File { live: Vec::new(), durable: Vec::new(), unsynced: Vec::new() },
        };
        let inode = self.next;
        self.next += 1;
        self.nodes.insert(inode, Inode { mode, owner, modified: SystemTime::now(), content });
        self.change(vec![(directory, name.to_vec(), Some(inode))]);
        Ok(inode)
    }

    pub(crate) fn link(&mut self, inode: u64, directory: u64, name: &[u8]) -> Result<()> {
        self.bytes(inode)?;
        match self.names(directory)?.contains_key(name) {
            true => Err(Errno::EXIST),
            false => {
                self.change(vec![(directory, name.to_vec(), Some(inode))]);
                Ok(())
            }
        }
    }

    pub(crate) fn remove(&mut self, directory: u64, name: &[u8], is_directory: bool) -> Result<()> {
        let inode = self.lookup(directory, name)?;
        match self.names(inode) {
            Ok(_) if !is_directory => return Err(Errno::ISDIR),
            Ok(names) if !names.is_empty() => return Err(Errno::NOTEMPTY),
            Err(_) if is_directory => return Err(Errno::NOTDIR),
            _ => {}
        }
        self.change(vec![(directory, name.to_vec(), None)]);
        Ok(())
    }

    pub(crate) fn rename(&mut self, from: (u64, &[u8]), to: (u64, &[u8]), may_replace: bool) -> Result<()> {
        let inode = self.lookup(from.0, from.1)?;
        if let Ok(old) = self.lookup(to.0, to.1) {
            if !may_replace {
                return Err(Errno::EXIST);
            }
            if self.names(old).is_ok_and(|names| !names.is_empty()) {
                return Err(Errno::NOTEMPTY);
            }
        }
        self.change(vec![(from.0, from.1.to_vec(), None), (to.0, to.1.to_vec(), Some(inode))]);
        Ok(())
    }

    pub(crate) fn write(&mut self, file: u64, offset: usize, bytes: &[u8]) -> Result<()> {
        self.change_bytes(file, Write::At(offset, bytes.to_vec()))
    }

    pub(crate) fn truncate(&mut self, file: u64, length: usize) -> Result<()> {
        self.change_bytes(file, Write::Length(length))
    }

    fn change_bytes(&mut self, file: u64, write: Write) -> Result<()> {
        let node = self.nodes.get_mut(&file).ok_or(Errno::NOENT)?;
        match &mut node.content {
            Content::File { live, unsynced, .. } => {
                node.modified = SystemTime::now();
                write.apply(live);
                unsynced.push(write);
                Ok(())
            }
            Content::Directory { .. } => Err(Errno::ISDIR),
        }
    }

    fn change(&mut self, change: Change) {
        apply(&mut self.nodes, &change, true);
        self.journal.push(change);
    }

    /// `fsync` or `fdatasync` of a file.
    pub(crate) fn synchronise_bytes(&mut self, file: u64) -> Result<()> {
        let lies = self.forgets_bytes;
        match &mut self.nodes.get_mut(&file).ok_or(Errno::NOENT)?.content {
            Content::File { durable, unsynced, .. } if !lies => {
                unsynced.drain(..).for_each(|write| write.apply(durable));
            }
            _ => {}
        }
        Ok(())
    }

    /// `fsync` of a directory. Earlier changes in the directories that its changes touch come along, because a journal
    /// keeps their order.
    pub(crate) fn synchronise_names(&mut self, directory: u64) {
        let mut directories = BTreeSet::from([directory]);
        let mut kept = Vec::new();
        for change in std::mem::take(&mut self.journal).into_iter().rev() {
            match change.iter().any(|(touched, ..)| directories.contains(touched)) {
                true => {
                    directories.extend(change.iter().map(|(touched, ..)| *touched));
                    kept.push(change);
                }
                false => self.journal.push(change),
            }
        }
        self.journal.reverse();
        kept.iter().rev().for_each(|change| apply(&mut self.nodes, change, false));
    }

    /// Synchronises everything, as `sync` does.
    pub(crate) fn synchronise_all(&mut self) {
        for change in std::mem::take(&mut self.journal) {
            apply(&mut self.nodes, &change, false);
        }
        for node in self.nodes.values_mut() {
            if let Content::File { durable, unsynced, .. } = &mut node.content {
                unsynced.drain(..).for_each(|write| write.apply(durable));
            }
        }
    }

    /// Forgets what was not synchronised, but for what had come to the disk by itself.
    pub(crate) fn crash(&mut self, noise: &mut Noise) {
        let came = match noise.below(3) {
            0 => 0,
            1 => self.journal.len(),
            _ => noise.below(self.journal.len() + 1),
        };
        self.forgotten.names += self.journal.len() - came;
        for change in self.journal.drain(..).take(came) {
            apply(&mut self.nodes, &change, false);
        }
        let mut inodes: Vec<u64> = self.nodes.keys().copied().collect();
        // A map has no order, and what follows is to follow from the seed.
        inodes.sort_unstable();
        for inode in inodes {
            match self.nodes.get_mut(&inode).map(|node| &mut node.content) {
                Some(Content::File { live, durable, unsynced }) => {
                    let writes = std::mem::take(unsynced);
                    self.forgotten.writes += come_by_themselves(writes, durable, noise);
                    live.clone_from(durable);
                }
                Some(Content::Directory { live, durable }) => live.clone_from(durable),
                None => {}
            }
        }
        self.drop_unnamed();
    }

    fn drop_unnamed(&mut self) {
        let mut named = BTreeSet::from([ROOT]);
        let mut left = vec![ROOT];
        while let Some(directory) = left.pop() {
            let names = self.names(directory).map(|names| names.values().copied().collect());
            let inodes: Vec<u64> = names.unwrap_or_default();
            left.extend(inodes.iter().filter(|&&inode| named.insert(inode)));
        }
        self.nodes.retain(|inode, _| named.contains(inode));
    }
}

impl Write {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::At(offset, written) => {
                let end = offset + written.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[*offset..end].copy_from_slice(written);
            }
            Self::Length(length) => bytes.resize(*length, 0),
        }
    }
}

/// Applies any part of what was written, and answers how many writes were forgotten.
fn come_by_themselves(writes: Vec<Write>, bytes: &mut Vec<u8>, noise: &mut Noise) -> usize {
    let way = noise.below(3);
    let first = noise.below(writes.len() + 1);
    let mut forgotten = 0;
    for (number, write) in writes.into_iter().enumerate() {
        match way {
            0 => forgotten += 1,
            1 if number < first => write.apply(bytes),
            1 => forgotten += 1,
            _ if noise.is_one_in(2) => match write {
                Write::At(offset, mut written) if noise.is_one_in(4) => {
                    written.truncate(noise.below(written.len()));
                    Write::At(offset, written).apply(bytes);
                }
                write => write.apply(bytes),
            },
            _ => forgotten += 1,
        }
    }
    forgotten
}

/// Applies a change to one of the images.
fn apply(nodes: &mut HashMap<u64, Inode>, change: &Change, is_live: bool) {
    for (directory, name, inode) in change {
        let Some(Inode { content: Content::Directory { live, durable }, .. }) = nodes.get_mut(directory)
        else {
            continue;
        };
        let names = if is_live { live } else { durable };
        match inode {
            Some(inode) => names.insert(name.clone(), *inode),
            None => names.remove(name),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(disk: &Disk, name: &str) -> Option<Vec<u8>> {
        let inode = disk.lookup(ROOT, name.as_bytes()).ok()?;
        disk.bytes(inode).ok().map(<[u8]>::to_vec)
    }

    /// What is found under a name after each of many crashes.
    fn after_crashes(make: impl Fn(&mut Disk), name: &str) -> BTreeSet<Option<Vec<u8>>> {
        let crash = |seed| {
            let mut disk = Disk::new();
            make(&mut disk);
            disk.crash(&mut Noise::new(seed));
            found(&disk, name)
        };
        (0..200).map(crash).collect()
    }

    fn make_file(disk: &mut Disk, name: &str) -> u64 {
        let inode = disk.make(ROOT, name.as_bytes(), 0o644, (0, 0), false).unwrap();
        disk.write(inode, 0, b"contents").unwrap();
        inode
    }

    #[test]
    fn bytes_and_names_are_forgotten_until_each_is_synchronised() {
        let whole = Some(b"contents".to_vec());
        let nothing = after_crashes(|disk| _ = make_file(disk, "a"), "a");
        assert!(
            nothing.len() > 3 && nothing.contains(&None) && nothing.contains(&Some(Vec::new())),
            "{nothing:?}"
        );
        let bytes = |disk: &mut Disk| {
            let inode = make_file(disk, "a");
            disk.synchronise_bytes(inode).unwrap();
        };
        assert_eq!(after_crashes(bytes, "a"), BTreeSet::from([None, whole.clone()]));
        let name = |disk: &mut Disk| {
            make_file(disk, "a");
            disk.synchronise_names(ROOT);
        };
        assert!(after_crashes(name, "a").contains(&Some(Vec::new())));
        let both = |disk: &mut Disk| {
            bytes(disk);
            disk.synchronise_names(ROOT);
        };
        assert_eq!(after_crashes(both, "a"), BTreeSet::from([whole]));
    }

    #[test]
    fn a_rename_is_whole_in_both_of_its_directories() {
        let mut disk = Disk::new();
        let other = disk.make(ROOT, b"d", 0o755, (0, 0), true).unwrap();
        let file = make_file(&mut disk, "a");
        disk.synchronise_all();
        disk.rename((ROOT, b"a"), (other, b"b"), true).unwrap();
        disk.synchronise_names(other);
        disk.crash(&mut Noise::new(1));
        assert_eq!(disk.lookup(ROOT, b"a"), Err(Errno::NOENT));
        assert_eq!(disk.lookup(other, b"b"), Ok(file));
    }
}
