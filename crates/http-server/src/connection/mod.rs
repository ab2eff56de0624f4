//! An HTTP connection: the state of one client.
//!
//! Answers to pipelined requests are collected and written together. A client that does not take its answers is
//! not read from.

mod arrival;
pub(crate) mod ending;
pub(crate) mod exchange;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use millrace_gateway::programs::{Line, Slot};
use millrace_http::Head;
use millrace_http::forwarded::{self, ForwardedClient};
use millrace_http::h1::{Input, ServerConnection};
use millrace_limits::LimitHandle;
use millrace_log::Subject;
use millrace_net::listener;
use millrace_runtime::sessions::Admission;
use millrace_runtime::slab::Key;
use millrace_runtime::wheel_entry::WheelEntry;
use millrace_vfs::FileError;

use self::arrival::Arrival;
use crate::body::Body;
use crate::dav_work::requests::Collecting;
use crate::hook_state::{HookState, Then};
use crate::identity::Who;
use crate::link::ClientLink;
use crate::lookup::Found;
use crate::receiving::Receiving;
use crate::record::Record;
use crate::sending::Sending;
use crate::stream_context::{AnswerProgress, StreamContext, StreamOrigin};
use crate::upstream_response::UpstreamResponse;
use crate::worker::Core;

/// One client. What only some moments need is behind a `Box` or an empty `Vec`, so that an idle one is small.
#[derive(Debug)]
pub struct Connection {
    pub(crate) key: Key,
    pub(crate) link: ClientLink,
    /// What the protocol says.
    pub(crate) http: ServerConnection,
    /// The client; behind a trusted proxy that of the present request.
    pub(crate) peer: SocketAddr,
    /// Its place among those that limits are for.
    pub(crate) member: LimitHandle,
    pub(crate) number: u64,
    pub(crate) began: Instant,
    pub(crate) work: Work,
    /// The authenticated user; known from the first request on.
    pub(crate) who: Option<Arc<Who>>,
    /// When the wheel will have this connection looked at.
    pub(crate) wheel_entry: WheelEntry,
    /// Wrong passwords so far.
    pub(crate) wrong_passwords: u32,
    /// A place among the programs, for the one that is about to run.
    pub(crate) slot: Option<Slot>,
    /// The program at the path of the request, if any.
    pub(crate) program_path: ProgramPath,
    /// How often the request was sent on within the server.
    pub(crate) redirects: u8,
    /// What was asked for, where programs have sent the request on.
    pub(crate) redirected: Option<Box<Redirected>>,
    /// What the answer says besides.
    pub(crate) extra_headers: Option<Box<ExtraHeaders>>,
    /// Its place among the sessions.
    pub(crate) admission: Option<Admission>,
    /// What it is to the connection of HTTP/2 that it is a stream of.
    pub(crate) stream: Option<Box<StreamContext>>,
    /// Its part in the hooks, where there are any.
    pub(crate) hooked: HookState,
    /// What proxies before this server say of it.
    proxied: Option<Box<Proxied>>,
    /// What traces tell of the present request besides.
    arrival: Option<Box<Arrival>>,
}

/// What a connection is busy with.
#[derive(Debug)]
pub(crate) enum Work {
    /// Nothing: the next head may come.
    Idle,
    /// TLS begins; the reactor may have it in line for the time that handshakes get.
    Securing(Box<Securing>),
    /// The pool has been asked something that the answer depends on.
    Asked(Box<Asked>),
    /// As many programs run as may: there may be room for one until then.
    Queued(Instant, Box<Asked>),
    /// The answer to a wrong password is held back until then.
    Held(Instant, Box<Asked>),
    /// A body is sent.
    Sending(Box<Sending>),
    /// A short body is collected.
    Collecting(Box<Collecting>),
    /// A file is received.
    Receiving(Box<Receiving>),
    /// A program answers.
    Running(Box<UpstreamResponse>),
    /// Hooks are asked; the number of the question.
    Ruled(u64, Box<Then>),
    /// What a request waited for is there: it is taken up again before anything else happens to the connection.
    Resumed(Box<Resumed>),
}

/// What proxies before this server say of a connection, and of its present request.
#[derive(Debug, Default)]
struct Proxied {
    /// Where the client came to (PROXY protocol).
    facing: Option<SocketAddr>,
    /// Who sent the present request, where a trusted proxy has passed it on.
    forwarding: Option<Forwarding>,
}

/// What there is to know of a request that a trusted proxy has passed on.
#[derive(Debug)]
struct Forwarding {
    /// The proxy: whose connection it is.
    proxy: SocketAddr,
    /// Whether the client's address is told.
    is_known: bool,
    /// Whether the client's own connection is encrypted, where the proxy says so.
    is_encrypted: Option<bool>,
}

/// Header lines of the answer that depend on the user.
#[derive(Debug)]
pub(crate) struct ExtraHeaders(pub(crate) String);

/// What the log says that was asked for.
#[derive(Debug)]
pub(crate) struct Redirected {
    pub(crate) method: String,
    pub(crate) target: Vec<u8>,
    /// What applications hear of that, where it is not the path that they answer at.
    pub(crate) uri: Option<Vec<u8>>,
}

impl From<&Head> for Redirected {
    fn from(head: &Head) -> Self {
        Self { method: head.method_text().to_owned(), target: head.target().to_owned(), uri: None }
    }
}

/// A request that waits.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) serial: u64,
    /// The request.
    pub(crate) head: Arc<Head>,
    /// A place among the programs.
    pub(crate) slot: Option<Slot>,
    /// Where it waits for one.
    pub(crate) line: Option<Line>,
    /// Detects that the client has gone, so that the answer is no longer needed.
    pub(crate) patience: Option<Patience>,
}

/// A request that is taken up again, with the pool's result where there is one.
#[derive(Debug)]
pub(crate) struct Resumed {
    pub(crate) head: Arc<Head>,
    pub(crate) found: Option<Result<Found, FileError>>,
    /// A place among the programs.
    pub(crate) slot: Option<Slot>,
}

/// Work that is abandoned when the client has gone.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    /// Dropped when the client has gone.
    pub(crate) waits: Arc<()>,
    /// The client has ended its side: when one asks whether it is there.
    pub(crate) doubted_at: Option<Instant>,
}

impl Asked {
    /// Of which nothing is asked yet.
    pub(crate) fn of(head: &Arc<Head>) -> Self {
        Self { serial: 0, head: Arc::clone(head), slot: None, line: None, patience: None }
    }

    /// Which waits for a place.
    pub(crate) fn in_line(head: &Arc<Head>, line: Line) -> Self {
        Self { line: Some(line), ..Self::of(head) }
    }
}

/// Whether a path is a program's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgramPath {
    /// It is a program's where it looks like one.
    ByName,
    /// It looks like a program's, and leads to a file that is none.
    NoProgram,
}

impl Connection {
    /// Makes the connection of a socket that was accepted, or with `admission` as `None` one whose place is counted
    /// elsewhere.
    pub fn new(
        key: Key,
        socket: OwnedFd,
        peer: SocketAddr,
        member: LimitHandle,
        admission: Option<Admission>,
        core: &Core,
    ) -> Self {
        Self::by(key, ClientLink::new(socket), peer, member, admission, core)
    }

    /// One that what is sent goes by this link.
    pub(crate) fn by(
        key: Key,
        link: ClientLink,
        peer: SocketAddr,
        member: LimitHandle,
        admission: Option<Admission>,
        core: &Core,
    ) -> Self {
        Self {
            key,
            link,
            http: ServerConnection::new(core.now.instant),
            peer,
            member,
            number: core.server.next_session.fetch_add(1, Ordering::Relaxed),
            began: core.now.instant,
            work: Work::Idle,
            who: None,
            wheel_entry: WheelEntry::default(),
            wrong_passwords: 0,
            slot: None,
            program_path: ProgramPath::ByName,
            redirects: 0,
            redirected: None,
            extra_headers: None,
            admission,
            stream: None,
            hooked: HookState::default(),
            proxied: None,
            arrival: None,
        }
    }

    /// The same, where the client has said nothing yet: the reactor will tell.
    pub fn silent(mut self) -> Self {
        self.link.expect_silence();
        self
    }

    /// Returns the number of the session that it belongs to: its own, or that of the connection that it is a stream of.
    pub(crate) fn session(&self) -> u64 {
        self.stream.as_ref().map_or(self.number, |stream| stream.shared.session)
    }

    pub(crate) fn takes_requests(&self) -> bool {
        matches!(self.work, Work::Idle)
            && self.http.takes_requests()
            && self.link.is_flushed()
            && !self.link.is_broken()
            && !self.hooked.waits_to_be_heard()
    }

    /// Tells the protocol that the request was answered, where nothing more is done for it.
    pub(crate) fn note_answered(&mut self, core: &mut Core) {
        if matches!(self.work, Work::Idle) && self.http.is_answering() {
            self.http.handle(core.now.instant, Input::Answered, &mut core.http.heads);
        }
    }

    /// Takes the body of the request from now on: a client that waits to hear so is told.
    pub(crate) fn want_body(&mut self, core: &mut Core) {
        let step = self.http.handle(core.now.instant, Input::BodyWanted, &mut core.http.heads);
        core.out.extend_from_slice(step.send);
    }
}

impl Connection {
    /// An answer that ends before its body does, with what was sent of it.
    pub(crate) fn cut_short(&self, sending: Sending) -> (Record, Body) {
        let Sending { body, mut record, .. } = sending;
        record.bytes += body.bytes();
        (self.as_sent(record), body)
    }

    /// Of an answer that ends here: what waits to be sent never is.
    pub(crate) fn as_sent(&self, record: Record) -> Record {
        let bytes = record.bytes.saturating_sub(self.link.unsent());
        Record { bytes, ..record }
    }

    /// Sends what there is to say, as far as the client takes it.
    pub fn flush(&mut self, core: &mut Core, follows: bool) {
        if self.link.flush(core, self.key, follows) > 0 {
            self.http.moved(core.now.instant);
            if let Work::Sending(sending) = &mut self.work {
                sending.body.moved = core.now.instant;
            }
        }
    }
}

impl Connection {
    /// One for streams of a connection of HTTP/2.
    pub(crate) fn for_streams(
        shared: Arc<StreamOrigin>,
        peer: SocketAddr,
        member: LimitHandle,
        core: &Core,
    ) -> Self {
        let key = shared.connection;
        let stream = Some(Box::new(StreamContext {
            shared,
            id: 0,
            answer: AnswerProgress::Head,
            received: 0,
            released: 0,
            dismisses: false,
            is_stalled: false,
            acknowledged: None,
            place: None,
        }));
        Self { stream, ..Self::by(key, ClientLink::of_stream(), peer, member, None, core) }
    }

    /// The connection that this is a stream of.
    pub fn parent(&self) -> Option<Key> {
        self.stream.as_ref().map(|stream| stream.shared.connection)
    }

    /// Returns whether the answer to a stream's request is made, and no longer than what waits to be taken.
    pub(crate) fn is_answered(&self) -> bool {
        matches!(self.work, Work::Idle) && self.http.is_closing()
    }

    /// The same of a client that came to this address of a proxy, if it came by one.
    pub fn facing(self, facing: Option<SocketAddr>) -> Self {
        let proxied = facing.map(|facing| Box::new(Proxied { facing: Some(facing), ..Proxied::default() }));
        Self { proxied, ..self }
    }

    /// Returns the address that the client came to: the proxy's, where there is one that names it.
    pub(crate) fn reached(&self) -> Option<SocketAddr> {
        match (&self.stream, self.proxied.as_ref().and_then(|proxied| proxied.facing)) {
            (Some(stream), _) => Some(stream.shared.reached),
            (None, Some(facing)) => Some(facing),
            (None, None) => self.local().ok(),
        }
    }

    /// Where the client came to. The kernel is asked only where the listener is bound to several addresses.
    pub(crate) fn local(&self) -> io::Result<SocketAddr> {
        match (&self.stream, self.member.listener()) {
            (Some(stream), _) => Ok(stream.shared.local),
            (None, Some(bound)) if !bound.ip().is_unspecified() => Ok(bound),
            (None, _) => match self.link.socket() {
                Some(socket) => listener::local_address(&socket.fd),
                None => Err(io::ErrorKind::NotConnected.into()),
            },
        }
    }
}

/// A handshake under way.
#[derive(Debug)]
pub(crate) struct Securing {
    /// It waits for the time that handshakes have in the next turn.
    pub(crate) in_line: bool,
    /// The address that its listener is bound to.
    pub(crate) bound: SocketAddr,
    /// It is over, and HTTP/2 was agreed on: what follows is a connection of that.
    pub(crate) speaks_http2: bool,
}

impl Connection {
    /// Returns true if the connection is encrypted: the client's own, behind a trusted proxy that tells.
    pub(crate) fn is_encrypted(&self) -> bool {
        let forwarding = self.proxied.as_ref().and_then(|proxied| proxied.forwarding.as_ref());
        let told = forwarding.and_then(|forwarding| forwarding.is_encrypted);
        told.unwrap_or_else(|| self.link.channel().is_some() || self.stream.is_some())
    }

    /// Takes the client that a trusted proxy names in a request for the connection's until the next request.
    pub(crate) fn heed_forwarding(&mut self, core: &Core, head: &Head) {
        let trusted = &core.server.config.trusted_proxies;
        if trusted.networks.is_empty() {
            return;
        }
        if let Some(before) = self.proxied.as_mut().and_then(|proxied| proxied.forwarding.take()) {
            self.peer = before.proxy;
        }
        let is_trusted = |address: IpAddr| trusted.networks.iter().any(|network| network.contains(address));
        if !is_trusted(self.peer.ip()) {
            return;
        }
        if let Some(ForwardedClient { address, is_known, is_encrypted }) =
            forwarded::client(head, trusted.field, is_trusted)
        {
            let forwarding = Forwarding { proxy: self.peer, is_known, is_encrypted };
            self.proxied.get_or_insert_default().forwarding = Some(forwarding);
            self.peer = address.unwrap_or(self.peer);
        }
    }

    /// Returns true if the client is on this computer. One that a proxy does not name may be anywhere.
    pub(crate) fn is_local(&self) -> bool {
        let forwarding = self.proxied.as_ref().and_then(|proxied| proxied.forwarding.as_ref());
        self.peer.ip().is_loopback() && forwarding.is_none_or(|forwarding| forwarding.is_known)
    }
}

impl Connection {
    pub(crate) fn subject(&self) -> Subject<'_> {
        self.subject_of(self.who.as_ref().and_then(|who| who.user.as_deref()))
    }

    /// For the log, where it is about another user than the present one, or none.
    pub(crate) fn subject_of<'a>(&self, user: Option<&'a [u8]>) -> Subject<'a> {
        Subject { session: self.number, peer: self.peer, user }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the allocator's share and its place in the slab this stays far below 1 KiB.
    #[test]
    fn an_idle_connection_is_small() {
        assert!(size_of::<Connection>() <= 384, "{}", size_of::<Connection>());
    }
}
