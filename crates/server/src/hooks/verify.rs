//! `verify`: an uploaded file is held to the hash that comes beside it, `a.zip` to `a.zip.sha256`.
//!
//! The two are a pair, and nothing further is done to one without the other: whichever comes first waits where it
//! is; with the second they are compared, and both go on. Two that come at once take turns, so that only one of
//! them goes on with both.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, PoisonError};

use millrace_ftp::digest::{Algorithm, Hasher};
use millrace_vfs::{FileError, ReadHandle, Storage, VirtualPath, Wait};

use super::Refusal;

/// Of a file that holds a hash, as much is read.
const HASH_FILE: usize = 4096;

/// What a hash reads at a time.
const CHUNK: usize = 256 * 1024;

/// A file, and the one that holds its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) file: VirtualPath,
    pub(super) sum: VirtualPath,
}

impl Pair {
    /// The pair that a path is of; `None` for a hash of another kind.
    pub(super) fn of(path: &VirtualPath, algorithm: Algorithm) -> Option<Self> {
        let name = path.name().to_ascii_lowercase();
        let stem = |of: Algorithm| name.strip_suffix(ending(of).as_bytes()).filter(|stem| !stem.is_empty());
        if let Some(stem) = stem(algorithm) {
            let file = path.parent().join(&path.name()[..stem.len()]).ok()?;
            return Some(Self { file, sum: path.clone() });
        }
        if Algorithm::ALL.into_iter().any(|other| stem(other).is_some()) {
            return None;
        }
        let sum = path.parent().join(&[path.name(), ending(algorithm).as_bytes()].concat()).ok()?;
        Some(Self { file: path.clone(), sum })
    }

    /// Holds the file to the hash; false where they are not both there.
    pub(super) fn compare(&self, storage: &dyn Storage, algorithm: Algorithm) -> Result<bool, Refusal> {
        let unreadable =
            |error: FileError| Refusal::new(&format!("451 The hash cannot be verified: {error}."));
        let (mut said, mut content) = (Vec::new(), Hasher::new(algorithm));
        let read = read_file(storage, &self.sum, HASH_FILE, &mut |bytes| said.extend_from_slice(bytes))
            .and_then(|()| read_file(storage, &self.file, usize::MAX, &mut |bytes| content.update(bytes)));
        match read {
            Err(FileError::NotFound) => return Ok(false),
            read => read.map_err(unreadable)?,
        }
        let is_hash = |word: &&[u8]| word.len() >= 8 && word.iter().all(u8::is_ascii_hexdigit);
        let words = said.split(|byte| !byte.is_ascii_alphanumeric()).filter(is_hash);
        let right = content.finish();
        match words.max_by_key(|word| word.len()) {
            Some(word) if word.eq_ignore_ascii_case(right.as_bytes()) => Ok(true),
            Some(_) => Err(Refusal::new(&format!(
                "550 The {} of the file is not what it should be.",
                algorithm.name()
            ))),
            None => Err(Refusal::new("550 There is no hash in the file that should hold one.")),
        }
    }
}

fn ending(algorithm: Algorithm) -> String {
    format!(".{}", algorithm.name().to_ascii_lowercase().replace('-', ""))
}

/// The pairs that somebody is at.
#[derive(Debug, Default)]
pub(super) struct Turns {
    taken: Mutex<HashSet<Key>>,
    ended: Condvar,
}

/// The rule, the directory's identity, the file's name. Who waits at one rule has turns at earlier ones only, so
/// nobody waits in a circle.
type Key = (usize, (u64, u64), Vec<u8>);

/// Being at a pair, until this is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    key: Key,
}

impl Turns {
    /// Waits until nobody else is at this pair: for what is done to it, which has its time limits.
    pub(super) fn take(&self, rule: usize, storage: &dyn Storage, pair: &Pair) -> Turn<'_> {
        let directory = storage.metadata(&pair.file.parent(), Wait::Allowed);
        let identity = directory.map_or((0, 0), |directory| directory.identity);
        let key = (rule, identity, pair.file.name().to_vec());
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = self
            .ended
            .wait_while(taken, |taken| taken.contains(&key))
            .unwrap_or_else(PoisonError::into_inner);
        taken.insert(key.clone());
        Turn { turns: self, key }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.taken.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
        self.turns.ended.notify_all();
    }
}

fn read_file(
    storage: &dyn Storage,
    path: &VirtualPath,
    most: usize,
    take: &mut dyn FnMut(&[u8]),
) -> Result<(), FileError> {
    let mut handle = storage.open_read(path, Wait::Allowed)?;
    let mut chunk = vec![0; CHUNK.min(most)];
    let mut offset = 0;
    loop {
        let count = match &mut handle {
            ReadHandle::File(range) => std::os::unix::fs::FileExt::read_at(&*range.file, &mut chunk, offset)?,
            ReadHandle::Stream(stream) => stream.read_at(offset, &mut chunk)?,
        };
        take(&chunk[..count]);
        offset += count as u64;
        if count == 0 || offset >= most as u64 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_known_by_either_name() {
        let path = |text: &str| VirtualPath::parse(text.as_bytes()).unwrap();
        let sha256 = Algorithm::parse(b"SHA-256").unwrap();
        let pair = Pair { file: path("/in/a.zip"), sum: path("/in/a.zip.sha256") };
        assert_eq!(Pair::of(&pair.file, sha256), Some(pair.clone()));
        assert_eq!(Pair::of(&pair.sum, sha256), Some(pair));
        assert_eq!(Pair::of(&path("/in/a.zip.md5"), sha256), None);
    }
}
