//! What the nodes of a cluster share of uploads: their locks, and what is known of them beside their bytes.
//!
//! The bytes lie in the tree, which all nodes serve. An upload is written under a lock of the cluster, so that no two nodes
//! write it at a time, also where the file system's own locks do not reach another machine.

use std::sync::Arc;
use std::time::Instant;

use millrace_cluster::{Cluster, KnownUpload, TableError, UploadDenied, UploadLock, UploadTable};
use millrace_http::tus::{FinishedUpload, LOCKED};
use millrace_http::{Refusal, Status};
use millrace_vfs::PartialKey;

/// The answer while the database is away.
pub(crate) const AWAY: Refusal = Refusal {
    status: Status::SERVICE_UNAVAILABLE,
    reason: "Uploads cannot be gone on with at the moment; try again later.",
};

/// Asks the database of a cluster about uploads.
pub(crate) fn ask<T>(
    cluster: &Cluster,
    question: impl FnOnce(&dyn UploadTable) -> Result<T, TableError>,
) -> Result<T, Refusal> {
    cluster.uploads().and_then(|table| question(table).ok()).ok_or(AWAY)
}

/// Locks an upload on all nodes.
pub(crate) fn lock(cluster: &Arc<Cluster>, key: &PartialKey) -> Result<UploadLock, Refusal> {
    cluster.lock_upload(*key.as_bytes()).map_err(denied)
}

pub(crate) fn denied(denied: UploadDenied) -> Refusal {
    match denied {
        UploadDenied::Busy => LOCKED,
        UploadDenied::Away => AWAY,
    }
}

/// What is known of an upload that has become a file.
pub(crate) fn finished(known: &KnownUpload) -> Option<FinishedUpload> {
    let length = known.length.filter(|_| known.is_finished)?;
    let parts = known.parts.as_deref().map(Into::into);
    Some(FinishedUpload::known(length, known.is_settled, parts, Instant::now()))
}
