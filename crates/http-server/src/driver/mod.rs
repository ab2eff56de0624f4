//! Drives a connection: gives each event to what the connection is busy with.

pub(crate) mod admin;
pub(crate) mod deadlines;
pub(crate) mod ending;
pub(crate) mod reading;

use millrace_accounts::Decision;
use mio::event::Event;

use crate::answer::delivery::Delivery;
use crate::authentication::Logins;
use crate::body_reader::Reader;
use crate::connection::{Asked, Connection, Work};
use crate::driver::deadlines::Clock;
use crate::hook_gate::HookGate;
use crate::message::Message;
use crate::secure::Handshake;
use crate::upload::Reception;
use crate::upstream::relaying::Relay;
use crate::worker::Core;

impl Connection {
    /// The reactor says something of the socket.
    pub fn event(&mut self, core: &mut Core, event: &Event) {
        let hung_up = self.link.take_event(event, self.http.has_ended_output());
        if self.link.is_broken() {
            return;
        }
        if hung_up && matches!(self.work, Work::Ruled(..)) {
            // From now on hooks have only so long.
            self.http.moved(core.now.instant);
        }
        if event.is_writable() {
            self.go_on(core);
        }
    }

    /// The reactor reports an event of an upstream; `has_ended`: its end has arrived.
    pub fn side_event(&mut self, core: &mut Core, has_ended: bool) {
        if let Work::Running(running) = &mut self.work {
            running.is_heard(has_ended);
        }
        self.go_on(core);
    }

    /// Another thread has something for it.
    pub fn told(&mut self, core: &mut Core, message: Message) {
        match message {
            Message::Login(serial, user, decision, edition) => {
                let Some(mut asked) = self.take_asked(serial) else { return };
                self.slot = asked.slot.take();
                match decision {
                    // The accounts were changed meanwhile: those that hold now are asked.
                    Decision::Granted(_) if edition != core.server.edition() => {
                        self.serve_request(core, &asked.head, None);
                    }
                    decision => Logins::new(self, core).login_decided(*asked, &user, decision, edition),
                }
                self.slot = None;
            }
            Message::Found(serial, found) => match self.take_asked(serial) {
                Some(asked) => {
                    self.slot = asked.slot;
                    self.serve_request(core, &asked.head, Some(found));
                    self.slot = None;
                }
                None => core.discard(found),
            },
            Message::Filled(serial, sender, result) => match &mut self.work {
                Work::Sending(sending) if sending.body.is_lent() && sending.body.serial == serial => {
                    if let Some(sender) = sender {
                        sending.body.take_back(sender, core.now.instant);
                    }
                    match result {
                        Ok(()) => self.go_on(core),
                        Err(error) => Delivery::new(self, core).body_failed(&error.to_string()),
                    }
                }
                _ => core.discard(sender),
            },
            Message::Written(serial, written) => Reception::new(self, core).written(serial, written),
            Message::Ruled(serial, ruled) => HookGate::new(self, core).hooks_answered(serial, ruled),
            Message::Heard => self.was_heard(core),
            Message::Reviewed(user, decision) => self.reviewed(core, &user, decision),
        }
    }

    fn take_asked(&mut self, serial: u64) -> Option<Box<Asked>> {
        match std::mem::replace(&mut self.work, Work::Idle) {
            Work::Asked(asked) if asked.serial == serial => Some(asked),
            other => {
                self.work = other;
                None
            }
        }
    }

    /// Writes and reads on where that is possible, sets the clock. Answers whether the connection goes on.
    pub fn settle(&mut self, core: &mut Core) -> bool {
        self.carry_on(core);
        self.note_answered(core);
        self.note_wait(core.now.instant);
        if self.stream.is_some() {
            // The connection of HTTP/2 sees to the rest.
            self.flush(core, false);
            return true;
        }
        Reader::new(self, core).read_on();
        // The end shares a packet with the last answer, where it comes at once.
        self.flush(core, self.ends_behind_output());
        self.say_farewell(core);
        if self.is_over() || !self.link.register(core, self.key) {
            return false;
        }
        self.acknowledge();
        Clock::new(self, core).set_clock();
        true
    }

    /// A first answer acknowledges what it answers. Where there is none yet, and the client has more to send, it may
    /// wait to hear that its beginning has come.
    fn acknowledge(&mut self) {
        let waits_for_client = match &self.work {
            Work::Idle | Work::Collecting(_) | Work::Receiving(_) | Work::Securing(_) => true,
            Work::Running(running) => running.takes_input(),
            _ => false,
        };
        if self.http.has_spoken() && waits_for_client {
            self.link.acknowledge();
        }
    }

    /// Takes up a request whose wait is over, and goes on with what takes a body, where more of that may have come.
    fn carry_on(&mut self, core: &mut Core) {
        self.serve_resumed(core);
        match &self.work {
            Work::Securing(securing) if !securing.in_line => Handshake::new(self, core).secure_on(),
            Work::Collecting(_) => Reception::new(self, core).collect_more(),
            Work::Receiving(_) => Reception::new(self, core).receive_on(),
            Work::Running(_) if self.link.has_hung_up() => Relay::new(self, core).hear_out(),
            Work::Asked(_) if self.link.has_hung_up() => Clock::new(self, core).doubt_who_asks(),
            Work::Running(running) if self.link.may_read() && running.takes_input() => {
                Relay::new(self, core).run_on()
            }
            _ => {}
        }
        // A program may have answered by another path of the server.
        self.serve_resumed(core);
    }

    /// Goes on with what it is busy with.
    pub fn go_on(&mut self, core: &mut Core) {
        match std::mem::replace(&mut self.work, Work::Idle) {
            Work::Queued(until, asked) => {
                match asked.line.and_then(|line| core.http.lane(line).claim(self.key)) {
                    // Whatever else is asked first, the place stays this request's.
                    Some(slot) => {
                        self.slot = Some(slot);
                        self.serve_request(core, &asked.head, None);
                        self.slot = None;
                    }
                    None => self.work = Work::Queued(until, asked),
                }
            }
            work => {
                self.work = work;
                match &self.work {
                    Work::Running(_) => Relay::new(self, core).run_on(),
                    Work::Receiving(_) => Reception::new(self, core).receive_on(),
                    _ => Delivery::new(self, core).send_on(),
                }
            }
        }
    }
}
