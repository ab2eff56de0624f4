//! Where something is, for locks and properties: what its directory is, and its name there.
//!
//! A path is not enough, for users see different trees; a file is not, as an upload that replaces one is another.

/// A place in the file system.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    directory: (u64, u64),
    name: Vec<u8>,
}

/// A place, then its directory's, and so on up to the root.
pub type Chain = Vec<Place>;

impl Place {
    /// The place of a name in a directory.
    pub fn within(directory: (u64, u64), name: &[u8]) -> Self {
        Self { directory, name: name.to_vec() }
    }

    /// The identity of its directory.
    pub fn directory(&self) -> (u64, u64) {
        self.directory
    }

    /// Its name there.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Bytes that it takes where it is kept at most: each of its name's is a number there.
    pub(super) fn size(&self) -> usize {
        80 + 4 * self.name.len()
    }
}
