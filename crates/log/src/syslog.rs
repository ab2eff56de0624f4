//! Messages of syslog (RFC 5424) over TLS (RFC 5425): records of the audit log, and events where that is asked for.
//!
//! A thread sends them. While the collector does not answer, messages wait in a bounded queue, as for every log; what finds
//! no room is counted, and the count is told, to the collector as well. Syslog has no acknowledgements: what was on its way
//! when a connection broke may be lost uncounted, which the numbers of audit records show.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::process;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use millrace_net::tls::{Connector, KeyPair, LoadError, Trust, Versions};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use thiserror::Error;

use super::event::{Event, NO_SESSION};
use super::journal::severity;
use super::line::write_json;
use super::outlet::Events;
use super::wall;
use super::writer::{Gap, Writer};

/// The port of syslog over TLS.
const PORT: u16 = 6514;

/// How long a connection, its handshake or a write may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The pause behind the first attempt that failed; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Where messages are sent.
#[derive(Debug, Clone)]
pub struct SyslogSettings {
    host: String,
    port: u16,
    tls: Arc<ClientConfig>,
    /// Whether events of the log are sent, too.
    pub events: bool,
}

/// Why messages cannot be sent there.
#[derive(Debug, Error)]
pub enum SyslogError {
    /// It is no address of a server.
    #[error("{0:?} is not HOST or HOST:PORT")]
    Address(String),
    /// The certificates cannot be used.
    #[error("{0}")]
    Tls(#[from] LoadError),
}

impl SyslogSettings {
    /// Reads `logs.example`, `logs.example:6514` or `[::1]:6514`. The collector is trusted where its certificate is; this
    /// server shows its `own` where it has one.
    pub fn new(
        collector: &str,
        trust: Trust<'_>,
        own: Option<&KeyPair>,
        events: bool,
    ) -> Result<Self, SyslogError> {
        let wrong = || SyslogError::Address(collector.to_owned());
        let (host, port) = match collector.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.starts_with('[') => {
                (host, port.parse().map_err(|_| wrong())?)
            }
            _ => (collector, PORT),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        ServerName::try_from(host.as_str()).map_err(|_| wrong())?;
        let tls = Connector::new(trust, Versions::All, own)?.client_config();
        Ok(Self { host, port, tls, events })
    }
}

/// What a message is about, as the first byte of its line in the queue; it decides the message's priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum About {
    /// A record of the audit log: facility 13 (log audit), severity 6 (informational).
    Record = b'A',
    /// An event: facility 3 (system daemons), with the severity that it has in the journal.
    Event = b'E',
    /// What this says of itself: facility 3, severity 4 (warning).
    Warning = b'W',
}

impl About {
    /// `PRI` and `MSGID`.
    fn header(marker: u8, line: &[u8]) -> (u8, &'static str) {
        match marker {
            b'A' => (13 * 8 + 6, "audit"),
            b'W' => (3 * 8 + 4, "warning"),
            _ => (3 * 8 + severity(event_name(line)), "event"),
        }
    }
}

/// The way to the collector.
#[derive(Debug)]
pub(super) struct Syslog {
    writer: Writer,
    end: Arc<End>,
    /// Whether events are sent, too.
    pub(super) events: bool,
}

impl Syslog {
    /// Begins to send; the collector need not be there yet.
    pub(super) fn start(settings: &SyslogSettings, told: Option<Events>) -> io::Result<Self> {
        let end = Arc::new(End::default());
        let sender = Sender {
            collector: settings.clone(),
            computer: computer(),
            connection: None,
            end: Arc::clone(&end),
            told: told.clone(),
            frame: Vec::new(),
        };
        let name = settings.host.clone();
        let notice = move |gap: Gap<'_>| {
            let text = match gap {
                Gap::Dropped(lost) | Gap::Lost(lost) => {
                    format!("{lost} messages are missing from syslog at {name}, which was out of reach")
                }
                // The sender has told why.
                Gap::Failing(_) => return Vec::new(),
            };
            told.iter().for_each(|events| events.tell(&Event::Warning { text: &text }));
            let mut line = String::from(About::Warning as u8 as char);
            write_json(&mut line, wall(), &NO_SESSION, &Event::Warning { text: &text });
            line.into_bytes()
        };
        let writer = Writer::start(sender, Box::new(notice))?;
        Ok(Self { writer, end, events: settings.events })
    }

    /// Returns how many messages it has lost so far.
    pub(super) fn lost(&self) -> u64 {
        self.writer.lost()
    }

    /// Sends records of the audit log.
    pub(super) fn push_records(&self, lines: &[u8]) {
        self.push(About::Record, lines);
    }

    /// Sends events.
    pub(super) fn push_events(&self, lines: &[u8]) {
        self.push(About::Event, lines);
    }

    fn push(&self, about: About, lines: &[u8]) {
        let mut marked = Vec::with_capacity(lines.len() + 64);
        for line in lines.split_inclusive(|&byte| byte == b'\n') {
            marked.push(about as u8);
            marked.extend_from_slice(line);
        }
        self.writer.push(&marked);
    }

    /// Waits, for a moment, until all is sent. A collector that is out of reach is tried once more.
    pub(super) fn close(&self) {
        self.end.begin();
        self.writer.close();
    }
}

impl Drop for Syslog {
    fn drop(&mut self) {
        self.end.begin();
    }
}

/// Whether the server ends: then an attempt that fails is the last.
#[derive(Debug, Default)]
struct End {
    has_begun: Mutex<bool>,
    change: Condvar,
}

impl End {
    fn begin(&self) {
        *self.has_begun.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.change.notify_all();
    }

    /// Waits for so long, or for the end; returns whether it has come.
    fn wait(&self, time: Duration) -> bool {
        let has_begun = self.has_begun.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.change.wait_timeout_while(has_begun, time, |begun| !*begun);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// What the thread sends with.
struct Sender {
    collector: SyslogSettings,
    /// The name of this computer.
    computer: String,
    connection: Option<StreamOwned<ClientConnection, TcpStream>>,
    end: Arc<End>,
    told: Option<Events>,
    /// The message that is sent.
    frame: Vec<u8>,
}

impl Write for Sender {
    /// Takes the first line: a message.
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let end = lines.iter().position(|&byte| byte == b'\n').map_or(lines.len(), |at| at + 1);
        self.set_frame(&lines[..end]);
        self.send()?;
        Ok(end)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sender {
    /// Makes a frame of a line: its length, a space, and the message.
    fn set_frame(&mut self, line: &[u8]) {
        let (marker, line) = line.split_first().unwrap_or((&0, line));
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let (priority, kind) = About::header(*marker, line);
        let (time, computer, pid) = (time(line), &self.computer, process::id());
        let header = format!("<{priority}>1 {time} {computer} millrace {pid} {kind} - ");
        self.frame.clear();
        self.frame.extend_from_slice(format!("{} {header}", header.len() + line.len()).as_bytes());
        self.frame.extend_from_slice(line);
    }

    /// Sends the frame, however long that takes; an error at the end of the server only.
    fn send(&mut self) -> io::Result<()> {
        let mut pause = FIRST_PAUSE;
        let mut is_told = false;
        loop {
            let error = match self.try_to_send() {
                Ok(()) => {
                    if is_told {
                        self.tell("answers again; the messages that waited are sent");
                    }
                    return Ok(());
                }
                Err(error) => error,
            };
            self.connection = None;
            // The first failure may be a connection that the collector has closed by now.
            if pause > FIRST_PAUSE && !is_told {
                is_told = true;
                self.tell(&format!("cannot be reached: {error}; messages wait"));
            }
            if self.end.wait(pause) {
                let last = self.try_to_send();
                return last.inspect_err(|_| self.connection = None);
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn try_to_send(&mut self) -> io::Result<()> {
        if self.connection.as_mut().is_some_and(|connection| !is_open(connection)) {
            self.connection = None;
        }
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let connection = self.connection.insert(connection);
        connection.write_all(&self.frame)?;
        connection.flush()
    }

    fn connect(&self) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let SyslogSettings { host, port, tls, .. } = &self.collector;
        let mut failed = io::ErrorKind::NotFound.into();
        for address in (host.as_str(), *port).to_socket_addrs()? {
            let mut socket = match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(socket) => socket,
                Err(error) => {
                    failed = error;
                    continue;
                }
            };
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.set_write_timeout(Some(PATIENCE))?;
            socket.set_nodelay(true)?;
            let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
            let mut session = ClientConnection::new(Arc::clone(tls), name).map_err(io::Error::other)?;
            while session.is_handshaking() {
                session.complete_io(&mut socket)?;
            }
            return Ok(StreamOwned::new(session, socket));
        }
        Err(failed)
    }

    fn tell(&self, what: &str) {
        let text = format!("syslog at {}:{} {what}", self.collector.host, self.collector.port);
        self.told.iter().for_each(|events| events.tell(&Event::Warning { text: &text }));
    }
}

/// Returns whether the collector has not closed the connection. What it says is read: tickets, and nothing else.
fn is_open(connection: &mut StreamOwned<ClientConnection, TcpStream>) -> bool {
    if connection.sock.set_nonblocking(true).is_err() {
        return false;
    }
    let mut ignored = [0; 256];
    let is_open = loop {
        match connection.read(&mut ignored) {
            Ok(0) => break false,
            Ok(_) => {}
            Err(error) => break error.kind() == io::ErrorKind::WouldBlock,
        }
    };
    is_open && connection.sock.set_nonblocking(false).is_ok()
}

/// The name of the event that a line is about: behind its time in JSON, behind time, session, address and user in text.
fn event_name(line: &[u8]) -> &str {
    let line = str::from_utf8(line).unwrap_or_default();
    let name = match line.starts_with('{') {
        true => line.split('"').nth(7),
        false => line.split(' ').nth(4),
    };
    name.unwrap_or_default()
}

/// The time that a line begins with, as text or as JSON.
fn time(line: &[u8]) -> &str {
    const LENGTH: usize = "2026-11-21T04:20:00.123Z".len();
    let begin = if line.starts_with(b"{") { "{\"time\":\"".len() } else { 0 };
    let time = line.get(begin..begin + LENGTH).and_then(|time| str::from_utf8(time).ok());
    time.filter(|time| time.ends_with('Z')).unwrap_or("-")
}

/// The name of this computer, in the characters that a header may have.
fn computer() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name.trim().chars().filter(char::is_ascii_graphic).take(255).collect();
    if name.is_empty() { "-".to_owned() } else { name }
}

#[cfg(test)]
mod tests;
