//! The client's side: for the bench, for tests, and for a server that plays the client to another.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientSessionMemoryCache, Resumption};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::connection::Tls;
use super::fault::Fault;
use super::identity;
use super::key_pair::KeyPair;
use super::load_error::LoadError;

/// Makes TLS connections to servers. Connections of one connector share their tickets, as those of one
/// control connection should.
#[derive(Debug, Clone)]
pub struct Connector {
    config: Arc<ClientConfig>,
}

/// Which servers a connector trusts.
#[derive(Debug, Clone, Copy)]
pub enum Trust<'a> {
    /// Any: certificates are not verified.
    Anybody,
    /// Servers with a certificate issued by one of these authorities.
    Authorities(&'a Path),
    /// Servers that browsers trust.
    Public,
}

/// The versions that a connector offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versions {
    /// TLS 1.2 and 1.3.
    All,
    /// TLS 1.2 alone.
    Tls12,
    /// TLS 1.3 alone.
    Tls13,
}

impl Connector {
    /// A connector that may show a certificate of its own.
    pub fn new(trust: Trust<'_>, versions: Versions, own: Option<&KeyPair>) -> Result<Self, LoadError> {
        let versions: &[&rustls::SupportedProtocolVersion] = match versions {
            Versions::All => &[&rustls::version::TLS13, &rustls::version::TLS12],
            Versions::Tls12 => &[&rustls::version::TLS12],
            Versions::Tls13 => &[&rustls::version::TLS13],
        };
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(LoadError::Tls)?;
        let builder = match trust {
            Trust::Anybody => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(Unchecked(provider)))
            }
            Trust::Authorities(path) => builder.with_root_certificates(identity::roots(path)?),
            Trust::Public => builder
                .with_root_certificates(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }),
        };
        let config = match own {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let key = identity::private_key(&own.key)?;
                builder
                    .with_client_auth_cert(identity::certificates(&own.certificate)?, key)
                    .map_err(LoadError::Tls)?
            }
        };
        Ok(Self { config: Arc::new(config) }.forgetful())
    }

    /// The settings of its connections, for rustls's own streams.
    pub fn client_config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    /// The same, with tickets of its own: for another control connection.
    pub fn forgetful(&self) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.resumption = Resumption::store(Arc::new(ClientSessionMemoryCache::new(8)));
        Self { config: Arc::new(config) }
    }

    /// The same, that never resumes.
    pub fn without_resumption(&self) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.resumption = Resumption::disabled();
        Self { config: Arc::new(config) }
    }

    /// The same, that names these protocols.
    pub fn with_protocols(&self, protocols: &[&[u8]]) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Self { config: Arc::new(config) }
    }

    /// A connection to a server of this name or address.
    pub fn connect(&self, name: &str) -> Result<Tls, Fault> {
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| rustls::Error::General(format!("{name:?} is not a name or address")))?;
        Tls::client(Arc::clone(&self.config), name)
    }
}

/// Accepts every certificate; only the possession of its key is verified.
#[derive(Debug)]
pub(super) struct Unchecked(pub(super) Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
