//! Codes of an authenticator app as a second factor (TOTP, RFC 6238): six digits, SHA-1, 30 seconds.
//!
//! A code is good for its period and the one before and after it, for clocks that are slightly wrong. RFC 6238 has
//! each code accepted once only; here it is good once and then for the same address until it ends, because a
//! client that opens several connections sends the same words on each. From elsewhere it is refused.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use ring::hmac;

use super::password::Mac;

/// In seconds.
const PERIOD: i64 = 30;

/// Digits of a code.
pub(super) const DIGITS: usize = 6;

/// The secret shared by the server and the app.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

/// Bytes that a secret has at least: RFC 4226 asks for 128 bits.
const SHORTEST: usize = 16;

impl Secret {
    /// A new one, of 160 bits, as RFC 4226 recommends.
    pub fn random() -> Self {
        Self(super::password::random::<20>().to_vec())
    }

    /// Returns the URL by which an app takes it over for a user.
    pub fn url(&self, user: &str) -> String {
        let label: String = user
            .bytes()
            .map(|byte| match byte {
                _ if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => char::from(byte).to_string(),
                _ => format!("%{byte:02X}"),
            })
            .collect();
        format!("otpauth://totp/Millrace:{label}?secret={self}&issuer=Millrace")
    }

    /// The code that an app shows at a moment, in seconds since 1970.
    pub fn code_at(&self, now: i64) -> String {
        self.code(now.div_euclid(PERIOD))
    }

    /// Which period, by its number, a code belongs to, if it is good at this moment in seconds since 1970.
    pub(super) fn period_of(&self, code: &[u8], now: i64) -> Option<i64> {
        let current = now.div_euclid(PERIOD);
        let mut found = None;
        for period in current - 1..=current + 1 {
            // All are computed, and compared in the same time, whichever it is.
            if Mac::of(b"", self.code(period).as_bytes()) == Mac::of(b"", code) {
                found = Some(period);
            }
        }
        found
    }

    fn code(&self, period: i64) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &self.0);
        let tag = hmac::sign(&key, &period.to_be_bytes());
        let tag = tag.as_ref();
        let offset = usize::from(tag[tag.len() - 1] & 15);
        let word = [tag[offset] & 0x7f, tag[offset + 1], tag[offset + 2], tag[offset + 3]];
        format!("{:06}", u32::from_be_bytes(word) % 1_000_000)
    }
}

const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// In base32, as apps show it.
impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut bits, mut count) = (0u32, 0);
        for byte in &self.0 {
            bits = bits << 8 | u32::from(*byte);
            count += 8;
            while count >= 5 {
                count -= 5;
                write!(f, "{}", char::from(ALPHABET[(bits >> count & 31) as usize]))?;
            }
            bits &= (1 << count) - 1;
        }
        match count {
            0 => Ok(()),
            _ => write!(f, "{}", char::from(ALPHABET[(bits << (5 - count) & 31) as usize])),
        }
    }
}

/// A text that is no [`Secret`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a secret for codes is 26 or more letters A to Z and digits 2 to 7")]
pub struct SecretError;

impl FromStr for Secret {
    type Err = SecretError;

    /// With or without padding, spaces and capitals.
    fn from_str(text: &str) -> Result<Self, SecretError> {
        let wrong = || SecretError;
        let (mut bits, mut count, mut bytes) = (0u32, 0, Vec::new());
        for letter in text.bytes().filter(|byte| !matches!(byte, b' ' | b'=' | b'-')) {
            let value =
                ALPHABET.iter().position(|known| *known == letter.to_ascii_uppercase()).ok_or_else(wrong)?;
            bits = bits << 5 | value as u32;
            count += 5;
            if count >= 8 {
                count -= 8;
                bytes.push((bits >> count) as u8);
                bits &= (1 << count) - 1;
            }
        }
        if bytes.len() < SHORTEST { Err(wrong()) } else { Ok(Self(bytes)) }
    }
}

/// Never shown by accident.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Codes that were used for a login, and from where.
#[derive(Debug, Default)]
pub(super) struct Used {
    /// Guarded for a look-up.
    codes: Mutex<HashMap<(Vec<u8>, i64), IpAddr>>,
}

impl Used {
    /// Uses a user's code of a period; `false` where it has let in another address.
    pub(super) fn accept(&self, user: &[u8], period: i64, from: IpAddr) -> bool {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        // A code of this period is valid until two later periods have begun: older entries are removed.
        codes.retain(|(_, then), _| *then >= period - 3);
        *codes.entry((user.to_vec(), period)).or_insert(from) == from
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6238, appendix B, the last six digits of its SHA-1 column.
    #[test]
    fn the_codes_of_the_rfc_come_out() {
        let secret: Secret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ".parse().unwrap();
        for (time, code) in [
            (59, "287082"),
            (1_111_111_109, "081804"),
            (1_111_111_111, "050471"),
            (1_234_567_890, "005924"),
            (2_000_000_000, "279037"),
            (20_000_000_000, "353130"),
        ] {
            assert_eq!(secret.code(time / PERIOD), code);
            for (late, is_good) in [(0, true), (30, true), (-30, true), (61, false), (-61, false)] {
                assert_eq!(
                    secret.period_of(code.as_bytes(), time + late).is_some(),
                    is_good,
                    "{time} {late}"
                );
            }
        }
        assert!(secret.period_of(b"28708", 59).is_none() && secret.period_of(b"", 59).is_none());
    }

    #[test]
    fn a_secret_is_read_as_it_is_written() {
        for text in ["GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ", "MFRGGZDFMZTWQ2LKNNWG23TPOBYXE43U"] {
            assert_eq!(text.parse::<Secret>().unwrap().to_string(), text);
        }
        let secret = Secret::random();
        assert_eq!(secret.to_string().parse::<Secret>().unwrap(), secret);
        let apart: Secret = "gezd gnbv gy3t qojq gezd gnbv gy3t qojq====".parse().unwrap();
        assert_eq!(apart.to_string(), "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ");
        for wrong in ["", "GEZDGNBV", "1EZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"] {
            assert!(wrong.parse::<Secret>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_code_lets_in_one_address() {
        let used = Used::default();
        let [here, there] = ["192.0.2.1", "192.0.2.2"].map(|address| address.parse::<IpAddr>().unwrap());
        assert!(used.accept(b"alice", 7, here) && used.accept(b"alice", 7, here));
        assert!(!used.accept(b"alice", 7, there));
        assert!(used.accept(b"bob", 7, there) && used.accept(b"alice", 8, there));
        assert!(used.accept(b"alice", 100, there));
        assert_eq!(used.codes.lock().unwrap().len(), 1);
    }
}
