//! A running answer of an upstream: its output, how it reaches the client, and its deadline. `upstream/relaying.rs` moves the
//! data.

use std::borrow::Cow;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_gateway::answerer::Answerer;
use millrace_gateway::program::Program;
use millrace_gateway::programs::Slot;
use millrace_gateway::upstream::{ProxyRoute, Upstream};
use millrace_http::cgi::{self, Answer};
use millrace_http::h1::{AnswerFraming, LAST_CHUNK, write_chunk};
use millrace_http::response::{CONTINUE, Persistence, PreparedFields, Writer};
use millrace_http::{Head, Status, Version};
use millrace_limits::Pace;
use millrace_runtime::slab::Key;
use millrace_runtime::transfer::{TURN, Taken};
use millrace_runtime::worker::Role;
use mio::Interest;

use crate::common_headers::HeaderSet;
use crate::record::Record;
use crate::worker::Core;

/// A program under way.
#[derive(Debug)]
pub(crate) struct UpstreamResponse {
    pub(crate) answerer: Answerer,
    /// Its place among those that may run.
    pub(crate) _slot: Slot,
    /// Body bytes that the program has not taken.
    pub(crate) body: Vec<u8>,
    /// What it said, until the head of its answer is whole and sent.
    pub(crate) head: Vec<u8>,
    pub(crate) stage: OutputStage,
    pub(crate) readable: Readable,
    /// What it said is held back for its end until then: mostly both are there, and go out together.
    pub(crate) held: Option<Instant>,
    pub(crate) record: Record,
    pub(crate) version: Version,
    /// Whether the connection may go on behind the answer.
    pub(crate) goes_on: bool,
    /// The request, for an answer that is another request's.
    pub(crate) request: Arc<Head>,
    pub(crate) is_watched: [bool; 2],
    pub(crate) is_encrypted: bool,
    /// Lines that its answer has besides what the program says.
    pub(crate) extra_headers: Vec<u8>,
    pub(crate) deadline: Instant,
    /// Where only silence has an end.
    pub(crate) silence: Option<Duration>,
    /// What limits allow of the answer, and of the body.
    pub(crate) download: Pace,
    pub(crate) upload: Pace,
    /// What the client has taken since something last moved.
    pub(crate) taken: Taken,
    /// It has said all; how it ends tells whether that is whole.
    pub(crate) leaving: Option<Leaving>,
    /// The client has ended its side: when it has been silent for so long that one asks whether it is there.
    pub(crate) doubted_at: Option<Instant>,
}

/// A program that has closed its output, and has not ended.
#[derive(Debug)]
pub(crate) struct Leaving {
    /// The reactor tells of its end by this, so it is kept.
    _process: OwnedFd,
    /// A program that continues after this has closed it on purpose.
    until: Instant,
}

/// How long a program that has closed its output may take to end: it is about to exit, or does something else that is
/// not awaited.
pub(crate) const LEAVING: Duration = Duration::from_secs(1);

/// A client that has closed its side has gone, or still waits (`nc -N`): sending to it shows which. After so long
/// without output, an interim response is sent for that.
pub(crate) const DOUBTED: Duration = Duration::from_secs(1);

/// The same where none can be sent: it is taken for gone after so long without anything.
pub(crate) const HEARD_OUT: Duration = Duration::from_secs(5);

/// How long the first words of a program are held back for its end: more than most programs take from the one to the
/// other, and nothing to a reader of what comes bit by bit.
pub(crate) const HELD: Duration = Duration::from_millis(1);

/// How long an answer may take.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Time {
    /// From its beginning to its end.
    InAll(Duration),
    /// Without anything that moves.
    OfSilence(Duration),
}

/// How what a program says reaches the client.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum OutputStage {
    /// As the head of the answer, which is not whole.
    Head,
    /// As the same, which goes to the client as it is.
    RawHead,
    /// As this many bytes.
    Length(u64),
    Chunked,
    UntilClose,
    /// Not at all: the answer has no body.
    Unsent,
}

/// Whether an answer's stream is readable.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Readable {
    /// There may be something.
    Yes,
    /// There is nothing, until the reactor tells.
    NotNow,
    /// There is an end, of which the reactor has told.
    Ended,
}

/// What becomes of a program's answer.
pub(crate) enum Next {
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

impl Readable {
    /// The initial state. The reactor reports the first output of a program that was started just now.
    pub(crate) fn of(answerer: &Answerer) -> Self {
        match answerer {
            Answerer::Program(_) => Self::NotNow,
            Answerer::Conversation(_) => Self::Yes,
        }
    }
}

impl UpstreamResponse {
    /// Returns whether it takes more of the request's body.
    pub(crate) fn takes_input(&self) -> bool {
        self.answerer.takes_input() && self.body.is_empty()
    }

    /// When something is due without an event.
    pub(crate) fn due(&self) -> Instant {
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
    pub(crate) fn doubt(&mut self, now: Instant) {
        let patience = if self.can_ask() { DOUBTED } else { HEARD_OUT };
        self.doubted_at.get_or_insert(now + patience);
    }

    /// Returns whether it is time to find out whether the client is there.
    pub(crate) fn is_doubted(&self, now: Instant) -> bool {
        self.doubted_at.is_some_and(|at| at <= now)
    }

    /// Asks the client whether it is there: if it has gone, its system answers with a reset, as it does to what was
    /// sent before. Answers whether it could be asked.
    pub(crate) fn ask_client(&mut self, core: &mut Core, is_being_sent: bool) -> bool {
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
        self.stage == OutputStage::Head && self.version == Version::Http11
    }

    /// Returns whether its time is over, now that something is due.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        self.deadline <= now && (self.paused().is_none() || self.silence.is_none())
    }

    /// Returns whether the client, which has taken so much in all, takes of what it was sent, where only silence has an
    /// end: that is put off.
    pub(crate) fn still_takes(&mut self, taken: io::Result<u64>, now: Instant) -> bool {
        let Some((silence, mut moved)) = self.silent_since() else { return false };
        let takes = self.taken.look(taken, &mut moved, now);
        self.deadline = moved + silence;
        takes
    }

    /// How long an answer that has begun may be silent, and since when it is.
    fn silent_since(&self) -> Option<(Duration, Instant)> {
        let silence = self.silence.filter(|_| self.stage != OutputStage::Head)?;
        Some((silence, self.deadline - silence))
    }

    /// Until when a limit keeps it waiting.
    pub(crate) fn paused(&self) -> Option<Instant> {
        let upload = self.upload.paused.filter(|_| self.answerer.takes_input());
        self.download.paused.into_iter().chain(upload).min()
    }

    /// There is no more to be read, and no end. A connection that was used before may have been closed just when it
    /// was asked: what changes nothing is asked again.
    pub(crate) fn is_unanswered(&mut self, proxy_routes: &[Arc<ProxyRoute>], error: &io::Error) -> Next {
        let is_safe = matches!(self.record.method.as_str(), "GET" | "HEAD") && !self.record.has_body;
        match &mut self.answerer {
            Answerer::Conversation(conversation)
                if conversation.was_used
                    && is_safe
                    && self.stage == OutputStage::Head
                    && self.head.is_empty() =>
            {
                Next::Again
            }
            Answerer::Conversation(conversation)
                if matches!(proxy_routes[conversation.route].to, Upstream::Http(_)) =>
            {
                // A carried request's own connection reports the reason.
                Next::Failed(conversation.complaints(true).join(" ").into())
            }
            _ => Next::Failed(format!("its answer ended early, or cannot be read: {error}").into()),
        }
    }

    /// Something has moved.
    pub(crate) fn moved(&mut self, core: &Core) {
        if let Some(silence) = self.silence {
            self.deadline = core.now.instant + silence;
        }
        self.taken = Taken::default();
        // A doubt counts from now on.
        self.doubted_at = None;
    }

    /// What the program has said goes to the client.
    pub(crate) fn take(&mut self, core: &mut Core, bytes: &[u8]) -> Result<(), Next> {
        match self.stage {
            OutputStage::Head => {
                self.head.extend_from_slice(bytes);
                // More may be there: an answer that is whole can be sent with its length.
                if self.head.len() > TURN / 8 { self.send_head(core, None).map(|_| ()) } else { Ok(()) }
            }
            OutputStage::RawHead => {
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
        self.stage = if self.record.head_only { OutputStage::Unsent } else { OutputStage::UntilClose };
        self.send(core, body);
    }

    /// The reactor tells of the answer, and whether its end is there.
    pub(crate) fn is_heard(&mut self, has_ended: bool) {
        if self.readable != Readable::Ended {
            self.readable = if has_ended { Readable::Ended } else { Readable::Yes };
        }
    }

    /// Notes that all available bytes were read: the next event of the pipe announces more. After its end there is none.
    pub(crate) fn fall_silent(&mut self) {
        if self.readable == Readable::Yes && matches!(self.answerer, Answerer::Program(_)) {
            self.readable = Readable::NotNow;
        }
    }

    /// The program is silent for now. Answers whether something came to be sent.
    pub(crate) fn pause(&mut self, core: &mut Core, key: Key) -> Result<bool, Next> {
        if self.stage != OutputStage::Head || self.head.is_empty() || self.is_held(core, key) {
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
    pub(crate) fn end(&mut self, core: &mut Core, key: Key) -> Next {
        if let (
            Answerer::Program(program),
            OutputStage::Head | OutputStage::RawHead | OutputStage::Chunked | OutputStage::UntilClose,
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
        if self.stage == OutputStage::RawHead {
            if self.head.is_empty() {
                return Next::Failed("it ended without an answer".into());
            }
            self.send_raw(core, None, self.head.len());
        }
        if self.stage == OutputStage::Head {
            match self.send_head(core, Some(())) {
                Ok(true) => {}
                Ok(false) => return Next::Failed("it ended without the head of an answer".into()),
                Err(next) => return next,
            }
        }
        match self.stage {
            OutputStage::Length(1..) => return Next::Failed("it ended before its Content-Length".into()),
            OutputStage::Chunked => core.out.extend_from_slice(LAST_CHUNK),
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
            AnswerFraming::Bodiless => OutputStage::Unsent,
            AnswerFraming::Length(length) => OutputStage::Length(length),
            AnswerFraming::Chunked => OutputStage::Chunked,
            AnswerFraming::UntilClose => OutputStage::UntilClose,
        };
        // The content omitted for `HEAD` is not counted either: only the upstream knows its length (RFC 9110 section
        // 8.6).
        let length = if self.stage == OutputStage::Unsent { length } else { known };
        self.goes_on &= self.stage != OutputStage::UntilClose;
        let persistence = Persistence::of(self.version, self.goes_on);
        let Core { http, kernel, .. } = core;
        let opening = http.common.lines(kernel.now.wall.seconds, HeaderSet::Bare, self.is_encrypted);
        let mut writer = Writer::begin(&mut kernel.out, status, opening, persistence);
        writer.lines(&lines).lines(&self.extra_headers);
        match (self.stage, length) {
            (OutputStage::Chunked, _) => _ = writer.field("Transfer-Encoding", "chunked"),
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
            OutputStage::Head | OutputStage::RawHead | OutputStage::Unsent => return,
            OutputStage::Chunked => {
                write_chunk(bytes, &mut core.out);
                bytes
            }
            OutputStage::UntilClose => {
                core.out.extend_from_slice(bytes);
                bytes
            }
            // What goes beyond the announced length would be taken for the next answer.
            OutputStage::Length(left) => {
                let bytes = &bytes[..bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX))];
                *left -= bytes.len() as u64;
                core.out.extend_from_slice(bytes);
                bytes
            }
        };
        self.record.bytes += bytes.len() as u64;
    }

    /// Has the reactor tell when it can go on.
    pub(crate) fn watch(&mut self, core: &Core, key: Key) {
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
    pub(crate) fn into_parts(self) -> (Option<Program>, Record) {
        let mut record = self.record;
        if matches!(self.stage, OutputStage::Head | OutputStage::RawHead) {
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
