//! Log files that the server moves away itself when they are large or old.
//!
//! ```text
//! access.log -> access.log.1 -> access.log.2 -> ... -> removed
//! ```
//!
//! Whole lines are moved: a file is left only where its last line ends. What cannot be moved is written to as before, and
//! tried again a minute later.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// When log files are moved away, and how many of them are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// At this many bytes; 0 for at no size.
    pub size: u64,
    /// After so long; zero for at no age.
    pub age: Duration,
    /// Files that are kept beside the one that is written to.
    pub keep: u64,
}

impl Rotation {
    /// Returns whether files are moved away at all.
    pub fn is_on(&self) -> bool {
        self.size > 0 || !self.age.is_zero()
    }
}

/// Tells the operator something.
pub(super) type Warn = Box<dyn Fn(&str) + Send>;

/// How long to wait behind a failure.
const AGAIN: Duration = Duration::from_secs(60);

/// A file that lines are appended to.
pub(super) struct RotatedFile {
    path: Arc<Path>,
    /// What stands at its top.
    head: &'static str,
    rotation: Rotation,
    warn: Warn,
    file: File,
    /// Its bytes, as far as this process knows.
    size: u64,
    /// When its first line was written.
    begun: SystemTime,
    /// Whether its last line has ended.
    is_whole: bool,
    /// When it may be moved, behind a failure.
    not_before: SystemTime,
}

impl RotatedFile {
    /// Opens a file, or goes on with what is there. A pipe is never moved.
    pub(super) fn open(
        path: &Arc<Path>,
        head: &'static str,
        rotation: Rotation,
        warn: Warn,
    ) -> io::Result<Self> {
        let file = append(path)?;
        let found = file.metadata()?;
        let rotation = match found.is_file() {
            true => rotation,
            false => Rotation { size: 0, age: Duration::ZERO, ..rotation },
        };
        Ok(Self {
            path: Arc::clone(path),
            head,
            rotation,
            warn,
            size: found.len(),
            begun: begun(&found),
            file,
            is_whole: true,
            not_before: SystemTime::UNIX_EPOCH,
        })
    }

    /// Returns whether it is to be moved before this many bytes are written.
    fn is_due(&self, more: usize, now: SystemTime) -> bool {
        let Rotation { size, age, .. } = self.rotation;
        let is_large = size > 0 && self.size + more as u64 > size;
        let is_old = !age.is_zero() && now.duration_since(self.begun).is_ok_and(|been| been >= age);
        self.size > 0 && self.is_whole && now >= self.not_before && (is_large || is_old)
    }

    /// Moves it away, and begins another. The file that has the name by now may be another process's: that is gone on with.
    fn rotate(&mut self, now: SystemTime) -> io::Result<()> {
        let own = self.file.metadata()?;
        let is_same = |found: Metadata| (found.dev(), found.ino()) == (own.dev(), own.ino());
        if fs::metadata(&self.path).is_ok_and(is_same) {
            move_away(&self.path, self.rotation.keep)?;
        }
        self.file = append(&self.path)?;
        let found = self.file.metadata()?;
        (self.size, self.begun) = (found.len(), if found.len() == 0 { now } else { begun(&found) });
        Ok(())
    }
}

impl Write for RotatedFile {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let now = SystemTime::now();
        if self.is_due(lines.len(), now)
            && let Err(error) = self.rotate(now)
        {
            self.not_before = now + AGAIN;
            (self.warn)(&format!("{} cannot be moved away: {error}", self.path.display()));
        }
        if self.size == 0 && !self.head.is_empty() {
            self.file.write_all(self.head.as_bytes())?;
            self.size = self.head.len() as u64;
        }
        let count = self.file.write(lines)?;
        self.size += count as u64;
        self.is_whole = count == 0 || lines[count - 1] == b'\n';
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Opens a file to append to, or a named pipe: it is opened for reading and writing, because opening it for writing
/// would block until a reader opens it.
fn append(path: &Path) -> io::Result<File> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.file_type().is_fifo() => {
            OpenOptions::new().read(true).write(true).open(path)
        }
        _ => OpenOptions::new().create(true).append(true).open(path),
    }
}

/// When a file began, as far as the file system tells.
fn begun(found: &Metadata) -> SystemTime {
    found.created().or_else(|_| found.modified()).unwrap_or_else(|_| SystemTime::now())
}

/// The name that a file has once it was moved so often.
fn moved(path: &Path, times: u64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{times}"));
    name.into()
}

/// Moves each file to the next name; the last is removed, or replaced by the one before.
fn move_away(path: &Path, keep: u64) -> io::Result<()> {
    if keep == 0 {
        return fs::remove_file(path);
    }
    for times in (1..keep).rev() {
        match fs::rename(moved(path, times), moved(path, times + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::rename(path, moved(path, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("millrace-rotation-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn open(&self, size: u64, age: Duration, keep: u64) -> RotatedFile {
            self.open_with_head("", Rotation { size, age, keep })
        }

        fn open_with_head(&self, head: &'static str, rotation: Rotation) -> RotatedFile {
            RotatedFile::open(&self.0.join("log").into(), head, rotation, Box::new(|_| ())).unwrap()
        }

        fn files(&self) -> Vec<(String, String)> {
            let entries = fs::read_dir(&self.0).unwrap().map(Result::unwrap);
            let mut files: Vec<_> = entries
                .map(|entry| {
                    let text = fs::read_to_string(entry.path()).unwrap_or_default();
                    (entry.file_name().into_string().unwrap(), text)
                })
                .collect();
            files.sort();
            files
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn named(files: &[(&str, &str)]) -> Vec<(String, String)> {
        files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn each_file_begins_with_its_head_once() {
        let folder = Folder::new("head");
        let rotation = Rotation { size: 12, age: Duration::ZERO, keep: 1 };
        let mut log = folder.open_with_head("#head\n", rotation);
        log.write_all(b"one\n").unwrap();
        drop(log);
        let mut log = folder.open_with_head("#head\n", rotation);
        log.write_all(b"2\n").unwrap();
        log.write_all(b"three\n").unwrap();
        let kept = [("log", "#head\nthree\n"), ("log.1", "#head\none\n2\n")];
        assert_eq!(folder.files(), named(&kept));
    }

    #[test]
    fn a_large_file_is_moved_between_lines_and_the_oldest_goes() {
        let folder = Folder::new("size");
        let mut log = folder.open(10, Duration::ZERO, 2);
        log.write_all(b"one\n").unwrap();
        log.write_all(b"two\n").unwrap();
        log.write_all(b"three").unwrap();
        // In the middle of a line it stays.
        log.write_all(b" and a half\n").unwrap();
        assert_eq!(folder.files(), named(&[("log", "three and a half\n"), ("log.1", "one\ntwo\n")]));
        log.write_all(b"four\n").unwrap();
        log.write_all(b"a line that is longer than all\n").unwrap();
        let kept = [
            ("log", "a line that is longer than all\n"),
            ("log.1", "four\n"),
            ("log.2", "three and a half\n"),
        ];
        assert_eq!(folder.files(), named(&kept));
        // A server that begins goes on, and counts what is there.
        let mut log = folder.open(100, Duration::ZERO, 1);
        log.write_all(b"x\n").unwrap();
        assert_eq!(log.size, kept[0].1.len() as u64 + 2);
        let mut log = folder.open(1, Duration::ZERO, 0);
        log.write_all(b"y\n").unwrap();
        assert_eq!(folder.files()[0], ("log".to_owned(), "y\n".to_owned()));
    }

    #[test]
    fn an_old_file_is_moved_and_an_empty_one_never() {
        let folder = Folder::new("age");
        let mut log = folder.open(0, Duration::from_secs(60), 3);
        let (now, later) = (SystemTime::now(), SystemTime::now() + Duration::from_secs(61));
        assert!(!log.is_due(5, later), "it is empty");
        log.write_all(b"x\n").unwrap();
        assert!(!log.is_due(5, now));
        assert!(log.is_due(5, later));
        log.rotate(later).unwrap();
        assert_eq!(log.begun, later);
        log.write_all(b"y\n").unwrap();
        assert!(!log.is_due(5, later + Duration::from_secs(59)));
    }

    #[test]
    fn a_file_that_another_process_has_moved_is_not_moved_again() {
        let folder = Folder::new("moved");
        let mut log = folder.open(5, Duration::ZERO, 3);
        log.write_all(b"one\n").unwrap();
        fs::rename(folder.0.join("log"), folder.0.join("elsewhere")).unwrap();
        fs::write(folder.0.join("log"), "new\n").unwrap();
        log.write_all(b"two\n").unwrap();
        assert_eq!(folder.files(), named(&[("elsewhere", "one\n"), ("log", "new\ntwo\n")]));
    }

    #[test]
    fn what_cannot_be_moved_is_written_to_as_before() {
        let folder = Folder::new("failure");
        let mut log = folder.open(5, Duration::ZERO, 2);
        log.write_all(b"one\n").unwrap();
        fs::create_dir_all(folder.0.join("log.1/full")).unwrap();
        fs::create_dir_all(folder.0.join("log.2/full")).unwrap();
        log.write_all(b"two\n").unwrap();
        log.write_all(b"three\n").unwrap();
        assert_eq!(fs::read_to_string(folder.0.join("log")).unwrap(), "one\ntwo\nthree\n");
        assert!(!log.is_due(1, SystemTime::now()), "it waits a minute");
    }
}
