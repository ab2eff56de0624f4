//! When a signal is tried again, and what the log is told of it. A value without a clock and without chance.
//!
//! The log has a line when what the collector makes of a signal has changed: of a trouble one a minute at most.

use std::mem::{Discriminant, discriminant};
use std::time::{Duration, Instant};

use super::collector::Answer;

/// How long the first repetition waits; each further one twice as long.
const FIRST: Duration = Duration::from_secs(5);

/// How long any waits at most.
const LONGEST: Duration = Duration::from_secs(60);

/// How long it waits at most where the collector says how long.
const LONGEST_ASKED: Duration = Duration::from_secs(600);

/// A pause is longer by a share of itself that is drawn, up to one in this many: collectors that come back are not met by all of
/// their servers at once.
const JITTER: u32 = 4;

/// How long the log is told of no further trouble.
const QUIET: Duration = Duration::from_secs(60);

/// What is known of a collector and a signal.
#[derive(Debug, Default)]
pub(crate) struct Link {
    /// Answers in a row after which it was to be tried again.
    failures: u32,
    /// How long the next post waits, whatever is posted.
    pause: Duration,
    /// The kind of answer that the log was told of last, and when it was told of a trouble.
    told: Option<(Discriminant<Answer>, Instant)>,
}

/// What follows from an answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// What the log is told.
    pub(crate) told: Option<String>,
    /// How much of what was sent is lost.
    pub(crate) lost: u64,
    /// The same is to be sent again, after this time. It is also the pause of the link.
    pub(crate) again: Option<Duration>,
}

impl Link {
    /// Returns whether the collector took nothing last.
    pub(crate) fn is_away(&self) -> bool {
        self.failures > 0
    }

    /// Returns how long the next post has to wait.
    pub(crate) fn pause(&self) -> Duration {
        self.pause
    }

    /// Notes the answer to a post of `sent` things. `draw` is any number: what is tried again is not before its time, and up to
    /// a quarter of that later.
    pub(crate) fn note(&mut self, answer: Answer, sent: u64, now: Instant, draw: u64) -> Outcome {
        let (kind, is_taken) = (discriminant(&answer), answer == Answer::Taken);
        let is_news = match self.told {
            None => !is_taken,
            // That it is back is told at once: it follows what was told of a trouble.
            Some((told, at)) => told != kind && (is_taken || now.duration_since(at) >= QUIET),
        };
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
                let pause = asked.map_or(backoff, |asked| asked.clamp(FIRST, LONGEST_ASKED));
                outcome.again = Some(pause + (pause / JITTER).mul_f64(draw as f64 / u64::MAX as f64));
                format!("{why}; tried again")
            }
        };
        self.pause = outcome.again.unwrap_or_default();
        self.failures = if outcome.again.is_some() { self.failures.saturating_add(1) } else { 0 };
        if is_news {
            let troubled = self.told.filter(|_| is_taken).map_or(now, |(_, at)| at);
            self.told = Some((kind, troubled));
            outcome.told = Some(why);
        }
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
        let (mut link, begun) = (Link::default(), Instant::now());
        let outcomes: Vec<_> = (0..7).map(|_| link.note(later(None), 5, begun, 0)).collect();
        let waits: Vec<_> = outcomes.iter().map(|outcome| outcome.again.unwrap().as_secs()).collect();
        assert_eq!(waits, [5, 10, 20, 40, 60, 60, 60]);
        let told: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.told.as_deref()).collect();
        assert_eq!(told, ["it answers 503; tried again"]);
        assert!(link.is_away() && outcomes.iter().all(|outcome| outcome.lost == 0));
        let told = Some("takes all of it again".to_owned());
        assert_eq!(link.note(Answer::Taken, 5, begun, 0), Outcome { told, ..Outcome::default() });
        assert_eq!(link.note(Answer::Taken, 5, begun, 0), Outcome::default());
        assert_eq!(link.note(later(None), 5, begun, 0).told, None, "it is quiet for a minute");
        link.note(Answer::Taken, 5, begun, 0);
        assert_eq!(link.note(later(None), 5, begun + QUIET, 0).again, Some(FIRST), "it begins anew");
    }

    #[test]
    fn answers_that_alternate_are_two_lines_a_minute_and_an_outage_among_them_is_told() {
        let (mut link, begun) = (Link::default(), Instant::now());
        let second = |at: u32| begun + Duration::from_secs(1) * at;
        let refused = || Answer::Refused("it answers 413".to_owned());
        let answer = |at: u32| if at.is_multiple_of(2) { Answer::Taken } else { refused() };
        let told = (0..121).filter(|&at| link.note(answer(at), 5, second(at), 0).told.is_some()).count();
        assert_eq!(told, 4);
        assert_eq!(link.note(later(None), 5, second(190), 0).told.unwrap(), "it answers 503; tried again");
    }

    #[test]
    fn the_collector_says_how_long_within_reason() {
        let (mut link, now) = (Link::default(), Instant::now());
        for (asked, waits) in [(30, 30), (0, 5), (86_400, 600)] {
            assert_eq!(link.note(later(Some(asked)), 5, now, 0).again, Some(Duration::from_secs(waits)));
            assert_eq!(link.pause(), Duration::from_secs(waits), "of the next batch, too");
        }
        link.note(Answer::Taken, 5, now, 0);
        assert_eq!(link.pause(), Duration::ZERO);
    }

    #[test]
    fn a_pause_is_drawn_from_what_it_is_to_be_and_a_quarter_more() {
        let pause = |asked, draw| Link::default().note(later(asked), 5, Instant::now(), draw).again.unwrap();
        for (draw, first, asked) in
            [(0, 5000, 60_000), (u64::MAX / 2, 5625, 67_500), (u64::MAX, 6250, 75_000)]
        {
            assert_eq!(
                [pause(None, draw), pause(Some(60), draw)].map(|pause| pause.as_millis()),
                [first, asked]
            );
        }
    }

    #[test]
    fn what_is_refused_is_lost_and_not_tried_again() {
        let (mut link, now) = (Link::default(), Instant::now());
        let refused = link.note(Answer::Refused("it answers 400".to_owned()), 5, now, 0);
        assert_eq!(refused, Outcome { told: Some("it answers 400".to_owned()), lost: 5, again: None });
        let partly = link.note(Answer::Partly(2, "it rejects 2".to_owned()), 5, now, 0);
        assert_eq!(partly, Outcome { told: None, lost: 2, again: None });
        assert_eq!(link.note(Answer::Partly(u64::MAX, String::new()), 5, now, 0).lost, 5);
    }
}
