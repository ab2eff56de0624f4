//! Why certificates cannot be used.

use std::io;
use std::path::{Path, PathBuf};

/// Why certificates cannot be used: the file, the error, and the remedy.
#[derive(Debug)]
pub enum LoadError {
    /// A file cannot be read, whatever its content.
    Unread(PathBuf, io::Error),
    /// A file is not what it should be.
    File(PathBuf, String),
    /// The key, which is the second, does not belong to the first certificate of the first file, but perhaps to the one
    /// with this number.
    Mismatch(PathBuf, PathBuf, Option<usize>),
    /// The whole cannot be used.
    Tls(rustls::Error),
    /// Client certificates cannot be checked.
    Verifier(String),
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unread(path, error) => write!(f, "{}: {}", path.display(), unread(error)),
            Self::File(path, why) => write!(f, "{}: {why}", path.display()),
            Self::Mismatch(certificate, key, None) => write!(
                f,
                "the key {} does not belong to the certificate {}; those that belong together have one public key, \
                 which openssl pkey -pubout -in KEY and openssl x509 -noout -pubkey -in CERTIFICATE show",
                key.display(),
                certificate.display()
            ),
            Self::Mismatch(certificate, key, Some(number)) => write!(
                f,
                "{}: the key {} belongs to certificate {number} in it; the server's own has to be the first, and \
                 behind each the one that has issued it",
                certificate.display(),
                key.display()
            ),
            Self::Tls(error) => error.fmt(f),
            Self::Verifier(why) => write!(f, "client certificates cannot be checked: {why}"),
        }
    }
}

impl std::error::Error for LoadError {}

impl LoadError {
    /// The file that is to be looked at, where it is one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Unread(path, _)
            | Self::File(path, _)
            | Self::Mismatch(_, path, None)
            | Self::Mismatch(path, _, Some(_)) => Some(path),
            Self::Tls(_) | Self::Verifier(_) => None,
        }
    }

    pub(super) fn verifier(error: impl std::fmt::Display) -> Self {
        Self::Verifier(error.to_string())
    }
}

/// Why a file cannot be read.
fn unread(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::PermissionDenied => {
            "permission is denied; the user that the server runs as has to be allowed \
                                            to read it, and to pass through the folders above it"
                .to_owned()
        }
        io::ErrorKind::IsADirectory => "it is a folder, where a file is wanted".to_owned(),
        _ => error.to_string(),
    }
}
