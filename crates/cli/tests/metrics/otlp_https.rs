//! A collector behind TLS, whose certificate an authority of its own has signed.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::PrivateKeyDer;

use crate::collector::{Collector, TAKEN};
use crate::otlp::listen;
use crate::site::{Site, eventually};

/// An authority; and what a collector shows that it has signed.
fn certify() -> (String, Arc<ServerConfig>) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        );
    (authority.pem(), Arc::new(config.unwrap()))
}

/// Starts a server that trusts this authority.
fn start(name: &str, collector: &Collector, authority: &str) -> (Site, PathBuf) {
    let ca = std::env::temp_dir().join(format!("millrace-{name}-{}.pem", std::process::id()));
    fs::write(&ca, authority).unwrap();
    let keys = format!(
        "[otlp]\nendpoint = \"https://{}\"\nca = \"{}\"\ninterval = \"1s\"\n",
        collector.address,
        ca.display()
    );
    let site = Site::start(name, &keys);
    fs::write(site.folder.join("files/f"), "content").unwrap();
    (site, ca)
}

#[test]
fn a_collector_with_a_certificate_of_the_configured_authority_gets_both_signals() {
    let (authority, tls) = certify();
    let collector = Collector::start_tls(listen(), tls, |_| Some(TAKEN));
    let (mut site, ca) = start("otlp-https", &collector, &authority);
    site.log_in().download("RETR f");
    eventually("metrics come", || !collector.posts("/v1/metrics").is_empty());
    site.stop();
    assert_eq!(collector.named("FTP download").len(), 1);
    assert!(!site.read("log").contains("OTLP, "), "{}", site.read("log"));
    fs::remove_file(ca).unwrap();
}

#[test]
fn a_collector_of_another_authority_is_warned_of_once_gets_nothing_and_holds_nothing_up() {
    let (other, (_, tls)) = (certify().0, certify());
    let collector = Collector::start_tls(listen(), tls, |_| Some(TAKEN));
    let (site, ca) = start("otlp-forged", &collector, &other);
    let mut client = site.log_in();
    (0..20).for_each(|_| assert_eq!(client.download("RETR f"), "content"));
    // Each signal more than once: later ones are no news.
    eventually("posts are tried again", || collector.connections() > 3);
    let log = site.read("log");
    for signal in ["metrics", "traces"] {
        let warning = format!("OTLP, {signal} to https://{}/v1/{signal}: ", collector.address);
        assert_eq!(log.matches(&warning).count(), 1, "{log}");
    }
    assert!(log.contains("certificate"), "the warning says why: {log}");
    assert!(collector.posts("/v1/metrics").is_empty() && collector.spans().is_empty());
    assert_eq!(client.download("RETR f"), "content");
    fs::remove_file(ca).unwrap();
}
