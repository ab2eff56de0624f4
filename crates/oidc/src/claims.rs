//! What an ID token claims, and the checks of it (OpenID Connect Core 1.0, section 3.1.3.7).

use serde::Deserialize;
use serde_json::{Map, Value};

use super::error::TokenError;
use super::keys::Keys;

/// How far the clock of the provider may be off, in seconds.
const SKEW: u64 = 60;

/// What the claims are checked by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    pub(super) client: &'a str,
    pub(super) nonce: &'a str,
    /// In seconds since 1970.
    pub(super) now: u64,
}

/// The claims of a token that was accepted.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Claims {
    iss: String,
    pub(super) sub: String,
    aud: Audience,
    azp: Option<String>,
    exp: f64,
    iat: f64,
    nbf: Option<f64>,
    nonce: Option<String>,
    /// All others.
    #[serde(flatten)]
    pub(super) more: Map<String, Value>,
}

/// For whom a token is.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Audience {
    fn clients(&self) -> &[String] {
        match self {
            Self::One(client) => std::slice::from_ref(client),
            Self::Many(clients) => clients,
        }
    }
}

/// Verifies an ID token, and returns its claims.
pub(super) fn accept(token: &str, keys: &Keys, expected: Expected<'_>) -> Result<Claims, TokenError> {
    let payload = keys.verify(token)?;
    let claims: Claims = serde_json::from_slice(&payload).map_err(|_| TokenError::Malformed)?;
    claims.check(expected)?;
    Ok(claims)
}

impl Claims {
    fn check(&self, expected: Expected<'_>) -> Result<(), TokenError> {
        let Expected { issuer, client, nonce, now } = expected;
        let clients = self.aud.clients();
        let is_party = |party: &String| party == client;
        let is_ours = clients.iter().any(is_party)
            && match &self.azp {
                Some(party) => is_party(party),
                None => clients.len() == 1,
            };
        let (earliest, latest) = (now.saturating_sub(SKEW) as f64, (now + SKEW) as f64);
        match () {
            () if self.iss != issuer => Err(TokenError::Issuer),
            () if !is_ours => Err(TokenError::Audience),
            () if self.exp <= earliest => Err(TokenError::Expired),
            () if self.iat > latest || self.nbf.is_some_and(|begin| begin > latest) => Err(TokenError::Early),
            () if self.nonce.as_deref() != Some(nonce) => Err(TokenError::Nonce),
            () if self.sub.is_empty() => Err(TokenError::Subject),
            () => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: u64 = 1_800_000_000;

    /// Checks the claims of a right token of which one is changed.
    fn check(claim: &str, value: Value) -> Result<(), TokenError> {
        let mut claims = json!({
            "iss": "https://id.example.net", "sub": "ann", "aud": "millrace", "exp": NOW + 300, "iat": NOW,
            "nonce": "n1",
        });
        claims[claim] = value;
        let claims: Claims = serde_json::from_value(claims).map_err(|_| TokenError::Malformed)?;
        claims.check(Expected { issuer: "https://id.example.net", client: "millrace", nonce: "n1", now: NOW })
    }

    #[test]
    fn tokens_for_this_client_and_login_are_accepted() {
        for (claim, value) in [
            ("aud", json!(["millrace"])),
            ("azp", json!("millrace")),
            ("exp", json!(NOW - 59)),
            ("iat", json!(NOW + 60)),
            ("nbf", json!(NOW)),
            ("groups", json!(["staff"])),
        ] {
            assert_eq!(check(claim, value.clone()), Ok(()), "{claim}: {value}");
        }
    }

    #[test]
    fn tokens_of_others_for_others_and_of_other_times_are_refused() {
        for (claim, value, why) in [
            ("iss", json!("https://id.example.net/"), TokenError::Issuer),
            ("iss", json!("https://evil.example"), TokenError::Issuer),
            ("aud", json!("other"), TokenError::Audience),
            ("aud", json!([]), TokenError::Audience),
            ("aud", json!(["millrace", "other"]), TokenError::Audience),
            ("azp", json!("other"), TokenError::Audience),
            ("exp", json!(NOW - 60), TokenError::Expired),
            ("exp", json!("never"), TokenError::Malformed),
            ("iat", json!(NOW + 61), TokenError::Early),
            ("nbf", json!(NOW + 61), TokenError::Early),
            ("nonce", json!("n2"), TokenError::Nonce),
            ("nonce", Value::Null, TokenError::Nonce),
            ("sub", json!(""), TokenError::Subject),
            ("sub", Value::Null, TokenError::Malformed),
        ] {
            assert_eq!(check(claim, value.clone()), Err(why), "{claim}: {value}");
        }
    }
}
