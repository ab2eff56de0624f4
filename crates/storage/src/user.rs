//! A local directory, used with the rights of a user of the system: whatever is opened, made or removed is so by a process
//! that has them (`local/disk/acting.rs`).
//!
//! The invariant: every call of the storage, and of what it opens, acts as the user from its beginning to its end, also
//! when it is dropped. None is answered on a reactor thread, as each may wait for that process.

use std::fs::File;
use std::sync::Arc;

use millrace_privsep::UserFiles;
use millrace_vfs::{
    Change, Committed, DirEntry, Directory, FileError, Metadata, Partial, PartialKey, PartialMode,
    PartialState, ReadHandle, Readiness, Resting, Space, Storage, Upload, VirtualPath, Wait, WriteMode,
};

use crate::local::{FoundDirectory, LocalError, LocalOptions, LocalStorage, as_user};

/// Something that acts as a user.
#[derive(Debug)]
struct Acting<T> {
    user: Arc<UserFiles>,
    /// `None` once it was taken.
    inner: Option<T>,
}

impl<T> Acting<T> {
    fn new(user: &Arc<UserFiles>, inner: T) -> Self {
        Self { user: Arc::clone(user), inner: Some(inner) }
    }

    fn with<R>(&self, act: impl FnOnce(&T) -> Result<R, FileError>) -> Result<R, FileError> {
        let inner = self.inner.as_ref().ok_or(FileError::Cancelled)?;
        as_user(&self.user, || act(inner))
    }

    fn with_mut<R>(&mut self, act: impl FnOnce(&mut T) -> Result<R, FileError>) -> Result<R, FileError> {
        let inner = self.inner.as_mut().ok_or(FileError::Cancelled)?;
        as_user(&self.user, || act(inner))
    }

    fn end<R>(&mut self, act: impl FnOnce(T) -> Result<R, FileError>) -> Result<R, FileError> {
        let inner = self.inner.take().ok_or(FileError::Cancelled)?;
        as_user(&self.user, || act(inner))
    }
}

impl<T> Drop for Acting<T> {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            as_user(&self.user, || drop(inner));
        }
    }
}

/// A directory of this machine, with the rights of a user.
#[derive(Debug)]
pub struct UserStorage(Acting<LocalStorage>);

impl UserStorage {
    /// Serves a directory that was found by its descriptor.
    pub fn open_found(
        found: &FoundDirectory,
        options: LocalOptions,
        user: &Arc<UserFiles>,
    ) -> Result<Self, LocalError> {
        let storage = as_user(user, || LocalStorage::open_found(found, options))?;
        Ok(Self(Acting::new(user, storage)))
    }

    /// Returns whether `found` is the directory that is served, by a process that has not ended.
    pub fn is_served_from(&self, found: &FoundDirectory) -> bool {
        !self.0.user.has_ended() && self.0.inner.as_ref().is_some_and(|storage| storage.is_served_from(found))
    }

    fn upload(&self, upload: Box<dyn Upload>) -> Box<dyn Upload> {
        Box::new(UserUpload(Acting::new(&self.0.user, upload)))
    }

    fn partial(&self, partial: Partial) -> Partial {
        Partial { upload: self.upload(partial.upload), ..partial }
    }
}

/// Has a call repeated where it may wait.
fn wait_first(wait: Wait) -> Result<(), FileError> {
    match wait {
        Wait::Never => Err(FileError::WouldWait),
        Wait::Allowed => Ok(()),
    }
}

impl Storage for UserStorage {
    fn open_read(&self, path: &VirtualPath, wait: Wait) -> Result<ReadHandle, FileError> {
        wait_first(wait)?;
        self.0.with(|storage| storage.open_read(path, wait))
    }

    fn open_write_with(
        &self,
        path: &VirtualPath,
        mode: WriteMode,
        bits: Option<u32>,
        wait: Wait,
    ) -> Result<Box<dyn Upload>, FileError> {
        wait_first(wait)?;
        self.0
            .with(|storage| storage.open_write_with(path, mode, bits, wait))
            .map(|upload| self.upload(upload))
    }

    fn metadata(&self, path: &VirtualPath, wait: Wait) -> Result<Metadata, FileError> {
        wait_first(wait)?;
        self.0.with(|storage| storage.metadata(path, wait))
    }

    fn entry(&self, path: &VirtualPath) -> Result<DirEntry, FileError> {
        self.0.with(|storage| storage.entry(path))
    }

    fn open_directory(&self, path: &VirtualPath) -> Result<Box<dyn Directory>, FileError> {
        let directory = self.0.with(|storage| storage.open_directory(path))?;
        Ok(Box::new(UserDirectory(Acting::new(&self.0.user, directory))))
    }

    fn make_directory_with(&self, path: &VirtualPath, bits: Option<u32>) -> Result<(), FileError> {
        self.0.with(|storage| storage.make_directory_with(path, bits))
    }

    fn remove_directory(&self, path: &VirtualPath) -> Result<(), FileError> {
        self.0.with(|storage| storage.remove_directory(path))
    }

    fn remove_file(&self, path: &VirtualPath) -> Result<(), FileError> {
        self.0.with(|storage| storage.remove_file(path))
    }

    fn rename(&self, from: &VirtualPath, to: &VirtualPath) -> Result<(), FileError> {
        self.0.with(|storage| storage.rename(from, to))
    }

    fn change(&self, path: &VirtualPath, change: Change) -> Result<(), FileError> {
        self.0.with(|storage| storage.change(path, change))
    }

    fn make_symlink(&self, target: &[u8], path: &VirtualPath) -> Result<(), FileError> {
        self.0.with(|storage| storage.make_symlink(target, path))
    }

    fn copy(
        &self,
        from: &VirtualPath,
        to: &VirtualPath,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u64, FileError> {
        self.0.with(|storage| storage.copy(from, to, progress))
    }

    fn space(&self, path: &VirtualPath) -> Result<Space, FileError> {
        self.0.with(|storage| storage.space(path))
    }

    fn may_replace(&self, path: &VirtualPath, all_beneath: bool) -> Result<(), FileError> {
        self.0.with(|storage| storage.may_replace(path, all_beneath))
    }

    fn open_partial(
        &self,
        path: &VirtualPath,
        key: &PartialKey,
        write: WriteMode,
        mode: PartialMode,
    ) -> Result<Partial, FileError> {
        self.0
            .with(|storage| storage.open_partial(path, key, write, mode))
            .map(|partial| self.partial(partial))
    }

    fn find_partial(&self, path: &VirtualPath, key: &PartialKey) -> Result<PartialState, FileError> {
        self.0.with(|storage| storage.find_partial(path, key))
    }

    fn remove_partial(&self, path: &VirtualPath, key: &PartialKey) -> Result<(), FileError> {
        self.0.with(|storage| storage.remove_partial(path, key))
    }

    fn join_partials(
        &self,
        path: &VirtualPath,
        parts: &[(VirtualPath, PartialKey)],
        write: WriteMode,
    ) -> Result<Partial, FileError> {
        self.0.with(|storage| storage.join_partials(path, parts, write)).map(|partial| self.partial(partial))
    }

    fn resting(&self) -> Result<Resting, FileError> {
        self.0.with(Storage::resting)
    }
}

#[derive(Debug)]
struct UserUpload(Acting<Box<dyn Upload>>);

impl UserUpload {
    fn shown<R>(&self, show: impl FnOnce(&dyn Upload) -> R) -> Option<R> {
        self.0.inner.as_ref().map(|upload| show(&**upload))
    }
}

impl Upload for UserUpload {
    fn file(&mut self) -> Result<Option<(&File, u64)>, FileError> {
        let Acting { user, inner } = &mut self.0;
        let upload = inner.as_mut().ok_or(FileError::Cancelled)?;
        as_user(user, || upload.file())
    }

    fn with_file(&mut self, write: &mut dyn FnMut(&File, u64)) -> Result<bool, FileError> {
        self.0.with_mut(|upload| upload.with_file(write))
    }

    fn advance(&mut self, count: u64) {
        if let Some(upload) = &mut self.0.inner {
            upload.advance(count);
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.0.with_mut(|upload| upload.write_all(bytes))
    }

    fn preview(&mut self) -> Result<Option<ReadHandle>, FileError> {
        self.0.with_mut(|upload| upload.preview())
    }

    fn commit(mut self: Box<Self>) -> Result<Committed, FileError> {
        self.0.end(|upload| upload.commit())
    }

    fn abort(mut self: Box<Self>) {
        let _ = self.0.end(|upload| {
            upload.abort();
            Ok(())
        });
    }

    fn keep(mut self: Box<Self>) -> Result<(), FileError> {
        self.0.end(|upload| upload.keep())
    }

    fn sync(&mut self) {
        let _ = self.0.with_mut(|upload| {
            upload.sync();
            Ok(())
        });
    }

    fn close(mut self: Box<Self>) {
        let _ = self.0.end(|upload| {
            upload.close();
            Ok(())
        });
    }

    fn undo(mut self: Box<Self>) {
        let _ = self.0.end(|upload| {
            upload.undo();
            Ok(())
        });
    }

    fn readiness(&self) -> Readiness {
        Readiness::MayHang
    }

    fn commit_readiness(&self) -> Readiness {
        Readiness::MayHang
    }

    fn is_staged(&self) -> bool {
        self.shown(|upload| upload.is_staged()).unwrap_or_default()
    }
}

#[derive(Debug)]
struct UserDirectory(Acting<Box<dyn Directory>>);

impl Directory for UserDirectory {
    fn next_batch(&mut self, entries: &mut Vec<DirEntry>, most: usize) -> Result<(), FileError> {
        self.0.with_mut(|directory| directory.next_batch(entries, most))
    }

    fn next_names(&mut self, visit: &mut dyn FnMut(&[u8]), most: usize) -> Result<usize, FileError> {
        self.0.with_mut(|directory| directory.next_names(visit, most))
    }

    fn metadata(&self) -> Result<Metadata, FileError> {
        self.0.with(|directory| directory.metadata())
    }
}
