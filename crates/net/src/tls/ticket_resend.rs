//! Tickets for as long as a control connection lasts (TLS 1.3).
//!
//! Some clients use each ticket once and keep only the last (OpenSSL's, so curl's), and a control connection may see
//! thousands of data connections. rustls sends tickets at the end of the handshake only. So the first ticket is kept,
//! and whenever a data connection has used one, the control connection sends it again: the same session, encrypted
//! anew, so that no two tickets look alike. A resumed session proves the keys of the handshake and agrees on new keys
//! of its own (psk_dhe_ke), so a resent ticket reveals nothing more than the first.
//!
//! rustls has no call for that; but the algorithms are ours to choose, and what seals a record is told what kind
//! it is of. [`provider`] is ring's, with one step between, which
//!
//! - keeps the tickets that pass ([`sealed`]), and
//! - takes plain bytes for a message of the handshake while [`as_handshake`] says so.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, LazyLock};

use ::ring::rand::{SecureRandom, SystemRandom};
use rustls::crypto::cipher::{
    AeadKey, Iv, MessageDecrypter, MessageEncrypter, OutboundOpaqueMessage, OutboundPlainMessage,
    Tls13AeadAlgorithm, UnsupportedOperationError,
};
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::ProducesTickets;
use rustls::{ConnectionTrafficSecrets, ContentType, SupportedCipherSuite, Tls13CipherSuite};

use super::tickets::Binding;

/// The beginning of a NewSessionTicket message: the lifetime in seconds, and the age's offset.
const LIFETIME: usize = 4;
const LIFETIME_AND_AGE: usize = 8;

/// The message that carries a ticket.
const NEW_SESSION_TICKET: u8 = 4;

thread_local! {
    /// The last tickets that this thread has sealed: the messages, one behind the other.
    static SEALED: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
    /// The next record carries a handshake message instead of application data.
    static AS_HANDSHAKE: Cell<bool> = const { Cell::new(false) };
}

/// ring's algorithms, with the step between.
pub(super) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        let mut provider = ring::default_provider();
        for suite in &mut provider.cipher_suites {
            let observed = OBSERVED.iter().find(|observed| observed.common.suite == suite.suite());
            if let Some(observed) = observed {
                *suite = SupportedCipherSuite::Tls13(observed);
            }
        }
        Arc::new(provider)
    });
    Arc::clone(&PROVIDER)
}

static ALGORITHMS: LazyLock<Vec<(&Tls13CipherSuite, Observed)>> = LazyLock::new(|| {
    let suites = ring::DEFAULT_CIPHER_SUITES.iter().filter_map(SupportedCipherSuite::tls13);
    suites.map(|suite| (suite, Observed(suite.aead_alg))).collect()
});

static OBSERVED: LazyLock<Vec<Tls13CipherSuite>> = LazyLock::new(|| {
    let observed = |(suite, algorithm): &'static (&'static Tls13CipherSuite, Observed)| Tls13CipherSuite {
        common: rustls::crypto::CipherSuiteCommon {
            suite: suite.common.suite,
            hash_provider: suite.common.hash_provider,
            confidentiality_limit: suite.common.confidentiality_limit,
        },
        hkdf_provider: suite.hkdf_provider,
        aead_alg: algorithm,
        quic: None,
    };
    ALGORITHMS.iter().map(observed).collect()
});

/// The messages encrypted since the last call.
pub(super) fn sealed() -> Option<Vec<u8>> {
    SEALED.take()
}

/// Does something that seals a message of the handshake.
pub(super) fn as_handshake<T>(seal: impl FnOnce() -> T) -> T {
    AS_HANDSHAKE.set(true);
    let result = seal();
    AS_HANDSHAKE.set(false);
    result
}

/// An algorithm whose sealing is watched.
struct Observed(&'static dyn Tls13AeadAlgorithm);

impl Tls13AeadAlgorithm for Observed {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        Box::new(Sealing(self.0.encrypter(key, iv)))
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        self.0.decrypter(key, iv)
    }

    fn key_len(&self) -> usize {
        self.0.key_len()
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.0.extract_keys(key, iv)
    }

    fn fips(&self) -> bool {
        self.0.fips()
    }
}

struct Sealing(Box<dyn MessageEncrypter>);

impl MessageEncrypter for Sealing {
    fn encrypt(
        &mut self,
        mut message: OutboundPlainMessage<'_>,
        number: u64,
    ) -> Result<OutboundOpaqueMessage, rustls::Error> {
        match message.typ {
            ContentType::Handshake => {
                let bytes = message.payload.to_vec();
                if bytes.first() == Some(&NEW_SESSION_TICKET) {
                    SEALED.set(Some(bytes));
                }
            }
            ContentType::ApplicationData if AS_HANDSHAKE.get() => message.typ = ContentType::Handshake,
            _ => {}
        }
        self.0.encrypt(message, number)
    }

    fn encrypted_payload_len(&self, length: usize) -> usize {
        self.0.encrypted_payload_len(length)
    }
}

/// A control connection's ticket, to be sealed again and again.
#[derive(Debug)]
pub(super) struct Renewal {
    binding: Arc<Binding>,
    /// `None` until the handshake is over, and under TLS 1.2.
    session: Option<Session>,
}

/// The session of a ticket.
#[derive(Debug)]
struct Session {
    /// The fields before the ticket in its message: lifetime, age_add (random for each ticket), nonce.
    head: Vec<u8>,
    /// The ticket's plaintext, for this server.
    plain: Vec<u8>,
}

impl Renewal {
    pub(super) fn new(binding: Arc<Binding>) -> Self {
        Self { binding, session: None }
    }

    /// The control connection that the tickets belong to.
    pub(super) fn binding(&self) -> &Binding {
        &self.binding
    }

    /// Stores the tickets in the messages that were encrypted.
    pub(super) fn keep(&mut self, messages: &[u8]) {
        let Some((head, ticket)) = parse(messages) else { return };
        let plain = self.binding.decrypt(ticket);
        self.session = plain.map(|plain| Session { head: head.to_vec(), plain });
    }

    /// The message of another ticket.
    pub(super) fn message(&self) -> Option<Vec<u8>> {
        let Session { head, plain } = self.session.as_ref()?;
        let ticket = self.binding.encrypt(plain)?;
        let length = head.len() + 2 + ticket.len() + 2;
        let mut message = Vec::with_capacity(4 + length);
        message.extend_from_slice(&u32::try_from(length).ok()?.to_be_bytes());
        message[0] = NEW_SESSION_TICKET;
        message.extend_from_slice(head);
        // Hides the ticket's age from an eavesdropper. The server would use it for early data only, which it does not
        // accept.
        let age_add = message.get_mut(4 + LIFETIME..4 + LIFETIME_AND_AGE)?;
        SystemRandom::new().fill(age_add).ok()?;
        message.extend_from_slice(&u16::try_from(ticket.len()).ok()?.to_be_bytes());
        message.extend_from_slice(&ticket);
        // No extensions: there is no early data.
        message.extend_from_slice(&[0, 0]);
        Some(message)
    }
}

/// The first message's part before the ticket, and the ticket (RFC 8446 section 4.6.1).
fn parse(messages: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&[_, high, middle, low], rest) = messages.split_first_chunk()?;
    let length = u32::from_be_bytes([0, high, middle, low]);
    let body = rest.get(..usize::try_from(length).ok()?)?;
    let nonce = usize::from(*body.get(LIFETIME_AND_AGE)?);
    let (head, rest) = body.split_at_checked(LIFETIME_AND_AGE + 1 + nonce)?;
    let (length, rest) = rest.split_first_chunk()?;
    Some((head, rest.get(..usize::from(u16::from_be_bytes(*length)))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renewal() -> Renewal {
        Renewal::new(Arc::new(Binding::new(ring::Ticketer::new().unwrap())))
    }

    #[test]
    fn a_resent_ticket_is_the_same_session_in_another_ticket() {
        let mut renewal = renewal();
        renewal.session = Some(Session {
            head: [&[0, 0, 1, 0, 9, 9, 9, 9][..], &[2, 7, 7]].concat(),
            plain: b"secret".to_vec(),
        });
        let (first, second) = (renewal.message().unwrap(), renewal.message().unwrap());
        let ages = [&first, &second].map(|message| message[8..12].to_vec());
        assert_ne!(ages[0], ages[1]);
        for message in [first, second] {
            let (head, ticket) = parse(&message).unwrap();
            assert_eq!((&head[..4], &head[8..]), (&[0, 0, 1, 0][..], &[2, 7, 7][..]));
            assert_eq!(renewal.binding.decrypt(ticket).unwrap(), b"secret");
            renewal.keep(&message);
            assert_eq!(renewal.session.as_ref().unwrap().plain, b"secret");
        }
    }

    #[test]
    fn other_messages_are_not_stored_as_tickets() {
        let mut renewal = renewal();
        for messages in [&b""[..], &[4, 0, 0], &[4, 0, 0, 1, 9], &[4, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 200]] {
            renewal.keep(messages);
            assert_eq!(renewal.message(), None);
        }
    }
}
