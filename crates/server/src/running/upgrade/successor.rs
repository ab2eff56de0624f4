//! The side of the old server, towards its successor.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{self, Command};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use millrace_net::fd_passing;
use millrace_privsep::Helper;
use millrace_process::{Process, start_successor};
use thiserror::Error;

use super::{AdminListener, Word};
use crate::certificates;
use crate::housekeeping::keep_quotas;
use crate::running::Running;
use crate::worker::{Door, Listener, Worker};

/// How long the new one may take to be ready: it reads its configuration, and may count, ask databases, make keys.
const READY_TIME: Duration = Duration::from_secs(120);

/// How long that may take. No client is accepted meanwhile.
const SERVING_TIME: Duration = Duration::from_secs(30);

/// How long it may take to take a word. There may be more of them than the socket has room for.
const WORD_TIME: Duration = Duration::from_secs(30);

/// The same at the end: it may count a large tree anew between two words.
const FAREWELL_TIME: Duration = Duration::from_secs(600);

/// How long a new one that says that it ends is waited for.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// How long workers are waited for that were told something.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Why no other server has taken the place of this one, which goes on as it was: a sentence without its full stop.
#[derive(Debug, Error)]
pub enum HandOverError {
    /// There is no socket to talk to it by.
    #[error("the new server cannot be started: {0}")]
    Socket(#[from] io::Error),
    /// Its program does not start.
    #[error("{program} cannot be started: {error}")]
    Program {
        /// Which.
        program: String,
        /// What the system said.
        error: io::Error,
    },
    /// What the new server said.
    #[error("{0}")]
    Said(String),
    /// It has ended.
    #[error("the new server ended before it served ({0}); the log may say why")]
    Gone(String),
    /// It took too long, or this server cannot hand over.
    #[error("the new server was given up: {0}")]
    GivenUp(String),
}

impl Running {
    /// Starts another server by this command and has it take the place of this one; returns its process number. Takes
    /// as long as the other takes to start.
    ///
    /// Where it fails, all is as it was.
    pub fn hand_over(&self, successor: Command) -> Result<u32, HandOverError> {
        give(self, successor)
    }
}

/// Has sockets of administrators handed over as well.
pub fn hand_over_also(running: &Running, listeners: Vec<AdminListener>) {
    *running.admin.lock().unwrap_or_else(PoisonError::into_inner) = listeners;
}

/// Has another server, which this command starts, take the place of this one; answers its process number. Where it
/// fails, all is as it was, and the error says why.
fn give(running: &Running, command: Command) -> Result<u32, HandOverError> {
    let (socket, theirs) = fd_passing::pair()?;
    fd_passing::bound_sending(&socket, WORD_TIME)?;
    // Its name in a cluster is the successor's as well from here on.
    running.state.is_handing_over.store(true, Ordering::Release);
    let given = give_to(running, command, &socket, theirs);
    match given {
        Ok(pid) => retire(running, socket, pid),
        Err(_) => running.state.is_handing_over.store(false, Ordering::Release),
    }
    given
}

/// The same over this socket, up to the moment in which the new server serves.
fn give_to(
    running: &Running,
    command: Command,
    socket: &OwnedFd,
    theirs: OwnedFd,
) -> Result<u32, HandOverError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let started = start_successor(command, theirs);
    let mut child = started.map_err(|error| HandOverError::Program { program, error })?;
    let pid = child.pid().as_raw_nonzero().get().unsigned_abs();
    match hand_over(running, socket) {
        Ok(()) => Ok(pid),
        Err(trouble) => {
            // First of all, because clients may be waiting.
            accept(running, true);
            let why = given_up(&mut child, trouble);
            running.state.shared.http.dav.take_back();
            for error in running.state.hooks().iter().filter_map(|hooks| hooks.take_back().err()) {
                running.state.log.warn(&error.to_string());
            }
            Err(why)
        }
    }
}

/// Sees to it that a new server that does not serve has ended; what it says itself is said as it is.
fn given_up(child: &mut Process, trouble: Trouble) -> HandOverError {
    if !matches!(trouble, Trouble::Ours(_)) {
        let end = Instant::now() + LAST_WORDS;
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
    }
    let _ = child.kill();
    let status = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
    match trouble {
        Trouble::Said(why) => HandOverError::Said(why),
        Trouble::Gone => HandOverError::Gone(status),
        Trouble::Ours(why) => HandOverError::GivenUp(why),
    }
}

/// Why nothing came of it.
enum Trouble {
    /// The new one says so.
    Said(String),
    /// The new one has gone.
    Gone,
    /// It took too long, or this one cannot.
    Ours(String),
}

impl Trouble {
    fn ours(error: impl Display) -> Self {
        Self::Ours(error.to_string())
    }

    /// Why it could not be told something.
    fn unsaid(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock => {
                Self::Ours(format!("it heard nothing for {} s", WORD_TIME.as_secs()))
            }
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::Gone,
            _ => Self::ours(error),
        }
    }
}

/// Everything up to the moment in which the new one serves.
fn hand_over(running: &Running, socket: &OwnedFd) -> Result<(), Trouble> {
    show_listeners(running, socket).map_err(Trouble::unsaid)?;
    expect(socket, READY_TIME, |word| matches!(word, Word::Ready {}))?;
    running.state.hooks().iter().for_each(|hooks| hooks.give_way());
    pause(running)?;
    keep_quotas(&running.state, true);
    if let Err(error) = running.state.shared.http.dav.leave() {
        running.state.log.warn(&error.to_string());
    }
    say_what_is_known(running, socket).map_err(Trouble::unsaid)?;
    expect(socket, SERVING_TIME, |word| matches!(word, Word::Serving {}))
}

/// The new one says what it is waited for to say.
fn expect(socket: &OwnedFd, patience: Duration, is_it: impl Fn(&Word) -> bool) -> Result<(), Trouble> {
    match Word::receive(socket, Some(patience)) {
        Ok(Some((word, _))) if is_it(&word) => Ok(()),
        Ok(Some((Word::Failed { why }, _))) => Err(Trouble::Said(why)),
        Ok(Some(_)) => Err(Trouble::ours("it sent an unknown message")),
        Ok(None) => Err(Trouble::Gone),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(Trouble::Ours(format!("it said nothing for {} s", patience.as_secs())))
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Err(Trouble::Gone),
        Err(error) => Err(Trouble::ours(error)),
    }
}

fn show_listeners(running: &Running, socket: &OwnedFd) -> io::Result<()> {
    let (sender, answers) = mpsc::channel();
    running.state.tell_workers(|| {
        let sender = sender.clone();
        move |worker: &mut Worker| _ = sender.send(worker.listeners())
    });
    drop(sender);
    for _ in &running.workers {
        let listeners = answers.recv_timeout(ANSWER_TIME).map_err(|_| io::ErrorKind::TimedOut)??;
        for Listener { door, address: bound, socket: listener } in listeners {
            let asked = asked(running, door, bound);
            Word::Listener { door, asked, bound }.send(socket, Some(listener.as_fd()))?;
        }
    }
    for AdminListener { asked, bound, socket: listener } in
        &*running.admin.lock().unwrap_or_else(PoisonError::into_inner)
    {
        Word::AdminListener { asked: *asked, bound: *bound }.send(socket, Some(listener.as_fd()))?;
    }
    // One that cannot hand its helper over lets the new one find out what that means for it.
    if let Ok(helper) = millrace_privsep::helper().and_then(Helper::for_successor) {
        Word::Helper {}.send(socket, Some(helper.as_fd()))?;
    }
    Word::ThatIsAll { pid: process::id() }.send(socket, None)
}

/// What a listener was asked for as: the port may have been 0.
fn asked(running: &Running, door: Door, bound: SocketAddr) -> SocketAddr {
    let config = &running.state.config;
    let (asked, are) = match door {
        Door::Ftp => (&config.ftp, running.ftp_addresses()),
        Door::Ftps => (&config.ftps, running.ftps_addresses()),
        Door::Http => (&config.http, running.http_addresses()),
        Door::Https => (&config.https, running.https_addresses()),
    };
    are.iter().zip(asked).find(|(is, _)| **is == bound).map_or(bound, |(_, asked)| *asked)
}

/// Stops accepting; connections wait in the kernel.
fn pause(running: &Running) -> Result<(), Trouble> {
    match accept(running, false) {
        true => Ok(()),
        false => Err(Trouble::ours("the workers of this one do not answer")),
    }
}

/// Tells workers to let clients in, or not to; answers whether all have heard it.
fn accept(running: &Running, is_to: bool) -> bool {
    let (sender, answers) = mpsc::channel();
    running.state.tell_workers(|| {
        let sender = sender.clone();
        move |worker: &mut Worker| {
            worker.set_accepting(is_to);
            let _ = sender.send(());
        }
    });
    let end = Instant::now() + ANSWER_TIME;
    let mut answered =
        running.workers.iter().map(|_| answers.recv_timeout(end.saturating_duration_since(Instant::now())));
    answered.all(|answer| answer.is_ok())
}

fn say_what_is_known(running: &Running, socket: &OwnedFd) -> io::Result<()> {
    for ban in running.bans() {
        let milliseconds = ban.left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
        Word::Ban { network: ban.network.to_string(), user: ban.user, milliseconds }.send(socket, None)?;
    }
    Word::Go { next_session: running.state.next_session.load(Ordering::Relaxed) }.send(socket, None)
}

impl Running {
    /// Returns whether another process has taken over.
    pub(in crate::running) fn is_handed_over(&self) -> bool {
        self.is_handed_over.load(Ordering::Acquire)
    }
}

/// From here on this one is done when its sessions are.
fn retire(running: &Running, socket: OwnedFd, successor: u32) {
    let state = &running.state;
    state.note_why_it_ends(&format!("handed over to process {successor}"));
    certificates::configure(state, None);
    hand_over_also(running, Vec::new());
    state.retire(state.config.grace);
    *running.successor.lock().unwrap_or_else(PoisonError::into_inner) = Some(socket);
    running.is_handed_over.store(true, Ordering::Release);
}

/// Tells the server that has taken over, if there is one, what the last sessions have done. The end of the socket is that of
/// this server.
pub(crate) fn say_farewell(running: &Running) {
    let successor = running.successor.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(socket) = successor else { return };
    if fd_passing::bound_sending(&socket, FAREWELL_TIME).is_err() {
        return;
    }
    let say = |word: Word| word.send(&socket, None);
    let quotas = running.state.config.quotas.iter();
    let mut told = quotas.flat_map(|quotas| {
        let trees = quotas.ledger().changed().into_iter().map(|tree| Word::Changed { tree });
        trees.chain(quotas.since().into_iter().map(|(user, since)| Word::Moved { user, since }))
    });
    // If it has gone there is no one to tell.
    let _ = told.try_for_each(say).and_then(|()| say(Word::Farewell {}));
}
