//! The messages between a session and its driver: inputs and outputs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_vfs::{
    Change, DirEntry, FileError, Metadata, OverQuota, Permissions, ReadHandle, Space, Timestamp, Upload,
    VirtualPath, WriteMode,
};

use crate::codec::Coding;
use crate::digest::Algorithm;
use crate::listing::{Lister, Listing, Unread};
use crate::reply::{Replies, Reply, code};
use crate::session::rules::Rules;
use crate::session::texts::Occupancy;

/// An input of a session.
#[derive(Debug)]
pub enum Input<'a> {
    /// The client connected; the greeting is due.
    Connected,
    /// The handshake that [`Act::StartTls`] asked for is over, or the one of a connection that begins with
    /// TLS; or the clear text has begun that [`Act::StopTls`] asked for.
    Secured,
    /// A command line, without its end.
    Line(&'a [u8]),
    /// A command line that was longer than [`crate::line::MAX_LINE`]. It waits its turn like any other:
    /// [`Session::takes`](crate::Session::takes) of the empty line says when.
    LineTooLong,
    /// A command line with Telnet in it that has no end.
    LineTorn,
    /// The answer to the open question ([`Act::Ask`]).
    Answer(Answer),
    /// The running transfer has ended.
    TransferEnded(Outcome),
    /// The moment of [`Session::deadline`](crate::Session::deadline) has come.
    Deadline,
    /// The server is closing.
    Shutdown,
    /// The account of the logged-in user was changed; what it now allows counts at once.
    Regranted(Grant),
    /// The logged-in user's account was disabled or removed, or is not for this client at this hour: 421.
    Expelled,
    /// An administrator ends this session: 421.
    Kicked,
    /// A line that the driver does not want run, and what to say to it instead. (A hook has refused it.)
    Refused(&'a [u8], Reply),
    /// The session is not wanted: this is its last reply.
    Dismissed(Reply),
}

/// The time, twice: one that never jumps, for deadlines, and one for people.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// For deadlines.
    pub instant: Instant,
    /// For dates.
    pub wall: Timestamp,
}

/// The result of an input: replies first, in order, then at most one act.
#[derive(Debug, Default)]
pub struct Step {
    /// The replies to send.
    pub replies: Replies,
    /// The act after the replies.
    pub act: Option<Act>,
    /// The limit that the client has reached: for the driver's log.
    pub bound: Option<Bound>,
}

/// A bound of the session's own that refuses something, and what it is set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound {
    /// The login took longer: 421.
    Login(Duration),
    /// Nothing was said for longer: 421.
    Idle(Duration),
    /// This many failed logins: 421.
    Attempts(u32),
    /// This many unknown commands: 421.
    UnknownCommands(u8),
    /// No more bytes are free than this, and more were asked for: 452.
    Space(u64),
    /// More bytes were asked for than this quota leaves: 552.
    Quota(OverQuota),
}

impl Step {
    /// Nothing to say and nothing to do.
    pub const NOTHING: Self = Self { replies: Replies::NONE, act: None, bound: None };

    /// An answer came that does not fit its question: our own fault, told as such.
    pub(crate) fn mismatch() -> Self {
        Reply::new(code::LOCAL_ERROR, "Internal error: the answer does not fit the question.").into()
    }

    /// No reply, one effect.
    pub fn act(act: Act) -> Self {
        Self { act: Some(act), ..Self::NOTHING }
    }

    /// The same step with an effect behind its replies.
    pub fn then(self, act: Act) -> Self {
        Self { act: Some(act), ..self }
    }

    /// The same step, which a bound is the reason for.
    pub fn because(self, bound: Bound) -> Self {
        Self { bound: Some(bound), ..self }
    }

    /// The same step with one more reply.
    pub fn and(mut self, reply: Reply) -> Self {
        self.replies.push(reply);
        self
    }
}

impl From<Reply> for Step {
    fn from(reply: Reply) -> Self {
        Self { replies: reply.into(), ..Self::NOTHING }
    }
}

/// An effect that a session asks of its driver.
#[derive(Debug)]
pub enum Act {
    /// Answer a question with [`Input::Answer`]. Until then no line is given to the session, except,
    /// where the request is [long](Request::is_long), lines for which
    /// [`Session::takes`](crate::Session::takes) says yes.
    Ask(Request),
    /// Run a transfer and report its end with [`Input::TransferEnded`].
    Transfer(Box<Transfer>),
    /// Stop the running transfer or long request; its end is then reported as
    /// [`TransferError::Aborted`] or [`FileError::Cancelled`].
    Abort,
    /// Give back the passive port, if one is held.
    DropPassive,
    /// The client logged out (`REIN`, or `USER` while logged in): forget its account, and give back the
    /// passive port if one is held.
    LogOut,
    /// Send the replies in clear, then shake hands. Whatever the client has sent behind the command is not to
    /// be trusted, and ends the connection. The account and the passive port are given up.
    StartTls,
    /// End the encryption of the control connection behind the replies (`CCC`).
    StopTls,
    /// Close the control connection once the replies are sent.
    Close,
}

/// A question. The driver asks the account's storage, the passive pool or the accounts.
#[derive(Debug)]
pub enum Request {
    /// Are these credentials good? Answer: [`Answer::Login`].
    LogIn(Credentials),
    /// Is the certificate, which the client has shown, this user's, and enough? Answer: [`Answer::Login`].
    Recognize(Vec<u8>),
    /// Lease a passive port; one that is held already is given back, or used again. Answer:
    /// [`Answer::Listening`] or [`Answer::NoPort`].
    Listen,
    /// Is this the name of a host that is served here? Answer: [`Answer::Done`], or any other for no.
    Host(String),
    /// Asks for the metadata of a path, links followed. Answer: [`Answer::Metadata`].
    Metadata(VirtualPath),
    /// Asks for the metadata of the entry itself. Answer: [`Answer::Entry`].
    Entry(VirtualPath),
    /// Asks for a path's entry as a listing shows it: a link with its target; and whether the session's source of facts
    /// should know the hash of a file. Answer: [`Answer::Entry`].
    Look(VirtualPath, bool),
    /// Open to download. Answer: [`Answer::Readable`].
    OpenRead(VirtualPath),
    /// Open to upload; a file that is made has these permission bits, or the storage's own. Answer:
    /// [`Answer::Writable`].
    OpenWrite(VirtualPath, WriteMode, Option<u32>),
    /// `STOU`: open a file with a name that does not exist, made from this path. Answer:
    /// [`Answer::Unique`].
    OpenUnique(VirtualPath, Option<u32>),
    /// Open a directory (or name a single file). Answer: [`Answer::Listing`].
    List(Box<ListRequest>),
    /// Make a directory, with these permission bits or the storage's own. Answer: [`Answer::Done`].
    MakeDirectory(VirtualPath, Option<u32>),
    /// Remove an empty directory. Answer: [`Answer::Done`].
    RemoveDirectory(VirtualPath),
    /// Remove a directory and all beneath it (`RMDA`). Answer: [`Answer::Count`].
    RemoveTree(VirtualPath),
    /// Remove a file. Answer: [`Answer::Done`].
    RemoveFile(VirtualPath),
    /// Rename. Answer: [`Answer::Done`].
    Rename(VirtualPath, VirtualPath),
    /// Change attributes. Answer: [`Answer::Done`].
    Change(VirtualPath, Change),
    /// Make a symbolic link with a text at a path. Answer: [`Answer::Done`].
    MakeSymlink(Vec<u8>, VirtualPath),
    /// Copy a file within the server. Answer: [`Answer::Count`] of bytes.
    Copy(VirtualPath, VirtualPath),
    /// `COMB`: append the parts to the target in order, then remove them; a target that is made has these permission
    /// bits, or the storage's own. Answer: [`Answer::Count`].
    Combine(VirtualPath, Vec<VirtualPath>, Option<u32>),
    /// Hash a range of a file. Answer: [`Answer::Digest`].
    Digest(VirtualPath, Algorithm, ByteRange),
    /// The sum of the sizes beneath a path (`DSIZ`). Answer: [`Answer::Sum`] of bytes.
    TreeSize(VirtualPath),
    /// Entries changed after a moment, as lines of text (`SITE NEWER`, `SITE MINFO`). Answer:
    /// [`Answer::Found`].
    Newer(VirtualPath, Timestamp),
    /// Free room. Answer: [`Answer::Space`].
    Space(VirtualPath),
    /// Asks for the messages of a directory. Answer: [`Answer::Lines`], maybe empty.
    Notes(VirtualPath),
    /// Asks for the sessions of the whole server (`SITE WHO`). Answer: [`Answer::Sessions`].
    Who,
    /// Limit the whole server to this many bytes a second from clients (write) and to them (read); 0 for no
    /// limit. Answer: [`Answer::Done`].
    LimitBandwidth {
        /// From clients.
        write: u64,
        /// To clients.
        read: u64,
    },
    /// The configured limits hold again. Answer: [`Answer::Done`].
    RestoreBandwidth,
    /// Stop the server, if this is the password for it. Answer: [`Answer::Count`] of 1 if it is, else 0.
    ShutDown(Vec<u8>),
    /// How far has the running transfer or long request come? Answer: [`Answer::Progress`], at once: before
    /// the session is given anything else, so that the reply keeps its place.
    Progress,
}

impl Request {
    /// Returns true if the answer may take long enough for a client to want to hear `NOOP` or say `ABOR`.
    pub fn is_long(&self) -> bool {
        matches!(
            self,
            Self::Digest(..)
                | Self::Copy(..)
                | Self::Combine(..)
                | Self::RemoveTree(..)
                | Self::TreeSize(..)
                | Self::Newer(..)
        )
    }
}

/// The answer to a [`Request`].
#[derive(Debug)]
pub enum Answer {
    /// It is done.
    Done,
    /// It failed.
    Failed(FileError),
    /// It failed, and of all that it was about this path is to blame.
    FailedAt(VirtualPath, FileError),
    /// How the login went.
    Login(Verdict),
    /// The passive port listens at this address.
    Listening(SocketAddr),
    /// No passive port was available; the text has the reason.
    NoPort(String),
    /// To [`Request::Metadata`].
    Metadata(Metadata),
    /// To [`Request::Entry`].
    Entry(Box<DirEntry>),
    /// To [`Request::OpenRead`].
    Readable(ReadHandle),
    /// To [`Request::OpenWrite`].
    Writable(Box<dyn Upload>),
    /// To [`Request::OpenUnique`]: the upload and the path that it was given.
    Unique(Box<dyn Upload>, VirtualPath),
    /// To [`Request::List`].
    Listing(Box<Lister>),
    /// A number: bytes or entries, as the request says.
    Count(u64),
    /// A sum over a tree.
    Sum(u64, LeftOut),
    /// Lines of text about a tree.
    Found(Vec<Vec<u8>>, LeftOut),
    /// A hash in lower-case hexadecimal, and how many bytes were hashed.
    Digest(String, u64),
    /// Lines of text.
    Lines(Vec<Vec<u8>>),
    /// A line about each session of the server, and how many of them are logged in.
    Sessions(Vec<Vec<u8>>, usize),
    /// To [`Request::Space`].
    Space(Space),
    /// To [`Request::Progress`].
    Progress(Progress),
    /// `STAT` arrived while a hook decides about a line: its verb, and how long it has waited. This is not the answer
    /// to a request.
    Waiting(Vec<u8>, Duration),
}

/// What an answer about a tree had to omit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeftOut {
    /// The number of unreadable directories.
    pub unreadable: u64,
    /// There was more than an answer may hold.
    pub overflow: bool,
}

/// Part of a file, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ByteRange {
    /// The first byte.
    pub start: u64,
    /// One past the last byte; `None` for the end of the file.
    pub end: Option<u64>,
}

/// How far something has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes so far.
    pub bytes: u64,
    /// Bytes in all, where known.
    pub total: Option<u64>,
    /// Since the beginning.
    pub elapsed: Duration,
    /// Whether a hook checks the complete upload before the reply.
    pub is_checked: bool,
}

/// The client's credentials.
#[derive(Clone)]
pub struct Credentials {
    /// The argument of `USER`.
    pub user: Vec<u8>,
    /// The argument of `PASS`.
    pub password: Vec<u8>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({})", String::from_utf8_lossy(&self.user).escape_debug())
    }
}

/// How a login went.
#[derive(Debug)]
pub enum Verdict {
    /// Welcome.
    Granted(Grant),
    /// Wrong name or password; which, the client is not told.
    Denied,
    /// The right password, and a code is wanted as well: it is asked for as the account (`ACCT`), and comes behind
    /// the password in the next [`Credentials`].
    NeedsCode,
    /// The client's certificate is not enough, or not this user's.
    NeedsPassword,
    /// Not now, with a reason that may be told (too many sessions, accounts out of reach): 421.
    Unavailable(String),
    /// A limit on sessions is reached.
    Limited {
        /// The reason that is told.
        reason: String,
        /// Lines before it.
        lines: Arc<[Vec<u8>]>,
        /// How many sessions there may be, which is how many there are.
        most: u64,
    },
    /// The right password, and yet not: 530 at once, with a reason that may be told.
    Refused(String),
}

/// The permissions of a logged-in session, and its first directory.
#[derive(Debug, Clone)]
pub struct Grant {
    /// Which commands are allowed: those that are in one place or another.
    pub permissions: Permissions,
    /// Where which of them are; `None` for everywhere. The storage holds the account to them; the session only
    /// tells of them, in the `perm` facts.
    pub rules: Option<Arc<Rules>>,
    /// The working directory to begin in.
    pub home: VirtualPath,
    /// Whether this user's data connections have to be encrypted, whatever holds for others.
    pub encrypted_data: bool,
    /// The sessions of its class, for texts; `None` for those of the server.
    pub class: Option<Arc<dyn Occupancy>>,
}

/// A directory or file to be listed, and how.
#[derive(Debug)]
pub struct ListRequest {
    /// The directory or file.
    pub path: VirtualPath,
    /// How. Bounds and owners' names are the driver's to set.
    pub listing: Listing,
    /// Whether a file may be listed as well (`LIST file`), or only a directory (`MLSD`).
    pub files: bool,
    /// The listing of what has a pattern for its name (`LIST [a]`): where there is such a thing, it goes
    /// before what the pattern matches.
    pub literal: Option<Box<ListRequest>>,
}

/// A transfer to be run.
#[derive(Debug)]
pub struct Transfer {
    /// The content to transfer.
    pub content: Content,
    /// The connection over which.
    pub via: Via,
    /// How file bytes become wire bytes.
    pub coding: Coding,
    /// The file's path, for logs.
    pub path: VirtualPath,
    /// Downloads: how many bytes to leave out at the beginning of the *wire* form, for
    /// [`Encoder::skipping`](crate::codec::Encoder::skipping). `REST` counts those where they differ from
    /// the bytes of the file (TYPE A and STRU R in MODE S: RFC 3659 section 5.1), and the content's range
    /// then begins at 0. Otherwise 0, and the range says all.
    ///
    /// In MODE B a download may carry [restart markers](crate::codec::Encoder::with_markers), which are
    /// offsets in the file: a `REST` with one arrives here as the range's start.
    pub skip: u64,
    /// Uploads: where in the file the first byte goes, for
    /// [`Decoder::new`](crate::codec::Decoder::new). In MODE B each marker that the decoder finds is
    /// answered with [`Reply::marker`] once what was before it is stored. `None` where the place is not
    /// known (`APPE`): markers then get no reply, because a `REST` with one would go astray.
    pub offset: Option<u64>,
    /// Uploads: the announced size (`ALLO`). It is a hint, and not enforced.
    pub announced: Option<u64>,
    /// How the data connection is protected.
    pub protection: Protection,
}

impl Transfer {
    /// A transfer whose connection [`Session::transfer`](crate::Session) fills in.
    pub(crate) fn new(content: Content, coding: Coding, path: VirtualPath) -> Self {
        Self {
            content,
            via: Via::Passive,
            coding,
            path,
            skip: 0,
            offset: None,
            announced: None,
            protection: Protection::Clear,
        }
    }
}

/// How a data connection is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// Not at all (`PROT C`).
    Clear,
    /// By TLS (`PROT P`), in which we are the server.
    AsServer,
    /// By TLS, in which we are the client: the other side is a server, too (`SSCN`, `CPSV`).
    AsClient,
}

/// The content of a transfer, and its direction.
#[derive(Debug)]
pub enum Content {
    /// A file to the client, from this byte to that (as [`ByteRange`]).
    Send(ReadHandle, ByteRange),
    /// A file from the client; after the given number of bytes the rest is refused (`RANG`).
    Receive(Box<dyn Upload>, Option<u64>),
    /// A listing to the client.
    List(Box<Lister>),
}

/// The connection that a transfer uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// Accept on the leased passive port.
    Passive,
    /// Connect to the client's address.
    Active(SocketAddr),
    /// Write onto the control connection, as the lines between the first and the last of a reply with this code (`STAT
    /// path`). The transfer writes those two lines as well: after the first one the reply can only end with the same
    /// code, so a listing that fails or is aborted half-way reports it in its last line, and counts as successful. One
    /// that fails earlier is reported as a failure.
    Control(u16),
}

/// How a transfer ended.
#[derive(Debug)]
pub struct Outcome {
    /// File bytes moved.
    pub bytes: u64,
    /// `Ok` only when every byte arrived: for an upload, committed under its name.
    pub result: Result<(), TransferError>,
    /// Of a listing, what it could not go into.
    pub unread: Option<Box<Unread>>,
}

/// Why a transfer did not end well.
#[derive(Debug)]
pub enum TransferError {
    /// The data connection did not come, or could not be made: 425.
    NoConnection(String),
    /// The TLS handshake of the data connection failed, or did not meet the requirements: 522.
    NotSecured(String),
    /// The data connection broke: 426.
    Broken(std::io::Error),
    /// Nothing moved for too long: 426.
    Stalled,
    /// The client said `ABOR`, or the server is closing: 426.
    Aborted,
    /// The data was malformed or cut short: 426.
    Malformed(String),
    /// The file failed: 451, 452 or 552.
    File(FileError),
    /// A listing met one of its bounds, so there is more than was sent: 451.
    Cut(String),
    /// Every byte arrived, but a hook refused the upload.
    Refused(Reply),
}
