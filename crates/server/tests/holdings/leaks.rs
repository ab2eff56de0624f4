//! After thousands of sessions of every kind the process holds what it held before them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::kit::{
    Client, Random, Scratch, Served, config, descriptors, eventually, pattern, port_line, reset, resident,
    serve_with,
};
use crate::{alone, expect_descriptors};

/// How many sessions; `MILLRACE_SESSIONS=100000` for the number that the project promises.
fn sessions() -> usize {
    std::env::var("MILLRACE_SESSIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(5_000)
}

/// One session of one of many kinds, most of which end badly.
fn session(served: &Served, kind: usize) {
    let mut client = Client::connect(served.address);
    if kind == 0 {
        return client.reset();
    }
    client.expect_reply(220);
    if kind == 1 {
        return client.send("USER u\r\nPA");
    }
    client.log_in("u", "p");
    match kind {
        2 => assert_eq!(client.fetch("RETR small").len(), 100),
        3 => client.store("STOR up", b"content"),
        4 => _ = client.fetch("LIST"),
        5 => _ = client.expect("PASV", 227),
        6 => {
            let _data = client.passive();
            client.expect("RETR large", 150);
        }
        7 => {
            let mut data = client.passive();
            client.expect("STOR up", 150);
            data.write_all(&pattern(80_000)).unwrap();
            reset(data);
            client.expect_reply(426);
        }
        8 => {
            let data = client.passive();
            client.expect("RETR large", 150);
            client.send("ABOR\r\nQUIT\r\n");
            drop(data);
        }
        9 => {
            client.expect("PASV", 227);
            client.expect("STOR up", 150);
            client.reset();
        }
        10 => {
            let listener = client.active();
            client.send("RETR large\r\n");
            let (mut data, _) = listener.accept().unwrap();
            data.read_exact(&mut [0; 1_000]).unwrap();
        }
        11 => {
            client.send("XSHA256 medium\r\nNLST\r\n");
        }
        12 => {
            // Not the port of a dropped listener: another test may have it by now.
            let unused = SocketAddr::from(([127, 0, 0, 1], *crate::kit::free_ports(1).start()));
            client.expect(port_line(unused), 200);
            client.expect("LIST", 150);
            client.expect_reply(425);
        }
        _ => client.send("STAT /\r\nMKD x\r\nRMD x\r\nQUIT\r\n"),
    }
}

#[test]
fn thousands_of_mixed_sessions_leave_nothing() {
    let _alone = alone();
    let scratch = Scratch::new();
    scratch.write("small", &pattern(100));
    scratch.write("medium", &pattern(1 << 20));
    scratch.write("large", &pattern(8 << 20));
    let mut config = config(scratch.storage());
    config.passive_ports = crate::kit::free_ports(64);
    let before_all = descriptors();
    let served = serve_with(config);
    let round = |count: usize, seed: u64| {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let served = &served;
                scope.spawn(move || {
                    let mut random = Random(seed + thread);
                    (0..count / 4).for_each(|_| session(served, random.below(14)));
                });
            }
        });
    };
    // The needed ports are bound once and kept, and so is the memory of many connections.
    round(400, 1);
    served.login().expect_alive();
    std::thread::sleep(Duration::from_millis(100));
    let memory = resident();
    round(sessions(), 5);
    // No client is left: what is open belongs to the server, its workers and its ports.
    let own = before_all + 64 + 2 * 8 + 8;
    expect_descriptors(own);
    let grown = resident().saturating_sub(memory);
    assert!(grown < 6 << 20, "{grown} bytes more than after the first sessions");
    eventually("nothing is left of uploads", || {
        scratch.names().iter().all(|name| ["small", "medium", "large", "up", "x"].contains(&name.as_str()))
    });
    // Every port comes back.
    let mut crowd: Vec<_> = (0..64).map(|_| served.login()).collect();
    crowd.iter_mut().for_each(|client| _ = client.expect("PASV", 227));
    drop(crowd);
    drop(served);
    expect_descriptors(before_all);
}

/// pyftpdlib kept 565 MB of replies for one client.
#[test]
fn clients_that_never_read_cost_a_buffer_each() {
    let _alone = alone();
    let scratch = Scratch::new();
    let served = serve_with(config(scratch.storage()));
    let clients: Vec<_> = (0..10).map(|_| served.login()).collect();
    let memory = resident();
    for client in &clients {
        let mut stream: &TcpStream = &client.stream;
        stream.set_nonblocking(true).unwrap();
        let burst = "FEAT\r\n".repeat(10_000);
        eventually("no more commands are taken", || stream.write(burst.as_bytes()).is_err());
    }
    std::thread::sleep(Duration::from_millis(300));
    let grown = resident().saturating_sub(memory);
    assert!(grown < 2 << 20, "{grown} bytes for 10 clients that do not listen");
    served.login().expect_alive();
}

/// 2019-18217: a line that never ends is not kept.
#[test]
fn endless_lines_cost_nothing() {
    let _alone = alone();
    let scratch = Scratch::new();
    let served = serve_with(config(scratch.storage()));
    let mut clients: Vec<_> = (0..20).map(|_| served.connect()).collect();
    let memory = resident();
    for client in &mut clients {
        for _ in 0..20 {
            client.send([b'x'; 50_000]);
        }
    }
    let grown = resident().saturating_sub(memory);
    assert!(grown < 4 << 20, "{grown} bytes");
    for client in &mut clients {
        client.send("\r\n");
        client.expect_reply(500);
    }
}
