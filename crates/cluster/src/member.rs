//! What a node asks of the server that it is, and tells it.

use millrace_limits::Bans;

use crate::table::NodeState;

/// The server that a node is.
pub trait Member: Send + Sync {
    /// How it is now.
    fn state(&self) -> NodeState;
    /// Its bans.
    fn bans(&self) -> &Bans;
    /// Tells its operator.
    fn warn(&self, text: &str);
    /// Performs an errand of another node, and returns the answer.
    fn perform(&self, errand: &str) -> String;
}
