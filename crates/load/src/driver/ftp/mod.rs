//! FTP: loads a server with sessions, each of them a [`ClientSession`](millrace_ftp::client::ClientSession)
//! with sockets.
//!
//! - [`user`] is one session in its loop, [`transfer`] its data connection, [`throttle`] a limit on its reading rate.
//! - [`blocking_session`] is one blocking session that makes, checks and removes files; [`proof`] is how it checks
//!   them; [`rogue`] is a misbehaving user.

mod blocking_session;
mod proof;
mod rogue;
mod throttle;
mod transfer;
mod user;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use self::blocking_session::BlockingSession;
use self::proof::{Proof, Prover, Upload};
use self::user::User;
use super::cancellable_wait::CancellableWait;
use super::error::DriverError;
use super::files::Files;
use super::security::Security;
use super::task::{Driver, WorkerTask};
use super::worker::Worker;
use crate::chaos::{Deeds, Mischief};
use crate::fixture::FixtureStep;
use crate::payload::{FileId, Payload, UploadCheck};
use crate::plan::Script;
use crate::plan::{Cache, Cell, Download, Op, Prot, Settings};
use crate::progress::FixtureProgress;
use crate::tally::{Tally, UserTally};
use crate::target::Target;

/// The most uploads that are checked after a verified cell: more would take longer than the cell itself.
const CHECKED: usize = 1000;

/// The files that misbehaving users download and upload.
const ROGUE_DOWNLOAD: &str = "millrace-bench-chaos";
const ROGUE_UPLOAD: &str = "millrace-bench-chaos-upload";

/// The commands between the login, or the TLS handshake before it, and the first transfer.
fn setup(security: Option<&Security>) -> &'static [[&'static [u8]; 2]] {
    const TYPE: [&[u8]; 2] = [b"TYPE", b"I"];
    const PBSZ: [&[u8]; 2] = [b"PBSZ", b"0"];
    match security.map(|security| security.prot) {
        None => &[TYPE],
        Some(Prot::Private) => &[PBSZ, [b"PROT", b"P"], TYPE],
        Some(Prot::Clear) => &[PBSZ, [b"PROT", b"C"], TYPE],
    }
}

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

    /// Opens a session whose waits the user can cancel.
    fn open_session<'a>(
        &self,
        fixtures: FixtureProgress<'a>,
        step: FixtureStep,
    ) -> Result<BlockingSession<'a>, DriverError> {
        BlockingSession::log_in(
            &self.target,
            self.address,
            self.patience,
            CancellableWait::to(fixtures, step),
        )
    }

    /// Uploads a file of every size that a log's downloads have.
    fn prepare_replay(
        &self,
        cell: &Cell,
        script: &Script,
        fixtures: FixtureProgress<'_>,
    ) -> Result<(), DriverError> {
        let (files, payload) = (self.files(cell), Payload::new(cell.settings.seed));
        let mut session = self.open_session(fixtures, FixtureStep::Making)?;
        let sizes = script.downloads();
        for (done, &bytes) in sizes.iter().enumerate() {
            fixtures.note(FixtureStep::Making, done, sizes.len())?;
            self.remember([files.sized(bytes)]);
            session.store(&files.sized(bytes), &payload, Files::download_id(0), bytes)?;
        }
        session.quit();
        Ok(())
    }

    /// Uploads a file for misbehaving users, and notes the one that they upload.
    fn prepare_chaos(&self, cell: &Cell, fixtures: FixtureProgress<'_>) -> Result<(), DriverError> {
        let path = self.target.file(ROGUE_DOWNLOAD);
        if !self.made.lock().unwrap_or_else(PoisonError::into_inner).contains(&path) {
            let mut session = self.open_session(fixtures, FixtureStep::Making)?;
            session.store(&path, &Payload::new(cell.settings.seed), FileId::new(0), rogue::FILE_SIZE)?;
            session.quit();
        }
        self.remember([path, self.target.file(ROGUE_UPLOAD)]);
        Ok(())
    }

    /// Checks that the files of a cell fit on the server, where they may be many.
    fn check_room(&self, cell: &Cell, session: &mut BlockingSession<'_>) -> Result<(), DriverError> {
        if cell.settings.dataset.is_none() {
            return Ok(());
        }
        let files = self.files(cell);
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let new = (0..cell.files()).filter(|&number| !made.contains(&files.download(number))).count();
        drop(made);
        let needed = new as u64 * cell.size.unwrap_or(0);
        let free = match files.room().map_err(DriverError::Client)? {
            Some(free) => free,
            None => match session.ask(b"AVBL", self.target.path.as_bytes()) {
                Err(DriverError::Refused { .. }) => None,
                said => said?.split_ascii_whitespace().nth(1).and_then(|free| free.parse().ok()),
            }
            .ok_or(DriverError::UnknownRoom)?,
        };
        if needed > free / 10 * 9 {
            return Err(DriverError::NoRoom { needed: needed >> 20, free: free >> 20 });
        }
        Ok(())
    }

    fn remember(&self, names: impl IntoIterator<Item = String>) {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).extend(names);
    }
}

impl Driver for FtpDriver {
    fn reach(&self, _: &Settings, fixtures: FixtureProgress<'_>) -> Result<(), DriverError> {
        let mut session = self.open_session(fixtures, FixtureStep::Reaching)?;
        let folder = &self.target.path;
        if !folder.is_empty() {
            session.command(b"CWD", folder.as_bytes()).map_err(|error| match error {
                DriverError::Refused { reply, .. } => DriverError::NoFolder { folder: folder.clone(), reply },
                error => error,
            })?;
        }
        session.quit();
        Ok(())
    }

    fn prepare(&self, cell: &Cell, fixtures: FixtureProgress<'_>) -> Result<(), DriverError> {
        if cell.settings.chaos.is_some() {
            self.prepare_chaos(cell, fixtures)?;
        }
        if let Some(script) = &cell.settings.replay {
            return self.prepare_replay(cell, script, fixtures);
        }
        let is_made = cell.settings.file.is_none() && cell.settings.download == Download::Made;
        if cell.op != Op::Retr || !is_made {
            return Ok(());
        }
        let (files, payload) = (self.files(cell), Payload::new(cell.settings.seed));
        let mut session = self.open_session(fixtures, FixtureStep::Making)?;
        self.check_room(cell, &mut session)?;
        for number in 0..cell.files() {
            fixtures.note(FixtureStep::Making, number as usize, cell.files() as usize)?;
            let path = files.download(number);
            let is_new = !self.made.lock().unwrap_or_else(PoisonError::into_inner).contains(&path);
            let (id, size) = (Files::download_id(number), cell.size.unwrap_or(0));
            if is_new || cell.settings.cache == Cache::Created {
                self.remember([path.clone()]);
                session.store(&path, &payload, id, size).map_err(|error| match error {
                    DriverError::Refused { what, reply } => DriverError::NotStored { what, reply },
                    error => error,
                })?;
            }
            match cell.settings.cache {
                Cache::Any | Cache::Created => {}
                Cache::Warm => drop(session.check(&path, payload.checker(id, size))?),
                Cache::Cold => files.drop_from_cache(&path, size).map_err(DriverError::Cache)?,
            }
        }
        session.quit();
        Ok(())
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

    fn misbehave(&self, kind: Mischief, deeds: &Deeds) {
        let (download, upload) = (&self.target.file(ROGUE_DOWNLOAD), &self.target.file(ROGUE_UPLOAD));
        let place = rogue::Place { target: &self.target, address: self.address, download, upload };
        rogue::misbehave(place, kind, deeds);
    }

    fn check(
        &self,
        cell: &Cell,
        tally: &mut Tally,
        fixtures: FixtureProgress<'_>,
    ) -> Result<(), DriverError> {
        if !matches!(cell.op, Op::Stor | Op::Replay) {
            return Ok(());
        }
        let files = self.files(cell);
        if cell.settings.file.is_none() {
            self.remember(tally.users.iter().flat_map(|user| files.uploads(user.number, user.uploads)));
        }
        if !cell.settings.verify {
            return Ok(());
        }
        let uploads: Vec<(u32, Upload)> = tally
            .users
            .iter()
            .filter_map(|user| Some((user.number, last_upload(cell, files, user)?)))
            .collect();
        // Without files there is nothing to ask.
        if uploads.is_empty() {
            return Ok(());
        }
        match self.prove(cell, &uploads, tally, fixtures) {
            // The results until then are valid.
            Err(DriverError::Left(_)) => Ok(()),
            outcome => outcome,
        }
    }

    fn clean(&self, fixtures: FixtureProgress<'_>) -> Result<(), DriverError> {
        let made = std::mem::take(&mut *self.made.lock().unwrap_or_else(PoisonError::into_inner));
        if made.is_empty() {
            return Ok(());
        }
        let mut done = 0;
        let mut remove = || -> Result<(), DriverError> {
            let mut session = self.open_session(fixtures, FixtureStep::Removing)?;
            for path in &made {
                fixtures.note(FixtureStep::Removing, done, made.len())?;
                // A missing file counts as removed.
                match session.command(b"DELE", path.as_bytes()) {
                    Ok(()) | Err(DriverError::Refused { .. }) => done += 1,
                    Err(error) => return Err(error),
                }
            }
            session.quit();
            Ok(())
        };
        let outcome = remove();
        match outcome {
            Err(DriverError::Left(_)) => Err(DriverError::Left(made.len() - done)),
            outcome => outcome,
        }
    }
}

/// The last upload of a user, if it was confirmed.
fn last_upload(cell: &Cell, files: Files<'_>, user: &UserTally) -> Option<Upload> {
    let serial = user.confirmed?;
    let size = match &cell.settings.replay {
        // A log's uploads have sizes of their own.
        Some(script) => script.upload(user.number, serial)?.bytes,
        None => cell.size.unwrap_or(0),
    };
    Some(Upload {
        path: files.upload(user.number, serial),
        content: files.upload_id(user.number, serial),
        size,
    })
}

impl FtpDriver {
    /// Checks uploads, by any means that the server has; faults go into the tally.
    fn prove(
        &self,
        cell: &Cell,
        uploads: &[(u32, Upload)],
        tally: &mut Tally,
        fixtures: FixtureProgress<'_>,
    ) -> Result<(), DriverError> {
        let files = self.files(cell);
        let mut session = self.open_session(fixtures, FixtureStep::Checking)?;
        let mut prover = Prover::new(&mut session, Payload::new(cell.settings.seed))?;
        let report =
            UploadCheck { by: prover.means(), uploads: uploads.len() as u64, ..UploadCheck::default() };
        let report = tally.upload_check.insert(report);
        let all = uploads.len().min(CHECKED);
        for (done, (user, upload)) in uploads.iter().take(CHECKED).enumerate() {
            fixtures.note(FixtureStep::Checking, done, all)?;
            match prover.look(&mut session, upload)? {
                Proof::ByHash => report.by_hash += 1,
                Proof::ReadBack => report.by_reading += 1,
                Proof::Flawed(flaw) => {
                    report.wrong += 1;
                    let words =
                        || format!("read back, {} is {}", upload.path, flaw.words(|id| files.name(id)));
                    tally.faults.record(flaw.into(), *user, words);
                }
                Proof::Wrong(fault, why) => {
                    report.wrong += 1;
                    tally.faults.record(fault, *user, || format!("read back, {} {why}", upload.path));
                }
            }
        }
        session.quit();
        Ok(())
    }
}
