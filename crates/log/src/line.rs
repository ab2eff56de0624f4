//! An event as a line: text for people, or a JSON object.
//!
//! Names from clients are escaped: one event is one line, whatever the name of a file. `docs/log.md` lists events and
//! fields: a test compares.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use millrace_vfs::{Civil, Timestamp, VirtualPath};

use super::access::Request;
use super::actor::{Actor, Administrator};
use super::{Event, Subject, Transferred};
use millrace_limits::{Reached, Setting};
use millrace_metrics::Waited;

pub(super) fn write_text(out: &mut String, now: Timestamp, subject: &Subject<'_>, event: &Event<'_>) {
    let Fields { name, fields } = Fields::of(event);
    write_time(out, now);
    let _ = match subject.is_no_session() {
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

pub(super) fn write_json(out: &mut String, now: Timestamp, subject: &Subject<'_>, event: &Event<'_>) {
    let Fields { name, fields } = Fields::of(event);
    out.push_str("{\"time\":\"");
    write_time(out, now);
    let _ = write!(out, "\",\"event\":\"{name}\"");
    if !subject.is_no_session() {
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
    if let Event::Transferred(transfer) = event {
        let (started, ended) = transfer.span(now);
        let _ = write!(out, ",\"started-us\":{started},\"ended-us\":{ended}");
    }
    out.push_str("}\n");
}

/// An event's name and its fields, in the order in which they are written.
struct Fields {
    name: &'static str,
    fields: Vec<(&'static str, Value)>,
}

/// A field's value.
enum Value {
    Text(String),
    Number(u64),
    Seconds(Duration),
}

impl Fields {
    fn of(event: &Event<'_>) -> Self {
        match event {
            Event::Started { version, pid, doors, replaces, sandbox } => {
                let started = Self::new("started").text("version", *version).number("pid", *pid);
                let open = doors.iter().filter(|(_, addresses)| !addresses.is_empty());
                let started =
                    open.fold(started, |fields, (door, addresses)| fields.text(door, listed(addresses)));
                let started =
                    replaces.iter().fold(started, |fields, pid| fields.number("replaces_pid", *pid));
                started.maybe("sandbox", *sandbox)
            }
            Event::Ended { reason, pid } => Self::new("ended").text("reason", *reason).number("pid", *pid),
            Event::Connected { proxy } => {
                Self::new("connected").maybe("proxy", proxy.map(|proxy| proxy.to_string()))
            }
            Event::Refused { reason, reached } => {
                let refused = Self::new("refused").text("reason", *reason);
                reached.iter().fold(refused, |fields, reached| fields.limit(reached))
            }
            Event::Limited { reached, reason } => {
                Self::new("limited").limit(reached).maybe("reason", *reason)
            }
            Event::Banned { user } => Self::new("banned").maybe("tried", user.map(readable)),
            Event::Kicked => Self::new("kicked"),
            Event::Administered { what, failed, by } => {
                let administered = Self::new("administered").text("what", *what).maybe("failed", *failed);
                by.iter().fold(administered, |fields, by| fields.administrator(by))
            }
            Event::Reloaded { changed, next_start } => {
                let list = |keys: &[&str]| (!keys.is_empty()).then(|| keys.join(", "));
                Self::new("reloaded").maybe("changed", list(changed)).maybe("next_start", list(next_start))
            }
            Event::AccountChanged { action, account, settings, by } => Self::new("account-changed")
                .text("action", *action)
                .text("account", *account)
                .maybe("settings", *settings)
                .administrator(by),
            Event::LinkIssued { link, by } => Self::new("link-issued")
                .path(link.path)
                .text("in_name_of", link.user)
                .text("permits", link.permits)
                .number("expires", link.expires)
                .text("key", link.key)
                .administrator(by),
            Event::LinkKeyRemoved { key } => Self::new("link-key-removed").text("key", *key),
            Event::AuditLog { file, position } => Self::new("audit-log")
                .text("file", file.display().to_string())
                .number("seq", position.seq)
                .text("sha256", position.sha256.to_string()),
            Event::RecordsLost { lost, reason } => {
                Self::new("records-lost").number("lost", *lost).text("reason", *reason)
            }
            Event::RecordsMissing { first, last } => {
                Self::new("records-missing").number("first", *first).number("last", *last)
            }
            Event::RecordTorn { bytes, sha256 } => {
                Self::new("record-torn").number("bytes", *bytes).text("sha256", sha256.to_string())
            }
            Event::LoggedIn { protocol, tls, by, source, .. } => Self::new("login")
                .text("protocol", protocol.to_string())
                .text("tls", tls.unwrap_or("none"))
                .text("by", by.word())
                .maybe("source", *source),
            Event::LoginFailed { user, .. } => Self::new("login-failed").bytes("tried", user),
            Event::Expelled { reason } => Self::new("expelled").text("reason", *reason),
            Event::LoginRefused { user, reason, .. } => {
                Self::new("login-refused").bytes("tried", user).text("reason", *reason)
            }
            Event::Transferred(transfer) => Self::of_transfer(transfer),
            Event::Changed { verb, path, from } => {
                let from = from.map(|from| readable(from.as_bytes()));
                Self::new("changed").text("verb", *verb).path(path).maybe("from", from)
            }
            Event::Declined { command, code, text } => {
                let reply = format!("{code} {}", String::from_utf8_lossy(text));
                Self::new("declined").bytes("command", command).text("reply", reply)
            }
            Event::Stranger { peer } => Self::new("stranger-turned-away").text("from", peer.to_string()),
            Event::ProxyRefused { from, reason } => {
                Self::new("proxy-refused").text("from", from.to_string()).text("reason", *reason)
            }
            Event::HookRefused { on, path, reason } => {
                let refused = Self::new("hook-refused").text("on", *on);
                path.iter().fold(refused, |fields, path| fields.path(path)).text("reason", *reason)
            }
            Event::Disconnected { reason, .. } => Self::new("disconnected").text("reason", *reason),
            Event::Secured { version, cipher, client } => Self::new("secured")
                .text("version", *version)
                .text("cipher", *cipher)
                .maybe("client", *client),
            Event::TlsFailed { on, reason } => {
                Self::new("tls-failed").text("on", *on).text("reason", *reason)
            }
            Event::NotResumed { is_foreign } => {
                let shown = is_foreign.then_some("another session's ticket");
                Self::new("tls-session-not-resumed").maybe("shown", shown)
            }
            Event::Requested(request) => Self::of_request(request),
            Event::ProgramSaid { text } => Self::new("program-said").text("text", *text),
            Event::Warning { text } => Self::new("warning").text("text", *text),
        }
    }

    fn of_transfer(transfer: &Transferred<'_>) -> Self {
        let told = Self::new(transfer.direction.word())
            .path(transfer.path)
            .and("bytes", Value::Number(transfer.bytes))
            .and("seconds", Value::Seconds(transfer.elapsed));
        told.waited(&transfer.waited).maybe("hash", transfer.hash).maybe("failed", transfer.failure)
    }

    fn of_request(request: &Request<'_>) -> Self {
        Self::new("request")
            .text("method", request.method)
            .bytes("target", request.target)
            .text("protocol", request.protocol)
            .and("status", Value::Number(request.status.into()))
            .and("bytes", Value::Number(request.bytes))
            .and("seconds", Value::Seconds(request.elapsed))
            .waited(&request.waited)
            .maybe("host", request.host.map(readable))
            .maybe("referer", request.referer.map(readable))
            .maybe("agent", request.agent.map(readable))
    }

    fn new(name: &'static str) -> Self {
        Self { name, fields: Vec::new() }
    }

    fn and(mut self, key: &'static str, value: Value) -> Self {
        self.fields.push((key, value));
        self
    }

    /// What it has waited for.
    fn waited(self, waited: &Waited) -> Self {
        waited.told().fold(self, |fields, (key, time)| fields.and(key, Value::Seconds(time)))
    }

    fn text(self, key: &'static str, text: impl Into<String>) -> Self {
        self.and(key, Value::Text(text.into()))
    }

    fn number(self, key: &'static str, number: impl Into<u64>) -> Self {
        self.and(key, Value::Number(number.into()))
    }

    fn bytes(self, key: &'static str, bytes: &[u8]) -> Self {
        self.text(key, readable(bytes))
    }

    fn path(self, path: &VirtualPath) -> Self {
        self.bytes("path", path.as_bytes())
    }

    fn actor(self, actor: &Actor) -> Self {
        let fields = self.number("uid", actor.uid);
        let fields = actor.login_uid.iter().fold(fields, |fields, uid| fields.number("login_uid", *uid));
        fields.maybe("from", actor.from.map(|from| from.to_string()))
    }

    fn administrator(self, by: &Administrator<'_>) -> Self {
        match by {
            Administrator::Local(actor) => self.actor(actor),
            Administrator::Remote { name, from } => self.text("admin", *name).text("from", from.to_string()),
        }
    }

    /// A field that is only there where it says something.
    fn maybe(self, key: &'static str, text: Option<impl Into<String>>) -> Self {
        match text {
            Some(text) => self.text(key, text),
            None => self,
        }
    }

    /// Which limit it was: the same in every event that tells of one.
    fn limit(self, reached: &Reached) -> Self {
        let value = match &reached.value {
            Setting::Number(number) => Value::Number(*number),
            Setting::Text(text) => Value::Text(text.clone()),
        };
        self.text("limit", reached.key.key()).and("value", value).maybe("of", reached.of.clone())
    }
}

/// Addresses, one behind the other.
fn listed(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ")
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
pub(super) fn readable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| _ = write!(text, "\\x{byte:02x}"));
    }
    text
}

/// Text between quotes, by JSON's rules; `U+007F` as well, for terminals.
pub(super) fn write_escaped(out: &mut String, text: &str) {
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
pub(super) fn write_time(out: &mut String, now: Timestamp) {
    let civil = Civil::from_seconds(now.seconds);
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
    use std::collections::BTreeMap;

    use std::net::SocketAddr;
    use std::path::Path;

    use super::*;
    use crate::audit::{Class, class};
    use crate::event::IssuedLink;
    use crate::position::{Position, Sha256};
    use crate::{Direction, LogFormat, Proved, Tried};
    use millrace_limits::{LimitKey, Protocol};
    use millrace_metrics::{Cause, Waits};

    const PAGE: &str = include_str!("../../../docs/log.md");

    /// Everything that can be told, once with all that may be known and once with nothing that may not be.
    fn all(mut tell: impl FnMut(Event<'_>)) {
        let path = VirtualPath::parse(b"/f").unwrap();
        let (peer, reason, text) = (SocketAddr::from(([192, 0, 2, 7], 21)), "why", "text");
        let reached = |whose: bool| {
            let reached = Reached::new(LimitKey::Sessions, 7);
            if whose { reached.of("alice") } else { reached }
        };
        for is_full in [true, false] {
            let some = is_full.then_some("some");
            let (reached, at) = (reached(is_full), [peer]);
            let addresses: &[SocketAddr] = if is_full { &at } else { &[] };
            let doors = ["ftp", "ftps", "http", "https"].map(|door| (door, addresses));
            let request = Request {
                method: "GET",
                target: b"/f",
                protocol: "HTTP/1.1",
                host: some.map(str::as_bytes),
                status: 200,
                bytes: 1,
                referer: some.map(str::as_bytes),
                agent: some.map(str::as_bytes),
                elapsed: Duration::ZERO,
                waited: if is_full { a_second_for_each_cause() } else { Waited::default() },
                trace: None,
            };
            let user: &[u8] = b"alice";
            let by = Actor { uid: 0, login_uid: is_full.then_some(1000), from: is_full.then_some(peer.ip()) };
            let remote = Administrator::Remote { name: "alice", from: peer.ip() };
            let link = IssuedLink { path: &path, user: "alice", permits: "get", expires: 1, key: "0123abcd" };
            let keys: &[&str] = if is_full { &["deny"] } else { &[] };
            let (file, sha256) = (Path::new("audit.jsonl"), Sha256::of(b""));
            let replaces = is_full.then_some(7);
            let tried = Tried::UNKNOWN;
            let (on, command, cipher, version) = ("upload", &b"X"[..], "cipher", "TLSv1.3");
            for event in [
                Event::Started { version, pid: 7, doors: &doors, replaces, sandbox: some },
                Event::Ended { reason, pid: 7 },
                Event::Connected { proxy: is_full.then_some(peer) },
                Event::Refused { reason, reached: is_full.then_some(&reached) },
                Event::Limited { reached: &reached, reason: some },
                Event::Banned { user: is_full.then_some(user) },
                Event::Kicked,
                Event::Administered { what: "stop", failed: some, by: is_full.then_some(remote) },
                Event::Administered {
                    what: "stop",
                    failed: some,
                    by: is_full.then_some(Administrator::Local(by)),
                },
                Event::Reloaded { changed: keys, next_start: keys },
                Event::AccountChanged {
                    action: "set",
                    account: "alice",
                    settings: some,
                    by: Administrator::Local(by),
                },
                Event::LinkIssued { link: &link, by: Administrator::Local(by) },
                Event::LinkKeyRemoved { key: "0123abcd" },
                Event::AuditLog { file, position: Position { seq: 7, sha256 } },
                Event::RecordsLost { lost: 7, reason },
                Event::RecordsMissing { first: 6, last: 7 },
                Event::RecordTorn { bytes: 7, sha256 },
                Event::LoggedIn {
                    protocol: Protocol::Http,
                    tls: some,
                    by: Proved::Password,
                    source: some,
                    tried,
                },
                Event::LoginFailed { user, tried },
                Event::LoginRefused { user, reason, tried },
                Event::Expelled { reason },
                Event::Changed { verb: "RNTO", path: &path, from: is_full.then_some(&path) },
                Event::Declined { command, code: 550, text: b"No." },
                Event::Stranger { peer },
                Event::ProxyRefused { from: peer, reason },
                Event::HookRefused { on, path: is_full.then_some(&path), reason },
                Event::Disconnected { reason, lasted: Duration::ZERO },
                Event::Secured { version, cipher, client: some },
                Event::TlsFailed { on, reason },
                Event::NotResumed { is_foreign: is_full },
                Event::Requested(&request),
                Event::ProgramSaid { text },
                Event::Warning { text },
            ] {
                tell(event);
            }
            for direction in [Direction::Download, Direction::Upload, Direction::Listing] {
                let (bytes, elapsed, ascii, guest) = (1, Duration::ZERO, false, None);
                let failure = some;
                let path = &path;
                tell(Event::Transferred(&Transferred {
                    direction,
                    path,
                    bytes,
                    elapsed,
                    first_byte: None,
                    lag: Duration::ZERO,
                    waited: if is_full { a_second_for_each_cause() } else { Waited::default() },
                    failure,
                    hash: some.filter(|_| direction == Direction::Upload),
                    ascii,
                    conversion: millrace_vfs::Conversion::default(),
                    guest,
                    log: None,
                }));
            }
        }
    }

    fn a_second_for_each_cause() -> Waited {
        let (mut waits, mut now) = (Waits::default(), std::time::Instant::now());
        for cause in Cause::ALL {
            waits.note(Some(cause), now);
            now += Duration::from_secs(1);
        }
        waits.waited(now)
    }

    /// A number for each kind. For a new kind the compiler points here, and the table above needs a row.
    fn kind(event: &Event<'_>) -> usize {
        match event {
            Event::Started { .. } => 0,
            Event::Ended { .. } => 1,
            Event::Connected { .. } => 2,
            Event::Refused { .. } => 3,
            Event::Limited { .. } => 4,
            Event::Banned { .. } => 5,
            Event::Kicked => 6,
            Event::Administered { .. } => 7,
            Event::LoggedIn { .. } => 8,
            Event::LoginFailed { .. } => 9,
            Event::LoginRefused { .. } => 10,
            Event::Expelled { .. } => 11,
            Event::Transferred(_) => 12,
            Event::Changed { .. } => 13,
            Event::Declined { .. } => 14,
            Event::Stranger { .. } => 15,
            Event::ProxyRefused { .. } => 16,
            Event::HookRefused { .. } => 17,
            Event::Disconnected { .. } => 18,
            Event::Secured { .. } => 19,
            Event::TlsFailed { .. } => 20,
            Event::NotResumed { .. } => 21,
            Event::Requested(_) => 22,
            Event::ProgramSaid { .. } => 23,
            Event::Warning { .. } => 24,
            Event::Reloaded { .. } => 25,
            Event::AccountChanged { .. } => 26,
            Event::LinkIssued { .. } => 27,
            Event::LinkKeyRemoved { .. } => 28,
            Event::AuditLog { .. } => 29,
            Event::RecordsLost { .. } => 30,
            Event::RecordsMissing { .. } => 31,
            Event::RecordTorn { .. } => 32,
        }
    }

    /// A test row: the fields of an event with every optional value, those with none, and whether the event is logged
    /// at the lowest level.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Row {
        all: Vec<String>,
        least: Vec<String>,
        is_kept: bool,
        audit: Option<Class>,
    }

    #[test]
    fn the_page_lists_every_event_with_every_field() {
        let (mut told, mut kinds) = (BTreeMap::<String, Row>::new(), Vec::new());
        all(|event| {
            kinds.push(kind(&event));
            let Fields { name, fields } = Fields::of(&event);
            let fields: Vec<_> = fields.into_iter().map(|(field, _)| field.to_owned()).collect();
            let row = told.entry(name.to_owned()).or_default();
            row.is_kept = LogFormat::Warnings.keeps(&event);
            row.audit = class(&event);
            // The full one comes first.
            match row.all.is_empty() {
                true => (row.all, row.least) = (fields.clone(), fields),
                false => {
                    let more = fields.iter().filter(|field| !row.all.contains(field)).cloned();
                    row.all.extend(more.collect::<Vec<_>>());
                    row.least = fields;
                }
            }
        });
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!(kinds, (0..33).collect::<Vec<_>>());
        let rows = PAGE.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
        let listed: BTreeMap<String, Row> = rows.map(listed).collect();
        for (name, row) in &told {
            assert_eq!(listed.get(name), Some(row), "docs/log.md about {name}");
        }
        assert_eq!(listed.len(), told.len(), "{:?}", listed.keys());
    }

    /// A line of the page's table.
    fn listed(line: &str) -> (String, Row) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let (name, fields) = (cells[1], cells[2]);
        let bare = |word: &str| word.trim_matches(['*', '`', '[', ']']).to_owned();
        let row = Row {
            all: fields.split_whitespace().map(bare).collect(),
            least: fields.split_whitespace().filter(|word| !word.starts_with('[')).map(bare).collect(),
            is_kept: name.starts_with("**"),
            audit: match cells[3] {
                "yes" => Some(Class::Administration),
                "files" => Some(Class::Files),
                _ => None,
            },
        };
        (bare(name), row)
    }
}
