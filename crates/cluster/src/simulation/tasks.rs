//! What a client or an administrator has a simulated node do that asks the database more than once: a piece of a resumable
//! upload (`uploads.rs`), an errand (`asking.rs`), a lock of WebDAV. There each waits on a thread; here each is a state.

use std::time::{Duration, Instant};

use super::node::Node;
use super::questions::{Answer, Question};
use crate::table::{Epoch, Locking};

/// How long an errand's answers are waited for, and how often they are looked for.
const PATIENCE: Duration = Duration::from_millis(2500);
const PAUSE: Duration = Duration::from_millis(50);

/// What a task does next.
#[derive(Debug)]
pub(super) enum Next {
    Ask(Question),
    Wait(Duration),
    End,
}

/// What a task has found, for the invariants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fact {
    /// The node writes the upload of this key under its lock of this number, and nothing has told it otherwise.
    Writes(u64, u64),
    /// The upload is told to be a file.
    IsFile(u64),
    /// The node performs an errand.
    Performs(u64),
    /// An errand of these numbers has these answers, and waits no longer.
    Answered(Vec<u64>, Vec<u64>),
    /// A client has this lock.
    HasLock(u64),
    /// A client gives this lock back.
    EndsLock(u64),
}

/// A task.
#[derive(Debug)]
pub(super) enum Task {
    /// A piece, or the last one.
    Upload {
        key: u64,
        number: u64,
        held: Option<Epoch>,
        asked: Option<Epoch>,
        lasts: Duration,
        is_last: bool,
    },
    /// An errand to all others.
    Errand { sent: Vec<u64>, missing: Vec<u64>, end: Option<Instant> },
    /// Errands of others, which the node performs one after the other.
    Perform { numbers: Vec<u64> },
    /// A lock that its client holds for a while, and gives back.
    Lock { place: u8, token: u64, left: Duration, lasts: Duration },
}

impl Task {
    /// Begins.
    pub(super) fn begin(&mut self, node: &mut Node, now: Instant, facts: &mut Vec<Fact>) -> Next {
        match self {
            Self::Upload { key, number, held, .. } => {
                if !node.open.insert(*key) {
                    return Next::End;
                }
                let Some(epoch) = node.book.lease.grants(now) else { return self.end(node) };
                *held = Some(epoch);
                Next::Ask(Question::LockUpload(epoch, *key, *number))
            }
            Self::Errand { .. } => match node.book.lease.epoch() {
                Some(epoch) => Next::Ask(Question::SendErrand(epoch)),
                None => Next::End,
            },
            Self::Perform { numbers } => perform(numbers, node, facts),
            Self::Lock { place, token, left, .. } => match node.book.lease.grants(now) {
                Some(_) => Next::Ask(Question::GiveLock(*place, *token, *left)),
                None => Next::End,
            },
        }
    }

    /// The time that it has waited for has come.
    pub(super) fn wake(&mut self, node: &mut Node, now: Instant, facts: &mut Vec<Fact>) -> Next {
        match self {
            Self::Upload { key, number, held, asked, .. } => {
                *asked = node.book.lease.grants(now);
                match *asked {
                    Some(_) if *asked == *held => self.writes(node, now, facts),
                    Some(_) => Next::Ask(Question::HoldsUpload(*key, *number)),
                    None => self.end(node),
                }
            }
            Self::Errand { missing, .. } => Next::Ask(Question::Answers(missing.clone())),
            Self::Perform { numbers } => perform(numbers, node, facts),
            Self::Lock { token, .. } => {
                facts.push(Fact::EndsLock(*token));
                Next::Ask(Question::ReleaseLock(*token))
            }
        }
    }

    /// Goes on with an answer; `None`: there is none in time.
    pub(super) fn answer(
        &mut self,
        node: &mut Node,
        (question, answer): (&Question, Option<Answer>),
        now: Instant,
        facts: &mut Vec<Fact>,
    ) -> Next {
        match self {
            Self::Upload { .. } => self.answer_upload(node, (question, answer), now, facts),
            Self::Errand { .. } => self.answer_errand(answer, now, facts),
            // Who does not hear it, waits no longer.
            Self::Perform { numbers } => perform(numbers, node, facts),
            Self::Lock { token, lasts, .. } => match answer {
                Some(Answer::Whether(true)) => {
                    facts.push(Fact::HasLock(*token));
                    Next::Wait(*lasts)
                }
                _ => Next::End,
            },
        }
    }

    fn answer_upload(
        &mut self,
        node: &mut Node,
        (question, answer): (&Question, Option<Answer>),
        now: Instant,
        facts: &mut Vec<Fact>,
    ) -> Next {
        let Self::Upload { key, held, asked, lasts, .. } = self else { return Next::End };
        match (question, answer) {
            (Question::LockUpload(..), Some(Answer::Locked(Locking::Locked))) => Next::Wait(*lasts),
            (Question::LockUpload(epoch, ..), Some(Answer::Locked(locking))) => {
                *held = None;
                if locking == Locking::Fenced {
                    node.book.lease.fence(*epoch);
                }
                self.end(node)
            }
            (Question::LockUpload(epoch, ..), _) => {
                node.unanswered(*epoch);
                self.end(node)
            }
            (Question::HoldsUpload(..), Some(Answer::Whether(true)))
                if node.book.lease.grants(now) == *asked =>
            {
                self.writes(node, now, facts)
            }
            (Question::FinishUpload(..), answer) => {
                if matches!(answer, Some(Answer::Whether(true))) {
                    facts.push(Fact::IsFile(*key));
                }
                self.release(node, now)
            }
            (Question::ReleaseUpload(..), Some(Answer::Done)) => {
                *held = None;
                self.end(node)
            }
            _ => self.end(node),
        }
    }

    /// The lock is this node's, as far as it knows.
    fn writes(&mut self, node: &mut Node, now: Instant, facts: &mut Vec<Fact>) -> Next {
        let Self::Upload { key, number, is_last, .. } = self else { return Next::End };
        facts.push(Fact::Writes(*key, *number));
        if *is_last && node.book.lease.grants(now).is_some() {
            return Next::Ask(Question::FinishUpload(*key, *number));
        }
        self.release(node, now)
    }

    fn release(&mut self, node: &mut Node, now: Instant) -> Next {
        let Self::Upload { key, number, .. } = self else { return Next::End };
        match node.book.lease.grants(now) {
            Some(_) => Next::Ask(Question::ReleaseUpload(*key, *number)),
            None => self.end(node),
        }
    }

    /// Stands for the drop of an `UploadLock`.
    fn end(&mut self, node: &mut Node) -> Next {
        if let Self::Upload { key, number, held, .. } = self {
            if held.take().is_some() {
                node.ended.push(*number);
            }
            node.open.remove(key);
        }
        Next::End
    }

    fn answer_errand(&mut self, answer: Option<Answer>, now: Instant, facts: &mut Vec<Fact>) -> Next {
        let Self::Errand { sent, missing, end } = self else { return Next::End };
        let Some(Answer::Errands(numbers)) = answer else { return Next::End };
        let Some(last) = *end else {
            // They are those that were sent.
            *end = Some(now + PATIENCE);
            sent.clone_from(&numbers);
            *missing = numbers;
            return if missing.is_empty() { Next::End } else { Next::Wait(PAUSE) };
        };
        missing.retain(|number| !numbers.contains(number));
        if !missing.is_empty() && now < last {
            return Next::Wait(PAUSE);
        }
        let heard = sent.iter().filter(|number| !missing.contains(number)).copied().collect();
        facts.push(Fact::Answered(sent.clone(), heard));
        Next::Ask(Question::EndErrands(sent.clone()))
    }
}

/// Performs the next errand.
fn perform(numbers: &mut Vec<u64>, node: &mut Node, facts: &mut Vec<Fact>) -> Next {
    let Some(number) = numbers.pop() else {
        node.is_performing = false;
        return Next::End;
    };
    facts.push(Fact::Performs(number));
    Next::Ask(Question::AnswerErrand(number))
}
