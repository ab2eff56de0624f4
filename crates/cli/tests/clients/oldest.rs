//! The oldest FTP: what cameras and scanners speak, from RFC 959 of 1985 and no newer paper.
//!
//! Lower case, bare line feeds, a password that is empty, active mode by PORT, no questions asked first.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::server::{PASSWORD, Server, USER, read};
use crate::tree::noise;

/// How long a camera waits for anything.
const PATIENCE: Duration = Duration::from_secs(20);

struct Camera {
    control: BufReader<TcpStream>,
}

impl Camera {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut camera = Self { control: BufReader::new(stream) };
        assert_eq!(camera.reply(), 220);
        camera
    }

    fn log_in(address: SocketAddr) -> Self {
        let mut camera = Self::connect(address);
        assert_eq!(camera.command(&format!("user {USER}")), 331);
        assert_eq!(camera.command(&format!("pass {PASSWORD}")), 230);
        assert_eq!(camera.command("type i"), 200);
        camera
    }

    fn say(&mut self, line: &str) {
        self.control.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn command(&mut self, line: &str) -> u16 {
        self.say(line);
        self.reply()
    }

    /// The code of the next reply, its other lines skipped.
    fn reply(&mut self) -> u16 {
        loop {
            let mut line = String::new();
            self.control.read_line(&mut line).unwrap();
            assert!(line.ends_with("\r\n"), "{line:?}");
            if line.as_bytes().get(3) == Some(&b' ') {
                return line[..3].parse().unwrap();
            }
        }
    }

    /// Offers a port with `port`.
    fn listen(&mut self) -> TcpListener {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(self.command(&format!("port 127,0,0,1,{},{}", port >> 8, port & 0xff)), 200);
        listener
    }

    fn store(&mut self, name: &str, contents: &[u8]) {
        let listener = self.listen();
        self.say(&format!("stor {name}"));
        listener.accept().unwrap().0.write_all(contents).unwrap();
        assert_eq!((self.reply(), self.reply()), (150, 226));
    }
}

#[test]
fn a_camera_stores_its_pictures() {
    let server = Server::start();
    fs::create_dir(server.served().join("DCIM")).unwrap();
    let mut camera = Camera::log_in(server.address);
    assert_eq!(camera.command("cwd DCIM"), 250);
    for (name, length) in [("IMG_0001.JPG", 0), ("IMG_0002.JPG", 1), ("IMG_0003.JPG", 3_000_000)] {
        let picture = noise(length as u64, length);
        camera.store(name, &picture);
        assert!(read(server.served().join("DCIM").join(name)) == picture, "{name}");
    }
    assert_eq!(camera.command("quit"), 221);
    assert_eq!(camera.control.read(&mut [0]).unwrap(), 0, "the server closes behind 221");
}

#[test]
fn a_scanner_without_an_account_says_an_empty_password() {
    let server = Server::with("127.0.0.1:0", &["--anonymous", "rw"]);
    for line in ["pass", "pass "] {
        let mut scanner = Camera::connect(server.address);
        assert_eq!(scanner.command("user anonymous"), 331);
        assert_eq!(scanner.command(line), 230, "{line:?}");
        assert_eq!(scanner.command("type i"), 200);
        scanner.store("scan.pdf", b"%PDF");
        assert_eq!(read(server.served().join("scan.pdf")), b"%PDF");
    }
}

#[test]
fn a_camera_that_fills_the_network_with_one_packet_is_understood() {
    let server = Server::start();
    let mut camera = Camera::connect(server.address);
    camera.say(&format!("user {USER}\npass {PASSWORD}\ntype i\nmkd a\ncwd a\npwd"));
    let codes: Vec<u16> = (0..6).map(|_| camera.reply()).collect();
    assert_eq!(codes, [331, 230, 200, 257, 250, 257]);
}
