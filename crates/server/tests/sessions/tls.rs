//! FTPS: explicit and implicit, what survives `AUTH`, data connections and their tickets, ends that are true.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;

use millrace_net::Wire;
use millrace_net::tls::{Heard, Versions};
use millrace_server::auth::DataSecurity;
use millrace_server::config::{CloseNotify, Resumption, Tls};
use millrace_server::{Account, Attempt, Authenticator, Config, Decision, Permissions, Running};
use millrace_storage::MemoryStorage;
use millrace_vfs::Storage;

use super::kit::{
    Client, Random, Scratch, Secured, Served, TlsClient, config, connector, eventually, pair, pattern,
    policy, replace, serve_with,
};

/// A server with both kinds of FTPS, and the folders that it needs.
struct Site {
    files: Scratch,
    certificates: Scratch,
    served: Served,
}

impl Site {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Tls)) -> Self {
        Self::of(|config| change(config.tls.as_mut().unwrap()))
    }

    fn of(change: impl FnOnce(&mut Config)) -> Self {
        let (files, certificates) = (Scratch::new(), Scratch::new());
        let mut config = Config {
            ftps: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
            tls: Some(policy(&certificates)),
            ..config(files.storage())
        };
        change(&mut config);
        Self { files, certificates, served: serve_with(config) }
    }

    fn running(&self) -> &Running {
        &self.served.running
    }

    fn explicit(&self, versions: Versions) -> TlsClient {
        TlsClient::explicit(self.served.address, connector(versions)).ready()
    }

    fn implicit(&self, versions: Versions) -> TlsClient {
        TlsClient::implicit(self.running().ftps_addresses()[0], connector(versions)).ready()
    }
}

#[test]
fn files_go_both_ways_under_every_version_explicit_and_implicit() {
    let site = Site::with(|tls| tls.resumption = Resumption::Require);
    for versions in [Versions::Tls12, Versions::Tls13] {
        for mut client in [site.explicit(versions), site.implicit(versions)] {
            for length in [0, 1, 16_383, 16_384, 70_000, 3_000_000] {
                let content = pattern(length);
                assert_eq!(client.store("STOR f", &content).code, 226, "{length}");
                assert!(site.files.read("f").unwrap() == content, "{length}");
                assert!(client.fetch("RETR f") == content, "{length}");
            }
            assert!(String::from_utf8(client.fetch("LIST")).unwrap().ends_with(" f\r\n"));
            client.expect("QUIT", 221);
            assert!(client.next_reply().is_none());
        }
    }
}

#[test]
fn in_place_uploads_and_conversions_work_through_records() {
    let site = Site::of(|_| {});
    let in_place = Scratch::new();
    let certificates = Scratch::new();
    let served = serve_with(Config { tls: Some(policy(&certificates)), ..config(in_place.in_place()) });
    let mut client = TlsClient::explicit(served.address, connector(Versions::All)).ready();
    let content = pattern(5_000_000);
    assert_eq!(client.store("STOR f", &content).code, 226);
    assert!(in_place.read("f").unwrap() == content);

    let mut client = site.explicit(Versions::All);
    client.expect("TYPE A", 200);
    let text = "line\r\n".repeat(100_000);
    assert_eq!(client.store("STOR t", text.as_bytes()).code, 226);
    assert_eq!(site.files.read("t").unwrap(), "line\n".repeat(100_000).as_bytes());
    assert!(client.fetch("RETR t") == text.as_bytes());
    client.expect("TYPE I", 200);
    client.expect("REST 4999", 350);
    assert_eq!(client.fetch("RETR t").len(), 500_000 - 4999);
}

#[test]
fn a_hundred_transfers_resume_on_one_control_connection() {
    let site = Site::with(|tls| tls.resumption = Resumption::Require);
    site.files.write("f", b"content");
    let mut client = site.explicit(Versions::Tls12);
    for _ in 0..100 {
        assert_eq!(client.fetch("RETR f"), b"content");
    }
    // rustls as a client uses each ticket of TLS 1.3 once, and so does OpenSSL, of which curl keeps one at a time.
    let mut client = site.explicit(Versions::Tls13);
    for _ in 0..50 {
        assert_eq!(client.fetch("RETR f"), b"content");
        assert_eq!(client.store("STOR g", b"content").code, 226);
    }
}

#[test]
fn another_sessions_ticket_resumes_nothing_and_is_refused_where_resumption_is_required() {
    for (policy, code) in [(Resumption::Require, 522), (Resumption::Prefer, 226), (Resumption::Off, 226)] {
        let site = Site::with(|tls| tls.resumption = policy);
        site.files.write("f", b"secret");
        for versions in [Versions::Tls12, Versions::Tls13] {
            let (mut victim, mut thief) = (site.explicit(versions), site.explicit(versions));
            let socket = victim.passive();
            victim.expect("RETR f", 150);
            let data = Secured::over(socket, &thief.connector);
            let end = data.and_then(|mut data| {
                assert!(!data.channel.tls().is_resumed());
                data.read_to_end()
            });
            let is_served = matches!(&end, Ok((Heard::End, content)) if content == b"secret");
            assert_eq!(is_served, code == 226, "{end:?}");
            victim.expect_reply(code);
            assert_eq!(victim.fetch("RETR f"), b"secret", "the session goes on");
            thief.expect("NOOP", 200);
        }
    }
}

#[test]
fn tickets_shown_by_a_control_connection_do_not_count_for_its_data_connections() {
    let site = Site::with(|tls| tls.resumption = Resumption::Require);
    site.files.write("f", b"content");
    for versions in [Versions::Tls12, Versions::Tls13] {
        let connector = connector(versions);
        // Its tickets come with the replies.
        drop(TlsClient::explicit(site.served.address, connector.clone()).ready());
        // Another session, whose control connection shows the first one's ticket.
        let mut client = TlsClient::explicit(site.served.address, connector).ready();
        let socket = client.passive();
        client.expect("RETR f", 150);
        if let Ok(mut data) = Secured::over(socket, &crate::kit::connector(versions)) {
            let _ = data.read_to_end();
        }
        assert!(client.reply().text.contains("it has to resume"), "nothing foreign was shown on it");
    }
}

#[test]
fn whether_resumption_is_required_is_a_policy() {
    for (policy, code) in [(Resumption::Require, 522), (Resumption::Prefer, 226), (Resumption::Off, 226)] {
        let site = Site::with(|tls| tls.resumption = policy);
        site.files.write("f", b"content");
        let mut client = site.explicit(Versions::All);
        let socket = client.passive();
        client.expect("RETR f", 150);
        let data = Secured::over(socket, &connector(Versions::All));
        if let Ok(mut data) = data {
            let _ = data.read_to_end();
        }
        client.expect_reply(code);
    }
}

#[test]
fn an_account_may_have_policies_of_its_own() {
    let site = Site::of(|config| {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let account = |data| Account { data, ..Account::new(Arc::clone(&storage), Permissions::READ_WRITE) };
        config.accounts = Arc::new(ByName(vec![
            (b"strict", account(DataSecurity { encrypted: true, resumption: Some(Resumption::Require) })),
            (b"other", account(DataSecurity::default())),
        ]));
    });
    for (user, clear, resumption) in [("strict", 521, 522), ("other", 226, 226)] {
        let mut client = TlsClient::explicit(site.served.address, connector(Versions::All));
        client.expect(&format!("USER {user}"), 331);
        client.expect("PASS x", 230);
        let mut socket = client.passive();
        client.send("LIST");
        let reply = client.reply().code;
        if reply == 150 {
            socket.read_to_end(&mut Vec::new()).unwrap();
            client.expect_reply(clear);
        } else {
            assert_eq!(reply, clear);
        }
        client.expect("PBSZ 0", 200);
        client.expect("PROT P", 200);
        let socket = client.passive();
        client.expect("LIST", 150);
        if let Ok(mut data) = Secured::over(socket, &connector(Versions::All)) {
            let _ = data.read_to_end();
        }
        client.expect_reply(resumption);
    }
}

/// A user with one of these names has its account.
#[derive(Debug)]
struct ByName(Vec<(&'static [u8], Account)>);

impl Authenticator for ByName {
    fn authenticate(&self, attempt: &Attempt<'_>) -> Decision {
        let found = self.0.iter().find(|(name, _)| *name == attempt.user);
        found.map_or(Decision::Denied, |(_, account)| Decision::Granted(account.clone()))
    }
}

#[test]
fn the_end_that_a_client_tells_by_tls_is_answered_by_tls() {
    let site = Site::new();
    for is_logged_in in [false, true] {
        let mut client = TlsClient::explicit(site.served.address, connector(Versions::All));
        if is_logged_in {
            client = client.ready();
        }
        client.control.channel.close(&client.control.socket).unwrap();
        assert_eq!(client.control.read_to_end().unwrap(), (Heard::End, Vec::new()));
    }
}

#[test]
fn plain_text_behind_auth_ends_the_connection() {
    let site = Site::new();
    for injected in ["USER u\r\n", "NOOP\r\n", "x"] {
        let mut client = Client::connect(site.served.address);
        client.expect_reply(220);
        client.send(format!("AUTH TLS\r\n{injected}"));
        client.expect_reply(234);
        client.expect_end();
    }
    // Or a moment later, where the handshake should begin.
    let mut client = Client::connect(site.served.address);
    client.expect_reply(220);
    client.expect("AUTH TLS", 234);
    client.send("USER u\r\nPASS p\r\n");
    let mut rest = Vec::new();
    let _ = client.into_stream().read_to_end(&mut rest);
    // At most an alert.
    assert!(rest.len() <= 7, "{rest:?}");
}

/// Whatever comes where the handshake belongs, nothing in clear is ever answered to it, and others are served.
#[test]
fn noise_in_place_of_the_handshake_reaches_no_session() {
    let site = Site::new();
    let mut hello = Wire::default();
    let mut tls = connector(Versions::All).connect("localhost").unwrap();
    tls.receive(&mut [], &mut hello, &mut |_| {}).unwrap();
    let mut random = Random(29);
    fn noise(random: &mut Random, most: usize) -> Vec<u8> {
        (0..random.below(most)).map(|_| random.below(256) as u8).collect()
    }
    for round in 0..300 {
        let mut said = hello.pending().to_vec();
        match round % 4 {
            0 => said = noise(&mut random, 600),
            1 => said.truncate(random.below(said.len())),
            2 => (0..=random.below(6)).for_each(|_| {
                let at = random.below(said.len());
                said[at] = random.below(256) as u8;
            }),
            _ => said = [&said[..], &noise(&mut random, 300)].concat(),
        }
        let mut client = Client::connect(site.served.address);
        client.expect_reply(220);
        // The command in two pieces; and the noise with the second one, or behind its answer.
        let (first, second) = b"AUTH TLS\r\n".split_at(random.below(10));
        client.send(first);
        let at_once = random.below(4) == 0 && !said.is_empty();
        client.send(if at_once { [second, &said].concat() } else { second.to_vec() });
        client.expect_reply(234);
        if !at_once {
            client.send(&said);
        }
        let mut socket = client.into_stream();
        let _ = socket.shutdown(Shutdown::Write);
        let mut heard = Vec::new();
        let _ = socket.read_to_end(&mut heard);
        assert!(matches!(heard.first(), None | Some(20..=23)), "round {round}: {}", heard.escape_ascii());
    }
    assert_eq!(site.explicit(Versions::All).store("STOR f", b"content").code, 226);
}

#[test]
fn nothing_said_in_clear_survives() {
    let site = Site::new();
    let mut plain = site.served.login();
    plain.expect("REST 3", 350);
    plain.expect("AUTH TLS", 234);
    let mut client = TlsClient::over(plain.into_stream(), connector(Versions::All)).unwrap();
    client.expect("PWD", 530);
    client.expect("PASS p", 503);
}

#[test]
fn policies_refuse_what_is_in_clear() {
    let site = Site::with(|tls| (tls.login_required, tls.data_required) = (true, true));
    site.served.connect().expect("USER u", 530);
    let mut client = TlsClient::explicit(site.served.address, connector(Versions::All));
    client.expect("USER u", 331);
    client.expect("PASS p", 230);
    client.expect("PASV", 227);
    client.expect("LIST", 521);
    client.expect("PBSZ 0", 200);
    client.expect("PROT P", 200);
    client.fetch("LIST");
}

#[test]
fn required_encryption_is_reloaded_for_running_sessions() {
    let site = Site::with(|tls| tls.clear_command_channel = true);
    let mut running = site.served.login();
    let mut encrypted = site.explicit(Versions::All);
    encrypted.expect("PROT C", 200);
    let reload = |required: bool| {
        let tls = Tls { login_required: required, data_required: required, ..policy(&site.certificates) };
        site.running().reload(Config { tls: Some(tls), ..config(site.files.storage()) }).unwrap();
    };
    reload(true);
    site.served.connect().expect("USER u", 530);
    eventually("it is held to it", || {
        running.send("STAT /\r\n");
        running.reply().code == 521
    });
    encrypted.expect("CCC", 534);
    encrypted.expect("PASV", 227);
    encrypted.expect("LIST", 521);
    reload(false);
    site.served.connect().expect("USER u", 331);
}

#[test]
fn a_name_that_is_said_in_clear_does_not_stand_against_the_handshakes() {
    let site = Site::of(|config| {
        config.accounts = Arc::new(ByHost);
    });
    let mut plain = site.served.connect();
    // The name is not authenticated: there is a certificate for it, and a folder of its own.
    plain.expect("HOST 127.0.0.1", 220);
    plain.expect("AUTH TLS", 234);
    let mut client = TlsClient::over(plain.into_stream(), connector(Versions::All)).unwrap();
    client.expect("USER u", 331);
    client.expect("PASS p", 230);
}

/// Lets in who came to `localhost`.
#[derive(Debug)]
struct ByHost;

impl Authenticator for ByHost {
    fn authenticate(&self, attempt: &Attempt<'_>) -> Decision {
        match attempt.host {
            "localhost" => {
                Decision::Granted(Account::new(Arc::new(MemoryStorage::new()), Permissions::READ_WRITE))
            }
            _ => Decision::Denied,
        }
    }
}

#[test]
fn data_in_clear_under_an_encrypted_control_connection() {
    let site = Site::new();
    site.files.write("f", b"content");
    let mut client = site.explicit(Versions::All);
    client.expect("PROT C", 200);
    let mut socket = client.passive();
    client.expect("RETR f", 150);
    let mut content = Vec::new();
    socket.read_to_end(&mut content).unwrap();
    assert_eq!(content, b"content");
    client.expect_reply(226);
}

#[test]
fn an_upload_that_is_cut_gets_426_and_leaves_nothing() {
    let site = Site::new();
    let mut random = Random(7);
    let content = pattern(400_000);
    let mut client = site.explicit(Versions::All);
    for round in 0..60 {
        let socket = client.passive();
        client.expect("STOR cut", 150);
        let mut data = Secured::over(socket, &client.connector).unwrap();
        let length = random.below(content.len());
        data.write_all(&content[..length]).unwrap();
        match round % 3 {
            0 => data.socket.shutdown(Shutdown::Write).unwrap(),
            1 => drop(data),
            _ => super::kit::reset(data.socket),
        }
        client.expect_reply(426);
        assert_eq!(site.files.read("cut"), None, "{length} bytes");
    }
    assert_eq!(client.store("STOR cut", &content).code, 226);
    assert!(site.files.read("cut").unwrap() == content);
}

#[test]
fn bytes_cut_off_the_wire_never_make_a_file() {
    // Five hundred times: the ciphertext of an upload stops at any byte, also within a record and right before
    // close_notify.
    let site = Site::new();
    let mut random = Random(11);
    let mut clients = [Versions::Tls12, Versions::Tls13].map(|versions| site.explicit(versions));
    let content = pattern(20_000);
    let mut whole_ones = [0, 0];
    for round in 0..500 {
        let client = &mut clients[round % 2];
        let address = super::kit::parse_passive(&client.expect("PASV", 227));
        let relay = Relay::new(address, random.below(23_000));
        client.expect("STOR cut", 150);
        if let Ok(mut data) = Secured::over(TcpStream::connect(relay.address).unwrap(), &client.connector) {
            let _ = data.write_all(&content);
            let _ = data.channel.close(&data.socket);
        }
        let is_whole = relay.end();
        let reply = client.reply();
        if is_whole {
            assert_eq!(reply.code, 226, "round {round}: {reply:?}");
            assert!(site.files.read("cut").unwrap() == content, "round {round}");
            client.expect("DELE cut", 250);
            whole_ones[round % 2] += 1;
        } else {
            assert!([426, 522].contains(&reply.code), "round {round}: {reply:?}");
            assert_eq!(site.files.read("cut"), None, "round {round}");
        }
    }
    // Some were cut, and some were not, under either version.
    assert!(whole_ones.iter().all(|count| (1..250).contains(count)), "{whole_ones:?}");
}

/// Passes on what a client sends up to a number of bytes, then ends the connection.
struct Relay {
    address: SocketAddr,
    thread: std::thread::JoinHandle<bool>,
}

impl Relay {
    fn new(to: SocketAddr, most: usize) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let mut server = TcpStream::connect(to).unwrap();
            let mut client = listener.accept().unwrap().0;
            let (mut back, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            let answers = std::thread::spawn(move || std::io::copy(&mut back, &mut to_client));
            let mut left = most;
            let mut buffer = [0; 4096];
            let whole = loop {
                match client.read(&mut buffer) {
                    Ok(0) | Err(_) => break true,
                    Ok(count) if count > left => {
                        let _ = server.write_all(&buffer[..left]);
                        break false;
                    }
                    Ok(count) => {
                        left -= count;
                        if server.write_all(&buffer[..count]).is_err() {
                            break true;
                        }
                    }
                }
            };
            let _ = server.shutdown(Shutdown::Write);
            let _ = client.shutdown(Shutdown::Both);
            let _ = answers.join();
            whole
        });
        Self { address, thread }
    }

    /// Whether everything was passed on.
    fn end(self) -> bool {
        self.thread.join().unwrap()
    }
}

#[test]
fn a_client_that_never_says_goodbye_can_be_excused_by_name() {
    let excused = vec!["OldClient/1".to_owned()];
    let site = Site::with(|tls| tls.close_notify = CloseNotify { required: true, excused });
    let mut client = site.explicit(Versions::All);
    let store = |client: &mut TlsClient| {
        let socket = client.passive();
        client.expect("STOR f", 150);
        let mut data = Secured::over(socket, &client.connector).unwrap();
        data.write_all(b"content").unwrap();
        data.socket.shutdown(Shutdown::Write).unwrap();
        client.reply().code
    };
    assert_eq!(store(&mut client), 426);
    client.expect("CLNT OldClient/1.5", 200);
    assert_eq!(store(&mut client), 226);
    assert_eq!(site.files.read("f").unwrap(), b"content");
    // But half a record is half a file.
    for cut in [10, 100, 9_000] {
        let address = super::kit::parse_passive(&client.expect("PASV", 227));
        let handshake = 1_500;
        let relay = Relay::new(address, handshake + cut);
        client.expect("STOR g", 150);
        if let Ok(mut data) = Secured::over(TcpStream::connect(relay.address).unwrap(), &client.connector) {
            let _ = data.write_all(&pattern(16_000));
            let _ = data.socket.shutdown(Shutdown::Write);
        }
        assert!(!relay.end());
        assert!([426, 522].contains(&client.reply().code));
        assert_eq!(site.files.read("g"), None, "{cut}");
    }
}

#[test]
fn an_upload_that_comes_with_the_end_of_the_handshake_is_whole() {
    // A client's Finished, its file and its goodbye may share a packet.
    let site = Site::new();
    let mut client = site.explicit(Versions::Tls13);
    for length in [1, 100, 5_000, 16_000] {
        let content = pattern(length);
        assert_eq!(client.store("STOR f", &content).code, 226);
        assert_eq!(site.files.read("f").unwrap(), content);
    }
}

#[test]
fn commands_may_be_split_across_records_and_share_one() {
    let site = Site::new();
    let mut client = site.explicit(Versions::All);
    for byte in b"NOOP\r\n" {
        client.control.write_all(&[*byte]).unwrap();
    }
    client.expect_reply(200);
    client.control.write_all(b"NOOP\r\nSYST\r\nNOOP\r\n").unwrap();
    for code in [200, 215, 200] {
        client.expect_reply(code);
    }
    client.control.channel.update_keys(&client.control.socket).unwrap();
    client.expect("NOOP", 200);
}

#[test]
fn ccc_ends_the_encryption_of_commands_only() {
    let site = Site::with(|tls| tls.clear_command_channel = true);
    site.files.write("f", b"content");
    let mut client = site.explicit(Versions::All);
    client.expect("CCC", 200);
    let mut rest = Vec::new();
    assert_eq!(client.control.read(&mut rest).unwrap(), Heard::End);
    client.control.channel.close(&client.control.socket).unwrap();
    let mut plain = Client::of(client.control.socket.try_clone().unwrap());
    plain.expect("NOOP", 200);
    let socket = plain.passive();
    plain.expect("RETR f", 150);
    let mut data = Secured::over(socket, &client.connector).unwrap();
    assert_eq!(data.read_to_end().unwrap(), (Heard::End, b"content".to_vec()));
    plain.expect_reply(226);
}

#[test]
fn the_clients_offer_is_checked_first() {
    let site = Site::new();
    // ALPACA: led here by a browser.
    let browser = connector(Versions::All).with_protocols(&[b"h2", b"http/1.1"]);
    let ftps = site.running().ftps_addresses()[0];
    assert!(Secured::over(TcpStream::connect(ftps).unwrap(), &browser).is_err());
    let ftp = connector(Versions::All).with_protocols(&[b"ftp"]);
    TlsClient::implicit(ftps, ftp).expect("NOOP", 200);
    // In clear, where TLS belongs.
    let mut socket = TcpStream::connect(ftps).unwrap();
    socket.write_all(b"USER u\r\n").unwrap();
    let mut answer = Vec::new();
    match socket.read_to_end(&mut answer) {
        Ok(_) => assert!(answer.len() <= 7, "{answer:?}"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

#[test]
fn certificates_are_read_again_without_a_session_noticing() {
    let site = Site::new();
    let mut old = site.explicit(Versions::All);
    let before = site.running().fingerprints();
    replace(&pair(&site.certificates), &site.certificates.file("other"));
    site.running().reload_certificates().unwrap();
    assert_ne!(site.running().fingerprints(), before);
    old.fetch("LIST");
    site.explicit(Versions::All).fetch("LIST");
    std::fs::write(pair(&site.certificates).key, "no key").unwrap();
    let now = site.running().fingerprints();
    assert!(site.running().reload_certificates().is_err());
    assert_eq!(site.running().fingerprints(), now);
    site.explicit(Versions::All).fetch("LIST");
}

#[test]
fn server_to_server_one_plays_the_client() {
    let from = Site::of(|config| config.foreign_data = true);
    let to = Site::of(|config| config.foreign_data = true);
    let content = pattern(300_000);
    from.files.write("f", &content);
    for method in ["CPSV", "SSCN"] {
        let (mut source, mut target) = (from.explicit(Versions::All), to.explicit(Versions::All));
        let passive = match method {
            "CPSV" => source.expect("CPSV", 227),
            _ => {
                assert!(source.expect("SSCN ON", 200).text.contains("CLIENT"));
                source.expect("PASV", 227)
            }
        };
        let address = super::kit::parse_passive(&passive);
        target.expect(&super::kit::port_line(address), 200);
        target.expect("STOR f", 150);
        source.expect("RETR f", 150);
        let ends = (source.reply(), target.reply());
        assert_eq!((ends.0.code, ends.1.code), (226, 226), "{ends:?}");
        assert!(to.files.read("f").unwrap() == content, "{method}");
        std::fs::remove_file(to.files.file("f")).unwrap();
    }
}
