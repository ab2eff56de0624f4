//! HTTP/1.0, 1.1 and 2, in clear or in TLS: loads a server with users that request one document repeatedly.
//!
//! [`user`] is one user and its connection, [`exchange`] its requests and responses, [`request`] the bytes of a
//! request. The content of a document is not checked: a request fails when its status is not a success, or when its
//! length differs from the first document's.

mod exchange;
pub(super) mod request;
mod user;

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use self::exchange::{Exchange, Head};
use self::request::Request;
use self::user::User;
use super::cancellable_wait::CancellableWait;
use super::error::DriverError;
use super::pipe::{Pipe, is_in_clear};
use super::security::Security;
use super::task::{Driver, WorkerTask};
use super::worker::Worker;
use crate::chaos::{Deeds, Mischief};
use crate::fixture::FixtureStep;
use crate::plan::{Cell, HttpVersion, Settings};
use crate::progress::FixtureProgress;
use crate::tally::Tally;
use crate::target::Target;

/// The limit of the probe, also where the users' timeout is longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Loads an HTTP server.
pub(crate) struct HttpDriver {
    target: Target,
    address: SocketAddr,
    patience: Duration,
    /// The `--raw-target` that a program is known to answer: another probe would run it again.
    program: Mutex<Option<Option<String>>>,
}

impl HttpDriver {
    pub(crate) fn new(target: Target, address: SocketAddr, patience: Duration) -> Self {
        Self { target, address, patience: patience.min(PATIENCE), program: Mutex::default() }
    }

    /// The head of the response to a single request, outside the load. The exchange ends with the head.
    fn ask(
        &self,
        settings: &Settings,
        wait: CancellableWait<'_>,
    ) -> Result<io::Result<Option<Head>>, DriverError> {
        let mut socket = Pipe::plain(wait.connect(self.address, None, self.patience)?);
        if let Some(security) = Security::of(&self.target, settings).map_err(DriverError::Client)? {
            let channel = security.channel().map_err(DriverError::Client)?;
            match socket.encrypt(channel, wait, self.patience)? {
                Err(error) if is_in_clear(&error) => {
                    let (address, scheme, remedy) = (self.address, self.target.scheme, "http://");
                    return Err(DriverError::NotTls { address, scheme, remedy });
                }
                Err(error) => return Ok(Err(error)),
                Ok(()) if settings.http == HttpVersion::Http2 && !socket.has_agreed_on(b"h2") => {
                    return Err(DriverError::NoHttp2 { address: self.address });
                }
                Ok(()) => {}
            }
        }
        let path = format!("/{}", self.target.path);
        let request = Arc::new(Request::new(&self.target, settings, &path));
        let (mut exchange, mut buffer) = (Exchange::new(settings.http), [0; 16 * 1024]);
        if let Err(error) = exchange.begin(&request) {
            return Ok(Err(io::Error::other(error)));
        }
        while !exchange.is_over() {
            if let Err(error) = socket.write_all(exchange.output()) {
                return Ok(Err(error));
            }
            exchange.note_written(exchange.output().len());
            let read = wait.until(self.patience, || socket.read(&mut buffer).map(Some))?;
            let read = read.and_then(|count| count.ok_or(ErrorKind::WouldBlock.into()));
            let fed = read.and_then(|count| match count {
                0 if !exchange.end() => Err(ErrorKind::UnexpectedEof.into()),
                count => exchange.feed(&buffer[..count]).map_err(io::Error::other),
            });
            if let Err(error) = fed {
                return Ok(Err(error));
            }
        }
        Ok(Ok(exchange.head().cloned()))
    }

    /// Notes that a program answers; fails where a file does.
    fn note_program(&self, settings: &Settings, head: Option<Head>) -> Result<(), DriverError> {
        if let Some(field) = head.filter(|head| head.status == 200).and_then(|head| head.of_file) {
            return Err(DriverError::NoProgram { target: self.target.to_string(), field });
        }
        *self.program.lock().unwrap_or_else(PoisonError::into_inner) = Some(settings.raw_target.clone());
        Ok(())
    }

    /// Returns true if a program is known to answer what such a load asks for.
    fn is_program(&self, settings: &Settings) -> bool {
        let known = self.program.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref() == Some(&settings.raw_target)
    }

    /// The same, with an error message where there is none.
    fn probe(&self, settings: &Settings, wait: CancellableWait<'_>) -> Result<Option<Head>, DriverError> {
        let address = self.address;
        self.ask(settings, wait)?.map_err(|error| {
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
    fn reach(&self, settings: &Settings, fixtures: FixtureProgress<'_>) -> Result<(), DriverError> {
        let head = self.probe(settings, CancellableWait::to(fixtures, FixtureStep::Reaching))?;
        // The figures judge whether the status is a success.
        if settings.cgi { self.note_program(settings, head) } else { Ok(()) }
    }

    fn prepare(&self, cell: &Cell, fixtures: FixtureProgress<'_>) -> Result<(), DriverError> {
        let settings = &cell.settings;
        if !settings.cgi || self.is_program(settings) {
            return Ok(());
        }
        let head = self.probe(settings, CancellableWait::to(fixtures, FixtureStep::Reaching))?;
        self.note_program(settings, head)
    }

    fn work(&self, task: &WorkerTask<'_>) -> Result<Tally, DriverError> {
        match Worker::<User>::new(&self.target, self.address, task) {
            Ok(worker) => Ok(worker.run()),
            Err(error) => {
                task.sit_out();
                Err(DriverError::Client(error))
            }
        }
    }

    fn misbehave(&self, _: Mischief, _: &Deeds) {}

    fn check(&self, _: &Cell, _: &mut Tally, _: FixtureProgress<'_>) -> Result<(), DriverError> {
        Ok(())
    }

    fn clean(&self, _: FixtureProgress<'_>) -> Result<(), DriverError> {
        Ok(())
    }
}
