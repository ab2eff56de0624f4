//! Read-only: any back end without its changes.

use millrace_vfs::{Call, FileError, Storage, Wait};

/// Another back end, every change of which is [`FileError::ReadOnly`].
#[derive(Debug, Clone)]
pub struct ReadOnly<S>(S);

impl<S: Storage> ReadOnly<S> {
    /// Serves `storage` without its changes.
    pub fn new(storage: S) -> Self {
        Self(storage)
    }
}

impl<S: Storage> millrace_vfs::Layer for ReadOnly<S> {
    fn inner(&self) -> &dyn Storage {
        &self.0
    }

    fn admit(&self, call: Call, _: Wait) -> Result<(), FileError> {
        match call {
            Call::Read => Ok(()),
            Call::Change => Err(FileError::ReadOnly),
            Call::OpenPartial => Err(FileError::Unsupported),
            Call::FindPartial => Err(FileError::NotFound),
        }
    }
}
