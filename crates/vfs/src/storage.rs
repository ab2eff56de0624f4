//! The door that storage back ends implement.

use std::fmt::Debug;

use crate::hash::Hashes;
use crate::{
    Change, Directory, FileError, Held, Metadata, OverQuota, Partial, PartialKey, PartialMode, PartialState,
    ReadHandle, Resting, Upload, VirtualPath, WriteMode,
};

/// Whether the caller can afford to wait for a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// A reactor thread: answer from memory, or say [`FileError::WouldWait`].
    Never,
    /// A thread of the blocking pool.
    Allowed,
}

/// Free and total room, in bytes, for a user that may write at a path (`AVBL`, `ALLO`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Space {
    /// The bytes that may still be written.
    pub available: u64,
    /// The capacity of the device or quota.
    pub total: u64,
    /// The server's own quota there, if any.
    pub held: Option<Held>,
    /// The quota of the server's own that leaves no more than is available; `None` where the device does.
    pub quota: Option<OverQuota>,
}

/// A tree of files. One value serves every session at once.
///
/// Paths are [`VirtualPath`]s: normalised, never above the root. A symbolic link is followed where it
/// stays within the tree, and [`FileError::PermissionDenied`] where it leads out. Only `open_read`,
/// `open_write` and `metadata` take a [`Wait`]; everything else is always called where waiting is
/// allowed. [`crate::conformance::run`] is the suite that every implementation must pass.
pub trait Storage: Send + Sync + Debug {
    /// Opens a regular file to read. A directory is [`FileError::IsDirectory`].
    fn open_read(&self, path: &VirtualPath, wait: Wait) -> Result<ReadHandle, FileError>;

    /// Begins an upload. `bits` are the permission bits of a file that it makes, exactly those from its first
    /// moment on; `None` is the back end's own choice. A file that is there keeps its own.
    fn open_write_with(
        &self,
        path: &VirtualPath,
        mode: WriteMode,
        bits: Option<u32>,
        wait: Wait,
    ) -> Result<Box<dyn Upload>, FileError>;

    /// The metadata of the path, links followed.
    fn metadata(&self, path: &VirtualPath, wait: Wait) -> Result<Metadata, FileError>;

    /// The entry itself, links not followed, with the text of a link.
    fn entry(&self, path: &VirtualPath) -> Result<crate::DirEntry, FileError>;

    /// Opens a directory to list.
    fn open_directory(&self, path: &VirtualPath) -> Result<Box<dyn Directory>, FileError>;

    /// Makes a directory, its parent must exist, with these permission bits or the back end's own.
    fn make_directory_with(&self, path: &VirtualPath, bits: Option<u32>) -> Result<(), FileError>;

    /// Begins an upload; what it makes has the back end's own permission bits.
    fn open_write(
        &self,
        path: &VirtualPath,
        mode: WriteMode,
        wait: Wait,
    ) -> Result<Box<dyn Upload>, FileError> {
        self.open_write_with(path, mode, None, wait)
    }

    /// Makes a directory with the back end's own permission bits.
    fn make_directory(&self, path: &VirtualPath) -> Result<(), FileError> {
        self.make_directory_with(path, None)
    }

    /// Removes an empty directory.
    fn remove_directory(&self, path: &VirtualPath) -> Result<(), FileError>;

    /// Removes a file or a link; never a directory.
    fn remove_file(&self, path: &VirtualPath) -> Result<(), FileError>;

    /// Renames, atomically; a file that has the new name is replaced, a directory is not.
    fn rename(&self, from: &VirtualPath, to: &VirtualPath) -> Result<(), FileError>;

    /// Changes attributes, links followed.
    fn change(&self, path: &VirtualPath, change: Change) -> Result<(), FileError>;

    /// Makes a symbolic link at `path` with the text `target`.
    fn make_symlink(&self, target: &[u8], path: &VirtualPath) -> Result<(), FileError>;

    /// Copies a file's content within the storage as if it were uploaded, by the back end's quickest way.
    /// `progress` is told the bytes copied so far and answers whether to go on.
    fn copy(
        &self,
        from: &VirtualPath,
        to: &VirtualPath,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u64, FileError>;

    /// The hashes that its upload has stored with a file, if it has not changed since. The caller may read the file.
    fn stored_hashes(&self, path: &VirtualPath, wait: Wait) -> Result<Option<Hashes>, FileError> {
        let _ = (path, wait);
        Ok(None)
    }

    /// Free room at a path.
    fn space(&self, path: &VirtualPath) -> Result<Space, FileError>;

    /// Checks whether the layers allow replacing the entry at a path, and with `all_beneath` everything beneath it;
    /// permissions of the file system are not checked. This is for changes that no other call would refuse: a lock, or
    /// a property stored elsewhere. A layer that forbids changes returns its error here.
    ///
    /// There is no default: a back end without rules of its own answers that all may be replaced.
    fn may_replace(&self, path: &VirtualPath, all_beneath: bool) -> Result<(), FileError>;

    /// Opens an upload to `path` that outlives connections and the process: a new one, or one that was begun.
    /// [`FileError::Busy`] where it is open elsewhere, [`FileError::NotFound`] where there is none (any more).
    /// [`FileError::Unsupported`] where the back end has no partial uploads. `write` is what a commit does to the name:
    /// [`WriteMode::Replace`] or [`WriteMode::CreateNew`].
    fn open_partial(
        &self,
        path: &VirtualPath,
        key: &PartialKey,
        write: WriteMode,
        mode: PartialMode,
    ) -> Result<Partial, FileError> {
        let _ = (path, key, write, mode);
        Err(FileError::Unsupported)
    }

    /// The state of a partial upload to `path`, open or not.
    fn find_partial(&self, path: &VirtualPath, key: &PartialKey) -> Result<PartialState, FileError> {
        let _ = (path, key);
        Err(FileError::NotFound)
    }

    /// Gives up a partial upload to `path`.
    fn remove_partial(&self, path: &VirtualPath, key: &PartialKey) -> Result<(), FileError> {
        let _ = (path, key);
        Err(FileError::NotFound)
    }

    /// Opens partial uploads, at the paths that they were begun for, as one to `path`: the bytes of all in this order.
    /// `commit` makes it the file, and nothing is left of them; however else it ends, they are as they were.
    fn join_partials(
        &self,
        path: &VirtualPath,
        parts: &[(VirtualPath, PartialKey)],
        write: WriteMode,
    ) -> Result<Partial, FileError> {
        let _ = (path, parts, write);
        Err(FileError::Unsupported)
    }

    /// The total of the partial uploads that are not open.
    fn resting(&self) -> Result<Resting, FileError> {
        Ok(Resting::default())
    }
}
