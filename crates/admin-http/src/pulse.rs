//! Whether workers turn: each is asked by its inbox, and answers in its next turn.
//!
//! A worker has one question at a time. While it has not answered, how long that has been is its lag; then, how long the
//! answer took.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use millrace_metrics::{Metric, Reading};
use millrace_server::Running;
use tokio::sync::Notify;

/// How long a scrape waits for workers.
pub(crate) const SCRAPE_PATIENCE: Duration = Duration::from_millis(100);

/// How often a thread that waits for answers looks whether they are there.
const GLANCE: Duration = Duration::from_millis(1);

/// The pulse of all workers.
#[derive(Debug)]
pub(crate) struct Pulse {
    /// Locked for a look, or an answer.
    beats: Mutex<Vec<Beat>>,
    answered: Notify,
}

/// What is known of a worker.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Beat {
    /// Since when an answer is waited for.
    asked: Option<Instant>,
    /// How long the last answer took.
    lag: Duration,
}

impl Beat {
    /// Returns how long an answer has been waited for, or took.
    pub(crate) fn lag(&self) -> Duration {
        self.asked.map_or(self.lag, |asked| asked.elapsed())
    }

    /// Returns for how long the worker has not answered.
    pub(crate) fn silence(&self) -> Duration {
        self.asked.map_or(Duration::ZERO, |asked| asked.elapsed())
    }
}

impl Pulse {
    /// Of this many workers.
    pub(crate) fn new(workers: usize) -> Self {
        Self { beats: Mutex::new(vec![Beat::default(); workers]), answered: Notify::new() }
    }

    /// Asks all workers, waits for their answers for at most this time, and returns what is known of each; nothing of
    /// those that have ended.
    pub(crate) async fn feel(self: &Arc<Self>, server: &Running, patience: Duration) -> Vec<Option<Beat>> {
        self.ask_all(server);
        self.wait(patience).await;
        self.of_running(server)
    }

    /// Does the same on a thread that may wait. Returns the lag of each worker.
    pub(crate) fn lags(self: &Arc<Self>, server: &Running, patience: Duration) -> Vec<Reading> {
        self.ask_all(server);
        let end = Instant::now() + patience;
        while self.beats().iter().any(|beat| beat.asked.is_some()) && Instant::now() < end {
            thread::sleep(GLANCE);
        }
        readings(&self.of_running(server))
    }

    fn ask_all(self: &Arc<Self>, server: &Running) {
        self.ask(|worker, answer| match server.has_ended(worker) {
            true => answer(),
            false => server.ask_worker(worker, answer),
        });
    }

    fn of_running(&self, server: &Running) -> Vec<Option<Beat>> {
        let of_running = |(worker, beat): (usize, &Beat)| (!server.has_ended(worker)).then_some(*beat);
        self.beats().iter().enumerate().map(of_running).collect()
    }

    fn ask(self: &Arc<Self>, ask: impl Fn(usize, Box<dyn FnOnce() + Send>)) {
        let mut silent = Vec::new();
        for (worker, beat) in self.beats().iter_mut().enumerate() {
            if beat.asked.is_none() {
                beat.asked = Some(Instant::now());
                silent.push(worker);
            }
        }
        for worker in silent {
            let pulse = Arc::clone(self);
            ask(worker, Box::new(move || pulse.answer(worker)));
        }
    }

    fn answer(&self, worker: usize) {
        if let Some(beat) = self.beats().get_mut(worker) {
            beat.lag = beat.asked.take().map_or(beat.lag, |asked| asked.elapsed());
        }
        self.answered.notify_waiters();
    }

    async fn wait(&self, patience: Duration) -> Vec<Beat> {
        let all = async {
            loop {
                let mut answered = pin!(self.answered.notified());
                answered.as_mut().enable();
                if self.beats().iter().all(|beat| beat.asked.is_none()) {
                    return;
                }
                answered.await;
            }
        };
        let _ = tokio::time::timeout(patience, all).await;
        self.beats().clone()
    }

    fn beats(&self) -> MutexGuard<'_, Vec<Beat>> {
        self.beats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the lags of those that have not ended, as the metrics have them.
pub(crate) fn readings(beats: &[Option<Beat>]) -> Vec<Reading> {
    let reading = |(worker, beat): (usize, &Option<Beat>)| {
        Some(Reading::at(Metric::WorkerLag, worker.to_string(), beat.as_ref()?.lag().as_secs_f64()))
    };
    beats.iter().enumerate().filter_map(reading).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    type Answers = Mutex<Vec<(usize, Box<dyn FnOnce() + Send>)>>;

    #[tokio::test]
    async fn a_worker_that_does_not_answer_is_asked_once_and_lags() {
        let (pulse, answers) = (Arc::new(Pulse::new(2)), Answers::default());
        let ask = |worker, answer| answers.lock().unwrap().push((worker, answer));
        pulse.ask(ask);
        let (_, answer) = answers.lock().unwrap().remove(0);
        answer();
        let before = pulse.wait(Duration::ZERO).await;
        pulse.ask(ask);
        let asked: Vec<usize> = answers.lock().unwrap().iter().map(|(worker, _)| *worker).collect();
        assert_eq!(asked, [1, 0], "the second has still its first question");
        let after = pulse.wait(Duration::ZERO).await;
        assert!(after[1].asked.is_some() && after[1].asked == before[1].asked);
        assert!(after[1].silence() > Duration::ZERO && after[1].lag() > Duration::ZERO);
    }

    #[tokio::test]
    async fn the_wait_ends_with_the_last_answer() {
        let pulse = Arc::new(Pulse::new(3));
        pulse.ask(|_, answer| drop(std::thread::spawn(answer)));
        let beats = pulse.wait(Duration::from_secs(3600)).await;
        assert_eq!(beats.len(), 3);
        assert!(beats.iter().all(|beat| beat.silence().is_zero() && beat.lag() > Duration::ZERO));
    }
}
