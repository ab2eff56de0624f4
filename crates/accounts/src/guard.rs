//! The gate at the files: a storage that holds an account to its [`Rules`], whatever protocol asks.
//!
//! Every call passes here before it reaches the back end, with the path that it is about, so a command, a
//! protocol or a walk over a tree cannot forget to ask. A denied name is "not found", and all else that may not be done
//! "permission denied".
//!
//! Rules apply to the paths that clients name. A symbolic link inside the tree would give a file a second path with
//! other rules, so an account whose permissions differ from place to place cannot make links; existing ones were made
//! by a user with more rights, presumably on purpose.

use std::sync::Arc;

use millrace_ftp::session::{Permission, Permissions, Rules};
use millrace_vfs::hash::Hashes;
use millrace_vfs::{
    Change, DirEntry, Directory, FileError, Metadata, Partial, PartialKey, PartialMode, PartialState,
    ReadHandle, Resting, Space, Storage, Upload, VirtualPath, Wait, WriteMode,
};

/// A storage behind rules.
#[derive(Debug)]
pub(super) struct Guarded {
    inner: Arc<dyn Storage>,
    rules: Arc<Rules>,
}

/// The storage as an account with these rules may use it.
pub(super) fn guard(storage: Arc<dyn Storage>, rules: &Arc<Rules>) -> Arc<dyn Storage> {
    let (all, permissions) = (Permissions::READ_WRITE, rules.anywhere());
    // For an account that may change everything, or nothing, the protocol's own check is complete. Otherwise it depends
    // on the file: without `overwrite`, a restart may append but not begin before the end.
    match rules.is_plain() && (permissions.contains(all) || CHANGES.intersection(permissions).is_empty()) {
        true => storage,
        false => Arc::new(Guarded { inner: storage, rules: Arc::clone(rules) }),
    }
}

/// Applies rules to a storage, for every protocol and whatever it has checked itself.
pub(super) fn hold(storage: Arc<dyn Storage>, rules: Rules) -> Arc<dyn Storage> {
    match rules.is_plain() && rules.anywhere().contains(Permissions::READ_WRITE) {
        true => storage,
        false => Arc::new(Guarded { inner: storage, rules: Arc::new(rules) }),
    }
}

/// Permissions to change something.
const CHANGES: Permissions = Permissions::READ_WRITE.without(Permission::List).without(Permission::Read);

impl Guarded {
    /// The permissions at a path whose names are not denied.
    fn at(&self, path: &VirtualPath) -> Result<Permissions, FileError> {
        match self.rules.denies_name(path) {
            true => Err(FileError::NotFound),
            false => Ok(self.rules.at(path)),
        }
    }

    /// Refuses what the account may not do at a path.
    fn demand(&self, path: &VirtualPath, permission: Permission) -> Result<Permissions, FileError> {
        match self.at(path)? {
            permissions if permissions.allows(permission) => Ok(permissions),
            _ => Err(FileError::PermissionDenied),
        }
    }

    /// As `demand`, of an existing file.
    fn demand_of_file(&self, path: &VirtualPath, permission: Permission) -> Result<(), FileError> {
        self.demand(path, permission)?;
        self.file_name(path, FileError::NotFound)
    }

    /// Refuses a path at which nothing can be known of, whatever is there.
    fn demand_sight(&self, path: &VirtualPath) -> Result<(), FileError> {
        self.at(path)?;
        if self.rules.shows(path, true) { Ok(()) } else { Err(FileError::PermissionDenied) }
    }

    /// Like `demand_sight`, when the type of the entry is known.
    fn demand_sight_of(&self, path: &VirtualPath, is_directory: bool) -> Result<(), FileError> {
        match self.rules.shows(path, is_directory) {
            true if is_directory => Ok(()),
            true => self.file_name(path, FileError::NotFound),
            false => Err(FileError::PermissionDenied),
        }
    }

    fn file_name(&self, path: &VirtualPath, error: FileError) -> Result<(), FileError> {
        if self.rules.allows_file(path.name()) { Ok(()) } else { Err(error) }
    }

    /// Refuses a name that may not be given to anything.
    fn demand_new(&self, path: &VirtualPath, permission: Permission) -> Result<Permissions, FileError> {
        match self.demand(path, permission) {
            Err(FileError::NotFound) => Err(FileError::InvalidName),
            permissions => permissions,
        }
    }

    /// Refuses a taken name where nothing may be replaced.
    fn demand_free(&self, path: &VirtualPath, permissions: Permissions) -> Result<(), FileError> {
        if permissions.allows(Permission::Overwrite) {
            return Ok(());
        }
        match self.inner.entry(path) {
            Err(FileError::NotFound) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(FileError::AlreadyExists),
        }
    }

    /// Refuses to move or remove a directory that holds a tree with rules of its own.
    fn demand_whole(&self, path: &VirtualPath) -> Result<(), FileError> {
        if self.rules.differs_beneath(path) { Err(FileError::PermissionDenied) } else { Ok(()) }
    }

    /// The permission bits that the account may choose: the back end's own where it may choose none.
    fn allowed_bits(&self, path: &VirtualPath, bits: Option<u32>) -> Option<u32> {
        bits.filter(|_| self.demand(path, Permission::Attributes).is_ok())
    }

    /// The mode in which a file may be written, or that it may not.
    fn mode(&self, path: &VirtualPath, mode: WriteMode, wait: Wait) -> Result<WriteMode, FileError> {
        let needs = match mode {
            WriteMode::Replace | WriteMode::CreateNew => Permission::Write,
            WriteMode::At(_) | WriteMode::Append => Permission::Append,
        };
        let permissions = self.demand_new(path, needs)?;
        self.file_name(path, FileError::InvalidName)?;
        let (may_make, may_replace) =
            (permissions.allows(Permission::Write), permissions.allows(Permission::Overwrite));
        match mode {
            WriteMode::Replace if !may_replace => Ok(WriteMode::CreateNew),
            WriteMode::At(_) | WriteMode::Append if !may_make || !may_replace => {
                let size = match self.inner.metadata(path, wait) {
                    Err(FileError::NotFound) if may_make => 0,
                    metadata => metadata?.size,
                };
                // A range that ends before the file's end overwrites; a restart only appends.
                match mode {
                    WriteMode::At(start) if !may_replace && start < size => Err(FileError::PermissionDenied),
                    mode => Ok(mode),
                }
            }
            mode => Ok(mode),
        }
    }
}

impl Storage for Guarded {
    fn open_read(&self, path: &VirtualPath, wait: Wait) -> Result<ReadHandle, FileError> {
        self.demand_of_file(path, Permission::Read)?;
        self.inner.open_read(path, wait)
    }

    fn open_write_with(
        &self,
        path: &VirtualPath,
        mode: WriteMode,
        bits: Option<u32>,
        wait: Wait,
    ) -> Result<Box<dyn Upload>, FileError> {
        let mode = self.mode(path, mode, wait)?;
        self.inner.open_write_with(path, mode, self.allowed_bits(path, bits), wait)
    }

    fn metadata(&self, path: &VirtualPath, wait: Wait) -> Result<Metadata, FileError> {
        self.demand_sight(path)?;
        let metadata = self.inner.metadata(path, wait)?;
        self.demand_sight_of(path, metadata.is_directory()).map(|()| metadata)
    }

    fn entry(&self, path: &VirtualPath) -> Result<DirEntry, FileError> {
        self.demand_sight(path)?;
        let entry = self.inner.entry(path)?;
        self.demand_sight_of(path, entry.metadata.is_directory()).map(|()| entry)
    }

    fn open_directory(&self, path: &VirtualPath) -> Result<Box<dyn Directory>, FileError> {
        if !self.at(path)?.allows(Permission::List) && !self.rules.leads_on(path) {
            return Err(FileError::PermissionDenied);
        }
        let inner = self.inner.open_directory(path)?;
        if self.rules.is_plain() {
            return Ok(inner);
        }
        Ok(Box::new(Filtered { inner, path: path.clone(), rules: Arc::clone(&self.rules) }))
    }

    fn make_directory_with(&self, path: &VirtualPath, bits: Option<u32>) -> Result<(), FileError> {
        self.demand_new(path, Permission::MakeDirectory)?;
        self.inner.make_directory_with(path, self.allowed_bits(path, bits))
    }

    fn remove_directory(&self, path: &VirtualPath) -> Result<(), FileError> {
        self.demand(path, Permission::Delete)?;
        self.demand_whole(path)?;
        self.inner.remove_directory(path)
    }

    fn remove_file(&self, path: &VirtualPath) -> Result<(), FileError> {
        self.demand_of_file(path, Permission::Delete)?;
        self.inner.remove_file(path)
    }

    fn rename(&self, from: &VirtualPath, to: &VirtualPath) -> Result<(), FileError> {
        self.demand(from, Permission::Rename)?;
        // In another tree a file is a new one, which can be read there, and gone from the old.
        let here = self.rules.at(from) == self.rules.at(to);
        let permissions = self.demand_new(to, if here { Permission::Rename } else { Permission::Write })?;
        if !here {
            self.demand(from, Permission::Delete)?;
            self.demand(from, Permission::Read)?;
        }
        match self.inner.entry(from)?.metadata.is_directory() {
            true => {
                // A rule is about its place: what it says would no longer hold for what was there.
                if self.rules.names(from) {
                    return Err(FileError::PermissionDenied);
                }
                self.demand_whole(from).and_then(|()| self.demand_whole(to))?;
            }
            false => {
                self.file_name(from, FileError::NotFound)?;
                self.file_name(to, FileError::InvalidName)?;
            }
        }
        self.demand_free(to, permissions)?;
        self.inner.rename(from, to)
    }

    fn change(&self, path: &VirtualPath, change: Change) -> Result<(), FileError> {
        self.demand(path, Permission::Attributes)?;
        self.inner.change(path, change)
    }

    fn make_symlink(&self, target: &[u8], path: &VirtualPath) -> Result<(), FileError> {
        self.demand_new(path, Permission::Link)?;
        match self.rules.is_plain() {
            true => self.inner.make_symlink(target, path),
            false => Err(FileError::PermissionDenied),
        }
    }

    fn copy(
        &self,
        from: &VirtualPath,
        to: &VirtualPath,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u64, FileError> {
        self.demand_of_file(from, Permission::Read)?;
        let permissions = self.demand_new(to, Permission::Write)?;
        self.file_name(to, FileError::InvalidName)?;
        self.demand_free(to, permissions)?;
        self.inner.copy(from, to, progress)
    }

    fn stored_hashes(&self, path: &VirtualPath, wait: Wait) -> Result<Option<Hashes>, FileError> {
        self.demand_of_file(path, Permission::Read)?;
        self.inner.stored_hashes(path, wait)
    }

    fn space(&self, path: &VirtualPath) -> Result<Space, FileError> {
        self.at(path)?;
        self.inner.space(path)
    }

    fn may_replace(&self, path: &VirtualPath, all_beneath: bool) -> Result<(), FileError> {
        let permissions = self.demand(path, Permission::Write)?;
        // An account that may only add files replaces none.
        let is_file =
            || matches!(self.inner.metadata(path, Wait::Allowed), Ok(metadata) if !metadata.is_directory());
        if !permissions.allows(Permission::Overwrite) && (all_beneath || is_file()) {
            return Err(FileError::PermissionDenied);
        }
        if all_beneath {
            self.demand_whole(path)?;
        }
        self.inner.may_replace(path, all_beneath)
    }

    fn open_partial(
        &self,
        path: &VirtualPath,
        key: &PartialKey,
        write: WriteMode,
        mode: PartialMode,
    ) -> Result<Partial, FileError> {
        let write = self.mode(path, write, Wait::Allowed)?;
        self.inner.open_partial(path, key, write, mode)
    }

    fn find_partial(&self, path: &VirtualPath, key: &PartialKey) -> Result<PartialState, FileError> {
        self.demand(path, Permission::Write)?;
        self.inner.find_partial(path, key)
    }

    fn remove_partial(&self, path: &VirtualPath, key: &PartialKey) -> Result<(), FileError> {
        self.demand(path, Permission::Write)?;
        self.inner.remove_partial(path, key)
    }

    fn join_partials(
        &self,
        path: &VirtualPath,
        parts: &[(VirtualPath, PartialKey)],
        write: WriteMode,
    ) -> Result<Partial, FileError> {
        let write = self.mode(path, write, Wait::Allowed)?;
        parts.iter().try_for_each(|(part, _)| self.demand(part, Permission::Write).map(drop))?;
        self.inner.join_partials(path, parts, write)
    }

    fn resting(&self) -> Result<Resting, FileError> {
        self.inner.resting()
    }
}

/// A directory without what the account may not know of.
#[derive(Debug)]
struct Filtered {
    inner: Box<dyn Directory>,
    path: VirtualPath,
    rules: Arc<Rules>,
}

impl Filtered {
    fn shows(&self, name: &[u8], is_directory: bool) -> bool {
        let reachable = || self.path.join(name).is_ok_and(|path| self.rules.shows(&path, is_directory));
        !self.rules.denies_component(name)
            && (is_directory || self.rules.allows_file(name))
            && (self.rules.is_uniform() || reachable())
    }
}

impl Directory for Filtered {
    fn next_batch(&mut self, entries: &mut Vec<DirEntry>, most: usize) -> Result<(), FileError> {
        let before = entries.len();
        loop {
            let begin = entries.len();
            self.inner.next_batch(entries, most)?;
            // None at all is the end: go on while all that came was left out.
            if entries.len() == begin {
                return Ok(());
            }
            let mut index = 0;
            entries.retain(|entry| {
                index += 1;
                index <= begin || self.shows(&entry.name, entry.metadata.is_directory())
            });
            if entries.len() > before {
                return Ok(());
            }
        }
    }

    fn next_names(&mut self, visit: &mut dyn FnMut(&[u8]), most: usize) -> Result<usize, FileError> {
        if self.rules.shows_by_name() {
            loop {
                let (mut shown, rules) = (0, &self.rules);
                let mut visit_shown = |name: &[u8]| {
                    if !rules.denies_component(name) {
                        shown += 1;
                        visit(name);
                    }
                };
                let read = self.inner.next_names(&mut visit_shown, most)?;
                if read == 0 || shown > 0 {
                    return Ok(shown);
                }
            }
        }
        let mut entries = Vec::new();
        self.next_batch(&mut entries, most)?;
        entries.iter().for_each(|entry| visit(&entry.name));
        Ok(entries.len())
    }

    fn metadata(&self) -> Result<Metadata, FileError> {
        self.inner.metadata()
    }
}

#[cfg(test)]
mod tests {
    use millrace_storage::MemoryStorage;

    use super::*;

    fn path(text: &str) -> VirtualPath {
        VirtualPath::parse(text.as_bytes()).unwrap()
    }

    fn write(storage: &dyn Storage, name: &str, mode: WriteMode) -> Result<(), FileError> {
        let mut upload = storage.open_write(&path(name), mode, Wait::Allowed)?;
        upload.write_all(b"content")?;
        upload.commit().map(drop)
    }

    /// `/pub/f`, `/in/f`, `/secret/f`, `/.hidden/f`, `/blind/f`, `/pub/x.exe`
    fn tree() -> Arc<dyn Storage> {
        let tree = Arc::new(MemoryStorage::new());
        for directory in ["/pub", "/in", "/secret", "/.hidden", "/blind"] {
            tree.make_directory(&path(directory)).unwrap();
            write(&*tree, &format!("{directory}/f"), WriteMode::Replace).unwrap();
        }
        write(&*tree, "/pub/x.exe", WriteMode::Replace).unwrap();
        tree
    }

    fn guarded() -> Arc<dyn Storage> {
        let drop_box = Permissions::only(Permission::Write).with(Permission::MakeDirectory);
        let rules = Rules::new(Permissions::READ_ONLY)
            .tree(b"/in", drop_box)
            .tree(b"/secret", Permissions::NONE)
            .tree(b"/pub/own", Permissions::READ_WRITE)
            .tree(b"/blind", Permissions::READ_WRITE.without(Permission::Read))
            .deny_name(b".*")
            .deny_name(b"*.exe");
        guard(tree(), &Arc::new(rules))
    }

    fn names(storage: &dyn Storage, directory: &str) -> Vec<String> {
        let (mut entries, mut visited) = (Vec::new(), Vec::new());
        let mut open = storage.open_directory(&path(directory)).unwrap();
        loop {
            let before = entries.len();
            open.next_batch(&mut entries, 1).unwrap();
            if entries.len() == before {
                break;
            }
        }
        let mut open = storage.open_directory(&path(directory)).unwrap();
        while open.next_names(&mut |name| visited.push(name.to_vec()), 1).unwrap() > 0 {}
        assert_eq!(entries.iter().map(|entry| entry.name.clone()).collect::<Vec<_>>(), visited);
        let mut names: Vec<String> =
            visited.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        names.sort();
        names
    }

    fn fault<T>(result: Result<T, FileError>) -> String {
        result.err().map_or("fine".to_owned(), |error| error.to_string())
    }

    #[test]
    fn each_call_is_held_to_the_rules_at_its_path() {
        let files = &*guarded();
        let read = |name: &str| fault(files.open_read(&path(name), Wait::Allowed));
        let replace = |name: &str| fault(write(files, name, WriteMode::Replace));
        let rename = |from: &str, to: &str| fault(files.rename(&path(from), &path(to)));
        let copy = |from: &str, to: &str| fault(files.copy(&path(from), &path(to), &mut |_| true));
        let (fine, denied, missing) = ("fine", "permission denied", "no such file or directory");
        for (name, outcome, expected) in [
            ("read", read("/pub/f"), fine),
            ("read a drop box", read("/in/f"), denied),
            ("read a closed tree", read("/secret/f"), denied),
            ("read in a denied directory", read("/.hidden/f"), missing),
            ("read a denied name", read("/pub/x.exe"), missing),
            ("write where one may only read", replace("/pub/g"), denied),
            ("write into a drop box", replace("/in/g"), fine),
            ("replace in a drop box", replace("/in/f"), "already exists"),
            ("append in a drop box", fault(write(files, "/in/f", WriteMode::Append)), denied),
            ("give a denied name", replace("/in/g.exe"), "name not allowed"),
            ("enter a drop box", fault(files.metadata(&path("/in"), Wait::Allowed)), fine),
            ("look into a drop box", fault(files.metadata(&path("/in/f"), Wait::Allowed)), denied),
            ("list a drop box", fault(files.open_directory(&path("/in"))), denied),
            ("enter a closed tree", fault(files.metadata(&path("/secret"), Wait::Allowed)), denied),
            ("delete", fault(files.remove_file(&path("/pub/f"))), denied),
            ("make a directory", fault(files.make_directory(&path("/pub/d"))), denied),
            ("make one in a drop box", fault(files.make_directory(&path("/in/d"))), fine),
            ("make an own folder", fault(files.make_directory(&path("/pub/own"))), fine),
            ("copy", copy("/pub/f", "/pub/own/f"), fine),
            ("copy out of a closed tree", copy("/secret/f", "/pub/own/s"), denied),
            ("rename an own file", rename("/pub/own/f", "/pub/own/g"), fine),
            ("move out of a read-only place", rename("/pub/f", "/pub/own/h"), denied),
            ("move a directory over a tree of rules", rename("/pub/own", "/secret/own"), denied),
            ("move out of where one may not read", rename("/blind/f", "/pub/own/h"), denied),
            ("rename where one may not read", rename("/blind/f", "/blind/g"), fine),
            ("rename the place of a rule", rename("/pub/own", "/blind/own"), denied),
            ("rename it to where the same holds", rename("/blind", "/pub/own/blind"), denied),
            ("link", fault(files.make_symlink(b"/secret/f", &path("/pub/own/l"))), denied),
            ("delete an own file", fault(files.remove_file(&path("/pub/own/g"))), fine),
            ("remove a directory above rules", fault(files.remove_directory(&path("/pub"))), denied),
        ] {
            assert_eq!(outcome, expected, "{name}");
        }
    }

    #[test]
    fn listings_leave_out_what_cannot_be_known_of() {
        let files = &*guarded();
        assert_eq!(names(files, "/pub"), ["f"]);
        assert_eq!(names(files, "/"), ["blind", "in", "pub"]);
    }

    #[test]
    fn allowed_names_are_for_files_only() {
        let rules = Rules::new(Permissions::READ_WRITE).allow_name(b"*.csv");
        let files = &*guard(tree(), &Arc::new(rules));
        assert_eq!(names(files, "/"), [".hidden", "blind", "in", "pub", "secret"]);
        assert_eq!(names(files, "/pub"), [""; 0]);
        assert_eq!(fault(write(files, "/a.txt", WriteMode::Replace)), "name not allowed");
        assert_eq!(fault(write(files, "/a.csv", WriteMode::Replace)), "fine");
        assert_eq!(fault(files.rename(&path("/a.csv"), &path("/a.exe"))), "name not allowed");
        assert_eq!(fault(files.rename(&path("/pub"), &path("/other"))), "fine");
    }

    #[test]
    fn without_overwrite_nothing_that_is_there_is_changed() {
        let permissions = Permissions::READ_WRITE.without(Permission::Overwrite);
        for rules in [Rules::new(permissions), Rules::new(permissions).deny_name(b"nothing")] {
            let files = &*guard(tree(), &Arc::new(rules));
            assert_eq!(fault(write(files, "/pub/f", WriteMode::At(3))), "permission denied");
            assert_eq!(fault(write(files, "/pub/f", WriteMode::At(7))), "fine");
            assert_eq!(fault(files.rename(&path("/in/f"), &path("/pub/f"))), "already exists");
            assert_eq!(fault(files.copy(&path("/in/f"), &path("/pub/f"), &mut |_| true)), "already exists");
        }
    }

    #[test]
    fn permissions_that_are_the_same_everywhere_are_held_to_as_well() {
        let without =
            |permission| guard(tree(), &Arc::new(Rules::new(Permissions::READ_WRITE.without(permission))));
        let denied = "permission denied";
        let files = without(Permission::Write);
        assert_eq!(fault(write(&*files, "/pub/new", WriteMode::Append)), "no such file or directory");
        assert_eq!(fault(write(&*files, "/pub/f", WriteMode::Append)), "fine");
        let files = without(Permission::Read);
        assert_eq!(fault(files.copy(&path("/pub/f"), &path("/pub/g"), &mut |_| true)), denied);
        let files = without(Permission::Attributes);
        assert_eq!(fault(files.change(&path("/pub/f"), Change::default())), denied);
    }
}
