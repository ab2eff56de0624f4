//! The metadata of a file, and the attributes that a client may change.

/// The type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link (only where the link itself was asked for).
    Symlink,
    /// Something that has no content of its own.
    Other(Special),
}

/// An entry that is neither file nor directory nor link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Special {
    /// A pipe, or an unknown type.
    Pipe,
    /// A socket.
    Socket,
    /// A device that is read by characters.
    CharacterDevice,
    /// A device that is read by blocks.
    BlockDevice,
}

/// A point in time: seconds and nanoseconds since 1970-01-01 00:00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Timestamp {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds past `seconds`, 0 to 999,999,999.
    pub nanoseconds: u32,
}

/// The owner of a file, as numbers; names are looked up when they are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Owner {
    /// User id.
    pub user: u32,
    /// Group id.
    pub group: u32,
}

/// The metadata of one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    /// File, directory, link or other.
    pub kind: FileKind,
    /// Length in bytes; meaningful for files.
    pub size: u64,
    /// Last change of the content.
    pub modified: Timestamp,
    /// Creation, where the back end knows it.
    pub created: Option<Timestamp>,
    /// Last change of content or metadata, by the machine's clock (ctime): it cannot be set. `None` where the back end
    /// does not know it.
    pub changed: Option<Timestamp>,
    /// Permission bits, as in `chmod` (0o7777).
    pub mode: u32,
    /// Owner and group.
    pub owner: Owner,
    /// Number of names that the file has.
    pub links: u32,
    /// Device and inode: equal for two names of one file, the `unique` fact of RFC 3659.
    pub identity: (u64, u64),
}

impl Metadata {
    /// Returns true if this is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Returns true if this is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == FileKind::File
    }
}

/// A change of an entry's attributes; `None` leaves one as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change {
    /// Last change of the content (`MFMT`, `SITE UTIME`).
    pub modified: Option<Timestamp>,
    /// Last access (`SITE UTIME`).
    pub accessed: Option<Timestamp>,
    /// Permission bits (`SITE CHMOD`).
    pub mode: Option<u32>,
    /// New owner (`SITE CHOWN`).
    pub user: Option<u32>,
    /// New group (`SITE CHGRP`).
    pub group: Option<u32>,
}
