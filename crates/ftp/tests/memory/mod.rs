//! A driver for sessions that is all memory: a tree of files in a map, a clock that is moved by hand, and
//! data connections that are byte vectors.
//!
//! It does what the contract of [`Act`], [`Input`] and [`Session::takes`] asks of a driver and no more, so it
//! also shows what that contract is.
#![allow(dead_code)] // Each test file uses its own part.

pub(crate) mod chaos;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use millrace_ftp::codec::{Coding, Decoder, Encoder, Progress as Decoded};
use millrace_ftp::digest::Hasher;
use millrace_ftp::listing::Lister;
use millrace_ftp::session::*;
use millrace_ftp::{Session, Settings};
use millrace_vfs::*;

pub(crate) const CLIENT: &str = "192.0.2.7:40000";
pub(crate) const SERVER: &str = "192.0.2.1:21";

/// A session and everything around it.
pub(crate) struct Driver {
    pub(crate) session: Session,
    pub(crate) now: Now,
    pub(crate) tree: Tree,
    /// What was sent to the client and is not yet taken with [`Driver::sent`].
    pub(crate) out: Vec<u8>,
    /// Final replies (200 and above) so far.
    pub(crate) finals: Vec<u16>,
    /// Every reply's code, in order.
    pub(crate) codes: Vec<u16>,
    /// Final replies that are due to no line: the greeting, what was too long for a line.
    pub(crate) others: usize,
    /// Lines that the session has taken.
    pub(crate) lines: usize,
    /// The open question.
    pub(crate) question: Option<Request>,
    /// The running transfer.
    pub(crate) transfer: Option<Transfer>,
    /// The session asked for the transfer or the long question to be stopped.
    pub(crate) aborted: bool,
    /// Lines that wait for the session to take them.
    waiting: VecDeque<Vec<u8>>,
    /// Passwords that are right; what they grant.
    pub(crate) accounts: BTreeMap<Vec<u8>, (Vec<u8>, Permissions)>,
    /// Claims that a passive port is leased.
    pub(crate) leased: bool,
    /// How often a client logged out.
    pub(crate) log_outs: usize,
}

impl Driver {
    pub(crate) fn new(settings: Settings) -> Self {
        Self::between(settings, CLIENT, SERVER)
    }

    /// A session of a client at `peer` that connected to `local`.
    pub(crate) fn between(settings: Settings, peer: &str, local: &str) -> Self {
        // 2024-01-01 12:00:00
        let now = Now { instant: Instant::now(), wall: Timestamp { seconds: 1_704_110_400, nanoseconds: 0 } };
        let session = Session::new(Arc::new(settings), peer.parse().unwrap(), local.parse().unwrap(), now);
        let mut accounts = BTreeMap::new();
        accounts.insert(b"ann".to_vec(), (b"secret".to_vec(), Permissions::READ_WRITE));
        accounts.insert(b"bob".to_vec(), (b"secret".to_vec(), Permissions::READ_ONLY));
        accounts
            .insert(b"root".to_vec(), (b"secret".to_vec(), Permissions::READ_WRITE.with(Permission::Admin)));
        Self {
            session,
            now,
            tree: Tree::default(),
            out: Vec::new(),
            finals: Vec::new(),
            codes: Vec::new(),
            others: 0,
            lines: 0,
            question: None,
            transfer: None,
            aborted: false,
            waiting: VecDeque::new(),
            accounts,
            leased: false,
            log_outs: 0,
        }
    }

    /// A session of `ann`, who may do everything but administer.
    pub(crate) fn logged_in() -> Self {
        Self::logged_in_with(Permissions::READ_WRITE)
    }

    /// A session of somebody who may do just this.
    pub(crate) fn logged_in_with(permissions: Permissions) -> Self {
        let mut driver = Self::new(Settings::default());
        driver.accounts.insert(b"eve".to_vec(), (b"secret".to_vec(), permissions));
        assert_eq!(driver.say("USER eve"), "331 Password, please.\r\n");
        assert_eq!(driver.say("PASS secret"), "230 Logged in.\r\n");
        driver.finals.clear();
        driver.codes.clear();
        driver.lines = 0;
        driver
    }

    /// Gives one line, answers every question out of the tree, and returns what was replied.
    pub(crate) fn say(&mut self, line: impl AsRef<[u8]>) -> String {
        self.line(line);
        self.answer_all();
        self.sent()
    }

    /// As [`Driver::say`], the code of the last reply.
    pub(crate) fn code(&mut self, line: impl AsRef<[u8]>) -> u16 {
        self.say(line);
        self.finals.last().copied().unwrap_or_default()
    }

    /// What was sent since the last call.
    pub(crate) fn sent(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.out)).into_owned()
    }

    /// Gives a line as soon as the session takes it.
    pub(crate) fn line(&mut self, line: impl AsRef<[u8]>) {
        self.waiting.push_back(line.as_ref().to_vec());
        self.pump();
    }

    /// Gives the waiting lines that the session takes.
    fn pump(&mut self) {
        while let Some(line) = self.waiting.pop_front() {
            if !self.session.takes(&line) {
                self.waiting.push_front(line);
                break;
            }
            if !self.session.is_busy() {
                assert_eq!(self.finals.len(), self.lines + self.others, "every line before it has its reply");
            }
            self.lines += 1;
            self.handle(Input::Line(&line));
        }
    }

    /// Gives an input, and performs what comes of it.
    pub(crate) fn handle(&mut self, input: Input<'_>) {
        self.others += usize::from(matches!(input, Input::Connected | Input::LineTooLong));
        let secured = matches!(input, Input::Secured);
        let step = self.session.handle(self.now, input);
        self.others += if secured { step.replies.iter().count() } else { 0 };
        step.replies.write(&mut self.out);
        self.codes.extend(step.replies.iter().map(|reply| reply.code()));
        self.finals.extend(step.replies.iter().map(|reply| reply.code()).filter(|code| *code >= 200));
        match step.act {
            Some(Act::Ask(Request::Progress)) => {
                let progress = Progress {
                    bytes: 42,
                    total: Some(84),
                    elapsed: Duration::from_secs(2),
                    is_checked: false,
                };
                self.handle(Input::Answer(Answer::Progress(progress)));
            }
            Some(Act::Ask(request)) => {
                assert!(self.question.is_none() && self.transfer.is_none(), "one thing at a time");
                self.question = Some(request);
            }
            Some(Act::Transfer(transfer)) => {
                assert!(self.question.is_none() && self.transfer.is_none(), "one thing at a time");
                self.leased &= transfer.via != Via::Passive;
                self.transfer = Some(*transfer);
            }
            Some(Act::Abort) => self.aborted = true,
            Some(Act::DropPassive) => self.leased = false,
            Some(Act::LogOut) => {
                self.leased = false;
                self.log_outs += 1;
            }
            Some(Act::StartTls) => {
                self.leased = false;
                // What came behind the command is nobody's.
                self.waiting.clear();
                self.handle(Input::Secured);
            }
            Some(Act::StopTls) => self.handle(Input::Secured),
            Some(Act::Close) => assert!(self.session.is_closed()),
            None => {}
        }
    }

    /// Answers the open question.
    pub(crate) fn answer(&mut self, answer: Answer) {
        self.question = None;
        self.aborted = false;
        self.handle(Input::Answer(answer));
        self.pump();
    }

    /// Ends the running transfer.
    pub(crate) fn end(&mut self, result: Result<(), TransferError>) {
        self.transfer = None;
        self.aborted = false;
        self.handle(Input::TransferEnded(Outcome { bytes: 0, result, unread: None }));
        self.pump();
    }

    /// Answers questions out of the tree until there is none.
    pub(crate) fn answer_all(&mut self) {
        while let Some(request) = self.question.take() {
            let answer = self.answer_to(request);
            self.answer(answer);
        }
    }

    /// Runs the transfer that has begun. `incoming` is what the client sends; the answer is what it gets.
    pub(crate) fn run_transfer(&mut self, incoming: &[u8]) -> Vec<u8> {
        let transfer = self.transfer.take().expect("a transfer has begun");
        let (wire, result) = match transfer.via {
            Via::Control(code) => {
                self.out.extend_from_slice(format!("{code}-Status:\r\n").as_bytes());
                let (lines, result) = transferred(transfer, incoming);
                self.out.extend_from_slice(&lines);
                self.out.extend_from_slice(format!("{code} End\r\n").as_bytes());
                self.finals.push(code);
                self.codes.push(code);
                (Vec::new(), result)
            }
            _ => transferred(transfer, incoming),
        };
        self.end(result);
        self.answer_all();
        wire
    }

    /// Moves the clock, and reports the deadlines that come by.
    pub(crate) fn pass(&mut self, duration: Duration) {
        let end = self.now.instant + duration;
        while let Some(deadline) = self.session.deadline().filter(|deadline| *deadline <= end) {
            self.now.instant = self.now.instant.max(deadline);
            self.handle(Input::Deadline);
            self.pump();
        }
        self.now.instant = end;
    }

    /// What the tree and the accounts say.
    pub(crate) fn answer_to(&mut self, request: Request) -> Answer {
        match request {
            Request::LogIn(credentials) => Answer::Login(self.verdict(&credentials)),
            Request::Listen => {
                self.leased = true;
                Answer::Listening("192.0.2.1:50000".parse().unwrap())
            }
            Request::LimitBandwidth { .. } | Request::RestoreBandwidth => Answer::Done,
            Request::ShutDown(password) => Answer::Count(u64::from(password == b"down")),
            Request::Host(name) if name == "ftp.example" => Answer::Done,
            Request::Host(_) => Answer::Failed(FileError::NotFound),
            Request::Who => Answer::Lines(vec![b" eve from 192.0.2.7".to_vec()]),
            request => self.tree.answer(request).unwrap_or_else(Answer::Failed),
        }
    }

    fn verdict(&self, credentials: &Credentials) -> Verdict {
        match self.accounts.get(&credentials.user) {
            Some((password, permissions)) if *password == credentials.password => Verdict::Granted(Grant {
                permissions: *permissions,
                rules: None,
                home: VirtualPath::root(),
                encrypted_data: credentials.user == b"private",
            }),
            _ => Verdict::Denied,
        }
    }
}

/// The wire bytes of a transfer and how it ended.
fn transferred(transfer: Transfer, incoming: &[u8]) -> (Vec<u8>, Result<(), TransferError>) {
    let Transfer { content, coding, skip, offset, .. } = transfer;
    match content {
        Content::Send(ReadHandle::Stream(mut stream), range) => {
            let size = stream.size().unwrap();
            let length = range.end.unwrap_or(size).min(size) - range.start;
            let mut file = vec![0; length as usize];
            stream.read_at(range.start, &mut file).unwrap();
            (encoded(coding, range.start, skip, &file), Ok(()))
        }
        Content::Send(..) => unreachable!("the tree has no descriptors"),
        Content::List(mut lister) => {
            let mut text = Vec::new();
            while lister.fill(&mut text, 1 << 16).unwrap() {}
            (encoded(coding, 0, 0, &text), Ok(()))
        }
        Content::Receive(mut upload, most) => {
            let mut decoder = Decoder::new(coding, offset.unwrap_or(0));
            let mut file = Vec::new();
            let mut input = incoming;
            let received = loop {
                match decoder.decode(input, &mut file, usize::MAX) {
                    Ok(Decoded::Hungry | Decoded::EndOfFile { .. }) => break decoder.finish(&mut file),
                    Ok(Decoded::Full { consumed } | Decoded::Marker { consumed, .. }) => {
                        input = &input[consumed..]
                    }
                    Err(error) => break Err(error),
                }
            };
            let result = match received {
                Err(error) => Err(TransferError::Malformed(error.to_string())),
                Ok(()) if most.is_some_and(|most| file.len() as u64 > most) => {
                    Err(TransferError::Malformed("more than the range".to_owned()))
                }
                Ok(()) => upload
                    .write_all(&file)
                    .and_then(|()| upload.commit())
                    .map(drop)
                    .map_err(TransferError::File),
            };
            (Vec::new(), result)
        }
    }
}

fn encoded(coding: Coding, start: u64, skip: u64, file: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    let mut encoder = Encoder::new(coding, start).skipping(skip);
    encoder.encode(file, &mut wire);
    encoder.finish(&mut wire);
    wire
}

/// Files by their paths; a directory is a path without content. The root always exists.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tree(Arc<Mutex<BTreeMap<VirtualPath, Node>>>);

#[derive(Debug, Clone, Default)]
pub(crate) struct Node {
    /// `None` for a directory.
    pub(crate) content: Option<Vec<u8>>,
    pub(crate) mode: u32,
    pub(crate) modified: Timestamp,
}

pub(crate) fn path(text: impl AsRef<[u8]>) -> VirtualPath {
    VirtualPath::parse(text.as_ref()).unwrap()
}

impl Tree {
    pub(crate) fn insert(&self, name: &str, content: impl AsRef<[u8]>) {
        let node = Node { content: Some(content.as_ref().to_vec()), mode: 0o644, ..Node::default() };
        self.0.lock().unwrap().insert(path(name), node);
    }

    pub(crate) fn insert_directory(&self, name: &str) {
        self.0.lock().unwrap().insert(path(name), Node { mode: 0o755, ..Node::default() });
    }

    pub(crate) fn content(&self, name: &str) -> Option<Vec<u8>> {
        self.0.lock().unwrap().get(&path(name))?.content.clone()
    }

    pub(crate) fn mode(&self, name: &str) -> Option<u32> {
        Some(self.0.lock().unwrap().get(&path(name))?.mode)
    }

    pub(crate) fn modified(&self, name: &str) -> Option<i64> {
        Some(self.0.lock().unwrap().get(&path(name))?.modified.seconds)
    }

    fn node(&self, path: &VirtualPath) -> Result<Node, FileError> {
        if path.is_root() {
            return Ok(Node { mode: 0o755, ..Node::default() });
        }
        self.0.lock().unwrap().get(path).cloned().ok_or(FileError::NotFound)
    }

    fn file(&self, path: &VirtualPath) -> Result<Vec<u8>, FileError> {
        self.node(path)?.content.ok_or(FileError::IsDirectory)
    }

    fn entries(&self, directory: &VirtualPath) -> Vec<DirEntry> {
        let map = self.0.lock().unwrap();
        let children = map.iter().filter(|(path, _)| path.parent() == *directory && !path.is_root());
        children.map(|(path, node)| entry(path, node)).collect()
    }

    fn put(&self, path: VirtualPath, node: Node) -> Result<(), FileError> {
        if !path.is_root() && self.node(&path.parent())?.content.is_some() {
            return Err(FileError::NotDirectory);
        }
        self.0.lock().unwrap().insert(path, node);
        Ok(())
    }

    fn remove(&self, path: &VirtualPath) -> Result<Node, FileError> {
        self.0.lock().unwrap().remove(path).ok_or(FileError::NotFound)
    }

    fn upload(
        &self,
        path: VirtualPath,
        mode: WriteMode,
        bits: Option<u32>,
    ) -> Result<Box<dyn Upload>, FileError> {
        let old = match self.file(&path) {
            Ok(content) => Some(content),
            Err(FileError::NotFound) => None,
            Err(error) => return Err(error),
        };
        let (content, at) = match (mode, old) {
            (WriteMode::CreateNew, Some(_)) => return Err(FileError::AlreadyExists),
            (WriteMode::At(start), Some(content)) if start <= content.len() as u64 => {
                (content, start as usize)
            }
            (WriteMode::At(_), Some(_)) => return Err(FileError::OutOfRange),
            (WriteMode::At(_), None) => return Err(FileError::NotFound),
            (WriteMode::Append, Some(content)) => (content.clone(), content.len()),
            _ => (Vec::new(), 0),
        };
        Ok(Box::new(Uploading { tree: self.clone(), path, content, at, bits }))
    }

    fn answer(&self, request: Request) -> Result<Answer, FileError> {
        Ok(match request {
            Request::Metadata(path) => Answer::Metadata(metadata(&self.node(&path)?)),
            Request::Entry(path) | Request::Look(path) => {
                Answer::Entry(Box::new(entry(&path, &self.node(&path)?)))
            }
            Request::OpenRead(path) => {
                Answer::Readable(ReadHandle::Stream(Box::new(Bytes(self.file(&path)?))))
            }
            Request::OpenWrite(path, mode, bits) => Answer::Writable(self.upload(path, mode, bits)?),
            Request::OpenUnique(base, bits) => {
                let numbered = (1..).map(|number| path(format!("{base}.{number}")));
                let free =
                    std::iter::once(base.clone()).chain(numbered).find(|path| self.node(path).is_err());
                let free = free.unwrap();
                Answer::Unique(self.upload(free.clone(), WriteMode::CreateNew, bits)?, free)
            }
            Request::List(mut request) => {
                if let Some(literal) = request.literal.take_if(|literal| self.node(&literal.path).is_ok()) {
                    request = literal;
                }
                let node = self.node(&request.path)?;
                let entries = match node.content {
                    None => self.entries(&request.path),
                    Some(_) if request.files => vec![entry(&request.path, &node)],
                    Some(_) => return Err(FileError::NotDirectory),
                };
                Answer::Listing(Box::new(Lister::of(entries, request.listing)))
            }
            Request::MakeDirectory(path, _) if self.node(&path).is_ok() => {
                return Err(FileError::AlreadyExists);
            }
            Request::MakeDirectory(path, bits) => {
                self.put(path, Node { mode: bits.unwrap_or(0o755), ..Node::default() })?;
                Answer::Done
            }
            Request::RemoveDirectory(path) if !self.entries(&path).is_empty() => {
                return Err(FileError::NotEmpty);
            }
            Request::RemoveDirectory(path) => match self.node(&path)?.content {
                None => self.remove(&path).map(|_| Answer::Done)?,
                Some(_) => return Err(FileError::NotDirectory),
            },
            Request::RemoveFile(path) => {
                self.file(&path)?;
                self.remove(&path).map(|_| Answer::Done)?
            }
            Request::RemoveTree(top) => {
                self.node(&top)?;
                let mut map = self.0.lock().unwrap();
                let before = map.len();
                map.retain(|path, _| !path.starts_with(&top));
                Answer::Count((before - map.len()) as u64)
            }
            Request::Rename(from, to) => {
                let node = self.remove(&from)?;
                self.put(to, node)?;
                Answer::Done
            }
            Request::Change(path, change) => {
                let mut node = self.node(&path)?;
                node.mode = change.mode.unwrap_or(node.mode);
                node.modified = change.modified.unwrap_or(node.modified);
                self.put(path, node)?;
                Answer::Done
            }
            Request::MakeSymlink(target, path) => {
                self.put(path, Node { content: Some(target), ..Node::default() })?;
                Answer::Done
            }
            Request::Copy(from, to) => {
                let content = self.file(&from)?;
                let length = content.len() as u64;
                self.put(to, Node { content: Some(content), ..Node::default() })?;
                Answer::Count(length)
            }
            Request::Combine(target, parts, bits) => {
                let mode = self.node(&target).map_or(bits.unwrap_or(0o644), |node| node.mode);
                let mut content = self.file(&target).unwrap_or_default();
                for part in &parts {
                    content.extend(self.file(part)?);
                    self.remove(part)?;
                }
                let length = content.len() as u64;
                self.put(target, Node { content: Some(content), mode, ..Node::default() })?;
                Answer::Count(length)
            }
            Request::Digest(path, algorithm, range) => {
                let content = self.file(&path)?;
                let end = range.end.unwrap_or(u64::MAX).min(content.len() as u64);
                let part = content.get(range.start as usize..end as usize).unwrap_or_default();
                let mut hasher = Hasher::new(algorithm);
                hasher.update(part);
                Answer::Digest(hasher.finish(), part.len() as u64)
            }
            Request::TreeSize(top) => {
                let map = self.0.lock().unwrap();
                let files = map.iter().filter(|(path, _)| path.starts_with(&top));
                let contents = files.filter_map(|(_, node)| node.content.as_ref());
                Answer::Sum(contents.map(|content| content.len() as u64).sum(), LeftOut::default())
            }
            Request::Newer(top, since) => {
                let map = self.0.lock().unwrap();
                let newer = map.iter().filter(|(path, node)| path.starts_with(&top) && node.modified > since);
                let lines = newer.map(|(path, _)| [b" ", path.as_bytes()].concat()).collect();
                Answer::Found(lines, LeftOut::default())
            }
            Request::Notes(_) => Answer::Lines(Vec::new()),
            Request::Space(_) => {
                Answer::Space(Space { available: 1000, total: 5000, held: None, quota: None })
            }
            Request::LogIn(_)
            | Request::Recognize(_)
            | Request::Listen
            | Request::Host(_)
            | Request::Who
            | Request::Progress
            | Request::LimitBandwidth { .. }
            | Request::RestoreBandwidth
            | Request::ShutDown(_) => {
                unreachable!("the driver's")
            }
        })
    }
}

fn metadata(node: &Node) -> Metadata {
    Metadata {
        kind: if node.content.is_some() { FileKind::File } else { FileKind::Directory },
        size: node.content.as_ref().map_or(0, Vec::len) as u64,
        modified: node.modified,
        created: None,
        changed: None,
        mode: node.mode,
        owner: Owner::default(),
        links: 1,
        identity: (0, 0),
    }
}

fn entry(path: &VirtualPath, node: &Node) -> DirEntry {
    DirEntry { name: path.name().to_vec(), metadata: metadata(node), link: None }
}

#[derive(Debug)]
struct Bytes(Vec<u8>);

impl ReadStream for Bytes {
    fn size(&self) -> Option<u64> {
        Some(self.0.len() as u64)
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        let rest = self.0.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

#[derive(Debug)]
struct Uploading {
    tree: Tree,
    path: VirtualPath,
    content: Vec<u8>,
    at: usize,
    bits: Option<u32>,
}

impl Upload for Uploading {
    fn file(&mut self) -> Result<Option<(&std::fs::File, u64)>, FileError> {
        Ok(None)
    }

    fn advance(&mut self, _: u64) {}

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let end = (self.at + bytes.len()).min(self.content.len());
        self.content.splice(self.at..end, bytes.iter().copied());
        self.at += bytes.len();
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<Committed, FileError> {
        let size = self.content.len() as u64;
        let mode = self.tree.node(&self.path).map_or(self.bits.unwrap_or(0o600), |node| node.mode);
        self.tree.put(self.path.clone(), Node { content: Some(self.content), mode, ..Node::default() })?;
        Ok(Committed { size })
    }

    fn undo(self: Box<Self>) {}

    fn abort(self: Box<Self>) {}

    fn readiness(&self) -> Readiness {
        Readiness::Cached
    }

    fn commit_readiness(&self) -> Readiness {
        Readiness::Cached
    }
}

/// An address, from its text.
pub(crate) fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}
