//! Sessions of one address on one passive port, told apart by the tickets of their data connections.

use std::net::TcpStream;
use std::time::Duration;

use millrace_net::tls::{Connector, Heard, Versions};
use millrace_server::config::{Resumption, Tls};

use super::kit::{
    PATIENCE, Scratch, Secured, Served, TlsClient, config, connector, eventually, free_ports, parse_passive,
    pattern, policy, serve_with,
};

/// So long that no port is given back while a loaded machine is about it.
const LONG: Duration = Duration::from_secs(120);

/// A server with a single passive port, for which no session waits longer than this.
fn serve(files: &Scratch, resumption: Resumption, wait: Duration) -> Served {
    let tls = Tls { resumption, ..policy(files) };
    serve_with(millrace_server::Config {
        tls: Some(tls),
        passive_ports: free_ports(1),
        connect_timeout: wait,
        ..config(files.storage())
    })
}

fn log_in(served: &Served, versions: Versions) -> TlsClient {
    TlsClient::explicit(served.address, connector(versions)).ready()
}

/// Sessions that will share the port: each has shown its own ticket while the others held theirs.
fn log_in_apart(served: &Served, versions: Versions, count: usize) -> Vec<TlsClient> {
    let mut clients: Vec<_> = (0..count).map(|_| log_in(served, versions)).collect();
    for client in &mut clients {
        client.fetch("LIST");
    }
    clients
}

/// Uploads, where the server may close the connection.
fn offer(socket: TcpStream, connector: &Connector, content: &[u8]) {
    if let Ok(mut data) = Secured::over(socket, connector) {
        let _ = data.write_all(content);
        let _ = data.channel.close(&data.socket);
    }
}

/// Each session's own content, in a file of its own.
fn content(number: usize) -> Vec<u8> {
    let mut content = pattern(100_000 + number);
    content.splice(..0, format!("of session {number}\n").into_bytes());
    content
}

/// All of them hold the port, and then each connects to it.
fn connect_all(clients: &mut [&mut TlsClient]) -> Vec<TcpStream> {
    let ports: Vec<_> = clients.iter_mut().map(|client| parse_passive(&client.expect("PASV", 227))).collect();
    assert!(ports.iter().all(|port| *port == ports[0]), "{ports:?}");
    ports.iter().map(|port| TcpStream::connect(port).unwrap()).collect()
}

/// All of them hold the port, then all connect, then all shake hands: each gets its own.
fn all_at_once(served: &Served, clients: &mut [TlsClient]) {
    let ports: Vec<_> = clients.iter_mut().map(|client| parse_passive(&client.expect("PASV", 227))).collect();
    assert!(ports.iter().all(|port| *port == ports[0]), "{ports:?}");
    assert!(served.ports.contains(&ports[0].port()));
    for (number, client) in clients.iter_mut().enumerate() {
        match number % 2 {
            0 => client.expect(&format!("RETR {number}"), 150),
            _ => client.expect(&format!("STOR new-{number}"), 150),
        };
    }
    let sockets: Vec<_> = ports.iter().map(|port| TcpStream::connect(port).unwrap()).collect();
    // The last to connect is the first to show its ticket.
    let mut shaken: Vec<_> = sockets.into_iter().enumerate().collect();
    shaken.reverse();
    for (number, socket) in shaken {
        let client = &mut clients[number];
        let mut data = Secured::over(socket, &client.connector).unwrap();
        match number % 2 {
            0 => {
                assert!(data.read_to_end().unwrap() == (Heard::End, content(number)), "another's file");
            }
            _ => {
                data.write_all(&content(number)).unwrap();
                data.finish();
            }
        }
        client.expect_reply(226);
    }
}

fn share(count: usize, versions: Versions, resumption: Resumption) {
    let files = Scratch::new();
    for number in 0..count {
        files.write(&number.to_string(), &content(number));
    }
    let served = serve(&files, resumption, LONG);
    let mut clients = log_in_apart(&served, versions, count);
    for _ in 0..2 {
        all_at_once(&served, &mut clients);
    }
    for number in (1..count).step_by(2) {
        assert!(files.read(&format!("new-{number}")).unwrap() == content(number), "another's file");
    }
}

#[test]
fn two_sessions_of_one_address_share_the_only_port() {
    for versions in [Versions::Tls13, Versions::Tls12] {
        share(2, versions, Resumption::Require);
    }
}

#[test]
fn so_do_those_that_have_resumed_where_it_is_not_required() {
    share(3, Versions::All, Resumption::Prefer);
}

#[test]
fn fifty_sessions_of_one_address_share_the_only_port() {
    share(50, Versions::Tls13, Resumption::Require);
}

#[test]
fn a_client_that_shows_tickets_of_another_session_shares_no_port() {
    for (versions, resumption) in [
        (Versions::Tls12, Resumption::Prefer),
        (Versions::Tls12, Resumption::Require),
        (Versions::Tls13, Resumption::Prefer),
        (Versions::Tls13, Resumption::Require),
    ] {
        let files = Scratch::new();
        let served = serve(&files, resumption, LONG);
        // One cache for both: each resumes its own session once, before the other's ticket is in its place.
        let cache = connector(versions);
        let mut clients = [(); 2].map(|()| {
            let mut client = TlsClient::explicit(served.address, cache.clone()).ready();
            client.store("STOR warm", b"x");
            client
        });
        let port = parse_passive(&clients[0].expect("PASV", 227));
        // The port is the first one's until its connection has come, whatever that shows.
        clients[1].send("PASV");
        for (number, client) in clients.iter_mut().enumerate() {
            if number == 1 {
                assert_eq!(parse_passive(&client.expect_reply(227)), port);
            }
            let socket = TcpStream::connect(port).unwrap();
            client.expect(&format!("STOR {number}"), 150);
            offer(socket, &cache, &content(number));
            let reply = client.reply();
            let stored = files.read(&number.to_string());
            match reply.code {
                226 => {
                    assert!(stored.unwrap() == content(number), "{versions:?} {resumption:?}: another's file")
                }
                _ => assert_eq!((reply.code, stored), (522, None), "{versions:?} {resumption:?}"),
            }
        }
    }
}

#[test]
fn the_handshake_may_begin_before_the_command_here_as_well() {
    let files = Scratch::new();
    let served = serve(&files, Resumption::Require, LONG);
    let mut clients = log_in_apart(&served, Versions::All, 3);
    let sockets = connect_all(&mut clients.iter_mut().collect::<Vec<_>>());
    let data: Vec<_> = clients
        .iter()
        .zip(sockets)
        .map(|(client, socket)| Secured::over(socket, &client.connector).unwrap())
        .collect();
    for (number, (client, mut data)) in clients.iter_mut().zip(data).enumerate() {
        client.expect(&format!("STOR {number}"), 150);
        data.write_all(&content(number)).unwrap();
        data.finish();
        client.expect_reply(226);
        assert!(files.read(&number.to_string()).unwrap() == content(number));
    }
}

#[test]
fn a_connection_that_does_not_resume_is_refused_and_others_are_served() {
    let files = Scratch::new();
    files.write("f", b"content");
    let served = serve(&files, Resumption::Require, Duration::from_secs(10));
    let [mut one, mut other] = log_in_apart(&served, Versions::All, 2).try_into().ok().expect("two");
    let without = other.connector.without_resumption();
    let mut sockets = connect_all(&mut [&mut one, &mut other]);
    let (second, first) = (sockets.pop().unwrap(), sockets.pop().unwrap());
    other.expect("RETR f", 150);
    // This one cannot be attributed: it is closed, and reaches neither of them.
    let lost = Secured::over(second, &without);
    assert!(lost.is_err(), "a connection without a ticket was served");
    one.expect("RETR f", 150);
    let mut data = Secured::over(first, &one.connector).unwrap();
    assert_eq!(data.read_to_end().unwrap(), (Heard::End, b"content".to_vec()));
    one.expect_reply(226);
    let reply = other.expect_reply(425);
    assert!(reply.text.contains("resumes the TLS session"), "{reply:?}");
    // The port is free for all again.
    assert_eq!(other.fetch("RETR f"), b"content");
}

/// rclone, and curl with several sessions at once, show on any connection what they were given last, on whichever.
#[test]
fn sessions_whose_client_shows_one_in_the_other_do_not_share() {
    for versions in [Versions::Tls12, Versions::Tls13] {
        let files = Scratch::new();
        let served = serve(&files, Resumption::Prefer, LONG);
        let mut one = log_in(&served, versions);
        assert_eq!(one.store("STOR warm", b"of one").code, 226);
        // It has resumed, and would share a port with others that are known to.
        let mut other = TlsClient::explicit(served.address, one.connector.clone()).ready();
        assert_eq!(other.store("STOR warm", b"of the other").code, 226);
        for name in ["a", "b", "c"] {
            let port = parse_passive(&one.expect("PASV", 227));
            // It waits until the port is free.
            other.send("PASV");
            one.expect(&format!("STOR {name}"), 150);
            let mut data = Secured::over(TcpStream::connect(port).unwrap(), &one.connector).unwrap();
            data.write_all(name.as_bytes()).unwrap();
            data.finish();
            one.expect_reply(226);
            assert_eq!(files.read(name).unwrap(), name.as_bytes());
            let port = parse_passive(&other.expect_reply(227));
            other.expect("RETR warm", 150);
            let mut data = Secured::over(TcpStream::connect(port).unwrap(), &other.connector).unwrap();
            assert_eq!(data.read_to_end().unwrap(), (Heard::End, b"of the other".to_vec()));
            other.expect_reply(226);
        }
    }
}

/// Its control connections show nothing, so only its data connections tell.
#[test]
fn sessions_whose_client_shows_the_last_ticket_on_data_connections_alone_do_not_share() {
    for (versions, resumption) in [
        (Versions::Tls12, Resumption::Prefer),
        (Versions::Tls12, Resumption::Require),
        (Versions::Tls13, Resumption::Prefer),
        (Versions::Tls13, Resumption::Require),
    ] {
        let files = Scratch::new();
        let served = serve(&files, resumption, LONG);
        // Each has shown its own, which was the last that was given then.
        let [mut one, mut other] = [(); 2].map(|()| {
            let mut client = log_in(&served, versions);
            assert_eq!(client.store("STOR warm", b"x").code, 226);
            client.expect("NOOP", 200);
            client
        });
        let port = parse_passive(&one.expect("PASV", 227));
        other.send("PASV");
        one.expect("STOR one", 150);
        offer(TcpStream::connect(port).unwrap(), &other.connector, b"of one");
        let (reply, stored) = (one.reply(), files.read("one"));
        match resumption {
            Resumption::Require => assert_eq!((reply.code, stored), (522, None), "{versions:?}"),
            _ => assert_eq!((reply.code, stored), (226, Some(b"of one".to_vec())), "{versions:?}"),
        }
        let port = parse_passive(&other.expect_reply(227));
        other.expect("STOR other", 150);
        offer(TcpStream::connect(port).unwrap(), &other.connector, b"of the other");
        // Where each ticket is good for one connection, the other has used this one's.
        match other.reply().code {
            226 => assert_eq!(files.read("other").unwrap(), b"of the other", "{versions:?}"),
            code => assert_eq!((code, resumption), (522, Resumption::Require), "{versions:?}"),
        }
    }
}

/// Its commands come before it has read the tickets before the replies, so they do not show which tickets its cache
/// has, which both sessions share.
#[test]
fn sessions_whose_client_says_more_than_it_has_heard_do_not_share() {
    let files = Scratch::new();
    let served = serve(&files, Resumption::Require, LONG);
    let cache = connector(Versions::Tls13);
    // Each of the lines behind these comes when the replies to the first were sent.
    let unheard = |name: &str| {
        let mut client = TlsClient::explicit(served.address, cache.clone());
        client.send("USER u\r\nPASS p\r\nPBSZ 0\r\nPROT P\r\nTYPE I");
        for number in 0..3 {
            let made = format!("{name}-{number}");
            client.send(&format!("MKD {made}"));
            eventually("the folder is made", || files.file(&made).exists());
        }
        client
    };
    let (mut one, mut other) = (unheard("one"), unheard("other"));
    let hear = |client: &mut TlsClient| {
        for code in [331, 230, 200, 200, 200, 257, 257, 257] {
            client.expect_reply(code);
        }
    };
    hear(&mut one);
    assert_eq!(one.store("STOR warm", b"x").code, 226);
    hear(&mut other);
    let port = parse_passive(&one.expect("PASV", 227));
    other.send("PASV");
    for (client, name) in [(&mut one, "of-one"), (&mut other, "of-other")] {
        if name == "of-other" {
            assert_eq!(parse_passive(&client.expect_reply(227)), port);
        }
        client.expect(&format!("STOR {name}"), 150);
        offer(TcpStream::connect(port).unwrap(), &cache, name.as_bytes());
        let (reply, stored) = (client.reply(), files.read(name));
        match reply.code {
            226 => assert_eq!(stored.unwrap(), name.as_bytes(), "another's file"),
            _ => assert_eq!((reply.code, stored), (522, None)),
        }
    }
}

#[test]
fn a_client_that_shows_its_former_sessions_ticket_spoils_nothing_for_others_of_its_address() {
    for versions in [Versions::Tls12, Versions::Tls13] {
        let files = Scratch::new();
        files.write("0", &content(0));
        let served = serve(&files, Resumption::Prefer, LONG);
        let cache = connector(versions);
        for _ in 0..2 {
            let mut client = TlsClient::explicit(served.address, cache.clone()).ready();
            assert_eq!(client.fetch("RETR 0").len(), content(0).len());
        }
        all_at_once(&served, &mut log_in_apart(&served, versions, 2));
    }
}

#[test]
fn a_connection_without_a_hello_reaches_no_session() {
    use std::io::{Read, Write};
    let files = Scratch::new();
    files.write("f", b"content");
    let served = serve(&files, Resumption::Require, LONG);
    let [mut one, mut other] = log_in_apart(&served, Versions::All, 2).try_into().ok().expect("two");
    let mut sockets = connect_all(&mut [&mut one, &mut other]);
    let (second, first) = (sockets.pop().unwrap(), sockets.pop().unwrap());
    for client in [&mut one, &mut other] {
        client.expect("RETR f", 150);
    }
    // Garbage, half a record, silence: each from the same address.
    let port = first.peer_addr().unwrap();
    let mut garbage = TcpStream::connect(port).unwrap();
    garbage.write_all(b"USER alice\r\n").unwrap();
    garbage.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(matches!(garbage.read(&mut [0; 10]), Ok(0) | Err(_)));
    let mut half = TcpStream::connect(port).unwrap();
    half.write_all(&[22, 3, 1, 2, 0, 1]).unwrap();
    let _silent = TcpStream::connect(port).unwrap();
    for (client, socket) in [(&mut other, second), (&mut one, first)] {
        let mut data = Secured::over(socket, &client.connector).unwrap();
        assert_eq!(data.read_to_end().unwrap(), (Heard::End, b"content".to_vec()));
        client.expect_reply(226);
    }
}
