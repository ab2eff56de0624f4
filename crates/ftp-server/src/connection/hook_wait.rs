//! What a session hears while hooks are asked about it: that it need not wait any longer, and how long it has.
//!
//! The invariant: what waits for a hook's word and has not begun can be given up at any moment: by `ABOR`, and by a client
//! that is gone. It is then not done, its program is killed, and the hook's thread is free for others. An upload has
//! come by then: one whose client is gone is as good as any other, and `ABOR` has it refused while it has no name.

use std::time::{Duration, Instant};

use millrace_ftp::line::{LineEvent, LineReader};
use millrace_ftp::session::{Answer, Input, NOT_BEGUN, Outcome, Progress, TransferError, Verdict};
use millrace_runtime::worker::Core;

use super::Connection;
use super::hooking::{Hooked, Then};
use super::refusals::About;

/// How long a hook is waited for whose client has hung up: what it asked for last is still done.
const LEFT_GRACE: Duration = Duration::from_secs(5);

impl Hooked {
    /// Takes out what waits for a hook's word and has not begun, if anything does; whatever is answered is nobody's.
    pub(super) fn give_up(&mut self) -> Option<Then> {
        self.give_up_if(|then| matches!(then, Then::Greet { .. } | Then::Line(..) | Then::LogIn(..)))
    }

    fn give_up_if(&mut self, is_meant: fn(&Then) -> bool) -> Option<Then> {
        let waits = |then: &Option<Then>| then.as_ref().is_some_and(is_meant);
        if let Some(current) = self.current.as_mut().filter(|current| waits(&current.then)) {
            current.recall.give();
            return current.then.replace(Then::GivenUp);
        }
        let at = self.next.iter().position(|(_, then)| waits(then))?;
        self.next.remove(at)?.1
    }

    /// Gives up an upload that hooks have before them and that has no name yet.
    fn give_up_unnamed(&mut self, core: &Core) -> Option<Outcome> {
        let current = self.current.as_mut()?;
        let Some(Then::End(_, Some(unnamed))) = &current.then else { return None };
        core.discard(unnamed.pending.give_up()?);
        match current.then.replace(Then::GivenUp) {
            Some(Then::End(outcome, _)) => Some(Outcome { result: Err(TransferError::Aborted), ..outcome }),
            _ => None,
        }
    }

    /// How far the upload is that they look at: all of it has come.
    pub(super) fn looked_at(&self, now: Instant) -> Option<Progress> {
        let bytes = self.all().flatten().find_map(|then| match then {
            Then::End(outcome, _) => Some(outcome.bytes),
            _ => None,
        })?;
        let elapsed = now.saturating_duration_since(self.began?);
        Some(Progress { bytes, total: None, elapsed, is_checked: true })
    }

    /// Claims that a line waits for a hook's word. Before the greeting nothing is read: the first bytes may be TLS.
    fn has_line(&self) -> bool {
        self.all().flatten().any(|then| matches!(then, Then::Line(..)))
    }

    /// Claims that something waits for a hook's word.
    fn is_asking(&self) -> bool {
        self.all().flatten().any(|then| !matches!(then, Then::GivenUp))
    }
}

impl Connection {
    /// Claims that a login or an upload waits for a hook's word, which `ABOR` would end.
    pub(super) fn awaits_word(&self) -> bool {
        let word = |then: &Then| matches!(then, Then::LogIn(..) | Then::End(..));
        self.hooked.as_ref().is_some_and(|hooked| hooked.all().flatten().any(word))
    }

    /// The client does not want to wait for that word: what the session hears at once, if anything. An upload in place has
    /// its name, and was perhaps part of a file before: the word is waited for, since without it nobody knows whether it may stay.
    pub(super) fn abort_hook(&mut self, core: &Core) -> Option<Input<'static>> {
        let hooked = self.hooked.as_mut()?;
        let (moments, ends) =
            (&hooked.next, |then: &Option<Then>| matches!(then, Some(Then::End(_, Some(_)))));
        moments.iter().filter(|(_, then)| ends(then)).for_each(|(moment, _)| moment.recall.give());
        if let Some(current) = hooked.current.as_ref().filter(|current| ends(&current.then)) {
            current.recall.give();
        }
        if let Some(outcome) = hooked.give_up_unnamed(core) {
            return Some(Input::TransferEnded(outcome));
        }
        hooked.give_up_if(|then| matches!(then, Then::LogIn(..)))?;
        let verdict = Verdict::Refused(String::from_utf8_lossy(NOT_BEGUN.text()).into_owned());
        Some(Input::Answer(Answer::Login(verdict)))
    }

    /// While hooks are asked about a line, those behind it wait; but it is looked whether one says `ABOR`, or, where no
    /// other was sent before, `STAT`. Answers whether there may be more to do.
    pub(super) fn hears_while_asked(&mut self, core: &mut Core) -> bool {
        let is_asked = self.hooked.as_ref().is_some_and(|hooked| hooked.has_line());
        if !is_asked || self.state.broken || self.state.closing.is_some() {
            return false;
        }
        if self.is_abort_waiting() {
            return self.give_up_line(core);
        }
        // Who does not take what was answered is not answered again.
        if !self.output.is_empty() {
            return false;
        }
        let is_first = self.pending.is_empty();
        let reads = self.looks_ahead(core);
        if reads && is_first {
            self.answer_status(core);
        }
        reads
    }

    /// `ABOR`: its own reply comes in its turn.
    fn give_up_line(&mut self, core: &mut Core) -> bool {
        let Some(hooked) = &mut self.hooked else { return false };
        let is_line = |then: &Then| matches!(then, Then::Line(..));
        let Some(Then::Line(line, _)) = hooked.give_up_if(is_line) else { return false };
        // It was never run.
        hooked.forget_command();
        self.feed_about(core, Input::Refused(&line, NOT_BEGUN), About::Line(&line));
        true
    }

    /// `STAT`, sent by somebody who waits.
    fn answer_status(&mut self, core: &mut Core) {
        let (mut reader, mut rest) = (LineReader::default(), &self.pending[..]);
        let asks = match reader.next(&mut rest) {
            Some(LineEvent::Line(line)) => line.trim_ascii_end().eq_ignore_ascii_case(b"STAT"),
            _ => false,
        };
        let after = self.pending.len() - rest.len();
        let waiting = self.hooked.as_ref().into_iter().flat_map(|hooked| hooked.all().flatten());
        let waiting = waiting.filter_map(|then| match then {
            Then::Line(line, since) => Some((verb_of(line), *since)),
            _ => None,
        });
        if let (true, Some((verb, since))) = (asks, waiting.last()) {
            self.pending.drain(..after);
            let elapsed = core.now.instant.saturating_duration_since(since);
            self.feed(core, Input::Answer(Answer::Waiting(verb, elapsed)));
        }
    }

    /// The client may have gone: from then on what it asked for has only so long.
    pub(super) fn note_hang_up(&mut self, core: &Core) {
        if let (true, Some(hooked)) = (self.state.hung_up, &mut self.hooked) {
            hooked.left.get_or_insert(core.now.instant);
        }
    }

    /// When a hook is not waited for any longer.
    pub(super) fn hook_due(&self) -> Option<Instant> {
        let hooked = self.hooked.as_ref().filter(|hooked| hooked.is_asking())?;
        Some(hooked.left? + LEFT_GRACE)
    }
}

/// What a line says first; the rest may be a password.
fn verb_of(line: &[u8]) -> Vec<u8> {
    line.split(|byte| *byte == b' ').next().unwrap_or_default().to_ascii_uppercase()
}
