//! What a session asks and the pool answers: hashes, copies, listings in replies, whatever may wait for a disk.
//!
//! At most one question is open on a connection. Its answer comes back as a message with the question's serial,
//! so that the answer to one that was given up is nobody's.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use millrace_ftp::session::{Answer, Input, Outcome, Progress, Request, TransferError};
use millrace_limits::Direction;
use millrace_log as log;
use millrace_runtime::slab::Key;
use millrace_runtime::transfer::Shared;
use millrace_runtime::worker::Post;
use millrace_runtime::worker::{Core, Promise};
use millrace_vfs::FileError;

use super::Connection;
use super::message::Message;
use super::refusals::About;
use crate::files::{self, Changed, ListLimits};

/// How long an aborted transfer or question waits for the job that has its file, before it is answered all
/// the same.
pub(super) const JOB_GRACE: Duration = Duration::from_secs(2);

/// How long the question of a client that has hung up is waited for: what it asked for last is still done.
const LEFT_GRACE: Duration = Duration::from_secs(2);

/// The open question.
#[derive(Debug)]
pub(super) struct Question {
    /// Told from those before it by this.
    pub(super) serial: u64,
    /// By which the pool says how far it is, and hears that it is cancelled.
    pub(super) shared: Arc<Shared>,
    asked: Instant,
    /// When the client, which said `ABOR`, is told that it is cancelled, whether or not the pool has answered.
    give_up: Option<Instant>,
    /// Who wants to log in; empty for other questions.
    pub(super) user: Vec<u8>,
    /// The edition of the accounts that are asked.
    pub(super) edition: u64,
    /// Hooks have let them in: they are not asked again.
    pub(super) is_let_in: bool,
    /// The command that asks it, as the log shows it.
    pub(super) line: Box<[u8]>,
    /// What the log and the hooks are to be told where it is done.
    change: Option<Changed>,
}

impl Connection {
    /// Answers what can be answered now; puts the rest to the pool.
    pub(super) fn ask(&mut self, core: &mut Core, request: Request) -> Option<Answer> {
        match request {
            Request::LogIn(credentials) => return self.log_in(core, credentials),
            Request::Recognize(name) => return self.recognize(core, name),
            Request::Listen => return self.listen(core),
            Request::LimitBandwidth { write, read } => {
                return Some(self.limit_bandwidth(core, Some((write, read))));
            }
            Request::RestoreBandwidth => return Some(self.limit_bandwidth(core, None)),
            Request::ShutDown(password) => return self.ask_shutdown(core, password),
            Request::Host(name) => {
                return Some(match self.serves_host(core, name) {
                    true => Answer::Done,
                    false => Answer::Failed(FileError::NotFound),
                });
            }
            Request::Progress => return Some(Answer::Progress(self.progress(core.now.instant))),
            Request::Who => {
                let text = format!(" {} session(s) on this server.", core.services.sessions.count());
                return Some(Answer::Lines(vec![text.into_bytes()]));
            }
            _ => {}
        }
        let Some(account) = &self.account else { return Some(Answer::Failed(FileError::PermissionDenied)) };
        if let Some(direction) = way(&request)
            && let Err(over) = self.member.may_move(&core.services.limits, direction)
        {
            return Some(Answer::Failed(over.into()));
        }
        if let Some(hooked) = &mut self.hooked {
            hooked.note_request(&request);
        }
        let request = match files::answer_now(&*account.storage, request) {
            Ok(answer) => return Some(answer),
            Err(request) => request,
        };
        let storage = Arc::clone(&account.storage);
        let limits = ListLimits { sort_entries: self.door.ftp.config.sort_entries };
        let (promises, digests) = (self.door.ftp.promises.clone(), Arc::clone(&self.door.ftp.digests));
        let (key, post, serial, shared) = self.question(core);
        if let Some(question) = &mut self.question {
            question.change = files::change(&request);
        }
        let pool = match &request {
            Request::List(_) => &self.door.ftp.listings,
            request if request.is_long() => &core.services.long,
            _ => &core.services.pool,
        };
        pool.run(move || {
            let reply = Promise::new(post, key, Message::Answer(serial, internal_error()));
            let answer = files::answer(&storage, request, limits, &promises, &digests, &shared);
            reply.keep(Message::Answer(serial, answer));
        });
        None
    }

    /// Opens a question for the pool.
    pub(super) fn question(&mut self, core: &mut Core) -> (Key, Post<Message>, u64, Arc<Shared>) {
        let serial = core.next_serial();
        let shared = Arc::new(Shared::default());
        let asked = core.now.instant;
        self.question = Some(Box::new(Question {
            serial,
            shared: Arc::clone(&shared),
            asked,
            give_up: None,
            user: Vec::new(),
            edition: 0,
            is_let_in: false,
            line: Box::default(),
            change: None,
        }));
        (self.key, self.door.post.clone(), serial, shared)
    }

    /// The pool has answered a question.
    pub(super) fn answered(&mut self, core: &mut Core, serial: u64, answer: Answer) {
        match self.question.take_if(|question| question.serial == serial) {
            Some(question) => {
                if let Some(changed) = &question.change {
                    if let Answer::Done | Answer::Count(_) = &answer {
                        let Changed { verb, path, from } = changed;
                        let event = log::Event::Changed { verb, path, from: from.as_ref() };
                        self.log(core, event);
                    }
                    self.note_answer(core, changed, &answer);
                }
                self.feed_answer(core, &question, answer);
            }
            None => core.discard(answer),
        }
    }

    /// Claims that something is under way that `ABOR` would end, and that nobody has ended yet.
    pub(super) fn can_be_aborted(&self) -> bool {
        let question = self.question.as_ref();
        self.running.as_deref().is_some_and(|running| running.ending.is_none())
            || question.is_some_and(|question| question.give_up.is_none() && question.user.is_empty())
            || self.awaits_word()
    }

    /// Cancels the long question, or ends the transfer; answers the outcome if that is known already.
    pub(super) fn abort(&mut self, core: &mut Core, error: TransferError) -> Option<Outcome> {
        if let Some(question) = &mut self.question {
            question.shared.cancelled.store(true, Ordering::Relaxed);
            question.give_up = Some(core.now.instant + JOB_GRACE);
            return None;
        }
        self.abort_transfer(core, error)
    }

    fn progress(&self, now: Instant) -> Progress {
        let looked_at = self.hooked.as_ref().and_then(|hooked| hooked.looked_at(now));
        match (&self.running, looked_at, &self.question) {
            (Some(running), ..) => running.progress(now),
            (None, Some(looked_at), _) => looked_at,
            (None, None, question) => Progress {
                bytes: question.as_ref().map_or(0, |question| question.shared.bytes()),
                total: None,
                elapsed: question
                    .as_ref()
                    .map_or(Duration::ZERO, |question| now.saturating_duration_since(question.asked)),
                is_checked: false,
            },
        }
    }

    /// When the open question, which may be put to a stuck disk, is not waited for any longer.
    pub(super) fn question_due(&self) -> Option<Instant> {
        let question = self.question.as_ref()?;
        let left = self.state.hung_up.then(|| question.asked + LEFT_GRACE);
        question.give_up.into_iter().chain(left).min()
    }

    /// It is not.
    pub(super) fn question_overdue(&mut self, core: &mut Core) {
        if self.state.hung_up {
            self.state.broken = true;
        } else if let Some(question) = self.question.take() {
            self.feed_answer(core, &question, Answer::Failed(FileError::Cancelled));
        }
    }

    fn feed_answer(&mut self, core: &mut Core, question: &Question, answer: Answer) {
        let input = Input::Answer(answer);
        let about = match (About::of(&input), &*question.line) {
            (About::Answer, line @ [_, ..]) => About::Line(line),
            (about, _) => about,
        };
        self.feed_about(core, input, about);
    }
}

pub(super) fn internal_error() -> Answer {
    Answer::Failed(FileError::Io(io::Error::other("internal error")))
}

/// Which way the bytes of a transfer go for which this is the first question.
fn way(request: &Request) -> Option<Direction> {
    match request {
        Request::OpenRead(_) => Some(Direction::Download),
        Request::OpenWrite(..) | Request::OpenUnique(..) => Some(Direction::Upload),
        _ => None,
    }
}
