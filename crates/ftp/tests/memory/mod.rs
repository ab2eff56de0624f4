//! A driver for sessions that is all memory: a tree of files in a map, a clock that is moved by hand, and
//! data connections that are byte vectors.
//!
//! It does what the contract of [`Act`], [`Input`] and [`Session::takes`] asks of a driver and no more, so it
//! also shows what that contract is.

#![allow(clippy::disallowed_methods)]
#![allow(dead_code)] // Each test file uses its own part.

pub(crate) mod chaos;
mod tree;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_ftp::codec::{Coding, Decoded, Decoder, Encoder};
use millrace_ftp::session::*;
use millrace_ftp::{Session, Settings};
use millrace_vfs::*;

use tree::Tree;

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
    /// Whether a passive port is leased.
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

    /// A session of `ann`, with all permissions except administration.
    pub(crate) fn logged_in() -> Self {
        Self::logged_in_with(Permissions::READ_WRITE)
    }

    /// A session of a user with these permissions.
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
                // Input after the command is discarded.
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
            Request::Who => Answer::Sessions(vec![b" eve from 192.0.2.7".to_vec()], 1),
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
                class: None,
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

/// An address, from its text.
pub(crate) fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}
