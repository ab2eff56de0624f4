//! The forgetful disk as a mounted file system, by FUSE.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};
use rustix::io::Errno;

use crate::disk::{Content, Disk};

/// Names and attributes are asked for each time.
const NEVER: Duration = Duration::ZERO;

/// A disk that is shared with the file system that shows it.
pub(crate) type Shared = Arc<Mutex<Disk>>;

/// Mounts a disk until the session is dropped. `None`, with a line that says why, where that cannot be.
pub(crate) fn mount(disk: &Shared, at: &Path) -> Option<BackgroundSession> {
    let mounted: io::Result<BackgroundSession> =
        fuser::spawn_mount(Mounted(Arc::clone(disk)), at, &Config::default());
    match mounted {
        Ok(session) => Some(session),
        Err(error)
            if std::env::var_os("MILLRACE_REQUIRE_CLIENTS").is_some() && Path::new("/dev/fuse").exists() =>
        {
            panic!("no file system can be mounted: {error}")
        }
        Err(error) => {
            println!("SKIPPED: no file system can be mounted by FUSE here: {error}");
            None
        }
    }
}

pub(crate) fn lock(disk: &Shared) -> MutexGuard<'_, Disk> {
    disk.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Mounted(Shared);

fn failure(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.raw_os_error())
}

impl Mounted {
    fn attributes(disk: &Disk, inode: u64) -> Result<FileAttr, Errno> {
        let node = disk.node(inode)?;
        let (kind, size) = match &node.content {
            Content::Directory { .. } => (FileType::Directory, 0),
            Content::File { live, .. } => (FileType::RegularFile, live.len() as u64),
        };
        let nlink = if kind == FileType::Directory { 2 } else { disk.links(inode) };
        let time = node.modified;
        Ok(FileAttr {
            ino: INodeNo(inode),
            size,
            blocks: size.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm: node.mode as u16 & 0o7777,
            nlink,
            uid: node.owner.0,
            gid: node.owner.1,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    fn entry(&self, reply: ReplyEntry, make: impl FnOnce(&mut Disk) -> Result<u64, Errno>) {
        let mut disk = lock(&self.0);
        match make(&mut disk).and_then(|inode| Self::attributes(&disk, inode)) {
            Ok(attributes) => reply.entry(&NEVER, &attributes, Generation(0)),
            Err(errno) => reply.error(failure(errno)),
        }
    }

    fn empty(&self, reply: ReplyEmpty, change: impl FnOnce(&mut Disk) -> Result<(), Errno>) {
        match change(&mut lock(&self.0)) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(failure(errno)),
        }
    }
}

impl Filesystem for Mounted {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.entry(reply, |disk| disk.lookup(parent.0, name.as_bytes()));
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match Self::attributes(&lock(&self.0), inode.0) {
            Ok(attributes) => reply.attr(&NEVER, &attributes),
            Err(errno) => reply.error(failure(errno)),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut disk = lock(&self.0);
        let resized = size.map_or(Ok(()), |size| disk.truncate(inode.0, size as usize));
        if let Some(node) = disk.nodes.get_mut(&inode.0) {
            node.mode = mode.unwrap_or(node.mode);
            node.modified = match modified {
                Some(TimeOrNow::SpecificTime(time)) => time,
                Some(TimeOrNow::Now) => SystemTime::now(),
                None => node.modified,
            };
            node.owner = (uid.unwrap_or(node.owner.0), gid.unwrap_or(node.owner.1));
        }
        match resized.and_then(|()| Self::attributes(&disk, inode.0)) {
            Ok(attributes) => reply.attr(&NEVER, &attributes),
            Err(errno) => reply.error(failure(errno)),
        }
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let owner = (request.uid(), request.gid());
        self.entry(reply, |disk| disk.make(parent.0, name.as_bytes(), mode & !umask, owner, true));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.empty(reply, |disk| disk.remove(parent.0, name.as_bytes(), false));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.empty(reply, |disk| disk.remove(parent.0, name.as_bytes(), true));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = ((parent.0, name.as_bytes()), (new_parent.0, new_name.as_bytes()));
        if flags.contains(RenameFlags::RENAME_EXCHANGE) {
            return reply.error(fuser::Errno::EINVAL);
        }
        let may_replace = !flags.contains(RenameFlags::RENAME_NOREPLACE);
        self.empty(reply, |disk| disk.rename(from, to, may_replace));
    }

    fn link(&self, _: &Request, inode: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.entry(reply, |disk| disk.link(inode.0, parent.0, name.as_bytes()).map(|()| inode.0));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let mut disk = lock(&self.0);
        let owner = (request.uid(), request.gid());
        let made = disk.make(parent.0, name.as_bytes(), mode & !umask, owner, false);
        match made.and_then(|inode| Self::attributes(&disk, inode)) {
            Ok(attributes) => {
                reply.created(&NEVER, &attributes, Generation(0), FileHandle(0), FopenFlags::empty());
            }
            Err(errno) => reply.error(failure(errno)),
        }
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match lock(&self.0).bytes(inode.0) {
            Ok(bytes) => {
                let begin = bytes.len().min(offset as usize);
                reply.data(&bytes[begin..bytes.len().min(begin + size as usize)]);
            }
            Err(errno) => reply.error(failure(errno)),
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match lock(&self.0).write(inode.0, offset as usize, bytes) {
            Ok(()) => reply.written(bytes.len() as u32),
            Err(errno) => reply.error(failure(errno)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.empty(reply, |disk| disk.synchronise_bytes(inode.0));
    }

    fn fsyncdir(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.empty(reply, |disk| {
            disk.synchronise_names(inode.0);
            Ok(())
        });
    }

    fn readdir(&self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let disk = lock(&self.0);
        let names = match disk.names(inode.0) {
            Ok(names) => names,
            Err(errno) => return reply.error(failure(errno)),
        };
        let dots: [(&[u8], u64); 2] = [(b".", inode.0), (b"..", inode.0)];
        let names = names.iter().map(|(name, &inode)| (name.as_slice(), inode));
        for (number, (name, inode)) in dots.into_iter().chain(names).enumerate().skip(offset as usize) {
            let kind = match disk.names(inode) {
                Ok(_) => FileType::Directory,
                Err(_) => FileType::RegularFile,
            };
            if reply.add(INodeNo(inode), number as u64 + 1, kind, OsStr::from_bytes(name)) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        const BLOCKS: u64 = 1 << 20;
        reply.statfs(BLOCKS, BLOCKS, BLOCKS, BLOCKS, BLOCKS, 4096, 255, 4096);
    }
}
