//! Finds the places of paths, by which locks and properties are kept.

use millrace_http::dav::place::{Chain, Place};
use millrace_vfs::{FileError, Storage, VirtualPath, Wait};

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
