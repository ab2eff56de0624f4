//! The keys of a provider (JSON Web Keys, RFC 7517), and the signatures that they verify (RFC 7515, 7518).

use millrace_http::base64;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};
use serde::Deserialize;

use super::error::TokenError;

/// What a signature is verified by.
#[derive(Clone, Copy)]
enum Algorithm {
    Rsa(&'static RsaParameters),
    /// A curve by its name in a key, and the length of a coordinate.
    Elliptic(&'static str, usize, &'static dyn VerificationAlgorithm),
    Edwards,
}

/// The algorithms that are accepted. All of them take a key pair: the client cannot sign.
const ALGORITHMS: [(&str, Algorithm); 10] = [
    ("RS256", Algorithm::Rsa(&RSA_PKCS1_2048_8192_SHA256)),
    ("RS384", Algorithm::Rsa(&RSA_PKCS1_2048_8192_SHA384)),
    ("RS512", Algorithm::Rsa(&RSA_PKCS1_2048_8192_SHA512)),
    ("PS256", Algorithm::Rsa(&RSA_PSS_2048_8192_SHA256)),
    ("PS384", Algorithm::Rsa(&RSA_PSS_2048_8192_SHA384)),
    ("PS512", Algorithm::Rsa(&RSA_PSS_2048_8192_SHA512)),
    ("ES256", Algorithm::Elliptic("P-256", 32, &ECDSA_P256_SHA256_FIXED)),
    ("ES384", Algorithm::Elliptic("P-384", 48, &ECDSA_P384_SHA384_FIXED)),
    ("EdDSA", Algorithm::Edwards),
    // Its new name (RFC 9864).
    ("Ed25519", Algorithm::Edwards),
];

/// The keys of a provider.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Keys {
    keys: Vec<Key>,
}

/// A public key. Members that it does not need are ignored.
#[derive(Debug, Default, Deserialize)]
struct Key {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
    n: Option<String>,
    e: Option<String>,
}

/// The head of a token.
#[derive(Deserialize)]
struct Head {
    alg: String,
    kid: Option<String>,
    /// Extensions that have to be understood: none is.
    crit: Option<serde_json::Value>,
}

impl Keys {
    /// Verifies the signature of a token, and returns its payload.
    pub(super) fn verify(&self, token: &str) -> Result<Vec<u8>, TokenError> {
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (head, payload) = signed.split_once('.').ok_or(TokenError::Malformed)?;
        let decoded = |text: &str| base64::decode(text.as_bytes()).ok_or(TokenError::Malformed);
        let head: Head = serde_json::from_slice(&decoded(head)?).map_err(|_| TokenError::Malformed)?;
        if head.crit.is_some() {
            return Err(TokenError::Malformed);
        }
        let known = ALGORITHMS.iter().find(|(name, _)| *name == head.alg);
        let Some((_, algorithm)) = known else { return Err(TokenError::Algorithm(head.alg)) };
        let signature = decoded(signature)?;
        let mut keys = self.keys.iter().filter(|key| key.may_have_signed(&head)).peekable();
        if keys.peek().is_none() {
            return Err(TokenError::UnknownKey);
        }
        match keys.any(|key| key.verifies(*algorithm, signed.as_bytes(), &signature)) {
            true => decoded(payload),
            false => Err(TokenError::Signature),
        }
    }
}

impl Key {
    /// Returns whether the key is for signatures of this algorithm, and is the one that the head names.
    fn may_have_signed(&self, head: &Head) -> bool {
        self.purpose.as_deref().is_none_or(|purpose| purpose == "sig")
            && self.alg.as_ref().is_none_or(|alg| *alg == head.alg)
            && head.kid.as_ref().is_none_or(|kid| self.kid.as_ref() == Some(kid))
    }

    /// Returns whether the signature of a message is by this key.
    fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        let number = |text: &Option<String>| base64::decode(text.as_ref()?.as_bytes());
        let of_bytes =
            |algorithm, key: Vec<u8>| UnparsedPublicKey::new(algorithm, key).verify(message, signature);
        let verified = match algorithm {
            Algorithm::Rsa(parameters) if self.kty == "RSA" => number(&self.n)
                .zip(number(&self.e))
                .map(|(n, e)| RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)),
            Algorithm::Elliptic(curve, length, algorithm)
                if self.kty == "EC" && self.crv.as_deref() == Some(curve) =>
            {
                let point = number(&self.x).zip(number(&self.y));
                let point = point.filter(|(x, y)| x.len() == length && y.len() == length);
                // An uncompressed point (SEC 1, section 2.3.3).
                point.map(|(x, y)| of_bytes(algorithm, [&[4], &x[..], &y[..]].concat()))
            }
            Algorithm::Edwards if self.kty == "OKP" && self.crv.as_deref() == Some("Ed25519") => {
                number(&self.x).map(|x| of_bytes(&ED25519, x))
            }
            _ => None,
        };
        verified.is_some_and(|verified| verified.is_ok())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    /// Tokens with the payload `{"sub":"ann"}` of every algorithm, and their keys, by the Python package joserfc 1.8.
    #[derive(Deserialize)]
    struct Vectors {
        keys: Keys,
        tokens: BTreeMap<String, String>,
    }

    fn vectors() -> Vectors {
        serde_json::from_str(include_str!("../tests/vectors.json")).unwrap()
    }

    fn token(head: &str, rest: &str) -> String {
        format!("{}.{rest}", base64::encode_url(head.as_bytes()))
    }

    #[test]
    fn signatures_of_every_algorithm_are_verified() {
        let Vectors { keys, tokens } = vectors();
        assert_eq!(tokens.len(), ALGORITHMS.len());
        for (algorithm, token) in &tokens {
            assert_eq!(keys.verify(token).as_deref(), Ok(&br#"{"sub":"ann"}"#[..]), "{algorithm}");
            let (head, rest) = token.split_once('.').unwrap();
            let (_, signature) = rest.split_once('.').unwrap();
            let forged = format!("{head}.{}.{signature}", base64::encode_url(br#"{"sub":"bob"}"#));
            assert_eq!(keys.verify(&forged), Err(TokenError::Signature), "{algorithm}");
        }
    }

    proptest! {
        /// A token that was changed anywhere is refused, or says what it said.
        #[test]
        fn a_changed_token_says_nothing_new(
            which in any::<Index>(),
            edits in vec((any::<Index>(), 0..4_usize, "[.A-Za-z0-9_=-]{0,3}"), 1..4),
        ) {
            let Vectors { keys, tokens } = vectors();
            let mut token = which.get(&tokens.into_values().collect::<Vec<_>>()).clone();
            for (at, length, piece) in edits {
                let at = at.index(token.len());
                let end = token.len().min(at + length);
                token.replace_range(at..end, &piece);
            }
            if let Ok(payload) = keys.verify(&token) {
                prop_assert_eq!(&payload[..], &br#"{"sub":"ann"}"#[..]);
            }
        }
    }

    #[test]
    fn algorithms_that_the_client_could_sign_by_and_unknown_ones_are_refused() {
        let Vectors { keys, tokens } = vectors();
        let (_, rest) = tokens["RS256"].split_once('.').unwrap();
        for algorithm in ["none", "None", "HS256", "RS1", "ES512", ""] {
            let wrong = token(&format!(r#"{{"alg":"{algorithm}"}}"#), rest);
            assert_eq!(keys.verify(&wrong), Err(TokenError::Algorithm(algorithm.to_owned())));
        }
        let other = token(r#"{"alg":"PS256"}"#, rest);
        assert_eq!(keys.verify(&other), Err(TokenError::Signature), "of another algorithm");
        for wrong in ["", ".", "..", "a.b", "!.!.!", &token(r#"{"alg":"RS256","crit":["b64"]}"#, rest)] {
            assert_eq!(keys.verify(wrong), Err(TokenError::Malformed), "{wrong}");
        }
    }

    #[test]
    fn the_key_is_the_one_that_the_head_names_and_is_for_signatures() {
        let Vectors { mut keys, tokens } = vectors();
        let (_, rest) = tokens["ES256"].split_once('.').unwrap();
        let named = token(r#"{"alg":"ES256","kid":"2026"}"#, rest);
        assert_eq!(keys.verify(&named), Err(TokenError::UnknownKey));
        keys.keys.iter_mut().for_each(|key| key.purpose = Some("enc".to_owned()));
        assert_eq!(keys.verify(&tokens["ES256"]), Err(TokenError::UnknownKey));
        assert_eq!(Keys::default().verify(&tokens["ES256"]), Err(TokenError::UnknownKey));
    }
}
