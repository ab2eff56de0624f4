//! The addresses of uploads: all that is known of one, sealed.
//!
//! The invariant: an address that opens was made by this server, or by one with the same secret. So there is no table
//! of uploads that a restart could lose, and a client cannot forge an address of another's upload.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use millrace_accounts::password;
use millrace_http::base64;
use millrace_http::target::written_path;
use millrace_http::tus::{UploadKind, UploadProgress};
use millrace_vfs::{PartialKey, VirtualPath};

/// What every address begins with, in the tree of every user. No file has such a name.
const PLACE: &[u8] = b".millrace-uploads";

/// The longest sealed text: with its slashes a path has to hold it.
const LONGEST: usize = 3600;

/// A component of a path has at most 255 bytes.
const COMPONENT: usize = 200;

/// The bytes of the seal.
const SEAL: usize = 16;

/// What a server seals addresses with.
pub(crate) type Secret = [u8; 32];

/// An upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) key: PartialKey,
    /// The owner.
    pub(crate) user: Option<Vec<u8>>,
    /// What it becomes.
    pub(crate) kind: UploadKind,
    /// The file that it becomes, or where its part lies in the meantime.
    pub(crate) path: VirtualPath,
    /// Bytes of the whole file; `None` where that was to be said later.
    pub(crate) length: Option<u64>,
    /// It may not replace a file.
    pub(crate) is_exclusive: bool,
    /// What the client said of it, for the client.
    pub(crate) metadata: Vec<u8>,
}

/// Returns whether a path is the address of an upload, whole or not.
pub(crate) fn is_address(path: &VirtualPath) -> bool {
    path.components().next() == Some(PLACE)
}

/// How many characters of an address may be logged: enough to distinguish uploads. A reader of the whole address could
/// continue or abort the upload.
const SHOWN: usize = 8;

/// A request target as it may be written down, where it is an address.
pub(crate) fn without_seal(target: &[u8]) -> Option<Vec<u8>> {
    let path = written_path(target);
    let is_address = path.strip_prefix(b"/")?.starts_with(PLACE);
    let shown = (1 + PLACE.len() + 1 + SHOWN).min(path.len());
    is_address.then(|| [&path[..shown], b"..."].concat())
}

impl Address {
    /// How far the upload has come, of which this many bytes are there; `None` where it is its file already.
    pub(crate) fn progress(&self, received: Option<u64>) -> UploadProgress {
        UploadProgress { kind: self.kind, length: self.length, received }
    }

    /// The path that clients are told; `None` where it would be too long.
    pub(crate) fn seal(&self, secret: &Secret) -> Option<String> {
        let is_deferred = self.length.is_none();
        let kind = match self.kind {
            UploadKind::File => 0,
            UploadKind::Part => 4,
            UploadKind::Joined => 8,
        };
        let mut bytes = vec![u8::from(self.is_exclusive) | u8::from(is_deferred) << 1 | kind];
        bytes.extend_from_slice(self.key.as_bytes());
        bytes.extend_from_slice(&self.length.unwrap_or(0).to_be_bytes());
        // No user is different from a user with an empty name.
        bytes.push(u8::from(self.user.is_some()));
        for part in [self.user.as_deref().unwrap_or_default(), self.path.as_bytes()] {
            bytes.extend_from_slice(&u16::try_from(part.len()).ok()?.to_be_bytes());
            bytes.extend_from_slice(part);
        }
        bytes.extend_from_slice(&self.metadata);
        bytes.extend_from_slice(&seal(secret, &bytes));
        let text = base64::encode_url(&bytes);
        let mut address = format!("/{}", String::from_utf8_lossy(PLACE));
        for part in text.as_bytes().chunks(COMPONENT) {
            address.push('/');
            address.extend(part.iter().copied().map(char::from));
        }
        (text.len() <= LONGEST).then_some(address)
    }

    /// What an address says, where it is one.
    pub(crate) fn open(path: &VirtualPath, secret: &Secret) -> Option<Self> {
        let text: Vec<u8> = path.components().skip(1).flatten().copied().collect();
        let bytes = base64::decode(&text)?;
        let (bytes, sealed) = bytes.split_at_checked(bytes.len().checked_sub(SEAL)?)?;
        // A comparison in constant time.
        let differ =
            seal(secret, bytes).iter().zip(sealed).fold(0, |differ, (one, other)| differ | (one ^ other));
        if differ != 0 {
            return None;
        }
        let (&[flags], rest) = bytes.split_first_chunk()?;
        let (key, rest) = rest.split_first_chunk::<16>()?;
        let (length, rest) = rest.split_first_chunk::<8>()?;
        let (&[has_user], rest) = rest.split_first_chunk()?;
        let (user, rest) = part(rest)?;
        let (path, metadata) = part(rest)?;
        Some(Self {
            key: PartialKey::new(*key),
            user: (has_user == 1).then(|| user.to_vec()),
            kind: match flags & 12 {
                4 => UploadKind::Part,
                8 => UploadKind::Joined,
                _ => UploadKind::File,
            },
            path: VirtualPath::parse(path).ok()?,
            length: (flags & 2 == 0).then(|| u64::from_be_bytes(*length)),
            is_exclusive: flags & 1 != 0,
            metadata: metadata.to_vec(),
        })
    }
}

fn part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

fn seal(secret: &Secret, bytes: &[u8]) -> [u8; SEAL] {
    let hash = blake3::keyed_hash(secret, bytes);
    let mut seal = [0; SEAL];
    seal.copy_from_slice(&hash.as_bytes()[..SEAL]);
    seal
}

/// The secret that a file has, which is made where it is not there.
pub(crate) fn secret(path: &Path) -> io::Result<Secret> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let made = path.with_extension(format!("new-{}", std::process::id()));
    if !path.exists() {
        let _ = fs::remove_file(&made);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&made)?;
        file.write_all(&password::random::<32>()).and_then(|()| file.sync_all())?;
        // Another process has created the valid one first.
        let linked = fs::hard_link(&made, path);
        fs::remove_file(&made)?;
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        // Without the name a power cut would have the next server make another secret, which opens no address.
        if let Some(folder) = path.parent() {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            fs::File::open(folder)?.sync_all()?;
        }
    }
    fs::read(path)?.try_into().map_err(|_| io::Error::other("it has not 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> Address {
        Address {
            key: PartialKey::new([3; 16]),
            user: Some(b"alice".to_vec()),
            kind: UploadKind::File,
            path: VirtualPath::parse(b"/d/\xff f").unwrap(),
            length: Some(1 << 40),
            is_exclusive: true,
            metadata: b"filename YQ==".to_vec(),
        }
    }

    #[test]
    fn an_address_opens_with_the_secret_that_sealed_it_and_as_it_was_only() {
        let (secret, whole) = ([1; 32], address());
        let text = whole.seal(&secret).unwrap();
        let path = VirtualPath::parse(text.as_bytes()).unwrap();
        assert!(is_address(&path) && !is_address(&whole.path));
        assert_eq!(Address::open(&path, &secret), Some(whole.clone()));
        assert_eq!(Address::open(&path, &[2; 32]), None);
        let anonymous = Address { user: None, ..whole };
        let sealed = VirtualPath::parse(anonymous.seal(&secret).unwrap().as_bytes()).unwrap();
        assert_eq!(Address::open(&sealed, &secret), Some(anonymous.clone()));
        for kind in [UploadKind::File, UploadKind::Part, UploadKind::Joined] {
            let later = Address { length: None, kind, ..anonymous.clone() };
            let sealed = VirtualPath::parse(later.seal(&secret).unwrap().as_bytes()).unwrap();
            assert_eq!(Address::open(&sealed, &secret), Some(later));
        }
        for at in 20..text.len() - 1 {
            let mut other = text.clone().into_bytes();
            other[at] = if other[at] == b'A' { b'B' } else { b'A' };
            let other = VirtualPath::parse(&other).unwrap();
            assert!(other == path || Address::open(&other, &secret).is_none(), "{at}");
        }
        for short in 0..text.len() - 1 {
            let short = VirtualPath::parse(&text.as_bytes()[..short]).unwrap();
            assert!(short == path || Address::open(&short, &secret).is_none());
        }
    }

    #[test]
    fn one_that_no_path_could_hold_is_not_made() {
        let long = Address { metadata: vec![b'a'; 3000], ..address() };
        assert_eq!(long.seal(&[1; 32]), None);
    }

    #[test]
    fn the_secret_is_made_once() {
        let folder = std::env::temp_dir().join(format!("millrace-tus-secret-{}", std::process::id()));
        let path = folder.join("deep/tus.key");
        let first = secret(&path).unwrap();
        assert_eq!(secret(&path).unwrap(), first);
        fs::write(&path, b"short").unwrap();
        secret(&path).unwrap_err();
        fs::remove_dir_all(folder).unwrap();
    }
}
