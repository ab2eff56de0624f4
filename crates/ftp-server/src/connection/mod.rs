//! A control connection: feeds lines to its [`Session`], performs what the session asks for.
//!
//! The loop is [`Connection::feed`]: give the session an input, write its replies, perform its act; where
//! that yields the next input at once (a cached answer, a transfer that was done in one go), go round again.
//! What cannot be answered now comes back as a message or an event and enters the same loop.
//!
//! Replies are collected and sent together when the connection has no more to do for now, or before it
//! waits. A client that does not take its replies is not read from, so it costs one buffer.
//!
//! Its parts own their state: [`Wire`] the socket and TLS, [`Lines`] what the session does not take yet, [`Login`] the
//! account, [`Data`] the data connection and its transfer, [`SessionHooks`] what hooks are asked and told, [`Question`] what
//! a pool was asked. What a part needs of the others it is given as a `Scene`; inputs for the session go back to here.

mod admin;
mod asking;
mod data;
mod data_end;
mod deadlines;
pub(crate) mod door;
mod early;
mod ending;
mod hook_queue;
mod hooking;
pub(crate) mod hosts;
mod lines;
mod login;
pub(crate) mod message;
mod passive_port;
mod question;
mod reading;
mod refusals;
mod reviews;
mod scene;
mod secure;
mod session_class;
mod session_hooks;
mod trace;
mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use millrace_accounts::{Account, Resumption};
use millrace_ftp::Session;
use millrace_ftp::session::{Act, Answer, Input, Outcome, TransferError};
use millrace_log as log;
use millrace_metrics::Verb;
use millrace_net::listener;
use millrace_runtime::passive::ticket_isolation::Companion;
use millrace_runtime::slab::Key;
use millrace_runtime::wheel_entry::WheelEntry;
use millrace_runtime::worker::{Core, Newcomer, Way};
use mio::event::Event;

use self::data::Data;
use self::door::Door;
use self::lines::Lines;
use self::login::{Login, LoginScene, Review};
use self::message::Message;
use self::question::Question;
use self::refusals::{About, Answered};
use self::reviews::Reviewed;
use self::scene::{Identity, Scene};
use self::secure::Secure;
use self::session_hooks::SessionHooks;
use self::wire::Wire;

/// One client. Everything that only some moments need is behind an `Option` or an empty `Vec`, so that
/// an idle one is small.
#[derive(Debug)]
pub struct Connection {
    /// What connections of the worker share.
    door: Arc<Door>,
    number: u64,
    began: Instant,
    session: Session,
    /// The proxy that it came by, and where that connected to.
    way: Option<Box<(Way, SocketAddr)>>,
    wire: Wire,
    lines: Lines,
    login: Login,
    data: Data,
    hooks: SessionHooks,
    /// The command of the last transfer.
    transferring: Verb,
    /// The question that the blocking pool answers.
    question: Option<Box<Question>>,
    /// Why the server ends the session.
    parting: Option<Box<str>>,
    /// When the wheel will have this connection looked at.
    wheel_entry: WheelEntry,
}

impl Connection {
    /// The connection of a client that was admitted.
    pub fn new<D>(key: Key, door: &Arc<Door>, newcomer: Newcomer<D>, core: &mut Core) -> Self {
        let Newcomer { socket, peer, bound, way, member, admission, .. } = newcomer;
        // Counted out when the session ends.
        admission.keep();
        let local = match bound.ip().is_unspecified() {
            false => bound,
            true => listener::local_address(&socket).unwrap_or(bound),
        };
        let way = way.map(|way| Box::new((way, local)));
        // To its client the server is where the client connected to.
        let facing = way.as_ref().and_then(|way| way.0.facing).unwrap_or(local);
        let session = Session::new(door.ftp.settings().of_client("", facing), peer, facing, core.now);
        Self {
            door: Arc::clone(door),
            number: core.services.next_session.fetch_add(1, Ordering::Relaxed),
            began: core.now.instant,
            session,
            way,
            wire: Wire::new(key, socket, core),
            lines: Lines::default(),
            login: Login::new(member, core.now.instant),
            data: Data::default(),
            hooks: SessionHooks::new(core),
            question: None,
            transferring: Verb::OTHER,
            parting: None,
            wheel_entry: WheelEntry::default(),
        }
    }

    /// The close that follows is a reset.
    pub fn reset(&self) {
        self.wire.reset();
    }

    /// The first thing on a connection: the greeting, or where TLS is `implicit` the handshake, unless a hook objects.
    pub fn greet(&mut self, core: &mut Core, implicit: bool) {
        let proxy = self.way.as_ref().map(|way| way.0.proxy);
        self.log(core, log::Event::Connected { proxy });
        let (hooks, me) = self.hook_parts();
        if !hooks.ask_about_connection(core, me, implicit) {
            self.begin(core, implicit);
        }
    }

    /// Another thread has something for it.
    pub fn told(&mut self, core: &mut Core, message: Message) {
        match message {
            Message::Answer(serial, answer) => self.answered(core, serial, answer),
            Message::Login(serial, decision) => {
                let Some(question) = self.question.take_if(|question| question.serial == serial) else {
                    return;
                };
                let (login, mut scene) = self.login_parts(core);
                if let Some(verdict) = login.decided(&mut scene, *question, decision) {
                    self.feed(core, Input::Answer(Answer::Login(verdict)));
                }
            }
            Message::Reviewed(reviewed) => self.reviewed(core, *reviewed),
            Message::Job(done) => {
                self.transfer_by(core, |data, scene| data.job_done(scene, done));
            }
            Message::Port(lease) => {
                let (data, mut scene) = self.data_parts(core);
                if let Some(listening) = data.port.granted(&mut scene, lease) {
                    self.feed(core, Input::Answer(listening));
                }
            }
            Message::Ruled(serial, ruling) => self.ruled(core, serial, ruling),
            Message::Wake => self.continue_transfer(core),
        }
    }

    /// The reactor says something of the control socket.
    pub fn control_event(&mut self, core: &mut Core, event: &Event) {
        self.wire.state.take_event(event, false);
        if event.is_writable() && !self.wire.state.is_broken() {
            self.send(core);
            if self.data.is_on_control() {
                self.continue_transfer(core);
            }
        }
    }

    /// The reactor says something of the data connection, or of the listener.
    pub fn data_event(&mut self, core: &mut Core, event: &Event) {
        self.transfer_by(core, |data, scene| data.event(scene, event));
    }

    /// Moves the transfer on, and tells the session if it ended.
    pub fn continue_transfer(&mut self, core: &mut Core) {
        self.transfer_by(core, Data::go_on);
    }

    /// The next turn of a transfer that used up its share.
    pub fn next_turn(&mut self, core: &mut Core) {
        self.transfer_by(core, Data::next_turn);
    }

    /// The share of the next turn that handshakes have has come.
    pub fn shake_hands(&mut self, _: &mut Core) {
        self.wire.shake_hands();
    }

    /// Reads on where reading is possible, sends what there is to say, sets the clock. Returns whether the
    /// connection goes on.
    pub fn settle(&mut self, core: &mut Core) -> bool {
        if self.wire.is_left {
            self.wire.drain(core);
        } else {
            self.read_on(core);
            while self.wire.state.has_hung_up() && !self.wire.state.is_broken() && self.hang_up(core) {
                self.read_on(core);
            }
            if self.wire.state.has_hung_up() {
                self.hooks.note_hang_up(core.now.instant);
            }
            self.send(core);
            if self.is_over() {
                self.leave(core);
            }
        }
        admin::note_wait(self, core.now.instant);
        let state = &self.wire.state;
        if self.wire.is_left && (state.is_broken() || state.has_hung_up() || core.ending) {
            return false;
        }
        self.wheel_entry.cover(self.due(), &mut core.wheel, self.wire.key);
        true
    }

    /// Gives the session an input and does what it wants, for as long as that yields the next input.
    fn feed(&mut self, core: &mut Core, input: Input<'_>) {
        let about = About::of(&input);
        self.feed_about(core, input, about);
    }

    /// The same where it is known which line an answer is about.
    fn feed_about(&mut self, core: &mut Core, input: Input<'_>, about: About<'_>) {
        let mut next = self.step(core, input, about);
        while let Some(input) = next {
            let about = about.then(&input);
            next = self.step(core, input, about);
        }
        if let (Some(question), About::Line(line)) = (&mut self.question, about)
            && question.line.is_empty()
        {
            question.line = refusals::shown(line).into();
        }
    }

    fn step(&mut self, core: &mut Core, input: Input<'_>, about: About<'_>) -> Option<Input<'static>> {
        let (hooks, me) = self.hook_parts();
        hooks.note_limit(core, me, &input);
        self.me().tell_failure(core, about, &input);
        self.me().trace_input(core, &input);
        let answered = Answered::by(&input);
        let step = self.session.handle(core.now, input);
        step.replies.write(&mut core.out);
        self.me().trace_replies(core, &step.replies);
        self.me().tell_refusals(core, about, &step.replies);
        self.me().count_replies(core, answered, self.transferring, &step.replies);
        if let Some(bound) = step.bound {
            self.log(core, log::Event::Limited { reached: &bound.into(), reason: None });
        }
        if matches!(step.act, Some(Act::Close)) {
            self.parting = refusals::parting(&step.replies);
        }
        let (hooks, me) = self.hook_parts();
        hooks.note_replies(core, me, &step.replies);
        step.act.and_then(|act| self.perform(core, act))
    }

    /// Does what the session asked for. Returns what came of it, if that is known already.
    fn perform(&mut self, core: &mut Core, act: Act) -> Option<Input<'static>> {
        match act {
            Act::Ask(request) => self.ask(core, request).map(Input::Answer),
            Act::Transfer(transfer) => {
                self.transferring = Verb::of(self.session.verb().as_bytes());
                let (data, mut scene) = self.data_parts(core);
                let outcome = data.begin(&mut scene, *transfer)?;
                self.transfer_over(core, outcome)
            }
            Act::Abort if self.data.port.deadline.take().is_some() => {
                Some(Input::Answer(Answer::NoPort("the wait for one was aborted".to_owned())))
            }
            Act::Abort if self.hooks.awaits_word() => self.abort_hook(core),
            Act::Abort => {
                let outcome = self.abort(core, TransferError::Aborted)?;
                self.transfer_over(core, outcome)
            }
            Act::DropPassive => {
                let (data, mut scene) = self.data_parts(core);
                data.port.drop_lease(&mut scene);
                None
            }
            Act::LogOut => {
                self.log_out(core);
                None
            }
            Act::StartTls => {
                let companion = self.wire.join_companions(self.me());
                // The 234, in clear.
                self.send(core);
                self.log_out(core);
                self.begin_tls(core, false, companion);
                None
            }
            Act::StopTls => {
                self.wire.end_tls(core, self.hooks.holds_replies());
                None
            }
            Act::Close => {
                // Before the 221, after which the client may come again at once.
                self.login.leave();
                self.wire.give_time_to_leave(core);
                None
            }
        }
    }

    /// Does something for the transfer, and tells the session if that has ended it.
    fn transfer_by(
        &mut self,
        core: &mut Core,
        work: impl FnOnce(&mut Data, &mut Scene<'_>) -> Option<Outcome>,
    ) {
        let (data, mut scene) = self.data_parts(core);
        let outcome = work(data, &mut scene);
        self.finish(core, outcome);
    }

    /// Tells the session how a transfer has ended, if it has.
    fn finish(&mut self, core: &mut Core, outcome: Option<Outcome>) {
        if let Some(outcome) = outcome
            && let Some(input) = self.transfer_over(core, outcome)
        {
            self.feed(core, input);
        }
    }

    /// How a transfer ended, for the session, unless a hook is asked first.
    fn transfer_over(&mut self, core: &mut Core, outcome: Outcome) -> Option<Input<'static>> {
        let (hooks, me) = self.hook_parts();
        hooks.transfer_over(core, me, outcome).map(Input::TransferEnded)
    }

    fn log_out(&mut self, core: &mut Core) {
        let (hooks, me) = self.hook_parts();
        hooks.note_logout(core, me);
        self.login.log_out();
        let (data, mut scene) = self.data_parts(core);
        data.port.drop_lease(&mut scene);
    }

    /// Accounts were changed, or time has passed: has the user's account looked at again, where it is one of
    /// those. Commands go on meanwhile.
    pub fn review(&mut self, core: &mut Core, concerned: impl Fn(&[u8], &Account) -> bool) {
        let (login, mut scene) = self.login_parts(core);
        login.review(&mut scene, concerned);
    }

    /// The user's account was looked at again.
    fn reviewed(&mut self, core: &mut Core, reviewed: Reviewed) {
        let (login, mut scene) = self.login_parts(core);
        match login.reviewed(&mut scene, reviewed) {
            Some(Review::Granted(grant)) => self.feed(core, Input::Regranted(grant)),
            Some(Review::Expelled) => self.feed(core, Input::Expelled),
            None => {}
        }
    }

    /// The handshake is about to begin. `implicit`: it is the first thing on the connection.
    fn begin_tls(&mut self, core: &mut Core, implicit: bool, companion: Companion) {
        let Some(security) = &core.services.tls else { return };
        let mut host = security.acceptor.host().reached_at(self.session.local());
        if security.policy().resumption == Resumption::Require {
            host = host.requiring_resumption();
        }
        match Secure::begin(host, self.login.host(), companion) {
            Ok(secure) => self.wire.secure = Some(Box::new(secure)),
            Err(fault) => {
                self.log(core, log::Event::TlsFailed { on: "control", reason: &fault.to_string() });
                self.wire.state.break_off();
            }
        }
        if implicit {
            self.session.begin_with_tls();
        }
    }

    /// Sends what there is to say, as far as the client takes it.
    fn send(&mut self, core: &mut Core) {
        self.wire.send(core, self.hooks.holds_replies());
    }

    fn log(&self, core: &mut Core, event: log::Event<'_>) {
        self.me().log(core, event);
    }

    fn me(&self) -> Identity<'_> {
        let (key, account, way) = (self.wire.key, self.login.account.as_ref(), self.way.as_deref());
        Identity { key, number: self.number, door: &self.door, session: &self.session, account, way }
    }

    /// The part that asks hooks, and what that needs of the others.
    fn hook_parts(&mut self) -> (&mut SessionHooks, Identity<'_>) {
        let Self { wire, number, door, session, login, way, hooks, .. } = self;
        let (key, number, account, way) = (wire.key, *number, login.account.as_ref(), way.as_deref());
        (hooks, Identity { key, number, door, session, account, way })
    }

    /// The part that transfers, and what that needs of the others.
    fn data_parts<'a>(&'a mut self, core: &'a mut Core) -> (&'a mut Data, Scene<'a>) {
        let Self { wire, number, door, session, login, way, hooks, data, .. } = self;
        let (key, number, account, way) = (wire.key, *number, login.account.as_ref(), way.as_deref());
        let me = Identity { key, number, door, session, account, way };
        (data, Scene { core, me, member: &login.member, wire, hooks })
    }

    /// The part that logs in, and what that needs of the others.
    fn login_parts<'a>(&'a mut self, core: &'a mut Core) -> (&'a mut Login, LoginScene<'a>) {
        let local = self.way.as_ref().map_or(self.session.local(), |way| way.1);
        let scene = LoginScene {
            core,
            key: self.wire.key,
            number: self.number,
            door: &self.door,
            session: &mut self.session,
            wire: &self.wire,
            hooks: &mut self.hooks,
            question: &mut self.question,
            local,
        };
        (&mut self.login, scene)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thousand idle sessions are a megabyte at most: this, the allocator's share, a user's name.
    #[test]
    fn an_idle_connection_is_small() {
        assert!(size_of::<Connection>() <= 832, "{}", size_of::<Connection>());
    }
}
