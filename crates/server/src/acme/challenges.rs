//! What a CA is answered that asks by HTTP who has a name (http-01, RFC 8555 section 8.3).
//!
//! The invariant: an answer is there from when the CA is told to ask until the order is over, and says nothing that the
//! CA does not know. Nobody needs an account for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use millrace_net::tls::Acceptor;

/// Where a CA asks.
const PLACE: &[u8] = b"/.well-known/acme-challenge/";

/// The tokens that a CA may ask for now.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    /// Whether there is one: all that other requests pay for.
    any: AtomicBool,
    /// Tokens with their answers. Locked for a look at a few.
    pending: RwLock<Vec<(String, String)>>,
}

impl Tokens {
    /// What is to be answered to a request for this, as it was written; `None` where it is no business of a CA's.
    pub(crate) fn answer(&self, target: &[u8]) -> Option<String> {
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

/// An answer that is there for as long as this is.
pub(super) enum Shown<'a> {
    Token(&'a Tokens, String),
    Certificate(&'a Acceptor, String),
}

impl<'a> Shown<'a> {
    /// By HTTP.
    pub(super) fn token(tokens: &'a Tokens, token: &str, answer: &str) -> Self {
        tokens.change(|pending| pending.push((token.to_owned(), answer.to_owned())));
        Self::Token(tokens, token.to_owned())
    }

    /// By TLS.
    pub(super) fn certificate(acceptor: &'a Acceptor, name: &str, digest: &[u8]) -> Result<Self, String> {
        acceptor.show_challenge(name, digest).map_err(|error| error.to_string())?;
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
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::sync::Arc;
    use std::time::Duration;

    use millrace_storage::MemoryStorage;

    use super::*;
    use crate::config::LogFormat;
    use crate::{Accounts, Config, Permissions, Server};

    /// The answer is given before anything else is looked at; not before it is known whether a body is in the way.
    #[test]
    fn what_stands_in_the_body_of_a_request_for_a_token_is_no_request() {
        let accounts = Accounts::new().anonymous(Permissions::READ_ONLY, Arc::new(MemoryStorage::new()));
        let running = Server::start(Config {
            ftp: Vec::new(),
            http: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            workers: 1,
            anonymous: true,
            log: LogFormat::Off,
            ..Config::new(Arc::new(accounts))
        })
        .unwrap();
        let _shown = Shown::token(&running.state.acme.tokens, "abc", "abc.thumb");
        let ask = |line: &str, body: &str| {
            format!("{line} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        };
        let before = ask("PROPFIND /", "<propfind xmlns=\"DAV:\"><allprop/></propfind>");
        let asked = ask("GET /.well-known/acme-challenge/abc", &ask("GET /never", ""));
        let mut client = TcpStream::connect(running.http_addresses()[0]).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        client.write_all((before + &asked).as_bytes()).unwrap();
        let mut answers = String::new();
        client.read_to_string(&mut answers).expect("the connection ends behind the token");
        assert!(answers.ends_with("\r\n\r\nabc.thumb"), "{answers}");
    }

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
