//! `statx` answers as [`Metadata`], and file systems as [`Readiness`].

use std::ffi::CStr;
use std::os::fd::AsFd;

use millrace_vfs::{FileError, FileKind, Metadata, Owner, Readiness, Special, Timestamp};
use rustix::fs::{AtFlags, FileType, Mode, Statx, StatxFlags, StatxTimestamp};

use super::disk;
use super::errno::file_error;

/// Everything that [`Metadata`] holds.
const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// The metadata of an open file.
pub(super) fn of_descriptor(fd: impl AsFd) -> Result<Metadata, FileError> {
    disk::statx(fd, c"", AtFlags::EMPTY_PATH, WANTED).map(convert).map_err(file_error)
}

/// The metadata of the entry `name` of an open directory; a link is not followed.
pub(super) fn of_entry<P: rustix::path::Arg>(directory: impl AsFd, name: P) -> Result<Metadata, FileError> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    disk::statx(directory, name, flags, WANTED).map(convert).map_err(file_error)
}

/// The same of several names, where this thread acts as a user, so that not each waits for the user's process.
pub(super) fn of_each_entry(
    directory: impl AsFd,
    names: &[&CStr],
) -> Option<Vec<Result<Metadata, FileError>>> {
    let stats = disk::acting::statx_each(directory, names, WANTED)?;
    Some(stats.into_iter().map(|stat| stat.map(convert).map_err(file_error)).collect())
}

/// Restores the permission bits that the process's umask removed, and leaves those inherited from the directory (the
/// group's bit). It only adds bits.
pub(super) fn widen(fd: impl AsFd, mode: u32, bits: Mode) {
    let wanted = (mode & 0o7000) | bits.as_raw_mode();
    if mode & 0o7777 != wanted {
        let _ = disk::fchmod(fd, Mode::from_raw_mode(wanted));
    }
}

fn convert(stat: Statx) -> Metadata {
    let mode = u32::from(stat.stx_mode);
    let has_birth = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    Metadata {
        kind: kind(mode),
        size: stat.stx_size,
        modified: timestamp(stat.stx_mtime),
        created: has_birth.then(|| timestamp(stat.stx_btime)),
        changed: Some(timestamp(stat.stx_ctime)),
        mode: mode & 0o7777,
        owner: Owner { user: stat.stx_uid, group: stat.stx_gid },
        links: stat.stx_nlink,
        identity: (rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino),
    }
}

/// A program with one of these runs as its owner or group. Clients cannot set them, and they do not outlive the file's
/// content: the server may run as a user with more rights than the client.
pub(super) const SET_ID: u32 = 0o6000;

fn kind(mode: u32) -> FileKind {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Socket => FileKind::Other(Special::Socket),
        FileType::CharacterDevice => FileKind::Other(Special::CharacterDevice),
        FileType::BlockDevice => FileKind::Other(Special::BlockDevice),
        FileType::Fifo | FileType::Unknown => FileKind::Other(Special::Pipe),
    }
}

fn timestamp(time: StatxTimestamp) -> Timestamp {
    Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec }
}

/// File systems of this machine, whose cached pages and directory entries are answered without the network. Numbers
/// from `linux/magic.h` and the file systems' own headers.
const LOCAL_FILE_SYSTEMS: &[(u32, &str)] = &[
    (0x0000_ef53, "ext2, ext3, ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x794c_7630, "overlayfs"),
    (0xf2f5_2010, "f2fs"),
    (0x2fc1_2fc1, "zfs"),
    (0xca45_1a4e, "bcachefs"),
    (0x3153_464a, "jfs"),
    (0x5265_4973, "reiserfs"),
    (0x0000_4d44, "vfat"),
    (0x2011_bab0, "exfat"),
    (0x7366_746e, "ntfs3"),
    (0x7371_7368, "squashfs"),
    (0xe0f5_e1e2, "erofs"),
    (0x0000_9660, "iso9660"),
    (0x1501_3346, "udf"),
];

/// Of these it is known that they write the size of a synchronised file that has no name; or they keep nothing anyway.
const KEEP_UNNAMED: [u32; 4] = [0x0000_ef53, 0x5846_5342, 0x0102_1994, 0x8584_58f6];

/// Returns whether a file may be synchronised before it has a name.
pub(super) fn keeps_unnamed(fd: impl AsFd) -> bool {
    magic(fd).is_some_and(|magic| KEEP_UNNAMED.contains(&magic))
}

/// Whether a reactor thread may touch what lies on the file system of this descriptor. FUSE, NFS, CIFS,
/// 9p and whatever is unknown may hang.
pub(super) fn readiness_of(fd: impl AsFd) -> Readiness {
    let Some(magic) = magic(fd) else { return Readiness::MayHang };
    match LOCAL_FILE_SYSTEMS.iter().any(|&(local, _)| local == magic) {
        true => Readiness::Cached,
        false => Readiness::MayHang,
    }
}

/// The number of the file system's kind.
fn magic(fd: impl AsFd) -> Option<u32> {
    let stat = disk::fstatfs(fd).ok()?;
    // The magic is 32 bits wide; the kernel's field is wider, and signed on some machines.
    #[allow(clippy::unnecessary_cast)]
    Some(stat.f_type as u32)
}
