//! The parameters of a session's next data connection.

use std::net::SocketAddr;

use super::Via;
use crate::reply::{Reply, code};

/// How the next data connection is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DataPlan {
    /// Nothing was agreed.
    None,
    /// The client will connect to the leased passive port.
    Passive,
    /// We connect to the client's address.
    Active(SocketAddr),
}

impl DataPlan {
    /// The connection for a transfer, where one was agreed.
    pub(crate) fn via(self) -> Option<Via> {
        match self {
            Self::Passive => Some(Via::Passive),
            Self::Active(address) => Some(Via::Active(address)),
            Self::None => None,
        }
    }
}

/// The reply to a transfer command before which no data connection was agreed.
pub(super) const NO_PLAN: Reply = Reply::new(code::NO_DATA_CONNECTION, "Use PASV, EPSV, PORT or EPRT first.");
