//! The CGI programs of a worker: how many run, who waits, what they say of errors, and their ends.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::program::Program;
use millrace_runtime::slab::Key;

pub use crate::lane::{Lane, Slot};

/// How soon a program that has answered is looked at again, to see whether it has ended.
const LOOK: Duration = Duration::from_millis(10);

/// How long one that has answered may go on.
const AFTERLIFE: Duration = Duration::from_secs(30);

/// Bytes of a line of errors at most.
const LINE: usize = 4096;

/// The programs of a worker.
#[derive(Debug)]
pub struct Programs {
    lane: Lane,
    /// Those that have answered, and until when they may go on.
    leaving: Vec<(Program, Instant)>,
    look_at: Option<Instant>,
    /// Those whose first words are held back, and until when, the first first.
    held: VecDeque<(Instant, Key)>,
    errors: Option<Errors>,
}

/// The pipe that all of them write errors to.
#[derive(Debug)]
struct Errors {
    reader: File,
    writer: Arc<OwnedFd>,
    /// A line that is not whole.
    begun: Vec<u8>,
}

/// What a request waits for.
#[derive(Debug, Clone, Copy)]
pub enum Line {
    /// A place among the running CGI programs.
    Programs,
    /// The proxy route of this number.
    Proxy(usize),
}

impl Programs {
    /// At most this many at once.
    pub fn new(most: usize) -> Self {
        Self {
            lane: Lane::new(most),
            leaving: Vec::new(),
            look_at: None,
            held: VecDeque::new(),
            errors: None,
        }
    }

    /// The running and waiting programs.
    pub fn lane(&mut self) -> &mut Lane {
        &mut self.lane
    }

    /// Calls the requests whose turn it is: waiting ones for which there is room, and those whose first output was held
    /// back for long enough.
    pub fn admit(&mut self, now: Instant, admitted: &mut VecDeque<Key>) {
        self.lane.admit(admitted);
        let due = self.held.partition_point(|(until, _)| *until <= now);
        admitted.extend(self.held.drain(..due).map(|(_, key)| key));
    }

    /// Holds back the first output of a program until then; the request then gets a turn.
    pub fn hold(&mut self, key: Key, until: Instant) -> Instant {
        self.held.push_back((until, key));
        until
    }

    /// It is over: nothing is held back any more.
    pub fn forget(&mut self, key: Key) {
        self.held.retain(|(_, held)| *held != key);
    }

    /// The end of a program that has answered is waited for.
    pub fn leave(&mut self, mut program: Program, now: Instant) {
        if program.ended().is_none() {
            self.leaving.push((program, now + AFTERLIFE));
            self.look_at.get_or_insert(now + LOOK);
        }
    }

    /// When [`Programs::look`] and [`Programs::admit`] are to be called.
    pub fn due(&self) -> Option<Instant> {
        self.look_at.into_iter().chain(self.held.front().map(|(until, _)| *until)).min()
    }

    /// Collects ended programs; returns those whose time is over.
    pub fn look(&mut self, now: Instant) -> Vec<Program> {
        let mut overdue = Vec::new();
        if self.look_at.is_some_and(|at| at <= now) {
            for (mut program, until) in std::mem::take(&mut self.leaving) {
                match program.ended() {
                    Some(_) => {}
                    None if until <= now => overdue.push(program),
                    None => self.leaving.push((program, until)),
                }
            }
            self.look_at = (!self.leaving.is_empty()).then(|| now + LOOK);
        }
        overdue
    }

    /// Where a program's errors go; `watch` is told of the other end once.
    pub fn errors(&mut self, watch: impl FnOnce(&File) -> io::Result<()>) -> io::Result<Arc<OwnedFd>> {
        let errors = match &mut self.errors {
            Some(errors) => errors,
            place => {
                let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
                rustix::io::ioctl_fionbio(&reader, true)?;
                let reader = File::from(reader);
                watch(&reader)?;
                place.insert(Errors { reader, writer: Arc::new(writer), begun: Vec::new() })
            }
        };
        Ok(Arc::clone(&errors.writer))
    }

    /// Lines that programs have written as errors; and whether there may be more at once.
    pub fn said(&mut self, buffer: &mut [u8]) -> (Vec<String>, bool) {
        let Some(errors) = &mut self.errors else { return (Vec::new(), false) };
        let Ok(count) = errors.reader.read(buffer) else { return (Vec::new(), false) };
        let mut lines = Vec::new();
        for &byte in &buffer[..count] {
            if byte != b'\n' {
                errors.begun.push(byte);
            }
            if byte == b'\n' || errors.begun.len() >= LINE {
                lines.push(String::from_utf8_lossy(&std::mem::take(&mut errors.begun)).into_owned());
            }
        }
        (lines, count == buffer.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(index: u32) -> Key {
        Key { index, generation: 0 }
    }

    #[test]
    fn a_free_slot_is_for_a_waiting_request_and_not_for_a_new_one() {
        let (mut lane, mut admitted) = (Lane::new(1), VecDeque::new());
        let first = lane.enter(key(1)).unwrap();
        assert!(lane.enter(key(2)).is_none());
        drop(first);
        assert!(lane.enter(key(3)).is_none(), "before the second is called");
        lane.admit(&mut admitted);
        assert_eq!(admitted, [key(2)]);
        assert!(lane.enter(key(4)).is_none(), "before the second has asked again");
        let second = lane.claim(key(2)).unwrap();
        drop((second, std::mem::take(&mut admitted)));
        lane.admit(&mut admitted);
        assert_eq!(admitted, [key(3)]);
    }

    #[test]
    fn who_waits_no_more_is_not_called_and_has_no_place() {
        let (mut lane, mut admitted) = (Lane::new(1), VecDeque::new());
        let first = lane.enter(key(1)).unwrap();
        (2..=4).for_each(|waits| assert!(lane.enter(key(waits)).is_none()));
        lane.give_up(key(2));
        drop(first);
        lane.admit(&mut admitted);
        assert_eq!(admitted, [key(3)]);
        lane.give_up(key(3));
        assert!(lane.claim(key(3)).is_none(), "it was called, and has given up meanwhile");
        lane.admit(&mut admitted);
        assert_eq!(admitted, [key(3), key(4)]);
    }

    #[test]
    fn a_place_is_kept_only_as_long_as_its_holder_may_still_ask() {
        let (mut lane, mut admitted) = (Lane::new(1), VecDeque::new());
        let first = lane.enter(key(1)).unwrap();
        (2..=3).for_each(|waits| assert!(lane.enter(key(waits)).is_none()));
        drop(first);
        lane.admit(&mut admitted);
        lane.admit(&mut admitted);
        assert_eq!(admitted, [key(2)], "called once, and waited for");
        // It has gone: its turn came, and it did not ask.
        admitted.clear();
        lane.admit(&mut admitted);
        assert_eq!(admitted, [key(3)]);
        assert!(lane.claim(key(3)).is_some());
    }
}
