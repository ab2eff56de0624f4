//! The trace: commands and replies of chosen sessions, for those who follow them. Where there are none, it costs a look at
//! a flag.
//!
//! The name of a session's user is known from the `USER` command on. A session that was followed under that name is
//! followed on while it has none, so that the reply to a wrong password is seen as well.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Weak};

use millrace_limits::Protocol;
use millrace_vfs::Timestamp;

use super::Subject;
use super::line::{readable, write_escaped, write_time};
use super::live::{Live, Reader, lock};

/// Traces at a time.
const MOST: usize = 8;

/// Sessions without a user that a trace remembers.
const REMEMBERED: usize = 256;

/// Bytes of a line that are shown.
const SHOWN: usize = 512;

/// Which sessions a trace follows: those that match all that is given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraceFilter {
    /// The user, by the name of the login.
    pub user: Option<String>,
    /// The client's address.
    pub address: Option<IpAddr>,
    /// The session's number.
    pub session: Option<u64>,
}

/// A command or a reply. The caller has removed what is secret.
#[derive(Debug, Clone, Copy)]
pub struct TraceLine<'a> {
    /// By which protocol it came or went.
    pub protocol: Protocol,
    /// Whether the client has sent it.
    pub is_received: bool,
    /// When.
    pub at: Timestamp,
    /// Its text, without its end.
    pub text: &'a [u8],
}

/// Who follows sessions.
#[derive(Debug, Default)]
pub struct Traced {
    is_on: AtomicBool,
    /// Locked for each line while there are traces.
    traces: Mutex<Vec<Trace>>,
}

/// One who follows some of them.
#[derive(Debug)]
struct Trace {
    filter: TraceFilter,
    /// Sessions of FTP that the filter has met by their user.
    followed: VecDeque<u64>,
    reader: Weak<Reader>,
}

impl Traced {
    /// Returns whether there is a trace.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Begins a trace: its lines from now on, each a JSON object. `None` where there are as many as there may be. `wake` is
    /// called, on any thread, when there are lines; it must not wait.
    pub fn begin(&self, filter: TraceFilter, wake: Box<dyn Fn() + Send + Sync>) -> Option<Live> {
        let mut traces = lock(&self.traces);
        traces.retain(|trace| trace.reader.strong_count() > 0);
        if traces.len() >= MOST {
            return None;
        }
        let (live, reader) = Live::open(wake);
        traces.push(Trace { filter, followed: VecDeque::new(), reader });
        self.is_on.store(true, Ordering::Relaxed);
        Some(live)
    }

    /// Gives a line to the traces that follow its session.
    pub fn push(&self, subject: &Subject<'_>, line: &TraceLine<'_>) {
        let mut traces = lock(&self.traces);
        traces.retain(|trace| trace.reader.strong_count() > 0);
        self.is_on.store(!traces.is_empty(), Ordering::Relaxed);
        let mut written = String::new();
        for trace in
            traces.iter_mut().filter_map(|trace| trace.follows(subject, line.protocol).then_some(trace))
        {
            if written.is_empty() {
                write(&mut written, subject, line);
            }
            if let Some(reader) = trace.reader.upgrade() {
                reader.push(&written);
            }
        }
    }
}

impl Trace {
    /// Returns whether it follows this session, and remembers one of its user.
    fn follows(&mut self, subject: &Subject<'_>, protocol: Protocol) -> bool {
        let TraceFilter { user, address, session } = &self.filter;
        let is_meant = session.is_none_or(|number| number == subject.session)
            && address.is_none_or(|address| address.to_canonical() == subject.peer.ip().to_canonical());
        match (user, subject.user) {
            _ if !is_meant => false,
            (None, _) => true,
            (Some(_), None) => protocol == Protocol::Ftp && self.followed.contains(&subject.session),
            (Some(user), Some(name)) => {
                let is_its = user.as_bytes() == name;
                if is_its != self.followed.contains(&subject.session) && protocol == Protocol::Ftp {
                    self.remember(subject.session, is_its);
                }
                is_its
            }
        }
    }

    fn remember(&mut self, session: u64, is_followed: bool) {
        self.followed.retain(|number| *number != session);
        if is_followed {
            self.followed.push_back(session);
            let surplus = self.followed.len().saturating_sub(REMEMBERED);
            self.followed.drain(..surplus);
        }
    }
}

/// Writes a JSON object.
fn write(out: &mut String, subject: &Subject<'_>, line: &TraceLine<'_>) {
    out.push_str("{\"time\":\"");
    write_time(out, line.at);
    let direction = if line.is_received { "received" } else { "sent" };
    out.push_str(&format!("\",\"session\":{},\"peer\":\"{}\"", subject.session, subject.peer));
    if let Some(user) = subject.user {
        out.push_str(",\"user\":\"");
        write_escaped(out, &readable(user));
        out.push('"');
    }
    out.push_str(&format!(",\"protocol\":\"{}\",\"direction\":\"{direction}\",\"text\":\"", line.protocol));
    let shown = &line.text[..line.text.len().min(SHOWN)];
    write_escaped(out, &readable(shown));
    out.push_str(if shown.len() < line.text.len() { "...\"}" } else { "\"}" });
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp { seconds: 1_000_000_000, nanoseconds: 5_000_000 };

    fn subject(session: u64, user: Option<&str>) -> Subject<'_> {
        let peer = format!("192.0.2.{session}:1025").parse().unwrap();
        Subject { session, peer, user: user.map(str::as_bytes) }
    }

    fn said(text: &str) -> TraceLine<'_> {
        TraceLine { protocol: Protocol::Ftp, is_received: true, at: NOW, text: text.as_bytes() }
    }

    #[test]
    fn a_trace_follows_what_its_filter_meets() {
        let traced = Traced::default();
        assert!(!traced.is_on());
        let filters = [
            TraceFilter { user: Some("ann".to_owned()), ..TraceFilter::default() },
            TraceFilter { address: Some("192.0.2.2".parse().unwrap()), ..TraceFilter::default() },
            TraceFilter { session: Some(3), ..TraceFilter::default() },
        ];
        let lives = filters.map(|filter| traced.begin(filter, Box::new(|| {})).unwrap());
        for (session, user, text) in [
            (1, None, "CLNT x"),
            (1, Some("ann"), "USER ann"),
            (1, None, "after a wrong password"),
            (1, Some("bob"), "USER bob"),
            (1, None, "not followed any more"),
            (2, Some("ann"), "NOOP"),
            (3, None, "QUIT"),
        ] {
            traced.push(&subject(session, user), &said(text));
        }
        let texts = lives.map(|live| {
            let (lines, dropped) = live.take();
            assert_eq!(dropped, 0);
            let text =
                |line: &String| line.split("\"text\":\"").nth(1).unwrap().trim_end_matches("\"}").to_owned();
            lines.iter().map(text).collect::<Vec<_>>()
        });
        assert_eq!(texts, [vec!["USER ann", "after a wrong password", "NOOP"], vec!["NOOP"], vec!["QUIT"]]);
        traced.push(&subject(1, None), &said("x"));
        assert!(!traced.is_on());
    }

    #[test]
    fn a_line_is_a_json_object_and_a_long_one_is_cut() {
        let traced = Traced::default();
        let live = traced.begin(TraceFilter::default(), Box::new(|| {})).unwrap();
        traced.push(&subject(7, Some("a\"n\n")), &said("RETR \u{1b}[2J\""));
        traced.push(&subject(7, None), &said(&"x".repeat(SHOWN + 1)));
        let (lines, _) = live.take();
        assert_eq!(
            lines[0],
            "{\"time\":\"2001-09-09T01:46:40.005Z\",\"session\":7,\"peer\":\"192.0.2.7:1025\",\"user\":\"a\\\"n\\u000a\",\
             \"protocol\":\"ftp\",\"direction\":\"received\",\"text\":\"RETR \\u001b[2J\\\"\"}"
        );
        assert!(lines[1].ends_with("xx...\"}") && lines[1].len() < SHOWN + 200, "{}", lines[1]);
    }

    #[test]
    fn there_are_a_few_traces_at_a_time() {
        let traced = Traced::default();
        let begin = || traced.begin(TraceFilter::default(), Box::new(|| {}));
        let mut lives: Vec<_> = (0..MOST).map(|_| begin().unwrap()).collect();
        assert!(begin().is_none());
        lives.pop();
        assert!(begin().is_some());
    }
}
