//! One request: what it is for, and who answers it.

use millrace_http::{Framing, Head, Method, Refusal, Slots, Status, request};
use millrace_http::{cors, target};
use millrace_vfs::{FileError, VirtualPath};

use super::connection::{Asked, Beside, Connection, Work};
use super::find::Found;
use super::{Message, passing, tus};
use crate::limits::{Direction, LimitKey, Reached};
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
        self.beside = None;
        if let Some(answer) = core.server.acme.tokens.answer(head.target) {
            return self.answer_authority(core, head, &answer);
        }
        // Only what the pool was asked with a body has one behind it.
        self.flags.took_body &= found.is_some();
        let target = target::parse(head.target);
        let is_program =
            target.as_ref().is_ok_and(|target| core.server.config.programs.marked(&target.path).is_some())
                && !matches!(found, Some(Ok(Found::NoProgram)));
        let pass = match &target {
            Ok(target) if !is_program && !tus::is_upload(&core.server, &target.path) => {
                passing::pass_of(&core.server.config.passes, &target.path)
            }
            _ => None,
        };
        let is_program = is_program || pass.is_some();
        let resumable = tus::concern(&core.server, head, target.as_ref().ok()).filter(|_| !is_program);
        if !self.may_go_on(head) && !is_program && !takes_body(head.method) && resumable.is_none() {
            self.prepare_to_close(core, head);
        }
        if head.target == b"*" && head.method == Method::Options {
            return self.answer_options(core, head);
        }
        let mut target = match target {
            Ok(target) => target,
            Err(Refusal { status, reason }) => return self.fail(core, head, status, reason),
        };
        if self.tell_origins(core, head, &target.path) {
            if !self.may_go_on(head) {
                self.prepare_to_close(core, head);
            }
            return self.answer_options(core, head);
        }
        // Whoever it was found for was let in: to ask the accounts again would have it done twice.
        let known = self.who.clone().filter(|_| found.is_some());
        let Some(who) = known.or_else(|| self.know_who(core, head, bytes, &target)) else { return };
        if who.is_barred {
            return self.fail(core, head, Status::FORBIDDEN, "Files are sent over HTTPS only.");
        }
        if (is_program || pass.is_some()) && who.is_by_link() {
            let reason = "A link is for a file, and this is none.";
            return self.fail(core, head, Status::FORBIDDEN, reason);
        }
        if self.asks_hooks(core, head, bytes, &mut target, &who, resumable) {
            return;
        }
        if let Some(pass) = pass {
            return match found {
                None => self.pass(core, head, bytes, &target, &who, pass),
                Some(Ok(Found::Asking(asking))) => self.passed(core, head, bytes, asking),
                Some(Err(error)) => self.fail_with(core, head, &error),
                Some(Ok(other)) => core.discard(other),
            };
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
        if resumable.is_some() {
            return self.tus(core, head, bytes, &target, &who, found);
        }
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
            Method::Patch | Method::Other => {
                self.fail(core, head, Status::NOT_IMPLEMENTED, "This method is not known here.");
            }
        }
    }

    /// Tells a CA what it wants to hear of who asked it for a certificate.
    fn answer_authority(&mut self, core: &mut Core, head: &Head<'_, '_>, answer: &str) {
        if !self.may_go_on(head) {
            self.prepare_to_close(core, head);
        }
        self.answer_bytes(core, head, Status::OK, "application/octet-stream", &[], answer.as_bytes());
    }

    /// Sees to what the answer says to pages of other origins. Answers whether that is all that is asked, by a browser
    /// that has no name and password to show yet.
    fn tell_origins(&mut self, core: &Core, head: &Head<'_, '_>, path: &VirtualPath) -> bool {
        let web = &core.http.web;
        if web.cors.is_empty() {
            return false;
        }
        let is_preflight = cors::is_preflight(head);
        let lines = web.cors_lines(path, head, is_preflight);
        let is_said = !lines.is_empty();
        self.beside = is_said.then(|| Box::new(Beside(lines)));
        is_said && is_preflight
    }

    /// The connection ends behind this request; a body that it announced is not taken.
    pub(super) fn prepare_to_close(&mut self, core: &Core, head: &Head<'_, '_>) {
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

    fn answer_options(&mut self, core: &mut Core, head: &Head<'_, '_>) {
        let speaks_tus = core.server.tus.is_spoken();
        let mut writer = self.begin_head(core, Status::NO_CONTENT, head.version, self.may_go_on(head));
        writer.field("Allow", ALLOW).field("DAV", "1, 2").field("MS-Author-Via", "DAV");
        if speaks_tus {
            writer.lines(millrace_http::tus::LINES.as_bytes());
        }
        writer.end();
        self.log_answer(core, head, Status::NO_CONTENT, 0);
    }

    /// As many programs run as may, for too long.
    pub(super) fn queued_too_long(&mut self, core: &mut Core, bytes: &[u8]) {
        let mut slots = Slots::new();
        if let Ok(Some((head, _))) = request::parse(bytes, &mut slots) {
            let (reason, reached) = crowd_of(core, &head);
            self.tell_limit(core, Some(&reached));
            let record = self.record(core, &head);
            let fields = [("Retry-After", "10")];
            self.answer_page(core, record, Status::SERVICE_UNAVAILABLE, reason, &fields);
        }
    }
}

/// What there are too many of for a request, and which limit that is.
fn crowd_of(core: &Core, head: &Head<'_, '_>) -> (&'static str, Reached) {
    let config = &core.server.config;
    let path = target::parse(head.target).map(|target| target.path);
    let is_program = path.as_ref().is_ok_and(|path| config.programs.marked(path).is_some());
    let pass = path.ok().filter(|_| !is_program).and_then(|path| passing::pass_of(&config.passes, &path));
    match pass.map(|pass| &config.passes[pass]) {
        Some(pass) => {
            let reached = Reached::new(LimitKey::PassMost, pass.most as u64);
            let reason = "Too many requests are under way there; try again later.";
            (reason, reached.of(format_args!("pass {}", pass.path)))
        }
        None => {
            let reached = Reached::new(LimitKey::CgiProcesses, config.programs.most as u64);
            ("Too many programs are running; try again later.", reached)
        }
    }
}

/// Claims that a method takes the body of its request, so that the connection may go on behind it.
fn takes_body(method: Method) -> bool {
    matches!(method, Method::Put | Method::PropFind | Method::PropPatch | Method::Lock | Method::Unlock)
}
