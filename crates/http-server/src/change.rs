//! Changes of files by request, on the blocking pool: looks up what [`millrace_http::change`] decides from, asks the
//! locks, and performs the decision.

use std::fmt;
use std::sync::Arc;

use millrace_hooks::Event;
use millrace_http::change::{self, ChangeRequest, Put, Replaced, Transfer, TransferKind};
use millrace_http::conditional::Validators;
use millrace_http::dav::Touch;
use millrace_http::{Head, Method, Refusal, Status};
use millrace_vfs::{DirEntry, FileError, Permissions, Storage, Upload, VirtualPath, Wait};

use crate::dav_state::claim::Claim;
use crate::refused::{Refused, refuse};
use crate::shared::Http;
use crate::trees;
use crate::trees::{Aside, Failures};

/// What a change came to.
#[derive(Debug)]
pub enum Changed {
    /// It is done, and what that is for hooks.
    Done(Status, Option<Event>),
    /// It is done but for these members, and what that is for hooks.
    Partly(Failures, Option<Event>),
    /// It is not done, and why.
    Refused(Refused),
    /// A file may come, for this; whether there is one already.
    Upload(Box<dyn Upload>, Arc<Change>, bool),
}

/// A change, and its user.
pub struct Change {
    /// The request.
    pub(crate) head: Arc<Head>,
    pub(crate) server: Arc<Http>,
    pub(crate) user: Option<Vec<u8>>,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) permissions: Permissions,
    pub(crate) path: VirtualPath,
    /// It was named as a folder, with a slash at its end.
    pub(crate) is_directory: bool,
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Change").field("path", &self.path).finish_non_exhaustive()
    }
}

pub(crate) type Outcome = Result<Changed, Refused>;

pub(crate) fn failed(error: FileError) -> Refused {
    error.into()
}

impl Change {
    /// What it is about.
    pub(crate) fn path(&self) -> &VirtualPath {
        &self.path
    }

    /// Does it. May wait.
    pub(crate) fn make(self: &Arc<Self>) -> Changed {
        let made = match self.head.method {
            Method::Put => self.put(),
            Method::Delete => self.delete(),
            Method::MkCol => self.make_collection(),
            Method::Move | Method::Copy => self.transfer(),
            _ => refuse(Status::METHOD_NOT_ALLOWED, "This changes nothing here."),
        };
        made.unwrap_or_else(Changed::Refused)
    }

    /// The request, to be decided.
    fn request(&self) -> ChangeRequest<'_> {
        let Self { head, path, is_directory, permissions, .. } = self;
        ChangeRequest { head, path, is_directory: *is_directory, permissions: *permissions }
    }

    /// What the request has to say to locks that others may hold.
    fn claim(&self) -> Claim<'_> {
        Claim::new(&self.server.dav, &self.storage, self.user.as_deref(), &self.path)
    }

    /// The entry at a path, a link not followed.
    fn entry(&self, path: &VirtualPath) -> Result<Option<DirEntry>, Refused> {
        match self.storage.entry(path) {
            Ok(entry) => Ok(Some(entry)),
            Err(FileError::NotFound) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    fn put(self: &Arc<Self>) -> Outcome {
        let existing = self.entry(&self.path)?;
        let Put { mode, touch } = self.request().put(existing.as_ref())?;
        let (claim, touched) = (self.claim(), [(&self.path, touch)]);
        claim.permit_for_now(&self.head, &touched)?;
        let upload = self.storage.open_write(&self.path, mode, Wait::Allowed).map_err(failed)?;
        // What is written in place is not decided again.
        if claim.is_put_off() && !upload.is_staged() {
            claim.permit(&self.head, &touched)?;
        }
        Ok(Changed::Upload(upload, Arc::clone(self), existing.is_some()))
    }

    /// Commits a complete file, if that is still permitted: another request may have been first. A file written in
    /// place exists already. Returns its tag. May block.
    pub(crate) fn commit(&self, upload: Box<dyn Upload>) -> Result<Option<String>, Refused> {
        let claim = self.claim();
        let _turn = claim.turn(&[&self.path])?;
        if upload.is_staged() {
            let Put { touch, .. } = self.request().put(self.entry(&self.path)?.as_ref())?;
            claim.permit(&self.head, &[(&self.path, touch)])?;
        }
        upload.commit().map_err(failed)?;
        let now = self.storage.metadata(&self.path, Wait::Allowed).ok();
        Ok(now.map(|now| Validators::of(&now).etag.to_string()))
    }

    fn delete(&self) -> Outcome {
        let claim = self.claim();
        let _turn = claim.turn(&[&self.path])?;
        let entry = self.entry(&self.path)?;
        let entry = self.request().delete(entry.as_ref())?;
        claim.permit(&self.head, &[(&self.path, Touch::Name)])?;
        let place = claim.place(&self.path);
        let mut failures = Failures::default();
        trees::remove(&*self.storage, &self.path, entry, &mut failures).map_err(failed)?;
        if !failures.is_empty() {
            return Ok(Changed::Partly(failures, None));
        }
        claim.gone(place);
        let event = if entry.is_tree() { Event::RemoveDirectory } else { Event::Delete };
        Ok(Changed::Done(Status::NO_CONTENT, Some(event)))
    }

    fn make_collection(&self) -> Outcome {
        self.request().make_collection(self.entry(&self.path)?.as_ref())?;
        self.claim().permit(&self.head, &[(&self.path, Touch::Name)])?;
        match self.storage.make_directory(&self.path) {
            Ok(()) => Ok(Changed::Done(Status::CREATED, Some(Event::MakeDirectory))),
            // Another request was first.
            Err(FileError::AlreadyExists) => refuse(Status::METHOD_NOT_ALLOWED, "It exists already."),
            Err(error) => Err(failed(error)),
        }
    }

    /// `MOVE` and `COPY`.
    fn transfer(&self) -> Outcome {
        let (to, to_directory) = change::destination(&self.head)?;
        let claim = self.claim();
        // A copy takes too long to have others wait for it.
        let _turn = (self.head.method == Method::Move).then(|| claim.turn(&[&self.path, &to])).transpose()?;
        let (entry, there) = (self.entry(&self.path)?, self.entry(&to)?);
        let transfer = self.request().transfer(entry.as_ref(), (&to, to_directory), there.as_ref())?;
        claim.permit(&self.head, &transfer.touched(&self.path, &to))?;
        let aside = there.as_ref().filter(|_| transfer.replaced == Replaced::SetAside);
        let aside = aside.map(|old| Aside::put(&*self.storage, &to, old)).transpose().map_err(failed)?;
        let (old, new) = (claim.place(&self.path), claim.place(&to));
        let failures = match (self.make_there(&transfer, &to), aside) {
            (Ok(failures), None) => failures,
            (Ok(mut failures), Some(aside)) => {
                aside.remove(&mut failures);
                failures
            }
            (Err(error), None) => return Err(failed(error)),
            (Err(error), Some(aside)) => return Err(aside.put_back().err().map_or(failed(error), lost)),
        };
        claim.copied(old.as_ref(), new.as_ref());
        let event = match transfer.how {
            TransferKind::Rename => {
                claim.gone(old);
                Some(Event::Rename)
            }
            _ => Some(Event::Copy),
        };
        Ok(match failures.is_empty() {
            false => Changed::Partly(failures, event),
            true => Changed::Done(transfer.status(), event),
        })
    }

    /// The step of `MOVE` and `COPY` behind which the new name is there: all of it, where it replaces something.
    fn make_there(&self, transfer: &Transfer, to: &VirtualPath) -> Result<Failures, FileError> {
        let (storage, from, mut failures) = (&*self.storage, &self.path, Failures::default());
        let withheld = &self.server.web().withheld;
        let alone = transfer.how == TransferKind::CopyDirectory;
        match transfer.how {
            TransferKind::Rename => storage.rename(from, to)?,
            TransferKind::CopyFile => trees::copy_file(storage, withheld, from, to)?,
            _ if transfer.replaced == Replaced::SetAside => {
                trees::copy_whole((storage, withheld), from, to, alone)?;
            }
            _ => trees::copy((storage, withheld), from, to, alone, &mut failures)?,
        }
        Ok(failures)
    }
}

/// What was there could not be put back.
pub(crate) fn lost(_: FileError) -> Refused {
    let reason = "It failed, and what was there could not be put back: it has another name now, beside it.";
    Refusal { status: Status::INTERNAL_SERVER_ERROR, reason }.into()
}
