//! Reads PEM files (RFC 7468). Where the wanted section is missing, the error says what the file holds instead, and
//! what to do.
//!
//! The invariant: no secret is ever quoted.

use std::fmt::{self, Display};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustls::pki_types::pem::{Error, PemObject};

use super::calls::call;
use super::der::{self, BIT_STRING, INTEGER, SEQUENCE, VERSION};
use super::load_error::LoadError;

/// A file is read so far. Lists of what was taken back can be long.
const LONGEST: u64 = 64 << 20;

/// What a file is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Certificate,
    Key,
    Revocations,
}

impl Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Certificate => "certificate",
            Self::Key => "private key",
            Self::Revocations => "revocation list",
        })
    }
}

impl Wanted {
    /// The words in the line that begins it.
    fn label(self) -> &'static str {
        match self {
            Self::Certificate => "CERTIFICATE",
            Self::Key => "PRIVATE KEY",
            Self::Revocations => "X509 CRL",
        }
    }

    /// The command that converts DER to PEM.
    fn command(self) -> &'static str {
        match self {
            Self::Certificate => "openssl x509 -inform DER",
            Self::Key => "openssl pkey -inform DER",
            Self::Revocations => "openssl crl -inform DER",
        }
    }
}

const SWAPPED: &str = "the files of certificate and key may have been swapped";

/// Sections that users have in their files by mistake, by label: what they are, and the remedy.
const INSTEAD: [(&str, &str, &str); 16] = [
    ("CERTIFICATE", "a certificate", SWAPPED),
    ("PRIVATE KEY", "a private key", SWAPPED),
    ("RSA PRIVATE KEY", "a private key", SWAPPED),
    ("EC PRIVATE KEY", "a private key", SWAPPED),
    ("ENCRYPTED PRIVATE KEY", "a private key", SWAPPED),
    (
        "EC PARAMETERS",
        "the name of a curve (EC PARAMETERS)",
        "make a key with openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256",
    ),
    ("PUBLIC KEY", "a public key", "name the file with the private one"),
    ("RSA PUBLIC KEY", "a public key", "name the file with the private one"),
    (
        "DSA PRIVATE KEY",
        "a key for DSA, which TLS no longer has",
        "make one for RSA, P-256, P-384 or Ed25519",
    ),
    (
        "OPENSSH PRIVATE KEY",
        "a key in the format of OpenSSH",
        "write a copy of it as PEM with ssh-keygen -p -N \"\" -m PKCS8 -f COPY",
    ),
    ("CERTIFICATE REQUEST", "a request for a certificate", "name the certificate that a CA has made of it"),
    (
        "NEW CERTIFICATE REQUEST",
        "a request for a certificate",
        "name the certificate that a CA has made of it",
    ),
    (
        "TRUSTED CERTIFICATE",
        "a certificate in a form of OpenSSL's own",
        "write it anew with openssl x509 -in OLD -out NEW",
    ),
    ("PKCS7", "a bundle (PKCS #7)", "take it apart with openssl pkcs7 -print_certs -in OLD -out NEW"),
    ("CMS", "a bundle (CMS)", "take it apart with openssl pkcs7 -print_certs -in OLD -out NEW"),
    ("X509 CRL", "a revocation list", "name it with tls-client-crl"),
];

/// Everything of a kind in a file, of which there is at least one.
pub(super) fn all<T: PemObject>(path: &Path, wanted: Wanted) -> Result<Vec<T>, LoadError> {
    some(path, wanted, |text| T::pem_slice_iter(text).collect())
}

/// The first of a kind in a file.
pub(super) fn first<T: PemObject>(path: &Path, wanted: Wanted) -> Result<T, LoadError> {
    some(path, wanted, |text| T::pem_slice_iter(text).take(1).collect()).map(|mut found| found.swap_remove(0))
}

/// Returns the sections of a file, or an error if there are none.
fn some<T>(
    path: &Path,
    wanted: Wanted,
    find: impl FnOnce(&[u8]) -> Result<Vec<T>, Error>,
) -> Result<Vec<T>, LoadError> {
    let text = read(path).map_err(|error| LoadError::Unread(path.to_owned(), error))?;
    let found = if is_encrypted(&text, wanted) { Ok(Vec::new()) } else { find(&text) };
    let why = match found {
        Ok(found) if !found.is_empty() => return Ok(found),
        // A revocation list that was cut off before its first section would revoke nothing.
        Ok(_) => missing(&text, wanted),
        Err(error) => broken(&text, wanted, &error),
    };
    Err(LoadError::File(path.to_owned(), why))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let file = call(|| File::open(path))?;
    call(|| file.take(LONGEST).read_to_end(&mut text))?;
    Ok(text)
}

/// The labels of the sections, from their first lines.
fn labels(text: &[u8]) -> impl Iterator<Item = &str> {
    let lines = text.split(|byte| matches!(byte, b'\n' | b'\r'));
    lines.filter_map(|line| {
        let label = line.trim_ascii_end().strip_prefix(b"-----BEGIN ")?.strip_suffix(b"-----")?;
        std::str::from_utf8(label).ok()
    })
}

/// Returns true if a key is there, and can be read by those alone who know its passphrase.
fn is_encrypted(text: &[u8], wanted: Wanted) -> bool {
    // The older form: RFC 1421 section 4.6.1.1, which OpenSSL writes with -traditional.
    let in_lines = || {
        let mut lines = text.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"Proc-Type:"));
        lines.any(|line| line.trim_ascii_end().ends_with(b"ENCRYPTED"))
    };
    let is_plain = |label: &str| label.ends_with("PRIVATE KEY") && label != "ENCRYPTED PRIVATE KEY";
    wanted == Wanted::Key
        && (in_lines()
            || labels(text).any(|label| label == "ENCRYPTED PRIVATE KEY") && !labels(text).any(is_plain))
}

/// Why there is nothing of the kind in it.
fn missing(text: &[u8], wanted: Wanted) -> String {
    let label = wanted.label();
    if text.trim_ascii().is_empty() {
        return format!("it is empty, and a {wanted} in PEM belongs there");
    }
    if is_encrypted(text, wanted) {
        return "the private key is encrypted, and a server cannot ask for its passphrase; write it in \
                clear, for the server's user alone, with openssl pkey -in OLD -out NEW"
            .to_owned();
    }
    if text.starts_with(&[0xef, 0xbb, 0xbf])
        || text.starts_with(&[0xff, 0xfe])
        || text.starts_with(&[0xfe, 0xff])
    {
        return "it begins with a byte order mark, as editors of Windows write it; save it as plain ASCII"
            .to_owned();
    }
    match in_der(text) {
        Some(Der::Store) => {
            return "it is a store (PKCS #12: .p12, .pfx), and not PEM; take it apart with openssl pkcs12 -in OLD \
                    -nodes -out NEW"
                .to_owned();
        }
        Some(Der::One(found)) if found == wanted => {
            return format!(
                "it is DER, and not PEM; write it anew with {} -in OLD -out NEW",
                wanted.command()
            );
        }
        Some(Der::One(found)) => return format!("it is a {found} in DER, and no {wanted}; {SWAPPED}"),
        Some(Der::Other) => return format!("it is DER, and not PEM, and no {wanted}"),
        None => {}
    }
    let found: Vec<_> =
        labels(text).filter_map(|label| INSTEAD.iter().find(|(known, ..)| *known == label)).collect();
    // The curve stands in front of its key.
    match found.iter().find(|(label, ..)| *label != "EC PARAMETERS").or(found.first()) {
        Some((_, what, todo)) => format!("there is {what} in it, and no {wanted}; {todo}"),
        None => format!("there is no {wanted} in it, in PEM: it would begin with -----BEGIN {label}-----"),
    }
}

/// Why it cannot be read.
fn broken(text: &[u8], wanted: Wanted, error: &Error) -> String {
    match error {
        Error::MissingSectionEnd { .. } => {
            let last = labels(text).last().unwrap_or_else(|| wanted.label());
            format!("it is cut short: the line -----END {last}----- is missing; copy it again, as a whole")
        }
        Error::Base64Decode(_) => {
            "it is damaged: between its lines BEGIN and END there is something else than base64; copy it again, as a \
             whole"
                .to_owned()
        }
        Error::IllegalSectionStart { .. } => {
            "it is damaged: one of its lines -----BEGIN ...----- is not whole; copy it again".to_owned()
        }
        error => format!("it is no PEM: {error}"),
    }
}

/// The content of a DER file.
enum Der {
    One(Wanted),
    Store,
    Other,
}

/// By how its first values look; `None` where it is no DER.
fn in_der(text: &[u8]) -> Option<Der> {
    let mut file = der::Der(text);
    let mut outer = file.expect(SEQUENCE)?;
    let (first, inner) = outer.next()?;
    let second = outer.next().map(|(tag, _)| tag);
    let is_x509 = outer.next().is_some_and(|(tag, _)| tag == BIT_STRING);
    let begins_with = |tag| inner.0.first() == Some(&tag);
    file.0.is_empty().then_some(match (first, second) {
        (SEQUENCE, Some(SEQUENCE)) if is_x509 && begins_with(VERSION) => Der::One(Wanted::Certificate),
        (SEQUENCE, Some(SEQUENCE)) if is_x509 => Der::One(Wanted::Revocations),
        (INTEGER, Some(SEQUENCE)) if inner.0 == [3] => Der::Store,
        (INTEGER, Some(_)) => Der::One(Wanted::Key),
        _ => Der::Other,
    })
}
