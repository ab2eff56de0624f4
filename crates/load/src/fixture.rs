//! Fixtures: making, checking and removing test files, which takes as long as the server's disk does.

/// A step of the work between figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FixtureStep {
    /// The first connection and login.
    Reaching,
    /// Test files are put on the server.
    Making,
    /// Uploads are compared with what was sent.
    Checking,
    /// Test files are removed from the server.
    Removing,
}

impl FixtureStep {
    /// The progress for display: `removing test files: 3 of 40000`.
    pub fn words(self, done: usize, all: usize) -> String {
        let doing = match self {
            Self::Reaching => return "waiting for the server".to_owned(),
            Self::Making => "making test files",
            Self::Checking => "checking uploads",
            Self::Removing => "removing test files",
        };
        let leave = if self == Self::Removing { "; Ctrl-C leaves them there" } else { "" };
        format!("{doing}: {done} of {all}{leave}")
    }
}
