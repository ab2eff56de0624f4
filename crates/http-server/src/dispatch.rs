//! One request: what it is for, and who answers it.

use std::sync::Arc;

use millrace_gateway::upstream::route_of;
use millrace_http::target::{self, Target};
use millrace_http::tus::Concern;
use millrace_http::{Head, Method, Refusal, Status, cors};
use millrace_limits::{Direction, LimitKey, Reached};
use millrace_vfs::{FileError, VirtualPath};

use crate::answer::{AnswerHeads, Answers};
use crate::config::HttpConfig;
use crate::connection::exchange::Exchange;
use crate::connection::{Asked, Connection, ExtraHeaders, ProgramPath, Resumed, Work};
use crate::identity::Who;
use crate::lookup::Found;
use crate::methods::{dav, get, index, to_download_origin, to_https, tus, writing};
use crate::shared::Http;
use crate::upstream::{cgi, proxy};
use crate::worker::Core;

/// What may be asked of a file, by those who have the right.
const ALLOW: &str = "GET, HEAD, OPTIONS, PUT, DELETE, MKCOL, MOVE, COPY, PROPFIND, PROPPATCH, LOCK, UNLOCK";

/// Who answers a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// A program, at the path of one.
    Program,
    /// Others, by the route of this number.
    Proxy(usize),
    /// Uploads that go on where they were cut.
    Tus,
    /// The files.
    Files,
}

impl By {
    /// Determines what answers a target.
    pub(crate) fn of(server: &Http, head: &Head, target: &Target<'_>, path: ProgramPath) -> Self {
        let config = &server.config;
        if path == ProgramPath::ByName && config.programs.marked(&target.path).is_some() {
            return Self::Program;
        }
        let route = match server.tus.is_upload(&target.path) {
            true => None,
            false => route_of(&config.proxy_routes, &target.path),
        };
        match route {
            Some(route) => Self::Proxy(route),
            None if server.tus.concern(head, Some(target)).is_some() => Self::Tus,
            None => Self::Files,
        }
    }

    /// Returns true if a name may contain a slash: for an upstream server it is not a file name.
    fn takes_as_sent(self, config: &HttpConfig, target: &Target<'_>) -> bool {
        match (self, &target.outer) {
            (_, None) => true,
            (Self::Proxy(route), Some(outer)) => config.proxy_routes[route].takes_as_sent(outer),
            (_, Some(_)) => false,
        }
    }

    /// Returns whether the body of a request is taken, so that the connection may go on behind it.
    fn takes_body(self, method: Method) -> bool {
        use Method::{Lock, PropFind, PropPatch, Put, Unlock};
        self != Self::Files || matches!(method, Put | PropFind | PropPatch | Lock | Unlock)
    }
}

impl Answers<'_> {
    /// As many programs run as may, for too long.
    pub(crate) fn queued_too_long(&mut self, asked: &Asked) {
        // What this connection asks for next may wait elsewhere.
        if let Some(line) = asked.line {
            self.core.http.lane(line).give_up(self.connection.key);
        }
        let head = &asked.head;
        let Ok(sent) = target::parse_for_others(head.target()) else { return };
        let target = self.connection.exchange(self.core, head).as_ruled(&sent, None).unwrap_or(sent);
        let by = By::of(&self.core.server, head, &target, self.connection.program_path);
        let (reason, reached) = crowd_of(&self.core.server.config, by);
        Answers::new(self.connection, self.core).tell_limit(Some(&reached));
        let record = self.connection.exchange(self.core, head).record();
        let fields = [("Retry-After", "10")];
        Answers::new(self.connection, self.core).answer_page(
            record,
            Status::SERVICE_UNAVAILABLE,
            reason,
            &fields,
        );
    }
}

impl Connection {
    /// Answers a request, or begins to; `found` is the pool's result.
    pub(crate) fn serve_request(
        &mut self,
        core: &mut Core,
        head: &Arc<Head>,
        found: Option<Result<Found, FileError>>,
    ) {
        if found.is_none() {
            self.heed_forwarding(core, head);
        }
        self.exchange(core, head).handle(found);
        self.serve_resumed(core);
    }

    /// Takes up the request whose wait is over, where there is one.
    pub(crate) fn serve_resumed(&mut self, core: &mut Core) {
        while matches!(self.work, Work::Resumed(_)) {
            let Work::Resumed(resumed) = std::mem::replace(&mut self.work, Work::Idle) else { return };
            let Resumed { head, found, slot } = *resumed;
            // Whatever else is asked first, the place stays this request's.
            self.slot = slot;
            self.exchange(core, &head).handle(found);
            self.slot = None;
        }
    }
}

impl Exchange<'_> {
    /// Answers a request, or asks accounts, hooks or the pool and keeps its head: then it is called again, from the
    /// first step on. `found` is the pool's result.
    ///
    /// The order of the steps: hooks may rewrite the path, so they precede the choice of what answers it; they are told
    /// the user, so the accounts precede them. The pool is asked after all of them: with its result neither accounts
    /// nor hooks, which may have been replaced, are asked again.
    fn handle(&mut self, found: Option<Result<Found, FileError>>) {
        let head = self.head;
        self.connection.extra_headers = None;
        if let Some(answer) = self.core.server.challenge_answer(head.target()) {
            return self.answer_authority(&answer);
        }
        if head.target() == b"*" && head.method == Method::Options {
            return self.answer_options();
        }
        let sent = match target::parse_for_others(head.target()) {
            Ok(target) => target,
            Err(Refusal { status, reason }) => return self.fail(status, reason),
        };
        // An upstream may take the body, and then the answer would not match the request.
        if matches!(head.method_text(), "CONNECT" | "TRACE") {
            return self.fail(Status::NOT_IMPLEMENTED, "This method is not known here.");
        }
        if to_https::sends_to_https(self, &sent) || to_download_origin::refuses_without_link(self, &sent) {
            return;
        }
        let is_asked = found.is_none();
        if matches!(found, Some(Ok(Found::NoProgram))) {
            self.connection.program_path = ProgramPath::NoProgram;
        }
        let found = found.filter(|found| !matches!(found, Ok(Found::NoProgram)));
        let (by, concern) = self.answered_by(&sent);
        let ruled = self.as_ruled(&sent, concern);
        let target = ruled.as_ref().unwrap_or(&sent);
        let by = if ruled.is_none() || by == By::Tus { by } else { self.answered_by(target).0 };
        if !by.takes_as_sent(&self.core.server.config, target) {
            return self.fail(target::SLASH.status, target::SLASH.reason);
        }
        if self.tell_origins(&target.path) {
            return self.answer_options();
        }
        let Some(who) = self.admit(&sent, is_asked) else { return };
        if matches!(by, By::Program | By::Proxy(_)) && who.is_by_link() {
            return self.fail(Status::FORBIDDEN, "A link is for files and folders, and this is neither.");
        }
        if is_asked && by == By::Files && self.core.server.dav.is_for_another(head) {
            return dav::send_to_successor(self);
        }
        if is_asked && self.asks_hooks(target, &who, concern) {
            return;
        }
        let leads_on = by == By::Files && index::may_take_post(&self.core.server.config, head, target);
        if !by.takes_body(head.method) && !leads_on {
            self.pass_over_body();
        }
        match (by, found) {
            (By::Program, None) => cgi::run(self, target, &who),
            (By::Proxy(route), None) => proxy::ask(self, target, &who, route),
            (By::Program | By::Proxy(_), Some(found)) => self.begin_found(found),
            (By::Tus, found) => {
                let ruled = self.as_ruled(&sent, concern);
                tus::tus(self, (&sent, ruled.as_ref()), &who, found);
            }
            (By::Files, found) => self.answer_from_files(target, &who, found),
        }
    }

    /// What answers a target, and its role for an upload that continues.
    fn answered_by(&self, target: &Target<'_>) -> (By, Option<Concern>) {
        let head = self.head;
        match By::of(&self.core.server, head, target, self.connection.program_path) {
            By::Tus => (By::Tus, self.core.server.tus.concern(head, Some(target))),
            by => (by, None),
        }
    }

    /// The user, if admitted: otherwise the request is answered, or the accounts are asked.
    fn admit(&mut self, sent: &Target<'_>, is_asked: bool) -> Option<Arc<Who>> {
        // A result of the pool implies that the user was admitted: asking the accounts again would repeat the work.
        let known = self.connection.who.clone().filter(|_| !is_asked);
        let who = known.or_else(|| self.know_who(sent))?;
        if who.is_barred {
            self.fail(Status::FORBIDDEN, "Files are sent over HTTPS only.");
            return None;
        }
        Some(who)
    }

    /// The pool has started a program, or connected to who answers instead.
    fn begin_found(&mut self, found: Result<Found, FileError>) {
        match found {
            Ok(Found::Program(program, is_non_parsed)) => {
                cgi::begin_program(self, *program, is_non_parsed);
            }
            Ok(Found::Contact(asking)) => proxy::contacted(self, asking),
            Ok(other) => {
                self.core.discard(other);
                self.fail(Status::INTERNAL_SERVER_ERROR, "Internal server error.");
            }
            Err(error) => self.fail_with(&error),
        }
    }

    fn answer_from_files(&mut self, target: &Target<'_>, who: &Who, found: Option<Result<Found, FileError>>) {
        let head = self.head;
        match head.method {
            Method::Get | Method::Head => get::get(self, target, who, found),
            Method::Options => self.answer_options(),
            Method::Put | Method::Delete | Method::MkCol | Method::Move | Method::Copy => {
                writing::change_files(self, target, who, found);
            }
            Method::PropFind | Method::PropPatch | Method::Lock | Method::Unlock => {
                dav::answer_request(self, target, who, found);
            }
            Method::Post if index::may_take_post(&self.core.server.config, head, target) => {
                index::post_to_folder(self, target, who, found);
            }
            Method::Post => self.refuse_post(),
            Method::Patch | Method::Other => {
                self.fail(Status::NOT_IMPLEMENTED, "This method is not known here.");
            }
        }
    }

    /// A `POST` without a receiver.
    pub(crate) fn refuse_post(&mut self) {
        let reason = "POST is not possible here.";
        let record = self.record();
        Answers::new(self.connection, self.core).answer_page(
            record,
            Status::METHOD_NOT_ALLOWED,
            reason,
            &[("Allow", ALLOW)],
        );
    }

    /// Tells a CA what it wants to hear of who asked it for a certificate.
    fn answer_authority(&mut self, answer: &str) {
        self.pass_over_body();
        self.answer_bytes(Status::OK, "application/octet-stream", &[], answer.as_bytes());
    }

    /// Sees to what the answer says to pages of other origins. Answers whether that is all that is asked, by a browser
    /// that has no name and password to show yet.
    fn tell_origins(&mut self, path: &VirtualPath) -> bool {
        let head = self.head;
        let web = &self.core.http.web;
        if web.cors.is_empty() {
            return false;
        }
        let is_preflight = cors::is_preflight(head);
        let lines = web.cors_lines(path, head, is_preflight);
        let is_said = !lines.is_empty();
        self.connection.extra_headers = is_said.then(|| Box::new(ExtraHeaders(lines)));
        is_said && is_preflight
    }

    /// Returns whether no transfer quota forbids bytes to go this way; answers the request where one does.
    pub(crate) fn may_move(&mut self, direction: Direction) -> bool {
        match self.connection.member.may_move(&self.core.server.limits, direction) {
            Ok(()) => true,
            Err(over) => {
                self.fail_with(&over.into());
                false
            }
        }
    }

    fn answer_options(&mut self) {
        let head = self.head;
        self.pass_over_body();
        let speaks_tus = self.core.server.tus.is_spoken();
        let mut writer = AnswerHeads::of(self.connection).begin_head(
            self.core,
            Status::NO_CONTENT,
            head.version,
            self.may_go_on(),
        );
        writer.field("Allow", ALLOW).field("DAV", "1, 2").field("MS-Author-Via", "DAV");
        if speaks_tus {
            writer.lines(millrace_http::tus::LINES.as_bytes());
        }
        writer.end();
        self.log_answer(Status::NO_CONTENT, 0);
    }
}

/// What there are too many of for a request, and which limit that is.
fn crowd_of(config: &HttpConfig, by: By) -> (&'static str, Reached) {
    match by {
        By::Proxy(route) => {
            let route = &config.proxy_routes[route];
            let reached = Reached::new(LimitKey::ProxyMaxRequests, route.most as u64);
            let reason = "Too many requests are under way there; try again later.";
            (reason, reached.of(format_args!("proxy {}", route.path)))
        }
        _ => {
            let reached = Reached::new(LimitKey::CgiProcesses, config.programs.most as u64);
            ("Too many programs are running; try again later.", reached)
        }
    }
}
