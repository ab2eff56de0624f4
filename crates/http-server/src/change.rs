//! Changes of files by request, on the blocking pool: `PUT`, `DELETE` (RFC 9110 section 9.3), `MKCOL`, `MOVE` and `COPY`
//! (RFC 4918 section 9).

use std::fmt;
use std::sync::Arc;

use millrace_ftp::session::{Permission, Permissions};
use millrace_hooks::Event;
use millrace_http::conditional::{self, Validators, Verdict};
use millrace_http::target::{self};
use millrace_http::{Field, Framing, Head, Method, Refusal, Status, range};
use millrace_vfs::{DirEntry, FileError, Metadata, Storage, Upload, VirtualPath, Wait, WriteMode};

use crate::dav_state::claim::{Claim, Touch};
use crate::refused::{Refused, refuse};
use crate::shared::Http;
use crate::trees;
use crate::trees::{Aside, Failures, is_tree};

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

/// Checks the preconditions of a request against the present content (RFC 9110 section 13).
pub(crate) fn conditions(head: &Head, current: Option<&Metadata>) -> Result<(), Refused> {
    let validators = current.map(Validators::of);
    match conditional::evaluate(head, validators.as_ref()) {
        Verdict::Proceed => Ok(()),
        _ => refuse(Status::PRECONDITION_FAILED, "The resource does not meet the condition of the request."),
    }
}

impl Change {
    /// What it is about.
    pub(crate) fn path(&self) -> &VirtualPath {
        &self.path
    }

    /// Does it. May wait.
    pub(crate) fn make(self: &Arc<Self>) -> Changed {
        let head = &*self.head;
        let made = match head.method {
            Method::Put => self.put(head),
            Method::Delete => self.delete(head),
            Method::MkCol => self.make_collection(head),
            Method::Move | Method::Copy => self.transfer(head),
            _ => refuse(Status::METHOD_NOT_ALLOWED, "This changes nothing here."),
        };
        made.unwrap_or_else(Changed::Refused)
    }

    fn permit(&self, permission: Permission) -> Result<(), Refused> {
        match self.permissions.allows(permission) {
            true => Ok(()),
            false => refuse(Status::FORBIDDEN, "You may not do that."),
        }
    }

    /// What the request has to say to locks that others may hold.
    fn claim(&self) -> Claim<'_> {
        let (dav, user) = (&self.server.dav, self.user.as_deref());
        Claim { dav, storage: &self.storage, user, path: &self.path }
    }

    /// The entry at a path, a link not followed.
    fn entry(&self, path: &VirtualPath) -> Result<Option<DirEntry>, Refused> {
        match self.storage.entry(path) {
            Ok(entry) => Ok(Some(entry)),
            Err(FileError::NotFound) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    fn put(self: &Arc<Self>, head: &Head) -> Outcome {
        let existing = self.replaced()?;
        let mode = match (self.may_put(head, existing.as_ref())?, &existing) {
            // Nothing is there to go on with.
            (WriteMode::At(0), None) => WriteMode::Replace,
            (WriteMode::Replace, None) if head.get(Field::IfNoneMatch).is_some() => WriteMode::CreateNew,
            (mode, _) => mode,
        };
        let upload = self.storage.open_write(&self.path, mode, Wait::Allowed).map_err(failed)?;
        Ok(Changed::Upload(upload, Arc::clone(self), existing.is_some()))
    }

    /// What a `PUT` is to replace.
    fn replaced(&self) -> Result<Option<DirEntry>, Refused> {
        if self.is_directory {
            return refuse(Status::CONFLICT, "A directory is made with MKCOL.");
        }
        match self.entry(&self.path)? {
            Some(entry) if entry.metadata.is_directory() => {
                refuse(Status::CONFLICT, "There is a directory of this name.")
            }
            existing => Ok(existing),
        }
    }

    /// Returns whether a `PUT` may be, and says how the file is written.
    fn may_put(&self, head: &Head, existing: Option<&DirEntry>) -> Result<WriteMode, Refused> {
        conditions(head, existing.map(|entry| &entry.metadata))?;
        let touch = if existing.is_some() { Touch::Content } else { Touch::Name };
        self.claim().permit(head, &[(&self.path, touch)])?;
        let size = existing.map_or(0, |entry| entry.metadata.size);
        let mode = match head.get(Field::ContentRange) {
            None => WriteMode::Replace,
            Some(field) => WriteMode::At(resumed(head, field, size)?),
        };
        match (existing, mode) {
            (None, _) => self.permit(Permission::Write)?,
            // A user that may only append cannot overwrite.
            (Some(_), WriteMode::At(first)) if first < size => {
                self.permit(Permission::Append)?;
                self.permit(Permission::Overwrite)?;
            }
            (Some(_), WriteMode::At(_)) => self.permit(Permission::Append)?,
            (Some(_), _) => self.permit(Permission::Overwrite)?,
        }
        Ok(mode)
    }

    /// Commits a complete file, if that is still permitted: another request may have been first. A file written in
    /// place exists already. Returns its tag. May block.
    pub(crate) fn commit(&self, upload: Box<dyn Upload>) -> Result<Option<String>, Refused> {
        let claim = self.claim();
        let _turn = claim.turn(&[&self.path])?;
        if upload.is_staged() {
            let existing = self.replaced()?;
            self.may_put(&self.head, existing.as_ref())?;
        }
        upload.commit().map_err(failed)?;
        let now = self.storage.metadata(&self.path, Wait::Allowed).ok();
        Ok(now.map(|now| Validators::of(&now).etag.to_string()))
    }

    /// What the request is for, which has to be there: as a folder, where it was named as one.
    fn source(&self) -> Result<DirEntry, Refused> {
        match self.entry(&self.path)? {
            Some(entry) if entry.metadata.is_directory() || !self.is_directory => Ok(entry),
            _ => refuse(Status::NOT_FOUND, "There is no such file."),
        }
    }

    fn delete(&self, head: &Head) -> Outcome {
        let claim = self.claim();
        let _turn = claim.turn(&[&self.path])?;
        let entry = self.source()?;
        conditions(head, Some(&entry.metadata))?;
        if self.path.is_root() {
            return refuse(Status::FORBIDDEN, "The root stays.");
        }
        claim.permit(head, &[(&self.path, Touch::Name)])?;
        let place = claim.place(&self.path);
        let mut failures = Failures::default();
        trees::remove(&*self.storage, &self.path, &entry, &mut failures).map_err(failed)?;
        if !failures.is_empty() {
            return Ok(Changed::Partly(failures, None));
        }
        claim.gone(place);
        let event = if is_tree(&entry) { Event::RemoveDirectory } else { Event::Delete };
        Ok(Changed::Done(Status::NO_CONTENT, Some(event)))
    }

    fn make_collection(&self, head: &Head) -> Outcome {
        // An existing entry is in the way in any case: that is reported below.
        if self.entry(&self.path)?.is_none() {
            conditions(head, None)?;
        }
        self.claim().permit(head, &[(&self.path, Touch::Name)])?;
        match self.storage.make_directory(&self.path) {
            Ok(()) => Ok(Changed::Done(Status::CREATED, Some(Event::MakeDirectory))),
            Err(FileError::AlreadyExists) => refuse(Status::METHOD_NOT_ALLOWED, "It exists already."),
            Err(error) => Err(failed(error)),
        }
    }

    /// `MOVE` and `COPY`.
    fn transfer(&self, head: &Head) -> Outcome {
        let (to, to_directory) = destination(head)?;
        let claim = self.claim();
        // A copy takes too long to have others wait for it.
        let _turn = (head.method == Method::Move).then(|| claim.turn(&[&self.path, &to])).transpose()?;
        let entry = self.source()?;
        conditions(head, Some(&entry.metadata))?;
        if to.starts_with(&self.path) || self.path.starts_with(&to) {
            return refuse(Status::FORBIDDEN, "The one lies in the other.");
        }
        let there = self.entry(&to)?;
        let directory_is_there = there.as_ref().is_some_and(|old| old.metadata.is_directory());
        // But the place of a collection, which is named as one, a file may take (RFC 4918, section 9.8.4).
        if to_directory && !entry.metadata.is_directory() && !directory_is_there {
            return refuse(Status::CONFLICT, "A file is to have a name without a slash at its end.");
        }
        match &there {
            Some(_) if head.get(Field::Overwrite).is_some_and(|said| said.eq_ignore_ascii_case(b"F")) => {
                return refuse(Status::PRECONDITION_FAILED, "There is one of this name.");
            }
            Some(_) => self.permit(Permission::Overwrite)?,
            None => self.permit(Permission::Write)?,
        }
        match head.method {
            Method::Move => claim.permit(head, &[(&self.path, Touch::Name), (&to, Touch::Name)])?,
            _ => {
                self.permit(Permission::Read)?;
                claim.permit(head, &[(&to, Touch::Name)])?;
            }
        }
        // A file takes the place of a file in one step; what a directory has a part in, does not.
        let aside = match &there {
            Some(old) if is_tree(old) || is_tree(&entry) => {
                self.permit(Permission::Delete)?;
                self.permit(Permission::Rename)?;
                Some(Aside::put(&*self.storage, &to, old).map_err(failed)?)
            }
            _ => None,
        };
        let (old, new) = (claim.place(&self.path), claim.place(&to));
        let failures = match (self.make_there(head, &entry, &to, aside.is_some()), aside) {
            (Ok(failures), None) => failures,
            (Ok(mut failures), Some(aside)) => {
                aside.remove(&mut failures);
                failures
            }
            (Err(refused), None) => return Err(refused),
            (Err(refused), Some(aside)) => return Err(aside.put_back().err().map_or(refused, lost)),
        };
        claim.copied(old.as_ref(), new.as_ref());
        let event = match head.method {
            Method::Move => {
                claim.gone(old);
                Some(Event::Rename)
            }
            _ => Some(Event::Copy),
        };
        Ok(match (failures.is_empty(), there) {
            (false, _) => Changed::Partly(failures, event),
            (true, Some(_)) => Changed::Done(Status::NO_CONTENT, event),
            (true, None) => Changed::Done(Status::CREATED, event),
        })
    }

    /// The step of `MOVE` and `COPY` behind which the new name is there: all of it, where it `replaces` something.
    fn make_there(
        &self,
        head: &Head,
        entry: &DirEntry,
        to: &VirtualPath,
        replaces: bool,
    ) -> Result<Failures, Refused> {
        let (storage, mut failures) = (&*self.storage, Failures::default());
        let withheld = &self.server.web().withheld;
        match head.method {
            Method::Move => storage.rename(&self.path, to),
            _ if !is_tree(entry) => trees::copy_file(storage, withheld, &self.path, to),
            _ => {
                self.permit(Permission::MakeDirectory)?;
                let alone = head.get(Field::Depth) == Some(b"0");
                match replaces {
                    true => trees::copy_whole((storage, withheld), &self.path, to, alone),
                    false => trees::copy((storage, withheld), &self.path, to, alone, &mut failures),
                }
            }
        }
        .map_err(failed)?;
        Ok(failures)
    }
}

/// What was there could not be put back.
pub(crate) fn lost(_: FileError) -> Refused {
    let reason = "It failed, and what was there could not be put back: it has another name now, beside it.";
    Refusal { status: Status::INTERNAL_SERVER_ERROR, reason }.into()
}

/// Where a file of `size` bytes is gone on with: `Content-Range: bytes 5-9/10` with a body of five.
pub(crate) fn resumed(head: &Head, field: &[u8], size: u64) -> Result<u64, Refused> {
    let Some((first, length)) = range::content_range(field) else {
        return refuse(Status::BAD_REQUEST, "The Content-Range names no bytes.");
    };
    if head.framing != Framing::Length(length) {
        return refuse(Status::BAD_REQUEST, "The body has another length than its Content-Range.");
    }
    if first > size {
        return refuse(Status::RANGE_NOT_SATISFIABLE, "The file is not that long yet.");
    }
    Ok(first)
}

/// The path that `Destination` names, of this server only; and whether it is named as a folder.
pub(crate) fn destination(head: &Head) -> Result<(VirtualPath, bool), Refused> {
    let Some(field) = head.get(Field::Destination) else {
        return refuse(Status::BAD_REQUEST, "There is no Destination.");
    };
    let target = target::parse(field)?;
    let is_elsewhere = target.authority.is_some_and(|authority| {
        // A server without configured names cannot be named.
        head.get(Field::Host).is_none_or(|host| !target::is_same_host(host, authority))
    });
    match is_elsewhere {
        true => refuse(Status::BAD_GATEWAY, "The Destination is another server."),
        false => Ok((target.path, target.is_directory)),
    }
}
