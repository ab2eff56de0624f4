//! Limits the rate at which a user reads a download, and judges slow downloads: dkftpbench's `-b`, `-B` and `-m`.
//!
//! A user reads at most a chunk, and the next when the bytes so far are due at its rate. Its speed is judged once ten
//! chunks have come, and at the end.

use std::time::{Duration, Instant};

use crate::plan::{Clock, Settings};

/// The number of chunks from which on the speed is meaningful.
const JUDGED_FROM: u64 = 10;
/// How much a slow reader reads at a time by default: a packet, as in dkftpbench.
const CHUNK: u64 = 1500;

/// The pace of one download.
#[derive(Debug, Clone, Copy)]
pub(super) struct Throttle {
    rate: f64,
    /// Below this rate in bytes a second it has failed.
    least: f64,
    pub(super) chunk: u64,
    clock: Clock,
    /// When the command was sent, and when the first byte came.
    commanded: Instant,
    first: Option<Instant>,
}

impl Throttle {
    /// `None` where the settings do not limit reading.
    pub(super) fn of(settings: &Settings, now: Instant) -> Option<Self> {
        let rate = settings.read_rate? as f64;
        Some(Self {
            rate,
            least: rate * f64::from(settings.least_rate) / 100.0,
            chunk: settings.chunk.unwrap_or(CHUNK),
            clock: settings.clock,
            commanded: now,
            first: None,
        })
    }

    /// Notes that the command was sent.
    pub(super) fn note_command(&mut self, now: Instant) {
        self.commanded = now;
    }

    /// Notes that bytes have arrived.
    pub(super) fn note_bytes(&mut self, now: Instant) {
        self.first.get_or_insert(now);
    }

    /// When it may read again after this many bytes.
    pub(super) fn next(&self, moved: u64) -> Option<Instant> {
        Some(self.first? + Duration::from_secs_f64(moved as f64 / self.rate))
    }

    /// The speed in bytes a second, if that is too low.
    pub(super) fn too_slow(&self, moved: u64, is_over: bool, now: Instant) -> Option<f64> {
        let since = match self.clock {
            Clock::FirstByte => self.first?,
            Clock::Command => self.commanded,
        };
        let speed = moved as f64 / now.saturating_duration_since(since).as_secs_f64().max(1e-9);
        let is_judged = is_over || moved > JUDGED_FROM * self.chunk;
        (is_judged && speed < self.least).then_some(speed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throttle(clock: Clock) -> (Throttle, Instant) {
        let settings = Settings { read_rate: Some(1000), least_rate: 75, clock, ..Settings::default() };
        let now = Instant::now();
        (Throttle::of(&settings, now).unwrap(), now)
    }

    #[test]
    fn a_chunk_is_paid_for_in_time() {
        let (mut throttle, now) = throttle(Clock::FirstByte);
        assert_eq!(throttle.next(0), None);
        throttle.note_bytes(now);
        assert_eq!(throttle.next(1500), Some(now + Duration::from_millis(1500)));
    }

    #[test]
    fn speed_is_judged_after_ten_chunks_and_at_the_end() {
        let (mut throttle, now) = throttle(Clock::FirstByte);
        throttle.note_bytes(now);
        let later = now + Duration::from_secs(30);
        assert_eq!(throttle.too_slow(15_000, false, later), None);
        assert_eq!(throttle.too_slow(15_001, false, later).map(f64::round), Some(500.0));
        assert_eq!(throttle.too_slow(3_000, true, later), Some(100.0));
        assert_eq!(throttle.too_slow(24_000, true, later), None);
    }

    #[test]
    fn the_clock_may_begin_with_the_command() {
        let later = Duration::from_secs(10);
        for (clock, is_slow) in [(Clock::FirstByte, false), (Clock::Command, true)] {
            let (mut throttle, now) = throttle(clock);
            throttle.note_bytes(now + later / 2);
            assert_eq!(throttle.too_slow(5_000, true, now + later).is_some(), is_slow, "{clock:?}");
        }
    }
}
