//! Messages of directories, as in wu-ftpd: the lines of `.message`, and a hint at a `README`. They are sent once a
//! session, in the reply to the command that enters the directory.

use std::sync::Arc;

use millrace_vfs::Space;

use crate::reply::{Reply, code};

use super::texts::{Cookies, Full, Occupancy, ask_for_room};
use super::{Answer, Request, Session, Step};

/// Directories of which a session remembers that they have spoken.
const REMEMBERED: usize = 32;

impl Session {
    /// A reply after a change of the working directory, with that directory's message before its own text.
    pub(crate) fn arrive(&mut self, reply: Reply) -> Step {
        arrive_with(self, reply, Vec::new())
    }

    /// Notes the sessions of its class, if it is in one.
    pub(crate) fn note_class(&mut self, class: Option<Arc<dyn Occupancy>>) {
        if class.is_some() || self.extras.is_some() {
            self.extras_mut().class = class;
        }
    }
}

/// The greeting, with the lines that come before it.
pub(crate) fn greet(session: &Session) -> Step {
    let lines = cookies(session, None).fill_all(&session.settings.texts.greeting);
    Reply::owned(code::READY, session.settings.greeting.as_bytes()).behind(lines).into()
}

/// A reply to a login, with the texts for those who have come in.
pub(crate) fn welcome(session: &mut Session, reply: Reply) -> Step {
    let lines = session.settings.texts.welcome.clone();
    arrive_with(session, reply, lines)
}

/// The last reply to a client that a limit of this many sessions turns away, with these lines before it.
pub(crate) fn turn_away(session: &mut Session, reason: String, lines: &[Vec<u8>], most: u64) -> Step {
    let lines = Cookies { occupancy: &Full(most), ..cookies(session, None) }.fill_all(lines);
    session.close(Reply::owned(code::SERVICE_CLOSING, reason).behind(lines))
}

fn cookies(session: &Session, free: Option<u64>) -> Cookies<'_> {
    let (user, settings) = (session.user(), &session.settings);
    let class = session.extras.as_ref().and_then(|extras| extras.class.as_deref());
    Cookies {
        occupancy: class.unwrap_or(&*settings.occupancy),
        user: user.or(session.claimed_user()).unwrap_or_default(),
        directory: user.map_or(b"", |_| session.directory.as_bytes()),
        free,
        ..settings.cookies(session.peer.ip(), session.local.ip(), session.now.wall)
    }
}

fn arrive_with(session: &mut Session, reply: Reply, before: Vec<Vec<u8>>) -> Step {
    let told = session.extras.as_ref().is_some_and(|extras| extras.told.contains(&session.directory));
    if !session.settings.notes || told {
        return tell(session, reply, before);
    }
    let request = Request::Notes(session.directory.clone());
    session.ask_whether(request, move |session, answer| {
        let mut lines = before;
        // Unreadable messages are ignored: the command itself has succeeded.
        if let Answer::Lines(notes) = answer
            && !notes.is_empty()
        {
            lines.extend(notes);
            remember(session);
        }
        tell(session, reply, lines)
    })
}

fn remember(session: &mut Session) {
    let directory = session.directory.clone();
    let told = &mut session.extras_mut().told;
    if told.len() == REMEMBERED {
        told.remove(0);
    }
    told.push(directory);
}

/// The reply behind lines, once all is known that these tell.
fn tell(session: &mut Session, reply: Reply, lines: Vec<Vec<u8>>) -> Step {
    if !ask_for_room(&lines) {
        return behind(session, reply, &lines, None);
    }
    let request = Request::Space(session.directory.clone());
    session.ask_whether(request, move |session, answer| {
        let free = match answer {
            Answer::Space(Space { available, .. }) => Some(available),
            _ => None,
        };
        behind(session, reply, &lines, free)
    })
}

fn behind(session: &Session, reply: Reply, lines: &[Vec<u8>], free: Option<u64>) -> Step {
    match lines {
        [] => reply.into(),
        lines => reply.behind(cookies(session, free).fill_all(lines)).into(),
    }
}
