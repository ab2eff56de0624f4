//! Where lines go: standard error, and files. Each has its thread, and what could not be written there is told among the
//! events.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use super::binary::{self, RingFile};
use super::event::{Event, NO_SESSION};
use super::journal::Journal;
use super::line::{write_json, write_text};
use super::rotation::{RotatedFile, Rotation, Warn};
use super::wall;
use super::writer::{Count, Gap, Writer, lines};
use crate::LogFormat;

/// What an error about standard error is told of.
const STDERR: &str = "/dev/stderr";

/// A log that is a file, and may be moved away.
#[derive(Debug, Clone)]
pub(super) struct LogFile {
    pub(super) path: Arc<Path>,
    kind: FileKind,
    pub(super) writer: Arc<Writer>,
    events: Option<Events>,
}

/// What a log file is.
#[derive(Debug, Clone, Copy)]
pub(super) enum FileKind {
    /// Lines, below a head, which are moved away.
    Lines { head: &'static str, rotation: Rotation },
    /// Records in a ring of about this many bytes.
    Ring { bytes: u64 },
}

impl FileKind {
    fn open(self, path: &Arc<Path>, events: Option<Events>) -> io::Result<Box<dyn Write + Send>> {
        Ok(match self {
            Self::Lines { head, rotation } => {
                Box::new(RotatedFile::open(path, head, rotation, warn(events))?)
            }
            Self::Ring { bytes } => Box::new(RingFile::open(path, bytes)?),
        })
    }

    fn count(self) -> Count {
        match self {
            Self::Lines { .. } => lines,
            Self::Ring { .. } => binary::entries,
        }
    }
}

impl LogFile {
    /// Goes on in the file that has the name now.
    pub(super) fn reopen(&self) -> io::Result<()> {
        self.writer.redirect(self.kind.open(&self.path, self.events.clone())?);
        Ok(())
    }
}

/// The way of other logs to tell something among the events.
#[derive(Debug, Clone)]
pub(super) struct Events {
    writer: Arc<Writer>,
    format: LogFormat,
}

impl Events {
    /// Events of the log that this thread writes.
    pub(super) fn of(writer: &Arc<Writer>, format: LogFormat) -> Self {
        Self { writer: Arc::clone(writer), format }
    }

    /// Tells something that no session has to do with.
    pub(super) fn tell(&self, event: &Event<'_>) {
        if self.format.keeps(event) {
            self.writer.push(&line(self.format, event));
        }
    }
}

/// The thread that writes events to standard error, or to the journal.
pub(super) fn events(format: LogFormat, to_journal: bool) -> Result<Arc<Writer>, (&'static Path, io::Error)> {
    let notice = move |gap: Gap<'_>| match gap {
        Gap::Dropped(lines) => {
            warning(format, &format!("{} from the log, because its reader is too slow", missing(lines)))
        }
        // The log itself has failed, so there is nowhere to report it.
        Gap::Failing(_) => Vec::new(),
        Gap::Lost(lines) => {
            warning(format, &format!("{} from the log, which could not be written", missing(lines)))
        }
    };
    let (path, started) = match to_journal {
        true => {
            (Journal::path(), Journal::open().and_then(|journal| Writer::start(journal, Box::new(notice))))
        }
        false => (Path::new(STDERR), stderr().and_then(|stderr| Writer::start(stderr, Box::new(notice)))),
    };
    started.map(Arc::new).map_err(|error| (path, error))
}

/// A descriptor of its own: the standard library's lock must not be held while a write is stuck.
fn stderr() -> io::Result<File> {
    Ok(File::from(io::stderr().as_fd().try_clone_to_owned()?))
}

fn missing(lines: u64) -> String {
    if lines == 1 { "1 line is missing".to_owned() } else { format!("{lines} lines are missing") }
}

/// The thread that writes a log of another format, which has no line for missing entries.
pub(super) fn log_file(
    (path, kind): (&Path, FileKind),
    of: &'static str,
    events: Option<Events>,
) -> io::Result<LogFile> {
    let path: Arc<Path> = path.into();
    let file = kind.open(&path, events.clone())?;
    let told = events.clone();
    let notice = move |gap: Gap<'_>| {
        let text = match gap {
            Gap::Dropped(lines) => {
                format!("{} from {of}, whose disk does not keep up", missing(lines))
            }
            Gap::Failing(error) => {
                format!("{of} cannot be written: {error}; lines are missing until it can be")
            }
            Gap::Lost(lines) => format!("{} from {of}, which could not be written", missing(lines)),
        };
        told.iter().for_each(|events| events.tell(&Event::Warning { text: &text }));
        Vec::new()
    };
    let writer = Arc::new(Writer::counting(file, Box::new(notice), kind.count())?);
    Ok(LogFile { path, kind, writer, events })
}

/// How a file tells what is wrong with it.
fn warn(events: Option<Events>) -> Warn {
    Box::new(move |text| events.iter().for_each(|events| events.tell(&Event::Warning { text })))
}

/// A line that is about the log itself.
fn warning(format: LogFormat, text: &str) -> Vec<u8> {
    line(format, &Event::Warning { text })
}

fn line(format: LogFormat, event: &Event<'_>) -> Vec<u8> {
    let (now, subject, mut line) = (wall(), NO_SESSION, String::new());
    match format {
        LogFormat::Off => {}
        LogFormat::Json | LogFormat::JsonWarnings => write_json(&mut line, now, &subject, event),
        LogFormat::Text | LogFormat::Warnings => write_text(&mut line, now, &subject, event),
    }
    line.into_bytes()
}
