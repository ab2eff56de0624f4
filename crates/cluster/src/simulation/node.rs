//! A node of a simulated cluster: the real book, lease and bans, and the questions of its keeper and logins as messages.
//!
//! The keeper here asks what `keeper.rs` asks, in that order; there it waits for each answer on a thread.

use std::time::{Duration, Instant};

use millrace_limits::{BanRules, Bans};

use crate::ban_sync::BanSync;
use crate::book::{Begun, Book, Ended};
use crate::lease::{Duty, LeaseTimes};
use crate::places::Timing;
use crate::scope::{Claim, SharedScope};
use crate::table::{BanChange, Epoch, Pulled, Renewal, Taking};

pub(super) const LEASE: Duration = Duration::from_secs(6);

/// A question to the database.
#[derive(Debug, Clone)]
pub(super) enum Question {
    Register(Option<Epoch>, Vec<(SharedScope, u64)>),
    Renew(Epoch, Vec<(SharedScope, u64)>),
    Take(Epoch, Vec<Claim>),
    Pull(i64),
    Push(Epoch, Vec<BanChange>),
}

impl Question {
    pub(super) fn is_of_bans(&self) -> bool {
        matches!(self, Self::Pull(_) | Self::Push(..))
    }
}

/// An answer of the database.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    Registered(Epoch),
    Renewed(Renewal),
    Taken(Taking),
    Pulled(Pulled),
    Pushed(Renewal),
}

/// A session that has its places.
#[derive(Debug, Clone)]
pub(super) struct Session {
    pub(super) claims: Vec<Claim>,
    epoch: Epoch,
    /// Whether its place went to others while its node was cut off: it runs on, over the limit.
    pub(super) is_excess: bool,
}

/// What comes of a login at once.
#[derive(Debug)]
pub(super) enum Login {
    Begun,
    Asks(Question),
    Refused,
}

/// A process of a node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) book: Book,
    pub(super) bans: Bans,
    pub(super) sessions: Vec<Session>,
    sync: BanSync,
    exchange: Instant,
    pause: Duration,
    synced: Option<Epoch>,
    /// When the turn of the keeper began, and whether it is one of exchange; `None` between turns.
    turn: Option<(Instant, bool)>,
    /// When the question of this turn was sent.
    sent: Instant,
}

impl Node {
    pub(super) fn new(now: Instant) -> Self {
        let Timing { lease, renewal, exchange } = Timing::of_lease(LEASE);
        Self {
            book: Book::new(LeaseTimes { length: lease, renewal, pause: exchange }),
            bans: Bans::new(BanRules::default()),
            sessions: Vec::new(),
            sync: BanSync::default(),
            exchange: now,
            pause: exchange,
            synced: None,
            turn: None,
            sent: now,
        }
    }

    /// Stands for `Keeper::turn`, unless the keeper waits for an answer.
    pub(super) fn wake(&mut self, now: Instant) -> Option<Question> {
        if self.turn.is_some() {
            return None;
        }
        let is_time = now >= self.exchange;
        (self.turn, self.sent) = (Some((now, is_time)), now);
        match self.book.duty(now, is_time) {
            Duty::Rest => self.exchange_bans(now),
            Duty::Register(replaces) => Some(self.register(replaces)),
            Duty::Renew(epoch) => Some(Question::Renew(epoch, self.book.take_freed())),
        }
    }

    fn register(&mut self, replaces: Option<Epoch>) -> Question {
        Question::Register(replaces, self.book.places_to_register())
    }

    /// Goes on with the turn. No answer: it was lost, or came too late.
    pub(super) fn answer_keeper(
        &mut self,
        question: Question,
        answer: Option<Answer>,
        now: Instant,
    ) -> Option<Question> {
        match (question, answer) {
            (Question::Register(..), Some(Answer::Registered(epoch))) => {
                self.book.lease.hold(epoch, self.sent)
            }
            (Question::Renew(epoch, _), Some(Answer::Renewed(renewal))) => {
                self.book.renewed(epoch, self.sent, Some(renewal));
                if renewal == Renewal::Fenced {
                    self.sent = now;
                    return Some(self.register(None));
                }
            }
            (Question::Pull(_), Some(Answer::Pulled(pulled))) => {
                self.sync.adopt(pulled, &self.bans, now);
                self.synced = self.book.lease.epoch();
                return self.push_bans(now);
            }
            (Question::Push(epoch, changes), Some(Answer::Pushed(renewal))) => {
                match renewal {
                    Renewal::Kept => self.sync.written(&changes, now),
                    Renewal::Fenced => self.book.lease.fence(epoch),
                }
                return self.end_turn();
            }
            (question, _) => {
                if let Question::Renew(epoch, _) = question {
                    self.book.renewed(epoch, self.sent, None);
                }
                self.book.lease.put_off(now);
                return self.end_turn();
            }
        }
        self.exchange_bans(now)
    }

    fn exchange_bans(&mut self, now: Instant) -> Option<Question> {
        let Some(epoch) = self.book.lease.epoch() else { return self.end_turn() };
        let is_time = self.turn.is_some_and(|(_, is_time)| is_time);
        if is_time || self.synced != Some(epoch) {
            return Some(Question::Pull(self.sync.edition()));
        }
        self.push_bans(now)
    }

    fn push_bans(&mut self, now: Instant) -> Option<Question> {
        let changes = self.sync.changes(&self.bans, now);
        match self.book.lease.epoch() {
            Some(epoch) if !changes.is_empty() => Some(Question::Push(epoch, changes)),
            _ => self.end_turn(),
        }
    }

    fn end_turn(&mut self) -> Option<Question> {
        if let Some((began, true)) = self.turn.take() {
            self.exchange = began + self.pause;
        }
        None
    }

    /// Begins a login, as `Shared::ask` does.
    pub(super) fn login(&mut self, claims: Vec<Claim>, now: Instant) -> Login {
        match self.book.begin(&claims, now) {
            Begun::Away => Login::Refused,
            Begun::Ask(epoch) => Login::Asks(Question::Take(epoch, claims)),
            Begun::Reused(epoch) => {
                self.sessions.push(Session { claims, epoch, is_excess: false });
                Login::Begun
            }
        }
    }

    /// Ends a login that has asked. Returns whether a session has begun.
    pub(super) fn answer_login(
        &mut self,
        epoch: Epoch,
        claims: Vec<Claim>,
        answer: Option<Answer>,
        now: Instant,
    ) -> bool {
        let Some(Answer::Taken(taking)) = answer else {
            self.book.lease.doubt(epoch);
            return false;
        };
        let begins = self.book.end(epoch, &claims, taking, now) == Ended::Taken;
        if begins {
            self.sessions.push(Session { claims, epoch, is_excess: false });
        }
        begins
    }

    /// Ends a session.
    pub(super) fn logout(&mut self, session: usize) {
        let ended = self.sessions.swap_remove(session);
        self.book.free(ended.epoch, &ended.claims);
    }

    /// Returns how many sessions have a place in this scope.
    pub(super) fn count(&self, scope: &SharedScope) -> u64 {
        let has = |session: &&Session| session.claims.iter().any(|claim| claim.scope == *scope);
        self.sessions.iter().filter(has).count() as u64
    }
}
