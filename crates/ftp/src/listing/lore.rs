//! Facts about files beyond a storage's metadata.

use std::fmt;

use millrace_vfs::Metadata;

/// Knows it, and does not wait for it.
pub trait Lore: Send + Sync + fmt::Debug {
    /// Appends the media type of a file with this name; nothing where it has none.
    fn media_type(&self, name: &[u8], out: &mut Vec<u8>);
    /// Appends algorithm and hash of the whole file, `SHA-256:ba78...`, where that is known already.
    fn hash(&self, metadata: &Metadata, out: &mut Vec<u8>);
}

/// Knows nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoLore;

impl Lore for NoLore {
    fn media_type(&self, _: &[u8], _: &mut Vec<u8>) {}

    fn hash(&self, _: &Metadata, _: &mut Vec<u8>) {}
}
