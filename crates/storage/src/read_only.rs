//! Read-only: any back end without its changes.

use millrace_vfs::{
    Change, DirEntry, Directory, FileError, Metadata, ReadHandle, Space, Storage, Upload, VirtualPath, Wait,
    WriteMode,
};

/// Another back end, every change of which is [`FileError::ReadOnly`].
#[derive(Debug, Clone)]
pub struct ReadOnly<S>(S);

impl<S: Storage> ReadOnly<S> {
    /// Serves `storage` without its changes.
    pub fn new(storage: S) -> Self {
        Self(storage)
    }
}

impl<S: Storage> Storage for ReadOnly<S> {
    fn open_read(&self, path: &VirtualPath, wait: Wait) -> Result<ReadHandle, FileError> {
        self.0.open_read(path, wait)
    }

    fn open_write_with(
        &self,
        _: &VirtualPath,
        _: WriteMode,
        _: Option<u32>,
        _: Wait,
    ) -> Result<Box<dyn Upload>, FileError> {
        Err(FileError::ReadOnly)
    }

    fn metadata(&self, path: &VirtualPath, wait: Wait) -> Result<Metadata, FileError> {
        self.0.metadata(path, wait)
    }

    fn entry(&self, path: &VirtualPath) -> Result<DirEntry, FileError> {
        self.0.entry(path)
    }

    fn open_directory(&self, path: &VirtualPath) -> Result<Box<dyn Directory>, FileError> {
        self.0.open_directory(path)
    }

    fn make_directory_with(&self, _: &VirtualPath, _: Option<u32>) -> Result<(), FileError> {
        Err(FileError::ReadOnly)
    }

    fn remove_directory(&self, _: &VirtualPath) -> Result<(), FileError> {
        Err(FileError::ReadOnly)
    }

    fn remove_file(&self, _: &VirtualPath) -> Result<(), FileError> {
        Err(FileError::ReadOnly)
    }

    fn rename(&self, _: &VirtualPath, _: &VirtualPath) -> Result<(), FileError> {
        Err(FileError::ReadOnly)
    }

    fn change(&self, _: &VirtualPath, _: Change) -> Result<(), FileError> {
        Err(FileError::ReadOnly)
    }

    fn make_symlink(&self, _: &[u8], _: &VirtualPath) -> Result<(), FileError> {
        Err(FileError::ReadOnly)
    }

    fn copy(
        &self,
        _: &VirtualPath,
        _: &VirtualPath,
        _: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u64, FileError> {
        Err(FileError::ReadOnly)
    }

    fn space(&self, path: &VirtualPath) -> Result<Space, FileError> {
        self.0.space(path)
    }

    fn may_replace(&self, _: &VirtualPath, _: bool) -> Result<(), FileError> {
        Err(FileError::ReadOnly)
    }
}
