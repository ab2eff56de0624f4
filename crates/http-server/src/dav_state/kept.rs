//! The file that keeps locks and properties of WebDAV over a restart, in JSON.
//!
//! The file is written within a second of a change, under another name, and then renamed. So a kill loses the last
//! second at most. Places are stored as numbers of the file system, so the file is of no use to a copy of the tree.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::iter;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use millrace_http::dav::Name;
use millrace_http::dav::locks::{LONGEST, Lock};
use millrace_http::dav::place::Place;
use millrace_http::dav::properties::PropertyValues;
use serde::{Deserialize, Serialize};

use crate::dav_state::Told;

/// The longest file that is read; this server writes none that is longer.
const MOST: u64 = 64 << 20;

/// A property: its namespace, its name, and the XML that was given.
type KeptProperty = (String, String, String);

#[derive(Default, Serialize, Deserialize)]
struct Kept {
    locks: Vec<KeptLock>,
    properties: Vec<(KeptPlace, Vec<KeptProperty>)>,
    /// The user in whose share each of the properties counts; missing in files of earlier versions.
    #[serde(default)]
    users: Vec<Option<Vec<u8>>>,
}

#[derive(Serialize, Deserialize)]
struct KeptPlace {
    directory: (u64, u64),
    name: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
struct KeptLock {
    token: String,
    chain: Vec<KeptPlace>,
    root: String,
    is_exclusive: bool,
    is_deep: bool,
    owner: Option<String>,
    user: Option<Vec<u8>>,
    /// Seconds since 1970.
    until: u64,
}

fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl From<&Place> for KeptPlace {
    fn from(place: &Place) -> Self {
        Self { directory: place.directory(), name: place.name().to_vec() }
    }
}

impl From<KeptPlace> for Place {
    fn from(KeptPlace { directory, name }: KeptPlace) -> Self {
        Self::within(directory, &name)
    }
}

impl KeptLock {
    pub(crate) fn of(lock: &Lock, now: Instant, wall: u64) -> Self {
        let Lock { token, chain, root, is_exclusive, is_deep, owner, user, until, address: _ } = lock.clone();
        let until = wall + until.saturating_duration_since(now).as_secs();
        let chain = chain.iter().map(KeptPlace::from).collect();
        Self { token, chain, root, is_exclusive, is_deep, owner, user, until }
    }

    /// `None` where its time was over meanwhile.
    fn into_lock(self, now: Instant, wall: u64) -> Option<Lock> {
        let Self { token, chain, root, is_exclusive, is_deep, owner, user, until } = self;
        let left = Duration::from_secs(until.checked_sub(wall).filter(|left| *left > 0)?).min(LONGEST);
        (!chain.is_empty()).then(|| Lock {
            token,
            chain: chain.into_iter().map(Place::from).collect(),
            root,
            is_exclusive,
            is_deep,
            owner,
            user,
            address: None,
            until: now + left,
        })
    }
}

/// Formats a record for the file.
pub(crate) fn write(told: &Told) -> serde_json::Result<Vec<u8>> {
    let (now, wall) = (Instant::now(), wall());
    serde_json::to_vec(&Kept {
        locks: told.locks.all().map(|lock| KeptLock::of(lock, now, wall)).collect(),
        properties: told
            .properties
            .all()
            .map(|(place, values, _)| (place.into(), values.iter().map(kept_property).collect()))
            .collect(),
        users: told.properties.all().map(|(_, _, user)| user.map(<[u8]>::to_vec)).collect(),
    })
}

/// Writes the properties of one place.
pub(crate) fn write_properties(values: &PropertyValues) -> Vec<u8> {
    serde_json::to_vec(&values.iter().map(kept_property).collect::<Vec<_>>()).unwrap_or_default()
}

/// Reads what [`write_properties`] has written.
pub(crate) fn read_properties(bytes: &[u8]) -> serde_json::Result<PropertyValues> {
    let values: Vec<KeptProperty> = serde_json::from_slice(bytes)?;
    Ok(values.into_iter().map(|(space, local, value)| (Name { space, local }, value)).collect())
}

fn kept_property((name, value): (&Name, &String)) -> KeptProperty {
    (name.space.clone(), name.local.clone(), value.clone())
}

/// Puts it where it is kept.
pub(crate) fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let temporary = path.with_extension("new");
    // Locks and their owners are not for other local users.
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(bytes)?;
    fs::rename(temporary, path)
}

/// What was kept; nothing where there is no such file.
pub(crate) fn read(path: &Path) -> io::Result<Told> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Told::default()),
        Err(error) => return Err(error),
        Ok(metadata) if metadata.len() > MOST => return Err(io::ErrorKind::FileTooLarge.into()),
        Ok(_) => {}
    }
    let Kept { locks, properties, users } = serde_json::from_slice(&fs::read(path)?)?;
    let (mut told, now, wall) = (Told::default(), Instant::now(), wall());
    for lock in locks.into_iter().filter_map(|lock| lock.into_lock(now, wall)) {
        // What does not go with the others was not written by us.
        let _ = told.locks.give(lock);
    }
    let users = users.into_iter().chain(iter::repeat(None));
    for ((place, values), user) in properties.into_iter().zip(users) {
        let values = values.into_iter().map(|(space, local, value)| (Name { space, local }, value)).collect();
        told.properties.restore(&place.into(), values, user.as_deref());
    }
    Ok(told)
}
