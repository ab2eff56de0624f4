//! Why a provider cannot be used, and why a login fails.

use thiserror::Error;

/// Why the settings of a provider are refused.
#[derive(Debug, Error)]
pub enum SetupError {
    /// An address that is no `https://` one.
    #[error("{0:?} is no https:// URL; http:// is for a provider on this computer alone")]
    Url(String),
    /// The file of certificates has none.
    #[error("there is no certificate in PEM")]
    NoCertificate,
    /// There are no random numbers.
    #[error("the system has no random numbers")]
    Random,
}

/// Why a login fails.
#[derive(Debug, Error)]
pub enum LoginError {
    /// The provider does not answer as it should.
    #[error("{url} does not answer: {source}")]
    Unreachable {
        /// What was asked.
        url: String,
        /// What went wrong.
        source: Box<ureq::Error>,
    },
    /// The answer is not of the expected form.
    #[error("the answer of {url} is not understood: {source}")]
    Malformed {
        /// What was asked.
        url: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The metadata is of another issuer, or names an address that is not encrypted.
    #[error("the metadata of the provider is refused: {0}")]
    Metadata(#[from] MetadataError),
    /// The user, or the provider, did not agree.
    #[error("the provider refuses it: {0}")]
    Refused(String),
    /// No login with this state is under way in this browser: it took too long, is done, or was begun elsewhere.
    #[error("no such login is under way in this browser")]
    Unknown,
    /// The response is of another issuer (RFC 9207).
    #[error("the response is of another issuer")]
    OtherIssuer,
    /// The ID token is not accepted.
    #[error("the ID token is refused: {0}")]
    Token(#[from] TokenError),
    /// The user information is of another user.
    #[error("the user information is of another user")]
    OtherUser,
    /// There are no random numbers.
    #[error("the system has no random numbers")]
    Random,
}

/// Why the metadata of a provider is refused.
#[derive(Debug, Error)]
pub enum MetadataError {
    /// Its issuer is another one.
    #[error("its issuer is {0:?}")]
    Issuer(String),
    /// An address in it is no `https://` one.
    #[error(transparent)]
    Url(#[from] SetupError),
}

/// Why an ID token is refused (OpenID Connect Core 1.0, section 3.1.3.7).
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TokenError {
    /// It is no JSON Web Signature in its compact form.
    #[error("it is no signed token")]
    Malformed,
    /// Its signature is of an algorithm that is not accepted, such as `none` or `HS256`.
    #[error("the algorithm {0:?} is not accepted")]
    Algorithm(String),
    /// The provider has no key that may have signed it.
    #[error("the provider has no such key")]
    UnknownKey,
    /// The signature does not match.
    #[error("the signature is wrong")]
    Signature,
    /// Another issuer made it.
    #[error("it is of another issuer")]
    Issuer,
    /// It was made for another client.
    #[error("it is for another client")]
    Audience,
    /// It has expired.
    #[error("it has expired")]
    Expired,
    /// It was made in the future.
    #[error("it is not valid yet")]
    Early,
    /// It belongs to another login.
    #[error("it belongs to another login")]
    Nonce,
    /// It names no user.
    #[error("it names no user")]
    Subject,
}
