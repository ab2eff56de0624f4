//! The roles of those who administer a server.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What someone may do by the admin API. Each role includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Sees sessions, limits, bans and the log
    Viewer,
    /// Also ends sessions, sets limits, bans, reloads and drains
    Operator,
    /// Also changes users, tokens and the configuration, upgrades and stops
    Administrator,
}

impl Role {
    /// All roles, from the least.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Administrator];

    /// Returns its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Administrator => "administrator",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
