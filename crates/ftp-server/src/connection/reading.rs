//! What a client says: lines, which the session takes one after the other. One that it does not take yet is held, and what
//! stands behind it waits, read on only as far as an `ABOR` is looked for.

use millrace_ftp::line::LineEvent;
use millrace_ftp::session::{Input, TransferError};
use millrace_log as log;
use millrace_runtime::worker::Core;

use super::Connection;
use super::lines::Held;
use super::secure::{Advance, Secured};
use super::wire::Received;

/// Replies that are collected before they are sent in any case.
const OUT: usize = 16 * 1024;

impl Connection {
    /// Takes what there is to be taken now.
    pub(super) fn read_on(&mut self, core: &mut Core) {
        loop {
            self.take_lines(core);
            if !self.hears_while_asked(core) {
                return;
            }
        }
    }

    /// Takes lines for as long as the session takes them and the client takes the replies.
    fn take_lines(&mut self, core: &mut Core) {
        while self.wire.takes_lines() && !self.hooks.awaits_hook() {
            if let Some(held) = self.lines.take_held(&self.session) {
                match held {
                    Held::Line(line) => self.line(core, &line),
                    Held::TooLong => self.feed(core, Input::LineTooLong),
                    Held::Torn => self.feed(core, Input::LineTorn),
                }
            } else if self.wire.is_changing() && self.lines.are_waiting() {
                // Something came behind `AUTH` before the handshake: its sender may not be who shakes hands.
                let text = "plain text after AUTH or CCC: it may have been injected";
                self.log(core, log::Event::Warning { text });
                self.wire.state.break_off();
                return;
            } else if self.lines.held.is_some() {
                if self.looks_for_abort(core) {
                    continue;
                }
                return;
            } else if !self.lines.pending.is_empty() {
                let pending = std::mem::take(&mut self.lines.pending);
                self.take_bytes(core, &pending);
            } else if self.wire.state.may_read() && !self.wire.is_queued() {
                self.read(core);
            } else {
                return;
            }
        }
    }

    /// Looks at the line that has to wait, and behind it: `ABOR` is heard wherever it stands, and what it aborts ends at once.
    /// Its own reply comes in its turn. Returns whether there may be more to do.
    fn looks_for_abort(&mut self, core: &mut Core) -> bool {
        let runs = self.data.can_be_aborted()
            || self.question.as_ref().is_some_and(|question| question.can_be_aborted());
        if !runs && !self.hooks.awaits_word() {
            return false;
        }
        if self.lines.have_abort() {
            match self.abort_hook(core) {
                Some(input) => self.feed(core, input),
                None if runs => {
                    let outcome = self.abort(core, TransferError::Aborted);
                    self.finish(core, outcome);
                }
                // An upload that takes its name just now: it is too late, and the verdict comes as a message.
                None => return false,
            }
            return true;
        }
        self.looks_ahead(core)
    }

    /// Reads behind a line that has to wait, but not for ever. Returns whether it has.
    pub(super) fn looks_ahead(&mut self, core: &mut Core) -> bool {
        let reads = self.wire.state.may_read() && self.lines.have_room() && !self.wire.is_queued();
        if reads {
            self.read(core);
        }
        reads
    }

    fn read(&mut self, core: &mut Core) {
        if self.wire.has_tls() {
            return self.read_secure(core);
        }
        let mut buffer = std::mem::take(&mut core.control_buffer);
        if let Some(count) = self.wire.state.receive(&self.wire.socket, &mut buffer) {
            self.take_bytes(core, &buffer[..count]);
        }
        core.control_buffer = buffer;
    }

    /// Reads what has come on an encrypted control connection.
    fn read_secure(&mut self, core: &mut Core) {
        let mut plain = std::mem::take(&mut core.plain);
        // The worker's buffer is its own again behind this: the commands may begin transfers.
        match self.wire.receive(core, self.hooks.holds_replies(), &mut plain) {
            Received::Nothing => {}
            Received::Bytes => self.take_plain(core, &plain),
            Received::Failed(reason) => {
                self.log(core, log::Event::TlsFailed { on: "control", reason: &reason });
            }
        }
        plain.clear();
        core.plain = plain;
    }

    /// What was decrypted, and what follows from it.
    fn take_plain(&mut self, core: &mut Core, plain: &[u8]) {
        match self.wire.advance_tls() {
            Advance::Handshaking => return,
            Advance::Secured(Secured { version, cipher, has_certificate, client }) => {
                if has_certificate {
                    self.session.show_certificate();
                }
                self.log(core, log::Event::Secured { version, cipher, client: client.as_deref() });
                let (login, mut scene) = self.login_parts(core);
                login.adopt_settings(&mut scene);
                self.feed(core, Input::Secured);
            }
            Advance::Cleared(rest) => {
                self.feed(core, Input::Secured);
                return self.take_bytes(core, &rest);
            }
            Advance::Open => {}
        }
        if !plain.is_empty() {
            self.wire.note_hearing(plain);
            self.take_bytes(core, plain);
            if let (true, Some(secure)) = (self.lines.are_waiting(), &mut self.wire.secure) {
                secure.runs_ahead();
            }
        }
        if self.wire.has_tls_ended() {
            self.wire.state.note_end();
        }
    }

    fn take_bytes(&mut self, core: &mut Core, bytes: &[u8]) {
        let mut rest = bytes;
        if self.lines.held.is_some() || self.hooks.awaits_hook() {
            return self.lines.pending.extend_from_slice(rest);
        }
        while let Some(event) = self.lines.reader.next(&mut rest) {
            match event {
                LineEvent::Line(line) if self.session.takes(&line) => self.line(core, &line),
                LineEvent::Line(line) => self.lines.held = Some(Held::Line(line.into_owned())),
                LineEvent::TooLong if self.session.takes(b"") => self.feed(core, Input::LineTooLong),
                LineEvent::TooLong => self.lines.held = Some(Held::TooLong),
                LineEvent::Torn if self.session.takes(b"") => self.feed(core, Input::LineTorn),
                LineEvent::Torn => self.lines.held = Some(Held::Torn),
                LineEvent::Refuse(bytes) => core.out.extend_from_slice(&bytes),
            }
            if core.out.len() > OUT {
                self.send(core);
            }
            let is_over = self.wire.closing.is_some() || self.wire.is_changing() || self.hooks.awaits_hook();
            if self.lines.held.is_some() || is_over || !self.wire.output.is_empty() {
                break;
            }
        }
        self.lines.pending.extend_from_slice(rest);
    }
}
