//! Which sessions of one address keep their TLS sessions apart, so that a ticket tells whose a data connection is.
//!
//! Some clients have one cache for all their sessions (rclone, curl with `-Z`), and show any of their tickets anywhere:
//! on a shared port, one session's upload would become another's. Two sessions are known to be apart if both hold:
//!
//! - By control: the later one's control connection showed nothing, though the earlier one's client surely held a ticket
//!   when that hello was made. Most caches that hold a ticket are asked there, too.
//! - By data: a data connection of one of them has shown its own session's ticket, though the other's client surely held
//!   one that was given later. A cache that data connections alone ask would have shown that one.
//!
//! Sessions that are not known to be apart share no port.
//!
//! A command proves which tickets its client holds: it has read those before the earlier replies. This does not hold
//! for a client that pipelines commands, so nothing is known of such a session ([`Companion::runs_ahead`]).
//!
//! ```text
//!   Spent --handshake, or another ticket behind a used one--> Given --a reply behind it--> Told --a command--> Held
//!     ^                                                                                                         |
//!     +------- a data connection may use it up (TLS 1.3: clients show each ticket once) <-----------------------+
//! ```

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_net::tls::{Hello, TicketId};

/// How many sessions of an address are compared with a new one: the latest.
const MOST: usize = 128;

/// What is certain about the tickets that a session's client holds.
#[derive(Clone, Copy)]
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
    /// The last ticket, by the order in which they were all given, times four; and a [`Stage`]. Changed by its own thread.
    state: AtomicU64,
}

impl Own {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { number: NEXT.fetch_add(1, Ordering::Relaxed), state: AtomicU64::new(0) }
    }

    fn set(&self, ticket: u64, stage: Stage) {
        self.state.store(ticket << 2 | stage as u64, Ordering::Relaxed);
    }

    fn is_at(&self, stage: Stage) -> bool {
        self.state.load(Ordering::Relaxed) & 3 == stage as u64
    }

    fn step(&self, from: Stage, to: Stage) {
        if self.is_at(from) {
            self.set(self.ticket(), to);
        }
    }

    /// The last one.
    fn ticket(&self) -> u64 {
        self.state.load(Ordering::Relaxed) >> 2
    }

    /// The one that its client surely holds.
    fn held(&self) -> Option<u64> {
        let state = self.state.load(Ordering::Relaxed);
        (state & 3 == Stage::Held as u64).then_some(state >> 2)
    }
}

/// The sessions in TLS, by address.
#[derive(Debug, Clone, Default)]
pub struct Companions(Arc<Mutex<HashMap<IpAddr, VecDeque<Arc<Own>>>>>);

impl Companions {
    /// A session whose control connection is about to begin TLS. `is_old`: its hello may have been made before now.
    pub fn join(&self, client: IpAddr, is_old: bool) -> Companion {
        let own = Arc::new(Own::new());
        let mut all = self.lock();
        let others = all.entry(client).or_default();
        let holders = others.iter().filter(|other| !is_old && other.held().is_some());
        let by_control = holders.map(|other| other.number).collect();
        if others.len() == MOST {
            others.pop_front();
        }
        others.push_back(Arc::clone(&own));
        let (all, by_data) = (self.clone(), Arc::default());
        Companion { all, client, own, by_control, by_data, trial: None, lasting: false, ahead: false }
    }

    /// Locked to look at the sessions of an address.
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, VecDeque<Arc<Own>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session among those of its address, until this is dropped.
#[derive(Debug)]
pub struct Companion {
    all: Companions,
    client: IpAddr,
    own: Arc<Own>,
    /// The numbers of those before it that its control connection has shown nothing of, in order.
    by_control: Arc<[u64]>,
    /// Of those that a data connection of its own has shown nothing of.
    by_data: Arc<[u64]>,
    /// What the next data connection will show.
    trial: Option<Trial>,
    /// Its tickets are not used up.
    lasting: bool,
    /// Its client sends commands before it has the replies: what it has read is unknown.
    ahead: bool,
}

/// How it was before a data connection's hello was made.
#[derive(Debug)]
struct Trial {
    /// The session's own ticket.
    own: u64,
    /// Others, in order, and the tickets that they held, which were given later.
    later: Vec<(u64, u64)>,
}

impl Companion {
    /// The handshake of its control connection is over, and tickets were given.
    pub fn met(&mut self, hello: Option<&Hello>, is_tls12: bool) {
        // A session id has no meaning where TLS 1.3 is spoken.
        let is_blank = |hello: &Hello| hello.tickets.is_empty() && (!is_tls12 || hello.session_id.is_empty());
        if !hello.is_some_and(is_blank) {
            self.by_control = Arc::default();
        }
        self.lasting = is_tls12;
        self.given();
    }

    /// It was given a ticket.
    pub fn given(&self) {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        if !(self.lasting && self.own.held().is_some()) {
            self.own.set(NEXT.fetch_add(1, Ordering::Relaxed), Stage::Given);
        }
    }

    /// Replies were sent, behind what was given.
    pub fn told(&self) {
        self.own.step(Stage::Given, Stage::Told);
    }

    /// Returns true if it is of interest whether commands that have come were said behind the last replies.
    pub fn listens(&self) -> bool {
        !self.ahead && self.own.is_at(Stage::Told)
    }

    /// Commands have come that were said behind the last replies: what those stood behind was read.
    pub fn heard(&self) {
        if !self.ahead {
            self.own.step(Stage::Told, Stage::Held);
        }
    }

    /// The client has pipelined commands before reading replies. From now on its commands do not prove which tickets it
    /// holds; and it gets another number, so that others' conclusions about it no longer hold.
    pub fn runs_ahead(&mut self) {
        if std::mem::replace(&mut self.ahead, true) {
            return;
        }
        let (number, own) = (self.own.number, Arc::new(Own::new()));
        own.set(self.own.ticket(), Stage::Spent);
        let mut all = self.all.lock();
        // Later sessions may have displaced this one.
        if let Some(others) = all.get_mut(&self.client)
            && let Some(place) = others.iter().position(|other| other.number == number)
        {
            others.remove(place);
            others.push_back(Arc::clone(&own));
        }
        drop(all);
        self.own = own;
    }

    /// A port is about to be named: from now on a data connection may begin there, and use a ticket.
    pub fn expect_use(&mut self) {
        // The state before a connection that has not come applies to the next one, too, which may be that connection.
        if self.trial.is_none() {
            let own = self.own.ticket();
            let later = |other: &Arc<Own>| {
                let ticket = other.held().filter(|&ticket| ticket > own)?;
                self.by_data.binary_search(&other.number).is_err().then_some((other.number, ticket))
            };
            let all = self.all.lock();
            let later = all.get(&self.client).into_iter().flatten().filter_map(later).collect();
            drop(all);
            self.trial = Some(Trial { own, later });
        }
        self.may_use();
    }

    /// From now on a data connection may use a ticket.
    pub fn may_use(&self) {
        if !self.lasting {
            self.own.set(self.own.ticket(), Stage::Spent);
        }
    }

    /// A data connection has begun. `is_own`: by its own session's ticket.
    pub fn used(&mut self, is_own: bool) {
        let Some(trial) = self.trial.take() else { return };
        if !is_own || trial.own != self.own.ticket() || trial.later.is_empty() {
            return;
        }
        let all = self.all.lock();
        let is_apart = |other: &Own| {
            let held = other.held().map(|ticket| (other.number, ticket));
            self.by_data.binary_search(&other.number).is_ok()
                || held.is_some_and(|held| trial.later.binary_search(&held).is_ok())
        };
        let others = all.get(&self.client).into_iter().flatten();
        let apart = others.filter(|other| is_apart(other)).map(|other| other.number).collect();
        drop(all);
        self.by_data = apart;
    }

    /// Identifies its data connections.
    pub fn mark(&self, badge: TicketId) -> Mark {
        let (by_control, by_data) = (Arc::clone(&self.by_control), Arc::clone(&self.by_data));
        Mark { badge, number: self.own.number, by_control, by_data }
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

/// Identifies a session's data connections among those of sessions that are apart from it.
#[derive(Debug, Clone)]
pub struct Mark {
    badge: TicketId,
    number: u64,
    by_control: Arc<[u64]>,
    by_data: Arc<[u64]>,
}

impl Mark {
    /// Returns true if neither's client shows the other's tickets.
    pub(super) fn is_apart_from(&self, other: &Self) -> bool {
        let is_among = |number, known: &[u64]| known.binary_search(&number).is_ok();
        let either = |known: fn(&Self) -> &[u64]| {
            is_among(other.number, known(self)) || is_among(self.number, known(other))
        };
        either(|mark| &mark.by_control) && either(|mark| &mark.by_data)
    }

    /// Returns true if a connection which begins like this is its session's.
    pub(super) fn is_shown_by(&self, hello: &Hello) -> bool {
        self.badge.is_shown_by(hello)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    /// By control.
    fn apart(one: &Companion, other: &Companion) -> bool {
        one.by_control.contains(&other.own.number) || other.by_control.contains(&one.own.number)
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
    fn a_client_without_tickets_is_apart_from_those_that_hold_some() {
        let all = Companions::default();
        let (first, second) = (holder(&all, false), holder(&all, false));
        assert!(apart(&first, &second) && apart(&second, &first));
        let stranger = all.join(IpAddr::from([192, 0, 2, 1]), false);
        assert!(!apart(&first, &stranger), "of another address nothing is known");
    }

    #[test]
    fn a_client_that_shows_any_ticket_or_may_have_begun_before_is_apart_from_none() {
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
    fn a_session_that_begins_while_a_ticket_is_not_surely_held_is_not_apart() {
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
    fn a_client_that_shows_its_own_ticket_is_apart_from_those_with_later_ones() {
        let all = Companions::default();
        for (is_tls12, is_own) in [(true, true), (false, true), (true, false), (false, false)] {
            let (mut first, mut second) = (holder(&all, is_tls12), holder(&all, is_tls12));
            second.expect_use();
            second.used(true);
            assert!(second.by_data.is_empty(), "what was given before may be hidden by its own");
            second.given();
            second.told();
            second.heard();
            first.expect_use();
            first.used(is_own);
            let expected: &[u64] = if is_own { &[second.own.number] } else { &[] };
            assert_eq!(*first.by_data, *expected, "{is_tls12}");
        }
    }

    #[test]
    fn tickets_given_or_used_meanwhile_prove_nothing() {
        fn wait_for_its_port(second: &mut Companion) {
            second.expect_use();
        }
        fn get_another(second: &mut Companion) {
            second.may_use();
            second.given();
            second.told();
            second.heard();
        }
        let all = Companions::default();
        for meanwhile in [wait_for_its_port, get_another] {
            let (mut first, mut second) = (holder(&all, false), holder(&all, false));
            first.expect_use();
            meanwhile(&mut second);
            first.used(true);
            assert!(first.by_data.is_empty());
        }
        // Its own ticket may be the later one by now, or was when a connection began that was not looked up yet.
        let (mut first, _second) = (holder(&all, false), holder(&all, false));
        first.expect_use();
        first.given();
        first.used(true);
        assert!(first.by_data.is_empty());
        let mut first = holder(&all, false);
        first.expect_use();
        let second = holder(&all, false);
        first.expect_use();
        first.used(true);
        assert!(first.by_data.is_empty());
        first.expect_use();
        first.used(true);
        assert_eq!(*first.by_data, [second.own.number]);
    }

    #[test]
    fn a_client_that_pipelines_is_not_known_to_be_apart() {
        for is_tls12 in [true, false] {
            let all = Companions::default();
            let mut first = holder(&all, is_tls12);
            let mut second = holder(&all, is_tls12);
            first.expect_use();
            first.used(true);
            assert!(apart(&first, &second) && first.by_data.contains(&second.own.number));
            second.runs_ahead();
            assert!(!first.by_data.contains(&second.own.number), "what was known may have been wrong");
            first.given();
            first.told();
            first.heard();
            second.given();
            second.told();
            assert!(!second.listens());
            second.heard();
            let third = holder(&all, is_tls12);
            assert!(apart(&first, &third) && !apart(&second, &third), "it may have read nothing");
            drop(second);
            drop((first, third));
            assert!(all.lock().is_empty());
        }
    }

    #[test]
    fn the_state_of_an_address_is_bounded_and_removed_with_its_sessions() {
        let all = Companions::default();
        let sessions: Vec<_> = (0..=MOST).map(|_| holder(&all, true)).collect();
        assert!(!apart(&sessions[0], &all.join(CLIENT, false)));
        assert!(apart(&sessions[MOST], &all.join(CLIENT, false)));
        drop(sessions);
        assert!(all.lock().is_empty());
    }
}
