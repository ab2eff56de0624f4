//! What a session does with the answers of hooks, and what it hears of its client while it waits for one.

use millrace_ftp::reply::code;
use millrace_ftp::session::{Answer, Input, NOT_BEGUN, Outcome, TransferError, Verdict, rewritten};
use millrace_hooks::{Event, HookVerdict, Refusal};
use millrace_log as log;
use millrace_runtime::worker::Core;
use millrace_vfs::VirtualPath;

use super::Connection;
use super::hook_queue::Then;
use super::refusals::About;
use super::scene::Identity;
use super::session_hooks::GivenUp;

impl Connection {
    /// Begins: with the greeting, or where TLS is `implicit` with the handshake.
    pub(super) fn begin(&mut self, core: &mut Core, implicit: bool) {
        match implicit {
            true => {
                let companion = self.wire.join_companions(self.me());
                self.begin_tls(core, true, companion);
            }
            false => self.feed(core, Input::Connected),
        }
    }

    /// A line for the session, unless a hook objects.
    pub(super) fn line(&mut self, core: &mut Core, line: &[u8]) {
        if self.session.is_busy() || !self.hooks.begin(core, self.session.user()) {
            return self.feed(core, Input::Line(line));
        }
        let Some(named) = self.session.named(line) else { return self.feed(core, Input::Line(line)) };
        let (hooks, me) = self.hook_parts();
        if !hooks.ask_about_line(core, me, line, named) {
            self.feed(core, Input::Line(line));
        }
    }

    /// A hook has answered.
    pub(super) fn ruled(&mut self, core: &mut Core, serial: u64, verdict: HookVerdict) {
        let (hooks, me) = self.hook_parts();
        match hooks.answered(core, me, serial) {
            Some((Some(then), about)) => self.go_on_with(core, then, about.as_ref(), verdict),
            Some((None, _)) if !self.hooks.holds_replies() => self.release(core),
            Some((None, _)) | None => {}
        }
    }

    fn go_on_with(&mut self, core: &mut Core, then: Then, about: Option<&VirtualPath>, verdict: HookVerdict) {
        match (then, verdict) {
            (Then::Greet { .. }, HookVerdict::Refuse(refusal)) => {
                self.me().log_refusal(core, Event::Connect, None, &refusal);
                self.feed(core, Input::Dismissed(refusal.farewell()));
            }
            (Then::Greet { implicit }, _) => self.begin(core, implicit),
            (Then::Line(line, _), verdict) => {
                let refusal = match verdict {
                    HookVerdict::Pass => return self.feed(core, Input::Line(&line)),
                    HookVerdict::Rewrite(path) => match rewritten(&line, &path) {
                        Some(line) => return self.feed(core, Input::Line(&line)),
                        None => Refusal::of_rewriting(),
                    },
                    HookVerdict::Refuse(refusal) => refusal,
                };
                self.me().log_refusal(core, Event::Command, about, &refusal);
                self.feed(core, Input::Refused(&line, refusal.reply(code::FILE_UNAVAILABLE)));
            }
            (Then::LogIn(..), HookVerdict::Refuse(refusal)) => {
                self.me().log_refusal(core, Event::Login, None, &refusal);
                let verdict = Verdict::Refused(refusal.text().to_owned());
                self.feed(core, Input::Answer(Answer::Login(verdict)));
            }
            (Then::LogIn(account, edition), _) => {
                let Some(user) = self.session.claimed_user().map(<[u8]>::to_vec) else { return };
                let (login, mut scene) = self.login_parts(core);
                if let Some(verdict) = login.let_in(&mut scene, &user, *account, edition) {
                    self.feed(core, Input::Answer(Answer::Login(verdict)));
                }
            }
            (Then::End(outcome, unnamed), verdict) => {
                let failure = unnamed.and_then(|unnamed| unnamed.failure());
                let result = match (failure, verdict) {
                    (Some(error), _) => {
                        let text = format!("an upload that had come could not take its name: {error}");
                        self.log(core, log::Event::Warning { text: &text });
                        Err(TransferError::File(error))
                    }
                    (None, HookVerdict::Refuse(refusal)) if refusal == Refusal::of_giving_up() => {
                        Err(TransferError::Aborted)
                    }
                    (None, HookVerdict::Refuse(refusal)) => {
                        self.me().log_refusal(core, Event::Upload, about, &refusal);
                        Err(TransferError::Refused(refusal.reply(code::FILE_UNAVAILABLE)))
                    }
                    (None, _) => return self.feed(core, Input::TransferEnded(outcome)),
                };
                self.feed(core, Input::TransferEnded(Outcome { result, ..outcome }));
            }
            (Then::GivenUp, _) => {}
        }
    }

    /// Everything has been heard: the replies may go.
    fn release(&mut self, core: &mut Core) {
        if self.wire.closing.is_some() {
            self.wire.give_time_to_leave(core);
        }
        self.send(core);
        if self.data.is_on_control() {
            self.continue_transfer(core);
        }
    }

    /// The client does not want to wait for the answer about a login or an upload. Returns what the session hears at once.
    pub(super) fn abort_hook(&mut self, core: &Core) -> Option<Input<'static>> {
        Some(match self.hooks.abort(core)? {
            GivenUp::Upload(outcome) => Input::TransferEnded(outcome),
            GivenUp::Login => {
                let verdict = Verdict::Refused(String::from_utf8_lossy(NOT_BEGUN.text()).into_owned());
                Input::Answer(Answer::Login(verdict))
            }
        })
    }

    /// While hooks are asked about a line, those behind it wait; but it is looked whether one says `ABOR`, or, where no
    /// other was sent before, `STAT`. Returns whether there may be more to do.
    pub(super) fn hears_while_asked(&mut self, core: &mut Core) -> bool {
        if !self.hooks.has_line() || self.wire.state.is_broken() || self.wire.closing.is_some() {
            return false;
        }
        if self.lines.have_abort() {
            // Its own reply comes in its turn.
            let Some(line) = self.hooks.give_up_line() else { return false };
            self.feed_about(core, Input::Refused(&line, NOT_BEGUN), About::Line(&line));
            return true;
        }
        // A client that does not take what was answered is not answered again.
        if !self.wire.output.is_empty() {
            return false;
        }
        let is_first = self.lines.pending.is_empty();
        let reads = self.looks_ahead(core);
        if reads
            && is_first
            && let Some((verb, since)) = self.hooks.last_line()
            && self.lines.take_status()
        {
            let elapsed = core.now.instant.saturating_duration_since(since);
            self.feed(core, Input::Answer(Answer::Waiting(verb, elapsed)));
        }
        reads
    }
}

impl Identity<'_> {
    fn log_refusal(&self, core: &mut Core, event: Event, path: Option<&VirtualPath>, refusal: &Refusal) {
        self.log(core, log::Event::HookRefused { on: event.name(), path, reason: refusal.text() });
    }
}
