//! A body on its way into a file: what was collected, where it goes, and what the pool does with it.

use std::sync::Arc;
use std::time::Instant;

use millrace_http::Refusal;
use millrace_limits::Pace;
use millrace_vfs::hash::Hashes;
use millrace_vfs::{FileError, Upload, VirtualPath};

use crate::change::Change;
use crate::record::Record;
use crate::refused::Refused;
use crate::tus_work::piece::{Check, Piece};
use crate::upload_outcome::Committing;

/// A file on its way in.
#[derive(Debug)]
pub(crate) struct Receiving {
    /// `None` while the pool has it.
    pub(crate) received: Option<Received>,
    pub(crate) purpose: Purpose,
    pub(crate) buffer: Vec<u8>,
    pub(crate) pace: Pace,
    pub(crate) moved: Instant,
    /// Names the job that has the upload.
    pub(crate) serial: u64,
    pub(crate) record: Record,
}

/// Where the bytes go, and what they have to hash to.
#[derive(Debug)]
pub struct Received {
    pub(crate) upload: Box<dyn Upload>,
    pub(crate) check: Option<Check>,
}

/// What a body is.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// A file.
    File {
        change: Arc<Change>,
        /// Whether there was one before.
        replaces: bool,
    },
    /// A piece of one.
    Piece(Box<Piece>),
}

/// What the pool does behind the last bytes.
pub(crate) enum End {
    /// They are the end of the file: how it becomes one, which may find its tag.
    Commit(Box<Committing>),
    /// They are, and hooks have their word first.
    Hold,
    /// The rest of the file comes another time.
    Keep,
}

/// What the pool says of a write.
#[derive(Debug)]
pub enum Written {
    /// There is room for more.
    More(Received),
    /// It was the last; the tag of the file, where it is one and that could be had, and its hashes.
    All(Option<String>, Option<Hashes>),
    /// It was the last of a file that is to have no name yet.
    Whole(Box<dyn Upload>),
    /// It is not what it was said to be, and gone.
    Mismatch,
    Failed(Refused),
}

impl Receiving {
    /// Returns whether the pool has the upload.
    pub(crate) fn is_lent(&self) -> bool {
        self.received.is_none()
    }

    /// Returns whether the rest may come another time: that it does not come now is no failure of the upload.
    pub(crate) fn is_piece(&self) -> bool {
        matches!(self.purpose, Purpose::Piece(_))
    }

    /// The method that hooks hear of: whatever brings a file in pieces, it is one.
    pub(crate) fn verb(&self) -> &str {
        if self.is_piece() { "PUT" } else { &self.record.method }
    }

    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    /// The file that comes.
    pub(crate) fn path(&self) -> &VirtualPath {
        match &self.purpose {
            Purpose::File { change, .. } => change.path(),
            Purpose::Piece(piece) => piece.path(),
        }
    }

    /// Until when a limit keeps it waiting.
    pub(crate) fn paused(&self) -> Option<Instant> {
        self.pace.paused
    }

    /// When a byte last moved.
    pub(crate) fn moved(&self) -> Instant {
        self.moved
    }

    /// What follows the collected bytes, if they are the last of this many.
    pub(crate) fn end(&self, total: u64, is_all: bool, asks: bool) -> Result<Option<End>, Refusal> {
        let is_file = is_all
            & match &self.purpose {
                Purpose::File { .. } => true,
                Purpose::Piece(piece) => piece.ends_with(total)?,
            };
        let can_wait = || self.received.as_ref().is_some_and(|received| received.upload.is_staged());
        Ok(match &self.purpose {
            _ if is_file && asks && can_wait() => Some(End::Hold),
            Purpose::File { change, .. } if is_file => {
                let change = Arc::clone(change);
                Some(End::Commit(Box::new(move |upload| change.commit(upload))))
            }
            Purpose::Piece(piece) if is_file => Some(End::Commit(Box::new(piece.commit()))),
            Purpose::Piece(_) if is_all => Some(End::Keep),
            _ => None,
        })
    }

    /// Gives up; what came of a piece is kept, which the pool has to do.
    pub(crate) fn into_parts(self) -> (impl FnOnce() + Send + 'static, Record) {
        let Self { received, purpose, buffer, record, .. } = self;
        let total = record.bytes + buffer.len() as u64;
        let leave = move || {
            if let (Some(Received { mut upload, check: None }), Purpose::Piece(piece)) = (received, purpose)
                && piece.ends_with(total).is_ok()
                && upload.write_all(&buffer).is_ok()
            {
                upload.abort();
            }
        };
        (leave, record)
    }
}

impl Received {
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        if let Some(check) = &mut self.check {
            check.update(bytes);
        }
        self.upload.write_all(bytes)
    }

    pub(crate) fn end(self, end: End) -> Written {
        let Self { upload, check } = self;
        if check.is_some_and(|check| !check.holds()) {
            upload.undo();
            return Written::Mismatch;
        }
        match end {
            End::Keep => match upload.keep() {
                Ok(()) => Written::All(None, None),
                Err(error) => Written::Failed(error.into()),
            },
            End::Hold => Written::Whole(upload),
            End::Commit(commit) => {
                let hashes = upload.hashes();
                commit(upload).map_or_else(Written::Failed, |tag| Written::All(tag, hashes))
            }
        }
    }
}
