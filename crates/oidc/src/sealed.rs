//! Logins under way that any server of a cluster may finish: the browser keeps them, sealed with a key that all servers have.
//!
//! No server remembers them. That one is finished once is up to the provider, which takes a code once.

use std::time::Duration;

use millrace_http::base64;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

use super::error::LoginError;
use super::pending::{LONGEST, Login};

/// What the keys are derived by, and for.
const SALT: &[u8] = b"millrace oidc logins";
const LABEL: &[&[u8]] = &[b"key"];

/// How far the clocks of servers may be apart, in seconds.
const SKEW: u64 = 60;

/// The longest text that is looked at.
const LONGEST_TEXT: usize = 4096;

/// How old a secret is before it seals: by then all servers have it.
const WARM_UP: Duration = Duration::from_secs(120);

/// The keys of logins under way: all open. None where each server remembers its own.
#[derive(Debug, Default)]
pub struct Seals {
    keys: Vec<LessSafeKey>,
    /// The place of the one that seals.
    sealing: usize,
}

/// A login as a browser keeps it.
#[derive(Debug, Serialize, Deserialize)]
struct Sealed {
    /// The provider and the client that it was begun for.
    provider: String,
    login: Login,
}

impl Seals {
    /// Derives keys from secrets that all servers have, the newest first, and their ages. The newest that all know by now
    /// seals, or else the oldest.
    pub fn derive(secrets: &[([u8; 32], Duration)]) -> Self {
        let key = |(secret, _): &([u8; 32], Duration)| {
            let root = Salt::new(HKDF_SHA256, SALT).extract(secret);
            let key = UnboundKey::from(root.expand(LABEL, &CHACHA20_POLY1305).ok()?);
            Some(LessSafeKey::new(key))
        };
        let warm = secrets.iter().position(|(_, age)| *age >= WARM_UP);
        let sealing = warm.unwrap_or(secrets.len().saturating_sub(1));
        Self { keys: secrets.iter().filter_map(key).collect(), sealing }
    }

    /// Seals a login; `None` where there is no key.
    pub(super) fn seal(&self, provider: &str, login: &Login) -> Result<Option<String>, LoginError> {
        let Some(key) = self.keys.get(self.sealing) else { return Ok(None) };
        let sealed = Sealed { provider: provider.to_owned(), login: login.clone() };
        let mut text = serde_json::to_vec(&sealed).map_err(|_| LoginError::Unknown)?;
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(|_| LoginError::Random)?;
        let of_key = Nonce::assume_unique_for_key(nonce);
        key.seal_in_place_append_tag(of_key, Aad::empty(), &mut text).map_err(|_| LoginError::Random)?;
        Ok(Some(base64::encode_url(&[&nonce[..], &text].concat())))
    }

    /// Opens the login of a state, if it was begun with this provider and not too long ago.
    pub(super) fn open(&self, sealed: &str, provider: &str, state: &str, now: u64) -> Option<Login> {
        if self.keys.is_empty() || sealed.len() > LONGEST_TEXT {
            return None;
        }
        let bytes = base64::decode(sealed.as_bytes())?;
        let (nonce, text) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let open = |key: &LessSafeKey| {
            let mut text = text.to_vec();
            let nonce = Nonce::assume_unique_for_key(*nonce);
            let plain = key.open_in_place(nonce, Aad::empty(), &mut text).ok()?;
            serde_json::from_slice::<Sealed>(plain).ok()
        };
        let opened = self.keys.iter().find_map(open)?;
        let is_timely = opened.login.begun <= now + SKEW && now < opened.login.begun + LONGEST;
        let is_good = opened.provider == provider && opened.login.state == state && is_timely;
        is_good.then_some(opened.login)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Duration = Duration::from_secs(3600);

    const ISSUER: &str = "https://id.example.net";

    fn login() -> Login {
        Login::new("https://a/oidc", 1000).unwrap()
    }

    #[test]
    fn a_sealed_login_is_opened_with_the_same_secret_state_and_provider_and_in_time() {
        let (one, other) =
            (Seals::derive(&[([1; 32], OLD)]), Seals::derive(&[([2; 32], OLD), ([1; 32], OLD)]));
        let login = login();
        let (verifier, state) = (login.verifier.clone(), &*login.state);
        let sealed = one.seal(ISSUER, &login).unwrap().unwrap();
        assert!(!sealed.contains(&verifier) && sealed.len() < 1000);
        let opened = other.open(&sealed, ISSUER, state, 1599).unwrap();
        assert_eq!((opened.verifier, &*opened.redirect), (verifier, "https://a/oidc"));
        assert!(other.open(&sealed, ISSUER, "other", 1599).is_none());
        assert!(other.open(&sealed, "https://id.example.org", state, 1599).is_none());
        assert!(other.open(&sealed, ISSUER, state, 1600).is_none(), "it took too long");
        assert!(other.open(&sealed, ISSUER, state, 900).is_none(), "it is of the future");
        assert!(Seals::derive(&[([3; 32], OLD)]).open(&sealed, ISSUER, state, 1599).is_none());
        for wrong in ["", "x", "\u{e9}", &sealed[1..], &sealed[..sealed.len() - 2], &"A".repeat(9999)] {
            assert!(other.open(wrong, ISSUER, state, 1599).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn a_new_secret_seals_once_all_servers_have_it() {
        let login = login();
        let opens = |age: Duration, secret: u8| {
            let sealed =
                Seals::derive(&[([2; 32], age), ([1; 32], OLD)]).seal(ISSUER, &login).unwrap().unwrap();
            Seals::derive(&[([secret; 32], OLD)]).open(&sealed, ISSUER, &login.state, 1000).is_some()
        };
        assert!(opens(WARM_UP / 2, 1) && !opens(WARM_UP / 2, 2));
        assert!(opens(WARM_UP, 2) && !opens(WARM_UP, 1));
        let first = Seals::derive(&[([1; 32], Duration::ZERO)]);
        assert!(first.seal(ISSUER, &login).unwrap().is_some(), "there is no older one");
    }

    #[test]
    fn without_a_secret_nothing_is_sealed() {
        let none = Seals::default();
        assert!(none.seal(ISSUER, &login()).unwrap().is_none());
        assert!(none.open("", ISSUER, "state", 1000).is_none());
    }
}
