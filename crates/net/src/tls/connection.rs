//! One TLS connection, without its socket: wire bytes in, plain bytes and wire bytes out.
//!
//! rustls decrypts within the caller's buffer and encrypts into it, so a connection holds no buffer of its own between
//! calls: only the beginning of a record whose rest has not come yet. rustls makes one short-lived vector for a record
//! in each direction, so a data connection changes to [`Records`] after its handshake ([`Tls::settle`]).
//!
//! The invariant: what `take` was given came before the end that [`Tls::has_ended`] claims, so a stream
//! that stops without that claim was cut.

mod state;

use std::fmt;
use std::io::IoSliceMut;
use std::ops::ControlFlow;
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::EncryptError;
use rustls::{CommonState, HandshakeKind, ProtocolVersion};

use self::state::{Work, step, write};
use super::challenge::Challenges;
use super::fault::Fault;
use super::hello::Hello;
use super::records::{Opened, Read, Records};
use super::ticket_resend::{self, Renewal};
use super::tickets::Binding;
use super::unwritten::Unwritten;
use crate::Wire;

/// The most incomplete input that is kept: a handshake message of 64 KiB, more than any legitimate one.
const KEPT: usize = 64 * 1024 + 256;

/// The largest record, with what encryption adds to it.
const RECORD: usize = 16 * 1024;
const OVERHEAD: usize = 64;
const HEADER: usize = 5;

/// More messages than a handshake that fails has to say.
const FAREWELLS: usize = 16;

/// The record of a fatal alert, 86 (RFC 7507 section 3).
const INAPPROPRIATE_FALLBACK: [u8; 7] = [21, 3, 3, 0, 2, 2, 86];

/// One side of a TLS connection.
pub struct Tls {
    side: Side,
    /// The beginning of a record or of a handshake message.
    incoming: Vec<u8>,
    /// The client's offer, until the handshake is over.
    hello: Option<Box<Hello>>,
    peeked: bool,
    ended: bool,
    /// For a control connection.
    renewal: Option<Box<Renewal>>,
    /// For a client that cannot resume otherwise, until it has spoken.
    tls12: Option<Arc<rustls::ServerConfig>>,
    /// For a CA, until the client has spoken.
    challenges: Option<Arc<Challenges>>,
    /// It is to settle: what comes behind the handshake is not rustls's, which would have its answers wait.
    is_to_settle: bool,
    /// There may be whole records in `incoming`.
    unheard: bool,
}

enum Side {
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
    /// The server's, which has settled.
    Settled(Box<Records>),
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tls({:?}, ended: {})", self.version(), self.ended)
    }
}

impl Tls {
    /// The server's side.
    pub(super) fn server(config: Arc<rustls::ServerConfig>) -> Result<Self, Fault> {
        Ok(Self::new(Side::Server(Box::new(UnbufferedServerConnection::new(config)?))))
    }

    /// The client's side; the ClientHello is made by the first call of [`Tls::receive`], with nothing.
    pub(super) fn client(
        config: Arc<rustls::ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, Fault> {
        Ok(Self::new(Side::Client(Box::new(UnbufferedClientConnection::new(config, name)?))))
    }

    /// A control connection's side, whose tickets can be replenished.
    pub(super) fn renewing(mut self, binding: Arc<Binding>) -> Self {
        self.renewal = Some(Box::new(Renewal::new(binding)));
        self
    }

    /// The same, but with TLS 1.2 for those who could never resume a session of TLS 1.3: libcurl with GnuTLS, as
    /// Debian 12 has it, switches tickets off, and under TLS 1.2 goes by session ids.
    pub(super) fn resuming(mut self, tls12: Arc<rustls::ServerConfig>) -> Self {
        self.tls12 = Some(tls12);
        self
    }

    /// The same, for a connection that may carry an ACME challenge.
    pub(super) fn challenged(mut self, challenges: Arc<Challenges>) -> Self {
        self.challenges = Some(challenges);
        self
    }

    /// The same, but for bulk: it can settle when the handshake is over.
    pub(super) fn settling(mut self) -> Self {
        self.is_to_settle = true;
        self
    }

    fn new(side: Side) -> Self {
        let (incoming, peeked, ended) = (Vec::new(), false, false);
        let (tls12, challenges) = (None, None);
        let (is_to_settle, unheard) = (false, false);
        Self {
            side,
            incoming,
            hello: None,
            peeked,
            ended,
            renewal: None,
            tls12,
            challenges,
            is_to_settle,
            unheard,
        }
    }

    /// Changes to [`Records`], which copy less, for encryption and decryption; for the server's side of a data
    /// connection whose handshake is complete and sent. Of the handshake only the version and the client's certificate
    /// remain available.
    pub fn settle(self) -> Result<Self, Fault> {
        let Self { side, incoming, ended, unheard, .. } = self;
        let side = match side {
            Side::Server(server) => Side::Settled(Box::new(Records::new(*server)?)),
            side => side,
        };
        Ok(Self { incoming, peeked: true, ended, unheard, ..Self::new(side) })
    }

    /// Copies what waits for its rest to the front of `buffer`, behind which the socket is to be read.
    /// The whole is then given to [`Tls::receive`].
    ///
    /// `buffer` must hold more than 64 KiB, or a long handshake message never fits.
    pub fn begin(&self, buffer: &mut [u8]) -> usize {
        let count = self.incoming.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.incoming[..count]);
        count
    }

    /// Takes wire bytes, of which the first are those of [`Tls::begin`]: gives the plain ones to `take`,
    /// and puts what has to be said (the handshake, an alert) into `out`.
    pub fn receive(
        &mut self,
        wire: &mut [u8],
        out: &mut Wire,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Fault> {
        if let Side::Settled(records) = &mut self.side {
            let mut opened = Opened::default();
            let result = if self.ended { Ok(()) } else { records.open(wire, &mut opened, out) };
            if opened.plain > 0 {
                take(&wire[..opened.plain]);
            }
            self.ended |= opened.ended;
            self.keep(&wire[opened.used..]);
            return result.map_err(Fault);
        }
        self.receive_by_rustls(wire, out, take)
    }

    /// The same before it has settled.
    fn receive_by_rustls(
        &mut self,
        wire: &mut [u8],
        out: &mut Wire,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Fault> {
        if !self.peeked && !wire.is_empty() {
            if matches!(self.side, Side::Server(_)) && Hello::is_partial(wire) {
                self.incoming = wire.to_vec();
                return Ok(());
            }
            self.peeked = true;
            self.hello = Hello::peek(wire).map(Box::new);
            self.heed_hello(out)?;
        }
        let mut used = 0;
        let keeps_tickets = self.renewal.is_some() && self.is_handshaking();
        if keeps_tickets {
            // Another connection's ticket.
            ticket_resend::sealed();
        }
        let goes_by_records = self.is_to_settle && self.is_handshaking();
        let mut end = if goes_by_records { record_end(wire, 0) } else { wire.len() };
        let result = loop {
            match self.step(&mut wire[used..end], &mut used, out, take) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) if end < wire.len() && self.is_handshaking() => {
                    end = record_end(wire, end);
                }
                Ok(ControlFlow::Break(())) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if keeps_tickets && let (Some(renewal), Some(messages)) = (&mut self.renewal, ticket_resend::sealed())
        {
            renewal.keep(&messages);
        }
        self.keep(&wire[used.min(wire.len())..]);
        self.unheard = end < wire.len();
        match result {
            Ok(()) if self.incoming.len() > KEPT => {
                Err(Fault(rustls::Error::General("a handshake message is too long".to_owned())))
            }
            Ok(()) => Ok(()),
            Err(error) => {
                self.say_farewell(out);
                Err(Fault(error))
            }
        }
    }

    /// Writes what was pending before an error, and the alert that reports it. (The input is passed again: rustls
    /// remembers how far it had read.)
    fn say_farewell(&mut self, out: &mut Wire) {
        let (mut rest, mut at) = (std::mem::take(&mut self.incoming), 0);
        for _ in 0..FAREWELLS {
            let (from, before) = (at.min(rest.len()), out.pending().len());
            let step = self.step(&mut rest[from..], &mut at, out, &mut |_| {});
            // Behind the alert there is nothing to say, and rustls is not to be asked.
            if step.is_err() || ends_it(&out.pending()[before..]) {
                break;
            }
        }
    }

    /// Claims, once, that what [`Tls::begin`] copies has to be taken before more is read: it came with the end of the
    /// handshake, and may be all there is.
    pub fn take_unheard(&mut self) -> bool {
        std::mem::take(&mut self.unheard)
    }

    /// Keeps what waits for its rest.
    fn keep(&mut self, rest: &[u8]) {
        self.incoming.clear();
        self.incoming.extend_from_slice(rest);
        if rest.is_empty() {
            self.incoming = Vec::new();
        }
    }

    /// Handles the parts of the hello that rustls does not.
    fn heed_hello(&mut self, out: &mut Wire) -> Result<(), Fault> {
        let (tls12, challenges) = (self.tls12.take(), self.challenges.take());
        let Some(hello) = &self.hello else { return Ok(()) };
        if let Some(config) = challenges.and_then(|challenges| challenges.config_for(hello)) {
            self.side = Side::Server(Box::new(UnbufferedServerConnection::new(config)?));
            return Ok(());
        }
        if hello.is_inappropriate_fallback() {
            out.room(INAPPROPRIATE_FALLBACK.len())[..INAPPROPRIATE_FALLBACK.len()]
                .copy_from_slice(&INAPPROPRIATE_FALLBACK);
            out.fill(INAPPROPRIATE_FALLBACK.len());
            let why = "the client fell back from a newer version, which this server speaks, too";
            return Err(Fault(rustls::Error::General(why.to_owned())));
        }
        if let Some(config) = tls12.filter(|_| hello.resumes_tls12_only()) {
            self.side = Side::Server(Box::new(UnbufferedServerConnection::new(config)?));
            if let Some(renewal) = self.renewal.take() {
                renewal.binding().limit_to_tls12();
            }
        }
        Ok(())
    }

    fn step(
        &mut self,
        wire: &mut [u8],
        used: &mut usize,
        out: &mut Wire,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<ControlFlow<()>, rustls::Error> {
        match &mut self.side {
            Side::Server(server) => step(server.process_tls_records(wire), used, &mut self.ended, out, take),
            Side::Client(client) => step(client.process_tls_records(wire), used, &mut self.ended, out, take),
            Side::Settled(_) => Ok(ControlFlow::Break(())),
        }
    }

    /// Makes records of plain bytes, as large as they may be.
    pub fn seal(&mut self, plain: &[u8], out: &mut Wire) -> Result<(), Fault> {
        if plain.is_empty() {
            return Ok(());
        }
        if let Side::Settled(records) = &mut self.side {
            return records.seal(plain, out).map_err(Fault);
        }
        self.with_writer(out, &mut |writer, out| {
            let mut room = plain.len() + plain.len().div_ceil(RECORD) * OVERHEAD;
            loop {
                match writer.encrypt(plain, out.room(room)) {
                    Ok(count) => {
                        out.fill(count);
                        return Ok(());
                    }
                    Err(EncryptError::InsufficientSize(size)) if size.required_size > room => {
                        room = size.required_size;
                    }
                    Err(error) => return Err(rustls::Error::General(error.to_string())),
                }
            }
        })
    }

    /// Has `read` put up to `most` plain bytes into buffers, and makes records of them; answers how many there were. Where
    /// they are read into the records themselves, no more than those of a batch.
    pub fn seal_from(
        &mut self,
        most: usize,
        read: &mut Read<'_>,
        out: &mut Wire,
    ) -> Result<usize, Unwritten> {
        if let Side::Settled(records) = &mut self.side {
            return records.seal_from(most, read, out);
        }
        let mut plain = vec![0; most.min(RECORD)];
        let count = read(&mut [IoSliceMut::new(&mut plain)]).map_err(Unwritten::Source)?;
        let sealed = self.seal(&plain[..count], out);
        sealed.map(|()| count).map_err(|Fault(error)| Unwritten::sealing(error))
    }

    /// Sends close_notify, the authenticated end.
    pub fn close(&mut self, out: &mut Wire) -> Result<(), Fault> {
        if let Side::Settled(records) = &mut self.side {
            return records.close(out).map_err(Fault);
        }
        self.with_writer(out, &mut |writer, out| match writer.close(out.room(OVERHEAD * 2)) {
            Ok(count) => {
                out.fill(count);
                Ok(())
            }
            Err(error) => Err(rustls::Error::General(error.to_string())),
        })
    }

    /// Sends another ticket, where tickets may run out: see `ticket_resend.rs`.
    pub fn replenish(&mut self, out: &mut Wire) -> Result<(), Fault> {
        match self.renewal.as_ref().and_then(|renewal| renewal.message()) {
            Some(message) => ticket_resend::as_handshake(|| self.seal(&message, out)),
            None => Ok(()),
        }
    }

    /// Sends with new keys from here on (TLS 1.3), and asks the other side to do so as well.
    pub fn update_keys(&mut self, out: &mut Wire) -> Result<(), Fault> {
        if let Side::Settled(records) = &mut self.side {
            return records.change_keys(true, out).map_err(Fault);
        }
        self.with_writer(out, &mut |writer, _| writer.update_keys())?;
        let mut incoming = std::mem::take(&mut self.incoming);
        self.receive(&mut incoming, out, &mut |_| {})
    }

    fn with_writer(&mut self, out: &mut Wire, work: &mut Work<'_>) -> Result<(), Fault> {
        let mut used = 0;
        let mut incoming = std::mem::take(&mut self.incoming);
        let result = loop {
            let rest = &mut incoming[used..];
            let turn = match &mut self.side {
                Side::Server(server) => write(server.process_tls_records(rest), &mut used, out, work),
                Side::Client(client) => write(client.process_tls_records(rest), &mut used, out, work),
                Side::Settled(_) => Ok(ControlFlow::Break(())),
            };
            match turn {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => break Ok(()),
                Err(error) => break Err(Fault(error)),
            }
        };
        incoming.drain(..used.min(incoming.len()));
        self.incoming = incoming;
        result
    }

    #[cfg(test)]
    pub(super) fn records(&mut self) -> Option<&mut Records> {
        match &mut self.side {
            Side::Settled(records) => Some(records),
            _ => None,
        }
    }

    fn common(&self) -> Option<&CommonState> {
        match &self.side {
            Side::Server(server) => Some(server),
            Side::Client(client) => Some(client),
            Side::Settled(_) => None,
        }
    }

    /// Returns true if the handshake goes on.
    pub fn is_handshaking(&self) -> bool {
        self.common().is_some_and(CommonState::is_handshaking)
    }

    /// Returns true if the other side has said, by its close_notify, that nothing more will come.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// The bytes after the other side's close_notify, or an incomplete record.
    pub fn into_rest(self) -> Vec<u8> {
        self.incoming
    }

    /// Returns true if the handshake was a short one: the keys are those of an earlier session.
    pub fn is_resumed(&self) -> bool {
        self.common().and_then(CommonState::handshake_kind) == Some(HandshakeKind::Resumed)
    }

    /// Returns true if nothing has come from the other side.
    pub fn is_untouched(&self) -> bool {
        !self.peeked && self.incoming.is_empty()
    }

    /// The client's offer, until [`Tls::forget_hello`].
    pub fn hello(&self) -> Option<&Hello> {
        self.hello.as_deref()
    }

    /// Gives up what was kept of the handshake.
    pub fn forget_hello(&mut self) {
        self.hello = None;
    }

    /// The version in use: `TLS 1.2` or `TLS 1.3`.
    pub fn version(&self) -> Option<&'static str> {
        let version = match &self.side {
            Side::Settled(records) => records.version(),
            _ => self.common()?.protocol_version()?,
        };
        match version {
            ProtocolVersion::TLSv1_2 => Some("TLS 1.2"),
            ProtocolVersion::TLSv1_3 => Some("TLS 1.3"),
            _ => None,
        }
    }

    /// The protocol that both sides have agreed on (ALPN), once the handshake is over.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.common()?.alpn_protocol()
    }

    /// The cipher suite in use, by its registered name.
    pub fn cipher(&self) -> Option<&'static str> {
        self.common()?.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str())
    }

    /// The certificate that the other side showed, and that was found to be good.
    pub fn peer_certificate(&self) -> Option<&CertificateDer<'static>> {
        match &self.side {
            Side::Settled(records) => records.peer_certificate(),
            _ => self.common()?.peer_certificates().and_then(<[_]>::first),
        }
    }
}

/// Where the record ends that begins there, as far as it has come.
fn record_end(wire: &[u8], at: usize) -> usize {
    let length = match wire[at..] {
        [_, _, _, high, low, ..] => HEADER + usize::from(u16::from_be_bytes([high, low])),
        _ => HEADER,
    };
    wire.len().min(at + length)
}

/// Returns true if this is nothing, or the record of an alert: in clear, or sealed under TLS 1.3, where it is two bytes,
/// their type and the tag.
fn ends_it(record: &[u8]) -> bool {
    matches!(record, [] | [21, ..] | [23, _, _, 0, 19, ..])
}
