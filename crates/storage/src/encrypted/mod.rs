//! Encryption at rest: any back end, the content of its files encrypted under a key that it never sees.
//!
//! ```text
//! file   = header chunk* last-chunk                          every file has a last chunk, an empty one too
//! header = "millrace encrypted 1\n" (21 bytes) salt (19)      40 bytes
//! chunk  = nonce (24) ciphertext tag (16)                     64 KiB of content each, the last 0 to 64 KiB
//! ```
//!
//! Each chunk is XChaCha20-Poly1305 under the folder's key and a random nonce; the file's salt, the chunk's
//! number and whether it is the last are authenticated with it. So chunks cannot be swapped, repeated, moved
//! between files or cut off without the reader's noticing: it gets an error, never wrong bytes. Any part can
//! be read without what stands before it (`REST`). Names, sizes and times are not hidden.
//!
//! Content is never changed in place: `APPE` and `REST` before `STOR` copy what stays into a new upload, so a nonce is
//! never used twice and a cut connection leaves a file that can be read. The received part of such an upload stays, as
//! with a back end that writes in place. So the back end has to stage replacements.

mod chunk;
mod read;
mod write;

use std::fmt;
use std::io;
use std::sync::Arc;

use millrace_vfs::hash::Hashes;
use millrace_vfs::{
    Call, DirEntry, Directory, FileError, Metadata, ReadHandle, Storage, Upload, VirtualPath, Wait,
    WriteMode, hex,
};
use thiserror::Error;

use crate::through;
use chunk::Sealer;
use read::Reader;
use write::Writer;

/// The key of an encrypted folder: 32 random bytes.
#[derive(Clone)]
pub struct Key([u8; 32]);

/// Why a text is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a key is 64 hexadecimal digits; `openssl rand -hex 32` makes one")]
pub struct KeyError;

impl Key {
    /// A key out of its bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A key out of 64 hexadecimal digits, as a key file has them; white space around them is no part of it.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let bytes = hex::decode(text.trim().as_bytes()).ok_or(KeyError)?;
        bytes.try_into().map(Self).map_err(|_| KeyError)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Another back end, its files' content encrypted.
///
/// Every file in it must have been written through this layer: others are an error to read, and can be
/// replaced or removed.
pub struct Encrypted {
    inner: Arc<dyn Storage>,
    sealer: Sealer,
}

impl fmt::Debug for Encrypted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Encrypted").field(&self.inner).finish()
    }
}

impl Encrypted {
    /// Encrypts data written to `inner`, which stages its uploads, and decrypts what is read.
    pub fn new(inner: Arc<dyn Storage>, key: &Key) -> Self {
        Self { inner, sealer: Sealer::new(&key.0) }
    }

    /// The part of the old file that an upload at `offset` keeps; with `None` it begins at the end.
    fn kept(&self, path: &VirtualPath, offset: Option<u64>) -> Result<Option<(Reader, u64)>, FileError> {
        let reader = match self.inner.open_read(path, Wait::Allowed) {
            Ok(handle) => Reader::open(handle, self.sealer.clone())?,
            Err(FileError::NotFound) if offset.unwrap_or(0) == 0 => return Ok(None),
            Err(error) => return Err(error),
        };
        let length = reader.length();
        match offset {
            Some(offset) if offset > length => Err(FileError::OutOfRange),
            offset => Ok(Some((reader, offset.unwrap_or(length)))),
        }
    }
}

/// The metadata for clients: the length of the content.
fn shown(metadata: Metadata) -> Metadata {
    if metadata.is_file() {
        Metadata { size: chunk::content_length(metadata.size), ..metadata }
    } else {
        metadata
    }
}

/// The error about a file that is not what this layer wrote, or was changed since.
fn damaged(what: &str) -> FileError {
    FileError::Io(io::Error::new(io::ErrorKind::InvalidData, format!("encrypted file: {what}")))
}

impl millrace_vfs::Layer for Encrypted {
    fn inner(&self) -> &dyn Storage {
        &*self.inner
    }

    fn admit(&self, call: Call, _: Wait) -> Result<(), FileError> {
        match call {
            Call::Read | Call::Change => Ok(()),
            // A partial upload would be kept by the storage below, in clear.
            Call::OpenPartial => Err(FileError::Unsupported),
            Call::FindPartial => Err(FileError::NotFound),
        }
    }

    fn open_read(&self, path: &VirtualPath, wait: Wait) -> Result<ReadHandle, FileError> {
        if wait == Wait::Never {
            return Err(FileError::WouldWait);
        }
        let handle = self.inner.open_read(path, wait)?;
        Ok(ReadHandle::Stream(Box::new(Reader::open(handle, self.sealer.clone())?)))
    }

    fn open_write_with(
        &self,
        path: &VirtualPath,
        mode: WriteMode,
        bits: Option<u32>,
        wait: Wait,
    ) -> Result<Box<dyn Upload>, FileError> {
        if wait == Wait::Never {
            return Err(FileError::WouldWait);
        }
        let kept = match mode {
            WriteMode::CreateNew => None,
            WriteMode::Replace => None,
            WriteMode::Append => self.kept(path, None)?,
            WriteMode::At(offset) => self.kept(path, Some(offset))?,
        };
        let inner_mode = if mode == WriteMode::CreateNew { mode } else { WriteMode::Replace };
        let in_place = matches!(mode, WriteMode::Append | WriteMode::At(_));
        let upload = self.inner.open_write_with(path, inner_mode, bits, wait)?;
        Ok(Box::new(Writer::begin(upload, self.sealer.clone(), kept, in_place)?))
    }

    fn metadata(&self, path: &VirtualPath, wait: Wait) -> Result<Metadata, FileError> {
        self.inner.metadata(path, wait).map(shown)
    }

    fn entry(&self, path: &VirtualPath) -> Result<DirEntry, FileError> {
        let entry = self.inner.entry(path)?;
        Ok(DirEntry { metadata: shown(entry.metadata), ..entry })
    }

    fn open_directory(&self, path: &VirtualPath) -> Result<Box<dyn Directory>, FileError> {
        Ok(Box::new(Shown(self.inner.open_directory(path)?)))
    }

    /// None: in clear it would tell whether a known file is here. Each chunk is authenticated, so that damage is an error.
    fn stored_hashes(&self, _: &VirtualPath, _: Wait) -> Result<Option<Hashes>, FileError> {
        Ok(None)
    }

    fn copy(
        &self,
        from: &VirtualPath,
        to: &VirtualPath,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u64, FileError> {
        // Encrypted anew: two files under one salt would let their chunks be exchanged.
        through::copy((self, from), (self, to), progress)
    }
}

/// A directory whose files show the length of their content.
#[derive(Debug)]
struct Shown(Box<dyn Directory>);

impl Directory for Shown {
    fn next_batch(&mut self, entries: &mut Vec<DirEntry>, most: usize) -> Result<(), FileError> {
        let start = entries.len();
        self.0.next_batch(entries, most)?;
        entries[start..].iter_mut().for_each(|entry| entry.metadata = shown(entry.metadata));
        Ok(())
    }

    fn next_names(&mut self, visit: &mut dyn FnMut(&[u8]), most: usize) -> Result<usize, FileError> {
        self.0.next_names(visit, most)
    }

    fn metadata(&self) -> Result<Metadata, FileError> {
        self.0.metadata()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_64_digits() {
        let text = "00ff".repeat(16);
        assert_eq!(Key::parse(&format!(" {text}\n")).unwrap().0[..4], [0, 255, 0, 255]);
        for wrong in ["", "00", &"0g".repeat(32), &"0".repeat(63), &"é".repeat(32)] {
            assert_eq!(Key::parse(wrong).unwrap_err(), KeyError);
        }
        assert_eq!(format!("{:?}", Key::new([7; 32])), "Key(..)", "a key is never printed");
    }
}
