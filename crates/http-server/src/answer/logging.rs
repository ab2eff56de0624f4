//! Logs requests that were answered.

use std::time::Duration;

use millrace_http::{Field, Status};
use millrace_limits::{Protocol, Reached};
use millrace_log::{self as log, Direction};
use millrace_metrics::Waited;
use millrace_vfs::Timestamp;

use crate::answer::Answers;
use crate::connection::Connection;
use crate::connection::exchange::Exchange;
use crate::notices::Notices;
use crate::record::{Record, shown};
use crate::worker::Core;

impl Connection {
    /// What the client has asked for, whatever programs have made of it.
    fn asked_for<'a>(&'a self, method: &'a str, target: &'a [u8]) -> (&'a str, &'a [u8]) {
        match &self.redirected {
            Some(redirected) => (&redirected.method, &redirected.target),
            None => (method, target),
        }
    }

    fn log(&self, core: &mut Core, request: &log::Request<'_>) {
        core.log_request(&self.subject(), request);
        self.trace(core, request);
        Notices::of(self).note_reply(core, request);
    }
}

impl Connection {
    /// Shows a request that was answered, and its answer, to traces.
    fn trace(&self, core: &Core, request: &log::Request<'_>) {
        let traces = core.services.log.traces();
        if !traces.is_on() {
            return;
        }
        let log::Request { method, target, protocol, status, bytes, elapsed, .. } = *request;
        let received = match method {
            "" => target.to_vec(),
            method => [method.as_bytes(), b" ", target, b" ", protocol.as_bytes()].concat(),
        };
        let sent = format!("{status}, {bytes} bytes");
        let now = core.now.wall;
        let began = Duration::new(now.seconds.unsigned_abs(), now.nanoseconds).saturating_sub(elapsed);
        let began = Timestamp { seconds: began.as_secs().cast_signed(), nanoseconds: began.subsec_nanos() };
        for (is_received, at, text) in [(true, began, &received[..]), (false, now, sent.as_bytes())] {
            let line = log::TraceLine { protocol: Protocol::Http, is_received, at, text };
            traces.push(&self.subject(), &line);
        }
    }
}

impl Answers<'_> {
    /// Tells the log of an answer that took its time.
    pub(crate) fn log_request(&mut self, record: &Record) {
        let links = &self.core.server.links;
        let (method, target) = self.connection.asked_for(&record.method, &record.target);
        let target = shown(links, target);
        // A page that was got by a link is where its pictures are asked for from.
        let referer = record.referer.as_deref().map(|referer| links.without_signature(referer));
        let request = log::Request {
            method,
            target: &target,
            protocol: record.version.name(),
            host: record.host.as_deref(),
            status: record.status.0,
            bytes: record.bytes,
            referer: referer.as_deref(),
            agent: record.agent.as_deref(),
            elapsed: self.core.now.instant.saturating_duration_since(record.began),
            waited: self.connection.waited(record.direction(), record, self.core.now.instant),
            trace: self.connection.request_trace(self.core.now.instant),
        };
        self.connection.log(self.core, &request);
    }

    /// Tells the log which limit is in the way, and hooks where that is a quota.
    pub(crate) fn tell_limit(&mut self, reached: Option<&Reached>) {
        if let Some(reached) = reached {
            self.core.log(&self.connection.subject(), log::Event::Limited { reached, reason: None });
            if let Some(quota) = reached.quota() {
                Notices::of(self.connection).note_quota(self.core, quota);
            }
        }
    }
}

impl Exchange<'_> {
    pub(crate) fn record(&self) -> Record {
        let head = self.head;
        Record::of(head, self.may_go_on(), self.core.now.instant)
    }

    /// Tells the log of an answer that was given at once.
    pub(crate) fn log_answer(&mut self, status: Status, bytes: u64) {
        let head = self.head;
        let links = &self.core.server.links;
        let (method, target) = self.connection.asked_for(head.method_text(), head.target());
        let (target, referer) = (shown(links, target), head.get(Field::Referer));
        let referer = referer.map(|referer| links.without_signature(referer));
        let request = log::Request {
            method,
            target: &target,
            protocol: head.version.name(),
            host: head.get(Field::Host),
            status: status.0,
            bytes,
            referer: referer.as_deref(),
            agent: head.get(Field::UserAgent),
            elapsed: Duration::ZERO,
            waited: Waited::default(),
            trace: self.connection.request_trace(self.core.now.instant),
        };
        self.connection.log(self.core, &request);
    }

    /// Tells of a file that was sent at once.
    pub(crate) fn log_file(&mut self, status: Status, bytes: u64) {
        let head = self.head;
        let (direction, at_once) = (Direction::Download, Some(Duration::ZERO));
        if head.wants_head_only() {
            // None of it was sent.
        } else if self.core.server.tells_of_transfers() {
            let record = Record { first_byte: at_once, ..self.record() };
            Notices::of(self.connection).note_transfer(self.core, direction, &record, bytes, None);
        } else {
            let (elapsed, first_byte) = (Duration::ZERO, at_once);
            let measured = log::Measured {
                direction,
                bytes,
                elapsed,
                first_byte,
                waited: Waited::default(),
                has_failed: false,
            };
            self.core.count_transfer(&measured);
        }
        self.log_answer(status, bytes);
    }
}
