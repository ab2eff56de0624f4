//! Certificates that the server fetches itself, from a real CA: Let's Encrypt's pebble, run by the test that needs it.
//! What time it is for their renewal is the test's.

#[path = "../sources/daemon.rs"]
#[allow(dead_code, reason = "other tests use all of it")]
mod daemon;
#[path = "../kit/mod.rs"]
mod kit;
mod pebble;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use millrace_net::tls::{Connector, Plan, Trust, Versions};
use millrace_server::Config;
use millrace_server::config::{Acme, Challenge, Clock, Tls};
use millrace_storage::MemoryStorage;

use kit::{Scratch, Served, TlsClient, config, serve_with, within};
use pebble::{Mood, Pebble, REFUSED};

/// An order is a dozen requests, each with a handshake, on a machine that may be busy.
const PATIENCE: Duration = Duration::from_secs(120);

const DAY: u64 = 86_400;

/// A mood in which nothing goes wrong.
const GOOD: Mood = Mood { bad_nonces: 0 };

/// A server, its CA, and its clock.
struct Site {
    served: Served,
    pebble: Pebble,
    /// Seconds by which the clock is ahead.
    ahead: Arc<AtomicU64>,
    settings: Acme,
    _scratch: Scratch,
    /// One CA at a time: each is a burden to a small machine.
    _turn: MutexGuard<'static, ()>,
}

impl Site {
    /// A server that waits for its CA; `None` where there is none to be had.
    fn new(challenge: Challenge, change: impl FnOnce(&mut Acme, &mut Config)) -> Option<Self> {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let pebble = Pebble::new()?;
        let (scratch, ahead) = (Scratch::new(), Arc::new(AtomicU64::new(0)));
        let clock = Arc::clone(&ahead);
        let mut settings = Acme {
            contacts: vec!["admin@example.org".to_owned()],
            directory: pebble.url(),
            authorities: Some(pebble.authority()),
            challenge,
            patience: PATIENCE,
            clock: Clock::new(move || SystemTime::now() + Duration::from_secs(clock.load(Ordering::Relaxed))),
            ..Acme::new(vec!["localhost".to_owned()], scratch.file("acme"))
        };
        let mut config = Config {
            http: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            https: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            ..config(Arc::new(MemoryStorage::new()))
        };
        change(&mut settings, &mut config);
        let plan = Plan { identities: vec![settings.identity()], ..Plan::default() };
        config.tls = Some(Tls::new(plan));
        config.acme = Some(settings.clone());
        let served = serve_with(config);
        Some(Self { served, pebble, ahead, settings, _scratch: scratch, _turn: turn })
    }

    fn start_ca(&mut self, mood: Mood) {
        let running = &self.served.running;
        let (http, https) = (running.http_addresses()[0].port(), running.https_addresses()[0].port());
        self.pebble.start(http, https, mood);
    }

    /// Waits until there is another certificate than this, and lets a month pass meanwhile, in steps: what has failed,
    /// as it may on a machine that is busy, is tried again.
    #[track_caller]
    fn wait_for_another(&self, than: &str) -> String {
        let mut left = 30 * DAY;
        within(PATIENCE, "another certificate", || {
            let step = left.min(300);
            left -= step;
            self.pass(step);
            self.fingerprint() != than
        });
        self.fingerprint()
    }

    fn pass(&self, seconds: u64) {
        self.ahead.fetch_add(seconds, Ordering::Relaxed);
    }

    fn fingerprint(&self) -> String {
        self.served.running.fingerprints().remove(0)
    }

    /// A session of a client that trusts only the CA.
    fn connect(&self) -> TlsClient {
        let root = self.pebble.root();
        let connector = Connector::new(Trust::Authorities(&root), Versions::All, None).unwrap();
        TlsClient::explicit(self.served.address, connector)
    }
}

fn get(address: SocketAddr, target: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    write!(socket, "GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn by_http_a_certificate_comes_that_the_ca_vouches_for() {
    let Some(mut site) = Site::new(Challenge::Http, |_, _| {}) else { return };
    let placeholder = site.fingerprint();
    site.start_ca(GOOD);
    site.wait_for_another(&placeholder);
    let mut client = site.connect().ready();
    client.store("STOR f", b"content");
    assert_eq!(client.fetch("RETR f"), b"content");
    // After the challenge the path is a file like others, and does not exist.
    let answer = get(site.served.running.http_addresses()[0], "/.well-known/acme-challenge/abc");
    assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn by_tls_a_certificate_comes_whatever_is_asked_of_clients() {
    let Some(mut site) = Site::new(Challenge::TlsAlpn, |_, _| {}) else { return };
    let placeholder = site.fingerprint();
    site.start_ca(GOOD);
    site.wait_for_another(&placeholder);
    site.connect().ready();
}

#[test]
fn renewal_touches_no_session() {
    let Some(mut site) = Site::new(Challenge::TlsAlpn, |_, _| {}) else { return };
    let placeholder = site.fingerprint();
    site.start_ca(GOOD);
    let first = site.wait_for_another(&placeholder);
    let mut client = site.connect().ready();
    client.store("STOR f", b"content");
    site.pass(61 * DAY);
    let second = site.wait_for_another(&first);
    assert_ne!(second, placeholder);
    client.expect("NOOP", 200);
    assert_eq!(client.fetch("RETR f"), b"content");
    site.connect().ready();
    // The account is the same: of all requests there was one that made it.
    assert!(site.settings.folder.join("account.json").is_file());
}

#[test]
fn the_server_does_not_wait_for_an_unreachable_ca() {
    let Some(mut site) = Site::new(Challenge::Http, |_, _| {}) else { return };
    site.pebble.go_away();
    let placeholder = site.fingerprint();
    let anybody = Connector::new(Trust::Anybody, Versions::All, None).unwrap();
    let mut client = TlsClient::explicit(site.served.address, anybody).ready();
    within(PATIENCE, "the CA is asked", || site.pebble.turned_away() > 0);
    client.store("STOR f", b"content");
    site.start_ca(GOOD);
    site.wait_for_another(&placeholder);
    assert_eq!(client.fetch("RETR f"), b"content");
    site.connect().ready();
}

#[test]
fn a_ca_that_forgets_is_told_again() {
    let Some(mut site) = Site::new(Challenge::Http, |_, _| {}) else { return };
    let placeholder = site.fingerprint();
    site.start_ca(Mood { bad_nonces: 30 });
    // Three bad nonces in a row end an order, and the next one comes in its time.
    let first = site.wait_for_another(&placeholder);
    // It has lost its data: the stored account is unknown.
    site.pebble.go_away();
    site.start_ca(GOOD);
    site.pass(61 * DAY);
    site.wait_for_another(&first);
    site.connect().ready();
}

#[test]
fn a_name_that_the_ca_refuses_leaves_all_as_it_is() {
    let change = |settings: &mut Acme, _: &mut Config| settings.domains = vec![REFUSED.to_owned()];
    let Some(mut site) = Site::new(Challenge::Http, change) else { return };
    let placeholder = site.fingerprint();
    site.start_ca(GOOD);
    within(PATIENCE, "the CA is asked", || site.pebble.let_in() >= 5);
    assert_eq!(site.fingerprint(), placeholder);
    // Another configuration takes its place at once.
    let settings = Acme { domains: vec!["localhost".to_owned()], ..site.settings.clone() };
    let plan = Plan { identities: vec![settings.identity()], ..Plan::default() };
    let again =
        Config { tls: Some(Tls::new(plan)), acme: Some(settings), ..config(Arc::new(MemoryStorage::new())) };
    site.served.running.reload(again).unwrap();
    site.wait_for_another(&placeholder);
    site.connect();
}

#[test]
fn configuring_the_same_again_orders_nothing() {
    // The clock does not advance, so a pause is never over.
    let change = |settings: &mut Acme, _: &mut Config| {
        let now = SystemTime::now();
        settings.clock = Clock::new(move || now);
    };
    let Some(mut site) = Site::new(Challenge::Http, change) else { return };
    site.pebble.go_away();
    let turned_away = |site: &Site, count| {
        within(PATIENCE, "the CA is asked", || site.pebble.turned_away() >= count);
    };
    let reload = |contact: &str| {
        let settings = Acme { contacts: vec![contact.to_owned()], ..site.settings.clone() };
        let plan = Plan { identities: vec![settings.identity()], ..Plan::default() };
        let tls = Some(Tls::new(plan));
        let again = Config { tls, acme: Some(settings), ..config(Arc::new(MemoryStorage::new())) };
        site.served.running.reload(again).unwrap();
    };
    turned_away(&site, 1);
    (0..3).for_each(|_| reload("admin@example.org"));
    // A different configuration is tried at once; the data of earlier ones is removed.
    for (count, contact) in [(2, "one@example.org"), (3, "two@example.org")] {
        reload(contact);
        turned_away(&site, count);
        (0..3).for_each(|_| reload(contact));
    }
    assert_eq!(site.pebble.turned_away(), 3);
}
