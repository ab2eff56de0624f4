//! Passive data connections: whose they are, where they may be, and what happens when ports run out.

use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_server::{Config, Server, StartError};
use millrace_storage::MemoryStorage;

use crate::kit::{
    Client, PATIENCE, Scratch, Served, config, data_from, eventually, free_ports, parse_passive, serve,
    serve_with,
};

fn storage() -> Arc<MemoryStorage> {
    let storage = MemoryStorage::new();
    storage.insert("/f", "content");
    Arc::new(storage)
}

/// A server with that many data ports, where no session waits for one longer than half a second. That is long enough
/// for a loaded machine to use a port before it is given back.
fn serve_ports(count: u16) -> Served {
    serve_ports_for(count, Duration::from_secs(5))
}

fn serve_ports_for(count: u16, wait: Duration) -> Served {
    let mut config = config(storage());
    let first = *config.passive_ports.start();
    config.passive_ports = first..=first + count - 1;
    config.connect_timeout = wait;
    serve_with(config)
}

/// Unused ports are given back; but a session that asks again may have its port for longer.
fn keep_until_answered(holder: &mut Client, other: &Client) {
    while rustix::io::ioctl_fionread(&other.stream).unwrap() == 0 {
        holder.expect("PASV", 227);
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn login_from(served: &Served, address: &str) -> Client {
    let mut client = Client::connect_from(address, served.address);
    client.expect_reply(220);
    client.log_in("u", "p");
    client
}

fn all_of(mut data: TcpStream) -> String {
    data.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut content = String::new();
    let _ = data.read_to_string(&mut content);
    content
}

/// faults.md 8: ProFTPD gave a download to, and took an upload from, 127.0.0.77. CVE-1999-0351.
#[test]
fn a_stranger_neither_gets_a_download_nor_gives_an_upload() {
    let served = serve(storage());
    let mut client = served.login();

    let address = client.passive_address();
    client.expect("RETR f", 150);
    assert_eq!(all_of(data_from("127.0.0.77", address)), "");
    assert_eq!(all_of(TcpStream::connect(address).unwrap()), "content");
    client.expect_reply(226);

    let address = client.passive_address();
    client.expect("STOR g", 150);
    let mut thief = data_from("127.0.0.77", address);
    let _ = thief.write_all(b"stolen");
    assert_eq!(all_of(thief), "");
    TcpStream::connect(address).unwrap().write_all(b"own").unwrap();
    client.expect_reply(226);
    assert_eq!(client.fetch("RETR g"), b"own");
}

#[test]
fn a_stranger_who_comes_first_is_closed_and_the_wait_goes_on() {
    let served = serve(storage());
    let mut client = served.login();
    let address = client.passive_address();
    let strangers: Vec<_> = (0..20).map(|_| data_from("127.0.0.77", address)).collect();
    let data = TcpStream::connect(address).unwrap();
    client.expect("RETR f", 150);
    assert_eq!(all_of(data), "content");
    client.expect_reply(226);
    assert!(strangers.into_iter().all(|stranger| all_of(stranger).is_empty()));
}

#[test]
fn a_second_pasv_forgets_the_first_connection() {
    let served = serve(storage());
    let mut client = served.login();
    let first = client.passive();
    for _ in 0..50 {
        client.expect("PASV", 227);
        client.expect("EPSV", 229);
    }
    let data = client.passive();
    client.expect("RETR f", 150);
    assert_eq!(all_of(data), "content");
    client.expect_reply(226);
    assert_eq!(all_of(first), "");
}

#[test]
fn a_transfer_that_was_refused_leaves_the_port_for_the_next() {
    let served = serve(storage());
    let mut client = served.login();
    let data = client.passive();
    client.expect("RETR missing", 550);
    client.expect("RETR f", 150);
    assert_eq!(all_of(data), "content");
    client.expect_reply(226);
    client.expect("RETR f", 425);
}

#[test]
fn ports_stay_within_the_range_and_are_drawn_at_random() {
    let served = serve_ports(12);
    let mut clients: Vec<_> = (0..12).map(|_| served.login()).collect();
    let ports: Vec<u16> = clients.iter_mut().map(|client| client.passive_address().port()).collect();
    assert!(ports.iter().all(|port| served.ports.contains(port)), "{ports:?} in {:?}", served.ports);
    assert_eq!(ports.iter().collect::<HashSet<_>>().len(), 12);
    assert!(!ports.is_sorted(), "ports in order can be foreseen: {ports:?}");
}

#[test]
fn a_range_of_one_serves_many_sessions_in_turn() {
    let served = serve_ports(1);
    let workers: Vec<_> = (0..8)
        .map(|number| {
            let mut client = served.login();
            std::thread::spawn(move || {
                let content = format!("content of {number}");
                for _ in 0..10 {
                    client.store(format!("STOR own{number}"), content.as_bytes());
                    assert_eq!(client.fetch(format!("RETR own{number}")), content.as_bytes());
                }
            })
        })
        .collect();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
}

#[test]
fn a_port_is_shared_by_clients_of_other_addresses() {
    let served = serve_ports(1);
    let mut clients: Vec<_> = (1..=20).map(|last| login_from(&served, &format!("127.0.0.{last}"))).collect();
    for (client, last) in clients.iter_mut().zip(1..) {
        client.store_from(
            &format!("127.0.0.{last}"),
            &format!("STOR of{last}"),
            format!("of {last}").as_bytes(),
        );
    }
    // All at once: all sessions have the port, connect in the worst order, and each gets its own connection.
    let addresses: Vec<_> = clients.iter_mut().map(Client::passive_address).collect();
    for (client, last) in clients.iter_mut().zip(1..) {
        client.expect(format!("RETR of{last}"), 150);
    }
    for (address, last) in addresses.iter().zip(1..=20u8).rev() {
        assert_eq!(all_of(data_from(&format!("127.0.0.{last}"), *address)), format!("of {last}"));
    }
    clients.iter_mut().for_each(|client| _ = client.expect_reply(226));
}

#[test]
fn a_waiting_session_gets_a_port_that_is_given_back() {
    let served = serve_ports(1);
    let mut first = served.login();
    let data = first.passive();
    let mut second = served.login();
    second.send("PASV\r\n");
    // The line of the second is read before the first goes on.
    second.stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut byte = [0];
    assert!(second.stream.read(&mut byte).is_err(), "a port that is taken was given away");
    second.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    first.expect("RETR f", 150);
    assert_eq!(all_of(data), "content");
    first.expect_reply(226);
    let address = parse_passive(&second.expect_reply(227));
    second.expect("RETR f", 150);
    assert_eq!(all_of(TcpStream::connect(address).unwrap()), "content");
    second.expect_reply(226);
}

#[test]
fn a_waiting_session_gets_the_port_of_an_abandoned_transfer() {
    let served = serve_ports(1);
    for end in ["ABOR", "QUIT", "deadline", "gone"] {
        let mut first = served.login();
        first.expect("PASV", 227);
        first.expect("RETR f", 150);
        let mut second = served.login();
        if matches!(end, "QUIT" | "deadline") {
            // So that its own wait ends well after the first one's, which QUIT does not end.
            std::thread::sleep(Duration::from_secs(2));
        }
        second.send("PASV\r\n");
        match end {
            "gone" => drop(first),
            "deadline" => {}
            end => first.send(format!("{end}\r\n")),
        }
        second.expect_reply(227);
    }
}

#[test]
fn a_session_that_waits_too_long_gets_the_reason() {
    let wait = Duration::from_secs(2);
    let served = serve_ports_for(1, wait);
    let mut first = served.login();
    first.expect("PASV", 227);
    let mut second = served.login();
    let begin = Instant::now();
    second.send("PASV\r\n");
    keep_until_answered(&mut first, &second);
    let reply = second.expect_reply(425);
    assert!(begin.elapsed() >= wait - Duration::from_millis(50), "{:?}", begin.elapsed());
    assert!(reply.text.contains("No passive port: all of them are in use"), "{reply:?}");
    second.expect("RETR f", 425);
    second.expect_alive();
    drop(first);
    eventually("the port is free again", || second.command("PASV").code == 227);
}

#[test]
fn a_client_that_gave_up_waiting_does_not_hold_up_others() {
    let served = serve_ports(1);
    let mut first = served.login();
    first.expect("PASV", 227);
    for _ in 0..20 {
        let mut quitter = served.login();
        quitter.send("PASV\r\n");
        drop(quitter);
    }
    let mut last = served.login();
    last.send("PASV\r\n");
    drop(first);
    last.expect_reply(227);
}

#[test]
fn a_late_connection_never_reaches_the_next_session() {
    let served = serve_ports(2);
    let mut first = served.login();
    let address = first.passive_address();
    let early = TcpStream::connect(address).unwrap();
    drop(first);
    // A connection that waited at the port when it was given back is closed, and for now no listener is there.
    assert_eq!(all_of(early), "");
    let mut second = served.login();
    let other = second.passive_address();
    assert_ne!(other, address, "the port of one that may yet connect is used last");
    second.expect("RETR f", 150);
    assert!(TcpStream::connect(address).is_err());
    assert_eq!(all_of(TcpStream::connect(other).unwrap()), "content");
    second.expect_reply(226);
}

#[test]
fn a_late_connection_to_a_shared_port_never_reaches_the_next_session() {
    let served = serve_ports(1);
    let mut holder = login_from(&served, "127.0.0.9");
    let address = holder.passive_address();
    let mut first = served.login();
    assert_eq!(first.passive_address(), address);
    first.expect("QUIT", 221);
    first.expect_end();
    // The port is open still, for the holder: a connection of the first may come at any time.
    let mut second = served.login();
    second.send("PASV\r\n");
    keep_until_answered(&mut holder, &second);
    second.expect_reply(425);
    let early = TcpStream::connect(address).unwrap();
    drop(holder);
    let mut third = served.login();
    assert_eq!(third.passive_address(), address);
    third.expect("RETR f", 150);
    assert_eq!(all_of(early), "");
    assert_eq!(all_of(TcpStream::connect(address).unwrap()), "content");
    third.expect_reply(226);
}

#[test]
fn an_ended_session_gives_its_port_back() {
    let served = serve_ports(3);
    for _ in 0..100 {
        let mut client = served.login();
        client.expect("PASV", 227);
    }
    let mut clients: Vec<_> = (0..3).map(|_| served.login()).collect();
    clients.iter_mut().for_each(|client| eventually("a port", || client.command("PASV").code == 227));
}

#[test]
fn logging_out_gives_the_port_back() {
    let served = serve_ports(1);
    let mut first = served.login();
    first.expect("PASV", 227);
    first.expect("REIN", 220);
    served.login().expect("PASV", 227);
    first.log_in("u", "p");
    first.expect("RETR f", 425);
}

/// 2009-5013, 2010-3494: connecting and closing must not end the accepting.
#[test]
fn connections_that_end_at_once_do_no_harm() {
    let served = serve(storage());
    let mut client = served.login();
    for round in 0..100 {
        let address = client.passive_address();
        let early = TcpStream::connect(address).unwrap();
        match round % 2 {
            0 => drop(early),
            _ => crate::kit::reset(early),
        }
        drop(Client::connect(served.address));
        Client::connect(served.address).reset();
    }
    assert_eq!(client.fetch("RETR f"), b"content");
}

#[test]
fn the_public_address_is_named_and_our_own_is_listened_on() {
    let mut config = config(storage());
    config.public_ip = Some("203.0.113.9".parse().unwrap());
    let served = serve_with(config);
    let mut client = served.login();
    let named = client.passive_address();
    assert_eq!(named.ip().to_string(), "203.0.113.9");
    client.expect("RETR f", 150);
    assert_eq!(all_of(TcpStream::connect(("127.0.0.1", named.port())).unwrap()), "content");
}

/// The example of the configuration: both of a port, in either order.
#[test]
fn all_addresses_of_ipv4_and_of_ipv6_share_a_port() {
    let scratch = Scratch::new();
    for is_six_first in [false, true] {
        // Another process may have the port at another address, or take it meanwhile.
        let (port, running) = loop {
            let port = *free_ports(1).start();
            let mut ftp = vec![SocketAddr::from(([0; 4], port)), SocketAddr::from(([0; 16], port))];
            if is_six_first {
                ftp.reverse();
            }
            match Server::start(Config { ftp, ..config(scratch.storage()) }) {
                Err(StartError::Listen { source, .. }) if source.kind() == ErrorKind::AddrInUse => {}
                started => break (port, started.unwrap()),
            }
        };
        for ip in ["127.0.0.1", "::1"] {
            let mut client = Client::connect(SocketAddr::new(ip.parse().unwrap(), port));
            client.expect_reply(220);
        }
        drop(running);
    }
}

#[test]
fn ports_that_are_chosen_for_ipv6_serve_ipv4_too() {
    let scratch = Scratch::new();
    let ftp = vec![SocketAddr::from(([127, 0, 0, 1], 0)), SocketAddr::from(([0; 16], 0))];
    let served = serve_with(Config { ftp, ..config(scratch.storage()) });
    let port = served.running.ftp_addresses()[1].port();
    for ip in ["127.0.0.1", "::1"] {
        Client::connect(SocketAddr::new(ip.parse().unwrap(), port)).expect_reply(220);
    }
}

#[test]
fn ipv6_has_epsv_and_lpsv() {
    let mut config = config(storage());
    config.ftp = vec!["[::1]:0".parse().unwrap()];
    let served = serve_with(config);
    let mut client = served.login();
    let reply = client.expect("EPSV", 229);
    let port: u16 = reply.text.split('|').nth(3).unwrap().parse().unwrap();
    assert!(served.ports.contains(&port));
    client.expect("RETR f", 150);
    assert_eq!(
        all_of(TcpStream::connect(SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], port))).unwrap()),
        "content"
    );
    client.expect_reply(226);
    client.expect("EPSV 2", 229);
    client.expect("EPSV 1", 522);
    client.expect("PASV", 425);
    client.expect("LPSV", 228);
}

#[test]
fn epsv_all_refuses_every_other_way() {
    let served = serve(storage());
    let mut client = served.login();
    client.expect("EPSV ALL", 200);
    for line in ["PASV", "LPSV", "PORT 127,0,0,1,200,1", "EPRT |1|127.0.0.1|51201|"] {
        assert_eq!(client.command(line).code / 100, 5, "{line}");
    }
    client.expect("EPSV", 229);
}
