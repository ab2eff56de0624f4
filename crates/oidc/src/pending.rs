//! Logins that are under way: begun here, and not come back from the provider yet.
//!
//! The browser keeps its login, sealed in a cookie. The server keeps one key, and the numbers of the cookies that were shown last. So
//! no number of begun logins pushes another one out, and a reload of the configuration keeps them all.
//!
//! The invariant: a login is opened only with the key of this process, for the provider that it was begun at, with the `state`
//! that the provider sends back, in time and once.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use millrace_http::base64;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

use super::error::{LoginError, SetupError};

/// How long a user may take at the provider, in seconds.
pub(super) const LONGEST: u64 = 600;

/// Cookies whose numbers are kept once they were shown. A provider takes a code once, also of an older one.
const SHOWN: usize = 4096;

/// Bytes of a number, which a sealed login begins with.
const NUMBER: usize = size_of::<u64>();

/// A login that has begun.
#[derive(Debug, Clone)]
pub struct Begun {
    /// The page of the provider, where the user logs in.
    pub url: String,
    /// What the browser keeps as a cookie, and shows at the end.
    pub cookie: String,
}

/// A login under way.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Login {
    pub(super) state: String,
    pub(super) nonce: String,
    /// The secret of PKCE.
    pub(super) verifier: String,
    /// Where the provider sends the browser.
    pub(super) redirect: String,
    pub(super) begun: u64,
}

impl Login {
    /// A login of now, with secrets of its own.
    pub(super) fn new(redirect: &str, now: u64) -> Result<Self, LoginError> {
        let secret = || random().map(|bytes| base64::encode_url(&bytes)).ok_or(LoginError::Random);
        let (state, nonce, verifier) = (secret()?, secret()?, secret()?);
        Ok(Self { state, nonce, verifier, redirect: redirect.to_owned(), begun: now })
    }
}

/// Seals the logins of all providers of a process, and opens them again.
#[derive(Debug)]
pub struct Pending {
    key: LessSafeKey,
    /// Numbers the cookies, and is the nonce of each.
    next: AtomicU64,
    /// The highest numbers of those that were shown. Locked for a look.
    shown: Mutex<BTreeSet<u64>>,
}

impl Pending {
    /// With a key of its own.
    pub fn new() -> Result<Self, SetupError> {
        let key = random().and_then(|bytes| UnboundKey::new(&CHACHA20_POLY1305, &bytes).ok());
        let key = LessSafeKey::new(key.ok_or(SetupError::Random)?);
        Ok(Self { key, next: AtomicU64::default(), shown: Mutex::default() })
    }

    /// Seals a login at this provider. Returns the cookie.
    pub(super) fn seal(&self, login: &Login, provider: &str) -> Result<String, LoginError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut sealed = serde_json::to_vec(login).map_err(|_| LoginError::Unknown)?;
        let provider = Aad::from(provider.as_bytes());
        let tag = self.key.seal_in_place_separate_tag(nonce(number), provider, &mut sealed);
        let tag = tag.map_err(|_| LoginError::Unknown)?;
        Ok(base64::encode_url(&[&number.to_be_bytes(), &*sealed, tag.as_ref()].concat()))
    }

    /// Opens the login of a cookie and a state, if it was begun at this provider and is not too old. There is one try.
    pub(super) fn open(
        &self,
        cookie: &str,
        state: &str,
        provider: &str,
        now: u64,
    ) -> Result<Login, LoginError> {
        let (number, login) = self.unseal(cookie, provider).ok_or(LoginError::Unknown)?;
        let is_good = login.state == state && login.begun + LONGEST > now;
        if is_good && self.show(number) { Ok(login) } else { Err(LoginError::Unknown) }
    }

    fn unseal(&self, cookie: &str, provider: &str) -> Option<(u64, Login)> {
        let bytes = base64::decode(cookie.as_bytes())?;
        let (number, sealed) = bytes.split_first_chunk::<NUMBER>()?;
        let (number, mut sealed) = (u64::from_be_bytes(*number), sealed.to_vec());
        let provider = Aad::from(provider.as_bytes());
        let login = self.key.open_in_place(nonce(number), provider, &mut sealed).ok()?;
        Some((number, serde_json::from_slice(login).ok()?))
    }

    /// Returns whether a cookie is shown for the first time.
    fn show(&self, number: u64) -> bool {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = shown.insert(number);
        if shown.len() > SHOWN {
            shown.pop_first();
        }
        is_first
    }
}

/// Returns the nonce of a number, which is used once with the key.
fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[NONCE_LEN - NUMBER..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// Returns 256 random bits.
fn random() -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Begins a login in second 1000. Returns its state and its cookie.
    fn begin(pending: &Pending) -> (String, String) {
        let login = Login::new("https://a/oidc", 1000).unwrap();
        let cookie = pending.seal(&login, "https://id a").unwrap();
        (login.state, cookie)
    }

    #[test]
    fn a_login_ends_once_in_its_browser_and_in_time() {
        let pending = Pending::new().unwrap();
        let open = |state: &str, cookie: &str, now| pending.open(cookie, state, "https://id a", now);
        let (state, cookie) = begin(&pending);
        assert!(open("another", &cookie, 1001).is_err(), "the state of another login");
        assert_eq!(open(&state, &cookie, 1599).unwrap().redirect, "https://a/oidc");
        assert!(open(&state, &cookie, 1001).is_err(), "there is one try");
        let ((state, cookie), (_, other)) = (begin(&pending), begin(&pending));
        assert!(open(&state, &other, 1001).is_err(), "the cookie of another browser");
        assert!(open(&state, &cookie, 1600).is_err(), "it took too long");
        assert!(pending.open(&cookie, &state, "https://id b", 1001).is_err(), "begun at another provider");
        let of_other_process = Pending::new().unwrap();
        assert!(of_other_process.open(&cookie, &state, "https://id a", 1001).is_err());
        assert!(open(&state, &cookie, 1001).is_ok(), "none of these was a try");
    }

    #[test]
    fn a_cookie_that_was_changed_or_cut_is_refused_and_tells_nothing() {
        let pending = Pending::new().unwrap();
        let (state, cookie) = begin(&pending);
        let bytes = base64::decode(cookie.as_bytes()).unwrap();
        assert!(!bytes.windows(5).any(|window| window == b"https"), "it is sealed");
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            for wrong in [&changed[..], &bytes[..at]] {
                assert!(pending.unseal(&base64::encode_url(wrong), "https://id a").is_none(), "{at}");
            }
        }
        for wrong in ["", "!", "é", &cookie[1..]] {
            assert!(pending.open(wrong, &state, "https://id a", 1001).is_err(), "{wrong}");
        }
        assert!(pending.open(&cookie, &state, "https://id a", 1001).is_ok());
    }

    #[test]
    fn a_flood_of_logins_pushes_no_other_out_and_takes_no_memory() {
        let pending = Pending::new().unwrap();
        let (state, cookie) = begin(&pending);
        for number in 0..SHOWN + 100 {
            let (state, cookie) = begin(&pending);
            assert!(pending.open(&cookie, &state, "https://id a", 1001).is_ok(), "{number}");
        }
        assert_eq!(pending.shown.lock().unwrap().len(), SHOWN);
        assert!(pending.open(&cookie, &state, "https://id a", 1001).is_ok());
    }
}
