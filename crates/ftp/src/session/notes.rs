//! Messages of directories, as in wu-ftpd: the lines of `.message`, and a hint at a `README`. They are sent once a
//! session, in the reply to the command that enters the directory.

use crate::reply::Reply;

use super::{Answer, Request, Session, Step};

/// Directories of which a session remembers that they have spoken.
const REMEMBERED: usize = 32;

impl Session {
    /// A reply after a change of the working directory, with that directory's message before its own text.
    pub(crate) fn arrive(&mut self, reply: Reply) -> Step {
        let told = |session: &Self| {
            session.extras.as_ref().is_some_and(|extras| extras.told.contains(&session.directory))
        };
        if !self.settings.notes || told(self) {
            return reply.into();
        }
        let request = Request::Notes(self.directory.clone());
        self.ask_whether(request, move |session, answer| tell(session, reply, answer))
    }
}

/// Unreadable messages are ignored: the command itself has succeeded.
fn tell(session: &mut Session, reply: Reply, answer: Answer) -> Step {
    let lines = match answer {
        Answer::Lines(lines) if !lines.is_empty() => lines,
        _ => return reply.into(),
    };
    let lines: Vec<_> = lines.into_iter().map(|line| fill(session, &line)).collect();
    let directory = session.directory.clone();
    let told = &mut session.extras_mut().told;
    if told.len() == REMEMBERED {
        told.remove(0);
    }
    told.push(directory);
    reply.behind(lines).into()
}

/// A line with what wu-ftpd's cookies stand for: `%C` the directory, `%U` the user, `%R` the client's address,
/// `%L` the server's, `%%` a percent sign. Others stay as they are.
fn fill(session: &Session, line: &[u8]) -> Vec<u8> {
    let mut filled = Vec::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = memchr::memchr(b'%', rest) {
        let (before, cookie) = rest.split_at(at);
        filled.extend_from_slice(before);
        match cookie.get(1) {
            Some(b'C') => filled.extend_from_slice(session.directory.as_bytes()),
            Some(b'U') => filled.extend_from_slice(session.user().unwrap_or_default()),
            Some(b'R') => filled.extend_from_slice(session.peer.ip().to_string().as_bytes()),
            Some(b'L') => filled.extend_from_slice(session.local.ip().to_string().as_bytes()),
            Some(b'%') => filled.push(b'%'),
            _ => filled.extend_from_slice(&cookie[..cookie.len().min(2)]),
        }
        rest = &cookie[cookie.len().min(2)..];
    }
    filled.extend_from_slice(rest);
    filled
}
