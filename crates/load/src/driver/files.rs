//! Names and contents of test files.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::Advice;
use thiserror::Error;

use crate::payload::FileId;
use crate::plan::{Cell, Download, Names, Op};
use crate::target::Target;

/// The kernel keeps pages for a moment that another processor has just put into the cache, although they may be
/// dropped.
const TRIES: u32 = 50;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// Why a file stays in the page cache.
#[derive(Debug, Error)]
pub enum CacheError {
    /// The server's folder is unknown.
    #[error("--server-root must name the server's folder")]
    NoRoot,
    /// The file cannot be opened or written back.
    #[error("{path}: {1}", path = .0.display())]
    Io(PathBuf, #[source] io::Error),
    /// The kernel keeps its pages.
    #[error("{} is still in memory: is it on a memory file system?", .0.display())]
    Kept(PathBuf),
}

/// The test files of one cell.
#[derive(Debug, Clone, Copy)]
pub(super) struct Files<'a> {
    target: &'a Target,
    cell: &'a Cell,
}

impl<'a> Files<'a> {
    pub(super) fn new(target: &'a Target, cell: &'a Cell) -> Self {
        Self { target, cell }
    }

    /// The path of the `number`-th file to download.
    pub(super) fn download(&self, number: u32) -> String {
        if self.cell.settings.download == Download::Uploaded {
            return self.upload(number, 0);
        }
        let name = || format!("millrace-bench-{}-{number}", self.cell.size.unwrap_or(0));
        self.named(number).unwrap_or_else(|| self.target.file(&name()))
    }

    pub(super) fn download_id(number: u32) -> FileId {
        FileId::new(number)
    }

    /// The path of a user's upload.
    pub(super) fn upload(&self, user: u32, serial: u32) -> String {
        let user = if self.cell.settings.names == Names::One { 0 } else { user };
        let base =
            self.named(user).unwrap_or_else(|| self.target.file(&format!("millrace-bench-upload-{user}")));
        match self.cell.settings.names {
            Names::Same | Names::One => base,
            Names::Fresh => format!("{base}-{serial}"),
        }
    }

    /// The path of a file of a size, that a log's downloads have.
    pub(super) fn sized(&self, bytes: u64) -> String {
        self.target.file(&format!("millrace-bench-replay-{bytes}"))
    }

    /// The content of a user's upload. A file that all users write at once has one content, so the last writer is
    /// always right.
    pub(super) fn upload_id(&self, user: u32, serial: u32) -> FileId {
        match self.cell.settings.names {
            Names::One => FileId::upload(0, 0),
            Names::Same | Names::Fresh => FileId::upload(user, serial),
        }
    }

    /// The owner of these bytes for messages: a test file, or a user's upload.
    pub(super) fn name(&self, id: FileId) -> String {
        if self.cell.op == Op::Retr
            && self.cell.settings.download == Download::Made
            && id.number() < self.cell.files()
        {
            return self.download(id.number());
        }
        let (user, serial) = id.uploaded();
        match self.cell.settings.names {
            Names::One => self.upload(0, 0),
            Names::Same => format!("another upload to {}", self.upload(user, serial)),
            Names::Fresh => format!("another upload of user {user}, {}", self.upload(user, serial)),
        }
    }

    /// The paths of all uploads of a user.
    pub(super) fn uploads(self, user: u32, count: u32) -> impl Iterator<Item = String> + use<'a> {
        let names = match self.cell.settings.names {
            Names::Same | Names::One => count.min(1),
            Names::Fresh => count,
        };
        (0..names).map(move |serial| self.upload(user, serial))
    }

    /// The directory to list; empty for the session's own.
    pub(super) fn directory(&self, user: u32) -> String {
        self.named(user).unwrap_or_else(|| self.target.path.clone())
    }

    /// Drops a file from the page cache of this machine, if the server's folder is here.
    pub(super) fn drop_from_cache(&self, path: &str, size: u64) -> Result<(), CacheError> {
        let root = self.cell.settings.server_root.as_ref().ok_or(CacheError::NoRoot)?;
        let name = path.strip_prefix(&self.target.path).unwrap_or(path).trim_start_matches('/');
        let place = Path::new(root).join(name);
        let failed = |source| CacheError::Io(place.clone(), source);
        let file = File::open(&place).map_err(failed)?;
        for _ in 0..TRIES {
            // Dirty pages stay.
            file.sync_all().map_err(failed)?;
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).map_err(|error| failed(error.into()))?;
            if size == 0 || !millrace_net::copy::is_cached(&file, 0, size) {
                return Ok(());
            }
            thread::sleep(BETWEEN_TRIES);
        }
        Err(CacheError::Kept(place))
    }

    /// The free bytes in the server's folder; `None` where it is not known to be on this machine.
    pub(super) fn room(&self) -> std::io::Result<Option<u64>> {
        let Some(root) = &self.cell.settings.server_root else { return Ok(None) };
        let room = rustix::fs::statvfs(root.as_str())?;
        Ok(Some(room.f_bavail * room.f_frsize))
    }

    /// The path given by `--file` for this number.
    fn named(&self, number: u32) -> Option<String> {
        let pattern = self.cell.settings.file.as_ref()?;
        Some(pattern.replacen("%d", &number.to_string(), 1))
    }
}
