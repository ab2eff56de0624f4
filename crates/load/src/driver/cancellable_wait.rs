//! Waiting for a server that may be silent, for at most the timeout; the user can cancel the wait.
//!
//! Invariant: a cancellable wait looks for a cancellation every [`LOOK`].

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use millrace_net::stream;

use super::error::DriverError;
use crate::fixture::FixtureStep;
use crate::progress::FixtureProgress;

/// How often it looks for a cancellation.
const LOOK: Duration = Duration::from_millis(200);

/// The step of the fixtures that waits; `None` where the wait cannot be cancelled.
#[derive(Clone, Copy)]
pub(super) struct CancellableWait<'a>(Option<(FixtureProgress<'a>, FixtureStep)>);

impl<'a> CancellableWait<'a> {
    /// Ends when the user cancels the step.
    pub(super) fn to(fixtures: FixtureProgress<'a>, step: FixtureStep) -> Self {
        Self(Some((fixtures, step)))
    }

    /// Waits for as long as the timeout allows.
    pub(super) fn uncancellable() -> Self {
        Self(None)
    }

    /// Fails if the user has cancelled the step.
    pub(super) fn check(self) -> Result<(), DriverError> {
        match self.0 {
            Some((fixtures, FixtureStep::Reaching)) => Ok(fixtures.note(FixtureStep::Reaching, 0, 1)?),
            Some((fixtures, step)) if fixtures.is_left(step) => Err(DriverError::Left(0)),
            _ => Ok(()),
        }
    }

    /// How long a single call may block, given the remaining timeout.
    pub(super) fn look(self, patience: Duration) -> Duration {
        if self.0.is_some() { patience.min(LOOK) } else { patience }
    }

    /// Limits every call on a socket to one look.
    pub(super) fn on(self, socket: &TcpStream, patience: Duration) -> io::Result<()> {
        socket.set_read_timeout(Some(self.look(patience)))?;
        socket.set_write_timeout(Some(patience))
    }

    /// Polls with `ask` until it has an answer; `None` after `patience`.
    pub(super) fn until<T>(
        self,
        patience: Duration,
        mut ask: impl FnMut() -> io::Result<Option<T>>,
    ) -> Result<io::Result<Option<T>>, DriverError> {
        let begun = Instant::now();
        loop {
            match ask() {
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                answer => return Ok(answer),
            }
            self.check()?;
            if begun.elapsed() >= patience {
                return Ok(Ok(None));
            }
        }
    }

    /// Connects, with a receive buffer that the connection begins with.
    pub(super) fn connect(
        self,
        to: SocketAddr,
        rcvbuf: Option<usize>,
        patience: Duration,
    ) -> Result<TcpStream, DriverError> {
        let unreachable = |error| DriverError::Unreachable { address: to, error };
        let anywhere = SocketAddr::new(if to.is_ipv4() { [0; 4].into() } else { [0u16; 8].into() }, 0);
        let socket = stream::begin_connect_with(anywhere, to, rcvbuf).map_err(unreachable)?;
        let look = self.look(patience);
        let connected = self.until(patience, || match stream::wait_writable(&socket, look) {
            true => stream::connected(&socket).map(Some),
            false => Ok(None),
        })?;
        connected
            .and_then(|connected| connected.ok_or(io::ErrorKind::TimedOut.into()))
            .map_err(unreachable)?;
        let socket = TcpStream::from(socket);
        socket.set_nonblocking(false).and_then(|()| self.on(&socket, patience)).map_err(unreachable)?;
        Ok(socket)
    }
}
