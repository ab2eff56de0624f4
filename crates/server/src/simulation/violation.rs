//! A broken promise of the server.

/// What was broken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Violation(pub(super) String);

impl Violation {
    /// Names the client that it was broken to.
    pub(super) fn of(self, client: usize) -> Self {
        Self(format!("client {client}: {}", self.0))
    }
}
