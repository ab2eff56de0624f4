//! One request: what it is for, and who answers it.

use std::sync::Arc;

use millrace_ftp::session::Permission;
use millrace_http::index::{Format, Order};
use millrace_http::response::{Persistence, Writer};
use millrace_http::target::{self, Target};
use millrace_http::{Framing, Head, Method, Refusal, Slots, Status, media_type, negotiate, request};
use millrace_vfs::{FileError, Wait};

use super::connection::{Asked, Connection, Work};
use super::find::{self, Found};
use super::who::Who;
use super::{Message, cache};
use crate::limits::Direction;
use crate::worker::{self, Core};

/// What may be asked of a file, by those who have the right.
const ALLOW: &str = "GET, HEAD, OPTIONS, PUT, DELETE, MKCOL, MOVE, COPY, PROPFIND, PROPPATCH, LOCK, UNLOCK";

impl Connection {
    /// Answers a request, or has the pool asked and keeps its head. `found` is what the pool said.
    pub(super) fn handle(
        &mut self,
        core: &mut Core,
        head: &Head<'_, '_>,
        bytes: &[u8],
        found: Option<Result<Found, FileError>>,
    ) {
        // Only what the pool was asked with a body has one behind it.
        self.flags.took_body &= found.is_some();
        let target = target::parse(head.target);
        let is_program =
            target.as_ref().is_ok_and(|target| core.server.config.programs.marked(&target.path).is_some())
                && !matches!(found, Some(Ok(Found::NoProgram)));
        if !self.may_go_on(head) && !is_program && !takes_body(head.method) {
            self.prepare_to_close(core, head);
        }
        if head.target == b"*" && head.method == Method::Options {
            return self.answer_options(core, head);
        }
        let target = match target {
            Ok(target) => target,
            Err(Refusal { status, reason }) => return self.fail(core, head, status, reason),
        };
        let Some(who) = self.know_who(core, head, bytes) else { return };
        if who.is_barred {
            return self.fail(core, head, Status::FORBIDDEN, "Files are sent over HTTPS only.");
        }
        if is_program {
            return match found {
                None => self.run(core, head, bytes, &target, &who),
                Some(Ok(Found::Program(program, is_non_parsed))) => {
                    self.begin_program(core, head, bytes, *program, is_non_parsed);
                }
                Some(Err(error)) => self.fail_with(core, head, &error),
                Some(Ok(other)) => core.discard(other),
            };
        }
        let found = found.filter(|found| !matches!(found, Ok(Found::NoProgram)));
        match head.method {
            Method::Get | Method::Head => self.get(core, head, bytes, &target, &who, found),
            Method::Options => self.answer_options(core, head),
            Method::Put | Method::Delete | Method::MkCol | Method::Move | Method::Copy => {
                self.change(core, head, bytes, &target, &who, found);
            }
            Method::PropFind | Method::PropPatch | Method::Lock | Method::Unlock => {
                self.dav(core, head, bytes, &who, found);
            }
            Method::Post => {
                let reason = "There is no program here that would take this.";
                let record = self.record(core, head);
                self.answer_page(core, record, Status::METHOD_NOT_ALLOWED, reason, &[("Allow", ALLOW)]);
            }
            Method::Other => {
                self.fail(core, head, Status::NOT_IMPLEMENTED, "This method is not known here.");
            }
        }
    }

    /// The connection ends behind this request; a body that it announced is not taken.
    fn prepare_to_close(&mut self, core: &Core, head: &Head<'_, '_>) {
        if head.framing != Framing::None {
            self.linger();
        }
        self.close_behind(core);
    }

    /// Claims that no transfer quota forbids bytes to go this way; answers the request where one does.
    pub(super) fn may_move(&mut self, core: &mut Core, head: &Head<'_, '_>, direction: Direction) -> bool {
        match self.member.may_move(&core.server.limits, direction) {
            Ok(()) => true,
            Err(over) => {
                self.log_over_quota(core, Some(&over));
                self.fail_with(core, head, &over.into());
                false
            }
        }
    }

    /// Keeps the head of a request for which the pool is asked; answers the question's number.
    pub(super) fn ask(&mut self, core: &mut Core, bytes: &[u8]) -> u64 {
        let serial = core.next_serial();
        let asked = Asked { serial, head: bytes.to_vec(), slot: None };
        self.work = Work::Asked(Box::new(asked));
        serial
    }

    fn get(
        &mut self,
        core: &mut Core,
        head: &Head<'_, '_>,
        bytes: &[u8],
        target: &Target<'_>,
        who: &Who,
        found: Option<Result<Found, FileError>>,
    ) {
        if !self.permits(core, head, who, Permission::Read) || !self.may_move(core, head, Direction::Download)
        {
            return;
        }
        let (storage, path) = (&who.account.storage, &target.path);
        let (turn, now) = (core.turn, core.now.instant);
        let found = match found {
            Some(found) => found,
            None => {
                if let Some(entry) = core.http.cache.look_up(storage, path, target.is_directory, turn, now) {
                    return self.answer_file(core, head, &entry, None);
                }
                find::find(&**storage, path, target.is_directory, Wait::Never)
            }
        };
        match found {
            Err(FileError::WouldWait) => {
                let (storage, path, is_directory) = (Arc::clone(storage), path.clone(), target.is_directory);
                self.ask_pool(core, bytes, move || find::find(&*storage, &path, is_directory, Wait::Allowed));
            }
            Err(error) => self.fail_with(core, head, &error),
            Ok(Found::File(entry)) => {
                let key: cache::Key = (path.clone(), target.is_directory);
                core.http.cache.keep(storage, key, &entry, turn, now);
                self.answer_file(core, head, &entry, None);
            }
            Ok(Found::Stream(stream, entry)) => self.answer_file(core, head, &entry, Some(stream)),
            Ok(Found::Made(stream)) => {
                self.answer_stream(
                    core,
                    head,
                    Status::OK,
                    media_type::of(path.name()),
                    ("Accept-Ranges", "none"),
                    stream,
                );
            }
            Ok(Found::Redirect) => self.redirect(core, head, target),
            Ok(Found::Directory) => self.list(core, head, bytes, target, who),
            Ok(Found::Page(page)) => {
                let media_type = listing_format(head).media_type();
                self.answer_bytes(core, head, Status::OK, media_type, &[("Vary", "Accept")], &page);
            }
            Ok(Found::LongPage(listing)) => {
                let media_type = listing_format(head).media_type();
                self.answer_stream(core, head, Status::OK, media_type, ("Vary", "Accept"), listing);
            }
            Ok(Found::Changed(_) | Found::Program(..) | Found::NoProgram | Found::Dav(_)) => {
                self.fail(core, head, Status::INTERNAL_SERVER_ERROR, "The server has lost its place.");
            }
        }
    }

    pub(super) fn ask_pool(
        &mut self,
        core: &mut Core,
        bytes: &[u8],
        question: impl FnOnce() -> Result<Found, FileError> + Send + 'static,
    ) {
        let serial = self.ask(core, bytes);
        let (key, inbox) = (self.key, core.sender.clone());
        core.server.pool.run(move || {
            let found = question();
            inbox.send(worker::Message::Http(key, Message::Found(serial, found)));
        });
    }

    fn list(&mut self, core: &mut Core, head: &Head<'_, '_>, bytes: &[u8], target: &Target<'_>, who: &Who) {
        if !self.permits(core, head, who, Permission::List) {
            return;
        }
        let (storage, path) = (Arc::clone(&who.account.storage), target.path.clone());
        let (format, order) = (listing_format(head), Order::from_query(target.query));
        let sort_entries = core.server.config.sort_entries;
        self.ask_pool(core, bytes, move || find::page(&*storage, &path, format, order, sort_entries));
    }

    fn redirect(&mut self, core: &mut Core, head: &Head<'_, '_>, target: &Target<'_>) {
        let mut location = Vec::new();
        target::encode(target.path.as_bytes(), &mut location);
        location.push(b'/');
        if let Some(query) = target.query {
            location.push(b'?');
            location.extend_from_slice(query);
        }
        let location = String::from_utf8_lossy(&location);
        let record = self.record(core, head);
        let fields = [("Location", &*location)];
        self.answer_page(core, record, Status::MOVED_PERMANENTLY, "This is a directory.", &fields);
    }

    fn answer_options(&mut self, core: &mut Core, head: &Head<'_, '_>) {
        let persistence = Persistence::of(head.version, self.may_go_on(head));
        let Core { http, out, now, .. } = core;
        let mut writer = Writer::begin(out, Status::NO_CONTENT, http.date(now.wall.seconds), persistence);
        writer.field("Allow", ALLOW).field("DAV", "1, 2").field("MS-Author-Via", "DAV");
        writer.end();
        self.log_answer(core, head, Status::NO_CONTENT, 0);
    }

    /// As many programs run as may, for too long.
    pub(super) fn queued_too_long(&mut self, core: &mut Core, bytes: &[u8]) {
        let mut slots = Slots::new();
        if let Ok(Some((head, _))) = request::parse(bytes, &mut slots) {
            let record = self.record(core, &head);
            let reason = "Too many programs are running; try again later.";
            let fields = [("Retry-After", "10")];
            self.answer_page(core, record, Status::SERVICE_UNAVAILABLE, reason, &fields);
        }
    }
}

/// Claims that a method takes the body of its request, so that the connection may go on behind it.
fn takes_body(method: Method) -> bool {
    matches!(method, Method::Put | Method::PropFind | Method::PropPatch | Method::Lock | Method::Unlock)
}

fn listing_format(head: &Head<'_, '_>) -> Format {
    match negotiate::prefers_json(head) {
        true => Format::Json,
        false => Format::Html,
    }
}
