//! TLS to servers elsewhere that know accounts, keep files or issue certificates: which certificates are trusted.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;

/// Why certificates cannot be the roots that are trusted.
#[derive(Debug, Error)]
pub enum RootsError {
    /// The PEM section has invalid content.
    #[error("this is no certificate in PEM: {0}")]
    Pem(pem::Error),
    /// A certificate is not one of an authority.
    #[error("a certificate cannot be used: {0}")]
    Certificate(rustls::Error),
    /// There are no certificates.
    #[error("there is no certificate in PEM")]
    Empty,
}

/// Makes the settings of a client that wants a certificate of one of these roots, in PEM; without them, of one that
/// browsers trust.
pub fn client_config(roots: Option<&[u8]>) -> Result<Arc<ClientConfig>, RootsError> {
    let mut trusted = RootCertStore::empty();
    match roots {
        None => trusted.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(RootsError::Pem)?;
                trusted.add(certificate).map_err(RootsError::Certificate)?;
            }
            if trusted.is_empty() {
                return Err(RootsError::Empty);
            }
        }
    }
    Ok(Arc::new(ClientConfig::builder().with_root_certificates(trusted).with_no_client_auth()))
}
