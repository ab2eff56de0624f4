//! The hashes of a file's content, in an extended attribute of it: they move with the file when it is renamed, and hold
//! while it has the length and the time of change that are noted beside them.
//!
//! That they cannot be kept (a file system without attributes, no room) fails no upload. They are stored before the
//! bytes are waited for, so that the same wait covers them.

use std::fs::File;
use std::os::fd::AsFd;

use millrace_vfs::hash::{Hashes, StoredHashes};
use rustix::fs::XattrFlags;

use super::{disk, metadata};

/// What is stored with an open file, whether it still holds or not.
fn read(file: impl AsFd) -> Option<StoredHashes> {
    let mut text = [0_u8; StoredHashes::LONGEST];
    let length = disk::fgetxattr(file, StoredHashes::ATTRIBUTE, &mut text[..]).ok()?;
    StoredHashes::parse(&text[..length])
}

/// The hashes that hold for an open file.
pub(super) fn fresh(file: impl AsFd) -> Option<StoredHashes> {
    let stored = read(&file)?;
    let now = metadata::of_descriptor(&file).ok()?;
    stored.fit(now.size, now.modified).then_some(stored)
}

/// Stores the hashes of an open file, if it has this length.
pub(super) fn store(file: &File, hashes: Hashes, length: u64) {
    if let Ok(metadata) = metadata::of_descriptor(file)
        && metadata.size == length
    {
        let stored = StoredHashes { size: length, modified: metadata.modified, hashes };
        let text = stored.to_string();
        let _ = disk::fsetxattr(file, StoredHashes::ATTRIBUTE, text.as_bytes(), XattrFlags::empty());
    }
}

/// Removes what is stored with a file whose content is about to change; returns it if it held.
pub(super) fn take(file: &File) -> Option<StoredHashes> {
    // Looking is cheaper than removing, and mostly there is nothing.
    if disk::fgetxattr(file, StoredHashes::ATTRIBUTE, &mut [0_u8; 0][..]).is_err() {
        return None;
    }
    let stored = fresh(file);
    let _ = disk::fremovexattr(file, StoredHashes::ATTRIBUTE);
    stored
}
