//! What a session asks: answered at once where that is possible, else put to a pool.

use std::sync::Arc;

use millrace_ftp::session::{Answer, Input, Outcome, Request, TransferError};
use millrace_limits::Direction;
use millrace_log as log;
use millrace_runtime::worker::{Core, Promise};
use millrace_vfs::FileError;

use super::Connection;
use super::admin::ask_for_sessions;
use super::message::Message;
use super::question::{Question, internal_error};
use super::refusals::About;
use crate::files::{self, Changed, ListLimits};

impl Connection {
    /// Answers what can be answered now; puts the rest to the pool.
    pub(super) fn ask(&mut self, core: &mut Core, request: Request) -> Option<Answer> {
        match request {
            Request::LogIn(credentials) => {
                let (login, mut scene) = self.login_parts(core);
                return login.log_in(&mut scene, credentials).map(Answer::Login);
            }
            Request::Recognize(name) => {
                let (login, mut scene) = self.login_parts(core);
                return login.recognize(&mut scene, name).map(Answer::Login);
            }
            Request::Listen => {
                let (data, mut scene) = self.data_parts(core);
                return data.port.listen(&mut scene);
            }
            Request::LimitBandwidth { write, read } => {
                return Some(self.me().limit_bandwidth(core, Some((write, read))));
            }
            Request::RestoreBandwidth => return Some(self.me().limit_bandwidth(core, None)),
            Request::ShutDown(password) => return self.ask_shutdown(core, password),
            Request::Host(name) => {
                let (login, mut scene) = self.login_parts(core);
                return Some(match login.serves_host(&mut scene, name) {
                    true => Answer::Done,
                    false => Answer::Failed(FileError::NotFound),
                });
            }
            Request::Progress => {
                return Some(Answer::Progress(self.data.progress(
                    core.now.instant,
                    &self.hooks,
                    self.question.as_deref(),
                )));
            }
            Request::Who => return ask_for_sessions(self, core),
            _ => {}
        }
        let Some(account) = &self.login.account else {
            return Some(Answer::Failed(FileError::PermissionDenied));
        };
        if let Some(direction) = way(&request)
            && let Err(over) = self.login.member.may_move(&core.services.limits, direction)
        {
            return Some(Answer::Failed(over.into()));
        }
        self.hooks.note_request(&request);
        let request = match files::answer_now(&*account.storage, request) {
            Ok(answer) => return Some(answer),
            Err(request) => request,
        };
        let storage = Arc::clone(&account.storage);
        let mut question = Question::new(core);
        question.change = files::change(&request);
        let (key, post, serial, shared) =
            (self.wire.key, self.door.post.clone(), question.serial, Arc::clone(&question.shared));
        self.question = Some(question);
        let ftp = Arc::clone(&self.door.ftp);
        let pool = match &request {
            Request::List(_) => &self.door.ftp.listings,
            request if request.is_long() => &core.services.long,
            _ => &core.services.pool,
        };
        pool.run(move || {
            let reply = Promise::new(post, key, Message::Answer(serial, internal_error()));
            let limits = ListLimits { sort_entries: ftp.config.sort_entries };
            let answer = files::answer(&storage, request, limits, &ftp.promises, &ftp.digests, &shared);
            reply.keep(Message::Answer(serial, answer));
        });
        None
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
                    let (hooks, me) = self.hook_parts();
                    hooks.note_answer(core, me, changed, &answer);
                }
                self.feed_answer(core, &question, answer);
            }
            None => core.discard(answer),
        }
    }

    /// Cancels the long question, or ends the transfer. Returns the outcome if that is known already.
    pub(super) fn abort(&mut self, core: &mut Core, error: TransferError) -> Option<Outcome> {
        if let Some(question) = &mut self.question {
            question.abort(core.now.instant);
            return None;
        }
        let (data, mut scene) = self.data_parts(core);
        data.abort(&mut scene, error)
    }

    /// The open question is not waited for any longer.
    pub(super) fn question_overdue(&mut self, core: &mut Core) {
        if self.wire.state.has_hung_up() {
            self.wire.state.break_off();
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

/// Which way the bytes of a transfer go for which this is the first question.
fn way(request: &Request) -> Option<Direction> {
    match request {
        Request::OpenRead(_) => Some(Direction::Download),
        Request::OpenWrite(..) | Request::OpenUnique(..) => Some(Direction::Upload),
        _ => None,
    }
}
