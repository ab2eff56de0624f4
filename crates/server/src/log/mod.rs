//! What happened, for people and programs: events as text or JSON on standard error, and transfers in
//! wu-ftpd's xferlog format.
//!
//! A worker collects the lines of one turn of its reactor and hands them to a thread ([`writer`]) that writes
//! them, so that a log costs little at thousands of transfers a second, and nobody waits for one that is stuck. What a
//! client named is escaped: one event is one line, whatever a file is called.

mod access;
mod writer;
mod xferlog;

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use millrace_ftp::time;
use millrace_vfs::{Timestamp, VirtualPath};

pub(crate) use access::Request;

use self::writer::{Gap, Writer};
use crate::config::LogFormat;
use crate::limits::{Reached, Setting};

/// Something worth knowing.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event<'a> {
    /// A control connection was accepted; by way of a proxy, where there was one.
    Connected { proxy: Option<SocketAddr> },
    /// A connection was refused, with the reason that the client was told, and the limit if it was one.
    Refused { reason: &'a str, reached: Option<&'a Reached> },
    /// A limit turned somebody away, or something that was asked for; and what else is known of that.
    Limited { reached: &'a Reached, reason: Option<&'a str> },
    /// Too many failed logins: a user at this address, or the address altogether.
    Banned { user: Option<&'a [u8]> },
    /// An administrator ended the session.
    Kicked,
    /// An administrator has told the server something, which may have failed.
    Administered { what: &'a str, failed: Option<&'a str> },
    /// A login succeeded.
    LoggedIn,
    /// A login failed.
    LoginFailed { user: &'a [u8] },
    /// A login was not let in for another reason than a wrong name or password.
    LoginRefused { user: &'a [u8], reason: &'a str },
    /// A session is ended because its account may not be used any more.
    Expelled { reason: &'a str },
    /// A transfer ended.
    Transferred(&'a Transferred<'a>),
    /// Something was changed: the verb, the path, and what it was called before.
    Changed { verb: &'a str, path: &'a VirtualPath, from: Option<&'a VirtualPath> },
    /// A command was not done: what was said, without passwords, and the reply.
    Declined { command: &'a [u8], code: u16, text: &'a [u8] },
    /// A data connection from somebody else was closed.
    Stranger { peer: SocketAddr },
    /// A connection from where proxies connect was closed: it did not say for whom it is.
    ProxyRefused { from: SocketAddr, reason: &'a str },
    /// A hook said no.
    HookRefused { on: &'a str, path: Option<&'a VirtualPath>, reason: &'a str },
    /// The session ended.
    Disconnected { reason: &'a str },
    /// TLS has begun on the control connection.
    Secured { version: &'a str, cipher: &'a str, client: Option<&'a str> },
    /// TLS did not come about on a connection, or not as it has to.
    TlsFailed { on: &'a str, reason: &'a str },
    /// A data connection did not resume its control connection's TLS session, as it should; perhaps it showed another's.
    NotResumed { is_foreign: bool },
    /// A request of HTTP was answered.
    Requested(&'a Request<'a>),
    /// A program that HTTP runs wrote this line as an error.
    ProgramSaid { text: &'a str },
    /// Something that an operator should look at.
    Warning { text: &'a str },
}

/// An ended transfer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transferred<'a> {
    pub(crate) direction: Direction,
    pub(crate) path: &'a VirtualPath,
    pub(crate) bytes: u64,
    pub(crate) elapsed: Duration,
    /// `None` when every byte arrived.
    pub(crate) failure: Option<&'a str>,
    pub(crate) ascii: bool,
    /// What an anonymous user gave as an address.
    pub(crate) guest: Option<&'a [u8]>,
}

/// An upload that has come, and that the log hears of when hooks have had their word on it: until then nobody knows
/// whether it stays.
#[derive(Debug, Clone)]
pub(crate) struct Undecided {
    pub(crate) log: Log,
    pub(crate) by_http: bool,
    pub(crate) ascii: bool,
    pub(crate) guest: Option<Box<[u8]>>,
}

impl Undecided {
    /// Writes it, from any thread.
    pub(crate) fn write(
        &self,
        subject: &Subject<'_>,
        path: &VirtualPath,
        bytes: u64,
        elapsed: Duration,
        failure: Option<&str>,
    ) {
        let (direction, ascii, guest) = (Direction::Upload, self.ascii, self.guest.as_deref());
        let transferred = Transferred { direction, path, bytes, elapsed, failure, ascii, guest };
        let mut lines = Lines::default();
        match self.by_http {
            true => {
                // Nobody's name is what it is by FTP.
                let subject = Subject { user: subject.user.or(Some(b"anonymous")), ..*subject };
                self.log.transfer(&mut lines, wall(), &subject, &transferred);
            }
            false => self.log.record(&mut lines, wall(), subject, Event::Transferred(&transferred)),
        }
        self.log.flush(&mut lines);
    }
}

/// Where the bytes went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Download,
    Upload,
    Listing,
}

impl Direction {
    /// The word for it in logs and reports.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Download => "download",
            Self::Upload => "upload",
            Self::Listing => "listing",
        }
    }
}

/// Whom an event is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) session: u64,
    pub(crate) peer: SocketAddr,
    pub(crate) user: Option<&'a [u8]>,
}

impl Subject<'_> {
    /// Claims that it is no client.
    fn is_nobody(&self) -> bool {
        self.session == 0 && self.peer.ip().is_unspecified()
    }
}

/// Where events go: one for the server, shared.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    format: LogFormat,
    /// `None` where nothing is logged.
    events: Option<Arc<Writer>>,
    xferlog: Option<LogFile>,
    /// Where requests of HTTP go; with the events where there is no such file.
    access: Option<LogFile>,
}

/// A log that is a file, and may be moved away.
#[derive(Debug, Clone)]
struct LogFile {
    path: Arc<Path>,
    writer: Arc<Writer>,
}

/// The lines of one turn.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    events: String,
    transfers: Vec<u8>,
    requests: Vec<u8>,
    clock: access::Clock,
}

impl Log {
    /// Opens what has to be opened.
    pub(crate) fn open(
        format: LogFormat,
        xferlog: Option<&Path>,
        access: Option<&Path>,
    ) -> Result<Self, (PathBuf, io::Error)> {
        let events = match format {
            LogFormat::Off => None,
            _ => Some(events(format).map_err(|error| (PathBuf::from("/dev/stderr"), error))?),
        };
        let open = |path: Option<&Path>, of: &'static str| {
            let opened = path.map(|path| {
                log_file(path, format, of, events.clone()).map_err(|error| (path.to_owned(), error))
            });
            opened.transpose()
        };
        let xferlog = open(xferlog, "the transfer log")?;
        let access = open(access, "the access log")?;
        Ok(Self { format, events, xferlog, access })
    }

    /// Waits, for a moment, until what was recorded is written.
    pub(crate) fn close(&self) {
        let files = self.xferlog.iter().chain(&self.access).map(|file| &file.writer);
        files.chain(&self.events).for_each(|writer| writer.close());
    }

    /// Opens the files anew, as their names may be other files now (logrotate). One that cannot be opened goes on
    /// as it is, and the log says so.
    pub(crate) fn reopen(&self) {
        for file in self.xferlog.iter().chain(&self.access) {
            match append(&file.path) {
                Ok(opened) => file.writer.redirect(opened),
                Err(error) => self.warn(&format!("cannot open {} anew: {error}", file.path.display())),
            }
        }
    }

    /// Claims that each line is a JSON object.
    pub(crate) fn is_json(&self) -> bool {
        matches!(self.format, LogFormat::Json | LogFormat::JsonWarnings)
    }

    /// Adds a request to the lines of this turn: Combined, or JSON where that is the format of the log.
    pub(crate) fn request(
        &self,
        lines: &mut Lines,
        now: Timestamp,
        subject: &Subject<'_>,
        request: &Request<'_>,
    ) {
        match (self.format, &self.access) {
            (LogFormat::Off | LogFormat::Warnings | LogFormat::JsonWarnings, None) => {}
            (LogFormat::Json | LogFormat::JsonWarnings, _) => {
                let mut line = String::new();
                write_json(&mut line, now, subject, &Event::Requested(request));
                lines.requests.extend_from_slice(line.as_bytes());
            }
            _ => access::write_combined(&mut lines.clock, now, subject, request, &mut lines.requests),
        }
    }

    /// Claims that there is a transfer log.
    pub(crate) fn has_transfers(&self) -> bool {
        self.xferlog.is_some()
    }

    /// Adds a transfer to the transfer log alone.
    pub(crate) fn transfer(
        &self,
        lines: &mut Lines,
        now: Timestamp,
        subject: &Subject<'_>,
        transfer: &Transferred<'_>,
    ) {
        if self.xferlog.is_some() {
            xferlog::write(now, subject, transfer, "http", &mut lines.transfers);
        }
    }

    /// Adds an event to the lines of this turn.
    pub(crate) fn record(&self, lines: &mut Lines, now: Timestamp, subject: &Subject<'_>, event: Event<'_>) {
        if let (Some(_), Event::Transferred(transfer)) = (&self.xferlog, event) {
            xferlog::write(now, subject, transfer, "ftp", &mut lines.transfers);
        }
        let wanted = match self.format {
            LogFormat::Off => false,
            LogFormat::Warnings | LogFormat::JsonWarnings => match event {
                Event::Limited { reached, .. } => !reached.key.is_silence(),
                event => matches!(
                    event,
                    Event::Warning { .. }
                        | Event::Refused { .. }
                        | Event::ProxyRefused { .. }
                        | Event::LoginFailed { .. }
                        | Event::LoginRefused { .. }
                        | Event::Expelled { .. }
                        | Event::Banned { .. }
                ),
            },
            LogFormat::Text | LogFormat::Json => true,
        };
        if wanted {
            match self.format {
                LogFormat::Json | LogFormat::JsonWarnings => {
                    write_json(&mut lines.events, now, subject, &event)
                }
                _ => write_text(&mut lines.events, now, subject, &event),
            }
        }
    }

    /// Writes a warning that no session has to do with, from any thread.
    pub(crate) fn warn(&self, text: &str) {
        self.note(Event::Warning { text });
    }

    /// Writes something that no session has to do with, from any thread.
    pub(crate) fn note(&self, event: Event<'_>) {
        let mut lines = Lines::default();
        self.record(&mut lines, wall(), &NOBODY, event);
        self.flush(&mut lines);
    }

    /// Hands over the lines of a turn.
    pub(crate) fn flush(&self, lines: &mut Lines) {
        if !lines.events.is_empty() {
            if let Some(events) = &self.events {
                events.push(lines.events.as_bytes());
            }
            lines.events.clear();
            lines.events.shrink_to(64 * 1024);
        }
        if !lines.requests.is_empty() {
            let file = self.access.as_ref().map(|file| &file.writer);
            if let Some(requests) = file.or(self.events.as_ref()) {
                requests.push(&lines.requests);
            }
            lines.requests.clear();
            lines.requests.shrink_to(64 * 1024);
        }
        if !lines.transfers.is_empty() {
            if let Some(xferlog) = &self.xferlog {
                xferlog.writer.push(&lines.transfers);
            }
            lines.transfers.clear();
            lines.transfers.shrink_to(64 * 1024);
        }
    }
}

/// The thread that writes events to standard error.
fn events(format: LogFormat) -> io::Result<Arc<Writer>> {
    // A descriptor of its own: the lock of the standard library's must not be held by who is stuck.
    let stderr = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let notice = move |gap: Gap<'_>| match gap {
        Gap::Dropped(lines) => {
            warning(format, &format!("{lines} lines are missing from the log, which nobody reads"))
        }
        // There is nobody to be told.
        Gap::Failing(_) => Vec::new(),
        Gap::Lost(lines) => {
            warning(format, &format!("{lines} lines are missing from the log, which could not be written"))
        }
    };
    Writer::start(stderr, Box::new(notice)).map(Arc::new)
}

/// The thread that writes a log of another format, in which there is no line for what is missing.
fn log_file(
    path: &Path,
    format: LogFormat,
    of: &'static str,
    events: Option<Arc<Writer>>,
) -> io::Result<LogFile> {
    let file = append(path)?;
    let notice = move |gap: Gap<'_>| {
        let text = match gap {
            Gap::Dropped(lines) => {
                format!("{lines} lines are missing from {of}, whose disk does not keep up")
            }
            Gap::Failing(error) => {
                format!("{of} cannot be written: {error}; lines are missing until it can be")
            }
            Gap::Lost(lines) => format!("{lines} lines are missing from {of}, which could not be written"),
        };
        events.iter().for_each(|events| events.push(&warning(format, &text)));
        Vec::new()
    };
    Ok(LogFile { path: path.into(), writer: Arc::new(Writer::start(file, Box::new(notice))?) })
}

/// Opens a file to append to, or a named pipe: that is opened for both directions, or it would be waited for until
/// somebody reads it, and again whenever nobody does.
fn append(path: &Path) -> io::Result<File> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.file_type().is_fifo() => {
            OpenOptions::new().read(true).write(true).open(path)
        }
        _ => OpenOptions::new().create(true).append(true).open(path),
    }
}

/// Whom what is about no session is about.
const NOBODY: Subject<'static> =
    Subject { session: 0, peer: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0), user: None };

fn wall() -> Timestamp {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: wall.as_secs() as i64, nanoseconds: wall.subsec_nanos() }
}

/// A line that is about the log itself.
fn warning(format: LogFormat, text: &str) -> Vec<u8> {
    let (now, subject) = (wall(), NOBODY);
    let (event, mut line) = (Event::Warning { text }, String::new());
    match format {
        LogFormat::Off => {}
        LogFormat::Json | LogFormat::JsonWarnings => write_json(&mut line, now, &subject, &event),
        LogFormat::Text | LogFormat::Warnings => write_text(&mut line, now, &subject, &event),
    }
    line.into_bytes()
}

/// An event's name and its fields, in the order in which they are written.
fn fields(event: &Event<'_>) -> (&'static str, Vec<(&'static str, Value)>) {
    use Value::{Number, Seconds, Text};
    let bytes = |bytes: &[u8]| Text(readable(bytes));
    let path = |path: &VirtualPath| Text(readable(path.as_bytes()));
    match event {
        Event::Connected { proxy } => {
            ("connected", proxy.map(|proxy| ("proxy", Text(proxy.to_string()))).into_iter().collect())
        }
        Event::Refused { reason, reached } => {
            let mut fields = vec![("reason", Text((*reason).to_owned()))];
            fields.extend(reached.iter().flat_map(|reached| limit_fields(reached)));
            ("refused", fields)
        }
        Event::Limited { reached, reason } => {
            let mut fields = limit_fields(reached);
            fields.extend(reason.map(|reason| ("reason", Text(reason.to_owned()))));
            ("limited", fields)
        }
        Event::Banned { user } => ("banned", user.map(|user| ("tried", bytes(user))).into_iter().collect()),
        Event::Kicked => ("kicked", vec![]),
        Event::Administered { what, failed } => {
            let mut fields = vec![("what", Text((*what).to_owned()))];
            fields.extend(failed.map(|why| ("failed", Text(why.to_owned()))));
            ("administered", fields)
        }
        Event::LoggedIn => ("login", vec![]),
        Event::LoginFailed { user } => ("login-failed", vec![("tried", bytes(user))]),
        Event::Expelled { reason } => ("expelled", vec![("reason", Text((*reason).to_owned()))]),
        Event::LoginRefused { user, reason } => {
            ("login-refused", vec![("tried", bytes(user)), ("reason", Text((*reason).to_owned()))])
        }
        Event::Transferred(transfer) => {
            let name = transfer.direction.word();
            let mut fields = vec![
                ("path", path(transfer.path)),
                ("bytes", Number(transfer.bytes)),
                ("seconds", Seconds(transfer.elapsed)),
            ];
            fields.extend(transfer.failure.map(|failure| ("failed", Text(failure.to_owned()))));
            (name, fields)
        }
        Event::Changed { verb, path: of, from } => {
            let mut fields = vec![("verb", Text((*verb).to_owned())), ("path", path(of))];
            fields.extend(from.map(|from| ("from", path(from))));
            ("changed", fields)
        }
        Event::Declined { command, code, text } => {
            let reply = Text(format!("{code} {}", String::from_utf8_lossy(text)));
            ("declined", vec![("command", bytes(command)), ("reply", reply)])
        }
        Event::Stranger { peer } => ("stranger-turned-away", vec![("from", Text(peer.to_string()))]),
        Event::ProxyRefused { from, reason } => {
            ("proxy-refused", vec![("from", Text(from.to_string())), ("reason", Text((*reason).to_owned()))])
        }
        Event::HookRefused { on, path: of, reason } => {
            let mut fields = vec![("on", Text((*on).to_owned()))];
            fields.extend(of.map(|of| ("path", path(of))));
            fields.push(("reason", Text((*reason).to_owned())));
            ("hook-refused", fields)
        }
        Event::Disconnected { reason } => ("disconnected", vec![("reason", Text((*reason).to_owned()))]),
        Event::Secured { version, cipher, client } => {
            let mut fields =
                vec![("version", Text((*version).to_owned())), ("cipher", Text((*cipher).to_owned()))];
            fields.extend(client.map(|name| ("client", Text(name.to_owned()))));
            ("secured", fields)
        }
        Event::TlsFailed { on, reason } => {
            ("tls-failed", vec![("on", Text((*on).to_owned())), ("reason", Text((*reason).to_owned()))])
        }
        Event::NotResumed { is_foreign } => {
            let shown = is_foreign.then(|| ("shown", Text("another session's ticket".to_owned())));
            ("tls-session-not-resumed", shown.into_iter().collect())
        }
        Event::Requested(request) => {
            let mut fields = vec![
                ("method", Text(request.method.to_owned())),
                ("target", bytes(request.target)),
                ("protocol", Text(request.protocol.to_owned())),
                ("status", Number(request.status.into())),
                ("bytes", Number(request.bytes)),
                ("seconds", Seconds(request.elapsed)),
            ];
            fields.extend(request.host.map(|value| ("host", bytes(value))));
            fields.extend(request.referer.map(|value| ("referer", bytes(value))));
            fields.extend(request.agent.map(|value| ("agent", bytes(value))));
            ("request", fields)
        }
        Event::ProgramSaid { text } => ("program-said", vec![("text", Text((*text).to_owned()))]),
        Event::Warning { text } => ("warning", vec![("text", Text((*text).to_owned()))]),
    }
}

/// Which limit it was: the same in every event that tells of one.
fn limit_fields(reached: &Reached) -> Vec<(&'static str, Value)> {
    let mut fields = vec![("limit", Value::Text(reached.key.key().to_owned()))];
    match &reached.value {
        Setting::Number(number) => fields.push(("value", Value::Number(*number))),
        Setting::Text(text) => fields.push(("value", Value::Text(text.clone()))),
    }
    fields.extend(reached.of.clone().map(|whose| ("of", Value::Text(whose))));
    fields
}

/// A field's value.
enum Value {
    Text(String),
    Number(u64),
    Seconds(Duration),
}

fn write_text(out: &mut String, now: Timestamp, subject: &Subject<'_>, event: &Event<'_>) {
    let (name, fields) = fields(event);
    write_time(out, now);
    let _ = match subject.is_nobody() {
        true => write!(out, " - - "),
        false => write!(out, " #{} {} ", subject.session, subject.peer),
    };
    match subject.user {
        Some(user) => write_escaped(out, &readable(user)),
        None => out.push('-'),
    }
    let _ = write!(out, " {name}");
    for (key, value) in fields {
        let _ = write!(out, " {key}=");
        write_value(out, &value);
    }
    out.push('\n');
}

fn write_json(out: &mut String, now: Timestamp, subject: &Subject<'_>, event: &Event<'_>) {
    let (name, fields) = fields(event);
    out.push_str("{\"time\":\"");
    write_time(out, now);
    let _ = write!(out, "\",\"event\":\"{name}\"");
    if !subject.is_nobody() {
        let _ = write!(out, ",\"session\":{},\"peer\":\"{}\"", subject.session, subject.peer);
    }
    if let Some(user) = subject.user {
        out.push_str(",\"user\":\"");
        write_escaped(out, &readable(user));
        out.push('"');
    }
    for (key, value) in fields {
        let _ = write!(out, ",\"{key}\":");
        write_value(out, &value);
    }
    out.push_str("}\n");
}

/// A field's value, the same in both formats.
fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Text(text) => {
            out.push('"');
            write_escaped(out, text);
            out.push('"');
        }
        Value::Number(number) => _ = write!(out, "{number}"),
        Value::Seconds(duration) => _ = write!(out, "{:.6}", duration.as_secs_f64()),
    }
}

/// A name as text: bytes that are no UTF-8 as `\\xff`.
fn readable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| _ = write!(text, "\\x{byte:02x}"));
    }
    text
}

/// Text between quotes, by JSON's rules; `U+007F` as well, for terminals.
fn write_escaped(out: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            character if character.is_control() => _ = write!(out, "\\u{:04x}", character as u32),
            character => out.push(character),
        }
    }
}

/// `2026-11-21T04:20:00.123Z`
fn write_time(out: &mut String, now: Timestamp) {
    let civil = time::Civil::from_seconds(now.seconds);
    let _ = write!(
        out,
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        civil.year,
        civil.month,
        civil.day,
        civil.hour,
        civil.minute,
        civil.second,
        now.nanoseconds / 1_000_000
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(format: LogFormat, event: Event<'_>) -> String {
        let log = Log { format, events: None, xferlog: None, access: None };
        let mut lines = Lines::default();
        let subject =
            Subject { session: 7, peer: "127.0.0.1:1025".parse().unwrap(), user: Some(b"al\"ice\n") };
        let now = Timestamp { seconds: 1_000_000_000, nanoseconds: 5_000_000 };
        log.record(&mut lines, now, &subject, event);
        lines.events
    }

    /// A line end is one, and a backslash with an `n` is that.
    #[test]
    fn an_event_is_one_line_whatever_names_hold() {
        let path = VirtualPath::parse(b"/a\nb\"c\\n\xe4").unwrap();
        let transfer = Transferred {
            direction: Direction::Download,
            path: &path,
            bytes: 3,
            elapsed: Duration::from_millis(1500),
            failure: None,
            ascii: false,
            guest: None,
        };
        assert_eq!(
            recorded(LogFormat::Text, Event::Transferred(&transfer)),
            "2001-09-09T01:46:40.005Z #7 127.0.0.1:1025 al\\\"ice\\u000a download path=\"/a\\u000ab\\\"c\\\\n\\\\xe4\" bytes=3 seconds=1.500000\n"
        );
        assert_eq!(
            recorded(LogFormat::Json, Event::Transferred(&transfer)),
            "{\"time\":\"2001-09-09T01:46:40.005Z\",\"event\":\"download\",\"session\":7,\"peer\":\"127.0.0.1:1025\",\
             \"user\":\"al\\\"ice\\u000a\",\"path\":\"/a\\u000ab\\\"c\\\\n\\\\xe4\",\"bytes\":3,\"seconds\":1.500000}\n"
        );
    }

    #[test]
    fn quiet_keeps_what_an_operator_should_look_at() {
        assert_eq!(recorded(LogFormat::Warnings, Event::Connected { proxy: None }), "");
        assert!(
            recorded(LogFormat::Warnings, Event::Warning { text: "look" })
                .ends_with("warning text=\"look\"\n")
        );
    }
}
