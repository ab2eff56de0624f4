//! The calls of `disk.rs` for which the kernel looks at rights, made with those of the user that the thread acts as.
//!
//! A thread acts as a user for the time of one call of a storage ([`as_user`]), as a thread of the kernel does with
//! `override_creds`. Then a process that has the user's rights makes the call ([`UserFiles`]); without a user, and for
//! what needs no right, this thread does. Where a caller forgot to say as whom it acts, the server's own user does, who
//! has fewer rights than any other.
//!
//! To look at a name is to open it with `O_PATH`, which takes the same rights, and to look at the descriptor.

use std::cell::RefCell;
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use millrace_privsep::UserFiles;
use rustix::fs::{
    Access, AtFlags, CWD, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Stat, Statx, StatxFlags, Timestamps,
    Uid,
};
use rustix::io::{Errno, Result};
use rustix::path::Arg;

thread_local! {
    static USER: RefCell<Option<Arc<UserFiles>>> = const { RefCell::new(None) };
}

/// Does something as this user.
pub fn as_user<T>(user: &Arc<UserFiles>, act: impl FnOnce() -> T) -> T {
    struct Restore(Option<Arc<UserFiles>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            USER.set(self.0.take());
        }
    }
    let _restore = Restore(USER.replace(Some(Arc::clone(user))));
    act()
}

/// Returns whether this thread acts as a user.
pub(crate) fn is_user() -> bool {
    USER.with_borrow(Option::is_some)
}

/// The user that this thread acts as.
fn user() -> Option<Arc<UserFiles>> {
    USER.with_borrow(Clone::clone)
}

/// The number of the user to whom new files belong.
pub(crate) fn owner() -> u32 {
    user().map_or_else(|| rustix::process::geteuid().as_raw(), |user| user.user())
}

/// Gives an open file a name, where this thread acts as a user.
pub(crate) fn link_file(file: impl AsFd, directory: impl AsFd, name: &[u8]) -> Option<Result<()>> {
    user().map(|user| user.link_file(file.as_fd(), directory.as_fd(), name))
}

/// Changes the bits of a file that is open to be looked at only, where this thread acts as a user.
pub(crate) fn set_mode(file: impl AsFd, mode: Mode) -> Option<Result<()>> {
    user().map(|user| user.set_mode(file.as_fd(), mode))
}

/// Opens a name to be looked at.
fn look(user: &UserFiles, directory: impl AsFd, path: impl Arg, flags: AtFlags) -> Result<OwnedFd> {
    let follow = match flags.contains(AtFlags::SYMLINK_NOFOLLOW) {
        true => OFlags::NOFOLLOW,
        false => OFlags::empty(),
    };
    open(user, directory.as_fd(), path, OFlags::PATH | follow, Mode::empty(), ResolveFlags::empty())
}

/// What `statx` says of names in a directory, links not followed, where this thread acts as a user.
pub(crate) fn statx_each(
    directory: impl AsFd,
    names: &[&CStr],
    mask: StatxFlags,
) -> Option<Vec<Result<Statx>>> {
    let user = user()?;
    let look = |found: Result<OwnedFd>| rustix::fs::statx(found?, c"", AtFlags::EMPTY_PATH, mask);
    // As many descriptors are open at a time.
    let look_at = |names: &[&CStr]| {
        let names: Vec<&[u8]> = names.iter().map(|name| name.to_bytes()).collect();
        user.look_at(directory.as_fd(), &names).into_iter().map(look).collect::<Vec<_>>()
    };
    Some(names.chunks(UserFiles::LOOKED_AT).flat_map(look_at).collect())
}

fn open(
    user: &UserFiles,
    directory: BorrowedFd<'_>,
    path: impl Arg,
    flags: OFlags,
    mode: Mode,
    resolve: ResolveFlags,
) -> Result<OwnedFd> {
    path.into_with_c_str(|path| user.open(directory, path.to_bytes(), flags, mode, resolve))
}

pub(crate) fn openat<P: Arg, Fd: AsFd>(directory: Fd, path: P, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    match user() {
        None => rustix::fs::openat(directory, path, flags, mode),
        Some(user) => open(&user, directory.as_fd(), path, flags, mode, ResolveFlags::empty()),
    }
}

pub(crate) fn openat2<P: Arg, Fd: AsFd>(
    directory: Fd,
    path: P,
    flags: OFlags,
    mode: Mode,
    resolve: ResolveFlags,
) -> Result<OwnedFd> {
    match user() {
        // The path of a root is the operator's, and the server's own to find.
        Some(user) if directory.as_fd().as_raw_fd() != CWD.as_raw_fd() => {
            open(&user, directory.as_fd(), path, flags, mode, resolve)
        }
        _ => rustix::fs::openat2(directory, path, flags, mode, resolve),
    }
}

pub(crate) fn statat<P: Arg, Fd: AsFd>(directory: Fd, path: P, flags: AtFlags) -> Result<Stat> {
    match user() {
        None => rustix::fs::statat(directory, path, flags),
        Some(user) => rustix::fs::fstat(look(&user, directory, path, flags)?),
    }
}

pub(crate) fn statx<P: Arg, Fd: AsFd>(
    directory: Fd,
    path: P,
    flags: AtFlags,
    mask: StatxFlags,
) -> Result<Statx> {
    match user() {
        Some(user) if !flags.contains(AtFlags::EMPTY_PATH) => {
            rustix::fs::statx(look(&user, directory, path, flags)?, c"", AtFlags::EMPTY_PATH, mask)
        }
        _ => rustix::fs::statx(directory, path, flags, mask),
    }
}

pub(crate) fn readlinkat<P: Arg, Fd: AsFd>(
    directory: Fd,
    path: P,
    reuse: Vec<u8>,
) -> Result<std::ffi::CString> {
    match user() {
        None => rustix::fs::readlinkat(directory, path, reuse),
        Some(user) => {
            rustix::fs::readlinkat(look(&user, directory, path, AtFlags::SYMLINK_NOFOLLOW)?, c"", reuse)
        }
    }
}

pub(crate) fn accessat<P: Arg, Fd: AsFd>(
    directory: Fd,
    path: P,
    access: Access,
    flags: AtFlags,
) -> Result<()> {
    match user() {
        None => rustix::fs::accessat(directory, path, access, flags),
        Some(user) => path.into_with_c_str(|name| user.check(directory.as_fd(), name.to_bytes(), access)),
    }
}

pub(crate) fn mkdirat<P: Arg, Fd: AsFd>(directory: Fd, path: P, mode: Mode) -> Result<()> {
    match user() {
        None => rustix::fs::mkdirat(directory, path, mode),
        Some(user) => {
            path.into_with_c_str(|name| user.make_directory(directory.as_fd(), name.to_bytes(), mode))
        }
    }
}

pub(crate) fn unlinkat<P: Arg, Fd: AsFd>(directory: Fd, path: P, flags: AtFlags) -> Result<()> {
    match user() {
        None => rustix::fs::unlinkat(directory, path, flags),
        Some(user) => path.into_with_c_str(|name| {
            user.remove(directory.as_fd(), name.to_bytes(), flags.contains(AtFlags::REMOVEDIR))
        }),
    }
}

pub(crate) fn renameat<P: Arg, Q: Arg, F: AsFd, D: AsFd>(from: F, old: P, to: D, new: Q) -> Result<()> {
    match user() {
        None => rustix::fs::renameat(from, old, to, new),
        Some(_) => renameat_with(from, old, to, new, RenameFlags::empty()),
    }
}

pub(crate) fn renameat_with<P: Arg, Q: Arg, F: AsFd, D: AsFd>(
    from: F,
    old: P,
    to: D,
    new: Q,
    flags: RenameFlags,
) -> Result<()> {
    match user() {
        None => rustix::fs::renameat_with(from, old, to, new, flags),
        Some(user) => old.into_with_c_str(|old| {
            new.into_with_c_str(|new| {
                user.rename(from.as_fd(), old.to_bytes(), to.as_fd(), new.to_bytes(), flags)
            })
        }),
    }
}

pub(crate) fn linkat<P: Arg, Q: Arg, F: AsFd, D: AsFd>(
    from: F,
    old: P,
    to: D,
    new: Q,
    flags: AtFlags,
) -> Result<()> {
    match user() {
        None => rustix::fs::linkat(from, old, to, new, flags),
        Some(user) if flags.is_empty() => old.into_with_c_str(|old| {
            new.into_with_c_str(|new| user.link(from.as_fd(), old.to_bytes(), to.as_fd(), new.to_bytes()))
        }),
        // An open file is linked by `link_file`.
        Some(_) => Err(Errno::INVAL),
    }
}

pub(crate) fn symlinkat<P: Arg, Q: Arg, Fd: AsFd>(text: P, directory: Fd, path: Q) -> Result<()> {
    match user() {
        None => rustix::fs::symlinkat(text, directory, path),
        Some(user) => text.into_with_c_str(|text| {
            path.into_with_c_str(|name| {
                user.make_symlink(text.to_bytes(), directory.as_fd(), name.to_bytes())
            })
        }),
    }
}

pub(crate) fn chmodat<P: Arg, Fd: AsFd>(directory: Fd, path: P, mode: Mode, flags: AtFlags) -> Result<()> {
    match user() {
        None => rustix::fs::chmodat(directory, path, mode, flags),
        Some(user) => user.set_mode(look(&user, directory, path, flags)?.as_fd(), mode),
    }
}

pub(crate) fn fchmod<Fd: AsFd>(file: Fd, mode: Mode) -> Result<()> {
    match user() {
        None => rustix::fs::fchmod(file, mode),
        Some(user) => user.set_mode(file.as_fd(), mode),
    }
}

pub(crate) fn chownat<P: Arg, Fd: AsFd>(
    file: Fd,
    path: P,
    owner: Option<Uid>,
    group: Option<Gid>,
    flags: AtFlags,
) -> Result<()> {
    match user() {
        None => rustix::fs::chownat(file, path, owner, group, flags),
        Some(user) if flags.contains(AtFlags::EMPTY_PATH) => user.set_owner(file.as_fd(), owner, group),
        Some(user) => user.set_owner(look(&user, file, path, flags)?.as_fd(), owner, group),
    }
}

pub(crate) fn fchown<Fd: AsFd>(file: Fd, owner: Option<Uid>, group: Option<Gid>) -> Result<()> {
    match user() {
        None => rustix::fs::fchown(file, owner, group),
        Some(user) => user.set_owner(file.as_fd(), owner, group),
    }
}

pub(crate) fn utimensat<P: Arg, Fd: AsFd>(
    file: Fd,
    path: P,
    times: &Timestamps,
    flags: AtFlags,
) -> Result<()> {
    match user() {
        None => rustix::fs::utimensat(file, path, times, flags),
        Some(user) if flags.contains(AtFlags::EMPTY_PATH) => user.set_times(file.as_fd(), times),
        Some(user) => user.set_times(look(&user, file, path, flags)?.as_fd(), times),
    }
}
