//! Partial uploads that become one file together: the first of them, with the bytes of the others behind its own.
//!
//! The invariant: until the whole has its name each is as it was, also behind a kill, for the first is marked with how
//! much of it is its own. They are locked meanwhile, so that none can be continued or joined elsewhere.

use std::fs::File;
use std::os::fd::OwnedFd;

use millrace_vfs::{FileError, Partial, PartialKey, Resting};
use rustix::fs::AtFlags;

use super::super::copy;
use super::super::disk;
use super::super::errno::file_error;
use super::super::staging::kept_name;
use super::super::target::Destination;
use super::{Kept, Place, Taken, mark, release, state};

/// The others, locked.
#[derive(Debug, Default)]
pub(super) struct Joined(Vec<Other>);

#[derive(Debug)]
struct Other {
    file: File,
    key: PartialKey,
    size: u64,
}

impl Place {
    /// Opens several as one to a destination.
    pub(in super::super) fn join(
        &self,
        mut destination: Destination,
        keys: &[PartialKey],
    ) -> Result<Partial, FileError> {
        let (first, others) = keys.split_first().ok_or(FileError::NotFound)?;
        let there = disk::fstat(&*destination.target()?.directory).map_err(file_error)?;
        let taken = self.take(first)?;
        let here = disk::fstat(&taken.file).map_err(file_error)?;
        let (mut kept, modified) = self.keep(taken, destination, *first, true)?;
        if here.st_dev != there.st_dev {
            return Err(FileError::CrossDevice);
        }
        others.iter().try_for_each(|key| kept.swallow(key))?;
        Ok(Partial { size: kept.position, modified, upload: Box::new(kept) })
    }
}

impl Kept {
    /// Takes over the bytes of another.
    fn swallow(&mut self, key: &PartialKey) -> Result<(), FileError> {
        let Taken { file, .. } = self.place.take(key)?;
        let size = state(&file)?.size;
        let copied = copy::append(&file, self, &mut |_| true);
        self.joined.0.push(Other { file, key: *key, size });
        match copied? {
            copied if copied == size => Ok(()),
            _ => Err(FileError::OutOfRange),
        }
    }
}

impl Joined {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// They wait again.
    pub(super) fn let_go(&mut self, mut resting: Option<&mut Resting>) {
        for Other { file, size, .. } in self.0.drain(..) {
            if let Some(resting) = &mut resting {
                **resting = Resting { bytes: resting.bytes + size, files: resting.files + 1 };
            }
            release(&file);
        }
    }

    /// Their bytes are in the file now.
    pub(super) fn remove(&mut self, directory: &OwnedFd) {
        for Other { file, key, .. } in self.0.drain(..) {
            let _ = disk::unlinkat(directory, kept_name(&key), AtFlags::empty());
            mark::clear(directory, &key);
            release(&file);
        }
    }
}
