//! A node's lease, as the node sees it: whether it may grant places, and what the keeper has to do next.
//!
//! ```text
//!             registered                        renewed
//!    Away ────────────────► Held ─────────────────────┐
//!     ▲                      │ ▲                      │
//!     │  fenced, or a write  │ └──────────────────────┘
//!     ├──────────────────────┤
//!     │  without an answer   │ `until` is over
//!     │                      ▼
//!     └─────────────────── Lapsed ── renewed ──► Held
//! ```
//!
//! Away and Lapsed grant nothing. A lease that has lapsed here may still be renewed: as long as the row of the epoch is
//! there, its places are counted. After a write without an answer nothing is known of what the database counts, so the node
//! registers anew, with the places that it has: what was written under the old epoch, or will be, is gone with it.
//!
//! `until` is counted from before the renewal was sent, and a tenth less: the node stops before the database's clock says so.

use std::time::{Duration, Instant};

use crate::table::Epoch;

/// How a lease is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaseTimes {
    /// How long it holds.
    pub(crate) length: Duration,
    /// How often it is renewed.
    pub(crate) renewal: Duration,
    /// How long after a failure it is tried again.
    pub(crate) pause: Duration,
}

/// What the keeper has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Registers; this registration ends with it.
    Register(Option<Epoch>),
    /// Renews.
    Renew(Epoch),
    /// Nothing.
    Rest,
}

/// A lease.
#[derive(Debug)]
pub(crate) struct Lease {
    times: LeaseTimes,
    state: State,
    /// When something is due.
    due: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Not registered, as far as is known; an earlier registration may still be there.
    Away(Option<Epoch>),
    Held(Epoch, Instant),
}

impl Lease {
    /// Of a node that has not registered.
    pub(crate) fn new(times: LeaseTimes) -> Self {
        Self { times, state: State::Away(None), due: None }
    }

    /// Returns the epoch under which places may be granted now.
    pub(crate) fn grants(&self, now: Instant) -> Option<Epoch> {
        match self.state {
            State::Held(epoch, until) if now < until => Some(epoch),
            _ => None,
        }
    }

    /// Returns the epoch of the registration, though it may have lapsed.
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        match self.state {
            State::Held(epoch, _) => Some(epoch),
            State::Away(_) => None,
        }
    }

    /// Returns what is to be done now.
    pub(crate) fn duty(&self, now: Instant) -> Duty {
        match self.state {
            _ if self.due.is_some_and(|due| now < due) => Duty::Rest,
            State::Away(replaces) => Duty::Register(replaces),
            State::Held(epoch, _) => Duty::Renew(epoch),
        }
    }

    /// The database has registered this epoch, or renewed it, as it was asked at `sent`.
    pub(crate) fn hold(&mut self, epoch: Epoch, sent: Instant) {
        self.state = State::Held(epoch, sent + self.times.length * 9 / 10);
        self.due = Some(sent + self.times.renewal);
    }

    /// The database has refused this epoch: it is to be registered anew at once.
    pub(crate) fn fence(&mut self, epoch: Epoch) {
        if self.epoch() == Some(epoch) {
            (self.state, self.due) = (State::Away(None), None);
        }
    }

    /// A write under this epoch has no answer: it is to be registered anew at once.
    pub(crate) fn doubt(&mut self, epoch: Epoch) {
        if self.epoch() == Some(epoch) {
            (self.state, self.due) = (State::Away(Some(epoch)), None);
        }
    }

    /// A question has failed at this time: it is tried again after a pause. The renewal of a lease that is held, whose own
    /// questions have answers, is not put off by it.
    pub(crate) fn put_off(&mut self, now: Instant) {
        let again = now + self.times.pause;
        self.due = match (self.state, self.due) {
            (State::Held(..), Some(due)) => Some(due.min(again)),
            _ => Some(again),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: LeaseTimes = LeaseTimes {
        length: Duration::from_secs(6),
        renewal: Duration::from_secs(2),
        pause: Duration::from_secs(1),
    };

    fn after(start: Instant, millis: u64) -> Instant {
        start + Duration::from_millis(millis)
    }

    #[test]
    fn a_node_grants_from_its_registration_until_its_lease_is_nearly_over() {
        let start = Instant::now();
        let mut lease = Lease::new(TIMES);
        assert_eq!((lease.grants(start), lease.duty(start)), (None, Duty::Register(None)));
        lease.hold(Epoch(1), start);
        assert_eq!(lease.grants(after(start, 5399)), Some(Epoch(1)));
        assert_eq!(lease.grants(after(start, 5400)), None, "it stops before the database's clock says so");
        assert_eq!(lease.duty(after(start, 1999)), Duty::Rest);
        assert_eq!(lease.duty(after(start, 2000)), Duty::Renew(Epoch(1)));
    }

    #[test]
    fn a_lease_that_has_lapsed_is_renewed_and_counts_from_before_the_question() {
        let start = Instant::now();
        let mut lease = Lease::new(TIMES);
        lease.hold(Epoch(1), start);
        let late = after(start, 60_000);
        assert_eq!((lease.grants(late), lease.duty(late)), (None, Duty::Renew(Epoch(1))));
        lease.hold(Epoch(1), late);
        assert_eq!(lease.grants(after(late, 5000)), Some(Epoch(1)));
    }

    #[test]
    fn a_fenced_node_registers_anew_at_once_and_an_old_refusal_means_nothing() {
        let start = Instant::now();
        let mut lease = Lease::new(TIMES);
        lease.hold(Epoch(1), start);
        lease.fence(Epoch(1));
        assert_eq!((lease.grants(start), lease.duty(start)), (None, Duty::Register(None)));
        lease.hold(Epoch(2), start);
        lease.fence(Epoch(1));
        lease.doubt(Epoch(1));
        assert_eq!(lease.grants(start), Some(Epoch(2)));
    }

    #[test]
    fn bans_that_cannot_be_exchanged_do_not_put_a_renewal_off() {
        let start = Instant::now();
        let mut lease = Lease::new(TIMES);
        lease.hold(Epoch(1), start);
        lease.put_off(after(start, 1900));
        assert_eq!(lease.duty(after(start, 2000)), Duty::Renew(Epoch(1)));
    }

    #[test]
    fn after_a_write_without_an_answer_the_registration_is_replaced_and_nothing_granted_until_then() {
        let start = Instant::now();
        let mut lease = Lease::new(TIMES);
        lease.hold(Epoch(1), start);
        lease.doubt(Epoch(1));
        assert_eq!((lease.grants(start), lease.epoch()), (None, None));
        assert_eq!(lease.duty(start), Duty::Register(Some(Epoch(1))));
        lease.put_off(start);
        assert_eq!(lease.duty(after(start, 999)), Duty::Rest);
        assert_eq!(lease.duty(after(start, 1000)), Duty::Register(Some(Epoch(1))));
    }
}
