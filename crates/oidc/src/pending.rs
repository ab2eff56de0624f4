//! Logins that are under way: begun here, and not come back from the provider yet.
//!
//! A login is known by its `state`, which the provider sends back, and by a cookie, which only the browser that began it has.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use millrace_http::base64;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

use super::error::LoginError;

/// How long a user may take at the provider, in seconds.
pub(super) const LONGEST: u64 = 600;

/// Logins under way at a time; the next takes the place of the oldest.
const MOST: usize = 4096;

/// A login that has begun.
#[derive(Debug, Clone)]
pub struct Begun {
    /// The page of the provider, where the user logs in.
    pub url: String,
    /// What the browser shows at the end, as a cookie.
    pub browser: String,
}

/// A login under way.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Login {
    pub(super) browser: String,
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
        let (browser, nonce, verifier) = (secret()?, secret()?, secret()?);
        Ok(Self { browser, nonce, verifier, redirect: redirect.to_owned(), begun: now })
    }
}

/// All of them, by their states.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Locked for a look.
    logins: Mutex<HashMap<String, Login>>,
}

impl Pending {
    /// Adds the login of a state.
    pub(super) fn add(&self, state: &str, login: Login) {
        let now = login.begun;
        let mut logins = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        if logins.len() >= MOST {
            logins.retain(|_, login| login.begun + LONGEST > now);
        }
        if logins.len() >= MOST {
            let oldest = logins.iter().min_by_key(|(_, login)| login.begun).map(|(state, _)| state.clone());
            oldest.iter().for_each(|state| drop(logins.remove(state)));
        }
        logins.insert(state.to_owned(), login);
    }

    /// Takes the login of a state, if it is of this browser and not too old. There is one try.
    pub(super) fn take(&self, state: &str, browser: &str, now: u64) -> Result<Login, LoginError> {
        let login = self.logins.lock().unwrap_or_else(PoisonError::into_inner).remove(state);
        let is_good = |login: &Login| login.browser == browser && login.begun + LONGEST > now;
        login.filter(is_good).ok_or(LoginError::Unknown)
    }
}

/// Returns 256 random bits as a text for URLs.
pub(super) fn secret() -> Result<String, LoginError> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| LoginError::Random)?;
    Ok(base64::encode_url(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_ends_once_in_its_browser_and_in_time() {
        let pending = Pending::default();
        let begin = || {
            let login = Login::new("https://a/oidc", 1000).unwrap();
            let browser = login.browser.clone();
            let state = secret().unwrap();
            pending.add(&state, login);
            (state, browser)
        };
        let (state, browser) = begin();
        assert!(pending.take(&state, &browser, 1599).is_ok());
        assert!(pending.take(&state, &browser, 1001).is_err(), "it was taken");
        let (state, browser) = begin();
        assert!(pending.take(&state, "another", 1001).is_err());
        assert!(pending.take(&state, &browser, 1001).is_err(), "there is one try");
        let (state, browser) = begin();
        assert!(pending.take(&state, &browser, 1600).is_err(), "it took too long");
    }

    #[test]
    fn a_flood_of_logins_takes_the_place_of_the_oldest() {
        let pending = Pending::default();
        pending.add("first", Login::new("", 1000).unwrap());
        let others: Vec<_> = (0..MOST).map(|number| number.to_string()).collect();
        others.iter().for_each(|state| pending.add(state, Login::new("", 1001).unwrap()));
        let logins = pending.logins.lock().unwrap();
        assert_eq!(logins.len(), MOST);
        assert!(!logins.contains_key("first") && others.iter().all(|state| logins.contains_key(state)));
    }
}
