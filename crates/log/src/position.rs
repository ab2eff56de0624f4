//! A record of a chain: its number and its SHA-256.

use std::fmt;

use millrace_vfs::hex::{self, Hex};
use ring::digest::{SHA256, digest};

/// A SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sha256([u8; 32]);

impl Sha256 {
    /// That of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut sha256 = [0; 32];
        sha256.copy_from_slice(digest(&SHA256, bytes).as_ref());
        Self(sha256)
    }

    /// Reads 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        hex::decode(text.as_bytes())?.try_into().ok().map(Self)
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Hex(&self.0).fmt(f)
    }
}

/// A record: its number, from 1, and its SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Its number.
    pub seq: u64,
    /// That of its line.
    pub sha256: Sha256,
}

impl Position {
    /// Before the first record.
    pub const START: Self = Self { seq: 0, sha256: Sha256([0; 32]) };
}
