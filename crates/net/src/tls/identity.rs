//! Certificates and keys: read from PEM files, found by name, or made on the spot.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;

use super::acceptor::KeyPair;
use super::pem::{self, Wanted};

/// Why certificates cannot be used: which file, what is wrong with it, and what to do.
#[derive(Debug)]
pub enum LoadError {
    /// A file cannot be read, which says nothing of what is in it.
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
        let key = any_supported_type(&private_key(&pair.key)?).map_err(|_| {
            let kinds =
                "the key is of no kind that can be used: RSA of 2048 to 4096 bits, P-256, P-384, Ed25519";
            LoadError::File(pair.key.clone(), kinds.to_owned())
        })?;
        let key = CertifiedKey::new(chain, key);
        match key.keys_match() {
            Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {
                Ok(Self { key: Arc::new(key) })
            }
            Err(rustls::Error::InconsistentKeys(_)) => {
                let (certificate, own) = (pair.certificate.clone(), pair.key.clone());
                Err(LoadError::Mismatch(certificate, own, place(key)))
            }
            Err(error) => Err(unusable(&pair.certificate, &error)),
        }
    }
}

/// The number, from 1, of the certificate to which the key of a chain belongs.
fn place(CertifiedKey { cert, key, .. }: CertifiedKey) -> Option<usize> {
    let belongs = |certificate: &CertificateDer<'static>| {
        CertifiedKey::new(vec![certificate.clone()], Arc::clone(&key)).keys_match().is_ok()
    };
    cert.iter().position(belongs).map(|index| index + 1)
}

/// A certificate that is there, but cannot be used.
fn unusable(path: &Path, error: &rustls::Error) -> LoadError {
    let text = error.to_string();
    let why = match text.contains("UnsupportedCertVersion") {
        true => {
            "the certificate is of version 1, and has to be of version 3, which openssl x509 -req makes with \
                 -extfile only"
                .to_owned()
        }
        false => format!("a certificate in it cannot be read: {text}"),
    };
    LoadError::File(path.to_owned(), why)
}

/// The certificates in a PEM file, of which there is at least one.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, LoadError> {
    pem::all(path, Wanted::Certificate)
}

/// The private key in a PEM file: PKCS #8, PKCS #1 or SEC 1.
pub(super) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, LoadError> {
    pem::first(path, Wanted::Key)
}

/// Certificates that vouch for others.
pub(super) fn roots(path: &Path) -> Result<RootCertStore, LoadError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| unusable(path, &error))?;
    }
    Ok(roots)
}

/// Lists of certificates that were taken back.
pub(super) fn revocations(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, LoadError> {
    pem::all(path, Wanted::Revocations)
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
