//! The server's side: which certificate, which clients, which tickets.
//!
//! All connections share an [`Acceptor`]; its certificates can be replaced at any time, and existing connections
//! continue with the old ones. A [`Host`] is one control connection's part of it: it makes that connection and its data
//! connections, which resume with its own tickets only ([`super::tickets`]).

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;

use super::challenge::Challenges;
use super::connection::Tls;
use super::fault::Fault;
use super::identity::{self, Identities};
use super::key_pair::KeyPair;
use super::load_error::LoadError;
use super::shared_tickets::{SharedTickets, TicketSecret};
use super::ticket_resend;
use super::tickets::{Binding, TicketId};
use crate::host_address::HostAddress;

/// Tickets that a control connection gives out when it begins (TLS 1.3), as many as OpenSSL gives. Each that is
/// used is replaced: see `ticket_resend.rs`.
const TICKETS: usize = 2;

/// A control connection's protocol, by its registered name; also what clients say of data connections.
const ALPN_FTP: &[u8] = b"ftp";

/// FileZilla's ALPN name for data connections.
const ALPN_FTP_DATA: &[u8] = b"ftp-data";

/// The files that an acceptor is made of, so that they can be reloaded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Certificates and their keys. The first is the one for clients that name no server.
    pub identities: Vec<KeyPair>,
    /// The requirements on client certificates.
    pub clients: Clients,
    /// The place among [`Plan::identities`] of the certificate for clients that name no server and come to this address.
    pub by_address: Vec<(HostAddress, usize)>,
}

impl Plan {
    /// Adds a certificate that clients get by its names, or at these addresses.
    pub fn add(&mut self, pair: KeyPair, addresses: impl IntoIterator<Item = HostAddress>) {
        let place = self.identities.len();
        self.identities.push(pair);
        self.by_address.extend(addresses.into_iter().map(|address| (address, place)));
    }

    /// Checks that the files can be used, without keeping them.
    pub fn check(&self) -> Result<(), LoadError> {
        Acceptor::new(self).map(drop)
    }

    /// The same of those about clients' certificates alone: for a server whose own are yet to be made.
    pub fn check_clients(&self) -> Result<(), LoadError> {
        match &self.clients {
            Clients::Anybody => Ok(()),
            Clients::Accept(authorities) | Clients::Require(authorities) => {
                verifier(authorities)?.build().map(drop).map_err(LoadError::verifier)
            }
        }
    }

    /// All files that it names.
    pub fn files(&self) -> Vec<&Path> {
        let pairs = self.identities.iter().flat_map(|pair| [&pair.certificate, &pair.key]);
        let of_clients = match &self.clients {
            Clients::Anybody => None,
            Clients::Accept(authorities) | Clients::Require(authorities) => Some(authorities),
        };
        let of_clients = of_clients
            .into_iter()
            .flat_map(|authorities| std::iter::once(&authorities.certificates).chain(&authorities.revoked));
        pairs.chain(of_clients).map(PathBuf::as_path).collect()
    }
}

/// Whether clients must authenticate by certificate besides their password.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Clients {
    /// No certificate.
    #[default]
    Anybody,
    /// A certificate is welcome: a bad one ends the connection, none does not.
    Accept(Authorities),
    /// Without a good certificate there is no connection.
    Require(Authorities),
}

/// The authorities that issue client certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorities {
    /// The certificates of those that may, in PEM.
    pub certificates: PathBuf,
    /// Lists of certificates that were taken back, in PEM.
    pub revoked: Vec<PathBuf>,
}

/// Accepts TLS connections. One serves all workers.
#[derive(Debug)]
pub struct Acceptor {
    /// For the tickets of control connections.
    keys: Arc<dyn ProducesTickets>,
    /// For those of HTTPS.
    tickets: Arc<SharedTickets>,
    challenges: Arc<Challenges>,
    /// Locked for a clone or a swap.
    current: RwLock<Arc<Base>>,
}

/// What all connections with the same certificates share.
#[derive(Debug)]
struct Base {
    identities: Arc<Identities>,
    /// Those of addresses.
    by_address: Vec<(HostAddress, usize)>,
    config: ServerConfig,
    /// The same without TLS 1.3: see [`Host::requiring_resumption`].
    tls12: ServerConfig,
    /// For protocols without data connections.
    plain: Arc<ServerConfig>,
}

impl Acceptor {
    /// Reads the files.
    pub fn new(plan: &Plan) -> Result<Self, LoadError> {
        let keys = ring::Ticketer::new().map_err(LoadError::Tls)?;
        let tickets = Arc::new(SharedTickets::new(Arc::clone(&keys)));
        let base = Base::load(plan, &tickets)?;
        Ok(Self { keys, tickets, challenges: Arc::default(), current: RwLock::new(Arc::new(base)) })
    }

    /// Reads the files again, for connections from now on. Where one of them cannot be used, all stays as
    /// it is.
    pub fn reload(&self, plan: &Plan) -> Result<(), LoadError> {
        let base = Arc::new(Base::load(plan, &self.tickets)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = base;
        Ok(())
    }

    /// Makes tickets of HTTPS from now on that other servers with these secrets accept, and accepts theirs.
    pub fn share_tickets(&self, secrets: &[TicketSecret]) {
        self.tickets.share(secrets);
    }

    /// A connection of a protocol that has one connection at a time, and these names in ALPN (HTTP). Any later
    /// connection may use its tickets.
    pub fn accept(&self, protocols: &[&[u8]], local: Option<SocketAddr>) -> Result<Tls, Fault> {
        let base = self.current();
        if protocols.is_empty() {
            return Ok(Tls::server(Arc::clone(&base.plain))?.settling());
        }
        let mut config = ServerConfig::clone(&base.plain);
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        if let Some(place) = base.place_at(local) {
            config.cert_resolver = Arc::new(base.chosen(None, place));
        }
        let tls = Tls::server(Arc::new(config))?.settling();
        Ok(match self.challenges.is_pending() {
            true => tls.challenged(Arc::clone(&self.challenges)),
            false => tls,
        })
    }

    /// The present certificates, and which clients' are taken, for connections that another TLS stack than [`Tls`] carries.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current().plain)
    }

    /// Answers tls-alpn-01 challenges (RFC 8737) for a name with this SHA-256 of the key authorization, on connections
    /// that use SNI. Such a connection ends after its handshake.
    pub fn show_challenge(&self, name: &str, digest: &[u8]) -> Result<(), LoadError> {
        self.challenges.show(name, digest)
    }

    /// No longer does.
    pub fn forget_challenge(&self, name: &str) {
        self.challenges.forget(name);
    }

    /// A control connection's part, as soon as one begins.
    pub fn host(&self) -> Host {
        Host {
            base: self.current(),
            binding: Arc::new(Binding::new(Arc::clone(&self.keys))),
            data: OnceLock::new(),
            requires_resumption: false,
            local: None,
        }
    }

    /// Returns true if there is a certificate for this name.
    pub fn serves(&self, name: &str) -> bool {
        self.current().identities.named(name).is_some()
    }

    /// The SHA-256 fingerprint of each server certificate.
    pub fn fingerprints(&self) -> Vec<String> {
        self.current().identities.fingerprints()
    }

    fn current(&self) -> Arc<Base> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Base {
    fn load(plan: &Plan, tickets: &Arc<SharedTickets>) -> Result<Self, LoadError> {
        let identities = Arc::new(Identities::load(&plan.identities)?);
        let clients = match &plan.clients {
            Clients::Anybody => Ok(WebPkiClientVerifier::no_client_auth()),
            Clients::Accept(authorities) => verifier(authorities)?.allow_unauthenticated().build(),
            Clients::Require(authorities) => verifier(authorities)?.build(),
        };
        let clients = clients.map_err(LoadError::verifier)?;
        let build = |versions| -> Result<ServerConfig, LoadError> {
            let chosen = Chosen { identities: Arc::clone(&identities), host: None, place: 0 };
            Ok(ServerConfig::builder_with_provider(ticket_resend::provider())
                .with_protocol_versions(versions)
                .map_err(LoadError::Tls)?
                .with_client_cert_verifier(Arc::clone(&clients))
                .with_cert_resolver(Arc::new(chosen)))
        };
        // TLS 1.2 and 1.3: rustls has no older one.
        let (config, tls12) = (build(rustls::DEFAULT_VERSIONS)?, build(&[&rustls::version::TLS12])?);
        let mut plain = config.clone();
        // For [`Tls::settle`].
        plain.enable_secret_extraction = true;
        match plan.clients {
            Clients::Anybody => plain.ticketer = Arc::clone(tickets) as _,
            // A session that is resumed brings its certificate along, which may have been taken back since.
            Clients::Accept(_) | Clients::Require(_) => {
                plain.send_tls13_tickets = 0;
                plain.session_storage = Arc::new(NoServerSessionStorage {});
            }
        }
        let by_address = plan.by_address.clone();
        Ok(Self { identities, by_address, config, tls12, plain: Arc::new(plain) })
    }

    /// Returns the place of the certificate for clients that come to this address, where there is one of its own.
    fn place_at(&self, local: Option<SocketAddr>) -> Option<usize> {
        HostAddress::closest(self.by_address.iter().map(|(address, place)| (*address, *place)), local?)
    }

    /// Returns what chooses a certificate by SNI, else by this name, else takes the one at this place.
    fn chosen(&self, host: Option<&str>, place: usize) -> Chosen {
        Chosen { identities: Arc::clone(&self.identities), host: host.map(str::to_owned), place }
    }
}

fn verifier(authorities: &Authorities) -> Result<rustls::server::ClientCertVerifierBuilder, LoadError> {
    let roots = Arc::new(identity::roots(&authorities.certificates)?);
    let provider = Arc::new(ring::default_provider());
    let mut revoked = Vec::new();
    for path in &authorities.revoked {
        revoked.extend(identity::revocations(path)?);
    }
    let builder = WebPkiClientVerifier::builder_with_provider(roots, provider).with_crls(revoked);
    // A revocation list names revoked certificates; a certificate of an unlisted issuer counts as not revoked.
    Ok(builder.allow_unknown_revocation_status().only_check_end_entity_revocation())
}

/// One control connection and its data connections.
#[derive(Debug)]
pub struct Host {
    base: Arc<Base>,
    binding: Arc<Binding>,
    data: OnceLock<Arc<ServerConfig>>,
    requires_resumption: bool,
    local: Option<SocketAddr>,
}

impl Host {
    /// The same for a server whose data connections have to resume: a client that offers TLS 1.3, but says that it
    /// never resumes under it, gets TLS 1.2, under which it may.
    pub fn requiring_resumption(self) -> Self {
        Self { requires_resumption: true, ..self }
    }

    /// The same of a client that came to this address.
    pub fn reached_at(self, local: SocketAddr) -> Self {
        Self { local: Some(local), ..self }
    }

    /// The control connection; `host` is the name that `HOST` gave, for clients that do not give one by SNI.
    pub fn control(&self, host: Option<&str>) -> Result<Tls, Fault> {
        let tls =
            Tls::server(self.control_config(&self.base.config, host))?.renewing(Arc::clone(&self.binding));
        Ok(match self.requires_resumption {
            true => tls.resuming(self.control_config(&self.base.tls12, host)),
            false => tls,
        })
    }

    fn control_config(&self, base: &ServerConfig, host: Option<&str>) -> Arc<ServerConfig> {
        let mut config = self.bound(base);
        config.send_tls13_tickets = TICKETS;
        config.max_tls13_tickets = 4 * TICKETS;
        // A client that offers only other protocols may be part of a cross-protocol attack (ALPACA): rustls refuses it.
        config.alpn_protocols = vec![ALPN_FTP.to_vec()];
        let place = self.base.place_at(self.local);
        if host.is_some() || place.is_some() {
            config.cert_resolver = Arc::new(self.base.chosen(host, place.unwrap_or_default()));
        }
        Arc::new(config)
    }

    /// One of its data connections. It sends no tickets: a client that closes without reading them makes its kernel
    /// send a reset, which loses data in flight to us.
    pub fn data(&self) -> Result<Tls, Fault> {
        let config = self.data.get_or_init(|| {
            let is_limited = self.binding.is_limited_to_tls12();
            let mut config = self.bound(if is_limited { &self.base.tls12 } else { &self.base.config });
            config.send_tls13_tickets = 0;
            // For [`Tls::settle`].
            config.enable_secret_extraction = true;
            config.alpn_protocols = vec![ALPN_FTP_DATA.to_vec(), ALPN_FTP.to_vec()];
            Arc::new(config)
        });
        Ok(Tls::server(Arc::clone(config))?.settling())
    }

    /// Identifies its data connections.
    pub fn badge(&self) -> TicketId {
        TicketId(Arc::clone(&self.binding))
    }

    /// Returns true if the last data connection showed the ticket of another control connection.
    pub fn take_foreign(&self) -> bool {
        self.binding.take_foreign()
    }

    fn bound(&self, base: &ServerConfig) -> ServerConfig {
        let mut config = base.clone();
        config.ticketer = Arc::clone(&self.binding) as _;
        config.session_storage = Arc::clone(&self.binding) as _;
        config
    }
}

/// Chooses a certificate: by SNI, else by `HOST`, else the one at a place: the address's, or the first.
#[derive(Debug)]
struct Chosen {
    identities: Arc<Identities>,
    host: Option<String>,
    place: usize,
}

impl ResolvesServerCert for Chosen {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().or(self.host.as_deref());
        let named = name.and_then(|name| self.identities.named(name));
        named.or_else(|| self.identities.at(self.place))
    }
}
