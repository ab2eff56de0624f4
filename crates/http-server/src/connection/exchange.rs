//! One request on a connection, and the questions that it asks the blocking pool.

use std::io;
use std::sync::Arc;

use millrace_blocking::BlockingPool;
use millrace_http::{Framing, Head};
use millrace_limits::Flow;
use millrace_runtime::worker::Promise;
use millrace_vfs::FileError;

use crate::connection::{Asked, Connection, Patience, ProgramPath, Resumed, Work};
use crate::lookup::Found;
use crate::message::Message;
use crate::worker::Core;

/// One request on a connection, while the worker is at it.
pub(crate) struct Exchange<'a> {
    pub(crate) connection: &'a mut Connection,
    pub(crate) core: &'a mut Core,
    /// The request.
    pub(crate) head: &'a Arc<Head>,
}

impl Connection {
    /// Begins to work at a request, or goes on.
    pub(crate) fn exchange<'a>(&'a mut self, core: &'a mut Core, head: &'a Arc<Head>) -> Exchange<'a> {
        Exchange { connection: self, core, head }
    }

    /// Has a request taken up again, from its first step on, once this returns to the driver of the connection.
    pub(crate) fn resume(&mut self, head: Arc<Head>, found: Option<Result<Found, FileError>>) {
        self.work = Work::Resumed(Box::new(Resumed { head, found, slot: self.slot.take() }));
    }

    /// A new request: nothing is known of it.
    pub(crate) fn forget_request(&mut self) {
        self.program_path = ProgramPath::ByName;
        self.redirected = None;
        self.hooked.forget_ruling();
        // The pace was that of the last answer.
        self.link.keep_to(Flow::FREE);
    }

    /// The answer of a job that panics, in place of its own: otherwise the request would wait for ever.
    pub(crate) fn promise(&self, core: &Core, otherwise: Message) -> Promise<Message> {
        Promise::new(core.post.clone(), self.key, otherwise)
    }
}

/// The error of a job that panics.
pub(crate) fn internal_error() -> FileError {
    FileError::Io(io::Error::other("internal error"))
}

impl Exchange<'_> {
    /// Returns whether the connection may go on behind the answer to this request.
    pub(crate) fn may_go_on(&self) -> bool {
        let head = self.head;
        head.persistent && self.connection.http.keeps_alive()
    }

    /// The body of this request is not read: the connection ends after it.
    pub(crate) fn pass_over_body(&mut self) {
        if !self.may_go_on() {
            self.prepare_to_close();
        }
    }

    /// The connection ends behind this request; a body that it announced is not taken.
    pub(crate) fn prepare_to_close(&mut self) {
        let head = self.head;
        if head.framing != Framing::None {
            self.connection.linger();
        }
        self.connection.close_behind(self.core);
    }

    /// Keeps the head of a request for which the pool is asked; answers the question's number.
    pub(crate) fn ask(&mut self) -> u64 {
        let head = self.head;
        let serial = self.core.next_serial();
        let asked = Asked { serial, slot: self.connection.slot.take(), ..Asked::of(head) };
        self.connection.work = Work::Asked(Box::new(asked));
        serial
    }

    pub(crate) fn ask_pool(&mut self, question: impl FnOnce() -> Result<Found, FileError> + Send + 'static) {
        let pool = self.core.server.pool.clone();
        self.ask_threads(&pool, question);
    }

    /// The same for work that takes long on a fast disk, too: hashes, copies, walks over trees. It has threads of its
    /// own, so that other requests do not wait for it.
    pub(crate) fn ask_long(&mut self, question: impl FnOnce() -> Result<Found, FileError> + Send + 'static) {
        let pool = self.core.server.long.clone();
        self.ask_threads(&pool, question);
    }

    /// The same for work without side effects: `question` learns from its argument whether the answer is still needed.
    pub(crate) fn ask_while_wanted(
        &mut self,
        question: impl FnOnce(&dyn Fn() -> bool) -> Result<Found, FileError> + Send + 'static,
    ) {
        let patience = Patience::default();
        let waits = Arc::downgrade(&patience.waits);
        self.ask_long(move || question(&|| waits.strong_count() > 0));
        if let Work::Asked(asked) = &mut self.connection.work {
            asked.patience = Some(patience);
        }
    }

    fn ask_threads(
        &mut self,
        threads: &BlockingPool,
        question: impl FnOnce() -> Result<Found, FileError> + Send + 'static,
    ) {
        let serial = self.ask();
        let reply = self.connection.promise(self.core, Message::Found(serial, Err(internal_error())));
        threads.run(move || {
            let found = question();
            reply.keep(Message::Found(serial, found));
        });
    }
}
