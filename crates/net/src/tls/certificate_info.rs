//! The information in a certificate: its validity period, its names, and whether it is self-signed.

use std::time::{Duration, SystemTime};

use rustls::server::ParsedCertificate;

use super::der::{Der, EXTENSIONS, INTEGER, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, VERSION};
use super::identity::{self, Identity};
use super::key_pair::KeyPair;
use super::load_error::LoadError;

const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// id-ce-authorityKeyIdentifier, 2.5.29.35; and the first that may be in one.
const AUTHORITY_KEY_IDENTIFIER: &[u8] = &[0x55, 0x1d, 0x23];
const KEY_IDENTIFIER: u8 = 0x80;

/// The information in a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateInfo {
    /// From when it is good.
    pub from: SystemTime,
    /// Until when.
    pub until: SystemTime,
    /// Whether it is for all names that were asked about.
    pub covers: bool,
    /// Whether it is self-signed.
    pub is_self_signed: bool,
}

impl KeyPair {
    /// Reads the files as a server would that is to have these names, and answers what the certificate says of itself.
    pub fn info(&self, names: &[String]) -> Result<CertificateInfo, LoadError> {
        let wrong = |why: &str| LoadError::File(self.certificate.clone(), why.to_owned());
        let identity = Identity::load(self)?;
        let der = identity.key.end_entity_cert().map_err(LoadError::Tls)?;
        let parsed = ParsedCertificate::try_from(der).map_err(LoadError::Tls)?;
        let is_for = |name: &String| {
            let name = name.as_str().try_into();
            name.is_ok_and(|name| rustls::client::verify_server_name(&parsed, &name).is_ok())
        };
        let covers = names.iter().all(is_for);
        let (from, until, is_self_signed) = read(der).ok_or_else(|| wrong("this is no certificate"))?;
        Ok(CertificateInfo { from, until, covers, is_self_signed })
    }

    /// The key by which the certificate was signed, as it names that, and its serial number, both as they are written (RFC
    /// 5280 sections 4.2.1.1 and 4.1.2.2); `None` where it cannot be read, or names none.
    pub fn authority_and_serial(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let chain = identity::certificates(&self.certificate).ok()?;
        let (authority, serial) = authority_and_serial(chain.first()?)?;
        Some((authority.to_vec(), serial.to_vec()))
    }
}

fn authority_and_serial(certificate: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut signed = Der(certificate).expect(SEQUENCE)?.expect(SEQUENCE)?;
    let _ = signed.expect(VERSION);
    let serial = signed.expect(INTEGER)?;
    let mut extensions = loop {
        let (tag, mut value) = signed.next()?;
        if tag == EXTENSIONS {
            break value.expect(SEQUENCE)?;
        }
    };
    loop {
        let mut extension = extensions.expect(SEQUENCE)?;
        if extension.expect(OBJECT_IDENTIFIER)?.0 != AUTHORITY_KEY_IDENTIFIER {
            continue;
        }
        // It is not critical, so this comes next.
        let key = extension.expect(OCTET_STRING)?.expect(SEQUENCE)?.expect(KEY_IDENTIFIER)?;
        return Some((key.0, serial.0));
    }
}

/// From when, until when, and whether issuer and subject are the same (RFC 5280 section 4.1).
fn read(certificate: &[u8]) -> Option<(SystemTime, SystemTime, bool)> {
    let Read { issuer, mut validity, subject } = take_apart(certificate)?;
    Some((time(validity.next()?)?, time(validity.next()?)?, issuer.0 == subject.0))
}

/// The names of the issuer and the subject, as they are written.
pub(super) fn names(certificate: &[u8]) -> Option<(&[u8], &[u8])> {
    let Read { issuer, subject, .. } = take_apart(certificate)?;
    Some((issuer.0, subject.0))
}

/// The parsed parts of a certificate.
struct Read<'a> {
    issuer: Der<'a>,
    validity: Der<'a>,
    subject: Der<'a>,
}

fn take_apart(certificate: &[u8]) -> Option<Read<'_>> {
    let mut signed = Der(certificate).expect(SEQUENCE)?.expect(SEQUENCE)?;
    // version and serialNumber are not sequences; signature is the first.
    while signed.next()?.0 != SEQUENCE {}
    let (issuer, validity) = (signed.expect(SEQUENCE)?, signed.expect(SEQUENCE)?);
    Some(Read { issuer, validity, subject: signed.expect(SEQUENCE)? })
}

/// When a list of what was taken back is to be replaced, if it says so (RFC 5280 section 5.1).
pub(super) fn next_update(list: &[u8]) -> Option<SystemTime> {
    let mut signed = Der(list).expect(SEQUENCE)?.expect(SEQUENCE)?;
    // version is not a sequence, and optional; signature is the first, issuer the second.
    while signed.next()?.0 != SEQUENCE {}
    signed.expect(SEQUENCE)?;
    time(signed.next()?)?;
    time(signed.next()?)
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`; what lies before 1970 is 1970.
fn time((tag, Der(text)): (u8, Der<'_>)) -> Option<SystemTime> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.is_ascii())?.strip_suffix('Z')?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: i64 = year.parse().ok()?;
            // RFC 5280 section 4.1.2.5.1.
            (year + if year < 50 { 2000 } else { 1900 }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let mut numbers = [0; 5];
    for (at, number) in numbers.iter_mut().enumerate() {
        *number = rest.get(2 * at..2 * at + 2)?.parse::<i64>().ok().filter(|number| *number >= 0)?;
    }
    let [month, day, hour, minute, second] = numbers;
    if rest.len() != 10 || !(1..=12).contains(&month) || !(0..=9999).contains(&year) {
        return None;
    }
    let seconds = ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// Days from 1970 to a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that the day that is sometimes missing is their last.
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let of_months = (153 * month + 2) / 5;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + of_months + day - 719_469
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair as Key, date_time_ymd};

    use super::*;

    fn certificate(from: (i32, u8, u8), until: (i32, u8, u8)) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.not_before = date_time_ymd(from.0, from.1, from.2);
        params.not_after = date_time_ymd(until.0, until.1, until.2);
        params.self_signed(&Key::generate().unwrap()).unwrap().der().to_vec()
    }

    fn day(number: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(number * 86_400)
    }

    #[test]
    fn both_forms_of_time_are_read() {
        for (from, until, expected) in [
            ((1970, 1, 1), (2000, 2, 29), (day(0), day(11_016))),
            ((2026, 11, 22), (2049, 12, 31), (day(20_779), day(29_219))),
            // GeneralizedTime begins here.
            ((2050, 1, 1), (4096, 3, 1), (day(29_220), day(776_566))),
        ] {
            let (from, until, is_self_signed) = read(&certificate(from, until)).unwrap();
            assert_eq!((from, until, is_self_signed), (expected.0, expected.1, true));
        }
    }

    #[test]
    fn a_certificate_with_an_issuer_is_not_self_signed() {
        let mut params = CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "an authority");
        let authority = rcgen::CertifiedIssuer::self_signed(params, Key::generate().unwrap()).unwrap();
        let params = CertificateParams::new(["a.example".to_owned()]).unwrap();
        let der = params.signed_by(&Key::generate().unwrap(), &authority).unwrap();
        assert!(!read(der.der()).unwrap().2);
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0usize..400, byte: u8) {
            let _ = read(&bytes);
            let _ = (next_update(&bytes), authority_and_serial(&bytes));
            let _ = time((UTC_TIME, Der(&bytes)));
            let _ = time((GENERALIZED_TIME, Der(&bytes)));
            let mut der = certificate((2026, 1, 1), (2027, 1, 1));
            let at = at % der.len();
            der[at] = byte;
            let _ = read(&der);
            let _ = read(&der[..at]);
            let _ = (authority_and_serial(&der), authority_and_serial(&der[..at]));
        }
    }
}
