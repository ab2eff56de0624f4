//! The settings of ACME.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use thiserror::Error;

/// The directory of Let's Encrypt.
pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// A certificate that the server fetches and renews itself (ACME, RFC 8555). Its [identity](Acme::identity) has to be
/// among those of the plan; configuring this agrees to the CA's terms.
#[derive(Debug, Clone)]
pub struct Acme {
    /// The names that it is for.
    pub domains: Vec<String>,
    /// Contact mail addresses, given to the CA when the account is created.
    pub contacts: Vec<String>,
    /// The URL of the CA's directory: `https://...`.
    pub directory: String,
    /// Certificates in PEM that the directory's own has to be signed by, instead of those that browsers trust.
    pub authorities: Option<PathBuf>,
    /// Where account and certificate are kept.
    pub folder: PathBuf,
    /// How the CA validates the names.
    pub challenge: Challenge,
    /// How long the CA may take to answer a request.
    pub patience: Duration,
    /// The clock.
    pub clock: Clock,
}

impl Acme {
    /// These names, from Let's Encrypt, kept in this folder.
    pub fn new(domains: Vec<String>, folder: PathBuf) -> Self {
        Self {
            domains,
            contacts: Vec::new(),
            directory: LETS_ENCRYPT.to_owned(),
            authorities: None,
            folder,
            challenge: Challenge::Http,
            patience: Duration::from_secs(30),
            clock: Clock::default(),
        }
    }

    /// Fails where this program was built without ACME.
    pub fn built() -> Result<(), NotBuilt> {
        if cfg!(feature = "client") { Ok(()) } else { Err(NotBuilt) }
    }

    /// Returns true if the same is to be done in the same way. (Clocks cannot be compared: another one is a test's.)
    pub(super) fn wants_the_same_as(&self, other: &Self) -> bool {
        let Self { domains, contacts, directory, authorities, folder, challenge, patience, clock: _ } = self;
        (domains, contacts, directory) == (&other.domains, &other.contacts, &other.directory)
            && (authorities, folder) == (&other.authorities, &other.folder)
            && (challenge, patience) == (&other.challenge, &other.patience)
    }
}

/// The error of settings for ACME in a program that was built without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "this program was built without ACME; build it with the feature acme: cargo build --release --features acme"
)]
pub struct NotBuilt;

/// How a CA validates a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Challenge {
    /// It asks for a file by HTTP, at port 80 of the name (RFC 8555 section 8.3).
    Http,
    /// It asks for a certificate by TLS, at port 443 of the name (RFC 8737).
    TlsAlpn,
}

impl FromStr for Challenge {
    type Err = ChallengeError;

    fn from_str(text: &str) -> Result<Self, ChallengeError> {
        let found = [Self::Http, Self::TlsAlpn].into_iter().find(|challenge| challenge.to_string() == text);
        found.ok_or_else(|| ChallengeError(text.to_owned()))
    }
}

impl fmt::Display for Challenge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "http-01",
            Self::TlsAlpn => "tls-alpn-01",
        })
    }
}

/// A word that is no [`Challenge`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is none of the choices; write http-01 or tls-alpn-01")]
pub struct ChallengeError(String);

/// The clock for renewals; a simulated one in tests.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> SystemTime + Send + Sync>);

impl Clock {
    /// A custom clock.
    pub fn new(now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Returns the time that renewals go by.
    pub fn now(&self) -> SystemTime {
        (self.0)()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new(SystemTime::now)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_build_without_acme_names_the_feature() {
        let error = NotBuilt.to_string();
        assert!(error.contains("without ACME") && error.ends_with("--features acme"), "{error}");
        assert_eq!(Acme::built().is_ok(), cfg!(feature = "client"));
    }
}
