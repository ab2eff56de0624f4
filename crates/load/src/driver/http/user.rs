//! One user of HTTP, in its loop.
//!
//! ```text
//! Out --connect--> Connecting --request--> Waiting --response--> Kept (keep-alive), or Out
//!                     '-> Securing -^         ^                    |
//!                                             '------- request ----'
//! ```
//!
//! Connecting is part of the operation, and no connection is made before the load: a kept connection's request
//! counts from when it is written. A server may close a kept connection at any time; a request that met that, and no
//! byte of an answer, is made again on a new one, once. In TLS each user has tickets of its own, and its connections
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
use crate::driver::worker::{Client, Desk, Interest, Role};
use crate::fault::Fault;
use crate::plan::HttpVersion;
use crate::schedule::Pace;
use crate::tally::{Live, UserTally};

/// A connect that takes so long had to be tried again (RFC 6298: the first timeout is a second).
const SLOW_CONNECT: Duration = Duration::from_secs(1);

/// One user.
pub(super) struct User {
    life: Life,
    state: State,
    link: Option<Link>,
    /// Where it is encrypted, with this user's tickets.
    security: Option<Security>,
    local: SocketAddr,
    exchange: Exchange,
    /// When its connection was begun.
    connecting: Instant,
    /// How long that took, its handshake included, until a response has come by it.
    connected_in: Option<Duration>,
    /// Of the response that is coming.
    gap: Gap,
    /// Responses on this connection.
    served: u32,
    request: Arc<Request>,
    /// The socket has taken all that was to be written.
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

/// What a look at the connection has come to.
enum Taken {
    /// Bytes, or none where these were TLS's own; there may be more.
    Bytes,
    /// The same, and the end of the stream; `is_cut`: which nobody has announced, though TLS has a word for it.
    End { is_cut: bool },
    /// What is no HTTP.
    Broken(ExchangeError),
}

/// Takes what has come in clear; of a body nobody looks at the bytes.
fn take_plain(link: &Link, exchange: &mut Exchange, desk: &mut Desk<'_>) -> io::Result<Taken> {
    let certain = exchange.certain();
    let count = if certain > 0 {
        let room = desk.discard.len().min(usize::try_from(certain).unwrap_or(usize::MAX));
        recv(link, &mut desk.discard[..room], RecvFlags::TRUNC)?.1
    } else {
        stream::read(link, &mut desk.buffer)?
    };
    let fed = match count {
        0 => return Ok(Taken::End { is_cut: false }),
        count if certain > 0 => exchange.skip(count as u64),
        count => exchange.feed(&desk.buffer[..count]),
    };
    Ok(fed.map_or_else(Taken::Broken, |()| Taken::Bytes))
}

impl Client for User {
    fn new(index: u32, number: u32, desk: &mut Desk<'_>) -> Self {
        let anywhere: IpAddr =
            if desk.server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let source = desk.cell.settings.source.as_ref().map(|range| range.address(number));
        Self {
            life: Life::new(index, number),
            state: State::Out,
            link: None,
            // It cannot fail where it has not failed for who looked whether the server is there.
            security: Security::of(desk.target, &desk.cell.settings)
                .ok()
                .flatten()
                .map(|security| security.renewed()),
            local: SocketAddr::new(source.unwrap_or(anywhere), 0),
            exchange: Exchange::new(desk.cell.settings.http),
            connecting: Instant::now(),
            connected_in: None,
            gap: Gap::default(),
            served: 0,
            request: Self::request(number, desk),
            has_asked: false,
            watched: Interest::Write,
        }
    }

    fn connect(&mut self, _: &mut Desk<'_>) {}

    fn is_able(&self, desk: &Desk<'_>) -> bool {
        matches!(self.state, State::Out | State::Kept) && !self.life.is_idler(desk)
    }

    fn has_done_all(&self, desk: &Desk<'_>) -> bool {
        self.life.has_done_all(desk)
    }

    fn begin(&mut self, intended: Instant, now: Instant, desk: &mut Desk<'_>) {
        self.life.begin(intended, now, desk);
        self.life.start(now, desk);
        match self.state {
            State::Kept if self.exchange.keeps_alive() => self.ask(desk),
            // The server has said that it serves no more streams.
            State::Kept => {
                self.close(desk);
                self.open(now, desk);
            }
            _ => self.open(now, desk),
        }
    }

    fn release(&mut self, _: Instant, _: &mut Desk<'_>) {}

    fn settle(&mut self, now: Instant, desk: &mut Desk<'_>) {
        if !self.is_able(desk) || self.has_done_all(desk) {
            return;
        }
        if desk.is_paced() {
            desk.offer(self.life.index);
        } else if now < desk.until {
            self.begin(now, now, desk);
        }
    }

    fn wake(&mut self, now: Instant, desk: &mut Desk<'_>) {
        self.settle(now, desk);
    }

    fn on_event(&mut self, _: Role, _: bool, desk: &mut Desk<'_>) {
        match self.state {
            State::Out => {}
            State::Connecting => self.on_connected(desk),
            State::Securing => self.secure(desk),
            State::Waiting | State::Kept if !self.has_asked => self.write(desk),
            State::Waiting | State::Kept => while self.read(desk) && desk.tells_once() && self.listens() {},
        }
    }

    fn look_at_deadline(&mut self, now: Instant, desk: &mut Desk<'_>) {
        let is_waiting = matches!(self.state, State::Connecting | State::Securing | State::Waiting);
        if self.life.is_overdue(is_waiting, now, desk) {
            self.time_out(desk);
        }
    }

    fn time_out(&mut self, desk: &mut Desk<'_>) {
        let doing = match self.state {
            State::Out | State::Kept => return,
            State::Connecting => "its connect",
            State::Securing => "its handshake",
            State::Waiting => "a response",
        };
        let (patience, got) = (desk.cell.settings.patience, self.exchange.all());
        self.fail(Fault::Timeout, desk, || format!("{doing} did not end in {patience:?}, after {got} bytes"));
    }

    fn abandon(&mut self, desk: &mut Desk<'_>) {
        if matches!(self.state, State::Connecting | State::Securing | State::Waiting) {
            self.life.count_bytes(self.exchange.body(), desk);
            desk.note_moved(self.exchange.body());
            desk.busy -= 1;
        }
        self.close(desk);
    }

    fn quit(&mut self, desk: &mut Desk<'_>) {
        self.close(desk);
    }

    fn clear_warm_up(&mut self) {
        self.life.clear_warm_up();
    }

    fn counts(&self) -> UserTally {
        self.life.counts
    }
}

impl User {
    /// All users share theirs, unless it has their number in it.
    fn request(number: u32, desk: &mut Desk<'_>) -> Arc<Request> {
        let settings = &desk.cell.settings;
        if let Some(request) = &desk.request {
            return Arc::clone(request);
        }
        let path = match &settings.file {
            Some(_) => desk.files.download(number),
            None => format!("/{}", desk.target.path),
        };
        let request = Arc::new(Request::new(desk.target, settings, &path));
        if settings.file.as_ref().is_none_or(|file| !file.contains("%d")) {
            desk.request = Some(Arc::clone(&request));
        }
        request
    }

    fn open(&mut self, now: Instant, desk: &mut Desk<'_>) {
        self.state = State::Connecting;
        (self.connecting, self.connected_in) = (now, None);
        (self.served, self.exchange) = (0, Exchange::new(desk.cell.settings.http));
        self.watched = Interest::Write;
        let rcvbuf = desk.cell.settings.rcvbuf.map(|size| size as usize);
        let connected = stream::begin_connect_with(self.local, desk.server_of(self.life.number), rcvbuf)
            .and_then(|descriptor| {
                let socket = desk.own(descriptor);
                desk.watch(&socket, self.life.index, Role::Control, Interest::Write).map(|()| socket)
            });
        match connected {
            Ok(socket) => self.link = Some(Link::plain(socket)),
            Err(error) => self.fail(Fault::Client, desk, || format!("connect: {error}")),
        }
    }

    fn on_connected(&mut self, desk: &mut Desk<'_>) {
        let Some(link) = &mut self.link else { return };
        if let Err(error) = stream::connected(link.socket()) {
            return self.fail(Fault::Connect, desk, || error.to_string());
        }
        Live::bump(&desk.live.sessions, 1);
        match self.security.as_ref().map(Security::channel).transpose() {
            Ok(None) => self.on_secured(desk),
            Ok(Some(channel)) => {
                self.state = State::Securing;
                link.encrypt(channel);
                self.secure(desk);
            }
            Err(error) => self.fail(Fault::Client, desk, || error.to_string()),
        }
    }

    /// The handshake goes on.
    fn secure(&mut self, desk: &mut Desk<'_>) {
        let Some(link) = &mut self.link else { return };
        // It was told that it can speak; from here on it listens, too.
        self.watched = Interest::Read;
        let watched = desk.watch_again(link.socket(), self.life.index, Role::Control, Interest::Read);
        match watched.and_then(|()| link.handshake(&mut desk.buffer)) {
            Ok(false) => {}
            Ok(true) if desk.cell.settings.http == HttpVersion::Http2 && !link.has_agreed_on(b"h2") => {
                self.fail(Fault::Tls, desk, || "the server does not agree on HTTP/2 (ALPN)".to_owned());
            }
            Ok(true) => {
                desk.tally.data_handshakes += 1;
                desk.tally.data_resumed += u64::from(link.is_resumed());
                if desk.tally.suite.is_none() {
                    desk.tally.suite = link.suite();
                }
                self.on_secured(desk);
            }
            Err(error) => self.fail(Fault::Tls, desk, || error.to_string()),
        }
    }

    /// It can ask.
    fn on_secured(&mut self, desk: &mut Desk<'_>) {
        self.connected_in = Some(self.connecting.elapsed());
        self.ask(desk);
        // Of what came with the end of a handshake no event will tell.
        while desk.tells_once() && self.listens() && self.read(desk) {}
    }

    fn ask(&mut self, desk: &mut Desk<'_>) {
        self.state = State::Waiting;
        self.has_asked = false;
        match self.exchange.begin(&self.request) {
            Ok(()) => self.write(desk),
            Err(error) => self.fail(Fault::Protocol, desk, || error.to_string()),
        }
    }

    fn write(&mut self, desk: &mut Desk<'_>) {
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
            if let Err(error) = desk.watch_again(link.socket(), self.life.index, Role::Control, interest) {
                self.fail(Fault::Client, desk, || format!("watching the connection: {error}"));
            }
        }
    }

    /// Claims that what comes is a response, or the end.
    fn listens(&self) -> bool {
        matches!(self.state, State::Waiting | State::Kept) && self.has_asked
    }

    /// Takes what has come.
    fn take(&mut self, desk: &mut Desk<'_>) -> io::Result<Taken> {
        let Some(link) = &mut self.link else { return Err(ErrorKind::WouldBlock.into()) };
        let (exchange, mut fed) = (&mut self.exchange, Ok(()));
        let heard = link.read_secret(&mut desk.buffer, &mut |plain| {
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
            None => take_plain(link, exchange, desk),
        }
    }

    /// Claims that there may be more.
    fn read(&mut self, desk: &mut Desk<'_>) -> bool {
        let was_fresh = self.exchange.is_fresh();
        let end = match self.take(desk) {
            Ok(Taken::Bytes) => None,
            Ok(Taken::End { is_cut }) => Some(is_cut),
            Ok(Taken::Broken(broken)) => {
                self.fail(Fault::Protocol, desk, || broken.to_string());
                return false;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(_) if self.may_repeat() => {
                self.repeat(desk);
                return false;
            }
            Err(error) => {
                let is_of_tls = error.kind() == ErrorKind::InvalidData;
                let fault = if is_of_tls { Fault::Tls } else { Fault::ControlLost };
                self.fail(fault, desk, || error.to_string());
                return false;
            }
        };
        if !self.exchange.output().is_empty() && self.has_asked {
            self.write(desk);
        }
        let (is_fresh, is_over) = (self.exchange.is_fresh(), self.exchange.is_over());
        if was_fresh && !is_fresh {
            desk.tally.first_byte.record(self.life.begun.elapsed());
        }
        let is_waiting = self.state == State::Waiting;
        if is_waiting && !is_fresh && !(was_fresh && is_over) {
            self.gap.note(Instant::now());
        }
        match end {
            _ if is_waiting && is_over => self.on_response(end.is_none(), desk),
            Some(is_cut) => self.on_end(is_cut, desk),
            None => return true,
        }
        end.is_none()
    }

    /// The server has closed.
    fn on_end(&mut self, is_cut: bool, desk: &mut Desk<'_>) {
        match self.state {
            State::Kept => self.close(desk),
            // What ends with its connection is whole only where TLS says that this is the end (RFC 9112 section 9.8).
            _ if !is_cut && self.exchange.end() => self.on_response(false, desk),
            _ if self.may_repeat() => self.repeat(desk),
            _ if self.exchange.head().is_some() => {
                let got = self.exchange.body();
                self.fail(Fault::Truncated, desk, || format!("closed after {got} bytes of the body"));
            }
            _ => self.fail(Fault::ControlLost, desk, || "closed before a response".to_owned()),
        }
    }

    /// The server closed a kept connection just when a request came.
    fn may_repeat(&self) -> bool {
        self.served > 0 && self.exchange.is_fresh()
    }

    fn repeat(&mut self, desk: &mut Desk<'_>) {
        self.close(desk);
        self.open(Instant::now(), desk);
    }

    /// `goes_on`: the connection has not ended with it.
    fn on_response(&mut self, goes_on: bool, desk: &mut Desk<'_>) {
        let (body, all) = (self.exchange.body(), self.exchange.all());
        let Some(head) = self.exchange.head() else { return };
        let status = head.status;
        let keeps_alive = goes_on && self.exchange.keeps_alive() && desk.cell.settings.keep_alive;
        if desk.tally.http_server.is_none() {
            desk.tally.http_server = self.exchange.server().cloned();
        }
        self.life.record_gap(std::mem::take(&mut self.gap), desk);
        self.served += 1;
        let connected_in = self.connected_in.take();
        if !(200..300).contains(&status) {
            let fault = if status == 503 { Fault::TurnedAway } else { Fault::Permanent };
            return self.refuse(fault, keeps_alive, desk, || format!("status {status}"));
        }
        let first = *desk.tally.document.get_or_insert(body);
        if body != first {
            return self.refuse(Fault::OtherLength, keeps_alive, desk, || {
                format!("{body} bytes, where the first document had {first}")
            });
        }
        // What the report holds against the requests that ended well must be of these.
        if let Some(took) = connected_in {
            desk.tally.connect.record(took);
            desk.tally.slow_connects += u64::from(took >= SLOW_CONNECT);
        }
        desk.tally.wire_bytes += all;
        desk.tally.kept_alive += u64::from(keeps_alive);
        desk.note_moved(body);
        self.life.record(Instant::now(), body, desk);
        let think = match desk.cell.pace() {
            Pace::Closed { think } => think,
            Pace::Rate(_) => Duration::ZERO,
        };
        self.rest(keeps_alive, think, desk);
    }

    fn refuse(
        &mut self,
        fault: Fault,
        keeps_alive: bool,
        desk: &mut Desk<'_>,
        text: impl FnOnce() -> String,
    ) {
        self.life.count_fault(fault, false, desk, text);
        self.rest(keeps_alive, AFTER_REFUSAL, desk);
    }

    /// The operation is over; the connection may go on.
    fn rest(&mut self, keeps_alive: bool, pause: Duration, desk: &mut Desk<'_>) {
        if keeps_alive {
            self.state = State::Kept;
        } else {
            self.close(desk);
        }
        desk.busy -= 1;
        self.settle_after(pause, desk);
    }

    fn fail(&mut self, fault: Fault, desk: &mut Desk<'_>, text: impl FnOnce() -> String) {
        self.life.record_gap(std::mem::take(&mut self.gap).given_up(Instant::now()), desk);
        self.life.count_fault(fault, false, desk, text);
        self.close(desk);
        desk.busy -= 1;
        self.settle_after(AFTER_LOSS, desk);
    }

    fn close(&mut self, desk: &mut Desk<'_>) {
        if matches!(self.state, State::Securing | State::Waiting | State::Kept) {
            Live::bump(&desk.live.sessions, u64::MAX);
        }
        self.state = State::Out;
        self.link = None;
    }

    fn settle_after(&mut self, pause: Duration, desk: &mut Desk<'_>) {
        let now = Instant::now();
        if pause.is_zero() { self.settle(now, desk) } else { desk.sleep(self.life.index, now + pause) }
    }
}
