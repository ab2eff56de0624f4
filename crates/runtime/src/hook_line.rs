//! What connections of every protocol tell hooks in the same way: the events themselves, and uploads that take their names
//! only when hooks have decided.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millrace_hooks::{CommitError, Event, EventContext, Pending};
use millrace_log::Direction;
use millrace_vfs::Upload;

use crate::worker::Core;

/// How long a hook is waited for whose client has hung up: what it asked for last is still done, and it may still hear.
pub const LEFT_GRACE: Duration = Duration::from_secs(5);

impl Core {
    /// Returns an event of this turn, of a session with this number in the log.
    pub fn context(&self, event: Event, session: u64, peer: SocketAddr, local: SocketAddr) -> EventContext {
        let wall = Duration::new(self.now.wall.seconds.max(0).cast_unsigned(), self.now.wall.nanoseconds);
        EventContext::new(event, wall, session, peer, local)
    }
}

/// Returns the event that the end of a transfer is; none of a listing.
pub fn end_of_transfer(direction: Direction, failure: Option<&str>) -> Option<Event> {
    match (direction, failure) {
        (Direction::Listing, _) => None,
        (Direction::Upload, None) => Some(Event::Upload),
        (Direction::Upload, Some(_)) => Some(Event::UploadFailed),
        (Direction::Download, None) => Some(Event::Download),
        (Direction::Download, Some(_)) => Some(Event::DownloadFailed),
    }
}

/// What came of the commit of an upload that hooks see before it has a name: nothing yet, or not at all where a hook has
/// refused it or moved it away.
#[derive(Debug)]
pub struct Naming<R>(Arc<Mutex<Option<R>>>);

impl<R> Clone for Naming<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Send + 'static, E: Send + 'static> Naming<Result<T, E>> {
    /// Keeps an upload that is whole without a name, until hooks have it `commit`. `why` says for the log why it could not.
    pub fn begin(
        upload: Box<dyn Upload>,
        commit: impl FnOnce(Box<dyn Upload>) -> Result<T, E> + Send + 'static,
        why: impl FnOnce(&E) -> String + Send + 'static,
    ) -> (Arc<Pending>, Self) {
        let naming = Self(Arc::default());
        let told = naming.clone();
        let pending = Pending::new(upload, move |upload| {
            let named = commit(upload);
            let result = named.as_ref().map(drop).map_err(|error| CommitError(why(error)));
            *told.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(named);
            result
        });
        (pending, naming)
    }
}

impl<R> Naming<R> {
    /// Takes what came of the commit.
    pub fn take(&self) -> Option<R> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns whether it was tried, and what came of it not taken yet.
    pub fn was_tried(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

#[cfg(test)]
mod tests {
    use millrace_storage::MemoryStorage;
    use millrace_vfs::{FileError, Storage, VirtualPath, Wait, WriteMode};

    use super::*;

    fn upload() -> Box<dyn Upload> {
        MemoryStorage::new()
            .open_write(&VirtualPath::parse(b"/a").unwrap(), WriteMode::Replace, Wait::Allowed)
            .unwrap()
    }

    #[test]
    fn a_transfer_ends_as_an_event_and_a_listing_as_none() {
        assert_eq!(end_of_transfer(Direction::Listing, None), None);
        for (direction, whole, cut) in [
            (Direction::Upload, Event::Upload, Event::UploadFailed),
            (Direction::Download, Event::Download, Event::DownloadFailed),
        ] {
            assert_eq!(end_of_transfer(direction, None), Some(whole));
            assert_eq!(end_of_transfer(direction, Some("it was cut")), Some(cut));
        }
    }

    #[test]
    fn a_commit_leaves_its_result_to_be_taken_once() {
        let (pending, naming) = Naming::begin(upload(), |upload| upload.commit(), FileError::to_string);
        assert!(!naming.was_tried(), "it has no name yet");
        assert!(pending.commit());
        assert!(naming.was_tried());
        assert!(matches!(naming.take(), Some(Ok(_))));
        assert!(naming.take().is_none());
    }

    #[test]
    fn a_commit_that_fails_tells_the_log_and_its_client_why() {
        let failing = |_| Err::<(), _>(FileError::NotFound);
        let (pending, naming) = Naming::begin(upload(), failing, FileError::to_string);
        assert!(!pending.commit());
        assert_eq!(pending.failure(), Some(CommitError(FileError::NotFound.to_string())));
        assert!(matches!(naming.take(), Some(Err(FileError::NotFound))));
    }

    #[test]
    fn an_upload_that_is_given_up_is_never_committed() {
        let (pending, naming) = Naming::begin(upload(), |upload| upload.commit(), FileError::to_string);
        assert!(pending.give_up().is_some());
        assert!(!pending.commit() && !naming.was_tried());
    }
}
