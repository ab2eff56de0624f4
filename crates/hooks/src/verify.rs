//! `verify`: compares an uploaded file with the hash in a second file, `a.zip` with `a.zip.sha256`.
//!
//! The two are a pair, and nothing further is done to one without the other: whichever comes first waits where it
//! is; with the second they are compared, and both go on. Two that come at once take turns, so that only one of
//! them goes on with both.

use millrace_ftp::digest::{Algorithm, Hasher};
use millrace_vfs::{FileError, ReadHandle, Storage, VirtualPath, Wait};

use super::Refusal;

/// Of a file that holds a hash, as much is read.
const HASH_FILE: usize = 4096;

/// The size of a read.
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

    /// The same with the hash by the name that it has here: endings are written in capitals, too.
    pub(super) fn found_in(self, storage: &dyn Storage, algorithm: Algorithm) -> Self {
        let lower = ending(algorithm);
        let upper = lower.to_ascii_uppercase();
        let capital = format!(".{}{}", &upper[1..2], &lower[2..]);
        let named = |ending: &String| {
            let sum = self.file.parent().join(&[self.file.name(), ending.as_bytes()].concat()).ok()?;
            storage.metadata(&sum, Wait::Allowed).ok().map(|_| sum)
        };
        match [lower, upper, capital].iter().find_map(named) {
            Some(sum) => Self { sum, ..self },
            None => self,
        }
    }

    /// Holds the file to the hash; false where they are not both there. One of them, at this path, may have no name yet.
    pub(super) fn compare(
        &self,
        storage: &dyn Storage,
        algorithm: Algorithm,
        unnamed: Option<(&VirtualPath, ReadHandle)>,
    ) -> Result<bool, Refusal> {
        let unreadable =
            |error: FileError| Refusal::for_now(&format!("451 The hash cannot be verified: {error}."));
        let (mut said, mut content) = (Vec::new(), Hasher::new(algorithm));
        let mut unnamed = unnamed;
        let mut open = |path: &VirtualPath| match unnamed.take_if(|(unnamed, _)| *unnamed == path) {
            Some((_, handle)) => Ok(handle),
            None => storage.open_read(path, Wait::Allowed),
        };
        let sum = open(&self.sum)
            .and_then(|handle| read_file(handle, HASH_FILE, &mut |bytes| said.extend_from_slice(bytes)));
        let read =
            sum.and_then(|()| read_file(open(&self.file)?, usize::MAX, &mut |bytes| content.update(bytes)));
        match read {
            Err(FileError::NotFound) => return Ok(false),
            read => read.map_err(unreadable)?,
        }
        let is_hash = |word: &&[u8]| word.len() >= 8 && word.iter().all(u8::is_ascii_hexdigit);
        let mut words = said.split(|byte| !byte.is_ascii_alphanumeric()).filter(is_hash);
        let right = content.finish();
        // Behind the hash is the name, which may look like one.
        let of_length = words.clone().find(|word| word.len() == right.len());
        match of_length.or_else(|| words.next()) {
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

/// The locks of pairs in use.
pub(super) type Turns = millrace_blocking::Turns<Key>;

/// Being at a pair, until this is dropped.
pub(super) type Turn<'a> = millrace_blocking::Turn<'a, Key>;

/// The rule, the directory's identity, the file's name. An upload that waits at one rule has locks of earlier ones
/// only, so that there is no deadlock.
type Key = (usize, (u64, u64), Vec<u8>);

/// Waits until this pair is not in use, and locks it. Its holders have time limits.
pub(super) fn take<'a>(turns: &'a Turns, rule: usize, storage: &dyn Storage, pair: &Pair) -> Turn<'a> {
    let directory = storage.metadata(&pair.file.parent(), Wait::Allowed);
    let identity = directory.map_or((0, 0), |directory| directory.identity);
    turns.take(vec![(rule, identity, pair.file.name().to_vec())])
}

/// Reads a file, but no more than this.
pub(super) fn read_file(
    mut handle: ReadHandle,
    most: usize,
    take: &mut dyn FnMut(&[u8]),
) -> Result<(), FileError> {
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
    use millrace_storage::MemoryStorage;

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

    /// A storage with these files in its root.
    fn holding(files: &[(&str, &[u8])]) -> MemoryStorage {
        let storage = MemoryStorage::new();
        for (path, content) in files {
            storage.insert(path, content);
        }
        storage
    }

    #[test]
    fn the_ending_of_a_hash_may_be_in_capitals() {
        let path = |text: &str| VirtualPath::parse(text.as_bytes()).unwrap();
        let sha256 = Algorithm::parse(b"SHA-256").unwrap();
        for sum in ["/a.zip.sha256", "/a.zip.SHA256", "/a.zip.Sha256"] {
            let storage = holding(&[("/a.zip", b"x"), (sum, b"")]);
            let pair = Pair::of(&path("/a.zip"), sha256).unwrap().found_in(&storage, sha256);
            assert_eq!(Some(pair), Pair::of(&path(sum), sha256), "{sum}");
        }
        let alone = Pair::of(&path("/a.zip"), sha256).unwrap();
        assert_eq!(alone.clone().found_in(&holding(&[("/a.zip", b"x")]), sha256), alone);
    }

    #[test]
    fn a_name_that_looks_like_a_hash_is_none() {
        let path = VirtualPath::parse(b"/a").unwrap();
        let md5 = Algorithm::parse(b"MD5").unwrap();
        let (right, wrong) = ("9dd4e461268c8034f5c8564e155c67a6", "0".repeat(32));
        for (said, is_right) in [
            (right.to_owned(), true),
            (format!("{right}  {wrong}"), true),
            (format!("{right}  {wrong}{wrong}"), true),
            (format!("{wrong}  {right}"), false),
            (format!("MD5 (deadbeef.bin) = {right}"), true),
            ("deadbeef".to_owned(), false),
        ] {
            let storage = holding(&[("/a", b"x"), ("/a.md5", said.as_bytes())]);
            let compared = Pair::of(&path, md5).unwrap().compare(&storage, md5, None);
            assert_eq!(matches!(compared, Ok(true)), is_right, "{said}: {compared:?}");
        }
    }
}
