//! TLS on a control connection, and on its data connections.
//!
//! ```text
//!   clear --StartTls--> Handshake --Secured--> Open --StopTls--> Goodbye --Secured--> clear again (CCC)
//!                           ^ begins here where TLS is implicit
//! ```
//!
//! Handshakes have a share of each turn of the reactor: see [`millrace_runtime::handshakes`].

use std::io;
use std::os::fd::OwnedFd;

use millrace_accounts::Resumption;
use millrace_ftp::session::{Protection, TransferError};
use millrace_log as log;
use millrace_net::stream;
use millrace_net::tls::{Channel, Fault, Host, Tls, client_names};
use millrace_runtime::handshakes::describe_failure;
use millrace_runtime::passive::ticket_isolation::{Companion, Mark};
use millrace_runtime::transfer::Socket;
use millrace_runtime::worker::Core;

use super::early::Early;
use super::scene::Identity;

/// The size of a read of a control connection.
const READ: usize = 16 * 1024;

/// As connections call it.
const TLS12: &str = "TLS 1.2";

/// A control connection's TLS, and what its data connections need of it.
#[derive(Debug)]
pub(super) struct Secure {
    host: Host,
    /// `None` after `CCC`.
    pub(super) tls: Option<Tls>,
    pub(super) stage: Stage,
    /// The names in the client's certificate.
    pub(super) names: Box<[String]>,
    /// The name that the client gave by SNI.
    pub(super) server_name: Option<Box<str>>,
    /// In line for its share of the next turn.
    pub(super) queued: bool,
    /// Our close_notify was sent.
    closed: bool,
    /// A data connection has resumed: the next ones will, too.
    resumes: bool,
    /// A data connection has used up a ticket: the next replies bring another.
    owes_ticket: bool,
    /// The session whose tickets are not taken for its own.
    companion: Companion,
    /// The log has been told that data connections do not resume.
    told: bool,
    /// The data connection of a transfer that has not begun.
    pub(super) early: Early,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Handshake,
    Open,
    /// We have sent close_notify, and wait for the client's.
    Goodbye,
}

/// What decrypted bytes mean for TLS.
pub(super) enum Advance {
    /// The handshake goes on.
    Handshaking,
    /// It is over.
    Secured(Secured),
    /// The client has ended TLS; what it has sent in clear behind that.
    Cleared(Vec<u8>),
    /// Nothing: they are the session's.
    Open,
}

/// What a handshake has agreed on.
pub(super) struct Secured {
    pub(super) version: &'static str,
    pub(super) cipher: &'static str,
    pub(super) has_certificate: bool,
    /// The first name in the client's certificate.
    pub(super) client: Option<String>,
}

/// What a read of an encrypted control connection came to.
pub(super) struct Heard {
    /// Wire bytes; none is the end.
    pub(super) count: usize,
    /// Whether there may be more.
    pub(super) filled: bool,
    /// What was wrong with them.
    pub(super) fault: Option<Fault>,
}

impl Secure {
    /// The handshake is about to begin, with the certificate for `name`.
    pub(super) fn begin(host: Host, name: Option<&str>, companion: Companion) -> Result<Self, Fault> {
        let tls = host.control(name)?;
        Ok(Self {
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
        })
    }

    /// Reads once: plain bytes into `plain`, what TLS has to say into the worker's `wire`. Returns nothing after `CCC`.
    pub(super) fn hear(
        &mut self,
        socket: &OwnedFd,
        core: &mut Core,
        plain: &mut Vec<u8>,
    ) -> Option<io::Result<Heard>> {
        let tls = self.tls.as_mut()?;
        let begun = tls.begin(&mut core.scratch);
        let room = (begun + READ).min(core.scratch.len());
        let count = match stream::read(socket, &mut core.scratch[begun..room]) {
            Ok(count) => count,
            Err(error) => return Some(Err(error)),
        };
        let mut fault = None;
        if count > 0 {
            let wire = &mut core.scratch[..begun + count];
            fault = tls.receive(wire, &mut core.wire, &mut |bytes| plain.extend_from_slice(bytes)).err();
        }
        Some(Ok(Heard { count, filled: begun + count == room, fault }))
    }

    /// Takes notice of what was decrypted.
    pub(super) fn advance(&mut self) -> Advance {
        let Some(tls) = &mut self.tls else { return Advance::Handshaking };
        match self.stage {
            Stage::Handshake if tls.is_handshaking() => Advance::Handshaking,
            Stage::Handshake => {
                self.stage = Stage::Open;
                self.server_name = tls.hello().and_then(|hello| hello.server_name.as_deref().map(Into::into));
                self.companion.met(tls.hello(), tls.version() == Some(TLS12));
                tls.forget_hello();
                let certificate = tls.peer_certificate();
                let has_certificate = certificate.is_some();
                if let Some(certificate) = certificate {
                    self.names = client_names(certificate).into();
                }
                Advance::Secured(Secured {
                    version: tls.version().unwrap_or("?"),
                    cipher: tls.cipher().unwrap_or("?"),
                    has_certificate,
                    client: self.names.first().cloned(),
                })
            }
            Stage::Goodbye if tls.has_ended() => {
                Advance::Cleared(self.tls.take().map(Tls::into_rest).unwrap_or_default())
            }
            Stage::Open | Stage::Goodbye => Advance::Open,
        }
    }

    /// Says that nothing more comes under TLS, and waits for the client to say so.
    pub(super) fn say_goodbye(&mut self, core: &mut Core) {
        if let Some(tls) = &mut self.tls {
            self.stage = Stage::Goodbye;
            self.closed = true;
            let _ = tls.close(&mut core.wire);
        }
    }

    /// Says that nothing more comes, where that was not said. Returns whether it is said now.
    pub(super) fn close(&mut self, core: &mut Core) -> bool {
        let Some(tls) = self.tls.as_mut().filter(|_| self.stage == Stage::Open) else { return false };
        let closes = !std::mem::replace(&mut self.closed, true);
        if closes {
            let _ = tls.close(&mut core.wire);
        }
        closes
    }

    /// Encrypts the collected replies; where the connection `closes`, its end behind them.
    pub(super) fn seal(&mut self, core: &mut Core, closes: bool) -> Result<(), Fault> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        if self.stage != Stage::Open {
            // The client cannot read it.
            core.out.clear();
            return Ok(());
        }
        let mut result = Ok(());
        if std::mem::take(&mut self.owes_ticket) {
            result = tls.replenish(&mut core.wire);
            self.companion.given();
        }
        if !core.out.is_empty() {
            self.companion.told();
        }
        result = result.and_then(|()| tls.seal(&core.out, &mut core.wire));
        if closes && !std::mem::replace(&mut self.closed, true) {
            result = result.and_then(|()| tls.close(&mut core.wire));
        }
        core.out.clear();
        core.out.extend_from_slice(core.wire.pending());
        let count = core.wire.pending().len();
        core.wire.consume(count);
        result
    }

    /// Notes that the client does not wait for replies.
    pub(super) fn runs_ahead(&mut self) {
        self.companion.runs_ahead();
    }

    /// What the client says shows what it has read, unless it does not wait for replies.
    pub(super) fn note_hearing(&mut self, socket: &OwnedFd, plain: &[u8]) {
        let lines = plain.iter().filter(|&&byte| byte == b'\n').count();
        if lines > 1 {
            self.companion.runs_ahead();
        } else if self.companion.listens() && stream::has_arrived(socket) {
            // What was on its way when the client said this it cannot have read.
            self.companion.heard();
        }
    }

    /// Begins TLS on a data connection that this server accepts.
    fn accept(&self) -> Result<Tls, Fault> {
        // What one before has shown, whose handshake failed, is not this one's.
        self.host.take_foreign();
        self.companion.may_use();
        self.host.data()
    }

    /// Returns what its data connections can be told from others by, one of which is to come: where it is sure that they
    /// resume, as they have done so before, or would be refused if they did not.
    pub(super) fn badge(&self, core: &Core, me: Identity<'_>) -> Option<Mark> {
        let from = me.session.peer().ip();
        if core.services.tls.as_ref().is_none_or(|tls| tls.mixers.has(from, core.now.instant)) {
            return None;
        }
        let is_sure = || self.resumes || resumption(core, me) == Resumption::Require;
        (me.session.protection() == Protection::AsServer && is_sure())
            .then(|| self.companion.mark(self.host.badge()))
    }

    /// The client may connect from now on, and show one of its tickets.
    pub(super) fn expect_use(&mut self) {
        self.companion.expect_use();
    }

    /// Decides whether a data connection shows that it belongs to this control connection.
    fn judge_resumption(
        &mut self,
        core: &mut Core,
        me: Identity<'_>,
        is_resumed: bool,
    ) -> Result<(), TransferError> {
        let policy = resumption(core, me);
        let is_foreign = self.host.take_foreign();
        self.companion.used(is_resumed);
        self.owes_ticket |= is_resumed;
        self.resumes |= is_resumed;
        if let (true, Some(tls)) = (is_foreign, &core.services.tls) {
            tls.mixers.note(me.session.peer().ip(), core.now.instant);
        }
        if policy == Resumption::Off || is_resumed || me.session.protection() == Protection::AsClient {
            return Ok(());
        }
        if policy == Resumption::Require {
            let why = match is_foreign {
                true => {
                    "it showed the TLS session of another control connection, and has to resume that of its own"
                }
                false => "it has to resume the TLS session of its control connection",
            };
            me.log(core, log::Event::TlsFailed { on: "data", reason: why });
            return Err(TransferError::NotSecured(why.to_owned()));
        }
        // Nothing of the other session was used: the handshake was a full one, as if no ticket had been shown.
        if !std::mem::replace(&mut self.told, true) {
            me.log(core, log::Event::NotResumed { is_foreign });
        }
        Ok(())
    }
}

/// Begins TLS on a data connection, where it was agreed on.
pub(super) fn protect(
    secure: Option<&Secure>,
    core: &Core,
    me: Identity<'_>,
    socket: &mut Socket,
    protection: Protection,
) -> io::Result<()> {
    let tls = match (protection, secure, &core.services.tls) {
        (Protection::Clear, ..) => return Ok(()),
        (Protection::AsServer, Some(secure), _) => secure.accept(),
        (Protection::AsClient, _, Some(security)) => {
            security.connector.connect(&me.session.peer().ip().to_string())
        }
        _ => return Err(io::ErrorKind::Unsupported.into()),
    };
    socket.tls = Some(Box::new(Channel::new(tls.map_err(io::Error::other)?)));
    Ok(())
}

/// Moves a data connection's handshake on. Returns whether it is over; `None`: this turn has no time for it any more.
pub(super) fn shake_data_hands(
    secure: Option<&mut Secure>,
    core: &mut Core,
    me: Identity<'_>,
    socket: &mut Socket,
) -> Option<Result<bool, TransferError>> {
    let Some(channel) = &mut socket.tls else { return Some(Ok(true)) };
    Some(match core.shake_hands(channel, &socket.fd)? {
        Ok(true) => {
            let is_resumed = channel.tls().is_resumed();
            let settled = socket.tls.take().map(|channel| channel.settle().map(Box::new)).transpose();
            settled.map_err(TransferError::Broken).and_then(|channel| {
                socket.tls = channel;
                match secure {
                    Some(secure) => secure.judge_resumption(core, me, is_resumed).map(|()| true),
                    None => Ok(true),
                }
            })
        }
        Ok(false) => Ok(false),
        Err(error) => {
            let reason = describe_failure(&error, Some(channel.tls()));
            me.log(core, log::Event::TlsFailed { on: "data", reason: &reason });
            Err(TransferError::NotSecured(format!("the handshake failed ({error})")))
        }
    })
}

/// Returns whether data connections have to resume: as the account says, else the server.
fn resumption(core: &Core, me: Identity<'_>) -> Resumption {
    let of_server = || core.services.tls.as_ref().map_or(Resumption::Off, |tls| tls.policy().resumption);
    me.account.and_then(|account| account.data.resumption).unwrap_or_else(of_server)
}
