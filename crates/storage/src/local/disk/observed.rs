//! The calls of `disk.rs` as tests make them: each is counted, may fail, and is told to the recorder of its thread.

use std::cell::RefCell;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    Access, AtFlags, FlockOperation, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Stat, StatFs, StatVfs,
    Statx, StatxFlags, Timestamps, Uid, XattrFlags,
};
use rustix::io::{Errno, Result};
use rustix::path::Arg;

use super::recorder::Recorder;

/// What this thread's calls are put through.
#[derive(Debug, Default)]
pub(in super::super) struct Watch {
    /// The calls made so far.
    pub(in super::super) made: Vec<&'static str>,
    /// Which of them fail.
    pub(in super::super) failure: Option<Failure>,
    /// Whether nothing is waited for, which a simulated disk need not.
    pub(in super::super) skips_waits: bool,
    /// What every file system looks like, where that is another than it is.
    pub(in super::super) file_system: Option<Looks>,
    pub(in super::super) recorder: Option<Recorder>,
}

/// A kind of file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Looks {
    Nfs,
    /// Synchronises nothing of a file without a name: the call fails here, so that a test sees it.
    Btrfs,
}

/// A fault of the disk.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Failure {
    /// Which calls count.
    pub(in super::super) among: &'static [&'static str],
    /// The number of the call that fails, from 1.
    pub(in super::super) at: usize,
    /// Whether those after it fail, too.
    pub(in super::super) for_ever: bool,
    pub(in super::super) errno: Errno,
}

/// Every call.
pub(in super::super) const ALL: &[&str] = &[];

/// The calls that wait for the device.
pub(in super::super) const WAITS: &[&str] = &["fdatasync", "fsync", "close"];

thread_local! {
    static WATCH: RefCell<Watch> = RefCell::default();
}

/// Does something with the watch of this thread.
pub(in super::super) fn with_watch<T>(act: impl FnOnce(&mut Watch) -> T) -> T {
    WATCH.with_borrow_mut(act)
}

/// Counts a call, and has it fail where that was asked for.
pub(super) fn watch(call: &'static str) -> Result<()> {
    with_watch(|watch| {
        watch.made.push(call);
        let Some(Failure { among, at, for_ever, errno }) = watch.failure else { return Ok(()) };
        let counts = |call: &&str| among.is_empty() || among.contains(call);
        let number = watch.made.iter().filter(|call| counts(call)).count();
        match counts(&call) && (number == at || for_ever && number > at) {
            true => Err(errno),
            false => Ok(()),
        }
    })
}

fn record(tell: impl FnOnce(&mut Recorder)) {
    // The recorder's own calls are not watched, so it may be outside of the watch meanwhile.
    if let Some(mut recorder) = with_watch(|watch| watch.recorder.take()) {
        tell(&mut recorder);
        with_watch(|watch| watch.recorder = Some(recorder));
    }
}

fn name_of(path: &impl Arg) -> Vec<u8> {
    path.as_cow_c_str().map(|name| name.to_bytes().to_vec()).unwrap_or_default()
}

pub(in super::super) fn open<P: Arg>(path: P, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    watch("open")?;
    rustix::fs::open(path, flags, mode)
}

pub(in super::super) fn openat<P: Arg, Fd: AsFd>(
    directory: Fd,
    path: P,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd> {
    watch("openat")?;
    let (directory, name) = (directory.as_fd(), name_of(&path));
    let there =
        flags.contains(OFlags::CREATE) && rustix::fs::statat(directory, &name, AtFlags::empty()).is_ok();
    let opened = rustix::fs::openat(directory, path, flags, mode)?;
    record(|recorder| recorder.opened(&opened, flags, there));
    Ok(opened)
}

pub(in super::super) fn openat2<P: Arg, Fd: AsFd>(
    directory: Fd,
    path: P,
    flags: OFlags,
    mode: Mode,
    resolve: ResolveFlags,
) -> Result<OwnedFd> {
    watch("openat2")?;
    let (directory, name) = (directory.as_fd(), name_of(&path));
    let there =
        flags.contains(OFlags::CREATE) && rustix::fs::statat(directory, &name, AtFlags::empty()).is_ok();
    let opened = rustix::fs::openat2(directory, path, flags, mode, resolve)?;
    record(|recorder| recorder.opened(&opened, flags, there));
    Ok(opened)
}

pub(in super::super) fn mkdirat<P: Arg, Fd: AsFd>(directory: Fd, path: P, mode: Mode) -> Result<()> {
    watch("mkdirat")?;
    let (directory, name) = (directory.as_fd(), name_of(&path));
    rustix::fs::mkdirat(directory, path, mode)?;
    record(|recorder| recorder.named(directory, &name));
    Ok(())
}

pub(in super::super) fn symlinkat<P: Arg, Q: Arg, Fd: AsFd>(text: P, directory: Fd, path: Q) -> Result<()> {
    watch("symlinkat")?;
    let (directory, name) = (directory.as_fd(), name_of(&path));
    rustix::fs::symlinkat(text, directory, path)?;
    record(|recorder| recorder.named(directory, &name));
    Ok(())
}

pub(in super::super) fn linkat<P: Arg, Q: Arg, F: AsFd, D: AsFd>(
    old: F,
    old_path: P,
    directory: D,
    path: Q,
    flags: AtFlags,
) -> Result<()> {
    watch("linkat")?;
    let (directory, name) = (directory.as_fd(), name_of(&path));
    rustix::fs::linkat(old, old_path, directory, path, flags)?;
    record(|recorder| recorder.named(directory, &name));
    Ok(())
}

pub(in super::super) fn unlinkat<P: Arg, Fd: AsFd>(directory: Fd, path: P, flags: AtFlags) -> Result<()> {
    watch("unlinkat")?;
    let (directory, name) = (directory.as_fd(), name_of(&path));
    rustix::fs::unlinkat(directory, path, flags)?;
    record(|recorder| recorder.removed(directory, &name));
    Ok(())
}

pub(in super::super) fn renameat<P: Arg, Q: Arg, F: AsFd, T: AsFd>(
    from: F,
    old: P,
    to: T,
    new: Q,
) -> Result<()> {
    renameat_with(from, old, to, new, RenameFlags::empty())
}

pub(in super::super) fn renameat_with<P: Arg, Q: Arg, F: AsFd, T: AsFd>(
    from: F,
    old: P,
    to: T,
    new: Q,
    flags: RenameFlags,
) -> Result<()> {
    watch("renameat")?;
    let (from, to, old_name, new_name) = (from.as_fd(), to.as_fd(), name_of(&old), name_of(&new));
    let are_one = Recorder::are_one((from, &old_name), (to, &new_name));
    rustix::fs::renameat_with(from, old, to, new, flags)?;
    if !are_one {
        record(|recorder| recorder.renamed((from, &old_name), (to, &new_name)));
    }
    Ok(())
}

pub(in super::super) fn pwrite<Fd: AsFd>(file: Fd, bytes: &[u8], offset: u64) -> Result<usize> {
    watch("pwrite")?;
    let file = file.as_fd();
    let end = rustix::fs::fstat(file)?.st_size.unsigned_abs();
    let written = rustix::io::pwrite(file, bytes, offset)?;
    let appends = rustix::fs::fcntl_getfl(file)?.contains(OFlags::APPEND);
    record(|recorder| recorder.written(file, if appends { end } else { offset }, &bytes[..written]));
    Ok(written)
}

pub(in super::super) fn pread<Fd: AsFd>(file: Fd, buffer: &mut [u8], offset: u64) -> Result<usize> {
    watch("pread")?;
    rustix::io::pread(file, buffer, offset)
}

pub(in super::super) fn copy_file_range<F: AsFd, T: AsFd>(
    from: F,
    read_at: Option<&mut u64>,
    to: T,
    write_at: Option<&mut u64>,
    most: usize,
) -> Result<usize> {
    watch("copy_file_range")?;
    let (from, to) = (from.as_fd(), to.as_fd());
    let (first, target) =
        (read_at.as_deref().copied().unwrap_or(0), write_at.as_deref().copied().unwrap_or(0));
    let count = rustix::fs::copy_file_range(from, read_at, to, write_at, most)?;
    let mut copied = vec![0; count];
    let read = rustix::io::pread(from, &mut copied[..], first)?;
    record(|recorder| recorder.written(to, target, &copied[..read]));
    Ok(count)
}

pub(in super::super) fn ftruncate<Fd: AsFd>(file: Fd, length: u64) -> Result<()> {
    watch("ftruncate")?;
    rustix::fs::ftruncate(file.as_fd(), length)?;
    record(|recorder| recorder.truncated(file.as_fd(), length));
    Ok(())
}

pub(in super::super) fn fsync<Fd: AsFd>(file: Fd) -> Result<()> {
    watch("fsync")?;
    if !with_watch(|watch| watch.skips_waits) {
        rustix::fs::fsync(file.as_fd())?;
    }
    record(|recorder| recorder.synchronised(file.as_fd()));
    Ok(())
}

pub(in super::super) fn fdatasync<Fd: AsFd>(file: Fd) -> Result<()> {
    watch("fdatasync")?;
    let is_btrfs = with_watch(|watch| watch.file_system == Some(Looks::Btrfs));
    if is_btrfs && rustix::fs::fstat(file.as_fd())?.st_nlink == 0 {
        return Err(Errno::IO);
    }
    if !with_watch(|watch| watch.skips_waits) {
        rustix::fs::fdatasync(file.as_fd())?;
    }
    record(|recorder| recorder.synchronised(file.as_fd()));
    Ok(())
}

pub(in super::super) fn fchmod<Fd: AsFd>(file: Fd, mode: Mode) -> Result<()> {
    watch("fchmod")?;
    rustix::fs::fchmod(file, mode)
}

pub(in super::super) fn chmodat<P: Arg, Fd: AsFd>(
    directory: Fd,
    path: P,
    mode: Mode,
    flags: AtFlags,
) -> Result<()> {
    watch("chmodat")?;
    rustix::fs::chmodat(directory, path, mode, flags)
}

pub(in super::super) fn fchown<Fd: AsFd>(file: Fd, user: Option<Uid>, group: Option<Gid>) -> Result<()> {
    watch("fchown")?;
    rustix::fs::fchown(file, user, group)
}

pub(in super::super) fn chownat<P: Arg, Fd: AsFd>(
    directory: Fd,
    path: P,
    user: Option<Uid>,
    group: Option<Gid>,
    flags: AtFlags,
) -> Result<()> {
    watch("chownat")?;
    rustix::fs::chownat(directory, path, user, group, flags)
}

pub(in super::super) fn utimensat<P: Arg, Fd: AsFd>(
    directory: Fd,
    path: P,
    times: &Timestamps,
    flags: AtFlags,
) -> Result<()> {
    watch("utimensat")?;
    rustix::fs::utimensat(directory, path, times, flags)
}

pub(in super::super) fn fgetxattr<Fd: AsFd>(file: Fd, name: &str, value: &mut [u8]) -> Result<usize> {
    watch("fgetxattr")?;
    rustix::fs::fgetxattr(file, name, value)
}

pub(in super::super) fn fsetxattr<Fd: AsFd>(
    file: Fd,
    name: &str,
    value: &[u8],
    flags: XattrFlags,
) -> Result<()> {
    watch("fsetxattr")?;
    rustix::fs::fsetxattr(file, name, value, flags)
}

pub(in super::super) fn fremovexattr<Fd: AsFd>(file: Fd, name: &str) -> Result<()> {
    watch("fremovexattr")?;
    rustix::fs::fremovexattr(file, name)
}

pub(in super::super) fn flock<Fd: AsFd>(file: Fd, operation: FlockOperation) -> Result<()> {
    watch("flock")?;
    rustix::fs::flock(file, operation)
}

pub(in super::super) fn fstat<Fd: AsFd>(file: Fd) -> Result<Stat> {
    watch("fstat")?;
    rustix::fs::fstat(file)
}

pub(in super::super) fn statat<P: Arg, Fd: AsFd>(directory: Fd, path: P, flags: AtFlags) -> Result<Stat> {
    watch("statat")?;
    rustix::fs::statat(directory, path, flags)
}

pub(in super::super) fn statx<P: Arg, Fd: AsFd>(
    directory: Fd,
    path: P,
    flags: AtFlags,
    mask: StatxFlags,
) -> Result<Statx> {
    watch("statx")?;
    rustix::fs::statx(directory, path, flags, mask)
}

pub(in super::super) fn fstatfs<Fd: AsFd>(file: Fd) -> Result<StatFs> {
    watch("fstatfs")?;
    let mut stat = rustix::fs::fstatfs(file)?;
    // The numbers are those of `linux/magic.h`.
    match with_watch(|watch| watch.file_system) {
        Some(Looks::Nfs) => stat.f_type = 0x6969,
        Some(Looks::Btrfs) => stat.f_type = 0x9123_683e,
        None => {}
    }
    Ok(stat)
}

pub(in super::super) fn fstatvfs<Fd: AsFd>(file: Fd) -> Result<StatVfs> {
    watch("fstatvfs")?;
    rustix::fs::fstatvfs(file)
}

pub(in super::super) fn access<P: Arg>(path: P, access: Access) -> Result<()> {
    watch("access")?;
    rustix::fs::access(path, access)
}

pub(in super::super) fn accessat<P: Arg, Fd: AsFd>(
    directory: Fd,
    path: P,
    access: Access,
    flags: AtFlags,
) -> Result<()> {
    watch("accessat")?;
    rustix::fs::accessat(directory, path, access, flags)
}

pub(in super::super) fn readlinkat<P: Arg, Fd: AsFd>(
    directory: Fd,
    path: P,
    reuse: Vec<u8>,
) -> Result<CString> {
    watch("readlinkat")?;
    rustix::fs::readlinkat(directory, path, reuse)
}
