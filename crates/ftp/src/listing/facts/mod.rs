//! `MLST` and `MLSD`: facts about an entry, for programs (RFC 3659 section 7).
//!
//! ```text
//! type=file;size=1048576;modify=20240101120000;perm=adfrw; a name
//! ```
//!
//! On the data connection names are exact, any bytes. RFC 3659 section 2.2 leaves one case open: a CR LF
//! within a name would end the line there, and must be given a form that can be undone. It is Telnet's
//! (RFC 2640 section 3.1 has the same for commands): a NUL, which no name can hold, after each CR that
//! stands before an LF or at the end of the name. [`parse`] takes it out. On the control connection, where
//! a lone LF too would break the reply, control characters are escaped as in [`crate::escape`].

mod parse;
#[cfg(test)]
mod tests;
mod write;

use std::{fmt, ops::BitOr};

pub use self::parse::{FactLine, Kind, parse};
pub use self::write::{FactWriter, Item};
use millrace_vfs::{Permission, Permissions};

/// A set of facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Facts(u16);

/// Names, in the order in which facts are written and advertised.
const NAMES: [(Facts, &str); 13] = [
    (Facts::TYPE, "type"),
    (Facts::SIZE, "size"),
    (Facts::MODIFY, "modify"),
    (Facts::CREATE, "create"),
    (Facts::UNIQUE, "unique"),
    (Facts::PERM, "perm"),
    (Facts::UNIX_MODE, "UNIX.mode"),
    (Facts::UNIX_OWNER, "UNIX.owner"),
    (Facts::UNIX_GROUP, "UNIX.group"),
    (Facts::UNIX_OWNERNAME, "UNIX.ownername"),
    (Facts::UNIX_GROUPNAME, "UNIX.groupname"),
    (Facts::MEDIA_TYPE, "media-type"),
    (Facts::HASH, "x.hash"),
];

impl Facts {
    /// No fact.
    pub const NONE: Self = Self(0);
    /// `type`: file, dir, cdir, pdir, or a kind of the system's.
    pub const TYPE: Self = Self(1);
    /// `size`, in bytes, of files.
    pub const SIZE: Self = Self(1 << 1);
    /// `modify`: last change, UTC.
    pub const MODIFY: Self = Self(1 << 2);
    /// `create`, where known.
    pub const CREATE: Self = Self(1 << 3);
    /// `unique`: equal for two names of one file.
    pub const UNIQUE: Self = Self(1 << 4);
    /// `perm`: what this session may do.
    pub const PERM: Self = Self(1 << 5);
    /// `UNIX.mode`, octal.
    pub const UNIX_MODE: Self = Self(1 << 6);
    /// `UNIX.owner`, a number.
    pub const UNIX_OWNER: Self = Self(1 << 7);
    /// `UNIX.group`, a number.
    pub const UNIX_GROUP: Self = Self(1 << 8);
    /// `UNIX.ownername`.
    pub const UNIX_OWNERNAME: Self = Self(1 << 9);
    /// `UNIX.groupname`.
    pub const UNIX_GROUPNAME: Self = Self(1 << 10);
    /// `media-type` of files, by their names.
    pub const MEDIA_TYPE: Self = Self(1 << 11);
    /// `x.hash`: algorithm and hash of a file, if it was computed since its last change.
    pub const HASH: Self = Self(1 << 12);
    /// Every supported fact. `lang` and `charset` of RFC 3659 are not: they are unknown.
    pub const ALL: Self = Self((1 << 13) - 1);
    /// The facts of a session that never sent `OPTS MLST`.
    pub const DEFAULT: Self = Self(
        Self::TYPE.0
            | Self::SIZE.0
            | Self::MODIFY.0
            | Self::UNIQUE.0
            | Self::PERM.0
            | Self::UNIX_MODE.0
            | Self::UNIX_OWNER.0
            | Self::UNIX_GROUP.0,
    );

    /// Parses the argument of `OPTS MLST`, `type;size;`. Names are in any case; unknown ones are left out,
    /// and no name at all means no facts (RFC 3659 section 7.9).
    pub fn parse(list: &[u8]) -> Self {
        let named = |name: &[u8]| NAMES.iter().find(|(_, known)| name.eq_ignore_ascii_case(known.as_bytes()));
        list.trim_ascii()
            .split(|&byte| byte == b';')
            .filter_map(named)
            .fold(Self::NONE, |set, (fact, _)| set | *fact)
    }

    /// Returns true if every fact of `other` is in this set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The text for `FEAT`, after `MLST `: every fact, with a star behind those of this set.
    pub fn feature(self) -> String {
        let fact =
            |(fact, name): &(Self, &str)| format!("{name}{};", if self.contains(*fact) { "*" } else { "" });
        NAMES.iter().map(fact).collect()
    }
}

impl Default for Facts {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl BitOr for Facts {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// `type;size;`: what the reply to `OPTS MLST` says.
impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        NAMES.iter().filter(|(fact, _)| self.contains(*fact)).try_for_each(|(_, name)| write!(f, "{name};"))
    }
}

/// The permissions of a session in a directory, for the `perm` fact. The default is all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rights {
    /// List directories and enter them.
    pub list: bool,
    /// `RETR`.
    pub read: bool,
    /// `STOR` over files that are there.
    pub overwrite: bool,
    /// `APPE`.
    pub append: bool,
    /// `STOR` under new names.
    pub create: bool,
    /// `DELE`, `RMD`.
    pub delete: bool,
    /// `RNFR`.
    pub rename: bool,
    /// `MKD`.
    pub make_directory: bool,
}

/// A user's permissions, as the `perm` fact tells them.
impl From<Permissions> for Rights {
    fn from(permissions: Permissions) -> Self {
        Self {
            list: permissions.allows(Permission::List),
            read: permissions.allows(Permission::Read),
            overwrite: permissions.allows(Permission::Overwrite),
            append: permissions.allows(Permission::Append),
            create: permissions.allows(Permission::Write),
            delete: permissions.allows(Permission::Delete),
            rename: permissions.allows(Permission::Rename),
            make_directory: permissions.allows(Permission::MakeDirectory),
        }
    }
}

impl Rights {
    /// Everything.
    pub const ALL: Self = Self {
        list: true,
        read: true,
        overwrite: true,
        append: true,
        create: true,
        delete: true,
        rename: true,
        make_directory: true,
    };
    /// Nothing that changes anything.
    pub const READ_ONLY: Self = Self {
        overwrite: false,
        append: false,
        create: false,
        delete: false,
        rename: false,
        make_directory: false,
        ..Self::ALL
    };

    fn of_file(&self) -> Vec<u8> {
        letters(&[
            (self.append, b'a'),
            (self.delete, b'd'),
            (self.rename, b'f'),
            (self.read, b'r'),
            (self.overwrite, b'w'),
        ])
    }

    fn of_name(&self) -> Vec<u8> {
        letters(&[(self.delete, b'd'), (self.rename, b'f')])
    }

    fn of_directory(&self) -> Vec<u8> {
        letters(&[
            (self.create, b'c'),
            (self.delete, b'd'),
            (self.list, b'e'),
            (self.rename, b'f'),
            (self.list, b'l'),
            (self.make_directory, b'm'),
            (self.delete, b'p'),
        ])
    }
}

impl Default for Rights {
    fn default() -> Self {
        Self::ALL
    }
}

fn letters(rights: &[(bool, u8)]) -> Vec<u8> {
    rights.iter().filter(|(held, _)| *held).map(|(_, letter)| *letter).collect()
}

/// How links are shown. `MLST` and `MLSD` do the same, and every fact is of one object: `unique` names what `type`
/// describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Links {
    /// As what they lead to within the tree, so that mirrors go on into it; one that leads nowhere as a
    /// link.
    #[default]
    Followed,
    /// As links: `type=OS.unix=slink:target`.
    Shown,
}

/// Where an entry stands to the directory that is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Place {
    /// In it.
    #[default]
    Within,
    /// It is the directory itself: `cdir`.
    Itself,
    /// It is above: `pdir`.
    Parent,
}

impl Place {
    /// The place that the name `.` or `..`, or any other, stands for.
    pub fn of(name: &[u8]) -> Self {
        match name {
            b"." => Self::Itself,
            b".." => Self::Parent,
            _ => Self::Within,
        }
    }
}
