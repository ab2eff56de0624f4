//! Clients that read slowly: they are slow, not idle, whatever sends their answers.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use millrace_net::tls::Heard;
use millrace_server::Config;
use millrace_server::config::{Peer, ProxyRoute, Upstream};
use millrace_vfs::VirtualPath;

use crate::kit::http2::{INITIAL_WINDOW_SIZE, WINDOW_UPDATE, frame, get, served_with};
use crate::kit::{PATIENCE, Scratch, http_config, serve_http_with};

/// The timeout of an idle client.
const STALL: Duration = Duration::from_secs(5);

/// Takes some kilobytes a second for longer than that, several times over. The server's kernel has taken much more at
/// once, so the server has nothing to do meanwhile.
fn read_slowly(socket: &TcpStream, mut read: impl FnMut() -> bool) {
    rustix::net::sockopt::set_socket_recv_buffer_size(socket, 8 << 10).unwrap();
    // What has come before that is a buffer of another size.
    (0..100).for_each(|_| assert!(read()));
    let begin = Instant::now();
    while begin.elapsed() < STALL * 3 {
        assert!(read(), "ended after {:?}", begin.elapsed());
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_client_of_http_2_that_reads_slowly_does_not_stand_still() {
    let scratch = Scratch::new();
    let served = served_with(&scratch, |config| {
        (config.stall_timeout, config.http2_ping) = (STALL, STALL);
    });
    let mut client = served.connect_http2(&[(INITIAL_WINDOW_SIZE, 16 << 20)]);
    client.send(frame(WINDOW_UPDATE, 0, 0, (16_u32 << 20).to_be_bytes()));
    client.send(get(1, "/large"));
    let socket = client.secured.socket.try_clone().unwrap();
    // It gets a `PING` only after it has read what precedes it.
    read_slowly(&socket, || {
        matches!(client.secured.read_some(8 << 10, &mut Vec::new()), Ok(Heard::Bytes { .. }))
    });
}

#[test]
fn a_client_that_reads_slowly_what_another_server_answers_does_not_stand_still() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (behind, body) = (listener.local_addr().unwrap(), vec![b'x'; 32 << 20]);
    std::thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            let _ = socket.read(&mut [0; 4096]);
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            // Until the server is gone.
            let _ = socket.write_all(head.as_bytes()).and_then(|()| socket.write_all(&body));
        }
    });
    let route = ProxyRoute {
        path: VirtualPath::parse(b"/app").unwrap(),
        silence: STALL,
        ..ProxyRoute::new(Upstream::Http(Peer::Tcp(behind)))
    };
    let scratch = Scratch::new();
    let served = serve_http_with(Config {
        proxy_routes: vec![route],
        stall_timeout: PATIENCE,
        ..http_config(scratch.storage())
    });
    let mut client = served.connect();
    client.send("GET /app/large HTTP/1.1\r\nHost: h\r\n\r\n");
    let socket = client.stream.try_clone().unwrap();
    read_slowly(&socket, || client.stream.read(&mut [0; 8 << 10]).is_ok_and(|count| count > 0));
}
