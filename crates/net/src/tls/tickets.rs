//! Tickets that say whose they are.
//!
//! Every ticket, and every session id of TLS 1.2, that a control connection gives out carries the number of that
//! control connection. A data connection resumes only with one of its own; a ticket of another control connection is
//! recorded, and reported after the handshake ([`Binding::take_foreign`]).
//!
//! The keys are the process's alone and change every six hours; rustls keeps them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::server::{ProducesTickets, StoresServerSessions};

use super::hello::Hello;

/// Sessions of TLS 1.2 without tickets that one control connection keeps: the control connection's own,
/// and those of its last data connections, whose ids a client may prefer.
const KEPT: usize = 4;

/// A control connection, as its tickets know it.
pub(super) struct Binding {
    number: u64,
    keys: Arc<dyn ProducesTickets>,
    /// A ticket of another control connection was shown.
    foreign: AtomicBool,
    /// Its client resumes under TLS 1.2 only.
    tls12: AtomicBool,
    /// TLS 1.2 by session id. Locked for a look at four entries.
    sessions: Mutex<Vec<(Vec<u8>, Vec<u8>)>>,
}

impl std::fmt::Debug for Binding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Binding({})", self.number)
    }
}

impl Binding {
    /// A control connection like no other of this process.
    pub(super) fn new(keys: Arc<dyn ProducesTickets>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (foreign, tls12) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { number, keys, foreign, tls12, sessions: Mutex::default() }
    }

    /// From now on its data connections are to be of TLS 1.2, as it is itself.
    pub(super) fn limit_to_tls12(&self) {
        self.tls12.store(true, Ordering::Relaxed);
    }

    /// Returns true if they are.
    pub(super) fn is_limited_to_tls12(&self) -> bool {
        self.tls12.load(Ordering::Relaxed)
    }

    /// The owner of a ticket, and its content; `None` where it cannot be decrypted.
    fn open(&self, ticket: &[u8]) -> Option<(u64, Vec<u8>)> {
        let mut text = self.keys.decrypt(ticket)?;
        let (number, _) = text.split_first_chunk()?;
        let number = u64::from_be_bytes(*number);
        text.drain(..size_of::<u64>());
        Some((number, text))
    }

    /// Returns true if it keeps a session of this id, as it stands in a hello.
    fn has_session(&self, id: &[u8]) -> bool {
        // rustls's key is the id's encoding, with its length before it.
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        !id.is_empty() && sessions.iter().any(|(kept, _)| kept.get(1..) == Some(id))
    }

    /// Returns true if a ticket of another control connection was shown since the last call.
    pub(super) fn take_foreign(&self) -> bool {
        self.foreign.swap(false, Ordering::Relaxed)
    }
}

impl ProducesTickets for Binding {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.keys.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.keys.encrypt(&[&self.number.to_be_bytes(), plain].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        // An unreadable ticket is too old, or another server's: a full handshake follows.
        let (number, text) = self.open(ticket)?;
        if number != self.number {
            self.foreign.store(true, Ordering::Relaxed);
            return None;
        }
        Some(text)
    }
}

/// Tells by the ClientHello of a data connection whether it belongs to a control connection. The handshake may still
/// fail: a client that shows a ticket has yet to prove that it has the keys.
#[derive(Debug, Clone)]
pub struct TicketId(pub(super) Arc<Binding>);

impl TicketId {
    /// Returns true if the client shows a ticket, or a session id, that this control connection has given out.
    pub fn is_shown_by(&self, hello: &Hello) -> bool {
        let is_own =
            |ticket: &Vec<u8>| self.0.open(ticket).is_some_and(|(number, _)| number == self.0.number);
        hello.tickets.iter().any(is_own) || self.0.has_session(&hello.session_id)
    }
}

impl StoresServerSessions for Binding {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if sessions.len() == KEPT {
            // The first is the control connection's, which most clients show again and again.
            sessions.remove(1);
        }
        sessions.push((key, value));
        true
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.iter().find(|(kept, _)| kept == key).map(|(_, value)| value.clone())
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let at = sessions.iter().position(|(kept, _)| kept == key)?;
        Some(sessions.remove(at).1)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_its_own_sessions_only() {
        let keys = rustls::crypto::ring::Ticketer::new().unwrap();
        let (one, other) = (Binding::new(Arc::clone(&keys)), Binding::new(keys));
        let ticket = one.encrypt(b"secret").unwrap();
        assert_eq!(one.decrypt(&ticket).as_deref(), Some(&b"secret"[..]));
        assert!(!one.take_foreign());
        assert_eq!(other.decrypt(&ticket), None);
        assert!(other.take_foreign());
        assert!(!other.take_foreign(), "told once");
        assert_eq!(other.decrypt(b"garbage"), None);
        assert!(!other.take_foreign(), "an unreadable ticket belongs to no connection");
    }

    #[test]
    fn a_ticket_id_knows_its_own_tickets_and_sessions() {
        let keys = rustls::crypto::ring::Ticketer::new().unwrap();
        let one = Arc::new(Binding::new(Arc::clone(&keys)));
        let (one, other) = (TicketId(one), TicketId(Arc::new(Binding::new(keys))));
        one.0.put(b"\x02id".to_vec(), b"session".to_vec());
        let ticket = |badge: &TicketId| badge.0.encrypt(b"secret").unwrap();
        for (hello, is_ones, is_others) in [
            (Hello { tickets: vec![b"garbage".to_vec(), ticket(&one)], ..Hello::default() }, true, false),
            (Hello { tickets: vec![ticket(&other)], ..Hello::default() }, false, true),
            (Hello { session_id: b"id".to_vec(), ..Hello::default() }, true, false),
            (Hello::default(), false, false),
        ] {
            assert_eq!(
                (one.is_shown_by(&hello), other.is_shown_by(&hello)),
                (is_ones, is_others),
                "{hello:?}"
            );
        }
        assert!(!one.0.take_foreign(), "to look is not to be shown");
    }

    #[test]
    fn the_control_connections_session_outlives_many_others() {
        let binding = Binding::new(rustls::crypto::ring::Ticketer::new().unwrap());
        binding.put(b"control".to_vec(), b"first".to_vec());
        for number in 0..100u8 {
            binding.put(vec![number], vec![number]);
        }
        assert_eq!(binding.get(b"control").as_deref(), Some(&b"first"[..]));
        assert_eq!(binding.get(&[99]).as_deref(), Some(&[99][..]));
        assert_eq!(binding.get(&[0]), None);
    }
}
