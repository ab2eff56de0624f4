//! TLS on a control connection, and on its data connections.
//!
//! ```text
//!   clear --StartTls--> Handshake --Secured--> Open --StopTls--> Goodbye --Secured--> clear again (CCC)
//!                           ^ begins here where TLS is implicit
//! ```
//!
//! Handshakes have a share of each turn of the reactor: see [`millrace_runtime::handshakes`].

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Instant;

use millrace_accounts::Resumption;
use millrace_accounts::plain_host;
use millrace_ftp::session::{Input, Protection, TransferError};
use millrace_log as log;
use millrace_net::stream;
use millrace_net::tls::{Channel, Fault, Host, Tls, client_names};
use millrace_runtime::passive::ticket_isolation::{Companion, Mark};
use millrace_runtime::transfer::Socket;
use millrace_runtime::worker::Core;

use super::Connection;
use super::early::Early;

/// What is read of a control connection at a time.
const READ: usize = 16 * 1024;

/// As connections call it.
const TLS12: &str = "TLS 1.2";

/// A control connection's TLS, and what its data connections need of it.
#[derive(Debug)]
pub(super) struct Secure {
    host: Host,
    /// `None` after `CCC`.
    tls: Option<Tls>,
    stage: Stage,
    /// The names in the client's certificate.
    pub(super) names: Box<[String]>,
    /// The name that the client gave by SNI.
    server_name: Option<Box<str>>,
    /// In line for its share of the next turn.
    queued: bool,
    /// Our close_notify was sent.
    closed: bool,
    /// A data connection has resumed: the next ones will, too.
    resumes: bool,
    /// A data connection has used up a ticket: the next replies bring another.
    owes_ticket: bool,
    /// Whose tickets are not taken for its own.
    companion: Companion,
    /// The log has been told that data connections do not resume.
    told: bool,
    /// The data connection of a transfer that has not begun.
    pub(super) early: Early,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Handshake,
    Open,
    /// We have said that nothing more comes under TLS, and wait for the client to say so.
    Goodbye,
}

/// What a read of an encrypted control connection came to.
struct Heard {
    /// Wire bytes; none is the end.
    count: usize,
    /// Whether there may be more.
    filled: bool,
    /// What was wrong with them.
    fault: Option<Fault>,
}

/// Reads once: plain bytes into `plain`, what TLS has to say into the worker's `wire`.
fn hear(socket: &OwnedFd, tls: &mut Tls, core: &mut Core, plain: &mut Vec<u8>) -> io::Result<Heard> {
    let begun = tls.begin(&mut core.scratch);
    let room = (begun + READ).min(core.scratch.len());
    let count = stream::read(socket, &mut core.scratch[begun..room])?;
    let mut fault = None;
    if count > 0 {
        let wire = &mut core.scratch[..begun + count];
        fault = tls.receive(wire, &mut core.wire, &mut |bytes| plain.extend_from_slice(bytes)).err();
    }
    Ok(Heard { count, filled: begun + count == room, fault })
}

impl Connection {
    /// Before the client is told to begin TLS, or as soon as it may.
    pub(super) fn companion(&self) -> Companion {
        let is_there = stream::peek(&self.socket, &mut [0]).is_ok();
        self.door.ftp.passive.companions().join(self.session.peer().ip(), is_there)
    }

    /// The handshake is about to begin. `implicit`: it is the first thing on the connection.
    pub(super) fn begin_tls(&mut self, core: &mut Core, implicit: bool, companion: Companion) {
        let Some(security) = &core.services.tls else { return };
        let mut host = security.acceptor.host();
        if security.policy().resumption == Resumption::Require {
            host = host.requiring_resumption();
        }
        match host.control(self.host.as_deref()) {
            Ok(tls) => {
                self.secure = Some(Box::new(Secure {
                    host,
                    tls: Some(tls),
                    stage: Stage::Handshake,
                    names: Box::default(),
                    server_name: None,
                    queued: false,
                    closed: false,
                    resumes: false,
                    owes_ticket: false,
                    companion,
                    told: false,
                    early: Early::Nothing,
                }));
            }
            Err(fault) => {
                self.log(core, log::Event::TlsFailed { on: "control", reason: &fault.to_string() });
                self.state.broken = true;
            }
        }
        if implicit {
            self.session.begin_with_tls();
        }
    }

    /// What protects the control connection now.
    pub(super) fn tls_version(&self) -> Option<&'static str> {
        self.secure.as_ref()?.tls.as_ref()?.version()
    }

    /// `CCC`: the replies so far are the last that are encrypted.
    pub(super) fn end_tls(&mut self, core: &mut Core) {
        self.send(core);
        if let Some(secure) = &mut self.secure
            && let Some(tls) = &mut secure.tls
        {
            secure.stage = Stage::Goodbye;
            secure.closed = true;
            let _ = tls.close(&mut core.wire);
        }
        self.send_wire(core);
    }

    /// Claims that the session waits for TLS to begin or to end.
    pub(super) fn is_changing(&self) -> bool {
        self.secure.as_ref().is_some_and(|secure| secure.tls.is_some() && secure.stage != Stage::Open)
    }

    /// Claims that it waits for its share of the next turn.
    pub(super) fn is_queued(&self) -> bool {
        self.secure.as_ref().is_some_and(|secure| secure.queued)
    }

    /// Claims that the control connection is encrypted, or about to be.
    pub(super) fn has_tls(&self) -> bool {
        self.secure.as_ref().is_some_and(|secure| secure.tls.is_some())
    }

    /// The name that the client came by: that of `HOST`, else of SNI.
    pub(super) fn asked_host(&self) -> String {
        // `HOST` may have been said in clear, by anybody; behind the handshake it can say nothing else.
        let by_sni = self.secure.as_ref().and_then(|secure| secure.server_name.as_deref());
        by_sni.or(self.host.as_deref()).map(|name| plain_host(name.as_bytes())).unwrap_or_default()
    }

    /// Claims that a name may be served: one for which there is a certificate or a tree, and the one given by SNI if
    /// there was one. Where nothing tells names apart there is one host, which all of them mean.
    pub(super) fn serves_host(&mut self, core: &Core, name: String) -> bool {
        let hosts = self.door.ftp.hosts();
        let named = self.secure.as_ref().and_then(|secure| secure.server_name.as_deref());
        let is_served = match (named, &core.services.tls) {
            (Some(named), _) => named.eq_ignore_ascii_case(&name),
            (None, _) if hosts.iter().any(|host| host.covers(&plain_host(name.as_bytes()))) => true,
            (None, Some(security)) => security.acceptor.serves(&name),
            (None, None) => hosts.is_empty() || self.is_own_address(&name),
        };
        if is_served {
            self.host = Some(name.into());
        }
        is_served
    }

    /// Claims that it is an address of this server, as far as it knows them.
    fn is_own_address(&self, name: &str) -> bool {
        name.parse::<IpAddr>().is_ok_and(|address| {
            let public = self.door.ftp.config.public_ip.map(IpAddr::V4);
            public == Some(address) || [self.session.local().ip(), self.local().ip()].contains(&address)
        })
    }

    /// Reads what has come on an encrypted control connection.
    pub(super) fn read_secure(&mut self, core: &mut Core) {
        let Some(secure) = &mut self.secure else { return };
        let Some(tls) = &mut secure.tls else { return };
        let is_handshake = secure.stage == Stage::Handshake;
        if is_handshake && core.handshakes.is_used_up() {
            if !std::mem::replace(&mut secure.queued, true) {
                core.handshakes.wait(self.key);
            }
            return;
        }
        let mut plain = std::mem::take(&mut core.plain);
        let began = Instant::now();
        let heard = hear(&self.socket, tls, core, &mut plain);
        if is_handshake {
            core.handshakes.spend(began);
        }
        // The worker's buffer is its own again: the commands may begin transfers.
        match heard {
            Ok(Heard { count: 0, .. }) => {
                (self.state.ended, self.state.hung_up) = (true, true);
                self.state.readable = false;
                if is_handshake {
                    self.fail_handshake(core, "the client hung up in the handshake");
                }
            }
            Ok(Heard { filled, fault, .. }) => {
                self.state.readable = filled || self.state.urgent || self.state.hung_up;
                self.send_wire(core);
                match fault {
                    None => self.take_plain(core, &plain),
                    Some(fault) => self.fail_handshake(core, &fault.to_string()),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                (self.state.readable, self.state.urgent) = (false, false);
            }
            Err(_) => self.state.broken = true,
        }
        plain.clear();
        core.plain = plain;
    }

    /// The share of the next turn has come.
    pub fn shake_hands(&mut self, _: &mut Core) {
        // The connection is settled behind this, and so read on.
        if let Some(secure) = &mut self.secure {
            secure.queued = false;
        }
    }

    fn fail_handshake(&mut self, core: &mut Core, why: &str) {
        self.state.broken = true;
        let Some(tls) = self.secure.as_ref().and_then(|secure| secure.tls.as_ref()) else { return };
        let reason = match tls.hello() {
            Some(hello) => format!("{why}; the client offered {hello}"),
            None => why.to_owned(),
        };
        self.log(core, log::Event::TlsFailed { on: "control", reason: &reason });
    }

    /// What was decrypted, and what follows from it.
    fn take_plain(&mut self, core: &mut Core, plain: &[u8]) {
        let Some(secure) = &mut self.secure else { return };
        let Some(tls) = &mut secure.tls else { return };
        match secure.stage {
            Stage::Handshake if tls.is_handshaking() => return,
            Stage::Handshake => {
                secure.stage = Stage::Open;
                secure.server_name =
                    tls.hello().and_then(|hello| hello.server_name.as_deref().map(Into::into));
                secure.companion.met(tls.hello(), tls.version() == Some(TLS12));
                tls.forget_hello();
                if let Some(certificate) = tls.peer_certificate() {
                    secure.names = client_names(certificate).into();
                    self.session.show_certificate();
                }
                let client = secure.names.first().cloned();
                let (version, cipher) = (tls.version().unwrap_or("?"), tls.cipher().unwrap_or("?"));
                self.log(core, log::Event::Secured { version, cipher, client: client.as_deref() });
                self.feed(core, Input::Secured);
            }
            Stage::Goodbye if tls.has_ended() => {
                let rest = secure.tls.take().map(Tls::into_rest).unwrap_or_default();
                self.feed(core, Input::Secured);
                return self.take_bytes(core, &rest);
            }
            Stage::Open | Stage::Goodbye => {}
        }
        if !plain.is_empty() {
            self.note_hearing(plain);
            self.take_bytes(core, plain);
            if let (true, Some(secure)) = (self.has_lines_waiting(), &mut self.secure) {
                secure.companion.runs_ahead();
            }
        }
        let ended = |secure: &Secure| secure.tls.as_ref().is_some_and(Tls::has_ended);
        if self.secure.as_deref().is_some_and(ended) {
            (self.state.ended, self.state.hung_up) = (true, true);
        }
    }

    /// What the client says shows what it has read, unless it does not wait for replies.
    fn note_hearing(&mut self, plain: &[u8]) {
        let Some(secure) = &mut self.secure else { return };
        let lines = plain.iter().filter(|&&byte| byte == b'\n').count();
        if lines > 1 {
            secure.companion.runs_ahead();
        } else if secure.companion.listens() && stream::has_arrived(&self.socket) {
            // What was on its way when the client said this it cannot have read.
            secure.companion.heard();
        }
    }

    /// Tells the client by TLS that nothing more comes, where that was not done with the last reply.
    pub(super) fn answer_close_notify(&mut self, core: &mut Core) {
        let Some(secure) = &mut self.secure else { return };
        let Some(tls) = secure.tls.as_mut().filter(|_| secure.stage == Stage::Open) else { return };
        if !self.state.broken && !std::mem::replace(&mut secure.closed, true) {
            let _ = tls.close(&mut core.wire);
            self.send_wire(core);
        }
    }

    /// Encrypts the collected replies; behind the last of a connection that is being closed, its end.
    pub(super) fn seal(&mut self, core: &mut Core) {
        let Some(secure) = &mut self.secure else { return };
        let Some(tls) = &mut secure.tls else { return };
        if secure.stage != Stage::Open {
            // There is nobody who could read it.
            return core.out.clear();
        }
        let mut result = Ok(());
        if std::mem::take(&mut secure.owes_ticket) {
            result = tls.replenish(&mut core.wire);
            secure.companion.given();
        }
        if !core.out.is_empty() {
            secure.companion.told();
        }
        result = result.and_then(|()| tls.seal(&core.out, &mut core.wire));
        if self.state.closing.is_some() && !std::mem::replace(&mut secure.closed, true) {
            result = result.and_then(|()| tls.close(&mut core.wire));
        }
        core.out.clear();
        core.out.extend_from_slice(core.wire.pending());
        let count = core.wire.pending().len();
        core.wire.consume(count);
        self.state.broken |= result.is_err();
    }

    /// Sends what TLS itself has to say.
    fn send_wire(&mut self, core: &mut Core) {
        if core.wire.is_empty() {
            return;
        }
        self.output.extend_from_slice(core.wire.pending());
        let count = core.wire.pending().len();
        core.wire.consume(count);
        self.write_out(core);
    }

    /// Begins TLS on a data connection, where it was agreed on.
    pub(super) fn protect(&self, core: &Core, socket: &mut Socket, protection: Protection) -> io::Result<()> {
        let tls = match (protection, &self.secure, &core.services.tls) {
            (Protection::Clear, ..) => return Ok(()),
            (Protection::AsServer, Some(secure), _) => {
                // What one before has shown, whose handshake failed, is not this one's.
                secure.host.take_foreign();
                secure.companion.may_use();
                secure.host.data()
            }
            (Protection::AsClient, _, Some(security)) => {
                security.connector.connect(&self.session.peer().ip().to_string())
            }
            _ => return Err(io::ErrorKind::Unsupported.into()),
        };
        socket.tls = Some(Box::new(Channel::new(tls.map_err(io::Error::other)?)));
        Ok(())
    }

    /// Whether data connections have to resume: as the account says, else the server.
    fn resumption(&self, core: &Core) -> Resumption {
        let of_server = || core.services.tls.as_ref().map_or(Resumption::Off, |tls| tls.policy().resumption);
        self.account.as_ref().and_then(|account| account.data.resumption).unwrap_or_else(of_server)
    }

    /// What its data connections can be told from others by, one of which is to come: where it is sure that they resume,
    /// as they have done so before, or would be refused if they did not.
    pub(super) fn badge(&self, core: &Core) -> Option<Mark> {
        let secure = self.secure.as_ref()?;
        if core
            .services
            .tls
            .as_ref()
            .is_none_or(|tls| tls.mixers.has(self.session.peer().ip(), core.now.instant))
        {
            return None;
        }
        let is_sure = || secure.resumes || self.resumption(core) == Resumption::Require;
        (self.session.protection() == Protection::AsServer && is_sure())
            .then(|| secure.companion.mark(secure.host.badge()))
    }

    /// The client may connect from now on, and show one of its tickets.
    pub(super) fn expect_use(&mut self) {
        if let Some(secure) = &mut self.secure {
            secure.companion.expect_use();
        }
    }

    /// Moves a data connection's handshake on; answers whether it is over. `None`: this turn has no time for
    /// it any more.
    pub(super) fn shake_data_hands(
        &mut self,
        core: &mut Core,
        socket: &mut Socket,
    ) -> Option<Result<bool, TransferError>> {
        let Some(channel) = &mut socket.tls else { return Some(Ok(true)) };
        if core.handshakes.is_used_up() {
            return None;
        }
        let began = Instant::now();
        let done = channel.handshake(&socket.fd, &mut core.scratch);
        core.handshakes.spend(began);
        Some(match done {
            Ok(true) => {
                let is_resumed = channel.tls().is_resumed();
                let settled = socket.tls.take().map(|channel| channel.settle().map(Box::new)).transpose();
                settled.map_err(TransferError::Broken).and_then(|channel| {
                    socket.tls = channel;
                    self.judge_resumption(core, is_resumed).map(|()| true)
                })
            }
            Ok(false) => Ok(false),
            Err(error) => {
                let offered = channel.tls().hello().map(|hello| format!("; the client offered {hello}"));
                let reason = format!("{error}{}", offered.unwrap_or_default());
                self.log(core, log::Event::TlsFailed { on: "data", reason: &reason });
                Err(TransferError::NotSecured(format!("the handshake failed ({error})")))
            }
        })
    }

    /// Whether a data connection shows that it belongs to this control connection.
    fn judge_resumption(&mut self, core: &mut Core, is_resumed: bool) -> Result<(), TransferError> {
        let policy = self.resumption(core);
        let Some(secure) = &mut self.secure else { return Ok(()) };
        let is_foreign = secure.host.take_foreign();
        secure.companion.used(is_resumed);
        secure.owes_ticket |= is_resumed;
        secure.resumes |= is_resumed;
        if let (true, Some(tls)) = (is_foreign, &core.services.tls) {
            tls.mixers.note(self.session.peer().ip(), core.now.instant);
        }
        if policy == Resumption::Off || is_resumed || self.session.protection() == Protection::AsClient {
            return Ok(());
        }
        if policy == Resumption::Require {
            let why = match is_foreign {
                true => {
                    "it showed the TLS session of another control connection, and has to resume that of its own"
                }
                false => "it has to resume the TLS session of its control connection",
            };
            self.log(core, log::Event::TlsFailed { on: "data", reason: why });
            return Err(TransferError::NotSecured(why.to_owned()));
        }
        // Nothing of the other session was used: the handshake was a full one, as if no ticket had been shown.
        if !std::mem::replace(&mut secure.told, true) {
            self.log(core, log::Event::NotResumed { is_foreign });
        }
        Ok(())
    }
}
