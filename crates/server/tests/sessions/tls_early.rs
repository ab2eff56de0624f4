//! FTPS clients that shake hands on the data connection before they say what it is for.

use millrace_net::tls::{Heard, Versions};
use millrace_server::config::{Resumption, Tls};

use super::kit::{
    Scratch, Secured, Served, TlsClient, config, connector, pattern, policy, serve_with, wait_until_arrived,
};

fn serve(files: &Scratch, resumption: Resumption) -> Served {
    let tls = Tls { resumption, ..policy(files) };
    serve_with(millrace_server::Config { tls: Some(tls), ..config(files.storage()) })
}

fn log_in(served: &Served, versions: Versions) -> TlsClient {
    TlsClient::explicit(served.address, connector(versions)).ready()
}

/// A data connection whose handshake is over, before any command that would use it.
fn early(client: &mut TlsClient) -> Secured {
    let socket = client.passive();
    Secured::over(socket, &client.connector).unwrap()
}

#[test]
fn the_handshake_is_answered_before_the_command() {
    let files = Scratch::new();
    let served = serve(&files, Resumption::Require);
    for versions in [Versions::Tls12, Versions::Tls13] {
        let mut client = log_in(&served, versions);
        for length in [0, 5, 300_000] {
            let content = pattern(length);
            let mut data = early(&mut client);
            client.expect("STOR f", 150);
            data.write_all(&content).unwrap();
            data.finish();
            client.expect_reply(226);
            let mut data = early(&mut client);
            client.expect("RETR f", 150);
            assert!(data.read_to_end().unwrap() == (Heard::End, content));
            client.expect_reply(226);
        }
    }
}

#[test]
fn a_whole_upload_may_be_there_before_its_command() {
    let files = Scratch::new();
    let served = serve(&files, Resumption::Require);
    let mut client = log_in(&served, Versions::All);
    for content in [pattern(0), pattern(3000)] {
        let mut data = early(&mut client);
        data.write_all(&content).unwrap();
        data.finish();
        client.expect("NOOP", 200);
        client.expect("STOR f", 150);
        client.expect_reply(226);
        assert_eq!(files.read("f").unwrap(), content);
    }
}

#[test]
fn an_early_failure_is_reported_to_its_command() {
    let files = Scratch::new();
    files.write("f", b"content");
    let served = serve(&files, Resumption::Require);
    let mut client = log_in(&served, Versions::All);
    let socket = client.passive();
    if let Ok(mut data) = Secured::over(socket, &connector(Versions::All)) {
        let _ = data.read_to_end();
    }
    client.send("RETR f");
    let reply = client.reply();
    match reply.code {
        150 => drop(client.expect_reply(522)),
        code => assert_eq!(code, 522, "{reply:?}"),
    }
    assert_eq!(client.fetch("RETR f"), b"content");
}

#[test]
fn another_port_and_another_protection_give_it_up() {
    let files = Scratch::new();
    files.write("f", b"content");
    let served = serve(&files, Resumption::Prefer);
    let mut client = log_in(&served, Versions::All);
    let mut old = early(&mut client);
    let mut data = early(&mut client);
    let end = old.read_to_end();
    assert!(!matches!(end, Ok((Heard::End, _))), "{end:?}");
    client.expect("RETR f", 150);
    assert_eq!(data.read_to_end().unwrap().1, b"content");
    client.expect_reply(226);
    // Encrypted, but now it should not be.
    let _data = early(&mut client);
    client.expect("PROT C", 200);
    client.send("RETR f");
    if client.reply().code == 150 {
        client.expect_reply(425);
    }
    client.expect("PROT P", 200);
    assert_eq!(client.fetch("RETR f"), b"content");
}

/// As in clear: unread input causes no reset that loses sent data.
#[test]
fn a_client_that_sends_on_an_encrypted_download_gets_all_of_it() {
    let files = Scratch::new();
    let served = serve(&files, Resumption::Require);
    for versions in [Versions::Tls12, Versions::Tls13] {
        let mut client = log_in(&served, versions);
        for length in [1_000, 3 << 20] {
            let content = pattern(length);
            files.write("f", &content);
            let mut data = early(&mut client);
            data.write_all(&[b'x'; 40_000]).unwrap();
            wait_until_arrived(&data.socket);
            client.expect("RETR f", 150);
            assert!(data.read_to_end().unwrap() == (Heard::End, content));
            // More than a first look has seen; then its end.
            data.write_all(&[b'x'; 40_000]).unwrap();
            data.finish();
            client.expect_reply(226);
            assert_eq!(client.fetch("RETR f").len(), length, "the session goes on");
        }
    }
}

#[test]
fn a_client_that_sends_after_a_large_encrypted_download_gets_all_of_it() {
    let files = Scratch::new();
    let served = serve(&files, Resumption::Require);
    let content = pattern(256 << 10);
    files.write("f", &content);
    for versions in [Versions::Tls12, Versions::Tls13] {
        let mut client = log_in(&served, versions);
        let mut data = early(&mut client);
        rustix::net::sockopt::set_socket_recv_buffer_size(&data.socket, 4_096).unwrap();
        client.expect("RETR f", 150);
        client.expect_reply(226);
        for _ in 0..3 {
            data.write_all(&[b'x'; 100]).unwrap();
            wait_until_arrived(&data.socket);
        }
        assert!(data.read_to_end().unwrap() == (Heard::End, content.clone()));
        data.finish();
        assert_eq!(client.fetch("RETR f").len(), content.len(), "the session goes on");
    }
}

#[test]
fn a_client_that_never_stops_sending_on_an_encrypted_download_is_told_426() {
    let files = Scratch::new();
    let served = serve(&files, Resumption::Require);
    files.write("f", &pattern(1_000));
    let mut client = log_in(&served, Versions::All);
    let mut data = early(&mut client);
    data.write_all(b"x").unwrap();
    wait_until_arrived(&data.socket);
    client.expect("RETR f", 150);
    // Until it is cut.
    while data.write_all(&[b'x'; 65_536]).is_ok() {}
    client.expect_reply(426);
    assert_eq!(client.fetch("RETR f"), pattern(1_000), "the session goes on");
}

/// Earlier input is read first: a client's close_notify is its end, and no reason to wait for more.
#[test]
fn a_client_that_says_goodbye_first_is_told_226_though_it_stays() {
    let files = Scratch::new();
    let served = serve(&files, Resumption::Require);
    files.write("f", &pattern(1_000));
    for versions in [Versions::Tls12, Versions::Tls13] {
        let mut client = log_in(&served, versions);
        let mut data = early(&mut client);
        data.channel.close(&data.socket).unwrap();
        wait_until_arrived(&data.socket);
        client.expect("RETR f", 150);
        assert!(data.read_to_end().unwrap() == (Heard::End, pattern(1_000)));
        client.expect_reply(226);
    }
}
