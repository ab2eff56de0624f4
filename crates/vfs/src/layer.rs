//! Layers: a storage over another one, which states what it changes and forwards everything else.

use std::fmt::Debug;

use crate::hash::Hashes;
use crate::{
    Change, DirEntry, Directory, FileError, Metadata, Partial, PartialKey, PartialMode, PartialState,
    ReadHandle, Resting, Space, Storage, Upload, VirtualPath, Wait, WriteMode,
};

/// How a call that a [`Layer`] forwards accesses files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// It reads files, directories or metadata.
    Read,
    /// It changes files or directories, or asks whether that is allowed.
    Change,
    /// It opens a partial upload, or joins several.
    OpenPartial,
    /// It finds or removes a partial upload.
    FindPartial,
}

/// A storage over another one. Every call is forwarded, once [`Layer::admit`] lets it through, unless the layer has a
/// method of its own for it; each `Layer` is a [`Storage`].
///
/// A layer that answers differently for each path, as a gate or a set of folders does, implements [`Storage`] itself, so
/// that it has to answer every call.
pub trait Layer: Send + Sync + Debug {
    /// The storage below.
    fn inner(&self) -> &dyn Storage;

    /// Lets a call through to the storage below, or refuses it. There is no default: a layer has to say what it lets
    /// through. `wait` is that of the call.
    fn admit(&self, call: Call, wait: Wait) -> Result<(), FileError>;

    /// Forwards [`Storage::open_read`].
    fn open_read(&self, path: &VirtualPath, wait: Wait) -> Result<ReadHandle, FileError> {
        self.admit(Call::Read, wait)?;
        self.inner().open_read(path, wait)
    }

    /// Forwards [`Storage::open_write_with`].
    fn open_write_with(
        &self,
        path: &VirtualPath,
        mode: WriteMode,
        bits: Option<u32>,
        wait: Wait,
    ) -> Result<Box<dyn Upload>, FileError> {
        self.admit(Call::Change, wait)?;
        self.inner().open_write_with(path, mode, bits, wait)
    }

    /// Forwards [`Storage::metadata`].
    fn metadata(&self, path: &VirtualPath, wait: Wait) -> Result<Metadata, FileError> {
        self.admit(Call::Read, wait)?;
        self.inner().metadata(path, wait)
    }

    /// Forwards [`Storage::entry`].
    fn entry(&self, path: &VirtualPath) -> Result<DirEntry, FileError> {
        self.admit(Call::Read, Wait::Allowed)?;
        self.inner().entry(path)
    }

    /// Forwards [`Storage::open_directory`].
    fn open_directory(&self, path: &VirtualPath) -> Result<Box<dyn Directory>, FileError> {
        self.admit(Call::Read, Wait::Allowed)?;
        self.inner().open_directory(path)
    }

    /// Forwards [`Storage::make_directory_with`].
    fn make_directory_with(&self, path: &VirtualPath, bits: Option<u32>) -> Result<(), FileError> {
        self.admit(Call::Change, Wait::Allowed)?;
        self.inner().make_directory_with(path, bits)
    }

    /// Forwards [`Storage::remove_directory`].
    fn remove_directory(&self, path: &VirtualPath) -> Result<(), FileError> {
        self.admit(Call::Change, Wait::Allowed)?;
        self.inner().remove_directory(path)
    }

    /// Forwards [`Storage::remove_file`].
    fn remove_file(&self, path: &VirtualPath) -> Result<(), FileError> {
        self.admit(Call::Change, Wait::Allowed)?;
        self.inner().remove_file(path)
    }

    /// Forwards [`Storage::rename`].
    fn rename(&self, from: &VirtualPath, to: &VirtualPath) -> Result<(), FileError> {
        self.admit(Call::Change, Wait::Allowed)?;
        self.inner().rename(from, to)
    }

    /// Forwards [`Storage::change`].
    fn change(&self, path: &VirtualPath, change: Change) -> Result<(), FileError> {
        self.admit(Call::Change, Wait::Allowed)?;
        self.inner().change(path, change)
    }

    /// Forwards [`Storage::make_symlink`].
    fn make_symlink(&self, target: &[u8], path: &VirtualPath) -> Result<(), FileError> {
        self.admit(Call::Change, Wait::Allowed)?;
        self.inner().make_symlink(target, path)
    }

    /// Forwards [`Storage::copy`].
    fn copy(
        &self,
        from: &VirtualPath,
        to: &VirtualPath,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u64, FileError> {
        self.admit(Call::Change, Wait::Allowed)?;
        self.inner().copy(from, to, progress)
    }

    /// Forwards [`Storage::stored_hashes`].
    fn stored_hashes(&self, path: &VirtualPath, wait: Wait) -> Result<Option<Hashes>, FileError> {
        self.admit(Call::Read, wait)?;
        self.inner().stored_hashes(path, wait)
    }

    /// Forwards [`Storage::space`].
    fn space(&self, path: &VirtualPath) -> Result<Space, FileError> {
        self.admit(Call::Read, Wait::Allowed)?;
        self.inner().space(path)
    }

    /// Forwards [`Storage::may_replace`].
    fn may_replace(&self, path: &VirtualPath, all_beneath: bool) -> Result<(), FileError> {
        self.admit(Call::Change, Wait::Allowed)?;
        self.inner().may_replace(path, all_beneath)
    }

    /// Forwards [`Storage::open_partial`].
    fn open_partial(
        &self,
        path: &VirtualPath,
        key: &PartialKey,
        write: WriteMode,
        mode: PartialMode,
    ) -> Result<Partial, FileError> {
        self.admit(Call::OpenPartial, Wait::Allowed)?;
        self.inner().open_partial(path, key, write, mode)
    }

    /// Forwards [`Storage::find_partial`].
    fn find_partial(&self, path: &VirtualPath, key: &PartialKey) -> Result<PartialState, FileError> {
        self.admit(Call::FindPartial, Wait::Allowed)?;
        self.inner().find_partial(path, key)
    }

    /// Forwards [`Storage::remove_partial`].
    fn remove_partial(&self, path: &VirtualPath, key: &PartialKey) -> Result<(), FileError> {
        self.admit(Call::FindPartial, Wait::Allowed)?;
        self.inner().remove_partial(path, key)
    }

    /// Forwards [`Storage::join_partials`].
    fn join_partials(
        &self,
        path: &VirtualPath,
        parts: &[(VirtualPath, PartialKey)],
        write: WriteMode,
    ) -> Result<Partial, FileError> {
        self.admit(Call::OpenPartial, Wait::Allowed)?;
        self.inner().join_partials(path, parts, write)
    }

    /// Forwards [`Storage::resting`].
    fn resting(&self) -> Result<Resting, FileError> {
        self.admit(Call::Read, Wait::Allowed)?;
        self.inner().resting()
    }
}

impl<L: Layer> Storage for L {
    fn open_read(&self, path: &VirtualPath, wait: Wait) -> Result<ReadHandle, FileError> {
        Layer::open_read(self, path, wait)
    }

    fn open_write_with(
        &self,
        path: &VirtualPath,
        mode: WriteMode,
        bits: Option<u32>,
        wait: Wait,
    ) -> Result<Box<dyn Upload>, FileError> {
        Layer::open_write_with(self, path, mode, bits, wait)
    }

    fn metadata(&self, path: &VirtualPath, wait: Wait) -> Result<Metadata, FileError> {
        Layer::metadata(self, path, wait)
    }

    fn entry(&self, path: &VirtualPath) -> Result<DirEntry, FileError> {
        Layer::entry(self, path)
    }

    fn open_directory(&self, path: &VirtualPath) -> Result<Box<dyn Directory>, FileError> {
        Layer::open_directory(self, path)
    }

    fn make_directory_with(&self, path: &VirtualPath, bits: Option<u32>) -> Result<(), FileError> {
        Layer::make_directory_with(self, path, bits)
    }

    fn remove_directory(&self, path: &VirtualPath) -> Result<(), FileError> {
        Layer::remove_directory(self, path)
    }

    fn remove_file(&self, path: &VirtualPath) -> Result<(), FileError> {
        Layer::remove_file(self, path)
    }

    fn rename(&self, from: &VirtualPath, to: &VirtualPath) -> Result<(), FileError> {
        Layer::rename(self, from, to)
    }

    fn change(&self, path: &VirtualPath, change: Change) -> Result<(), FileError> {
        Layer::change(self, path, change)
    }

    fn make_symlink(&self, target: &[u8], path: &VirtualPath) -> Result<(), FileError> {
        Layer::make_symlink(self, target, path)
    }

    fn copy(
        &self,
        from: &VirtualPath,
        to: &VirtualPath,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u64, FileError> {
        Layer::copy(self, from, to, progress)
    }

    fn stored_hashes(&self, path: &VirtualPath, wait: Wait) -> Result<Option<Hashes>, FileError> {
        Layer::stored_hashes(self, path, wait)
    }

    fn space(&self, path: &VirtualPath) -> Result<Space, FileError> {
        Layer::space(self, path)
    }

    fn may_replace(&self, path: &VirtualPath, all_beneath: bool) -> Result<(), FileError> {
        Layer::may_replace(self, path, all_beneath)
    }

    fn open_partial(
        &self,
        path: &VirtualPath,
        key: &PartialKey,
        write: WriteMode,
        mode: PartialMode,
    ) -> Result<Partial, FileError> {
        Layer::open_partial(self, path, key, write, mode)
    }

    fn find_partial(&self, path: &VirtualPath, key: &PartialKey) -> Result<PartialState, FileError> {
        Layer::find_partial(self, path, key)
    }

    fn remove_partial(&self, path: &VirtualPath, key: &PartialKey) -> Result<(), FileError> {
        Layer::remove_partial(self, path, key)
    }

    fn join_partials(
        &self,
        path: &VirtualPath,
        parts: &[(VirtualPath, PartialKey)],
        write: WriteMode,
    ) -> Result<Partial, FileError> {
        Layer::join_partials(self, path, parts, write)
    }

    fn resting(&self) -> Result<Resting, FileError> {
        Layer::resting(self)
    }
}
