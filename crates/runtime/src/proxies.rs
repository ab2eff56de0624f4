//! The proxies that are trusted to say for whom they connect (PROXY protocol).

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock};

use millrace_limits::Network;

/// Why a header that has not come is not waited for.
pub const LATE: &str = "its PROXY header did not come in time";

/// The networks from which proxies connect.
#[derive(Debug, Default)]
pub struct Proxies {
    /// Where there are none, nobody is looked for.
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

    /// Claims that whoever connects from there has to say for whom.
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
