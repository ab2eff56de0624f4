//! Misbehaving users, each on a thread of its own; [`act`] has a function for each misbehaviour.
//!
//! They are few, and their cost to this client is not part of any figure, so they are [`BlockingSession`]s with a short
//! timeout: a rogue notices the end within [`PATIENCE`].

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use millrace_net::stream;

use super::blocking_session::BlockingSession;
use crate::chaos::{Deeds, Mischief};
use crate::driver::cancellable_wait::CancellableWait;
use crate::driver::error::DriverError;
use crate::target::Target;

/// How long a rogue waits for any answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it keeps the server waiting before it tries again.
const HOLD: Duration = Duration::from_secs(10);
/// The pause between repetitions that would be too fast: a thousand a second.
const BREATH: Duration = Duration::from_millis(1);
/// The pause after a refusal.
const AFTER_END: Duration = Duration::from_millis(100);
/// The receive buffer of a download that it never reads.
const SMALL_BUFFER: usize = 4096;
/// More than a sender's and a receiver's buffers together (3.9 MB were measured).
pub(super) const FILE_SIZE: u64 = 16 << 20;

/// The target of misbehaving users.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) target: &'a Target,
    pub(super) address: SocketAddr,
    /// A file of [`FILE_SIZE`], and one to upload to.
    pub(super) download: &'a str,
    pub(super) upload: &'a str,
}

/// Misbehaves until the end.
pub(super) fn misbehave(place: Place<'_>, kind: Mischief, deeds: &Deeds) {
    while !deeds.is_over() {
        if act(place, kind, deeds).is_err() {
            deeds.note_end(kind);
            deeds.pause(AFTER_END);
        }
    }
}

/// One session of a misbehaving user. An error means that the server ended it.
fn act(place: Place<'_>, kind: Mischief, deeds: &Deeds) -> Result<(), DriverError> {
    match kind {
        Mischief::SlowLogin => slow_login(place, deeds),
        Mischief::PasvFlood => flood(place, deeds),
        Mischief::Unread => leave_unread(place, deeds),
        Mischief::HalfClosed => half_close(place, deeds),
        Mischief::Resets => reset(place, deeds),
        Mischief::Abor => abort(place, deeds),
        Mischief::BlackHole => connect_to_nowhere(place, deeds),
    }
}

fn log_in(place: Place<'_>) -> Result<BlockingSession<'static>, DriverError> {
    BlockingSession::log_in(place.target, place.address, PATIENCE, CancellableWait::uncancellable())
}

fn slow_login(place: Place<'_>, deeds: &Deeds) -> Result<(), DriverError> {
    let unreachable = |error| DriverError::Unreachable { address: place.address, error };
    let mut control = TcpStream::connect_timeout(&place.address, PATIENCE).map_err(unreachable)?;
    let login = format!("USER {}\r\n", place.target.user);
    deeds.note(Mischief::SlowLogin);
    for byte in login.bytes().cycle() {
        control.write_all(&[byte]).map_err(unreachable)?;
        if !deeds.pause(Duration::from_secs(1)) {
            break;
        }
    }
    Ok(())
}

fn flood(place: Place<'_>, deeds: &Deeds) -> Result<(), DriverError> {
    let mut session = log_in(place)?;
    while deeds.pause(BREATH) {
        deeds.note(Mischief::PasvFlood);
        session.listen()?;
    }
    Ok(())
}

fn leave_unread(place: Place<'_>, deeds: &Deeds) -> Result<(), DriverError> {
    let mut session = log_in(place)?;
    let data = session.begin(b"RETR", place.download, Some(SMALL_BUFFER))?;
    deeds.note(Mischief::Unread);
    deeds.pause(HOLD);
    drop(data); // with what it never read: a reset
    Ok(())
}

fn half_close(place: Place<'_>, deeds: &Deeds) -> Result<(), DriverError> {
    let mut session = log_in(place)?;
    let mut data = session.begin(b"STOR", place.upload, None)?;
    deeds.note(Mischief::HalfClosed);
    let sent = data.write_all(&[0; 1000]).and_then(|()| session.socket().shutdown(Shutdown::Write));
    if sent.is_ok() {
        deeds.pause(HOLD);
    }
    Ok(())
}

fn reset(place: Place<'_>, deeds: &Deeds) -> Result<(), DriverError> {
    let mut session = log_in(place)?;
    let mut data = session.begin(b"RETR", place.download, None)?;
    deeds.note(Mischief::Resets);
    let _ = data.read(&mut [0; 1000]);
    stream::reset_on_close(data.socket());
    stream::reset_on_close(session.socket());
    deeds.pause(BREATH);
    Ok(())
}

fn abort(place: Place<'_>, deeds: &Deeds) -> Result<(), DriverError> {
    let mut session = log_in(place)?;
    while deeds.pause(BREATH) {
        let mut data = session.begin(b"RETR", place.download, None)?;
        deeds.note(Mischief::Abor);
        session.abort(|| {
            // Reads data in flight, until the server closes.
            let _ = io::copy(&mut data, &mut io::sink());
        })?;
    }
    Ok(())
}

fn connect_to_nowhere(place: Place<'_>, deeds: &Deeds) -> Result<(), DriverError> {
    let mut session = log_in(place)?;
    let hole = Hole::dig(session.socket()).map_err(DriverError::Client)?;
    session.begin_active(b"RETR", place.download, hole.address)?;
    deeds.note(Mischief::BlackHole);
    deeds.pause(HOLD);
    Ok(())
}

/// A listener whose queue is full: the kernel drops every further SYN, so that a connection attempt never completes.
struct Hole {
    address: SocketAddr,
    _listener: TcpListener,
    _queue: Vec<TcpStream>,
}

impl Hole {
    /// At the address of `control`, because servers check it.
    fn dig(control: &TcpStream) -> io::Result<Self> {
        let listener = TcpListener::bind(SocketAddr::new(control.local_addr()?.ip(), 0))?;
        // Again, with the shortest possible queue.
        rustix::net::listen(&listener, 0)?;
        let address = listener.local_addr()?;
        let mut queue = Vec::new();
        // A queue of 0 takes one; the kernel may take another that is not visible yet.
        while let Ok(waiting) = TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
            queue.push(waiting);
        }
        Ok(Self { address, _listener: listener, _queue: queue })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_never_answers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let control = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let hole = Hole::dig(&control).unwrap();
        assert!(TcpStream::connect_timeout(&hole.address, Duration::from_millis(200)).is_err());
    }
}
