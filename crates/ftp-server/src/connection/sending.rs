//! What a client is told: replies, as far as it takes them.

use std::io;

use millrace_net::stream;
use millrace_runtime::worker::{Core, Role};
use mio::Interest;

use super::{CONTROL, Connection};

impl Connection {
    /// Sends what there is to say, as far as the client takes it.
    pub(super) fn send(&mut self, core: &mut Core) {
        if self.state.broken {
            core.out.clear();
            return;
        }
        if self.has_tls() {
            self.seal(core);
        }
        self.write_out(core);
    }

    /// Hands the socket what it has not taken, and then what is in `core.out`.
    pub(super) fn write_out(&mut self, core: &mut Core) {
        if self.holds_replies() {
            return self.output.append(&mut core.out);
        }
        if !self.output.is_empty() {
            self.output.append(&mut core.out);
            std::mem::swap(&mut self.output, &mut core.out);
        }
        while !core.out.is_empty() {
            match stream::write(&self.socket, &core.out) {
                Ok(count) if count == core.out.len() => core.out.clear(),
                Ok(count) => drop(core.out.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.output = core.out.clone();
                    core.out.clear();
                    self.watch_writable(core);
                }
                Err(_) => {
                    self.state.broken = true;
                    core.out.clear();
                }
            }
        }
    }

    fn watch_writable(&mut self, core: &Core) {
        if !self.state.watches_writable {
            self.state.watches_writable = true;
            self.state.broken |= core
                .watch_again(self.key, Role::Client, &self.socket, CONTROL.add(Interest::WRITABLE))
                .is_err();
        }
    }
}
