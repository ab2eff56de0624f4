//! A stream of HTTP/2, as the `Connection` that answers its request sees it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use millrace_http::h1::{Input, ServerConnection};
use millrace_http::{Head, Refusal};
use millrace_net::listener;

use super::Connection;
use super::places::{Place, Places};
use crate::http::connection::{ProgramPath, Work};
use crate::http::deadlines::Clock;
use crate::http::link::ClientLink;
use crate::http::reading::Reader;
use crate::http::receive::Reception;
use crate::limits::{AccountLimits, Member, Refused};
use crate::slab::Key;
use crate::state::Server;
use crate::worker::Core;

/// What is the same for all streams of a connection.
#[derive(Debug)]
pub(super) struct StreamOrigin {
    /// The connection that they belong to.
    pub(super) connection: Key,
    /// Where the client came to.
    pub(super) local: SocketAddr,
    /// The names in its certificate.
    pub(super) names: Arc<[String]>,
    pub(super) tls_version: Option<&'static str>,
    pub(super) places: Places,
}

/// What a `Connection` is to the connection of HTTP/2 that it is a stream of.
#[derive(Debug)]
pub(in crate::http) struct StreamContext {
    pub(super) shared: Arc<StreamOrigin>,
    /// The number of the stream.
    pub(super) id: u32,
    pub(super) answer: AnswerProgress,
    /// Bytes of the request's body that were given to it, and those of them that its window was opened for again.
    pub(super) received: u64,
    pub(super) released: u64,
    /// The whole connection is to end.
    pub(super) dismisses: bool,
    /// The client takes nothing of the answer any more.
    pub(super) is_stalled: bool,
    /// How much the client had taken of all that the connection sent when it was last asked.
    acknowledged: Option<u64>,
    /// The place of the user in whose name is asked.
    place: Option<Place>,
}

/// What has come for a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamNews {
    /// More of the body of its request.
    pub(super) body: Vec<u8>,
    /// The body is whole by that.
    pub(super) is_whole: bool,
    /// The client has reset it.
    pub(super) is_reset: bool,
}

/// The request of a stream; or why it is refused, and the line that it would begin with.
pub(crate) type StreamRequest = Result<Arc<Head>, (Refusal, Vec<u8>)>;

/// How far the answer on a stream has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerProgress {
    Head,
    Body,
    /// It has ended, or was reset.
    Ended,
}

impl StreamContext {
    /// Has the client's connection end: it is told so (GOAWAY), and what still runs on it may go on.
    pub(in crate::http) fn dismiss(&mut self) {
        self.dismisses = true;
    }

    /// The client takes nothing of the answer any more.
    pub(in crate::http) fn note_stall(&mut self) {
        self.is_stalled = true;
    }

    /// How much the client has taken of all that it is sent, in whatever unit.
    pub(in crate::http) fn acknowledged(&self) -> io::Result<u64> {
        self.acknowledged.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// A user asks: on all of the connection it is once that there has to be a place.
    pub(in crate::http) fn enter(
        &mut self,
        server: &Server,
        user: &[u8],
        limits: &AccountLimits,
        now: Instant,
    ) -> Result<(), Refused> {
        self.place = Some(self.shared.places.of(&server.limits, user, limits, now)?);
        Ok(())
    }

    /// Returns whether no stream of the connection has asked as this user before.
    pub(in crate::http) fn is_new(&self, user: &[u8]) -> bool {
        self.shared.places.is_new(user)
    }

    /// The names in the client's certificate.
    pub(in crate::http) fn names(&self) -> Arc<[String]> {
        Arc::clone(&self.shared.names)
    }

    /// The version of TLS.
    pub(in crate::http) fn tls_version(&self) -> Option<&'static str> {
        self.shared.tls_version
    }
}

impl Connection {
    /// One for streams of a connection of HTTP/2.
    pub(super) fn for_streams(
        shared: Arc<StreamOrigin>,
        peer: SocketAddr,
        member: Member,
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
    pub(crate) fn parent(&self) -> Option<Key> {
        self.stream.as_ref().map(|stream| stream.shared.connection)
    }

    /// Returns whether the answer to a stream's request is made, and no longer than what waits to be taken.
    pub(super) fn is_answered(&self) -> bool {
        matches!(self.work, Work::Idle) && self.http.is_closing()
    }

    /// Where the client came to. The kernel is asked only where the listener is bound to several addresses.
    pub(in crate::http) fn local(&self) -> io::Result<SocketAddr> {
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

/// A `Connection` that is a stream, while its connection or the worker is at it.
pub(crate) struct StreamDriver<'a> {
    connection: &'a mut Connection,
}

impl<'a> StreamDriver<'a> {
    pub(crate) fn of(connection: &'a mut Connection) -> Self {
        Self { connection }
    }
}

impl StreamDriver<'_> {
    /// Takes a stream's request.
    pub(super) fn open_stream(&mut self, key: Key, id: u32) {
        self.connection.key = key;
        self.connection.link.reuse();
        self.connection.look_at = None;
        self.connection.slot = None;
        self.connection.redirects = 0;
        self.connection.program_path = ProgramPath::ByName;
        self.connection.beside = None;
        self.connection.forget_request();
        if let Some(stream) = &mut self.connection.stream {
            (stream.id, stream.answer) = (id, AnswerProgress::Head);
            (stream.received, stream.released, stream.acknowledged) = (0, 0, None);
        }
    }

    /// Answers the request that a stream was opened for.
    pub(crate) fn begin_stream(&mut self, core: &mut Core, request: StreamRequest, news: StreamNews) {
        match request {
            Ok(head) => {
                self.connection.http = ServerConnection::of_stream(Arc::clone(&head), core.now.instant);
                // Part of the body may have come with the head.
                self.take_body(core, &news);
                self.connection.exchange(core, &head).handle(None);
            }
            Err((refusal, line)) => {
                self.connection.http = ServerConnection::of_refused_stream(core.now.instant);
                Reader::new(self.connection, core).refuse(&line, refusal);
            }
        }
        self.connection.note_answered(core);
        // The body may have come with the head.
        if matches!(self.connection.work, Work::Collecting(_)) {
            Reception::new(self.connection, core).collect_more();
        }
    }

    /// Takes what has come for a stream.
    pub(crate) fn take_news(&mut self, core: &mut Core, news: &StreamNews) {
        self.take_body(core, news);
        if news.is_reset {
            self.end_stream();
        }
    }

    fn take_body(&mut self, core: &mut Core, news: &StreamNews) {
        if let Some(stream) = &mut self.connection.stream {
            stream.received += news.body.len() as u64;
        }
        self.connection.http.handle(core.now.instant, Input::Received(&news.body), &mut core.http.heads);
        if news.is_whole {
            self.connection.http.end_stream_body();
        }
        self.connection.link.expect_bytes();
    }

    /// The client has reset the stream, or is gone.
    pub(crate) fn end_stream(&mut self) {
        self.connection.link.break_off();
    }

    /// Returns whether nothing more is done for a stream.
    pub(crate) fn has_ended(&self) -> bool {
        self.connection.is_over()
    }

    /// Has the wheel look at a stream when something may be due.
    pub(crate) fn set_clock(&mut self, core: &mut Core) {
        Clock::new(self.connection, core).set_clock();
    }

    /// Notes how much the client has taken of all that its connection sent.
    pub(crate) fn note_acknowledged(&mut self, acknowledged: Option<u64>) {
        if let Some(stream) = &mut self.connection.stream {
            stream.acknowledged = acknowledged;
        }
    }

    /// The client takes of a stream's answer.
    pub(super) fn note_taken(&mut self, now: Instant) {
        self.connection.http.moved(now);
        if let Work::Sending(sending) = &mut self.connection.work {
            sending.body.moved = now;
        }
    }

    /// Returns whether this can be the next stream's, as nothing of this one is left.
    pub(super) fn can_serve_another(&self) -> bool {
        !self.connection.link.is_broken() && self.connection.is_answered()
    }

    /// Waits for the next stream; what is told of it meanwhile goes to its connection, which has this key.
    pub(super) fn rest(&mut self, key: Key) {
        self.connection.key = key;
        self.connection.redirected = None;
        self.connection.beside = None;
    }
}
