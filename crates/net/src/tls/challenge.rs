//! The challenge tls-alpn-01 (RFC 8737): a client that offers the protocol `acme-tls/1` for a name gets a certificate
//! that only the holder of the account at the CA could have made.
//!
//! The invariant: it is sent only to clients that offer this protocol and no other, for a name with a pending
//! challenge. Such a connection carries no data.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rcgen::{CertificateParams, CustomExtension, KeyPair as GeneratedKey};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use super::hello::Hello;
use super::load_error::LoadError;

/// The protocol by which a CA asks.
pub const ACME_TLS: &[u8] = b"acme-tls/1";

/// The names with a pending challenge.
#[derive(Debug, Default)]
pub(super) struct Challenges {
    /// Whether there is one, for those who only pass by.
    any: AtomicBool,
    /// Locked for a look at a few.
    pending: RwLock<Vec<(String, Arc<ServerConfig>)>>,
}

impl Challenges {
    /// Returns true if there is one.
    pub(super) fn is_pending(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// The configuration for a challenge in this ClientHello; `None` for all clients except the CA.
    pub(super) fn config_for(&self, hello: &Hello) -> Option<Arc<ServerConfig>> {
        let [ACME_TLS] = hello.protocols.iter().map(Vec::as_slice).collect::<Vec<_>>()[..] else {
            return None;
        };
        let name = hello.server_name.as_deref()?;
        let pending = self.pending.read().unwrap_or_else(PoisonError::into_inner);
        let found = pending.iter().find(|(pending, _)| pending.eq_ignore_ascii_case(name));
        found.map(|(_, config)| Arc::clone(config))
    }

    /// Shows `digest` to the CA when it asks for this name.
    pub(super) fn show(&self, name: &str, digest: &[u8]) -> Result<(), LoadError> {
        let config = Arc::new(config(name, digest)?);
        self.change(|pending| {
            pending.retain(|(other, _)| other != name);
            pending.push((name.to_owned(), config));
        });
        Ok(())
    }

    /// Ends the challenge for a name.
    pub(super) fn forget(&self, name: &str) {
        self.change(|pending| pending.retain(|(other, _)| other != name));
    }

    fn change(&self, change: impl FnOnce(&mut Vec<(String, Arc<ServerConfig>)>)) {
        let mut pending = self.pending.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut pending);
        self.any.store(!pending.is_empty(), Ordering::Relaxed);
    }
}

/// No client certificate is asked for, whatever is asked of others: a CA has none.
fn config(name: &str, digest: &[u8]) -> Result<ServerConfig, LoadError> {
    let failed = |error: rcgen::Error| LoadError::Tls(rustls::Error::General(error.to_string()));
    if digest.len() != 32 {
        return Err(LoadError::Tls(rustls::Error::General("this is no SHA-256".to_owned())));
    }
    let mut params = CertificateParams::new([name.to_owned()]).map_err(failed)?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = GeneratedKey::generate().map_err(failed)?;
    let certificate = CertificateDer::from(params.self_signed(&key).map_err(failed)?);
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let key = ring::sign::any_supported_type(&key).map_err(LoadError::Tls)?;
    // rustls itself does not know the extension, which has to be critical.
    let shown = SingleCertAndKey::from(CertifiedKey::new(vec![certificate], key));
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(rustls::DEFAULT_VERSIONS)
        .map_err(LoadError::Tls)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(shown));
    config.alpn_protocols = vec![ACME_TLS.to_vec()];
    config.send_tls13_tickets = 0;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_ca_that_asks_for_a_pending_name_is_answered() {
        let challenges = Challenges::default();
        assert!(!challenges.is_pending());
        challenges.show("a.example", &[1; 32]).unwrap();
        assert!(challenges.is_pending());
        let asked = |name: Option<&str>, protocols: &[&[u8]]| {
            let hello = Hello {
                server_name: name.map(str::to_owned),
                protocols: protocols.iter().map(|name| name.to_vec()).collect(),
                ..Hello::default()
            };
            challenges.config_for(&hello).is_some()
        };
        for (name, protocols, expected) in [
            (Some("a.example"), &[ACME_TLS][..], true),
            (Some("A.Example"), &[ACME_TLS], true),
            (Some("b.example"), &[ACME_TLS], false),
            (None, &[ACME_TLS], false),
            (Some("a.example"), &[ACME_TLS, b"h2"], false),
            (Some("a.example"), &[b"h2"], false),
            (Some("a.example"), &[], false),
        ] {
            assert_eq!(asked(name, protocols), expected, "{name:?} {protocols:?}");
        }
        challenges.forget("a.example");
        assert!(!challenges.is_pending() && !asked(Some("a.example"), &[ACME_TLS]));
        assert!(challenges.show("a.example", b"short").is_err());
    }
}
