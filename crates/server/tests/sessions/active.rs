//! Active data connections: their permitted targets, their source, and their errors.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_storage::MemoryStorage;
use rustix::net::{AddressFamily, SocketType, bind, listen, socket};

use crate::kit::{Client, Served, config, pattern, port_line, serve, serve_with};

fn served() -> Served {
    let storage = MemoryStorage::new();
    storage.insert("/f", "content");
    serve(Arc::new(storage))
}

/// CVE-1999-0017, and 2015-10003 where it came back.
#[test]
fn a_data_connection_is_made_to_the_client_only() {
    let served = served();
    let mut client = served.login();
    let other = TcpListener::bind("127.0.0.5:0").unwrap();
    other.set_nonblocking(true).unwrap();
    let port = other.local_addr().unwrap().port();
    let (high, low) = (port >> 8, port & 255);
    for line in [
        format!("PORT 127,0,0,5,{high},{low}"),
        format!("EPRT |1|127.0.0.5|{port}|"),
        format!("LPRT 4,4,127,0,0,5,2,{high},{low}"),
        format!("PORT 0,0,0,0,{high},{low}"),
        format!("PORT 255,255,255,255,{high},{low}"),
        format!("EPRT |2|::ffff:127.0.0.5|{port}|"),
    ] {
        assert_eq!(client.command(&line).code / 100, 5, "{line}");
        client.expect("RETR f", 425);
    }
    assert_eq!(other.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_data_connection_is_made_to_no_port_below_1024() {
    let served = served();
    let mut client = served.login();
    for port in [0u16, 1, 21, 25, 80, 1023] {
        let (high, low) = (port >> 8, port & 255);
        client.expect(format!("PORT 127,0,0,1,{high},{low}"), 501);
        client.expect(format!("EPRT |1|127.0.0.1|{port}|"), 501);
        client.expect(format!("LPRT 4,4,127,0,0,1,2,{high},{low}"), 501);
        client.expect("RETR f", 425);
    }
}

#[test]
fn a_malformed_address_is_refused_and_the_session_goes_on() {
    let served = served();
    let mut client = served.login();
    for argument in [
        "",
        "1",
        "127,0,0,1,4",
        "127,0,0,1,4,1,1",
        "127,0,0,1,256,1",
        "127,0,0,1,-1,1",
        "a,b,c,d,e,f",
        "127,0,0,1,,1",
        "127.0.0.1,4,1",
        "127,0,0,1,4,99999999999999999999",
        ",,,,,",
        "1270,0,0,1,4,1",
        "+127,0,0,1,200,1",
    ] {
        client.expect(format!("PORT {argument}"), 501);
    }
    // ProFTPD accepts port 99999.
    for argument in [
        "",
        "|",
        "||||",
        "|1|127.0.0.1|99999|",
        "|1|127.0.0.1|-1|",
        "|1|127.0.0.1||",
        "|1|localhost|2000|",
        "|1|127.0.0.1|2000",
        "|1|::1|2000|",
        "1|127.0.0.1|2000|",
        "|1|127.0.0.1|2000|x",
        "|1|127.0.0.1|2 000|",
    ] {
        client.expect(format!("EPRT {argument}"), 501);
    }
    client.expect("EPRT |3|127.0.0.1|2000|", 522);
    client.expect("EPRT |99999999999|127.0.0.1|2000|", 522);
    client.expect("LPRT 9,4,127,0,0,1,2,200,1", 521);
    client.expect("LPRT 4,255,127,0,0,1,2,200,1", 501);
    client.expect_alive();
}

#[test]
fn port_eprt_and_lprt_move_files_both_ways() {
    let served = served();
    let mut client = served.login();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for line in [
        port_line(listener.local_addr().unwrap()),
        format!("EPRT |1|127.0.0.1|{port}|"),
        format!("eprt !1!127.0.0.1!{port}!"),
        format!("LPRT 4,4,127,0,0,1,2,{},{}", port >> 8, port & 255),
    ] {
        for length in [0, 1, 70_000] {
            client.expect(&line, 200);
            client.expect("STOR g", 150);
            listener.accept().unwrap().0.write_all(&pattern(length)).unwrap();
            client.expect_reply(226);
            client.expect(&line, 200);
            client.send("RETR g\r\n");
            let mut content = Vec::new();
            listener.accept().unwrap().0.read_to_end(&mut content).unwrap();
            client.expect_reply(150);
            client.expect_reply(226);
            assert!(content == pattern(length), "{line} {length}");
        }
    }
}

#[test]
fn a_data_connection_comes_from_the_address_of_the_control_connection() {
    let storage = MemoryStorage::new();
    storage.insert("/f", "content");
    let mut config = config(Arc::new(storage));
    config.ftp = vec!["0.0.0.0:0".parse().unwrap()];
    let served = serve_with(config);
    let port = served.address.port();
    for own in ["127.0.0.1", "127.0.0.42"] {
        let mut client = Client::connect_from("127.0.0.3", SocketAddr::new(own.parse().unwrap(), port));
        client.expect_reply(220);
        client.log_in("u", "p");
        let listener = client.active();
        client.send("RETR f\r\n");
        let (_data, peer) = listener.accept().unwrap();
        assert_eq!(peer.ip().to_string(), own);
        client.expect_reply(150);
        client.expect_reply(226);
    }
}

#[test]
fn a_refused_connection_is_told_with_425() {
    let served = served();
    let mut client = served.login();
    let gone = client.active();
    drop(gone);
    client.expect("RETR f", 150);
    client.expect_reply(425);
    client.expect("RETR f", 425);
    client.expect_alive();
}

/// A listener whose queue is full does not answer connection attempts.
fn black_hole() -> (SocketAddr, impl FnOnce()) {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    listen(&socket, 0).unwrap();
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().unwrap();
    let filler = TcpStream::connect(address).unwrap();
    (address, move || {
        // The filler is taken out of the queue: attempts that are repeated get through from now on.
        drop((listener.accept().unwrap(), filler));
        std::thread::spawn(move || {
            let (mut data, _) = listener.accept().unwrap();
            data.write_all(b"late").unwrap();
        });
    })
}

#[test]
fn a_connection_that_is_not_answered_is_given_up_after_the_deadline() {
    let storage = MemoryStorage::new();
    storage.insert("/f", "content");
    let mut config = config(Arc::new(storage));
    config.connect_timeout = Duration::from_millis(300);
    let served = serve_with(config);
    let mut client = served.login();
    let (address, _open) = black_hole();
    client.expect(port_line(address), 200);
    let begin = Instant::now();
    client.expect("RETR f", 150);
    client.expect("NOOP", 200);
    client.expect_reply(425);
    assert!(begin.elapsed() >= Duration::from_millis(280), "{:?}", begin.elapsed());
    client.expect_alive();
}

/// The socket is made known to the reactor while it connects, and must be heard when bytes come.
#[test]
fn an_upload_over_a_connection_that_took_long_arrives() {
    let served = served();
    let mut client = served.login();
    let (address, open) = black_hole();
    client.expect(port_line(address), 200);
    client.expect("STOR late", 150);
    client.expect_alive();
    open();
    client.expect_reply(226);
    assert_eq!(client.fetch("RETR late"), b"late");
}

#[test]
fn abor_ends_a_connection_attempt() {
    let served = served();
    let mut client = served.login();
    let (address, _open) = black_hole();
    client.expect(port_line(address), 200);
    client.expect("RETR f", 150);
    client.expect("ABOR", 426);
    client.expect_reply(226);
}

#[test]
fn fxp_is_a_switch() {
    let storage = MemoryStorage::new();
    storage.insert("/f", "content");
    let mut config = config(Arc::new(storage));
    config.foreign_data = true;
    let served = serve_with(config);
    let mut client = served.login();
    let other = TcpListener::bind("127.0.0.5:0").unwrap();
    client.expect(port_line(other.local_addr().unwrap()), 200);
    client.send("RETR f\r\n");
    let mut content = String::new();
    other.accept().unwrap().0.read_to_string(&mut content).unwrap();
    assert_eq!(content, "content");
    client.expect_reply(150);
    client.expect_reply(226);
    client.expect("PORT 127,0,0,5,0,25", 501);
}
