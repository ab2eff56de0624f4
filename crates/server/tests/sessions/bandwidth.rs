//! Limits of bandwidth on real connections: by `sendfile`, `splice` and buffers, in both directions.
//!
//! This tests that a limit holds, not that it is reached: for that there are the tests of the buckets, with a simulated
//! clock, and `bench-runs`.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_net::tls::Versions;
use millrace_server::limits::{AccountLimits, Limit, Limits, Scope, ScopeReport, ServerLimits};
use millrace_server::{Accounts, Config, Permissions};
use millrace_storage::MemoryStorage;
use millrace_vfs::Storage;

use crate::kit::{Scratch, TlsClient, config, connector, eventually, pattern, policy, serve_with};

fn both(rate: u64) -> Limits {
    Limits { download: Some(Limit::of(rate)), upload: Some(Limit::of(rate)), ..Limits::default() }
}

fn limited(storage: Arc<dyn Storage>, limits: ServerLimits) -> Config {
    Config { limits, ..config(storage) }
}

/// Asserts that `bytes` took the time that they take at this rate, but for the first slice.
#[track_caller]
fn assert_held(begin: Instant, bytes: usize, rate: u64) {
    let least = bytes as f64 / rate as f64 - 0.25;
    let took = begin.elapsed().as_secs_f64();
    assert!(took >= least, "{bytes} bytes at {rate} a second took {took:.2} s");
}

#[test]
fn a_limit_holds_by_sendfile_by_splice_and_by_buffers() {
    const RATE: u64 = 400_000;
    let content = pattern(400_000);
    let scratch = Scratch::new();
    let storages: [Arc<dyn Storage>; 3] =
        [scratch.storage(), scratch.in_place(), Arc::new(MemoryStorage::new())];
    std::thread::scope(|scope| {
        for (number, storage) in storages.into_iter().enumerate() {
            let content = &content;
            scope.spawn(move || {
                let limits = ServerLimits { session: both(RATE), ..ServerLimits::default() };
                let served = serve_with(limited(storage, limits));
                let mut client = served.login();
                let (name, begin) = (format!("f{number}"), Instant::now());
                client.store(format!("STOR {name}"), content);
                assert_held(begin, content.len(), RATE);
                let begin = Instant::now();
                assert!(client.fetch(format!("RETR {name}")) == *content);
                assert_held(begin, content.len(), RATE);
            });
        }
    });
}

/// A record is read whole, whatever may be moved of it, and so is what follows it in the same read.
#[test]
fn a_limit_holds_through_tls_staged_in_place_and_converted() {
    const RATE: u64 = 400_000;
    let content = pattern(400_000);
    let (staged, in_place) = (Scratch::new(), Scratch::new());
    let kinds = [
        (&staged, staged.storage(), "TYPE I"),
        (&in_place, in_place.in_place(), "TYPE I"),
        (&staged, staged.storage(), "TYPE A"),
    ];
    std::thread::scope(|scope| {
        for (number, (files, storage, representation)) in kinds.into_iter().enumerate() {
            let content = &content;
            scope.spawn(move || {
                let limits = ServerLimits { session: both(RATE), ..ServerLimits::default() };
                let certificates = Scratch::new();
                let tls = Some(policy(&certificates));
                let served = serve_with(Config { tls, ..limited(storage, limits) });
                let mut client = TlsClient::explicit(served.address, connector(Versions::All)).ready();
                client.expect(representation, 200);
                let (name, begin) = (format!("f{number}"), Instant::now());
                assert_eq!(client.store(&format!("STOR {name}"), content).code, 226);
                assert_held(begin, content.len(), RATE);
                let begin = Instant::now();
                client.fetch(&format!("RETR {name}"));
                assert_held(begin, files.read(&name).unwrap().len(), RATE);
            });
        }
    });
}

#[test]
fn the_sessions_of_a_user_share_its_limit() {
    const RATE: u64 = 400_000;
    let storage = MemoryStorage::new();
    storage.insert("/f", pattern(100_000));
    let limits = AccountLimits { user: both(RATE), ..AccountLimits::default() };
    let accounts =
        Accounts::new().user("u", "p", Permissions::READ_ONLY, Arc::new(storage)).limited("u", limits);
    let served =
        serve_with(Config { accounts: Arc::new(accounts), ..config(Arc::new(MemoryStorage::new())) });
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(served.login().fetch("RETR f").len(), 100_000));
        }
    });
    assert_held(begin, 400_000, RATE);
}

#[test]
fn a_limit_is_no_stall_and_can_be_lifted_while_bytes_flow() {
    let scratch = Scratch::new();
    scratch.write("f", &pattern(300_000));
    let limits = ServerLimits { server: both(4_000), ..ServerLimits::default() };
    let config = Config { stall_timeout: Duration::from_millis(400), ..limited(scratch.storage(), limits) };
    let served = serve_with(config);
    let mut client = served.login();
    let mut data = client.passive();
    client.expect("RETR f", 150);
    let mut first = vec![0; 4_000];
    // More than the first slice, so a second one came, a pause and no stall after the first.
    data.read_exact(&mut first).unwrap();
    assert!(served.running.set_limits(&Scope::Server, &both(0)));
    let mut rest = Vec::new();
    data.read_to_end(&mut rest).unwrap();
    assert_eq!(first.len() + rest.len(), 300_000);
    client.expect_reply(226);

    assert!(served.running.restore_limits(&Scope::Server));
    assert_eq!(served.running.limits()[0].download, 4_000);
}

#[test]
fn one_session_can_be_held_back() {
    let scratch = Scratch::new();
    scratch.write("f", &pattern(50_000));
    let served = serve_with(config(scratch.storage()));
    let (mut first, mut second) = (served.login(), served.login());
    assert!(served.running.set_limits(&Scope::Session(1), &both(50_000)));
    assert!(!served.running.set_limits(&Scope::Session(99), &both(50_000)));
    let begin = Instant::now();
    assert_eq!(first.fetch("RETR f").len(), 50_000);
    assert_held(begin, 50_000, 50_000);
    assert_eq!(second.fetch("RETR f").len(), 50_000);
    let of_sessions = || {
        let reports = served.running.limits().into_iter();
        let of_one = |report: ScopeReport| match report.scope {
            Scope::Session(number) => Some((number, report.download)),
            _ => None,
        };
        reports.filter_map(of_one).collect::<Vec<_>>()
    };
    assert_eq!(of_sessions(), [(1, 50_000)]);
    assert!(served.running.restore_limits(&Scope::Session(1)));
    assert_eq!(of_sessions(), []);
    assert!(!served.running.restore_limits(&Scope::Session(99)));
}

#[test]
fn a_paused_transfer_hears_abor() {
    let scratch = Scratch::new();
    scratch.write("f", &pattern(1_000_000));
    let limits = ServerLimits { server: both(2_000), ..ServerLimits::default() };
    let served = serve_with(limited(scratch.storage(), limits));
    let mut client = served.login();
    let mut data = client.passive();
    client.expect("RETR f", 150);
    data.read_exact(&mut [0; 100]).unwrap();
    client.expect("ABOR", 426);
    client.expect_reply(226);
    // An upload, too.
    let mut data = client.passive();
    client.expect("STOR g", 150);
    data.write_all(&pattern(100_000)).unwrap();
    client.expect("ABOR", 426);
    client.expect_reply(226);
    client.expect_alive();
}

/// The next connection is another worker's, which may be ahead of the one that writes the 221.
#[test]
fn a_client_that_has_quit_may_log_in_again_at_once() {
    let limits = ServerLimits {
        user: Limits { sessions: Some(Limit::of(1)), ..Limits::default() },
        ..ServerLimits::default()
    };
    let served = serve_with(limited(Arc::new(MemoryStorage::new()), limits));
    for _ in 0..500 {
        let mut client = served.login();
        client.expect("QUIT", 221);
    }
}

#[test]
fn a_user_has_only_so_many_sessions() {
    let limits = ServerLimits {
        user: Limits { sessions: Some(Limit::of(2)), ..Limits::default() },
        ..ServerLimits::default()
    };
    let served = serve_with(limited(Arc::new(MemoryStorage::new()), limits));
    let mut clients = [served.login(), served.login()];
    let mut third = served.connect();
    third.expect("USER u", 331);
    let reply = third.expect("PASS p", 421);
    assert!(reply.text.contains("Too many sessions of this user"), "{reply:?}");
    third.expect_end();
    let mut other = served.connect();
    other.log_in("r", "p");
    clients[0].expect("REIN", 220);
    let mut again = served.login();
    again.expect_alive();
    eventually("the refused one is not counted", || {
        served.running.limits().iter().any(|one| one.scope.to_string() == "user u" && one.sessions == 2)
    });
}
