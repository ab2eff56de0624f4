//! A connection of HTTP/2: what its client sends, which of its streams run and which wait, and how it ends.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use millrace_accounts::Account;
use millrace_http::h2::{
    ConnectionLimits, ErrorCode, Pseudo, ReceivedFrames, Server as Protocol, StreamEvent,
};
use millrace_limits::LimitHandle;
use millrace_runtime::report::SessionReport;
use millrace_runtime::sessions::Admission;
use millrace_runtime::slab::Key;
use millrace_runtime::socket_state::FAREWELL;
use millrace_runtime::transfer::TURN;
use millrace_runtime::wheel_entry::WheelEntry;
use mio::event::Event;

use crate::connection::{Connection, Work};
use crate::h2::stream::{StreamDriver, StreamNews, StreamRequest};
use crate::h2::{BACKLOG, REQUESTS};
use crate::link::{ClientLink, names_of};
use crate::message::Message;
use crate::notices::Notices;
use crate::notices::batch::Parting;
use crate::stream_context::StreamOrigin;
use crate::user_places::Places;
use crate::worker::Core;

/// Bytes of a request that are passed over when it is answered; a client that sends more is told to stop.
const UNREAD: usize = 64 * 1024;

/// Bytes that have to be taken before it is a sign of life: a kernel acknowledges each `PING` for a client that takes
/// nothing.
const WORTH: u64 = 512;

/// One client that speaks HTTP/2.
#[derive(Debug)]
pub struct Http2Connection {
    pub(crate) key: Key,
    pub(crate) link: ClientLink,
    pub(crate) http2: Protocol,
    /// Frames that are sent together.
    pub(crate) frames: Vec<u8>,
    origin: Arc<StreamOrigin>,
    peer: SocketAddr,
    bound: SocketAddr,
    /// Its place among the sessions.
    _admission: Option<Admission>,
    /// What hooks are told at its end.
    _parting: Option<Parting>,
    pub(crate) running: Vec<RunningStream>,
    waiting: VecDeque<WaitingStream>,
    /// What streams that have ended leave to those that come.
    #[expect(clippy::vec_box, reason = "each goes to the slab and comes back as it lies")]
    idle: Vec<Box<Connection>>,
    /// Streams that were answered before their requests were whole, and how much more of each is passed over.
    unread: Vec<(u32, usize)>,
    phase: Phase,
    /// Whether bodies of answers wait for another turn, or for the socket.
    pub(crate) bodies: Bodies,
    /// When the client last gave a sign of life, and whether it was asked for one since.
    heard: Instant,
    is_asked: bool,
    /// When something last moved, or a stream ended.
    pub(crate) moved: Instant,
    /// As much had been taken when that was last looked at.
    counted: u64,
    wheel_entry: WheelEntry,
}

/// Where a connection is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// The client was told to open no more streams.
    Draining,
    /// Our side was ended; until then the client may end its own, and send this many bytes that are thrown away.
    Closing(Instant, usize),
}

/// Whether bodies of answers wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bodies {
    None,
    Possible,
}

/// A stream whose request is answered.
#[derive(Debug)]
pub(crate) struct RunningStream {
    pub(crate) id: u32,
    /// The `Connection` that answers.
    pub(crate) key: Key,
    news: StreamNews,
    /// The client has to take of its answer before anything else is done.
    pub(crate) waits_for_client: bool,
}

/// A stream whose request waits for others to be answered.
#[derive(Debug)]
struct WaitingStream {
    id: u32,
    request: StreamRequest,
    news: StreamNews,
}

/// A stream that is to begin.
#[derive(Debug)]
pub struct StreamStart {
    pub(crate) id: u32,
    pub(crate) connection: Box<Connection>,
    pub(crate) request: StreamRequest,
    pub(crate) news: StreamNews,
}

impl StreamStart {
    /// The number of the stream.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The stream's `Connection`, by this key, and what it is to begin with.
    pub fn open(self, key: Key) -> (Box<Connection>, StreamRequest, StreamNews) {
        let Self { id, mut connection, request, news } = self;
        StreamDriver::of(&mut connection).open_stream(key, id);
        (connection, request, news)
    }
}

impl Connection {
    /// Goes on as a connection of HTTP/2, where that was agreed on.
    pub fn take_http2(&mut self, core: &mut Core) -> Option<Box<Http2Connection>> {
        let Work::Securing(securing) = &self.work else { return None };
        let bound = securing.speaks_http2.then_some(securing.bound)?;
        let parting = Notices::of(self).parting(core);
        let local = self.local().unwrap_or(bound);
        let link = std::mem::replace(&mut self.link, ClientLink::of_stream());
        let other = core.server.limits.accompany(bound, core.now.instant);
        let member = std::mem::replace(&mut self.member, other);
        let origin = StreamOrigin {
            connection: self.key,
            session: self.number,
            local,
            reached: self.reached().unwrap_or(local),
            names: link.channel().map(names_of).unwrap_or_default(),
            tls_version: link.channel().and_then(|channel| channel.tls().version()),
            places: Places::new(bound, member),
        };
        let (now, mut frames) = (core.now.instant, Vec::new());
        let mut http2 = Protocol::new(ConnectionLimits::default(), &mut frames);
        if core.ending {
            http2.shut_down(ErrorCode::NO_ERROR, &mut frames);
        }
        Some(Box::new(Http2Connection {
            key: self.key,
            link,
            http2,
            frames,
            origin: Arc::new(origin),
            peer: self.peer,
            bound,
            _admission: self.admission.take(),
            _parting: parting,
            running: Vec::new(),
            waiting: VecDeque::new(),
            idle: Vec::new(),
            unread: Vec::new(),
            phase: if core.ending { Phase::Draining } else { Phase::Open },
            bodies: Bodies::None,
            heard: now,
            is_asked: false,
            moved: now,
            counted: 0,
            wheel_entry: WheelEntry::default(),
        }))
    }
}

impl Http2Connection {
    /// The reactor says something of the socket.
    pub fn event(&mut self, event: &Event) {
        self.link.take_event(event, matches!(self.phase, Phase::Closing(..)));
        if event.is_writable() {
            self.bodies = Bodies::Possible;
        }
    }

    /// Reads where that is possible, and has what came of it handed on. Returns whether the connection goes on.
    pub fn settle(&mut self, core: &mut Core) -> bool {
        if !self.link.is_flushed() {
            self.flush(core);
        }
        self.read_on(core);
        if self.has_news() && !self.link.is_broken() && !self.link.has_read_end() {
            self.queue(core);
            return true;
        }
        self.finish_turn(core)
    }

    /// Has the worker hand on between this connection and its streams.
    fn queue(&self, core: &mut Core) {
        if !core.http.multiplexed.contains(&self.key) {
            core.http.multiplexed.push(self.key);
        }
    }

    fn has_news(&self) -> bool {
        self.may_begin()
            || (self.bodies == Bodies::Possible && !self.running.is_empty())
            || self.running.iter().any(|stream| stream.news != StreamNews::default())
    }

    fn may_begin(&self) -> bool {
        !self.waiting.is_empty()
            && self.running.len() < REQUESTS
            && self.has_room()
            && (self.rested().is_some() || self.running.len() + self.idle.len() < REQUESTS)
    }

    /// One that may answer another request: hooks have heard enough of what it did before.
    fn rested(&self) -> Option<usize> {
        self.idle.iter().rposition(|connection| !connection.hooked.waits_to_be_heard())
    }

    /// Returns whether more may be made to be sent.
    pub(crate) fn has_room(&self) -> bool {
        self.link.is_flushed() && self.frames.len() < BACKLOG
    }

    /// Sends what there is, and ends the connection where that is due. Returns whether it goes on.
    pub fn finish_turn(&mut self, core: &mut Core) -> bool {
        self.flush(core);
        let is_done = self.running.is_empty() && self.waiting.is_empty();
        if is_done && self.link.is_flushed() && self.phase == Phase::Draining && !self.link.is_broken() {
            self.link.end_tls();
            self.link.end_writing();
            self.phase = Phase::Closing(core.now.instant + FAREWELL, TURN);
        }
        if is_done {
            self.idle.iter_mut().for_each(|connection| connection.link.shrink());
        }
        let is_over = self.link.is_broken() || self.link.has_read_end();
        if is_over || !self.link.register(core, self.key) {
            return false;
        }
        self.set_clock(core);
        true
    }

    /// Sends the frames, as far as the client takes them.
    pub fn flush(&mut self, core: &mut Core) {
        if !self.frames.is_empty() || !self.link.is_flushed() {
            std::mem::swap(&mut self.frames, &mut core.out);
            let sent = self.link.flush(core, self.key, false);
            std::mem::swap(&mut self.frames, &mut core.out);
            if sent > 0 {
                self.moved = core.now.instant;
                self.http2.note_taken(sent);
            }
        }
        if self.frames.is_empty() && self.frames.capacity() > 0 && core.http.frames.capacity() == 0 {
            // An idle connection keeps no buffer.
            core.http.frames = std::mem::take(&mut self.frames);
        }
    }

    /// Lends the connection the memory that all of a worker share.
    pub(crate) fn borrow_frames(&mut self, core: &mut Core) {
        if self.frames.capacity() == 0 {
            self.frames = std::mem::take(&mut core.http.frames);
        }
    }

    fn read_on(&mut self, core: &mut Core) {
        if let Phase::Closing(until, most) = self.phase {
            let most = self.link.discard(&mut core.scratch, most);
            self.phase = Phase::Closing(until, most);
            return;
        }
        if !self.link.may_read() || self.link.is_broken() {
            return;
        }
        if self.link.unsent() as usize + self.frames.len() >= BACKLOG {
            return;
        }
        self.borrow_frames(core);
        if self.link.has_sent_in(core.turn) {
            core.turn += 1;
        }
        let mut plain = std::mem::take(&mut core.plain);
        if self.link.receive_secure(&mut core.scratch, usize::MAX, &mut plain) {
            (self.heard, self.is_asked) = (core.now.instant, false);
            self.take_frames(core, &plain);
        }
        plain.clear();
        core.plain = plain;
        if self.link.may_read() && !self.link.is_broken() {
            // Others have their turn.
            core.yielded.push_back(self.key);
        }
    }

    fn take_frames(&mut self, core: &mut Core, bytes: &[u8]) {
        let mut at = 0;
        loop {
            let received = self.http2.receive(&bytes[at..], core.now.instant, &mut self.frames);
            let Ok(ReceivedFrames { taken, event }) = received else {
                // The client is told why.
                self.running.iter_mut().for_each(|stream| stream.news.is_reset = true);
                self.waiting.clear();
                self.phase = Phase::Draining;
                return;
            };
            let start = at;
            at += taken;
            match event {
                None => return,
                Some(StreamEvent::Head { stream, ends }) => self.take_head(core, stream, ends),
                Some(StreamEvent::Data { stream, range, ends }) => {
                    self.take_data(stream, &bytes[start + range.start..start + range.end], ends);
                }
                Some(StreamEvent::Trailers { stream }) => self.take_data(stream, &[], true),
                Some(StreamEvent::Reset { stream, .. }) => {
                    self.waiting.retain(|waiting| waiting.id != stream);
                    if let Some(news) = self.news_of(stream) {
                        news.is_reset = true;
                    }
                }
                Some(StreamEvent::Window) => self.bodies = Bodies::Possible,
                Some(StreamEvent::Pong) => {}
                Some(StreamEvent::GoAway { .. }) => self.shut_down(),
            }
        }
    }

    fn take_head(&mut self, core: &mut Core, id: u32, ends: bool) {
        let mut head = core.http.heads.take();
        let read = match Arc::get_mut(&mut head) {
            Some(head) => self.http2.read_head(ends, head),
            None => return,
        };
        let request = read.map(|()| head).map_err(|refusal| {
            let part = |which| self.http2.fields().pseudo(which).unwrap_or_default();
            (refusal, [part(Pseudo::Method), part(Pseudo::Path)].join(&b' '))
        });
        let news = StreamNews { is_whole: ends, ..StreamNews::default() };
        self.waiting.push_back(WaitingStream { id, request, news });
    }

    fn take_data(&mut self, id: u32, bytes: &[u8], ends: bool) {
        match self.news_of(id) {
            Some(news) => {
                news.body.extend_from_slice(bytes);
                news.is_whole |= ends;
            }
            None => {
                self.http2.release(id, bytes.len(), &mut self.frames);
                self.pass_over(id, bytes.len());
            }
        }
    }

    /// Notes that the request of a stream is answered before all of it has come: the rest is passed over.
    pub(crate) fn leave_unread(&mut self, id: u32) {
        let Self { unread, http2, .. } = self;
        if http2.is_open(id) {
            unread.retain(|(other, _)| http2.is_open(*other));
            unread.push((id, UNREAD));
        }
    }

    /// Passes over what still comes of an answered request, until that is too much.
    fn pass_over(&mut self, id: u32, count: usize) {
        let Some(at) = self.unread.iter().position(|(other, _)| *other == id) else { return };
        let left = &mut self.unread[at].1;
        *left = left.saturating_sub(count);
        if *left == 0 {
            self.unread.swap_remove(at);
            self.http2.reset(id, ErrorCode::NO_ERROR, &mut self.frames);
        }
    }

    fn news_of(&mut self, id: u32) -> Option<&mut StreamNews> {
        if let Some(stream) = self.running.iter_mut().find(|stream| stream.id == id) {
            return Some(&mut stream.news);
        }
        let waiting = self.waiting.iter_mut().rev().find(|stream| stream.id == id);
        waiting.map(|stream| &mut stream.news)
    }

    /// What has come for a stream that runs.
    pub fn next_news(&mut self) -> Option<(Key, StreamNews)> {
        let stream = self.running.iter_mut().find(|stream| stream.news != StreamNews::default())?;
        Some((stream.key, std::mem::take(&mut stream.news)))
    }

    /// The next stream that may begin.
    pub fn next_start(&mut self, core: &mut Core) -> Option<StreamStart> {
        if !self.may_begin() {
            return None;
        }
        let WaitingStream { id, request, news } = self.waiting.pop_front()?;
        let connection = match self.rested() {
            Some(at) => self.idle.swap_remove(at),
            None => {
                let member = core.server.limits.accompany(self.bound, core.now.instant);
                let origin = Arc::clone(&self.origin);
                Box::new(Connection::for_streams(origin, self.peer, member, core))
            }
        };
        Some(StreamStart { id, connection, request, news })
    }

    /// A stream begins.
    pub fn began(&mut self, id: u32, key: Key) {
        self.running.push(RunningStream { id, key, news: StreamNews::default(), waits_for_client: false });
    }

    /// A stream has ended, however that was; what is left of it is used again where it can be.
    pub fn ended(&mut self, core: &mut Core, mut connection: Box<Connection>) {
        self.forget(connection.key);
        self.moved = core.now.instant;
        let mut driver = StreamDriver::of(&mut connection);
        if driver.can_serve_another() && self.idle.len() < REQUESTS {
            driver.rest(self.key);
            self.idle.push(connection);
        } else {
            connection.close(core);
        }
    }

    /// The `Connection` of this key is gone.
    pub(crate) fn forget(&mut self, key: Key) {
        self.running.retain(|stream| stream.key != key);
    }

    /// A stream is lost by a mistake of ours.
    pub fn lose(&mut self, key: Key) {
        if let Some(stream) = self.running.iter().find(|stream| stream.key == key) {
            self.http2.reset(stream.id, ErrorCode::INTERNAL_ERROR, &mut self.frames);
        }
        self.forget(key);
    }

    /// The streams that run.
    pub fn streams(&self) -> Vec<Key> {
        self.running.iter().map(|stream| stream.key).collect()
    }

    /// How much the client has taken of all that it was sent.
    pub fn acknowledged(&self) -> Option<u64> {
        self.link.acknowledged().ok().map(|bytes| bytes / WORTH)
    }

    /// The client is told to open no more streams; those that are open go on.
    pub fn shut_down(&mut self) {
        if self.phase == Phase::Open {
            self.http2.shut_down(ErrorCode::NO_ERROR, &mut self.frames);
            self.phase = Phase::Draining;
        }
    }

    /// The time of grace is over.
    pub fn end_now(&mut self) {
        self.link.break_off();
    }

    /// The close that follows is a reset.
    pub fn reset(&self) {
        self.link.reset_on_close();
    }

    /// Ends the connection; its streams that run are ended by the worker.
    pub fn close(self: Box<Self>, core: &mut Core) {
        self.idle.into_iter().for_each(|connection| connection.close(core));
    }

    fn due(&self, core: &Core) -> Instant {
        let config = &core.server.config;
        if let Phase::Closing(until, _) = self.phase {
            return until;
        }
        let ping = if self.is_asked { 2 * config.http2_ping } else { config.http2_ping };
        let mut due = self.heard + ping;
        if self.running.is_empty() && self.waiting.is_empty() {
            due = due.min(self.moved + config.idle_timeout);
        }
        if !self.link.is_flushed() {
            due = due.min(self.moved + config.stall_timeout);
        }
        due
    }

    fn set_clock(&mut self, core: &mut Core) {
        self.wheel_entry.cover(Some(self.due(core)), &mut core.wheel, self.key);
    }

    /// The wheel says that something may be due.
    pub fn look_at_clock(&mut self, core: &mut Core) {
        let now = core.now.instant;
        if !self.wheel_entry.take_due(now) || self.due(core) > now {
            return;
        }
        if let Phase::Closing(..) = self.phase {
            return self.link.break_off();
        }
        let config = &core.server.config;
        let (ping, stall, idle) = (config.http2_ping, config.stall_timeout, config.idle_timeout);
        let is_at_rest = self.running.is_empty() && self.waiting.is_empty();
        let taken = self.acknowledged().unwrap_or(self.counted);
        if std::mem::replace(&mut self.counted, taken) != taken {
            (self.heard, self.is_asked) = (now, false);
            self.moved = if is_at_rest { self.moved } else { now };
        }
        let silence = now.saturating_duration_since(self.heard);
        let rest = now.saturating_duration_since(self.moved);
        if silence >= 2 * ping || (!self.link.is_flushed() && rest >= stall) {
            self.link.break_off();
        } else if is_at_rest && rest >= idle {
            self.shut_down();
        } else if silence >= ping && !self.is_asked {
            self.is_asked = true;
            self.http2.ping(&mut self.frames);
        }
    }
}

impl Http2Connection {
    /// Returns whether the connection itself is listed as a session: no stream is open, and an idle one has a user. Open
    /// streams are listed by themselves.
    pub fn is_of_note(&self) -> bool {
        self.running.is_empty() && self.idle.iter().any(|connection| connection.is_of_note())
    }

    /// As an administrator sees it.
    pub fn report(&self, now: Instant) -> Option<SessionReport> {
        let mut idle = self.idle.iter().filter(|_| self.running.is_empty());
        idle.find(|connection| connection.is_of_note()).map(|connection| connection.report(now))
    }

    /// An administrator wants it gone.
    pub fn kick(&mut self, core: &mut Core) {
        if let Some(connection) = self.idle.iter_mut().find(|connection| connection.is_of_note()) {
            connection.kick(core);
        }
        self.shut_down();
    }

    /// Returns those that rest here: their numbers in the log, and their parts in the tree of limits.
    pub fn resting_members(&mut self) -> impl Iterator<Item = (u64, &mut LimitHandle)> {
        self.idle.iter_mut().map(|connection| connection.member())
    }

    /// Has the accounts of those that rest here looked at again.
    pub fn review(&mut self, core: &mut Core, concerned: impl Fn(&[u8], &Account) -> bool) {
        self.idle.iter_mut().for_each(|connection| connection.review(core, &concerned));
    }

    /// Another thread has something for one of those that rest here.
    pub fn told(&mut self, core: &mut Core, message: Message) {
        if let Message::Reviewed(user, decision) = message {
            for connection in &mut self.idle {
                connection.reviewed(core, &user, decision.clone());
            }
            if self.idle.iter().any(|connection| connection.link.is_broken()) {
                self.shut_down();
            }
        }
    }
}
