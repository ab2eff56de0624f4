//! Moves uploads: to a rule's destination, or, if refused, to a quarantine where no one takes them for accepted ones.

use millrace_vfs::{FileError, Storage, VirtualPath, Wait, WriteMode};

use super::{Rule, Rules};
use crate::facts::Facts;
use crate::{EventContext, verify};

impl Rules {
    /// Moves a refused upload out of the way, so that it is not taken for an accepted one.
    pub(super) fn put_away(&self, rule: &Rule, context: &EventContext, path: Option<&VirtualPath>) {
        let (Some(storage), Some(path)) = (&context.storage, path) else { return };
        if context.pending.as_ref().is_some_and(|pending| pending.has_vanished()) {
            return;
        }
        let facts = Facts::new(context, Some(path));
        let to = rule.refused_to.as_ref().and_then(|template| template.path(&facts));
        if let (true, Some(pending)) = (context.is_pending(), &context.pending) {
            let done = match &to {
                None => Ok(()),
                Some(to) => put_aside(&**storage, context, path, to),
            };
            drop(pending.give_up());
            return self.warn_of_refused(path, done);
        }
        let done = match to {
            None => storage.remove_file(path),
            Some(to) if to == *path => Ok(()),
            Some(to) => move_file(&**storage, path, &to),
        };
        self.warn_of_refused(path, done);
    }

    fn warn_of_refused(&self, path: &VirtualPath, done: Result<(), FileError>) {
        if let Err(error) = done {
            self.warn(&format!("hooks: the refused upload {path} cannot be put away: {error}"));
        }
    }
}

/// Puts a refused upload somewhere else. Where nothing has its name it takes that on its way; else it is copied, as what has
/// the name stays.
fn put_aside(
    storage: &dyn Storage,
    context: &EventContext,
    path: &VirtualPath,
    to: &VirtualPath,
) -> Result<(), FileError> {
    if to == path || matches!(storage.entry(path), Err(FileError::NotFound)) {
        return match context.commit() {
            true if to == path => Ok(()),
            true => move_file(storage, path, to),
            false => Err(FileError::NotFound),
        };
    }
    let content = context.preview().ok_or(FileError::Unsupported)?;
    make_directories(storage, to)?;
    let mut copy = storage.open_write(to, WriteMode::Replace, Wait::Allowed)?;
    let mut written = Ok(());
    verify::read_file(content, usize::MAX, &mut |bytes| {
        written = std::mem::replace(&mut written, Ok(())).and_then(|()| copy.write_all(bytes));
    })?;
    written?;
    copy.commit().map(drop)
}

/// Makes the directories that a path lies in.
fn make_directories(storage: &dyn Storage, path: &VirtualPath) -> Result<(), FileError> {
    let parents = std::iter::successors(Some(path.parent()), |path| (!path.is_root()).then(|| path.parent()));
    let missing: Vec<VirtualPath> = parents.filter(|path| !path.is_root()).collect();
    for directory in missing.iter().rev() {
        match storage.make_directory(directory) {
            Ok(()) | Err(FileError::AlreadyExists) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Renames, in a directory that is made where it is not there.
pub(super) fn move_file(
    storage: &dyn Storage,
    from: &VirtualPath,
    to: &VirtualPath,
) -> Result<(), FileError> {
    match storage.rename(from, to) {
        Err(FileError::NotFound) => {
            make_directories(storage, to)?;
            storage.rename(from, to)
        }
        done => done,
    }
}
