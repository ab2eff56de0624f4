//! Clients behind a proxy that names them (PROXY protocol).

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use millrace_net::tls::Versions;
use millrace_server::limits::Limit;
use millrace_server::{BanRules, Config};
use millrace_storage::MemoryStorage;

use crate::kit::{
    Client, Scratch, Secured, Served, TlsClient, config, connector, data_from, eventually, parse_passive,
    policy, port_line, serve_with,
};

/// Where the proxy connects from, and what its clients connect to.
const PROXY: &str = "127.0.0.50";
const FACE: &str = "127.0.0.60";

fn trusting() -> Config {
    let proxy_from = vec![PROXY.parse().unwrap()];
    Config { proxy_from, login_delay: Duration::from_millis(1), ..config(Arc::new(MemoryStorage::new())) }
}

/// The header of version 1.
fn line(client: &str) -> Vec<u8> {
    format!("PROXY TCP4 {client} {FACE} 40000 21\r\n").into_bytes()
}

/// The same of version 2, with a field that means nothing to us.
fn binary(client: &str) -> Vec<u8> {
    let octets = |address: &str| address.parse::<Ipv4Addr>().unwrap().octets();
    let field = [0x04, 0, 3, b'p', b'a', b'd'];
    let length = u16::try_from(12 + field.len()).unwrap().to_be_bytes();
    let begin = [b"\r\n\r\n\0\r\nQUIT\n\x21\x11", &length[..]].concat();
    let ports = [40_000u16.to_be_bytes(), 21u16.to_be_bytes()].concat();
    [&begin[..], &octets(client), &octets(FACE), &ports, &field].concat()
}

/// A connection from the proxy that begins with these bytes.
fn by_proxy(to: SocketAddr, header: &[u8]) -> TcpStream {
    let mut socket = data_from(PROXY, to);
    socket.write_all(header).unwrap();
    socket
}

fn client(served: &Served, header: &[u8]) -> Client {
    let mut client = Client::of(by_proxy(served.address, header));
    client.expect_reply(220);
    client
}

/// What the server says to a connection from the proxy that begins so, until it ends it.
fn said(served: &Served, bytes: &[u8]) -> String {
    let mut socket = by_proxy(served.address, bytes);
    let mut said = Vec::new();
    // What was not read may make the end a reset.
    let _ = socket.read_to_end(&mut said);
    String::from_utf8(said).unwrap()
}

#[test]
fn a_session_and_its_data_connections_are_of_whom_the_header_names() {
    let served = serve_with(trusting());
    for header in [line, binary] {
        let mut client = client(&served, &header("192.0.2.7"));
        client.log_in("u", "p");
        let session = &served.running.sessions()[0];
        assert_eq!(session.peer, "192.0.2.7:40000".parse().unwrap());
        // The client is told to come to where it came to.
        let passive = client.passive_address();
        assert_eq!(passive.ip(), FACE.parse::<Ipv4Addr>().unwrap());
        let real = SocketAddr::new(served.address.ip(), passive.port());
        // A connection of another client, and one without a header, are closed, and the wait goes on.
        let mut others = [by_proxy(real, &header("192.0.2.8")), by_proxy(real, b"some content")];
        client.expect("STOR f", 150);
        for other in &mut others {
            assert!(matches!(other.read(&mut [0; 1]), Ok(0) | Err(_)));
        }
        let mut data = by_proxy(real, &[&header("192.0.2.7")[..], b"some content"].concat());
        data.write_all(b" and more").unwrap();
        drop(data);
        client.expect_reply(226);
        let mut data =
            by_proxy(SocketAddr::new(real.ip(), client.passive_address().port()), &header("192.0.2.7"));
        client.expect("RETR f", 150);
        let mut content = String::new();
        data.read_to_string(&mut content).unwrap();
        assert_eq!(content, "some content and more");
        client.expect_reply(226);
        client.expect("QUIT", 221);
    }
}

#[test]
fn a_header_may_come_in_pieces_and_with_the_first_commands() {
    let served = serve_with(trusting());
    for header in [line, binary] {
        let mut socket = data_from(PROXY, served.address);
        for byte in header("192.0.2.7") {
            socket.write_all(&[byte]).unwrap();
            std::thread::yield_now();
        }
        Client::of(socket).expect_reply(220);
        let mut client =
            client(&served, &[&header("192.0.2.7")[..], b"USER u\r\nPASS p\r\nNOOP\r\n"].concat());
        client.expect_reply(331);
        client.expect_reply(230);
        client.expect_reply(200);
        // And that of a data connection.
        let passive = client.passive_address();
        client.send("LIST\r\n");
        let mut data = data_from(PROXY, SocketAddr::new(served.address.ip(), passive.port()));
        client.expect_reply(150);
        for byte in header("192.0.2.7") {
            data.write_all(&[byte]).unwrap();
            std::thread::yield_now();
        }
        assert_eq!(data.read_to_end(&mut Vec::new()).unwrap(), 0);
        client.expect_reply(226);
    }
}

#[test]
fn bans_lists_and_limits_are_about_the_client_and_not_the_proxy() {
    let bans = BanRules { after: 1, deny: vec!["198.51.100.0/24".parse().unwrap()], ..BanRules::default() };
    let served = serve_with(Config { bans, sessions_per_address: Some(Limit::of(2)), ..trusting() });
    for guess in 0..5 {
        let mut guesser = client(&served, &line("192.0.2.66"));
        guesser.expect(format!("USER guess{guess}"), 331);
        guesser.expect("PASS x", 530);
        guesser.expect("QUIT", 221);
        guesser.expect_end();
    }
    let mut refused = Client::of(by_proxy(served.address, &line("192.0.2.66")));
    assert!(refused.expect_reply(421).text.contains("banned"));
    let mut refused = Client::of(by_proxy(served.address, &line("198.51.100.1")));
    assert!(refused.expect_reply(421).text.contains("not accepted"));
    let _two = [client(&served, &line("192.0.2.7")), client(&served, &binary("192.0.2.7"))];
    let mut refused = Client::of(by_proxy(served.address, &line("192.0.2.7")));
    assert!(refused.expect_reply(421).text.contains("from your address"));
    let _other = client(&served, &line("192.0.2.8"));
    assert_eq!(served.running.bans()[0].network, "192.0.2.66".parse().unwrap());
}

#[test]
fn port_names_the_client_and_the_server_connects_to_it() {
    let served = serve_with(trusting());
    let mut client = client(&served, &line("127.0.0.9"));
    client.log_in("u", "p");
    client.store_by_port("127.0.0.9", "STOR f", b"content");
    let elsewhere = std::net::TcpListener::bind((PROXY, 0)).unwrap();
    let reply = client.expect(port_line(elsewhere.local_addr().unwrap()), 501);
    assert!(reply.text.contains("not that of this client"), "{reply:?}");
}

#[test]
fn an_ipv6_client_of_a_proxy_is_told_ports_only() {
    let served = serve_with(trusting());
    let mut client = client(&served, b"PROXY TCP6 2001:db8::7 2001:db8::1 40000 21\r\n");
    client.log_in("u", "p");
    client.expect("PASV", 425);
    client.expect("EPSV 1", 522);
    let reply = client.expect("EPSV 2", 229);
    let port = reply.text.split('|').nth(3).unwrap().parse().unwrap();
    let header = b"PROXY TCP6 2001:db8::7 2001:db8::1 40001 21\r\n";
    let mut data = by_proxy(SocketAddr::new(served.address.ip(), port), header);
    client.expect("NLST", 150);
    data.read_to_end(&mut Vec::new()).unwrap();
    client.expect_reply(226);
}

#[test]
fn malformed_missing_or_overlong_headers_are_refused() {
    let served = serve_with(trusting());
    for bytes in [
        &b"USER u\r\n"[..],
        b"PROXY TCP4 192.0.2.7 192.0.2.1 1\r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.1 1 2\n",
        b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff",
        &[b"PROXY UNKNOWN ", &[b'x'; 200][..]].concat(),
    ] {
        let said = said(&served, bytes);
        assert!(said.is_empty() || said.starts_with("421 "), "{said}");
    }
    // It is no end of the server, and no session is left.
    client(&served, &line("192.0.2.7")).expect("QUIT", 221);
    eventually("no session is left", || served.running.sessions().is_empty());
}

#[test]
fn a_header_that_does_not_come_is_not_waited_for() {
    let served = serve_with(Config {
        connect_timeout: Duration::from_millis(200),
        sessions: Limit::of(1),
        ..trusting()
    });
    let mut silent = Client::of(data_from(PROXY, served.address));
    assert!(silent.expect_reply(421).text.contains("PROXY header"));
    silent.expect_end();
    // Its place is free again. (On a busy machine our own header may be late, too.)
    let mut client = None;
    eventually("a client that says whose it is gets in", || {
        let mut new = Client::of(by_proxy(served.address, &line("192.0.2.7")));
        let greeted = new.reply().code == 220;
        client = greeted.then_some(new);
        greeted
    });
    // A data connection must send its header in time, too.
    let mut client = client.unwrap();
    client.log_in("u", "p");
    let real = SocketAddr::new(served.address.ip(), client.passive_address().port());
    let data = data_from(PROXY, real);
    let begun = client.command("STOR f");
    if begun.code == 150 {
        client.expect_reply(425);
    } else {
        assert_eq!(begun.code, 425, "the port was given back before");
    }
    drop(data);
}

#[test]
fn a_proxy_that_looks_whether_the_server_lives_is_greeted() {
    let served = serve_with(trusting());
    for header in [&b"PROXY UNKNOWN\r\n"[..], b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"] {
        client(&served, header).expect("QUIT", 221);
    }
}

#[test]
fn from_elsewhere_a_header_is_a_command_that_there_is_not() {
    let served = serve_with(trusting());
    let mut stranger = served.connect();
    stranger.send(line("192.0.2.7"));
    stranger.expect_reply(500);
    stranger.log_in("u", "p");
    assert_eq!(served.running.sessions()[0].peer.ip(), Ipv4Addr::LOCALHOST);
    // Nor does it make a data connection another's.
    let mut data = stranger.passive();
    stranger.expect("STOR f", 150);
    data.write_all(&line("192.0.2.7")).unwrap();
    drop(data);
    stranger.expect_reply(226);
    assert_eq!(stranger.fetch("RETR f"), line("192.0.2.7"));
}

#[test]
fn the_networks_of_proxies_can_be_changed_while_it_runs() {
    let served = serve_with(trusting());
    served.running.reload(config(Arc::new(MemoryStorage::new()))).unwrap();
    Client::connect_from(PROXY, served.address).expect_reply(220);
    served.running.reload(trusting()).unwrap();
    client(&served, &line("192.0.2.7"));
}

#[test]
fn tls_begins_behind_the_header_explicit_and_implicit() {
    let (files, certificates) = (Scratch::new(), Scratch::new());
    let served = serve_with(Config {
        ftps: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
        tls: Some(policy(&certificates)),
        proxy_from: vec![PROXY.parse().unwrap()],
        ..config(files.storage())
    });
    for versions in [Versions::Tls12, Versions::Tls13] {
        for header in [line, binary] {
            let mut plain = client(&served, &header("192.0.2.7"));
            plain.expect("AUTH TLS", 234);
            let explicit = TlsClient::over(plain.into_stream(), connector(versions)).unwrap();
            let socket = by_proxy(served.running.ftps_addresses()[0], &header("192.0.2.7"));
            let mut implicit = TlsClient::over(socket, connector(versions)).unwrap();
            implicit.expect_reply(220);
            for client in [explicit, implicit] {
                let mut client = client.ready();
                let passive = parse_passive(&client.expect("PASV", 227));
                let real = SocketAddr::new(served.address.ip(), passive.port());
                client.expect("STOR f", 150);
                let data = by_proxy(real, &header("192.0.2.7"));
                let mut data = Secured::over(data, &client.connector).unwrap();
                data.write_all(b"content").unwrap();
                data.finish();
                client.expect_reply(226);
                // It may begin before the command that it is for.
                let passive = parse_passive(&client.expect("PASV", 227));
                let data = by_proxy(SocketAddr::new(real.ip(), passive.port()), &header("192.0.2.7"));
                let mut data = Secured::over(data, &client.connector).unwrap();
                client.expect("RETR f", 150);
                assert_eq!(data.read_to_end().unwrap().1, b"content");
                client.expect_reply(226);
            }
        }
    }
}
