//! The names in a client's certificate, which it may log in by.
//!
//! The certificate has been verified before: this only reads it (DER, RFC 5280), and skips what it cannot parse. A name
//! with a control character is ignored: a back end of the accounts may take a NUL for its end.

use super::der::{Der, EXTENSIONS, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE};

/// id-at-commonName, 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// emailAddress of PKCS #9, 1.2.840.113549.1.9.1.
const EMAIL_ADDRESS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x01];
/// id-ce-subjectAltName, 2.5.29.17.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
/// The user principal name of Windows domains, 1.3.6.1.4.1.311.20.2.3.
const USER_PRINCIPAL_NAME: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x37, 0x14, 0x02, 0x03];

const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
const SET: u8 = 0x31;

/// Alternative names by their tags.
const OTHER_NAME: u8 = 0xa0;
const RFC822_NAME: u8 = 0x81;
const DNS_NAME: u8 = 0x82;

/// The subject's common names and mail addresses, and of its alternative names the mail addresses, DNS names and
/// principal names; each once, in this order.
pub fn client_names(certificate: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    let _ = read(certificate, &mut names);
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

fn read(certificate: &[u8], names: &mut Vec<String>) -> Option<()> {
    let mut signed = Der(certificate).expect(SEQUENCE)?.expect(SEQUENCE)?;
    // version, serialNumber, signature, issuer, validity: the first may be missing, and is no SEQUENCE.
    let mut sequences = 0;
    while sequences < 3 {
        sequences += usize::from(signed.next()?.0 == SEQUENCE);
    }
    read_subject(signed.expect(SEQUENCE)?, names);
    while let Some((tag, body)) = signed.next() {
        if tag == EXTENSIONS {
            read_extensions(body, names);
        }
    }
    Some(())
}

fn read_subject(mut subject: Der<'_>, names: &mut Vec<String>) {
    while let Some(mut set) = subject.expect(SET) {
        while let Some(mut attribute) = set.expect(SEQUENCE) {
            let kind = attribute.expect(OBJECT_IDENTIFIER).map(|kind| kind.0);
            if let (Some(COMMON_NAME | EMAIL_ADDRESS), Some((tag, value))) = (kind, attribute.next()) {
                names.extend(text(tag, value));
            }
        }
    }
}

fn read_extensions(mut extensions: Der<'_>, names: &mut Vec<String>) {
    let Some(mut list) = extensions.expect(SEQUENCE) else { return };
    while let Some(mut extension) = list.expect(SEQUENCE) {
        if extension.expect(OBJECT_IDENTIFIER).is_none_or(|kind| kind.0 != SUBJECT_ALT_NAME) {
            continue;
        }
        // Whether it is critical may stand between.
        while let Some((tag, mut value)) = extension.next() {
            if tag == OCTET_STRING
                && let Some(alternatives) = value.expect(SEQUENCE)
            {
                read_alternatives(alternatives, names);
            }
        }
    }
}

fn read_alternatives(mut alternatives: Der<'_>, names: &mut Vec<String>) {
    while let Some((tag, mut value)) = alternatives.next() {
        match tag {
            RFC822_NAME | DNS_NAME => names.extend(text(IA5_STRING, value)),
            OTHER_NAME
                if value.expect(OBJECT_IDENTIFIER).is_some_and(|kind| kind.0 == USER_PRINCIPAL_NAME) =>
            {
                let name = value.next().and_then(|(_, mut explicit)| explicit.next());
                names.extend(name.and_then(|(tag, value)| text(tag, value)));
            }
            _ => {}
        }
    }
}

/// A string of a kind that is UTF-8, or a part of it.
fn text(tag: u8, Der(value): Der<'_>) -> Option<String> {
    let text = std::str::from_utf8(value).ok()?;
    let is_kind = match tag {
        UTF8_STRING => true,
        PRINTABLE_STRING | IA5_STRING => text.is_ascii(),
        _ => false,
    };
    (is_kind && !text.is_empty() && !text.chars().any(char::is_control)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn certificate(change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        change(&mut params);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn names_are_read_from_subject_and_alternatives() {
        let der = certificate(|params| {
            params.distinguished_name.push(DnType::OrganizationName, "Example");
            params.distinguished_name.push(DnType::CommonName, "alice");
            params.subject_alt_names = vec![
                SanType::Rfc822Name("alice@example.com".try_into().unwrap()),
                SanType::IpAddress([127, 0, 0, 1].into()),
                SanType::DnsName("alice.example.com".try_into().unwrap()),
                SanType::OtherName((vec![1, 3, 6, 1, 4, 1, 311, 20, 2, 3], "al@corp".into())),
                SanType::OtherName((vec![1, 3, 6, 1, 4, 1, 311, 20, 2, 4], "no".into())),
                SanType::DnsName("alice".try_into().unwrap()),
            ];
        });
        assert_eq!(client_names(&der), ["alice", "alice@example.com", "alice.example.com", "al@corp"]);
    }

    #[test]
    fn a_name_with_a_nul_in_it_is_none() {
        let der = certificate(|params| params.distinguished_name.push(DnType::CommonName, "root\0.example"));
        assert!(client_names(&der).is_empty());
        assert!(client_names(&certificate(|_| {})).is_empty());
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0usize..400, byte: u8) {
            let _ = client_names(&bytes);
            let mut der = certificate(|params| params.distinguished_name.push(DnType::CommonName, "alice"));
            let at = at % der.len();
            der[at] = byte;
            let _ = client_names(&der);
            let _ = client_names(&der[..at]);
        }
    }
}
