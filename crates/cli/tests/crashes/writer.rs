//! One client that changes files in a folder of its own, and knows what was acknowledged.
//!
//! A writer sends one operation at a time, so at a crash at most one is without an answer.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::clients::{Ftp, Http};
use crate::noise::Noise;
use crate::tree::{Bytes, Node, Op, Tree};

/// Names in each directory: few, so that most are used again.
const NAMES: usize = 5;

const DIRECTORIES: [&str; 2] = ["d0", "d1"];

/// Beyond it nothing is appended any more.
const APPENDED: usize = 150_000;

/// Operations that a failure shows.
const TRAIL: usize = 12;

/// Pieces of tus.
const PIECE: usize = 9_000;

/// Where a server can be reached.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Addresses {
    pub(crate) ftp: SocketAddr,
    pub(crate) http: SocketAddr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Ftp,
    Http,
}

/// What a writer did, and when on some clock.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) op: Op,
    pub(crate) begun: u64,
    /// `None`: the crash came first.
    pub(crate) acknowledged: Option<u64>,
}

/// A resumable upload that has begun.
#[derive(Debug)]
struct Resumable {
    location: String,
    path: String,
    contents: Bytes,
    /// As was acknowledged.
    offset: usize,
    /// A crash came between.
    is_cut: bool,
}

/// How much of an upload was found, and how much was acknowledged.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) path: String,
    /// `None`: the upload is gone.
    pub(crate) offset: Option<usize>,
    pub(crate) acknowledged: usize,
    pub(crate) status: u16,
}

impl Lost {
    pub(crate) fn describe(&self) -> String {
        let Self { path, offset, acknowledged, status } = self;
        format!("{path}: {offset:?} of {acknowledged} acknowledged bytes, status {status}")
    }
}

#[derive(Debug)]
pub(crate) struct Writer {
    noise: Noise,
    pub(crate) user: &'static str,
    /// The folder of its own, in the user's.
    pub(crate) folder: String,
    protocol: Protocol,
    pub(crate) acknowledged: Tree,
    /// As it was after the last crash.
    pub(crate) begun_with: Tree,
    pub(crate) unanswered: Option<Op>,
    resumable: Option<Resumable>,
    /// Resumable uploads go on only from where they were acknowledged.
    /// Since it was last taken.
    pub(crate) history: Vec<Record>,
    /// Operations that the server refused, as when a quota is used up.
    pub(crate) refused: usize,
    /// Resumable uploads that did not go on with what was acknowledged.
    pub(crate) lost: Vec<Lost>,
    /// The last operations and what was answered, for the message about a failure.
    pub(crate) trail: VecDeque<String>,
}

/// A connection of either protocol.
enum Link {
    Ftp(Ftp),
    Http(Http),
}

impl Link {
    /// Asks for an operation; the code of the reply or status of the response.
    fn ask(&mut self, folder: &str, op: &Op) -> io::Result<u16> {
        let at = |path: &str| format!("/{folder}/{path}");
        match (self, op) {
            (Self::Ftp(ftp), Op::Store { path, contents }) => {
                ftp.upload(&format!("STOR {}", at(path)), contents)
            }
            (Self::Ftp(ftp), Op::Continue { path, offset, contents }) if offset % 2 == 0 && *offset > 0 => {
                ftp.command(&format!("REST {offset}"))?;
                ftp.upload(&format!("STOR {}", at(path)), contents)
            }
            (Self::Ftp(ftp), Op::Continue { path, contents, .. }) => {
                ftp.upload(&format!("APPE {}", at(path)), contents)
            }
            (Self::Ftp(ftp), Op::Rename { from, to }) => {
                match ftp.command(&format!("RNFR {}", at(from)))?.0 {
                    350 => Ok(ftp.command(&format!("RNTO {}", at(to)))?.0),
                    code => Ok(code),
                }
            }
            (Self::Ftp(ftp), Op::Delete { path }) => Ok(ftp.command(&format!("DELE {}", at(path)))?.0),
            (Self::Ftp(ftp), Op::MakeDirectory { path }) => Ok(ftp.command(&format!("MKD {}", at(path)))?.0),
            (Self::Ftp(ftp), Op::RemoveDirectory { path }) => {
                Ok(ftp.command(&format!("RMD {}", at(path)))?.0)
            }
            (Self::Http(http), Op::Store { path, contents }) => {
                Ok(http.request(&format!("PUT {}", at(path)), "", contents)?.status)
            }
            (Self::Http(http), Op::Delete { path }) => {
                Ok(http.request(&format!("DELETE {}", at(path)), "", b"")?.status)
            }
            (Self::Http(_), op) => unreachable!("{op:?} is not drawn for HTTP"),
        }
    }
}

impl Writer {
    pub(crate) fn new(seed: u64, number: usize) -> Self {
        let user = ["alice", "bob", "carol"][number % 3];
        let protocol = if (number / 3).is_multiple_of(2) { Protocol::Ftp } else { Protocol::Http };
        Self {
            noise: Noise::new(seed.wrapping_mul(1_000_003).wrapping_add(number as u64)),
            user,
            folder: format!("w{number}"),
            protocol,
            acknowledged: Tree::new(),
            begun_with: Tree::new(),
            unanswered: None,
            resumable: None,
            history: Vec::new(),
            refused: 0,
            lost: Vec::new(),
            trail: VecDeque::new(),
        }
    }

    /// Takes over what was found after a crash.
    pub(crate) fn recover(&mut self, found: Tree) {
        self.note("crash".to_owned());
        self.begun_with.clone_from(&found);
        self.acknowledged = found;
        self.unanswered = None;
        if let Some(resumable) = &mut self.resumable {
            resumable.is_cut = true;
        }
    }

    /// Sends operations until told to stop, or until the server is gone.
    pub(crate) fn run(&mut self, addresses: Addresses, stop: &AtomicBool, clock: &dyn Fn() -> u64) {
        let link = match self.protocol {
            Protocol::Ftp => Ftp::log_in(addresses.ftp, self.user).map(Link::Ftp),
            Protocol::Http => Http::connect(addresses.http, self.user).map(Link::Http),
        };
        let Ok(mut link) = link else { return };
        while !stop.load(Ordering::Relaxed) && self.step(&mut link, clock).is_ok() {}
    }

    fn step(&mut self, link: &mut Link, clock: &dyn Fn() -> u64) -> io::Result<()> {
        if let Link::Http(http) = link {
            if self.resumable.as_ref().is_some_and(|resumable| resumable.is_cut) {
                return self.resume(http, clock);
            }
            match self.resumable.take() {
                Some(resumable) if self.noise.is_one_in(2) => return self.send_piece(http, resumable, clock),
                None if self.noise.is_one_in(8) => return self.begin_resumable(http),
                other => self.resumable = other,
            }
        }
        let op = self.draw();
        let folder = self.folder.clone();
        self.perform(op, clock, |op| link.ask(&folder, op))?;
        Ok(())
    }

    /// Performs an operation, and keeps what came of it; whether it was done.
    fn perform(
        &mut self,
        op: Op,
        clock: &dyn Fn() -> u64,
        ask: impl FnOnce(&Op) -> io::Result<u16>,
    ) -> io::Result<bool> {
        let begun = clock();
        self.unanswered = Some(op.clone());
        self.history.push(Record { op: op.clone(), begun, acknowledged: None });
        let answer = ask(&op);
        self.note(format!("{}: {answer:?}", op.describe()));
        let code = answer?;
        self.unanswered = None;
        if code < 300 {
            self.history.last_mut().expect("it was pushed above").acknowledged = Some(clock());
            op.apply(&mut self.acknowledged);
        } else {
            self.history.pop();
            self.refused += 1;
            if !op.tear(&mut self.acknowledged) && matches!(op, Op::Delete { .. }) {
                // A file that was never made because its upload was refused.
                op.apply(&mut self.acknowledged);
            }
        }
        Ok(code < 300)
    }

    fn note(&mut self, what: String) {
        self.trail.push_back(what);
        if self.trail.len() > TRAIL {
            self.trail.pop_front();
        }
    }

    fn begin_resumable(&mut self, http: &mut Http) -> io::Result<()> {
        let length = 1 + self.noise.below(60_000);
        let contents = Arc::new(self.noise.contents(length));
        let path = self.path();
        // The names are of letters and digits, whose base64 needs no library.
        let fields = format!("Tus-Resumable: 1.0.0\r\nUpload-Length: {length}\r\n{}", filename_field(&path));
        let made = http.request(&format!("POST /{}/", self.folder), &fields, b"")?;
        match made.field("location") {
            Some(location) if made.status == 201 => {
                let location = location.to_owned();
                self.resumable = Some(Resumable { location, path, contents, offset: 0, is_cut: false });
            }
            _ => self.refused += 1,
        }
        Ok(())
    }

    fn send_piece(
        &mut self,
        http: &mut Http,
        resumable: Resumable,
        clock: &dyn Fn() -> u64,
    ) -> io::Result<()> {
        let Resumable { location, path, contents, offset, .. } = &resumable;
        let left = &contents[*offset..];
        let piece = &left[..left.len().min(1 + self.noise.below(PIECE))];
        let (is_last, end) = (piece.len() == left.len(), offset + piece.len());
        let fields = format!(
            "Tus-Resumable: 1.0.0\r\nContent-Type: application/offset+octet-stream\r\nUpload-Offset: {offset}\r\n"
        );
        let mut send = || Ok(http.request(&format!("PATCH {location}"), &fields, piece)?.status);
        if is_last {
            let op = Op::Store { path: path.clone(), contents: Arc::clone(contents) };
            let answer = self.perform(op, clock, |_| send());
            if answer.is_err() {
                self.resumable = Some(resumable);
            }
            return answer.map(drop);
        }
        let status = send();
        match status {
            Ok(204) => self.resumable = Some(Resumable { offset: end, ..resumable }),
            Ok(_) => self.refused += 1,
            Err(_) => self.resumable = Some(resumable),
        }
        status.map(drop)
    }

    /// Asks how much of an upload was kept over a crash: all that was acknowledged. One that is complete becomes the
    /// file then.
    fn resume(&mut self, http: &mut Http, clock: &dyn Fn() -> u64) -> io::Result<()> {
        let Some(mut resumable) = self.resumable.take() else { return Ok(()) };
        let Resumable { location, path, contents, offset: acknowledged, .. } = &resumable;
        let op = Op::Store { path: path.clone(), contents: Arc::clone(contents) };
        let begun = clock();
        self.unanswered = Some(op.clone());
        let answer = http.request(&format!("HEAD {location}"), "Tus-Resumable: 1.0.0\r\n", b"");
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                self.history.push(Record { op, begun, acknowledged: None });
                self.resumable = Some(resumable);
                return Err(error);
            }
        };
        self.unanswered = None;
        let offset = answer.field("upload-offset").and_then(|offset| offset.parse().ok());
        self.note(format!("resumed {path}: {offset:?}, status {}", answer.status));
        let is_file = matches!(self.acknowledged.get(path), Some(Node::File(bytes)) if bytes == contents);
        match offset {
            Some(offset) if offset == contents.len() => {
                op.apply(&mut self.acknowledged);
                self.history.push(Record { op, begun, acknowledged: Some(clock()) });
            }
            Some(offset) if offset >= *acknowledged => {
                (resumable.offset, resumable.is_cut) = (offset, false);
                self.resumable = Some(resumable);
            }
            // Its last piece was on its way, and has made the file.
            _ if is_file => {}
            _ => {
                let path = format!("{}/{path}", self.folder);
                let acknowledged = *acknowledged;
                self.lost.push(Lost { path, offset, acknowledged, status: answer.status });
            }
        }
        Ok(())
    }

    /// Draws the next operation, which the server will not refuse but for a quota.
    fn draw(&mut self) -> Op {
        let torn = self.acknowledged.iter().find(|(_, node)| matches!(node, Node::Torn(_)));
        if let Some((path, _)) = torn {
            return Op::Delete { path: path.clone() };
        }
        let files = self.files();
        if self.protocol == Protocol::Ftp {
            let drawn = match self.noise.below(100) {
                0..15 => self.draw_continue(&files),
                15..30 => self.draw_rename(&files),
                30..45 => self.draw_directory(),
                _ => None,
            };
            if let Some(op) = drawn {
                return op;
            }
        }
        match self.noise.pick(&files) {
            Some(path) if self.noise.is_one_in(5) => Op::Delete { path: path.clone() },
            _ => {
                let length = self.length();
                Op::Store { path: self.path(), contents: Arc::new(self.noise.contents(length)) }
            }
        }
    }

    fn files(&self) -> Vec<String> {
        let files = self.acknowledged.iter().filter(|(_, node)| matches!(node, Node::File(_)));
        files.map(|(path, _)| path.clone()).collect()
    }

    fn draw_continue(&mut self, files: &[String]) -> Option<Op> {
        let path = match self.noise.is_one_in(4) {
            true => self.path(),
            false => self.noise.pick(files)?.clone(),
        };
        let size = match self.acknowledged.get(&path) {
            Some(Node::File(bytes)) => bytes.len(),
            _ => 0,
        };
        // An even offset is one of REST, see `Link::ask`.
        let offset = match size % 2 == 1 || size == 0 {
            true if size < APPENDED && self.noise.is_one_in(2) => size,
            _ => self.noise.below(size) & !1,
        };
        if offset == 0 && size > 0 {
            return None;
        }
        let length = self.length();
        Some(Op::Continue { path, offset, contents: Arc::new(self.noise.contents(length)) })
    }

    fn draw_rename(&mut self, files: &[String]) -> Option<Op> {
        let from = self.noise.pick(files)?.clone();
        let to = self.path();
        (!self.acknowledged.contains_key(&to)).then_some(Op::Rename { from, to })
    }

    fn draw_directory(&mut self) -> Option<Op> {
        let path = (*self.noise.pick(&DIRECTORIES)?).to_owned();
        let beneath = format!("{path}/");
        match self.acknowledged.contains_key(&path) {
            false => Some(Op::MakeDirectory { path }),
            true if self.acknowledged.keys().any(|other| other.starts_with(&beneath)) => None,
            true => Some(Op::RemoveDirectory { path }),
        }
    }

    /// A path of a file, which may be there.
    fn path(&mut self) -> String {
        let name = format!("f{}", self.noise.below(NAMES));
        let there: Vec<&str> =
            DIRECTORIES.into_iter().filter(|&path| self.acknowledged.contains_key(path)).collect();
        match self.noise.pick(&there) {
            Some(directory) if self.noise.is_one_in(2) => format!("{directory}/{name}"),
            _ => name,
        }
    }

    /// Mostly small, sometimes more than the buffers of the server hold.
    fn length(&mut self) -> usize {
        match self.noise.below(20) {
            0 => self.noise.below(2),
            1..12 => self.noise.below(2_000),
            12..19 => self.noise.below(20_000),
            _ => self.noise.below(200_000),
        }
    }
}

/// `Upload-Metadata`, with the name in base64.
pub(crate) fn filename_field(path: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in path.as_bytes().chunks(3) {
        let word =
            three.iter().fold(0_usize, |word, &byte| word << 8 | usize::from(byte)) << (24 - 8 * three.len());
        let digits = (0..4).map(|digit| char::from(DIGITS[word >> (18 - 6 * digit) & 63]));
        text.extend(digits.take(three.len() + 1));
        text.extend(std::iter::repeat_n('=', 3 - three.len()));
    }
    format!("Upload-Metadata: filename {text}\r\n")
}
