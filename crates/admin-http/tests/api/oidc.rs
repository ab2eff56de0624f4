//! Logins by a provider of OpenID Connect, which runs in a thread and can be told to lie.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use millrace_admin_http::AdminAccess;
use millrace_http::base64;
use millrace_oidc::{Provider, Settings};
use ring::digest::{SHA256, digest};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};

use crate::kit::{Answer, Site};

/// How a token is signed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Signing {
    #[default]
    Right,
    /// By the key of another provider that has the same name.
    OtherKey,
    /// Not at all.
    Unsigned,
    /// By the public key, as if that were a secret.
    Symmetric,
    /// The claims were changed afterwards.
    Tampered,
}

/// What a provider does at the next exchange.
#[derive(Default)]
pub(crate) struct Plan {
    /// As the browser has brought them to the provider.
    nonce: String,
    challenge: String,
    /// What is said otherwise than is right.
    claims: Vec<(&'static str, Value)>,
    signing: Signing,
    /// A token that is sent instead.
    replayed: Option<String>,
    /// The last token.
    token: String,
    /// Claims of the user information.
    information: Value,
}

/// A provider.
pub(crate) struct Identities {
    issuer: String,
    plan: Arc<Mutex<Plan>>,
}

fn key() -> EcdsaKeyPair {
    let random = SystemRandom::new();
    let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random).unwrap()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

impl Identities {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let plan = Arc::<Mutex<Plan>>::default();
        let (of_thread, name) = (Arc::clone(&plan), issuer.clone());
        std::thread::spawn(move || {
            let keys = [key(), key()];
            for stream in listener.incoming() {
                serve(stream.unwrap(), &name, &keys, &of_thread);
            }
        });
        Self { issuer, plan }
    }

    /// A server that lets users of this provider in.
    fn site(&self) -> Site {
        Site::start(self.access())
    }

    pub(crate) fn access(&self) -> AdminAccess {
        let provider = Provider::new(Settings {
            issuer: self.issuer.clone(),
            client: "millrace".to_owned(),
            secret: Some("s3cret".to_owned()),
            groups: "groups".to_owned(),
            scopes: vec!["email".to_owned()],
            roots: None,
        });
        AdminAccess {
            viewers: vec!["oidc group staff".to_owned()],
            operators: vec!["oidc email ann@example.net".to_owned()],
            hosts: vec!["admin.example.net".to_owned()],
            provider: Some(Arc::new(provider.unwrap())),
            ..AdminAccess::default()
        }
    }

    fn plan(&self, change: impl FnOnce(&mut Plan)) {
        change(&mut self.plan.lock().unwrap());
    }

    /// Logs in as a browser does; `change` plans what the provider does. Returns the answer to what the provider sends.
    fn log_in(&self, site: &Site, change: impl FnOnce(&mut Plan)) -> Answer {
        let (cookie, state) = self.go(site, &format!("Origin: http://{}\r\n", site.host()), change);
        site.ask("GET", &format!("/login/oidc?code=c0de&state={state}&session_state=x"), &cookie, "")
    }

    /// Begins a login, and has the browser show the provider what it brings. Returns the cookie and the state.
    pub(crate) fn go(&self, site: &Site, fields: &str, change: impl FnOnce(&mut Plan)) -> (String, String) {
        let begun = site.ask("POST", "/api/v1/login/oidc", fields, "");
        assert_eq!(begun.status, 200, "{begun:?}");
        let answer = begun.json();
        let url = answer["url"].as_str().unwrap();
        assert!(
            url.starts_with(&format!("{}/authorize?response_type=code&client_id=millrace&", self.issuer)),
            "{url}"
        );
        assert!(
            url.contains("&scope=openid%20email&") && url.ends_with("&code_challenge_method=S256"),
            "{url}"
        );
        let value = |name: &str| {
            let found = url.split(&format!("&{name}=")).nth(1).and_then(|rest| rest.split('&').next());
            found.unwrap_or_else(|| panic!("{name}: {url}")).to_owned()
        };
        self.plan(|plan| {
            let token = std::mem::take(&mut plan.token);
            *plan =
                Plan { nonce: value("nonce"), challenge: value("code_challenge"), token, ..Plan::default() };
            change(plan);
        });
        (begun.cookie(), value("state"))
    }
}

/// Answers a request.
fn serve(mut stream: TcpStream, issuer: &str, keys: &[EcdsaKeyPair; 2], plan: &Mutex<Plan>) {
    let mut reader = BufReader::new(&stream);
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap() == 0 {
            return;
        }
    }
    for line in head.lines() {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = value.parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let answer = match head.split(' ').nth(1).unwrap() {
        "/.well-known/openid-configuration" => json!({
            "issuer": issuer, "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"), "jwks_uri": format!("{issuer}/keys"),
            "userinfo_endpoint": format!("{issuer}/user"),
        }),
        "/keys" => {
            let point = &keys[0].public_key().as_ref()[1..];
            let [x, y] = [&point[..32], &point[32..]].map(base64::encode_url);
            json!({ "keys": [{ "kty": "EC", "crv": "P-256", "kid": "k", "use": "sig", "x": x, "y": y }] })
        }
        "/token" => {
            exchange(&head, &String::from_utf8(body).unwrap(), issuer, keys, &mut plan.lock().unwrap())
        }
        "/user" if head.contains("authorization: Bearer acce55\r\n") => {
            plan.lock().unwrap().information.clone()
        }
        other => panic!("{other}: {head}"),
    };
    let status = if answer["error"].is_null() { "200 OK" } else { "400 Bad Request" };
    let text = answer.to_string();
    let length = text.len();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{text}").unwrap();
}

/// The token endpoint: a code is good once, for the client that has the secret, and the verifier of the login.
fn exchange(head: &str, body: &str, issuer: &str, keys: &[EcdsaKeyPair; 2], plan: &mut Plan) -> Value {
    let field = |name: &str| {
        body.split('&')
            .filter_map(|pair| pair.split_once('='))
            .find(|(own, _)| *own == name)
            .unwrap()
            .1
            .to_owned()
    };
    let challenge = base64::encode_url(digest(&SHA256, field("code_verifier").as_bytes()).as_ref());
    let basic = format!("authorization: Basic {}\r\n", base64::encode(b"millrace:s3cret"));
    let is_good = head.contains(&basic)
        && field("code") == "c0de"
        && field("redirect_uri").ends_with("%2Flogin%2Foidc")
        && challenge == std::mem::take(&mut plan.challenge);
    if !is_good {
        return json!({ "error": "invalid_grant", "error_description": "no\r\nsuch code" });
    }
    plan.token = plan.replayed.clone().unwrap_or_else(|| token(issuer, keys, plan));
    json!({ "id_token": plan.token, "access_token": "acce55", "token_type": "Bearer" })
}

fn token(issuer: &str, keys: &[EcdsaKeyPair; 2], plan: &Plan) -> String {
    let mut claims = json!({
        "iss": issuer, "sub": "u-17", "aud": "millrace", "iat": now(), "exp": now() + 300, "nonce": plan.nonce,
        "email": "ann@example.net", "email_verified": true, "groups": ["staff"],
    });
    for (name, value) in &plan.claims {
        claims[*name] = value.clone();
    }
    let algorithm = match plan.signing {
        Signing::Unsigned => "none",
        Signing::Symmetric => "HS256",
        _ => "ES256",
    };
    let part = |value: &Value| base64::encode_url(value.to_string().as_bytes());
    let signed = format!("{}.{}", part(&json!({ "alg": algorithm, "kid": "k" })), part(&claims));
    let of_key =
        |key: &EcdsaKeyPair| key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap().as_ref().to_vec();
    let signature = match plan.signing {
        Signing::Right | Signing::Tampered => of_key(&keys[0]),
        Signing::OtherKey => of_key(&keys[1]),
        Signing::Unsigned => Vec::new(),
        Signing::Symmetric => {
            let key = hmac::Key::new(hmac::HMAC_SHA256, keys[0].public_key().as_ref());
            hmac::sign(&key, signed.as_bytes()).as_ref().to_vec()
        }
    };
    let signed = match plan.signing {
        Signing::Tampered => {
            claims["email"] = "root@example.net".into();
            format!("{}.{}", signed.split('.').next().unwrap(), part(&claims))
        }
        _ => signed,
    };
    format!("{signed}.{}", base64::encode_url(&signature))
}

/// The session cookie that an answer sets, to be sent back.
pub(crate) fn session(answer: &Answer) -> Option<String> {
    let cookies = answer.head.lines().filter_map(|line| line.split_once(": "));
    let mut cookies =
        cookies.filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie")).map(|(_, value)| value);
    let cookie = cookies.find(|value| value.starts_with("millrace-admin="))?;
    Some(format!("Cookie: {}\r\n", cookie.split(';').next().unwrap()))
}

/// Asserts that a login came to nothing, and why.
pub(crate) fn assert_failed(answer: &Answer, why: &str, what: &str) {
    let location = format!("/#/overview?login={why}");
    assert_eq!((answer.status, answer.field("location")), (303, Some(&*location)), "{what}: {answer:?}");
    assert_eq!(session(answer), None, "{what}");
}

#[test]
fn a_user_of_a_provider_logs_in_and_out() {
    let identities = Identities::start();
    let site = identities.site();
    assert_eq!(site.ask("GET", "/api/v1/login", "", "").json()["oidc"], true);
    let told = identities.log_in(&site, |_| {});
    assert_eq!((told.status, told.field("location")), (303, Some("/")), "{told:?}");
    assert!(told.head.contains("; Path=/; HttpOnly; SameSite=Strict\r\n"), "{told:?}");
    let cookie = session(&told).unwrap();
    let me = site.ask("GET", "/api/v1/me", &cookie, "").json();
    assert_eq!(me, json!({ "ok": true, "name": "ann@example.net", "role": "operator", "by": "oidc" }));
    // A change needs what a change by any cookie needs.
    let ban = |fields: &str| site.ask("POST", "/api/v1/bans", fields, r#"{"network":"192.0.2.7"}"#).status;
    assert_eq!(ban(&cookie), 403);
    assert_eq!(ban(&(cookie.clone() + &site.own_page())), 200);
    assert_eq!(site.ask("POST", "/api/v1/logout", &(cookie.clone() + &site.own_page()), "").status, 200);
    assert_eq!(site.ask("GET", "/api/v1/me", &cookie, "").status, 401);
}

#[test]
fn forged_expired_foreign_and_replayed_tokens_let_no_one_in() {
    let identities = Identities::start();
    let site = identities.site();
    for signing in [Signing::OtherKey, Signing::Unsigned, Signing::Symmetric, Signing::Tampered] {
        let told = identities.log_in(&site, |plan| plan.signing = signing);
        assert_failed(&told, "failed", &format!("{signing:?}"));
    }
    for (claim, value) in [
        ("exp", json!(now() - 61)),
        ("iat", json!(now() + 3600)),
        ("aud", json!("other")),
        ("aud", json!(["millrace", "other"])),
        ("azp", json!("other")),
        ("iss", json!("https://evil.example")),
        ("nonce", json!("of another login")),
        ("sub", json!("")),
    ] {
        let told = identities.log_in(&site, |plan| plan.claims = vec![(claim, value.clone())]);
        assert_failed(&told, "failed", &format!("{claim}: {value}"));
    }
    assert!(session(&identities.log_in(&site, |_| {})).is_some());
    let told = identities.log_in(&site, |plan| plan.replayed = Some(plan.token.clone()));
    assert_failed(&told, "failed", "the token of the login before");
}

#[test]
fn a_response_is_taken_once_from_the_browser_that_began_and_from_the_provider() {
    let identities = Identities::start();
    let site = identities.site();
    let own = format!("Origin: http://{}\r\n", site.host());
    let come = |cookie: &str, query: &str| site.ask("GET", &format!("/login/oidc?{query}"), cookie, "");
    let (cookie, state) = identities.go(&site, &own, |_| {});
    assert!(session(&come(&cookie, &format!("code=c0de&state={state}"))).is_some());
    assert_failed(&come(&cookie, &format!("code=c0de&state={state}")), "late", "again");
    let (_, state) = identities.go(&site, &own, |_| {});
    let (other, _) = identities.go(&site, &own, |_| {});
    assert_failed(&come(&other, &format!("code=c0de&state={state}")), "late", "in another browser");
    assert_failed(&come("", "code=c0de&state="), "late", "without a login");
    assert_failed(&come("", "%"), "late", "without anything");
    let (cookie, state) = identities.go(&site, &own, |_| {});
    assert_failed(
        &come(&cookie, &format!("error=access_denied&state={state}")),
        "refused",
        "the user said no",
    );
    let (cookie, state) = identities.go(&site, &own, |_| {});
    let other = format!("code=c0de&state={state}&iss=https%3A%2F%2Fevil.example");
    assert_failed(&come(&cookie, &other), "failed", "of another provider");
    let (cookie, state) = identities.go(&site, &own, |_| {});
    assert_failed(&come(&cookie, &format!("code=gue55&state={state}")), "refused", "another code");
    let (cookie, state) = identities.go(&site, &own, |plan| plan.challenge = "of another browser".to_owned());
    assert_failed(&come(&cookie, &format!("code=c0de&state={state}")), "refused", "another verifier");
}

#[test]
fn a_reload_keeps_logins_that_have_begun_unless_it_brings_another_provider() {
    let (identities, others) = (Identities::start(), Identities::start());
    let site = identities.site();
    let own = format!("Origin: http://{}\r\n", site.host());
    let come = |cookie: &str, state: &str| {
        site.ask("GET", &format!("/login/oidc?code=c0de&state={state}"), cookie, "")
    };
    let (cookie, state) = identities.go(&site, &own, |_| {});
    site.admin.configure(others.access());
    assert_failed(&come(&cookie, &state), "late", "begun at another provider");
    site.admin.configure(identities.access());
    // What came to nothing, because it was not of this login, has not ended it in the browser either.
    let foreign = come(&cookie, "of-another-login");
    assert_failed(&foreign, "late", "another state");
    assert_eq!(foreign.field("set-cookie"), None);
    let told = come(&cookie, &state);
    assert!(session(&told).is_some(), "{told:?}");
    assert!(told.head.contains("millrace-admin-oidc=; Path=/login/oidc; "), "{told:?}");
}

#[test]
fn a_login_begins_at_this_server_and_ends_there() {
    let identities = Identities::start();
    let site = identities.site();
    let begin = |fields: &str| site.ask("POST", "/api/v1/login/oidc", fields, "").status;
    assert_eq!(begin(""), 422);
    assert_eq!(begin("Origin: http://evil.example\r\n"), 403);
    assert_eq!(begin("Host: evil.example\r\nOrigin: http://evil.example\r\n"), 421);
    let foreign = site.ask("GET", "/login/oidc?code=c0de&state=x", "Host: evil.example\r\n", "");
    assert_eq!(foreign.status, 421);
    let proxied = "Host: admin.example.net\r\nOrigin: https://admin.example.net\r\n";
    let (cookie, state) = identities.go(&site, proxied, |_| {});
    let fields = format!("{cookie}Host: admin.example.net\r\n");
    let told = site.ask("GET", &format!("/login/oidc?code=c0de&state={state}"), &fields, "");
    assert!(told.head.contains("; SameSite=Strict; Secure\r\n"), "{told:?}");
    // A provider that is not there, and none at all.
    site.admin.configure(AdminAccess { hosts: Vec::new(), ..AdminAccess::default() });
    assert_eq!(begin(&format!("Origin: http://{}\r\n", site.host())), 404);
    assert_eq!(site.ask("GET", "/login/oidc?code=c0de&state=x", "", "").status, 404);
}

#[test]
fn roles_come_from_groups_and_verified_addresses_and_can_be_taken_back() {
    let identities = Identities::start();
    let site = identities.site();
    let role = |claims: Vec<(&'static str, Value)>, information: Value| {
        let told = identities.log_in(&site, |plan| (plan.claims, plan.information) = (claims, information));
        let cookie = session(&told)?;
        Some(site.ask("GET", "/api/v1/me", &cookie, "").json()["role"].clone())
    };
    let unverified = ("email_verified", json!(false));
    assert_eq!(role(vec![unverified.clone()], Value::Null), Some(json!("viewer")));
    assert_eq!(
        role(vec![unverified.clone(), ("groups", json!("staff"))], Value::Null),
        Some(json!("viewer"))
    );
    let told =
        identities.log_in(&site, |plan| plan.claims = vec![unverified.clone(), ("groups", json!(["x"]))]);
    assert_failed(&told, "role", "without a role");
    let told = identities.log_in(&site, |_| {});
    let cookie = session(&told).unwrap();
    site.admin.configure(AdminAccess { operators: Vec::new(), viewers: Vec::new(), ..identities.access() });
    assert_eq!(site.ask("GET", "/api/v1/me", &cookie, "").status, 401);
}

#[test]
fn groups_that_a_token_lacks_come_from_the_user_information_of_that_user() {
    let identities = Identities::start();
    let site = Site::start(AdminAccess { operators: Vec::new(), ..identities.access() });
    for (subject, is_in) in [("u-17", true), ("u-18", false)] {
        let told = identities.log_in(&site, |plan| {
            plan.information = json!({ "sub": subject, "roles": ["staff"], "groups": ["staff"] });
            plan.claims = vec![("groups", Value::Null)];
        });
        // A claim that is null is as good as none.
        assert_eq!(session(&told).is_some(), is_in, "{subject}: {told:?}");
    }
}
