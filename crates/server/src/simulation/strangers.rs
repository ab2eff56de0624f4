//! Strangers: they connect to ports that other addresses lease, and are to be turned away without a byte.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use millrace_net::stream;

use super::draw::Draw;
use super::sockets::{STRANGER, SimulatedPorts};
use super::violation::Violation;

/// Their open connections.
#[derive(Debug, Default)]
pub(super) struct Strangers(Vec<OwnedFd>);

impl Strangers {
    /// One connects somewhere and says something, or looks at what it got.
    pub(super) fn act(
        &mut self,
        draw: &Draw,
        ports: &SimulatedPorts,
        count: u16,
    ) -> Result<String, Violation> {
        if draw.chance(60) || self.0.is_empty() {
            let port = 50_000 + draw.below(count.into()) as u16;
            let Ok(socket) = ports.connect(SocketAddr::new(STRANGER, 666), port) else {
                return Ok(format!("is refused at port {port}"));
            };
            let _ = stream::write(&socket, b"what no client has sent");
            self.0.push(socket);
            return Ok(format!("connects to port {port}"));
        }
        let socket = self.0.swap_remove(draw.below(self.0.len()));
        match stream::read(&socket, &mut [0; 64]) {
            Ok(1..) => Err(Violation("a stranger was sent a file".to_owned())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.0.push(socket);
                Ok("waits".to_owned())
            }
            _ => Ok("is turned away".to_owned()),
        }
    }
}
