//! The trusted proxies, which name their clients (PROXY protocol).

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock};

use millrace_limits::Network;
use millrace_net::proxy::ProxyFault;

/// Why the client of a proxy's connection is not known.
#[derive(Debug, thiserror::Error)]
pub enum ProxyHeaderError {
    /// What the proxy sends is no header.
    #[error(transparent)]
    Fault(#[from] ProxyFault),
    /// The socket fails.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The header has not come.
    #[error("its PROXY header did not come in time")]
    Late,
    /// As many connections wait as may.
    #[error("too many wait for their header")]
    Crowded,
    /// The server ends.
    #[error("the server ends")]
    Ending,
}

/// The networks from which proxies connect.
#[derive(Debug, Default)]
pub struct Proxies {
    /// Skips the lookup where there are none.
    any: AtomicBool,
    networks: RwLock<Vec<Network>>,
}

impl Proxies {
    /// Trusts the proxies in these networks.
    pub fn new(networks: Vec<Network>) -> Self {
        let proxies = Self::default();
        proxies.configure(networks);
        proxies
    }

    /// Others from now on.
    pub fn configure(&self, networks: Vec<Network>) {
        self.any.store(!networks.is_empty(), Relaxed);
        *self.networks.write().unwrap_or_else(PoisonError::into_inner) = networks;
    }

    /// Returns true if connections from there must begin with a PROXY header.
    pub fn include(&self, address: IpAddr) -> bool {
        self.any.load(Relaxed)
            && self
                .networks
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .iter()
                .any(|network| network.contains(address))
    }
}
