//! How files are opened: regular ones and no others, to be read, to be replaced, or to be written to in place.

use std::fs::File;
use std::sync::{Arc, LazyLock};

use millrace_vfs::hash::{Hashers, StoredHashes};
use millrace_vfs::{FileError, FileRange, ReadHandle, Readiness, Upload, VirtualPath, Wait, WriteMode};
use rustix::fs::{FileType, Mode, OFlags, Stat};

use super::disk;
use super::errno::file_error;
use super::in_place::{InPlace, Made};
use super::ownership::OwnedFiles;
use super::staged::{self, Staged};
use super::{LocalStorage, Uploads, metadata, stored_hash, target};
use crate::hashed::{self, Hashed};

/// The files that are being written in place, for the whole process, because a file may lie in several trees.
static OWNED_FILES: LazyLock<OwnedFiles> = LazyLock::new(OwnedFiles::default);

impl LocalStorage {
    pub(super) fn open_regular(
        &self,
        path: &VirtualPath,
        flags: OFlags,
        mode: Mode,
        wait: Wait,
    ) -> Result<(File, Stat, Readiness), FileError> {
        // Without O_NONBLOCK the open of a pipe without a writer would never return.
        let fd = self.tree.open_at(path, flags | OFlags::NONBLOCK | OFlags::NOCTTY, mode, wait)?;
        let stat = disk::fstat(&fd).map_err(file_error)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(FileError::IsDirectory),
            _ => return Err(FileError::NotRegular),
        }
        let readiness = self.tree.readiness(&fd, stat.st_dev);
        Ok((File::from(fd), stat, readiness))
    }

    pub(super) fn open_upload(
        &self,
        path: &VirtualPath,
        mode: WriteMode,
        bits: Option<u32>,
        wait: Wait,
    ) -> Result<Box<dyn Upload>, FileError> {
        let algorithms = self.options.hashes;
        let (upload, hashers): (Box<dyn Upload>, _) = match (self.options.uploads, mode) {
            (Uploads::Staged, WriteMode::Replace | WriteMode::CreateNew) => {
                let upload = self.open_staged(path, mode == WriteMode::CreateNew, bits, wait)?;
                (Box::new(upload), Some(Hashers::new(algorithms)))
            }
            _ => {
                let (upload, hashers) = self.open_in_place(path, mode, bits, wait)?;
                (Box::new(upload), hashers)
            }
        };
        Ok(match hashers.filter(|_| !algorithms.is_empty()) {
            Some(hashers) => Hashed::begin(upload, algorithms, hashers),
            None => upload,
        })
    }

    pub(super) fn open_staged(
        &self,
        path: &VirtualPath,
        exclusive: bool,
        bits: Option<u32>,
        wait: Wait,
    ) -> Result<Staged, FileError> {
        let target = target::find(&self.tree, path, exclusive, wait)?;
        let settings = staged::Settings { bits: bits.map(Mode::from_raw_mode), ..self.staged };
        Ok(Staged::new(target, Arc::clone(&self.staging), settings, Arc::clone(&self.durable)))
    }

    /// Opens a file to write in place; with the hashes of what is before the first byte, if all that follows comes.
    fn open_in_place(
        &self,
        path: &VirtualPath,
        mode: WriteMode,
        bits: Option<u32>,
        wait: Wait,
    ) -> Result<(InPlace, Option<Hashers>), FileError> {
        // The old bytes are hashed again.
        if mode == WriteMode::Append && wait == Wait::Never && !self.options.hashes.is_empty() {
            return Err(FileError::WouldWait);
        }
        let Opened { file, stat, readiness, is_ours } = self.open_to_write(path, mode, bits, wait)?;
        let made = if is_ours { Made::new(&self.tree, &self.staging, path, &file) } else { None };
        let ownership = OWNED_FILES.take((stat.st_dev, stat.st_ino), wait)?;
        // From now on no other upload writes there.
        let stored = if is_ours { None } else { stored_hash::take(&file) };
        // The previous owner may have cut it meanwhile; a replaced file is cut anyway.
        let stat = match mode {
            WriteMode::Replace | WriteMode::CreateNew => stat,
            WriteMode::Append | WriteMode::At(_) => disk::fstat(&file).map_err(file_error)?,
        };
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let position = match mode {
            WriteMode::Replace | WriteMode::CreateNew => 0,
            WriteMode::Append => size,
            WriteMode::At(offset) if offset > size => return Err(FileError::OutOfRange),
            WriteMode::At(offset) => offset,
        };
        let hashers = match mode {
            WriteMode::At(_) => None,
            WriteMode::Append if size > 0 => stored.and_then(|stored| self.hash_again(path, &stat, &stored)),
            _ => Some(Hashers::new(self.options.hashes)),
        };
        // Also of a file that was there before: an upload that was cut may have made it, and nothing waited for its name.
        let named_in = match self.durable.keeps_names() {
            true => Some(target::directory_of(&self.tree, path, wait)?),
            false => None,
        };
        let durable = Arc::clone(&self.durable);
        let replaces = mode == WriteMode::Replace;
        let upload = InPlace::new(file, ownership, position, size, replaces, readiness, durable)
            .of(made)
            .named_in(named_in);
        Ok((if mode == WriteMode::Append { upload.appending() } else { upload }, hashers))
    }

    /// Hashes a small file once more, to be appended to; nothing where it is not what was stored.
    fn hash_again(&self, path: &VirtualPath, stat: &Stat, stored: &StoredHashes) -> Option<Hashers> {
        let small = Some(stored.size).filter(|size| *size <= hashed::READ_AGAIN)?;
        let (file, there, readiness) =
            self.open_regular(path, OFlags::RDONLY, Mode::empty(), Wait::Allowed).ok()?;
        if (there.st_dev, there.st_ino) != (stat.st_dev, stat.st_ino) {
            return None;
        }
        let mut handle = ReadHandle::File(FileRange { file: Arc::new(file), size: small, readiness });
        let hashers = hashed::hash(&mut handle, small, stored.hashes.algorithms()).ok()?;
        (hashers.clone().finish() == stored.hashes).then_some(hashers)
    }

    /// Opens the file to write in place.
    fn open_to_write(
        &self,
        path: &VirtualPath,
        mode: WriteMode,
        bits: Option<u32>,
        wait: Wait,
    ) -> Result<Opened, FileError> {
        let how = OFlags::WRONLY | if mode == WriteMode::Append { OFlags::APPEND } else { OFlags::empty() };
        if mode != WriteMode::CreateNew {
            match self.open_regular(path, how, Mode::empty(), wait) {
                Err(FileError::NotFound) if !matches!(mode, WriteMode::At(1..)) => {}
                result => return result.map(|opened| Opened::new(opened, false)),
            }
        }
        if wait == Wait::Never {
            return Err(FileError::WouldWait);
        }
        let bits = bits.map(Mode::from_raw_mode);
        let make = |flags| {
            self.open_regular(path, how | OFlags::CREATE | flags, bits.unwrap_or(self.staged.mode), wait)
        };
        let opened = match make(OFlags::EXCL) {
            // Made by another meanwhile, or a link that leads to nothing yet.
            Err(FileError::AlreadyExists) if mode != WriteMode::CreateNew => {
                Opened::new(make(OFlags::empty())?, false)
            }
            made => Opened::new(made?, true),
        };
        if let Some(bits) = bits {
            metadata::widen(&opened.file, opened.stat.st_mode, bits);
        }
        Ok(opened)
    }
}

/// A file that is open to be written to in place.
struct Opened {
    file: File,
    stat: Stat,
    readiness: Readiness,
    /// The open call created it for sure; with several writers that may be unknown.
    is_ours: bool,
}

impl Opened {
    fn new((file, stat, readiness): (File, Stat, Readiness), is_ours: bool) -> Self {
        Self { file, stat, readiness, is_ours }
    }
}
