//! Directories that vanish with the test.

// Every test binary uses its own part of this.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use millrace_vfs::{FileError, ReadHandle, Storage, VirtualPath, Wait, WriteMode};

/// A new directory, removed with everything in it.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("millrace-test-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// All names directly in it, hidden ones too.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub(crate) fn assert_empty(&self) {
        assert_eq!(self.names(), [""; 0]);
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn path(text: &str) -> VirtualPath {
    VirtualPath::parse(text.as_bytes()).unwrap()
}

pub(crate) fn upload(storage: &dyn Storage, name: &str, content: &[u8]) -> Result<(), FileError> {
    let mut upload = storage.open_write(&path(name), WriteMode::Replace, Wait::Allowed)?;
    upload.write_all(content)?;
    upload.commit().map(drop)
}

pub(crate) fn download(storage: &dyn Storage, name: &str) -> Result<Vec<u8>, FileError> {
    let ReadHandle::File(mut range) = storage.open_read(&path(name), Wait::Allowed)? else {
        panic!("a local file is a file");
    };
    let mut content = Vec::new();
    std::io::Read::read_to_end(&mut range.file, &mut content)?;
    Ok(content)
}
