//! Objects that are on their way, and have no name yet.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use millrace_vfs::{FileError, VirtualPath};

use crate::Shared;
use crate::database::lock;
use crate::tree::{NewFile, ObjectId};

/// The objects that this process has pending. Its housekeeping tells the database that they still are.
#[derive(Debug, Default)]
pub(crate) struct PendingObjects(Mutex<HashSet<ObjectId>>);

impl PendingObjects {
    pub(crate) fn all(&self) -> Vec<ObjectId> {
        lock(&self.0).iter().cloned().collect()
    }
}

/// A pending object. Dropped without a name, it is garbage.
#[derive(Debug)]
pub(crate) struct Pending {
    shared: Arc<Shared>,
    pub(crate) object: ObjectId,
    /// Some of it may be in the store.
    is_begun: bool,
    has_name: bool,
}

impl Pending {
    /// Makes one, if its file may be made.
    pub(crate) fn begin(shared: &Arc<Shared>, path: &VirtualPath, is_new: bool) -> Result<Self, FileError> {
        let object = ObjectId::random()?;
        shared.tree.begin_upload(path, &object, is_new)?;
        lock(&shared.pending.0).insert(object.clone());
        Ok(Self { shared: Arc::clone(shared), object, is_begun: false, has_name: false })
    }

    /// From now on the store may have some of it.
    pub(crate) fn set_begun(&mut self) {
        self.is_begun = true;
    }

    /// Gives it the name that it was made for.
    pub(crate) fn commit(mut self, file: &NewFile<'_>) -> Result<(), FileError> {
        self.shared.tree.commit_upload(file)?;
        self.has_name = true;
        Ok(())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        lock(&self.shared.pending.0).remove(&self.object);
        if self.has_name {
            return;
        }
        // Where this fails it is given up as one of a server that has died.
        let tree = &self.shared.tree;
        let _ = if self.is_begun { tree.give_up(&self.object) } else { tree.forget(&self.object) };
    }
}
