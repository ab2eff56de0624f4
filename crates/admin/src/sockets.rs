//! Where the control sockets are that no setting names: one for each server, in a folder of its user.
//!
//! | server | folder |
//! |---|---|
//! | of a service manager that sets `RUNTIME_DIRECTORY` | that one |
//! | of root | `/run/millrace` |
//! | that root starts to run as another user | `/run/millrace-UID` |
//! | of any other user | `millrace` in `XDG_RUNTIME_DIR`, or else `/tmp/millrace-UID` |

use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::geteuid;

/// Folders of servers that root starts.
const RUN: &str = "/run";

/// The folder's name.
const NAME: &str = "millrace";

/// A socket is bound before it is listened on. One that is older, and refuses, is of a server that was killed.
const BINDING: Duration = Duration::from_secs(10);

/// Why a folder is not used for control sockets.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// It cannot be made.
    #[error("the folder {} cannot be made: {error}", path.display())]
    Make {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Others could put sockets there.
    #[error("{} is no folder that this user alone may write to", .0.display())]
    NotOwn(PathBuf),
}

/// Returns the folder for a server that this process starts, and that runs as the user `uid`.
pub fn folder_for(uid: u32) -> PathBuf {
    folder_of_manager().unwrap_or_else(|| match (geteuid().is_root(), uid) {
        (true, 0) => Path::new(RUN).join(NAME),
        (true, uid) => Path::new(RUN).join(format!("{NAME}-{uid}")),
        (false, uid) => folder_of_user(uid),
    })
}

/// Returns the folder that a service manager has made: the first of them.
fn folder_of_manager() -> Option<PathBuf> {
    let given = env::var_os("RUNTIME_DIRECTORY").filter(|value| !value.is_empty())?;
    env::split_paths(&given).next()
}

fn folder_of_user(uid: u32) -> PathBuf {
    let runtime = env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty());
    runtime
        .map_or_else(|| PathBuf::from(format!("/tmp/{NAME}-{uid}")), |runtime| Path::new(&runtime).join(NAME))
}

/// Makes the folder, for this user alone, where it is not there.
pub fn make_folder(path: &Path) -> Result<(), FolderError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(FolderError::Make { path: path.to_owned(), error })
        }
        _ => Ok(()),
    }
}

/// Returns the name for the socket of this process. It removes those of killed servers.
pub fn own_socket(folder: &Path) -> Result<PathBuf, FolderError> {
    make_folder(folder)?;
    if !is_own(folder) {
        return Err(FolderError::NotOwn(folder.to_owned()));
    }
    sockets_in(folder).iter().filter(|socket| is_left_behind(socket)).for_each(|socket| {
        let _ = fs::remove_file(socket);
    });
    Ok(folder.join(format!("{}.sock", std::process::id())))
}

/// Returns the folders in which this user's servers may have their sockets: for root those of all that it has started.
pub(crate) fn folders() -> Vec<PathBuf> {
    if let Some(folder) = folder_of_manager() {
        return vec![folder];
    }
    let uid = geteuid().as_raw();
    let in_run = Path::new(RUN).join(NAME);
    match uid {
        0 => {
            let all = fs::read_dir(RUN).into_iter().flatten().flatten();
            let is_ours =
                |entry: &fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b"millrace-");
            [in_run].into_iter().chain(all.filter(is_ours).map(|entry| entry.path())).collect()
        }
        uid => vec![folder_of_user(uid), in_run, Path::new(RUN).join(format!("{NAME}-{uid}"))],
    }
}

/// Returns the sockets in a folder; none where it cannot be read, or where others may have put them.
pub(crate) fn sockets_in(folder: &Path) -> Vec<PathBuf> {
    if !is_of_owner_or_root(folder) {
        return Vec::new();
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_socket = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_socket());
    let mut sockets: Vec<PathBuf> = entries.filter(is_socket).map(|entry| entry.path()).collect();
    sockets.sort();
    sockets
}

fn is_own(folder: &Path) -> bool {
    let own = geteuid().as_raw();
    fs::symlink_metadata(folder)
        .is_ok_and(|found| found.is_dir() && found.uid() == own && found.mode() & 0o022 == 0)
}

/// A client that runs as root asks the sockets of other users' servers, too: root has started those.
fn is_of_owner_or_root(folder: &Path) -> bool {
    let own = geteuid().as_raw();
    fs::symlink_metadata(folder).is_ok_and(|found| {
        found.is_dir() && found.mode() & 0o022 == 0 && (own == 0 || [own, 0].contains(&found.uid()))
    })
}

fn is_left_behind(socket: &Path) -> bool {
    let is_old = fs::symlink_metadata(socket)
        .and_then(|found| found.modified())
        .is_ok_and(|made| made.elapsed().is_ok_and(|age| age > BINDING));
    is_old && UnixStream::connect(socket).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}
