//! Calls for files of certificates and keys, each of which fails in turn, alone and with all after it.

use std::fs;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, IsCa, KeyIdMethod,
    KeyPair as Key, KeyUsagePurpose, SerialNumber, date_time_ymd,
};

use super::calls::faults::each;
use super::tests::Folder;
use super::*;

fn names() -> Vec<String> {
    vec!["localhost".to_owned()]
}

/// The content of both files.
fn content(pair: &KeyPair) -> Option<[String; 2]> {
    Some([fs::read_to_string(&pair.certificate).ok()?, fs::read_to_string(&pair.key).ok()?])
}

/// The authority of clients, and its list of certificates that were taken back.
fn authorities(folder: &Path) -> Authorities {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority = CertifiedIssuer::self_signed(params, Key::generate().unwrap()).unwrap();
    let list = CertificateRevocationListParams {
        this_update: date_time_ymd(2020, 1, 1),
        next_update: date_time_ymd(2100, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: Vec::new(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let (certificates, revoked) = (folder.join("ca.pem"), folder.join("crl.pem"));
    fs::create_dir_all(folder).unwrap();
    fs::write(&certificates, authority.pem()).unwrap();
    fs::write(&revoked, list.signed_by(&authority).unwrap().pem().unwrap()).unwrap();
    Authorities { certificates, revoked: vec![revoked] }
}

#[test]
fn whichever_call_fails_a_self_signed_certificate_is_whole_or_not_there() {
    let calls = each(
        Folder::new,
        |folder| self_signed(&folder.0, &names()).map(drop),
        |fault, folder, made| {
            let pair = KeyPair::self_signed(&folder.0);
            let kept = content(&pair);
            assert_eq!(kept.is_some(), pair.key.parent().unwrap().exists(), "{fault:?}: half of it is there");
            assert!(made.is_err() || kept.is_some(), "{fault:?}");
            // The next start.
            self_signed(&folder.0, &names()).unwrap();
            assert!(kept.is_none() || kept == content(&pair), "{fault:?}: it was replaced");
            Acceptor::new(&Plan { identities: vec![pair], ..Plan::default() }).unwrap();
            assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "{fault:?}: something is left");
        },
    );
    assert!(calls >= 11, "{calls} calls");
}

#[test]
fn whichever_call_fails_a_self_signed_certificate_that_is_there_stays() {
    let folder = Folder::new();
    let pair = self_signed(&folder.0, &names()).unwrap();
    let before = content(&pair);
    let calls = each(
        || (),
        |()| self_signed(&folder.0, &names()),
        |fault, (), _| assert_eq!(content(&pair), before, "{fault:?}"),
    );
    assert_eq!((calls, fs::read_dir(&folder.0).unwrap().count()), (2, 1));
}

#[test]
fn a_reload_of_which_a_call_fails_leaves_the_old_certificate_and_says_why() {
    let folder = Folder::new();
    let [old, new] = ["old", "new"].map(|name| self_signed(&folder.0.join(name), &names()).unwrap());
    let plan = |pair: &KeyPair| Plan {
        identities: vec![pair.clone()],
        clients: Clients::Require(authorities(&folder.0)),
        ..Plan::default()
    };
    let (old, new) = (plan(&old), plan(&new));
    let [first, second] = [&old, &new].map(|plan| Acceptor::new(plan).unwrap().fingerprints());
    let calls = each(
        || Acceptor::new(&old).unwrap(),
        |acceptor| acceptor.reload(&new),
        |fault, acceptor, reloaded| {
            let error = reloaded.expect_err("a call has failed");
            let file = error.file().expect("it names a file");
            assert!(new.files().contains(&file), "{fault:?}: {error}");
            assert!(error.to_string().contains("os error 5"), "{fault:?}: {error}");
            assert_eq!(acceptor.fingerprints(), first, "{fault:?}");
            acceptor.reload(&new).unwrap();
            assert_eq!(acceptor.fingerprints(), second, "{fault:?}");
        },
    );
    assert_eq!(calls, 2 * new.files().len(), "each file is opened and read");
}
