//! An event as a line: text for people, or a JSON object.
//!
//! What a client named is escaped: one event is one line, whatever a file is called.

use std::fmt::Write as _;
use std::time::Duration;

use millrace_ftp::time;
use millrace_vfs::{Timestamp, VirtualPath};

use super::access::Request;
use super::{Event, Subject, Transferred};
use crate::limits::{Reached, Setting};

pub(super) fn write_text(out: &mut String, now: Timestamp, subject: &Subject<'_>, event: &Event<'_>) {
    let Fields { name, fields } = Fields::of(event);
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

pub(super) fn write_json(out: &mut String, now: Timestamp, subject: &Subject<'_>, event: &Event<'_>) {
    let Fields { name, fields } = Fields::of(event);
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
            Event::Administered { what, failed } => {
                Self::new("administered").text("what", *what).maybe("failed", *failed)
            }
            Event::LoggedIn => Self::new("login"),
            Event::LoginFailed { user } => Self::new("login-failed").bytes("tried", user),
            Event::Expelled { reason } => Self::new("expelled").text("reason", *reason),
            Event::LoginRefused { user, reason } => {
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
            Event::Disconnected { reason } => Self::new("disconnected").text("reason", *reason),
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
        Self::new(transfer.direction.word())
            .path(transfer.path)
            .and("bytes", Value::Number(transfer.bytes))
            .and("seconds", Value::Seconds(transfer.elapsed))
            .maybe("failed", transfer.failure)
    }

    fn of_request(request: &Request<'_>) -> Self {
        Self::new("request")
            .text("method", request.method)
            .bytes("target", request.target)
            .text("protocol", request.protocol)
            .and("status", Value::Number(request.status.into()))
            .and("bytes", Value::Number(request.bytes))
            .and("seconds", Value::Seconds(request.elapsed))
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

    fn text(self, key: &'static str, text: impl Into<String>) -> Self {
        self.and(key, Value::Text(text.into()))
    }

    fn bytes(self, key: &'static str, bytes: &[u8]) -> Self {
        self.text(key, readable(bytes))
    }

    fn path(self, path: &VirtualPath) -> Self {
        self.bytes("path", path.as_bytes())
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
