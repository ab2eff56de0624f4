//! HTTP/1.0 and 1.1: loads a server with users who get one document again and again.
//!
//! [`user`] is one user and its connection, [`response`] where a response ends. A document is counted, not looked at:
//! it has failed when its status is no success or its length is not the first one's.

mod response;
mod user;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use self::response::Reader;
use self::user::{User, request};
use super::worker::Worker;
use super::{Driver, DriverError, Post};
use crate::chaos::{Deeds, Mischief};
use crate::chore::Chores;
use crate::plan::{Cell, Settings};
use crate::tally::Tally;
use crate::target::Target;

const PATIENCE: Duration = Duration::from_secs(60);

/// Loads an HTTP server.
pub(crate) struct HttpDriver {
    target: Target,
    address: SocketAddr,
}

impl HttpDriver {
    pub(crate) fn new(target: Target, address: SocketAddr) -> Self {
        Self { target, address }
    }

    /// The status of one request, without a load.
    fn ask(&self) -> std::io::Result<u16> {
        let mut socket = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let path = format!("/{}", self.target.path);
        socket.write_all(&request(&self.target, &Settings::default(), &path))?;
        let (mut reader, mut buffer) = (Reader::default(), [0; 16 * 1024]);
        while !reader.is_over() {
            let count = match socket.read(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                count => count?,
            };
            if count == 0 && !reader.end() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            reader.feed(&buffer[..count]).map_err(std::io::Error::other)?;
        }
        Ok(reader.head().map_or(0, |head| head.status))
    }
}

impl Driver for HttpDriver {
    fn reach(&self) -> Result<(), DriverError> {
        // What a status says of the document is for the figures: a preset may ask for another.
        let address = self.address;
        self.ask().map(drop).map_err(|error| {
            let how = match error.kind() {
                ErrorKind::UnexpectedEof => "closed the connection".to_owned(),
                ErrorKind::WouldBlock => format!("said nothing for {PATIENCE:?}"),
                ErrorKind::Other => format!("answered, but {error}"),
                _ => return DriverError::Unreachable { address, error },
            };
            DriverError::Silent { address, how, what: "a response of HTTP".to_owned() }
        })
    }

    fn prepare(&self, _: &Cell, _: Chores<'_>) -> Result<(), DriverError> {
        Ok(())
    }

    fn work(&self, post: &Post<'_>) -> Result<Tally, DriverError> {
        match Worker::<User>::new(&self.target, self.address, post) {
            Ok(worker) => Ok(worker.run()),
            Err(error) => {
                post.sit_out();
                Err(DriverError::Client(error))
            }
        }
    }

    fn misbehave(&self, _: Mischief, _: &Deeds) {}

    fn check(&self, _: &Cell, _: &mut Tally, _: Chores<'_>) -> Result<(), DriverError> {
        Ok(())
    }

    fn clean(&self, _: Chores<'_>) -> Result<(), DriverError> {
        Ok(())
    }
}
