//! Uploads that outlive their connections, and the process: what came of them waits for the rest.

use std::fmt;

use crate::hex::Hex;
use crate::{Timestamp, Upload};

/// Identifies a partial upload within a storage: it cannot be guessed, and is not a file name.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PartialKey([u8; 16]);

impl PartialKey {
    /// A key of random bytes.
    pub const fn new(random: [u8; 16]) -> Self {
        Self(random)
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// As 32 hexadecimal digits.
impl fmt::Display for PartialKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Hex(&self.0).fmt(f)
    }
}

impl fmt::Debug for PartialKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its holder can continue the upload.
        f.write_str("PartialKey")
    }
}

/// How a partial upload is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartialMode {
    /// It begins.
    New,
    /// It goes on; what comes is there at once.
    Resume,
    /// It goes on; what comes counts only once it is said that it was right ([`Upload::abort`] or `commit`), also
    /// where the process is killed before.
    Checked,
}

/// A partial upload that is open, to this caller alone.
///
/// Its [`Upload`] appends. `abort` keeps the data until the upload is continued; so does dropping it, except for the
/// data of a [`PartialMode::Checked`] upload. `undo` removes the data received since it was opened. `commit` makes it
/// the file.
#[derive(Debug)]
pub struct Partial {
    /// Bytes that are there.
    pub size: u64,
    /// When it was last changed.
    pub modified: Timestamp,
    /// Where the next bytes go.
    pub upload: Box<dyn Upload>,
}

/// The state of a partial upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartialState {
    /// Bytes that are there.
    pub size: u64,
    /// When it was last changed.
    pub modified: Timestamp,
}

/// The total of a storage's partial uploads that are not open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Resting {
    /// Bytes.
    pub bytes: u64,
    /// How many there are.
    pub files: u64,
}
