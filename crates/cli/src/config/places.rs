//! Where a value was written: an error about it points there, and a path counts from there.

use std::ffi::OsStr;
use std::fmt::Display;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::report::Source;
use super::said::{Place, Said};
use millrace_terminal::Failure;

/// Says where something wrong was written.
pub(crate) struct Places<'a> {
    file: Option<&'a Source>,
}

impl<'a> Places<'a> {
    /// Those of this file, where some of it was written in one.
    pub(super) fn of(file: Option<&'a Source>) -> Self {
        Self { file }
    }

    /// The configuration file.
    pub(super) fn file(&self) -> Option<&Path> {
        self.file.map(|source| &*source.path)
    }

    /// An error about a value: at its place in the file, or with the name of its flag.
    pub(crate) fn error(&self, place: &Place, flag: &str, message: &(impl Display + ?Sized)) -> Failure {
        match (place, self.file) {
            (Place::File(span), Some(source)) => source.point(span.clone(), &message.to_string()),
            (Place::Environment(name), _) => Failure::Configuration(format!("{name}: {message}.")),
            _ => Failure::Configuration(format!("{flag}: {message}.")),
        }
    }

    /// The folder that a program lies beneath which was named from there: `./check`, `bin/check`. `None` for a whole
    /// path, and for the name of a program of `PATH`.
    pub(super) fn folder_of_program(&self, said: &Said<String>) -> Option<&Path> {
        match (&said.place, self.file) {
            (Place::File(_), Some(source)) if said.value.contains('/') && !said.value.starts_with('/') => {
                Some(source.folder())
            }
            _ => None,
        }
    }

    /// Makes sure that a program is there, and can be executed. What has names in braces is known when it is run.
    pub(super) fn find_program(&self, said: &Said<String>, key: &str) -> Result<(), Failure> {
        let name = said.value.as_str();
        let wrong = |message: &str| Err(self.error(&said.place, key, message));
        let folder = self.folder_of_program(said).unwrap_or(Path::new(""));
        let path = folder.join(name.strip_prefix("./").unwrap_or(name));
        let of_path = || std::env::var_os("PATH").is_some_and(|all| finds_executable(&all, name));
        match name.contains('/') {
            _ if name.contains(' ') && !path.exists() => {
                let words: Vec<String> = name.split_whitespace().map(|word| format!("{word:?}")).collect();
                wrong(&format!(
                    "there is no program {name:?}; a program with arguments is written {key} = [{}]",
                    words.join(", ")
                ))
            }
            _ if name.contains('{') => Ok(()),
            true if !path.exists() => wrong(&format!("there is no program {}", path.display())),
            true if !is_executable(&path) => {
                let path = path.display();
                wrong(&format!("{path} cannot be executed; chmod +x {path}, if it is a program"))
            }
            false if !of_path() => wrong(&format!("there is no program {name} in PATH")),
            _ => Ok(()),
        }
    }

    /// A path that was written: from the file's folder if it was written there.
    pub(super) fn path(&self, said: &Said<PathBuf>) -> PathBuf {
        match (&said.place, self.file) {
            (Place::File(_), Some(source)) => source.folder().join(&said.value),
            _ => said.value.clone(),
        }
    }
}

/// Returns true if a program of this name is in one of the folders of a `PATH`.
fn finds_executable(folders: &OsStr, name: &str) -> bool {
    std::env::split_paths(folders).any(|folder| is_executable(&folder.join(name)))
}

fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}
