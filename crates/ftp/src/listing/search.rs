//! Patterns as paths: `*.txt`, `d*/x*`, `*/doc/?.pdf`.
//!
//! A pattern is looked for level by level beneath the folder that stands before its first wildcard. A level that
//! is a plain name is looked up, not searched for. There is no `**`: as many folders are gone down as the pattern
//! has slashes, and no more. A `..` behind a wildcard goes up again.

use millrace_vfs::VirtualPath;

use super::ListOptions;
use crate::escape::unescaped;
use crate::glob::Glob;

/// One component of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Level {
    /// This name.
    Name(Vec<u8>),
    /// A pattern for names.
    Pattern(Glob),
}

impl Level {
    /// A component of a path, as a client wrote it.
    pub fn new(component: &[u8]) -> Self {
        match Glob::is_pattern(component) {
            true => Self::Pattern(Glob::new(component)),
            false => Self::Name(unescaped(component).into_owned()),
        }
    }
}

/// The folders that are searched for a pattern: those beneath a folder that match all of its levels except the last,
/// which is for their entries. `..` is the parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Searched {
    /// Where it begins.
    pub folder: VirtualPath,
    /// The levels; at least one.
    pub levels: Vec<Level>,
}

impl Searched {
    /// The folders of a search that is about this folder, has these levels and goes so deep; `None` where it is the
    /// only one.
    pub fn new(folder: &VirtualPath, levels: &[Level], depth: usize) -> Option<Self> {
        let (_, levels) = levels.split_last()?;
        let levels = &levels[..levels.len().min(depth)];
        (!levels.is_empty()).then(|| Self { folder: folder.clone(), levels: levels.to_vec() })
    }
}

/// Splits a path before its first component that is a pattern: the folder to search, with its slash, or nothing; and
/// the levels beneath. A slash at the end asks for the content of matching folders, or with `-d` for these alone.
/// `None` where there is no pattern.
pub fn split(path: &[u8], options: ListOptions) -> Option<(&[u8], Vec<Level>)> {
    let mut begin = 0;
    for component in path.split(|&byte| byte == b'/') {
        if Glob::is_pattern(component) {
            let (folder, pattern) = path.split_at(begin);
            let components = pattern.split(|&byte| byte == b'/');
            let mut levels: Vec<Level> =
                components.filter(|part| !matches!(part[..], [] | [b'.'])).map(Level::new).collect();
            if pattern.ends_with(b"/") && !options.directory {
                levels.push(Level::new(b"*"));
            }
            return Some((folder, levels));
        }
        begin += component.len() + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_before_its_first_pattern() {
        let level = |text: &str| Level::new(text.as_bytes());
        for (path, folder, levels) in [
            ("*", "", &["*"][..]),
            ("a/b*", "a/", &["b*"]),
            ("/x/d*/y/[z]", "/x/", &["d*", "y", "[z]"]),
            ("/*", "/", &["*"]),
            ("d*//./e", "", &["d*", "e"]),
            ("d*/", "", &["d*", "*"]),
        ] {
            let expected = (folder.as_bytes(), levels.iter().map(|text| level(text)).collect());
            assert_eq!(split(path.as_bytes(), ListOptions::default()), Some(expected), "{path}");
        }
        assert_eq!(split(b"a/b", ListOptions::default()), None);
        assert_eq!(split(b"", ListOptions::default()), None);
        let themselves = ListOptions { directory: true, ..ListOptions::default() };
        assert_eq!(split(b"a/d*/", themselves), Some((&b"a/"[..], vec![level("d*")])));
    }
}
