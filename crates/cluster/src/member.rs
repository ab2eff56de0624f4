//! What a node asks of the server that it is, and tells it.

use std::sync::Arc;

use millrace_limits::{BanReport, Bans, Logins, Quotas, RateDemand, SharedRate};

use crate::data_route::DataRoute;
use crate::set_limits::SetLimits;
use crate::shared_secret::SharedSecret;
use crate::table::{NodeState, TableError};
use crate::tokens::TokenTable;

/// The server that a node is.
pub trait Member: Send + Sync {
    /// How it is now.
    fn state(&self) -> NodeState;
    /// Its bans.
    fn bans(&self) -> &Bans;
    /// Its rates of logins.
    fn logins(&self) -> &Logins;
    /// What it counts of its users, if it does.
    fn quotas(&self) -> Option<Arc<Quotas>>;
    /// Failed logins that other nodes have told of led to this ban here.
    fn note_ban(&self, ban: &BanReport);
    /// All nodes have these secrets, the newest first.
    fn use_secrets(&self, secrets: &[SharedSecret]);
    /// Tells its operator.
    fn warn(&self, text: &str);
    /// Returns how much of each rate it needs.
    fn demands(&self) -> Vec<RateDemand>;
    /// It has these parts of rates from now on.
    fn grant(&self, parts: &[(SharedRate, u64)]);
    /// Where it takes data connections of its sessions from other nodes; `None` where it does not.
    fn data_route(&self) -> Option<DataRoute>;
    /// The other nodes take those of theirs there, the newest node first.
    fn use_data_routes(&self, routes: Vec<DataRoute>);
    /// Brings its tokens of the admin API up to date, where it has some.
    fn exchange_tokens(&self, table: &dyn TokenTable) -> Result<(), TableError>;
    /// These limits are set for all nodes from now on, and no others.
    fn use_limits(&self, set: &SetLimits);
    /// Performs an errand of another node, and returns the answer.
    fn perform(&self, errand: &str) -> String;
}
