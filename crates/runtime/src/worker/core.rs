//! What a connection needs of its worker: the reactor, buffers that all share, the time of the turn, the log.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use millrace_ftp::session::Now;
use millrace_log::{self as log, Subject};
use millrace_metrics::{HandshakeResult, Metric, Protocol, Shard};
use millrace_net::Wire;
use millrace_net::timer::Wheel;
use millrace_net::tls::{self, Channel};
use mio::unix::SourceFd;
use mio::{Interest, Registry};

use super::token::{ERRORS, Role, token};
use crate::handshakes::Handshakes;
use crate::services::Services;
use crate::slab::Key;
use crate::transfer::{BackgroundDrain, Socket};

/// The read buffer that all of a worker's control connections share.
const CONTROL_BUFFER: usize = 16 * 1024;

/// The buffer shared by all of its transfers: see [`crate::transfer`].
const SCRATCH: usize = 64 * 1024;

/// What a connection needs of its worker.
pub struct Core {
    registry: Registry,
    /// What all workers share.
    pub services: Arc<Services>,
    /// The time of the turn.
    pub now: Now,
    /// Replies of the connection that is being served, until they are sent together.
    pub out: Vec<u8>,
    /// What connections read into.
    pub control_buffer: Vec<u8>,
    /// What transfers read into.
    pub scratch: Vec<u8>,
    /// Decrypted bytes of the connection that is being served.
    pub plain: Vec<u8>,
    /// Encrypted bytes of the same, on their way out.
    pub wire: Wire,
    /// The share of the turn that handshakes have.
    pub handshakes: Handshakes,
    /// Connections whose share of the turn was used up.
    pub yielded: VecDeque<Key>,
    /// When connections are to be looked at.
    pub wheel: Wheel<Key>,
    /// Data connections whose transfers have ended.
    background_drain: BackgroundDrain,
    /// Whether the server is closing: clients that have nothing under way are not waited for.
    pub ending: bool,
    /// Counts the turns of the loop, and moments that are as good as another turn.
    pub turn: u64,
    serial: u64,
    lines: log::Lines,
    /// Where this worker counts.
    pub metrics: Arc<Shard>,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("turn", &self.turn).finish_non_exhaustive()
    }
}

impl Core {
    /// For a worker that begins now.
    pub(super) fn new(registry: Registry, services: Arc<Services>) -> Self {
        let now = services.clock.now();
        let metrics = services.log.metrics().shard();
        let open_files = services.sessions.descriptors().for_files();
        Self {
            registry,
            now,
            out: Vec::with_capacity(CONTROL_BUFFER),
            control_buffer: vec![0; CONTROL_BUFFER],
            scratch: vec![0; scratch_size(&services)],
            plain: Vec::new(),
            wire: Wire::default(),
            handshakes: Handshakes::default(),
            yielded: VecDeque::new(),
            wheel: Wheel::new(now.instant),
            background_drain: BackgroundDrain::new(open_files / 2),
            ending: false,
            turn: 0,
            serial: 0,
            lines: log::Log::lines(Arc::clone(&metrics)),
            metrics,
            services,
        }
    }

    /// Another turn of the loop.
    pub(super) fn begin_turn(&mut self) {
        self.look_at_clock();
        self.turn += 1;
    }

    /// Ends a turn.
    pub(super) fn end_turn(&mut self) {
        self.background_drain.look(self.now.instant, &mut self.scratch);
    }

    /// Returns when something is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.background_drain.due().into_iter().chain(self.wheel.next_due()).min()
    }

    /// Has what was logged written.
    pub(super) fn hand_over_log(&mut self) {
        self.services.log.flush(&mut self.lines);
    }

    /// Returns a number that no other question or transfer of this worker has.
    pub fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Has the turn go on as if it had begun now: something was seen that is newer.
    pub fn look_at_clock(&mut self) {
        self.now = self.services.clock.now();
    }

    /// Moves a handshake on; returns whether it is over, or `None` where this turn has no time for it.
    pub fn shake_hands(&mut self, channel: &mut Channel, socket: &OwnedFd) -> Option<io::Result<bool>> {
        if self.handshakes.is_used_up() {
            return None;
        }
        let began = Instant::now();
        let done = channel.handshake(socket, &mut self.scratch);
        self.handshakes.spend(began);
        let result = match &done {
            Ok(false) => return Some(done),
            Ok(true) if channel.tls().is_resumed() => HandshakeResult::Resumed,
            Ok(true) => HandshakeResult::Full,
            Err(_) => HandshakeResult::Failed,
        };
        self.metrics.add(Metric::Handshakes, &[result as usize], 1);
        Some(done)
    }

    /// Writes an event to the log.
    pub fn log(&mut self, subject: &Subject<'_>, event: log::Event<'_>) {
        self.services.log.record(&mut self.lines, self.now.wall, subject, event);
    }

    /// Writes an event to the audit log alone, where that records it.
    pub fn audit(&mut self, subject: &Subject<'_>, event: &log::Event<'_>) {
        self.services.log.audit(&mut self.lines, self.now.wall, subject, event);
    }

    /// Writes a request of HTTP to the log.
    pub fn log_request(&mut self, subject: &Subject<'_>, request: &log::Request<'_>) {
        self.services.log.request(&mut self.lines, self.now.wall, subject, request);
    }

    /// Writes a transfer to the transfer log.
    pub fn log_transfer(&mut self, subject: &Subject<'_>, transfer: &log::Transferred<'_>) {
        self.services.log.transfer(&mut self.lines, self.now.wall, subject, transfer);
    }

    /// Counts that a transfer waits for a limit on bandwidth `until` then, unless it has waited `before`, and still does.
    pub fn note_limit_wait(&self, protocol: Protocol, before: Option<Instant>, until: Option<Instant>) {
        let still_waits = before.is_some_and(|before| before > self.now.instant);
        if still_waits || until.is_none() {
            return;
        }
        self.metrics.add(Metric::LimitWaits, &[protocol as usize], 1);
    }

    /// Counts a transfer by HTTP that is not logged by itself.
    pub fn count_transfer(&mut self, transfer: &log::Measured) {
        self.services.log.count_http_transfer(&mut self.lines, transfer);
    }

    /// Restores the buffers that a panic may have taken, and drops what they hold of the connection that panicked.
    pub(super) fn recover(&mut self) {
        self.out.clear();
        self.plain.clear();
        self.wire = Wire::default();
        self.control_buffer.resize(CONTROL_BUFFER, 0);
        self.scratch.resize(scratch_size(&self.services), 0);
        self.services
            .log
            .warn("a connection was ended because of a mistake in this program; please report it");
    }

    /// Has the reactor tell of a descriptor of a connection.
    pub fn watch(&self, key: Key, role: Role, file: &impl AsRawFd, interest: Interest) -> io::Result<()> {
        self.registry.register(&mut SourceFd(&file.as_raw_fd()), token(key, role), interest)
    }

    /// Has the reactor tell other things of a descriptor that it knows.
    pub fn watch_again(
        &self,
        key: Key,
        role: Role,
        file: &impl AsRawFd,
        interest: Interest,
    ) -> io::Result<()> {
        self.registry.reregister(&mut SourceFd(&file.as_raw_fd()), token(key, role), interest)
    }

    /// Has the reactor tell when programs have written errors: see [`super::Doors::read_errors`].
    pub fn watch_errors(&self, pipe: &impl AsRawFd) -> io::Result<()> {
        self.registry.register(&mut SourceFd(&pipe.as_raw_fd()), ERRORS, Interest::READABLE)
    }

    /// Has the reactor forget a descriptor that stays open elsewhere.
    pub fn forget(&self, socket: &OwnedFd) {
        let _ = self.registry.deregister(&mut SourceFd(&socket.as_raw_fd()));
    }

    /// Drains a data connection in the background: all of a download was sent on it, and it ends with its client.
    pub fn see_off(&mut self, socket: Socket) {
        if socket.registered {
            self.forget(&socket.fd);
        }
        socket.leave(&mut self.background_drain, self.now.instant);
    }

    /// Drops something whose end may wait for a disk (an upload that is given up, a file on a file system that
    /// may hang: its `close` asks the file system, too) where waiting is allowed.
    pub fn discard(&self, thing: impl Send + 'static) {
        self.services.pool.run(move || drop(thing));
    }
}

/// TLS wants room for the longest handshake message.
fn scratch_size(services: &Services) -> usize {
    if services.tls.is_some() { tls::BUFFER } else { SCRATCH }
}
