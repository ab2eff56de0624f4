//! When a signal is tried again, and what the log is told of it. A value without a clock.
//!
//! The log has one line when the collector stops taking a signal, and one when it takes all of it again.

use std::time::Duration;

use super::collector::Answer;

/// How long the first repetition waits; each further one twice as long.
const FIRST: Duration = Duration::from_secs(5);

/// How long any waits at most.
const LONGEST: Duration = Duration::from_secs(60);

/// How long it waits at most where the collector says how long.
const LONGEST_ASKED: Duration = Duration::from_secs(600);

/// What is known of a collector and a signal.
#[derive(Debug, Default)]
pub(crate) struct Link {
    /// Answers in a row after which it was to be tried again.
    failures: u32,
    is_bad: bool,
}

/// What follows from an answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// What the log is told.
    pub(crate) told: Option<String>,
    /// How much of what was sent is lost.
    pub(crate) lost: u64,
    /// The same is to be sent again, after this time.
    pub(crate) again: Option<Duration>,
}

impl Link {
    /// Returns whether the last answer was not the best.
    pub(crate) fn is_bad(&self) -> bool {
        self.is_bad
    }

    /// Notes the answer to a post of `sent` things.
    pub(crate) fn note(&mut self, answer: Answer, sent: u64) -> Outcome {
        let was_bad = self.is_bad;
        self.is_bad = answer != Answer::Taken;
        let mut outcome = Outcome::default();
        let why = match answer {
            Answer::Taken => "takes all of it again".to_owned(),
            Answer::Partly(rejected, why) => {
                outcome.lost = rejected.min(sent);
                why
            }
            Answer::Refused(why) => {
                outcome.lost = sent;
                why
            }
            Answer::Later(why, asked) => {
                let backoff = FIRST.saturating_mul(2_u32.saturating_pow(self.failures)).min(LONGEST);
                outcome.again = Some(asked.map_or(backoff, |asked| asked.clamp(FIRST, LONGEST_ASKED)));
                format!("{why}; tried again")
            }
        };
        self.failures = if outcome.again.is_some() { self.failures.saturating_add(1) } else { 0 };
        outcome.told = (was_bad != self.is_bad).then_some(why);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn later(seconds: Option<u64>) -> Answer {
        Answer::Later("it answers 503".to_owned(), seconds.map(Duration::from_secs))
    }

    #[test]
    fn a_dead_collector_is_tried_ever_less_often_and_told_of_once() {
        let mut link = Link::default();
        let outcomes: Vec<_> = (0..7).map(|_| link.note(later(None), 5)).collect();
        let waits: Vec<_> = outcomes.iter().map(|outcome| outcome.again.unwrap().as_secs()).collect();
        assert_eq!(waits, [5, 10, 20, 40, 60, 60, 60]);
        let told: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.told.as_deref()).collect();
        assert_eq!(told, ["it answers 503; tried again"]);
        assert!(link.is_bad() && outcomes.iter().all(|outcome| outcome.lost == 0));
        let told = Some("takes all of it again".to_owned());
        assert_eq!(link.note(Answer::Taken, 5), Outcome { told, ..Outcome::default() });
        assert_eq!(link.note(Answer::Taken, 5), Outcome::default());
        assert_eq!(link.note(later(None), 5).again, Some(FIRST), "it begins anew");
    }

    #[test]
    fn the_collector_says_how_long_within_reason() {
        let mut link = Link::default();
        for (asked, waits) in [(30, 30), (0, 5), (86_400, 600)] {
            assert_eq!(link.note(later(Some(asked)), 5).again, Some(Duration::from_secs(waits)));
        }
    }

    #[test]
    fn what_is_refused_is_lost_and_not_tried_again() {
        let mut link = Link::default();
        let refused = link.note(Answer::Refused("it answers 400".to_owned()), 5);
        assert_eq!(refused, Outcome { told: Some("it answers 400".to_owned()), lost: 5, again: None });
        let partly = link.note(Answer::Partly(2, "it rejects 2".to_owned()), 5);
        assert_eq!(partly, Outcome { told: None, lost: 2, again: None });
        assert_eq!(link.note(Answer::Partly(u64::MAX, String::new()), 5).lost, 5);
    }
}
