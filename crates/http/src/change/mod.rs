//! What a request that changes files does: `PUT`, `DELETE` (RFC 9110 section 9.3), `MKCOL`, `MOVE` and `COPY` (RFC 4918
//! section 9).
//!
//! Each function decides from the request and from what the driver has looked up, and returns what to do or a refusal. The
//! driver then asks the locks of the paths that the decision names, and only then changes something.

use millrace_vfs::{DirEntry, Permission, Permissions, VirtualPath, WriteMode};

use crate::conditional;
use crate::dav::Touch;
use crate::request::{Field, Framing, Head, Method, Refusal, Version, refuse};
use crate::{Status, range, target};

/// A request for a change, and the permissions of its user.
#[derive(Debug, Clone, Copy)]
pub struct ChangeRequest<'a> {
    /// The head.
    pub head: &'a Head,
    /// The path that it names.
    pub path: &'a VirtualPath,
    /// Whether that is named as a directory, with a slash at its end.
    pub is_directory: bool,
    /// The user's permissions.
    pub permissions: Permissions,
}

/// How a body is written to its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Put {
    /// From which byte on, and what happens to an existing file.
    pub mode: WriteMode,
    /// What changes at the path.
    pub touch: Touch,
}

/// A `MOVE` or a `COPY` that may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// How the new name comes to be.
    pub how: TransferKind,
    /// What happens to an existing entry of that name.
    pub replaced: Replaced,
}

/// How the new name comes to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferKind {
    /// The entry is renamed.
    Rename,
    /// A file is copied, or the file that a link leads to.
    CopyFile,
    /// A directory is copied, with its members.
    CopyTree,
    /// A directory is copied without its members (`Depth: 0`).
    CopyDirectory,
}

/// What happens to an existing entry at the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    /// There is none.
    Nothing,
    /// The new file takes its place in one step.
    AtOnce,
    /// It is set aside until the new entry is complete, and then removed.
    SetAside,
}

/// Returns the permission without which a method changes nothing.
pub fn first_permission(method: Method) -> Permission {
    match method {
        Method::Delete => Permission::Delete,
        Method::MkCol => Permission::MakeDirectory,
        Method::Move => Permission::Rename,
        _ => Permission::Write,
    }
}

/// Checks that the request has a body where its method takes one, and a body whose end is known.
pub fn check_body(head: &Head) -> Result<(), Refusal> {
    if head.method != Method::Put {
        return match head.framing {
            Framing::None => Ok(()),
            _ => refuse(Status::UNSUPPORTED_MEDIA_TYPE, "This request has no body."),
        };
    }
    // A client of HTTP/1.0 may mean to end it by closing: for a file that is there, that would be the end of it.
    match head.framing != Framing::None || head.get(Field::ContentLength).is_some() {
        false if head.version != Version::Http2 => {
            refuse(Status::LENGTH_REQUIRED, "How long the file is has to be said: send a Content-Length.")
        }
        _ => Ok(()),
    }
}

/// Parses `Destination`: a path of this server, and whether it is named as a directory.
pub fn destination(head: &Head) -> Result<(VirtualPath, bool), Refusal> {
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

impl ChangeRequest<'_> {
    fn permit(&self, permissions: &[Permission]) -> Result<(), Refusal> {
        match permissions.iter().all(|permission| self.permissions.allows(*permission)) {
            true => Ok(()),
            false => refuse(Status::FORBIDDEN, "You may not do that."),
        }
    }

    /// The entry that the request is about, which has to exist: as a directory, where it was named as one.
    fn source<'e>(&self, entry: Option<&'e DirEntry>) -> Result<&'e DirEntry, Refusal> {
        match entry {
            Some(entry) if entry.metadata.is_directory() || !self.is_directory => Ok(entry),
            _ => refuse(Status::NOT_FOUND, "There is no such file."),
        }
    }

    /// Decides a `PUT`, where this entry has the name.
    pub fn put(&self, existing: Option<&DirEntry>) -> Result<Put, Refusal> {
        if self.is_directory {
            return refuse(Status::CONFLICT, "A directory is made with MKCOL.");
        }
        let existing = existing.map(|entry| &entry.metadata);
        if existing.is_some_and(|existing| existing.is_directory()) {
            return refuse(Status::CONFLICT, "There is a directory of this name.");
        }
        conditional::check(self.head, existing)?;
        let size = existing.map_or(0, |existing| existing.size);
        let first = self.head.get(Field::ContentRange).map(|field| first_byte(self.head, field, size));
        let mode = match (first.transpose()?, existing) {
            (Some(0) | None, None) => {
                self.permit(&[Permission::Write])?;
                match self.head.get(Field::IfNoneMatch) {
                    Some(_) if first.is_none() => WriteMode::CreateNew,
                    _ => WriteMode::Replace,
                }
            }
            (None, Some(_)) => {
                self.permit(&[Permission::Overwrite])?;
                WriteMode::Replace
            }
            (Some(first), _) => {
                // A user that may only append cannot overwrite.
                self.permit(if first < size {
                    &[Permission::Append, Permission::Overwrite]
                } else {
                    &[Permission::Append]
                })?;
                WriteMode::At(first)
            }
        };
        let touch = if existing.is_some() { Touch::Content } else { Touch::Name };
        Ok(Put { mode, touch })
    }

    /// Decides a `DELETE` of this entry, and returns it.
    pub fn delete<'e>(&self, entry: Option<&'e DirEntry>) -> Result<&'e DirEntry, Refusal> {
        let entry = self.source(entry)?;
        conditional::check(self.head, Some(&entry.metadata))?;
        match self.path.is_root() {
            true => refuse(Status::FORBIDDEN, "The root stays."),
            false => Ok(entry),
        }
    }

    /// Decides a `MKCOL`, where this entry has the name.
    pub fn make_collection(&self, existing: Option<&DirEntry>) -> Result<(), Refusal> {
        match existing {
            Some(_) => refuse(Status::METHOD_NOT_ALLOWED, "It exists already."),
            None => conditional::check(self.head, None),
        }
    }

    /// Decides a `MOVE` or a `COPY` of an entry to a path, which may be named as a directory, where `replaced` is.
    pub fn transfer(
        &self,
        entry: Option<&DirEntry>,
        (to, to_directory): (&VirtualPath, bool),
        replaced: Option<&DirEntry>,
    ) -> Result<Transfer, Refusal> {
        let (head, entry) = (self.head, self.source(entry)?);
        conditional::check(head, Some(&entry.metadata))?;
        if to.starts_with(self.path) || self.path.starts_with(to) {
            return refuse(Status::FORBIDDEN, "The one lies in the other.");
        }
        let replaces_directory = replaced.is_some_and(|old| old.metadata.is_directory());
        // But the place of a collection, which is named as one, a file may take (RFC 4918, section 9.8.4).
        if to_directory && !entry.metadata.is_directory() && !replaces_directory {
            return refuse(Status::CONFLICT, "A file is to have a name without a slash at its end.");
        }
        let replaced = match replaced {
            Some(_) if head.get(Field::Overwrite).is_some_and(|said| said.eq_ignore_ascii_case(b"F")) => {
                return refuse(Status::PRECONDITION_FAILED, "There is one of this name.");
            }
            // A file takes the place of a file in one step; what a directory has a part in, does not.
            Some(old) if old.is_tree() || entry.is_tree() => {
                self.permit(&[Permission::Overwrite, Permission::Delete, Permission::Rename])?;
                Replaced::SetAside
            }
            Some(_) => {
                self.permit(&[Permission::Overwrite])?;
                Replaced::AtOnce
            }
            None => {
                self.permit(&[Permission::Write])?;
                Replaced::Nothing
            }
        };
        let how = match head.method {
            Method::Move => TransferKind::Rename,
            _ if !entry.is_tree() => TransferKind::CopyFile,
            _ if head.get(Field::Depth) == Some(b"0") => TransferKind::CopyDirectory,
            _ => TransferKind::CopyTree,
        };
        self.permit(match how {
            TransferKind::Rename => &[],
            TransferKind::CopyFile => &[Permission::Read],
            TransferKind::CopyTree | TransferKind::CopyDirectory => {
                &[Permission::Read, Permission::MakeDirectory]
            }
        })?;
        Ok(Transfer { how, replaced })
    }
}

impl Transfer {
    /// The status of the answer when all of it is done.
    pub fn status(&self) -> Status {
        match self.replaced {
            Replaced::Nothing => Status::CREATED,
            Replaced::AtOnce | Replaced::SetAside => Status::NO_CONTENT,
        }
    }

    /// The paths whose locks it has to pass.
    pub fn touched<'a>(&self, from: &'a VirtualPath, to: &'a VirtualPath) -> Vec<(&'a VirtualPath, Touch)> {
        let paths = if self.how == TransferKind::Rename { &[from, to][..] } else { &[to] };
        paths.iter().map(|path| (*path, Touch::Name)).collect()
    }
}

/// The first byte that `Content-Range: bytes 5-9/10` with a body of five writes, of a file of `size` bytes.
fn first_byte(head: &Head, field: &[u8], size: u64) -> Result<u64, Refusal> {
    let Some((first, length)) = range::content_range(field) else {
        return refuse(Status::BAD_REQUEST, "The Content-Range names no bytes.");
    };
    if head.framing != Framing::Length(length) {
        return refuse(Status::BAD_REQUEST, "The body has another length than its Content-Range.");
    }
    match first > size {
        true => refuse(Status::RANGE_NOT_SATISFIABLE, "The file is not that long yet."),
        false => Ok(first),
    }
}

#[cfg(test)]
mod tests;
