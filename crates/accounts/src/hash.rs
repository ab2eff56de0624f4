//! Password hashes of every kind that is accepted: argon2id, which `millrace hash-password` makes, and those
//! that accounts bring along from elsewhere.
//!
//! A hash is looked at once, when it is read, so that one that cannot be computed (damaged, or with costs that would
//! exhaust the machine) is reported then and not at a login. Hashes that a computer guesses by the billion a second
//! (MD5, SHA-1, DES) are refused by name.

use std::fmt;

use scrypt::Scrypt;
use scrypt::password_hash::PasswordVerifier;
use sha_crypt::ShaCrypt;
use yescrypt::Yescrypt;

use super::argon2id::{Argon2id, Memory, PasswordError, random};

/// A hash with the salt and costs that it was made with.
#[derive(Clone)]
pub(super) enum Hash {
    Argon2id(Box<Argon2id>),
    Foreign(Kind, Box<str>),
}

/// A hash other than argon2id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `$2a$`, `$2b$`, `$2y$`
    Bcrypt,
    /// `$scrypt$`
    Scrypt,
    /// `$7$`, the form of crypt(3) and libsodium
    CryptScrypt,
    /// `$5$` and `$6$`: SHA-256 and SHA-512
    ShaCrypt,
    /// `$y$`, the default of Debian and others for `/etc/shadow`
    Yescrypt,
}

/// Identifiers, kinds, and the least length that a whole hash has.
const KINDS: &[(&str, Kind, usize)] = &[
    ("2a", Kind::Bcrypt, 60),
    ("2b", Kind::Bcrypt, 60),
    ("2y", Kind::Bcrypt, 60),
    ("scrypt", Kind::Scrypt, 50),
    ("7", Kind::CryptScrypt, 50),
    ("5", Kind::ShaCrypt, 47),
    ("6", Kind::ShaCrypt, 90),
    ("y", Kind::Yescrypt, 50),
];

/// Two passes of argon2id over 2 GiB: some seconds. Beyond that a login would be an outage.
const MOST: u64 = 4 << 20;

impl Hash {
    pub(super) fn parse(text: &str) -> Result<Self, PasswordError> {
        let identifier = text.strip_prefix('$').and_then(|rest| rest.split_once('$'));
        let known = identifier.and_then(|(name, _)| KINDS.iter().find(|(known, _, _)| *known == name));
        let Some(&(_, kind, least)) = known else {
            return Argon2id::parse(text).map(Box::new).map(Self::Argon2id);
        };
        let hash = Self::Foreign(kind, text.into());
        match estimate(kind, text) {
            _ if text.len() < least || !text.is_ascii() => Err(PasswordError::Damaged),
            None => Err(PasswordError::Damaged),
            Some(cost) if cost > MOST => Err(PasswordError::Costly),
            Some(_) => Ok(hash),
        }
    }

    /// Returns true if `password` is the one that was hashed. Takes milliseconds.
    pub(super) fn verify(&self, password: &[u8], memory: &mut Memory) -> bool {
        match self {
            Self::Argon2id(hash) => hash.verify(password, memory),
            // A password that contains NUL was refused long before; bcrypt itself ends at it.
            Self::Foreign(Kind::Bcrypt, text) => bcrypt::verify(password, text).unwrap_or(false),
            Self::Foreign(Kind::Scrypt, text) => scrypt::password_hash::phc::PasswordHash::new(text)
                .is_ok_and(|hash| Scrypt::default().verify_password(password, &hash).is_ok()),
            Self::Foreign(Kind::CryptScrypt, text) => scrypt::mcf::PasswordHashRef::new(text)
                .is_ok_and(|hash| Scrypt::default().verify_password(password, hash).is_ok()),
            Self::Foreign(Kind::ShaCrypt, text) => {
                ShaCrypt::default().verify_password(password, &**text).is_ok()
            }
            Self::Foreign(Kind::Yescrypt, text) => {
                Yescrypt::default().verify_password(password, &**text).is_ok()
            }
        }
    }

    /// The cost of a check, in KiB that argon2id would write in that time.
    pub(super) fn cost(&self) -> u64 {
        match self {
            Self::Argon2id(hash) => hash.cost(),
            Self::Foreign(kind, text) => estimate(*kind, text).unwrap_or(MOST),
        }
    }

    /// Returns whether a check of the other takes as long.
    pub(super) fn costs_as(&self, other: &Self) -> bool {
        let kind = |hash: &Self| match hash {
            Self::Argon2id(_) => None,
            Self::Foreign(kind, _) => Some(*kind),
        };
        kind(self) == kind(other) && self.cost() == other.cost()
    }

    /// A hash whose password is unknown, as costly to check as this one.
    pub(super) fn decoy(&self) -> Self {
        match self {
            Self::Argon2id(hash) => Self::Argon2id(Box::new(hash.decoy())),
            // The same, but for a tag that a random password will not have: it is the cost that matters.
            Self::Foreign(kind, text) => Self::Foreign(*kind, text.clone()),
        }
    }

    /// Distinguishes hashes, so that a success with one does not count for another.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Argon2id(hash) => hash.text(),
            Self::Foreign(_, text) => text.to_string(),
        }
    }

    /// Takes the time of a check that fails.
    pub(super) fn pretend(&self, password: &[u8], memory: &mut Memory) {
        // A decoy may be a real user's hash: so the checked password is not the one that was typed.
        let other = [password, &random::<16>()].concat();
        std::hint::black_box(self.verify(&other, memory));
    }
}

/// The cost as in [`Hash::cost`]; `None` where the text is damaged. On a core of 2026 argon2id writes some 2 GiB
/// a second, scrypt a quarter of that; a round of bcrypt takes 60 us, one of SHA-512-crypt 1 us.
fn estimate(kind: Kind, text: &str) -> Option<u64> {
    let fields: Vec<&str> = text.split('$').collect();
    let memory = |log: u32, r: u64, p: u64| 1u64.checked_shl(log)?.checked_mul(r * p)?.checked_div(2);
    match kind {
        Kind::Bcrypt => {
            fields.get(2)?.parse::<u32>().ok().filter(|cost| (4..=31).contains(cost)).map(|c| 120 << c)
        }
        Kind::ShaCrypt => match fields.get(2)?.strip_prefix("rounds=") {
            None => Some(10_000),
            Some(rounds) => rounds.parse::<u64>().ok()?.checked_mul(2),
        },
        Kind::Scrypt => {
            let parameter = |name: &str| {
                let found =
                    fields.get(2)?.split(',').find_map(|one| one.strip_prefix(name)?.strip_prefix('='));
                found?.parse::<u32>().ok().filter(|value| *value < 1 << 16)
            };
            memory(parameter("ln")?, parameter("r")?.into(), parameter("p")?.into())
        }
        Kind::CryptScrypt => {
            let digits = fields.get(2)?.as_bytes();
            let (r, p) = (number64(digits.get(1..6)?)?, number64(digits.get(6..11)?)?);
            memory(number64(digits.get(..1)?)? as u32, r.min(1 << 16), p.min(1 << 16))
        }
        // `j9T`: flags, the logarithm of N less 1, r less 1.
        Kind::Yescrypt => {
            let digits = fields.get(2)?.as_bytes();
            memory(number64(digits.get(1..2)?)? as u32 + 1, number64(digits.get(2..3)?)? + 1, 1)
        }
    }
}

/// A number in the digits of crypt(3), the lowest first.
fn number64(digits: &[u8]) -> Option<u64> {
    const DIGITS: &[u8] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    digits.iter().rev().try_fold(0, |number, digit| {
        let value = DIGITS.iter().position(|known| known == digit)?;
        Some(number << 6 | value as u64)
    })
}

impl fmt::Debug for Hash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argon2id(hash) => hash.fmt(formatter),
            Self::Foreign(kind, _) => write!(formatter, "{kind:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All of `s3cret word`. Made by libxcrypt 4.4 (crypt(3) of Debian 12); the `$scrypt$` one by OpenSSL's scrypt.
    const FOREIGN: &[&str] = &[
        "$6$saltstring$Qp0P2VMSypSuGQh9JQl0/vDFCzAo8IBhVgMUoDt2VjdsbqJHuSBHx7ioLWrAfnEHayAFe97v9sD1Z8EeTbGP3/",
        "$6$rounds=10000$saltstringsaltst$jV2OlKCT8bDB3Qbu7ah.yAU2RIOtFsDxZ9vRcuNpuUvaUM8tt2otafZmA/FJ.Voq0HiR.XlDbcghFMcI.jKGq.",
        "$5$saltstring$28QW3QyYXmSZpK594YfVZe/8mvAO6D2VIPowcphSWa6",
        "$2b$04$abcdefghijklmnopqrstuu9F2qeZTNt/fOkdkl8f2kRrQa6WVPPdy",
        "$2y$05$abcdefghijklmnopqrstuuDM.KJwaIBUdFNSI0sjlLSPixyAOKFFm",
        "$2a$05$abcdefghijklmnopqrstuuDM.KJwaIBUdFNSI0sjlLSPixyAOKFFm",
        "$y$j75$saltsaltsalt$Feh5/40dBtHgMuaS.1QdupsyZdQMD48SBrXvkhPavV7",
        "$scrypt$ln=10,r=8,p=1$c2FsdHNhbHRzYWx0$yS2FcXGegqyTrylZUlkuQHqy5qDzlPgHvW2HE9Sl0uQ",
    ];

    /// From the tests of libsodium's and RustCrypto's scrypt: the password is `pleaseletmein`.
    const SODIUM: &str = "$7$CU..../....Mq4YHD2syxYT.MsH1Ek0n1$JyHIxez0DOwm0r6.kAIohc8UFBOLU4xX8a1wGBpLrw7";

    #[test]
    fn hashes_of_other_systems_verify_their_password_only() {
        let memory = &mut Memory::default();
        for text in FOREIGN {
            let hash = Hash::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert!(hash.verify(b"s3cret word", memory), "{text}");
            assert!(!hash.verify(b"s3cret worf", memory) && !hash.verify(b"", memory), "{text}");
        }
        assert!(Hash::parse(SODIUM).unwrap().verify(b"pleaseletmein", memory));
    }

    #[test]
    fn damaged_and_ruinous_hashes_are_refused_when_they_are_read() {
        for text in FOREIGN {
            assert!(Hash::parse(&text[..text.len() / 2]).is_err(), "{text}");
        }
        for text in [
            "$2b$31$abcdefghijklmnopqrstuu9F2qeZTNt/fOkdkl8f2kRrQa6WVPPdy",
            "$scrypt$ln=30,r=8,p=1$c2FsdHNhbHRzYWx0$yS2FcXGegqyTrylZUlkuQHqy5qDzlPgHvW2HE9Sl0uQ",
            "$5$rounds=900000000$saltstring$28QW3QyYXmSZpK594YfVZe/8mvAO6D2VIPowcphSWa6",
        ] {
            assert_eq!(Hash::parse(text).unwrap_err(), PasswordError::Costly, "{text}");
        }
        for weak in ["$1$salt$hash", "$apr1$salt$hash", "{SHA}abc", "abcdefghijklm"] {
            assert!(Hash::parse(weak).is_err(), "{weak}");
        }
    }

    #[test]
    fn nothing_printed_shows_a_hash() {
        assert_eq!(format!("{:?}", Hash::parse(FOREIGN[3]).unwrap()), "Bcrypt");
    }
}
