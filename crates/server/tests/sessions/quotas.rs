//! Quotas: bytes and files, by FTP and HTTP alike, and never over by many at once.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use millrace_net::tls::Versions;
use millrace_server::Config;
use millrace_server::hooks::{Action, Event, PathPattern, Rule, Rules};
use millrace_server::limits::Quotas;
use millrace_storage::{Allowance, Ledger, LocalOptions, Quota, Tally};
use millrace_vfs::{QuotaScope, Storage};

use crate::kit::{
    Client, Scratch, Served, TlsClient, config, connector, eventually, policy, serve_with, wait_until_arrived,
};

fn held_to(storage: Arc<dyn Storage>, bytes: u64, files: u64) -> Arc<dyn Storage> {
    let tally = Arc::new(Tally::new("test", Arc::clone(&storage)));
    Arc::new(Quota::new(
        storage,
        tally,
        Allowance { bytes: Some(bytes), files: Some(files) },
        QuotaScope::Account,
    ))
}

fn serve_both(storage: Arc<dyn Storage>) -> Served {
    let http = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))];
    serve_with(Config { http, ..config(storage) })
}

/// What `SITE QUOTA` says: bytes and files.
fn held(client: &mut Client) -> (u64, u64) {
    let reply = client.expect("SITE QUOTA", 200);
    let numbers: Vec<u64> = reply.text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    (numbers[0], numbers[2])
}

/// What was refused is given up on another thread than the one that says so.
#[track_caller]
fn expect_held(client: &mut Client, expected: (u64, u64)) {
    eventually("what was given up is no longer counted", || held(client) == expected);
}

/// By HTTP, as `u:p`; the status, 0 where the server hung up on more than it wanted.
fn http(served: &Served, line: &str, fields: &str, body: &[u8]) -> u16 {
    let answer = http_answer(served, line, fields, body);
    String::from_utf8_lossy(&answer).split(' ').nth(1).map_or(0, |status| status.parse().unwrap())
}

/// The same; all that was answered.
fn http_answer(served: &Served, line: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(served.running.http_addresses()[0]).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let head = format!(
        "{line} HTTP/1.1\r\nHost: h\r\nAuthorization: Basic dTpw\r\nConnection: close\r\n{fields}Content-Length: {}\r\n\r\n",
        body.len()
    );
    // Where it is refused before all of it has come, the rest need not be taken.
    let _ = stream.write_all(&[head.as_bytes(), body].concat());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn every_way_to_change_files_is_counted_by_ftp_and_http_staged_and_in_place() {
    let (staged, in_place) = (Scratch::new(), Scratch::new());
    for storage in [staged.storage(), in_place.in_place()] {
        let served = serve_both(held_to(storage, 1000, 5));
        let mut client = served.login();
        client.store("STOR a", &[b'x'; 300]);
        assert_eq!(held(&mut client), (300, 1));
        client.store("APPE a", &[b'x'; 100]);
        assert_eq!(held(&mut client), (400, 1));
        client.store("STOU", &[b'x'; 50]);
        assert_eq!(held(&mut client), (450, 2));
        client.store("STOR a", &[b'x'; 200]);
        assert_eq!(held(&mut client), (250, 2), "over an existing file the difference counts");
        client.expect("SITE CPFR a", 350);
        client.expect("SITE CPTO b", 250);
        assert_eq!(held(&mut client), (450, 3));
        client.expect("RNFR b", 350);
        client.expect("RNTO a", 250);
        assert_eq!(held(&mut client), (250, 2), "what a rename replaces is gone");
        assert_eq!(http(&served, "PUT /c", "", &[b'x'; 70]), 201);
        assert_eq!(held(&mut client), (320, 3));
        assert_eq!(http(&served, "PUT /c", "Content-Range: bytes 70-89/90\r\n", &[b'x'; 20]), 204);
        assert_eq!(held(&mut client), (340, 3));
        assert_eq!(http(&served, "COPY /c", "Destination: /d\r\n", b""), 201);
        assert_eq!(held(&mut client), (430, 4));
        assert_eq!(http(&served, "MOVE /d", "Destination: /c\r\n", b""), 204);
        assert_eq!(http(&served, "DELETE /c", "", b""), 204);
        assert_eq!(held(&mut client), (250, 2));
        client.expect("MKD t", 257);
        client.store("STOR t/f", &[b'x'; 30]);
        assert_eq!(held(&mut client), (280, 3));
        client.expect("RMDA t", 250);
        assert_eq!(held(&mut client), (250, 2));
        client.expect("DELE a", 250);
        assert_eq!(held(&mut client), (50, 1));
        assert_eq!(client.expect("AVBL", 213).text.trim(), "213 950");
    }
}

#[test]
fn the_client_is_told_which_quota_and_nothing_else() {
    let scratch = Scratch::new();
    let served = serve_both(held_to(scratch.storage(), 1000, 2));
    let mut client = served.login();
    let told = client.try_store("STOR a", &[b'x'; 1001]);
    assert_eq!(told.code, 552);
    assert!(told.text.contains("the quota of bytes of this account is used up"), "{}", told.text);
    expect_held(&mut client, (0, 0));
    client.store("STOR a", &[b'x'; 1000]);
    // Told at once, before anything is sent.
    client.passive();
    assert!(client.expect("STOR b", 552).text.contains("quota of bytes"));
    client.expect("DELE a", 250);
    client.store("STOR a", b"x");
    client.store("STOR b", b"x");
    client.passive();
    assert!(client.expect("STOR c", 552).text.contains("quota of files of this account is used up"));
    client.expect("SITE CPFR a", 350);
    assert!(client.expect("SITE CPTO c", 552).text.contains("quota of files"));
    assert_eq!(http(&served, "PUT /c", "", b"x"), 507);
    assert_eq!(http(&served, "PUT /a", "", &[b'x'; 2000]), 507);
    expect_held(&mut client, (2, 2));
}

#[test]
fn uploads_at_once_are_never_over_together() {
    const QUOTA: u64 = 3_000_000;
    let (staged, in_place) = (Scratch::new(), Scratch::new());
    let kinds: [(&Scratch, Arc<dyn Storage>); 2] =
        [(&staged, staged.storage()), (&in_place, in_place.in_place())];
    for (scratch, storage) in kinds {
        let served = serve_both(held_to(storage, QUOTA, 100));
        thread::scope(|scope| {
            for number in 0..6 {
                let served = &served;
                scope.spawn(move || {
                    let mut client = served.login();
                    // Large enough for the kernel to move what comes, and together more than there is room for.
                    let reply = client.try_store(format!("STOR f{number}"), &vec![b'x'; 900_000]);
                    assert!(matches!(reply.code, 226 | 552), "{}", reply.text);
                    let status = http(served, &format!("PUT /h{number}"), "", &vec![b'x'; 700_000]);
                    assert!(matches!(status, 0 | 201 | 507), "{status}");
                });
            }
        });
        let sizes = || scratch.names().into_iter().map(|name| scratch.read(&name).unwrap().len() as u64);
        let on_disk = || (sizes().sum::<u64>(), sizes().count() as u64);
        let mut client = served.login();
        eventually("what is counted is what is there", || held(&mut client) == on_disk());
        let (bytes, _) = on_disk();
        assert!(bytes <= QUOTA, "{bytes}");
        // All of the rest can be used, and not a byte more.
        if bytes < QUOTA {
            client.store("STOR rest", &vec![b'x'; (QUOTA - bytes) as usize]);
        }
        assert_eq!(held(&mut client).0, QUOTA);
        client.passive();
        client.expect("STOR more", 552);
    }
}

/// Serves to `u` what may be moved only so far.
fn serve_moving(storage: Arc<dyn Storage>, keys: &str) -> Served {
    serve_moving_with(storage, keys, |_| {})
}

fn serve_moving_with(storage: Arc<dyn Storage>, keys: &str, change: impl FnOnce(&mut Config)) -> Served {
    use millrace_server::auth::{Chain, Group, Homes, Listed, Mounts, Profile, User};
    let mut config = config(storage);
    let root = std::env::temp_dir().canonicalize().unwrap();
    let homes = Arc::new(Homes::new(root, LocalOptions::default()));
    let quotas = Arc::new(Quotas::new(Ledger::new(None)));
    let profile: Profile = serde_json::from_str(keys).unwrap();
    let user = User { name: "u".to_owned(), groups: vec!["all".to_owned()], profile: Profile::default() };
    let group = Group { name: "all".to_owned(), profile };
    let chain = Chain::new(homes)
        .quotas(Arc::clone(&quotas))
        .group(group)
        .mounts(Arc::new(Mounts::new(Vec::new(), true)))
        .source(Listed::new().user(user, "p".into()));
    config.accounts = Arc::new(chain);
    config.quotas = Some(quotas);
    config.http = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))];
    change(&mut config);
    serve_with(config)
}

#[test]
fn transfers_end_at_the_quota_of_the_day_by_ftp_and_http_together() {
    let scratch = Scratch::new();
    let folder = scratch.path().file_name().unwrap().to_str().unwrap();
    scratch.write("f", &[b'x'; 600_000]);
    let keys = format!(
        "{{\"directory\": \"{folder}\", \"quota-download\": \"1M/month\", \"quota-upload\": \"500k/month\"}}"
    );
    let served = serve_moving(scratch.storage(), &keys);
    let mut client = served.login();
    assert_eq!(client.fetch("RETR f").len(), 600_000);
    let (content, reply) = client.try_fetch("RETR f");
    // The reset that says that it is not all may throw some of it away.
    assert!(content.len() <= 400_000 && reply.code == 552, "{}: {}", content.len(), reply.text);
    assert!(reply.text.contains("this account may download no more for now"), "{}", reply.text);
    client.passive();
    client.expect("RETR f", 552);
    assert_eq!(http(&served, "GET /f", "", b""), 403);
    // The other direction has another quota; it ends exactly at its limit, and a cut upload leaves nothing.
    client.store("STOR a", &[b'x'; 300_000]);
    assert_eq!(http(&served, "PUT /b", "", &[b'x'; 200_001]), 403);
    assert_eq!(scratch.read("b"), None);
    client.passive();
    client.expect("STOR c", 552);
}

#[test]
fn an_upload_that_is_just_as_long_as_what_is_left_is_whole() {
    let scratch = Scratch::new();
    let folder = scratch.path().file_name().unwrap().to_str().unwrap();
    let keys = format!("{{\"directory\": \"{folder}\", \"quota-transfer\": \"200k/month\"}}");
    let served = serve_moving(scratch.storage(), &keys);
    let mut client = served.login();
    client.store("STOR a", &[b'x'; 200_000]);
    assert_eq!(scratch.read("a").unwrap().len(), 200_000);
    client.passive();
    assert!(client.expect("STOR b", 552).text.contains("may transfer no more"));
}

#[test]
fn uploads_through_tls_end_at_the_quota_of_the_day_whatever_their_pace() {
    for rate in ["", ", \"upload\": 400000"] {
        let (scratch, certificates) = (Scratch::new(), Scratch::new());
        let folder = scratch.path().file_name().unwrap().to_str().unwrap();
        let keys = format!("{{\"directory\": \"{folder}\", \"quota-upload\": \"300k/month\"{rate}}}");
        let served = serve_moving_with(scratch.storage(), &keys, |config| {
            config.tls = Some(policy(&certificates));
        });
        let mut client = TlsClient::explicit(served.address, connector(Versions::All)).ready();
        let mut taken = 0;
        // Each is larger than a piece of the quota, and comes in one go.
        while client.try_store(&format!("STOR f{taken}"), &[b'x'; 70_000]).code == 226 {
            taken += 70_000;
        }
        assert_eq!(taken, 280_000, "{keys}");
    }
}

#[test]
fn a_user_with_a_ratio_uploads_first() {
    let scratch = Scratch::new();
    let folder = scratch.path().file_name().unwrap().to_str().unwrap();
    scratch.write("f", &[b'x'; 200_000]);
    let keys = format!("{{\"directory\": \"{folder}\", \"ratio\": \"1:2\"}}");
    let served = serve_moving(scratch.storage(), &keys);
    let mut client = served.login();
    client.passive();
    assert!(client.expect("RETR f", 552).text.contains("has to upload before it may download more"));
    client.store("STOR a", &[b'x'; 100_000]);
    assert_eq!(client.fetch("RETR f").len(), 200_000);
    client.passive();
    client.expect("RETR f", 552);
}

#[test]
fn uploads_that_leave_no_file_earn_nothing_by_ftp_and_http() {
    let scratch = Scratch::new();
    let folder = scratch.path().file_name().unwrap().to_str().unwrap();
    scratch.write("f", &[b'x'; 80_000]);
    let keys = format!("{{\"directory\": \"{folder}\", \"ratio\": \"1:1\", \"quota-bytes\": \"200k\"}}");
    let refusing = Rule {
        on: vec![Event::Upload],
        verbs: Vec::new(),
        users: Vec::new(),
        paths: vec![PathPattern::new("/refused*")],
        larger_than: None,
        smaller_than: None,
        action: Action::Refuse("no".to_owned()),
        wait: None,
        time_limit: Duration::from_secs(30),
        refuses_on_failure: true,
        refused_to: None,
    };
    let served = serve_moving_with(scratch.storage(), &keys, |config| {
        config.hooks = Some(Arc::new(Rules::new(vec![refusing], None)));
    });
    let mut client = served.login();
    assert_eq!(client.try_store("STOR refused", &[b'x'; 90_000]).code, 550);
    assert_eq!(http(&served, "PUT /refused-too", "", &[b'x'; 90_000]), 403);
    // Too much for the quota in the middle.
    assert_eq!(client.try_store("STOR a", &[b'x'; 200_000]).code, 552);
    assert!(matches!(http(&served, "PUT /b", "", &[b'x'; 200_000]), 0 | 507));
    // Given up by the client.
    let mut data = client.passive();
    client.expect("STOR c", 150);
    data.write_all(&[b'x'; 90_000]).unwrap();
    wait_until_arrived(&data);
    client.expect("ABOR", 426);
    client.expect_reply(226);
    let mut stream = TcpStream::connect(served.running.http_addresses()[0]).unwrap();
    let head = "PUT /c HTTP/1.1\r\nHost: h\r\nAuthorization: Basic dTpw\r\nContent-Length: 99000\r\n\r\n";
    stream.write_all(&[head.as_bytes(), &[b'x'; 90_000]].concat()).unwrap();
    drop(stream);
    eventually("only what was there is", || scratch.names() == ["f"]);
    client.passive();
    assert!(client.expect("RETR f", 552).text.contains("has to upload"));
    assert_eq!(http(&served, "GET /f", "", b""), 403);
    client.store("STOR a", &[b'x'; 50_000]);
    assert_eq!(http(&served, "PUT /b", "", &[b'x'; 30_000]), 201);
    assert_eq!(client.fetch("RETR f").len(), 80_000);
    client.passive();
    client.expect("RETR f", 552);
}

#[test]
fn the_rest_of_a_cut_upload_in_place_earns_credit() {
    let scratch = Scratch::new();
    let folder = scratch.path().file_name().unwrap().to_str().unwrap();
    scratch.write("f", &[b'x'; 1000]);
    let keys = format!("{{\"directory\": \"{folder}\", \"ratio\": \"1:1\"}}");
    let served = serve_moving(scratch.storage(), &keys);
    let mut client = served.login();
    let mut data = client.passive();
    client.expect("APPE a", 150);
    data.write_all(&[b'x'; 1000]).unwrap();
    eventually("what came is there", || scratch.read("a").is_some_and(|content| content.len() == 1000));
    client.expect("ABOR", 426);
    client.expect_reply(226);
    assert_eq!(client.fetch("RETR f").len(), 1000);
}

/// A folder whose listing is longer than one buffer.
fn crowded(scratch: &Scratch) {
    std::fs::create_dir(scratch.file("many")).unwrap();
    for number in 0..1000 {
        scratch.write(&format!("many/{number:0100}"), b"");
    }
}

#[test]
fn a_user_without_credit_can_list_by_ftp_and_http() {
    let scratch = Scratch::new();
    let folder = scratch.path().file_name().unwrap().to_str().unwrap();
    scratch.write("f", &[b'x'; 100_000]);
    crowded(&scratch);
    let served =
        serve_moving(scratch.storage(), &format!("{{\"directory\": \"{folder}\", \"ratio\": \"1:1\"}}"));
    let mut client = served.login();
    let last = format!("{:0100}", 999);
    let is_whole = |listing: &[u8]| String::from_utf8_lossy(listing).contains(&last);
    for verb in ["LIST", "NLST", "MLSD"] {
        assert!(is_whole(&client.fetch(format!("{verb} many"))), "{verb}");
    }
    for (line, fields, status) in [
        ("GET /many/", "", "200"),
        ("GET /many/", "Accept: application/json\r\n", "200"),
        ("PROPFIND /many/", "Depth: 1\r\n", "207"),
        ("GET /", "", "200"),
    ] {
        let answer = http_answer(&served, line, fields, b"");
        let text = String::from_utf8_lossy(&answer);
        assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{line} {fields}: {text}");
        assert!(
            line == "GET /" || is_whole(&answer) && answer.ends_with(b"\r\n0\r\n\r\n"),
            "{line} {fields}"
        );
    }
    assert_eq!(http(&served, "HEAD /f", "", b""), 200);
    // None of it is a file's content; all of this is.
    for path in ["f", "many.tar", "many.zip"] {
        client.passive();
        assert!(client.expect(format!("RETR {path}"), 552).text.contains("has to upload"), "{path}");
        assert_eq!(http(&served, &format!("GET /{path}"), "", b""), 403, "{path}");
    }
    // And nothing was taken of what an upload earns.
    client.store("STOR up", &[b'x'; 100_000]);
    assert_eq!(client.fetch("RETR f").len(), 100_000);
    assert!(is_whole(&client.fetch("NLST many")));
    client.passive();
    client.expect("RETR f", 552);
}

#[test]
fn a_folder_that_is_downloaded_as_an_archive_counts_as_what_was_sent() {
    let scratch = Scratch::new();
    let folder = scratch.path().file_name().unwrap().to_str().unwrap();
    std::fs::create_dir(scratch.file("d")).unwrap();
    scratch.write("d/f", &[b'x'; 60_000]);
    let keys = format!("{{\"directory\": \"{folder}\", \"quota-download\": \"220k/month\"}}");
    let served = serve_moving(scratch.storage(), &keys);
    let mut client = served.login();
    assert!(http_answer(&served, "GET /d.tar", "", b"").len() > 60_000);
    assert!(client.fetch("RETR d.tar").len() > 60_000);
    // Two archives and one file are what there is room for.
    assert_eq!(client.fetch("RETR d/f").len(), 60_000);
    let (content, reply) = client.try_fetch("RETR d/f");
    assert!(content.len() < 40_000 && reply.code == 552, "{}: {}", content.len(), reply.text);
}

#[test]
fn many_transfers_at_once_are_not_over_the_quota_of_the_day_together() {
    let scratch = Scratch::new();
    let folder = scratch.path().file_name().unwrap().to_str().unwrap();
    scratch.write("f", &[b'x'; 500_000]);
    let keys = format!("{{\"directory\": \"{folder}\", \"quota-download\": \"1M/month\"}}");
    let served = serve_moving(scratch.storage(), &keys);
    let moved: usize = thread::scope(|scope| {
        let fetch = || served.login().try_fetch("RETR f").0.len();
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(fetch)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(moved <= 1_000_000, "{moved}");
    // Resets throw away some of what was sent, but all of it was.
    let mut client = served.login();
    client.passive();
    client.expect("RETR f", 552);
}

#[test]
fn quotas_and_ratios_of_accounts_may_have_schedules() {
    let scratch = Scratch::new();
    let folder = scratch.path().file_name().unwrap().to_str().unwrap();
    scratch.write("f", &[b'x'; 10]);
    // Each begins with what holds at no time at all.
    let keys = format!(
        "{{\"directory\": \"{folder}\", \"quota-bytes\": \"none; mon-sun UTC 100\", \
         \"quota-files\": \"0; mon-sun UTC 2\", \"quota-download\": \"1/day; mon-sun UTC none\", \
         \"ratio\": \"none; mon-sun UTC 1:2\"}}"
    );
    let served = serve_moving(scratch.storage(), &keys);
    let mut client = served.login();
    client.passive();
    assert!(client.expect("RETR f", 552).text.contains("has to upload"));
    client.store("STOR a", &[b'x'; 90]);
    assert!(client.expect("AVBL", 213).text.trim().ends_with(" 0"));
    assert_eq!(client.fetch("RETR f").len(), 10);
    client.passive();
    assert!(client.expect("STOR b", 552).text.contains("quota of files"));
    assert!(client.try_store("STOR a", &[b'x'; 91]).text.contains("quota of bytes"));
}

#[test]
fn allo_says_of_a_quota_what_stor_says() {
    let scratch = Scratch::new();
    let served = serve_with(config(held_to(scratch.storage(), 1000, 5)));
    let mut client = served.login();
    client.expect("ALLO 1000", 200);
    let announced = client.expect("ALLO 1001", 552);
    let refused = client.try_store("STOR a", &[b'x'; 1001]);
    assert_eq!(refused.code, 552);
    let why = "the quota of bytes of this account is used up";
    assert!(announced.text.contains(why) && refused.text.contains(why), "{announced:?} {refused:?}");
    client.store("STOR a", &[b'x'; 900]);
    client.expect("ALLO 100", 200);
    client.expect("ALLO 101 R 80", 552);
    // What no quota forbids and no device holds.
    let served = serve_with(config(Scratch::new().storage()));
    served.login().expect("ALLO 9000000000000000000", 452);
}
