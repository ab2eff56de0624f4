//! The settings shared by every session of a server.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millrace_vfs::Timestamp;

use super::texts::{Cookies, Occupancy, Texts, UnknownOccupancy};
use crate::listing::{FactSource, NoFacts};

/// How sessions behave. One value is shared by all.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The text of the first reply (220).
    pub greeting: String,
    /// Texts for clients, besides.
    pub texts: Arc<Texts>,
    /// How many sessions there are, for those texts.
    pub occupancy: Arc<dyn Occupancy>,
    /// The file in which the server tells of transfers, where sessions of this host have one of their own.
    pub transfer_log: Option<Arc<Path>>,
    /// How long a client may take from connecting to being logged in.
    pub login_timeout: Duration,
    /// How long a logged-in client may say nothing while no transfer runs.
    pub idle_timeout: Duration,
    /// The most that `SITE IDLE` may ask for.
    pub idle_timeout_max: Duration,
    /// How long the reply to a first wrong password is held back; doubled each time after.
    pub login_delay: Duration,
    /// Wrong passwords until the connection is closed.
    pub login_attempts: u32,
    /// The address that 227 replies name instead of our own (a server behind NAT).
    pub public_ip: Option<Ipv4Addr>,
    /// Whether `PORT` may name another host than the client's (FXP).
    pub foreign_data: bool,
    /// Whether `MODE Z` is served.
    pub mode_z: bool,
    /// The user and password prompts say that `anonymous` is welcome.
    pub anonymous: bool,
    /// Whether the address is kept that an anonymous user gives for a password: a transfer log has it.
    pub keeps_addresses: bool,
    /// Whether who logs in, or enters a directory, is told what lies there to be told: `.message`, and that
    /// there is a `README`.
    pub notes: bool,
    /// The mask that new files are made with where a session has set none, if that is known.
    pub umask: Option<u32>,
    /// The requirements on TLS; `None` without a certificate, and so without TLS.
    pub tls: Option<TlsPolicy>,
    /// Facts about files beyond the storage's metadata.
    pub fact_source: Arc<dyn FactSource>,
}

impl Settings {
    /// The cookies of texts for a client that has not logged in.
    pub fn cookies(&self, peer: IpAddr, local: IpAddr, wall: Timestamp) -> Cookies<'_> {
        let (texts, occupancy) = (&*self.texts, &*self.occupancy);
        Cookies { texts, occupancy, peer, local, wall, user: b"", directory: b"", free: None }
    }
}

/// What has to be encrypted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsPolicy {
    /// Names and passwords: `USER` in clear is refused.
    pub login: bool,
    /// Files and listings: transfers with `PROT C` are refused.
    pub data: bool,
    /// `CCC` may end the encryption of the control connection.
    pub clear_command_channel: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            greeting: "Millrace ready.".to_owned(),
            texts: Arc::default(),
            occupancy: Arc::new(UnknownOccupancy),
            transfer_log: None,
            login_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(300),
            idle_timeout_max: Duration::from_secs(7200),
            login_delay: Duration::from_secs(1),
            login_attempts: 5,
            public_ip: None,
            foreign_data: false,
            mode_z: true,
            anonymous: false,
            tls: None,
            keeps_addresses: false,
            notes: false,
            umask: None,
            fact_source: Arc::new(NoFacts),
        }
    }
}
