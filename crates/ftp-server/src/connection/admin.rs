//! What an administrator sees of a session and does to it, by the control socket or by a command of his own.

use std::sync::Arc;
use std::time::Instant;

use millrace_accounts::Protocol;
use millrace_ftp::escape;
use millrace_ftp::session::{Answer, Input};
use millrace_limits::{Limit, LimitHandle, Limits, Scope};
use millrace_log as log;
use millrace_runtime::login::host_of;
use millrace_runtime::report::{SessionReport, TransferReport, WaitsFor};
use millrace_runtime::transfer::Link;
use millrace_runtime::worker::{Core, Promise};

use super::Connection;
use super::door::Administration;
use super::message::Message;
use super::question::{Question, internal_error};
use super::scene::Identity;

impl Connection {
    /// As an administrator sees it.
    pub fn report(&self, now: Instant) -> SessionReport {
        let transfer = self.data.running.as_deref().map(|running| {
            let progress = running.progress(now);
            TransferReport {
                kind: running.direction.word(),
                path: running.path.as_bytes().to_vec(),
                bytes: progress.bytes,
                total: progress.total,
                elapsed: progress.elapsed,
                held_back: running.pace.paused.is_some(),
                waited: running.waited(now),
            }
        });
        SessionReport {
            number: self.number,
            protocol: Protocol::Ftp,
            peer: self.session.peer(),
            local: self.session.local(),
            user: self.session.user().map(<[u8]>::to_vec),
            host: self.login.account.as_ref().and_then(host_of),
            age: now.saturating_duration_since(self.began),
            idle: now.saturating_duration_since(last_active(self)),
            command: Some(self.session.verb().to_owned()).filter(|verb| !verb.is_empty()),
            place: self.session.user().map(|_| self.session.directory().as_bytes().to_vec()),
            waits_for: waits_for(self).or_network(self.data.sending_socket()),
            transfer,
        }
    }

    /// An administrator wants it gone.
    pub fn kick(&mut self, core: &mut Core) {
        self.log(core, log::Event::Kicked);
        self.feed(core, Input::Kicked);
    }

    /// Returns its number in the log, and its part in the tree of limits.
    pub fn member(&mut self) -> (u64, &mut LimitHandle) {
        (self.number, &mut self.login.member)
    }

    /// `INTERNALSHUTDOWN`: looks at the password where that may take its time, then stops the server.
    pub(super) fn ask_shutdown(&mut self, core: &mut Core, password: Vec<u8>) -> Option<Answer> {
        if self.door.ftp.config.shutdown_password.is_none() {
            return Some(Answer::Count(0));
        }
        self.log(core, log::Event::Warning { text: "INTERNALSHUTDOWN was asked for" });
        let ftp = Arc::clone(&self.door.ftp);
        let question = Question::new(core);
        let (key, post, serial) = (self.wire.key, self.door.post.clone(), question.serial);
        self.question = Some(question);
        core.services.logins.run(move || {
            let reply = Promise::new(post, key, Message::Answer(serial, internal_error()));
            let right = ftp.config.shutdown_password.as_ref().is_some_and(|right| right.matches(&password));
            reply.keep(Message::Answer(serial, Answer::Count(u64::from(right))));
            if right {
                // Behind the answer: this session still hears its 221.
                ftp.administration().iter().for_each(|server| server.shut_down("INTERNALSHUTDOWN"));
            }
        });
        None
    }
}

/// `SITE WHO`: asks all workers, the session's own too, which must not wait for itself.
pub(super) fn ask_for_sessions(connection: &mut Connection, core: &mut Core) -> Option<Answer> {
    let ftp = Arc::clone(&connection.door.ftp);
    let question = Question::new(core);
    let (key, post, serial) = (connection.wire.key, connection.door.post.clone(), question.serial);
    connection.question = Some(question);
    core.services.pool.run(move || {
        let reply = Promise::new(post, key, Message::Answer(serial, internal_error()));
        let sessions = ftp.administration().map_or(Vec::new(), Administration::sessions);
        let logged_in = sessions.iter().filter(|session| session.user.is_some()).count();
        let lines = sessions.iter().map(session_line).collect();
        reply.keep(Message::Answer(serial, Answer::Sessions(lines, logged_in)));
    });
    None
}

/// When the session was last given something, or a byte of its transfer moved.
fn last_active(connection: &Connection) -> Instant {
    let moved = connection.data.running.as_deref().map(|running| running.moved);
    moved.into_iter().chain([connection.session.last_input()]).max().unwrap_or(connection.began)
}

fn waits_for(connection: &Connection) -> WaitsFor {
    let Connection { session, wire, data, hooks, question, .. } = connection;
    if hooks.awaits_hook() || hooks.awaits_word() {
        return WaitsFor::Hook;
    }
    if let Some(question) = question {
        return if question.user.is_empty() { WaitsFor::Storage } else { WaitsFor::Login };
    }
    match data.running.as_deref() {
        Some(running) if running.is_lent() => WaitsFor::Storage,
        Some(running) => match running.link {
            Link::Accepting(_) | Link::Connecting(_) => WaitsFor::DataConnection,
            Link::Securing(_) => WaitsFor::Handshake,
            _ if running.pace.paused.is_some() => WaitsFor::Limit,
            _ if data.is_in_line() => WaitsFor::Processor,
            _ => WaitsFor::Client,
        },
        None if data.port.deadline.is_some() => WaitsFor::PassivePort,
        None if wire.is_changing() => WaitsFor::Handshake,
        None if !wire.output.is_empty() || session.is_closed() => WaitsFor::Client,
        None if session.takes(b"") => WaitsFor::Command,
        // The reply to a wrong password is held back.
        None => WaitsFor::Login,
    }
}

/// Notes what the transfer that runs waits for from now on.
pub(super) fn note_wait(connection: &mut Connection, now: Instant) {
    if connection.data.running.is_some() {
        let cause = waits_for(connection).cause();
        connection.data.note_wait(cause, now);
    }
}

/// ` 17 eve from 192.0.2.7 by FTP: download /f`
fn session_line(session: &SessionReport) -> Vec<u8> {
    let mut line = format!(" {} ", session.number).into_bytes();
    line.extend_from_slice(session.user.as_deref().unwrap_or(b"(not logged in)"));
    let protocol = session.protocol.to_string().to_uppercase();
    line.extend_from_slice(format!(" from {} by {protocol}", session.peer.ip()).as_bytes());
    if let Some(transfer) = &session.transfer {
        line.extend_from_slice(format!(": {} ", transfer.kind).as_bytes());
        escape::quote_path(&transfer.path, &mut line);
    }
    line
}

impl Identity<'_> {
    /// `LIMITBANDWIDTH`: of the whole server, from clients and to them; `None` as configured.
    pub(super) fn limit_bandwidth(&self, core: &mut Core, limits: Option<(u64, u64)>) -> Answer {
        let (tree, now) = (&core.services.limits, core.now.instant);
        match limits {
            None => tree.restore(&Scope::Server, now),
            Some((write, read)) => {
                let (upload, download) = (Some(Limit::of(write)), Some(Limit::of(read)));
                tree.set(&Scope::Server, &Limits { upload, download, sessions: None }, now)
            }
        };
        let text = match limits {
            None => "LIMITBANDWIDTH: as configured".to_owned(),
            Some((write, read)) => format!("LIMITBANDWIDTH: write {write}, read {read} bytes a second"),
        };
        self.log(core, log::Event::Warning { text: &text });
        Answer::Done
    }
}
