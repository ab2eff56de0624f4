//! Folders as archives, made while they are sent: `RETR photos.tar`, `photos.tar.gz`, `photos.zip`.
//!
//! A name that no file has, and that is a folder's with one of these endings, reads as the whole folder. It is not
//! listed, and its length is not known beforehand. Nothing is written to disk, and one file at a time is open. Links
//! are packed as links (zip: as what they lead to, where that is a file) and never descended into, so a walk ends. An
//! unreadable file ends the archive with an error that names it, so a complete archive has everything except withheld
//! files. A file that vanishes before its turn is left out, as it would be from a listing.
//!
//! The layer packs what the storage beneath it shows, so permissions belong beneath it.

mod pack;
mod tarball;
mod walk;
mod zipped;

use std::sync::Arc;

use millrace_vfs::{Call, FileError, Metadata, ReadHandle, Storage, VirtualPath, Wait};

use crate::Withheld;
use pack::Packer;

/// A kind of archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Tar,
    TarGz,
    Zip,
}

/// The endings of names. The longer of two that fit comes first.
const ENDINGS: &[(&[u8], Format)] =
    &[(b".tar.gz", Format::TarGz), (b".tgz", Format::TarGz), (b".tar", Format::Tar), (b".zip", Format::Zip)];

/// Another back end, whose folders can be read as archives.
#[derive(Debug, Clone)]
pub struct Archives {
    inner: Arc<dyn Storage>,
    withheld: Withheld,
}

impl Archives {
    /// Lets folders of `inner` be read as archives.
    pub fn new(inner: Arc<dyn Storage>) -> Self {
        Self { inner, withheld: Withheld::default() }
    }

    /// Without programs and the sources of applications.
    pub fn without(self, withheld: Withheld) -> Self {
        Self { withheld, ..self }
    }

    /// The folder that would be read as an archive by this name, whether it is there or not; a file of the name goes
    /// first.
    pub fn folder_named(path: &VirtualPath) -> Option<VirtualPath> {
        let (stem, _) = ending(path)?;
        path.parent().join(stem).ok()
    }

    /// The folder that the name of an archive stands for, if there is one.
    fn folder(&self, path: &VirtualPath) -> Option<(VirtualPath, Format)> {
        let (stem, format) = ending(path)?;
        let folder = path.parent().join(stem).ok()?;
        let metadata = self.inner.metadata(&folder, Wait::Allowed).ok()?;
        metadata.is_directory().then_some((folder, format))
    }
}

/// A name without the ending of an archive, if it has one.
fn ending(path: &VirtualPath) -> Option<(&[u8], Format)> {
    let stem = |ending: &[u8]| path.name().strip_suffix(ending).filter(|stem| !stem.is_empty());
    ENDINGS.iter().find_map(|(ending, format)| Some((stem(ending)?, *format)))
}

impl millrace_vfs::Layer for Archives {
    fn inner(&self) -> &dyn Storage {
        &*self.inner
    }

    fn admit(&self, _: Call, _: Wait) -> Result<(), FileError> {
        Ok(())
    }

    fn open_read(&self, path: &VirtualPath, wait: Wait) -> Result<ReadHandle, FileError> {
        match self.inner.open_read(path, wait) {
            Err(FileError::NotFound) if ending(path).is_none() => Err(FileError::NotFound),
            // Looking for the folder may wait.
            Err(FileError::NotFound) if wait == Wait::Never => Err(FileError::WouldWait),
            Err(FileError::NotFound) => match self.folder(path) {
                Some((folder, format)) => {
                    let (storage, withheld) = (Arc::clone(&self.inner), self.withheld.clone());
                    Ok(ReadHandle::Stream(Box::new(Packer::new(storage, folder, format, withheld)?)))
                }
                None => Err(FileError::NotFound),
            },
            result => result,
        }
    }

    fn metadata(&self, path: &VirtualPath, wait: Wait) -> Result<Metadata, FileError> {
        match self.inner.metadata(path, wait) {
            Err(FileError::NotFound) if ending(path).is_none() => Err(FileError::NotFound),
            Err(FileError::NotFound) if wait == Wait::Never => Err(FileError::WouldWait),
            // Not "not found": curl asks for the size first, and would believe it.
            Err(FileError::NotFound) if self.folder(path).is_some() => Err(FileError::Unsupported),
            result => result,
        }
    }
}
