//! A running answer of an upstream: its output, how it reaches the client, and its deadline. `relaying.rs` moves the
//! data.

mod relaying;

pub(super) use self::relaying::Relay;

use std::borrow::Cow;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_http::cgi::{self, Answer};
use millrace_http::h1::{AnswerFraming, LAST_CHUNK, write_chunk};
use millrace_http::response::{CONTINUE, Persistence, PreparedFields, Writer};
use millrace_http::{Head, Status, Version};
use millrace_runtime::worker::Role;
use mio::Interest;

use super::Opening;
use super::answerer::Answerer;
use super::connection::Work;
use super::exchange::Exchange;
use super::program::Program;
use super::programs::Slot;
use super::record::Record;
use crate::config::{Pass, Upstream};
use crate::limits::{Direction, Pace};
use crate::slab::Key;
use crate::transfer::{TURN, Taken};
use crate::worker::Core;

/// A program under way.
#[derive(Debug)]
pub(super) struct Running {
    answerer: Answerer,
    /// Its place among those that may run.
    _slot: Slot,
    /// Body bytes that the program has not taken.
    body: Vec<u8>,
    /// What it said, until the head of its answer is whole and sent.
    head: Vec<u8>,
    stage: Stage,
    voice: Voice,
    /// What it said is held back for its end until then: mostly both are there, and go out together.
    held: Option<Instant>,
    record: Record,
    version: Version,
    /// Whether the connection may go on behind the answer.
    goes_on: bool,
    /// The request, for an answer that is another request's.
    request: Arc<Head>,
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
    /// What the client has taken since something last moved.
    taken: Taken,
    /// It has said all; how it ends tells whether that is whole.
    leaving: Option<Leaving>,
    /// The client has ended its side: when it has been silent for so long that one asks whether it is there.
    doubted_at: Option<Instant>,
}

/// A program that has closed its output, and has not ended.
#[derive(Debug)]
struct Leaving {
    /// The reactor tells of its end by this, so it is kept.
    _process: OwnedFd,
    /// A program that continues after this has closed it on purpose.
    until: Instant,
}

/// How long a program that has closed its output may take to end: it is about to exit, or does something else that is
/// not awaited.
const LEAVING: Duration = Duration::from_secs(1);

/// A client that has closed its side has gone, or still waits (`nc -N`): sending to it shows which. After so long
/// without output, an interim response is sent for that.
pub(super) const DOUBTED: Duration = Duration::from_secs(1);

/// The same where none can be sent: it is taken for gone after so long without anything.
pub(super) const HEARD_OUT: Duration = Duration::from_secs(5);

/// How long the first words of a program are held back for its end: more than most programs take from the one to the
/// other, and nothing to a reader of what comes bit by bit.
const HELD: Duration = Duration::from_millis(1);

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
    /// As the same, which goes to the client as it is.
    RawHead,
    /// As so many bytes.
    Length(u64),
    Chunked,
    UntilClose,
    /// Not at all: the answer has no body.
    Unsent,
}

/// Whether an answer's stream is readable.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Voice {
    /// There may be something.
    Speaks,
    /// There is nothing, until the reactor tells.
    Silent,
    /// There is an end, of which the reactor has told.
    Ending,
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
    Failed(Cow<'static, str>),
    /// The same where it is the request that is none.
    Refused(&'static str),
}

impl Exchange<'_> {
    /// Begins an upstream's answer.
    pub(super) fn begin_answer(&mut self, answerer: Answerer, is_non_parsed: bool, time: Time) {
        let head = self.head;
        let Some(slot) = self.connection.slot.take() else {
            return self.core.discard(answerer);
        };
        self.connection.want_body(self.core);
        let goes_on = head.persistent && self.connection.http.may_keep_alive();
        let mut record = Record::of(head, goes_on, self.core.now.instant);
        record.status = Status::OK;
        let (period, silence) = match time {
            Time::InAll(time) => (time, None),
            Time::OfSilence(time) => (time, Some(time)),
        };
        let beside =
            self.connection.beside.as_ref().map(|beside| beside.0.clone().into_bytes()).unwrap_or_default();
        let running = Running {
            voice: Voice::of(&answerer),
            answerer,
            _slot: slot,
            body: Vec::new(),
            head: Vec::new(),
            stage: if is_non_parsed { Stage::RawHead } else { Stage::Head },
            held: None,
            record,
            version: head.version,
            goes_on: goes_on && !is_non_parsed,
            request: Arc::clone(head),
            is_encrypted: self.connection.is_encrypted(),
            beside,
            is_watched: [false; 2],
            deadline: self.core.now.instant + period,
            silence,
            download: Pace::new(Direction::Download),
            upload: Pace::new(Direction::Upload),
            taken: Taken::default(),
            leaving: None,
            doubted_at: None,
        };
        self.connection.work = Work::Running(Box::new(running));
        match silence.is_some() {
            // Not at once: part of the body may have come with the head, and is only then put where it is taken from.
            true => self.core.yielded.push_back(self.connection.key),
            false => Relay::new(self.connection, self.core).run_on(),
        }
    }
}

impl Voice {
    /// The initial state. The reactor reports the first output of a program that was started just now.
    fn of(answerer: &Answerer) -> Self {
        match answerer {
            Answerer::Program(_) => Self::Silent,
            Answerer::Conversation(_) => Self::Speaks,
        }
    }
}

impl Running {
    /// Returns whether it takes more of the request's body.
    pub(super) fn takes_input(&self) -> bool {
        self.answerer.takes_input() && self.body.is_empty()
    }

    /// When something is due without an event.
    pub(super) fn due(&self) -> Instant {
        let paused = self.paused().map(|until| match self.silence {
            // It is the limit that is silent.
            Some(_) => until,
            None => until.min(self.deadline),
        });
        let leaving = self.leaving.as_ref().map(|leaving| leaving.until.min(self.deadline));
        let silent = self.silent_since().map(|(silence, since)| self.taken.due(since, silence));
        let due = paused.or(leaving).or(silent).unwrap_or(self.deadline);
        self.doubted_at.map_or(due, |doubted| doubted.min(due))
    }

    /// The client has ended its side: it may have gone, and is not waited for as others are.
    pub(super) fn doubt(&mut self, now: Instant) {
        let patience = if self.can_ask() { DOUBTED } else { HEARD_OUT };
        self.doubted_at.get_or_insert(now + patience);
    }

    /// Returns whether it is time to find out whether the client is there.
    pub(super) fn is_doubted(&self, now: Instant) -> bool {
        self.doubted_at.is_some_and(|at| at <= now)
    }

    /// Asks the client whether it is there: if it has gone, its system answers with a reset, as it does to what was
    /// sent before. Answers whether it could be asked.
    pub(super) fn ask_client(&mut self, core: &mut Core, is_being_sent: bool) -> bool {
        let can_ask = self.can_ask();
        if can_ask && !is_being_sent {
            // Whatever a client expects, it may be sent this at any time before the answer (RFC 9110 section 15.2).
            core.out.extend_from_slice(CONTINUE);
        }
        self.doubted_at = Some(core.now.instant + HEARD_OUT);
        can_ask || is_being_sent
    }

    /// Returns whether something may be sent that is not yet the answer.
    fn can_ask(&self) -> bool {
        self.stage == Stage::Head && self.version == Version::Http11
    }

    /// Returns whether its time is over, now that something is due.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        self.deadline <= now && (self.paused().is_none() || self.silence.is_none())
    }

    /// Returns whether the client, which has taken so much in all, takes of what it was sent, where only silence has an
    /// end: that is put off.
    pub(super) fn still_takes(&mut self, taken: io::Result<u64>, now: Instant) -> bool {
        let Some((silence, mut moved)) = self.silent_since() else { return false };
        let takes = self.taken.look(taken, &mut moved, now);
        self.deadline = moved + silence;
        takes
    }

    /// How long an answer that has begun may be silent, and since when it is.
    fn silent_since(&self) -> Option<(Duration, Instant)> {
        let silence = self.silence.filter(|_| self.stage != Stage::Head)?;
        Some((silence, self.deadline - silence))
    }

    /// Until when a limit keeps it waiting.
    pub(super) fn paused(&self) -> Option<Instant> {
        let upload = self.upload.paused.filter(|_| self.answerer.takes_input());
        self.download.paused.into_iter().chain(upload).min()
    }

    /// There is no more to be read, and no end. A connection that was used before may have been closed just when it
    /// was asked: what changes nothing is asked again.
    fn is_unanswered(&mut self, passes: &[Pass], error: &io::Error) -> Next {
        let is_safe = matches!(self.record.method.as_str(), "GET" | "HEAD") && !self.record.has_body;
        match &mut self.answerer {
            Answerer::Conversation(conversation)
                if conversation.was_used && is_safe && self.stage == Stage::Head && self.head.is_empty() =>
            {
                Next::Again
            }
            Answerer::Conversation(conversation)
                if matches!(passes[conversation.pass].to, Upstream::Http(_)) =>
            {
                // A carried request's own connection reports the reason.
                Next::Failed(conversation.complaints(true).join(" ").into())
            }
            _ => Next::Failed(format!("its answer ended early, or cannot be read: {error}").into()),
        }
    }

    /// Something has moved.
    fn moved(&mut self, core: &Core) {
        if let Some(silence) = self.silence {
            self.deadline = core.now.instant + silence;
        }
        self.taken = Taken::default();
        // A doubt counts from now on.
        self.doubted_at = None;
    }

    /// What the program has said goes to the client.
    fn take(&mut self, core: &mut Core, bytes: &[u8]) -> Result<(), Next> {
        match self.stage {
            Stage::Head => {
                self.head.extend_from_slice(bytes);
                // More may be there: an answer that is whole can be sent with its length.
                if self.head.len() > TURN / 8 { self.send_head(core, None).map(|_| ()) } else { Ok(()) }
            }
            Stage::RawHead => {
                self.head.extend_from_slice(bytes);
                if let Some((status, length)) = cgi::parse_raw(&self.head) {
                    self.send_raw(core, status, length);
                }
                Ok(())
            }
            _ => {
                self.send(core, bytes);
                Ok(())
            }
        }
    }

    /// Sends the head of an answer that goes as it is, and what came behind it.
    fn send_raw(&mut self, core: &mut Core, status: Option<Status>, length: usize) {
        let said = std::mem::take(&mut self.head);
        let (head, body) = said.split_at(length);
        self.record.status = status.unwrap_or(self.record.status);
        match self.version {
            Version::Http2 => {
                let none = PreparedFields::default();
                let mut writer = Writer::begin(&mut core.out, self.record.status, &none, Persistence::Stream);
                let fields = head.iter().position(|&byte| byte == b'\n').map_or(0, |end| end + 1);
                writer.lines(&head[fields..]);
                writer.end();
            }
            _ => core.out.extend_from_slice(head),
        }
        self.stage = if self.record.head_only { Stage::Unsent } else { Stage::UntilClose };
        self.send(core, body);
    }

    /// The reactor tells of the answer, and whether its end is there.
    pub(super) fn is_heard(&mut self, has_ended: bool) {
        if self.voice != Voice::Ending {
            self.voice = if has_ended { Voice::Ending } else { Voice::Speaks };
        }
    }

    /// All was read that was there: the next will be told of. (Of an end that was told of, nothing more is.)
    fn fall_silent(&mut self) {
        if self.voice == Voice::Speaks && matches!(self.answerer, Answerer::Program(_)) {
            self.voice = Voice::Silent;
        }
    }

    /// The program is silent for now. Answers whether something came to be sent.
    fn pause(&mut self, core: &mut Core, key: Key) -> Result<bool, Next> {
        if self.stage != Stage::Head || self.head.is_empty() || self.is_held(core, key) {
            return Ok(false);
        }
        self.send_head(core, None)
    }

    /// Returns whether what a program has said is held back, from the first time on that this is asked.
    fn is_held(&mut self, core: &mut Core, key: Key) -> bool {
        if !matches!(self.answerer, Answerer::Program(_)) {
            return false;
        }
        let until = *self.held.get_or_insert_with(|| core.http.programs.hold(key, core.now.instant + HELD));
        core.now.instant < until
    }

    /// The program has closed its output. If only its exit status shows whether the output is complete, that is
    /// awaited: it may have been killed.
    fn end(&mut self, core: &mut Core, key: Key) -> Next {
        if let (
            Answerer::Program(program),
            Stage::Head | Stage::RawHead | Stage::Chunked | Stage::UntilClose,
        ) = (&mut self.answerer, self.stage)
        {
            match (program.ended(), &self.leaving) {
                (Some(status), _) if status.signal().is_some() => {
                    return Next::Failed("it was killed before its end".into());
                }
                (Some(_), _) => {}
                (None, Some(leaving)) if core.now.instant < leaving.until => return Next::Wait,
                (None, Some(_)) => {}
                (None, None) => {
                    if let Some(process) = program.process()
                        && core.watch(key, Role::Side, &process, Interest::READABLE).is_ok()
                    {
                        let until = core.now.instant + LEAVING;
                        self.leaving = Some(Leaving { _process: process, until });
                        return Next::Wait;
                    }
                }
            }
        }
        if self.stage == Stage::RawHead {
            if self.head.is_empty() {
                return Next::Failed("it ended without an answer".into());
            }
            self.send_raw(core, None, self.head.len());
        }
        if self.stage == Stage::Head {
            match self.send_head(core, Some(())) {
                Ok(true) => {}
                Ok(false) => return Next::Failed("it ended without the head of an answer".into()),
                Err(next) => return next,
            }
        }
        match self.stage {
            Stage::Length(1..) => return Next::Failed("it ended before its Content-Length".into()),
            Stage::Chunked => core.out.extend_from_slice(LAST_CHUNK),
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
            Err(cgi::Malformed(why)) => return Err(Next::Failed(why.into())),
        };
        let head = std::mem::take(&mut self.head);
        let body = &head[behind..];
        self.record.status = status;
        let known = length.or(all.map(|()| body.len() as u64));
        self.stage = match AnswerFraming::of(self.version, self.record.head_only, status, known) {
            AnswerFraming::Bodiless => Stage::Unsent,
            AnswerFraming::Length(length) => Stage::Length(length),
            AnswerFraming::Chunked => Stage::Chunked,
            AnswerFraming::UntilClose => Stage::UntilClose,
        };
        // The content omitted for `HEAD` is not counted either: only the upstream knows its length (RFC 9110 section
        // 8.6).
        let length = if self.stage == Stage::Unsent { length } else { known };
        self.goes_on &= self.stage != Stage::UntilClose;
        let persistence = Persistence::of(self.version, self.goes_on);
        let Core { http, kernel, .. } = core;
        let opening = http.openings.lines(kernel.now.wall.seconds, Opening::Bare, self.is_encrypted);
        let mut writer = Writer::begin(&mut kernel.out, status, opening, persistence);
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
            Stage::Head | Stage::RawHead | Stage::Unsent => return,
            Stage::Chunked => {
                write_chunk(bytes, &mut core.out);
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
                    *output = core.watch(key, Role::Side, pipe, Interest::READABLE).is_ok();
                }
                if let (Some(pipe), false) = (&program.input, &input) {
                    *input = core.watch(key, Role::Wake, pipe, Interest::WRITABLE).is_ok();
                }
            }
            Answerer::Conversation(conversation) if !conversation.is_watched => {
                let both = Interest::READABLE | Interest::WRITABLE;
                conversation.is_watched = core.watch(key, Role::Side, &conversation.socket, both).is_ok();
            }
            Answerer::Conversation(_) => {}
        }
    }

    /// Gives up: the client is gone.
    pub(super) fn into_parts(self) -> (Option<Program>, Record) {
        let mut record = self.record;
        if matches!(self.stage, Stage::Head | Stage::RawHead) {
            // There was no answer.
            record.status = Status::BAD_REQUEST;
        }
        match self.answerer {
            Answerer::Program(program) => (Some(program), record),
            Answerer::Conversation(conversation) => {
                conversation.abort();
                (None, record)
            }
        }
    }
}
