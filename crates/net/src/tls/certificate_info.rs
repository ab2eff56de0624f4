//! The information in a certificate: its validity period, its names, and whether it is self-signed.

use std::time::{Duration, SystemTime};

use rustls::server::ParsedCertificate;
use x509_parser::certificate::Validity;
use x509_parser::prelude::{ASN1Time, CertificateRevocationList, FromDer, ParsedExtension, X509Certificate};

use super::identity::{self, Identity};
use super::key_pair::KeyPair;
use super::load_error::LoadError;

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
    let certificate = parse(certificate)?;
    let key = certificate.iter_extensions().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(authority) => authority.key_identifier.as_ref(),
        _ => None,
    })?;
    Some((key.0, certificate.raw_serial()))
}

fn parse(certificate: &[u8]) -> Option<X509Certificate<'_>> {
    X509Certificate::from_der(certificate).ok().map(|(_, certificate)| certificate)
}

/// From when, until when, and whether issuer and subject are the same (RFC 5280 section 4.1).
fn read(certificate: &[u8]) -> Option<(SystemTime, SystemTime, bool)> {
    let certificate = parse(certificate)?;
    let Validity { not_before, not_after } = certificate.validity();
    let is_self_signed = certificate.issuer().as_raw() == certificate.subject().as_raw();
    Some((time(*not_before), time(*not_after), is_self_signed))
}

/// The names of the issuer and the subject in DER.
pub(super) fn names(certificate: &[u8]) -> Option<(&[u8], &[u8])> {
    let certificate = parse(certificate)?;
    Some((certificate.issuer.as_raw(), certificate.subject.as_raw()))
}

/// The `nextUpdate` of a revocation list, if it has one (RFC 5280 section 5.1).
pub(super) fn next_update(list: &[u8]) -> Option<SystemTime> {
    let (_, list) = CertificateRevocationList::from_der(list).ok()?;
    list.next_update().map(time)
}

/// What lies before 1970 is 1970.
fn time(time: ASN1Time) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(time.timestamp()).unwrap_or(0))
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
            let mut der = certificate((2026, 1, 1), (2027, 1, 1));
            let at = at % der.len();
            der[at] = byte;
            let _ = read(&der);
            let _ = read(&der[..at]);
            let _ = (authority_and_serial(&der), authority_and_serial(&der[..at]));
        }
    }
}
