//! The data connection of a control connection: how it comes about, and the transfer that it carries.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use millrace_ftp::reply::Reply;
use millrace_ftp::session::{Outcome, Progress, Protection, Transfer, TransferError, Via};
use millrace_limits::{Errand, LimitKey, Reached};
use millrace_log::{self as log, Direction, Transferred};
use millrace_metrics::{Cause, Protocol};
use millrace_net::stream;
use millrace_runtime::transfer::{JobDone, JobKind, Link, Running, Socket, Turn, Work, describe};
use millrace_runtime::worker::{Promise, Role};
use millrace_vfs::FileError;
use mio::Interest;
use mio::event::Event;

use super::data_end::{end, end_report, part_with, reset_download};
use super::door::FtpConfig;
use super::message::Message;
use super::passive_port::PassivePort;
use super::question::{JOB_GRACE, Question};
use super::scene::Scene;
use super::secure::{protect, shake_data_hands};
use super::session_hooks::SessionHooks;

/// Why a transfer has none whose client did not come.
const NOT_COME: &str = "the client did not connect in time";

/// The same where a connection may have come, and it is not known for whom.
const NOT_KNOWN: &str = "no connection came in time that resumes the TLS session of its control connection, \
     by which sessions are told apart while all passive ports are in use";

/// The data connection, and what leads to it.
#[derive(Debug, Default)]
pub(super) struct Data {
    /// The passive port.
    pub(super) port: PassivePort,
    pub(super) running: Option<Box<Running>>,
    /// Whether the transfer is in the worker's line for another turn.
    in_line: bool,
}

impl Data {
    /// Begins a transfer. Returns its outcome if it was done in one go.
    pub(super) fn begin(&mut self, scene: &mut Scene<'_>, transfer: Transfer) -> Option<Outcome> {
        let link = match transfer.via {
            Via::Passive => self.port.link(scene, transfer.protection),
            Via::Control(_) => Ok(Link::Control),
            Via::Active(address) => match scene.data_sockets().connect(scene.me.local(), address) {
                Ok(socket) => Ok(Link::Connecting(Socket::new(socket))),
                Err(error) => Err(TransferError::NoConnection(format!("{address}: {}", error.kind()))),
            },
        };
        let link = match link {
            Ok(link) => link,
            Err(why) => {
                scene.core.discard(transfer);
                return Some(Outcome { bytes: 0, result: Err(why), unread: None });
            }
        };
        if !scene.me.door.ftp.config.coalesce {
            scene.send();
        }
        let serial = scene.core.next_serial();
        let started = scene.core.services.clock.instant();
        let mut running = Running::new(transfer, link, serial, started, scene.member);
        if let (Work::Receive(receiver), Some(tls)) = (&mut running.work, &scene.core.services.tls)
            && tls.excuses(scene.me.session.client())
        {
            receiver.excuse();
        }
        if let (Via::Control(code), path) = (running.via, &running.path) {
            let mut first = format!("{code}-Status of ").into_bytes();
            millrace_ftp::escape::quote_path(path.as_bytes(), &mut first);
            first.extend_from_slice(b":\r\n");
            scene.say(&first);
        }
        self.running = Some(Box::new(running));
        self.advance(scene)
    }

    /// Returns how far the transfer has come, else what hooks look at, else the question.
    pub(super) fn progress(
        &self,
        now: Instant,
        hooks: &SessionHooks,
        question: Option<&Question>,
    ) -> Progress {
        match (&self.running, hooks.looked_at(now), question) {
            (Some(running), ..) => running.progress(now),
            (None, Some(looked_at), _) => looked_at,
            (None, None, Some(question)) => question.progress(now),
            (None, None, None) => {
                Progress { bytes: 0, total: None, elapsed: Duration::ZERO, is_checked: false }
            }
        }
    }

    /// Returns true if what the transfer lists goes to the control connection.
    pub(super) fn is_on_control(&self) -> bool {
        self.running.as_deref().is_some_and(|running| matches!(running.link, Link::Control))
    }

    /// Returns true if the transfer is in the worker's line for another turn.
    pub(super) fn is_in_line(&self) -> bool {
        self.in_line
    }

    /// The socket of a download, by which it can be told what the bytes wait for.
    pub(super) fn sending_socket(&self) -> Option<&OwnedFd> {
        self.running.as_deref()?.sending_socket()
    }

    /// From now on the transfer waits for this, or for nothing.
    pub(super) fn note_wait(&mut self, cause: Option<Cause>, now: Instant) {
        if let Some(running) = &mut self.running {
            running.waits.note(cause, now);
        }
    }

    /// The reactor tells of the data connection, or of the listener.
    pub(super) fn event(&mut self, scene: &mut Scene<'_>, event: &Event) -> Option<Outcome> {
        let end = end(event);
        let Some(running) = self.running.as_deref_mut() else {
            self.port.early_event(scene, end);
            return None;
        };
        match &mut running.link {
            Link::Open(socket) | Link::Securing(socket) => socket.end = socket.end.max(end),
            // The reactor tells it once: kept until the job gives the socket back.
            Link::OnPool => running.end = running.end.max(end),
            Link::Connecting(socket) => {
                // Bytes and their end may come with the connection, in one event.
                socket.end = socket.end.max(end);
                if let Err(error) = stream::connected(&socket.fd) {
                    let why = TransferError::NoConnection(error.kind().to_string());
                    return self.end(scene, Err(why));
                }
            }
            _ => {}
        }
        self.go_on(scene)
    }

    /// Moves the transfer on, or what has come to the passive port before it.
    pub(super) fn go_on(&mut self, scene: &mut Scene<'_>) -> Option<Outcome> {
        if self.running.is_none() {
            self.port.advance_early(scene);
            return None;
        }
        self.advance(scene)
    }

    /// The next turn of a transfer that used up its share.
    pub(super) fn next_turn(&mut self, scene: &mut Scene<'_>) -> Option<Outcome> {
        self.in_line = false;
        self.go_on(scene)
    }

    /// Ends the transfer. Returns the outcome unless the file has to be left in order first.
    fn end(&mut self, scene: &mut Scene<'_>, result: Result<(), TransferError>) -> Option<Outcome> {
        let via = self.running.as_deref().map(|running| running.via);
        let outcome = self.conclude(scene, result)?;
        Some(end_report(scene, via, outcome))
    }

    /// Does what can be done now. Returns the outcome at the end.
    fn advance(&mut self, scene: &mut Scene<'_>) -> Option<Outcome> {
        loop {
            let running = self.running.as_deref_mut()?;
            if running.is_lent() {
                return None;
            }
            match &mut running.link {
                Link::Accepting(_) => match self.accept(scene) {
                    Ok(Some(socket)) => {
                        if let Err(error) = self.open_link(scene, socket) {
                            return self.conclude(scene, Err(error));
                        }
                    }
                    Ok(None) => return None,
                    Err(error) => {
                        return self.conclude(scene, Err(TransferError::NoConnection(error.to_string())));
                    }
                },
                Link::Connecting(socket) => {
                    if !scene.data_sockets().is_connected(&socket.fd) {
                        // Both at once, for good: the socket is registered a single time.
                        return self.watch(scene, Interest::READABLE | Interest::WRITABLE);
                    }
                    let link = std::mem::replace(&mut running.link, Link::OnPool);
                    if let Link::Connecting(socket) = link
                        && let Err(error) = self.open_link(scene, socket)
                    {
                        return self.conclude(scene, Err(error));
                    }
                }
                Link::Securing(_) => match self.advance_handshake(scene) {
                    Some(Ok(true)) => {}
                    Some(Ok(false)) => return self.watch(scene, Interest::READABLE | Interest::WRITABLE),
                    Some(Err(error)) => return self.conclude(scene, Err(error)),
                    None => {
                        scene.core.yielded.push_back(scene.me.key);
                        return None;
                    }
                },
                Link::Open(_) => return self.take_turn(scene),
                Link::LingeringClose(_) => {
                    let result = running.part(&mut scene.core.scratch, scene.core.now.instant)?;
                    return self.conclude(scene, result);
                }
                Link::Control => return self.advance_on_control(scene),
                Link::OnPool => return None,
            }
        }
    }

    /// Accepts the client's data connection, if it has come.
    fn accept(&mut self, scene: &mut Scene<'_>) -> io::Result<Option<Socket>> {
        let accepted = self.port.accept(scene);
        let Some(running) = self.running.as_deref_mut() else { return Ok(None) };
        match accepted {
            Ok(socket) => {
                if let Link::Accepting(Some(watched)) = std::mem::replace(&mut running.link, Link::OnPool) {
                    scene.core.forget(&watched);
                }
                self.port.lease = None;
                Ok(Some(Socket::new(socket)))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if let Link::Accepting(watched @ None) = &mut running.link {
                    *watched = self.port.watch(scene)?;
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Moves bytes for as long as the turn lasts.
    fn take_turn(&mut self, scene: &mut Scene<'_>) -> Option<Outcome> {
        let running = self.running.as_deref_mut()?;
        let core = &mut *scene.core;
        let before = running.pace.paused;
        let turn = running.turn(core.now.instant, &mut core.scratch, &core.services.limits, scene.member);
        running.note_first_byte(&core.services.clock);
        match turn {
            Turn::Done(Ok(())) => match running.part(&mut core.scratch, core.now.instant) {
                Some(result) => self.conclude(scene, result),
                None => self.watch(scene, Interest::READABLE | Interest::WRITABLE),
            },
            Turn::Done(result) => self.conclude(scene, result),
            Turn::Pause => {
                core.note_limit_wait(Protocol::Ftp, before, running.pace.paused);
                None
            }
            Turn::Wait => self.watch(scene, Interest::READABLE | Interest::WRITABLE),
            Turn::Job(kind) => {
                self.lend(scene, kind);
                None
            }
            Turn::Commit if self.hears_first(scene) => {
                self.get_in_line(scene);
                None
            }
            Turn::Commit => self.commit(scene),
            Turn::Yield => {
                self.get_in_line(scene);
                None
            }
        }
    }

    /// Waits for another turn. An event may come between two turns: it is in line once all the same.
    fn get_in_line(&mut self, scene: &mut Scene<'_>) {
        if !std::mem::replace(&mut self.in_line, true) {
            scene.core.yielded.push_back(scene.me.key);
        }
    }

    /// Returns true if the client has said something that is to be heard before its upload is whole. One that has died
    /// has closed both connections, and the end of this one may be heard of first; and `ABOR` comes before the end
    /// of the data that it is about.
    fn hears_first(&mut self, scene: &mut Scene<'_>) -> bool {
        let Some(running) = self.running.as_deref_mut() else { return false };
        if std::mem::replace(&mut running.is_heard_out, true) {
            return false;
        }
        let Some(unread) = stream::unread(&scene.wire.socket) else { return false };
        scene.wire.state.expect_bytes();
        if unread.has_ended {
            scene.wire.state.note_hang_up();
        }
        true
    }

    /// Everything of an upload has come.
    fn commit(&mut self, scene: &mut Scene<'_>) -> Option<Outcome> {
        let holds = scene.hooks.asks_beforehand(scene.core);
        let Work::Receive(receiver) = &mut self.running.as_deref_mut()?.work else { return None };
        if holds {
            receiver.hold_back();
        }
        match receiver.commit_at_once() {
            Some(result) => self.conclude(scene, result),
            None => {
                self.lend(scene, JobKind::Sink);
                None
            }
        }
    }

    /// The data connection is there: TLS begins on it, where it was agreed on, or else bytes can move.
    fn open_link(&mut self, scene: &mut Scene<'_>, mut socket: Socket) -> Result<(), TransferError> {
        let Some(running) = self.running.as_deref_mut() else { return Ok(()) };
        let protection = running.protection;
        let secure = scene.wire.secure.as_deref();
        let protected = protect(secure, scene.core, scene.me, &mut socket, protection);
        running.moved = scene.core.now.instant;
        running.link = match protection {
            Protection::Clear => Link::Open(socket),
            _ => Link::Securing(socket),
        };
        protected.map_err(|error| TransferError::NotSecured(error.to_string()))
    }

    fn advance_handshake(&mut self, scene: &mut Scene<'_>) -> Option<Result<bool, TransferError>> {
        let running = self.running.as_deref_mut()?;
        let link = std::mem::replace(&mut running.link, Link::OnPool);
        let Link::Securing(mut socket) = link else { return None };
        let secure = scene.wire.secure.as_deref_mut();
        let shaken = shake_data_hands(secure, scene.core, scene.me, &mut socket);
        running.link = match &shaken {
            Some(Ok(true)) => Link::Open(socket),
            _ => Link::Securing(socket),
        };
        shaken
    }

    /// Waits for the data socket; it is made known to the reactor only now.
    fn watch(&mut self, scene: &mut Scene<'_>, interest: Interest) -> Option<Outcome> {
        // The client may be waiting for the 150 before it sends anything.
        scene.send();
        let socket = match &mut self.running.as_deref_mut()?.link {
            Link::Open(socket) | Link::Securing(socket) | Link::Connecting(socket) => socket,
            Link::LingeringClose(closing) => &mut closing.socket,
            _ => return None,
        };
        if socket.registered {
            return None;
        }
        socket.registered = true;
        match scene.core.watch(scene.me.key, Role::Side, &socket.fd, interest) {
            Ok(()) => None,
            Err(error) => self.conclude(scene, Err(TransferError::Broken(error))),
        }
    }

    fn lend(&mut self, scene: &mut Scene<'_>, kind: JobKind) {
        let Some(running) = self.running.as_deref_mut() else { return };
        let (key, post, serial) = (scene.me.key, scene.me.door.post.clone(), running.serial);
        let mut job = running.lend(kind);
        job.listen_to(&scene.wire.socket);
        if let Some(socket) = job.known_socket() {
            scene.core.forget(&socket.fd);
            socket.registered = false;
        }
        let pool = match running.direction {
            Direction::Listing => &scene.me.door.ftp.listings,
            Direction::Download | Direction::Upload => &scene.core.services.pool,
        };
        pool.run(move || {
            let failed = JobDone {
                serial,
                work: Work::OnPool,
                socket: None,
                taken: Errand::default(),
                result: Some(Err(TransferError::File(FileError::Io(io::Error::other("internal error"))))),
            };
            let reply = Promise::new(post, key, Message::Job(failed));
            reply.keep(Message::Job(job.run()));
        });
    }

    /// The pool has done its part.
    pub(super) fn job_done(&mut self, scene: &mut Scene<'_>, done: JobDone) -> Option<Outcome> {
        let Some(running) = self.running.as_deref_mut().filter(|running| running.serial == done.serial)
        else {
            scene.core.discard(done);
            return None;
        };
        let result = running.take_back(done, scene.core.now.instant);
        running.note_first_byte(&scene.core.services.clock);
        if let Work::Receive(receiver) = &mut running.work {
            for (marker, position) in receiver.take_markers() {
                let mut line = Vec::new();
                Reply::marker(&marker, position).write(&mut line);
                scene.say(&line);
            }
        }
        let result = match (result, running.ending.take()) {
            // It was done before it heard that it should stop.
            (Some(Ok(())), _) => Some(Ok(())),
            (_, Some((error, _))) => Some(Err(error)),
            (result, None) => result,
        };
        match result {
            Some(result) => self.end(scene, result),
            None => self.advance(scene),
        }
    }

    /// `STAT path`: the listing goes to the control connection, a buffer at a time.
    fn advance_on_control(&mut self, scene: &mut Scene<'_>) -> Option<Outcome> {
        if !scene.wire.output.is_empty() {
            return None;
        }
        let running = self.running.as_deref_mut()?;
        let (Work::Send(sender), Via::Control(code)) = (&mut running.work, running.via) else { return None };
        let lines = sender.take_buffer();
        running.shared.add(lines.len() as u64);
        scene.core.out.extend_from_slice(&lines);
        if sender.is_drained() {
            let end = match (sender.whole(), sender.take_unread()) {
                (Err(TransferError::Cut(why)), _) => {
                    format!("{code} End of status, which is not whole: {why}.\r\n")
                }
                (_, Some(unread)) => {
                    format!(
                        "{code} End of status, without {} folder(s) that could not be read.\r\n",
                        unread.more + 1
                    )
                }
                _ => format!("{code} End of status.\r\n"),
            };
            scene.say(end.as_bytes());
            return self.conclude(scene, Ok(()));
        }
        scene.send();
        if scene.wire.output.is_empty() {
            self.lend(scene, JobKind::Fill);
        }
        None
    }

    /// Returns true if a transfer runs that `ABOR` would end, and has not yet.
    pub(super) fn can_be_aborted(&self) -> bool {
        self.running.as_deref().is_some_and(|running| running.ending.is_none())
    }

    /// Ends the running transfer early. Returns the outcome unless a job has to be waited for.
    pub(super) fn abort(&mut self, scene: &mut Scene<'_>, error: TransferError) -> Option<Outcome> {
        let running = self.running.as_deref_mut()?;
        if running.is_lent() {
            running.shared.cancelled.store(true, Ordering::Relaxed);
            running.ending.get_or_insert((error, scene.core.now.instant + JOB_GRACE));
            return None;
        }
        self.end(scene, Err(error))
    }

    /// An upload in place that fails leaves its file in order first: a client that hears 426 may ask for the size at
    /// once, and go on there. `None`: it ends when that is done, or has taken too long.
    fn leave_its_file(
        &mut self,
        scene: &mut Scene<'_>,
        result: Result<(), TransferError>,
    ) -> Option<Result<(), TransferError>> {
        let owes = |work: &Work| matches!(work, Work::Receive(receiver) if receiver.owes_its_file());
        match (result, self.running.as_deref_mut()) {
            (Err(error), Some(running)) if owes(&running.work) => {
                running.ending = Some((error, scene.core.now.instant + JOB_GRACE));
                self.lend(scene, JobKind::Leave);
                None
            }
            (result, _) => Some(result),
        }
    }

    /// The end of a transfer: closes the data connection, abandons an incomplete upload, logs.
    fn conclude(&mut self, scene: &mut Scene<'_>, result: Result<(), TransferError>) -> Option<Outcome> {
        let result = self.leave_its_file(scene, result)?;
        self.conclude_now(scene, result)
    }

    /// The same where the session does not hear of it: what is to be done to the file is done when it can be.
    fn conclude_now(&mut self, scene: &mut Scene<'_>, result: Result<(), TransferError>) -> Option<Outcome> {
        let mut running = self.running.take()?;
        let mut bytes = running.shared.bytes();
        if let Work::Receive(receiver) = &running.work {
            bytes += receiver.unwritten();
        }
        // A small file takes less than a turn of the worker, whose clock stands still meanwhile.
        let ended = scene.core.services.clock.instant();
        let waited = running.waited(ended);
        part_with(scene.core, &mut running, bytes, &result);
        if let Work::Receive(receiver) = &running.work
            && receiver.was_excused()
        {
            let text = "an upload without close_notify was taken for whole, as this client is excused";
            scene.log(log::Event::Warning { text });
        }
        let unread = match &mut running.work {
            Work::Send(sender) => sender.take_unread().map(Box::new),
            _ => None,
        };
        self.port.drop_lease(scene);
        let failure = result.as_ref().err().map(describe);
        let hashes = match (&running.work, &result) {
            (Work::Receive(receiver), Ok(())) => receiver.hashes(),
            _ => None,
        };
        let hash = hashes.map(|hashes| hashes.to_string());
        let transferred = Transferred {
            direction: running.direction,
            path: &running.path,
            bytes,
            elapsed: ended.saturating_duration_since(running.started),
            first_byte: running.first.map(|first| first.saturating_duration_since(running.started)),
            lag: ended.saturating_duration_since(scene.core.now.instant),
            waited,
            failure: failure.as_deref(),
            hash: hash.as_deref(),
            ascii: running.ascii,
            conversion: running.conversion,
            guest: scene.me.session.guest(),
            log: scene.me.session.settings.transfer_log.as_deref(),
        };
        let whole = match (&mut running.work, &result) {
            (Work::Receive(receiver), Ok(())) => receiver.take_whole(),
            _ => None,
        };
        if !scene.hooks.note_transfer(scene.core, scene.me, &transferred, whole) {
            scene.log(log::Event::Transferred(&transferred));
        }
        if running.work.end_may_wait() {
            scene.core.discard(std::mem::replace(&mut running.work, Work::OnPool));
        }
        Some(Outcome { bytes, result, unread })
    }

    /// The client has closed its side: a transfer needs a client for its reply, and is aborted while that can be sent.
    /// Returns whether there was one, with its outcome unless a job has to be waited for.
    pub(super) fn hang_up(&mut self, scene: &mut Scene<'_>) -> Option<Option<Outcome>> {
        let running = self.running.as_deref().filter(|running| running.ending.is_none())?;
        // Perhaps the client does not hear the 426: what was sent must not look like the whole file.
        reset_download(running);
        Some(self.abort(scene, TransferError::Aborted))
    }

    /// The connection ends, and with it the transfer.
    pub(super) fn give_up(&mut self, scene: &mut Scene<'_>) {
        if let Some(running) = &self.running {
            running.shared.cancelled.store(true, Ordering::Relaxed);
            // The client is not told 426: what was sent must not look like the whole file.
            reset_download(running);
        }
        let _ = self.conclude_now(scene, Err(TransferError::Aborted));
        self.port.drop_lease(scene);
        self.port.deadline = None;
    }

    /// Returns when the passive port is given back, as no transfer has begun.
    pub(super) fn lease_due(&self) -> Option<Instant> {
        self.port.lease.as_ref().filter(|_| self.running.is_none())?.due
    }

    /// Returns when the transfer has waited long enough for whatever it waits for.
    pub(super) fn due(&self, config: &FtpConfig) -> Option<Instant> {
        let running = self.running.as_deref()?;
        match (&running.ending, &running.link) {
            (Some((_, end)), _) => Some(*end),
            (None, _) if running.is_lent() => None,
            (None, Link::Accepting(_) | Link::Connecting(_) | Link::Securing(_)) => {
                Some(running.started + config.connect_timeout)
            }
            (None, Link::Open(_)) if running.pace.paused.is_some() => running.pace.paused,
            (None, Link::LingeringClose(closing)) => Some(closing.until),
            (None, Link::Open(_)) if running.direction != Direction::Upload => {
                Some(running.taken.due(running.moved, config.stall_timeout))
            }
            (None, Link::Open(_) | Link::Control) => Some(running.moved + config.stall_timeout),
            (None, Link::OnPool) => None,
        }
    }

    /// It has.
    pub(super) fn overdue(&mut self, scene: &mut Scene<'_>) -> Option<Outcome> {
        let running = self.running.as_deref_mut()?;
        if running.ending.is_none() && running.pace.paused.take().is_some() {
            // It was a limit that nothing moved for.
            running.moved = scene.core.now.instant;
            return self.advance(scene);
        }
        if running.ending.is_none() && matches!(running.link, Link::Accepting(_) | Link::Connecting(_)) {
            let reached = Reached::new(LimitKey::ConnectTimeout, scene.me.door.ftp.config.connect_timeout);
            scene.log(log::Event::Limited { reached: &reached, reason: None });
        }
        if let (None, Link::LingeringClose(closing)) = (&running.ending, &running.link) {
            let result = closing.give_up();
            return self.end(scene, result);
        }
        if let (None, Link::Open(socket), Direction::Download | Direction::Listing) =
            (&running.ending, &running.link, running.direction)
            && running.taken.look(
                stream::acknowledged(&socket.fd),
                &mut running.moved,
                scene.core.now.instant,
            )
        {
            return None;
        }
        let error = match (running.ending.take(), &running.link) {
            (Some((error, _)), _) => error,
            (None, Link::Accepting(_)) => {
                let by_ticket = self.port.give_up_unnamed(scene);
                TransferError::NoConnection(if by_ticket { NOT_KNOWN } else { NOT_COME }.to_owned())
            }
            (None, Link::Securing(_)) => TransferError::NotSecured("the handshake took too long".to_owned()),
            (None, Link::Connecting(_)) => {
                TransferError::NoConnection("no answer from the client's address".to_owned())
            }
            (None, _) => TransferError::Stalled,
        };
        self.end(scene, Err(error))
    }
}
