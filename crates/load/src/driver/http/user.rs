//! One user of HTTP, in its loop.
//!
//! ```text
//! Out --connect--> Connecting --request--> Waiting --response--> Kept (keep-alive), or Out
//!                     '-> Securing -^         ^                    |
//!                                             '------- request ----'
//! ```
//!
//! Connecting is part of the operation, and no connection is made before the load: a kept connection's request counts
//! from when it is written. A server may close a kept connection at any time; a request that meets that without a byte
//! of an answer is repeated once on a new connection. In TLS each user has tickets of its own, and its connections
//! resume with them.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_net::stream;
use millrace_net::tls::Heard;
use rustix::net::{RecvFlags, recv};

use super::exchange::{Exchange, ExchangeError};
use super::request::Request;
use crate::driver::gap::Gap;
use crate::driver::life::{AFTER_LOSS, AFTER_REFUSAL, Life};
use crate::driver::security::{Link, Security};
use crate::driver::worker::{Client, Interest, Role, WorkerContext};
use crate::fault::Fault;
use crate::plan::HttpVersion;
use crate::schedule::Pace;
use crate::tally::{Live, UserTally};

/// A connection attempt that takes so long was retransmitted (RFC 6298: the first timeout is a second).
const SLOW_CONNECT: Duration = Duration::from_secs(1);

/// One user.
pub(super) struct User {
    life: Life,
    state: State,
    link: Option<Link>,
    /// Its encryption, with this user's tickets.
    security: Option<Security>,
    local: SocketAddr,
    exchange: Exchange,
    /// When its connection was begun.
    connecting: Instant,
    /// How long that took with its handshake, until a response has arrived on it.
    connected_in: Option<Duration>,
    /// The longest gap of the present response.
    gap: Gap,
    /// Responses on this connection.
    served: u32,
    request: Arc<Request>,
    /// The socket has taken the whole output.
    has_asked: bool,
    /// What the connection is watched for.
    watched: Interest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Out,
    Connecting,
    /// The handshake is under way.
    Securing,
    Waiting,
    Kept,
}

/// The result of a read.
enum Taken {
    /// Bytes, or none where these were TLS's own; there may be more.
    Bytes,
    /// The data before the end of the stream; `is_cut`: the stream ended without a close_notify.
    End { is_cut: bool },
    /// The bytes are not HTTP.
    Broken(ExchangeError),
}

/// Takes what has arrived in clear; a body's bytes are not inspected.
fn take_plain(link: &Link, exchange: &mut Exchange, context: &mut WorkerContext<'_>) -> io::Result<Taken> {
    let certain = exchange.certain();
    let count = if certain > 0 {
        let room = context.discard.len().min(usize::try_from(certain).unwrap_or(usize::MAX));
        recv(link, &mut context.discard[..room], RecvFlags::TRUNC)?.1
    } else {
        stream::read(link, &mut context.buffer)?
    };
    let fed = match count {
        0 => return Ok(Taken::End { is_cut: false }),
        count if certain > 0 => exchange.skip(count as u64),
        count => exchange.feed(&context.buffer[..count]),
    };
    Ok(fed.map_or_else(Taken::Broken, |()| Taken::Bytes))
}

impl Client for User {
    fn new(index: u32, number: u32, context: &mut WorkerContext<'_>) -> Self {
        let anywhere: IpAddr = if context.server.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        let source = context.cell.settings.source.as_ref().map(|range| range.address(number));
        Self {
            life: Life::new(index, number),
            state: State::Out,
            link: None,
            // It cannot fail, because it succeeded in the probe.
            security: Security::of(context.target, &context.cell.settings)
                .ok()
                .flatten()
                .map(|security| security.renewed()),
            local: SocketAddr::new(source.unwrap_or(anywhere), 0),
            exchange: Exchange::new(context.cell.settings.http),
            connecting: Instant::now(),
            connected_in: None,
            gap: Gap::default(),
            served: 0,
            request: Self::request(number, context),
            has_asked: false,
            watched: Interest::Write,
        }
    }

    fn connect(&mut self, _: &mut WorkerContext<'_>) {}

    fn is_able(&self, context: &WorkerContext<'_>) -> bool {
        matches!(self.state, State::Out | State::Kept) && !self.life.is_idler(context)
    }

    fn has_done_all(&self, context: &WorkerContext<'_>) -> bool {
        self.life.has_done_all(context)
    }

    fn begin(&mut self, intended: Instant, now: Instant, context: &mut WorkerContext<'_>) {
        self.life.begin(intended, now, context);
        self.life.start(now, context);
        match self.state {
            State::Kept if self.exchange.keeps_alive() => self.ask(context),
            // The server has announced that it accepts no more streams.
            State::Kept => {
                self.close(context);
                self.open(now, context);
            }
            _ => self.open(now, context),
        }
    }

    fn release(&mut self, _: Instant, _: &mut WorkerContext<'_>) {}

    fn settle(&mut self, now: Instant, context: &mut WorkerContext<'_>) {
        if !self.is_able(context) || self.has_done_all(context) {
            return;
        }
        if context.is_paced() {
            context.offer(self.life.index);
        } else if now < context.until {
            self.begin(now, now, context);
        }
    }

    fn wake(&mut self, now: Instant, context: &mut WorkerContext<'_>) {
        self.settle(now, context);
    }

    fn on_event(&mut self, _: Role, _: bool, context: &mut WorkerContext<'_>) {
        match self.state {
            State::Out => {}
            State::Connecting => self.on_connected(context),
            State::Securing => self.secure(context),
            State::Waiting | State::Kept if !self.has_asked => self.write(context),
            State::Waiting | State::Kept => {
                while self.read(context) && context.tells_once() && self.listens() {}
            }
        }
    }

    fn look_at_deadline(&mut self, now: Instant, context: &mut WorkerContext<'_>) {
        let is_waiting = matches!(self.state, State::Connecting | State::Securing | State::Waiting);
        if self.life.is_overdue(is_waiting, now, context) {
            self.time_out(context);
        }
    }

    fn time_out(&mut self, context: &mut WorkerContext<'_>) {
        let doing = match self.state {
            State::Out | State::Kept => return,
            State::Connecting => "its connect",
            State::Securing => "its handshake",
            State::Waiting => "a response",
        };
        let (patience, got) = (context.cell.settings.patience, self.exchange.all());
        self.fail(Fault::Timeout, context, || {
            format!("{doing} did not end in {patience:?}, after {got} bytes")
        });
    }

    fn abandon(&mut self, context: &mut WorkerContext<'_>) {
        if matches!(self.state, State::Connecting | State::Securing | State::Waiting) {
            self.life.count_bytes(self.exchange.body(), context);
            context.note_moved(self.exchange.body());
            context.busy -= 1;
        }
        self.close(context);
    }

    fn quit(&mut self, context: &mut WorkerContext<'_>) {
        self.close(context);
    }

    fn clear_warm_up(&mut self) {
        self.life.clear_warm_up();
    }

    fn counts(&self) -> UserTally {
        self.life.counts
    }
}

impl User {
    /// All users share the request, unless it contains their number.
    fn request(number: u32, context: &mut WorkerContext<'_>) -> Arc<Request> {
        let settings = &context.cell.settings;
        if let Some(request) = &context.request {
            return Arc::clone(request);
        }
        let path = match &settings.file {
            Some(_) => context.files.download(number),
            None => format!("/{}", context.target.path),
        };
        let request = Arc::new(Request::new(context.target, settings, &path));
        if settings.file.as_ref().is_none_or(|file| !file.contains("%d")) {
            context.request = Some(Arc::clone(&request));
        }
        request
    }

    fn open(&mut self, now: Instant, context: &mut WorkerContext<'_>) {
        self.state = State::Connecting;
        (self.connecting, self.connected_in) = (now, None);
        (self.served, self.exchange) = (0, Exchange::new(context.cell.settings.http));
        self.watched = Interest::Write;
        let rcvbuf = context.buffers.for_download(context.tally.document);
        let connected = stream::begin_connect_with(self.local, context.server_of(self.life.number), rcvbuf)
            .and_then(|descriptor| {
                let socket = context.own(descriptor);
                context.watch(&socket, self.life.index, Role::Control, Interest::Write).map(|()| socket)
            });
        match connected {
            Ok(socket) => self.link = Some(Link::plain(socket)),
            Err(error) => self.fail(Fault::Client, context, || format!("connect: {error}")),
        }
    }

    fn on_connected(&mut self, context: &mut WorkerContext<'_>) {
        let Some(link) = &mut self.link else { return };
        if let Err(error) = stream::connected(link.socket()) {
            return self.fail(Fault::Connect, context, || error.to_string());
        }
        Live::bump(&context.live.sessions, 1);
        match self.security.as_ref().map(Security::channel).transpose() {
            Ok(None) => self.on_secured(context),
            Ok(Some(channel)) => {
                self.state = State::Securing;
                link.encrypt(channel);
                self.secure(context);
            }
            Err(error) => self.fail(Fault::Client, context, || error.to_string()),
        }
    }

    /// Continues the handshake.
    fn secure(&mut self, context: &mut WorkerContext<'_>) {
        let Some(link) = &mut self.link else { return };
        // It waited until it could write; from here on it reads, too.
        self.watched = Interest::Read;
        let watched = context.watch_again(link.socket(), self.life.index, Role::Control, Interest::Read);
        match watched.and_then(|()| link.handshake(&mut context.buffer)) {
            Ok(false) => {}
            Ok(true) if context.cell.settings.http == HttpVersion::Http2 && !link.has_agreed_on(b"h2") => {
                self.fail(Fault::Tls, context, || "the server does not agree on HTTP/2 (ALPN)".to_owned());
            }
            Ok(true) => {
                context.tally.data_handshakes += 1;
                context.tally.data_resumed += u64::from(link.is_resumed());
                if context.tally.suite.is_none() {
                    context.tally.suite = link.suite();
                }
                self.on_secured(context);
            }
            Err(error) => self.fail(Fault::Tls, context, || error.to_string()),
        }
    }

    /// The connection is ready for requests.
    fn on_secured(&mut self, context: &mut WorkerContext<'_>) {
        self.connected_in = Some(self.connecting.elapsed());
        self.ask(context);
        // Data that arrived with the end of a handshake causes no event.
        while context.tells_once() && self.listens() && self.read(context) {}
    }

    fn ask(&mut self, context: &mut WorkerContext<'_>) {
        self.state = State::Waiting;
        self.has_asked = false;
        match self.exchange.begin(&self.request) {
            Ok(()) => self.write(context),
            Err(error) => self.fail(Fault::Protocol, context, || error.to_string()),
        }
    }

    fn write(&mut self, context: &mut WorkerContext<'_>) {
        let Some(link) = &mut self.link else { return };
        let rest = self.exchange.output();
        let written = if rest.is_empty() { Ok(0) } else { link.write(rest) };
        // A connection that is lost shows at the next read.
        self.has_asked = match written {
            Ok(count) => {
                self.exchange.note_written(count);
                self.exchange.output().is_empty() && link.flush().unwrap_or(true)
            }
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        let interest = if self.has_asked { Interest::Read } else { Interest::Write };
        if self.watched != interest || interest == Interest::Write {
            self.watched = interest;
            if let Err(error) = context.watch_again(link.socket(), self.life.index, Role::Control, interest) {
                self.fail(Fault::Client, context, || format!("watching the connection: {error}"));
            }
        }
    }

    /// Returns true if a response or the end of the stream is expected.
    fn listens(&self) -> bool {
        matches!(self.state, State::Waiting | State::Kept) && self.has_asked
    }

    /// Reads the available bytes.
    fn take(&mut self, context: &mut WorkerContext<'_>) -> io::Result<Taken> {
        let Some(link) = &mut self.link else { return Err(ErrorKind::WouldBlock.into()) };
        let (exchange, mut fed) = (&mut self.exchange, Ok(()));
        let heard = link.read_secret(&mut context.buffer, &mut |plain| {
            fed = fed.and_then(|()| exchange.feed(plain));
        });
        match heard {
            Some(heard) => {
                let heard = heard?;
                Ok(match (fed, heard) {
                    (Err(broken), _) => Taken::Broken(broken),
                    (Ok(()), Heard::Bytes { .. }) => Taken::Bytes,
                    (Ok(()), _) => Taken::End { is_cut: heard != Heard::End },
                })
            }
            None => take_plain(link, exchange, context),
        }
    }

    /// Returns true if there may be more.
    fn read(&mut self, context: &mut WorkerContext<'_>) -> bool {
        let was_fresh = self.exchange.is_fresh();
        let end = match self.take(context) {
            Ok(Taken::Bytes) => None,
            Ok(Taken::End { is_cut }) => Some(is_cut),
            Ok(Taken::Broken(broken)) => {
                self.fail(Fault::Protocol, context, || broken.to_string());
                return false;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(_) if self.may_repeat() => {
                self.repeat(context);
                return false;
            }
            Err(error) => {
                let is_of_tls = error.kind() == ErrorKind::InvalidData;
                let fault = if is_of_tls { Fault::Tls } else { Fault::ControlLost };
                self.fail(fault, context, || error.to_string());
                return false;
            }
        };
        if !self.exchange.output().is_empty() && self.has_asked {
            self.write(context);
        }
        let (is_fresh, is_over) = (self.exchange.is_fresh(), self.exchange.is_over());
        if was_fresh && !is_fresh {
            context.tally.first_byte.record(self.life.begun.elapsed());
        }
        let is_waiting = self.state == State::Waiting;
        if is_waiting && !is_fresh && !(was_fresh && is_over) {
            self.gap.note(Instant::now());
        }
        match end {
            _ if is_waiting && is_over => self.on_response(end.is_none(), context),
            Some(is_cut) => self.on_end(is_cut, context),
            None => return true,
        }
        end.is_none()
    }

    /// The server has closed.
    fn on_end(&mut self, is_cut: bool, context: &mut WorkerContext<'_>) {
        match self.state {
            State::Kept => self.close(context),
            // A response that ends with its connection is complete only after a close_notify (RFC 9112 section 9.8).
            _ if !is_cut && self.exchange.end() => self.on_response(false, context),
            _ if self.may_repeat() => self.repeat(context),
            _ if self.exchange.head().is_some() => {
                let got = self.exchange.body();
                self.fail(Fault::Truncated, context, || format!("closed after {got} bytes of the body"));
            }
            _ => self.fail(Fault::ControlLost, context, || "closed before a response".to_owned()),
        }
    }

    /// Returns true if the server may have closed a kept connection just when the request arrived.
    fn may_repeat(&self) -> bool {
        self.served > 0 && self.exchange.is_fresh()
    }

    fn repeat(&mut self, context: &mut WorkerContext<'_>) {
        self.close(context);
        self.open(Instant::now(), context);
    }

    /// `goes_on`: the connection has not ended with it.
    fn on_response(&mut self, goes_on: bool, context: &mut WorkerContext<'_>) {
        let (body, all) = (self.exchange.body(), self.exchange.all());
        let Some(head) = self.exchange.head() else { return };
        let status = head.status;
        let keeps_alive = goes_on && self.exchange.keeps_alive() && context.cell.settings.keep_alive;
        if context.tally.http_server.is_none() {
            context.tally.http_server = self.exchange.server().cloned();
        }
        self.life.record_gap(std::mem::take(&mut self.gap), context);
        self.served += 1;
        let connected_in = self.connected_in.take();
        if !(200..300).contains(&status) {
            let fault = if status == 503 { Fault::TurnedAway } else { Fault::Permanent };
            return self.refuse(fault, keeps_alive, context, || format!("status {status}"));
        }
        let first = *context.tally.document.get_or_insert(body);
        if body != first {
            return self.refuse(Fault::OtherLength, keeps_alive, context, || {
                format!("{body} bytes, where the first document had {first}")
            });
        }
        // The report compares these with the requests that ended well.
        if let Some(took) = connected_in {
            context.tally.connect.record(took);
            context.tally.slow_connects += u64::from(took >= SLOW_CONNECT);
        }
        context.tally.wire_bytes += all;
        context.tally.kept_alive += u64::from(keeps_alive);
        context.note_moved(body);
        self.life.record(Instant::now(), body, context);
        let think = match context.cell.pace() {
            Pace::Closed { think } => think,
            Pace::Rate(_) => Duration::ZERO,
        };
        self.rest(keeps_alive, think, context);
    }

    fn refuse(
        &mut self,
        fault: Fault,
        keeps_alive: bool,
        context: &mut WorkerContext<'_>,
        text: impl FnOnce() -> String,
    ) {
        self.life.count_fault(fault, false, context, text);
        self.rest(keeps_alive, AFTER_REFUSAL, context);
    }

    /// The operation is over; the connection may go on.
    fn rest(&mut self, keeps_alive: bool, pause: Duration, context: &mut WorkerContext<'_>) {
        if keeps_alive {
            self.state = State::Kept;
        } else {
            self.close(context);
        }
        context.busy -= 1;
        self.settle_after(pause, context);
    }

    fn fail(&mut self, fault: Fault, context: &mut WorkerContext<'_>, text: impl FnOnce() -> String) {
        self.life.record_gap(std::mem::take(&mut self.gap).given_up(Instant::now()), context);
        self.life.count_fault(fault, false, context, text);
        self.close(context);
        context.busy -= 1;
        self.settle_after(AFTER_LOSS, context);
    }

    fn close(&mut self, context: &mut WorkerContext<'_>) {
        if matches!(self.state, State::Securing | State::Waiting | State::Kept) {
            Live::bump(&context.live.sessions, u64::MAX);
        }
        self.state = State::Out;
        self.link = None;
    }

    fn settle_after(&mut self, pause: Duration, context: &mut WorkerContext<'_>) {
        let now = Instant::now();
        if pause.is_zero() { self.settle(now, context) } else { context.sleep(self.life.index, now + pause) }
    }
}
