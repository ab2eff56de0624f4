//! Errors of the settings of rules and webhooks.

use thiserror::Error;

/// Why a setting cannot be used; a sentence without its full stop, and without secrets.
#[derive(Debug, Error)]
pub enum SettingError {
    /// The name of a header field is malformed.
    #[error("{0:?} is no name of a field of HTTP")]
    HeaderName(String),
    /// The value of a header field is malformed.
    #[error("{0:?} has a value that no field can have: write one line of ASCII")]
    HeaderValue(String),
    /// The server sends this header field itself.
    #[error("{0:?} is a field that the server sends itself")]
    OwnHeader(String),
    /// The header field is set already.
    #[error("{0:?} is there twice")]
    RepeatedHeader(String),
    /// The secret has the prefix of base64, and is none.
    #[error("what stands behind whsec_ in the secret is no base64; take it as the receiver has it")]
    SecretEncoding,
    /// The secret can be guessed.
    #[error("the secret is too short: at least {least} characters, such as `openssl rand -hex 32` makes")]
    ShortSecret {
        /// The least number of characters.
        least: usize,
    },
    /// The address is malformed, or not one of HTTP.
    #[error("{0:?} is no address of a receiver, such as \"http://127.0.0.1:8080/events\"")]
    Url(String),
    /// The address has a password in it.
    #[error(
        "a name or password in the address of a receiver would end in logs; write an Authorization in `headers`"
    )]
    UrlWithPassword,
    /// There is no such command.
    #[error("there is no command or method {0:?}, such as STOR, \"SITE CHMOD\" or PUT")]
    Verb(String),
    /// The reply code is not one of an error.
    #[error("{0} is no code of a refusal: those are 400 to 599")]
    RefusalCode(String),
    /// The command has no path that a rule could rewrite.
    #[error("{verb} {why}, so it cannot be rewritten")]
    Rewrite {
        /// The command.
        verb: String,
        /// What it has instead.
        why: &'static str,
    },
}
