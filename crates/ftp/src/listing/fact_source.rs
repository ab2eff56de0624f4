//! Facts about files beyond a storage's metadata.

use std::fmt;

use millrace_vfs::Metadata;

/// Supplies further facts; it must not block.
pub trait FactSource: Send + Sync + fmt::Debug {
    /// Appends the media type of a file with this name; nothing if it has none.
    fn media_type(&self, name: &[u8], out: &mut Vec<u8>);
    /// Appends algorithm and hash of the whole file, `SHA-256:ba78...`, if it is cached.
    fn hash(&self, metadata: &Metadata, out: &mut Vec<u8>);
}

/// Supplies no facts.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFacts;

impl FactSource for NoFacts {
    fn media_type(&self, _: &[u8], _: &mut Vec<u8>) {}

    fn hash(&self, _: &Metadata, _: &mut Vec<u8>) {}
}
