//! Which files are CGI programs, and how many of them may run, as an operator configures it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use millrace_storage::Withheld;
use millrace_vfs::VirtualPath;

use crate::upstream::ProxyRoute;

/// Programs that are run to answer requests of HTTP (CGI/1.1, RFC 3875).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramSettings {
    /// Folders whose files are programs: as clients name them, and as the file system does, without links. What a
    /// client reaches by such a name, but lies elsewhere, is a file like others.
    pub folders: Vec<(VirtualPath, PathBuf)>,
    /// How many may run at once; further requests wait.
    pub most: usize,
    /// From the request to the end of the program's answer.
    pub time: Duration,
}

impl ProgramSettings {
    /// The folder of programs that a path lies in, as clients name it and as the file system does.
    pub fn marked(&self, path: &VirtualPath) -> Option<(&VirtualPath, &Path)> {
        let mut folders = self.folders.iter();
        folders.find(|(mark, _)| path.starts_with(mark)).map(|(mark, folder)| (mark, folder.as_path()))
    }

    /// The files of programs, and of applications that search scripts here, which are never sent.
    pub fn withheld<'a>(&self, proxy_routes: impl IntoIterator<Item = &'a ProxyRoute>) -> Withheld {
        let scripts = proxy_routes.into_iter().filter_map(|route| {
            let root = route.root.as_ref()?;
            Some((root.canonicalize().unwrap_or_else(|_| root.clone()), route.suffix.clone()?))
        });
        Withheld::new(self.folders.iter().map(|(_, folder)| folder.clone()).collect(), scripts.collect())
    }
}

impl Default for ProgramSettings {
    fn default() -> Self {
        Self { folders: Vec::new(), most: 64, time: Duration::from_secs(300) }
    }
}
