//! How it ends: by signals, and with nothing left behind.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::{Serving, reply};

#[test]
fn sigterm_and_sigint_end_it_with_0() {
    for signal in ["-TERM", "-INT"] {
        let mut serving = Serving::start(&[]);
        let mut client = serving.connect();
        serving.signal(signal);
        assert_eq!(serving.exit_code(), Some(0), "{signal}");
        assert!(reply(&mut client).starts_with("421 "), "{signal}");
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let folder = std::env::temp_dir().join(format!("millrace-endless-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    // Larger than the buffers of two sockets: a download that ends only when it is read.
    fs::File::create(folder.join("endless")).unwrap().set_len(1 << 30).unwrap();
    let mut serving = Serving::start_in(folder.to_str().unwrap(), &["--grace", "1h"]);
    let mut client = serving.connect();
    write!(client.get_mut(), "USER anonymous\r\nPASS x\r\nPASV\r\n").unwrap();
    let passive = (0..3).map(|_| reply(&mut client)).last().unwrap();
    let numbers: Vec<u16> =
        passive.split(['(', ')']).nth(1).unwrap().split(',').map(|number| number.parse().unwrap()).collect();
    let data = TcpStream::connect(("127.0.0.1", numbers[4] * 256 + numbers[5])).unwrap();
    write!(client.get_mut(), "RETR endless\r\n").unwrap();
    assert!(reply(&mut client).starts_with("150 "));
    serving.signal("-TERM");
    // New connections are refused once the signal was heard.
    let end = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect(serving.address()).is_ok_and(|stream| is_greeted(&stream)) {
        assert!(Instant::now() < end, "it goes on accepting");
    }
    assert!(serving.child.try_wait().unwrap().is_none(), "it waits for the transfer");
    serving.signal("-TERM");
    assert_eq!(serving.exit_code(), Some(143));
    drop(data);
    fs::remove_dir_all(folder).unwrap();
}

fn is_greeted(stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).is_ok() && line.starts_with("220")
}

#[test]
fn temporary_files_of_uploads_are_removed_with_the_server() {
    let folder = std::env::temp_dir().join(format!("millrace-tidy-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("f"), "old").unwrap();
    let mut serving = Serving::start_in(folder.to_str().unwrap(), &["--anonymous", "rw", "--http", "off"]);
    let mut client = serving.connect();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let eprt = format!("EPRT |1|127.0.0.1|{port}|");
    write!(client.get_mut(), "USER anonymous\r\nPASS x\r\n{eprt}\r\nSTOR f\r\n").unwrap();
    assert!((0..4).map(|_| reply(&mut client)).last().unwrap().starts_with("150 "));
    listener.accept().unwrap().0.write_all(b"new").unwrap();
    assert!(reply(&mut client).starts_with("226 "));
    serving.signal("-TERM");
    assert_eq!(serving.exit_code(), Some(0));
    let names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["f"]);
    assert_eq!(fs::read(folder.join("f")).unwrap(), b"new");
    fs::remove_dir_all(folder).unwrap();
}
