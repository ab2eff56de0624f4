//! Facts about files beyond the storage's metadata: media types, by their names, and requested hashes.
//!
//! A hash is kept with what the file was when it was hashed, and holds for as long as the file is that. A file that was
//! changed just before is not kept: another change might leave its times as they are. What is stored with a file is looked
//! at again before each line of facts, and only passes through here.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use millrace_ftp::digest::Algorithm;
use millrace_ftp::listing;
use millrace_vfs::{Metadata, Storage, Timestamp, VirtualPath, Wait};

/// This many hashes are kept, in some 2 MiB.
const MOST: usize = 10_000;

/// The time of a file is exact to a tick of the kernel's clock, on vfat to two seconds.
const SETTLED: i64 = 3;

/// Hashes by what tells files apart.
#[derive(Debug, Default)]
pub(crate) struct DigestCache {
    known: Mutex<HashMap<(u64, u64), Known>>,
}

#[derive(Debug)]
struct Known {
    state: State,
    /// As the fact has it.
    text: Box<str>,
    is_stored: bool,
}

/// What a file was.
type State = (u64, Timestamp, Option<Timestamp>);

fn state(metadata: &Metadata) -> State {
    (metadata.size, metadata.modified, metadata.changed)
}

impl DigestCache {
    /// A file of which this was known `before` and `after` it was read through has this hash.
    pub(crate) fn learn(
        &self,
        (before, after): (&Metadata, &Metadata),
        now: SystemTime,
        algorithm: Algorithm,
        hash: &str,
    ) {
        let changed = after.changed.map_or(after.modified, |changed| changed.max(after.modified));
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() as i64;
        let is_settled = changed.seconds.saturating_add(SETTLED) < now;
        if before.identity == after.identity && state(before) == state(after) && is_settled {
            self.keep(after, format!("{}:{hash}", algorithm.name()), false);
        }
    }

    fn keep(&self, metadata: &Metadata, text: String, is_stored: bool) {
        let mut known = self.known();
        // Waiting requests ask again.
        if known.len() >= MOST && !known.contains_key(&metadata.identity) {
            known.clear();
        }
        let known_now = Known { state: state(metadata), text: text.into(), is_stored };
        known.insert(metadata.identity, known_now);
    }

    /// Looks for what is stored with a file, of which a line of facts is written next.
    pub(crate) fn note_stored(&self, files: &dyn Storage, path: &VirtualPath, metadata: &Metadata) {
        if !metadata.is_file() {
            return;
        }
        match files.stored_hashes(path, Wait::Allowed).ok().flatten().and_then(|hashes| hashes.strongest()) {
            Some(text) => self.keep(metadata, text, true),
            None => {
                let mut known = self.known();
                if known.get(&metadata.identity).is_some_and(|known| known.is_stored) {
                    known.remove(&metadata.identity);
                }
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<(u64, u64), Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl listing::FactSource for DigestCache {
    fn media_type(&self, name: &[u8], out: &mut Vec<u8>) {
        // Without parameters, which a fact has no room for.
        let media_type = millrace_http::media_type::of(name).split(';').next().unwrap_or_default();
        out.extend_from_slice(media_type.as_bytes());
    }

    fn hash(&self, metadata: &Metadata, out: &mut Vec<u8>) {
        let known = self.known();
        if let Some(known) = known.get(&metadata.identity).filter(|known| known.state == state(metadata)) {
            out.extend_from_slice(known.text.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_ftp::listing::FactSource as _;
    use millrace_vfs::{FileKind, Owner};

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanoseconds: 0 }
    }

    fn metadata(identity: u64, size: u64, changed: i64) -> Metadata {
        Metadata {
            kind: FileKind::File,
            size,
            modified: at(1),
            created: None,
            changed: Some(at(changed)),
            mode: 0o644,
            owner: Owner::default(),
            links: 1,
            identity: (1, identity),
        }
    }

    fn wall(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds)
    }

    #[test]
    fn a_hash_holds_until_the_file_is_another() {
        let cache = DigestCache::default();
        let told = |metadata: &Metadata| {
            let mut out = Vec::new();
            cache.hash(metadata, &mut out);
            String::from_utf8(out).unwrap()
        };
        let file = metadata(7, 3, 100);
        cache.learn((&file, &file), wall(102), Algorithm::Sha256, "ab");
        assert_eq!(told(&file), "", "it may be changed within the same tick");
        cache.learn((&file, &metadata(7, 3, 101)), wall(200), Algorithm::Sha256, "ab");
        assert_eq!(told(&file), "", "it was changed while it was read");
        cache.learn((&file, &file), wall(200), Algorithm::Sha256, "ab");
        assert_eq!(told(&file), "SHA-256:ab");
        for other in [metadata(8, 3, 100), metadata(7, 4, 100), metadata(7, 3, 101)] {
            assert_eq!(told(&other), "");
        }
        for number in 0..MOST as u64 {
            let other = metadata(100 + number, 3, 100);
            cache.learn((&other, &other), wall(200), Algorithm::Sha256, "cd");
        }
        assert!(cache.known().len() <= MOST && told(&file).is_empty());
    }
}
