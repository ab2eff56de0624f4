//! Hashes by argon2id in PHC form: reading, computing and checking them within bounds of memory and time.

use std::fmt;

use argon2::password_hash::phc::{Output, ParamsString, PasswordHash, Salt};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use thiserror::Error;

/// Why a text is not a hash that can be checked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PasswordError {
    /// Not in PHC form at all: probably the password itself.
    #[error("this is not a password hash, which looks like $argon2id$v=19$m=19456,t=2,p=1$...$...")]
    NotAHash,
    /// A hash by something else.
    #[error(
        "this is a hash by {0}; argon2id, bcrypt, scrypt, yescrypt, SHA-512-crypt and SHA-256-crypt are accepted"
    )]
    Algorithm(String),
    /// With costs or a version that it cannot be computed with, or without salt or hash.
    #[error("this hash is damaged or incomplete")]
    Damaged,
    /// More memory than a login may cost.
    #[error("this hash needs {0} KiB of memory for each login; at most {most} are allowed", most = Argon2id::MAX_MEMORY)]
    Memory(u32),
    /// More time than a login may cost.
    #[error("to check this hash would take many seconds for each login; make one with lower costs")]
    Costly,
}

/// An argon2id hash with the salt and costs that it was made with.
#[derive(Clone)]
pub(super) struct Argon2id(PasswordHash);

impl Argon2id {
    /// In KiB: a configuration mistake beyond this would exhaust a small machine with a handful of logins.
    const MAX_MEMORY: u32 = 1024 * 1024;

    /// In bytes: fewer are a hash that was cut when it was copied.
    const MIN_TAG: usize = 16;

    pub(super) fn parse(phc: &str) -> Result<Self, PasswordError> {
        let shape = phc.strip_prefix('$').and_then(|rest| rest.split_once('$'));
        match shape {
            Some(("argon2id", _)) => {}
            Some((other, _)) if !other.is_empty() => {
                return Err(PasswordError::Algorithm(other.escape_debug().to_string()));
            }
            _ => return Err(PasswordError::NotAHash),
        }
        let hash = PasswordHash::new(phc).map_err(|_| PasswordError::Damaged)?;
        let complete =
            hash.salt.is_some() && hash.hash.as_ref().is_some_and(|tag| tag.len() >= Self::MIN_TAG);
        let version = hash.version.is_none_or(|version| Version::try_from(version).is_ok());
        let params = Params::try_from(&hash).map_err(|_| PasswordError::Damaged)?;
        match params.m_cost() {
            _ if !complete || !version => Err(PasswordError::Damaged),
            memory if memory > Self::MAX_MEMORY => Err(PasswordError::Memory(memory)),
            _ => Ok(Self(hash)),
        }
    }

    /// A hash whose password is unknown, as costly to check as this one.
    pub(super) fn decoy(&self) -> Self {
        Self::compute(&random::<32>(), self.params())
    }

    /// Returns true if `password` is the one that was hashed. Takes milliseconds.
    pub(super) fn verify(&self, password: &[u8], memory: &mut Memory) -> bool {
        let version = self.0.version.map_or(Ok(Version::default()), Version::try_from);
        let (Some(salt), Some(right), Ok(version)) = (&self.0.salt, &self.0.hash, version) else {
            return false;
        };
        // Compared in constant time.
        memory.hash(password, salt, self.params(), version).is_some_and(|hash| hash == *right)
    }

    /// Memory times passes: what a check costs, in KiB written.
    pub(super) fn cost(&self) -> u64 {
        let params = self.params();
        u64::from(params.m_cost()) * u64::from(params.t_cost())
    }

    /// In its original form.
    pub(super) fn text(&self) -> String {
        self.0.to_string()
    }

    pub(super) fn params(&self) -> Params {
        Params::try_from(&self.0).expect("the parameters were read once, in `parse`")
    }

    pub(super) fn compute(password: &[u8], params: Params) -> Self {
        let salt = Salt::new(&random::<16>()).expect("that is as long as is recommended");
        let version = Version::V0x13;
        let said = ParamsString::try_from(&params).expect("they were read from one, or are the usual ones");
        let hash = Memory::default()
            .hash(password, &salt, params, version)
            .expect("there is memory, and a line of a client is not longer than argon2 can take, 4 GiB");
        Self(PasswordHash {
            algorithm: Algorithm::Argon2id.ident(),
            version: Some(version.into()),
            params: said,
            salt: Some(salt),
            hash: Some(hash),
        })
    }
}

/// The working memory of argon2id, some 19 MiB, reused from one hash to the next. It is returned to the system when it
/// is dropped.
#[derive(Default)]
pub(super) struct Memory(Vec<Block>);

impl Memory {
    /// The smallest allocation, in blocks of a KiB; untouched pages cost nothing. glibc always maps an allocation of 32
    /// MiB and more separately, and unmaps it. After the first smaller one is freed, glibc takes the next from an
    /// arena, where the memory stays.
    const LEAST: usize = 33 << 10;

    /// The hash of a password; `None` where there is no memory for it.
    fn hash(&mut self, password: &[u8], salt: &[u8], params: Params, version: Version) -> Option<Output> {
        let mut tag = [0; Output::MAX_LENGTH];
        let tag = tag.get_mut(..params.output_len().unwrap_or(Params::DEFAULT_OUTPUT_LEN))?;
        let blocks = self.blocks(params.block_count())?;
        let argon2 = Argon2::new(Algorithm::Argon2id, version, params);
        argon2.hash_password_into_with_memory(password, salt, tag, blocks).ok()?;
        Output::new(tag).ok()
    }

    fn blocks(&mut self, count: usize) -> Option<&mut [Block]> {
        if self.0.len() < count {
            // Not beside the old ones.
            self.0 = Vec::new();
            self.0.try_reserve_exact(count.max(Self::LEAST)).ok()?;
            self.0.resize(count, Block::new());
        }
        self.0.get_mut(..count)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Memory({} KiB)", self.0.len())
    }
}

impl fmt::Debug for Argon2id {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Argon2id({})", self.0.params)
    }
}

/// Returns bytes from the system that cannot be guessed, at most 256.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let filled = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
    assert_eq!(filled, Ok(N), "getrandom gives up to 256 bytes at once on every Linux since 3.17");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever was in it before.
    #[test]
    fn hashes_of_all_sizes_share_memory() {
        let mut memory = Memory::default();
        let hashes: Vec<_> = [(64, b"a"), (512, b"b"), (8, b"c"), (64, b"d")]
            .map(|(size, word)| (Argon2id::compute(word, Params::new(size, 2, 1, None).unwrap()), word))
            .into();
        for (hash, word) in hashes.iter().chain(hashes.iter().rev()) {
            assert!(hash.verify(*word, &mut memory));
            assert!(!hash.verify(b"x", &mut memory));
        }
        assert!(memory.0.len() == 512 && memory.0.capacity() >= Memory::LEAST);
    }
}
