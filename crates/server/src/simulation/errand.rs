//! One transfer of a simulated client, with its data connection, and what must be true of it at its end.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use millrace_net::stream;
use rustix::io::ioctl_fionread;

use super::client::Surroundings;
use super::files::SimulatedFiles;
use super::sockets::{ActivePort, SimulatedPorts};
use super::violation::Violation;

/// What is transferred.
#[derive(Debug, Clone)]
pub(super) enum Kind {
    Download(&'static str),
    Upload(&'static str, Vec<u8>),
    Listing,
}

impl Kind {
    /// The line that asks for it.
    pub(super) fn line(&self) -> String {
        match self {
            Self::Download(path) => format!("RETR {path}"),
            Self::Upload(path, _) => format!("STOR {path}"),
            Self::Listing => "LIST /".to_owned(),
        }
    }
}

/// How far the data connection is.
#[derive(Debug)]
enum Data {
    /// There is none yet.
    None,
    /// The client waits for the server at a port of its own.
    Listening(Arc<ActivePort>),
    Open(OwnedFd),
    /// An upload's end was sent; what the server does with its own end does not matter.
    Finished(OwnedFd),
    /// The end of a download was read.
    Ended,
    /// It broke, or was cut before its end.
    Broken,
}

/// A transfer that was asked for.
#[derive(Debug)]
pub(super) struct Errand {
    pub(super) kind: Kind,
    data: Data,
    /// What was sent, or received.
    pub(super) moved: Vec<u8>,
    /// Another client of its address connected late to a port that this one may have by now: the server cannot tell whose
    /// connection it is.
    pub(super) may_be_taken: bool,
}

impl Errand {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, data: Data::None, moved: Vec::new(), may_be_taken: false }
    }

    /// A transfer for which the server connects to the client.
    pub(super) fn active(kind: Kind, port: Arc<ActivePort>) -> Self {
        Self { data: Data::Listening(port), ..Self::new(kind) }
    }

    pub(super) fn is_connected(&self) -> bool {
        !matches!(self.data, Data::None | Data::Listening(_))
    }

    /// Returns whether the client waits for the server.
    pub(super) fn is_listening(&self) -> bool {
        matches!(self.data, Data::Listening(_))
    }

    /// Returns how many bytes have come and were not read.
    pub(super) fn unread(&self) -> u64 {
        match &self.data {
            Data::Listening(port) => port.unread(),
            _ => self.socket().map_or(0, |socket| ioctl_fionread(socket.as_fd()).unwrap_or(0)),
        }
    }

    pub(super) fn is_download(&self) -> bool {
        !matches!(self.kind, Kind::Upload(..))
    }

    /// The open data connection.
    pub(super) fn socket(&self) -> Option<&OwnedFd> {
        match &self.data {
            Data::Open(socket) | Data::Finished(socket) => Some(socket),
            Data::None | Data::Listening(_) | Data::Ended | Data::Broken => None,
        }
    }

    pub(super) fn into_socket(self) -> Option<OwnedFd> {
        match self.data {
            Data::Open(socket) | Data::Finished(socket) => Some(socket),
            Data::None | Data::Listening(_) | Data::Ended | Data::Broken => None,
        }
    }

    /// Takes the connection of the server, or closes the port that it was to come to.
    fn accept(&mut self, port: &ActivePort, refuses: bool) -> String {
        if refuses {
            // Of a connection that was there, the server sees an end without a byte before it.
            let is_whole = port.is_established() && matches!(self.kind, Kind::Upload(..));
            self.data = if is_whole { Data::Ended } else { Data::Broken };
            return format!("closes its port {}", port.address.port());
        }
        match port.accept() {
            Some(socket) => {
                self.data = Data::Open(socket);
                format!("accepts at its port {}", port.address.port())
            }
            None => format!("waits at its port {}", port.address.port()),
        }
    }

    pub(super) fn connect(&mut self, ports: &SimulatedPorts, from: SocketAddr, port: u16) -> String {
        match ports.connect(from, port) {
            Ok(socket) => {
                self.data = Data::Open(socket);
                format!("connects to port {port}")
            }
            Err(error) => {
                self.data = Data::Broken;
                format!("cannot connect to port {port}: {}", error.kind())
            }
        }
    }

    /// Moves some bytes, or cuts the data connection.
    pub(super) fn go_on(&mut self, around: &Surroundings, dawdles: usize) -> Result<String, Violation> {
        let draw = &around.draw;
        let most = if draw.chance(dawdles) { 50 } else { draw.between(1, 40_000) };
        if let Data::Listening(port) = &self.data {
            let port = Arc::clone(port);
            return Ok(self.accept(&port, draw.chance(5) && !around.ends_politely));
        }
        let Data::Open(socket) = &self.data else { return Ok("has no data connection".to_owned()) };
        if draw.chance(dawdles / 20) && !around.ends_politely {
            // An upload that is cut so has sent what it has sent: for the server that is its end.
            self.data = if matches!(self.kind, Kind::Upload(..)) { Data::Ended } else { Data::Broken };
            return Ok("cuts the data connection".to_owned());
        }
        match &self.kind {
            Kind::Upload(_, content) => {
                let rest = &content[self.moved.len()..];
                if rest.is_empty() {
                    return self.finish();
                }
                let sent = stream::write(socket, &rest[..rest.len().min(most)]);
                self.moved_on(sent.map(|count| rest[..count].to_vec()))
            }
            Kind::Download(_) | Kind::Listing => {
                let mut buffer = vec![0; most];
                let received = stream::read(socket, &mut buffer);
                self.moved_on(received.map(|count| buffer[..count].to_vec()))
            }
        }
    }

    fn finish(&mut self) -> Result<String, Violation> {
        if let Data::Open(socket) = std::mem::replace(&mut self.data, Data::Broken) {
            let _ = stream::end_writing(&socket);
            self.data = Data::Finished(socket);
        }
        Ok("ends its upload".to_owned())
    }

    fn moved_on(&mut self, moved: io::Result<Vec<u8>>) -> Result<String, Violation> {
        match moved {
            Ok(bytes) if bytes.is_empty() => {
                self.data = Data::Ended;
                Ok("sees the end of the data".to_owned())
            }
            Ok(bytes) => {
                self.moved.extend_from_slice(&bytes);
                Ok(format!("moves {} bytes", bytes.len()))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok("moves nothing".to_owned()),
            Err(error) => {
                self.data = Data::Broken;
                Ok(format!("loses the data connection: {}", error.kind()))
            }
        }
    }

    /// The final reply has come: of a download that went well, what is left is read.
    pub(super) fn ended_with(&mut self, code: u16, around: &Surroundings) -> Result<(), Violation> {
        let reads = code == 226 && !matches!(self.kind, Kind::Upload(..));
        if reads && let Data::Listening(port) = &self.data {
            let port = Arc::clone(port);
            self.accept(&port, false);
        }
        while reads && let Data::Open(_) = self.data {
            let before = self.moved.len();
            let calm = Surroundings { ends_politely: true, ..around.clone() };
            self.go_on(&calm, 0)?;
            if self.moved.len() == before && matches!(self.data, Data::Open(_)) {
                return Err(Violation("226, and the data has no end".to_owned()));
            }
        }
        Ok(())
    }

    /// Holds the final reply against what happened.
    pub(super) fn judge(
        &self,
        code: u16,
        files: &SimulatedFiles,
        refusals_undo: bool,
    ) -> Result<(), Violation> {
        match (&self.kind, code) {
            (_, 226) if self.may_be_taken && matches!(self.data, Data::None) => {}
            (Kind::Upload(path, _), 226) => {
                if !matches!(self.data, Data::Finished(_) | Data::Ended) {
                    return Err(Violation(format!("226 before the end of an upload to {path}")));
                }
                if !files.journal.has(path, &self.moved) {
                    return Err(Violation(format!("226, and {path} never had what was sent")));
                }
            }
            // Only what was begun can be told from other uploads.
            (Kind::Upload(path, _), _) => {
                if refusals_undo && self.moved.len() > 40 && files.journal.has(path, &self.moved) {
                    return Err(Violation(format!("{code}, and yet {path} has what was sent")));
                }
            }
            (Kind::Download(path), 226) => {
                if matches!(self.data, Data::Ended) && !files.journal.has(path, &self.moved) {
                    return Err(Violation(format!("226, and what came was never in {path}")));
                }
                if matches!(self.data, Data::None | Data::Listening(_)) {
                    return Err(Violation(format!("226, and nothing fetched {path}")));
                }
            }
            (Kind::Download(_) | Kind::Listing, _) => {}
        }
        Ok(())
    }
}
