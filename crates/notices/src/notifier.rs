//! The threads: one looks at the server, one for each receiver sends.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use millrace_limits::wall_seconds;

use super::conditions::{Judge, Kind, Look, Thresholds};
use super::message::Message;
use super::outbox::Outbox;
use super::receiver::Receiver;
use super::states::{Notice, States};

/// How long after its start a server is first looked at: disks have answered by then.
const FIRST_LOOK: Duration = Duration::from_secs(2);

/// How long between two looks.
const LOOK: Duration = Duration::from_secs(15);

/// Looks at the server. Returns nothing where it ends, and then is not called again.
pub type Read = Box<dyn Fn() -> Option<Look> + Send>;

/// Writes a warning to the log.
pub type Warn = Arc<dyn Fn(&str) + Send + Sync>;

/// What is told to whom.
#[derive(Debug, Clone)]
pub struct Rule {
    /// From where on.
    pub thresholds: Thresholds,
    /// After how long it is told again. Zero: never.
    pub repeat: Duration,
    /// To whom.
    pub receivers: Vec<Receiver>,
}

/// Notices that are sent, until this is dropped.
#[derive(Debug)]
pub struct Notices {
    /// What the computer is called.
    server: Arc<str>,
    posts: Vec<Arc<Post>>,
    end: Arc<End>,
}

/// Says when it is over.
#[derive(Debug, Default)]
struct End {
    is_over: Mutex<bool>,
    changed: Condvar,
}

/// A receiver, and what waits for it.
#[derive(Debug)]
struct Post {
    receiver: Receiver,
    /// Locked for a moment, never while something is sent.
    state: Mutex<PostState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct PostState {
    outbox: Outbox,
    is_over: bool,
}

impl Notices {
    /// Begins to look at a server by `read`, on a computer of this name. Without rules there is no thread.
    pub fn start(rules: Vec<Rule>, server: &str, read: Read, warn: &Warn) -> io::Result<Self> {
        let mut notices = Self { server: server.into(), posts: Vec::new(), end: Arc::default() };
        let mut watched = Vec::new();
        for Rule { thresholds, repeat, receivers } in rules {
            let posts = receivers.into_iter().map(Post::new).collect::<Vec<_>>();
            for post in &posts {
                let (post, server, warn) = (Arc::clone(post), Arc::clone(&notices.server), Arc::clone(warn));
                spawn("millrace-notice", move || post.send_all(&server, &warn))?;
            }
            notices.posts.extend(posts.iter().cloned());
            watched.push(Watched { judge: Judge::new(thresholds), states: States::new(repeat), posts });
        }
        if !watched.is_empty() {
            let end = Arc::clone(&notices.end);
            spawn("millrace-watch", move || watch(watched, &read, &end))?;
        }
        Ok(notices)
    }

    /// Sends a trial to each receiver now, and waits. Returns what each is called, and why it did not take it.
    pub fn test(&self) -> Vec<(String, Option<String>)> {
        let (at, kind) = (wall_seconds(), Kind::Trial);
        let text = "this is a trial: notices arrive here".to_owned();
        let trial = [Notice { kind, subject: String::new(), is_bad: false, text, at, since: at }];
        let message = Message { server: &self.server, notices: &trial };
        let test = |post: &Arc<Post>| {
            let failure = post.receiver.send(&message).err().map(|error| error.to_string());
            (post.receiver.name().to_owned(), failure)
        };
        self.posts.iter().map(test).collect()
    }
}

impl Drop for Notices {
    fn drop(&mut self) {
        *self.end.lock() = true;
        self.end.changed.notify_all();
        for post in &self.posts {
            post.lock().is_over = true;
            post.changed.notify_all();
        }
    }
}

impl End {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits so long. Returns whether it is over.
    fn wait(&self, time: Duration) -> bool {
        let wait = self.changed.wait_timeout_while(self.lock(), time, |is_over| !*is_over);
        *wait.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// A rule that is watched.
struct Watched {
    judge: Judge,
    states: States,
    posts: Vec<Arc<Post>>,
}

/// Looks at the server now and then, until it ends.
fn watch(mut watched: Vec<Watched>, read: &Read, end: &End) {
    // Has the disks asked.
    let mut wait = FIRST_LOOK;
    while let Some(look) = read() {
        if wait == LOOK {
            for Watched { judge, states, posts } in &mut watched {
                let notices = states.step(look.now, look.wall, judge.judge(&look));
                posts.iter().filter(|_| !notices.is_empty()).for_each(|post| post.put(notices.clone()));
            }
        }
        if end.wait(wait) {
            return;
        }
        wait = LOOK;
    }
}

impl Post {
    fn new(receiver: Receiver) -> Arc<Self> {
        Arc::new(Self { receiver, state: Mutex::default(), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, PostState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, notices: Vec<Notice>) {
        self.lock().outbox.put(notices);
        self.changed.notify_all();
    }

    /// Waits until there is something to be sent, and takes it. Returns nothing at the end.
    fn take(&self) -> Option<Vec<Notice>> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            let now = Instant::now();
            if let Some(notices) = state.outbox.take(now) {
                return Some(notices);
            }
            state = match state.outbox.rest(now) {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(rest) => {
                    self.changed.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Sends what comes, until the end.
    fn send_all(&self, server: &str, warn: &Warn) {
        while let Some(notices) = self.take() {
            let sent = self.receiver.send(&Message { server, notices: &notices });
            let name = self.receiver.name();
            match sent {
                Ok(()) => {
                    let failures = self.lock().outbox.sent();
                    if failures > 0 {
                        warn(&format!("notices reach {name} again; tries that failed: {failures}"));
                    }
                }
                Err(error) => {
                    if self.lock().outbox.failed(Instant::now(), notices) {
                        warn(&format!("a notice does not reach {name}: {error}; it is tried again"));
                    }
                }
            }
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}
