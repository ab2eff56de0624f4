//! One connection that another process has accepted: a super-server such as inetd.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use millrace_net::listener;
use thiserror::Error;

use super::Running;
use crate::worker::{Door, Worker, WorkerMessage};

/// Why a connection is not served.
#[derive(Debug, Error)]
pub enum ConnectionError {
    /// It is no connection of TCP, or its client has gone.
    #[error("it is no TCP connection: {0}")]
    Socket(#[from] io::Error),
    /// It begins with TLS, for which there is no certificate.
    #[error("it would begin with TLS, and there is no certificate")]
    NoCertificate,
}

impl Running {
    /// Serves a connection that was accepted elsewhere. The server ends with it.
    pub fn serve_connection(&self, door: Door, socket: OwnedFd) -> Result<(), ConnectionError> {
        if matches!(door, Door::Ftps | Door::Https) && self.state.tls.is_none() {
            return Err(ConnectionError::NoCertificate);
        }
        let peer = listener::prepare_accepted(&socket, self.state.config.keepalive)?;
        let bound: SocketAddr = listener::local_address(&socket)?;
        // Other processes have sessions, too: a port is bound while it is leased, and no longer.
        self.state.shared.ftp.passive.share_with_others(true);
        let serve = move |worker: &mut Worker| worker.serve_alone(socket, peer, bound, door);
        if let Some(worker) = self.workers.first() {
            worker.send(WorkerMessage::Worker(Box::new(serve)));
        }
        Ok(())
    }
}
