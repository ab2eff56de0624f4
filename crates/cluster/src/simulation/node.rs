//! A node of a simulated cluster: the real book, lease, bans and known locks, and the questions of its keeper and logins as
//! messages.
//!
//! The keeper here asks what `keeper.rs` asks, in that order; there it waits for each answer on a thread.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use millrace_limits::{BanRules, Bans};

use super::questions::{Answer, Question};
use super::tasks::Task;
use crate::ban_sync::BanSync;
use crate::book::{Begun, Book, Ended};
use crate::known_locks::KnownLocks;
use crate::lease::{Duty, LeaseTimes};
use crate::places::Timing;
use crate::scope::{Claim, SharedScope};
use crate::table::{Epoch, Renewal};

pub(super) const LEASE: Duration = Duration::from_secs(6);
/// How long after an errand the next one is looked for more often.
const HASTE: Duration = Duration::from_secs(10);
/// Tallies of failures that are told at a time.
const TALLIES: usize = 256;

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

/// What a turn of the keeper does behind the exchange of bans, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Unlock,
    Locks,
    PullFailures,
    PushFailures,
    Rate,
    Errands,
}

/// A turn of the keeper.
#[derive(Debug, Clone, Copy)]
struct Turn {
    began: Instant,
    /// Whether it is one of exchange.
    is_time: bool,
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
    last: Option<Epoch>,
    /// `None` between turns.
    turn: Option<Turn>,
    /// When the question of this turn was sent, and when that for locks of WebDAV was.
    sent: Instant,
    asked: Instant,
    /// Whether something asks for a turn now.
    is_urgent: bool,
    /// Locks of uploads to give back, and those that this node has or is about to.
    pub(super) ended: Vec<u64>,
    pub(super) open: HashSet<u64>,
    pub(super) locks: KnownLocks,
    /// The first registration, and up to where failures are read.
    origin: Option<Epoch>,
    read: i64,
    /// What is wanted of the rate, and by how many transfers; and the part of it that the node has.
    pub(super) wants: Option<(u64, u64)>,
    pub(super) part: u64,
    has_parts: bool,
    hasty_until: Option<Instant>,
    pub(super) is_performing: bool,
    /// What an answer has made due.
    pub(super) begins: Vec<Task>,
}

impl Node {
    pub(super) fn new(now: Instant) -> Self {
        let Timing { lease, renewal, exchange } = Timing::of_lease(LEASE);
        let bans = Bans::new(BanRules::default());
        bans.begin_sharing();
        Self {
            book: Book::new(LeaseTimes { length: lease, renewal, pause: exchange }),
            bans,
            sessions: Vec::new(),
            sync: BanSync::default(),
            exchange: now,
            pause: exchange,
            synced: None,
            last: None,
            turn: None,
            sent: now,
            asked: now,
            is_urgent: false,
            ended: Vec::new(),
            open: HashSet::new(),
            locks: KnownLocks::default(),
            origin: None,
            read: 0,
            wants: None,
            part: 0,
            has_parts: false,
            hasty_until: None,
            is_performing: false,
            begins: Vec::new(),
        }
    }

    /// Stands for `Keeper::turn`, unless the keeper waits for an answer.
    pub(super) fn wake(&mut self, now: Instant) -> Option<Question> {
        if self.turn.is_some() {
            return None;
        }
        self.is_urgent = false;
        let is_time = now >= self.exchange;
        (self.turn, self.sent) = (Some(Turn { began: now, is_time }), now);
        match self.book.duty(now, is_time) {
            Duty::Rest => self.exchange_bans(now),
            Duty::Register(replaces) => Some(self.register(replaces)),
            Duty::Renew(epoch) => Some(Question::Renew(epoch, self.book.take_freed())),
        }
    }

    /// Returns whether the keeper was called.
    pub(super) fn is_called(&self) -> bool {
        self.is_urgent && self.turn.is_none()
    }

    /// A write under this epoch has no answer.
    pub(super) fn unanswered(&mut self, epoch: Epoch) {
        self.book.lease.doubt(epoch);
        self.is_urgent = true;
    }

    fn register(&mut self, replaces: Option<Epoch>) -> Question {
        Question::Register(replaces.or(self.last), self.book.places_to_register())
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
                self.last = Some(epoch);
                self.book.lease.hold(epoch, self.sent);
                self.exchange_bans(now)
            }
            (Question::Renew(epoch, _), Some(Answer::Renewed(renewal))) => {
                self.book.renewed(epoch, self.sent, Some(renewal));
                if renewal == Renewal::Fenced {
                    self.sent = now;
                    return Some(self.register(None));
                }
                self.exchange_bans(now)
            }
            (Question::Pull(_), Some(Answer::Pulled(pulled))) => {
                self.sync.adopt(pulled, &self.bans, now);
                self.synced = self.book.lease.epoch();
                self.push_bans(now)
            }
            (Question::Push(epoch, changes), Some(Answer::Pushed(renewal))) => {
                match renewal {
                    Renewal::Kept => self.sync.written(&changes, now),
                    Renewal::Fenced => self.book.lease.fence(epoch),
                }
                self.go_on(Step::Unlock, now)
            }
            (question, Some(answer)) => self.answer_step(question, answer, now),
            (question, None) => self.fail(question, now),
        }
    }

    /// Goes on behind the exchange of bans.
    fn answer_step(&mut self, question: Question, answer: Answer, now: Instant) -> Option<Question> {
        match (question, answer) {
            (Question::Unlock(..), Answer::Done) => self.go_on(Step::Locks, now),
            (Question::PullLocks(_), Answer::NewLocks(new)) => {
                self.locks.learn(new, self.asked, now);
                self.go_on(Step::PullFailures, now)
            }
            (Question::PullFailures(..), Answer::Failures(tallies, edition)) => {
                self.read = edition;
                tallies.iter().for_each(|tally| _ = self.bans.learn_failures(tally, now));
                self.go_on(Step::PushFailures, now)
            }
            (Question::PushFailures(epoch, ..), Answer::Pushed(renewal)) => {
                if renewal == Renewal::Fenced {
                    self.book.lease.fence(epoch);
                }
                self.go_on(Step::Rate, now)
            }
            (Question::ShareRate(_, wish), Answer::Part(part)) => {
                if let Some(part) = part {
                    self.has_parts = wish.is_some_and(|(_, weight)| weight > 0);
                    self.part = part;
                }
                self.go_on(Step::Errands, now)
            }
            (Question::TakeErrands(_), Answer::Errands(numbers)) => {
                if !numbers.is_empty() {
                    self.hasty_until = Some(now + HASTE);
                    self.is_performing = true;
                    self.begins.push(Task::Perform { numbers });
                }
                self.end_turn()
            }
            (question, _) => self.fail(question, now),
        }
    }

    /// Ends the turn with a question that has no answer.
    fn fail(&mut self, question: Question, now: Instant) -> Option<Question> {
        match question {
            Question::Renew(epoch, _) => self.book.renewed(epoch, self.sent, None),
            Question::Unlock(_, numbers) => self.ended.extend(numbers),
            _ => {}
        }
        self.book.lease.put_off(now);
        self.end_turn()
    }

    fn exchange_bans(&mut self, now: Instant) -> Option<Question> {
        let Some(epoch) = self.book.lease.epoch() else { return self.end_turn() };
        if self.is_time() || self.synced != Some(epoch) {
            return Some(Question::Pull(self.sync.edition()));
        }
        self.push_bans(now)
    }

    fn push_bans(&mut self, now: Instant) -> Option<Question> {
        let changes = self.sync.changes(&self.bans, now);
        match self.book.lease.epoch() {
            Some(epoch) if !changes.is_empty() => Some(Question::Push(epoch, changes)),
            _ => self.go_on(Step::Unlock, now),
        }
    }

    fn is_time(&self) -> bool {
        self.turn.is_some_and(|turn| turn.is_time)
    }

    /// Goes on with the turn from this step.
    fn go_on(&mut self, from: Step, now: Instant) -> Option<Question> {
        const STEPS: [Step; 6] =
            [Step::Unlock, Step::Locks, Step::PullFailures, Step::PushFailures, Step::Rate, Step::Errands];
        let rest = STEPS.into_iter().skip_while(|step| *step != from);
        for step in rest {
            if let Some(question) = self.question_of(step, now) {
                return Some(question);
            }
        }
        self.end_turn()
    }

    fn question_of(&mut self, step: Step, now: Instant) -> Option<Question> {
        let epoch = self.book.lease.epoch()?;
        let is_time = self.is_time();
        match step {
            Step::Unlock => {
                let ended = std::mem::take(&mut self.ended);
                (!ended.is_empty()).then_some(Question::Unlock(epoch, ended))
            }
            Step::Locks => {
                self.asked = now;
                (is_time && self.synced.is_some()).then_some(Question::PullLocks(self.locks.edition))
            }
            Step::PullFailures if is_time => {
                let origin = *self.origin.get_or_insert(epoch);
                Some(Question::PullFailures(origin, self.read))
            }
            Step::PushFailures if is_time => {
                let origin = *self.origin.get_or_insert(epoch);
                let tallies = self.bans.take_tallies(TALLIES, now);
                (!tallies.is_empty()).then_some(Question::PushFailures(epoch, origin, tallies))
            }
            Step::Rate if is_time => self.rate_question(epoch),
            Step::Errands => {
                let is_due = is_time || self.hasty_until.is_some_and(|until| now < until);
                (is_due && !self.is_performing).then_some(Question::TakeErrands(epoch))
            }
            _ => None,
        }
    }

    /// Stands for `Tree::demands` and `Keeper::share_rates`.
    fn rate_question(&mut self, epoch: Epoch) -> Option<Question> {
        let wish = self.wants.or((self.part > 0).then_some((0, 0)));
        if wish.is_none_or(|(_, weight)| weight == 0) {
            self.part = 0;
        }
        if wish.is_none() && !self.has_parts {
            return None;
        }
        self.has_parts = true;
        Some(Question::ShareRate(epoch, wish))
    }

    fn end_turn(&mut self) -> Option<Question> {
        if let Some(Turn { began, is_time: true }) = self.turn.take() {
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
            self.unanswered(epoch);
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
