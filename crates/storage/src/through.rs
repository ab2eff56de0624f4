//! Reading and copying through the doors alone, for back ends that have no quicker way.

use std::os::unix::fs::FileExt;

use millrace_vfs::{FileError, ReadHandle, Storage, VirtualPath, Wait, WriteMode};

/// How many bytes are copied at a time.
const PIECE: usize = 64 << 10;

/// Reads at `offset` whatever kind of handle it is; 0 means the end. May wait.
pub(crate) fn read_at(handle: &mut ReadHandle, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
    match handle {
        ReadHandle::File(range) => loop {
            match range.file.read_at(buffer, offset) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                result => return Ok(result?),
            }
        },
        ReadHandle::Stream(stream) => stream.read_at(offset, buffer),
    }
}

/// As [`read_at`], until the buffer is full or the file ends.
pub(crate) fn read_full(handle: &mut ReadHandle, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
    let mut count = 0;
    while count < buffer.len() {
        match read_at(handle, offset + count as u64, &mut buffer[count..])? {
            0 => break,
            more => count += more,
        }
    }
    Ok(count)
}

/// Copies a file's content from one storage to another, or within one, as [`Storage::copy`] has it.
pub(crate) fn copy(
    from: (&dyn Storage, &VirtualPath),
    to: (&dyn Storage, &VirtualPath),
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<u64, FileError> {
    let mut source = from.0.open_read(from.1, Wait::Allowed)?;
    let mut upload = to.0.open_write(to.1, WriteMode::Replace, Wait::Allowed)?;
    let mut buffer = vec![0; PIECE];
    let mut copied = 0;
    loop {
        let count = read_at(&mut source, copied, &mut buffer)?;
        if count == 0 {
            return upload.commit().map(|committed| committed.size);
        }
        upload.write_all(&buffer[..count])?;
        copied += count as u64;
        if !progress(copied) {
            return Err(FileError::Cancelled);
        }
    }
}
