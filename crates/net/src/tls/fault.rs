//! Describes TLS errors in words that a log's reader understands.

use std::borrow::Cow;
use std::fmt;

use rustls::{CertificateError, Error};

/// A TLS error: the other side's, or one of the keys.
#[derive(Debug, Clone)]
pub struct Fault(pub(super) Error);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Error::InvalidCertificate(error) => {
                write!(f, "the other side's certificate is not good: {}", of_certificate(error))
            }
            other => other.fmt(f),
        }
    }
}

impl std::error::Error for Fault {}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

/// Describes a certificate error.
fn of_certificate(error: &CertificateError) -> Cow<'static, str> {
    use CertificateError as Wrong;
    let words = match error {
        Wrong::BadEncoding => "it cannot be read",
        Wrong::Expired | Wrong::ExpiredContext { .. } => "it has expired",
        Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => "its time has not begun",
        Wrong::Revoked => "it was taken back",
        Wrong::UnknownIssuer => "no trusted authority has issued it",
        Wrong::UnknownRevocationStatus => "its revocation status is unknown",
        Wrong::ExpiredRevocationList | Wrong::ExpiredRevocationListContext { .. } => {
            "the list that says whether it was taken back is too old"
        }
        Wrong::BadSignature => "its signature is wrong",
        Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => "it is for another name",
        Wrong::InvalidPurpose | Wrong::InvalidPurposeContext { .. } => "it is for another purpose",
        Wrong::Other(other) => return Cow::Owned(other_words(&other.to_string())),
        error => return Cow::Owned(other_words(&format!("{error:?}"))),
    };
    Cow::Borrowed(words)
}

/// A name from the inside of a library, `UnsupportedCertVersion`, as words.
fn other_words(name: &str) -> String {
    let name = name.trim_start_matches("OtherError(").trim_end_matches(')');
    match name {
        "CaUsedAsEndEntity" => {
            return "it is that of a CA, which speaks for others and not for itself".to_owned();
        }
        "UnsupportedCertVersion" => return "it is not of version 3".to_owned(),
        _ => {}
    }
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let mut words = String::new();
    for (at, char) in name.char_indices() {
        match char {
            'A'..='Z' if is_name && at > 0 => words.extend([' ', char.to_ascii_lowercase()]),
            'A'..='Z' if is_name => words.push(char.to_ascii_lowercase()),
            char => words.push(char),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_do_not_use_the_names_of_the_library() {
        for (error, words) in [
            (CertificateError::UnknownIssuer, "no trusted authority has issued it"),
            (CertificateError::UnhandledCriticalExtension, "unhandled critical extension"),
        ] {
            let fault = Fault::from(Error::InvalidCertificate(error));
            assert_eq!(fault.to_string(), format!("the other side's certificate is not good: {words}"));
        }
        for (name, words) in [
            (
                "OtherError(CaUsedAsEndEntity)",
                "it is that of a CA, which speaks for others and not for itself",
            ),
            ("PathLenConstraintViolated", "path len constraint violated"),
            ("what a library says in words", "what a library says in words"),
        ] {
            assert_eq!(other_words(name), words);
        }
    }
}
