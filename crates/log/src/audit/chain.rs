//! A file of records in which each carries the SHA-256 of the one before it.
//!
//! A record is a line: a JSON object that ends in `"seq":17,"prev":"..."`. `prev` is the SHA-256 of the line before,
//! without its line end; of the first record it is zeros.
//!
//! Several processes may append (a server and its successor, `millrace user`): each append holds a lock and goes on behind
//! the last record that is there. The lock is on the file `NAME.head` beside the log, which says what was written last: number,
//! SHA-256, length. So the chain goes on in a new file when the old one was moved away, and a tail that was cut is noticed.
//! Records are synchronised before the head is written: after a power cut the head is never ahead of the file.
//!
//! What follows the last whole record (a process was killed in the middle of one, or the disk was full) stays where it is. The
//! next record says how long it is and what its SHA-256 is.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::body;
use crate::event::Event;
use crate::position::{Position, Sha256};

/// What of a record its place in the chain depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) seq: u64,
    pub(super) prev: Sha256,
}

impl Link {
    /// Reads a line; `None` where it is no record.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Written<'a> {
            seq: u64,
            #[serde(borrow)]
            prev: &'a str,
        }
        let written: Written<'_> = serde_json::from_slice(line).ok()?;
        Some(Self { seq: written.seq, prev: Sha256::parse(written.prev)? })
    }
}

/// What was wrong at the end of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// These were written last, and the last record of the file is another.
    Missing {
        /// The first of them.
        first: u64,
        /// The last of them.
        last: u64,
    },
    /// It ended in this many bytes that are no record.
    Torn {
        /// How many.
        bytes: u64,
    },
}

/// What came of an append.
#[derive(Debug)]
pub struct Appended {
    /// How many bytes of what was to be recorded are in the file.
    pub taken: usize,
    /// The records as they were written.
    pub lines: Vec<u8>,
    /// The last record.
    pub position: Position,
    /// What was wrong with the end of the file; a record says it, too.
    pub found: Option<Found>,
}

/// A chained file that is open.
#[derive(Debug)]
pub struct ChainedFile {
    path: PathBuf,
    head: File,
    file: File,
}

impl ChainedFile {
    /// Opens the file, or makes it, for its owner alone. One that root makes gets the owner of its folder.
    pub fn open(path: &Path) -> io::Result<Self> {
        let head = open_private(&head_of(path), false)?;
        Ok(Self { path: path.to_owned(), head, file: open_private(path, true)? })
    }

    /// Appends records: whole lines, each a JSON object. Where the disk is full, as many as there was room for; an error
    /// where there was room for none. Waits for other processes that append.
    pub fn append(&mut self, bodies: &[u8]) -> io::Result<Appended> {
        let _lock = Lock::take(&self.head)?;
        if !is_same(&self.path, &self.file) {
            // It was moved away (logrotate), and the chain goes on in a new one.
            self.file = open_private(&self.path, true)?;
        }
        let length = self.file.metadata()?.len();
        let mut batch = match Head::read(&self.head)? {
            Some(head) if head.length == length => Batch::behind(head.position),
            head => Batch::recovering(&self.file, length, head)?,
        };
        for body in bodies.split_inclusive(|&byte| byte == b'\n') {
            batch.chain(body, body.len());
        }
        if batch.lines.is_empty() {
            return Ok(batch.all());
        }
        let (written, failed) = write_most(&self.file, &batch.lines);
        let (appended, end) = match failed {
            None => (batch.all(), written),
            Some(error) => batch.up_to(written).ok_or(error)?,
        };
        self.file.sync_data()?;
        let head = Head { position: appended.position, length: length + end as u64 };
        // Without it the next append looks for the last record in the file.
        let _ = head.write(&self.head);
        Ok(appended)
    }
}

/// Reads which record was written last; `None` where none was.
pub fn last_written(path: &Path) -> io::Result<Option<Position>> {
    match File::open(head_of(path)) {
        Ok(head) => Ok(Head::read(&head)?.map(|head| head.position)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The file that says which record was written last.
pub fn head_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".head");
    name.into()
}

fn open_private(path: &Path, appends: bool) -> io::Result<File> {
    let is_new = !path.exists();
    let mut options = OpenOptions::new();
    options.read(true).write(true).append(appends).create(true).truncate(false).mode(0o600);
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        let text = "a chain of records needs a file that can be read again, not a pipe or a device";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    if is_new
        && rustix::process::geteuid().is_root()
        && let Some(folder) = path.parent()
    {
        // A server that gives up root's rights writes to it as well. An empty parent is the present folder.
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let owner = fs::metadata(folder)?;
        fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
    }
    Ok(file)
}

/// Returns whether the file is the one that has the name now.
pub(super) fn is_same(path: &Path, file: &File) -> bool {
    let (named, open) = (fs::metadata(path), file.metadata());
    matches!((named, open), (Ok(named), Ok(open)) if (named.dev(), named.ino()) == (open.dev(), open.ino()))
}

/// Writes as much as there is room for.
fn write_most(mut file: &File, bytes: &[u8]) -> (usize, Option<io::Error>) {
    let mut written = 0;
    while written < bytes.len() {
        match file.write(&bytes[written..]) {
            Ok(0) => return (written, Some(io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Some(error)),
        }
    }
    (written, None)
}

/// The right to append, as long as it is held.
struct Lock<'a>(&'a File);

impl<'a> Lock<'a> {
    fn take(head: &'a File) -> io::Result<Self> {
        head.lock()?;
        Ok(Self(head))
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// What was written last, and how long the file was then.
struct Head {
    position: Position,
    length: u64,
}

/// Bytes of a head: it is written over the one before in one piece.
const HEAD: usize = 20 + 1 + 64 + 1 + 20 + 1;

impl Head {
    /// Reads it; `None` where there is none yet, or none that makes sense.
    fn read(file: &File) -> io::Result<Option<Self>> {
        let mut text = [0; HEAD];
        match file.read_exact_at(&mut text, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let mut words = str::from_utf8(&text).unwrap_or_default().split_ascii_whitespace();
        let mut head = || {
            let (seq, sha256) = (words.next()?.parse().ok()?, Sha256::parse(words.next()?)?);
            let length = words.next()?.parse().ok()?;
            Some(Self { position: Position { seq, sha256 }, length })
        };
        Ok(head())
    }

    fn write(&self, file: &File) -> io::Result<()> {
        let Self { position: Position { seq, sha256 }, length } = self;
        file.write_all_at(format!("{seq:>20} {sha256} {length:>20}\n").as_bytes(), 0)
    }
}

/// Records that are about to be written.
struct Batch {
    lines: Vec<u8>,
    position: Position,
    found: Option<Found>,
    /// Of each record: where it ends in `lines`, how much was taken by then, and what it is.
    ends: Vec<(usize, usize, Position)>,
    taken: usize,
}

impl Batch {
    fn behind(position: Position) -> Self {
        Self { lines: Vec::new(), position, found: None, ends: Vec::new(), taken: 0 }
    }

    /// Goes on where the file does not end as the head says: in another file, or after a crash.
    fn recovering(file: &File, length: u64, head: Option<Head>) -> io::Result<Self> {
        let (last, torn) = tail(file, length)?;
        let known = head.map(|head| head.position);
        let newest = match (last, known) {
            (Some(last), Some(known)) if last.seq > known.seq => last,
            (last, known) => known.or(last).unwrap_or(Position::START),
        };
        let mut batch = Self::behind(newest);
        let is_torn = !torn.is_empty();
        if is_torn && torn.last() != Some(&b'\n') {
            batch.lines.push(b'\n');
        }
        if is_torn {
            let piece = torn.strip_suffix(b"\n").unwrap_or(&torn);
            let (bytes, sha256) = (piece.len() as u64, Sha256::of(piece));
            batch.found = Some(Found::Torn { bytes });
            batch.chain(&body(&Event::RecordTorn { bytes, sha256 }), 0);
        }
        if let (Some(last), Some(known)) = (last, known)
            && last != known
            && last.seq <= known.seq
        {
            let first = known.seq.min(last.seq + 1);
            batch.found = Some(Found::Missing { first, last: known.seq });
            batch.chain(&body(&Event::RecordsMissing { first, last: known.seq }), 0);
        }
        Ok(batch)
    }

    /// Adds a record, of which this many bytes are the caller's.
    fn chain(&mut self, body: &[u8], taken: usize) {
        let begin = self.lines.len();
        let open = body.strip_suffix(b"}\n").unwrap_or(body);
        self.lines.extend_from_slice(open);
        let Position { seq, sha256 } = self.position;
        let seq = seq + 1;
        self.lines.extend_from_slice(format!(",\"seq\":{seq},\"prev\":\"{sha256}\"}}").as_bytes());
        self.position = Position { seq, sha256: Sha256::of(&self.lines[begin..]) };
        self.lines.push(b'\n');
        self.taken += taken;
        self.ends.push((self.lines.len(), self.taken, self.position));
    }

    fn all(self) -> Appended {
        let Self { lines, position, found, taken, .. } = self;
        Appended { taken, lines, position, found }
    }

    /// What was written with this many bytes, and where its last record ends; `None` where nothing of the caller's was.
    fn up_to(mut self, written: usize) -> Option<(Appended, usize)> {
        let whole = self.ends.iter().rev().find(|(end, ..)| *end <= written);
        let (end, taken, position) = *whole.filter(|(_, taken, _)| *taken > 0)?;
        self.lines.truncate(end);
        Some((Appended { taken, lines: self.lines, position, found: self.found }, end))
    }
}

/// Finds the last record of a file of this length, and what follows it.
fn tail(file: &File, length: u64) -> io::Result<(Option<Position>, Vec<u8>)> {
    let mut most = 64 * 1024;
    loop {
        let begin = length.saturating_sub(most);
        let mut bytes = vec![0; (length - begin) as usize];
        file.read_exact_at(&mut bytes, begin)?;
        // Where it begins in the middle of a line, that line is another turn's.
        let first = match begin {
            0 => Some(0),
            _ => bytes.iter().position(|&byte| byte == b'\n').map(|at| at + 1),
        };
        let mut end = bytes.iter().rposition(|&byte| byte == b'\n');
        while let (Some(first), Some(at)) = (first, end.filter(|at| Some(*at) >= first)) {
            let before =
                bytes[first..at].iter().rposition(|&byte| byte == b'\n').map(|before| first + before);
            let line = &bytes[before.map_or(first, |before| before + 1)..at];
            if let Some(link) = Link::parse(line) {
                let position = Position { seq: link.seq, sha256: Sha256::of(line) };
                return Ok((Some(position), bytes.split_off(at + 1)));
            }
            end = before;
        }
        if begin == 0 {
            return Ok((None, bytes));
        }
        most *= 8;
    }
}

#[cfg(test)]
mod tests;
