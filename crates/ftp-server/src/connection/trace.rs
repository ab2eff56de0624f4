//! What traces see of a session: the lines of its client, without what is secret, and the lines of its replies.
//!
//! A listing that goes over the control connection (`STAT path`) is shown by its first and its last line.

use millrace_accounts::Protocol;
use millrace_ftp::reply::Replies;
use millrace_ftp::session::Input;
use millrace_log::{Subject, TraceLine};
use millrace_runtime::worker::Core;

use super::refusals::{About, HIDDEN, has_secret, shown};
use super::scene::Identity;

/// Lines of a reply that are shown.
const SHOWN: usize = 100;

impl Identity<'_> {
    /// Shows what a client has sent.
    pub(super) fn trace_input(&self, core: &Core, input: &Input<'_>) {
        if !core.services.log.traces().is_on() {
            return;
        }
        match input {
            Input::Line(line) | Input::Refused(line, _) if has_secret(line) => {
                let text = match shown(line) {
                    HIDDEN => HIDDEN.to_vec(),
                    shown => [shown, b" ", HIDDEN].concat(),
                };
                self.trace(core, true, &text, None);
            }
            Input::Line(line) | Input::Refused(line, _) => self.trace(core, true, line, named(line)),
            Input::LineTooLong | Input::LineTorn => {
                let shown = About::of(input).shown("").unwrap_or_default();
                self.trace(core, true, shown, None);
            }
            _ => {}
        }
    }

    /// Shows replies to a client.
    pub(super) fn trace_replies(&self, core: &Core, replies: &Replies) {
        if replies.is_empty() || !core.services.log.traces().is_on() {
            return;
        }
        let mut written = Vec::new();
        replies.write(&mut written);
        self.trace_sent(core, &written);
    }

    /// Shows whole lines that go to a client.
    pub(super) fn trace_sent(&self, core: &Core, written: &[u8]) {
        if !core.services.log.traces().is_on() {
            return;
        }
        let mut lines = written.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let trimmed = |line: &[u8]| line.strip_suffix(b"\r").unwrap_or(line).to_vec();
        lines.by_ref().take(SHOWN).for_each(|line| self.trace(core, false, &trimmed(line), None));
        let more = lines.count();
        if more > 0 {
            self.trace(core, false, format!("... and {more} lines more").as_bytes(), None);
        }
    }

    /// Gives a line to traces; a `USER` command counts as of the user that it names.
    fn trace(&self, core: &Core, is_received: bool, text: &[u8], named: Option<&[u8]>) {
        let user = named.or(self.session.user()).or(self.session.claimed_user());
        let subject = Subject { session: self.number, peer: self.session.peer(), user };
        let line = TraceLine { protocol: Protocol::Ftp, is_received, at: core.now.wall, text };
        core.services.log.traces().push(&subject, &line);
    }
}

/// Returns the name that a `USER` command gives.
fn named(line: &[u8]) -> Option<&[u8]> {
    let (verb, name) = line.split_at_checked(5)?;
    verb.eq_ignore_ascii_case(b"USER ").then_some(name)
}
