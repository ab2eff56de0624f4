//! Bans, and networks that are familiar to users, outlive the server: a file of JSON, written anew within a second of a
//! change.
//!
//! The invariant: the file is the old one or the new one, whole, whatever ends the process or the machine.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::{BanReport, Bans, FamiliarNetwork};

/// A ban as it is kept.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct KeptBan {
    network: String,
    /// The user's name; names are bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<Vec<u8>>,
    /// In seconds since 1970; without it the ban holds until it is lifted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
}

/// A network from which a user has logged in, as it is kept.
#[derive(Debug, Serialize, Deserialize)]
struct KeptFamiliar {
    network: String,
    user: Vec<u8>,
    /// In seconds since 1970.
    until: u64,
}

/// What the file holds.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    bans: Vec<KeptBan>,
    familiar: Vec<KeptFamiliar>,
}

/// The file, and which edition of the bans is in it.
#[derive(Debug)]
pub(crate) struct BanFile {
    path: Option<PathBuf>,
    kept: Mutex<u64>,
}

/// Why bans are not kept, or those of before do not hold.
#[derive(Debug, Error)]
pub(crate) enum BanFileError {
    /// It cannot be read or written.
    #[error("the bans in {} cannot be kept: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It holds something else.
    #[error("the bans in {} cannot be read: {source}; they hold no more", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The error.
        source: serde_json::Error,
    },
}

impl BanFile {
    /// Reads the bans of before into `bans`. Without a path none are kept.
    pub(crate) fn open(path: Option<PathBuf>, bans: &Bans) -> (Self, Result<(), BanFileError>) {
        let read = path.as_deref().map_or(Ok(()), |path| read(path, bans));
        (Self { path, kept: Mutex::new(bans.edition()) }, read)
    }

    /// Writes the bans, where they have changed.
    pub(crate) fn keep(&self, bans: &Bans) -> Result<(), BanFileError> {
        let Some(path) = &self.path else { return Ok(()) };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let edition = bans.edition();
        if *kept == edition {
            return Ok(());
        }
        // Also where that fails: it is told once, not each second.
        *kept = edition;
        write(path, bans).map_err(|source| BanFileError::Io { path: path.clone(), source })
    }
}

fn read(path: &Path, bans: &Bans) -> Result<(), BanFileError> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        read => read.map_err(|source| BanFileError::Io { path: path.to_owned(), source })?,
    };
    let Kept { bans: kept, familiar } = serde_json::from_slice(&text)
        .map_err(|source| BanFileError::Damaged { path: path.to_owned(), source })?;
    let (now, wall) = (Instant::now(), wall());
    for KeptBan { network, user, until } in kept {
        let Ok(network) = network.parse() else { continue };
        let left = until.map(|until| Duration::from_secs(until).saturating_sub(wall));
        if left.is_none_or(|left| !left.is_zero()) {
            bans.take_over(&BanReport { network, user, left }, now);
        }
    }
    for KeptFamiliar { network, user, until } in familiar {
        let Ok(network) = network.parse() else { continue };
        let left = Duration::from_secs(until).saturating_sub(wall);
        bans.take_over_familiar(&FamiliarNetwork { network, user, left }, now);
    }
    Ok(())
}

fn write(path: &Path, bans: &Bans) -> io::Result<()> {
    let wall = wall();
    let now = Instant::now();
    let kept = bans.list(now).into_iter().map(|BanReport { network, user, left }| KeptBan {
        network: network.to_string(),
        user,
        until: left.map(|left| (wall + left).as_secs()),
    });
    let familiar = bans.familiar(now).into_iter().map(|familiar| KeptFamiliar {
        network: familiar.network.to_string(),
        user: familiar.user,
        until: (wall + familiar.left).as_secs(),
    });
    let text = serde_json::to_vec(&Kept { bans: kept.collect(), familiar: familiar.collect() })?;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let new = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(&text)?;
    file.sync_all()?;
    fs::rename(&new, path)
}

fn wall() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::BanRules;

    #[test]
    fn bans_hold_after_a_restart_and_end_when_they_would_have() {
        let path = std::env::temp_dir().join(format!("millrace-bans-{}/deep/bans.json", std::process::id()));
        let rules = BanRules { after: 1, time: Duration::from_secs(600), ..BanRules::default() };
        let (here, now) = ("192.0.2.1".parse().unwrap(), Instant::now());
        let before = Bans::new(rules.clone());
        let (file, read) = BanFile::open(Some(path.clone()), &before);
        read.unwrap();
        before.failed(here, b"ali\xffce", now);
        assert!(before.ban("198.51.100.0/24".parse().unwrap(), None));
        assert!(before.ban("203.0.113.0/24".parse().unwrap(), Some(now + Duration::from_millis(1))));
        file.keep(&before).unwrap();

        let after = Bans::new(rules.clone());
        let (file, read) = BanFile::open(Some(path.clone()), &after);
        read.unwrap();
        assert!(after.is_banned(here, b"ali\xffce", now) && !after.is_banned(here, b"bob", now));
        assert!(!after.is_banned(here, b"ali\xffce", now + Duration::from_secs(601)));
        assert!(after.admit("198.51.100.7".parse().unwrap(), now).is_err());
        assert!(after.admit("203.0.113.7".parse().unwrap(), now).is_ok());
        // One that is lifted does not come back.
        assert!(after.lift("198.51.100.0/24".parse().unwrap()));
        file.keep(&after).unwrap();
        let last = Bans::new(rules);
        BanFile::open(Some(path.clone()), &last).1.unwrap();
        assert!(last.admit("198.51.100.7".parse().unwrap(), now).is_ok());

        fs::write(&path, "[{").unwrap();
        assert!(matches!(BanFile::open(Some(path.clone()), &last).1, Err(BanFileError::Damaged { .. })));
        fs::remove_dir_all(path.parent().unwrap().parent().unwrap()).unwrap();
    }
}
