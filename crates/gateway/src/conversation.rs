//! A connection to what answers a request in the server's place: records of FastCGI, to an application or within the
//! process to the side runtime (`forward.rs`), which asks another server by HTTP.
//!
//! The invariant: `read` returns 0 only after the peer has marked its answer as complete. An incomplete answer ends in
//! an error, so that a part is not taken for the whole.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::Duration;

use millrace_http::fastcgi::{self, Decoder, Said};
use millrace_net::stream;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use crate::upstream::Peer;

/// The size of a read.
const PIECE: usize = 16 * 1024;

/// Bytes of a line of errors at most.
const LINE: usize = 4096;

/// A request and its answer on a connection.
#[derive(Debug)]
pub struct Conversation {
    /// The connection.
    pub socket: OwnedFd,
    /// Which of the passes it is for.
    pub route: usize,
    /// Records that the peer has not taken.
    out: Vec<u8>,
    decoder: Decoder,
    /// Bytes of the answer, from `taken` on.
    said: Vec<u8>,
    taken: usize,
    /// The peer says that it has answered, or that it has not.
    is_complete: bool,
    /// The body of the request goes on.
    takes_input: bool,
    /// Whether the connection may have another request.
    keep: bool,
    /// Whether the reactor reports events of it.
    pub is_watched: bool,
    /// The connection is reused, so the peer may close it just as the request is sent.
    pub was_used: bool,
    /// What the peer says of errors: lines, the last not whole.
    errors: Vec<u8>,
}

/// What came of asking an application.
#[derive(Debug)]
pub enum Contact {
    /// It is connected to, and has the request.
    To(Box<Conversation>),
    /// There is no such script.
    Nowhere,
    /// Why it cannot be asked.
    Failed(String),
}

impl Conversation {
    /// A request that begins with these records on a connection; its body follows where there is one.
    pub fn new(socket: OwnedFd, route: usize, mut records: Vec<u8>, has_body: bool, keep: bool) -> Self {
        if !has_body {
            fastcgi::end_stdin(&mut records);
        }
        Self {
            socket,
            route,
            out: records,
            decoder: Decoder::default(),
            said: Vec::new(),
            taken: 0,
            is_complete: false,
            takes_input: has_body,
            keep,
            is_watched: false,
            was_used: false,
            errors: Vec::new(),
        }
    }

    /// Returns whether the body of the request goes on.
    pub fn takes_input(&self) -> bool {
        self.takes_input
    }

    /// Takes bytes of the request's body, or none where the peer has not taken those before.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        fastcgi::stdin(bytes, &mut self.out);
        match self.flush() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(bytes.len()),
        }
    }

    /// The body of the request has ended.
    pub fn end_input(&mut self) {
        if std::mem::take(&mut self.takes_input) {
            fastcgi::end_stdin(&mut self.out);
            // What cannot be sent now is sent before the next read.
            let _ = self.flush();
        }
    }

    /// Sends what waits to be sent.
    fn flush(&mut self) -> io::Result<()> {
        let mut sent = 0;
        let result = loop {
            if sent == self.out.len() {
                break Ok(());
            }
            match stream::write(&self.socket, &self.out[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        self.out.drain(..sent);
        result
    }

    /// Reads bytes of the answer; 0 is its end.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // A peer that has stopped reading may still have sent its answer.
        let _ = self.flush();
        loop {
            let rest = &self.said[self.taken..];
            if !rest.is_empty() {
                let count = rest.len().min(buffer.len());
                buffer[..count].copy_from_slice(&rest[..count]);
                self.taken += count;
                return Ok(count);
            }
            if self.decoder.has_ended() {
                return if self.is_complete { Ok(0) } else { Err(io::ErrorKind::ConnectionRefused.into()) };
            }
            let mut wire = [0; PIECE];
            match stream::read(&self.socket, &mut wire)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.hear(&wire[..count])?,
            }
        }
    }

    fn hear(&mut self, wire: &[u8]) -> io::Result<()> {
        let Self { decoder, said, taken, is_complete, errors, .. } = self;
        said.clear();
        *taken = 0;
        let heard = decoder.take(wire, &mut |what| match what {
            Said::Stdout(bytes) => said.extend_from_slice(bytes),
            Said::Stderr(bytes) => errors.extend_from_slice(bytes),
            Said::End(complete) => *is_complete = complete,
            Said::Stdin(_) | Said::Abort => {}
        });
        heard.map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// Lines of errors that are whole, and with `all` also one that is not.
    pub fn complaints(&mut self, all: bool) -> Vec<String> {
        let end = match (all, self.errors.len()) {
            (false, 0..LINE) => self.errors.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1),
            (_, length) => length,
        };
        let lines: Vec<u8> = self.errors.drain(..end).collect();
        let lines = lines.split(|&byte| byte == b'\n').flat_map(|line| line.chunks(LINE));
        lines.map(|line| String::from_utf8_lossy(line).into_owned()).collect()
    }

    /// The connection, where it can have another request.
    pub fn into_kept(self) -> Option<OwnedFd> {
        let is_done = self.decoder.has_ended() && self.out.is_empty() && !self.takes_input;
        (self.keep && is_done).then_some(self.socket)
    }

    /// The answer is not wanted any more: what hears of it may stop.
    pub fn abort(mut self) {
        if !self.decoder.has_ended() && self.out.is_empty() {
            fastcgi::abort(&mut self.out);
            let _ = self.flush();
        }
    }
}

/// Connects to an application. May wait, for no longer than this.
pub fn connect(peer: &Peer, time: Duration) -> io::Result<OwnedFd> {
    match peer {
        Peer::Tcp(address) => {
            let socket = TcpStream::connect_timeout(address, time)?;
            socket.set_nodelay(true)?;
            socket.set_nonblocking(true)?;
            Ok(socket.into())
        }
        Peer::Unix(path) => {
            let flags = SocketFlags::CLOEXEC;
            let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            // Where its queue is full, `connect` waits for as long as sending may.
            sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(time))?;
            rustix::io::retry_on_intr(|| {
                rustix::net::connect(&socket, &SocketAddrUnix::new(path.as_path())?)
            })?;
            rustix::io::ioctl_fionbio(&socket, true)?;
            Ok(socket)
        }
    }
}

/// Returns true if the peer of an idle connection has neither closed it nor sent anything.
pub fn is_quiet(socket: &OwnedFd) -> bool {
    let mut byte = [0; 1];
    let peeked = rustix::net::recv(socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
    matches!(peeked, Err(rustix::io::Errno::AGAIN))
}
