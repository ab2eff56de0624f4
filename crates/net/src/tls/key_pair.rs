//! Where a certificate and its key are.

use std::path::PathBuf;

/// A certificate chain and its key, in PEM; where one file has both, it is named twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPair {
    /// The server's certificate first, then those that vouch for it.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}
