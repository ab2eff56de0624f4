//! The logs: events as text or JSON on standard error, and transfers in wu-ftpd's xferlog format.
//!
//! A worker collects the lines of one turn of its reactor and hands them to a thread ([`writer`]) that writes them, so
//! that a log costs little at thousands of transfers a second, and a stuck log blocks no worker.
//!
//! Every event is counted on its way, whether or not it is written, so that metrics and logs agree.

mod access;
mod actor;
pub mod audit;
pub mod binary;
mod counting;
mod event;
mod journal;
mod line;
mod live;
mod outlet;
mod position;
mod recent;
mod rotation;
mod span;
mod spans;
mod syslog;
mod trace;
mod undecided;
mod within;
mod writer;
mod xferlog;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use millrace_metrics::{Metric, Protocol, Registry, Shard};
use millrace_vfs::Timestamp;

pub use self::access::{AccessFormat, Request};
pub use self::actor::{Actor, Administrator};
use self::audit::{AuditLog, AuditSettings};
use self::event::NO_SESSION;
pub use self::event::{Direction, Event, IssuedLink, Measured, Proved, Subject, Transferred};
use self::line::{write_json, write_text};
pub use self::live::Live;
use self::live::Watched;
use self::outlet::{Events, FileKind, LogFile, events, log_file};
pub use self::position::{Position, Sha256};
use self::recent::Recent;
pub use self::rotation::Rotation;
pub use self::span::{Operation, Span};
pub use self::spans::Spans;
use self::spans::SpansOfTurn;
use self::syslog::Syslog;
pub use self::syslog::{SyslogError, SyslogSettings};
pub use self::trace::{TraceFilter, TraceLine, Traced};
pub use self::undecided::Undecided;
pub use self::within::{RequestTrace, Tried, Within};
use self::writer::Writer;

/// How events are written to standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Not at all.
    Off,
    /// Only what an operator should look at, as text.
    Warnings,
    /// The same as JSON.
    JsonWarnings,
    /// A line of text each.
    Text,
    /// A line of JSON each.
    Json,
}

impl LogFormat {
    /// Returns whether an event is written to standard error.
    fn keeps(self, event: &Event<'_>) -> bool {
        match self {
            Self::Off => false,
            Self::Warnings | Self::JsonWarnings => match event {
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
            Self::Text | Self::Json => true,
        }
    }
}

/// What a log writes, and where.
#[derive(Debug, Clone, Copy)]
pub struct LogSettings<'a> {
    /// Events, to standard error.
    pub format: LogFormat,
    /// Whether they go to systemd's journal instead. Their format has to be JSON.
    pub journal: bool,
    /// The file of transfers.
    pub xferlog: Option<&'a Path>,
    /// Whether its lines end with the start and the end of the transfer.
    pub transfers_have_times: bool,
    /// The file of requests.
    pub access: Option<&'a Path>,
    /// How its lines are written, where they are not JSON.
    pub access_format: AccessFormat,
    /// Bytes of that file, where it is a binary log.
    pub access_size: u64,
    /// Files of transfers of virtual hosts, which go there alone.
    pub hosts: &'a [Arc<Path>],
    /// When all of these files are moved away.
    pub rotation: Rotation,
    /// Who changed what.
    pub audit: Option<&'a AuditSettings>,
    /// Where records of the audit log are sent, and events where it says so.
    pub syslog: Option<&'a SyslogSettings>,
}

/// What messages call the file of requests.
const ACCESS: &str = "the access log";

/// Where events go: one for the server, shared.
#[derive(Debug, Clone)]
pub struct Log {
    format: LogFormat,
    /// `None` where nothing is logged.
    events: Option<Arc<Writer>>,
    xferlog: Option<LogFile>,
    /// The same of virtual hosts.
    hosts: Arc<[LogFile]>,
    /// Whether its lines end with the times of the transfer.
    transfers_have_times: bool,
    /// Where requests of HTTP go; with the events where there is no such file.
    access: Option<LogFile>,
    access_format: AccessFormat,
    audit: Option<AuditLog>,
    syslog: Option<Arc<Syslog>>,
    metrics: Arc<Registry>,
    watched: Arc<Watched>,
    recent: Arc<Recent>,
    traced: Arc<Traced>,
    spans: Arc<Spans>,
}

/// The lines of one turn.
#[derive(Debug, Default)]
pub struct Lines {
    /// Where its worker counts. Without one, events are counted in the shard that threads share.
    shard: Option<Arc<Shard>>,
    events: String,
    transfers: Vec<u8>,
    requests: Vec<u8>,
    records: String,
    live: String,
    spans: SpansOfTurn,
    clock: access::Clock,
}

impl Log {
    /// Opens what has to be opened.
    pub fn open(settings: &LogSettings<'_>) -> Result<Self, (PathBuf, io::Error)> {
        let format = settings.format;
        let events = match format {
            LogFormat::Off => None,
            _ => Some(events(format, settings.journal).map_err(|(path, error)| (path.to_owned(), error))?),
        };
        let told = events.as_ref().map(|writer| Events::of(writer, format));
        let is_json = matches!(format, LogFormat::Json | LogFormat::JsonWarnings);
        let access_head = if is_json { "" } else { settings.access_format.head() };
        let open = |path: Option<&Path>, of: &'static str| {
            let kind = match of == ACCESS && settings.access_format == AccessFormat::Binary {
                true => FileKind::Ring { bytes: settings.access_size },
                false => {
                    let head = if of == ACCESS { access_head } else { "" };
                    FileKind::Lines { head, rotation: settings.rotation }
                }
            };
            let opened = path.map(|path| {
                log_file((path, kind), of, told.clone()).map_err(|error| (path.to_owned(), error))
            });
            opened.transpose()
        };
        let xferlog = open(settings.xferlog, "the transfer log")?;
        // A file that is several hosts' is opened once. That of the top level tells of hosts that name it, too.
        let named = settings.hosts.iter().filter(|path| Some(&***path) != settings.xferlog);
        let named: BTreeSet<&Path> = named.map(|path| &**path).collect();
        let hosts: Result<Vec<_>, _> = named
            .into_iter()
            .filter_map(|path| open(Some(path), "the transfer log of a host").transpose())
            .collect();
        let hosts = hosts?.into();
        let access = open(settings.access, ACCESS)?;
        let syslog = settings.syslog.map(|syslog| Syslog::start(syslog, told.clone()).map(Arc::new));
        let syslog = syslog.transpose().map_err(|error| (PathBuf::from("syslog"), error))?;
        let audit = settings.audit.map(|audit| {
            AuditLog::open(audit, told.clone(), syslog.clone()).map_err(|error| (audit.path.clone(), error))
        });
        let (audit, transfers_have_times) = (audit.transpose()?, settings.transfers_have_times);
        let (metrics, watched, recent, traced, spans) = Default::default();
        Ok(Self {
            format,
            events,
            xferlog,
            hosts,
            transfers_have_times,
            access,
            access_format: settings.access_format,
            audit,
            syslog,
            metrics,
            watched,
            recent,
            traced,
            spans,
        })
    }

    /// Returns the lines of a worker, whose events are counted in this shard.
    pub fn lines(shard: Arc<Shard>) -> Lines {
        Lines { shard: Some(shard), ..Lines::default() }
    }

    /// Returns the metrics that events are counted in.
    pub fn metrics(&self) -> &Registry {
        &self.metrics
    }

    /// Returns how many lines each log has lost so far, as its disk was full or its reader too slow.
    pub fn lost_lines(&self) -> [(&'static str, u64); 5] {
        let of_file = |file: &LogFile| file.writer.lost();
        [
            ("events", self.events.as_ref().map_or(0, |writer| writer.lost())),
            ("transfers", self.xferlog.iter().chain(&*self.hosts).map(of_file).sum()),
            ("access", self.access.as_ref().map_or(0, of_file)),
            ("audit", self.audit.as_ref().map_or(0, AuditLog::lost)),
            ("syslog", self.syslog.as_ref().map_or(0, |syslog| syslog.lost())),
        ]
    }

    fn shard<'a>(&'a self, lines: &'a Lines) -> &'a Shard {
        lines.shard.as_ref().unwrap_or(self.metrics.shared())
    }

    /// Waits, for a moment, until what was recorded is written.
    pub fn close(&self) {
        self.files().for_each(|file| file.writer.close());
        // In this order: what a log loses is told by the next.
        self.audit.iter().for_each(AuditLog::close);
        self.syslog.iter().for_each(|syslog| syslog.close());
        self.events.iter().for_each(|events| events.close());
    }

    /// Reopens the files, whose names may have been moved (logrotate). A file that cannot be opened is kept, with a
    /// warning in the log.
    pub fn reopen(&self) {
        for file in self.files() {
            if let Err(error) = file.reopen() {
                self.warn(&format!("cannot open {} anew: {error}", file.path.display()));
            }
        }
    }

    /// The files that may be moved away, but for the audit log.
    fn files(&self) -> impl Iterator<Item = &LogFile> {
        self.xferlog.iter().chain(&self.access).chain(&*self.hosts)
    }

    /// Adds a line to the transfer log, or writes it to that of the host.
    fn write_transfer(
        &self,
        lines: &mut Lines,
        now: Timestamp,
        subject: &Subject<'_>,
        transfer: &Transferred<'_>,
        service: &str,
    ) {
        let style = (service, self.transfers_have_times);
        let own = transfer.log.and_then(|path| self.hosts.iter().find(|file| &*file.path == path));
        match (own, &self.xferlog) {
            (Some(own), _) => {
                let mut line = Vec::new();
                xferlog::write(now, subject, transfer, style, &mut line);
                own.writer.push(&line);
            }
            (None, Some(_)) => xferlog::write(now, subject, transfer, style, &mut lines.transfers),
            (None, None) => {}
        }
    }

    /// Returns whether requests, and transfers of FTP, go to a binary log.
    fn is_binary(&self) -> bool {
        self.access_format == AccessFormat::Binary && self.access.is_some()
    }

    /// Returns true if each line is a JSON object.
    pub fn is_json(&self) -> bool {
        matches!(self.format, LogFormat::Json | LogFormat::JsonWarnings)
    }

    /// Adds a request to the lines of this turn: as JSON where that is the format of the log, else in that of the file.
    pub fn request(&self, lines: &mut Lines, now: Timestamp, subject: &Subject<'_>, request: &Request<'_>) {
        counting::count_request(self.shard(lines), request);
        if self.spans.is_on() {
            self.spans.note_request(&mut lines.spans, now, subject, request);
        }
        self.show(lines, now, subject, &Event::Requested(request));
        match (self.format, &self.access) {
            _ if self.is_binary() => binary::write_request(now, subject, request, &mut lines.requests),
            (LogFormat::Off | LogFormat::Warnings | LogFormat::JsonWarnings, None) => {}
            (LogFormat::Json | LogFormat::JsonWarnings, _) => {
                let mut line = String::new();
                write_json(&mut line, now, subject, &Event::Requested(request));
                lines.requests.extend_from_slice(line.as_bytes());
            }
            (_, Some(_)) if self.access_format == AccessFormat::W3c => {
                access::write_w3c(now, subject, request, &mut lines.requests);
            }
            _ => access::write_combined(&mut lines.clock, now, subject, request, &mut lines.requests),
        }
    }

    /// Returns true if transfers are logged by themselves.
    pub fn has_transfers(&self) -> bool {
        self.xferlog.is_some()
            || !self.hosts.is_empty()
            || self.audit.as_ref().is_some_and(|audit| audit.files)
    }

    /// Returns the file of the audit log, and its last record.
    pub fn audit_position(&self) -> Option<io::Result<(PathBuf, Position)>> {
        self.audit.as_ref().map(AuditLog::position)
    }

    /// Adds a transfer to the transfer log, and to the audit log where it records files.
    pub fn transfer(
        &self,
        lines: &mut Lines,
        now: Timestamp,
        subject: &Subject<'_>,
        transfer: &Transferred<'_>,
    ) {
        self.count_http_transfer(lines, &transfer.measured());
        self.write_transfer(lines, now, subject, transfer, "http");
        self.audit(lines, now, subject, &Event::Transferred(transfer));
    }

    /// Counts a transfer by HTTP that is not logged by itself. Its request is told next.
    pub fn count_http_transfer(&self, lines: &mut Lines, transfer: &Measured) {
        counting::count_transfer(self.shard(lines), Protocol::Http, transfer);
        if self.spans.is_on() {
            lines.spans.note_transfer(transfer);
        }
    }

    /// Adds an event to the audit log alone, where that records it.
    pub fn audit(&self, lines: &mut Lines, now: Timestamp, subject: &Subject<'_>, event: &Event<'_>) {
        if self.audit.as_ref().is_some_and(|audit| audit.wants(event)) {
            write_json(&mut lines.records, now, subject, event);
        }
    }

    /// Adds an event to the lines of this turn.
    pub fn record(&self, lines: &mut Lines, now: Timestamp, subject: &Subject<'_>, event: Event<'_>) {
        counting::count(self.shard(lines), &event);
        if self.spans.is_on() {
            self.spans.note(&mut lines.spans, now, subject, &event);
        }
        if let Event::Transferred(transfer) = event {
            self.write_transfer(lines, now, subject, transfer, "ftp");
            if self.is_binary() {
                binary::write_transfer(now, subject, transfer, &mut lines.requests);
            }
        }
        self.audit(lines, now, subject, &event);
        self.show(lines, now, subject, &event);
        if self.format.keeps(&event) {
            match self.format {
                LogFormat::Json | LogFormat::JsonWarnings => {
                    write_json(&mut lines.events, now, subject, &event)
                }
                _ => write_text(&mut lines.events, now, subject, &event),
            }
        }
    }

    /// Gives the lines from now on, each a JSON object, to a reader, and before them the last `lines` that were written, as
    /// far as they are kept. `wake` is called, on any thread, when there are some; it must not wait.
    pub fn watch(&self, lines: usize, wake: Box<dyn Fn() + Send + Sync>) -> Live {
        self.recent.watch(lines, &self.watched, wake)
    }

    /// Returns the spans of what has ended.
    pub fn spans(&self) -> &Arc<Spans> {
        &self.spans
    }

    /// Returns who follows commands and replies.
    pub fn traces(&self) -> &Traced {
        &self.traced
    }

    fn show(&self, lines: &mut Lines, now: Timestamp, subject: &Subject<'_>, event: &Event<'_>) {
        if self.watched.is_on() {
            write_json(&mut lines.live, now, subject, event);
        }
    }

    /// Writes a warning that no session has to do with, from any thread.
    pub fn warn(&self, text: &str) {
        self.note(Event::Warning { text });
    }

    /// Writes something that no session has to do with, from any thread.
    pub fn note(&self, event: Event<'_>) {
        self.note_of(&NO_SESSION, event);
    }

    /// Writes something about a client that no worker serves, from any thread.
    pub fn note_of(&self, subject: &Subject<'_>, event: Event<'_>) {
        let mut lines = Lines::default();
        self.record(&mut lines, wall(), subject, event);
        self.flush(&mut lines);
    }

    /// Hands over the lines of a turn.
    pub fn flush(&self, lines: &mut Lines) {
        if !lines.spans.is_empty() {
            let dropped = self.spans.push(&mut lines.spans);
            self.shard(lines).add(Metric::SpansDropped, &[], dropped);
        }
        let requests = if self.is_binary() { &[][..] } else { &lines.requests[..] };
        if !lines.live.is_empty() || !lines.events.is_empty() || !requests.is_empty() {
            self.recent.push([lines.events.as_bytes(), requests], &lines.live, &self.watched);
            lines.live.clear();
            lines.live.shrink_to(64 * 1024);
        }
        if !lines.events.is_empty() {
            if let Some(events) = &self.events {
                events.push(lines.events.as_bytes());
            }
            if let Some(syslog) = self.syslog.as_ref().filter(|syslog| syslog.events) {
                syslog.push_events(lines.events.as_bytes());
            }
            lines.events.clear();
            lines.events.shrink_to(64 * 1024);
        }
        if !lines.records.is_empty() {
            if let Some(audit) = &self.audit {
                audit.push(lines.records.as_bytes());
            }
            lines.records.clear();
            lines.records.shrink_to(64 * 1024);
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

fn wall() -> Timestamp {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: wall.as_secs() as i64, nanoseconds: wall.subsec_nanos() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millrace_metrics::Waited;
    use millrace_vfs::VirtualPath;

    use super::*;

    fn recorded(format: LogFormat, event: Event<'_>) -> String {
        let log = Log {
            format,
            events: None,
            xferlog: None,
            hosts: Arc::new([]),
            transfers_have_times: false,
            access: None,
            access_format: AccessFormat::default(),
            audit: None,
            syslog: None,
            metrics: Arc::default(),
            watched: Arc::default(),
            recent: Arc::default(),
            traced: Arc::default(),
            spans: Arc::default(),
        };
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
            first_byte: None,
            lag: Duration::ZERO,
            waited: Waited::default(),
            failure: None,
            hash: None,
            ascii: false,
            conversion: millrace_vfs::Conversion::default(),
            guest: None,
            log: None,
        };
        assert_eq!(
            recorded(LogFormat::Text, Event::Transferred(&transfer)),
            "2001-09-09T01:46:40.005Z #7 127.0.0.1:1025 al\\\"ice\\u000a download path=\"/a\\u000ab\\\"c\\\\n\\\\xe4\" bytes=3 seconds=1.500000\n"
        );
        assert_eq!(
            recorded(LogFormat::Json, Event::Transferred(&transfer)),
            "{\"time\":\"2001-09-09T01:46:40.005Z\",\"event\":\"download\",\"session\":7,\"peer\":\"127.0.0.1:1025\",\
             \"user\":\"al\\\"ice\\u000a\",\"path\":\"/a\\u000ab\\\"c\\\\n\\\\xe4\",\"bytes\":3,\"seconds\":1.500000,\"started-us\":999999998505000,\"ended-us\":1000000000005000}\n"
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
