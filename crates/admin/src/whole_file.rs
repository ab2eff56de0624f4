//! Writes a file as a whole: beside its name, synchronised, then renamed. A cut leaves the old file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// Replaces a file. It keeps its mode, and its owner where that may be set; a new one is its owner's alone.
///
/// # Errors
///
/// What the system said; the old file is as it was, but for an error of the last synchronisation.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_by(path, |file| file.write_all(bytes))
}

fn replace_by(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    // A link stays one.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let staged = staged(&path);
    let written = stage(&path, &staged, write).and_then(|()| fs::rename(&staged, &path));
    if written.is_err() {
        let _ = fs::remove_file(&staged);
    }
    written?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// The name beside a file's own.
fn staged(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".new.{}", std::process::id()));
    path.with_file_name(name)
}

fn stage(path: &Path, staged: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    // A file left by a killed process of the same number may be readable by others.
    let _ = fs::remove_file(staged);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(staged)?;
    if let Ok(old) = fs::metadata(path) {
        // Only root may give files away; then the mode is that of the old owner's file.
        let _ = fchown(&file, Some(old.uid()), Some(old.gid()));
        file.set_permissions(fs::Permissions::from_mode(old.mode() & 0o7777))?;
    }
    write(&mut file)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_write_leaves_the_old_file_with_its_mode() {
        let folder = std::env::temp_dir().join(format!("millrace-whole-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let path = folder.join("f");
        replace(&path, b"old").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let cut = replace_by(&path, |file| {
            file.write_all(b"ne")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert_eq!(cut.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        // What a killed process has left is in no one's way.
        fs::write(staged(&path), b"half").unwrap();
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }
}
