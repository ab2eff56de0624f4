//! The protocols that clients speak, as limits, accounts and logs tell them apart.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The protocol of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// FTP, with TLS or without.
    Ftp,
    /// HTTP, with TLS or without.
    Http,
}

/// A text that names no [`Protocol`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is no protocol; write \"ftp\" or \"http\"")]
pub struct ProtocolError(String);

impl FromStr for Protocol {
    type Err = ProtocolError;

    fn from_str(text: &str) -> Result<Self, ProtocolError> {
        match text {
            "ftp" => Ok(Self::Ftp),
            "http" => Ok(Self::Http),
            _ => Err(ProtocolError(text.to_owned())),
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ftp => "ftp",
            Self::Http => "http",
        })
    }
}
