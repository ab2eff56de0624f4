//! What a back end has where a folder is mounted over it. Clients are not to see it: a folder that shows a part of the
//! base once more, read-only or with a quota, would hold none of that by another path to the same files.

use millrace_vfs::{FileError, Storage, VirtualPath, Wait};

use super::{Folders, Mount, beneath};

impl Folders {
    /// Refuses a symbolic link in a back end of which a folder hides something: it could be a second path to that, which
    /// does not lead through the folder. What the link says does not tell, as other links may lie on its way.
    pub(super) fn refuse_ways_round(&self, storage: &dyn Storage) -> Result<(), FileError> {
        let hides = |mount: &Mount| {
            let (below, at) = self.below(mount);
            std::ptr::addr_eq(below, storage) && mount.hides_something(below, &at)
        };
        if self.mounts.iter().any(hides) { Err(FileError::PermissionDenied) } else { Ok(()) }
    }

    /// The back end that a folder is mounted over, and where in it.
    fn below(&self, mount: &Mount) -> (&dyn Storage, VirtualPath) {
        let is_below = |other: &&Mount| other.at != mount.at && mount.at.starts_with(&other.at);
        let other = self.mounts.iter().find(is_below);
        match other.and_then(|other| other.storage.as_deref().map(|storage| (storage, &other.at))) {
            Some((storage, at)) => (storage, beneath(&mount.at, at)),
            None => (&*self.base, mount.at.clone()),
        }
    }
}

impl Mount {
    /// An empty directory hides nothing, unless it is the folder itself. What cannot be looked at may be anything.
    fn hides_something(&self, below: &dyn Storage, at: &VirtualPath) -> bool {
        let there = match below.metadata(at, Wait::Allowed) {
            Err(FileError::NotFound | FileError::NotDirectory) => return false,
            Err(_) => return true,
            Ok(there) => there,
        };
        let shown =
            self.storage.as_ref().and_then(|own| own.metadata(&VirtualPath::root(), Wait::Allowed).ok());
        if !there.is_directory() || shown.is_some_and(|shown| shown.identity == there.identity) {
            return true;
        }
        let mut entries = Vec::new();
        let read = below.open_directory(at).and_then(|mut directory| directory.next_batch(&mut entries, 1));
        read.is_err() || !entries.is_empty()
    }
}
