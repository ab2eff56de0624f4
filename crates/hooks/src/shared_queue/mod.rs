//! The queue of events that the nodes of a cluster share, in their database.
//!
//! ```text
//!  session ─► queue file of this node ─► mover.rs ─► database ─► courier.rs ─► receiver
//!             (queue.rs)                             (cluster/src/events.rs)   of any node
//! ```
//!
//! An event is put into the file first, which gives it its id, and moved on before the session hears of it. While the
//! database is away sessions do not wait for it: the event is safe in the file, and moved later. The file is its node's
//! alone, so what has not been moved waits until the node is back.
//!
//! The database has each event once, by its id. A *courier* takes a receiver, and delivers its events in their order until
//! there are no more. It has the receiver as long as the lease of its node holds, and no longer.

mod courier;
mod delivering;
mod mover;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};

use millrace_cluster::{Cluster, EventTable};

use self::courier::Courier;
pub(super) use self::mover::Mover;
use super::delivery::Order;
use super::delivery_state::Shared;

/// What a node has to do with the queue of all nodes.
#[derive(Debug)]
pub(super) struct SharedQueue {
    table: Arc<dyn EventTable>,
    mover: Arc<Mover>,
    courier: Arc<Courier>,
}

impl SharedQueue {
    /// That of a cluster, where its nodes share one.
    pub(super) fn of(cluster: &Arc<Cluster>, shared: &Arc<Shared>, orders: &Sender<Order>) -> Option<Self> {
        let table = Arc::clone(cluster.events()?);
        let courier = Arc::new(Courier::new(Arc::clone(cluster), Arc::clone(&table), Arc::clone(shared)));
        let mover = Mover::new(Arc::clone(&table), Arc::clone(shared), orders.clone(), Arc::clone(&courier));
        Some(Self { table, mover: Arc::new(mover), courier })
    }

    /// Begins to move and to deliver.
    pub(super) fn begin(&self) -> io::Result<[JoinHandle<()>; 2]> {
        let (mover, courier) = (Arc::clone(&self.mover), Arc::clone(&self.courier));
        let begin = |name: &str| thread::Builder::new().name(name.to_owned());
        Ok([
            begin("millrace-mover").spawn(move || mover.run())?,
            begin("millrace-courier").spawn(move || courier.run())?,
        ])
    }

    /// The tables of it.
    pub(super) fn table(&self) -> &dyn EventTable {
        &*self.table
    }

    /// Has this node look what there is to be delivered.
    pub(super) fn call(&self) {
        self.courier.call();
    }

    /// What moves events of this node there.
    pub(super) fn mover(&self) -> &Arc<Mover> {
        &self.mover
    }
}
