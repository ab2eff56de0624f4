//! One chunk: sealing, opening, and where it stands.

use chacha20poly1305::aead::{AeadInOut, KeyInit};
use chacha20poly1305::{Tag, XChaCha20Poly1305, XNonce};
use millrace_vfs::FileError;

use super::damaged;

/// Content in every chunk but the last, in bytes.
pub(super) const CONTENT: usize = 64 << 10;
const NONCE: usize = 24;
const TAG: usize = 16;
const OVERHEAD: usize = NONCE + TAG;
/// A full chunk as it is stored, in bytes.
pub(super) const STORED: usize = CONTENT + OVERHEAD;

const MAGIC: &[u8; 21] = b"millrace encrypted 1\n";
const SALT: usize = 19;
/// The length of the header before the first chunk, in bytes.
pub(super) const HEADER: usize = MAGIC.len() + SALT;

/// The random value that binds chunks to their file.
pub(super) type Salt = [u8; SALT];

/// The header of a file.
pub(super) fn header(salt: &Salt) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..MAGIC.len()].copy_from_slice(MAGIC);
    header[MAGIC.len()..].copy_from_slice(salt);
    header
}

/// The salt in a header.
pub(super) fn parse_header(header: &[u8]) -> Result<Salt, FileError> {
    match header.strip_prefix(MAGIC) {
        Some(salt) => salt.try_into().map_err(|_| damaged("the header is cut off")),
        None => Err(damaged("it was not written through the encrypted folder")),
    }
}

/// The length of the content of a file that is stored in this many bytes.
pub(super) fn content_length(stored: u64) -> u64 {
    let chunks = stored.saturating_sub(HEADER as u64);
    let count = chunks.div_ceil(STORED as u64);
    chunks.saturating_sub(count * OVERHEAD as u64)
}

/// Where chunk `number` begins in the stored file.
pub(super) fn position(number: u64) -> u64 {
    HEADER as u64 + number * STORED as u64
}

/// The number of the last chunk of a content of this length. A chunk is full before the next begins; a
/// content that fills its chunks ends with a full one.
pub(super) fn last_number(length: u64) -> u64 {
    length.saturating_sub(1) / CONTENT as u64
}

/// Seals and opens chunks under one key.
#[derive(Clone)]
pub(super) struct Sealer(XChaCha20Poly1305);

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealer")
    }
}

/// Which chunk it is: authenticated with it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) salt: &'a Salt,
    pub(super) number: u64,
    pub(super) is_last: bool,
}

impl Place<'_> {
    fn authenticated(self) -> [u8; SALT + 9] {
        let mut data = [0; SALT + 9];
        data[..SALT].copy_from_slice(self.salt);
        data[SALT..SALT + 8].copy_from_slice(&self.number.to_be_bytes());
        data[SALT + 8] = self.is_last.into();
        data
    }
}

/// Random bytes from the system.
pub(super) fn random<const N: usize>() -> Result<[u8; N], FileError> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
            .map_err(std::io::Error::from)?;
    }
    Ok(bytes)
}

impl Sealer {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Self(XChaCha20Poly1305::new(key.into()))
    }

    /// Appends the stored form of `content` to `stored`.
    pub(super) fn seal(
        &self,
        place: Place<'_>,
        content: &[u8],
        stored: &mut Vec<u8>,
    ) -> Result<(), FileError> {
        let nonce = XNonce::from(random::<NONCE>()?);
        stored.extend_from_slice(&nonce);
        let start = stored.len();
        stored.extend_from_slice(content);
        let tag = self
            .0
            .encrypt_inout_detached(&nonce, &place.authenticated(), (&mut stored[start..]).into())
            .map_err(|_| FileError::TooLarge)?;
        stored.extend_from_slice(&tag);
        Ok(())
    }

    /// Turns a stored chunk into its content, in place; answers where the content stands.
    pub(super) fn open(
        &self,
        place: Place<'_>,
        stored: &mut [u8],
    ) -> Result<std::ops::Range<usize>, FileError> {
        let Some(end) = stored.len().checked_sub(TAG).filter(|end| *end >= NONCE) else {
            return Err(damaged("it is cut off"));
        };
        let (rest, tag) = stored.split_at_mut(end);
        let (nonce, content) = rest.split_at_mut(NONCE);
        let nonce = XNonce::try_from(&*nonce).expect("it has the length of a nonce");
        let tag = Tag::try_from(&*tag).expect("it has the length of a tag");
        self.0
            .decrypt_inout_detached(&nonce, &place.authenticated(), content.into(), &tag)
            .map_err(|_| damaged("it was changed, cut off, or written under another key"))?;
        Ok(NONCE..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_told_from_what_is_stored() {
        for length in [0, 1, 65_535, 65_536, 65_537, 131_072, 131_073, 10_000_000_u64] {
            let chunks = last_number(length) + 1;
            let stored = HEADER as u64 + length + chunks * OVERHEAD as u64;
            assert_eq!(content_length(stored), length);
        }
        for short in 0..=HEADER as u64 + OVERHEAD as u64 {
            assert_eq!(content_length(short), 0);
        }
    }

    #[test]
    fn a_chunk_opens_only_where_it_belongs() {
        let (sealer, salt) = (Sealer::new(&[1; 32]), [2; SALT]);
        let place = Place { salt: &salt, number: 3, is_last: false };
        let mut stored = Vec::new();
        sealer.seal(place, b"content", &mut stored).unwrap();
        let open = |sealer: &Sealer, place| sealer.open(place, &mut stored.clone());
        let mut opened = stored.clone();
        let range = sealer.open(place, &mut opened).unwrap();
        assert_eq!(&opened[range], b"content");
        open(&sealer, Place { number: 4, ..place }).unwrap_err();
        open(&sealer, Place { is_last: true, ..place }).unwrap_err();
        open(&sealer, Place { salt: &[3; SALT], ..place }).unwrap_err();
        open(&Sealer::new(&[9; 32]), place).unwrap_err();
    }
}
