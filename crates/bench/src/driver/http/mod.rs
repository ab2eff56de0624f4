//! HTTP/1.0 and 1.1: loads a server with users who get one document again and again.
//!
//! [`user`] is one user and its connection, [`response`] where a response ends. A document is counted, not looked at:
//! it has failed when its status is no success or its length is not the first one's.

mod response;
mod user;

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use self::response::{Head, Reader};
use self::user::{User, request};
use super::heed::Heed;
use super::worker::Worker;
use super::{Driver, DriverError, Post};
use crate::chaos::{Deeds, Mischief};
use crate::chore::{Chore, Chores};
use crate::plan::{Cell, Settings};
use crate::tally::Tally;
use crate::target::Target;

/// The probe waits no longer, however patient the users are.
const PATIENCE: Duration = Duration::from_secs(60);

/// Loads an HTTP server.
pub(crate) struct HttpDriver {
    target: Target,
    address: SocketAddr,
    patience: Duration,
}

impl HttpDriver {
    pub(crate) fn new(target: Target, address: SocketAddr, patience: Duration) -> Self {
        Self { target, address, patience: patience.min(PATIENCE) }
    }

    /// The head of the answer to one request, without a load. It has one: that is where a response ends.
    fn ask(&self, settings: &Settings, heed: Heed<'_>) -> Result<io::Result<Option<Head>>, DriverError> {
        let mut socket = heed.connect(self.address, None, self.patience)?;
        let path = format!("/{}", self.target.path);
        if let Err(error) = socket.write_all(&request(&self.target, settings, &path)) {
            return Ok(Err(error));
        }
        let (mut reader, mut buffer) = (Reader::default(), [0; 16 * 1024]);
        while !reader.is_over() {
            let read = heed.until(self.patience, || socket.read(&mut buffer).map(Some))?;
            let read = read.and_then(|count| count.ok_or(ErrorKind::WouldBlock.into()));
            let fed = read.and_then(|count| match count {
                0 if !reader.end() => Err(ErrorKind::UnexpectedEof.into()),
                count => reader.feed(&buffer[..count]).map(drop).map_err(io::Error::other),
            });
            if let Err(error) = fed {
                return Ok(Err(error));
            }
        }
        Ok(Ok(reader.head().cloned()))
    }

    /// The same, in words where there is none.
    fn probe(&self, settings: &Settings, heed: Heed<'_>) -> Result<Option<Head>, DriverError> {
        let address = self.address;
        self.ask(settings, heed)?.map_err(|error| {
            let how = match error.kind() {
                ErrorKind::UnexpectedEof => "closed the connection".to_owned(),
                ErrorKind::WouldBlock => format!("said nothing for {:?}", self.patience),
                ErrorKind::Other => format!("answered, but {error}"),
                _ => return DriverError::Unreachable { address, error },
            };
            DriverError::Silent { address, how, what: "a response of HTTP".to_owned() }
        })
    }
}

impl Driver for HttpDriver {
    fn reach(&self, chores: Chores<'_>) -> Result<(), DriverError> {
        // What a status says of the document is for the figures: a preset may ask for another.
        self.probe(&Settings::default(), Heed::to(chores, Chore::Reaching)).map(drop)
    }

    fn prepare(&self, cell: &Cell, chores: Chores<'_>) -> Result<(), DriverError> {
        if !cell.settings.cgi {
            return Ok(());
        }
        let head = self.probe(&cell.settings, Heed::to(chores, Chore::Reaching))?;
        match head.filter(|head| head.status == 200).and_then(|head| head.of_file) {
            Some(field) => Err(DriverError::NoProgram { target: self.target.to_string(), field }),
            None => Ok(()),
        }
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
