//! Folders as a whole: removed, copied, and put in the place of others.
//!
//! Two invariants. What cannot be done to one member keeps no other from its turn, and is told by its path (RFC 4918
//! sections 9.6.1 and 9.8.5). And what something else is to replace stays, beside its name, until that is there whole.

use millrace_accounts::password;
use millrace_http::Status;
use millrace_http::dav::multistatus;
use millrace_storage::Withheld;
use millrace_vfs::{DirEntry, FileError, ReadHandle, Storage, VirtualPath, Wait};

use crate::refused::status_of;

/// Entries of a directory that are read at a time.
const BATCH: usize = 256;

/// Members that an answer names; that there are others is said by the first already.
const NAMED: usize = 1000;

/// Members of a folder that something could not be done to.
#[derive(Debug, Default)]
pub struct Failures(Vec<Failure>);

#[derive(Debug)]
struct Failure {
    path: Vec<u8>,
    is_directory: bool,
    error: FileError,
}

impl Failures {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first of them as an error, if there is any.
    pub(crate) fn into_result(self) -> Result<(), FileError> {
        self.0.into_iter().next().map_or(Ok(()), |failure| Err(failure.error))
    }

    fn add(&mut self, path: impl Into<Vec<u8>>, is_directory: bool, error: FileError) {
        if self.0.len() < NAMED {
            self.0.push(Failure { path: path.into(), is_directory, error });
        }
    }

    /// As the body of a `207 Multi-Status`.
    pub(crate) fn to_xml(&self) -> String {
        let mut out = multistatus::BEGIN.to_owned();
        for Failure { path, is_directory, error } in &self.0 {
            let status = match error {
                FileError::NotFound | FileError::NotDirectory => Status::NOT_FOUND,
                error => status_of(error).0,
            };
            multistatus::failure(&multistatus::href(path, *is_directory), status, &mut out);
        }
        out.push_str(multistatus::END);
        out
    }
}

/// A way through a tree, without recursion: how deep it is, only the length of a path bounds.
struct Walk<'a> {
    storage: &'a dyn Storage,
    failures: &'a mut Failures,
    /// The folders that were entered, and what of each is still to come.
    levels: Vec<Level>,
}

struct Level {
    path: VirtualPath,
    members: Members,
    /// Nothing in it failed.
    is_whole: bool,
}

/// The remaining entries of a folder. A million entries with all metadata would take too much memory for a request: so
/// only their names, in one buffer, and the few required facts.
#[derive(Default)]
struct Members {
    names: Vec<u8>,
    /// How long each name is.
    each: Vec<(u32, Kind)>,
    /// What has come: how many members, and how many bytes their names have.
    gone: (usize, usize),
}

/// What a member of a folder is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Folder,
    LinkToFolder,
    Other,
}

impl Kind {
    pub(crate) fn of(entry: &DirEntry) -> Self {
        match (entry.metadata.is_directory(), &entry.link) {
            (true, None) => Self::Folder,
            (true, Some(_)) => Self::LinkToFolder,
            (false, _) => Self::Other,
        }
    }
}

impl Members {
    fn add(&mut self, entry: &DirEntry) {
        self.names.extend_from_slice(&entry.name);
        self.each.push((entry.name.len() as u32, Kind::of(entry)));
    }

    fn next(&mut self) -> Option<(&[u8], Kind)> {
        let (count, start) = self.gone;
        let &(length, kind) = self.each.get(count)?;
        let end = start + length as usize;
        self.gone = (count + 1, end);
        Some((&self.names[start..end], kind))
    }
}

enum Step {
    Member(VirtualPath, Kind),
    /// There is nothing more in this folder; whether nothing in it failed.
    Left(VirtualPath, bool),
}

impl<'a> Walk<'a> {
    pub(crate) fn of(
        storage: &'a dyn Storage,
        path: &VirtualPath,
        failures: &'a mut Failures,
    ) -> Result<Self, FileError> {
        let mut walk = Self { storage, failures, levels: Vec::new() };
        walk.enter(path).map(|()| walk)
    }

    /// Has the members of a folder come next.
    fn enter(&mut self, path: &VirtualPath) -> Result<(), FileError> {
        // Read first, because removals during a read may hide later entries.
        let (mut directory, mut members) = (self.storage.open_directory(path)?, Members::default());
        let mut entries = Vec::new();
        loop {
            directory.next_batch(&mut entries, BATCH)?;
            if entries.is_empty() {
                break;
            }
            entries.drain(..).for_each(|entry| members.add(&entry));
        }
        self.levels.push(Level { path: path.clone(), members, is_whole: true });
        Ok(())
    }

    fn next(&mut self) -> Option<Step> {
        loop {
            let level = self.levels.last_mut()?;
            let Some((name, kind)) = level.members.next() else {
                return self.levels.pop().map(|level| Step::Left(level.path, level.is_whole));
            };
            match level.path.join(name) {
                Ok(path) => return Some(Step::Member(path, kind)),
                Err(_) => {
                    let path = [level.path.as_bytes(), b"/", name].concat();
                    self.fail(path, kind, FileError::NameTooLong);
                }
            }
        }
    }

    /// Something could not be done to a member of the folder that was entered last.
    fn fail(&mut self, path: impl Into<Vec<u8>>, kind: Kind, error: FileError) {
        self.failures.add(path, kind != Kind::Other, error);
        self.levels.iter_mut().for_each(|level| level.is_whole = false);
    }
}

/// Removes what has a name, and all that is in it. An error is of the name itself.
pub(crate) fn remove(
    storage: &dyn Storage,
    path: &VirtualPath,
    entry: &DirEntry,
    failures: &mut Failures,
) -> Result<(), FileError> {
    if !entry.is_tree() {
        return storage.remove_file(path);
    }
    let mut walk = Walk::of(storage, path, failures)?;
    while let Some(step) = walk.next() {
        match step {
            Step::Member(member, kind) => {
                let done = match kind {
                    Kind::Folder => walk.enter(&member),
                    Kind::LinkToFolder | Kind::Other => storage.remove_file(&member),
                };
                if let Err(error) = done {
                    walk.fail(member.as_bytes(), kind, error);
                }
            }
            // What holds something that stays, stays.
            Step::Left(_, false) => {}
            Step::Left(left, true) => match storage.remove_directory(&left) {
                Err(error) if left == *path => return Err(error),
                Err(error) => walk.fail(left.as_bytes(), Kind::Folder, error),
                Ok(()) => {}
            },
        }
    }
    Ok(())
}

/// Copies a file, unless that would show the text of a program, or of an application.
pub(crate) fn copy_file(
    storage: &dyn Storage,
    withheld: &Withheld,
    from: &VirtualPath,
    to: &VirtualPath,
) -> Result<(), FileError> {
    if withheld.has_sources()
        && matches!(storage.open_read(from, Wait::Allowed)?, ReadHandle::File(range) if withheld.is_source(&range.file))
    {
        return Err(FileError::PermissionDenied);
    }
    storage.copy(from, to, &mut |_| true).map(drop)
}

/// Copies a folder to a name that is free, and all that is in it unless it is to come `alone`. An error is of the
/// folder itself, and leaves nothing.
pub(crate) fn copy(
    (storage, withheld): (&dyn Storage, &Withheld),
    from: &VirtualPath,
    to: &VirtualPath,
    alone: bool,
    failures: &mut Failures,
) -> Result<(), FileError> {
    if alone {
        return storage.make_directory(to);
    }
    let mut walk = Walk::of(storage, from, failures)?;
    storage.make_directory(to)?;
    let copy = storage.metadata(to, Wait::Allowed)?.identity;
    while let Some(step) = walk.next() {
        let Step::Member(member, kind) = step else { continue };
        // The source is no root: the destination would lie in it.
        let rest = &member.as_bytes()[from.as_bytes().len() + 1..];
        let target = to.resolve(rest).map_err(|_| FileError::NameTooLong);
        let done = target.and_then(|target| match kind {
            // By a link, or at another mount, the destination lies in the source under another name.
            Kind::Folder if storage.metadata(&member, Wait::Allowed)?.identity == copy => Ok(()),
            Kind::Folder => storage.make_directory(&target).and_then(|()| walk.enter(&member)),
            // It may lead back up.
            Kind::LinkToFolder => Err(FileError::NotRegular),
            Kind::Other => copy_file(storage, withheld, &member, &target),
        });
        if let Err(error) = done {
            walk.fail(member.as_bytes(), kind, error);
        }
    }
    Ok(())
}

/// As [`copy`], of all or nothing.
pub(crate) fn copy_whole(
    (storage, withheld): (&dyn Storage, &Withheld),
    from: &VirtualPath,
    to: &VirtualPath,
    alone: bool,
) -> Result<(), FileError> {
    let mut failures = Failures::default();
    copy((storage, withheld), from, to, alone, &mut failures)?;
    let copied = failures.into_result();
    if copied.is_err() {
        let entry = storage.entry(to)?;
        remove(storage, to, &entry, &mut Failures::default())?;
    }
    copied
}

/// What has a name that something else is to have: it waits beside it under another.
#[derive(Debug)]
pub(crate) struct Aside<'a> {
    storage: &'a dyn Storage,
    path: &'a VirtualPath,
    entry: &'a DirEntry,
    waits: VirtualPath,
}

impl<'a> Aside<'a> {
    pub(crate) fn put(
        storage: &'a dyn Storage,
        path: &'a VirtualPath,
        entry: &'a DirEntry,
    ) -> Result<Self, FileError> {
        // A file may have to end as it does, where an account may have such only.
        let end = match path.name().iter().rposition(|&byte| byte == b'.') {
            Some(dot) if !entry.is_tree() => &path.name()[dot..],
            _ => b"",
        };
        let name = format!("replaced-{:016x}", u64::from_ne_bytes(password::random()));
        let waits =
            path.parent().join(&[name.as_bytes(), end].concat()).map_err(|_| FileError::NameTooLong)?;
        storage.rename(path, &waits)?;
        Ok(Self { storage, path, entry, waits })
    }

    /// The operation failed: restores the old entry. Fails if its name was taken.
    pub(crate) fn put_back(self) -> Result<(), FileError> {
        match self.storage.entry(self.path) {
            Ok(_) => Err(FileError::AlreadyExists),
            Err(FileError::NotFound) => self.storage.rename(&self.waits, self.path),
            Err(error) => Err(error),
        }
    }

    /// The other has its name.
    pub(crate) fn remove(self, failures: &mut Failures) {
        if let Err(error) = remove(self.storage, &self.waits, self.entry, failures) {
            failures.add(self.waits.as_bytes(), self.entry.is_tree(), error);
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_storage::MemoryStorage;

    use super::*;

    #[test]
    fn what_is_still_to_come_of_a_folder_takes_little_and_comes() {
        let storage = MemoryStorage::new();
        (0..5000).for_each(|number| _ = storage.insert(&format!("/d/{number:06}"), "x"));
        storage.insert("/d/folder/f", "x");
        let mut failures = Failures::default();
        let mut walk = Walk::of(&storage, &VirtualPath::parse(b"/d").unwrap(), &mut failures).unwrap();
        let members = &walk.levels[0].members;
        let bytes = members.names.capacity() + members.each.capacity() * size_of::<(u32, Kind)>();
        assert!(bytes < 5000 * 40, "{bytes} bytes");
        let mut names = Vec::new();
        while let Some(Step::Member(path, kind)) = walk.next() {
            assert_eq!(kind == Kind::Folder, path.name() == b"folder");
            names.push(String::from_utf8(path.name().to_vec()).unwrap());
        }
        names.sort();
        names.dedup();
        assert_eq!((names.len(), &*names[4999]), (5001, "004999"));
    }
}
