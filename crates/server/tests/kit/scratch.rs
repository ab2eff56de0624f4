//! Directories that vanish with the test.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use millrace_storage::{LocalOptions, LocalStorage, Uploads};

/// A new directory, removed with everything in it.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self::beneath(&std::env::temp_dir())
    }

    /// On a file system that is memory (tmpfs).
    pub(crate) fn in_memory() -> Self {
        Self::beneath(Path::new("/dev/shm"))
    }

    fn beneath(parent: &Path) -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("millrace-server-test-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The directory as a storage, with its defaults.
    pub(crate) fn storage(&self) -> Arc<LocalStorage> {
        Arc::new(LocalStorage::open(&self.0, LocalOptions::default()).unwrap())
    }

    /// The directory as a storage that writes in place.
    pub(crate) fn in_place(&self) -> Arc<LocalStorage> {
        let options = LocalOptions { uploads: Uploads::InPlace, ..LocalOptions::default() };
        Arc::new(LocalStorage::open(&self.0, options).unwrap())
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, content: &[u8]) {
        std::fs::write(self.file(name), content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Option<Vec<u8>> {
        std::fs::read(self.file(name)).ok()
    }

    /// Makes a directory of that many empty files with long names, which begin with this.
    pub(crate) fn crowd(&self, directory: &str, count: usize, beginning: &str) {
        std::fs::create_dir(self.file(directory)).unwrap();
        for number in 0..count {
            std::fs::File::create(self.file(&format!("{directory}/{beginning}{number:05}"))).unwrap();
        }
    }

    /// Every path beneath it, hidden ones too, but for the staging directory itself, which stays.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut stack = vec![self.0.clone()];
        while let Some(directory) = stack.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if !path.ends_with(".millrace-staging") {
                    names.push(path.strip_prefix(&self.0).unwrap().to_string_lossy().into_owned());
                }
                if path.is_dir() && !path.is_symlink() {
                    stack.push(path);
                }
            }
        }
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
