//! One request: who asks, what for, and the answer.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use millrace_ftp::session::Permission;
use millrace_http::conditional::{self, Verdict};
use millrace_http::index::{Format, Order};
use millrace_http::range::{self, Ranges};
use millrace_http::response::{Persistence, Writer};
use millrace_http::target::{self, Target};
use millrace_http::{
    Field, Framing, Head, Method, Refusal, Status, Version, authorization, media_type, negotiate, page,
};
use millrace_vfs::{FileError, OverQuota, ReadStream, Wait};

use super::body::{Body, Part};
use super::chunks::Chunks;
use super::connection::{Asked, Connection, Sending, Work};
use super::find::{self, Content, Entry, Found, SMALL};
use super::{Message, cache};
use crate::auth::{Account, Attempt, Decision, Protocol};
use crate::limits::{AccountLimits, Direction, Refused};
use crate::log::{self, Subject};
use crate::worker::{self, Core};

/// How long a connection goes on with what it was granted before the accounts are asked again.
const TRUST: Duration = Duration::from_secs(1);

/// What may be asked of a file, by those who have the right.
const ALLOW: &str = "GET, HEAD, OPTIONS, PUT, DELETE, MKCOL, MOVE, COPY, PROPFIND, PROPPATCH, LOCK, UNLOCK";

/// Somebody who asks.
#[derive(Debug)]
pub(super) struct Who {
    /// As the field said it; empty for somebody who said nothing.
    authorization: Vec<u8>,
    /// `None` for anonymous.
    pub(super) user: Option<Vec<u8>>,
    pub(super) account: Account,
    /// What this connection is not encrypted for.
    is_barred: bool,
    until: Instant,
}

/// What the access log tells of a request.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) method: String,
    pub(super) target: Vec<u8>,
    pub(super) version: Version,
    pub(super) referer: Option<Vec<u8>>,
    pub(super) agent: Option<Vec<u8>>,
    pub(super) status: Status,
    /// Bytes of the body.
    pub(super) bytes: u64,
    pub(super) began: Instant,
    /// The answer has no body whatever its head says.
    pub(super) head_only: bool,
    /// The request has a body.
    pub(super) has_body: bool,
    pub(super) persistent: bool,
}

impl Record {
    /// Of a request that could not be understood.
    pub(super) fn of_nothing(now: Instant) -> Self {
        Self {
            method: String::new(),
            target: Vec::new(),
            version: Version::Http11,
            referer: None,
            agent: None,
            status: Status::BAD_REQUEST,
            bytes: 0,
            began: now,
            head_only: false,
            has_body: false,
            persistent: false,
        }
    }

    pub(super) fn of(head: &Head<'_, '_>, persistent: bool, now: Instant) -> Self {
        Self {
            method: head.method_text.to_owned(),
            target: head.target.to_owned(),
            version: head.version,
            referer: head.get(Field::Referer).map(<[u8]>::to_owned),
            agent: head.get(Field::UserAgent).map(<[u8]>::to_owned),
            status: Status::OK,
            bytes: 0,
            began: now,
            head_only: head.wants_head_only(),
            has_body: head.framing != Framing::None,
            persistent,
        }
    }
}

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
        if head.framing != millrace_http::Framing::None {
            self.linger();
        }
        self.close_behind(core);
    }

    pub(super) fn record(&self, core: &Core, head: &Head<'_, '_>) -> Record {
        Record::of(head, self.may_go_on(head), core.now.instant)
    }

    /// Who asks; `None` where that has to be found out, or was answered with a refusal.
    fn know_who(&mut self, core: &mut Core, head: &Head<'_, '_>, bytes: &[u8]) -> Option<Arc<Who>> {
        let said = head.get(Field::Authorization).unwrap_or_default();
        if let Some(who) = &self.who
            && who.authorization == said
            && core.now.instant < who.until
        {
            return Some(Arc::clone(who));
        }
        let (user, password) = match (said, authorization::basic(said)) {
            (b"", _) if !core.server.config.anonymous => {
                self.challenge(core, head, "This is for users: say who you are.");
                return None;
            }
            (b"", _) => (b"anonymous".to_vec(), Vec::new()),
            (_, None) => {
                self.challenge(core, head, "The only way to log in here is Basic.");
                return None;
            }
            (_, Some(_)) if !self.takes_passwords(core) => {
                let reason = "A password is taken over HTTPS only.";
                self.fail(core, head, Status::FORBIDDEN, reason);
                return None;
            }
            (_, Some(login)) => login,
        };
        let (from, encrypted) = (self.peer.ip(), self.is_encrypted());
        if core.server.bans.is_banned(from, &user, core.now.instant) {
            let asked = Asked { serial: 0, head: bytes.to_vec(), slot: None };
            let reason = "banned at this address for a while".to_owned();
            self.login_decided(core, asked, &user, Decision::Refused(reason));
            return None;
        }
        let accounts = core.server.accounts();
        match accounts.quick(&attempt(&user, &password, from, encrypted)) {
            Some(Decision::Granted(account)) => {
                let let_in = self.let_in(core, said, &user, account);
                let refused = |refused: Refused| {
                    self.fail(core, head, Status::SERVICE_UNAVAILABLE, refused.for_the_client());
                };
                let_in.map_err(refused).ok()
            }
            Some(decision) => {
                let asked = Asked { serial: 0, head: bytes.to_vec(), slot: None };
                self.login_decided(core, asked, &user, decision);
                None
            }
            None => {
                let serial = self.ask(core, bytes);
                let (key, inbox) = (self.key, core.sender.clone());
                core.server.logins.run(move || {
                    let decision = accounts.authenticate(&attempt(&user, &password, from, encrypted));
                    inbox.send(worker::Message::Http(key, Message::Login(serial, user, decision)));
                });
                None
            }
        }
    }

    /// Passwords cross no network in clear; nor this computer, where all logins have to be encrypted.
    fn takes_passwords(&self, core: &Core) -> bool {
        let requires_tls = || core.server.tls.as_ref().is_some_and(|tls| tls.policy().login_required);
        self.is_encrypted() || (self.peer.ip().is_loopback() && !requires_tls())
    }

    /// Claims that somebody's files may go over this connection.
    fn may_carry_files(&self, core: &Core, account: &Account) -> bool {
        let requires_tls = || core.server.tls.as_ref().is_some_and(|tls| tls.policy().data_required);
        self.is_encrypted() || !(account.data.encrypted || requires_tls())
    }

    /// Takes somebody in, unless there are too many of them already.
    fn let_in(
        &mut self,
        core: &mut Core,
        said: &[u8],
        user: &[u8],
        account: Account,
    ) -> Result<Arc<Who>, Refused> {
        // Who is known already has its place.
        if self.who.as_ref().is_none_or(|who| who.authorization != said) {
            let nothing = AccountLimits::default();
            let limits = account.limits.as_deref().unwrap_or(&nothing);
            let server = Arc::clone(&core.server);
            if let Err(refused) = server.limits.log_in(&mut self.member, user, limits, core.now.instant) {
                let subject = Subject { session: self.number, peer: self.peer, user: Some(user) };
                core.log(&subject, log::Event::Limited { limit: &refused.key(), value: refused.value });
                self.who = None;
                return Err(refused);
            }
        }
        let user = (!said.is_empty()).then(|| user.to_owned());
        let is_barred = !self.may_carry_files(core, &account);
        let until = core.now.instant + TRUST;
        let who = Who { authorization: said.to_owned(), user, account, is_barred, until };
        let who = Arc::new(who);
        self.who = Some(Arc::clone(&who));
        Ok(who)
    }

    /// The accounts have decided about the request that waits.
    pub(super) fn login_decided(&mut self, core: &mut Core, asked: Asked, user: &[u8], decision: Decision) {
        let subject = Subject { session: self.number, peer: self.peer, user: None };
        match decision {
            Decision::Granted(account) => {
                let said = authorization_of(&asked.head);
                if !said.is_empty() {
                    self.wrong_passwords = 0;
                    core.server.bans.succeeded(self.peer.ip(), user, core.now.instant);
                }
                // Where it is one too many the request asks again, and hears so.
                let _ = self.let_in(core, &said, user, account);
                return self.again(core, &asked.head, None);
            }
            // By HTTP a code comes with the password, or not at all.
            Decision::Denied | Decision::NeedsCode | Decision::NeedsPassword => {
                core.log(&subject, log::Event::LoginFailed { user });
                let failed = core.server.bans.failed(self.peer.ip(), user, core.now.instant);
                if failed.user_banned {
                    core.log(&subject, log::Event::Banned { user: Some(user) });
                }
                if failed.address_banned {
                    core.log(&subject, log::Event::Banned { user: None });
                }
            }
            Decision::Refused(reason) | Decision::Unavailable(reason) => {
                core.log(&subject, log::Event::LoginRefused { user, reason: &reason });
            }
        }
        self.who = None;
        self.wrong_passwords += 1;
        let delay = core.server.config.login_delay * (1 << (self.wrong_passwords - 1).min(6));
        self.work = Work::Held(core.now.instant + delay, Box::new(asked));
    }

    /// Answers a wrong password, once it was held back for long enough.
    pub(super) fn deny(&mut self, core: &mut Core, bytes: &[u8]) {
        let mut slots = millrace_http::Slots::new();
        if let Ok(Some((head, _))) = millrace_http::request::parse(bytes, &mut slots) {
            if self.wrong_passwords >= core.server.config.login_attempts {
                self.close_behind(core);
            }
            self.challenge(core, &head, "The name or the password is wrong.");
        }
    }

    /// 401, or where a password would not be taken 403.
    pub(super) fn challenge(&mut self, core: &mut Core, head: &Head<'_, '_>, reason: &'static str) {
        let record = self.record(core, head);
        match self.takes_passwords(core) {
            true => {
                let fields = [("WWW-Authenticate", authorization::CHALLENGE)];
                self.answer_page(core, record, Status::UNAUTHORIZED, reason, &fields);
            }
            false => self.answer_page(
                core,
                record,
                Status::FORBIDDEN,
                "This is for users, whose passwords are taken over HTTPS only.",
                &[],
            ),
        }
    }

    /// Claims that an account may do this; answers the request where it may not.
    pub(super) fn permits(
        &mut self,
        core: &mut Core,
        head: &Head<'_, '_>,
        who: &Who,
        permission: Permission,
    ) -> bool {
        let permits = who.account.permissions.allows(permission);
        if !permits {
            match who.user {
                None => self.challenge(core, head, "This is for users: say who you are."),
                Some(_) => self.fail(core, head, Status::FORBIDDEN, "You may not do that."),
            }
        }
        permits
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
    fn ask(&mut self, core: &mut Core, bytes: &[u8]) -> u64 {
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

    /// Answers with a file, in whole or in part, or with what its conditions say.
    fn answer_file(
        &mut self,
        core: &mut Core,
        head: &Head<'_, '_>,
        entry: &Arc<Entry>,
        stream: Option<Box<dyn ReadStream>>,
    ) {
        match conditional::evaluate(head, Some(&entry.validators)) {
            Verdict::Proceed => {}
            Verdict::NotModified => return self.answer_not_modified(core, head, entry),
            Verdict::Failed => {
                let reason = "The file is not the one that the request is for.";
                return self.fail(core, head, Status::PRECONDITION_FAILED, reason);
            }
        }
        let ranges = match head.get(Field::Range) {
            Some(field)
                if head.method == Method::Get && conditional::range_applies(head, &entry.validators) =>
            {
                range::parse(field, entry.size)
            }
            _ => Ranges::Whole,
        };
        match ranges {
            Ranges::Whole => self.answer_part(core, head, entry, stream, None),
            Ranges::One(range) => self.answer_part(core, head, entry, stream, Some(range)),
            Ranges::Many(ranges) if stream.is_none() => self.answer_parts(core, head, entry, &ranges),
            // A stream is read once, from one place.
            Ranges::Many(_) => self.answer_part(core, head, entry, stream, None),
            Ranges::Unsatisfiable => {
                let record = self.record(core, head);
                let range = format!("bytes */{}", entry.size);
                let fields = [("Content-Range", &*range)];
                let reason = "The file has no such range.";
                self.answer_page(core, record, Status::RANGE_NOT_SATISFIABLE, reason, &fields);
            }
        }
    }

    fn answer_not_modified(&mut self, core: &mut Core, head: &Head<'_, '_>, entry: &Entry) {
        let persistence = Persistence::of(head.version, self.may_go_on(head));
        let Core { http, out, now, .. } = core;
        let mut writer = Writer::begin(out, Status::NOT_MODIFIED, http.date(now.wall.seconds), persistence);
        writer.lines(&entry.lines);
        writer.end();
        self.log_answer(core, head, Status::NOT_MODIFIED, 0);
    }

    /// The whole file, or one range of it.
    fn answer_part(
        &mut self,
        core: &mut Core,
        head: &Head<'_, '_>,
        entry: &Arc<Entry>,
        stream: Option<Box<dyn ReadStream>>,
        range: Option<Range<u64>>,
    ) {
        let goes_on = self.may_go_on(head);
        let status = if range.is_some() { Status::PARTIAL_CONTENT } else { Status::OK };
        let Core { http, out, now, .. } = core;
        let date = http.date(now.wall.seconds);
        let mut writer = Writer::begin(out, status, date, Persistence::of(head.version, goes_on));
        writer.field("Content-Type", entry.media_type).lines(&entry.lines);
        if let Some(range) = &range {
            let (first, last) = (range.start, range.end - 1);
            writer.field("Content-Range", format_args!("bytes {first}-{last}/{}", entry.size));
        }
        let range = range.unwrap_or(0..entry.size);
        let length = range.end - range.start;
        writer.field("Content-Length", length);
        writer.end();
        if head.wants_head_only() || length == 0 {
            return self.log_answer(core, head, status, 0);
        }
        let is_limited = core.server.limits.is_limited(&self.member, Direction::Download);
        let part = match (&entry.content, stream) {
            (Content::Memory(_), _) if is_limited => {
                Part::Stream(entry.stream(), range.start, Some(range.end))
            }
            (Content::Memory(bytes), _) => {
                core.out.extend_from_slice(&bytes[range.start as usize..range.end as usize]);
                return self.log_answer(core, head, status, length);
            }
            (Content::File(file, readiness), _) => Part::File(Arc::clone(file), *readiness, range),
            (Content::Stream, Some(stream)) => Part::Stream(stream, range.start, Some(range.end)),
            (Content::Stream, None) => return self.log_answer(core, head, status, 0),
        };
        self.begin_body(core, head, status, VecDeque::from([part]));
    }

    /// Several ranges, as `multipart/byteranges` (RFC 9110 section 14.6).
    fn answer_parts(
        &mut self,
        core: &mut Core,
        head: &Head<'_, '_>,
        entry: &Arc<Entry>,
        ranges: &[Range<u64>],
    ) {
        let is_limited = core.server.limits.is_limited(&self.member, Direction::Download);
        // Not a secret: only not to be found in the file by accident.
        let boundary = format!("{:016x}{:016x}", core.now.wall.nanoseconds ^ 0x5bd1_e995, core.next_serial());
        let mut parts = VecDeque::with_capacity(ranges.len() * 2 + 1);
        let mut length = 0;
        for range in ranges {
            let (first, last, size) = (range.start, range.end - 1, entry.size);
            let bytes = format!(
                "\r\n--{boundary}\r\nContent-Type: {}\r\nContent-Range: bytes {first}-{last}/{size}\r\n\r\n",
                entry.media_type
            )
            .into_bytes();
            length += bytes.len() as u64 + (range.end - range.start);
            parts.push_back(Part::Bytes(bytes));
            parts.push_back(match &entry.content {
                Content::Memory(_) if is_limited => {
                    Part::Stream(entry.stream(), range.start, Some(range.end))
                }
                Content::Memory(bytes) => {
                    Part::Bytes(bytes[range.start as usize..range.end as usize].to_vec())
                }
                Content::File(file, readiness) => Part::File(Arc::clone(file), *readiness, range.clone()),
                Content::Stream => continue,
            });
        }
        let end = format!("\r\n--{boundary}--\r\n").into_bytes();
        length += end.len() as u64;
        parts.push_back(Part::Bytes(end));

        let persistence = Persistence::of(head.version, self.may_go_on(head));
        let Core { http, out, now, .. } = core;
        let date = http.date(now.wall.seconds);
        let mut writer = Writer::begin(out, Status::PARTIAL_CONTENT, date, persistence);
        writer
            .field("Content-Type", format_args!("multipart/byteranges; boundary={boundary}"))
            .lines(&entry.lines)
            .field("Content-Length", length);
        writer.end();
        self.begin_body(core, head, Status::PARTIAL_CONTENT, parts);
    }

    fn begin_body(&mut self, core: &mut Core, head: &Head<'_, '_>, status: Status, parts: VecDeque<Part>) {
        let mut record = self.record(core, head);
        record.status = status;
        record.bytes =
            parts.iter().map(|part| if let Part::Bytes(bytes) = part { bytes.len() as u64 } else { 0 }).sum();
        let goes_on = record.persistent;
        let body = Body::new(parts, core.now.instant);
        self.send_body(core, Box::new(Sending { body, record, goes_on }));
    }

    /// Answers with bytes that are here.
    pub(super) fn answer_bytes(
        &mut self,
        core: &mut Core,
        head: &Head<'_, '_>,
        status: Status,
        media_type: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) {
        let persistent = self.may_go_on(head);
        let Core { http, out, now, .. } = core;
        let persistence = Persistence::of(head.version, persistent);
        let mut writer = Writer::begin(out, status, http.date(now.wall.seconds), persistence);
        for (name, value) in fields {
            writer.field(name, value);
        }
        writer.field("Content-Type", media_type).field("Content-Length", body.len());
        writer.end();
        let sent = if head.wants_head_only() { 0 } else { body.len() };
        core.out.extend_from_slice(&body[..sent]);
        self.log_answer(core, head, status, sent as u64);
        if !persistent {
            self.close_behind(core);
        }
    }

    /// Answers with what has a length that nobody knows yet: chunked, or for HTTP/1.0 until the connection closes.
    pub(super) fn answer_stream(
        &mut self,
        core: &mut Core,
        head: &Head<'_, '_>,
        status: Status,
        media_type: &str,
        field: (&str, &str),
        stream: Box<dyn ReadStream>,
    ) {
        let chunked = head.version == Version::Http11;
        if !chunked {
            self.close_behind(core);
        }
        let persistence = Persistence::of(head.version, self.may_go_on(head));
        let Core { http, out, now, .. } = core;
        let mut writer = Writer::begin(out, status, http.date(now.wall.seconds), persistence);
        writer.field("Content-Type", media_type).field(field.0, field.1);
        if chunked {
            writer.field("Transfer-Encoding", "chunked");
        }
        writer.end();
        if head.wants_head_only() {
            core.discard(stream);
            return self.log_answer(core, head, status, 0);
        }
        let stream = if chunked { Box::new(Chunks::new(stream)) } else { stream };
        let part = Part::Stream(stream, 0, None);
        self.begin_body(core, head, status, VecDeque::from([part]));
    }

    fn answer_options(&mut self, core: &mut Core, head: &Head<'_, '_>) {
        let persistence = Persistence::of(head.version, self.may_go_on(head));
        let Core { http, out, now, .. } = core;
        let mut writer = Writer::begin(out, Status::NO_CONTENT, http.date(now.wall.seconds), persistence);
        writer.field("Allow", ALLOW).field("DAV", "1, 2").field("MS-Author-Via", "DAV");
        writer.end();
        self.log_answer(core, head, Status::NO_CONTENT, 0);
    }

    /// Answers that a file cannot be had.
    fn fail_with(&mut self, core: &mut Core, head: &Head<'_, '_>, error: &FileError) {
        let (status, reason) = match error {
            FileError::NotFound
            | FileError::NotDirectory
            | FileError::InvalidName
            | FileError::NameTooLong
            | FileError::Loop => (Status::NOT_FOUND, "There is no such file."),
            FileError::PermissionDenied | FileError::NotRegular | FileError::ReadOnly => {
                (Status::FORBIDDEN, "This may not be read.")
            }
            FileError::Exhausted => (Status::SERVICE_UNAVAILABLE, "The server is out of resources for now."),
            FileError::OverQuota(_) => super::writing::status_of(error),
            _ => (Status::INTERNAL_SERVER_ERROR, "The file system failed."),
        };
        self.fail(core, head, status, reason);
    }

    /// Answers with an error's page.
    pub(super) fn fail(&mut self, core: &mut Core, head: &Head<'_, '_>, status: Status, reason: &str) {
        let record = self.record(core, head);
        self.answer_page(core, record, status, reason, &[]);
    }

    /// Answers with a page of ours.
    pub(super) fn answer_page(
        &mut self,
        core: &mut Core,
        mut record: Record,
        status: Status,
        reason: &str,
        fields: &[(&str, &str)],
    ) {
        let page = page::of(status, reason);
        debug_assert!(page.len() as u64 <= SMALL);
        let Core { http, out, now, .. } = core;
        let date = http.date(now.wall.seconds);
        let mut writer = Writer::begin(out, status, date, Persistence::of(record.version, record.persistent));
        for (name, value) in fields {
            writer.field(name, value);
        }
        writer.field("Content-Type", page::MEDIA_TYPE).field("Content-Length", page.len());
        writer.end();
        if !record.head_only {
            core.out.extend_from_slice(&page);
            record.bytes = page.len() as u64;
        }
        record.status = status;
        self.log_request(core, &record);
        if !record.persistent {
            if record.has_body {
                self.linger();
            }
            self.close_behind(core);
        }
    }

    /// Answers without a body.
    pub(super) fn answer_empty(
        &mut self,
        core: &mut Core,
        mut record: Record,
        status: Status,
        fields: &[(&str, &str)],
    ) {
        let Core { http, out, now, .. } = core;
        let date = http.date(now.wall.seconds);
        let mut writer = Writer::begin(out, status, date, Persistence::of(record.version, record.persistent));
        for (name, value) in fields {
            writer.field(name, value);
        }
        if !status.is_bodiless() {
            writer.field("Content-Length", 0);
        }
        writer.end();
        record.status = status;
        self.log_request(core, &record);
        self.answered_at(core.now.instant);
        if !record.persistent {
            self.close_behind(core);
        }
    }

    /// As many programs run as may, for too long.
    pub(super) fn queued_too_long(&mut self, core: &mut Core, bytes: &[u8]) {
        let mut slots = millrace_http::Slots::new();
        if let Ok(Some((head, _))) = millrace_http::request::parse(bytes, &mut slots) {
            let record = self.record(core, &head);
            let reason = "Too many programs are running; try again later.";
            let fields = [("Retry-After", "10")];
            self.answer_page(core, record, Status::SERVICE_UNAVAILABLE, reason, &fields);
        }
    }

    /// Tells the log of an answer that was given at once.
    fn log_answer(&self, core: &mut Core, head: &Head<'_, '_>, status: Status, bytes: u64) {
        let request = log::Request {
            method: head.method_text,
            target: head.target,
            protocol: self.protocol(head.version),
            status: status.0,
            bytes,
            referer: head.get(Field::Referer),
            agent: head.get(Field::UserAgent),
            elapsed: Duration::ZERO,
        };
        self.log(core, &request);
    }

    /// Tells the log of an answer that took its time.
    pub(super) fn log_request(&self, core: &mut Core, record: &Record) {
        let request = log::Request {
            method: &record.method,
            target: &record.target,
            protocol: self.protocol(record.version),
            status: record.status.0,
            bytes: record.bytes,
            referer: record.referer.as_deref(),
            agent: record.agent.as_deref(),
            elapsed: core.now.instant.saturating_duration_since(record.began),
        };
        self.log(core, &request);
    }

    /// Tells the log which quota is used up.
    pub(super) fn log_over_quota(&self, core: &mut Core, over: Option<&OverQuota>) {
        if let Some(over) = over {
            core.log(&self.subject(), log::Event::Limited { limit: &over.key(), value: over.most });
        }
    }

    fn log(&self, core: &mut Core, request: &log::Request<'_>) {
        core.log_request(&self.subject(), request);
    }

    fn subject(&self) -> Subject<'_> {
        let user = self.who.as_ref().and_then(|who| who.user.as_deref());
        Subject { session: self.number, peer: self.peer, user }
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

fn attempt<'a>(user: &'a [u8], password: &'a [u8], from: IpAddr, encrypted: bool) -> Attempt<'a> {
    let now = SystemTime::now();
    Attempt { user, password, from, protocol: Protocol::Http, encrypted, certified: false, now }
}

/// The `Authorization` field of a head that was kept.
fn authorization_of(bytes: &[u8]) -> Vec<u8> {
    let mut slots = millrace_http::Slots::new();
    match millrace_http::request::parse(bytes, &mut slots) {
        Ok(Some((head, _))) => head.get(Field::Authorization).unwrap_or_default().to_owned(),
        _ => Vec::new(),
    }
}
