//! Common to both kinds of upload: write at a position, and truncate.

use std::fs::File;

use millrace_vfs::FileError;
use rustix::io::Errno;

use super::disk;
use super::errno::transfer_error;

/// Writes all of `bytes` at `position`, which moves along.
pub(super) fn write_all_at(file: &File, position: &mut u64, mut bytes: &[u8]) -> Result<(), FileError> {
    while !bytes.is_empty() {
        match disk::pwrite(file, bytes, *position) {
            Ok(0) => return Err(FileError::Io(std::io::ErrorKind::WriteZero.into())),
            Ok(written) => {
                *position += written as u64;
                bytes = &bytes[written..];
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(transfer_error(errno)),
        }
    }
    Ok(())
}

/// Cuts the file to `length`.
pub(super) fn truncate(file: &File, length: u64) -> Result<(), FileError> {
    rustix::io::retry_on_intr(|| disk::ftruncate(file, length)).map_err(transfer_error)
}
