//! The records of a connection whose handshake is over, opened and sealed where they lie.
//!
//! rustls shakes hands and makes the keys. A record that it opens or seals passes through a vector and two copies; here
//! ring works in the buffers of the copy loop, and the plain bytes of many records end up side by side, in front of
//! the buffer that they were read into:
//!
//! ```text
//! | header, cipher, tag | header, cipher, tag | header, ci      what was read
//! | plain, plain | ...                        | header, ci      what is given on, and what waits for its rest
//! ```
//!
//! TLS 1.3: RFC 8446, section 5. TLS 1.2: RFC 5246, section 6.2.3.3, with RFC 5288 (GCM) and RFC 7905 (ChaCha20).
//!
//! The invariant: under one key a sequence number, and with it a nonce, is used once in each direction.

mod half;
mod opening;
mod sealing;

#[cfg(test)]
mod tests;

use std::fmt;

use rustls::kernel::KernelConnection;
use rustls::pki_types::CertificateDer;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::{ConnectionTrafficSecrets, Error, ProtocolVersion, SupportedCipherSuite};

use self::half::Half;
pub(super) use self::opening::Opened;
pub(super) use self::sealing::Read;
use crate::Wire;

const HEADER: usize = 5;
const TAG: usize = 16;

/// The part of a nonce of GCM that TLS 1.2 sends along.
const EXPLICIT: usize = 8;

/// The most plain bytes of a record.
const PLAIN: usize = 16 * 1024;

/// Content types.
const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;

/// Levels of alerts.
const WARNING: u8 = 1;
const FATAL: u8 = 2;

/// Both directions of a connection.
pub(super) struct Records {
    form: Form,
    reading: Half,
    writing: Half,
    /// How many records may be encrypted with one key.
    most: u64,
    /// Makes new keys.
    keys: KernelConnection<ServerConnectionData>,
    /// The certificate that the client showed, if it was asked for one.
    peer: Option<CertificateDer<'static>>,
    /// Consecutive records without content.
    idle: u8,
    /// The peer has requested a key update: it precedes our next bytes, once for all requests until then. A peer that
    /// requests updates and never reads thus takes no memory.
    owes_keys: bool,
}

/// How a record is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Tls13,
    Tls12Gcm,
    Tls12ChaCha,
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Records({} read, {} written)", self.reading.used(), self.writing.used())
    }
}

impl Form {
    /// The bytes between the header and the ciphertext.
    fn explicit(self) -> usize {
        if self == Self::Tls12Gcm { EXPLICIT } else { 0 }
    }

    /// The encrypted bytes besides the plaintext: TLS 1.3 hides the content type there.
    fn hidden(self) -> usize {
        usize::from(self == Self::Tls13)
    }
}

/// The additional data that TLS 1.2 authenticates with a content of `length` bytes (RFC 5246, section 6.2.3.3).
fn additional(sequence: u64, kind: u8, version: [u8; 2], length: usize) -> [u8; 13] {
    let mut data = [0; 13];
    data[..8].copy_from_slice(&sequence.to_be_bytes());
    data[8] = kind;
    data[9..11].copy_from_slice(&version);
    data[11..].copy_from_slice(&(length as u16).to_be_bytes());
    data
}

impl Records {
    /// Takes over from rustls, whose handshake has to be over and all of it sent.
    pub(super) fn new(connection: UnbufferedServerConnection) -> Result<Self, Error> {
        let peer = connection.peer_certificates().and_then(<[_]>::first).cloned();
        let (secrets, keys) = connection.dangerous_into_kernel_connection()?;
        let suite = keys.negotiated_cipher_suite();
        let form = match (&suite, &secrets.tx.1) {
            (SupportedCipherSuite::Tls13(_), _) => Form::Tls13,
            (_, ConnectionTrafficSecrets::Chacha20Poly1305 { .. }) => Form::Tls12ChaCha,
            _ => Form::Tls12Gcm,
        };
        let most = match suite {
            SupportedCipherSuite::Tls13(suite) => suite.common.confidentiality_limit,
            SupportedCipherSuite::Tls12(suite) => suite.common.confidentiality_limit,
        };
        let (reading, writing) = (Half::new(secrets.rx)?, Half::new(secrets.tx)?);
        Ok(Self { form, reading, writing, most, keys, peer, idle: 0, owes_keys: false })
    }

    /// The version in use.
    pub(super) fn version(&self) -> ProtocolVersion {
        self.keys.protocol_version()
    }

    /// The certificate that the client showed, and that was found to be good.
    pub(super) fn peer_certificate(&self) -> Option<&CertificateDer<'static>> {
        self.peer.as_ref()
    }

    /// Before this many records are sealed: new keys, where they are owed, or would be used up.
    fn renew_keys(&mut self, records: usize, out: &mut Wire) -> Result<(), Error> {
        let is_used_up = self.writing.used().saturating_add(records as u64) > self.most;
        if is_used_up || self.owes_keys { self.change_keys(is_used_up, out) } else { Ok(()) }
    }

    /// Sends with a new key from here on, and asks the other side to do so, too, if it `is_to_follow`. Under TLS 1.2 there
    /// is no way to.
    pub(super) fn change_keys(&mut self, is_to_follow: bool, out: &mut Wire) -> Result<(), Error> {
        if self.form != Form::Tls13 {
            return Err(general("TLS 1.2 has no new keys for a connection that has used up its own"));
        }
        let next = self.keys.update_tx_secret().and_then(Half::new)?;
        self.seal_one(HANDSHAKE, &[24, 0, 0, 1, u8::from(is_to_follow)], out)?;
        self.writing = next;
        self.owes_keys = false;
        Ok(())
    }
}

fn general(what: &str) -> Error {
    Error::General(what.to_owned())
}
