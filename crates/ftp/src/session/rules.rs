//! An account's permissions by path: for each directory tree, and rules about names.
//!
//! Every path has exactly one set of permissions: that of the deepest tree whose pattern its first components
//! match, of two as deep the one with more components that are names and no patterns, else the later one, and where none
//! matches the account's own. A name that is
//! denied is denied as any component of a path, so nothing beneath such a directory is reached either.

use millrace_vfs::{Permission, Permissions, VirtualPath};

use crate::glob::Glob;

/// Permissions by place and name. Cheap where there is nothing to look at.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Where no tree matches.
    base: Permissions,
    trees: Vec<Tree>,
    denied_names: Vec<Glob>,
    /// Empty: every name.
    allowed_names: Vec<Glob>,
    hides_dotfiles: bool,
}

/// Names that begin with a dot and are meant for all: of RFC 8615, and of the text that FTP shows for a directory.
const SHOWN_DOTFILES: [&[u8]; 2] = [b".well-known", b".message"];

#[derive(Debug, Clone)]
struct Tree {
    /// One for each component from the root down.
    pattern: Vec<Glob>,
    permissions: Permissions,
}

impl Rules {
    /// The same everywhere.
    pub fn new(base: Permissions) -> Self {
        Self { base, ..Self::default() }
    }

    /// With other permissions at and beneath what a pattern such as `/home/*/incoming` matches. A wildcard stays
    /// within one component.
    pub fn tree(mut self, pattern: &[u8], permissions: Permissions) -> Self {
        let components = pattern.split(|&byte| byte == b'/').filter(|component| !component.is_empty());
        self.trees.push(Tree { pattern: components.map(Glob::new).collect(), permissions });
        self
    }

    /// Where no file or directory has a name that this pattern matches, as far as the account is concerned.
    pub fn deny_name(mut self, pattern: &[u8]) -> Self {
        self.denied_names.push(Glob::new(pattern));
        self
    }

    /// Where files, not directories, have only names that this pattern or another such one matches.
    pub fn allow_name(mut self, pattern: &[u8]) -> Self {
        self.allowed_names.push(Glob::new(pattern));
        self
    }

    /// Where no file or directory has a name that begins with a dot, but for those that are meant for all.
    pub fn without_dotfiles(mut self) -> Self {
        self.hides_dotfiles = true;
        self
    }

    /// The permissions at a path.
    pub fn at(&self, path: &VirtualPath) -> Permissions {
        let matching = self.trees.iter().filter(|tree| tree.covers(path));
        matching.max_by_key(|tree| tree.rank()).map_or(self.base, |tree| tree.permissions)
    }

    /// The permissions allowed in at least one place.
    pub fn anywhere(&self) -> Permissions {
        self.trees.iter().fold(self.base, |all, tree| all.union(tree.permissions))
    }

    /// Returns true if every path has the same permissions.
    pub fn is_uniform(&self) -> bool {
        self.trees.is_empty()
    }

    /// Returns true if there is nothing to be looked at but the permissions of the account.
    pub fn is_plain(&self) -> bool {
        self.is_uniform() && !self.denies_names() && self.allowed_names.is_empty()
    }

    /// Returns whether some names are denied.
    fn denies_names(&self) -> bool {
        self.hides_dotfiles || !self.denied_names.is_empty()
    }

    /// Returns whether an entry's name alone decides whether it is visible.
    pub fn shows_by_name(&self) -> bool {
        self.is_uniform() && self.allowed_names.is_empty()
    }

    /// Returns true if a tree with other permissions may lie beneath this path.
    pub fn differs_beneath(&self, path: &VirtualPath) -> bool {
        self.trees.iter().any(|tree| tree.lies_beneath(path))
    }

    /// Returns true if a tree with permissions of its own begins at this path, and is named there by its own name.
    pub fn names(&self, path: &VirtualPath) -> bool {
        let is_there = |tree: &Tree| tree.covers(path) && tree.pattern.len() == path.components().count();
        self.trees.iter().any(|tree| is_there(tree) && tree.pattern.last().is_some_and(Glob::is_literal))
    }

    /// Returns true if something may be done beneath this path: then it can be passed through, whatever may be done
    /// with the directory itself.
    pub fn leads_on(&self, path: &VirtualPath) -> bool {
        self.trees.iter().any(|tree| tree.permissions != Permissions::NONE && tree.lies_beneath(path))
    }

    /// Returns true if the entry at this path is visible. A directory is where any permission is granted; a file is not
    /// where the account may only upload.
    pub fn shows(&self, path: &VirtualPath, is_directory: bool) -> bool {
        const BLIND: Permissions = Permissions::only(Permission::Write)
            .with(Permission::MakeDirectory)
            .with(Permission::Link)
            .with(Permission::Admin);
        let permissions = self.at(path);
        match is_directory {
            true => permissions != Permissions::NONE || self.leads_on(path),
            false => !BLIND.contains(permissions),
        }
    }

    /// Returns true if a component of the path has a denied name.
    pub fn denies_name(&self, path: &VirtualPath) -> bool {
        self.denies_names() && path.components().any(|name| self.denies_component(name))
    }

    /// Returns true if a single component is a denied name.
    pub fn denies_component(&self, name: &[u8]) -> bool {
        let is_dotfile = || name.starts_with(b".") && !SHOWN_DOTFILES.contains(&name);
        (self.hides_dotfiles && is_dotfile()) || self.denied_names.iter().any(|pattern| pattern.matches(name))
    }

    /// Returns true if a file, not a directory, may have this name.
    pub fn allows_file(&self, name: &[u8]) -> bool {
        self.allowed_names.is_empty() || self.allowed_names.iter().any(|pattern| pattern.matches(name))
    }
}

impl Tree {
    /// Of two matching rules the one with the higher rank decides: `/*` does not override `/internal`.
    fn rank(&self) -> (usize, usize) {
        (self.pattern.len(), self.pattern.iter().filter(|glob| glob.is_literal()).count())
    }

    fn covers(&self, path: &VirtualPath) -> bool {
        let mut components = path.components();
        self.pattern.iter().all(|glob| components.next().is_some_and(|name| glob.matches(name)))
    }

    /// Returns true if the pattern goes on where the path ends.
    fn lies_beneath(&self, path: &VirtualPath) -> bool {
        let mut pattern = self.pattern.iter();
        path.components().all(|name| pattern.next().is_some_and(|glob| glob.matches(name)))
            && pattern.next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RO: Permissions = Permissions::READ_ONLY;
    const RW: Permissions = Permissions::READ_WRITE;
    const NONE: Permissions = Permissions::NONE;

    fn path(text: &str) -> VirtualPath {
        VirtualPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn the_deepest_tree_that_matches_decides() {
        let rules = Rules::new(RO)
            .tree(b"/a", NONE)
            .tree(b"/a/b/", RW)
            .tree(b"/*/b/c", NONE)
            .tree(b"/zz", RO)
            .tree(b"/z*", RW);
        for (text, expected) in [
            ("/", RO),
            ("/a", NONE),
            ("/a/x", NONE),
            ("/a/b", RW),
            ("/a/b/x/y", RW),
            ("/a/b/c", NONE),
            ("/q/b", RO),
            ("/q/b/c/d", NONE),
            ("/zoo", RW),
            ("/zz/x", RO),
            ("/ab", RO),
        ] {
            assert_eq!(rules.at(&path(text)), expected, "{text}");
        }
        assert_eq!(rules.anywhere(), RW);
    }

    #[test]
    fn parents_of_a_permitted_tree_can_be_entered() {
        let rules = Rules::new(NONE).tree(b"/a/*/c", RO).tree(b"/a/b/c/d", NONE);
        for (text, shows) in [
            ("/", true),
            ("/a", true),
            ("/a/b", true),
            ("/a/b/c", true),
            ("/a/b/c/e", true),
            ("/a/b/c/d", false),
            ("/a/b/x", false),
            ("/b", false),
        ] {
            assert_eq!(rules.shows(&path(text), true), shows, "{text}");
        }
        assert!(rules.differs_beneath(&path("/a/b/c")) && !rules.differs_beneath(&path("/a/b/c/d")));
    }

    #[test]
    fn a_tree_is_named_where_it_begins_and_by_its_name() {
        let rules = Rules::new(RW).tree(b"/a/*/c", RO).tree(b"/b/*", RO);
        for (text, named) in
            [("/a/x/c", true), ("/a/x", false), ("/a/x/c/d", false), ("/b/x", false), ("/", false)]
        {
            assert_eq!(rules.names(&path(text)), named, "{text}");
        }
    }

    #[test]
    fn a_place_to_put_things_into_shows_nothing() {
        let drop_box = Permissions::only(Permission::Write).with(Permission::MakeDirectory);
        let rules = Rules::new(RO).tree(b"/in", drop_box);
        assert!(rules.shows(&path("/in"), true) && !rules.shows(&path("/in/file"), false));
        assert!(rules.shows(&path("/file"), false));
    }

    #[test]
    fn a_denied_name_denies_what_is_beneath_it() {
        let rules = Rules::new(RW).deny_name(b".*").deny_name(b"*.exe").allow_name(b"*.csv");
        for (text, denied) in [("/.ssh/keys", true), ("/a/x.exe", true), ("/a/b.txt", false), ("/", false)] {
            assert_eq!(rules.denies_name(&path(text)), denied, "{text}");
        }
        assert!(rules.allows_file(b"a.csv") && !rules.allows_file(b"a.txt"));
        let rules = Rules::new(RO).without_dotfiles();
        for (text, denied) in
            [("/.git/config", true), ("/a/.env", true), ("/.well-known/x", false), ("/a.b", false)]
        {
            assert_eq!(rules.denies_name(&path(text)), denied, "{text}");
        }
        assert!(!rules.is_plain() && rules.is_uniform() && !rules.denies_component(b".message"));
        assert!(Rules::new(RW).allows_file(b"anything"));
    }
}
