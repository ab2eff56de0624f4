//! Moves an upstream's answer to the client as that reads it, and the body the other way.
//!
//! Nothing is collected but the head of the answer. A client that goes takes a program with it.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use millrace_gateway::answerer::Answerer;
use millrace_http::Status;
use millrace_http::internal_redirect::{self, MAX_REDIRECTS};
use millrace_http::response::Persistence;
use millrace_runtime::transfer::TURN;

use crate::answer::Answers;
use crate::answer::delivery::Delivery;
use crate::body::Body;
use crate::body_reader::Reader;
use crate::connection::{Connection, Redirected, Work};
use crate::notices::Notices;
use crate::record::Record;
use crate::sending::Sending;
use crate::upstream_response::{Next, OutputStage, Readable, UpstreamResponse};
use crate::worker::Core;

/// Body bytes that are kept for a program that does not take them.
const KEPT: usize = 64 * 1024;

/// Why an answer that has begun is cut, and one that has not is not given.
const OVER_QUOTA: &str = "its user may move no more";

/// An answer that a program or another server makes, while the worker moves it.
pub(crate) struct Relay<'a> {
    connection: &'a mut Connection,
    core: &'a mut Core,
}

impl<'a> Relay<'a> {
    pub(crate) fn new(connection: &'a mut Connection, core: &'a mut Core) -> Self {
        Self { connection, core }
    }
}

impl Relay<'_> {
    /// Moves what can be moved between a client and its program.
    pub(crate) fn run_on(&mut self) {
        let Work::Running(mut running) = std::mem::replace(&mut self.connection.work, Work::Idle) else {
            return;
        };
        let next = self.drive(&mut running);
        self.hear_complaints(&mut running, !matches!(next, Next::Wait | Next::Yield));
        match next {
            Next::Wait => self.connection.work = Work::Running(running),
            Next::Yield => {
                self.core.yielded.push_back(self.connection.key);
                self.connection.work = Work::Running(running);
            }
            Next::Done => self.program_answered(*running),
            Next::Redirect(path) => self.redirect_within(*running, &path),
            Next::Again => self.connection.resume(running.request, None),
            Next::Failed(why) => self.program_failed(*running, &why, Status::BAD_GATEWAY),
            Next::Refused(why) => self.program_failed(*running, why, Status::BAD_REQUEST),
        }
    }

    /// What an application says of errors goes to the log.
    fn hear_complaints(&mut self, running: &mut UpstreamResponse, is_over: bool) {
        if let Answerer::Conversation(conversation) = &mut running.answerer {
            for text in conversation.complaints(is_over) {
                Notices::of(self.connection).log_complaint(self.core, &text);
            }
        }
    }

    fn drive(&mut self, running: &mut UpstreamResponse) -> Next {
        let mut share = TURN;
        loop {
            self.connection.flush(self.core, false);
            if !self.connection.link.has_room() || self.connection.link.is_broken() {
                // It is the client that is waited for.
                running.download.fall_out_of_line();
                running.download.paused = None;
                return Next::Wait;
            }
            if share == 0 {
                return Next::Yield;
            }
            if let Err(next) = self.feed(running) {
                return next;
            }
            if running.readable == Readable::NotNow {
                match self.hear_nothing(running) {
                    Some(next) => return next,
                    None => continue,
                }
            }
            let most = self.core.scratch.len().min(share) as u64;
            let limits = (&self.core.server.limits, &self.connection.member, self.core.now.instant);
            let Some(allowed) = running.download.allowance(limits.0, limits.1, limits.2, most) else {
                return match running.download.over() {
                    Some(_) => Next::Failed(OVER_QUOTA.into()),
                    // The wheel wakes it.
                    None => Next::Wait,
                };
            };
            if let Some(flow) = running.download.flow() {
                self.connection.link.keep_to(flow);
            }
            let mut scratch = std::mem::take(&mut self.core.scratch);
            let most = allowed.min(most) as usize;
            let read = running.answerer.read(&mut scratch[..most]);
            let next = match &read {
                Ok(0) => Some(running.end(self.core, self.connection.key)),
                Ok(count) => {
                    share -= count;
                    running.moved(self.core);
                    if running.stage != OutputStage::Unsent {
                        running.download.spend(*count as u64);
                    }
                    if *count < most {
                        running.fall_silent();
                    }
                    running.take(self.core, &scratch[..*count]).err()
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    running.fall_silent();
                    self.hear_nothing(running)
                }
                Err(error) => Some(running.is_unanswered(&self.core.server.config.proxy_routes, error)),
            };
            self.core.scratch = scratch;
            if let Some(next) = next {
                return next;
            }
        }
    }

    /// There is nothing to be read for now: `None` where something is to be sent first.
    fn hear_nothing(&mut self, running: &mut UpstreamResponse) -> Option<Next> {
        match running.pause(self.core, self.connection.key) {
            Ok(true) => None,
            Ok(false) => {
                running.download.fall_out_of_line();
                running.watch(self.core, self.connection.key);
                Some(Next::Wait)
            }
            Err(next) => Some(next),
        }
    }

    /// Gives a program what it takes of the request's body.
    fn feed(&mut self, running: &mut UpstreamResponse) -> Result<(), Next> {
        while running.answerer.takes_input() {
            if running.body.is_empty() {
                if self.connection.http.has_whole_body() {
                    running.answerer.end_input();
                    break;
                }
                let limits = (&self.core.server.limits, &self.connection.member, self.core.now.instant);
                let allowed = running.upload.allowance(limits.0, limits.1, limits.2, KEPT as u64);
                let Some(allowed) = allowed else {
                    match running.upload.over() {
                        Some(_) => return Err(Next::Failed(OVER_QUOTA.into())),
                        None => break,
                    }
                };
                let most = usize::try_from(allowed).unwrap_or(usize::MAX).min(KEPT);
                Reader::new(self.connection, self.core)
                    .take_body(&mut running.body, most)
                    .map_err(|_| Next::Refused("the body of the request is malformed"))?;
                running.upload.spend(running.body.len() as u64);
                if running.body.is_empty() {
                    // The client must not take a part for the whole.
                    match self.connection.http.has_peer_closed() && !self.connection.http.has_whole_body() {
                        true => return Err(Next::Refused("the body of the request was cut short")),
                        false => break,
                    }
                }
            }
            match running.answerer.write(&running.body) {
                Ok(count) => {
                    drop(running.body.drain(..count));
                    running.moved(self.core);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The upstream does not read the rest, which it need not; it is discarded.
                Err(_) => {
                    running.answerer.end_input();
                    running.goes_on = false;
                    self.connection.linger();
                }
            }
        }
        Ok(())
    }

    /// An upstream that has answered may be used again.
    fn let_go(&mut self, answerer: Answerer) {
        match answerer {
            Answerer::Program(program) => {
                self.core.http.programs.forget(self.connection.key);
                self.core.http.programs.leave(program, self.core.now.instant);
            }
            Answerer::Conversation(conversation) => {
                if conversation.is_watched {
                    self.core.forget(&conversation.socket);
                }
                let route = conversation.route;
                if let Some(socket) = conversation.into_kept() {
                    let now = self.core.now.instant;
                    self.core.http.routes[route].keep(socket, now);
                }
            }
        }
    }

    fn program_answered(&mut self, running: UpstreamResponse) {
        let UpstreamResponse { answerer, record, goes_on, stage, .. } = running;
        self.let_go(answerer);
        if !self.connection.http.has_whole_body() {
            self.connection.linger();
        }
        let goes_on = goes_on && stage != OutputStage::UntilClose && self.connection.http.has_whole_body();
        // The rest is for the client alone, which may take its time.
        let body = Body::new(VecDeque::new(), self.core.now.instant);
        Delivery::new(self.connection, self.core).send_body(Box::new(Sending {
            body,
            record,
            in_line: false,
            goes_on,
        }));
    }

    /// A client that sends no more may have gone, which takes its program with it, or have said all and wait for the
    /// answer.
    pub(crate) fn hear_out(&mut self) {
        if let Work::Running(running) = &self.connection.work
            && self.connection.link.may_read()
            && running.takes_input()
        {
            self.run_on();
        }
        // After that: an upstream that sends the last bytes of a body and closes causes no further event.
        if let Work::Running(running) = &mut self.connection.work {
            running.doubt(self.core.now.instant);
        }
    }

    /// The client has ended its side, and nothing was sent to it for long.
    pub(crate) fn ask_client(&mut self) {
        let is_being_sent = !self.connection.link.is_flushed();
        if let Work::Running(running) = &mut self.connection.work
            && !running.ask_client(self.core, is_being_sent)
        {
            self.connection.link.break_off();
        }
    }

    /// No answer that could be sent: 400, 502 or 504 where nothing was sent yet, else the connection ends.
    fn program_failed(&mut self, running: UpstreamResponse, why: &str, status: Status) {
        let UpstreamResponse { answerer, stage, record, .. } = running;
        // What a client has broken off is nothing for an operator.
        if status != Status::BAD_REQUEST {
            let name = answerer.name(&self.core.server.config.proxy_routes);
            Notices::of(self.connection).warn(self.core, &format!("{name} failed: {why}"));
        }
        self.core.discard(answerer);
        self.connection.linger();
        if matches!(stage, OutputStage::Head | OutputStage::RawHead) {
            let reason = match status {
                Status::GATEWAY_TIMEOUT => "The program has not answered in time.",
                Status::BAD_REQUEST => "The body of the request is malformed, or not whole.",
                _ => "The program has not answered as it should.",
            };
            let record = Record { persistent: false, ..record };
            return Answers::new(self.connection, self.core).answer_page(record, status, reason, &[]);
        }
        self.connection.flush(self.core, false);
        let record = self.connection.as_sent(record);
        Answers::new(self.connection, self.core).log_request(&record);
        match stage {
            // Without the last chunk the client sees that the answer is incomplete; the sent part arrives.
            OutputStage::Chunked => self.connection.end_now(),
            _ => self.connection.link.cut(),
        }
    }

    /// The program's time is over.
    pub(crate) fn program_overdue(&mut self) {
        match std::mem::replace(&mut self.connection.work, Work::Idle) {
            Work::Running(running) => {
                self.program_failed(*running, "its time is over", Status::GATEWAY_TIMEOUT);
            }
            work => self.connection.work = work,
        }
    }

    /// The answer is that to another path (RFC 3875 section 6.2.2): asked for with the fields of this request,
    /// but for those of its body.
    fn redirect_within(&mut self, running: UpstreamResponse, path: &[u8]) {
        self.connection.redirects += 1;
        // What the program has left of the body would be taken for the next request.
        let goes_on = running.goes_on && self.connection.http.has_whole_body();
        let behind = Persistence::of(running.version, goes_on);
        let again = internal_redirect::to_location(&running.request, path, behind);
        let Some(again) = again.ok().filter(|_| self.connection.redirects <= MAX_REDIRECTS) else {
            return self.program_failed(running, "it redirects in a circle, or nowhere", Status::BAD_GATEWAY);
        };
        let UpstreamResponse { answerer, request, .. } = running;
        self.let_go(answerer);
        if !self.connection.http.has_whole_body() {
            self.connection.linger();
        }
        // Where it leads is another request, to hooks as well.
        let asked_for = self.connection.redirected.take();
        self.connection.forget_request();
        self.connection.redirected = asked_for.or_else(|| Some(Box::new(Redirected::from(&*request))));
        self.connection.resume(Arc::new(again), None);
    }
}
