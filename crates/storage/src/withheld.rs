//! Files whose text is never sent to clients: programs and scripts.
//!
//! Where a file lies decides, not what it was called by: links, virtual folders and the trees of other hosts give it other
//! names.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Files of this machine that are run, and not read. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Withheld {
    programs: Arc<[PathBuf]>,
    scripts: Arc<[(PathBuf, String)]>,
}

impl Withheld {
    /// All files in folders of programs; and in others what ends so, the sources of applications. Folders are named
    /// without links.
    pub fn new(programs: Vec<PathBuf>, scripts: Vec<(PathBuf, String)>) -> Self {
        Self { programs: programs.into(), scripts: scripts.into() }
    }

    /// Returns true if there are folders of programs.
    pub fn has_programs(&self) -> bool {
        !self.programs.is_empty()
    }

    /// Returns true if there are folders of programs, or of applications.
    pub fn has_sources(&self) -> bool {
        self.has_programs() || !self.scripts.is_empty()
    }

    /// Returns true if an open file lies among the programs.
    pub fn is_program(&self, file: &File) -> bool {
        // If it cannot be determined, the file is withheld.
        self.has_programs() && place(file).is_none_or(|place| self.holds_program(&place))
    }

    /// Returns true if an open file is a program's, or an application's source.
    pub fn is_source(&self, file: &File) -> bool {
        self.has_sources()
            && place(file).is_none_or(|place| {
                let name = place.file_name().map(OsStrExt::as_bytes).unwrap_or_default();
                let is_script = |(folder, suffix): &(PathBuf, String)| {
                    name.ends_with(suffix.as_bytes()) && place.starts_with(folder)
                };
                self.holds_program(&place) || self.scripts.iter().any(is_script)
            })
    }

    fn holds_program(&self, place: &std::path::Path) -> bool {
        self.programs.iter().any(|folder| place.starts_with(folder))
    }
}

/// Where an open file lies.
fn place(file: &File) -> Option<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_in_a_folder_of_programs_are_withheld_by_any_name() {
        let root = std::env::temp_dir().join(format!("millrace-withheld-{}", std::process::id()));
        fs::create_dir_all(root.join("bin/deep")).unwrap();
        let root = root.canonicalize().unwrap();
        for name in ["bin/deep/p", "binary", "a.php", "a.txt"] {
            fs::write(root.join(name), name).unwrap();
        }
        std::os::unix::fs::symlink("bin/deep/p", root.join("link")).unwrap();
        let withheld = Withheld::new(vec![root.join("bin")], vec![(root.clone(), ".php".to_owned())]);
        for (name, is_program, is_source) in [
            ("bin/deep/p", true, true),
            ("link", true, true),
            ("binary", false, false),
            ("a.php", false, true),
            ("a.txt", false, false),
        ] {
            let file = File::open(root.join(name)).unwrap();
            assert_eq!(
                (withheld.is_program(&file), withheld.is_source(&file)),
                (is_program, is_source),
                "{name}"
            );
            assert!(!Withheld::default().is_source(&file));
        }
        fs::remove_dir_all(root).unwrap();
    }
}
