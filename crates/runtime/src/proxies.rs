//! The trusted proxies, which name their clients (PROXY protocol).

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock};

use millrace_limits::Network;

/// Why a header that has not come is not waited for.
pub const LATE: &str = "its PROXY header did not come in time";

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
