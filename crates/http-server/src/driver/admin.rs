//! What an administrator sees of a connection and does to it, and looking at an account again while its user is here.
//!
//! The invariant: a connection without a user and without a request under way is not listed, and costs nothing here,
//! however many are kept alive.

use std::os::fd::OwnedFd;
use std::time::Instant;

use millrace_accounts::{Account, Decision, Protocol, plain_host};
use millrace_http::Head;
use millrace_http::target::parse_for_others;
use millrace_limits::LimitHandle;
use millrace_metrics::{Cause, Waited};
use millrace_runtime::login::{Expelled, host_of, present_account};
use millrace_runtime::report::{SessionReport, TransferReport, WaitsFor, network_share};
use millrace_vfs::VirtualPath;

use crate::authentication::Logins;
use crate::authentication::asking::Visitor;
use crate::connection::{Connection, Work};
use crate::hook_state::Then;
use crate::message::Message;
use crate::record::Record;
use crate::tus_state::address::without_seal;
use crate::worker::Core;
use millrace_log as log;

impl Connection {
    /// Returns whether it has a user, or something under way.
    pub fn is_of_note(&self) -> bool {
        let is_idle = matches!(self.work, Work::Idle | Work::Securing(_));
        !is_idle || self.who.as_ref().is_some_and(|who| who.user.is_some())
    }

    /// As an administrator sees it.
    pub fn report(&self, now: Instant) -> SessionReport {
        let transfer = match &self.work {
            Work::Sending(sending) => {
                let kind = if sending.record.is_file { "download" } else { "listing" };
                let bytes = sending.record.bytes + sending.body.bytes();
                let paused = sending.body.paused().is_some();
                let total = sending.body.total().map(|total| sending.record.bytes + total);
                let report = transfer(&sending.record, self.hooked.ruled_path(), kind, bytes, paused, now);
                let waited = self.waited(log::Direction::Download, &sending.record, now);
                Some(TransferReport { total, waited, ..report })
            }
            Work::Receiving(receiving) => {
                let (record, path) = (receiving.record(), Some(receiving.path()));
                Some(transfer(record, path, "upload", record.bytes, receiving.paused().is_some(), now))
            }
            _ => None,
        };
        SessionReport {
            number: self.number,
            protocol: Protocol::Http,
            peer: self.peer,
            local: self.local().unwrap_or(self.peer),
            user: self.who.as_ref().and_then(|who| who.user.clone()),
            host: self.who.as_ref().and_then(|who| host_of(&who.account)),
            age: now.saturating_duration_since(self.began),
            idle: now.saturating_duration_since(self.last_active()),
            command: self.request().map(|(method, _)| method.to_owned()),
            place: self.request().map(|(_, target)| shown_path(target)),
            waits_for: self.waits_for().or_network(self.sending_socket()),
            transfer,
        }
    }

    /// When a byte last moved, or a request began.
    fn last_active(&self) -> Instant {
        let moved = match &self.work {
            Work::Sending(sending) => Some(sending.body.moved),
            Work::Receiving(receiving) => Some(receiving.moved()),
            _ => None,
        };
        moved.into_iter().chain([self.http.since()]).max().unwrap_or(self.began)
    }

    /// The method and the target of the request that runs.
    fn request(&self) -> Option<(&str, &[u8])> {
        fn of_head(head: &Head) -> Option<(&str, &[u8])> {
            Some((head.method_text(), head.target()))
        }
        fn of_record(record: &Record) -> Option<(&str, &[u8])> {
            Some((&record.method, &record.target))
        }
        match &self.work {
            Work::Asked(asked) | Work::Queued(_, asked) | Work::Held(_, asked) => of_head(&asked.head),
            Work::Resumed(resumed) => of_head(&resumed.head),
            Work::Sending(sending) => of_record(&sending.record),
            Work::Receiving(receiving) => of_record(receiving.record()),
            Work::Running(running) => of_record(&running.record),
            Work::Collecting(collecting) => of_head(collecting.head()),
            Work::Ruled(_, then) => match &**then {
                Then::Request(head) | Then::Dav(head, _) => of_head(head),
                Then::Answer(record, ..) | Then::Named(record, ..) => of_record(record),
                Then::Begin(_) => None,
            },
            Work::Idle | Work::Securing(_) => None,
        }
    }

    fn waits_for(&self) -> WaitsFor {
        match &self.work {
            Work::Idle => WaitsFor::Command,
            Work::Securing(_) => WaitsFor::Handshake,
            Work::Asked(_) | Work::Resumed(_) => WaitsFor::Storage,
            Work::Held(..) => WaitsFor::Login,
            Work::Ruled(..) => WaitsFor::Hook,
            Work::Queued(..) | Work::Running(_) => WaitsFor::Upstream,
            Work::Sending(sending) if sending.body.paused().is_some() => WaitsFor::Limit,
            Work::Sending(sending) if sending.body.is_lent() => WaitsFor::Storage,
            Work::Sending(sending) if sending.in_line => WaitsFor::Processor,
            Work::Receiving(receiving) if receiving.paused().is_some() => WaitsFor::Limit,
            Work::Receiving(receiving) if receiving.is_lent() => WaitsFor::Storage,
            Work::Sending(_) | Work::Receiving(_) | Work::Collecting(_) => WaitsFor::Client,
        }
    }

    /// The socket of an answer that is on its way, by which it can be told what the bytes wait for.
    fn sending_socket(&self) -> Option<&OwnedFd> {
        let socket = self.link.socket().filter(|_| matches!(self.work, Work::Sending(_)));
        socket.map(|socket| &socket.fd)
    }

    /// Notes what the body that is on its way waits for from now on.
    pub(super) fn note_wait(&mut self, now: Instant) {
        let cause = self.waits_for().cause();
        match &mut self.work {
            Work::Sending(sending) => sending.record.waits.note(cause, now),
            Work::Receiving(receiving) => receiving.record.waits.note(cause, now),
            _ => {}
        }
    }

    /// For how long a body of this direction has waited for each cause.
    pub(crate) fn waited(&self, direction: log::Direction, record: &Record, now: Instant) -> Waited {
        let waited = record.waits.waited(now);
        match self.link.socket() {
            Some(socket) if direction == log::Direction::Download && !waited.of(Cause::Client).is_zero() => {
                waited.with_network(network_share(&socket.fd))
            }
            _ => waited,
        }
    }

    /// An administrator wants it gone.
    pub fn kick(&mut self, core: &mut Core) {
        core.log(&self.subject(), log::Event::Kicked);
        self.send_away();
    }

    /// Ends what is under way, and the connection; of a stream, the one that it belongs to.
    fn send_away(&mut self) {
        self.link.cut();
        if let Some(stream) = &mut self.stream {
            stream.dismiss();
        }
    }

    /// Returns its number in the log, and its part in the tree of limits.
    pub fn member(&mut self) -> (u64, &mut LimitHandle) {
        (self.number, &mut self.member)
    }

    /// Accounts were changed, or time has passed: has the user's account looked at again, where it is one of those.
    pub fn review(&mut self, core: &mut Core, concerned: impl Fn(&[u8], &Account) -> bool) {
        let Some(who) = self.who.clone() else { return };
        let Some(user) = who.user.clone().filter(|user| concerned(user, &who.account)) else { return };
        // A link acts for its user as a certificate does.
        let certified = who.is_by_link()
            || Visitor::of(self).certificate_names().iter().any(|name| name.as_bytes() == user);
        let attempt = Visitor::of(self).attempt(user, certified, plain_host(&who.host));
        let (key, post) = (self.key, core.post.clone());
        core.server.review(attempt, who.account.clone(), move |user, decision| {
            post.send(key, Message::Reviewed(user, decision));
        });
    }

    /// The user's account was looked at again. Its limits hold from now on; what else has changed of it counts from
    /// the next request on.
    pub(crate) fn reviewed(&mut self, core: &mut Core, user: &[u8], decision: Decision) {
        let is_here = self.who.as_ref().is_some_and(|who| who.user.as_deref() == Some(user));
        let Some(present) = present_account(decision).filter(|_| is_here) else { return };
        let joined = present.and_then(|account| {
            let joined = Logins::new(self, core).join_again(user, &account);
            joined.map_err(|refused| Expelled(refused.for_the_client().to_owned()))
        });
        if let Err(Expelled(reason)) = joined {
            core.log(&self.subject(), log::Event::Expelled { reason: &reason });
            self.send_away();
        }
    }
}

/// A target without its query, which may hold a signature.
fn shown_path(target: &[u8]) -> Vec<u8> {
    let path =
        || parse_for_others(target).map_or_else(|_| b"?".to_vec(), |target| target.path.as_bytes().to_vec());
    without_seal(target).unwrap_or_else(path)
}

/// `path` is the file's, where that is another than was sent.
fn transfer(
    record: &Record,
    path: Option<&VirtualPath>,
    kind: &'static str,
    bytes: u64,
    held_back: bool,
    now: Instant,
) -> TransferReport {
    let sent = || parse_for_others(&record.target).ok().map(|target| target.path);
    let path = path.cloned().or_else(sent);
    let path = path.map_or_else(|| record.target.clone(), |path| path.as_bytes().to_vec());
    TransferReport {
        kind,
        path,
        bytes,
        total: None,
        elapsed: now.saturating_duration_since(record.began),
        held_back,
        waited: record.waits.waited(now),
    }
}
