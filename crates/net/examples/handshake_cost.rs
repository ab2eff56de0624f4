//! What a handshake costs the server's side of rustls, in memory, without sockets. What a resumed one saves depends on
//! what a full one signs with, and under TLS 1.3 on the hash of the cipher suite.
//!
//! ```text
//! handshake_cost CERTIFICATE KEY          in PEM; microseconds of three rounds
//! ```
//!
//! The resumed ones are as those of data connections: they use a ticket and give out none.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, HandshakeKind, RootCertStore, ServerConfig,
    ServerConnection, SupportedProtocolVersion, version,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Handshakes of each kind in a round.
const HANDSHAKES: u32 = 400;

const ROUNDS: usize = 3;

const CASES: [(&str, &SupportedProtocolVersion, &[CipherSuite]); 3] = [
    ("TLS 1.3, AES-256-GCM, SHA-384", &version::TLS13, &[CipherSuite::TLS13_AES_256_GCM_SHA384]),
    ("TLS 1.3, AES-128-GCM, SHA-256", &version::TLS13, &[CipherSuite::TLS13_AES_128_GCM_SHA256]),
    (
        "TLS 1.2, AES-256-GCM, SHA-384",
        &version::TLS12,
        &[
            CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        ],
    ),
];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [certificate, key] = &arguments[..] else { return Err("handshake_cost CERTIFICATE KEY".into()) };
    let sides = CASES.map(|(name, version, suites)| {
        Sides::new(certificate.as_ref(), key.as_ref(), version, suites).map(|sides| (name, sides))
    });
    let sides = sides.into_iter().collect::<Result<Vec<_>>>()?;
    for _ in 0..ROUNDS {
        for (name, sides) in &sides {
            let (mut full, mut resumed) = (Duration::ZERO, Duration::ZERO);
            for _ in 0..HANDSHAKES {
                full += shake_hands(&sides.data, &sides.client(), HandshakeKind::Full)?;
                let client = sides.client();
                shake_hands(&sides.control, &client, HandshakeKind::Full)?;
                resumed += shake_hands(&sides.data, &client, HandshakeKind::Resumed)?;
            }
            let of_one = |spent: Duration| spent.as_secs_f64() * 1e6 / f64::from(HANDSHAKES);
            let ratio = resumed.as_secs_f64() / full.as_secs_f64();
            println!("{name}: full {:.0}, resumed {:.0}, ratio {ratio:.2}", of_one(full), of_one(resumed));
        }
    }
    Ok(())
}

/// A server that gives out tickets, and the same without; a client that trusts it.
struct Sides {
    control: Arc<ServerConfig>,
    data: Arc<ServerConfig>,
    client: ClientConfig,
}

impl Sides {
    fn new(
        certificate: &Path,
        key: &Path,
        version: &'static SupportedProtocolVersion,
        suites: &[CipherSuite],
    ) -> Result<Self> {
        let mut provider = ring::default_provider();
        provider.cipher_suites.retain(|suite| suites.contains(&suite.suite()));
        let provider: Arc<CryptoProvider> = Arc::new(provider);
        let chain =
            CertificateDer::pem_file_iter(certificate)?.collect::<std::result::Result<Vec<_>, _>>()?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(chain.iter().cloned());
        let mut control = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[version])?
            .with_no_client_auth()
            .with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
        control.ticketer = ring::Ticketer::new()?;
        control.send_tls13_tickets = 1;
        let mut data = control.clone();
        data.send_tls13_tickets = 0;
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { control: Arc::new(control), data: Arc::new(data), client })
    }

    /// One that has no ticket yet.
    fn client(&self) -> Arc<ClientConfig> {
        let mut client = self.client.clone();
        client.resumption = Resumption::in_memory_sessions(4);
        Arc::new(client)
    }
}

/// A handshake, which is to be of this kind; answers what the server's side of it took.
fn shake_hands(
    server: &Arc<ServerConfig>,
    client: &Arc<ClientConfig>,
    kind: HandshakeKind,
) -> Result<Duration> {
    let mut client = ClientConnection::new(Arc::clone(client), "localhost".try_into()?)?;
    let begin = Instant::now();
    let mut server = ServerConnection::new(Arc::clone(server))?;
    let mut spent = begin.elapsed();
    while client.is_handshaking() || server.is_handshaking() || client.wants_write() {
        let (mut asked, mut answered) = (Vec::new(), Vec::new());
        while client.wants_write() {
            client.write_tls(&mut asked)?;
        }
        let (mut rest, begin) = (&asked[..], Instant::now());
        while !rest.is_empty() {
            server.read_tls(&mut rest)?;
            server.process_new_packets()?;
        }
        while server.wants_write() {
            server.write_tls(&mut answered)?;
        }
        spent += begin.elapsed();
        let mut rest = &answered[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest)?;
            client.process_new_packets()?;
        }
    }
    match server.handshake_kind() == Some(kind) {
        true => Ok(spent),
        false => Err(format!("the handshake was {:?}", server.handshake_kind()).into()),
    }
}
