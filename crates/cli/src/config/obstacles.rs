//! What would keep a server from starting, found without touching anything: no file is made, no port is bound.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use millrace_terminal::Failure;
use rustix::fs::{Access, AtFlags, CWD, FsWord, PROC_SUPER_MAGIC, accessat, statfs};

use super::places::Places;
use super::said::Said;
use super::tls::SelfSigned;
use super::written::Written;

/// Virtual file systems (`proc`, `sysfs`), in which no file can be created, whatever their modes.
const OF_THE_KERNEL: [FsWord; 2] = [PROC_SUPER_MAGIC, 0x6265_6572];

/// All that is wrong with places that a server writes to.
pub(super) fn places_to_write(
    written: &Written,
    self_signed: Option<&SelfSigned>,
    places: &Places<'_>,
) -> Vec<Failure> {
    let mut found = Vec::new();
    let mut look = |said: Option<&Said<PathBuf>>, key: &str, check: fn(&Path) -> Result<(), Obstacle>| {
        let wrong = said.and_then(|said| Some((said, check(&places.path(said)).err()?)));
        found.extend(wrong.map(|(said, message)| places.error(&said.place, key, &message.to_string())));
    };
    look(written.control.as_ref().filter(|said| said.is_file()), "--control", socket);
    if !written.hook.is_empty() {
        look(written.hooks_queue.as_ref(), "hooks-queue", database);
    }
    look(written.access_log.as_ref(), "--access-log", file);
    look(written.audit_log.as_ref(), "--audit-log", file);
    for host in &written.host {
        look(host.xferlog.as_ref(), "xferlog", file);
    }
    for table in &written.folder {
        look(table.database.as_ref(), "database", database);
    }
    if let (Some(made), Some(asker)) = (self_signed, &written.tls_self_signed)
        && let Err(message) = certificate(made)
    {
        let place = written.state.as_ref().map_or(&asker.place, |said| &said.place);
        found.push(places.error(place, "--state", &message.to_string()));
    }
    found
}

/// Why a server could not write to a place.
#[derive(Debug, thiserror::Error)]
pub(super) enum Obstacle {
    #[error("{} is a folder; name a file in it", .0.display())]
    Folder(PathBuf),
    #[error("{} cannot be written to: {error}", path.display())]
    ReadOnly { path: PathBuf, error: io::Error },
    #[error("{} is too long for the name of a socket; name another", .0.display())]
    LongName(PathBuf),
    #[error("{} is there and no socket: remove it, or name another", .0.display())]
    NoSocket(PathBuf),
    #[error(
        "{} cannot be made in {}: {error}; make the folder first, or name another",
        path.display(), folder.display()
    )]
    NoFile { path: PathBuf, folder: PathBuf, error: io::Error },
    #[error("the server's own certificate cannot be kept in {}: {error}; name another folder", folder.display())]
    NoCertificate { folder: PathBuf, error: io::Error },
}

/// A file that could be written to now.
pub(super) fn file(path: &Path) -> Result<(), Obstacle> {
    match path.metadata() {
        Ok(found) if found.is_dir() => Err(Obstacle::Folder(path.to_owned())),
        Ok(_) => match may(path, Access::WRITE_OK) {
            Err(error) => Err(Obstacle::ReadOnly { path: path.to_owned(), error }),
            Ok(()) => Ok(()),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => new_file(path),
        Err(error) => Err(Obstacle::ReadOnly { path: path.to_owned(), error }),
    }
}

/// A file that others appear beside.
fn database(path: &Path) -> Result<(), Obstacle> {
    file(path)?;
    new_file(path)
}

/// A socket that could be made now, or that is there.
fn socket(path: &Path) -> Result<(), Obstacle> {
    if std::os::unix::net::SocketAddr::from_pathname(path).is_err() {
        return Err(Obstacle::LongName(path.to_owned()));
    }
    match path.symlink_metadata() {
        Ok(found) if !found.file_type().is_socket() => Err(Obstacle::NoSocket(path.to_owned())),
        _ => new_file(path),
    }
}

/// Checks that a file could be created in its folder.
fn new_file(path: &Path) -> Result<(), Obstacle> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let failed = |error| Obstacle::NoFile { path: path.to_owned(), folder: folder.to_owned(), error };
    takes_files(folder).map_err(failed)
}

/// Returns an error unless this process may use a path so, with the rights that it has now: a server that gives up those of
/// root later still has them.
fn may(path: &Path, access: Access) -> io::Result<()> {
    Ok(accessat(CWD, path, access, AtFlags::EACCESS)?)
}

/// Checks that files can be created in a folder.
fn takes_files(folder: &Path) -> io::Result<()> {
    may(folder, Access::WRITE_OK | Access::EXEC_OK)?;
    match statfs(folder) {
        Ok(system) if OF_THE_KERNEL.contains(&system.f_type) => {
            Err(io::Error::other("files there are the kernel's"))
        }
        _ if !folder.is_dir() => Err(io::ErrorKind::NotADirectory.into()),
        _ => Ok(()),
    }
}

/// A certificate that is there, or could be made: in its folder, or in the first above it that is there.
fn certificate(made: &SelfSigned) -> Result<(), Obstacle> {
    let failed = |error| Obstacle::NoCertificate { folder: made.folder.clone(), error };
    let pair = made.pair();
    if pair.certificate.is_file() && pair.key.is_file() {
        let opened = fs::File::open(&pair.certificate).and(fs::File::open(&pair.key));
        return opened.map(drop).map_err(failed);
    }
    let there = made.folder.ancestors().find(|folder| folder.symlink_metadata().is_ok());
    let there = there.filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    takes_files(there).map_err(failed)
}
