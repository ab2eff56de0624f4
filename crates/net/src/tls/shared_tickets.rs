//! Tickets of HTTPS that several servers accept: their keys are derived from secrets that those servers share.
//!
//! Each secret makes the key for a while, and its tickets are accepted for a while longer. Before there is a secret, and
//! when the last one is too old, tickets are the process's own, which no other server accepts. Those of FTPS always are:
//! they belong to one control connection (`tickets.rs`).
//!
//! The invariant: a key is not used for longer than [`SEALS`], and opens nothing after [`OPENS`], however long no new secret
//! comes.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::server::ProducesTickets;

/// How long a secret makes tickets at most. The next one comes after six hours.
const SEALS: Duration = Duration::from_secs(12 * 3600);

/// How long its tickets are accepted: it is replaced after about six hours, and the last ticket is good for six more.
const OPENS: Duration = Duration::from_secs(13 * 3600);

/// How long a ticket is good, in seconds.
const LIFETIME: u32 = 6 * 3600;

/// How long a new secret waits for all servers to have it, where there is an older one.
const WARM_UP: Duration = Duration::from_secs(120);

/// The length of a key's name, which precedes its tickets.
const NAME: usize = 16;

/// The longest ticket that is looked at. A session takes some hundred bytes.
const LONGEST: usize = 4096;

/// What the name and the key of a secret are derived by.
const NAME_LABEL: &[&[u8]] = &[b"name"];
const KEY_LABEL: &[&[u8]] = &[b"key"];

/// A secret that several servers have.
#[derive(Clone, Copy)]
pub struct TicketSecret {
    /// Random bytes.
    pub bytes: [u8; 32],
    /// When it was made.
    pub made: Instant,
}

impl fmt::Debug for TicketSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketSecret").field("made", &self.made).finish_non_exhaustive()
    }
}

/// The key of a secret.
struct SharedKey {
    name: [u8; NAME],
    key: LessSafeKey,
    made: Instant,
}

/// This many bytes of a derived key.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl SharedKey {
    /// Derives it. Names and keys of a secret are independent of one another, and of what else is derived from it.
    fn derive(secret: &TicketSecret) -> Option<Self> {
        let root: Prk = Salt::new(HKDF_SHA256, b"millrace tls tickets").extract(&secret.bytes);
        let mut name = [0; NAME];
        root.expand(NAME_LABEL, Length(NAME)).ok()?.fill(&mut name).ok()?;
        let key = UnboundKey::from(root.expand(KEY_LABEL, &CHACHA20_POLY1305).ok()?);
        Some(Self { name, key: LessSafeKey::new(key), made: secret.made })
    }

    /// Key name, nonce, ciphertext. The nonce is random: 2^32 tickets of one key keep a collision less likely than 2^-32.
    fn seal(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let mut sealed = plain.to_vec();
        let nonce_of_key = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce_of_key, Aad::from(self.name), &mut sealed).ok()?;
        Some([&self.name[..], &nonce, &sealed].concat())
    }

    fn open(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let plain = self.key.open_in_place(nonce, Aad::from(self.name), &mut sealed).ok()?;
        Some(plain.to_vec())
    }
}

/// Makes and reads tickets: with the keys of shared secrets, or else with the process's own.
pub(super) struct SharedTickets {
    own: Arc<dyn ProducesTickets>,
    /// The newest first. Locked for a clone or a swap.
    shared: RwLock<Arc<[Arc<SharedKey>]>>,
}

impl fmt::Debug for SharedTickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedTickets")
    }
}

impl SharedTickets {
    /// With the process's own keys alone.
    pub(super) fn new(own: Arc<dyn ProducesTickets>) -> Self {
        Self { own, shared: RwLock::new(Arc::new([])) }
    }

    /// Uses the keys of these secrets from now on.
    pub(super) fn share(&self, secrets: &[TicketSecret]) {
        let mut keys: Vec<_> = secrets.iter().filter_map(SharedKey::derive).map(Arc::new).collect();
        keys.sort_by_key(|key| std::cmp::Reverse(key.made));
        *self.shared.write().unwrap_or_else(PoisonError::into_inner) = keys.into();
    }

    /// Returns the keys that may still be used, and forgets the others.
    fn keys(&self, now: Instant) -> Arc<[Arc<SharedKey>]> {
        let keys = Arc::clone(&self.shared.read().unwrap_or_else(PoisonError::into_inner));
        let is_old = |key: &Arc<SharedKey>| now.saturating_duration_since(key.made) >= OPENS;
        if !keys.iter().any(is_old) {
            return keys;
        }
        let mut shared = self.shared.write().unwrap_or_else(PoisonError::into_inner);
        *shared = shared.iter().filter(|key| !is_old(key)).map(Arc::clone).collect();
        Arc::clone(&shared)
    }

    fn encrypt_at(&self, plain: &[u8], now: Instant) -> Option<Vec<u8>> {
        let keys = self.keys(now);
        let age = |key: &SharedKey| now.saturating_duration_since(key.made);
        let usable = || keys.iter().filter(|key| age(key) < SEALS);
        let warm = usable().find(|key| age(key) >= WARM_UP);
        match warm.or_else(|| usable().next_back()) {
            Some(key) => key.seal(plain),
            None => self.own.encrypt(plain),
        }
    }

    fn decrypt_at(&self, ticket: &[u8], now: Instant) -> Option<Vec<u8>> {
        let keys = self.keys(now);
        // Names are no secret: every ticket shows one.
        let named = ticket.split_first_chunk::<NAME>().and_then(|(name, sealed)| {
            let key = keys.iter().find(|key| key.name == *name)?;
            Some((key, sealed))
        });
        match named {
            Some((key, sealed)) => (sealed.len() <= LONGEST).then(|| key.open(sealed))?,
            None => self.own.decrypt(ticket),
        }
    }
}

impl ProducesTickets for SharedTickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        let are_shared = !self.shared.read().unwrap_or_else(PoisonError::into_inner).is_empty();
        let own = self.own.lifetime();
        if are_shared { LIFETIME.min(own) } else { own }
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.encrypt_at(plain, Instant::now())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.decrypt_at(ticket, Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn tickets() -> SharedTickets {
        SharedTickets::new(rustls::crypto::ring::Ticketer::new().unwrap())
    }

    fn secret(byte: u8, made: Instant) -> TicketSecret {
        TicketSecret { bytes: [byte; 32], made }
    }

    #[test]
    fn a_ticket_of_one_server_is_good_at_another_with_the_same_secret_alone() {
        let (one, other, stranger, now) = (tickets(), tickets(), tickets(), Instant::now());
        let before = one.encrypt_at(b"before", now).unwrap();
        assert_eq!(one.lifetime(), one.own.lifetime(), "what a server alone says");
        assert_eq!(other.decrypt_at(&before, now), None);
        one.share(&[secret(1, now)]);
        other.share(&[secret(1, now)]);
        stranger.share(&[secret(2, now)]);
        let ticket = one.encrypt_at(b"session", now).unwrap();
        assert_eq!(other.decrypt_at(&ticket, now).as_deref(), Some(&b"session"[..]));
        assert_eq!(stranger.decrypt_at(&ticket, now), None);
        assert_eq!(one.decrypt_at(&before, now).as_deref(), Some(&b"before"[..]), "one's own are good, too");
        assert_ne!(one.encrypt_at(b"session", now), Some(ticket.clone()), "no two tickets look alike");
        for place in 0..ticket.len() {
            let mut broken = ticket.clone();
            broken[place] ^= 1;
            assert_eq!(other.decrypt_at(&broken, now), None, "{place}");
        }
        for length in 0..ticket.len() {
            assert_eq!(other.decrypt_at(&ticket[..length], now), None, "{length}");
        }
    }

    #[test]
    fn the_next_secret_makes_tickets_once_all_have_it_and_those_of_the_last_are_accepted() {
        let (one, other, now) = (tickets(), tickets(), Instant::now());
        let then = now + 6 * HOUR;
        one.share(&[secret(2, then), secret(1, now)]);
        other.share(&[secret(1, now)]);
        let early = one.encrypt_at(b"session", then + WARM_UP / 2).unwrap();
        assert!(other.decrypt_at(&early, then + WARM_UP / 2).is_some(), "the other knows the old one alone");
        let late = one.encrypt_at(b"session", then + WARM_UP).unwrap();
        assert!(other.decrypt_at(&late, then + WARM_UP).is_none());
        other.share(&[secret(1, now), secret(2, then)]);
        assert!(other.decrypt_at(&late, then + WARM_UP).is_some());
        assert!(other.decrypt_at(&early, now + 12 * HOUR).is_some());
        assert!(other.decrypt_at(&early, now + OPENS).is_none(), "it is too old");
        assert_eq!(other.keys(now).len(), 1, "it is forgotten");
    }

    #[test]
    fn without_new_secrets_a_server_makes_its_own_tickets_again() {
        let (one, other, now) = (tickets(), tickets(), Instant::now());
        one.share(&[secret(1, now)]);
        other.share(&[secret(1, now)]);
        let late = now + SEALS;
        let ticket = one.encrypt_at(b"session", late).unwrap();
        assert!(one.decrypt_at(&ticket, late).is_some() && other.decrypt_at(&ticket, late).is_none());
    }
}
