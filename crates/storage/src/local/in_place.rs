//! Uploads in place: the bytes go straight into the file that has the name.
//!
//! The quickest way over an existing file, because nothing is truncated, linked or renamed: on ext4 a truncation to
//! nothing, and a rename over a file, start a flush. The price: a reader during the upload sees new bytes before old
//! ones, and an interrupted upload leaves its first part under the final name. The tail of a longer old file is cut off
//! at the end, and also on abort, never before, and only while no later upload has begun (`ownership.rs`): of two
//! concurrent uploads to one name, the first gets an error. Until the first byte has come nothing is changed: an upload
//! whose data connection never comes leaves the old file as it was, and removes a file that it has created. A completed
//! empty upload makes an empty file.
//!
//! `REST` and `APPE` always write in place. An append is opened with `O_APPEND`: other appends to the file, by a
//! session or a local program, are never overwritten. The kernel does not splice into such a file.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use millrace_vfs::hash::Hashes;
use millrace_vfs::{Committed, FileError, Metadata, Readiness, Upload, VirtualPath, Wait};
use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;

use super::disk;
use super::durability::Durable;
use super::ownership::Ownership;
use super::staging::{StagingArea, hidden_name};
use super::tree::Tree;
use super::upload::{truncate, write_all_at};
use super::{file_error, metadata, stored_hash};

/// An upload into the file itself.
#[derive(Debug)]
pub(super) struct InPlace {
    file: File,
    /// Without it nothing is overwritten or cut; appends do not need it.
    ownership: Ownership,
    position: u64,
    size: u64,
    replaces: bool,
    /// Each write goes to where the end is then.
    appends: bool,
    readiness: Readiness,
    durable: Arc<Durable>,
    /// The directory whose names are waited for.
    named_in: Option<OwnedFd>,
    /// The file is its own, and nothing has come yet.
    made: Option<Made>,
    hashes: Option<(Hashes, u64)>,
}

/// A file that an upload has made.
#[derive(Debug)]
pub(super) struct Made {
    tree: Arc<Tree>,
    area: Arc<StagingArea>,
    path: VirtualPath,
    /// Its metadata at the beginning.
    metadata: Metadata,
}

impl Made {
    pub(super) fn new(
        tree: &Arc<Tree>,
        area: &Arc<StagingArea>,
        path: &VirtualPath,
        file: &File,
    ) -> Option<Self> {
        let metadata = metadata::of_descriptor(file).ok()?;
        Some(Self { tree: Arc::clone(tree), area: Arc::clone(area), path: path.clone(), metadata })
    }

    /// Removes the file again, if it is still the one that was created, and empty.
    fn remove(self) {
        let Ok(parent) = self.tree.parent(&self.path, Wait::Allowed) else { return };
        if metadata::of_entry(&parent, self.path.name()).is_ok_and(|now| now == self.metadata) {
            self.take_away(&parent);
        }
    }

    /// Between a check of a name and its removal the file may be replaced. So it is renamed to a hidden name first,
    /// checked there, and put back if it is another file.
    fn take_away(&self, parent: &OwnedFd) {
        let (name, hidden) = (self.path.name(), hidden_name());
        let hide = |directory: &Arc<OwnedFd>| {
            disk::renameat(parent, name, directory, &hidden).map(|()| Arc::clone(directory))
        };
        let hidden_beside = || {
            let is_marked = self.area.mark_elsewhere().is_ok();
            is_marked && disk::renameat(parent, name, parent, &hidden).is_ok()
        };
        let staging;
        let directory = match self.area.with_directory(hide) {
            Ok(Some(directory)) => {
                staging = directory;
                &*staging
            }
            // No such directory, or another mount's, subvolume's or project's file.
            _ if hidden_beside() => parent,
            _ => return,
        };
        let is_ours = metadata::of_entry(directory, &hidden)
            .is_ok_and(|now| now.identity == self.metadata.identity && now.size == 0);
        let back = RenameFlags::NOREPLACE;
        let is_over = is_ours
            || match disk::renameat_with(directory, &hidden, parent, name, back) {
                // Replaced meanwhile.
                Err(Errno::EXIST) => true,
                Err(Errno::INVAL) => disk::linkat(directory, &hidden, parent, name, AtFlags::empty()).is_ok(),
                _ => false,
            };
        if is_over {
            let _ = disk::unlinkat(directory, &hidden, AtFlags::empty());
        }
    }
}

impl InPlace {
    /// An upload that begins at `position` of a file of `size` bytes. `replaces`: the bytes after the last one received
    /// do not belong to the new file.
    pub(super) fn new(
        file: File,
        ownership: Ownership,
        position: u64,
        size: u64,
        replaces: bool,
        readiness: Readiness,
        durable: Arc<Durable>,
    ) -> Self {
        let (appends, named_in, made, hashes) = (false, None, None, None);
        Self {
            file,
            ownership,
            position,
            size,
            replaces,
            appends,
            readiness,
            durable,
            named_in,
            made,
            hashes,
        }
    }

    /// The same, of a file whose name in this directory is to be kept.
    pub(super) fn named_in(mut self, directory: Option<OwnedFd>) -> Self {
        self.named_in = directory;
        self
    }

    /// The same, of a file that was made for it.
    pub(super) fn of(mut self, made: Option<Made>) -> Self {
        self.made = made;
        self
    }

    /// The same, of a file that was opened to be appended to.
    pub(super) fn appending(mut self) -> Self {
        self.appends = true;
        self
    }

    /// The file's present end. A file without a name has lost its data.
    fn end(&self) -> Result<u64, FileError> {
        let stat = disk::fstat(&self.file).map_err(file_error)?;
        match stat.st_nlink {
            0 => Err(FileError::NotFound),
            _ => Ok(u64::try_from(stat.st_size).unwrap_or(0)),
        }
    }

    fn check_claim(&self) -> Result<(), FileError> {
        if self.appends { Ok(()) } else { self.ownership.check() }
    }

    /// Of a file that is empty nothing is cut, but its time says that it was uploaded.
    fn has_old_tail(&self) -> bool {
        self.replaces && (self.size > self.position || self.position == 0)
    }

    fn cut_old_tail(&mut self) -> Result<(), FileError> {
        if self.has_old_tail() {
            self.ownership.hold(|| truncate(&self.file, self.position))?;
            self.size = self.position;
        }
        Ok(())
    }
}

impl Upload for InPlace {
    fn file(&mut self) -> Result<Option<(&File, u64)>, FileError> {
        self.check_claim()?;
        Ok((!self.appends).then_some((&self.file, self.position)))
    }

    fn with_file(&mut self, write: &mut dyn FnMut(&File, u64)) -> Result<bool, FileError> {
        self.check_claim()?;
        if self.appends {
            return Ok(false);
        }
        self.ownership.hold(|| {
            write(&self.file, self.position);
            Ok(true)
        })
    }

    fn advance(&mut self, count: u64) {
        self.made = None;
        self.position += count;
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        if !bytes.is_empty() {
            self.made = None;
        }
        self.check_claim()?;
        let Self { file, ownership, position, appends, .. } = self;
        match appends {
            // Linux appends whatever position it is told, where a file was opened for that.
            true => write_all_at(file, position, bytes),
            false => ownership.hold(|| write_all_at(file, position, bytes)),
        }
    }

    fn set_hashes(&mut self, hashes: Hashes, length: u64) {
        self.hashes = Some((hashes, length));
    }

    fn commit(mut self: Box<Self>) -> Result<Committed, FileError> {
        self.made = None;
        self.check_claim()?;
        self.cut_old_tail()?;
        if let Some((hashes, length)) = self.hashes.take() {
            let store = || {
                stored_hash::store(&self.file, hashes, length);
                Ok(())
            };
            // Of a file that another upload has begun to write to meanwhile there are none.
            let _ = self.ownership.hold(store);
        }
        self.durable.bytes(&self.file)?;
        if let Some(directory) = &self.named_in {
            self.durable.name(directory)?;
        }
        Ok(Committed { size: self.end()? })
    }

    fn abort(self: Box<Self>) {}

    fn undo(mut self: Box<Self>) {
        // Data that others have appended meanwhile must not be cut off.
        let is_ours = !self.appends || self.end().is_ok_and(|end| end == self.position);
        let cut = || truncate(&self.file, self.size);
        if is_ours && self.position > self.size && self.ownership.hold(cut).is_ok() {
            self.position = self.size;
        }
    }

    fn readiness(&self) -> Readiness {
        self.readiness
    }

    fn commit_readiness(&self) -> Readiness {
        match self.durable.waits(self.readiness) || self.has_old_tail() {
            true => Readiness::MayHang,
            false => self.readiness,
        }
    }
}

/// However the upload ends, no byte of the old file stays behind the new ones, where there are any.
impl Drop for InPlace {
    fn drop(&mut self) {
        if let Some(made) = self.made.take() {
            let _ = self.ownership.hold(|| {
                made.remove();
                Ok(())
            });
        } else if self.position > 0 {
            let _ = self.cut_old_tail();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::staging::DIRECTORY;
    use super::*;

    /// A file that has taken the name since the check is not removed.
    #[test]
    fn only_an_own_file_is_removed() {
        let root = std::env::temp_dir().join(format!("millrace-made-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        let tree = Arc::new(Tree::open(&root).unwrap());
        let area = Arc::new(StagingArea::new(Arc::clone(&tree)));
        let (path, place) = (VirtualPath::parse(b"/f").unwrap(), root.join("f"));
        let file = File::create(&place).unwrap();
        let made = Made::new(&tree, &area, &path, &file).unwrap();
        let parent = tree.parent(&path, Wait::Allowed).unwrap();
        std::fs::write(root.join("other"), "another's").unwrap();
        std::fs::rename(root.join("other"), &place).unwrap();
        made.take_away(&parent);
        assert_eq!(std::fs::read(&place).unwrap(), b"another's");
        std::fs::remove_file(&place).unwrap();
        let file = File::create(&place).unwrap();
        Made::new(&tree, &area, &path, &file).unwrap().remove();
        assert!(!place.exists());
        drop((made, area));
        // Where there can be no staging directory.
        let in_the_way = root.join(DIRECTORY);
        std::fs::write(&in_the_way, "").unwrap();
        let area = Arc::new(StagingArea::new(Arc::clone(&tree)));
        let file = File::create(&place).unwrap();
        Made::new(&tree, &area, &path, &file).unwrap().remove();
        std::fs::remove_file(in_the_way).unwrap();
        assert!(std::fs::read_dir(&root).unwrap().next().is_none());
        std::fs::remove_dir_all(root).unwrap();
    }
}
