//! A client of FTP for tests of the binary.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// A control connection.
pub(crate) struct Client(pub(crate) BufReader<TcpStream>);

impl Client {
    #[track_caller]
    pub(crate) fn expect(&mut self, code: &str) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        assert!(line.starts_with(code), "{line}");
        line
    }

    #[track_caller]
    pub(crate) fn say(&mut self, command: &str, code: &str) -> String {
        self.0.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
        self.expect(code)
    }

    pub(crate) fn data(&mut self) -> TcpStream {
        let reply = self.say("EPSV", "229");
        let port: u16 = reply.split('|').nth(3).unwrap().parse().unwrap();
        let host = self.0.get_ref().peer_addr().unwrap().ip();
        TcpStream::connect((host, port)).unwrap()
    }

    #[track_caller]
    pub(crate) fn upload(&mut self, command: &str, text: &str) {
        let mut data = self.data();
        self.say(command, "150");
        data.write_all(text.as_bytes()).unwrap();
        drop(data);
        self.expect("226");
    }

    #[track_caller]
    pub(crate) fn download(&mut self, command: &str) -> String {
        let mut data = self.data();
        self.say(command, "150");
        let mut text = String::new();
        data.read_to_string(&mut text).unwrap();
        self.expect("226");
        text
    }
}
