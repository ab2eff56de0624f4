//! What the access log tells of a request.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use millrace_http::{Field, Framing, Head, Status, Version};
use millrace_vfs::VirtualPath;

use super::connection::Connection;
use super::exchange::Exchange;
use super::hooking::destination;
use super::tus;
use crate::http::answer::Answers;
use crate::http::hooking::Notices;
use crate::limits::Reached;
use crate::log::{self, Direction, Subject};
use crate::web::LinkKeys;
use crate::worker::Core;

/// What the access log tells of a request.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) method: String,
    pub(super) target: Vec<u8>,
    pub(super) version: Version,
    pub(super) host: Option<Vec<u8>>,
    pub(super) referer: Option<Vec<u8>>,
    pub(super) agent: Option<Vec<u8>>,
    pub(super) status: Status,
    /// Bytes of the body.
    pub(super) bytes: u64,
    pub(super) began: Instant,
    /// The answer has no body whatever its head says.
    pub(super) head_only: bool,
    /// The request has a body.
    pub(super) has_body: bool,
    pub(super) persistent: bool,
    /// Its body is a file's.
    pub(super) is_file: bool,
    /// Where something is moved or copied.
    pub(super) destination: Option<VirtualPath>,
}

/// How much is written down of a line that could not be understood.
const LINE: usize = 200;

impl Record {
    /// Of a request that could not be understood, with the line that it begins with.
    pub(super) fn of_malformed(bytes: &[u8], version: Version, now: Instant) -> Self {
        let line = bytes.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
        Self {
            method: String::new(),
            target: line[..line.len().min(LINE)].to_vec(),
            host: None,
            version,
            referer: None,
            agent: None,
            status: Status::BAD_REQUEST,
            bytes: 0,
            began: now,
            head_only: false,
            has_body: false,
            persistent: false,
            is_file: false,
            destination: None,
        }
    }

    pub(super) fn of(head: &Head, persistent: bool, now: Instant) -> Self {
        Self {
            method: head.method_text().to_owned(),
            target: head.target().to_owned(),
            version: head.version,
            host: head.get(Field::Host).map(<[u8]>::to_owned),
            referer: head.get(Field::Referer).map(<[u8]>::to_owned),
            agent: head.get(Field::UserAgent).map(<[u8]>::to_owned),
            status: Status::OK,
            bytes: 0,
            began: now,
            head_only: head.wants_head_only(),
            has_body: head.framing != Framing::None,
            persistent,
            is_file: false,
            destination: destination(head),
        }
    }
}

/// A request target as it may be written down: who reads what others have sent has not what it gives them.
pub(super) fn shown<'a>(links: &LinkKeys, target: &'a [u8]) -> Cow<'a, [u8]> {
    tus::without_seal(target).map_or_else(|| links.without_signature(target), Cow::Owned)
}

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
        Notices::of(self).note_reply(core, request);
    }

    pub(super) fn subject(&self) -> Subject<'_> {
        let user = self.who.as_ref().and_then(|who| who.user.as_deref());
        Subject { session: self.number, peer: self.peer, user }
    }
}

impl Answers<'_> {
    /// Tells the log of an answer that took its time.
    pub(super) fn log_request(&mut self, record: &Record) {
        let links = &self.core.server.config.web.links;
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
        };
        self.connection.log(self.core, &request);
    }

    /// Tells the log which limit is in the way, and hooks where that is a quota.
    pub(super) fn tell_limit(&mut self, reached: Option<&Reached>) {
        if let Some(reached) = reached {
            self.core.log(&self.connection.subject(), log::Event::Limited { reached, reason: None });
            if let Some(quota) = reached.quota() {
                Notices::of(self.connection).note_quota(self.core, quota);
            }
        }
    }
}

impl Exchange<'_> {
    pub(super) fn record(&self) -> Record {
        let head = self.head;
        Record::of(head, self.may_go_on(), self.core.now.instant)
    }

    /// Tells the log of an answer that was given at once.
    pub(super) fn log_answer(&mut self, status: Status, bytes: u64) {
        let head = self.head;
        let links = &self.core.server.config.web.links;
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
        };
        self.connection.log(self.core, &request);
    }

    /// Tells of a file that was sent at once.
    pub(super) fn log_file(&mut self, status: Status, bytes: u64) {
        let head = self.head;
        if self.core.server.tells_of_transfers() && !head.wants_head_only() {
            let record = self.record();
            Notices::of(self.connection).note_transfer(self.core, Direction::Download, &record, bytes, None);
        }
        self.log_answer(status, bytes);
    }
}
