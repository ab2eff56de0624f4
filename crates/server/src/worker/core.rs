//! What a connection needs of its worker: the reactor's ear, buffers that all share, the time of the turn, the log.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use millrace_ftp::session::Now;
use millrace_net::inbox::Sender;
use millrace_net::timer::Wheel;
use millrace_net::tls::{self, Wire};
use millrace_vfs::Timestamp;
use mio::unix::SourceFd;
use mio::{Interest, Registry};

use super::Message;
use super::token::{CONTROL, DATA, ERRORS, PROGRAM, token};
use crate::handshakes::Handshakes;
use crate::http;
use crate::log::{self, Subject};
use crate::slab::Key;
use crate::state::Server;
use crate::transfer::{BackgroundDrain, Socket};

/// The read buffer that all of a worker's control connections share.
const CONTROL_BUFFER: usize = 16 * 1024;

/// The buffer that all of its transfers share: see [`crate::transfer`] for what is read into it.
const SCRATCH: usize = 64 * 1024;

/// What a connection needs of its worker.
pub(crate) struct Core {
    pub(crate) registry: Registry,
    pub(crate) server: Arc<Server>,
    pub(crate) sender: Sender<Message>,
    pub(crate) now: Now,
    /// Replies of the connection that is being served, until they are sent together.
    pub(crate) out: Vec<u8>,
    pub(crate) control_buffer: Vec<u8>,
    pub(crate) scratch: Vec<u8>,
    /// Decrypted bytes of the control connection that is being served.
    pub(crate) plain: Vec<u8>,
    /// Encrypted bytes of the same, on their way out.
    pub(crate) wire: Wire,
    pub(crate) handshakes: Handshakes,
    /// Transfers whose share was used up.
    pub(crate) yielded: VecDeque<Key>,
    pub(crate) wheel: Wheel<Key>,
    /// Data connections of nobody any more.
    background_drain: BackgroundDrain,
    /// The server is closing: nobody who has nothing more to say is waited for.
    pub(crate) ending: bool,
    /// Counts the turns of the loop, and moments that are as good as another turn: see [`http::Shared`].
    pub(crate) turn: u64,
    /// What connections of HTTP share.
    pub(crate) http: http::Shared,
    serial: u64,
    lines: log::Lines,
}

impl Core {
    /// For a worker that begins now, and is sent messages so.
    pub(super) fn new(registry: Registry, server: Arc<Server>, sender: Sender<Message>) -> Self {
        let now = clock();
        let open_files = (server.descriptor_reserve / 4).min(512) as usize;
        let programs = server.config.programs.most.div_ceil(server.config.workers.max(1)).max(1);
        Self {
            registry,
            http: http::Shared::new(open_files, programs, &server.config, server.web()),
            scratch: vec![0; scratch_size(&server)],
            server,
            sender,
            now,
            out: Vec::with_capacity(CONTROL_BUFFER),
            control_buffer: vec![0; CONTROL_BUFFER],
            plain: Vec::new(),
            wire: Wire::default(),
            handshakes: Handshakes::default(),
            yielded: VecDeque::new(),
            wheel: Wheel::new(now.instant),
            background_drain: BackgroundDrain::new(open_files / 2),
            ending: false,
            turn: 0,
            serial: 0,
            lines: log::Lines::default(),
        }
    }

    /// Another turn of the loop.
    pub(super) fn begin_turn(&mut self) {
        self.look_at_clock();
        self.turn += 1;
    }

    /// What is done at the end of a turn, for nobody in particular.
    pub(super) fn end_turn(&mut self) {
        self.background_drain.look(self.now.instant, &mut self.scratch);
        self.http.cache.sweep(self.now.instant);
        self.look_after_programs();
        self.hand_over_log();
    }

    /// When there is something to do at the end of a turn, though nobody asks.
    pub(super) fn due(&self) -> Option<Instant> {
        let of_http = self.http.cache.sweep_due().into_iter().chain(self.http.programs.due());
        let passing = self.http.passing.iter().filter_map(http::Passing::due);
        of_http.chain(passing).chain(self.background_drain.due()).chain(self.wheel.next_due()).min()
    }

    /// Has written what was logged.
    pub(super) fn hand_over_log(&mut self) {
        self.server.log.flush(&mut self.lines);
    }

    /// A number that no other question or transfer of this worker has.
    pub(crate) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Has the turn go on as if it had begun now: something was seen that is newer.
    pub(crate) fn look_at_clock(&mut self) {
        self.now = clock();
    }

    /// Writes an event to the log.
    pub(crate) fn log(&mut self, subject: &Subject<'_>, event: log::Event<'_>) {
        self.server.log.record(&mut self.lines, self.now.wall, subject, event);
    }

    /// Writes a request of HTTP to the log.
    pub(crate) fn log_request(&mut self, subject: &Subject<'_>, request: &log::Request<'_>) {
        self.server.log.request(&mut self.lines, self.now.wall, subject, request);
    }

    /// Writes a transfer to the transfer log.
    pub(crate) fn log_transfer(&mut self, subject: &Subject<'_>, transfer: &log::Transferred<'_>) {
        self.server.log.transfer(&mut self.lines, self.now.wall, subject, transfer);
    }

    /// Puts back what a panic may have taken along: buffers that were lent, and what was to be sent to whom it befell.
    pub(super) fn recover(&mut self) {
        self.out.clear();
        self.plain.clear();
        self.wire = Wire::default();
        self.control_buffer.resize(CONTROL_BUFFER, 0);
        self.scratch.resize(scratch_size(&self.server), 0);
        self.server.log.warn("a connection was ended because of a mistake in this program; please report it");
    }

    /// Makes the reactor tell of a connection of HTTP.
    pub(crate) fn watch_http(&self, key: Key, socket: &OwnedFd) -> io::Result<()> {
        self.registry.register(&mut SourceFd(&socket.as_raw_fd()), token(key, CONTROL), Interest::READABLE)
    }

    /// Makes the reactor tell when a connection of HTTP takes bytes again, as well.
    pub(crate) fn watch_http_writable(&self, key: Key, socket: &OwnedFd, known: bool) -> io::Result<()> {
        let (raw, interest) = (socket.as_raw_fd(), Interest::READABLE | Interest::WRITABLE);
        match known {
            true => self.registry.reregister(&mut SourceFd(&raw), token(key, CONTROL), interest),
            false => self.registry.register(&mut SourceFd(&raw), token(key, CONTROL), interest),
        }
    }

    /// Makes the reactor tell when a program of a connection of HTTP has said something, or its end.
    pub(crate) fn watch_program_output(&self, key: Key, pipe: &File) -> io::Result<()> {
        self.registry.register(&mut SourceFd(&pipe.as_raw_fd()), token(key, DATA), Interest::READABLE)
    }

    /// Makes the reactor tell when a program takes bytes.
    pub(crate) fn watch_program_input(&self, key: Key, pipe: &File) -> io::Result<()> {
        self.registry.register(&mut SourceFd(&pipe.as_raw_fd()), token(key, PROGRAM), Interest::WRITABLE)
    }

    /// Makes the reactor tell of a control connection.
    pub(crate) fn watch_control(&self, key: Key, socket: &OwnedFd) -> io::Result<()> {
        // Urgent data is told of by itself, because a read stops short of it.
        let interest = Interest::READABLE | Interest::PRIORITY;
        self.registry.register(&mut SourceFd(&socket.as_raw_fd()), token(key, CONTROL), interest)
    }

    /// Makes the reactor tell when a control connection takes bytes again, as well.
    pub(crate) fn watch_control_writable(&self, key: Key, socket: &OwnedFd) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::PRIORITY | Interest::WRITABLE;
        self.registry.reregister(&mut SourceFd(&socket.as_raw_fd()), token(key, CONTROL), interest)
    }

    /// Makes the reactor tell of a data connection, or of the listener that it will come to.
    pub(crate) fn watch_data(&self, key: Key, socket: &OwnedFd, interest: Interest) -> io::Result<()> {
        self.registry.register(&mut SourceFd(&socket.as_raw_fd()), token(key, DATA), interest)
    }

    /// Makes the reactor tell when something comes on a connection to a passive port that has no name yet.
    pub(crate) fn watch_unnamed(&self, key: Key, socket: &OwnedFd) -> io::Result<()> {
        self.registry.register(&mut SourceFd(&socket.as_raw_fd()), token(key, PROGRAM), Interest::READABLE)
    }

    /// All of a download was sent on this data connection: it ends with its client.
    pub(crate) fn see_off(&mut self, socket: Socket) {
        if socket.registered {
            self.forget(&socket.fd);
        }
        socket.leave(&mut self.background_drain, self.now.instant);
    }

    /// Makes the reactor forget a descriptor that stays open elsewhere.
    pub(crate) fn forget(&self, socket: &OwnedFd) {
        let _ = self.registry.deregister(&mut SourceFd(&socket.as_raw_fd()));
    }

    /// Ends programs whose time is over, and lets others begin.
    fn look_after_programs(&mut self) {
        let overdue = self.http.programs.look(self.now.instant);
        if !overdue.is_empty() {
            self.discard(overdue);
        }
        let Self { http, yielded, now, .. } = self;
        http.programs.admit(now.instant, yielded);
        http.passing.iter_mut().for_each(|passing| passing.look(now.instant, yielded));
    }

    /// Drops something whose end may wait for a disk (an upload that is given up, a file on a file system that
    /// may hang: its `close` asks the file system, too) where waiting is allowed.
    pub(crate) fn discard(&self, thing: impl Send + 'static) {
        self.server.pool.run(move || drop(thing));
    }
}

/// Makes a reactor tell when programs have written errors.
pub(crate) fn watch_errors(registry: &Registry, pipe: &File) -> io::Result<()> {
    registry.register(&mut SourceFd(&pipe.as_raw_fd()), ERRORS, Interest::READABLE)
}

/// TLS wants room for the longest handshake message.
fn scratch_size(server: &Server) -> usize {
    if server.tls.is_some() { tls::BUFFER } else { SCRATCH }
}

fn clock() -> Now {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Now {
        instant: Instant::now(),
        wall: Timestamp { seconds: wall.as_secs() as i64, nanoseconds: wall.subsec_nanos() },
    }
}
