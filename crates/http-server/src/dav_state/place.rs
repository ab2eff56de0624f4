//! Finds the places of paths, by which locks and properties are kept.

use millrace_http::dav::place::Chain;
use millrace_vfs::{FileError, Storage, VirtualPath, Wait};

use crate::dav_state::Dav;

/// Where a path leads; its directory has to be there. May wait.
pub(crate) fn chain(dav: &Dav, storage: &dyn Storage, path: &VirtualPath) -> Result<Chain, FileError> {
    let (mut at, mut chain) = (path.clone(), Vec::new());
    loop {
        let parent = at.parent();
        let directory = storage.metadata(&parent, Wait::Allowed)?;
        chain.push(dav.place(directory.identity, at.name()));
        if at.is_root() {
            return Ok(chain);
        }
        at = parent;
    }
}
