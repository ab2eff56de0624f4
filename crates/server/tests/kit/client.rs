//! A client that does exactly what it is told, and tells exactly what came.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use millrace_net::stream;
use rustix::net::{SendFlags, send};

use super::PATIENCE;

/// A control connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    /// Received and not yet read as a reply.
    received: Vec<u8>,
}

/// A reply: its code, and all of its lines as they came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) text: String,
}

impl Client {
    /// Connects; the greeting is still to be read.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).expect("the server accepts"))
    }

    /// Connects from an address of this machine.
    pub(crate) fn connect_from(from: &str, address: SocketAddr) -> Self {
        Self::over(data_from(from, address))
    }

    /// A client on a connection that is there already.
    pub(crate) fn of(stream: TcpStream) -> Self {
        Self::over(stream)
    }

    fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, received: Vec::new() }
    }

    /// The socket alone; nothing may have been received and not looked at.
    pub(crate) fn into_stream(self) -> TcpStream {
        assert!(self.received.is_empty());
        self.stream
    }

    /// How many bytes the kernel takes in for us before they are read: few, and replies pile up on the
    /// server's side.
    pub(crate) fn set_window(&self, bytes: usize) {
        rustix::net::sockopt::set_socket_recv_buffer_size(&self.stream, bytes).unwrap();
    }

    pub(crate) fn log_in(&mut self, user: &str, password: &str) {
        self.expect(format!("USER {user}"), 331);
        self.expect(format!("PASS {password}"), 230);
        self.expect("TYPE I", 200);
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the server takes commands");
    }

    /// Sends bytes of which the last is urgent data, as ftplib and others send an `ABOR`.
    pub(crate) fn send_urgent(&mut self, bytes: &[u8]) {
        assert_eq!(send(&self.stream, bytes, SendFlags::OOB).unwrap(), bytes.len());
    }

    /// The next reply.
    #[track_caller]
    pub(crate) fn reply(&mut self) -> Reply {
        self.next_reply().expect("the connection ended, or nothing came in time, where a reply was due")
    }

    /// The next reply; `None` at the end of the connection, orderly or not.
    pub(crate) fn next_reply(&mut self) -> Option<Reply> {
        let deadline = Instant::now() + PATIENCE;
        let mut searched = 0;
        loop {
            if let Some(length) = reply_length(&self.received, &mut searched) {
                let lines = self.received.drain(..length).collect::<Vec<u8>>();
                let text = String::from_utf8_lossy(&lines).into_owned();
                let code = text.get(..3).and_then(|code| code.parse().ok());
                return Some(Reply { code: code.unwrap_or_else(|| panic!("no reply: {text:?}")), text });
            }
            let mut chunk = [0; 65536];
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(count) => self.received.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("no reply: {error}; so far {:?}", self.beginning()),
            }
            assert!(Instant::now() < deadline, "no whole reply: {:?}", self.beginning());
        }
    }

    fn beginning(&self) -> String {
        String::from_utf8_lossy(&self.received).chars().take(300).collect()
    }

    #[track_caller]
    pub(crate) fn expect_reply(&mut self, code: u16) -> Reply {
        let reply = self.reply();
        assert_eq!(reply.code, code, "{reply:?}");
        reply
    }

    /// Sends a line and reads its reply.
    #[track_caller]
    pub(crate) fn command(&mut self, line: impl AsRef<[u8]>) -> Reply {
        self.send([line.as_ref(), b"\r\n"].concat());
        self.reply()
    }

    #[track_caller]
    pub(crate) fn expect(&mut self, line: impl AsRef<[u8]>, code: u16) -> Reply {
        let reply = self.command(line.as_ref());
        assert_eq!(reply.code, code, "{:?} got {reply:?}", String::from_utf8_lossy(line.as_ref()));
        reply
    }

    /// Asserts that nothing more comes: the server closed the connection.
    #[track_caller]
    pub(crate) fn expect_end(&mut self) {
        assert_eq!(self.next_reply(), None);
    }

    /// Asserts that the session does what it is asked to.
    #[track_caller]
    pub(crate) fn expect_alive(&mut self) {
        self.expect("NOOP", 200);
    }

    /// Where `PASV` wants the data connection.
    #[track_caller]
    pub(crate) fn passive_address(&mut self) -> SocketAddr {
        let reply = self.expect("PASV", 227);
        parse_passive(&reply)
    }

    /// A data connection to the port of `PASV`.
    #[track_caller]
    pub(crate) fn passive(&mut self) -> TcpStream {
        let address = self.passive_address();
        let data = TcpStream::connect(address).expect("the passive port listens");
        data.set_read_timeout(Some(PATIENCE)).unwrap();
        data.set_write_timeout(Some(PATIENCE)).unwrap();
        data
    }

    /// A listener that the server was told of with `PORT`.
    #[track_caller]
    pub(crate) fn active(&mut self) -> TcpListener {
        let listener = TcpListener::bind((self.stream.local_addr().unwrap().ip(), 0)).unwrap();
        self.expect(port_line(listener.local_addr().unwrap()), 200);
        listener
    }

    /// Downloads (a file, or a listing) and asserts that it ended well.
    #[track_caller]
    pub(crate) fn fetch(&mut self, line: impl AsRef<[u8]>) -> Vec<u8> {
        let (content, end) = self.try_fetch(line);
        assert_eq!(end.code, 226, "{end:?}");
        content
    }

    /// Downloads; answers what came, and the last reply. (Both connections are read, so that neither holds
    /// up the other.)
    #[track_caller]
    pub(crate) fn try_fetch(&mut self, line: impl AsRef<[u8]>) -> (Vec<u8>, Reply) {
        let mut data = self.passive();
        let first = self.command(line);
        if first.code != 150 {
            return (Vec::new(), first);
        }
        let mut content = Vec::new();
        // A reset says that it was not all.
        let _ = data.read_to_end(&mut content);
        (content, self.reply())
    }

    /// Uploads and answers the last reply.
    #[track_caller]
    pub(crate) fn try_store(&mut self, line: impl AsRef<[u8]>, content: &[u8]) -> Reply {
        let mut data = self.passive();
        let first = self.command(line);
        if first.code != 150 {
            return first;
        }
        // The server may have given up on it.
        let _ = data.write_all(content);
        drop(data);
        self.reply()
    }

    /// Uploads and asserts that it ended well.
    #[track_caller]
    pub(crate) fn store(&mut self, line: impl AsRef<[u8]>, content: &[u8]) {
        let end = self.try_store(line, content);
        assert_eq!(end.code, 226, "{end:?}");
    }

    /// Uploads over a data connection from an address of this machine.
    #[track_caller]
    pub(crate) fn store_from(&mut self, from: &str, line: &str, content: &[u8]) {
        let mut data = data_from(from, self.passive_address());
        self.expect(line, 150);
        data.write_all(content).unwrap();
        drop(data);
        self.expect_reply(226);
    }

    /// Uploads to a server that connects to an address of this machine.
    #[track_caller]
    pub(crate) fn store_by_port(&mut self, at: &str, line: &str, content: &[u8]) {
        let listener = TcpListener::bind((at, 0)).unwrap();
        self.expect(port_line(listener.local_addr().unwrap()), 200);
        self.expect(line, 150);
        let (mut data, _) = listener.accept().unwrap();
        data.write_all(content).unwrap();
        drop(data);
        self.expect_reply(226);
    }

    /// Ends the connection with a reset.
    pub(crate) fn reset(self) {
        reset(self.stream);
    }
}

/// A data connection whose other end is read slowly or not at all.
pub(crate) struct Sink(pub(crate) TcpStream);

impl Sink {
    /// Waits until the socket has bytes and no more come: the sender is held up.
    pub(crate) fn wait_until_full(&self) {
        let mut seen = (0, Instant::now());
        super::eventually("the data connection is full", || {
            let waiting = rustix::io::ioctl_fionread(&self.0).unwrap();
            if waiting != seen.0 {
                seen = (waiting, Instant::now());
            }
            waiting > 0 && seen.1.elapsed() > Duration::from_millis(60)
        });
    }
}

/// Ends a connection with a reset.
pub(crate) fn reset(stream: TcpStream) {
    stream::reset_on_close(&stream);
    drop(stream);
}

/// Waits until the other end's kernel has all that was sent on a connection of IPv4.
pub(crate) fn wait_until_arrived(stream: &TcpStream) {
    let (own, other) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
    super::eventually("what was sent has arrived", || {
        // What waits to be acknowledged, and to be read.
        queues(own, other).is_some_and(|queues| queues.starts_with("00000000:"))
    });
}

/// Ends a connection of IPv4 with a reset, of which the other end's kernel knows then.
pub(crate) fn reset_and_arrive(stream: TcpStream) {
    let (own, other) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
    reset(stream);
    super::eventually("the reset has arrived", || queues(other, own).is_none());
}

/// How much is in the queues of the socket between these two ports of this machine, if there is one.
fn queues(own: SocketAddr, other: SocketAddr) -> Option<String> {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("/proc is mounted");
    let ends = [own, other].map(|address| format!(":{:04X}", address.port()));
    table.lines().find_map(|line| {
        // Its number, both addresses, the state, the queues.
        let mut fields = line.split_whitespace().skip(1);
        let is_it = ends.iter().all(|end| fields.next().is_some_and(|field| field.ends_with(end)));
        is_it.then(|| fields.nth(1).map(str::to_owned)).flatten()
    })
}

/// Connects from an address of this machine, such as 127.0.0.77.
pub(crate) fn data_from(from: &str, to: SocketAddr) -> TcpStream {
    let from: IpAddr = from.parse().unwrap();
    let socket = TcpStream::from(stream::begin_connect(SocketAddr::new(from, 0), to).unwrap());
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// `PORT` for an address.
pub(crate) fn port_line(address: SocketAddr) -> String {
    let IpAddr::V4(ip) = address.ip() else { panic!("PORT is for IPv4") };
    let [a, b, c, d] = ip.octets();
    format!("PORT {a},{b},{c},{d},{},{}", address.port() >> 8, address.port() & 255)
}

/// The address of a 227 reply.
pub(crate) fn parse_passive(reply: &Reply) -> SocketAddr {
    let numbers = reply.text.split(['(', ')']).nth(1).unwrap_or_else(|| panic!("{reply:?}"));
    let numbers: Vec<u8> = numbers.split(',').map(|number| number.parse().unwrap()).collect();
    let [a, b, c, d, high, low] = numbers[..] else { panic!("{reply:?}") };
    SocketAddr::from(([a, b, c, d], u16::from(high) << 8 | u16::from(low)))
}

/// How long the reply at the beginning of `bytes` is, if it is there whole; `searched` are lines of it that
/// were looked at before.
fn reply_length(bytes: &[u8], searched: &mut usize) -> Option<usize> {
    let code = bytes.get(..3)?;
    loop {
        let at = *searched;
        let end = at + bytes[at..].iter().position(|&byte| byte == b'\n')? + 1;
        let line = &bytes[at..end];
        // A first line without a hyphen is all there is; where it is no reply the test shows it.
        if (at == 0 && line.get(3) != Some(&b'-')) || (line.starts_with(code) && line.get(3) == Some(&b' ')) {
            return Some(end);
        }
        *searched = end;
    }
}
