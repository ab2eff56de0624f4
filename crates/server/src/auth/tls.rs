//! TLS to servers that know accounts or keep files: whom it trusts.

use std::sync::Arc;

use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// A client that wants a certificate of one of these roots, in PEM; without them, of one that browsers trust.
pub(crate) fn client(roots: Option<&[u8]>) -> Result<Arc<ClientConfig>, String> {
    let mut trusted = RootCertStore::empty();
    match roots {
        None => trusted.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate =
                    certificate.map_err(|error| format!("this is no certificate in PEM: {error}"))?;
                trusted.add(certificate).map_err(|error| format!("a certificate cannot be used: {error}"))?;
            }
            if trusted.is_empty() {
                return Err("there is no certificate in PEM".to_owned());
            }
        }
    }
    Ok(Arc::new(ClientConfig::builder().with_root_certificates(trusted).with_no_client_auth()))
}
