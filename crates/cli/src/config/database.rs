//! The database of users: which file it is, and opening it.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use millrace_server::auth::Database;
use millrace_terminal::Failure;

use super::places::Places;
use super::said::Said;

/// Where `millrace user` keeps accounts, and `millrace serve` finds them, where neither is told another place.
pub(crate) fn default_path() -> Option<PathBuf> {
    // The tests of this crate must not use the accounts of the user that runs them.
    if cfg!(test) {
        return None;
    }
    let set = |name| env::var_os(name).filter(|value: &OsString| !value.is_empty()).map(PathBuf::from);
    let folder = set("XDG_DATA_HOME")
        .or_else(|| rustix::process::geteuid().is_root().then(|| "/var/lib".into()))
        .or_else(|| set("HOME").map(|home| home.join(".local/share")))?;
    Some(folder.join("millrace/users.db"))
}

/// Opens the database that was named; where none was, the one of `millrace user`, if it is there.
pub(super) fn open(
    said: Option<&Said<PathBuf>>,
    places: &Places<'_>,
) -> Result<Option<(Database, PathBuf)>, Failure> {
    let Some(said) = said else {
        let Some(path) = default_path().filter(|path| path.exists()) else { return Ok(None) };
        return match Database::open(&path) {
            Ok(database) => Ok(Some((database, path))),
            Err(error) => Err(Failure::Configuration(format!(
                "the database of users cannot be used: {error}; --users off does without it."
            ))),
        };
    };
    if said.value == Path::new("off") {
        return Ok(None);
    }
    let path = places.path(said);
    match Database::open(&path) {
        Ok(database) => Ok(Some((database, path))),
        Err(_) if !path.exists() => {
            let message = match is_login(&said.value) {
                // The message ends in logs, and what stands behind the colon may be a password.
                true => "this is the file of a database of users, and there is none of that name; a user with a password \
                         is a [[user]] table, or `serve --user NAME:PASSWORD`"
                    .to_owned(),
                false => {
                    format!("there is no {}; `millrace user --users {0} add NAME` makes it", path.display())
                }
            };
            Err(places.error(&said.place, "--users", &message))
        }
        Err(error) => Err(places.error(&said.place, "--users", &error.to_string())),
    }
}

/// Returns whether someone may have written a name and a password instead of a file.
fn is_login(path: &Path) -> bool {
    path.to_str().and_then(|text| text.split_once(':')).is_some_and(|(name, _)| !name.contains('/'))
}
