//! Staged uploads: the bytes go beside the name, and take it in one step at the end.
//!
//! The invariant: at every moment, also after a kill, the name shows the old file or all of the new one. For power cuts
//! there is a setting (`durability.rs`): the file systems' own orders do not promise that a new name leads to bytes
//! (ext4 flushes nothing before a link, XFS nothing before a rename).
//!
//! # How
//!
//! The bytes go into an unnamed file (`O_TMPFILE`) of the target's directory: it inherits the directory's properties
//! (access lists, group, project, label), is invisible, and the kernel removes it however the process ends. A new
//! name is then one `linkat`. An existing name needs a rename, and a rename needs an old name: the file is linked
//! into the staging directory (`staging.rs`) and renamed from there at once, so only a kill between the two calls
//! leaves anything at all. Where a file cannot be synchronised before it has a name (btrfs), every file goes that
//! way. No file is opened before the first byte: an upload whose data connection never comes costs nothing.
//!
//! # What it costs, and what else there is
//!
//! `examples/upload_cost.rs` on ext4, 2 cores, 1 KiB over existing names, replacements a second with 1, 4
//! and 16 threads (medians of 3, on a machine that others used: gaps of less than a half mean nothing):
//!
//! | way                               |      1 |       4 |      16 |
//! |-----------------------------------|-------:|--------:|--------:|
//! | in place (for scale)              | 240,000 | 455,000 | 400,000 |
//! | hidden name, rename               |  2,600 |   2,400 |   3,200 |
//! | staging directory, rename         |  3,200 |   2,400 |   3,200 |
//! | unnamed, link in staging, rename  |  2,900 |   4,100 |   3,700 |
//! | hidden, exchange, unlink          |  6,100 |   6,700 |   7,900 |
//! | recycled, flush, exchange         | 21,800 |  51,600 |  53,900 |
//!
//! So what counts is not the calls but the inode: a third to a half of all processor time goes into ext4's
//! search for one that was not deleted within the last minute (`recently_deleted`), which every deletion makes
//! longer, and most of the rest into the flush before the rename.
//!
//! - *Exchange, unlink* is quicker because it skips that flush: after a power cut the name could be
//!   an empty file. That is the old file *and* the new one lost, so no.
//! - *Recycling* (the replaced inode is the next upload's staging file) skips inode and flush. But a reader of the old
//!   file (another program, or a socket that holds its pages after a `sendfile`) would see another user's upload, and
//!   the inode's properties (owner, access lists, attributes, other names) would pass between users. Excluding all that
//!   reliably needs leases, and a truncation that costs most of the gain. The default is meant to be safe; `InPlace` is
//!   the faster alternative.
//!
//! # What changes with the file
//!
//! The new file takes over the permission bits of the old one, and its owner where the process may give files
//! away. Extended attributes and access lists come from the directory, as for any new file. Other hard links
//! of the old file keep the old content.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use millrace_vfs::hash::Hashes;
use millrace_vfs::{Committed, FileError, FileRange, Metadata, ReadHandle, Readiness, Upload};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::disk;
use super::durability::Durable;
use super::errno::file_error;
use super::metadata;
use super::staging::{ATTEMPTS, StagingArea, hidden_name, hold};
use super::stored_hash;
use super::target::{Destination, Target};
use super::tree::magic_link;
use super::upload::write_all_at;

/// How staged uploads are made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    /// Permission bits of a new file, less the umask.
    pub(super) mode: Mode,
    /// Permission bits of a new file, exactly, where the upload says them.
    pub(super) bits: Option<Mode>,
    /// Whether unnamed files are tried first: where they can get a name.
    pub(super) unnamed: bool,
}

/// An upload beside its name.
#[derive(Debug)]
pub(super) struct Staged {
    destination: Destination,
    area: Arc<StagingArea>,
    settings: Settings,
    durable: Arc<Durable>,
    /// Opened at the first use.
    file: Option<StagingFile>,
    position: u64,
    hashes: Option<(Hashes, u64)>,
}

impl Staged {
    /// An upload that has opened nothing yet.
    pub(super) fn new(
        destination: Destination,
        area: Arc<StagingArea>,
        settings: Settings,
        durable: Arc<Durable>,
    ) -> Self {
        Self { destination, area, settings, durable, file: None, position: 0, hashes: None }
    }

    fn opened(&mut self) -> Result<&mut StagingFile, FileError> {
        let file = match self.file.take() {
            Some(file) => file,
            None => {
                let target = self.destination.target()?;
                StagingFile::open(target, &self.area, self.settings).map_err(|error| target.reason(error))?
            }
        };
        Ok(self.file.insert(file))
    }
}

impl Upload for Staged {
    fn file(&mut self) -> Result<Option<(&File, u64)>, FileError> {
        let position = self.position;
        Ok(Some((&self.opened()?.file, position)))
    }

    fn advance(&mut self, count: u64) {
        self.position += count;
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let mut position = self.position;
        let result = write_all_at(&self.opened()?.file, &mut position, bytes);
        self.position = position;
        result
    }

    fn preview(&mut self) -> Result<Option<ReadHandle>, FileError> {
        self.opened()?;
        let Self { destination, area, file, position, .. } = self;
        let file = file.as_mut().expect("it was opened in the line above");
        let file = Arc::new(file.reveal(destination.target()?, area)?);
        Ok(Some(ReadHandle::File(FileRange { file, size: *position, readiness: Readiness::MayHang })))
    }

    fn set_hashes(&mut self, hashes: Hashes, length: u64) {
        self.hashes = Some((hashes, length));
    }

    fn commit(mut self: Box<Self>) -> Result<Committed, FileError> {
        self.opened()?;
        let Self { mut destination, area, durable, file, position, hashes, .. } = *self;
        let target = destination.target()?;
        let mut file = file.expect("it was opened in the line above");
        if file.hidden.is_none() && durable.wants_name(&file.file) {
            file.hidden = Some(file.link_hidden(target, &area).map_err(|error| target.reason(error))?);
        }
        if let Some((hashes, length)) = hashes {
            stored_hash::store(&file.file, hashes, length);
        }
        durable.bytes(&file.file)?;
        file.publish(target, &area).map_err(|error| target.reason(error))?;
        durable.name(&*target.directory)?;
        Ok(Committed { size: position })
    }

    fn abort(self: Box<Self>) {}

    fn undo(self: Box<Self>) {}

    fn readiness(&self) -> Readiness {
        Readiness::MayHang
    }

    fn commit_readiness(&self) -> Readiness {
        Readiness::MayHang
    }

    fn is_staged(&self) -> bool {
        true
    }
}

/// The file that the bytes go to.
#[derive(Debug)]
pub(super) struct StagingFile {
    file: File,
    /// The name that it has meanwhile; most never have one.
    hidden: Option<HiddenName>,
}

impl StagingFile {
    fn open(target: &Target, area: &StagingArea, settings: Settings) -> Result<Self, FileError> {
        let Settings { bits, unnamed, .. } = settings;
        let mode = bits.unwrap_or(settings.mode);
        let staging = match if unnamed { open_unnamed(target, mode)? } else { None } {
            Some(file) => Self { file, hidden: None },
            None => {
                area.mark_elsewhere().map_err(file_error)?;
                Self::open_hidden(target, mode)?
            }
        };
        match (&target.old, bits) {
            (Some(old), _) => inherit(&staging.file, old),
            (None, Some(bits)) => {
                let stat = disk::fstat(&staging.file).map_err(file_error)?;
                metadata::widen(&staging.file, stat.st_mode, bits);
            }
            (None, None) => {}
        }
        Ok(staging)
    }

    /// A file with a hidden name beside its target, where there are no unnamed ones.
    fn open_hidden(target: &Target, mode: Mode) -> Result<Self, FileError> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for _ in 0..ATTEMPTS {
            let directory = Arc::clone(&target.directory);
            let name = hidden_name();
            let file = disk::openat(&*directory, &name, flags, mode).map(File::from).map_err(file_error)?;
            hold(&file)?;
            // A sweep may have come between the name and the lock; then the name is gone.
            if disk::fstat(&file).map_err(file_error)?.st_nlink > 0 {
                return Ok(Self { file, hidden: Some(HiddenName::new(directory, name)) });
            }
        }
        Err(file_error(Errno::BUSY))
    }

    /// An upload whose file has a name already.
    pub(super) fn kept(file: File, directory: &Arc<OwnedFd>, name: String) -> Self {
        Self { file, hidden: Some(HiddenName::new(Arc::clone(directory), name)) }
    }

    /// Copies the attributes to keep from the replaced file, and renames the new one over it. On failure the new file
    /// keeps its name, and is returned.
    pub(super) fn publish_over(
        mut self,
        target: &Target,
        area: &StagingArea,
    ) -> Result<(), (FileError, File)> {
        if let Some(old) = &target.old {
            inherit(&self.file, old);
        }
        self.publish(target, area).map_err(|error| {
            if let Some(hidden) = &mut self.hidden {
                // It stays.
                hidden.is_spent = true;
            }
            (error, self.file)
        })
    }

    /// The file as others of ours may look at it: opened by a hidden name, which it has until it has its own.
    fn reveal(&mut self, target: &Target, area: &StagingArea) -> Result<File, FileError> {
        let hidden = match self.hidden.take() {
            Some(hidden) => hidden,
            None => self.link_hidden(target, area)?,
        };
        let hidden = self.hidden.insert(hidden);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        disk::openat(&*hidden.directory, &hidden.name, flags, Mode::empty())
            .map(File::from)
            .map_err(file_error)
    }

    /// Gives the file its final name.
    fn publish(&mut self, target: &Target, area: &StagingArea) -> Result<(), FileError> {
        if self.hidden.is_none() && (target.exclusive || target.old.is_none()) {
            match link(&self.file, &target.directory, &target.name) {
                // Another file has taken the name meanwhile: replace it.
                Err(Errno::EXIST) if !target.exclusive => {}
                result => return result.map_err(file_error),
            }
        }
        let _turn = target.old.as_ref().and_then(|old| area.take_turn(old.identity.0));
        let hidden = match self.hidden.take() {
            Some(hidden) => hidden,
            None => self.link_hidden(target, area)?,
        };
        match self.hidden.insert(hidden).rename(target) {
            // Not from the staging directory into this one: another subvolume, project or encryption policy.
            // The first name must live until there is a second: a file without any cannot get one again.
            Err(Errno::XDEV | Errno::PERM | Errno::ACCESS) if !target.exclusive => {
                self.link_beside(target, area)?.rename(target).map_err(file_error)
            }
            result => result.map_err(file_error),
        }
    }

    /// Links the file into the staging directory, or beside the target where that cannot be.
    fn link_hidden(&self, target: &Target, area: &StagingArea) -> Result<HiddenName, FileError> {
        hold(&self.file)?;
        match area.with_directory(|directory| self.link_in(directory)) {
            Ok(Some(hidden)) => Ok(hidden),
            // No such directory, or another mount's, subvolume's or project's file.
            Ok(None) | Err(Errno::XDEV | Errno::PERM | Errno::ACCESS | Errno::NOENT) => {
                self.link_beside(target, area)
            }
            Err(errno) => Err(file_error(errno)),
        }
    }

    fn link_beside(&self, target: &Target, area: &StagingArea) -> Result<HiddenName, FileError> {
        area.mark_elsewhere().map_err(file_error)?;
        self.link_in(&target.directory).map_err(file_error)
    }

    fn link_in(&self, directory: &Arc<OwnedFd>) -> rustix::io::Result<HiddenName> {
        let name = hidden_name();
        link(&self.file, directory, name.as_bytes())?;
        Ok(HiddenName::new(Arc::clone(directory), name))
    }
}

/// A name that vanishes when it is dropped, unless it became the target's.
#[derive(Debug)]
struct HiddenName {
    directory: Arc<OwnedFd>,
    name: String,
    is_spent: bool,
}

impl HiddenName {
    fn new(directory: Arc<OwnedFd>, name: String) -> Self {
        Self { directory, name, is_spent: false }
    }

    fn rename(&mut self, target: &Target) -> rustix::io::Result<()> {
        let (from, to) = (&*self.directory, &*target.directory);
        let flags = if target.exclusive { RenameFlags::NOREPLACE } else { RenameFlags::empty() };
        match disk::renameat_with(from, &self.name, to, &target.name[..], flags) {
            // A file system that cannot promise not to replace: a link can.
            Err(Errno::INVAL) if target.exclusive => {
                disk::linkat(from, &self.name, to, &target.name[..], AtFlags::empty())
            }
            result => {
                self.is_spent = result.is_ok();
                result
            }
        }
    }
}

impl Drop for HiddenName {
    fn drop(&mut self) {
        if !self.is_spent {
            let _ = disk::unlinkat(&*self.directory, &self.name, AtFlags::empty());
        }
    }
}

/// Creates a file without a name; `None` where the file system does not support it.
pub(super) fn open_unnamed(target: &Target, mode: Mode) -> Result<Option<File>, FileError> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match disk::openat(&*target.directory, c".", flags, mode) {
        Ok(fd) => Ok(Some(File::from(fd))),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Ok(None),
        Err(errno) => Err(file_error(errno)),
    }
}

/// Gives the new file the permission bits of the one that it replaces, and its owner where that is permitted. Errors
/// are ignored: the upload matters more.
fn inherit(file: &File, old: &Metadata) {
    let Ok(stat) = disk::fstat(file) else { return };
    if (stat.st_uid, stat.st_gid) != (old.owner.user, old.owner.group) {
        let user = rustix::fs::Uid::from_raw(old.owner.user);
        let group = rustix::fs::Gid::from_raw(old.owner.group);
        let _ = disk::fchown(file, Some(user), Some(group));
    }
    let mode = old.mode & !metadata::SET_ID;
    if stat.st_mode & 0o7777 != mode {
        let _ = disk::fchmod(file, Mode::from_raw_mode(mode));
    }
}

/// Gives an unnamed file a name.
pub(super) fn link(file: &File, directory: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
    if let Some(linked) = disk::link_file(file, directory, name) {
        return linked;
    }
    // By descriptor where the kernel lets us (with CAP_DAC_READ_SEARCH, or from Linux 6.10 on), else through /proc.
    match disk::linkat(file, c"", directory, name, AtFlags::EMPTY_PATH) {
        Err(Errno::NOENT) => disk::linkat(CWD, magic_link(file), directory, name, AtFlags::SYMLINK_FOLLOW),
        result => result,
    }
}
