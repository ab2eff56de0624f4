//! The data connection of a control connection: how it comes about, and the transfer that it carries.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Instant;

use millrace_ftp::reply::Reply;
use millrace_ftp::session::{Answer, Input, Outcome, Protection, Transfer, TransferError, Via};
use millrace_limits::{Errand, LimitKey, Reached};
use millrace_log::{self as log, Direction, Transferred};
use millrace_net::stream;
use millrace_runtime::transfer::{End, JobDone, JobKind, Link, Running, SMALL, Socket, Turn, Work, describe};
use millrace_runtime::worker::{Core, Promise, Role};
use millrace_vfs::FileError;
use mio::Interest;
use mio::event::Event;

use super::Connection;
use super::message::Message;
use super::question::JOB_GRACE;

/// Why a transfer has none whose client did not come.
const NOT_COME: &str = "the client did not connect in time";

/// The same where a connection may have come, and nobody could say for whom.
const NOT_KNOWN: &str = "no connection came in time that resumes the TLS session of its control connection, \
     by which sessions are told apart while all passive ports are in use";

impl Connection {
    /// Begins a transfer; answers its outcome if it was done in one go.
    pub(super) fn begin_transfer(&mut self, core: &mut Core, transfer: Transfer) -> Option<Outcome> {
        let link = match transfer.via {
            Via::Passive => self.passive_link(transfer.protection),
            Via::Control(_) => Ok(Link::Control),
            Via::Active(address) => match stream::begin_connect(self.local(), address) {
                Ok(socket) => Ok(Link::Connecting(Socket::new(socket))),
                Err(error) => Err(TransferError::NoConnection(format!("{address}: {}", error.kind()))),
            },
        };
        let link = match link {
            Ok(link) => link,
            Err(why) => {
                core.discard(transfer);
                return Some(Outcome { bytes: 0, result: Err(why), unread: None });
            }
        };
        if !self.door.ftp.config.coalesce {
            self.send(core);
        }
        let serial = core.next_serial();
        let mut running = Running::new(transfer, link, serial, core.now.instant, &self.member);
        if let (Work::Receive(receiver), Some(tls)) = (&mut running.work, &core.services.tls)
            && tls.excuses(self.session.client())
        {
            receiver.excuse();
        }
        if let (Via::Control(code), path) = (running.via, &running.path) {
            core.out.extend_from_slice(format!("{code}-Status of ").as_bytes());
            millrace_ftp::escape::quote_path(path.as_bytes(), &mut core.out);
            core.out.extend_from_slice(b":\r\n");
        }
        self.running = Some(Box::new(running));
        self.advance(core)
    }

    /// The reactor says something of the data connection, or of the listener.
    pub fn data_event(&mut self, core: &mut Core, event: &Event) {
        let Some(running) = self.running.as_deref_mut() else { return self.early_event(core, event) };
        match &mut running.link {
            Link::Open(socket) | Link::Securing(socket) => socket.end = socket.end.max(end(event)),
            // The reactor tells it once: kept until the job gives the socket back.
            Link::OnPool => running.end = running.end.max(end(event)),
            Link::Connecting(socket) => {
                // Bytes and their end may come with the connection, in one event.
                socket.end = socket.end.max(end(event));
                if let Err(error) = stream::connected(&socket.fd) {
                    let why = TransferError::NoConnection(error.kind().to_string());
                    return self.end_transfer(core, Err(why));
                }
            }
            _ => {}
        }
        self.continue_transfer(core);
    }

    /// Moves the transfer on, and tells the session if it ended.
    pub fn continue_transfer(&mut self, core: &mut Core) {
        if self.running.is_none() {
            return self.advance_early(core);
        }
        if let Some(outcome) = self.advance(core)
            && let Some(outcome) = self.transfer_over(core, outcome)
        {
            self.feed(core, Input::TransferEnded(outcome));
        }
    }

    /// The next turn of a transfer that used up its share.
    pub fn next_turn(&mut self, core: &mut Core) {
        self.state.in_line = false;
        self.continue_transfer(core);
    }

    fn end_transfer(&mut self, core: &mut Core, result: Result<(), TransferError>) {
        let via = self.running.as_deref().map(|running| running.via);
        if let Some(outcome) = self.conclude(core, result) {
            let outcome = end_report(core, via, outcome);
            if let Some(outcome) = self.transfer_over(core, outcome) {
                self.feed(core, Input::TransferEnded(outcome));
            }
        }
    }

    /// Does what can be done now; answers the outcome at the end.
    fn advance(&mut self, core: &mut Core) -> Option<Outcome> {
        loop {
            let running = self.running.as_deref_mut()?;
            if running.is_lent() {
                return None;
            }
            match &mut running.link {
                Link::Accepting(_) => match self.accept(core) {
                    Ok(Some(socket)) => {
                        if let Err(error) = self.open_link(core, socket) {
                            return self.conclude(core, Err(error));
                        }
                    }
                    Ok(None) => return None,
                    Err(error) => {
                        return self.conclude(core, Err(TransferError::NoConnection(error.to_string())));
                    }
                },
                Link::Connecting(socket) => {
                    if !stream::is_connected(&socket.fd) {
                        // Both at once, for good: the socket is registered a single time.
                        return self.watch(core, Interest::READABLE | Interest::WRITABLE);
                    }
                    let link = std::mem::replace(&mut running.link, Link::OnPool);
                    if let Link::Connecting(socket) = link
                        && let Err(error) = self.open_link(core, socket)
                    {
                        return self.conclude(core, Err(error));
                    }
                }
                Link::Securing(_) => match self.advance_handshake(core) {
                    Some(Ok(true)) => {}
                    Some(Ok(false)) => return self.watch(core, Interest::READABLE | Interest::WRITABLE),
                    Some(Err(error)) => return self.conclude(core, Err(error)),
                    None => {
                        core.yielded.push_back(self.key);
                        return None;
                    }
                },
                Link::Open(_) => return self.take_turn(core),
                Link::LingeringClose(_) => {
                    let result = running.part(&mut core.scratch, core.now.instant)?;
                    return self.conclude(core, result);
                }
                Link::Control => return self.advance_on_control(core),
                Link::OnPool => return None,
            }
        }
    }

    /// Moves bytes for as long as the turn lasts.
    fn take_turn(&mut self, core: &mut Core) -> Option<Outcome> {
        let running = self.running.as_deref_mut()?;
        match running.turn(core.now.instant, &mut core.scratch, &core.services.limits, &self.member) {
            Turn::Done(Ok(())) => match running.part(&mut core.scratch, core.now.instant) {
                Some(result) => self.conclude(core, result),
                None => self.watch(core, Interest::READABLE | Interest::WRITABLE),
            },
            Turn::Done(result) => self.conclude(core, result),
            Turn::Pause => None,
            Turn::Wait => self.watch(core, Interest::READABLE | Interest::WRITABLE),
            Turn::Job(kind) => {
                self.lend(core, kind);
                None
            }
            Turn::Commit if self.hears_first() => {
                self.get_in_line(core);
                None
            }
            Turn::Commit => self.commit(core),
            Turn::Yield => {
                self.get_in_line(core);
                None
            }
        }
    }

    /// Waits for another turn. An event may come between two turns: it is in line once all the same.
    fn get_in_line(&mut self, core: &mut Core) {
        if !std::mem::replace(&mut self.state.in_line, true) {
            core.yielded.push_back(self.key);
        }
    }

    /// Claims that the client has said something that is to be heard before its upload is whole. One that has died
    /// has closed both connections, and the end of this one may be heard of first; and `ABOR` comes before the end
    /// of the data that it is about.
    fn hears_first(&mut self) -> bool {
        let Some(running) = self.running.as_deref_mut() else { return false };
        if std::mem::replace(&mut running.is_heard_out, true) {
            return false;
        }
        let Some(unread) = stream::unread(&self.socket) else { return false };
        self.state.readable = true;
        self.state.hung_up |= unread.has_ended;
        true
    }

    /// Everything of an upload has come.
    fn commit(&mut self, core: &mut Core) -> Option<Outcome> {
        let holds = self.asks_beforehand(core);
        let Work::Receive(receiver) = &mut self.running.as_deref_mut()?.work else { return None };
        if holds {
            receiver.hold_back();
        }
        match receiver.commit_at_once() {
            Some(result) => self.conclude(core, result),
            None => {
                self.lend(core, JobKind::Sink);
                None
            }
        }
    }

    /// The data connection is there: TLS begins on it, where it was agreed on, or else bytes can move.
    fn open_link(&mut self, core: &mut Core, mut socket: Socket) -> Result<(), TransferError> {
        let Some(running) = self.running.as_deref() else { return Ok(()) };
        let protection = running.protection;
        let protected = self.protect(core, &mut socket, protection);
        if let Some(running) = self.running.as_deref_mut() {
            running.moved = core.now.instant;
            running.link = match protection {
                Protection::Clear => Link::Open(socket),
                _ => Link::Securing(socket),
            };
        }
        protected.map_err(|error| TransferError::NotSecured(error.to_string()))
    }

    fn advance_handshake(&mut self, core: &mut Core) -> Option<Result<bool, TransferError>> {
        let running = self.running.as_deref_mut()?;
        let link = std::mem::replace(&mut running.link, Link::OnPool);
        let Link::Securing(mut socket) = link else { return None };
        let shaken = self.shake_data_hands(core, &mut socket);
        let running = self.running.as_deref_mut()?;
        running.link = match &shaken {
            Some(Ok(true)) => Link::Open(socket),
            _ => Link::Securing(socket),
        };
        shaken
    }

    /// Waits for the data socket; it is made known to the reactor only now.
    fn watch(&mut self, core: &mut Core, interest: Interest) -> Option<Outcome> {
        // The client may be waiting for the 150 before it sends anything.
        self.send(core);
        let socket = match &mut self.running.as_deref_mut()?.link {
            Link::Open(socket) | Link::Securing(socket) | Link::Connecting(socket) => socket,
            Link::LingeringClose(closing) => &mut closing.socket,
            _ => return None,
        };
        if socket.registered {
            return None;
        }
        socket.registered = true;
        match core.watch(self.key, Role::Side, &socket.fd, interest) {
            Ok(()) => None,
            Err(error) => self.conclude(core, Err(TransferError::Broken(error))),
        }
    }

    fn lend(&mut self, core: &mut Core, kind: JobKind) {
        let Some(running) = self.running.as_deref_mut() else { return };
        let (key, post, serial) = (self.key, self.door.post.clone(), running.serial);
        let mut job = running.lend(kind);
        job.listen_to(&self.socket);
        if let Some(socket) = job.known_socket() {
            core.forget(&socket.fd);
            socket.registered = false;
        }
        let pool = match running.direction {
            Direction::Listing => &self.door.ftp.listings,
            Direction::Download | Direction::Upload => &core.services.pool,
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
    pub(super) fn job_done(&mut self, core: &mut Core, done: JobDone) {
        let Some(running) = self.running.as_deref_mut().filter(|running| running.serial == done.serial)
        else {
            return core.discard(done);
        };
        let result = running.take_back(done, core.now.instant);
        if let Work::Receive(receiver) = &mut running.work {
            for (marker, position) in receiver.take_markers() {
                Reply::marker(&marker, position).write(&mut core.out);
            }
        }
        let result = match (result, running.ending.take()) {
            // It was done before it heard that it should stop.
            (Some(Ok(())), _) => Some(Ok(())),
            (_, Some((error, _))) => Some(Err(error)),
            (result, None) => result,
        };
        match result {
            Some(result) => self.end_transfer(core, result),
            None => self.continue_transfer(core),
        }
    }

    /// `STAT path`: the listing goes to the control connection, a buffer at a time.
    fn advance_on_control(&mut self, core: &mut Core) -> Option<Outcome> {
        if !self.output.is_empty() {
            return None;
        }
        let running = self.running.as_deref_mut()?;
        let (Work::Send(sender), Via::Control(code)) = (&mut running.work, running.via) else { return None };
        let lines = sender.take_buffer();
        running.shared.add(lines.len() as u64);
        core.out.extend_from_slice(&lines);
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
            core.out.extend_from_slice(end.as_bytes());
            return self.conclude(core, Ok(()));
        }
        self.send(core);
        if self.output.is_empty() {
            self.lend(core, JobKind::Fill);
        }
        None
    }

    /// Ends the running transfer on somebody's word; answers the outcome unless a job has to be waited for.
    pub(super) fn abort_transfer(&mut self, core: &mut Core, error: TransferError) -> Option<Outcome> {
        let running = self.running.as_deref_mut()?;
        if running.is_lent() {
            running.shared.cancelled.store(true, Ordering::Relaxed);
            running.ending.get_or_insert((error, core.now.instant + JOB_GRACE));
            return None;
        }
        let via = running.via;
        self.conclude(core, Err(error)).map(|outcome| end_report(core, Some(via), outcome))
    }

    /// An upload in place that fails leaves its file in order first: whoever hears 426 may ask for the size at once, and go
    /// on there. `None`: it ends when that is done, or has taken too long.
    fn leave_its_file(
        &mut self,
        core: &mut Core,
        result: Result<(), TransferError>,
    ) -> Option<Result<(), TransferError>> {
        let owes = |work: &Work| matches!(work, Work::Receive(receiver) if receiver.owes_its_file());
        match (result, self.running.as_deref_mut()) {
            (Err(error), Some(running)) if owes(&running.work) => {
                running.ending = Some((error, core.now.instant + JOB_GRACE));
                self.lend(core, JobKind::Leave);
                None
            }
            (result, _) => Some(result),
        }
    }

    /// The end of a transfer: closes the data connection, gives up what is not whole, logs.
    fn conclude(&mut self, core: &mut Core, result: Result<(), TransferError>) -> Option<Outcome> {
        let result = self.leave_its_file(core, result)?;
        self.conclude_now(core, result)
    }

    /// The same where nobody is left to hear of it: what is to be done to the file is done when it can be.
    fn conclude_now(&mut self, core: &mut Core, result: Result<(), TransferError>) -> Option<Outcome> {
        let mut running = self.running.take()?;
        let mut bytes = running.shared.bytes();
        if let Work::Receive(receiver) = &running.work {
            bytes += receiver.unwritten();
        }
        part_with(core, &mut running, bytes, &result);
        if let Work::Receive(receiver) = &running.work
            && receiver.was_excused()
        {
            let text = "an upload without close_notify was taken for whole, as this client is excused";
            self.log(core, log::Event::Warning { text });
        }
        let unread = match &mut running.work {
            Work::Send(sender) => sender.take_unread().map(Box::new),
            _ => None,
        };
        self.drop_lease(core);
        let guest = self.session.guest().map(<[u8]>::to_vec);
        let failure = result.as_ref().err().map(describe);
        let transferred = Transferred {
            direction: running.direction,
            path: &running.path,
            bytes,
            elapsed: core.now.instant.saturating_duration_since(running.started),
            failure: failure.as_deref(),
            ascii: running.ascii,
            guest: guest.as_deref(),
        };
        let whole = match (&mut running.work, &result) {
            (Work::Receive(receiver), Ok(())) => receiver.take_whole(),
            _ => None,
        };
        if !self.note_transfer(core, &transferred, whole) {
            self.log(core, log::Event::Transferred(&transferred));
        }
        if running.work.end_may_wait() {
            core.discard(std::mem::replace(&mut running.work, Work::OnPool));
        }
        Some(Outcome { bytes, result, unread })
    }

    /// The client has said its last. What it asked for is done as far as that is possible, but a transfer, or a
    /// port for one, needs somebody who hears how it ended: that is given up, and said while it can be.
    /// Answers whether there was such a thing, and what comes after it may go on.
    pub(super) fn hang_up(&mut self, core: &mut Core) -> bool {
        if self.port_deadline.take().is_some() {
            let why = "the control connection was closed before one was free".to_owned();
            self.feed(core, Input::Answer(Answer::NoPort(why)));
            return true;
        }
        let Some(running) = self.running.as_deref().filter(|running| running.ending.is_none()) else {
            return false;
        };
        // Perhaps nobody hears the 426: what was sent must not look like the whole file.
        if let (Link::Open(socket), Direction::Download) = (&running.link, running.direction) {
            stream::reset_on_close(&socket.fd);
        }
        if let Some(outcome) = self.abort_transfer(core, TransferError::Aborted)
            && let Some(outcome) = self.transfer_over(core, outcome)
        {
            self.feed(core, Input::TransferEnded(outcome));
        }
        true
    }

    /// The connection ends, and with it the transfer.
    pub(super) fn give_up_transfer(&mut self, core: &mut Core) {
        if let Some(running) = &self.running {
            running.shared.cancelled.store(true, Ordering::Relaxed);
            // There is nobody left to be told 426: what was sent must not look like the whole file.
            if let (Link::Open(socket), Direction::Download) = (&running.link, running.direction) {
                stream::reset_on_close(&socket.fd);
            }
        }
        let _ = self.conclude_now(core, Err(TransferError::Aborted));
    }

    /// When the transfer has waited long enough for whatever it waits for.
    pub(super) fn transfer_due(&self, running: &Running) -> Option<Instant> {
        let config = &self.door.ftp.config;
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
    pub(super) fn transfer_overdue(&mut self, core: &mut Core) {
        let Some(running) = self.running.as_deref_mut() else { return };
        if running.ending.is_none() && running.pace.paused.take().is_some() {
            // It was a limit that nothing moved for.
            running.moved = core.now.instant;
            return self.continue_transfer(core);
        }
        if running.ending.is_none() && matches!(running.link, Link::Accepting(_) | Link::Connecting(_)) {
            let reached = Reached::new(LimitKey::ConnectTimeout, self.door.ftp.config.connect_timeout);
            self.log(core, log::Event::Limited { reached: &reached, reason: None });
        }
        let Some(running) = self.running.as_deref_mut() else { return };
        if let (None, Link::LingeringClose(closing)) = (&running.ending, &running.link) {
            let result = closing.give_up();
            return self.end_transfer(core, result);
        }
        if let (None, Link::Open(socket), Direction::Download | Direction::Listing) =
            (&running.ending, &running.link, running.direction)
            && running.taken.look(stream::acknowledged(&socket.fd), &mut running.moved, core.now.instant)
        {
            return;
        }
        let error = match (running.ending.take(), &running.link) {
            (Some((error, _)), _) => error,
            (None, Link::Accepting(_)) => {
                let late = self.lease.as_mut().map_or(Vec::new(), |lease| lease.give_up_unnamed());
                self.tell_turned_away(core, late);
                let by_ticket = self.lease.as_ref().is_some_and(|lease| lease.goes_by_ticket());
                TransferError::NoConnection(if by_ticket { NOT_KNOWN } else { NOT_COME }.to_owned())
            }
            (None, Link::Securing(_)) => TransferError::NotSecured("the handshake took too long".to_owned()),
            (None, Link::Connecting(_)) => {
                TransferError::NoConnection("no answer from the client's address".to_owned())
            }
            (None, _) => TransferError::Stalled,
        };
        self.end_transfer(core, Err(error));
    }
}

/// What an event says of the peer's side.
pub(super) fn end(event: &Event) -> End {
    if event.is_error() {
        End::Broken
    } else if event.is_read_closed() {
        End::Orderly
    } else {
        End::NotYet
    }
}

/// What becomes of the data connection of a transfer that has ended so, after so many bytes.
fn part_with(core: &mut Core, running: &mut Running, bytes: u64, result: &Result<(), TransferError>) {
    if let (Link::Open(socket), Direction::Download, Err(TransferError::File(_))) =
        (&running.link, running.direction, result)
    {
        // An orderly close would make the part that was sent look like the whole file.
        stream::reset_on_close(&socket.fd);
    }
    if let Link::Accepting(watched) = &mut running.link
        && let Some(watched) = watched.take()
    {
        core.forget(&watched);
        // Before the lease goes: a port that is to be bound anew must be closed by then.
        drop(watched);
    }
    if let (Link::Open(socket), Direction::Upload, Ok(())) = (&mut running.link, running.direction, result) {
        socket.part(&mut core.scratch);
    }
    if let (Link::Open(Socket { end: End::NotYet, .. }), Ok(())) = (&running.link, result)
        && running.direction != Direction::Upload
        && bytes > SMALL
        && let Link::Open(socket) = std::mem::replace(&mut running.link, Link::OnPool)
    {
        core.see_off(socket);
    }
}

/// The last line of a `STAT path` that failed half-way: behind the first line only the same code ends it, so
/// the failure is told there, and not in a reply of its own.
fn end_report(core: &mut Core, via: Option<Via>, outcome: Outcome) -> Outcome {
    match (via, &outcome.result) {
        (Some(Via::Control(code)), Err(error)) => {
            Reply::owned(code, format!("Incomplete: {}.", describe(error))).write(&mut core.out);
            Outcome { result: Ok(()), ..outcome }
        }
        _ => outcome,
    }
}
