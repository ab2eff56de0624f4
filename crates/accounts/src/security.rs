//! The requirements of accounts and servers on TLS: resumed sessions on data connections, logins by certificate.

use std::fmt;
use std::str::FromStr;

/// Whether a data connection has to show that it belongs to its control connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resumption {
    /// A connection that does not resume gets 522.
    Require,
    /// The log says which did not, and which showed another control connection's ticket.
    Prefer,
    /// No check.
    Off,
}

impl FromStr for Resumption {
    type Err = ResumptionError;

    fn from_str(text: &str) -> Result<Self, ResumptionError> {
        match text {
            "require" => Ok(Self::Require),
            "prefer" => Ok(Self::Prefer),
            "off" => Ok(Self::Off),
            _ => Err(ResumptionError(text.to_owned())),
        }
    }
}

impl fmt::Display for Resumption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Require => "require",
            Self::Prefer => "prefer",
            Self::Off => "off",
        })
    }
}

/// A word that is no [`Resumption`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is none of the choices; write require or prefer or off")]
pub struct ResumptionError(String);

/// What a client certificate proves. It belongs to the user if it contains the user's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateLogin {
    /// Nothing.
    Off,
    /// As much as the password: one of the two is asked for.
    OrPassword,
    /// Half: both are asked for.
    AndPassword,
    /// All: no password lets the user in.
    Alone,
}

impl FromStr for CertificateLogin {
    type Err = CertificateLoginError;

    fn from_str(text: &str) -> Result<Self, CertificateLoginError> {
        let all = [Self::Off, Self::OrPassword, Self::AndPassword, Self::Alone];
        let found = all.into_iter().find(|login| login.to_string() == text);
        found.ok_or_else(|| CertificateLoginError(text.to_owned()))
    }
}

impl fmt::Display for CertificateLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::OrPassword => "or-password",
            Self::AndPassword => "and-password",
            Self::Alone => "alone",
        })
    }
}

/// A word that is no [`CertificateLogin`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is none of the choices; write off or or-password or and-password or alone")]
pub struct CertificateLoginError(String);
