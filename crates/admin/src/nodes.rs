//! Requests about the cluster that a server is a node of.

use millrace_server::cluster::{Epoch, NodeReport};
use millrace_server::{Running, cluster_of};
use serde_json::{Value, json};

use super::error::AdminError;

/// The nodes, by the database; those that have died are among them until another has taken their places.
pub(super) fn list(running: &Running) -> Result<Value, AdminError> {
    let cluster = cluster_of(running).ok_or(AdminError::NoCluster)?;
    let nodes = cluster.nodes().map_err(AdminError::Cluster)?;
    let own = cluster.epoch();
    Ok(json!({ "nodes": nodes.iter().map(|report| node(report, own, &nodes)).collect::<Vec<_>>() }))
}

fn node(report: &NodeReport, own: Option<Epoch>, all: &[NodeReport]) -> Value {
    let state = match (report.is_alive(), report.state.is_draining) {
        (false, _) => "silent",
        (true, true) => "draining",
        (true, false) => "serving",
    };
    json!({
        "node": report.name,
        "epoch": report.epoch.0,
        "this": own == Some(report.epoch),
        "state": state,
        "namesake": all.iter().any(|other| other.is_namesake_of(report)),
        "sessions": report.state.sessions,
        "silent-seconds": (report.silent.as_secs_f64() * 10.0).round() / 10.0,
        "lease-seconds": report.lease.as_secs(),
        "age": report.age.as_secs(),
        "version": report.version,
    })
}
