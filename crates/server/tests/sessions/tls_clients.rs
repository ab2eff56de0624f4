//! Client certificates: which are refused, which users they name, and what they prove at a login.

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millrace_net::tls::{Authorities, Clients, Connector, Heard, KeyPair, Plan, Trust, Versions};
use millrace_server::auth::{Asked, Chain, Found, Homes, Needs, Password, Proof, Source, SourceError, User};
use millrace_server::config::Tls;
use millrace_server::{Attempt, Authenticator, Config, Decision};
use millrace_storage::{LocalOptions, MemoryStorage};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa,
    KeyIdMethod, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};

use super::kit::{Client, Scratch, Secured, Served, TlsClient, config, pair, serve_with};

/// Users who differ in what their certificates are worth; the password of each is `secret`.
#[derive(Debug)]
struct Users;

impl Source for Users {
    fn name(&self) -> &str {
        "the test"
    }

    fn find(&self, attempt: &Attempt<'_>) -> Result<Found, SourceError> {
        let name = String::from_utf8_lossy(attempt.user).into_owned();
        let login = match name.as_str() {
            "off" | "or-password" | "and-password" | "alone" => &name,
            "someone@example.com" => "alone",
            _ => return Ok(Found::Unknown),
        };
        let profile = serde_json::from_str(&format!("{{\"tls-client-login\": {login:?}}}")).unwrap();
        let user = User { name, groups: vec![], profile };
        Ok(Found::User(Box::new(user), Proof::Password(Password::from("secret"))))
    }
}

/// The same users, of a source that has nothing to compare without the password; and how often it was asked without.
#[derive(Debug, Clone, Default)]
struct Failures(Arc<AtomicUsize>);

impl Source for Failures {
    fn name(&self) -> &str {
        Users.name()
    }

    fn find(&self, attempt: &Attempt<'_>) -> Result<Found, SourceError> {
        let is_without = attempt.password.is_empty();
        self.0.fetch_add(usize::from(is_without), Ordering::Relaxed);
        Users.find(attempt)
    }

    fn needs(&self) -> Needs {
        Needs::Password
    }
}

/// An authority, and the server that trusts it.
struct Site {
    folder: Scratch,
    authority: CertifiedIssuer<'static, rcgen::KeyPair>,
    served: Served,
}

impl Site {
    /// A server that asks for certificates, or wants them, of which the one with this number was taken back.
    fn new(clients: impl FnOnce(Authorities) -> Clients) -> Self {
        Self::of(Users, clients)
    }

    fn of(users: impl Source + 'static, clients: impl FnOnce(Authorities) -> Clients) -> Self {
        let folder = Scratch::new();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority = CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap()).unwrap();
        fs::write(folder.file("ca.pem"), authority.pem()).unwrap();
        fs::write(folder.file("crl.pem"), revoked(&authority, 666)).unwrap();
        let authorities =
            Authorities { certificates: folder.file("ca.pem"), revoked: vec![folder.file("crl.pem")] };
        let plan = Plan { identities: vec![pair(&folder)], clients: clients(authorities), ..Plan::default() };
        fs::create_dir(folder.file("served")).unwrap();
        let homes = Homes::new(folder.file("served").canonicalize().unwrap(), LocalOptions::default());
        let served = serve_with(Config {
            https: vec![([127, 0, 0, 1], 0).into()],
            tls: Some(Tls { clear_command_channel: true, ..Tls::new(plan) }),
            accounts: Arc::new(Chain::new(Arc::new(homes)).source(users)),
            ..config(Arc::new(MemoryStorage::new()))
        });
        Self { folder, authority, served }
    }

    /// A certificate with these names, as a client has it.
    fn certificate(&self, number: u64, change: impl FnOnce(&mut CertificateParams)) -> Connector {
        let mut params = CertificateParams::default();
        params.serial_number = Some(SerialNumber::from(number));
        change(&mut params);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        let own = KeyPair {
            certificate: self.write(number, "pem", &certificate.pem()),
            key: self.write(number, "key", &key.serialize_pem()),
        };
        Connector::new(Trust::Anybody, Versions::All, Some(&own)).unwrap()
    }

    fn write(&self, number: u64, extension: &str, text: &str) -> PathBuf {
        let path = self.folder.file(&format!("{number}.{extension}"));
        fs::write(&path, text).unwrap();
        path
    }

    fn named(&self, name: &str) -> Connector {
        self.certificate(1, |params| params.distinguished_name.push(DnType::CommonName, name))
    }

    /// The status of a request at the HTTPS port, with or without a login.
    fn ask(&self, connector: &Connector, login: Option<&str>) -> u16 {
        let socket = TcpStream::connect(self.served.running.https_addresses()[0]).unwrap();
        let mut client = Secured::over(socket, connector).unwrap();
        let login = login.map_or(String::new(), |login| format!("Authorization: Basic {login}\r\n"));
        let request = format!("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{login}\r\n");
        client.write_all(request.as_bytes()).unwrap();
        let (_, answer) = client.read_to_end().unwrap();
        let answer = String::from_utf8_lossy(&answer);
        answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{answer}"))
    }

    fn connect(&self, connector: Connector) -> TlsClient {
        TlsClient::explicit(self.served.address, connector)
    }
}

fn revoked(authority: &CertifiedIssuer<'_, rcgen::KeyPair>, number: u64) -> String {
    let date = date_time_ymd(2020, 1, 1);
    let revoked = RevokedCertParams {
        serial_number: SerialNumber::from(number),
        revocation_time: date,
        reason_code: None,
        invalidity_date: None,
    };
    let list = CertificateRevocationListParams {
        this_update: date,
        next_update: date_time_ymd(2100, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: vec![revoked],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    list.signed_by(authority).unwrap().pem().unwrap()
}

fn without_certificate() -> Connector {
    Connector::new(Trust::Anybody, Versions::All, None).unwrap()
}

#[test]
fn a_certificate_with_the_users_name_is_worth_what_the_account_says() {
    let site = Site::new(Clients::Accept);
    for (user, own, without) in
        [("off", 331, 230), ("or-password", 232, 230), ("and-password", 331, 530), ("alone", 232, 530)]
    {
        let mut client = site.connect(site.named(user));
        client.expect(&format!("USER {user}"), own);
        if own == 331 {
            client.expect("PASS secret", 230);
        }
        client.expect("PWD", 257);
        for connector in [without_certificate(), site.named("another-user")] {
            let mut client = site.connect(connector);
            client.expect(&format!("USER {user}"), 331);
            client.expect("PASS secret", without);
        }
    }
}

#[test]
fn by_https_it_is_worth_the_same() {
    let site = Site::new(Clients::Accept);
    for (user, basic, alone, with_password, without) in [
        ("off", "b2ZmOnNlY3JldA==", 401, 200, 200),
        ("or-password", "b3ItcGFzc3dvcmQ6c2VjcmV0", 200, 200, 200),
        ("and-password", "YW5kLXBhc3N3b3JkOnNlY3JldA==", 401, 200, 401),
        ("alone", "YWxvbmU6c2VjcmV0", 200, 200, 401),
    ] {
        let own = site.named(user);
        assert_eq!(site.ask(&own, None), alone, "{user}, who says nothing");
        assert_eq!(site.ask(&own, Some(basic)), with_password, "{user}, who says the password");
        for other in [without_certificate(), site.named("another-user")] {
            assert_eq!(site.ask(&other, None), 401, "{user} without the certificate");
            assert_eq!(site.ask(&other, Some(basic)), without, "{user} without the certificate");
        }
    }
}

#[test]
fn a_certificate_is_no_password_of_its_own() {
    let site = Site::new(Clients::Accept);
    let mut client = site.connect(site.named("and-password"));
    client.expect("USER and-password", 331);
    client.expect("PASS wrong", 530);
    // An unknown name, and one without a certificate.
    client.expect("USER mallory", 331);
    client.expect("USER alone", 331);
    client.expect("PASS secret", 530);
    client.expect("USER and-password", 331);
    client.expect("PASS secret", 230);
}

#[test]
fn a_source_that_would_count_a_failure_is_not_asked_with_a_certificate_alone() {
    let users = Failures::default();
    let site = Site::of(users.clone(), Clients::Accept);
    let own = site.named("or-password");
    assert_eq!(site.ask(&own, None), 401);
    assert_eq!(site.ask(&own, Some("b3ItcGFzc3dvcmQ6c2VjcmV0")), 200);
    let mut client = site.connect(own);
    client.expect("USER or-password", 331);
    client.expect("PASS secret", 230);
    assert_eq!(users.0.load(Ordering::Relaxed), 0);
    // Nor does it end a session when it is checked again.
    let homes = Homes::new(site.folder.path().canonicalize().unwrap(), LocalOptions::default());
    let chain = Chain::new(Arc::new(homes)).source(users.clone());
    let attempt = Attempt { certified: true, encrypted: true, ..Attempt::new(b"or-password", b"") };
    assert!(chain.current(&attempt).is_none());
    assert_eq!(users.0.load(Ordering::Relaxed), 0);
}

/// The client hears the same as of a wrong password.
#[test]
fn the_log_hears_that_a_certificate_is_missing_where_no_password_would_do() {
    let site = Site::new(Clients::Accept);
    let homes = Homes::new(site.folder.path().canonicalize().unwrap(), LocalOptions::default());
    let chain = Chain::new(Arc::new(homes)).source(Users);
    for password in [&b"secret"[..], b"wrong", b""] {
        match chain.authenticate(&Attempt { encrypted: true, ..Attempt::new(b"alone", password) }) {
            Decision::Refused(why) => {
                assert_eq!(
                    why,
                    "there is no client certificate with this name, and tls-client-login is alone"
                );
            }
            decision => panic!("{decision:?}"),
        }
    }
    let wrong = Attempt { encrypted: true, ..Attempt::new(b"and-password", b"wrong") };
    assert!(
        matches!(chain.authenticate(&wrong), Decision::Denied),
        "a right one would do with a certificate"
    );
}

#[test]
fn alternative_names_count_letter_by_letter() {
    let site = Site::new(Clients::Accept);
    let connector = site.certificate(2, |params| {
        params.subject_alt_names = vec![SanType::Rfc822Name("someone@example.com".try_into().unwrap())];
    });
    let mut client = site.connect(connector.clone());
    client.expect("USER Someone@example.com", 331);
    client.expect("USER someone@example.com", 232);
    client.expect("PBSZ 0", 200);
    client.expect("PROT P", 200);
    client.fetch("LIST");
}

#[test]
fn a_second_login_is_recognized_but_not_in_clear() {
    let site = Site::new(Clients::Accept);
    let mut client = site.connect(site.named("alone"));
    client.expect("USER alone", 232);
    client.expect("REIN", 220);
    client.expect("USER alone", 232);
    // From here on an attacker may send it.
    client.expect("CCC", 200);
    assert_eq!(client.control.read(&mut Vec::new()).unwrap(), Heard::End);
    client.control.channel.close(&client.control.socket).unwrap();
    let mut plain = Client::of(client.control.socket.try_clone().unwrap());
    plain.expect("REIN", 220);
    plain.expect("USER alone", 331);
    plain.expect("PASS secret", 530);
}

#[test]
fn missing_and_revoked_certificates_are_refused_where_required() {
    let site = Site::new(Clients::Require);
    site.connect(site.named("alone")).expect("USER alone", 232);
    let taken_back =
        site.certificate(666, |params| params.distinguished_name.push(DnType::CommonName, "alone"));
    let other = Site::new(Clients::Require);
    for connector in [without_certificate(), taken_back, other.named("alone")] {
        expect_refused(&site, connector);
    }
}

fn expect_refused(site: &Site, connector: Connector) {
    let socket = {
        let mut plain = Client::connect(site.served.address);
        plain.expect_reply(220);
        plain.expect("AUTH TLS", 234);
        plain.into_stream()
    };
    // Under TLS 1.3 a client learns of it only when it reads.
    if let Ok(mut client) = TlsClient::over(socket, connector) {
        let _ = client.control.write_all(b"USER alone\r\n");
        let heard = client.control.read(&mut Vec::new());
        assert!(!matches!(heard, Ok(Heard::Bytes { .. })), "{heard:?}");
    }
}

#[test]
fn a_list_of_what_was_taken_back_that_is_cut_short_changes_nothing() {
    let site = Site::new(Clients::Require);
    let taken_back =
        site.certificate(666, |params| params.distinguished_name.push(DnType::CommonName, "alone"));
    for text in ["", "-----BEGIN X509 CRL-----\n"] {
        fs::write(site.folder.file("crl.pem"), text).unwrap();
        let error = site.served.running.reload_certificates().unwrap_err().to_string();
        assert!(error.contains("crl.pem"), "{error}");
        expect_refused(&site, taken_back.clone());
    }
}

#[test]
fn a_program_that_knows_accounts_is_told_of_the_certificate() {
    // A user with a certificate needs no password; one without needs the right password, and carol's is unknown.
    let script = r#"
        read -r question
        case "$question" in
            *carol*) echo '{"result": "unknown"}' ;;
            *'"certified":true'*mallory*) echo '{"result": "wrong"}' ;;
            *'"certified":true'*) echo '{"result": "right", "settings": {"tls-client-login": "or-password"}}' ;;
            *'"password":"secret"'*) echo '{"result": "right", "settings": {"tls-client-login": "or-password"}}' ;;
            *) echo '{"result": "wrong"}' ;;
        esac"#;
    let words = ["sh", "-c", script].map(str::to_owned).to_vec();
    let program = Asked::program(words, Duration::from_secs(30), Duration::from_secs(600));
    let site = Site::of(program, Clients::Accept);
    for (user, shown, reply) in
        [("alice", "alice", 232), ("alice", "bob", 331), ("mallory", "mallory", 331), ("carol", "carol", 331)]
    {
        let mut client = site.connect(site.named(shown));
        client.expect(&format!("USER {user}"), reply);
    }
    for (password, reply) in [("wrong", 530), ("secret", 230)] {
        let mut client = site.connect(without_certificate());
        client.expect("USER alice", 331);
        client.expect(&format!("PASS {password}"), reply);
    }
}
