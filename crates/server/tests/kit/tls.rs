//! A client that speaks TLS: explicit or implicit, with data connections that resume or not.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use millrace_net::tls::{BUFFER, Channel, Connector, Heard, KeyPair, Plan, Trust, Versions, self_signed};
use millrace_server::config::Tls;

use super::client::{Reply, parse_passive};
use super::{PATIENCE, Scratch};

/// A self-signed certificate in a folder of its own.
pub(crate) fn pair(scratch: &Scratch) -> KeyPair {
    self_signed(scratch.path(), &["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap()
}

/// TLS with that certificate and the defaults.
pub(crate) fn policy(scratch: &Scratch) -> Tls {
    Tls::new(Plan { identities: vec![pair(scratch)], ..Plan::default() })
}

pub(crate) fn connector(versions: Versions) -> Connector {
    Connector::new(Trust::Anybody, versions, None).unwrap()
}

/// A socket with TLS on it.
pub(crate) struct Secured {
    pub(crate) socket: TcpStream,
    pub(crate) channel: Channel,
    buffer: Vec<u8>,
}

impl Secured {
    /// Shakes hands over a socket.
    pub(crate) fn over(socket: TcpStream, connector: &Connector) -> io::Result<Self> {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        let channel = Channel::new(connector.connect("localhost").unwrap());
        let mut secured = Self { socket, channel, buffer: vec![0; BUFFER] };
        match secured.channel.handshake(&secured.socket, &mut secured.buffer)? {
            true => Ok(secured),
            false => Err(ErrorKind::TimedOut.into()),
        }
    }

    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut sent = 0;
        while sent < bytes.len() {
            sent += self.channel.write(&self.socket, &bytes[sent..])?;
        }
        self.channel.flush(&self.socket)
    }

    /// Reads once.
    pub(crate) fn read(&mut self, plain: &mut Vec<u8>) -> io::Result<Heard> {
        self.channel.read(&self.socket, &mut self.buffer, &mut |bytes| plain.extend_from_slice(bytes))
    }

    /// Reads once, about as much as is `wanted`.
    pub(crate) fn read_some(&mut self, wanted: usize, plain: &mut Vec<u8>) -> io::Result<Heard> {
        let take = &mut |bytes: &[u8]| plain.extend_from_slice(bytes);
        self.channel.read_some(&self.socket, &mut self.buffer, wanted, take)
    }

    /// Reads to the end: whether it was told, and what came before it.
    pub(crate) fn read_to_end(&mut self) -> io::Result<(Heard, Vec<u8>)> {
        let mut plain = Vec::new();
        loop {
            match self.read(&mut plain)? {
                Heard::Bytes { .. } => {}
                heard => return Ok((heard, plain)),
            }
        }
    }

    /// Says that this was all, and closes.
    pub(crate) fn finish(mut self) {
        self.channel.close(&self.socket).unwrap();
    }
}

/// An encrypted control connection.
pub(crate) struct TlsClient {
    pub(crate) control: Secured,
    pub(crate) connector: Connector,
    pub(crate) received: Vec<u8>,
}

impl TlsClient {
    /// `AUTH TLS` on a new connection.
    pub(crate) fn explicit(address: SocketAddr, connector: Connector) -> Self {
        let mut plain = super::Client::connect(address);
        plain.expect_reply(220);
        plain.expect("AUTH TLS", 234);
        Self::over(plain.into_stream(), connector).unwrap()
    }

    /// A connection that begins with TLS.
    pub(crate) fn implicit(address: SocketAddr, connector: Connector) -> Self {
        let mut client = Self::over(TcpStream::connect(address).unwrap(), connector).unwrap();
        client.expect_reply(220);
        client
    }

    pub(crate) fn over(socket: TcpStream, connector: Connector) -> io::Result<Self> {
        socket.set_nodelay(true).unwrap();
        let control = Secured::over(socket, &connector)?;
        Ok(Self { control, connector, received: Vec::new() })
    }

    /// The same, logged in with all rights, `TYPE I`, `PROT P`.
    pub(crate) fn ready(mut self) -> Self {
        for (line, code) in
            [("USER u", 331), ("PASS p", 230), ("PBSZ 0", 200), ("PROT P", 200), ("TYPE I", 200)]
        {
            self.expect(line, code);
        }
        self
    }

    /// The next reply, of which lines before the last are joined.
    #[track_caller]
    pub(crate) fn reply(&mut self) -> Reply {
        self.next_reply().expect("the connection goes on")
    }

    /// The next reply, or `None` at the end of the connection.
    pub(crate) fn next_reply(&mut self) -> Option<Reply> {
        loop {
            if let Some(reply) = take_reply(&mut self.received) {
                return Some(reply);
            }
            match self.control.read(&mut self.received) {
                Ok(Heard::Bytes { .. }) => {}
                // The last reply and the goodbye may come together.
                Ok(_) => return take_reply(&mut self.received),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no reply: {error}"),
            }
        }
    }

    #[track_caller]
    pub(crate) fn expect_reply(&mut self, code: u16) -> Reply {
        let reply = self.reply();
        assert_eq!(reply.code, code, "{reply:?}");
        reply
    }

    pub(crate) fn send(&mut self, line: &str) {
        self.control.write_all(format!("{line}\r\n").as_bytes()).unwrap();
    }

    #[track_caller]
    pub(crate) fn expect(&mut self, line: &str, code: u16) -> Reply {
        self.send(line);
        let reply = self.reply();
        assert_eq!(reply.code, code, "{line} got {reply:?}");
        reply
    }

    /// A data connection to the port of `PASV`, in clear so far.
    #[track_caller]
    pub(crate) fn passive(&mut self) -> TcpStream {
        let address = parse_passive(&self.expect("PASV", 227));
        TcpStream::connect(address).unwrap()
    }

    /// Downloads and answers what came, if its end was told, and the last reply.
    #[track_caller]
    pub(crate) fn fetch(&mut self, line: &str) -> Vec<u8> {
        let socket = self.passive();
        self.expect(line, 150);
        let mut data = Secured::over(socket, &self.connector).unwrap();
        let (heard, content) = data.read_to_end().unwrap();
        assert_eq!(heard, Heard::End);
        self.expect_reply(226);
        content
    }

    /// Uploads; answers the last reply.
    #[track_caller]
    pub(crate) fn store(&mut self, line: &str, content: &[u8]) -> Reply {
        let socket = self.passive();
        self.expect(line, 150);
        let mut data = Secured::over(socket, &self.connector).unwrap();
        data.write_all(content).unwrap();
        data.finish();
        self.reply()
    }

    /// The same where the server may hang up on more than it wants.
    #[track_caller]
    pub(crate) fn try_store(&mut self, line: &str, content: &[u8]) -> Reply {
        let socket = self.passive();
        self.expect(line, 150);
        let mut data = Secured::over(socket, &self.connector).unwrap();
        let _ = data.write_all(content);
        let _ = data.channel.close(&data.socket);
        self.reply()
    }
}

/// The first whole reply of what was received.
fn take_reply(received: &mut Vec<u8>) -> Option<Reply> {
    let text = String::from_utf8_lossy(received).into_owned();
    let code = text.get(..3)?.to_owned();
    let mut length = 0;
    for line in text.split_inclusive('\n') {
        length += line.len();
        let is_last = line.starts_with(&format!("{code} ")) && line.ends_with('\n');
        if is_last {
            let reply = Reply { code: code.parse().unwrap(), text: text[..length].to_owned() };
            received.drain(..length);
            return Some(reply);
        }
    }
    None
}

/// Another certificate at the same place.
pub(crate) fn replace(pair: &KeyPair, folder: &Path) {
    let new = self_signed(folder, &["localhost".to_owned()]).unwrap();
    std::fs::copy(&new.key, &pair.key).unwrap();
    std::fs::copy(&new.certificate, &pair.certificate).unwrap();
}
