//! Certificates and keys: read from PEM files, found by name, or made on the spot.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;

use super::acceptor::KeyPair;

/// Why certificates cannot be used.
#[derive(Debug)]
pub enum LoadError {
    /// A file cannot be read, or is not what it should be.
    File(PathBuf, String),
    /// The key does not belong to the certificate.
    Mismatch(PathBuf, PathBuf),
    /// The whole cannot be used.
    Tls(rustls::Error),
    /// Client certificates cannot be checked.
    Verifier(String),
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path, why) => write!(f, "{}: {why}", path.display()),
            Self::Mismatch(certificate, key) => {
                write!(f, "the key {} does not belong to {}", key.display(), certificate.display())
            }
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
            Self::File(path, _) | Self::Mismatch(_, path) => Some(path),
            Self::Tls(_) | Self::Verifier(_) => None,
        }
    }

    pub(super) fn verifier(error: impl std::fmt::Display) -> Self {
        Self::Verifier(error.to_string())
    }

    fn pem(path: &Path, error: &pem::Error, what: &str) -> Self {
        let why = match error {
            pem::Error::Io(error) => error.to_string(),
            pem::Error::NoItemsFound => format!("there is no {what} in it, in PEM"),
            error => format!("not PEM: {error}"),
        };
        Self::File(path.to_owned(), why)
    }
}

/// The server's certificates. There is at least one.
#[derive(Debug)]
pub(super) struct Identities {
    all: Vec<Identity>,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) key: Arc<CertifiedKey>,
}

impl Identities {
    pub(super) fn load(pairs: &[KeyPair]) -> Result<Self, LoadError> {
        if pairs.is_empty() {
            return Err(LoadError::Tls(rustls::Error::NoCertificatesPresented));
        }
        pairs.iter().map(Identity::load).collect::<Result<_, _>>().map(|all| Self { all })
    }

    pub(super) fn first(&self) -> Option<Arc<CertifiedKey>> {
        self.all.first().map(|identity| Arc::clone(&identity.key))
    }

    /// The first certificate that is for this name, wildcards included.
    pub(super) fn named(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let name = name.to_ascii_lowercase().try_into().ok()?;
        let is_for = |identity: &&Identity| {
            let parsed =
                identity.key.end_entity_cert().ok().and_then(|der| ParsedCertificate::try_from(der).ok());
            parsed.is_some_and(|parsed| rustls::client::verify_server_name(&parsed, &name).is_ok())
        };
        self.all.iter().find(is_for).map(|identity| Arc::clone(&identity.key))
    }

    pub(super) fn fingerprints(&self) -> Vec<String> {
        let ends = self.all.iter().filter_map(|identity| identity.key.end_entity_cert().ok());
        ends.map(|der| fingerprint(der)).collect()
    }
}

impl Identity {
    pub(super) fn load(pair: &KeyPair) -> Result<Self, LoadError> {
        let chain = certificates(&pair.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&pair.key)
            .map_err(|error| LoadError::pem(&pair.key, &error, "private key"))?;
        let key = any_supported_type(&key).map_err(|_| {
            LoadError::File(
                pair.key.clone(),
                "the key is of no kind that can be used (RSA, P-256, P-384, Ed25519)".to_owned(),
            )
        })?;
        let key = CertifiedKey::new(chain, key);
        match key.keys_match() {
            Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {
                Ok(Self { key: Arc::new(key) })
            }
            Err(rustls::Error::InconsistentKeys(_)) => {
                Err(LoadError::Mismatch(pair.certificate.clone(), pair.key.clone()))
            }
            Err(error) => Err(LoadError::File(pair.certificate.clone(), error.to_string())),
        }
    }
}

/// The certificates in a PEM file, of which there is at least one.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, LoadError> {
    let wrong = |error| LoadError::pem(path, &error, "certificate");
    let chain: Vec<_> =
        CertificateDer::pem_file_iter(path).map_err(wrong)?.collect::<Result<_, _>>().map_err(wrong)?;
    if chain.is_empty() { Err(wrong(pem::Error::NoItemsFound)) } else { Ok(chain) }
}

/// Certificates that vouch for others.
pub(super) fn roots(path: &Path) -> Result<RootCertStore, LoadError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| LoadError::File(path.to_owned(), error.to_string()))?;
    }
    Ok(roots)
}

/// Lists of certificates that were taken back.
pub(super) fn revocations(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, LoadError> {
    let wrong = |error| LoadError::pem(path, &error, "revocation list");
    let lists: Vec<_> = CertificateRevocationListDer::pem_file_iter(path)
        .map_err(wrong)?
        .collect::<Result<_, _>>()
        .map_err(wrong)?;
    // A file that was cut short takes nobody back.
    if lists.is_empty() { Err(wrong(pem::Error::NoItemsFound)) } else { Ok(lists) }
}

/// The SHA-256 of a certificate, as browsers and FTP clients show it.
pub fn fingerprint(certificate: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
    let mut text = String::with_capacity(95);
    for (index, byte) in digest.as_ref().iter().enumerate() {
        let _ = write!(text, "{}{byte:02X}", if index == 0 { "" } else { ":" });
    }
    text
}
