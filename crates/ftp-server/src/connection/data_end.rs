//! What becomes of a data connection whose transfer ends.

use millrace_ftp::reply::Reply;
use millrace_ftp::session::{Outcome, TransferError, Via};
use millrace_log::Direction;
use millrace_net::stream;
use millrace_runtime::transfer::{End, Link, Running, SMALL, Socket, describe};
use millrace_runtime::worker::Core;
use mio::event::Event;

use super::scene::Scene;

/// Has a download's socket closed with a reset.
pub(super) fn reset_download(running: &Running) {
    if let (Link::Open(socket), Direction::Download) = (&running.link, running.direction) {
        stream::reset_on_close(&socket.fd);
    }
}

/// What an event says of the peer's side.
pub(super) fn end(event: &Event) -> End {
    if event.is_error() {
        End::Broken
    } else if event.is_read_closed() {
        End::Orderly
    } else {
        End::NotYet
    }
}

/// What becomes of the data connection of a transfer that has ended so, after this many bytes.
pub(super) fn part_with(
    core: &mut Core,
    running: &mut Running,
    bytes: u64,
    result: &Result<(), TransferError>,
) {
    if let (Link::Open(socket), Direction::Download, Err(TransferError::File(_))) =
        (&running.link, running.direction, result)
    {
        // An orderly close would make the part that was sent look like the whole file.
        stream::reset_on_close(&socket.fd);
    }
    if let Link::Accepting(watched) = &mut running.link
        && let Some(watched) = watched.take()
    {
        core.forget(&watched);
        // Before the lease goes: a port that is to be bound anew must be closed by then.
        drop(watched);
    }
    if let (Link::Open(socket), Direction::Upload, Ok(())) = (&mut running.link, running.direction, result) {
        socket.part(&mut core.scratch);
    }
    if let (Link::Open(Socket { end: End::NotYet, .. }), Ok(())) = (&running.link, result)
        && running.direction != Direction::Upload
        && bytes > SMALL
        && let Link::Open(socket) = std::mem::replace(&mut running.link, Link::OnPool)
    {
        core.see_off(socket);
    }
}

/// The last line of a `STAT path` that failed half-way: behind the first line only the same code ends it, so
/// the failure is told there, and not in a reply of its own.
pub(super) fn end_report(scene: &mut Scene<'_>, via: Option<Via>, outcome: Outcome) -> Outcome {
    match (via, &outcome.result) {
        (Some(Via::Control(code)), Err(error)) => {
            let mut line = Vec::new();
            Reply::owned(code, format!("Incomplete: {}.", describe(error))).write(&mut line);
            scene.say(&line);
            Outcome { result: Ok(()), ..outcome }
        }
        _ => outcome,
    }
}
