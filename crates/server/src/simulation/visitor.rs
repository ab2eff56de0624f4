//! A simulated client of HTTP: it asks for files, replaces and removes them, one request after the other or pipelined,
//! and cuts the line at any point.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use millrace_http::h1::client::{PreparedRequest, ResponseError, ResponseEvent};
use millrace_http::h1::{ClientConnection, Version};
use millrace_net::stream;

use super::client::{Manners, Surroundings};
use super::draw::Draw;
use super::files::SimulatedFiles;
use super::sockets::control_connection;
use super::violation::Violation;

/// How responses begin that may come before a request has: it took too long, or there is no place.
const FAREWELLS: [&[u8]; 2] = [b"HTTP/1.1 408", b"HTTP/1.1 503"];

/// A request that was made.
#[derive(Debug)]
struct Asked {
    method: &'static str,
    path: &'static str,
    /// What is uploaded.
    content: Vec<u8>,
}

/// One client, which may connect again when it has left.
pub(super) struct Visitor {
    pub(super) name: usize,
    pub(super) address: SocketAddr,
    pub(super) user: &'static str,
    pub(super) files: SimulatedFiles,
    manners: Manners,
    pub(super) socket: Option<OwnedFd>,
    /// How many more times it connects.
    pub(super) visits: usize,
    out: Vec<u8>,
    connection: ClientConnection,
    asked: VecDeque<Asked>,
    /// The status and the body of the response that comes.
    status: u16,
    body: Vec<u8>,
    uploads: usize,
    /// Uploads that were begun: the path, the head that no other has, and the whole content.
    pub(super) begun: Vec<(&'static str, Vec<u8>)>,
    /// How many uploads it knows to be whole.
    pub(super) acknowledged: Vec<&'static str>,
}

impl Visitor {
    pub(super) fn new(
        name: usize,
        address: SocketAddr,
        (user, files): (&'static str, SimulatedFiles),
        manners: Manners,
    ) -> Self {
        Self {
            name,
            address,
            user,
            files,
            manners,
            socket: None,
            visits: 2,
            out: Vec::new(),
            connection: ClientConnection::default(),
            asked: VecDeque::new(),
            status: 0,
            body: Vec::new(),
            uploads: 0,
            begun: Vec::new(),
            acknowledged: Vec::new(),
        }
    }

    /// Connects; returns the server's end.
    pub(super) fn connect(&mut self) -> OwnedFd {
        let (client, server) = control_connection().expect("descriptors are left");
        self.socket = Some(client);
        self.visits = self.visits.saturating_sub(1);
        (self.out, self.connection, self.asked, self.body) = Default::default();
        server
    }

    /// Does something, as is drawn. Returns what, for the trace.
    pub(super) fn act(&mut self, around: &Surroundings) -> Result<String, Violation> {
        let draw = &around.draw;
        let may_leave = around.ends_politely && self.asked.is_empty();
        if may_leave || draw.chance(self.manners.cuts) && !around.ends_politely {
            self.socket = None;
            return Ok("leaves".to_owned());
        }
        let dawdles = draw.chance(self.manners.dawdles);
        match draw.below(8) {
            0..=2 if !self.out.is_empty() => {
                Ok(self.send(if dawdles { draw.between(1, 50) } else { draw.between(50, 40_000) }))
            }
            0..=4 => self.hear(if dawdles { 50 } else { 64 * 1024 }, around),
            _ => Ok(self.ask(draw, around.ends_politely)),
        }
    }

    fn ask(&mut self, draw: &Draw, ends: bool) -> String {
        let waits = !self.asked.is_empty() && !draw.chance(self.manners.pipelines);
        if ends || waits || self.asked.len() >= 4 || !self.connection.is_usable() {
            return "waits".to_owned();
        }
        let method = draw.one_of(&["GET", "GET", "HEAD", "PUT", "PUT", "DELETE"]);
        let path = match method {
            "GET" | "HEAD" => draw.one_of(&["/small", "/large", "/up0", "/missing"]),
            _ => draw.one_of(&["/up0", "/up1"]),
        };
        let content = if method == "PUT" { self.upload(draw, path) } else { Vec::new() };
        let (length, host) = (content.len().to_string(), ("Host", "files.example"));
        let password = match (draw.chance(95), self.user) {
            (false, _) => "Basic YW5uOndyb25n",
            (true, "ann") => "Basic YW5uOnNlY3JldA==",
            (true, _) => "Basic Ym9iOnNlY3JldA==",
        };
        let fields = [host, ("Authorization", password), ("Content-Length", length.as_str())];
        let fields = if method == "PUT" { &fields[..] } else { &fields[..2] };
        let request = PreparedRequest::new(method, path, Version::Http11, fields);
        self.out.extend_from_slice(self.connection.send(&request));
        self.out.extend_from_slice(&content);
        self.asked.push_back(Asked { method, path, content });
        format!("asks for {method} {path}")
    }

    fn upload(&mut self, draw: &Draw, path: &'static str) -> Vec<u8> {
        self.uploads += 1;
        let head = format!("{}, upload {} of visitor {};", self.user, self.uploads, self.name);
        let length = draw.one_of(&[100, 3000, 20_000, 70_000]);
        let content: Vec<u8> = head.bytes().cycle().take(length).collect();
        self.begun.push((path, content.clone()));
        content
    }

    fn send(&mut self, most: usize) -> String {
        let Some(socket) = &self.socket else { return "is not there".to_owned() };
        let count = self.out.len().min(most);
        match stream::write(socket, &self.out[..count]) {
            Ok(count) => {
                self.out.drain(..count);
                format!("sends {count} bytes")
            }
            Err(error) => format!("cannot send: {}", error.kind()),
        }
    }

    fn hear(&mut self, most: usize, around: &Surroundings) -> Result<String, Violation> {
        let Some(socket) = &self.socket else { return Ok("is not there".to_owned()) };
        let mut buffer = vec![0; most];
        match stream::read(socket, &mut buffer) {
            Ok(0) => {
                self.socket = None;
                // A response that is cut is known to be: what came of it is no file.
                if let Ok(Some(ResponseEvent::End { .. })) = self.connection.close() {
                    self.judge(around)?;
                }
                Ok("sees the end".to_owned())
            }
            Ok(count) => self.take(&buffer[..count], around),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok("hears nothing".to_owned()),
            Err(error) => {
                self.socket = None;
                Ok(format!("is cut off: {}", error.kind()))
            }
        }
    }

    fn take(&mut self, bytes: &[u8], around: &Surroundings) -> Result<String, Violation> {
        let is_farewell = FAREWELLS.iter().any(|head| bytes.starts_with(head));
        if self.connection.is_idle() || is_farewell && !self.out.is_empty() {
            return self.take_farewell(bytes);
        }
        let mut rest = bytes;
        let mut heard = String::new();
        loop {
            let received = self.connection.receive(rest);
            let received = match received {
                Ok(received) => received,
                // These have bodies, because they are for requests that were not read: they may be of any method.
                Err(ResponseError::Unsolicited) if matches!(self.status, 408 | 503) => {
                    self.socket = None;
                    return Ok(format!("hears {} to no request", self.status));
                }
                Err(error) => return Err(Violation(format!("visitor {}: {error}", self.name))),
            };
            let (input, taken) = (rest, received.taken);
            let mut has_ended = false;
            match received.event {
                None => return Ok(format!("hears {} bytes{heard}", bytes.len())),
                Some(ResponseEvent::Interim(_)) => {}
                Some(ResponseEvent::Head(head)) => {
                    self.status = head.status.0;
                    heard += &format!(" {}", self.status);
                }
                Some(ResponseEvent::Body(range)) => self.body.extend_from_slice(&input[range]),
                Some(ResponseEvent::End { .. }) => has_ended = true,
            }
            rest = &rest[taken..];
            if has_ended {
                self.judge(around)?;
            }
        }
    }

    /// Without a request the server may only say why it closes.
    fn take_farewell(&mut self, bytes: &[u8]) -> Result<String, Violation> {
        self.socket = None;
        match FAREWELLS.iter().any(|head| bytes.starts_with(head)) {
            true => Ok("hears a farewell".to_owned()),
            false => {
                let text = String::from_utf8_lossy(bytes);
                Err(Violation(format!("visitor {}: a response to nothing: {text:.40}", self.name)))
            }
        }
    }

    /// Holds a whole response against what was asked.
    fn judge(&mut self, around: &Surroundings) -> Result<(), Violation> {
        let (status, body) = (self.status, std::mem::take(&mut self.body));
        let Some(Asked { method, path, content }) = self.asked.pop_front() else {
            return Err(Violation(format!("visitor {}: a response to nothing", self.name)));
        };
        let broken =
            |why: &str| Err(Violation(format!("visitor {}: {method} {path}: {status}, {why}", self.name)));
        match (method, status) {
            ("GET", 200) if !self.files.journal.has(path, &body) => broken("and it never was that"),
            ("PUT", 201 | 204) if !self.files.journal.has(path, &content) => {
                broken("and it never became that")
            }
            ("PUT", 201 | 204) => {
                self.acknowledged.push(path);
                Ok(())
            }
            ("PUT", _) if around.refusals_undo && self.files.journal.has(path, &content) => {
                broken("and yet it became that")
            }
            ("HEAD", 200) | ("DELETE", 204) | (_, 200) | (_, 400..=599) => Ok(()),
            _ => broken("which it cannot be"),
        }
    }
}
