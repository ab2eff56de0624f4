//! Events in systemd's journal, by its own protocol: a datagram each, with a priority and a field for each of theirs.
//!
//! ```text
//! MESSAGE=login-failed tried=alice          what a person reads
//! PRIORITY=5
//! MILLRACE_EVENT=login-failed               journalctl MILLRACE_EVENT=login-failed
//! MILLRACE_PEER=192.0.2.7:50123
//! ```
//!
//! The events come as lines of JSON, as for standard error.

use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

/// Where the journal listens.
const SOCKET: &str = "/run/systemd/journal/socket";

/// Bytes of a datagram at most: more than any event has, less than the kernel refuses.
const LONGEST: usize = 128 * 1024;

/// The keys that say what the journal notes itself, or what a message begins with.
const APART: [&str; 4] = ["time", "event", "session", "peer"];

/// The journal of this computer, to which lines of JSON are written.
#[derive(Debug)]
pub(super) struct Journal {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Journal {
    /// Opens the way to the journal, which has to be there.
    pub(super) fn open() -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        let journal = Self { socket, path: SOCKET.into() };
        // Without data: it asks whether the journal listens.
        journal.socket.send_to(&[], &journal.path)?;
        Ok(journal)
    }

    /// Where it is.
    pub(super) fn path() -> &'static Path {
        Path::new(SOCKET)
    }
}

impl Write for Journal {
    /// Takes the first line.
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let end = lines.iter().position(|&byte| byte == b'\n').map_or(lines.len(), |end| end + 1);
        if let Some(datagram) = datagram(&lines[..end]) {
            self.socket.send_to(&datagram, &self.path)?;
        }
        Ok(end)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns what the journal is sent for a line; `None` for one that is no object, such as the end of a line that was cut.
fn datagram(line: &[u8]) -> Option<Vec<u8>> {
    let event: Map<String, Value> = serde_json::from_slice(line).ok()?;
    let name = event.get("event").and_then(Value::as_str)?;
    let mut out = Vec::with_capacity(line.len() * 2);
    field(&mut out, "MESSAGE", &message(name, &event));
    field(&mut out, "PRIORITY", &severity(name).to_string());
    field(&mut out, "SYSLOG_IDENTIFIER", "millrace");
    for (key, value) in event.iter().filter(|(key, _)| *key != "time") {
        let key: String =
            key.chars().map(|char| if char == '-' { '_' } else { char.to_ascii_uppercase() }).collect();
        field(&mut out, &format!("MILLRACE_{key}"), &text(value));
        if out.len() > LONGEST {
            break;
        }
    }
    out.truncate(LONGEST);
    Some(out)
}

/// Returns the event as a person reads it: its name, and what there is to say of it.
fn message(name: &str, event: &Map<String, Value>) -> String {
    let others = event.iter().filter(|(key, _)| !APART.contains(&key.as_str()));
    let told = others.map(|(key, value)| format!(" {key}={}", text(value)));
    let from = event.get("peer").map_or(String::new(), |peer| format!(" from={}", text(peer)));
    format!("{name}{from}{}", told.collect::<String>())
}

/// Returns how much an operator has to care: 4 for a warning, 5 for what is refused, 6 for the rest.
pub(super) fn severity(name: &str) -> u8 {
    match name {
        "warning" => 4,
        "refused" | "proxy-refused" | "login-failed" | "login-refused" | "expelled" | "banned"
        | "limited" | "hook-refused" => 5,
        _ => 6,
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// Writes a field: on a line, or with its length before it where it has several.
fn field(out: &mut Vec<u8>, key: &str, value: &str) {
    out.extend_from_slice(key.as_bytes());
    if value.contains('\n') {
        out.push(b'\n');
        out.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        out.push(b'=');
    }
    out.extend_from_slice(value.as_bytes());
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_a_message_a_priority_and_its_fields() {
        let line = r#"{"time":"2026-11-28T00:00:00Z","event":"login-failed","session":7,"peer":"192.0.2.7:1","tried":"al=ice"}"#;
        let expected = "MESSAGE=login-failed from=192.0.2.7:1 tried=al=ice\nPRIORITY=5\nSYSLOG_IDENTIFIER=millrace\n\
                        MILLRACE_EVENT=login-failed\nMILLRACE_PEER=192.0.2.7:1\nMILLRACE_SESSION=7\nMILLRACE_TRIED=al=ice\n";
        let sent = String::from_utf8(datagram(line.as_bytes()).unwrap()).unwrap();
        let sorted = |text: &str| {
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&sent), sorted(expected));
        assert_eq!(datagram(b"half of a line"), None);
        assert_eq!(datagram(b"[1]\n"), None);
    }

    /// A name with a line feed in it makes no field of its own.
    #[test]
    fn a_value_of_several_lines_has_its_length() {
        let line = br#"{"event":"stored","path":"a\nPRIORITY=0"}"#;
        let sent = datagram(line).unwrap();
        let expected = [&b"MILLRACE_PATH\n"[..], &12u64.to_le_bytes(), b"a\nPRIORITY=0\n"].concat();
        assert!(sent.windows(expected.len()).any(|part| part == expected));
        let message = [&b"MESSAGE\n"[..], &24u64.to_le_bytes(), b"stored path=a\nPRIORITY=0\n"].concat();
        assert!(sent.starts_with(&message));
    }
}
