//! A request that a program answers (CGI/1.1, RFC 3875).
//!
//! The body goes to the program and its answer to the client as either takes it: nothing is collected but the
//! head of the answer. A client that goes takes the program with it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_ftp::session::Permission;
use millrace_http::cgi::{self, Answer};
use millrace_http::intake::Intake;
use millrace_http::response::{CONTINUE, Persistence, Writer};
use millrace_http::target::Target;
use millrace_http::{Framing, Head, Status, Version, chunked};
use millrace_vfs::FileError;

use super::Opening;
use super::answerer::Answerer;
use super::connection::{Asked, Connection, Work};
use super::find::Found;
use super::program::{self, NoScript, Program, Script};
use super::programs::Slot;
use super::record::Record;
use super::who::Who;
use crate::config::Programs;
use crate::limits::{Direction, Pace};
use crate::slab::Key;
use crate::transfer::TURN;
use crate::worker::Core;

/// Body bytes that are kept for a program that does not take them.
const KEPT: usize = 64 * 1024;

/// Why an answer that has begun is cut, and one that has not is not given.
const OVER_QUOTA: &str = "its user may move no more";

/// Redirects within the server that one request may lead to.
const REDIRECTS: u8 = 5;

/// A program under way.
#[derive(Debug)]
pub(super) struct Running {
    answerer: Answerer,
    /// Its place among those that may run.
    _slot: Slot,
    intake: Intake,
    /// Body bytes that the program has not taken.
    body: Vec<u8>,
    /// What it said, until the head of its answer is whole and sent.
    head: Vec<u8>,
    stage: Stage,
    record: Record,
    version: Version,
    /// Whether the connection may go on behind the answer.
    goes_on: bool,
    /// The request, for an answer that is another request's.
    request: Vec<u8>,
    is_watched: [bool; 2],
    is_encrypted: bool,
    /// Lines that its answer has besides what the program says.
    beside: Vec<u8>,
    deadline: Instant,
    /// Where only silence has an end.
    silence: Option<Duration>,
    /// What limits allow of the answer, and of the body.
    download: Pace,
    upload: Pace,
    /// It has said all; how it ends tells whether that is whole.
    leaving: Option<Leaving>,
}

/// A program that has closed its output, and has not ended.
#[derive(Debug)]
struct Leaving {
    /// The reactor tells of its end by this, so it is kept.
    _process: OwnedFd,
    /// Whoever goes on behind this has closed it on purpose.
    until: Instant,
}

/// How long a program that has closed its output may take to end: it is on its way between two lines of the kernel,
/// or does something else that nobody waits for.
const LEAVING: Duration = Duration::from_secs(1);

/// How long an answer may take.
#[derive(Debug, Clone, Copy)]
pub(super) enum Time {
    /// From its beginning to its end.
    InAll(Duration),
    /// Without anything that moves.
    OfSilence(Duration),
}

/// How what a program says reaches the client.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    /// As the head of the answer, which is not whole.
    Head,
    /// As so many bytes.
    Length(u64),
    Chunked,
    UntilClose,
    /// Not at all: the answer has no body.
    Unsent,
}

/// What becomes of a program's answer.
enum Next {
    /// The client or the program has to do something.
    Wait,
    /// Others have their turn.
    Yield,
    Done,
    Redirect(Vec<u8>),
    /// The connection had ended before it was asked: another one is.
    Again,
    /// Why, for the log.
    Failed(&'static str),
}

impl Connection {
    /// Has a request answered by a program, where its path is one of a program.
    pub(super) fn run(
        &mut self,
        core: &mut Core,
        head: &Head<'_, '_>,
        bytes: &[u8],
        target: &Target<'_>,
        who: &Who,
    ) {
        if !self.permits(core, head, who, Permission::Read) || !self.may_move(core, head, Direction::Download)
        {
            return;
        }
        if head.framing == Framing::Chunked {
            let reason = "A program is told the length of what it gets: send a Content-Length.";
            return self.fail(core, head, Status::LENGTH_REQUIRED, reason);
        }
        let Some(slot) = core.http.programs.enter(self.key) else {
            let until = core.now.instant + core.server.config.programs.time;
            self.work = Work::Queued(until, Box::new(Asked { serial: 0, head: bytes.to_vec(), slot: None }));
            return;
        };
        let Core { http, registry, .. } = core;
        let errors = http.programs.errors(|pipe| crate::worker::watch_errors(registry, pipe));
        let (errors, local) = match (errors, self.local()) {
            (Ok(errors), Ok(local)) => (errors, local),
            _ => {
                return self.fail_with(core, head, &FileError::Exhausted);
            }
        };
        let (server, storage) = (Arc::clone(&core.server), Arc::clone(&who.account.storage));
        let (user, path) = (who.user.clone(), target.path.clone());
        let encrypted = self.is_encrypted();
        let (query, peer) = (target.query.unwrap_or_default().to_vec(), self.peer.ip());
        let (takes_input, kept) = (head.framing != Framing::None, bytes.to_vec());
        self.ask_pool(core, bytes, move || {
            let marked = server.config.programs.marked(&path);
            let Some((mark, folder)) = marked else { return Err(FileError::NotFound) };
            let script = match program::find(&*storage, mark, folder, &path) {
                Ok(script) => script,
                Err(NoScript::File(error)) => return Err(error),
                Err(NoScript::NotRunnable) => return Err(FileError::PermissionDenied),
                Err(NoScript::Elsewhere) => return Ok(Found::NoProgram),
            };
            let path_translated = script.path_translated();
            let request = cgi::Request {
                script: script.path.as_bytes(),
                path_info: &script.path_info,
                path_translated: path_translated.as_deref(),
                query: &query,
                user: user.as_deref(),
                peer,
                local,
                encrypted,
            };
            start(&script, &request, &kept, takes_input, errors)
        });
        if let Work::Asked(asked) = &mut self.work {
            asked.slot = Some(slot);
        }
    }

    /// The program runs: its answer is awaited.
    pub(super) fn begin_program(
        &mut self,
        core: &mut Core,
        head: &Head<'_, '_>,
        bytes: &[u8],
        program: Program,
        is_non_parsed: bool,
    ) {
        let time = core.server.config.programs.time;
        self.begin_answer(core, head, bytes, Answerer::Program(program), is_non_parsed, Time::InAll(time));
    }

    /// Somebody answers.
    pub(super) fn begin_answer(
        &mut self,
        core: &mut Core,
        head: &Head<'_, '_>,
        bytes: &[u8],
        answerer: Answerer,
        is_non_parsed: bool,
        time: Time,
    ) {
        let Some(slot) = self.slot.take() else {
            return core.discard(answerer);
        };
        if head.expects_continue {
            core.out.extend_from_slice(CONTINUE);
        }
        let goes_on = head.persistent && self.may_serve_on();
        let mut record = Record::of(head, goes_on, core.now.instant);
        record.status = Status::OK;
        let stage = if is_non_parsed { Stage::UntilClose } else { Stage::Head };
        let (period, silence) = match time {
            Time::InAll(time) => (time, None),
            Time::OfSilence(time) => (time, Some(time)),
        };
        let running = Running {
            answerer,
            _slot: slot,
            intake: Intake::of(head.framing),
            body: Vec::new(),
            head: Vec::new(),
            stage,
            record,
            version: head.version,
            goes_on: goes_on && !is_non_parsed,
            request: bytes.to_vec(),
            is_encrypted: self.is_encrypted(),
            beside: self.beside.as_ref().map(|beside| beside.0.clone().into_bytes()).unwrap_or_default(),
            is_watched: [false; 2],
            deadline: core.now.instant + period,
            silence,
            download: Pace::new(Direction::Download),
            upload: Pace::new(Direction::Upload),
            leaving: None,
        };
        self.work = Work::Running(Box::new(running));
        match silence.is_some() {
            // Not at once: part of the body may have come with the head, and is only then put where it is taken from.
            true => core.yielded.push_back(self.key),
            false => self.run_on(core),
        }
    }

    /// Moves what can be moved between a client and its program.
    pub(super) fn run_on(&mut self, core: &mut Core) {
        let Work::Running(mut running) = std::mem::replace(&mut self.work, Work::Idle) else { return };
        let next = self.drive(core, &mut running);
        self.hear_complaints(core, &mut running, !matches!(next, Next::Wait | Next::Yield));
        match next {
            Next::Wait => self.work = Work::Running(running),
            Next::Yield => {
                core.yielded.push_back(self.key);
                self.work = Work::Running(running);
            }
            Next::Done => self.program_answered(core, *running),
            Next::Redirect(path) => self.redirect_within(core, *running, &path),
            Next::Again => self.again(core, &running.request, None),
            Next::Failed(why) => self.program_failed(core, *running, why, Status::BAD_GATEWAY),
        }
    }

    /// What an application says of errors goes to the log.
    fn hear_complaints(&mut self, core: &mut Core, running: &mut Running, is_over: bool) {
        if let Answerer::Conversation(conversation) = &mut running.answerer {
            for text in conversation.complaints(is_over) {
                self.log_complaint(core, &text);
            }
        }
    }

    fn drive(&mut self, core: &mut Core, running: &mut Running) -> Next {
        let mut share = TURN;
        loop {
            self.flush(core, false);
            if !self.output_is_empty() || self.is_broken() {
                // It is the client that is waited for.
                running.download.fall_out_of_line();
                running.download.paused = None;
                return Next::Wait;
            }
            if share == 0 {
                return Next::Yield;
            }
            if let Err(why) = self.feed(core, running) {
                return Next::Failed(why);
            }
            let most = core.scratch.len().min(share) as u64;
            let limits = (&core.server.limits, &self.member, core.now.instant);
            let Some(allowed) = running.download.allowance(limits.0, limits.1, limits.2, most) else {
                return match running.download.over() {
                    Some(_) => Next::Failed(OVER_QUOTA),
                    // The wheel wakes it.
                    None => Next::Wait,
                };
            };
            let mut scratch = std::mem::take(&mut core.scratch);
            let most = allowed.min(most) as usize;
            let read = running.answerer.read(&mut scratch[..most]);
            let next = match &read {
                Ok(0) => Some(running.end(core, self.key)),
                Ok(count) => {
                    share -= count;
                    running.moved(core);
                    if running.stage != Stage::Unsent {
                        running.download.spend(*count as u64);
                    }
                    running.take(core, &scratch[..*count]).err()
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => match running.pause(core) {
                    // Something is to be sent first.
                    Ok(true) => None,
                    Ok(false) => {
                        running.download.fall_out_of_line();
                        running.watch(core, self.key);
                        Some(Next::Wait)
                    }
                    Err(next) => Some(next),
                },
                Err(_) => Some(running.is_unanswered()),
            };
            core.scratch = scratch;
            if let Some(next) = next {
                return next;
            }
        }
    }

    /// Gives a program what it takes of the request's body.
    fn feed(&mut self, core: &mut Core, running: &mut Running) -> Result<(), &'static str> {
        while running.answerer.takes_input() {
            if running.body.is_empty() {
                if running.intake.has_ended() {
                    running.answerer.end_input();
                    break;
                }
                let limits = (&core.server.limits, &self.member, core.now.instant);
                let allowed = running.upload.allowance(limits.0, limits.1, limits.2, KEPT as u64);
                let Some(allowed) = allowed else {
                    match running.upload.over() {
                        Some(_) => return Err(OVER_QUOTA),
                        None => break,
                    }
                };
                let most = usize::try_from(allowed).unwrap_or(usize::MAX).min(KEPT);
                self.take_body(core, &mut running.intake, &mut running.body, most)
                    .map_err(|_| "the body of the request is malformed")?;
                running.upload.spend(running.body.len() as u64);
                if running.body.is_empty() {
                    break;
                }
            }
            match running.answerer.write(&running.body) {
                Ok(count) => {
                    drop(running.body.drain(..count));
                    running.moved(core);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // It does not want the rest, which it need not; nobody else wants it either.
                Err(_) => {
                    running.answerer.end_input();
                    running.goes_on = false;
                    self.linger();
                }
            }
        }
        Ok(())
    }

    /// Whoever has answered may go on with something else.
    fn let_go(&mut self, core: &mut Core, answerer: Answerer) {
        match answerer {
            Answerer::Program(program) => core.http.programs.leave(program, core.now.instant),
            Answerer::Conversation(conversation) => {
                if conversation.is_watched {
                    core.forget(&conversation.socket);
                }
                let pass = conversation.pass;
                if let Some(socket) = conversation.into_kept() {
                    core.http.passing[pass].keep(socket, core.now.instant);
                }
            }
        }
    }

    fn program_answered(&mut self, core: &mut Core, running: Running) {
        let Running { answerer, record, goes_on, stage, intake, .. } = running;
        self.let_go(core, answerer);
        self.flush(core, false);
        self.log_request(core, &record);
        self.answered_at(core.now.instant);
        if !goes_on || stage == Stage::UntilClose || !intake.has_ended() {
            self.close_behind(core);
        }
    }

    /// No answer that could be sent: 502 or 504 where nothing was sent yet, else the connection ends.
    fn program_failed(&mut self, core: &mut Core, running: Running, why: &str, status: Status) {
        let Running { answerer, stage, record, .. } = running;
        self.warn(core, &format!("{} failed: {why}", answerer.name()));
        core.discard(answerer);
        self.linger();
        if stage == Stage::Head {
            let reason = match status {
                Status::GATEWAY_TIMEOUT => "The program has not answered in time.",
                _ => "The program has not answered as it should.",
            };
            let record = Record { persistent: false, ..record };
            return self.answer_page(core, record, status, reason, &[]);
        }
        self.log_request(core, &record);
        match stage {
            // Without the last chunk everybody sees that something is missing; what was sent arrives.
            Stage::Chunked => self.end_now(),
            _ => self.cut(),
        }
    }

    /// The program's time is over.
    pub(super) fn program_overdue(&mut self, core: &mut Core, running: Running) {
        self.program_failed(core, running, "its time is over", Status::GATEWAY_TIMEOUT);
    }

    /// The answer is that to another path (RFC 3875 section 6.2.2): asked for with the fields of this request,
    /// but for those of its body.
    fn redirect_within(&mut self, core: &mut Core, running: Running, path: &[u8]) {
        self.redirects += 1;
        let is_sound = path.iter().all(|byte| matches!(byte, 0x21..=0x7e));
        if self.redirects > REDIRECTS || !is_sound {
            return self.program_failed(
                core,
                running,
                "it redirects in a circle, or nowhere",
                Status::BAD_GATEWAY,
            );
        }
        let Running { answerer, request, version, goes_on, .. } = running;
        self.let_go(core, answerer);
        let mut slots = millrace_http::Slots::new();
        let Ok(Some((head, _))) = millrace_http::request::parse(&request, &mut slots) else { return };
        let method = if head.wants_head_only() { "HEAD" } else { "GET" };
        let version = if version == Version::Http11 { "HTTP/1.1" } else { "HTTP/1.0" };
        let mut again = [method.as_bytes(), b" ", path, b" ", version.as_bytes(), b"\r\n"].concat();
        for (name, value) in head.fields() {
            const LEFT_OUT: [&str; 5] =
                ["content-length", "content-type", "transfer-encoding", "expect", "connection"];
            if !LEFT_OUT.iter().any(|out| out.eq_ignore_ascii_case(name)) {
                again.extend_from_slice(&[name.as_bytes(), b": ", value, b"\r\n"].concat());
            }
        }
        let connection = if goes_on { "keep-alive" } else { "close" };
        again.extend_from_slice(format!("Connection: {connection}\r\n\r\n").as_bytes());
        // Where it leads is another request, to hooks as well.
        self.forget_ruling();
        self.again(core, &again, None);
    }
}

fn start(
    script: &Script,
    request: &cgi::Request<'_>,
    bytes: &[u8],
    takes_input: bool,
    errors: std::os::fd::OwnedFd,
) -> Result<Found, FileError> {
    let mut slots = millrace_http::Slots::new();
    let Ok(Some((head, _))) = millrace_http::request::parse(bytes, &mut slots) else {
        return Err(FileError::Unsupported);
    };
    let variables = cgi::environment(&head, request);
    let program = script.start(variables, takes_input, errors).map_err(FileError::from)?;
    Ok(Found::Program(Box::new(program), cgi::is_non_parsed(script.path.name())))
}

impl Running {
    /// Claims that it takes more of the request's body.
    pub(super) fn takes_input(&self) -> bool {
        self.answerer.takes_input() && self.body.is_empty()
    }

    /// When something is to be done without anybody's word.
    pub(super) fn due(&self) -> Instant {
        let paused = self.paused().map(|until| match self.silence {
            // It is the limit that is silent.
            Some(_) => until,
            None => until.min(self.deadline),
        });
        let leaving = self.leaving.as_ref().map(|leaving| leaving.until.min(self.deadline));
        paused.or(leaving).unwrap_or(self.deadline)
    }

    /// Claims that its time is over, now that something is due.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        self.deadline <= now && (self.paused().is_none() || self.silence.is_none())
    }

    /// Until when a limit keeps it waiting.
    fn paused(&self) -> Option<Instant> {
        let upload = self.upload.paused.filter(|_| self.answerer.takes_input());
        self.download.paused.into_iter().chain(upload).min()
    }

    /// There is no more to be read, and no end. A connection that was used before may have been closed just when it
    /// was asked: what changes nothing is asked again.
    fn is_unanswered(&self) -> Next {
        let is_safe = matches!(self.record.method.as_str(), "GET" | "HEAD") && !self.record.has_body;
        match &self.answerer {
            Answerer::Conversation(conversation)
                if conversation.was_used && is_safe && self.stage == Stage::Head && self.head.is_empty() =>
            {
                Next::Again
            }
            _ => Next::Failed("its output ended early, or cannot be read"),
        }
    }

    /// Something has moved.
    fn moved(&mut self, core: &Core) {
        if let Some(silence) = self.silence {
            self.deadline = core.now.instant + silence;
        }
    }

    /// What the program has said goes to the client.
    fn take(&mut self, core: &mut Core, bytes: &[u8]) -> Result<(), Next> {
        match self.stage {
            Stage::Head => {
                self.head.extend_from_slice(bytes);
                // More may be there: an answer that is whole can be sent with its length.
                if self.head.len() > TURN / 8 { self.send_head(core, None).map(|_| ()) } else { Ok(()) }
            }
            _ => {
                self.send(core, bytes);
                Ok(())
            }
        }
    }

    /// The program is silent for now. Answers whether something came to be sent.
    fn pause(&mut self, core: &mut Core) -> Result<bool, Next> {
        match self.stage {
            Stage::Head if !self.head.is_empty() => self.send_head(core, None),
            _ => Ok(false),
        }
    }

    /// The program has said all. Where only its end tells whether that is whole, that is waited for: somebody may have
    /// killed it.
    fn end(&mut self, core: &mut Core, key: Key) -> Next {
        if let (Answerer::Program(program), Stage::Head | Stage::Chunked | Stage::UntilClose) =
            (&mut self.answerer, self.stage)
        {
            match (program.ended(), &self.leaving) {
                (Some(status), _) if status.signal().is_some() => {
                    return Next::Failed("it was killed before its end");
                }
                (Some(_), _) => {}
                (None, Some(leaving)) if core.now.instant < leaving.until => return Next::Wait,
                (None, Some(_)) => {}
                (None, None) => {
                    if let Some(process) = program.process()
                        && core.watch_data(key, &process, mio::Interest::READABLE).is_ok()
                    {
                        let until = core.now.instant + LEAVING;
                        self.leaving = Some(Leaving { _process: process, until });
                        return Next::Wait;
                    }
                }
            }
        }
        if self.stage == Stage::Head {
            match self.send_head(core, Some(())) {
                Ok(true) => {}
                Ok(false) => return Next::Failed("it ended without the head of an answer"),
                Err(next) => return next,
            }
        }
        match self.stage {
            Stage::Length(1..) => return Next::Failed("it ended before its Content-Length"),
            Stage::Chunked => core.out.extend_from_slice(chunked::END),
            _ => {}
        }
        Next::Done
    }

    /// Sends the head, and what came behind it, once it is whole; `all` where nothing more will come. Answers
    /// whether it was.
    fn send_head(&mut self, core: &mut Core, all: Option<()>) -> Result<bool, Next> {
        let (status, length, lines, behind) = match cgi::parse(&self.head) {
            Ok(None) => return Ok(false),
            Ok(Some((Answer::LocalRedirect(path), _))) => return Err(Next::Redirect(path)),
            Ok(Some((Answer::Document { status, length, lines }, behind))) => (status, length, lines, behind),
            Err(cgi::Malformed(why)) => return Err(Next::Failed(why)),
        };
        let head = std::mem::take(&mut self.head);
        let body = &head[behind..];
        let length = length.or(all.map(|()| body.len() as u64));
        self.record.status = status;
        let is_unsent = self.record.head_only || status.is_bodiless();
        self.stage = match length {
            _ if is_unsent => Stage::Unsent,
            Some(length) => Stage::Length(length),
            None if self.version == Version::Http11 => Stage::Chunked,
            None => Stage::UntilClose,
        };
        self.goes_on &= self.stage != Stage::UntilClose;
        let persistence = Persistence::of(self.version, self.goes_on);
        let Core { http, out, now, .. } = core;
        let opening = http.openings.lines(now.wall.seconds, Opening::Bare, self.is_encrypted);
        let mut writer = Writer::begin(out, status, opening, persistence);
        writer.lines(&lines).lines(&self.beside);
        match (self.stage, length) {
            (Stage::Chunked, _) => _ = writer.field("Transfer-Encoding", "chunked"),
            (_, Some(length)) if !status.is_bodiless() => _ = writer.length(length),
            _ => {}
        }
        writer.end();
        self.send(core, body);
        Ok(true)
    }

    /// Sends bytes of the body.
    fn send(&mut self, core: &mut Core, bytes: &[u8]) {
        let bytes = match &mut self.stage {
            Stage::Head | Stage::Unsent => return,
            Stage::Chunked => {
                chunked::write(bytes, &mut core.out);
                bytes
            }
            Stage::UntilClose => {
                core.out.extend_from_slice(bytes);
                bytes
            }
            // What goes beyond the announced length would be taken for the next answer.
            Stage::Length(left) => {
                let bytes = &bytes[..bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX))];
                *left -= bytes.len() as u64;
                core.out.extend_from_slice(bytes);
                bytes
            }
        };
        self.record.bytes += bytes.len() as u64;
    }

    /// Has the reactor tell when it can go on.
    fn watch(&mut self, core: &Core, key: Key) {
        match &mut self.answerer {
            Answerer::Program(program) => {
                let [input, output] = &mut self.is_watched;
                if let (Some(pipe), false) = (&program.output, &output) {
                    *output = core.watch_program_output(key, pipe).is_ok();
                }
                if let (Some(pipe), false) = (&program.input, &input) {
                    *input = core.watch_program_input(key, pipe).is_ok();
                }
            }
            Answerer::Conversation(conversation) if !conversation.is_watched => {
                let both = mio::Interest::READABLE | mio::Interest::WRITABLE;
                conversation.is_watched = core.watch_data(key, &conversation.socket, both).is_ok();
            }
            Answerer::Conversation(_) => {}
        }
    }

    /// Gives up: the client is gone.
    pub(super) fn into_parts(self) -> (Option<Program>, Record) {
        match self.answerer {
            Answerer::Program(program) => (Some(program), self.record),
            Answerer::Conversation(conversation) => {
                conversation.abort();
                (None, self.record)
            }
        }
    }
}

impl Programs {
    /// The folder of programs that a path lies in, as clients name it and as the file system does.
    pub(crate) fn marked(
        &self,
        path: &millrace_vfs::VirtualPath,
    ) -> Option<(&millrace_vfs::VirtualPath, &std::path::Path)> {
        let mut folders = self.folders.iter();
        folders.find(|(mark, _)| path.starts_with(mark)).map(|(mark, folder)| (mark, folder.as_path()))
    }
}
