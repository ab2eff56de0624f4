//! The calls that `user-files` makes with the rights of its user: those for which the kernel looks at rights.
//!
//! What an open file can be used for was decided when it was opened, so reading, writing and looking need no call here:
//! the server opens a name with `O_PATH`, and looks at the descriptor.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{
    Access, AtFlags, CWD, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Timespec, Timestamps, Uid,
};
use rustix::io::Errno;

use crate::policy::LONGEST_PATH;
use crate::wire::{Reader, Writer, malformed};

/// A call. Names are one component; paths may have several, and stay beneath the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileCall<'a> {
    /// `openat2` beneath the directory.
    Open {
        /// The path, `.` for the directory itself.
        path: &'a [u8],
        /// The flags, of which some are refused.
        flags: u32,
        /// The permission bits of a file that it makes.
        mode: u32,
        /// What is added to `RESOLVE_BENEATH` and `RESOLVE_NO_MAGICLINKS`.
        resolve: u64,
    },
    /// `mkdirat`.
    MakeDirectory {
        /// The name.
        name: &'a [u8],
        /// The permission bits.
        mode: u32,
    },
    /// `unlinkat`.
    Remove {
        /// The name.
        name: &'a [u8],
        /// Whether it is a directory (`AT_REMOVEDIR`).
        is_directory: bool,
    },
    /// `renameat2` from the first directory to the second.
    Rename {
        /// The old name.
        old: &'a [u8],
        /// The new name.
        new: &'a [u8],
        /// The flags: none, or `RENAME_NOREPLACE`.
        flags: u32,
    },
    /// `linkat` from the first directory to the second.
    Link {
        /// The old name.
        old: &'a [u8],
        /// The new name.
        new: &'a [u8],
    },
    /// `linkat` of the first descriptor, a file, into the second, a directory.
    LinkFile {
        /// The new name.
        name: &'a [u8],
    },
    /// `symlinkat`.
    MakeSymlink {
        /// The text of the link.
        text: &'a [u8],
        /// The name.
        name: &'a [u8],
    },
    /// `fchmod`, also of a descriptor of `O_PATH`.
    SetMode {
        /// The permission bits.
        mode: u32,
    },
    /// `fchownat` of the descriptor.
    SetOwner {
        /// The new user.
        user: Option<u32>,
        /// The new group.
        group: Option<u32>,
    },
    /// `utimensat` of the descriptor: seconds and nanoseconds, as the call has them.
    SetTimes {
        /// The time of the last access.
        accessed: (i64, i64),
        /// That of the last change.
        modified: (i64, i64),
    },
    /// `faccessat2` with `AT_EACCESS`.
    Check {
        /// The name, `.` for the directory itself.
        name: &'a [u8],
        /// What is asked for.
        access: u32,
    },
    /// `openat2` of names in the directory, to be looked at (`O_PATH`), links too, up to the first that fails.
    LookAt {
        /// At most [`MOST_LOOKED_AT`] names, with a slash between them.
        names: &'a [u8],
    },
}

/// Names in a [`FileCall::LookAt`]: as many descriptors as come back.
pub(crate) const MOST_LOOKED_AT: usize = 64;

/// Bytes of names in a [`FileCall::LookAt`].
pub(crate) const LONGEST_LOOKED_AT: usize = 8 * 1024;

impl<'a> FileCall<'a> {
    /// Reads a call. Every byte of the message has to belong to it.
    pub fn read(message: &'a [u8]) -> io::Result<Self> {
        let mut reader = Reader::new(message);
        let call = match reader.byte()? {
            0 => Self::Open {
                path: reader.text(LONGEST_PATH)?,
                flags: reader.number()?,
                mode: reader.number()?,
                resolve: reader.long()?,
            },
            1 => Self::MakeDirectory { name: name(&mut reader)?, mode: reader.number()? },
            2 => Self::Remove { name: name(&mut reader)?, is_directory: reader.flag()? },
            3 => Self::Rename { old: name(&mut reader)?, new: name(&mut reader)?, flags: reader.number()? },
            4 => Self::Link { old: name(&mut reader)?, new: name(&mut reader)? },
            5 => Self::LinkFile { name: name(&mut reader)? },
            6 => Self::MakeSymlink { text: reader.text(LONGEST_PATH)?, name: name(&mut reader)? },
            7 => Self::SetMode { mode: reader.number()? },
            8 => Self::SetOwner { user: number(&mut reader)?, group: number(&mut reader)? },
            9 => Self::SetTimes { accessed: time(&mut reader)?, modified: time(&mut reader)? },
            10 => Self::Check { name: name_or_itself(&mut reader)?, access: reader.number()? },
            11 => Self::LookAt { names: names(&mut reader)? },
            _ => return Err(malformed()),
        };
        reader.end()?;
        Ok(call)
    }

    /// Writes it as [`FileCall::read`] reads it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match *self {
            Self::Open { path, flags, mode, resolve } => {
                out.byte(0);
                out.text(path);
                out.number(flags);
                out.number(mode);
                out.long(resolve);
            }
            Self::MakeDirectory { name, mode } => {
                out.byte(1);
                out.text(name);
                out.number(mode);
            }
            Self::Remove { name, is_directory } => {
                out.byte(2);
                out.text(name);
                out.flag(is_directory);
            }
            Self::Rename { old, new, flags } => {
                out.byte(3);
                out.text(old);
                out.text(new);
                out.number(flags);
            }
            Self::Link { old, new } => {
                out.byte(4);
                out.text(old);
                out.text(new);
            }
            Self::LinkFile { name } => {
                out.byte(5);
                out.text(name);
            }
            Self::MakeSymlink { text, name } => {
                out.byte(6);
                out.text(text);
                out.text(name);
            }
            Self::SetMode { mode } => {
                out.byte(7);
                out.number(mode);
            }
            Self::SetOwner { user, group } => {
                out.byte(8);
                write_number(&mut out, user);
                write_number(&mut out, group);
            }
            Self::SetTimes { accessed, modified } => {
                out.byte(9);
                for (seconds, nanoseconds) in [accessed, modified] {
                    out.long(seconds.cast_unsigned());
                    out.long(nanoseconds.cast_unsigned());
                }
            }
            Self::Check { name, access } => {
                out.byte(10);
                out.text(name);
                out.number(access);
            }
            Self::LookAt { names } => {
                out.byte(11);
                out.text(names);
            }
        }
        out.into_bytes()
    }

    /// How many descriptors come with it.
    pub fn descriptors(&self) -> usize {
        match self {
            Self::Rename { .. } | Self::Link { .. } | Self::LinkFile { .. } => 2,
            _ => 1,
        }
    }

    /// Makes the call, as the user that this process is, and adds what it opens, also before it fails.
    pub(crate) fn perform(
        &self,
        descriptors: &[OwnedFd],
        opened: &mut Vec<OwnedFd>,
    ) -> rustix::io::Result<()> {
        let (first, last) = match descriptors {
            [first] if self.descriptors() == 1 => (first, first),
            [first, last] if self.descriptors() == 2 => (first, last),
            _ => return Err(Errno::INVAL),
        };
        match *self {
            Self::Open { path, flags, mode, resolve } => {
                open(first, path, flags, mode, resolve).map(|file| opened.push(file))
            }
            Self::MakeDirectory { name, mode } => {
                rustix::fs::mkdirat(first, name, Mode::from_raw_mode(mode & 0o7777))
            }
            Self::Remove { name, is_directory } => {
                let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                rustix::fs::unlinkat(first, name, flags)
            }
            Self::Rename { old, new, flags } => match RenameFlags::from_bits_retain(flags) {
                flags if flags.is_empty() => rustix::fs::renameat(first, old, last, new),
                flags if flags == RenameFlags::NOREPLACE => {
                    rustix::fs::renameat_with(first, old, last, new, flags)
                }
                _ => Err(Errno::PERM),
            },
            Self::Link { old, new } => rustix::fs::linkat(first, old, last, new, AtFlags::empty()),
            Self::LinkFile { name } => link_file(first, last, name),
            Self::MakeSymlink { text, name } => rustix::fs::symlinkat(text, first, name),
            Self::SetMode { mode } => set_mode(first, mode),
            Self::SetOwner { user, group } => {
                let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
                rustix::fs::chownat(first, c"", user, group, AtFlags::EMPTY_PATH)
            }
            Self::SetTimes { accessed, modified } => {
                let times =
                    Timestamps { last_access: timespec(accessed), last_modification: timespec(modified) };
                rustix::fs::utimensat(first, c"", &times, AtFlags::EMPTY_PATH)
            }
            Self::Check { name, access } => {
                let access = Access::from_bits(access as _).ok_or(Errno::INVAL)?;
                rustix::fs::accessat(first, name, access, AtFlags::EACCESS)
            }
            Self::LookAt { names } => names.split(|byte| *byte == b'/').try_for_each(|name| {
                let flags = (OFlags::PATH | OFlags::NOFOLLOW).bits();
                open(first, name, flags, 0, 0).map(|file| opened.push(file))
            }),
        }
    }
}

/// What files are opened with.
const FLAGS: OFlags = OFlags::WRONLY
    .union(OFlags::RDWR)
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::TRUNC)
    .union(OFlags::APPEND)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::DIRECTORY)
    .union(OFlags::TMPFILE)
    .union(OFlags::PATH)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// No path leads out of the directory, and none goes by the descriptors of this process.
const CONFINED: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// Bits that would have a program run as the user.
const SET_ID: u32 = 0o6000;

fn open(
    directory: &OwnedFd,
    path: &[u8],
    flags: u32,
    mode: u32,
    resolve: u64,
) -> rustix::io::Result<OwnedFd> {
    let (flags, resolve) = (OFlags::from_bits_retain(flags), ResolveFlags::from_bits_retain(resolve));
    if !FLAGS.contains(flags) {
        return Err(Errno::PERM);
    }
    let makes = flags.intersects(OFlags::CREATE) || flags.contains(OFlags::TMPFILE);
    let mode = if makes { Mode::from_raw_mode(mode & 0o7777 & !SET_ID) } else { Mode::empty() };
    rustix::fs::openat2(directory, path, flags | OFlags::CLOEXEC, mode, resolve | CONFINED)
}

fn link_file(file: &OwnedFd, directory: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
    // By descriptor from Linux 6.10 on, else through /proc.
    match rustix::fs::linkat(file, c"", directory, name, AtFlags::EMPTY_PATH) {
        Err(Errno::NOENT) => {
            rustix::fs::linkat(CWD, name_in_proc(file), directory, name, AtFlags::SYMLINK_FOLLOW)
        }
        linked => linked,
    }
}

fn set_mode(file: &OwnedFd, mode: u32) -> rustix::io::Result<()> {
    if mode & SET_ID != 0 && !is_directory(file)? {
        return Err(Errno::PERM);
    }
    let mode = Mode::from_raw_mode(mode & 0o7777);
    match rustix::fs::fchmod(file, mode) {
        // A descriptor of `O_PATH`.
        Err(Errno::BADF) => rustix::fs::chmodat(CWD, name_in_proc(file), mode, AtFlags::empty()),
        changed => changed,
    }
}

fn is_directory(file: &OwnedFd) -> rustix::io::Result<bool> {
    let mode = rustix::fs::fstat(file)?.st_mode;
    Ok(rustix::fs::FileType::from_raw_mode(mode) == rustix::fs::FileType::Directory)
}

fn name_in_proc(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

fn timespec((tv_sec, tv_nsec): (i64, i64)) -> Timespec {
    Timespec { tv_sec, tv_nsec }
}

/// Reads one component, which leads neither up nor to the directory itself.
fn name<'a>(reader: &mut Reader<'a>) -> io::Result<&'a [u8]> {
    Some(name_or_itself(reader)?).filter(|name| *name != b".").ok_or_else(malformed)
}

fn name_or_itself<'a>(reader: &mut Reader<'a>) -> io::Result<&'a [u8]> {
    let name = reader.text(LONGEST_PATH)?;
    if name.is_empty() || name == b".." || name.contains(&b'/') { Err(malformed()) } else { Ok(name) }
}

fn names<'a>(reader: &mut Reader<'a>) -> io::Result<&'a [u8]> {
    let names = reader.text(LONGEST_LOOKED_AT)?;
    let each = || names.split(|byte| *byte == b'/');
    let is_wrong = |name: &[u8]| matches!(name, b"" | b"." | b"..");
    if each().any(is_wrong) || each().count() > MOST_LOOKED_AT { Err(malformed()) } else { Ok(names) }
}

fn number(reader: &mut Reader<'_>) -> io::Result<Option<u32>> {
    Ok(if reader.flag()? { Some(reader.number()?) } else { None })
}

fn write_number(out: &mut Writer, number: Option<u32>) {
    out.flag(number.is_some());
    number.iter().for_each(|number| out.number(*number));
}

fn time(reader: &mut Reader<'_>) -> io::Result<(i64, i64)> {
    Ok((reader.long()?.cast_signed(), reader.long()?.cast_signed()))
}
