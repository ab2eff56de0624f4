//! What both kinds of upload do with an open file: write at a position, and make it durable.

use std::fs::File;
use std::os::fd::AsFd;

use millrace_vfs::FileError;
use rustix::io::Errno;

use super::errno::transfer_error;
use super::tree::reopen_directory;

/// Writes all of `bytes` at `position`, which moves along.
pub(super) fn write_all_at(file: &File, position: &mut u64, mut bytes: &[u8]) -> Result<(), FileError> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, *position) {
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
    rustix::io::retry_on_intr(|| rustix::fs::ftruncate(file, length)).map_err(transfer_error)
}

/// Waits until the file's bytes are on the device.
pub(super) fn synchronise_file(file: &File) -> Result<(), FileError> {
    rustix::io::retry_on_intr(|| rustix::fs::fdatasync(file)).map_err(transfer_error)
}

/// Waits until the directory's entries are on the device.
pub(super) fn synchronise_directory(directory: impl AsFd) -> Result<(), FileError> {
    let directory = reopen_directory(directory)?;
    rustix::io::retry_on_intr(|| rustix::fs::fsync(&directory)).map_err(transfer_error)
}
