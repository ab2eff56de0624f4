//! `millrace log convert`: the entries of a binary log as text.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use millrace_vfs::{Conversion, Timestamp};
use thiserror::Error;

use super::entry;
use super::record::{self, Record, SIZE};
use super::ring::{place, slots};
use crate::access::{Clock, W3C_HEAD, write_combined, write_w3c};
use crate::line::{write_json, write_text};
use crate::{Direction, Event, Request, Subject, Transferred, xferlog};

/// Bytes that are written at a time.
const WRITTEN: usize = 64 * 1024;

/// What is made of a binary log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Lines as of the log, as text.
    Text,
    /// The same as JSON.
    Json,
    /// Requests in the Combined format.
    Combined,
    /// Requests in the Extended format of the W3C.
    W3c,
    /// Transfers in the format of wu-ftpd: those of FTP, and downloads by HTTP.
    Xferlog,
}

/// A text that names no form.
#[derive(Debug, Error)]
#[error("it is text, json, combined, w3c or xferlog")]
pub struct FormError;

impl FromStr for Form {
    type Err = FormError;

    fn from_str(text: &str) -> Result<Self, FormError> {
        Ok(match text {
            "text" => Self::Text,
            "json" => Self::Json,
            "combined" => Self::Combined,
            "w3c" => Self::W3c,
            "xferlog" => Self::Xferlog,
            _ => return Err(FormError),
        })
    }
}

/// What was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Converted {
    /// Entries that are whole, from the oldest to the newest.
    pub entries: u64,
    /// Records that were not written whole, or whose entry is not there as a whole.
    pub torn: u64,
}

/// Why it is not converted.
#[derive(Debug, Error)]
pub enum ConvertError {
    /// The file.
    #[error("{}: {error}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// What the system said, or that it is no binary log.
        error: io::Error,
    },
    /// What the text is written to.
    #[error("cannot write: {0}")]
    Output(#[source] io::Error),
}

/// Writes the entries of a file as text, the oldest first. A server may write to it meanwhile.
pub fn convert(path: &Path, form: Form, out: &mut impl Write) -> Result<Converted, ConvertError> {
    let failed = |error| ConvertError::File { path: path.to_owned(), error };
    let file = File::open(path).map_err(failed)?;
    let slots = slots(&file).map_err(failed)?;
    let (index, mut converted) = Index::read(&file, slots).map_err(failed)?;
    let mut writer = FormWriter { form, clock: Clock::default(), text: Vec::new() };
    if form == Form::W3c {
        writer.text.extend_from_slice(W3C_HEAD.as_bytes());
    }
    for first in index.firsts() {
        match index.entry(&file, first) {
            Some((record, names)) => {
                match entry::read(&record, &names, |now, of, event| writer.add(now, of, event)) {
                    Some(()) => converted.entries += 1,
                    None => converted.torn += 1,
                }
            }
            None => converted.torn += 1,
        }
        if writer.text.len() > WRITTEN {
            out.write_all(&writer.text).map_err(ConvertError::Output)?;
            writer.text.clear();
        }
    }
    out.write_all(&writer.text).and_then(|()| out.flush()).map_err(ConvertError::Output)?;
    Ok(converted)
}

/// Which records there are: the number of each, whether an entry begins there, and in which slot.
struct Index(Vec<(u64, bool, u64)>);

impl Index {
    /// Looks at all records, and counts those that are torn.
    fn read(file: &File, slots: u64) -> io::Result<(Self, Converted)> {
        let (mut found, mut converted) = (Vec::new(), Converted::default());
        let mut buffer = vec![0; 1024 * SIZE];
        let mut slot = 0;
        // A copy may have been cut: its whole records are read, and the first that is not counts as torn.
        let length = file.metadata()?.len();
        let there = (length.saturating_sub(place(0)) / SIZE as u64).min(slots);
        converted.torn += u64::from(length < place(slots));
        let slots = there;
        while slot < slots {
            let records = &mut buffer[..SIZE * (slots - slot).min(1024) as usize];
            file.read_exact_at(records, place(slot))?;
            for record in records.as_chunks::<SIZE>().0 {
                match record::sequence(record) {
                    Some(number) => found.push((number, record::parts(record).is_some(), slot)),
                    None if record::is_empty(record) => {}
                    None => converted.torn += 1,
                }
                slot += 1;
            }
        }
        found.sort_unstable();
        Ok((Self(found), converted))
    }

    /// Returns where entries begin, the oldest first.
    fn firsts(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().filter(|(_, (_, is_first, _))| *is_first).map(|(at, _)| at)
    }

    /// Reads the entry that begins there: its first record, and the names of all; `None` where one is not there any more.
    fn entry(&self, file: &File, first: usize) -> Option<(Record, Vec<u8>)> {
        let head = self.record(file, first)?;
        let mut names = record::names(&head, 0)?.to_vec();
        for place in 1..record::parts(&head)? {
            if self.0.get(first + place)?.0 != self.0[first].0 + place as u64 {
                return None;
            }
            names.extend_from_slice(record::names(&self.record(file, first + place)?, place)?);
        }
        Some((head, names))
    }

    /// Reads a record, unless another has taken its slot since.
    fn record(&self, file: &File, at: usize) -> Option<Record> {
        let (number, _, slot) = *self.0.get(at)?;
        let mut record = [0; SIZE];
        file.read_exact_at(&mut record, place(slot)).ok()?;
        (record::sequence(&record) == Some(number)).then_some(record)
    }
}

/// Writes entries in a form.
struct FormWriter {
    form: Form,
    clock: Clock,
    text: Vec<u8>,
}

impl FormWriter {
    fn add(&mut self, now: Timestamp, subject: &Subject<'_>, event: &Event<'_>) {
        let Self { form, clock, text } = self;
        let mut line = String::new();
        match (*form, event) {
            (Form::Text, event) => write_text(&mut line, now, subject, event),
            (Form::Json, event) => write_json(&mut line, now, subject, event),
            (Form::Combined, Event::Requested(request)) => write_combined(clock, now, subject, request, text),
            (Form::W3c, Event::Requested(request)) => write_w3c(now, subject, request, text),
            (Form::Xferlog, Event::Transferred(transfer)) => {
                xferlog::write(now, subject, transfer, ("ftp", false), text);
            }
            (Form::Xferlog, Event::Requested(request)) => add_download(now, subject, request, text),
            _ => {}
        }
        text.extend_from_slice(line.as_bytes());
    }
}

/// Writes a request that was a download as a line of the xferlog.
fn add_download(now: Timestamp, subject: &Subject<'_>, request: &Request<'_>, text: &mut Vec<u8>) {
    let is_download = request.method == "GET" && matches!(request.status, 200 | 206);
    let parsed = millrace_http::target::parse_for_others(request.target);
    let Some(target) = parsed.ok().filter(|_| is_download) else { return };
    let transfer = Transferred {
        direction: Direction::Download,
        path: &target.path,
        bytes: request.bytes,
        elapsed: request.elapsed,
        first_byte: None,
        lag: Duration::ZERO,
        waited: request.waited,
        failure: None,
        hash: None,
        ascii: false,
        conversion: Conversion::default(),
        guest: None,
        log: None,
    };
    let subject = Subject { user: subject.user.or(Some(b"anonymous")), ..*subject };
    xferlog::write(now, &subject, &transfer, ("http", false), text);
}
