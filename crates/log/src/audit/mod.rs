//! The audit log: a file of JSON lines that says who changed what, when and from where.
//!
//! | Class | Events |
//! |---|---|
//! | [`Class::Administration`] | starts and ends, what administrators tell the server, reloads, bans, refused logins, accounts, links; what the log says of itself |
//! | [`Class::Files`] | uploads and other changes of files, where they are asked for |
//!
//! Workers collect records among the lines of their turn and hand them to a thread, as for every other log; the thread
//! chains them ([`chain`]), so that a record that is removed, changed, moved or inserted later is found ([`verify`]).

pub mod chain;
pub mod follow;
pub mod name;
pub mod verify;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::chain::{Appended, ChainedFile, Found};
use super::event::{Direction, Event, NO_SESSION};
use super::line::write_json;
use super::outlet::Events;
use super::position::Position;
use super::syslog::Syslog;
use super::wall;
use super::writer::{Gap, Writer};

/// What is recorded, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditSettings {
    /// The file.
    pub path: PathBuf,
    /// Whether changes of files are recorded, too.
    pub files: bool,
}

/// A kind of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// What administrators do, and what the server does to protect itself.
    Administration,
    /// What users do to files.
    Files,
}

/// Returns the class of an event; `None` where it is not audited.
pub(super) fn class(event: &Event<'_>) -> Option<Class> {
    match event {
        Event::Started { .. }
        | Event::Ended { .. }
        | Event::Administered { .. }
        | Event::Reloaded { .. }
        | Event::Banned { .. }
        | Event::Kicked
        | Event::LoginRefused { .. }
        | Event::AccountChanged { .. }
        | Event::LinkIssued { .. }
        | Event::LinkKeyRemoved { .. }
        | Event::RecordsLost { .. }
        | Event::RecordsMissing { .. }
        | Event::RecordTorn { .. } => Some(Class::Administration),
        Event::Changed { .. } => Some(Class::Files),
        Event::Transferred(transferred) if transferred.direction == Direction::Upload => Some(Class::Files),
        _ => None,
    }
}

/// The audit log of a server.
#[derive(Debug, Clone)]
pub(super) struct AuditLog {
    path: Arc<Path>,
    writer: Arc<Writer>,
    /// Whether changes of files are recorded.
    pub(super) files: bool,
}

impl AuditLog {
    /// Opens the file, and goes on behind its last record, which the log tells.
    pub(super) fn open(
        settings: &AuditSettings,
        events: Option<Events>,
        syslog: Option<Arc<Syslog>>,
    ) -> io::Result<Self> {
        let path: Arc<Path> = settings.path.as_path().into();
        let mut sink = AuditSink { file: ChainedFile::open(&path)?, path: Arc::clone(&path), events, syslog };
        let position = sink.append(b"")?.position;
        sink.tell(&Event::AuditLog { file: &path, position });
        let (of_notice, told) = (Arc::clone(&path), sink.events.clone());
        let notice = move |gap: Gap<'_>| {
            let (lost, reason) = match gap {
                Gap::Dropped(lost) => (lost, "the disk does not keep up".to_owned()),
                Gap::Lost(lost) => (lost, "the file could not be written".to_owned()),
                Gap::Failing(error) => {
                    let text = format!(
                        "the audit log {} cannot be written: {error}; records are missing until it can be",
                        of_notice.display()
                    );
                    told.iter().for_each(|events| events.tell(&Event::Warning { text: &text }));
                    return Vec::new();
                }
            };
            let text = format!("{lost} records are missing from the audit log: {reason}");
            told.iter().for_each(|events| events.tell(&Event::Warning { text: &text }));
            body(&Event::RecordsLost { lost, reason: &reason })
        };
        let writer = Arc::new(Writer::start(sink, Box::new(notice))?);
        Ok(Self { path, writer, files: settings.files })
    }

    /// Returns how many records it has lost so far.
    pub(super) fn lost(&self) -> u64 {
        self.writer.lost()
    }

    /// Returns whether it records an event.
    pub(super) fn wants(&self, event: &Event<'_>) -> bool {
        match class(event) {
            Some(Class::Administration) => true,
            Some(Class::Files) => self.files,
            None => false,
        }
    }

    /// Hands over the records of a turn, which are not chained yet.
    pub(super) fn push(&self, bodies: &[u8]) {
        self.writer.push(bodies);
    }

    /// Waits, for a moment, until all is written.
    pub(super) fn close(&self) {
        self.writer.close();
    }

    /// Returns the file, and its last record as it was written last.
    pub(super) fn position(&self) -> io::Result<(PathBuf, Position)> {
        let known = chain::last_written(&self.path)?;
        Ok((self.path.to_path_buf(), known.unwrap_or(Position::START)))
    }
}

/// Records an event for a program that is no server. May wait for one that writes at the same time.
pub fn record<'a>(file: &mut ChainedFile, events: impl IntoIterator<Item = Event<'a>>) -> io::Result<()> {
    let bodies: Vec<u8> = events.into_iter().flat_map(|event| body(&event)).collect();
    let mut rest = &bodies[..];
    while !rest.is_empty() {
        let written = file.append(rest)?.taken;
        rest = &rest[written..];
    }
    Ok(())
}

/// A record that no session has to do with, before it is chained.
fn body(event: &Event<'_>) -> Vec<u8> {
    let mut line = String::new();
    write_json(&mut line, wall(), &NO_SESSION, event);
    line.into_bytes()
}

/// Where the thread writes: the file, and then syslog.
struct AuditSink {
    file: ChainedFile,
    path: Arc<Path>,
    events: Option<Events>,
    syslog: Option<Arc<Syslog>>,
}

impl AuditSink {
    fn append(&mut self, bodies: &[u8]) -> io::Result<Appended> {
        let appended = self.file.append(bodies)?;
        if let Some(syslog) = &self.syslog {
            syslog.push_records(&appended.lines);
        }
        if let Some(found) = &appended.found {
            self.tell(&Event::Warning { text: &warning(&self.path, found) });
        }
        Ok(appended)
    }

    fn tell(&self, event: &Event<'_>) {
        self.events.iter().for_each(|events| events.tell(event));
    }
}

impl Write for AuditSink {
    fn write(&mut self, bodies: &[u8]) -> io::Result<usize> {
        self.append(bodies).map(|appended| appended.taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn warning(path: &Path, found: &Found) -> String {
    let path = path.display();
    match *found {
        Found::Missing { first, last } => format!(
            "the audit log {path} was cut or changed: records {first} to {last} were written, and are not its last \
             ones"
        ),
        Found::Torn { bytes } => {
            format!("the audit log {path} ended in {bytes} bytes of a record that was not written whole")
        }
    }
}
