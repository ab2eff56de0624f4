//! What a client says: lines, which the session takes one after the other. One that it does not take yet is held, and what
//! stands behind it waits, read on only as far as an `ABOR` is looked for.

use std::io;

use millrace_ftp::line::{LineEvent, LineReader};
use millrace_ftp::session::{Input, TransferError};
use millrace_log as log;
use millrace_net::stream;
use millrace_runtime::worker::Core;

use super::{Connection, State};

/// Replies that are collected before they are sent in any case.
const OUT: usize = 16 * 1024;

/// How far behind a line that has to wait is read on for an `ABOR`.
const LOOK_AHEAD: usize = 4 * 1024;

/// What the session does not take yet.
#[derive(Debug)]
pub(super) enum Held {
    Line(Vec<u8>),
    TooLong,
    Torn,
}

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
        let is_open = |state: &State| state.closing.is_none() && !state.broken;
        while is_open(&self.state) && self.output.is_empty() && !self.awaits_hook() {
            if let Some(held) = self.held.take_if(|held| match held {
                Held::Line(line) => self.session.takes(line),
                Held::TooLong | Held::Torn => self.session.takes(b""),
            }) {
                match held {
                    Held::Line(line) => self.line(core, &line),
                    Held::TooLong => self.feed(core, Input::LineTooLong),
                    Held::Torn => self.feed(core, Input::LineTorn),
                }
            } else if self.is_changing() && (self.held.is_some() || !self.pending.is_empty()) {
                return self.refuse_injection(core);
            } else if self.held.is_some() {
                if self.looks_for_abort(core) {
                    continue;
                }
                return;
            } else if !self.pending.is_empty() {
                let pending = std::mem::take(&mut self.pending);
                self.take_bytes(core, &pending);
            } else if self.state.readable && self.is_queued() {
                return;
            } else if self.state.readable {
                self.read(core);
            } else {
                return;
            }
        }
    }

    /// Looks at the line that has to wait, and behind it: `ABOR` is heard wherever it stands, and what it aborts ends at once.
    /// Its own reply comes in its turn. Answers whether there may be more to do.
    fn looks_for_abort(&mut self, core: &mut Core) -> bool {
        if !self.can_be_aborted() {
            return false;
        }
        if self.is_abort_waiting() {
            if let Some(input) = self.abort_hook(core) {
                self.feed(core, input);
            } else if let Some(outcome) = self.abort(core, TransferError::Aborted)
                && let Some(outcome) = self.transfer_over(core, outcome)
            {
                self.feed(core, Input::TransferEnded(outcome));
            }
            return true;
        }
        self.looks_ahead(core)
    }

    /// Reads behind a line that has to wait, but not for ever; answers whether it has.
    pub(super) fn looks_ahead(&mut self, core: &mut Core) -> bool {
        let reads = self.state.readable && self.pending.len() < LOOK_AHEAD && !self.is_queued();
        if reads {
            self.read(core);
        }
        reads
    }

    pub(super) fn is_abort_waiting(&self) -> bool {
        let is_abort = |line: &[u8]| line.trim_ascii_end().eq_ignore_ascii_case(b"ABOR");
        let (mut reader, mut rest) = (LineReader::default(), &self.pending[..]);
        let mut behind = std::iter::from_fn(|| reader.next(&mut rest));
        matches!(&self.held, Some(Held::Line(line)) if is_abort(line))
            || behind.any(|event| matches!(event, LineEvent::Line(line) if is_abort(&line)))
    }

    fn read(&mut self, core: &mut Core) {
        if self.has_tls() {
            return self.read_secure(core);
        }
        let mut buffer = std::mem::take(&mut core.control_buffer);
        match stream::read(&self.socket, &mut buffer) {
            Ok(0) => {
                (self.state.ended, self.state.hung_up) = (true, true);
                self.state.readable = false;
            }
            Ok(count) => {
                // A short read means that there is no more, and the next arrival is a new event; but for an end
                // that came with these bytes, of which nothing more will be told.
                self.state.readable = count == buffer.len() || self.state.urgent || self.state.hung_up;
                self.take_bytes(core, &buffer[..count]);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                (self.state.readable, self.state.urgent) = (false, false);
            }
            Err(_) => self.state.broken = true,
        }
        core.control_buffer = buffer;
    }

    /// Something came behind `AUTH` before the handshake: whoever sent it may not be who shakes hands.
    fn refuse_injection(&mut self, core: &mut Core) {
        let text = "plain text behind AUTH or CCC: somebody may have put it there";
        self.log(core, log::Event::Warning { text });
        self.state.broken = true;
    }

    pub(super) fn take_bytes(&mut self, core: &mut Core, bytes: &[u8]) {
        let mut rest = bytes;
        if self.held.is_some() || self.awaits_hook() {
            return self.pending.extend_from_slice(rest);
        }
        while let Some(event) = self.reader.next(&mut rest) {
            match event {
                LineEvent::Line(line) if self.session.takes(&line) => self.line(core, &line),
                LineEvent::Line(line) => self.held = Some(Held::Line(line.into_owned())),
                LineEvent::TooLong if self.session.takes(b"") => self.feed(core, Input::LineTooLong),
                LineEvent::TooLong => self.held = Some(Held::TooLong),
                LineEvent::Torn if self.session.takes(b"") => self.feed(core, Input::LineTorn),
                LineEvent::Torn => self.held = Some(Held::Torn),
                LineEvent::Refuse(bytes) => core.out.extend_from_slice(&bytes),
            }
            if core.out.len() > OUT {
                self.send(core);
            }
            let is_over = self.state.closing.is_some() || self.is_changing() || self.awaits_hook();
            if self.held.is_some() || is_over || !self.output.is_empty() {
                break;
            }
        }
        self.pending.extend_from_slice(rest);
    }

    /// Claims that there is more than the session takes now.
    pub(super) fn has_lines_waiting(&self) -> bool {
        self.held.is_some() || !self.pending.is_empty()
    }
}
