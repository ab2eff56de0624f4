//! Where something is, for locks and properties: what its directory is, and its name there.
//!
//! A path is not enough, for users see different trees; a file is not, as an upload that replaces one is another.

use millrace_vfs::{FileError, Storage, VirtualPath, Wait};
use serde::{Deserialize, Serialize};

/// A place in the file system.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Place {
    directory: (u64, u64),
    name: Vec<u8>,
}

/// A place, then its directory's, and so on up to the root.
pub(crate) type Chain = Vec<Place>;

impl Place {
    /// The place of a name in a directory.
    pub(crate) fn within(directory: (u64, u64), name: &[u8]) -> Self {
        Self { directory, name: name.to_vec() }
    }

    /// Bytes that it takes where it is kept at most: each of its name's is a number there.
    pub(crate) fn size(&self) -> usize {
        80 + 4 * self.name.len()
    }
}

/// Where a path leads; its directory has to be there. May wait.
pub(crate) fn chain(storage: &dyn Storage, path: &VirtualPath) -> Result<Chain, FileError> {
    let (mut at, mut chain) = (path.clone(), Vec::new());
    loop {
        let parent = at.parent();
        let directory = storage.metadata(&parent, Wait::Allowed)?;
        chain.push(Place::within(directory.identity, at.name()));
        if at.is_root() {
            return Ok(chain);
        }
        at = parent;
    }
}
