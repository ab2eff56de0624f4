//! `millrace ctl trace` and `log`: the commands and replies of some sessions, and the log, live.

use std::io::{self, Write};
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use super::error::ClientError;
use super::link::ServerLink;
use super::told::shown;
use super::{PATIENCE, length_of_time};

/// Which sessions are followed, and for how long.
#[derive(Debug, Args)]
pub(super) struct Trace {
    /// Sessions of this user, from the USER command on
    #[arg(value_name = "USER", required_unless_present_any = ["address", "session"])]
    user: Option<String>,
    /// Sessions from this address
    #[arg(long, value_name = "ADDRESS")]
    address: Option<IpAddr>,
    /// The session with this number, as listed by "sessions"
    #[arg(long, value_name = "NUMBER")]
    session: Option<u64>,
    /// End after this time: seconds, or a time such as 5m [default: Ctrl-C ends it]
    #[arg(long = "seconds", value_name = "TIME", value_parser = length_of_time)]
    pub(super) time: Option<Duration>,
}

/// From where on the log is followed, and for how long.
#[derive(Debug, Args)]
pub(super) struct FollowLog {
    /// How many of its last lines come first, as far as the server keeps them
    #[arg(short = 'n', long, value_name = "NUMBER", default_value_t = 10)]
    lines: u32,
    /// End after this time: seconds, or a time such as 5m [default: Ctrl-C ends it]
    #[arg(long = "seconds", value_name = "TIME", value_parser = length_of_time)]
    pub(super) time: Option<Duration>,
}

impl FollowLog {
    /// Returns the order.
    pub(super) fn request(&self) -> Value {
        json!({ "do": "log", "lines": self.lines })
    }
}

impl Trace {
    /// Returns the order.
    pub(super) fn request(&self) -> Value {
        let address = self.address.map(|address| address.to_string());
        json!({ "do": "trace", "user": self.user, "address": address, "session": self.session })
    }
}

/// Prints lines until the server ends, or the time is over, or what reads them has gone.
pub(super) fn run(
    socket: &Path,
    request: &Value,
    time: Option<Duration>,
    as_json: bool,
) -> Result<(), ClientError> {
    let until = time.map(|time| Instant::now() + time);
    let print = |line: &str| {
        let text = if as_json { line.to_owned() } else { told(line) + "\n" };
        match io::stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(ClientError::Output(error)),
            Ok(()) => Ok(true),
        }
    };
    ServerLink::new(socket, PATIENCE).follow(request, until, print)
}

/// A line for people: `12:00:00.250 #7 ann@192.0.2.1:1025 > RETR a`.
fn told(line: &str) -> String {
    let line: Value = serde_json::from_str(line).unwrap_or_default();
    if let Some(lost) = line["dropped"].as_u64() {
        return format!("({lost} lines are missing: they were not read in time)");
    }
    if line["direction"].is_null() {
        return shown(&logged(&line));
    }
    let text = |name: &str| line[name].as_str().unwrap_or_default();
    let time = text("time").split('T').nth(1).unwrap_or_default().trim_end_matches('Z');
    let arrow = if line["direction"] == "received" { '>' } else { '<' };
    let user = line["user"].as_str().unwrap_or("-");
    format!("{time} #{} {}@{} {arrow} {}", line["session"], shown(user), text("peer"), shown(text("text")))
}

/// What stands before the fields of a line of the log.
const BEFORE_FIELDS: [&str; 5] = ["time", "session", "peer", "user", "event"];

/// A line of the log: as it was written, or in the form of the log as text, with its fields in alphabetical order.
fn logged(line: &Value) -> String {
    let text = |name: &str| line[name].as_str().unwrap_or_default();
    if !line["line"].is_null() {
        return text("line").to_owned();
    }
    let fields = line.as_object().into_iter().flatten();
    let fields = fields.filter(|(name, _)| !BEFORE_FIELDS.contains(&name.as_str()));
    let fields: String = fields.map(|(name, value)| format!(" {name}={value}")).collect();
    let session = line["session"].as_u64().map_or("-".to_owned(), |session| format!("#{session}"));
    let or_none = |name: &str| line[name].as_str().unwrap_or("-").to_owned();
    let (peer, user) = (or_none("peer"), or_none("user"));
    format!("{} {session} {peer} {user} {}{fields}", text("time"), text("event"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_people_moves_no_cursor() {
        let line = r#"{"time":"2026-11-29T12:00:00.250Z","session":7,"peer":"192.0.2.1:1025","user":"ann","protocol":"ftp","direction":"received","text":"RETR \u001b[2J"}"#;
        assert_eq!(told(line), "12:00:00.250 #7 ann@192.0.2.1:1025 > RETR \\u{1b}[2J");
        let reply = r#"{"time":"2026-11-29T12:00:00.250Z","session":7,"peer":"[::1]:9","protocol":"ftp","direction":"sent","text":"220 Hello"}"#;
        assert_eq!(told(reply), "12:00:00.250 #7 -@[::1]:9 < 220 Hello");
        let event =
            r#"{"time":"2026-11-29T12:00:00.250Z","event":"login-failed","session":7,"tried":"x\u001b"}"#;
        assert_eq!(told(event), "2026-11-29T12:00:00.250Z #7 - - login-failed tried=\"x\\u001b\"");
        assert_eq!(told(r#"{"line":"as it was \u001b"}"#), "as it was \\u{1b}");
        assert_eq!(told(r#"{"dropped":3}"#), "(3 lines are missing: they were not read in time)");
    }
}
