//! Passwords as they are kept: never as text.
//!
//! A password that was given in clear (a flag, an embedding program) becomes a MAC under a key that is drawn when the
//! process starts; one from a file is an argon2id hash in PHC form. Either way, what is compared is compared in
//! constant time, and no output shows it.

use std::fmt;
use std::sync::OnceLock;

use argon2::Params;

use super::argon2id::{Argon2id, Memory};
pub use super::argon2id::{PasswordError, random};
use super::hash::Hash;

/// A password to compare with: `"text".into()`, or [`Password::hashed`].
#[derive(Clone, Debug)]
pub struct Password(pub(super) Kept);

#[derive(Clone, Debug)]
pub(super) enum Kept {
    /// Given in clear; kept as a MAC that only this process can make.
    Plain(Mac),
    /// Given as a hash.
    Hashed(Box<Hash>),
    /// No password.
    Nothing,
}

impl Password {
    /// None: whatever a client says is wrong.
    pub fn none() -> Self {
        Self(Kept::Nothing)
    }

    /// Takes over a hash that [`hash_password`] or another program made: argon2id, bcrypt, scrypt, yescrypt,
    /// SHA-512-crypt or SHA-256-crypt.
    pub fn hashed(phc: &str) -> Result<Self, PasswordError> {
        Hash::parse(phc).map(|hash| Self(Kept::Hashed(Box::new(hash))))
    }

    /// Returns true if this is the password. A hash takes its time.
    pub fn matches(&self, password: &[u8]) -> bool {
        match &self.0 {
            Kept::Plain(right) => Mac::of(b"", password) == *right,
            Kept::Hashed(hash) => hash.verify(password, &mut Memory::default()),
            Kept::Nothing => false,
        }
    }
}

impl From<&[u8]> for Password {
    fn from(text: &[u8]) -> Self {
        Self(Kept::Plain(Mac::of(b"", text)))
    }
}

impl From<&str> for Password {
    fn from(text: &str) -> Self {
        text.as_bytes().into()
    }
}

impl From<&String> for Password {
    fn from(text: &String) -> Self {
        text.as_bytes().into()
    }
}

/// Makes the argon2id hash of a password, in PHC form, with a salt of its own.
///
/// The cost is the minimum of OWASP's password storage cheat sheet: 19 MiB, two passes, parallelism 1.
pub fn hash_password(password: &[u8]) -> String {
    Argon2id::compute(password, Params::DEFAULT).text()
}

/// A keyed hash of a user's name and password, fit to be compared and to be a key of a map.
///
/// The key is random and never leaves the process, so the MAC alone reveals nothing about the password. Equality takes
/// the same time wherever the two differ.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Mac(blake3::Hash);

impl Mac {
    /// Of a login with a hash: what was right with another hash is not remembered for this one.
    pub(super) fn with_hash(user: &[u8], password: &[u8], hash: &Hash) -> Self {
        Self::of(&[user, b"\0", hash.text().as_bytes()].concat(), password)
    }

    pub(super) fn of(user: &[u8], password: &[u8]) -> Self {
        static KEY: OnceLock<[u8; 32]> = OnceLock::new();
        let mut hasher = blake3::Hasher::new_keyed(KEY.get_or_init(random));
        // The length keeps ("ab", "c") and ("a", "bc") apart.
        hasher.update(&(user.len() as u64).to_le_bytes());
        hasher.update(user);
        hasher.update(password);
        Self(hasher.finalize())
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Mac")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the tests of the reference implementation in C: the password is `password`.
    const FOREIGN: &str =
        "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

    fn cheap(password: &[u8]) -> Argon2id {
        Argon2id::compute(password, Params::new(64, 1, 1, None).unwrap())
    }

    #[test]
    fn a_hash_verifies_its_password_only() {
        let phc = hash_password(b"s\xffcret");
        assert!(phc.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{phc}");
        let hash = Argon2id::parse(&phc).unwrap();
        assert!(hash.verify(b"s\xffcret", &mut Memory::default()));
        assert!(!hash.verify(b"s\xffcret ", &mut Memory::default()));
        assert!(!hash.verify(b"", &mut Memory::default()));
    }

    #[test]
    fn hashes_of_other_programs_verify() {
        let hash = Argon2id::parse(FOREIGN).unwrap();
        assert!(hash.verify(b"password", &mut Memory::default()));
        assert!(!hash.verify(b"passwore", &mut Memory::default()));
    }

    #[test]
    fn two_hashes_of_a_password_differ_in_salt() {
        assert_ne!(cheap(b"secret").text(), cheap(b"secret").text());
    }

    #[test]
    fn a_decoy_costs_the_same_and_matches_nothing() {
        let hash = cheap(b"secret");
        let decoy = hash.decoy();
        assert_eq!(decoy.cost(), hash.cost());
        assert!(!decoy.verify(b"secret", &mut Memory::default()));
    }

    #[test]
    fn texts_that_are_no_argon2id_hash_are_refused() {
        let other = |name: &str| PasswordError::Algorithm(name.to_owned());
        let table = [
            ("", PasswordError::NotAHash),
            ("secret", PasswordError::NotAHash),
            ("$", PasswordError::NotAHash),
            ("$$", PasswordError::NotAHash),
            ("se$cr$et", PasswordError::NotAHash),
            ("$1$salt$hash", other("1")),
            ("$2b$12$abcdefghijklmnopqrstuv", PasswordError::Damaged),
            ("$argon2i$v=19$m=64,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA", other("argon2i")),
            (&FOREIGN[..60], PasswordError::Damaged),
            ("$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHQ", PasswordError::Damaged),
            ("$argon2id$v=18$m=64,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA", PasswordError::Damaged),
            ("$argon2id$v=19$m=1,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA", PasswordError::Damaged),
            (
                "$argon2id$v=19$m=4194304,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA",
                PasswordError::Memory(4_194_304),
            ),
        ];
        for (text, expected) in table {
            assert_eq!(Password::hashed(text).unwrap_err(), expected, "{text}");
        }
    }

    #[test]
    fn macs_keep_user_and_password_apart() {
        assert!(Mac::of(b"ab", b"c") == Mac::of(b"ab", b"c"));
        assert!(Mac::of(b"ab", b"c") != Mac::of(b"a", b"bc"));
        assert!(Mac::of(b"", b"secret") != Mac::of(b"secret", b""));
    }

    #[test]
    fn nothing_printed_shows_a_password() {
        assert_eq!(format!("{:?}", Password::from("secret")), "Password(Plain(Mac))");
        let hashed = Password(Kept::Hashed(Box::new(Hash::Argon2id(Box::new(cheap(b"secret"))))));
        assert_eq!(format!("{hashed:?}"), "Password(Hashed(Argon2id(m=64,t=1,p=1)))");
    }
}
