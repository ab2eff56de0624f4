//! The permissions of an account.

/// One thing that an account may be allowed to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Permission {
    /// See names and attributes.
    List = 1,
    /// Download.
    Read = 2,
    /// Upload new files, copy onto new names.
    Write = 4,
    /// Append to files, resume uploads.
    Append = 8,
    /// Replace files that exist.
    Overwrite = 16,
    /// Rename files and directories.
    Rename = 32,
    /// Remove files and directories.
    Delete = 64,
    /// Make directories.
    MakeDirectory = 128,
    /// Change times, modes and owners.
    Attributes = 256,
    /// Make symbolic links.
    Link = 512,
    /// Administer the server.
    Admin = 1024,
}

impl Permission {
    /// Each with the word for it in configuration files and in this order.
    pub const WORDS: [(Self, &'static str); 11] = [
        (Self::List, "list"),
        (Self::Read, "read"),
        (Self::Write, "write"),
        (Self::Append, "append"),
        (Self::Overwrite, "overwrite"),
        (Self::Rename, "rename"),
        (Self::Delete, "delete"),
        (Self::MakeDirectory, "mkdir"),
        (Self::Attributes, "attributes"),
        (Self::Link, "link"),
        (Self::Admin, "admin"),
    ];
}

/// A set of [`Permission`]s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Permissions(u16);

impl Permissions {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// List and read: `ro`.
    pub const READ_ONLY: Self = Self(Permission::List as u16 | Permission::Read as u16);
    /// Everything but administration: `rw`.
    pub const READ_WRITE: Self = Self(Permission::Admin as u16 - 1);

    /// One permission.
    pub const fn only(permission: Permission) -> Self {
        Self(permission as u16)
    }

    /// This set and one more.
    pub const fn with(self, permission: Permission) -> Self {
        Self(self.0 | permission as u16)
    }

    /// This set less one.
    pub const fn without(self, permission: Permission) -> Self {
        Self(self.0 & !(permission as u16))
    }

    /// This set and another.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The permissions in both sets.
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns true if nothing is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns true if `permission` is in the set.
    pub const fn allows(self, permission: Permission) -> bool {
        self.0 & permission as u16 != 0
    }

    /// Returns true if every permission of `other` is in the set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// `list, read`: for people.
impl std::fmt::Display for Permissions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const NAMES: [(Permission, &str); 11] = [
            (Permission::List, "list"),
            (Permission::Read, "read"),
            (Permission::Write, "write"),
            (Permission::Append, "append"),
            (Permission::Overwrite, "overwrite"),
            (Permission::Rename, "rename"),
            (Permission::Delete, "delete"),
            (Permission::MakeDirectory, "make directories"),
            (Permission::Attributes, "change attributes"),
            (Permission::Link, "make links"),
            (Permission::Admin, "administer"),
        ];
        let mut names =
            NAMES.iter().filter(|(permission, _)| self.allows(*permission)).map(|(_, name)| *name);
        f.write_str(names.next().unwrap_or("nothing"))?;
        names.try_for_each(|name| write!(f, ", {name}"))
    }
}
