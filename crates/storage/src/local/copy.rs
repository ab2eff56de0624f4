//! Copies within the tree: `copy_file_range`, so the bytes stay in the kernel, or are shared where the file
//! system can.

use std::fs::File;

use millrace_vfs::{FileError, Upload};
use rustix::io::Errno;

use super::disk;
use super::errno::transfer_error;
use super::staged::Staged;
use super::stored_hash;

/// How much is copied between two looks at whether to go on.
const STEP: usize = 16 << 20;

/// The buffer where the kernel cannot copy by itself.
const BUFFER: usize = 1 << 20;

/// Copies all of `source` into `upload` and commits it; answers the number of bytes. `progress` is told the
/// bytes copied so far and answers whether to go on.
pub(super) fn copy(
    source: &File,
    mut upload: Staged,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<u64, FileError> {
    let stored = stored_hash::fresh(source);
    append(source, &mut upload, progress)?;
    // Not of a file that another program has changed meanwhile.
    if let Some(stored) = stored
        && stored_hash::fresh(source).as_ref() == Some(&stored)
    {
        upload.set_hashes(stored.hashes, stored.size);
    }
    Box::new(upload).commit().map(|committed| committed.size)
}

/// Copies all of `source` to where the next bytes of `upload` go; answers the number of bytes.
pub(super) fn append(
    source: &File,
    upload: &mut dyn Upload,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<u64, FileError> {
    let mut copied = 0;
    let mut in_kernel = true;
    loop {
        let step = if in_kernel {
            copy_in_kernel(source, upload, copied)
        } else {
            copy_through(source, upload, copied)
        };
        match step {
            Ok(Some(0)) => return Ok(copied),
            Ok(Some(count)) => copied += count,
            Ok(None) => in_kernel = false,
            Err(error) => return Err(error),
        }
        if !progress(copied) {
            return Err(FileError::Cancelled);
        }
    }
}

/// One step in the kernel; `None` where it cannot.
fn copy_in_kernel(source: &File, upload: &mut dyn Upload, copied: u64) -> Result<Option<u64>, FileError> {
    let Some((target, position)) = upload.file()? else { return Ok(None) };
    let (mut from, mut to) = (copied, position);
    match disk::copy_file_range(source, Some(&mut from), target, Some(&mut to), STEP) {
        // Some file systems (proc and its kind) answer 0 at once for what a read would fill.
        Ok(0) if copied == 0 => Ok(None),
        Ok(count) => {
            upload.advance(count as u64);
            Ok(Some(count as u64))
        }
        Err(Errno::INTR) => copy_in_kernel(source, upload, copied),
        Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => Ok(None),
        Err(errno) => Err(transfer_error(errno)),
    }
}

/// One step through memory of ours.
fn copy_through(source: &File, upload: &mut dyn Upload, copied: u64) -> Result<Option<u64>, FileError> {
    let mut buffer = vec![0; BUFFER];
    let count =
        rustix::io::retry_on_intr(|| disk::pread(source, &mut buffer[..], copied)).map_err(transfer_error)?;
    upload.write_all(&buffer[..count])?;
    Ok(Some(count as u64))
}
