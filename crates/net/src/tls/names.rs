//! The names in a client's certificate, which it may log in by.
//!
//! The certificate has been verified before: this only reads it (DER, RFC 5280), and skips what it cannot parse. A name
//! with a control character is ignored: a back end of the accounts may take a NUL for its end.

use std::collections::HashSet;

use x509_parser::asn1_rs::{Any, FromDer, Oid, Tag, oid};
use x509_parser::extensions::GeneralName;
use x509_parser::oid_registry::{OID_PKCS9_EMAIL_ADDRESS, OID_X509_COMMON_NAME};
use x509_parser::prelude::{ParsedExtension, X509Certificate};

/// The user principal name of Windows domains.
const USER_PRINCIPAL_NAME: Oid<'static> = oid!(1.3.6.1.4.1.311.20.2.3);

/// The subject's common names and mail addresses, and of its alternative names the mail addresses, DNS names and
/// principal names; each once, in this order.
pub fn client_names(certificate: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    let subject = certificate.subject().iter_attributes().filter(|attribute| {
        *attribute.attr_type() == OID_X509_COMMON_NAME || *attribute.attr_type() == OID_PKCS9_EMAIL_ADDRESS
    });
    let alternatives =
        certificate.iter_extensions().filter_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectAlternativeName(alternatives) => Some(&alternatives.general_names),
            _ => None,
        });
    let mut names: Vec<String> = subject
        .filter_map(|attribute| text(attribute.attr_value()))
        .chain(alternatives.flatten().filter_map(alternative))
        .filter(|name| !name.is_empty() && !name.chars().any(char::is_control))
        .collect();
    let mut seen = HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

fn alternative(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::RFC822Name(name) | GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::OtherName(kind, value) if *kind == USER_PRINCIPAL_NAME => {
            // [0] EXPLICIT, and the string in it.
            let (_, explicit) = Any::from_der(value).ok()?;
            text(&Any::from_der(explicit.data).ok()?.1)
        }
        _ => None,
    }
}

/// A string of a kind that is UTF-8, or a part of it.
fn text(value: &Any<'_>) -> Option<String> {
    let text = std::str::from_utf8(value.data).ok()?;
    let is_kind = match value.tag() {
        Tag::Utf8String => true,
        Tag::PrintableString | Tag::Ia5String => text.is_ascii(),
        _ => false,
    };
    is_kind.then(|| text.to_owned())
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
