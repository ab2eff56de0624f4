//! Selectors: the ways of asking the kernel which of many sockets are ready, side by side.
//!
//! The question of 2001 (D. Kegel's `Poller_bench`), asked again: of N sockets k are active; how many microseconds does
//! it take to detect them and to read from each? [`compare`] answers it for every [`Selector`] in turn, in an order
//! drawn anew for each block, so that what the machine does meanwhile falls on all alike.

mod selectors;

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use millrace_load::selector::{SELECTORS, Selector};
use serde::Serialize;

use self::selectors::{Epoll, Poll, Uring};
use millrace_load::limits::descriptors;
use millrace_stats::{Random, median};

/// The common interface.
trait Poller {
    /// Tells the tokens of all that are readable; waits until there is one.
    fn wait(&mut self, ready: &mut Vec<usize>) -> io::Result<()>;
}

/// How long nothing at all may happen.
const PATIENCE: Duration = Duration::from_secs(10);

/// The parameters of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Pairs of sockets.
    pub pairs: usize,
    /// How many of them become ready in each round.
    pub active: usize,
    /// How long each selector is measured, all its blocks together.
    pub time: Duration,
}

/// One selector's answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// The selector.
    pub selector: Selector,
    /// Microseconds for a round, the median: from the call until all active sockets were read.
    pub us_per_round: Option<f64>,
    /// Why it is missing.
    pub refused: Option<String>,
}

/// The most pairs that this process has descriptors for.
pub fn most_pairs() -> usize {
    usize::try_from(descriptors().saturating_sub(RESERVED) / 2).unwrap_or(usize::MAX)
}

/// Descriptors for everything else.
const RESERVED: u64 = 64;
/// Into this many blocks the time of each selector is cut.
const BLOCKS: u32 = 10;

/// Asks every selector.
pub fn compare(question: &Question) -> io::Result<Vec<Answer>> {
    let mut arena = Arena::new(question)?;
    let mut rounds: Vec<io::Result<Vec<f64>>> = SELECTORS.iter().map(|_| Ok(Vec::new())).collect();
    let mut order: Vec<usize> = (0..SELECTORS.len()).collect();
    let mut random = Random::new(1);
    for _ in 0..BLOCKS {
        random.shuffle(&mut order);
        for &at in &order {
            let Ok(times) = &mut rounds[at] else { continue };
            if let Err(error) = arena.block(SELECTORS[at].1, question.time / BLOCKS, &mut random, times) {
                rounds[at] = Err(error);
            }
        }
    }
    let answer = |((_, selector), times): (&(&str, Selector), io::Result<Vec<f64>>)| Answer {
        selector: *selector,
        us_per_round: times.as_ref().ok().and_then(|times| median(times)),
        refused: times.err().map(|error| error.to_string()),
    };
    Ok(SELECTORS.iter().zip(rounds).map(answer).collect())
}

/// The sockets, which all selectors share.
struct Arena {
    pairs: Vec<(UnixStream, UnixStream)>,
    active: usize,
}

impl Arena {
    fn new(question: &Question) -> io::Result<Self> {
        descriptors();
        let pair = |_| {
            let pair = UnixStream::pair()?;
            pair.0.set_nonblocking(true)?;
            Ok(pair)
        };
        let pairs = (0..question.pairs).map(pair).collect::<io::Result<Vec<_>>>()?;
        Ok(Self { active: question.active.min(pairs.len()), pairs })
    }

    /// Rounds of one selector for so long, and at least three; the first is not counted.
    fn block(
        &mut self,
        selector: Selector,
        time: Duration,
        random: &mut Random,
        times: &mut Vec<f64>,
    ) -> io::Result<()> {
        let sockets: Vec<&UnixStream> = self.pairs.iter().map(|pair| &pair.0).collect();
        let mut poller: Box<dyn Poller + '_> = match selector {
            Selector::Poll => Box::new(Poll::new(&sockets)),
            Selector::Epoll => Box::new(Epoll::new(&sockets, false)?),
            Selector::EpollEt => Box::new(Epoll::new(&sockets, true)?),
            Selector::IoUring => Box::new(Uring::new(&sockets)?),
        };
        let until = Instant::now() + time;
        let mut count = 0;
        while count < 4 || Instant::now() < until {
            let took = self.round(poller.as_mut(), random)?;
            if count > 0 {
                times.push(took.as_secs_f64() * 1e6);
            }
            count += 1;
        }
        Ok(())
    }

    /// Makes the active ones ready, and takes the time until each was read.
    fn round(&self, poller: &mut dyn Poller, random: &mut Random) -> io::Result<Duration> {
        // Spread evenly, from a random one on.
        let (first, step) = (random.below(self.pairs.len()), self.pairs.len() / self.active);
        for number in 0..self.active {
            (&self.pairs[(first + number * step) % self.pairs.len()].1).write_all(b"x")?;
        }
        let (mut ready, mut waiting) = (Vec::with_capacity(self.active), self.active);
        let begun = Instant::now();
        while waiting > 0 {
            poller.wait(&mut ready)?;
            if ready.is_empty() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it tells nothing of what is ready"));
            }
            for at in ready.drain(..) {
                // An edge or a completion may tell again of what was read already.
                match (&self.pairs[at].0).read(&mut [0; 8]) {
                    Ok(_) => waiting -= 1,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(begun.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_selector_answers_or_says_why_not() {
        let question = Question { pairs: 40, active: 7, time: Duration::from_millis(20) };
        let answers = compare(&question).unwrap();
        assert_eq!(answers.len(), SELECTORS.len());
        for answer in answers {
            let is_allowed_to_fail = answer.selector == Selector::IoUring;
            assert!(answer.us_per_round.is_some_and(|us| us > 0.0) || is_allowed_to_fail, "{answer:?}");
            assert!(answer.us_per_round.is_some() != answer.refused.is_some(), "{answer:?}");
        }
    }

    #[test]
    fn all_may_be_active() {
        let question = Question { pairs: 5, active: 99, time: Duration::from_millis(1) };
        assert!(compare(&question).unwrap()[1].us_per_round.is_some());
    }
}
