//! Virtual paths: absolute, normalised, and made of bytes.
//!
//! A [`VirtualPath`] is always absolute, has no `.`, `..`, empty or NUL-bearing component, and can
//! therefore be handed to a back end as it is. `..` is resolved here, by name, and stops at the root,
//! so no client can even name what lies above. (Symbolic links are the back end's matter: see
//! `RESOLVE_BENEATH`.) Names are bytes, not text: any name that a file system holds round-trips.

use std::fmt;

use thiserror::Error;

/// An absolute, normalised path within a [`Storage`](crate::Storage), for example `/pub/file.txt`.
///
/// The root is `/`; no other path ends in a slash.
// It is kept as nothing, which takes no memory: a session at rest has several.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VirtualPath(Box<[u8]>);

/// Why a client's argument does not name a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PathError {
    /// A NUL byte: no file system can hold it, and in C it would end the name early.
    #[error("the path contains a NUL byte")]
    Nul,
    /// One component is longer than [`VirtualPath::MAX_NAME`].
    #[error("a name in the path is longer than {} bytes", VirtualPath::MAX_NAME)]
    NameTooLong,
    /// The whole path is longer than [`VirtualPath::MAX_LENGTH`].
    #[error("the path is longer than {} bytes", VirtualPath::MAX_LENGTH)]
    TooLong,
}

impl VirtualPath {
    /// The longest name of one component, in bytes (Linux `NAME_MAX`).
    pub const MAX_NAME: usize = 255;
    /// The longest path, in bytes (Linux `PATH_MAX`, less its NUL).
    pub const MAX_LENGTH: usize = 4095;

    /// The path `/`.
    pub fn root() -> Self {
        Self(Box::default())
    }

    /// Parses an absolute or relative path as seen from the root.
    pub fn parse(path: &[u8]) -> Result<Self, PathError> {
        Self::root().resolve(path)
    }

    /// Resolves a client's argument against this directory.
    ///
    /// An argument that begins with `/` starts at the root; `.` and repeated slashes vanish; `..` goes
    /// up one level and stops at the root. The empty argument is this path itself.
    pub fn resolve(&self, argument: &[u8]) -> Result<Self, PathError> {
        if argument.contains(&0) {
            return Err(PathError::Nul);
        }
        let begins = if argument.first() == Some(&b'/') { &[][..] } else { &self.0 };
        // The exact length where nothing is removed: no memory is left over then.
        let slash = usize::from(argument.first() != Some(&b'/'));
        let mut path = Vec::with_capacity(begins.len() + slash + argument.len());
        path.extend_from_slice(begins);
        for component in argument.split(|&byte| byte == b'/') {
            match component {
                b"" | b"." => {}
                b".." => {
                    let parent = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
                    path.truncate(parent);
                }
                name if name.len() > Self::MAX_NAME => return Err(PathError::NameTooLong),
                name => {
                    path.push(b'/');
                    path.extend_from_slice(name);
                }
            }
        }
        if path.len() > Self::MAX_LENGTH {
            return Err(PathError::TooLong);
        }
        Ok(Self(path.into_boxed_slice()))
    }

    /// The path of the entry `name` in this directory. `name` must be a single component.
    pub fn join(&self, name: &[u8]) -> Result<Self, PathError> {
        self.resolve(name)
    }

    /// The directory that holds this path; the root is its own parent.
    pub fn parent(&self) -> Self {
        let end = self.0.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        Self(Box::from(&self.0[..end]))
    }

    /// The last component, empty for the root.
    pub fn name(&self) -> &[u8] {
        let start = self.0.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        &self.0[start..]
    }

    /// The components from the root down.
    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|&byte| byte == b'/').filter(|component| !component.is_empty())
    }

    /// Returns true if this is `/`.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if this path is `ancestor` or lies beneath it.
    pub fn starts_with(&self, ancestor: &VirtualPath) -> bool {
        self.0.starts_with(&ancestor.0) && matches!(self.0.get(ancestor.0.len()), None | Some(b'/'))
    }

    /// The whole path with its leading slash.
    pub fn as_bytes(&self) -> &[u8] {
        if self.is_root() { b"/" } else { &self.0 }
    }

    /// The path without its leading slash, as a back end opens it beneath its root; `.` for the root.
    pub fn relative(&self) -> &[u8] {
        if self.is_root() { b"." } else { &self.0[1..] }
    }
}

impl fmt::Debug for VirtualPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// Lossy where the name is not UTF-8; control characters are escaped. For logs, never for the wire.
impl fmt::Display for VirtualPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.as_bytes().utf8_chunks() {
            for character in chunk.valid().chars() {
                if character.is_control() {
                    write!(f, "{}", character.escape_default())?;
                } else {
                    fmt::Write::write_char(f, character)?;
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn resolved(base: &str, argument: &str) -> String {
        VirtualPath::parse(base.as_bytes()).unwrap().resolve(argument.as_bytes()).unwrap().to_string()
    }

    #[test]
    fn arguments_resolve_by_name() {
        for (base, argument, expected) in [
            ("/", "", "/"),
            ("/a/b", "", "/a/b"),
            ("/a/b", "c", "/a/b/c"),
            ("/a/b", "/c", "/c"),
            ("/a/b", "..", "/a"),
            ("/a/b", "../..", "/"),
            ("/a/b", "../../../../etc", "/etc"),
            ("/a", "./b//c/.", "/a/b/c"),
            ("/", "..", "/"),
            ("/", "a/../..", "/"),
            ("/a", "...", "/a/..."),
            ("/a", "~", "/a/~"),
        ] {
            assert_eq!(resolved(base, argument), expected, "{base} + {argument}");
        }
    }

    #[test]
    fn limits_are_exact() {
        let name = vec![b'n'; VirtualPath::MAX_NAME];
        assert!(VirtualPath::parse(&name).is_ok());
        assert_eq!(VirtualPath::parse(&[&name[..], b"n"].concat()), Err(PathError::NameTooLong));
        let longest = [&b"/"[..], &vec![b'n'; 254]].concat().repeat(16);
        assert_eq!(longest.len(), 4080);
        let longest = [&longest[..], b"/", &[b'n'; 14]].concat();
        assert_eq!(longest.len(), VirtualPath::MAX_LENGTH);
        assert!(VirtualPath::parse(&longest).is_ok());
        assert_eq!(VirtualPath::parse(&[&longest[..], b"n"].concat()), Err(PathError::TooLong));
        assert_eq!(VirtualPath::parse(b"a\0b"), Err(PathError::Nul));
    }

    #[test]
    fn a_name_that_only_begins_like_the_ancestor_is_not_beneath_it() {
        let path = |text: &str| VirtualPath::parse(text.as_bytes()).unwrap();
        assert!(path("/a/b").starts_with(&path("/a")));
        assert!(path("/a").starts_with(&path("/a")));
        assert!(path("/a").starts_with(&path("/")));
        assert!(!path("/ab").starts_with(&path("/a")));
    }

    proptest! {
        #[test]
        fn every_result_is_normalised(base in "(/[a-z.]{0,3}){0,4}", argument in prop::collection::vec(prop::sample::select(&b"/.ab\xff\r\n"[..]), 0..40)) {
            let base = VirtualPath::parse(base.as_bytes()).unwrap();
            let path = base.resolve(&argument).unwrap();
            prop_assert_eq!(path.as_bytes()[0], b'/');
            prop_assert!(path.is_root() || !path.as_bytes().ends_with(b"/"));
            prop_assert!(path.components().all(|name| name != b"." && name != b".." && !name.is_empty()));
            prop_assert_eq!(VirtualPath::root().resolve(path.as_bytes()).unwrap(), path.clone());
            if !path.is_root() {
                prop_assert_eq!(path.parent().join(path.name()).unwrap(), path);
            }
        }
    }
}
