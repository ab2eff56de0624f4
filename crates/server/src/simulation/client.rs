//! A simulated client: what it says, when it reads, and how it leaves. A polite one waits for each reply; others
//! pipeline, read slowly, abort, never connect, or cut the line at any point.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_ftp::address::parse_passive;
use millrace_ftp::client::ReplyReader;
use millrace_net::stream;

use super::accounts::PASSWORD;
use super::conversation::{Conversation, Line};
use super::draw::Draw;
use super::errand::{Errand, Kind};
use super::files::SimulatedFiles;
use super::sockets::{ActivePort, STRANGER, SimulatedPorts, control_connection};
use super::violation::Violation;

/// How long a data connection may be begun after `PASV` was said: so long the port is surely its client's.
pub(super) const LEASE: Duration = Duration::from_secs(5);

/// What a client is like, in percent of its decisions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manners {
    /// Says the next line before the last reply.
    pub(super) pipelines: usize,
    /// Cuts the line.
    pub(super) cuts: usize,
    /// Reads a few bytes only.
    pub(super) dawdles: usize,
    /// Says `ABOR`, `QUIT` or nonsense.
    pub(super) interrupts: usize,
}

/// What a client needs of the world.
#[derive(Clone)]
pub(super) struct Surroundings {
    pub(super) draw: Draw,
    pub(super) ports: Arc<SimulatedPorts>,
    pub(super) now: Instant,
    pub(super) ends_politely: bool,
    /// An upload that is refused never had its name. (Hooks may be asked when it has it.)
    pub(super) refusals_undo: bool,
    /// The server closes, and may end replies that hooks hold back.
    pub(super) may_be_cut: bool,
}

/// One client, which may connect again when it has left.
pub(super) struct SimulatedClient {
    pub(super) name: usize,
    pub(super) address: SocketAddr,
    pub(super) user: &'static str,
    pub(super) files: SimulatedFiles,
    pub(super) manners: Manners,
    /// Its end of the control connection.
    pub(super) control: Option<OwnedFd>,
    /// What is said and not yet sent.
    out: Vec<u8>,
    reader: ReplyReader,
    pub(super) conversation: Conversation,
    /// Whether the server has let it log in, by what it was told.
    pub(super) is_logged_in: bool,
    /// Its own end of the line is closed, or will be: nothing more is said.
    has_quit: bool,
    /// How many more times it connects.
    pub(super) visits: usize,
    /// The last passive port that it was given, and when it asked.
    pub(super) port: Option<u16>,
    pub(super) asked_for_port: Instant,
    /// Nothing was said or done since that gives it back.
    pub(super) port_is_untouched: bool,
    pub(super) errand: Option<Errand>,
    /// Numbers its uploads.
    uploads: usize,
    /// How many uploads it knows to be whole.
    pub(super) acknowledged: Vec<String>,
    /// Data connections that it has abandoned.
    pub(super) abandoned: Vec<OwnedFd>,
    /// Second connections to ports that it was given: nothing may ever come on one, also from a later session.
    extras: Vec<OwnedFd>,
}

impl SimulatedClient {
    pub(super) fn new(
        name: usize,
        address: SocketAddr,
        (user, files): (&'static str, SimulatedFiles),
        manners: Manners,
        now: Instant,
    ) -> Self {
        Self {
            name,
            address,
            user,
            files,
            manners,
            control: None,
            out: Vec::new(),
            reader: ReplyReader::default(),
            conversation: Conversation::default(),
            is_logged_in: false,
            has_quit: false,
            visits: 2,
            port: None,
            asked_for_port: now,
            port_is_untouched: false,
            errand: None,
            uploads: 0,
            acknowledged: Vec::new(),
            abandoned: Vec::new(),
            extras: Vec::new(),
        }
    }

    /// Connects; returns the server's end.
    pub(super) fn connect(&mut self) -> OwnedFd {
        let (client, server) = control_connection().expect("descriptors are left");
        self.control = Some(client);
        self.visits = self.visits.saturating_sub(1);
        (self.out, self.reader, self.conversation) = Default::default();
        (self.is_logged_in, self.has_quit, self.port, self.errand) = (false, false, None, None);
        self.conversation.said(Line::Greeting);
        server
    }

    /// Cuts every line.
    pub(super) fn leave(&mut self) {
        self.control = None;
        self.errand = None;
        self.abandoned.clear();
        (self.is_logged_in, self.port) = (false, None);
    }

    /// Does something, as is drawn. Returns what, for the trace.
    pub(super) fn act(&mut self, around: &Surroundings) -> Result<String, Violation> {
        let draw = &around.draw;
        if self.extras.iter().any(|extra| matches!(stream::read(extra, &mut [0; 64]), Ok(1..))) {
            return Err(Violation(format!("a second connection of client {} was sent a file", self.name)));
        }
        if draw.chance(self.manners.cuts) && !around.ends_politely {
            self.leave();
            return Ok("cuts the line".to_owned());
        }
        let dawdles = draw.chance(self.manners.dawdles);
        match draw.below(10) {
            0..=2 if !self.out.is_empty() => {
                Ok(self.send(if dawdles { draw.between(1, 20) } else { usize::MAX }))
            }
            3..=5 if self.has_data_to_move(around.now) => self.run_errand(around),
            0..=7 => self.hear(if dawdles { 5 } else { usize::MAX }, around),
            _ => self.say(around),
        }
    }

    pub(super) fn is_connected_for_data(&self) -> bool {
        self.errand.as_ref().is_some_and(Errand::is_connected)
    }

    /// Returns whether its transfer can go on.
    fn has_data_to_move(&self, now: Instant) -> bool {
        self.errand.as_ref().is_some_and(|errand| match errand.is_connected() {
            true => errand.socket().is_some(),
            false if errand.is_listening() => true,
            false => self.port.is_some() && now < self.asked_for_port + LEASE,
        })
    }

    /// Says its next line, if it says one now.
    fn say(&mut self, around: &Surroundings) -> Result<String, Violation> {
        let draw = &around.draw;
        let waits = self.conversation.owed() > 0 && !draw.chance(self.manners.pipelines);
        if self.has_quit || self.conversation.is_over || waits && !draw.chance(self.manners.interrupts / 4) {
            return Ok("waits".to_owned());
        }
        if self.conversation.owed() >= 6 {
            return Ok("has said enough".to_owned());
        }
        if around.ends_politely {
            return Ok(self.line(Line::Quit, "QUIT"));
        }
        if !self.is_logged_in && draw.chance(80) {
            return Ok(self.log_in(draw));
        }
        if draw.chance(self.manners.interrupts) {
            return Ok(self.interrupt(draw));
        }
        if self.errand.is_none() && draw.chance(75) {
            return Ok(self.begin_errand(around));
        }
        Ok(self.ask_something(draw, around.now))
    }

    fn log_in(&mut self, draw: &Draw) -> String {
        let (user, password) = (self.user, if draw.chance(95) { PASSWORD } else { "wrong" });
        self.line(Line::User, &format!("USER {user}"));
        self.line(Line::Pass, &format!("PASS {password}"))
    }

    fn interrupt(&mut self, draw: &Draw) -> String {
        match draw.below(6) {
            0 | 1 => self.line(Line::Abor, "ABOR"),
            2 => self.line(Line::Quit, "QUIT"),
            3 => self.line(Line::Junk, "FROBNICATE"),
            4 => self.line(Line::Rein, "REIN"),
            _ => {
                let long = "X".repeat(millrace_ftp::line::MAX_LINE + 10);
                self.line(Line::Junk, &long);
                "says a line that is too long".to_owned()
            }
        }
    }

    fn ask_something(&mut self, draw: &Draw, now: Instant) -> String {
        let path = draw.one_of(&["/small", "/large", "/up0", "/up1", "/missing"]);
        match draw.below(8) {
            0 | 1 => self.line(Line::Noop, "NOOP"),
            2 => self.line(Line::Pwd, "PWD"),
            3 => self.line(Line::Stat, "STAT"),
            4 => self.line(Line::Size, &format!("SIZE {path}")),
            5 if path.starts_with("/up") => self.line(Line::Delete, &format!("DELE {path}")),
            6 if path.starts_with("/up") => {
                self.line(Line::RenameFrom, &format!("RNFR {path}"));
                self.line(Line::RenameTo, &format!("RNTO {path}.old"))
            }
            6 if draw.chance(50) => self.bounce(draw),
            // A port that is not used.
            7 => {
                self.asked_for_port = now;
                self.ask_for_port()
            }
            _ => self.line(Line::Noop, "NOOP"),
        }
    }

    fn ask_for_port(&mut self) -> String {
        self.port = None;
        let said = self.line(Line::Pasv, "PASV");
        self.port_is_untouched = true;
        said
    }

    /// Names a port that the server must not connect to.
    fn bounce(&mut self, draw: &Draw) -> String {
        let (ip, port) = if draw.chance(50) { (STRANGER, 20_000) } else { (self.address.ip(), 25) };
        self.port = None;
        self.line(Line::Bounce, &port_line(SocketAddr::new(ip, port), draw))
    }

    /// Asks the server to connect to a port that it opens.
    fn open_port(&mut self, around: &Surroundings) -> Arc<ActivePort> {
        let port = around.ports.listen(self.address.ip());
        self.port = None;
        self.line(Line::Port, &port_line(port.address, &around.draw));
        port
    }

    fn begin_errand(&mut self, around: &Surroundings) -> String {
        let draw = &around.draw;
        let kind = match draw.below(5) {
            0 | 1 => Kind::Download(draw.one_of(&["/small", "/large", "/missing"])),
            2 | 3 => {
                self.uploads += 1;
                let path = draw.one_of(&["/up0", "/up1", "/small"]);
                // An odd content is known by its beginning: nothing else ever has it.
                let head = format!("{}, upload {} of client {};", self.user, self.uploads, self.name);
                let length = draw.one_of(&[0, 100, 3000, 20_000, 70_000]);
                Kind::Upload(path, head.bytes().cycle().take(length.max(head.len())).collect())
            }
            _ => Kind::Listing,
        };
        let line = kind.line();
        self.errand = Some(match draw.chance(30) {
            true => Errand::active(kind, self.open_port(around)),
            false => {
                self.asked_for_port = around.now;
                self.ask_for_port();
                Errand::new(kind)
            }
        });
        self.line(Line::Transfer, &line)
    }

    fn line(&mut self, line: Line, text: &str) -> String {
        self.has_quit |= line == Line::Quit;
        self.port_is_untouched &= line == Line::Transfer;
        self.conversation.said(line);
        self.out.extend_from_slice(text.as_bytes());
        self.out.extend_from_slice(b"\r\n");
        format!("says {}", &text[..text.len().min(40)])
    }

    /// Sends so much of what it has said.
    fn send(&mut self, most: usize) -> String {
        let Some(control) = &self.control else { return "is not there".to_owned() };
        let count = self.out.len().min(most);
        match stream::write(control, &self.out[..count]) {
            Ok(count) => {
                self.out.drain(..count);
                format!("sends {count} bytes")
            }
            Err(error) => format!("cannot send: {}", error.kind()),
        }
    }

    /// Reads so much of what was replied.
    fn hear(&mut self, most: usize, around: &Surroundings) -> Result<String, Violation> {
        let Some(control) = &self.control else { return Ok("is not there".to_owned()) };
        let mut buffer = [0; 4096];
        let most = buffer.len().min(most);
        match stream::read(control, &mut buffer[..most]) {
            Ok(0) => {
                self.end_visit(around)?;
                Ok("sees the end".to_owned())
            }
            Ok(count) => self.take(&buffer[..count], around),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok("hears nothing".to_owned()),
            Err(error) => {
                self.leave();
                Ok(format!("is cut off: {}", error.kind()))
            }
        }
    }

    /// The server has closed the connection.
    fn end_visit(&mut self, around: &Surroundings) -> Result<(), Violation> {
        let (is_over, owed) = (self.conversation.is_over, self.conversation.owed());
        self.leave();
        if !is_over && owed > 0 && !around.may_be_cut {
            return Err(Violation(format!("client {} was left with {owed} replies owed", self.name)));
        }
        Ok(())
    }

    fn take(&mut self, bytes: &[u8], around: &Surroundings) -> Result<String, Violation> {
        let mut heard = Vec::new();
        let mut input = bytes;
        let mut reader = std::mem::take(&mut self.reader);
        while let Some(reply) = reader.next(&mut input).map_err(|error| Violation(error.to_string()))? {
            heard.push(reply.code.to_string());
            self.reply(reply.code, reply.text(), around)?;
        }
        self.reader = reader;
        Ok(format!("hears {}", heard.join(" ")))
    }

    fn reply(&mut self, code: u16, text: &[u8], around: &Surroundings) -> Result<(), Violation> {
        let owed = format!("{:?}", self.conversation);
        let line = self.conversation.heard(code).map_err(|_| {
            let text = String::from_utf8_lossy(text);
            Violation(format!("client {} does not expect {code} {text:?}: {owed}", self.name))
        })?;
        match (line, code) {
            (Some(Line::Pass | Line::User), 230) => self.is_logged_in = true,
            (Some(Line::Rein | Line::User), _) => self.is_logged_in = false,
            (Some(Line::Pasv), 227) => {
                self.port = parse_passive(text).map(|address| address.port());
                // Lines behind the request may have given it back, of which only those behind the last one are known.
                self.port_is_untouched &= !self.conversation.owes(Line::Pasv);
            }
            (Some(Line::Transfer), _) => self.end_errand(code, around)?,
            _ => {}
        }
        Ok(())
    }

    /// The final reply to a transfer has come.
    fn end_errand(&mut self, code: u16, around: &Surroundings) -> Result<(), Violation> {
        let Some(mut errand) = self.errand.take() else { return Ok(()) };
        errand.ended_with(code, around)?;
        if let (Kind::Upload(path, _), 226) = (&errand.kind, code) {
            self.acknowledged.push((*path).to_owned());
        }
        errand.judge(code, &self.files, around.refusals_undo).map_err(|why| why.of(self.name))?;
        if around.draw.chance(30) && !around.ends_politely {
            self.abandoned.extend(errand.into_socket());
        }
        self.port = None;
        Ok(())
    }

    /// Goes on with its transfer.
    fn run_errand(&mut self, around: &Surroundings) -> Result<String, Violation> {
        let Some(errand) = &mut self.errand else { return Ok("has no errand".to_owned()) };
        let is_ours = around.now < self.asked_for_port + LEASE;
        match self.port {
            Some(port) if !errand.is_connected() && !errand.is_listening() && is_ours => {
                match around.draw.chance(90) {
                    true => {
                        self.port_is_untouched = false;
                        let connected = errand.connect(&around.ports, self.address, port);
                        if around.draw.chance(self.manners.dawdles / 2) {
                            self.extras.extend(around.ports.connect(self.address, port).ok());
                        }
                        Ok(connected)
                    }
                    false => Ok("does not connect".to_owned()),
                }
            }
            _ => errand.go_on(around, self.manners.dawdles).map_err(|why| why.of(self.name)),
        }
    }
}

/// The line that names a port of the client's.
fn port_line(address: SocketAddr, draw: &Draw) -> String {
    let (ip, port) = (address.ip(), address.port());
    match draw.chance(50) {
        true => format!("EPRT |1|{ip}|{port}|"),
        false => format!("PORT {},{},{}", ip.to_string().replace('.', ","), port >> 8, port & 0xff),
    }
}
