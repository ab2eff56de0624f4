//! One user: a session in its loop.
//!
//! ```text
//!        connect        220          230          200
//! Out ----------> Connecting -> LoggingIn -> SettingUp --> Free --begin--> Transferring | Pinging
//!  ^                  '- Securing -^ AUTH TLS                  ^                  |
//!  |<--- the connection is lost ---------------------------------<---------------|  226, 200, 4xx, 5xx
//!  |<--- Leaving <-- QUIT ------------------------------------|
//! ```
//!
//! Implicit TLS is secured before the greeting: `Securing` is then before `Connecting`.
//!
//! With a death rule, a user with a fault is out for good.
//!
//! For `login` the whole way from `Out` to `Out` is the operation; it ends for the clock at the 230. A user with a
//! fault continues after a pause; one that lost its session logs in again.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use millrace_ftp::client::{ClientError, ClientEvent, ClientSession, ReplyReader};
use millrace_net::{listener, stream};

use super::setup;
use super::transfer::{Next, Transfer, words};
use crate::driver::life::{AFTER_LOSS, AFTER_REFUSAL, Life};
use crate::driver::security::{Link, Security};
use crate::driver::worker::{Client, Interest, Role, WorkerContext};
use crate::fault::Fault;
use crate::plan::Job;
use crate::plan::{Mode, Op, Prot, SourceRange};
use crate::schedule::Pace;
use crate::tally::{Live, UserTally};

/// One user.
pub(super) struct User {
    life: Life,
    state: State,
    control: Option<Link>,
    /// For this target and session, with its own tickets.
    security: Option<Security>,
    tickets: Option<Security>,
    /// The present job of a replayed log.
    job: Option<Job>,
    /// The number of its control connections: it identifies late input of an old one.
    connection: u32,
    /// The address that it connects from; found out where the kernel chose.
    local: SocketAddr,
    session: ClientSession,
    reader: ReplyReader,
}

// Not boxed, because under load nearly every user is transferring: that would be an allocation for each operation.
#[allow(clippy::large_enum_variant)]
enum State {
    Out,
    Connecting,
    /// The handshake is under way, or `AUTH TLS` was sent.
    Securing,
    LoggingIn,
    /// The commands that remain after the login.
    SettingUp(&'static [[&'static [u8]; 2]]),
    Free,
    Transferring(Transfer),
    Pinging,
    Leaving,
}

impl Client for User {
    fn new(index: u32, number: u32, context: &mut WorkerContext<'_>) -> Self {
        let anywhere: IpAddr = if context.server.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        let source = context.cell.settings.source.as_ref().map(|range: &SourceRange| range.address(number));
        Self {
            life: Life::new(index, number),
            state: State::Out,
            control: None,
            // It cannot fail, because it succeeded for the blocking session before.
            security: Security::of(context.target, &context.cell.settings).ok().flatten(),
            tickets: None,
            job: None,
            connection: 0,
            local: SocketAddr::new(source.unwrap_or(anywhere), 0),
            session: ClientSession::new(context.server_of(number)),
            reader: ReplyReader::default(),
        }
    }

    fn connect(&mut self, context: &mut WorkerContext<'_>) {
        let now = Instant::now();
        if context.cell.op != Op::Login {
            (self.life.intended, self.life.begun) = (now, now);
        }
        self.tickets = self.security.as_ref().map(Security::renewed);
        let is_implicit = self.tickets.as_ref().is_some_and(|security| security.is_implicit);
        // The side that speaks first waits until it can write.
        let (state, interest) = match is_implicit {
            true => (State::Securing, Interest::Write),
            false => (State::Connecting, Interest::Read),
        };
        self.start(state, now, context);
        self.connection += 1;
        let server = context.server_of(self.life.number);
        self.session = ClientSession::new(server);
        self.reader = ReplyReader::default();
        let connected = stream::begin_connect(self.local, server).and_then(|descriptor| {
            let socket = context.own(descriptor);
            context.watch(&socket, self.life.index, Role::Control, interest).map(|()| socket)
        });
        let connected = connected.and_then(|socket| {
            let mut link = Link::plain(socket);
            if let Some(security) = self.tickets.as_ref().filter(|_| is_implicit) {
                link.encrypt(security.channel()?);
            }
            Ok(link)
        });
        match connected {
            Ok(link) => self.control = Some(link),
            Err(error) => self.lose(Fault::Client, context, || format!("connect: {error}")),
        }
    }

    fn is_able(&self, context: &WorkerContext<'_>) -> bool {
        match self.state {
            _ if self.life.is_idler(context) => false,
            State::Out => context.cell.op == Op::Login,
            State::Free => context.cell.op != Op::Login,
            _ => false,
        }
    }

    fn has_done_all(&self, context: &WorkerContext<'_>) -> bool {
        self.life.has_done_all(context)
    }

    fn begin(&mut self, intended: Instant, now: Instant, context: &mut WorkerContext<'_>) {
        self.job = self.life.next_job(context).map(|(job, _)| job);
        self.life.begin(intended, now, context);
        match context.cell.op {
            Op::Login => self.connect(context),
            Op::Noop => {
                self.start(State::Pinging, now, context);
                self.session.command(b"NOOP", b"", &mut context.out);
                self.send(context);
            }
            Op::Idle | Op::Get => {}
            Op::Quit => self.quit(context),
            Op::Retr | Op::Stor | Op::List | Op::Nlst | Op::Mlsd | Op::Replay => {
                self.begin_transfer(now, context)
            }
        }
    }

    fn release(&mut self, now: Instant, context: &mut WorkerContext<'_>) {
        if let State::Transferring(transfer) = &mut self.state {
            (self.life.intended, self.life.begun) = (now, now);
            self.life.counts.began = Some(Instant::now());
            self.life.be_patient_from(now, context);
            transfer.release(&mut self.session, context);
            self.send(context);
        }
    }

    fn settle(&mut self, now: Instant, context: &mut WorkerContext<'_>) {
        if context.is_paced() && self.is_able(context) {
            context.offer(self.life.index);
        } else if now < context.until && !self.has_done_all(context) {
            match self.state {
                _ if self.is_able(context) => match self.life.next_job(context) {
                    Some((_, at)) if at > now => context.sleep(self.life.index, at),
                    Some((_, at)) => self.begin(at, now, context),
                    None => self.begin(now, now, context),
                },
                State::Out => self.connect(context),
                _ => {}
            }
        }
    }

    fn wake(&mut self, now: Instant, context: &mut WorkerContext<'_>) {
        match &self.state {
            State::Transferring(_) => self.on_data(false, context),
            _ => self.settle(now, context),
        }
    }

    fn on_event(&mut self, role: Role, hung_up: bool, context: &mut WorkerContext<'_>) {
        match role {
            Role::Control => self.on_control(context),
            Role::Data => self.on_data(hung_up, context),
            Role::Listener => self.on_listener(context),
        }
    }

    fn look_at_deadline(&mut self, now: Instant, context: &mut WorkerContext<'_>) {
        let is_waiting = !matches!(self.state, State::Out | State::Free);
        if self.life.is_overdue(is_waiting, now, context) {
            self.time_out(context);
        }
    }

    fn time_out(&mut self, context: &mut WorkerContext<'_>) {
        let doing = match &self.state {
            State::Out | State::Free => return,
            State::Connecting => "its greeting".to_owned(),
            State::Securing => "its handshake".to_owned(),
            State::LoggingIn | State::SettingUp(_) => "its login".to_owned(),
            State::Pinging => "a NOOP".to_owned(),
            State::Leaving => "a QUIT".to_owned(),
            State::Transferring(transfer) => transfer.to_string(),
        };
        let patience = context.cell.settings.patience;
        self.lose(Fault::Timeout, context, || format!("{doing} did not end in {patience:?}"));
    }

    fn abandon(&mut self, context: &mut WorkerContext<'_>) {
        if let State::Transferring(transfer) = &self.state {
            let moved = transfer.moved();
            self.life.count_bytes(moved, context);
        }
        match self.state {
            State::Out => {}
            State::Free => {
                context.busy += 1; // it was doing nothing, and that has ended
                self.leave(context);
            }
            _ => self.leave(context),
        }
    }

    fn quit(&mut self, context: &mut WorkerContext<'_>) {
        if matches!(self.state, State::Free) {
            self.start(State::Leaving, Instant::now(), context);
            self.session.quit(&mut context.out);
            self.send(context);
        }
    }

    fn clear_warm_up(&mut self) {
        self.life.clear_warm_up();
    }

    fn counts(&self) -> UserTally {
        self.life.counts
    }
}

impl User {
    fn begin_transfer(&mut self, now: Instant, context: &mut WorkerContext<'_>) {
        let local = match context.cell.mode {
            Some(Mode::Port | Mode::Eprt) => self.local_address(),
            _ => self.local,
        };
        let transfer = Transfer::begin(
            self.life.index,
            self.job,
            &mut self.life.counts,
            local,
            &mut self.session,
            context,
        );
        let transfer = transfer.and_then(|transfer| match &self.tickets {
            Some(security) if security.prot == Prot::Private => Ok(transfer.encrypted(security.channel()?)),
            _ => Ok(transfer),
        });
        match transfer {
            Ok(transfer) => {
                self.start(State::Transferring(transfer), now, context);
                self.send(context);
            }
            Err(error) => {
                context.busy += 1;
                self.fail(Fault::Client, context, || format!("no data connection: {error}"));
            }
        }
    }

    fn start(&mut self, state: State, now: Instant, context: &mut WorkerContext<'_>) {
        self.state = state;
        self.life.start(now, context);
    }

    /// Input has arrived on the control connection, or it has ended.
    fn on_control(&mut self, context: &mut WorkerContext<'_>) {
        let connection = self.connection;
        loop {
            // A greeting may have arrived with the end of the handshake, without a further event.
            let was_handshaking = self.control.as_ref().is_some_and(Link::is_handshaking);
            let may_be_more = self.hear(context) && self.connection == connection;
            if !may_be_more || !(was_handshaking || context.tells_once()) {
                break;
            }
        }
        self.look_for_data(context);
    }

    /// Reads what has arrived. Returns true if there may be more.
    fn hear(&mut self, context: &mut WorkerContext<'_>) -> bool {
        let Some(control) = &mut self.control else { return false };
        if control.is_handshaking() {
            self.on_handshake(context);
            return self.control.as_ref().is_some_and(|control| !control.is_handshaking());
        }
        let mut plain = std::mem::take(&mut context.plain);
        let heard = control.read(&mut context.buffer, &mut plain);
        let may_be_more = matches!(heard, Ok(1..));
        match heard {
            Ok(0) => self.on_end(context),
            Ok(_) => {
                let connection = self.connection;
                let mut reader = std::mem::take(&mut self.reader);
                let result = self.on_replies(&mut reader, &plain, context);
                if self.connection == connection {
                    self.reader = reader;
                }
                if let Err(error) = result {
                    self.lose(Fault::Protocol, context, || error.to_string());
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => {
                let fault =
                    if matches!(self.state, State::Connecting) { Fault::Connect } else { Fault::ControlLost };
                self.lose(fault, context, || error.to_string());
            }
        }
        context.plain = plain;
        may_be_more
    }

    /// Continues the handshake of the control connection.
    fn on_handshake(&mut self, context: &mut WorkerContext<'_>) {
        let Some(control) = &mut self.control else { return };
        let index = self.life.index;
        // It waited until it could write; from here on it reads, too.
        let watched = context.watch_again(control.socket(), index, Role::Control, Interest::Read);
        match watched.and_then(|()| control.handshake(&mut context.buffer)) {
            Ok(false) => {}
            Ok(true) => {
                if context.tally.suite.is_none() {
                    context.tally.suite = control.suite();
                }
                if self.tickets.as_ref().is_some_and(|security| security.is_implicit) {
                    self.state = State::Connecting; // its greeting comes
                } else {
                    self.log_in(context);
                    self.send(context);
                }
            }
            Err(error) => self.lose(Fault::Tls, context, || error.to_string()),
        }
    }

    fn log_in(&mut self, context: &mut WorkerContext<'_>) {
        self.state = State::LoggingIn;
        let (user, password) = (context.target.user.as_bytes(), context.target.password.as_bytes());
        self.session.log_in(user, password, &mut context.out);
    }

    /// The server has accepted `AUTH TLS`: everything else is encrypted.
    fn secure(&mut self, context: &mut WorkerContext<'_>) {
        let channel = self.tickets.as_ref().map(Security::channel).transpose();
        match (channel, &mut self.control) {
            (Ok(Some(channel)), Some(control)) => {
                control.encrypt(channel);
                self.on_handshake(context);
            }
            (Err(error), _) => self.lose(Fault::Client, context, || error.to_string()),
            _ => {}
        }
    }

    fn on_replies(
        &mut self,
        reader: &mut ReplyReader,
        mut input: &[u8],
        context: &mut WorkerContext<'_>,
    ) -> Result<(), ClientError> {
        let connection = self.connection;
        while let Some(reply) = reader.next(&mut input)? {
            let event = self.session.receive(reply, &mut context.out)?;
            self.on_reply(event, context);
            if self.connection != connection || self.control.is_none() {
                break;
            }
            self.send(context);
        }
        Ok(())
    }

    fn on_reply(&mut self, event: ClientEvent<'_>, context: &mut WorkerContext<'_>) {
        match (&mut self.state, event) {
            (State::Leaving, ClientEvent::Closing(_)) if context.cell.op == Op::Quit => {
                self.life.record(Instant::now(), 0, context);
            }
            (State::Leaving, ClientEvent::Closing(_)) => {} // the server closes
            (_, ClientEvent::Closing(reply)) => self.lose(Fault::TurnedAway, context, || words(reply)),
            (State::Connecting, ClientEvent::Greeted) => {
                if self.tickets.as_ref().is_some_and(|security| !security.is_implicit) {
                    self.state = State::Securing;
                    self.session.command(b"AUTH", b"TLS", &mut context.out);
                } else {
                    self.log_in(context);
                }
            }
            (State::Securing, ClientEvent::Done(_)) => self.secure(context),
            (State::Securing, ClientEvent::Refused(reply)) => self.lose(Fault::Tls, context, || words(reply)),
            (State::LoggingIn, ClientEvent::LoggedIn) => self.on_logged_in(context),
            (State::Connecting | State::LoggingIn | State::SettingUp(_), ClientEvent::Refused(reply)) => {
                self.lose(Fault::Login, context, || words(reply));
            }
            (State::SettingUp(left), ClientEvent::Done(_)) if !left.is_empty() => {
                let left = *left;
                self.set_up(left, context);
            }
            (State::SettingUp(_), ClientEvent::Done(_)) => {
                if let Some(ramp) = &mut context.ramp {
                    ramp.note_birth(Instant::now());
                }
                self.rest(context);
            }
            (State::Pinging, ClientEvent::Done(_)) => self.complete(0, context),
            (State::Pinging, ClientEvent::Refused(reply)) => {
                self.fail(Fault::of_reply(reply.code), context, || words(reply));
            }
            (State::Leaving, ClientEvent::Refused(_)) => self.on_end(context),
            (State::Transferring(transfer), event) => {
                let next = transfer.on_reply(event, &mut self.session, context);
                self.follow(next, context);
            }
            _ => {} // an answer on the way
        }
    }

    fn on_logged_in(&mut self, context: &mut WorkerContext<'_>) {
        let now = Instant::now();
        context.tally.login.record(now - self.life.begun);
        Live::bump(&context.live.sessions, 1);
        if context.cell.op == Op::Login {
            self.life.record(now, 0, context);
            self.state = State::Leaving;
            self.session.quit(&mut context.out);
        } else {
            self.set_up(setup(self.security.as_ref()), context);
        }
    }

    /// Sends the next command of a session's setup.
    fn set_up(&mut self, commands: &'static [[&'static [u8]; 2]], context: &mut WorkerContext<'_>) {
        if let Some(([verb, argument], left)) = commands.split_first() {
            self.state = State::SettingUp(left);
            self.session.command(verb, argument, &mut context.out);
        }
    }

    fn on_data(&mut self, hung_up: bool, context: &mut WorkerContext<'_>) {
        if let State::Transferring(transfer) = &mut self.state {
            let next = transfer.move_bytes(hung_up, context);
            self.follow(next, context);
        }
    }

    /// Data sockets are watched only once they would block: where a reply has arrived, so have small files.
    fn look_for_data(&mut self, context: &mut WorkerContext<'_>) {
        if let State::Transferring(transfer) = &mut self.state
            && transfer.is_worth_a_look()
        {
            let next = transfer.move_bytes(false, context);
            self.follow(next, context);
        }
    }

    fn on_listener(&mut self, context: &mut WorkerContext<'_>) {
        if let State::Transferring(transfer) = &mut self.state {
            transfer.accept(context);
            let next = transfer.move_bytes(false, context);
            self.follow(next, context);
        }
    }

    fn follow(&mut self, next: Next, context: &mut WorkerContext<'_>) {
        match next {
            Next::Wait => {}
            Next::Complete { moved } => self.complete(moved, context),
            Next::Fail(fault, text) => self.fail(fault, context, || text),
        }
    }

    /// The server has closed the control connection.
    fn on_end(&mut self, context: &mut WorkerContext<'_>) {
        match self.state {
            State::Leaving => {
                self.leave(context);
                self.settle_after(Duration::ZERO, context);
            }
            State::Connecting => {
                self.lose(Fault::TurnedAway, context, || "closed before its greeting".to_owned())
            }
            _ => self.lose(Fault::ControlLost, context, || "closed by the server".to_owned()),
        }
    }

    fn complete(&mut self, moved: u64, context: &mut WorkerContext<'_>) {
        if let State::Transferring(transfer) = &self.state {
            // A log's downloads have no relation to its uploads.
            self.life.counts.confirmed = transfer.upload().or(self.life.counts.confirmed);
            self.life.record_gap(transfer.gap(Instant::now()), context);
        }
        self.life.record(Instant::now(), moved, context);
        self.rest(context);
    }

    /// The operation is over and the session is free.
    fn rest(&mut self, context: &mut WorkerContext<'_>) {
        let was_operation = !matches!(self.state, State::SettingUp(_));
        self.state = State::Free;
        context.busy -= 1;
        let think = match context.cell.pace() {
            Pace::Closed { think } if was_operation => think,
            _ => Duration::ZERO,
        };
        self.settle_after(think, context);
    }

    /// The operation has failed, and the session can go on.
    fn fail(&mut self, fault: Fault, context: &mut WorkerContext<'_>, text: impl FnOnce() -> String) {
        if context.ramp.is_some() {
            return self.lose(fault, context, text);
        }
        self.count_fault(fault, context, text);
        self.state = State::Free;
        context.busy -= 1;
        self.settle_after(AFTER_REFUSAL, context);
    }

    /// The session is lost, with whatever it was doing.
    fn lose(&mut self, fault: Fault, context: &mut WorkerContext<'_>, text: impl FnOnce() -> String) {
        self.count_fault(fault, context, text);
        if matches!(self.state, State::Free) {
            context.busy += 1; // it was doing nothing, and that has ended
        }
        self.leave(context);
        self.settle_after(AFTER_LOSS, context);
    }

    fn count_fault(&mut self, fault: Fault, context: &mut WorkerContext<'_>, text: impl FnOnce() -> String) {
        if let State::Transferring(transfer) = &self.state {
            self.life.record_gap(transfer.gap(Instant::now()), context);
        }
        let is_connecting =
            !matches!(self.state, State::Free | State::Transferring(_) | State::Pinging | State::Leaving);
        self.life.count_fault(fault, is_connecting, context, text);
    }

    fn leave(&mut self, context: &mut WorkerContext<'_>) {
        if !matches!(self.state, State::Connecting | State::Securing | State::LoggingIn) {
            Live::bump(&context.live.sessions, u64::MAX);
        }
        self.state = State::Out;
        self.control = None;
        context.out.clear();
        context.busy -= 1;
    }

    fn settle_after(&mut self, pause: Duration, context: &mut WorkerContext<'_>) {
        let now = Instant::now();
        if pause.is_zero() { self.settle(now, context) } else { context.sleep(self.life.index, now + pause) }
    }

    /// Sends the pending output. A lost connection shows at the next read.
    fn send(&mut self, context: &mut WorkerContext<'_>) {
        if let Some(control) = &mut self.control
            && !context.out.is_empty()
        {
            let _ = control.write(&context.out);
        }
        context.out.clear();
    }

    fn local_address(&mut self) -> SocketAddr {
        if self.local.ip().is_unspecified()
            && let Some(control) = &self.control
            && let Ok(local) = listener::local_address(control)
        {
            self.local = SocketAddr::new(local.ip(), 0);
        }
        self.local
    }
}
