//! The events that the log records, and their subjects.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use millrace_vfs::{Conversion, Timestamp, VirtualPath};

use super::access::Request;
use super::actor::Administrator;
use super::position::{Position, Sha256};
use super::within::Tried;
use millrace_limits::Protocol;
use millrace_limits::Reached;
use millrace_metrics::Waited;

/// Something worth knowing.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "the sentence above an event names its fields")]
pub enum Event<'a> {
    /// The server lets clients in, at these doors; which process it relieves, and how it is confined.
    Started {
        version: &'a str,
        pid: u32,
        doors: &'a [(&'static str, &'a [SocketAddr])],
        replaces: Option<u32>,
        sandbox: Option<&'a str>,
    },
    /// The server has ended.
    Ended { reason: &'a str, pid: u32 },
    /// A control connection was accepted; by way of a proxy, where there was one.
    Connected { proxy: Option<SocketAddr> },
    /// A connection was refused, with the reason that the client was told, and the limit if it was one.
    Refused { reason: &'a str, reached: Option<&'a Reached> },
    /// A limit refused a client or an operation; and further details.
    Limited { reached: &'a Reached, reason: Option<&'a str> },
    /// Too many failed logins: a user at this address, or the address altogether.
    Banned { user: Option<&'a [u8]> },
    /// An administrator ended the session.
    Kicked,
    /// An administrator has told the server something, which may have failed.
    Administered { what: &'a str, failed: Option<&'a str>, by: Option<Administrator<'a>> },
    /// The configuration was read again: the keys that changed, and those of them that the next start applies.
    Reloaded { changed: &'a [&'static str], next_start: &'a [&'static str] },
    /// An account of the database was changed: what was done, and the settings as they were given.
    AccountChanged { action: &'a str, account: &'a str, settings: Option<&'a str>, by: Administrator<'a> },
    /// A link was made, which needs no account.
    LinkIssued { link: &'a IssuedLink<'a>, by: Administrator<'a> },
    /// A key of links was removed, and with it all links that it has signed.
    LinkKeyRemoved { key: &'a str },
    /// The audit log goes on behind this record.
    AuditLog { file: &'a Path, position: Position },
    /// Records did not get into the audit log.
    RecordsLost { lost: u64, reason: &'a str },
    /// Records of the audit log were removed from its end.
    RecordsMissing { first: u64, last: u64 },
    /// The audit log ended in a piece of a record.
    RecordTorn { bytes: u64, sha256: Sha256 },
    /// A login succeeded: by what, in which version of TLS if any, and where the account is kept, if it has a name.
    LoggedIn { protocol: Protocol, tls: Option<&'a str>, by: Proved, source: Option<&'a str>, tried: Tried },
    /// A login failed.
    LoginFailed { user: &'a [u8], tried: Tried },
    /// A login was not let in for another reason than a wrong name or password.
    LoginRefused { user: &'a [u8], reason: &'a str, tried: Tried },
    /// A session is ended because its account may not be used any more.
    Expelled { reason: &'a str },
    /// A transfer ended.
    Transferred(&'a Transferred<'a>),
    /// Something was changed: the verb, the path, and what it was called before.
    Changed { verb: &'a str, path: &'a VirtualPath, from: Option<&'a VirtualPath> },
    /// A command was not done: what was said, without passwords, and the reply.
    Declined { command: &'a [u8], code: u16, text: &'a [u8] },
    /// A data connection from another host was closed.
    Stranger { peer: SocketAddr },
    /// A connection from a proxy's address was closed: its PROXY header did not name a client.
    ProxyRefused { from: SocketAddr, reason: &'a str },
    /// A hook said no.
    HookRefused { on: &'a str, path: Option<&'a VirtualPath>, reason: &'a str },
    /// The session ended, after so long.
    Disconnected { reason: &'a str, lasted: Duration },
    /// TLS has begun on the control connection.
    Secured { version: &'a str, cipher: &'a str, client: Option<&'a str> },
    /// The TLS handshake of a connection failed, or did not meet the requirements.
    TlsFailed { on: &'a str, reason: &'a str },
    /// A data connection did not resume its control connection's TLS session, as it should; perhaps it showed another's.
    NotResumed { is_foreign: bool },
    /// A request of HTTP was answered.
    Requested(&'a Request<'a>),
    /// A program that HTTP runs wrote this line as an error.
    ProgramSaid { text: &'a str },
    /// Something that an operator should look at.
    Warning { text: &'a str },
}

/// What authenticated a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proved {
    /// No authentication is required.
    Nothing,
    /// A password.
    Password,
    /// A certificate of the client.
    Certificate,
}

impl Proved {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Nothing => "anonymous",
            Self::Password => "password",
            Self::Certificate => "certificate",
        }
    }
}

/// A link that was made.
#[derive(Debug, Clone, Copy)]
pub struct IssuedLink<'a> {
    /// The file or folder.
    pub path: &'a VirtualPath,
    /// The user in whose name it acts.
    pub user: &'a str,
    /// What it permits: `get` or `put`.
    pub permits: &'a str,
    /// Until this second since 1970.
    pub expires: u64,
    /// The name of the key that signed it.
    pub key: &'a str,
}

/// An ended transfer.
#[derive(Debug, Clone, Copy)]
pub struct Transferred<'a> {
    /// Where the bytes went.
    pub direction: Direction,
    /// The file or directory, as clients see it.
    pub path: &'a VirtualPath,
    /// Bytes of the file that were moved.
    pub bytes: u64,
    /// How long it took.
    pub elapsed: Duration,
    /// How long the first byte took, where that is known.
    pub first_byte: Option<Duration>,
    /// How much later it ended than the time at which it is told.
    pub lag: Duration,
    /// What it has waited for.
    pub waited: Waited,
    /// `None` when every byte arrived.
    pub failure: Option<&'a str>,
    /// The hashes of an upload that were computed on its way: `SHA-256:ba78...`.
    pub hash: Option<&'a str>,
    /// Whether line ends were converted (TYPE A).
    pub ascii: bool,
    /// What was done to the stored bytes on their way.
    pub conversion: Conversion,
    /// The mail address that an anonymous user gave.
    pub guest: Option<&'a [u8]>,
    /// The file that tells of it, where its host has one of its own.
    pub log: Option<&'a Path>,
}

/// What metrics tell of a transfer.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    /// Where the bytes went.
    pub direction: Direction,
    /// Bytes of the file that were moved.
    pub bytes: u64,
    /// How long it took.
    pub elapsed: Duration,
    /// How long the first byte took, where that is known.
    pub first_byte: Option<Duration>,
    /// What it has waited for.
    pub waited: Waited,
    /// Whether not every byte arrived.
    pub has_failed: bool,
}

impl Transferred<'_> {
    /// Returns what metrics tell of it.
    pub(super) fn measured(&self) -> Measured {
        let Self { direction, bytes, elapsed, first_byte, waited, failure, .. } = *self;
        Measured { direction, bytes, elapsed, first_byte, waited, has_failed: failure.is_some() }
    }

    /// When it started and when it ended, in microseconds since 1970, if it is told at this time.
    pub(super) fn span(&self, now: Timestamp) -> (u64, u64) {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let told = Duration::new(u64::try_from(now.seconds).unwrap_or(0), now.nanoseconds);
        let ended = told + self.lag;
        (micros(ended.saturating_sub(self.elapsed)), micros(ended))
    }
}

/// Where the bytes went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the client.
    Download,
    /// From the client.
    Upload,
    /// A listing, to the client.
    Listing,
}

impl Direction {
    /// The word for it in logs and reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Download => "download",
            Self::Upload => "upload",
            Self::Listing => "listing",
        }
    }
}

/// The client and session that an event is about.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Its number in the log; 0 before there is one.
    pub session: u64,
    /// The address of the client.
    pub peer: SocketAddr,
    /// The user, once there is one.
    pub user: Option<&'a [u8]>,
}

impl Subject<'_> {
    /// Returns true if it is no client.
    pub(super) fn is_no_session(&self) -> bool {
        self.session == 0 && self.peer.ip().is_unspecified()
    }
}

/// The subject of events without a session.
pub(super) const NO_SESSION: Subject<'static> =
    Subject { session: 0, peer: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0), user: None };
