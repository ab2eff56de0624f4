//! Certificates and keys: read from PEM files, found by name, or made on the spot.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;

use super::key_pair::KeyPair;
use super::load_error::LoadError;
use super::pem::{self, Wanted};

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

    pub(super) fn at(&self, place: usize) -> Option<Arc<CertifiedKey>> {
        self.all.get(place).map(|identity| Arc::clone(&identity.key))
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
