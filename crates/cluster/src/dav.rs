//! Locks and properties of WebDAV that nodes share: what a node asks of the database, and what it goes by while that is away.

use std::time::Instant;

use crate::cluster::Cluster;
use crate::dav_table::{DavTable, Wanted};
use crate::lock::lock;
use crate::places::Shared;
use crate::table::TableError;

impl Shared {
    /// Learns which locks were given.
    pub(crate) fn learn_locks(&self) -> Result<(), TableError> {
        let since = lock(&self.locks).edition;
        let asked = Instant::now();
        let new = self.table.pull_locks(since)?;
        lock(&self.locks).learn(new, asked, Instant::now());
        Ok(())
    }
}

impl Cluster {
    /// Returns the tables of WebDAV, where the database can be asked now: it is not waited for while it is away.
    pub fn dav(&self) -> Option<&dyn DavTable> {
        let shared = self.shared();
        lock(&shared.book).lease.grants(Instant::now())?;
        Some(&*shared.table)
    }

    /// Returns whether there were no locks and no properties a second ago.
    pub fn had_no_locks(&self) -> bool {
        lock(&self.shared().locks).are_none(Instant::now())
    }

    /// Returns whether a lock may be at these places, as far as this node has heard: for the time when the database is away.
    pub fn may_be_locked(&self, wanted: &Wanted) -> bool {
        lock(&self.shared().locks).may_hold(wanted, Instant::now())
    }
}
