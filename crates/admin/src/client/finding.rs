//! Finds the server that is meant where no control socket is named.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::error::{ClientError, FoundServer};
use super::link::ServerLink;
use super::told::urls;
use crate::sockets;

/// How long a server may take to say that it is there.
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns the socket of the only server that answers. A server that ends, as one does after an upgrade, is not meant where
/// there is another.
pub(super) fn find() -> Result<PathBuf, ClientError> {
    let folders = sockets::folders();
    let sockets = folders.iter().flat_map(|folder| sockets::sockets_in(folder));
    let answer = |socket: &PathBuf| ServerLink::new(socket, PATIENCE).ask(&json!({ "do": "status" })).ok();
    let answering: Vec<_> =
        sockets.filter_map(|socket| answer(&socket).map(|status| (socket, status))).collect();
    let serving = answering.iter().filter(|(_, status)| status["ending"] != true).count();
    let is_meant = |status: &Value| serving == 0 || status["ending"] != true;
    let meant = answering.into_iter().filter(|(_, status)| is_meant(status));
    let mut meant: Vec<_> =
        meant.map(|(socket, status)| FoundServer { socket, urls: urls(&status) }).collect();
    match (meant.pop(), meant.is_empty()) {
        (None, _) => Err(ClientError::NoServer(folders)),
        (Some(only), true) => Ok(only.socket),
        (Some(last), false) => {
            meant.push(last);
            Err(ClientError::ManyServers(meant))
        }
    }
}
