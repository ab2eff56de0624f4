//! A node of a cluster: joins, leaves, takes places for sessions, and answers what the others are.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::audit::AuditTable;
use crate::events::EventTable;
use crate::keeper::Keeper;
use crate::lock::lock;
use crate::member::Member;
use crate::places::{Place, PlaceError, Shared, Timing};
use crate::scope::Claim;
use crate::shared_secret::SharedSecret;
use crate::table::{Asker, Epoch, NodeEntry, NodeReport, Table, TableError};
use crate::tokens::TokenTable;

/// A node of a cluster. Until [`Cluster::begin`] it is no member, and grants nothing.
pub struct Cluster {
    shared: Arc<Shared>,
    /// The queue of events that the nodes share, where they do.
    events: Option<Arc<dyn EventTable>>,
    /// The copies of the nodes' audit logs, where there are some.
    audit: Option<Arc<dyn AuditTable>>,
    /// Where this node takes data connections of its sessions from other nodes.
    data_address: Option<IpAddr>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Cluster {
    /// Makes a node that is no member yet. Nothing is asked.
    pub fn new(table: Box<dyn Table>, entry: NodeEntry, timing: Timing) -> Self {
        Self {
            shared: Arc::new(Shared::new(table, entry, timing)),
            events: None,
            audit: None,
            data_address: None,
            thread: Mutex::default(),
        }
    }

    /// Has the nodes share the queue of events.
    pub fn with_events(mut self, events: Option<Arc<dyn EventTable>>) -> Self {
        self.events = events;
        self
    }

    /// Has the nodes copy their audit logs.
    pub fn with_audit(mut self, audit: Option<Arc<dyn AuditTable>>) -> Self {
        self.audit = audit;
        self
    }

    /// Has the nodes hand on data connections to one another, to this one at this address.
    pub fn with_data_address(mut self, address: Option<IpAddr>) -> Self {
        self.data_address = address;
        self
    }

    /// Returns where this node takes data connections of its sessions from other nodes, where it does.
    pub fn data_address(&self) -> Option<IpAddr> {
        self.data_address
    }

    /// Returns the copies of the nodes' audit logs, where there are some.
    pub fn audit(&self) -> Option<&Arc<dyn AuditTable>> {
        self.audit.as_ref()
    }

    /// Returns the queue of events that the nodes share, where they do.
    pub fn events(&self) -> Option<&Arc<dyn EventTable>> {
        self.events.as_ref()
    }

    /// Joins: registers if the database is there, and has a thread keep the lease from now on.
    pub fn begin(&self, member: Arc<dyn Member>) -> std::io::Result<()> {
        let mut keeper = Keeper::new(Arc::clone(&self.shared), member);
        keeper.turn(Instant::now());
        let thread = std::thread::Builder::new().name("millrace-cluster".to_owned());
        *lock(&self.thread) = Some(thread.spawn(move || keeper.run())?);
        Ok(())
    }

    /// Leaves: all places are free at once.
    pub fn leave(&self) {
        let Some(thread) = lock(&self.thread).take() else { return };
        self.shared.call(|call| call.is_end = true);
        let _ = thread.join();
    }

    /// Returns whether it is a member, or is to become one.
    pub(crate) fn is_begun(&self) -> bool {
        lock(&self.thread).is_some()
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn shared_handle(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The name of this node.
    pub fn name(&self) -> &str {
        &self.shared.entry.name
    }

    /// Returns the registration of this node, where it has one.
    pub fn epoch(&self) -> Option<Epoch> {
        lock(&self.shared.book).lease.epoch()
    }

    /// Returns the secrets that all nodes have, the newest first; none before the database has answered.
    pub fn secrets(&self) -> Vec<SharedSecret> {
        let now = Instant::now();
        lock(&self.shared.secrets).iter().filter(|secret| secret.is_young(now)).copied().collect()
    }

    /// Returns the tokens of the admin API of all nodes; an error at once while the database is away.
    pub fn tokens(&self) -> Result<&dyn TokenTable, TableError> {
        self.check_answers()?;
        Ok(&*self.shared().table)
    }

    /// Returns whether the node has this registration, and its lease holds as far as it can know.
    pub fn holds(&self, epoch: Epoch) -> bool {
        lock(&self.shared.book).lease.grants(Instant::now()) == Some(epoch)
    }

    /// Lists the nodes. Waits for the database.
    pub fn nodes(&self) -> Result<Vec<NodeReport>, TableError> {
        self.shared.table.nodes(Asker::Order)
    }

    /// Takes a place for the session of this number as this user: the one that it has, or a new one. The claims are in the order
    /// of their scopes. Waits for the database.
    pub fn take(&self, session: u64, user: &[u8], claims: &[Claim]) -> Result<Arc<Place>, PlaceError> {
        Shared::take(&self.shared, (session, user.into()), claims)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.leave();
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("entry", &self.shared.entry).finish_non_exhaustive()
    }
}
