//! The answers to a CA's HTTP challenge (http-01, RFC 8555 section 8.3).
//!
//! The invariant: an answer exists from the moment when the CA is told to ask until the order is over, and reveals
//! nothing that the CA does not know. It needs no login.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use millrace_net::tls::{Acceptor, LoadError};

/// Where a CA asks.
const PLACE: &[u8] = b"/.well-known/acme-challenge/";

/// The tokens that a CA may ask for now.
#[derive(Debug, Default)]
pub struct Tokens {
    /// Whether there is one: all that other requests pay for.
    any: AtomicBool,
    /// Tokens with their answers. Locked for a look at a few.
    pending: RwLock<Vec<(String, String)>>,
}

impl Tokens {
    /// The answer to a request for this target, as it was written; `None` where it is not a challenge.
    pub fn answer(&self, target: &[u8]) -> Option<String> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let token = target.strip_prefix(PLACE)?;
        let pending = self.pending.read().unwrap_or_else(PoisonError::into_inner);
        pending.iter().find(|(known, _)| known.as_bytes() == token).map(|(_, answer)| answer.clone())
    }

    fn change(&self, change: impl FnOnce(&mut Vec<(String, String)>)) {
        let mut pending = self.pending.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut pending);
        self.any.store(!pending.is_empty(), Ordering::Relaxed);
    }
}

/// A challenge's answer, available until this is dropped.
pub enum Shown<'a> {
    /// A token, with its answer.
    Token(&'a Tokens, String),
    /// A certificate for this name.
    Certificate(&'a Acceptor, String),
}

impl<'a> Shown<'a> {
    /// By HTTP.
    pub fn token(tokens: &'a Tokens, token: &str, answer: &str) -> Self {
        tokens.change(|pending| pending.push((token.to_owned(), answer.to_owned())));
        Self::Token(tokens, token.to_owned())
    }

    /// By TLS.
    #[cfg(feature = "client")]
    pub(super) fn certificate(acceptor: &'a Acceptor, name: &str, digest: &[u8]) -> Result<Self, LoadError> {
        acceptor.show_challenge(name, digest)?;
        Ok(Self::Certificate(acceptor, name.to_owned()))
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        match self {
            Self::Token(tokens, token) => {
                tokens.change(|pending| pending.retain(|(other, _)| other != token))
            }
            Self::Certificate(acceptor, name) => acceptor.forget_challenge(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_pending_token_is_answered() {
        let tokens = Tokens::default();
        let answer = |target: &str| tokens.answer(target.as_bytes());
        let one = Shown::token(&tokens, "abc", "abc.thumb");
        let other = Shown::token(&tokens, "def", "def.thumb");
        assert_eq!(answer("/.well-known/acme-challenge/abc").as_deref(), Some("abc.thumb"));
        for target in ["/.well-known/acme-challenge/", "/.well-known/acme-challenge/ab", "/abc", "/", "", "*"]
        {
            assert_eq!(answer(target), None, "{target}");
        }
        assert_eq!(answer("/.well-known/acme-challenge/abc?x"), None);
        drop(one);
        assert_eq!(answer("/.well-known/acme-challenge/abc"), None);
        assert_eq!(answer("/.well-known/acme-challenge/def").as_deref(), Some("def.thumb"));
        drop(other);
        assert_eq!(answer("/.well-known/acme-challenge/def"), None);
    }
}
