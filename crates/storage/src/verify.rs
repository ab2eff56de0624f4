//! Compares the files beneath a directory with the hashes that their uploads have stored with them.
//!
//! One thread walks the tree and holds one open directory for each level; the others read files, each through one
//! buffer. Nothing is collected, so memory does not grow with the tree.

use std::fs::{self, File, OpenOptions, ReadDir};
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use millrace_vfs::Timestamp;
use millrace_vfs::hash::{Hashers, Hashes, StoredHashes};
use rustix::fs::{Advice, OFlags};
use rustix::io::Errno;

use crate::local::STAGING;

/// How much is read at a time.
const BUFFER: usize = 256 << 10;

/// What a file is, compared with what is stored with it.
#[derive(Debug)]
pub enum FileState {
    /// As it came; its length in bytes.
    Intact(u64),
    /// Not as it came, though its length and the time of its last change are.
    Damaged {
        /// What its upload has stored.
        stored: Hashes,
        /// What it has now.
        found: Hashes,
    },
    /// It was changed since.
    Changed,
    /// Nothing is stored with it.
    Unhashed,
    /// It, or a directory, could not be read.
    Unreadable(io::Error),
}

/// Calls `tell` with every file beneath a directory and its state, from `jobs` threads, in no order. Links are not
/// followed. An error: the directory itself cannot be read.
pub fn verify(
    directory: &Path,
    jobs: NonZeroUsize,
    tell: &(dyn Fn(&Path, FileState) + Sync),
) -> io::Result<()> {
    let top = fs::read_dir(directory)?;
    let (send, receive) = sync_channel(jobs.get().saturating_mul(2));
    let receive = Mutex::new(receive);
    thread::scope(|scope| {
        for _ in 0..jobs.get() {
            scope.spawn(|| read_files(&receive, tell));
        }
        walk(directory, top, &send, tell);
        drop(send);
    });
    Ok(())
}

/// Sends the path of every file beneath a directory.
fn walk(path: &Path, top: ReadDir, files: &SyncSender<PathBuf>, tell: &(dyn Fn(&Path, FileState) + Sync)) {
    let mut open = vec![(path.to_owned(), top)];
    while let Some((directory, entries)) = open.last_mut() {
        let entry = match entries.next() {
            Some(Ok(entry)) => entry,
            ended => {
                if let Some(Err(error)) = ended {
                    tell(directory, FileState::Unreadable(error));
                }
                open.pop();
                continue;
            }
        };
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && entry.file_name() != STAGING => match fs::read_dir(&path) {
                Ok(entries) => open.push((path, entries)),
                Err(error) => tell(&path, FileState::Unreadable(error)),
            },
            // The readers end only with this side of the channel.
            Ok(kind) if kind.is_file() => drop(files.send(path)),
            Ok(_) => {}
            Err(error) => tell(&path, FileState::Unreadable(error)),
        }
    }
}

fn read_files(files: &Mutex<Receiver<PathBuf>>, tell: &(dyn Fn(&Path, FileState) + Sync)) {
    let mut buffer = vec![0; BUFFER];
    loop {
        let next = files.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(path) = next else { return };
        match compare(&path, &mut buffer) {
            Ok(state) => tell(&path, state),
            // It was removed meanwhile, or is a link now.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {}
            Err(error) => tell(&path, FileState::Unreadable(error)),
        }
    }
}

/// Compares a file with what is stored with it.
fn compare(path: &Path, buffer: &mut [u8]) -> io::Result<FileState> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let mut text = [0_u8; StoredHashes::LONGEST];
    let stored = match rustix::fs::fgetxattr(&file, StoredHashes::ATTRIBUTE, &mut text[..]) {
        Ok(length) => StoredHashes::parse(&text[..length]),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => None,
        Err(errno) => return Err(errno.into()),
    };
    let Some(stored) = stored else { return Ok(FileState::Unhashed) };
    if !is_as_stored(&file, &stored)? {
        return Ok(FileState::Changed);
    }
    // What the kernel has in memory says nothing about the disk.
    let _ = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
    let mut hashers = Hashers::new(stored.hashes.algorithms());
    loop {
        match file.read_at(buffer, hashers.length()) {
            Ok(0) => break,
            Ok(count) => hashers.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let (length, found) = (hashers.length(), hashers.finish());
    Ok(match (found == stored.hashes, is_as_stored(&file, &stored)?) {
        (true, true) => FileState::Intact(length),
        (false, true) => FileState::Damaged { stored: stored.hashes, found },
        // While it was read.
        (_, false) => FileState::Changed,
    })
}

/// Returns whether a file has the length and the time that are stored with its hashes.
fn is_as_stored(file: &File, stored: &StoredHashes) -> io::Result<bool> {
    let now = file.metadata()?;
    let nanoseconds = u32::try_from(now.mtime_nsec()).unwrap_or(0);
    Ok(stored.fit(now.len(), Timestamp { seconds: now.mtime(), nanoseconds }))
}
