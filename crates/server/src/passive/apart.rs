//! Which sessions of one address keep their TLS sessions apart, so that a ticket tells whose a data connection is.
//!
//! Some clients have one cache for all their sessions (rclone, curl with `-Z`), and show any of their tickets anywhere:
//! on a port that is shared, one session's upload would become another's. What they show on a *control* connection gives
//! them away, for a cache that holds a ticket is asked there, too. So two sessions are known to be apart where the later
//! one's control connection showed nothing, though the earlier one's client surely held a ticket when that hello was
//! made. Whoever is not known to be apart shares no port.
//!
//! ```text
//!   Spent --handshake, or another ticket behind a used one--> Given --a reply behind it--> Told --a command--> Held
//!     ^                                                                                                         |
//!     +------- a data connection may use it up (TLS 1.3: clients show each ticket once) <-----------------------+
//! ```

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_net::tls::{Badge, Hello};

/// As many sessions of an address, the latest, are looked at when another begins.
const MOST: usize = 128;

/// What a session's client has of its tickets, as far as it is sure.
#[repr(u8)]
enum Stage {
    Spent,
    Given,
    Told,
    Held,
}

/// A session, as others of its address see it.
#[derive(Debug)]
struct Own {
    number: u64,
    /// A [`Stage`].
    stage: AtomicU8,
}

impl Own {
    fn set(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    fn step(&self, from: Stage, to: Stage) {
        let _ = self.stage.compare_exchange(from as u8, to as u8, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn holds(&self) -> bool {
        self.stage.load(Ordering::Relaxed) == Stage::Held as u8
    }
}

/// The sessions in TLS, by address.
#[derive(Debug, Clone, Default)]
pub(crate) struct Companions(Arc<Mutex<HashMap<IpAddr, VecDeque<Arc<Own>>>>>);

impl Companions {
    /// A session whose control connection is about to begin TLS. `is_old`: its hello may have been made before now.
    pub(crate) fn join(&self, client: IpAddr, is_old: bool) -> Companion {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let own = Arc::new(Own { number, stage: AtomicU8::new(Stage::Spent as u8) });
        let mut all = self.lock();
        let others = all.entry(client).or_default();
        let holders = others.iter().filter(|other| !is_old && other.holds());
        let apart = holders.map(|other| other.number).collect();
        if others.len() == MOST {
            others.pop_front();
        }
        others.push_back(Arc::clone(&own));
        Companion { all: self.clone(), client, own, apart, lasting: false }
    }

    /// Locked to look at the sessions of an address.
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, VecDeque<Arc<Own>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session among those of its address, until this is dropped.
#[derive(Debug)]
pub(crate) struct Companion {
    all: Companions,
    client: IpAddr,
    own: Arc<Own>,
    /// The numbers of those before it that it is known to be apart from.
    apart: Arc<[u64]>,
    /// Its tickets are not used up.
    lasting: bool,
}

impl Companion {
    /// The handshake of its control connection is over, and tickets were given.
    pub(crate) fn met(&mut self, hello: Option<&Hello>, is_tls12: bool) {
        // A session id has no meaning where TLS 1.3 is spoken.
        let is_blank = |hello: &Hello| hello.tickets.is_empty() && (!is_tls12 || hello.session_id.is_empty());
        if !hello.is_some_and(is_blank) {
            self.apart = Arc::default();
        }
        self.lasting = is_tls12;
        self.given();
    }

    /// It was given a ticket.
    pub(crate) fn given(&self) {
        if !(self.lasting && self.own.holds()) {
            self.own.set(Stage::Given);
        }
    }

    /// Replies were sent, behind what was given.
    pub(crate) fn told(&self) {
        self.own.step(Stage::Given, Stage::Told);
    }

    /// Commands have come: what the replies before them stood behind was read.
    pub(crate) fn heard(&self) {
        self.own.step(Stage::Told, Stage::Held);
    }

    /// From now on a data connection may use a ticket.
    pub(crate) fn may_use(&self) {
        if !self.lasting {
            self.own.set(Stage::Spent);
        }
    }

    /// What its data connections are known by.
    pub(crate) fn mark(&self, badge: Badge) -> Mark {
        Mark { badge, number: self.own.number, apart: Arc::clone(&self.apart) }
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        if let Some(others) = all.get_mut(&self.client) {
            others.retain(|other| other.number != self.own.number);
            if others.is_empty() {
                all.remove(&self.client);
            }
        }
    }
}

/// What a session's data connections are known by, beside those of sessions that are apart from it.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    badge: Badge,
    number: u64,
    apart: Arc<[u64]>,
}

impl Mark {
    /// Claims that neither's client shows what is the other's.
    pub(super) fn is_apart_from(&self, other: &Self) -> bool {
        self.apart.contains(&other.number) || other.apart.contains(&self.number)
    }

    /// Claims that a connection which begins like this is its session's.
    pub(super) fn is_shown_by(&self, hello: &Hello) -> bool {
        self.badge.is_shown_by(hello)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn apart(one: &Companion, other: &Companion) -> bool {
        one.apart.contains(&other.own.number) || other.apart.contains(&one.own.number)
    }

    /// A session that surely holds a ticket.
    fn holder(all: &Companions, is_tls12: bool) -> Companion {
        let mut session = all.join(CLIENT, false);
        session.met(Some(&Hello::default()), is_tls12);
        session.told();
        session.heard();
        session
    }

    #[test]
    fn who_shows_nothing_is_apart_from_those_that_hold_tickets() {
        let all = Companions::default();
        let (first, second) = (holder(&all, false), holder(&all, false));
        assert!(apart(&first, &second) && apart(&second, &first));
        let stranger = all.join(IpAddr::from([192, 0, 2, 1]), false);
        assert!(!apart(&first, &stranger), "of another address nothing is known");
    }

    #[test]
    fn who_shows_anything_or_may_have_begun_before_is_apart_from_nobody() {
        let all = Companions::default();
        let first = holder(&all, false);
        let ticket = Hello { tickets: vec![b"ticket".to_vec()], ..Hello::default() };
        let session = Hello { session_id: b"id".to_vec(), ..Hello::default() };
        for (hello, is_tls12, is_old, expected) in [
            (Some(&ticket), false, false, false),
            (Some(&session), true, false, false),
            (Some(&session), false, false, true),
            (None, false, false, false),
            (Some(&Hello::default()), false, true, false),
        ] {
            let mut other = all.join(CLIENT, is_old);
            other.met(hello, is_tls12);
            assert_eq!(apart(&first, &other), expected, "{hello:?} {is_tls12} {is_old}");
        }
    }

    #[test]
    fn whoever_begins_while_a_ticket_is_not_surely_held_is_not_apart() {
        for is_tls12 in [true, false] {
            let all = Companions::default();
            let mut first = all.join(CLIENT, false);
            assert!(!apart(&first, &all.join(CLIENT, false)));
            first.met(Some(&Hello::default()), is_tls12);
            first.heard();
            assert!(!apart(&first, &all.join(CLIENT, false)), "this may have been said before it was given");
            first.told();
            assert!(!apart(&first, &all.join(CLIENT, false)));
            first.heard();
            assert!(apart(&first, &all.join(CLIENT, false)));
            first.may_use();
            assert_eq!(apart(&first, &all.join(CLIENT, false)), is_tls12, "a ticket of TLS 1.3 is used once");
            first.given();
            first.told();
            first.heard();
            assert!(apart(&first, &all.join(CLIENT, false)));
        }
    }

    #[test]
    fn what_is_known_of_an_address_is_bounded_and_goes_with_its_sessions() {
        let all = Companions::default();
        let sessions: Vec<_> = (0..=MOST).map(|_| holder(&all, true)).collect();
        assert!(!apart(&sessions[0], &all.join(CLIENT, false)));
        assert!(apart(&sessions[MOST], &all.join(CLIENT, false)));
        drop(sessions);
        assert!(all.lock().is_empty());
    }
}
