//! The `[cluster]` table: the database that nodes share, and what this node is called there.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use millrace_server::Network;
use millrace_server::auth::{Sql, cluster_audit, cluster_events, cluster_table};
use millrace_server::cluster::{Cluster, NodeEntry, Timing};
use millrace_terminal::Failure;

use super::places::Places;
use super::said::Said;
use super::setting::{default, required, settings, unset};
use super::slot::{One, is_on};
use super::sources;
use super::value::{Period, Switch};

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The lengths that a lease may have, in seconds: a shorter one is lost by a pause of the machine.
const LEASES: std::ops::RangeInclusive<u64> = 3..=60;

settings! {
    /// The `[cluster]` table.
    ClusterTable of "cluster" {
        /// The connection string of the PostgreSQL database that all nodes name: `"host=db.example.net
        /// user=millrace dbname=millrace"`, or a URL
        database: Said<String> = required();
        /// A file whose first line is the password for it
        password_file: One<PathBuf> = unset("none");
        /// A file of certificates in PEM; the connection is encrypted, and the database's certificate has to be
        /// signed by one of these
        ca: One<PathBuf> = unset("in clear, or as the connection string says");
        /// How long an answer may take. A login that waits longer is refused with 421.
        timeout: One<Period> = default("2s").positive();
        /// What this node is called in `millrace ctl cluster`
        node: One<String> = unset("the machine's name");
        /// How long after its last word the others take this node's places, 3 to 60 seconds. It is renewed three
        /// times as often.
        lease: One<Period> = default("6s").positive();
        /// Whether all nodes deliver the events of [hooks](hooks.md#in-a-cluster) together, from this database. Until
        /// they are there, and while it is away, they are in `hooks-queue` at their node.
        share_events: One<Switch> = default("false");
        /// Whether records of the [audit log](audit.md#in-a-cluster) are copied to this database, where those of all nodes are
        /// read, and compared with the files
        share_audit: One<Switch> = default("false");
        /// The address of this node in the network of the nodes, or that network, which may be the same in the
        /// configuration of all: `"10.0.0.0/24"`. With it a data connection may [come to any
        /// node](cluster.md#data-connections), which hands it on to the one that has the session
        data_address: One<String> = unset("data connections come to the node of their session");
    }
}

impl ClusterTable {
    /// Files that it names.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Said<PathBuf>> {
        [&self.password_file, &self.ca].into_iter().flatten()
    }

    /// `web-1, lease 6s`
    pub(crate) fn shown(&self) -> String {
        format!("node {}, with a lease of {} seconds", name(self), lease(self).as_secs())
    }
}

fn name(table: &ClusterTable) -> String {
    let own = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    table.node.as_ref().map_or_else(own, |said| said.value.clone())
}

fn lease(table: &ClusterTable) -> Duration {
    table.lease.as_ref().map_or(Duration::from_secs(6), |said| said.value.0)
}

/// The node that the server is to be, not yet a member.
pub(crate) fn cluster(tables: &[ClusterTable], places: &Places<'_>) -> Result<Option<Arc<Cluster>>, Failure> {
    let Some(table) = tables.first() else { return Ok(None) };
    let lease = lease(table);
    if let Some(said) = table.lease.as_ref().filter(|_| !LEASES.contains(&lease.as_secs())) {
        return Err(places.error(&said.place, "lease", "a lease is 3 to 60 seconds long"));
    }
    let settings = Sql {
        connection: table.database.value.clone(),
        password: sources::password(table.password_file.as_ref(), places)?,
        roots: sources::read(table.ca.as_ref(), "ca", places)?,
        query: None,
        time: table.timeout.as_ref().map_or(TIMEOUT, |said| said.value.0),
    };
    let failed = |error| places.error(&table.database.place, "database", &error);
    let database = cluster_table(&settings).map_err(failed)?;
    let shares_events = is_on(table.share_events.clone(), false);
    let events = shares_events.then(|| cluster_events(&settings)).transpose().map_err(failed)?;
    let shares_audit = is_on(table.share_audit.clone(), false);
    let audit = shares_audit.then(|| cluster_audit(&settings)).transpose().map_err(failed)?;
    let entry = NodeEntry { name: name(table), version: env!("CARGO_PKG_VERSION").to_owned(), lease };
    let data_address = table.data_address.as_ref().map(|said| data_address(said, places)).transpose()?;
    let cluster = Cluster::new(database, entry, Timing::of_lease(lease));
    Ok(Some(Arc::new(cluster.with_events(events).with_audit(audit).with_data_address(data_address))))
}

/// Returns the address at which other nodes reach this one: as it is written, or the one that this machine has in a network.
fn data_address(said: &Said<String>, places: &Places<'_>) -> Result<IpAddr, Failure> {
    let wrong = |message: &dyn Display| places.error(&said.place, "data-address", message);
    let network: Network = said.value.parse().map_err(|error| wrong(&error))?;
    if network == Network::new(network.address(), u8::MAX) {
        return Ok(network.address());
    }
    let own = own_address_towards(network.address()).filter(|address| network.contains(*address));
    own.ok_or_else(|| wrong(&format_args!("this machine has no address in the network {network}")))
}

/// Returns the address from which this machine reaches the first hosts of a network, as its routes say. Nothing is sent.
fn own_address_towards(network: IpAddr) -> Option<IpAddr> {
    let (any, first): (IpAddr, IpAddr) = match network {
        IpAddr::V4(address) => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::from(u32::from(address) | 1).into()),
        IpAddr::V6(address) => (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::from(u128::from(address) | 1).into()),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    // The port does not matter, but there has to be one.
    socket.connect((first, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}
