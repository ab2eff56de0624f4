//! TLS on an HTTP connection: the same certificates as FTP's, and HTTP/1.1 within, or HTTP/2.

use std::net::SocketAddr;

use millrace_log as log;
use millrace_net::tls::{ACME_TLS, Channel};
use millrace_runtime::handshakes::describe_failure;

use crate::connection::{Connection, Securing, Work};
use crate::link::names_of;
use crate::worker::Core;

/// The protocols that are spoken here, in the order in which we like them (RFC 7301).
const PROTOCOLS: [&[u8]; 3] = [HTTP_2, b"http/1.1", b"http/1.0"];

const HTTP_2: &[u8] = b"h2";

/// The beginning of TLS on a connection, while the worker is at it.
pub(crate) struct Handshake<'a> {
    pub(crate) connection: &'a mut Connection,
    pub(crate) core: &'a mut Core,
}

impl<'a> Handshake<'a> {
    pub(crate) fn new(connection: &'a mut Connection, core: &'a mut Core) -> Self {
        Self { connection, core }
    }
}

impl Connection {
    /// A new turn has time for handshakes.
    pub fn shake_hands(&mut self, _: &mut Core) {
        // The connection is settled behind this, and so carried on.
        if let Work::Securing(securing) = &mut self.work {
            securing.in_line = false;
        }
    }
}

impl Handshake<'_> {
    /// The connection begins with TLS.
    pub(crate) fn begin_tls(&mut self, bound: SocketAddr) {
        let Some(security) = &self.core.server.tls else { return };
        match security.acceptor.accept(&PROTOCOLS, self.connection.reached()) {
            Ok(tls) => {
                self.connection.link.secure(Channel::new(tls));
                self.connection.work =
                    Work::Securing(Box::new(Securing { in_line: false, bound, speaks_http2: false }));
            }
            Err(fault) => self.tls_failed(&fault.to_string()),
        }
    }

    /// Moves the handshake on.
    pub(crate) fn secure_on(&mut self) {
        let (Some((channel, socket)), Work::Securing(securing)) =
            (self.connection.link.channel_mut(), &mut self.connection.work)
        else {
            return;
        };
        let Some(done) = self.core.shake_hands(channel, socket) else {
            self.core.handshakes.wait(self.connection.key);
            securing.in_line = true;
            return;
        };
        match done {
            Ok(true) => {
                let (tls, bound) = (channel.tls_mut(), securing.bound);
                tls.forget_hello();
                let (version, cipher) = (tls.version().unwrap_or("?"), tls.cipher().unwrap_or("?"));
                let speaks_http2 = tls.protocol() == Some(HTTP_2);
                if tls.protocol() == Some(ACME_TLS) {
                    // A CA has seen what it wanted to see (RFC 8737 section 3).
                    self.connection.link.end_tls();
                    self.connection.link.break_off();
                    return;
                }
                let names = names_of(channel);
                let client = names.first().map(String::as_str);
                self.core
                    .log(&self.connection.subject_of(None), log::Event::Secured { version, cipher, client });
                if let Err(error) = self.connection.link.settle_tls() {
                    return self.tls_failed(&error.to_string());
                }
                // A request may have come with the end of the handshake.
                self.connection.link.expect_bytes();
                self.connection.work = match speaks_http2 {
                    true => Work::Securing(Box::new(Securing { in_line: false, bound, speaks_http2 })),
                    false => Work::Idle,
                };
            }
            Ok(false) if !channel.is_flushed() => {
                self.connection.link.watch_writable(self.core, self.connection.key)
            }
            Ok(false) => self.connection.link.expect_silence(),
            Err(error) => {
                let reason = describe_failure(error, Some(channel.tls()));
                self.tls_failed(&reason);
            }
        }
    }

    fn tls_failed(&mut self, reason: &str) {
        self.core.log(&self.connection.subject_of(None), log::Event::TlsFailed { on: "http", reason });
        self.connection.link.break_off();
    }
}
