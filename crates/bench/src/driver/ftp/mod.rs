//! FTP: loads a server with sessions, each of them a [`ClientSession`](millrace_ftp::client::ClientSession)
//! with sockets.
//!
//! - [`user`] is one session in its loop, [`transfer`] its data connection, [`throttle`] how slowly it reads.
//! - [`errand`] is one blocking session that makes, checks and removes files; [`rogue`] is a bad user.
//! - [`security`] is what TLS has to do with a session; [`pipe`] the same for those that wait.

mod errand;
mod pipe;
mod rogue;
mod security;
mod throttle;
mod transfer;
mod user;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use self::errand::Errand;
use self::user::User;
use super::files::Files;
use super::worker::Worker;
use super::{Driver, DriverError, Post};
use crate::chaos::{Deeds, Mischief};
use crate::fault::Fault;
use crate::payload::{FileId, Payload};
use crate::plan::{Cache, Cell, Download, Op};
use crate::replay::Script;
use crate::tally::Tally;
use crate::target::Target;

/// Uploads that are read back after a verified cell: more would take longer than the cell itself.
const READ_BACK: usize = 1000;

/// What bad users download, and what they upload to.
const ROGUE_DOWNLOAD: &str = "millrace-bench-chaos";
const ROGUE_UPLOAD: &str = "millrace-bench-chaos-upload";

/// Loads an FTP server.
pub(crate) struct FtpDriver {
    target: Target,
    address: SocketAddr,
    patience: Duration,
    /// Test files that are on the server. Locked between cells only.
    made: Mutex<BTreeSet<String>>,
}

impl FtpDriver {
    pub(crate) fn new(target: Target, address: SocketAddr, patience: Duration) -> Self {
        Self { target, address, patience, made: Mutex::default() }
    }

    fn files<'a>(&'a self, cell: &'a Cell) -> Files<'a> {
        Files::new(&self.target, cell)
    }

    fn errand(&self) -> Result<Errand, DriverError> {
        Errand::log_in(&self.target, self.address, self.patience)
    }

    /// Puts a file there of every size that a log's downloads have.
    fn prepare_replay(&self, cell: &Cell, script: &Script) -> Result<(), DriverError> {
        let (files, payload) = (self.files(cell), Payload::new(cell.settings.seed));
        let mut errand = self.errand()?;
        for bytes in script.downloads() {
            errand.store(&files.sized(bytes), &payload, Files::download_id(0), bytes)?;
            self.remember([files.sized(bytes)]);
        }
        errand.quit();
        Ok(())
    }

    /// Puts a file there that bad users download, and remembers what they upload.
    fn prepare_chaos(&self, cell: &Cell) -> Result<(), DriverError> {
        let path = self.target.file(ROGUE_DOWNLOAD);
        if !self.made.lock().unwrap_or_else(PoisonError::into_inner).contains(&path) {
            let mut errand = self.errand()?;
            errand.store(&path, &Payload::new(cell.settings.seed), FileId::new(0), rogue::FILE_SIZE)?;
            errand.quit();
        }
        self.remember([path, self.target.file(ROGUE_UPLOAD)]);
        Ok(())
    }

    fn remember(&self, names: impl IntoIterator<Item = String>) {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).extend(names);
    }
}

impl Driver for FtpDriver {
    fn reach(&self) -> Result<(), DriverError> {
        self.errand().map(Errand::quit)
    }

    fn prepare(&self, cell: &Cell) -> Result<(), DriverError> {
        if cell.op == Op::Get {
            return Err(DriverError::NoOperation { op: cell.op, scheme: self.target.scheme });
        }
        if cell.settings.chaos.is_some() {
            self.prepare_chaos(cell)?;
        }
        if let Some(script) = &cell.settings.replay {
            return self.prepare_replay(cell, script);
        }
        let is_made = cell.settings.file.is_none() && cell.settings.download == Download::Made;
        if cell.op != Op::Retr || !is_made {
            return Ok(());
        }
        let (files, payload) = (self.files(cell), Payload::new(cell.settings.seed));
        let mut errand = self.errand()?;
        for number in 0..cell.files() {
            let path = files.download(number);
            let is_new = !self.made.lock().unwrap_or_else(PoisonError::into_inner).contains(&path);
            let (id, size) = (Files::download_id(number), cell.size.unwrap_or(0));
            if is_new || cell.settings.cache == Cache::Created {
                errand.store(&path, &payload, id, size)?;
                self.remember([path.clone()]);
            }
            match cell.settings.cache {
                Cache::Any | Cache::Created => {}
                Cache::Warm => drop(errand.check(&path, payload.checker(id, size))?),
                Cache::Cold => files.drop_from_cache(&path, size).map_err(DriverError::Cache)?,
            }
        }
        errand.quit();
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

    fn misbehave(&self, kind: Mischief, deeds: &Deeds) {
        let (download, upload) = (&self.target.file(ROGUE_DOWNLOAD), &self.target.file(ROGUE_UPLOAD));
        let place = rogue::Place { target: &self.target, address: self.address, download, upload };
        rogue::misbehave(place, kind, deeds);
    }

    fn check(&self, cell: &Cell, tally: &mut Tally) -> Result<(), DriverError> {
        if !matches!(cell.op, Op::Stor | Op::Replay) {
            return Ok(());
        }
        let (files, payload) = (self.files(cell), Payload::new(cell.settings.seed));
        if cell.settings.file.is_none() {
            self.remember(tally.users.iter().flat_map(|user| files.uploads(user.number, user.uploads)));
        }
        // A log's uploads have sizes of their own, which the servers' 226 has confirmed.
        if !cell.settings.verify || cell.op == Op::Replay {
            return Ok(());
        }
        let mut errand = self.errand()?;
        for user in tally.users.iter().take(READ_BACK) {
            let Some(serial) = user.confirmed else { continue };
            let (path, id) = (files.upload(user.number, serial), Files::upload_id(user.number, serial));
            if let Err(flaw) = errand.check(&path, payload.checker(id, cell.size.unwrap_or(0)))? {
                let fault = Fault::from(flaw);
                tally.faults.record(fault, user.number, || format!("read back, {path} is {flaw}"));
            }
        }
        errand.quit();
        Ok(())
    }

    fn clean(&self) -> Result<(), DriverError> {
        let made = std::mem::take(&mut *self.made.lock().unwrap_or_else(PoisonError::into_inner));
        if made.is_empty() {
            return Ok(());
        }
        let mut errand = self.errand()?;
        for path in made {
            // One that is gone already is as good as removed.
            match errand.command(b"DELE", path.as_bytes()) {
                Ok(()) | Err(DriverError::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        errand.quit();
        Ok(())
    }
}
